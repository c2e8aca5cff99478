"""Weights that each rank draws for itself, where ranks share nothing but gradients.

What it does
    Follows the parameters of an optimizer back to the call that makes their model, and from there to the seeds that may
    be in force. Reports the seed where it surely is another one on each rank, nothing wraps the model, and the program
    reduces gradients over all ranks by hand. Silent where anything may give the model other weights afterwards: a
    collective on something else than gradients, a checkpoint, an initialisation of its own, or code that is not known
    and gets the model.

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

INCORRECT = [
    _PROGRAM.replace("{before}", f"{_APART}  # error: MP435").replace("{after}", "pass"),
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
]
