"""FlashAttention-4's operators, with matrix products in place of the package, which needs a GPU."""

from __future__ import annotations

import itertools
import sys
from types import ModuleType
from typing import Any

import pytest
import torch

from bench.parallel import flash_attention_4
from bench.parallel.attention_blocks import Block, CpuFlash, Flash4, Plain, States, kernel_for
from tests.bench.test_ring_attention import full_attention

HEADS, KEY_HEADS, SIZE = 4, 2, 16


def _each(bounds: torch.Tensor | None, length: int) -> list[slice]:
    ends = [0, length] if bounds is None else bounds.tolist()
    return [slice(start, end) for start, end in itertools.pairwise(ends)]


def _headed(states: torch.Tensor) -> torch.Tensor:
    """(…, positions, heads, size) as blocks take them."""
    return (states if states.dim() == 4 else states[None]).transpose(1, 2)


def _forward(query: Any, key: Any, value: Any, softmax_scale: float, causal: bool, **options: Any) -> Any:
    assert options.pop("return_lse")
    q, k, v = map(_headed, (query, key, value))
    pieces = _each(options.get("cu_seqlens_q"), q.shape[2])
    blocks = [Plain().forward(States(q[:, :, p], k[:, :, p], v[:, :, p]), causal, softmax_scale) for p in pieces]
    output = torch.cat([block.output for block in blocks], 2).transpose(1, 2).contiguous()
    lse = torch.cat([block.lse for block in blocks], 2)
    return (output, lse, None) if query.dim() == 4 else (output[0], lse[0], None)


def _backward(
    query: Any, key: Any, value: Any, output: Any, grad: Any, lse: Any, *, softmax_scale: float, causal: bool,
    dq: Any, dk: Any, dv: Any, **options: Any,
) -> None:  # fmt: skip
    q, k, v, o, g = map(_headed, (query, key, value, output, grad))
    lse = lse if query.dim() == 4 else lse[None]
    for p in _each(options.get("cu_seqlens_q"), q.shape[2]):
        merged = Block(o[:, :, p], lse[:, :, p])
        states = States(q[:, :, p], k[:, :, p], v[:, :, p])
        found = Plain().backward(g[:, :, p], states, merged, causal, softmax_scale)
        for into, gradient in zip((dq, dk, dv), found, strict=True):
            _headed(into)[:, :, p] = gradient


@pytest.fixture(autouse=True)
def package(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("transformers.integrations.flash_attention")  # before the package seems to be there
    interface = ModuleType("flash_attn.cute.interface")
    interface._flash_attn_fwd, interface._flash_attn_bwd = _forward, _backward  # type: ignore[attr-defined]
    for name in ("flash_attn", "flash_attn.cute"):
        monkeypatch.setitem(sys.modules, name, ModuleType(name))
    monkeypatch.setitem(sys.modules, "flash_attn.cute.interface", interface)


def _states(length: int) -> list[torch.Tensor]:
    """Query, key, value and the output's gradient, heads first, in memory as a model hands them over."""
    generator = torch.Generator().manual_seed(3)
    shapes = [(1, length, heads, SIZE) for heads in (HEADS, KEY_HEADS, KEY_HEADS, HEADS)]
    return [torch.randn(shape, generator=generator).transpose(1, 2) for shape in shapes]


def _called(lengths: list[int], query: torch.Tensor, key: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
    """As transformers calls attention, heads first again."""
    options: dict[str, Any] = {}
    if len(lengths) > 1:
        bounds = torch.tensor([0, *lengths], dtype=torch.int32).cumsum(0, dtype=torch.int32)
        options = {"cu_seq_lens_q": bounds, "max_length_q": max(lengths), "max_length_k": max(lengths)}
    output, _ = flash_attention_4._attention_forward(torch.nn.Module(), query, key, value, None, **options)
    return output.transpose(1, 2)


@pytest.mark.parametrize("lengths", [[48], [20, 12, 31]])
@pytest.mark.parametrize("compiled", [False, True])
def test_output_and_gradients_are_those_of_exact_attention(lengths: list[int], compiled: bool) -> None:
    """Compiled, all of it is one graph."""
    flash_attention_4.register()
    *states, grad = _states(sum(lengths))
    exact = [tensor.double().requires_grad_() for tensor in states]
    expected = full_attention(*exact, lengths)
    expected.backward(grad.double())
    called: Any = torch.compile(_called, fullgraph=True, backend="aot_eager") if compiled else _called
    leaves = [tensor.requires_grad_() for tensor in states]
    found = called(lengths, *leaves)
    found.backward(grad)
    torch.testing.assert_close(found.double(), expected, rtol=1e-5, atol=1e-5)
    for mine, right in zip(leaves, exact, strict=True):
        torch.testing.assert_close(mine.grad.double(), right.grad, rtol=1e-5, atol=1e-5)


def test_the_operators_keep_their_promises_to_the_compiler() -> None:
    query, key, value, _ = (tensor.transpose(1, 2).requires_grad_() for tensor in _states(24))
    arguments = (query, key, value, None, 24, 0.25)
    torch.library.opcheck(torch.ops.meshproof_flash_attention_4.forward.default, arguments)
    bounds = torch.tensor([0, 10, 24], dtype=torch.int32)
    rows = (query[0], key[0], value[0], bounds, 14, 0.25)
    torch.library.opcheck(torch.ops.meshproof_flash_attention_4.forward.default, rows)


def test_blocks_of_a_ring_are_those_of_other_kernels() -> None:
    *states, grad = _states(32)
    block_states = States(*states)
    assert isinstance(kernel_for(block_states.query, "flash_attention_4"), Flash4)
    for causal in (True, False):
        block, other = (kernel.forward(block_states, causal, 0.25) for kernel in (Flash4(), CpuFlash()))
        torch.testing.assert_close(block, other, rtol=1e-5, atol=1e-5)
        found = Flash4().backward(grad, block_states, block, causal, 0.25)
        right = CpuFlash().backward(grad, block_states, other, causal, 0.25)
        torch.testing.assert_close(found, right, rtol=1e-4, atol=1e-5)


def test_what_the_operators_do_not_take_goes_to_transformers(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[dict[str, Any]] = []

    def theirs(*arguments: Any, **options: Any) -> tuple[torch.Tensor, None]:
        seen.append(options)
        return arguments[1], None

    monkeypatch.setattr("transformers.integrations.flash_attention.flash_attention_forward", theirs)
    query, key, value, _ = _states(8)
    mask = torch.ones(1, 8)
    module = torch.nn.Module()
    flash_attention_4._attention_forward(module, query, key, value, mask)
    flash_attention_4._attention_forward(module, query, key, value, None, sliding_window=4)
    assert [options["sliding_window"] for options in seen] == [None, 4]
