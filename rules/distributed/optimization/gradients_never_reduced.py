"""A model that each of several processes trains by itself.

What it does
    Follows the parameters that an optimizer is made of back to the calls that make their model. Reports the optimizer
    where the same program, in the same process, computes gradients and takes steps and sets up a process group or
    deals its data out with a `DistributedSampler`, while nothing wraps the model (DDP, FSDP, an engine) and nothing
    reduces its gradients or averages its weights. Silent where the model, or what holds it, goes to anything that is
    not known, where a forward pass communicates by itself, and where ranks train different things. A warning where
    only the process group says that there are several processes.

Why is this bad
    Each rank goes its own way with its share of the data: more GPUs give several worse models, of which one is saved.
    Nothing fails, and the loss falls.

References
    https://docs.pytorch.org/docs/stable/generated/torch.nn.parallel.DistributedDataParallel.html
"""

from __future__ import annotations

from collections.abc import Iterator

from validator.finding import Finding, Related
from validator.flow.queries.training.unreduced_models import Trained, UnreducedModels
from validator.project import Project
from validator.rule import Rule

RULE = Rule("MP578", "gradients-never-reduced", "error", "1.0", tokens=("optim",), solves=True)


def check_project(project: Project) -> Iterator[Finding]:
    for trained in project.analysis(UnreducedModels).found():
        yield _finding(trained)


def _finding(trained: Trained) -> Finding:
    call, made, several = trained.optimizer, trained.made, trained.several
    return RULE.finding(
        call.unit.path,
        call.at,
        f"`{call.method}`{call.where} trains a model on each rank by itself: nothing wraps it, and nothing reduces its"
        " gradients",
        help="wrap the model in `DistributedDataParallel` before it is used",
        related=[
            Related(made.unit.path, made.at[0], "the model is made here"),
            Related(several.unit.path, several.at[0], "there are several processes"),
        ],
        context=f"{call.unit.qualname}:{call.method}",
        severity="error" if trained.shared_out else "warning",
    )


_PROGRAM = """
import copy
import os

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler

class Net(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.body = nn.Linear(width, width)
        self.head = nn.Linear(width, 1)

    def forward(self, images):
        return self.head(self.body(images))

class Split(Net):
    def forward(self, images):
        out = self.body(images)
        dist.all_reduce(out)
        return self.head(out)

class Mean:
    def __init__(self):
        self.total, self.count = 0.0, 0

    def add(self, value):
        self.total, self.count = self.total + value, self.count + 1

    def everywhere(self):
        both = torch.tensor([self.total, self.count], device="cuda")
        dist.all_reduce(both)
        return both[0] / both[1]

def average(model):
    for param in model.parameters():
        if param.grad is not None:
            dist.all_reduce(param.grad)
            param.grad /= dist.get_world_size()

def together(model):
    for value in model.state_dict().values():
        dist.all_reduce(value)
        value /= dist.get_world_size()

def groups(model):
    decayed, others = [], []
    for name, param in model.named_parameters():
        (others if name.endswith("bias") else decayed).append(param)
    return [{{"params": decayed}}, {{"params": others, "weight_decay": 0.0}}]

def train(model, optimizer, loader):
    mean = Mean()
    for images, labels in loader:
        loss = nn.functional.mse_loss(model(images.cuda()), labels.cuda())
        optimizer.zero_grad()
        loss.backward()
        {reduced}
        optimizer.step()
        mean.add(loss.item())
    return mean.everywhere()

def main(data, fit, epochs=3):
    dist.init_process_group("nccl")
    rank = dist.get_rank()
    torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    model = {model}.cuda()
    {wrapped}
    optimizer = {optimizer}
    sampler = {sampler}
    loader = DataLoader(data, batch_size=4, sampler=sampler)
    for epoch in range(epochs):
        loss = train(model, optimizer, loader)
        {after}
        if rank == 0:
            print(epoch, loss)
            torch.save(model.state_dict(), "model.pt")
"""


def _program(
    optimizer: str = "torch.optim.SGD(model.parameters(), lr=0.1)",
    model: str = "Net(4)",
    wrapped: str = "pass",
    reduced: str = "pass",
    sampler: str = "DistributedSampler(data)",
    after: str = "sampler.set_epoch(epoch)",
) -> str:
    return _PROGRAM.format(
        optimizer=optimizer, model=model, wrapped=wrapped, reduced=reduced, sampler=sampler, after=after
    )


# Two models that are trained in turn, of which one is wrapped.
_PAIR = """
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader
from torch.utils.data.distributed import DistributedSampler

class Maker(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(4, 4)

    def forward(self, noise):
        return self.layer(noise)

class Judge(nn.Module):
    def __init__(self, inner=None):
        super().__init__()
        self.layer, self.inner = nn.Linear(4, 1), inner

    def forward(self, images):
        return self.layer(images)

class Trainer:
    def __init__(self, data, device):
        dist.init_process_group("nccl")
        self.maker = DistributedDataParallel(Maker().to(device))
        self.judge = {judge}
        self.making = torch.optim.Adam(self.maker.parameters())
        self.judging = torch.optim.Adam(self.judge.parameters()){mark}
        self.loader = DataLoader(data, sampler=DistributedSampler(data))

    def fit(self):
        for images in self.loader:
            made = self.maker(torch.randn_like(images))
            self.judging.zero_grad()
            (self.judge(made.detach()) - self.judge(images)).mean().backward()
            self.judging.step()
            self.making.zero_grad()
            (-self.judge(made)).mean().backward()
            self.making.step()

def main(data, device):
    Trainer(data, device).fit()
"""

INCORRECT = [
    _program("torch.optim.SGD(model.parameters(), lr=0.1)  # error: MP578"),
    _program(
        "torch.optim.AdamW(groups(model))  # error: MP578", model="nn.SyncBatchNorm.convert_sync_batchnorm(Net(4))"
    ),
    # a copy that is wrapped is another model
    _program("torch.optim.SGD(model.parameters(), lr=0.1)  # error: MP578", wrapped="teacher = DDP(Net(4).cuda())"),
    _PAIR.format(judge="Judge().to(device)", mark="  # error: MP578"),
]

CORRECT = [
    _program(wrapped="model = DDP(model)"),
    _program("torch.optim.SGD(groups(model), lr=0.1)", wrapped="wrapped = model = DDP(model)"),
    _program(reduced="average(model)"),
    _program(after="together(model)"),
    _program(wrapped="model.body.weight.register_hook(lambda grad: dist.all_reduce(grad))"),
    # somebody else may wrap it, in place too, or its optimizer
    _program(wrapped="fit(model)"),
    _program("fit(torch.optim.SGD(model.parameters(), lr=0.1))"),
    # ranks that work on one model together, or each on its own
    _program(model="Split(4)"),
    _program(model="Net(rank)"),
    _program(wrapped="model = Net(4) if rank == 0 else Net(8)"),
    # all ranks go the same way with the same data
    _program(sampler="None", after="pass"),
    _PAIR.format(judge="DistributedDataParallel(Judge().to(device))", mark=""),
    _PAIR.format(judge="Judge(self.maker).to(device)", mark=""),
]
