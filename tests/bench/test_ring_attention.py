"""The ring against full attention, its layout, and its block kernels against each other."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from bench.parallel.attention_blocks import CpuFlash, Plain, States, merge_
from bench.parallel.ring_attention import zigzag_chunks, zigzag_indices
from tests.bench.pool import run_group

HEADS, KEY_HEADS, SIZE = 4, 2, 16
TOLERANCE = {torch.float32: 1e-6, torch.bfloat16: 2e-2}


@given(
    ring=st.integers(1, 8),
    chunks=st.lists(st.integers(1, 5), min_size=1, max_size=4),
)
def test_the_ranks_hold_every_position_once_and_equal_shares(ring: int, chunks: list[int]) -> None:
    lengths = [2 * ring * chunk for chunk in chunks]
    held = [zigzag_indices(lengths, rank, ring) for rank in range(ring)]
    assert sorted(torch.cat(held).tolist()) == list(range(sum(lengths)))
    assert {len(part) for part in held} == {sum(lengths) // ring}


@given(ring=st.integers(1, 8), chunk=st.integers(1, 9))
def test_causal_work_is_the_same_on_every_rank(ring: int, chunk: int) -> None:
    """The number of keys that come before a rank's queries, over both of its chunks."""
    length = 2 * ring * chunk
    work = {
        sum(position + 1 for piece in zigzag_chunks(length, rank, ring) for position in range(piece.start, piece.stop))
        for rank in range(ring)
    }
    assert len(work) == 1


def test_a_document_that_does_not_split_is_refused() -> None:
    with pytest.raises(ValueError, match="does not split into 2 x 4"):
        zigzag_chunks(12, 0, 4)


@settings(deadline=None, max_examples=25)
@given(length=st.integers(2, 40), cut=st.integers(1, 39), causal=st.booleans())
def test_merged_blocks_are_one_softmax(length: int, cut: int, causal: bool) -> None:
    """Keys in two blocks, merged, give what they give in one; and both kernels give the same."""
    cut = min(cut, length - 1)
    generator = torch.Generator().manual_seed(length * 41 + cut)
    query, key, value = (torch.randn(1, 2, length, SIZE, generator=generator) for _ in range(3))
    for kernel in (Plain(), CpuFlash()):
        whole = kernel.forward(States(query, key, value), False, 0.25)
        output = torch.zeros_like(query)
        lse = torch.full(query.shape[:3], float("-inf"))
        for piece in (slice(0, cut), slice(cut, length)):
            states = States(query, key[:, :, piece], value[:, :, piece])
            merge_(output, lse, kernel.forward(states, False, 0.25))
        torch.testing.assert_close(output, whole.output, rtol=1e-5, atol=1e-5)
        torch.testing.assert_close(lse, whole.lse, rtol=1e-5, atol=1e-5)
    states = States(query, key, value)
    plain, flash = Plain().forward(states, causal, 0.25), CpuFlash().forward(states, causal, 0.25)
    grad = torch.randn(query.shape, generator=generator)
    for found, expected in zip(
        CpuFlash().backward(grad, states, flash, causal, 0.25),
        Plain().backward(grad, states, plain, causal, 0.25),
        strict=True,
    ):
        torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5)


def full_attention(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, lengths: list[int]) -> torch.Tensor:
    """Causal attention within each document, in fp64."""
    parts, start = [], 0
    repeat = query.shape[1] // key.shape[1]
    for length in lengths:
        piece = slice(start, start + length)
        q, k, v = query[:, :, piece], key[:, :, piece], value[:, :, piece]
        k, v = k.repeat_interleave(repeat, 1), v.repeat_interleave(repeat, 1)
        parts.append(torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True))
        start += length
    return torch.cat(parts, 2)


def ring_errors(rows: int, lengths: list[int], dtype: torch.dtype) -> list[float]:
    """Largest errors, relative to the largest value, of output and gradients on this rank."""
    import torch.distributed as dist

    from bench.parallel.ring_attention import Ring, ring_attention, set_ring

    ring = set_ring(dist.group.WORLD) if dist.is_initialized() else Ring(None, 0, 1)  # type: ignore[arg-type]
    assert ring is not None
    generator = torch.Generator().manual_seed(7)
    total = sum(lengths)
    shapes = [(rows, heads, total, SIZE) for heads in (HEADS, KEY_HEADS, KEY_HEADS, HEADS)]
    query, key, value, grad = (torch.randn(shape, generator=generator).to(dtype) for shape in shapes)
    exact = [t.double().requires_grad_() for t in (query, key, value)]
    expected = full_attention(*exact, lengths)
    expected.backward(grad.double())
    held = zigzag_indices(lengths, ring.rank, ring.size)
    local = [t[:, :, held].clone().requires_grad_() for t in (query, key, value)]
    found = ring_attention(*local, [length // ring.size for length in lengths], SIZE**-0.5, ring)
    found.backward(grad[:, :, held])
    pairs = [(found, expected)] + [(mine.grad, theirs.grad) for mine, theirs in zip(local, exact, strict=True)]
    return [float((mine.double() - theirs[:, :, held]).abs().max() / theirs.abs().max()) for mine, theirs in pairs]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=["fp32", "bf16"])
@pytest.mark.parametrize("rows", [1, 2], ids=["packed", "rows"])
@pytest.mark.parametrize("size", [1, 2, 4, 8])
def test_outputs_and_gradients_are_those_of_full_attention(size: int, rows: int, dtype: torch.dtype) -> None:
    lengths = [64, 16, 112] if rows == 1 else [96]
    for errors in run_group(size, ring_errors, rows, lengths, dtype):
        assert max(errors) < TOLERANCE[dtype]


def recorded_order() -> tuple[list[str], list[str]]:
    """What a rank does in the forward and backward pass, in order, and the kernels it says it used."""
    import torch.distributed as dist

    from bench.parallel import ring_attention as rings

    ring = rings.set_ring(dist.group.WORLD, "eager")
    assert ring is not None
    done: list[str] = []
    exchange = rings._exchange

    class Recording(Plain):
        def forward(self, *args: object) -> object:  # type: ignore[override]
            done.append("block")
            return super().forward(*args)  # type: ignore[arg-type]

        def backward(self, *args: object) -> object:  # type: ignore[override]
            done.append("gradients of a block")
            return super().backward(*args)  # type: ignore[arg-type]

    def recording(*args: object, **kwargs: object) -> object:
        done.append("exchange")
        return exchange(*args, **kwargs)  # type: ignore[arg-type]

    rings._exchange = recording  # type: ignore[assignment]
    query = torch.randn(1, 2, 8, SIZE, requires_grad=True)
    rings.ring_attention(query, query.detach(), query.detach(), [8], 0.25, ring, Recording()).sum().backward()
    rings._attention_forward(torch.nn.Module(), query, query, query, None)
    return done, rings.kernels_used()


@pytest.mark.parametrize("size", [2, 3])
def test_the_exchange_is_under_way_during_each_block(size: int) -> None:
    """Keys and values move on before the block that needs no more than those at hand; a rank's own gradients stay."""
    forward = ["exchange", "block"] * (size - 1) + ["block"]
    last = ["gradients of a block", "exchange"]  # of keys and values: they go home
    backward = ["exchange", "gradients of a block"]
    for _ in range(size - 2):
        backward += ["exchange", *last]
    for done, used in run_group(size, recorded_order):
        assert done[: len(forward + backward) + 2] == forward + backward + last
        assert used == ["plain"]
