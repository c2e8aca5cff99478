"""The norm of sharded gradients, used without gathering it.

What it does
    Reports the result of `torch.nn.utils.clip_grad_norm_` that is used in a class or script that shards its
    model with `fully_shard`, or is handed a model sharded so, where neither it, nor the function that calls it, nor
    one that the norm is handed to turns it into a full tensor (`.full_tensor()`) or asks whether it is a DTensor.

Why is this bad
    Over FSDP2 parameters the norm is a DTensor with a partial placement: what a rank logs of it is the norm of its
    own shard, smaller than the true one by about the root of the number of ranks.

References
    https://docs.pytorch.org/docs/stable/distributed.tensor.html#torch.distributed.tensor.DTensor.full_tensor
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from validator.analysis.binding import bind
from validator.analysis.places import is_aside, text_of, within
from validator.analysis.sharding import Sharding
from validator.analysis.wrapped import SHARDED, Wrapped
from validator.facts.model import Assign, Call
from validator.finding import Finding, Related
from validator.project import Method, Project, guarded_by
from validator.rule import Rule

RULE = Rule("MP526", "sharded-norm", "warning", "0.1.0", tokens=("clip_grad_norm_",))

_NUMBERS = frozenset({"item", "cpu", "detach", "tolist", "numpy", "clone"})
_DEPTH = 3  # functions that a norm is handed on through
_WORDS = ("full_tensor", "DTensor", "to_local", "is_fsdp1")


def check_project(project: Project) -> Iterator[Finding]:
    for function, call in project.calls("clip_grad_norm_"):
        if is_aside(function.path) or guarded_by(call.guards, "isinstance", "fsdp"):
            continue
        if project.dotted(function, call.target) != "torch.nn.utils.clip_grad_norm_":
            continue
        place = _sharding(project, function, call) if call.use != "discard" else None
        if place is None:
            continue
        name = next((r.target for r in function.facts.assigns if _binds(r, call)), "")
        used = _is_used(project, function, name) if name else _goes_on(project, function, call)
        if used and not _knows_of_shards(project, function, name):
            yield _report(project, function, call, name, *place)


def _binds(row: Assign, call: Call) -> bool:
    """Whether an assignment keeps the result of a call under a plain name."""
    return row.value == call.target and within(call.at, row.at) and "[" not in row.target


def _goes_on(project: Project, function: Method, call: Call) -> bool:
    """Whether the result of a call is turned to a number, handed to something, kept in a container or returned."""
    if call.use == "return":
        return _is_taken(project, function, "", [""])
    around = (c for c in function.facts.calls if within(call.at, c.at) and c.at != call.at)
    if any(c.receiver != f"{call.target}()" or c.method in _NUMBERS for c in around):
        return True
    return any("[" in row.target and within(call.at, row.at) for row in function.facts.assigns)


def _sharding(project: Project, function: Method, call: Call) -> tuple[Method, Call] | None:
    """The call that shards the model whose gradients are clipped, or a model of the class of the function."""
    model = call.args[0].value.removesuffix(".parameters") if call.args else ""
    held = project.analysis(Wrapped).at(function, model, call.at) if model else []
    sharded = next(((row.where, row.call) for row in held if row.kind == SHARDED), None)
    calls = project.analysis(Sharding).calls
    inside = function.cls.every_method() if function.cls is not None else [function]
    return sharded or next(((method, calls[method][0]) for method in inside if method in calls), None)


def _knows_of_shards(project: Project, function: Method, name: str) -> bool:
    """Whether the function, one that it returns the norm to, or one that is handed the norm speaks of DTensors."""
    if _speaks(function) or (name and _hands_to_one_that_knows(project, function, name, _DEPTH)):
        return True
    returned = [row.value for row in function.facts.returns if not name or _mentions(row.value, name)]
    for caller, call in project.types.callers.get(function, ()):
        names = [row.target for row in _rows_of(caller, call, name, returned)]
        if _speaks(caller) or any(_hands_to_one_that_knows(project, caller, each, _DEPTH) for each in names):
            return True
    return False


def _speaks(function: Method) -> bool:
    return any(word in text_of(function) for word in _WORDS)


def _hands_to_one_that_knows(project: Project, function: Method, name: str, depth: int) -> bool:
    """Whether the function gives what it calls `name` to a function that speaks of DTensors, directly or not."""
    for call in function.facts.calls if depth else ():
        if not any(a.kind == "path" and a.value == name for a in call.args):
            continue
        for target in project.types.targets(function, call):
            params = [param for param, a in bind(target, call).items() if a.kind == "path" and a.value == name]
            if target is function or not params:
                continue
            if _speaks(target) or _hands_to_one_that_knows(project, target, params[0], depth - 1):
                return True
    return False


def _is_used(project: Project, function: Method, name: str) -> bool:
    """Whether anything is done with the norm, here or by a function that it is returned to."""
    returned = [row.value for row in function.facts.returns if _mentions(row.value, name)]
    if _uses(function, name) > sum(_mentions(value, name) for value in returned):
        return True
    # a caller that nobody knows is believed to use what it is given under a name
    return bool(returned) and (not project.types.callers.get(function) or _is_taken(project, function, name, returned))


def _is_taken(project: Project, function: Method, name: str, returned: list[str]) -> bool:
    """Whether a known caller does something with what a function returns."""
    callers = project.types.callers.get(function, [])
    return any(_takes(caller, call, name, returned) for caller, call in callers)


def _takes(caller: Method, call: Call, name: str, returned: list[str]) -> bool:
    """Whether a caller does something with the norm among what it gets."""
    if any(within(call.at, row.at) and row.value == call.target for row in caller.facts.assigns):
        return any(_uses(caller, row.target) for row in _rows_of(caller, call, name, returned))
    return call.use != "discard"


def _rows_of(caller: Method, call: Call, name: str, returned: list[str]) -> list[Assign]:
    """The assignments by which a caller keeps the norm among what a call returns."""
    parts = (value.strip("()").split(",") for value in returned)
    elements = {index for each in parts for index, part in enumerate(each) if part.strip() == name}
    rows = [row for row in caller.facts.assigns if within(call.at, row.at) and row.value == call.target]
    return [
        row for row in rows if not row.kind.startswith("unpack:") or int(row.kind[7:].partition("/")[0]) in elements
    ]


def _uses(function: Method, name: str) -> int:
    """How often a function mentions a name, the bindings of it aside."""
    return _mentions(text_of(function), name) - sum(row.target == name for row in function.facts.assigns)


def _mentions(text: str, name: str) -> int:
    return len(re.findall(rf"(?<![\w.]){re.escape(name)}\b", text))


def _place_of_use(project: Project, function: Method, call: Call, name: str) -> tuple[Method, int]:
    """The function and line that first use the norm: here, or where a caller gets it."""
    if name:
        line = _line_of_use(function, name, call.at[2])
        if line:
            return function, line
    returned = [row.value for row in function.facts.returns if not name or _mentions(row.value, name)]
    for caller, calling in project.types.callers.get(function, ()) if returned else ():
        for row in _rows_of(caller, calling, name, returned):
            if line := _line_of_use(caller, row.target, calling.at[2]):
                return caller, line
    return function, call.at[0]


def _line_of_use(function: Method, name: str, after: int) -> int:
    """The first line below `after` that mentions a name and is no `return`; 0 where there is none."""
    returns = {line for row in function.facts.returns for line in range(row.at[0], row.at[2] + 1)}
    for number in range(after + 1, function.facts.at[2] + 1):
        if number not in returns and _mentions(function.module.source_text.lines[number - 1], name):
            return number
    return 0


def _report(project: Project, function: Method, call: Call, name: str, where: Method, shard: Call) -> Finding:
    what = f"`{name}`" if name else f"what `{call.method}` gives"
    user, line = _place_of_use(project, function, call, name)
    here = user is function and line == call.at[0]
    who = "it is used" if here else f"line {line} uses it" if user is function else f"`{user.qualname}` uses it"
    return RULE.finding(
        function.path,
        call.at,
        f"{what} in `{function.qualname}` is the norm of gradients that `{shard.method}` has sharded, and {who}"
        " as if it were whole",
        help="call `.full_tensor()` on the result, on all ranks, before logging or comparing it",
        related=[
            Related(user.path, line, "the norm is used here"),
            Related(where.path, shard.at[0], "the model is sharded here"),
        ],
        context=f"{function.qualname}:{name or call.method}",
    )


INCORRECT = [
    """
