"""Random numbers that all ranks draw alike, gathered as if each had drawn its own.

What it does
    Reports a gather (`all_gather`, `gather`, `Accelerator.gather`) of what is made of random numbers (`torch.randn`,
    `torch.randint`) where nothing else can make ranks differ: every draw is from a generator that the program is seen
    to seed alike on all ranks (`torch.manual_seed(args.seed)` on every way to the draw), and all else in it are
    constants, options and models. It rests on models being the same on all ranks, and on functions that are handed no
    data having none. Silent where the seed may tell the rank, where a part comes from data, from files or from where it
    is not known, and where nothing seeds.

Why is this bad
    Each rank makes the same samples: of 50,000 samples that eight ranks gather, 6,250 are different ones, each eight
    times. Measures of them, such as FID, are wrong, and eight GPUs do the work of one. Nothing fails.

References
    https://docs.pytorch.org/docs/stable/notes/randomness.html
    https://docs.pytorch.org/docs/stable/distributed.html#torch.distributed.all_gather
"""

from __future__ import annotations

from collections.abc import Iterator

from validator.finding import Finding, Related
from validator.flow.queries.base import Place, Queries
from validator.flow.queries.outside_program import is_aside
from validator.flow.queries.ranks.drawn_alike import draw_behind
from validator.project import Project
from validator.rule import Rule

RULE = Rule("MP579", "same-draws-gathered", "warning", "1.0", tokens=("gather",))


def check_project(project: Project) -> Iterator[Finding]:
    queries = project.analysis(Queries)
    gathering = sorted({row.name for row in queries.flow.models.rows if row.reads and "gather" in row.name})
    for call in queries.collectives(*gathering):
        given = _given(call) if not is_aside(call.unit.path) else None
        draw = draw_behind(given) if given is not None else None
        if given is not None and draw is not None:
            yield _finding(call, given, draw)


def _given(call: Place) -> Place | None:
    """What a rank gives of its own."""
    rows = [operation.row for operation in call.operations]
    return call.argument(*rows[0].reads) if rows and rows[0].reads is not None else None


def _finding(call: Place, given: Place, draw: Place) -> Finding:
    return RULE.finding(
        call.unit.path,
        call.at,
        f"`{call.operand(0).text}`{call.where} gathers the same `{given.text}` from every rank: all seed alike what"
        f" `{draw.text}` is drawn from",
        help="seed by rank what makes the samples: `torch.manual_seed(seed + dist.get_rank())`",
        related=[Related(draw.unit.path, draw.at[0], "drawn alike here")],
        context=f"{call.unit.qualname}:{call.operand(0).text}:{given.text}",
    )


_SAMPLES = """
import argparse
import random

import torch
import torch.distributed as dist
from accelerate.utils import set_seed
from my_data import images


class Model(torch.nn.Module):
    def sample(self, noise, steps):
        return noise


def seed_all(number):
    random.seed(number)
    torch.manual_seed(number)


def batch(count, device):
    return torch.randint(0, 10, (count,), device=device)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--count", type=int, default=8)
    args = parser.parse_args()
    dist.init_process_group("nccl")
    device = torch.device("cuda", dist.get_rank() % torch.cuda.device_count())
    {seed}
    model = Model().to(device)
    found = []
    while len(found) < args.count:
        noise = torch.randn(args.count, 3, 32, 32, device=device)
        {sample}
        parts = [torch.zeros_like(sample) for _ in range(dist.get_world_size())]
        dist.all_gather(parts, sample){mark}
        found += parts
    return found


main()
"""


def _samples(seed: str, sample: str = "sample = model.sample(noise, 10).clamp(0, 255)", mark: str = "") -> str:
    return _SAMPLES.format(seed=seed, sample=sample, mark=mark)


_MARK = "  # error: MP579"

INCORRECT = (
    _samples("torch.manual_seed(args.seed)", mark=_MARK),
    _samples("set_seed(args.seed)", mark=_MARK),
    _samples("seed_all(args.seed)", "sample = batch(args.count, device)", mark=_MARK),
    _samples(
        "generator = torch.Generator(device).manual_seed(7)",
        "sample = torch.randn(4, generator=generator, device=device)",
        mark=_MARK,
    ),
)

CORRECT = (
    _samples("torch.manual_seed(args.seed + dist.get_rank())"),
    _samples("seed_all(args.seed)\n    seed_all(args.seed * dist.get_world_size() + dist.get_rank())"),
    _samples("pass"),
    _samples("set_seed(args.seed, device_specific=True)"),
    # something else makes them differ, or may
    _samples("torch.manual_seed(args.seed)", "sample = model.sample(noise[dist.get_rank() :], 10)"),
    _samples("torch.manual_seed(args.seed)", "sample = noise + torch.load('images.pt')"),
    _samples("torch.manual_seed(args.seed)", "sample = next(iter(images)) + noise[:1]"),
    _samples(
        "generator = torch.Generator(device)\n    generator.manual_seed(dist.get_rank())",
        "sample = torch.randn(4, generator=generator, device=device)",
    ),
)
