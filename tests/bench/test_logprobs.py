"""`bench compare --logprobs`: what a trainer and a rollout engine say of the same tokens, computed by real models."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from safetensors.torch import save_file

from bench.cli import main as bench
from bench.compare.logprobs import compare

GAPS = st.lists(st.floats(-1, 1), min_size=1, max_size=40)


def of_a_model(dtype: torch.dtype, temperature: float = 1.0, top_p: float = 1.0) -> tuple[torch.Tensor, torch.Tensor]:
    """(rows, positions) of tiny Llama weights on fixed tokens, as an engine with these settings gives them; mask."""
    from bench.measure.model import build_actor

    actor = build_actor(model="llama-tiny", num_layers=2, attn="sdpa", device=torch.device("cpu"), dtype=dtype, seed=1)
    torch.manual_seed(0)
    tokens = torch.randint(0, 1000, (4, 65))
    with torch.no_grad():
        logits = actor.model(input_ids=tokens[:, :-1]).logits.float() * 8 / temperature
    if top_p < 1.0:
        ordered, order = logits.softmax(-1).sort(-1, descending=True)
        cut = (ordered.cumsum(-1) - ordered) > top_p
        logits = logits.masked_fill(torch.zeros_like(cut).scatter(-1, order, cut), -math.inf)
    chosen = logits.log_softmax(-1).gather(-1, tokens[:, 1:, None])[..., 0]
    mask = torch.ones_like(chosen)
    mask[:, :8] = 0
    return chosen, mask


def written(path: Path, values: torch.Tensor, mask: torch.Tensor) -> str:
    if path.suffix == ".jsonl":
        lines = [
            json.dumps({"rollout_log_probs": row, "response_mask": kept})
            for row, kept in zip(values.tolist(), mask.tolist(), strict=True)
        ]
        path.write_text("\n".join(lines))
    elif path.suffix == ".pt":
        torch.save({"old_log_probs": values, "response_mask": mask}, path)
    else:
        save_file({"logprobs": values.contiguous(), "mask": mask.contiguous()}, path)
    return str(path)


def test_precision_passes_and_temperature_and_top_p_are_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    reference = written(tmp_path / "trainer.safetensors", *of_a_model(torch.float32))
    same = written(tmp_path / "bf16.pt", *of_a_model(torch.bfloat16))
    assert bench(["compare", "--logprobs", reference, same]) == 0
    assert "pass" in capsys.readouterr().out
    for name, changes, words in (
        ("hot.jsonl", {"temperature": 0.5}, "as with another temperature"),
        ("cut.jsonl", {"top_p": 0.5}, "have no probability on one side: as with top-k or top-p"),
    ):
        other = written(tmp_path / name, *of_a_model(torch.float32, **changes))
        assert bench(["compare", "--logprobs", reference, other]) == 1
        told = capsys.readouterr().out
        assert words in told
        assert "meshproof --select MP705" in told


def test_the_mask_decides_which_tokens_count(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    values, mask = of_a_model(torch.float32)
    outside = values + 3.0 * (1 - mask)
    first, second = (
        written(tmp_path / f"{name}.safetensors", tensor, mask) for name, tensor in (("a", values), ("b", outside))
    )
    assert bench(["compare", "--logprobs", first, second, "--format", "json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["tokens"], found["largest"], found["kl"]) == (4 * 56, 0.0, 0.0)


@given(st.lists(GAPS, min_size=1, max_size=5))
def test_figures_are_those_of_all_tokens(gaps: list[list[float]]) -> None:
    found = compare([[0.0] * len(row) for row in gaps], gaps, ("a", "b"))
    flat = [gap for row in gaps for gap in row]
    assert found.tokens == len(flat)
    assert found.mean == pytest.approx(sum(map(abs, flat)) / len(flat), abs=1e-12)
    assert found.kl >= -1e-15
    assert found.kl == pytest.approx(sum(math.exp(g) - 1 - g for g in flat) / len(flat), abs=1e-9)
    for buckets in (found.by_position, found.by_length):
        assert sum(bucket.tokens for bucket in buckets) == len(flat)
        assert max(bucket.largest for bucket in buckets) == found.largest


def test_a_difference_that_grows_with_position_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    gap = torch.linspace(0.0, 0.05, 256).repeat(8, 1)
    mask = torch.ones_like(gap)
    first = written(tmp_path / "a.jsonl", torch.zeros_like(gap), mask)
    second = written(tmp_path / "b.jsonl", gap, mask)
    assert bench(["compare", "--logprobs", first, second]) == 0
    assert "times larger in the last positions than in the first" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("first", "second", "told"),
    [
        ('{"logprobs": [0.1]}', '{"logprobs": [0.1, 0.2]}', "sequence 0: 1 tokens in"),
        ('{"logprobs": [0.1]}', '{"logprobs": [0.1]}\n{"logprobs": [0.1]}', "holds 1 sequences"),
        ('{"loss": 1}', '{"logprobs": [0.1]}', "no log-probabilities in it"),
        ('{"logprobs": ["a"]}', '{"logprobs": [0.1]}', "lists of numbers"),
        ('{"logprobs": [1, 2], "mask": [1]}', '{"logprobs": [0.1]}', "a mask of 1 for 2"),
        ("words", '{"logprobs": [0.1]}', "a.jsonl:1: not JSON"),
    ],
)
def test_files_that_do_not_fit_are_one_line(
    first: str, second: str, told: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name, text in (("a", first), ("b", second)):
        (tmp_path / f"{name}.jsonl").write_text(text)
    assert bench(["compare", "--logprobs", str(tmp_path / "a.jsonl"), str(tmp_path / "b.jsonl")]) == 2
    error = capsys.readouterr().err
    assert error.startswith("bench compare: ")
    assert told in error
    assert error.count("\n") == 1
