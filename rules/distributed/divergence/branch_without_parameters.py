"""A sub-module that some batches, or some ranks, leave out of the forward pass.

What it does
    In a module whose objects are wrapped in DDP without `find_unused_parameters=True`, or in FSDP, reports a
    sub-module that `forward` calls only under a condition on the contents or the presence of data, on chance or on
    the rank; in DDP also an element of a list of modules that is drawn at random. Silent where the other way calls the
    sub-module too (a dummy forward), and under conditions that are the same on all ranks, such as the configuration or
    `self.training`.

Why is this bad
    DDP waits for the gradient of every parameter: in the first step without the branch it raises in the next forward,
    or reduces buckets in another order than the other ranks. Under FSDP the ranks that take the branch wait in the
    all-gather of its parameters for those that do not.

References
    https://docs.pytorch.org/docs/stable/generated/torch.nn.parallel.DistributedDataParallel.html
"""

from __future__ import annotations

from collections.abc import Iterator

from validator.domains.placement import WRAPPING
from validator.finding import Finding, Related
from validator.flow.program.unit import Unit
from validator.flow.queries.base import Place
from validator.flow.queries.outside_program import is_aside
from validator.flow.queries.ranks.random_draws import draws
from validator.flow.queries.training.placements import Placings
from validator.project import ClassDef, Project
from validator.rule import Rule

RULE = Rule(
    "MP542", "branch-without-parameters", "warning", "0.1.0",
    tokens=("DistributedDataParallel", "DDP", "fully_shard", "FullyShardedDataParallel", "FSDP"),
)  # fmt: skip

_DEEP = 4  # methods that call one another
_KINDS = ("rank", "member", "data")


def check_project(project: Project) -> Iterator[Finding]:
    placings = project.analysis(Placings)
    for cls, wrap in _wrapped(placings).items():
        forward = cls.methods.get("forward")
        unit = placings.flow.unit_of(forward) if forward is not None and not is_aside(cls.path) else None
        if unit is not None:
            yield from _judge(placings, cls, unit, wrap)


def _wrapped(placings: Placings) -> dict[ClassDef, Place]:
    """The classes whose objects are handed to a wrapper that bears no unused parameters, with the call."""
    found: dict[ClassDef, Place] = {}
    bearing = set()
    for call, given, _ in placings.everywhere(*WRAPPING):
        for o in given.closed.each:
            if o[0] in ("inst", "self") and _is_wrapper(placings, call):
                if _bears_unused(call):
                    bearing.add(o[1])
                found.setdefault(o[1], call)
    return {cls: call for cls, call in found.items() if cls not in bearing}


def _is_wrapper(placings: Placings, call: Place) -> bool:
    """Whether a call is the wrapper itself, and no function of the project that calls it."""
    return not placings.queries.targets(call)


def _bears_unused(call: Place) -> bool:
    """What the configuration decides, and keywords handed on, may well be right."""
    unused = call.argument("find_unused_parameters")
    given = unused is not None and not unused.closed.is_const(False)
    return given or call.argument("static_graph") is not None or "**" in call.value.data.names


def _judge(placings: Placings, cls: ClassDef, forward: Unit, wrap: Place) -> Iterator[Finding]:
    called: dict[str, list[Place]] = {}
    drawn: set[str] = set()
    for call, inner in _calls(placings, forward, frozenset({forward})):
        element = _drawn_element(placings, cls, inner) if _is_ddp(wrap) else ""
        if element and element not in drawn:
            drawn.add(element)
            yield _report_drawn(inner, element, wrap)
        name = _submodule(placings, cls, inner)
        if name:
            called.setdefault(name, []).append(call)
    for name, calls in called.items():
        branch = _parting(calls)
        if branch is not None:
            yield _report(calls[0], name, branch, wrap)


