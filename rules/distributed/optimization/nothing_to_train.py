"""An optimizer, or a data-parallel wrapper, for parameters that were all frozen.

What it does
    Reports an optimizer of torch that is made from `model.parameters()`, and a model that is given to
    `DistributedDataParallel`, after the function has switched the gradients of all parameters of that model off, in a
    loop without a condition or with `requires_grad_(False)`, and has changed nothing of the model since.

Why is this bad
    No parameter gets a gradient: `step()` changes nothing, or weight decay alone shrinks them. Layers that keep
    statistics still move, so the loss does, too. `DistributedDataParallel` raises where no parameter wants a gradient.

References
    https://docs.pytorch.org/docs/stable/notes/autograd.html#locally-disabling-gradient-computation
"""

from __future__ import annotations

from collections.abc import Iterator

from validator.finding import Finding, Related
from validator.flow.access_paths import Path, paths_of
from validator.flow.control import comes_after
from validator.flow.program.unit import Unit
from validator.flow.queries.base import Place, Queries
from validator.flow.queries.outside_program import is_test
from validator.project import Project
from validator.rule import Rule

RULE = Rule("MP595", "nothing-to-train", "error", "0.5.0", tokens=("requires_grad",), solves=True)

_DDP = "torch.nn.parallel.DistributedDataParallel"
# Methods after which a model still has the parameters that it had.
_LEAVING = frozenset({
    "parameters", "named_parameters", "train", "eval", "to", "cuda", "cpu", "half", "float", "bfloat16", "modules",
    "named_modules", "state_dict", "requires_grad_", "zero_grad",
})  # fmt: skip


def check_project(project: Project) -> Iterator[Finding]:
    queries = project.analysis(Queries)
    for unit in queries.flow.mentions.units("requires_grad", "requires_grad_"):
        frozen = [] if is_test(unit.path) else list(_frozen(queries, unit))
        for call in queries.calls_in(unit) if frozen else ():
            trained = _trained(call)
            for model, where in frozen:
                if trained == model and comes_after(call.unit.code, call.value, call.number, where.value, where.number):
                    if not _is_changed(queries, where, call, model):
                        yield _finding(call, where)
                    break


def _frozen(queries: Queries, unit: Unit) -> Iterator[tuple[Path, Place]]:
    """The models of which all parameters are frozen, and where."""
    control = unit.control
    for store in queries.values(unit, "store_attr"):
        owner, value = store.operand(0).root, store.operand(1)
        if store.value.data != "requires_grad" or not value.val.is_const(False) or owner.value.op != "next":
            continue
        iterated = owner.operand(0).root
        iterated = iterated.operand(0).root if iterated.value.op == "iter" else iterated
        conditions = control.deciding(store.value.block) - control.deciding(iterated.value.block)
        if iterated.value.op == "call" and len(conditions) == 1 and (model := _of_parameters(iterated)) is not None:
            yield model, iterated
    for call in queries.calls_in(unit):
        if call.receiver is not None and _freezes(call):
            yield paths_of(unit).path(call.receiver.number), call


def _of_parameters(call: Place) -> Path | None:
    """The model of `model.parameters()`."""
    if call.value.op != "call" or call.method != "parameters" or call.receiver is None or len(call.value.args) > 1:
        return None
    return paths_of(call.unit).path(call.receiver.number)


def _trained(call: Place) -> Path | None:
    """The model from all of whose parameters a call makes an optimizer of torch, or that it wraps in DDP."""
    made = call.operand(0).val.of("ext")
    module = call.argument("module", 0) if _is_wrapper(call) else None
    if module is not None:
        return paths_of(call.unit).path(module.number)
    given = call.argument("params", 0)
    if given is None or not made or not all(str(o[1]).startswith("torch.optim.") for o in made):
        return None
    return _of_parameters(given.root)