import torch
from torch.distributed.fsdp import fully_shard

class Recipe:
    def setup(self, model):
        fully_shard(model)
        self.model = model

    def step(self, log):
        norm = torch.nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)  # error: MP526
        log["grad_norm"] = norm

    def logged(self, log):
        log["grad_norm"] = torch.nn.utils.clip_grad_norm_(self.model.parameters(), 1.0).item()  # error: MP526

    def printed(self, log):
        print(torch.nn.utils.clip_grad_norm_(self.model.parameters(), 1.0))  # error: MP526
""",
    """
import torch
from torch.distributed.fsdp import fully_shard

class Actor:
    def __init__(self, module):
        self.module = module

    def update(self, metrics):
        norm = torch.nn.utils.clip_grad_norm_(self.module.parameters(), 1.0)  # error: MP526
        metrics["grad_norm"] = norm.item()

class Worker:
    def build(self, module):
        for layer in module.layers:
            fully_shard(layer)
        fully_shard(module)
        self.actor = Actor(module)
""",
    """
import torch
from torch.distributed.fsdp import fully_shard

class Trainer:
    def __init__(self, model):
        fully_shard(model)
        self.model = model

    def step(self, loss):
        loss.backward()
        norm = torch.nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)  # error: MP526
        return loss, norm

    def fit(self, losses):
        for each in losses:
            loss, grad_norm = self.step(each)
            print(loss.item(), grad_norm.item())