def _calls(placings: Placings, unit: Unit, above: frozenset[Unit]) -> Iterator[tuple[Place, Place]]:
    """The calls in a method, and those in methods of the class that it calls: (the call in it, the call)."""
    for call in placings.queries.calls_in(unit):
        yield call, call
        for target in placings.queries.targets(call):
            if target.cls is not None and target.cls is unit.cls and target not in above and len(above) < _DEEP:
                yield from ((call, inner) for _, inner in _calls(placings, target, above | {target}))


def _submodule(placings: Placings, cls: ClassDef, call: Place) -> str:
    """The attribute of `self` that a call runs, if it holds a module with parameters."""
    callee = call.operand(0)
    if callee.value.op != "attr" or callee.operand(0).root.value.op != "param" or callee.operand(0).root.number != 0:
        return ""
    name = str(callee.value.data)
    held = placings.flow.get("field", cls, name, False)
    return name if any(_has_parameters(placings, o) for o in held.each) else ""


def _drawn_element(placings: Placings, cls: ClassDef, call: Place) -> str:
    """The attribute of `self` that holds a list of modules of which a call runs one that is drawn at random."""
    item = call.operand(0).root
    owner = item.operand(0).root if item.value.op == "item" else item
    if owner.value.op != "attr" or owner.operand(0).root.number != 0 or owner.operand(0).root.value.op != "param":
        return ""
    name = str(owner.value.data)
    held = placings.flow.get("field", cls, name, False)
    is_list = any(o[:2] == ("made", "torch.nn.ModuleList") for o in held.each)
    return name if is_list and any(map(draws, item.operand(1).parts)) else ""


def _has_parameters(placings: Placings, o: tuple[object, ...]) -> bool:
    if o[0] in ("inst", "self") and isinstance(o[1], ClassDef):
        return o[1].find("forward") is not None and o[1].find("__init__") is not None
    return o[0] == "made" and o[1] in placings.flow.models.likely["modules"]


def _parting(calls: list[Place]) -> Place | None:
    """The test that decides over all calls of a sub-module, and differs between ranks; None where each way has one."""
    unit = calls[0].unit
    arms = [set(unit.control.arms.get(call.value.block, ())) for call in calls]
    for branch, way in sorted(arms[0]):
        if any((branch, way) not in each for each in arms):
            continue
        test = calls[0].value_at(unit.code.blocks[branch].end[1]).origin
        if _differs(test):
            return test
    return None


def _differs(test: Place) -> bool:
    """Whether a test differs between ranks: a `forward` gets what its rank has of the batch."""
    if test.value.op == "more":
        return False
    optional = test.flow.models.likely["optional"]
    for cause in test.val.v | test.val.p:
        if cause.kind in _KINDS:
            return True
        if cause.kind == "param" and cause.position > 0:
            name = test.unit.code.params[cause.position][0]
            if cause.facet == "p" and name in optional or cause.facet == "v" and _looks_inside(test):
                return True
    return False


def _looks_inside(test: Place) -> bool:
    """Whether a test asks what a tensor holds: the result of a method on it is compared or tested."""
    stack = [test]
    while stack:
        place = stack.pop()
        if place.value.op == "call" and place.receiver is not None:
            return place.method in (
                "item",
                "any",
                "all",
                "max",
                "min",
                "sum",
                "mean",
                "tolist",
                "numel",
                "nonzero",
                "isnan",
            )
        if place.value.op in ("compare", "unary", "binary"):
            stack += [place.value_at(each) for each in place.value.args]
    return False


def _is_ddp(wrap: Place) -> bool:
    return wrap.result.steps.get((wrap.number, 0)) == ("ddp",)


def _report_drawn(call: Place, name: str, wrap: Place) -> Finding:
    return RULE.finding(
        call.unit.path,
        call.at,
        f"`{call.unit.qualname}` calls one module of `self.{name}`, drawn at random; the others have no gradients then,"
        " and the model is wrapped in DDP without `find_unused_parameters`",
        help="set `find_unused_parameters=True`, or let the others take part in a way that counts zero times",
        related=[Related(wrap.unit.path, wrap.at[0], "the model is wrapped here")],
        context=f"{call.unit.qualname}:{name}",
    )


