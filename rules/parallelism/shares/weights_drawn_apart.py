"""Weights that each rank draws for itself, where ranks share nothing but gradients.

What it does
    Follows the parameters of an optimizer back to the call that makes their model, and from there to the seeds that may
    be in force. Reports the seed where it surely is another one on each rank, nothing wraps the model, and the program
    reduces gradients over all ranks by hand. A context manager counts that seeds where it is entered, and one that
    gives the state back where it is left. Silent where the constructor writes constants over what its layers draw, and
    where anything may give the model other weights afterwards: a collective on something else than gradients, a
    checkpoint, an initialisation of its own, or code that is not known and gets the model.

Why is this bad
    Gradients that were computed for different weights are averaged and added to each of them: every rank trains another
    model, with gradients of the others. Nothing fails. `DistributedDataParallel` would send the weights of the first
    rank to all.

References
    https://docs.pytorch.org/docs/stable/notes/ddp.html#internal-design
"""

from __future__ import annotations

from collections.abc import Iterator

from validator.finding import Finding, Related
from validator.flow.queries.training.drawn_weights import drawn_apart
from validator.project import Project
from validator.rule import Rule

RULE = Rule("MP435", "weights-drawn-apart", "warning", "1.0", tokens=("seed",), solves=True)


def check_project(project: Project) -> Iterator[Finding]:
    for drawn in drawn_apart(project):
        seeding, made, reduced = drawn.seed.call, drawn.made, drawn.reduced
        yield RULE.finding(
            seeding.unit.path,
            seeding.at,
            f"`{seeding.text}`{seeding.where} seeds each rank by itself before `{made.text}` draws its weights, and"
            " only gradients are averaged: each rank trains another model",
            help="make the model after a seed that all ranks have, or broadcast its parameters and buffers",
            related=[
                Related(made.unit.path, made.at[0], "the model is made here"),
                Related(reduced.unit.path, reduced.at[0], "gradients are reduced here"),
            ],
            context=f"{seeding.unit.qualname}:{seeding.text}",
        )


_PROGRAM = """
import os

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Linear(8, 1)

    def forward(self, images):
        return self.body(images)

def set_seed(seed, offset=0):
    torch.manual_seed(seed + offset)

def average(parameters):
    for parameter in parameters:
        dist.all_reduce(parameter.grad, op=dist.ReduceOp.AVG)

def share(model):
    for parameter in model.parameters():
        dist.broadcast(parameter.data, src=0)

def main(batches):
    dist.init_process_group("nccl")
    {before}
    model = Net().cuda()
    {after}
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for batch in batches:
        optimizer.zero_grad()
        model(batch).mean().backward()
        average(model.parameters())
        optimizer.step()

if __name__ == "__main__":
    main([torch.ones(8)])
"""
_APART = "set_seed(7, offset=dist.get_rank())"

_SEEDED = """
from contextlib import contextmanager
{program}
@contextmanager
def seeded(seed):
    state = torch.get_rng_state()
    torch.manual_seed(seed)
    try:
        yield
    finally:
        torch.set_rng_state(state)
"""

_CONSTANT = _PROGRAM.replace("{before}", _APART).replace("{after}", "pass")
_FORKED = "with torch.random.fork_rng():\n        {} \n        noise = torch.rand(8)"


def _within(manager: str, before: str) -> str:
    """A model that is made inside a `with`, behind a seed."""
    made = f"{before}\n    with {manager}:\n        model = Net().cuda()"
    whole = _PROGRAM.replace("    {before}\n    model = Net().cuda()", f"    {made}").replace("{after}", "pass")
    return _SEEDED.format(program=whole)


INCORRECT = [
    _PROGRAM.replace("{before}", f"{_APART}  # error: MP435").replace("{after}", "pass"),
    # a seed inside `fork_rng` is no longer in force behind it; one of a `with` of the project is inside it
    _PROGRAM.replace("{before}", f"{_APART}  # error: MP435\n    {_FORKED.format('set_seed(7)')}").replace(
        "{after}", "pass"
    ),
    _within("seeded(7 + dist.get_rank())", "set_seed(7)").replace(
        "+ dist.get_rank()):", "+ dist.get_rank()):  # error: MP435"
    ),
    # only some of the weights are written anew
    _CONSTANT.replace("nn.Linear(8, 1)", "nn.Linear(8, 1)\n        nn.init.zeros_(self.body.bias)").replace(
        f"    {_APART}", f"    {_APART}  # error: MP435"
    ),
    # an object of the program's own has something under the name of a tensor's data
    _PROGRAM.replace("{before}", f"{_APART}  # error: MP435")
    .replace("{after}", "rows = Rows(batches)")
    .replace("def set_seed", "class Rows:\n    def __init__(self, data):\n        self.data = data\n\ndef set_seed"),
]

CORRECT = [
    _PROGRAM.replace("{before}", "set_seed(7)").replace("{after}", _APART),
    # the weights are the first rank's, a checkpoint's, or drawn again; the seed is the device's alone
    _PROGRAM.replace("{before}", _APART).replace("{after}", "share(model)"),
    _PROGRAM.replace("{before}", _APART).replace("{after}", "model = DDP(model)"),
    _PROGRAM.replace("{before}", _APART).replace("{after}", 'model.load_state_dict(torch.load("net.pt"))'),
    _PROGRAM.replace("{before}", _APART).replace("{after}", "set_seed(7)\n    model.apply(torch.nn.init.normal_)"),
    _PROGRAM.replace("{before}", "torch.cuda.manual_seed(dist.get_rank())").replace("{after}", "pass"),
    # the state is set anew where the model is made, and the seed of the rank is in force elsewhere
    _within("seeded(7)", _APART),
    _PROGRAM.replace("{before}", f"set_seed(7)\n    {_FORKED.format(_APART)}").replace("{after}", "pass"),
    _PROGRAM.replace("{before}", f"{_APART}\n    torch.set_rng_state(torch.load('state.pt'))").replace(
        "{after}", "pass"
    ),
    # constants are no draws, nor are weights drawn with a generator that all ranks seed alike
    _CONSTANT.replace("nn.Linear(8, 1)", "nn.Linear(8, 1, bias=False)\n        nn.init.zeros_(self.body.weight)"),
    _CONSTANT.replace("nn.Linear(8, 1)", "nn.LayerNorm(8)\n        self.scale = nn.Parameter(torch.ones(8))"),
    _CONSTANT.replace(
        "nn.Linear(8, 1)",
        "nn.Linear(8, 1)\n        alike = torch.Generator().manual_seed(7)\n"
        "        for parameter in self.parameters():\n            nn.init.normal_(parameter, generator=alike)",
    ),
    _PROGRAM.replace("{before}", _APART).replace(
        "{after}", "for parameter in model.parameters():\n        nn.init.constant_(parameter, 0.1)"
    ),
    # a decorator of the project seeds before it makes the model
    _PROGRAM.replace(
        "def main",
        """def seeding(make):
    def inner():
        torch.manual_seed(7)
        return make()
    return inner

@seeding
def build():
    return Net().cuda()

def main""",
    )
    .replace("{before}", _APART)
    .replace("model = Net().cuda()", "model = build()")
    .replace("{after}", "pass"),
]