""",
]

CORRECT = [
    """
import torch
from torch.distributed.fsdp import fully_shard

class Recipe:
    def setup(self, model):
        fully_shard(model)
        self.model = model

    def step(self, log):
        norm = torch.nn.utils.clip_grad_norm_(self.model.parameters(), 1.0).full_tensor()
        log["grad_norm"] = norm
""",
    """
import torch

class Recipe:
    def setup(self, model):
        self.model = torch.nn.parallel.DistributedDataParallel(model)

    def step(self, log):
        norm = torch.nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        log["grad_norm"] = norm
""",
    """
import torch
from torch.distributed.fsdp import fully_shard

def train(model):
    fully_shard(model)
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
""",
    """
import torch
from torch.distributed.fsdp import fully_shard

class Critic:
    def __init__(self, module):
        self.module = module

    def update(self, metrics):
        norm = torch.nn.utils.clip_grad_norm_(self.module.parameters(), 1.0)
        metrics["grad_norm"] = norm.item()

class Actor:
    def __init__(self, module):
        self.module = module

    def step(self):
        norm = torch.nn.utils.clip_grad_norm_(self.module.parameters(), 1.0)
        return norm

    def update(self, metrics):
        metrics["grad_norm"] = self.step().full_tensor().item()

class Worker:
    def build(self, module, value_head):
        fully_shard(module)
        self.models = [Actor(module), Critic(value_head)]
""",
    """
import torch
from torch.distributed.fsdp import fully_shard

class Trainer:
    def __init__(self, model):
        fully_shard(model)
        self.model = model

    def step(self, loss):
        loss.backward()
        norm = torch.nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        return loss, norm

    def fit(self, losses):
        for each in losses:
            loss, norm = self.step(each)
            print(loss.item())
""",
    """
import torch
from torch.distributed.fsdp import fully_shard

class Trainer:
    def __init__(self, model):
        fully_shard(model)
        self.model = model

    def clip(self):
        return torch.nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)

    def step(self, optimizer, log):
        self.clip()
        log(torch.nn.utils.get_total_norm(self.model.parameters()))
        optimizer.step()
""",
    """
import torch
from torch.distributed.fsdp import fully_shard

class Trainer:
    def __init__(self, model):
        fully_shard(model)
        self.model = model

    def step(self, loss):
        loss.backward()
        norm = torch.nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        return loss, norm

    def fit(self, losses):
        for each in losses:
            loss, norm = self.step(each)
            self.log(loss, norm)

    def log(self, loss, value):
        value = getattr(value, "full_tensor", lambda: value)()
        print(loss.item(), value.item())
""",
]