def _report(call: Place, name: str, test: Place, wrap: Place) -> Finding:
    ddp = _is_ddp(wrap)
    way = "DDP without `find_unused_parameters`" if ddp else "FSDP"
    return RULE.finding(
        call.unit.path,
        call.at,
        f"`{call.unit.qualname}` calls `self.{name}` only where `{test.text}` says so, which differs between ranks; the"
        f" model is wrapped in {way}",
        help=f"call `self.{name}` on every rank, on a made-up input whose result counts zero times where there is none"
        + (", or set `find_unused_parameters=True`" if ddp else ""),
        related=[
            Related(call.unit.path, test.at[0], f"the ranks part here, on `{test.text}`"),
            Related(wrap.unit.path, wrap.at[0], "the model is wrapped here"),
        ],
        context=f"{call.unit.qualname}:{name}",
    )


_DRAWN = """
import random
import torch
from torch.nn.parallel import DistributedDataParallel as DDP

class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.chance = random.Random(0)
        self.heads = torch.nn.ModuleList([torch.nn.Linear(8, 8) for _ in range(4)])

    def forward(self, rows):
        stage = self.chance.choice([1, 2, 3])
        return self.heads[stage](rows){mark}

def wrapped(rank):
    return DDP(Model(), device_ids=[rank]{unused})
"""

INCORRECT = [
    # one of several, drawn in each step
    _DRAWN.format(unused="", mark="  # error: MP542"),
    """
import torch
from torch.nn.parallel import DistributedDataParallel as DDP

class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.text = torch.nn.Linear(8, 8)
        self.vision = torch.nn.Linear(8, 8)

    def forward(self, input_ids, pixel_values=None):
        hidden = self.text(input_ids)
        if pixel_values is not None:
            hidden = hidden + self.vision(pixel_values)  # error: MP542
        return hidden

def build():
    return DDP(Model())
""",
    """
import torch
from torch.distributed.fsdp import fully_shard

class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.cheap = torch.nn.Linear(8, 8)
        self.dear = torch.nn.Linear(8, 8)

    def forward(self, batch):
        hidden = self.cheap(batch)
        if batch.max().item() > 1.0:
            hidden = self.dear(hidden)  # error: MP542
        return hidden

def build():
    model = Model()
    fully_shard(model)
    return model
""",
]

CORRECT = [
    _DRAWN.format(unused=", find_unused_parameters=True", mark=""),
    """
import torch
from torch.nn.parallel import DistributedDataParallel as DDP

class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.text = torch.nn.Linear(8, 8)
        self.vision = torch.nn.Linear(8, 8)

    def forward(self, input_ids, pixel_values=None):
        hidden = self.text(input_ids)
        if pixel_values is not None:
            hidden = hidden + self.vision(pixel_values)
        else:
            hidden = hidden + 0.0 * self.vision(torch.zeros(1, 8)).sum()
        return hidden

def build():
    return DDP(Model())
""",
    """
import torch
from torch.nn.parallel import DistributedDataParallel as DDP

class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.text = torch.nn.Linear(8, 8)
        self.vision = torch.nn.Linear(8, 8)

    def forward(self, input_ids, pixel_values=None):
        hidden = self.text(input_ids)
        if pixel_values is not None:
            hidden = hidden + self.vision(pixel_values)
        return hidden

def build():
    return DDP(Model(), find_unused_parameters=True)
""",
    """
import torch
from torch.nn.parallel import DistributedDataParallel as DDP

class Model(torch.nn.Module):
    def __init__(self, config):
        super().__init__()
        self.text = torch.nn.Linear(8, 8)
        self.adapter = torch.nn.Linear(8, 8)
        self.config = config

    def forward(self, input_ids):
        hidden = self.text(input_ids)
        if self.config.adapt:
            hidden = self.adapter(hidden)
        return hidden

def build(config):
    return DDP(Model(config))
""",
]
