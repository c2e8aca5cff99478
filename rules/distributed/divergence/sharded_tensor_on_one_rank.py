"""A parameter that FSDP2 has sharded, looked at by some ranks only.

What it does
    Under a test of the rank, reports what is done with a parameter of a model that `fully_shard` has sharded (taken
    from `parameters()`, `named_parameters()` or a state dict in the same class or function): operations that gather
    it (an index, `std`, `median`, `argmax`, `redistribute`), as errors, and operations that show the rank's own part
    as if it were all (`print`, `.item()`, `float()`, `.norm()`, `.sum()` …), as warnings. So is a state dictionary of
    shards (`get_model_state_dict` without `full_state_dict=True`) that some ranks save. `full_tensor()` is a collective
    for MP501.

Why is this bad
    What gathers waits for the ranks that never come. `print(param)`, `param.norm().item()` and `float(param.sum())`
    do not wait (torch 2.13): they show the shard of rank 0, and the number is wrong by what the others hold.

References
    https://docs.pytorch.org/docs/stable/distributed.tensor.html
"""

from __future__ import annotations

from collections.abc import Iterator

from validator.domains.placement import mostly
from validator.finding import Finding, Related
from validator.flow.access_paths import ELEMENT, Path
from validator.flow.queries.base import Place, Queries
from validator.flow.queries.outside_program import is_aside
from validator.flow.queries.training.placements import Placings, asks_first, members, on_some_ranks
from validator.project import Project
from validator.rule import Rule

RULE = Rule(
    "MP541",
    "sharded-tensor-on-one-rank",
    "warning",
    "0.1.0",
    tokens=("fully_shard", "distribute_tensor", "get_model_state_dict", "state_dict"),
)

# seen on gloo with torch 2.13: these wait for the other ranks …
_GATHERING = frozenset({"std", "var", "median", "argmax", "argmin", "sort", "topk", "redistribute", "unique"})
# … and these answer from the rank's own part
_LOCAL = frozenset({
    "item", "norm", "sum", "mean", "max", "min", "any", "all", "abs", "isnan", "float", "tolist", "numpy",
})  # fmt: skip
_SHOWING = frozenset({"print", "float", "bool", "info", "debug", "save"})
_MEMBERS = frozenset({".parameters()", ".named_parameters()", ".state_dict()"})


def check_project(project: Project) -> Iterator[Finding]:
    placings = project.analysis(Placings)
    reported: set[tuple[object, int]] = set()
    for call in project.analysis(Queries).named(*_GATHERING, *_LOCAL, *_SHOWING):
        tensor = _sharded(call) if not is_aside(call.unit.path) else None
        if tensor is None or (call.unit, call.value.block) in reported or asks_first(call):
            continue
        test = on_some_ranks(call)
        if test is not None:
            reported.add((call.unit, call.value.block))
            yield _report(call, tensor, test, placings.where(tensor, "fsdp2", "dtensor", "tp"))


def _sharded(call: Place) -> Place | None:
    """The sharded parameter whose contents a call asks for."""
    receiver = call.receiver
    if receiver is not None and call.method in _GATHERING | _LOCAL:
        return receiver if _is_sharded(receiver) else None
    if call.method in _SHOWING:
        given = [call.value_at(each) for each in call.value.args[1:]]
        held = (each for each in given if call.method == "save" and "dtensor" in each.closed.placements)
        return next((each for each in given if _is_sharded(each)), None) or next(held, None)
    return None


def _is_sharded(place: Place) -> bool:
    return mostly(place.closed.state, "fsdp2", "dtensor", "tp") and _is_tensor(place, members(place))


def _is_tensor(place: Place, path: Path) -> bool:
    """Whether a value is a DTensor: made as one, or an element of the parameters of a model."""
    if mostly(place.closed.state, "dtensor"):
        return True
    at = [position for position, step in enumerate(path) if step in _MEMBERS]
    name = bool(path) and path[-1] == "#0" and ".named_parameters()" in path
    return bool(at) and ELEMENT in path[at[0] :] and not name


def _report(call: Place, tensor: Place, test: Place, shard: Place | None) -> Finding:
    gathers = call.method in _GATHERING
    if gathers:
        told = "gathers the parameter from all ranks, and the others never come"
    else:
        told = "shows this rank's part of the parameter alone"
    return RULE.finding(
        call.unit.path,
        call.at,
        f"`{call.text}` in `{call.unit.qualname}`, on some ranks only, told apart by `{test.text}`: `{tensor.text}` is"
        f" sharded, and this {told}",
        help=f"call `{tensor.text}.full_tensor()` on every rank, and look at the result inside the branch",
        related=[Related(shard.unit.path, shard.at[0], "it is sharded here")] if shard is not None else [],
        context=f"{call.unit.qualname}:{call.method}",
    )


INCORRECT = [
    """
import torch.distributed as dist
from torch.distributed.fsdp import fully_shard

class Trainer:
    def build(self, model):
        self.model = fully_shard(model)

    def log(self):
        for name, param in self.model.named_parameters():
            if dist.get_rank() == 0:
                print(name, param.norm().item())  # error: MP541
""",
    """
import torch.distributed as dist
from torch.distributed.fsdp import fully_shard

class Trainer:
    def build(self, model):
        self.model = fully_shard(model)

    def log(self):
        if dist.get_rank() == 0:
            for param in self.model.parameters():
                spread = param.std()  # error: MP541
                write(spread)
""",
    """
import torch
import torch.distributed as dist
from torch.distributed.checkpoint.state_dict import StateDictOptions, get_optimizer_state_dict

def state_of(model, optimizer):
    options = StateDictOptions(cpu_offload=True)
    return get_optimizer_state_dict(model, optimizer, options=options)

def save(model, optimizer, path):
    state = {"step": 1, "optimizer": state_of(model, optimizer)}
    if dist.get_rank() == 0:
        torch.save(state, path)  # error: MP541
""",
]

CORRECT = [
    """
import torch.distributed as dist
from torch.distributed.fsdp import fully_shard

class Trainer:
    def build(self, model):
        self.model = fully_shard(model)

    def log(self):
        for name, param in self.model.named_parameters():
            whole = param.full_tensor()
            if dist.get_rank() == 0:
                print(name, whole.norm().item())
""",
    """
import torch.distributed as dist
from torch.distributed.fsdp import fully_shard

class Trainer:
    def build(self, model):
        self.model = fully_shard(model)

    def log(self):
        for name, param in self.model.named_parameters():
            if dist.get_rank() == 0:
                print(name, param.shape, param.numel(), param.requires_grad)
""",
    """
import torch.distributed as dist

class Trainer:
    def build(self, model):
        self.model = model

    def log(self):
        if dist.get_rank() == 0:
            for name, param in self.model.named_parameters():
                print(name, param.norm().item())
""",
    """
import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint.state_dict import StateDictOptions, get_model_state_dict, get_optimizer_state_dict

def save(model, optimizer, path):
    options = StateDictOptions(full_state_dict=True, cpu_offload=True)
    state = {"step": 1, "optimizer": get_optimizer_state_dict(model, optimizer, options=options)}
    if dist.get_rank() == 0:
        torch.save(state, path)
    dcp.save({"model": get_model_state_dict(model)}, checkpoint_id=path)
""",
]