def _is_wrapper(call: Place) -> bool:
    models, made = call.flow.models, call.operand(0).val.each
    return len(made) == 1 and made[0][0] == "ext" and models.named(made[0][1]) == _DDP


def _is_changed(queries: Queries, first: Place, last: Place, model: Path) -> bool:
    """Whether anything may have given the model other parameters, or switched some on again."""
    unit = first.unit
    paths = paths_of(unit)
    for place in queries.values(unit, "store_attr", "store_item", "mut"):
        value = place.value
        if value.op == "mut":
            call = place.value_at(value.args[1])
            mine = paths.path(value.args[0])[: len(model)] == model
            harmless = value.data == -1 and call.method in _LEAVING or call == last
            if mine and not harmless and value.args[1] > first.number:
                return True
        elif value.data == "requires_grad":
            if not place.operand(1).val.is_const(False):
                return True
        elif paths.path(value.args[0])[: len(model)] == model:
            return True
    return any(call.method == "requires_grad_" and not _freezes(call) for call in queries.calls_in(unit))


def _freezes(call: Place) -> bool:
    """Whether a call is `requires_grad_(False)`."""
    given = call.argument("requires_grad", 0) if call.method == "requires_grad_" else None
    return given is not None and given.val.is_const(False)


def _finding(call: Place, where: Place) -> Finding:
    return RULE.finding(
        call.unit.path,
        call.at,
        f"`{call.method}` in `{call.unit.qualname}` is made for parameters that are all frozen: "
        + ("it raises" if _is_wrapper(call) else "no step changes them"),
        help="freeze the layers that are to stay alone, and pass the others",
        related=[Related(where.unit.path, where.at[0], "they are frozen here")],
        context=f"{call.unit.qualname}:{call.method}",
    )


INCORRECT = [
    """
from torch.nn.parallel import DistributedDataParallel as DDP

def reward(model, device):
    model.eval()
    for parameter in model.parameters():
        parameter.requires_grad = False
    return DDP(model, device_ids=[device])  # error: MP595
""",
    """
import torch

def train(model, loader):
    for param in model.parameters():
        param.requires_grad = False
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)  # error: MP595
    for batch in loader:
        model(batch).sum().backward()
        optimizer.step()
        optimizer.zero_grad()
""",
    """
import torch

class Trainer:
    def build(self):
        self.model.requires_grad_(False)
        self.model.train()
        self.optimizer = torch.optim.AdamW(self.model.parameters())  # error: MP595

    def fit(self, batch):
        self.model(batch).sum().backward()
        self.optimizer.step()
        self.optimizer.zero_grad()
""",
]

CORRECT = [
    """
import torch
from torch.nn.parallel import DistributedDataParallel as DDP

def wrap(teacher, student, head):
    teacher.requires_grad_(False)
    student.requires_grad_(False)
    student.head = head
    return teacher, DDP(student)

def thaw(model):
    model.requires_grad_(False)
    for block in model.blocks[-2:]:
        block.requires_grad_(True)
    return DDP(model)
""",
    """
import torch

def train(model, head):
    for name, param in model.named_parameters():
        param.requires_grad = False
    model.head = head
    return torch.optim.SGD(model.parameters(), lr=0.1)

def fit(model, optimizer, batch):
    optimizer.zero_grad()
    model(batch).sum().backward()
    optimizer.step()

def tune(model):
    for param in model.parameters():
        if param.ndim > 1:
            param.requires_grad = False
    return torch.optim.SGD(model.parameters(), lr=0.1)
""",
    """
import torch

def adapt(model, inject):
    model.requires_grad_(False)
    inject(model)
    return torch.optim.SGD(model.parameters(), lr=0.1)

def fit(model, optimizer, batch):
    optimizer.zero_grad()
    model(batch).sum().backward()
    optimizer.step()

def last(model):
    model.requires_grad_(False)
    model.head.requires_grad_(True)
    return torch.optim.SGD(model.parameters(), lr=0.1)
""",
]
