"""The head whose kernel leaves the logits' gradient where they lay; a GPU's kernel is replaced by what it computes."""

from __future__ import annotations

import pytest
import torch

from bench.measure.model import build_actor
from bench.parallel import one_pass


def softmax_minus_one_hot(logits: torch.Tensor, targets: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    losses = torch.nn.functional.cross_entropy(logits.float(), targets, reduction="none")
    one_hot = torch.nn.functional.one_hot(targets, logits.shape[-1])
    logits.copy_(logits.float().softmax(-1) - one_hot)
    return losses, logits


def test_log_probs_and_gradients_are_those_of_the_whole_head(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(one_pass, "_losses", softmax_minus_one_hot)
    monkeypatch.setattr(one_pass, "fits", lambda head, hidden: True)
    ids = torch.randint(0, 1024, (2, 40))
    weights = torch.rand(2, 40)  # of positions: what a policy's loss scales each gradient by
    found = []
    for head in ("full", "compiled"):
        actor = build_actor(model="llama-tiny", num_layers=1, attn="sdpa", device=torch.device("cpu"), head=head)
        output = actor(ids, ids.roll(-1, 1))
        (output.log_probs * weights).sum().backward()
        found.append([output.log_probs, *(p.grad for p in actor.parameters())])
        assert "forward" not in vars(actor.model.lm_head)
    for one, other in zip(*found, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-5)


def test_a_head_without_a_gpu_is_left_alone() -> None:
    assert not one_pass.fits(torch.nn.Linear(4, 4, bias=False), torch.zeros(2, 4, dtype=torch.bfloat16))
