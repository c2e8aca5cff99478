"""Tensor parallelism in parts: scores from split logits, and projections behind one gather."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from tests.bench.pool import run_group

EXACT = 1e-6


def difference(found: torch.Tensor, expected: torch.Tensor) -> float:
    return float((found.detach().double() - expected.detach()).norm() / expected.detach().norm())


def vocabulary_errors(vocabulary: int, with_entropy: bool) -> list[float]:
    """Of log-probabilities, entropies and this rank's part of the logits' gradient, against all logits in fp64."""
    import torch.distributed as dist

    from bench.measure.model import _score, _score_part
    from bench.parallel.vocabulary import LocalScores, combine

    rank, size = dist.get_rank(), dist.get_world_size()
    generator = torch.Generator().manual_seed(3)
    whole = 3 * torch.randn(12, vocabulary, generator=generator)
    targets = torch.randint(0, vocabulary, (12,), generator=generator)
    weights = torch.randn(2, 12, generator=generator)
    held = torch.arange(vocabulary).chunk(size)[rank]
    mine = whole[:, held].requires_grad_()
    part = _score_part(mine, targets, int(held[0]), 0.7, 30.0, with_entropy)
    found = combine(LocalScores(*part), dist.group.WORLD)  # type: ignore[arg-type]
    # An expanded gradient, as of a sum, has no memory of its own.
    (found[0] * weights[0] + (found[1] * weights[1] if with_entropy else 0)).sum().backward()
    exact = whole.double().requires_grad_()
    expected = exact_scores(exact, targets)
    (expected[0] * weights[0] + (expected[1] * weights[1] if with_entropy else 0)).sum().backward()
    assert mine.grad is not None
    assert exact.grad is not None
    errors = [difference(found[0], expected[0]), difference(mine.grad, exact.grad[:, held])]
    alone = _score(whole, targets, 0.7, 30.0, with_entropy)  # what one process computes
    errors.append(difference(alone[0], expected[0]))
    return [*errors, difference(found[1], expected[1])] if with_entropy else errors


def exact_scores(logits: torch.Tensor, targets: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    scores = (torch.tanh(logits / 30) * 30 / 0.7).log_softmax(-1)
    return scores.gather(1, targets[:, None])[:, 0], -(scores.exp() * scores).sum(1)


@pytest.mark.parametrize("with_entropy", [False, True])
@pytest.mark.parametrize(("size", "vocabulary"), [(2, 64), (4, 10)], ids=["even", "uneven"])
def test_scores_of_a_split_vocabulary_are_those_of_the_whole(size: int, vocabulary: int, with_entropy: bool) -> None:
    for errors in run_group(size, vocabulary_errors, vocabulary, with_entropy):
        assert max(errors) < EXACT


class Block(nn.Module):
    """Two projections of one input, their product, and a projection back: the shape of every gated MLP."""

    def __init__(self, bias: bool) -> None:
        super().__init__()
        self.gate_proj, self.up_proj = nn.Linear(8, 12, bias=bias), nn.Linear(8, 12, bias=bias)
        self.down_proj = nn.Linear(12, 8, bias=False)

    def forward(self, hidden_states: torch.Tensor) -> torch.Tensor:
        result: torch.Tensor = self.down_proj(self.gate_proj(hidden_states).sigmoid() * self.up_proj(hidden_states))
        return result


def block_errors(rows: int, bias: bool, named: bool, fused: bool, overlap: bool) -> list[float]:
    """Of the output, of the input's gradient and of every parameter's, on this rank's positions."""
    import torch.distributed as dist
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor.parallel import parallelize_module

    from bench.parallel.sequence_parallel import Columns, ScatteredRows

    rank, size = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(5)
    block, whole, grad = Block(bias), torch.randn(rows, 12, 8), torch.randn(rows, 12, 8)
    exact = Block(bias).double()
    exact.load_state_dict(block.state_dict())
    inputs = whole.double().requires_grad_()
    expected = exact(inputs)
    expected.backward(grad.double())
    mesh = init_device_mesh("cpu", (size,))
    parallelize_module(block, mesh, Columns("gate_proj", "up_proj", fused=fused, overlap=overlap))
    parallelize_module(block.down_proj, mesh, ScatteredRows(overlap))
    positions = slice(rank * 12 // size, (rank + 1) * 12 // size)
    mine = whole[:, positions].clone().requires_grad_()
    found = block(hidden_states=mine) if named else block(mine)
    found.backward(grad[:, positions])
    assert mine.grad is not None
    assert inputs.grad is not None
    errors = [difference(found, expected[:, positions]), difference(mine.grad, inputs.grad[:, positions])]
    for name, parameter in block.named_parameters():
        assert parameter.grad is not None
        errors.append(difference(parameter.grad.full_tensor(), exact.get_parameter(name).grad))  # type: ignore[arg-type,operator]
    return errors


@pytest.mark.parametrize("overlap", [False, True], ids=["one after the other", "overlap"])
@pytest.mark.parametrize(
    ("size", "rows", "bias", "named", "fused"),
    [(2, 1, False, True, True), (2, 2, True, False, True), (3, 1, True, False, False), (4, 2, False, True, False)],
)
def test_projections_over_split_positions_are_the_whole_block(
    size: int, rows: int, bias: bool, named: bool, fused: bool, overlap: bool
) -> None:
    for errors in run_group(size, block_errors, rows, bias, named, fused, overlap):
        assert max(errors) < EXACT
