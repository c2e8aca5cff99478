"""A parameter that ZeRO-3 has spread over ranks, read or written where it is not gathered.

What it does
    Reports what is done with the contents of a parameter (`norm()`, `copy_()`, `clone()`, `.item()`, a collective) of a
    model that is made under `deepspeed.zero.Init()` or handed to `deepspeed.initialize` with stage 3, outside of
    `deepspeed.zero.GatheredParameters`. Where the stage is an option (the project gathers parameters elsewhere), also
    in code about DeepSpeed that gets the model from its caller, as a warning. Reports writes to gathered parameters
    where the context manager throws them away: `GatheredParameters` without `modifier_rank`, `summon_full_params` of
    FSDP with `writeback=False`. Inside of `GatheredParameters(…)` reports the parameters of another model of DeepSpeed
    than that whose parameters are gathered; silent where the two may be one. Silent inside of other context managers,
    which may gather too, and behind tests of the stage.

Why is this bad
    Between uses such a parameter is empty: its norm is 0, a clone has no elements, and what is written to it is gone
    when the next layer gathers it. Nothing raises. What is gathered to be read is dropped when it is left: each rank
    goes on with the shard that it had.

References
    https://deepspeed.readthedocs.io/en/latest/zero3.html#deepspeed.zero.GatheredParameters
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from validator.domains.placement import SHARDING, may, mostly
from validator.finding import Finding, Related
from validator.flow.access_paths import ELEMENT, Path
from validator.flow.program.unit import Unit
from validator.flow.queries.base import Place, Queries
from validator.flow.queries.escapes import Index, argument_of
from validator.flow.queries.outside_program import is_aside
from validator.flow.queries.pure_functions import is_idle
from validator.flow.queries.training.changed_weights import ChangedWeights
from validator.flow.queries.training.parameter_origins import Owners
from validator.flow.queries.training.placements import decided_by, leads, members, point, sources, whole
from validator.flow.queries.values.in_place import written_through
from validator.project import Project
from validator.rule import Rule

RULE = Rule(
    "MP571", "parameter-outside-gather", "warning", "0.1.0", tokens=("zero", "summon_full_params", "GatheredParameters")
)

_CONTENTS = (
    "norm", "sum", "mean", "max", "min", "std", "item", "tolist", "numpy", "clone", "copy_", "fill_", "zero_",
    "normal_", "uniform_", "mul_", "add_", "div_", "sub_", "lerp_", "clamp_", "isnan",
)  # fmt: skip
_NO_WRITES = frozenset({"requires_grad_", "retain_grad_", "share_memory_", "_"})
_OWN = frozenset({".grad", ".ds_tensor"})  # what each rank has of a parameter for itself
_MEMBERS = frozenset({".parameters()", ".named_parameters()"})
# What a test that leaves parameters whole speaks of: the stage, the engine, what ZeRO-3 notes on a parameter.
_STAGE = re.compile(r"stage|zero|deepspeed|(^|_)ds(_|$)|fsdp|backend|engine_type", re.IGNORECASE)
_ELSEWHERE = (*(SHARDING - {"deepspeed", "zero3"}), "ddp", "tp", "whole", "local", "dtensor")


def check_project(project: Project) -> Iterator[Finding]:
    queries = project.analysis(Queries)
    yield from _thrown_away(queries, project.analysis(ChangedWeights))
    optional = any(not is_aside(call.unit.path) for call in queries.named("GatheredParameters"))
    about = _about_deepspeed(queries) if optional else frozenset()
    index = Index(queries.flow)
    for call, tensor in _uses(queries):
        if is_aside(call.unit.path):
            continue
        spread = mostly(tensor.closed.state, "zero3")
        if not spread and not (optional and _may_be_spread(about, tensor)):
            continue
        path = members(tensor)
        if _MEMBERS.isdisjoint(map(str, path)) or ELEMENT not in path or not _OWN.isdisjoint(path):
            continue
        if _managed(index, call) or _entered_by_hand(call) or not spread and _asked(queries, call):
            continue
        if _is_asked_for(call) or not spread and _is_handed_over_later(queries, call, tensor):
            continue
        has = "that ZeRO-3 has spread over ranks" if spread else "that is spread over ranks where the ZeRO stage is 3"
        yield RULE.finding(
            call.unit.path,
            call.at,
            f"`{call.text}` in `{call.unit.qualname}` asks for the contents of a parameter {has}: outside of"
            " `GatheredParameters` it is empty",
            help=f"put it into `with deepspeed.zero.GatheredParameters([{tensor.root.text}], modifier_rank=…):`",
            context=f"{call.unit.qualname}:{call.text}",
        )
    yield from _others(queries, index) if optional else ()


def _others(queries: Queries, index: Index) -> Iterator[Finding]:
    """Parameters of another model than that whose parameters are gathered around."""
    for unit in queries.mentioning("GatheredParameters"):
        if is_aside(unit.path):
            continue
        reported: set[tuple[int, int]] = set()
        for call in queries.calls_in(unit):
            for tensor in _touched(queries, call) if unit.managers(call.number) else ():
                manager = _innermost(call)
                key = (manager.number, tensor.root.number) if manager is not None else (-1, -1)
                if manager is None or key in reported or not _is_of_other(queries, index, call, tensor):
                    continue
                reported.add(key)
                yield RULE.finding(
                    unit.path,
                    manager.at,
                    f"`{unit.qualname}` gathers parameters of one model here and asks for the contents of"
                    f" `{tensor.text}`, a parameter of another one that ZeRO-3 spreads: it is empty",
                    help=f"gather `{tensor.text}` with them",
                    related=[Related(unit.path, call.at[0], "the parameter that is not gathered is used here")],
                    context=f"{unit.qualname}:{tensor.text}",
                )


def _touched(queries: Queries, call: Place) -> Iterator[Place]:
    """The tensors whose contents a call reads or writes, itself or in the functions that it calls."""
    if call.method in _CONTENTS:
        given = [call.value_at(number) for number in call.value.args[1:]]
        yield from [each for each in (call.receiver, *given) if each is not None and each.value.op != "const"]
    for unit in queries.targets(call):
        for inner in queries.calls_in(unit):
            if inner.method in _CONTENTS and inner.receiver is not None:
                for each in (inner.receiver, *(inner.value_at(n) for n in inner.value.args[1:])):
                    first = whole(each)[0]
                    value = unit.code.values[first] if isinstance(first, int) else None
                    if value is not None and value.op == "param":
                        number = argument_of(call.unit, call.number, unit, value.data[0])
                        if number is not None:
                            yield call.value_at(number)


def _innermost(call: Place) -> Place | None:
    managers = [call.value_at(number) for number in call.unit.managers(call.number)]
    gathering = [each for each in managers if _gathers(each)]
    return gathering[-1] if gathering else None


def _gathers(manager: Place) -> bool:
    return manager.root.value.op == "call" and manager.root.method == "GatheredParameters"


def _is_of_other(queries: Queries, index: Index, call: Place, tensor: Place) -> bool:
    """Whether a tensor surely belongs to none of the models whose parameters are gathered around, but to one that is
    spread too."""
    owners = Owners(queries.flow, index, tensor)
    if not owners.known or not all(_is_spread(owner.model) for owner in owners.found.values()):
        return False
    for number in call.unit.managers(call.number):
        manager = call.value_at(number).root
        if is_idle(call.flow, call.unit, number):
            continue
        given = manager.argument("params", 0) if _gathers(manager) else None
        if given is None or not Owners(queries.flow, index, given, (-1,)).apart(owners):
            return False
    around = call.outside
    return around is None or not _managed(index, around)


def _is_spread(model: Place) -> bool:
    """Whether a model is DeepSpeed's: by its placement, or because it is taken out of the engine that wraps it."""
    if may(model.closed.state, "zero3", "deepspeed"):
        return True
    return any(
        each.value.op == "call" and each.method in ("unwrap_model", "extract_model_from_parallel")
        for each in sources(model)
    )


def _thrown_away(queries: Queries, changed: ChangedWeights) -> Iterator[Finding]:
    """Writes to parameters inside a context manager that gathers them and then takes back what it had."""
    models = queries.flow.models
    rows = [row for row in models.calls.values() if row.gathers is not None]
    for unit in queries.mentioning(*{row.name for row in rows}):
        for number, value in enumerate(unit.code.values):
            place = Place(queries.flow, unit, number)
            written = _written(place)
            if not written and value.op == "call" and unit.managers(number) and not _is_used_inside(queries, place):
                written = [*written_through(queries, place), *changed.by(place)]
            for tensor in written if value.op in ("call", "store_item", "store_attr", "mut") else ():
                manager = next(
                    (m for m in (Place(queries.flow, unit, n) for n in unit.managers(number)) if _drops(m, tensor)),
                    None,
                )
                if manager is not None and not is_aside(unit.path):
                    keeps = next(row.keeps for row in rows if row.name == manager.method)
                    yield RULE.finding(
                        unit.path,
                        place.at,
                        f"`{place.text}` in `{unit.qualname}` writes to a parameter inside of `{manager.method}`, which"
                        " throws away what is written to it: each rank goes on with its old shard",
                        help=f"pass `{keeps[0] if keeps else ''}` (DeepSpeed: the rank whose values all take over)",
                        related=[Related(unit.path, manager.at[0], "gathered here, to be read only")],
                        context=f"{unit.qualname}:{place.text}",
                    )


def _is_used_inside(queries: Queries, call: Place) -> bool:
    """Whether something else is called behind a call inside of the same context manager: what is written may be for
    that alone."""
    around = call.unit.managers(call.number)
    later = (
        each for each in queries.calls_in(call.unit) if each.number > call.number and each.value.at > call.value.at
    )
    return any(call.unit.managers(each.number)[: len(around)] == around for each in later)


def _written(place: Place) -> list[Place]:
    """The tensors that a call or a statement writes in place."""
    value = place.value
    if value.op == "store_item" or value.op == "store_attr" and value.data == "data":
        return [place.operand(0)]
    if value.op != "call":
        return []
    name, receiver = place.method, place.receiver
    writes = name.endswith("_") and not name.endswith("__") and name not in _NO_WRITES
    if writes and any(o[0] == "ext" and str(o[1]).startswith("torch.nn.init.") for o in place.operand(0).val.each):
        return [place.operand(1)] if len(value.args) > 1 else []
    if writes and receiver is not None and not place.result.sites.get(place.number):
        return [receiver]
    rows = [operation.row for operation in place.operations]
    which = [row.writes or row.equal for row in rows if row.root is None]  # the root only reads
    return [tensor for each in which if each and (tensor := place.argument(*each)) is not None]


def _drops(manager: Place, tensor: Place) -> bool:
    """Whether a context manager gathers a tensor and keeps nothing of what is written to it."""
    made = manager.origin
    if made.value.op != "call":
        return False
    models = made.flow.models
    enabled = made.argument("enabled")
    if enabled is not None and enabled.closed.is_const(False):
        return False
    row = next((r for o in made.operand(0).val.of("ext") if (r := models.call(o[1])) and r.gathers), None)
    if row is None or row.gathers is None or row.keeps is None or "**" in made.value.data.names:
        return False
    told = made.argument(*row.keeps)
    known = told.closed if told is not None else None
    kept = row.kept if known is None else not (known.is_const(None) or known.is_const(False))
    gathered = made.argument(*row.gathers)
    if kept or gathered is None or made.unit is not tensor.unit:
        return False
    path = whole(tensor)
    return ".grad" not in path and any(path[: len(each)] == each for each in _gathered(gathered))


def _gathered(place: Place) -> Iterator[Path]:
    """The paths of what is gathered: a parameter, the elements of a list, all that belongs to a module."""
    place = place.root
    if place.value.op in ("list", "tuple"):
        for i in range(len(place.value.args)):
            yield from _gathered(place.operand(i))
        return
    path = whole(place)
    members = next((i for i, step in enumerate(path) if step in _MEMBERS), None)
    found = path if members is None else path[:members]
    if found:
        yield found


def _uses(queries: Queries) -> Iterator[tuple[Place, Place]]:
    """What is done with the contents of tensors: (call, tensor)."""
    for call in queries.named(*_CONTENTS):
        if call.receiver is not None:
            yield call, call.receiver
    for call in queries.collectives():
        for row in (operation.row for operation in call.operations[:1] if call.value.op == "call"):
            which = row.equal or row.reads or row.writes
            tensor = call.argument(*which) if which is not None and not row.objects else None
            if tensor is not None:
                yield call, tensor


def _entered_by_hand(call: Place) -> bool:
    """Whether the function enters a context manager without `with`: it may gather what is used behind that."""
    return "__enter__" in call.unit.named


def _is_asked_for(call: Place) -> bool:
    """Whether a test asks a parameter for what ZeRO-3 notes on those that it spreads: `hasattr(p, "ds_id")`."""
    return any(word.startswith("ds_") for test in decided_by(call) for word in test.words)


def _is_handed_over_later(queries: Queries, call: Place, tensor: Place) -> bool:
    """Whether the model of a parameter is handed to DeepSpeed in the same function, behind its use."""
    first = whole(tensor)[0]
    later = (
        each
        for each in queries.calls_in(call.unit)
        if each.method == "initialize" and leads(call.unit, point(call), point(each))
    )
    given = (each.value_at(number) for each in later for number in each.value.args[1:])
    return any(part.root.number == first for part in given)


def _may_be_spread(about: frozenset[Unit], tensor: Place) -> bool:
    """Whether a tensor belongs to a model of DeepSpeed, whichever its stage: as it is placed, or, where nobody knows, a
    model that callers hand to code about DeepSpeed."""
    state = tensor.closed.state
    if may(state, *_ELSEWHERE):
        return False
    if may(state, "deepspeed"):
        return True
    first = whole(tensor)[0]
    given = isinstance(first, int) and tensor.unit.code.values[first].op == "param"
    return given and tensor.unit in about


def _about_deepspeed(queries: Queries) -> frozenset[Unit]:
    """The functions that speak of DeepSpeed, and all methods of a class of which one does."""
    units = set(queries.mentioning("GatheredParameters", "deepspeed"))
    classes = {unit.cls for unit in units if unit.cls is not None}
    return frozenset(unit for unit in queries.beside("deepspeed") if unit in units or unit.cls in classes)


def _asked(queries: Queries, call: Place) -> bool:
    """Whether a test around, or around every call of the function, asks for the stage or the engine."""
    if any(_STAGE.search(word) for test in decided_by(call) for word in test.words):
        return True
    calls = queries.calls_of(call.unit)
    return bool(calls) and all(any(_STAGE.search(w) for test in decided_by(each) for w in test.words) for each in calls)


def _managed(index: Index, place: Place, seen: frozenset[Unit] = frozenset()) -> bool:
    """Whether a context manager around a value, or around every call of its function, may gather the parameter: all but
    those that only switch gradients off."""
    if not all(is_idle(place.flow, place.unit, number) for number in place.unit.managers(place.number)):
        return True
    if place.unit in seen:
        return False
    calls = [Place(place.flow, caller, call) for caller, call, _ in index.sites(place.unit)]
    made = place.outside
    around = calls or ([made] if made is not None else [])
    return bool(around) and all(_managed(index, each, seen | {place.unit}) for each in around)


INCORRECT = [
    # gathered to be read, but written
    """
import deepspeed
import torch
import torch.distributed as dist
from accelerate.utils import GatheredParameters
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP

def init(layer, other):
    params = [layer.weight, layer.bias]
    with deepspeed.zero.GatheredParameters(params, modifier_rank=None):
        if dist.get_rank() == 0:
            torch.nn.init.normal_(layer.weight)  # error: MP571
            layer.bias.data += 1  # error: MP571
    with deepspeed.zero.GatheredParameters(other.weight):
        other.weight.data[-4:] = 0  # error: MP571

def noise(model, scale):
    with torch.no_grad(), GatheredParameters(list(model.parameters())):
        for name, param in model.named_parameters():
            param.add_(torch.randn_like(param) * scale)  # error: MP571

def scale(model):
    with FSDP.summon_full_params(model, writeback=False):
        model.head.weight.data.mul_(0.5)  # error: MP571
""",
    """
import deepspeed
import torch
from transformers import AutoModel

def build(path):
    with deepspeed.zero.Init():
        model = AutoModel.from_pretrained(path)
    for name, param in model.named_parameters():
        with torch.no_grad():
            param.normal_()  # error: MP571
    return model
""",
    """
import deepspeed

def total(model, optimizer):
    config = {"zero_optimization": {"stage": 3}}
    engine, _, _, _ = deepspeed.initialize(model=model, config=config)
    found = []
    for param in engine.parameters():
        found.append(param.data.norm())  # error: MP571
    return found
""",
    # the stage is an option: elsewhere parameters are gathered
    """
import deepspeed
import torch
import torch.distributed as dist

class Strategy:
    def prepare(self, model, config):
        return deepspeed.initialize(model=model, config=config)[0]

    def ema(self, model, shadow, beta):
        with torch.no_grad():
            for param, other in zip(model.parameters(), shadow.parameters()):
                other.data.copy_((1 - beta) * param.data + beta * other.data)  # error: MP571

    def sync(self, model, group):
        for name, param in model.named_parameters():
            dist.broadcast(param.data, 0, group=group)  # error: MP571

    def state(self, model):
        with deepspeed.zero.GatheredParameters(list(model.parameters())):
            return {name: param.data.clone() for name, param in model.named_parameters()}

def train(strategy, model, shadow, loaders, args):
    for _ in loaders(args.ds.tensor_parallel_size):  # what a loop goes through asks for no stage
        strategy.ema(model, shadow, 0.9)

class Actor:
    def __init__(self, model, config):
        self.engine, *_ = deepspeed.initialize(model=model, config=config)

    def export(self, queue):
        for name, param in self.engine.module.named_parameters():
            queue.put((name, param.data.clone()))  # error: MP571
""",
    # those of one model are gathered, those of two are used
    """
import deepspeed
from transformers import AutoModel

def tie(path, other):
    with deepspeed.zero.Init():
        model = AutoModel.from_pretrained(path)
        teacher = AutoModel.from_pretrained(other)
    with deepspeed.zero.GatheredParameters(list(model.parameters()), modifier_rank=0):  # error: MP571
        for p, t in zip(model.parameters(), teacher.parameters()):
            p.data.copy_(t.data)

class Trainer:
    def sync(self, alpha, zero3):
        ref_named = dict(self.accelerator.unwrap_model(self.ref).named_parameters())
        policy_named = dict(self.accelerator.unwrap_model(self.model).named_parameters())

        def mix(ref_p, policy_p):
            ref_p.data.mul_(1.0 - alpha).add_(policy_p.data, alpha=alpha)

        pairs = []
        for name in policy_named:
            pairs.append((ref_named[name], policy_named[name]))
        if zero3:
            ref_params = [pair[0] for pair in pairs]
            with deepspeed.zero.GatheredParameters(ref_params, modifier_rank=0):  # error: MP571
                for rp, pp in pairs:
                    mix(rp, pp)
        else:
            for rp, pp in pairs:
                mix(rp, pp)
""",
    # by load_state_dict, and by functions that work in place on what they are given
    """\
import deepspeed
import torch
import torch.distributed as dist


class Trainer:
    def __init__(self, model, config):
        self.engine, *_ = deepspeed.initialize(model=model, config=config)

    def load(self, path):
        with deepspeed.zero.GatheredParameters(list(self.engine.module.parameters(recurse=True))):
            if dist.get_rank() == 0:
                self.engine.module.load_state_dict(torch.load(path))  # error: MP571


def fill(p):
    p.data.normal_()


def reset(model):
    for p in model.parameters():
        fill(p)


def init(model):
    with deepspeed.zero.GatheredParameters(model.parameters()):
        reset(model)  # error: MP571


def init_each(model):
    for p in model.parameters():
        with deepspeed.zero.GatheredParameters([p]):
            fill(p)  # error: MP571
""",
]

CORRECT = [
    # a function inside that is called where the parameter is gathered
    """
import deepspeed
import torch.distributed as dist

class Trainer:
    def setup(self, model):
        self.model, *_ = deepspeed.initialize(model=model, config={"zero_optimization": {"stage": 3}})

    def broadcast(self):
        def send(param):
            dist.broadcast(param.data.clone(), 0)

        for param in self.model.parameters():
            with deepspeed.zero.GatheredParameters([param]):
                send(param)
""",
    # gathered to be read, or by the rank whose values all take over; what is written is another tensor
    """
import deepspeed
import torch
import torch.distributed as dist
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP

def init(layer, rank):
    with deepspeed.zero.GatheredParameters([layer.weight, layer.bias], modifier_rank=rank):
        if dist.get_rank() == 0:
            torch.nn.init.normal_(layer.weight)
            layer.bias.data.zero_()

def read(model, out, shadow):
    with torch.no_grad(), deepspeed.zero.GatheredParameters(list(model.parameters())):
        for name, param in model.named_parameters():
            out[name] = param.detach().clone()
            out[name].mul_(2)
            shadow[name].copy_(param)
            param.grad.zero_()

def scale(model):
    with FSDP.summon_full_params(model):
        model.head.weight.data.mul_(0.5)
""",
    """
import deepspeed

class Trainer:
    def sync(self, alpha):
        ref_named = dict(self.accelerator.unwrap_model(self.ref).named_parameters())
        policy_named = dict(self.accelerator.unwrap_model(self.model).named_parameters())
        pairs = []
        for name in policy_named:
            pairs.append((ref_named[name], policy_named[name]))
        params = [pair[0] for pair in pairs] + [pair[1] for pair in pairs]
        with deepspeed.zero.GatheredParameters(params, modifier_rank=0):
            for rp, pp in pairs:
                rp.data.mul_(1.0 - alpha).add_(pp.data, alpha=alpha)

    def shadow_of(self, beta):
        for p, s in zip(self.accelerator.unwrap_model(self.model).parameters(), self.shadow.parameters()):
            with deepspeed.zero.GatheredParameters([p]):
                s.data.mul_(beta).add_(p.data.cpu(), alpha=1 - beta)

    def export(self, queue):
        policy = self.accelerator.unwrap_model(self.model)
        with deepspeed.zero.GatheredParameters(list(self.model.parameters())):
            for name, param in policy.named_parameters():
                queue.put((name, param.data.clone()))

    def both(self, alpha):
        ref, policy = self.accelerator.unwrap_model(self.ref), self.accelerator.unwrap_model(self.model)
        with deepspeed.zero.GatheredParameters(list(policy.parameters())):
            for r, p in zip(ref.parameters(), policy.parameters()):
                with deepspeed.zero.GatheredParameters([r], modifier_rank=0):
                    r.data.mul_(1 - alpha).add_(p.data, alpha=alpha)
""",
    # the stage is an option: asked for, or gathered
    """
import deepspeed
import torch.distributed as dist

class Strategy:
    def __init__(self, args):
        self.stage = args.zero_stage

    def prepare(self, model, config):
        return deepspeed.initialize(model=model, config=config)[0]

    def ema(self, model, shadow, beta):
        for param, other in zip(model.parameters(), shadow.parameters()):
            if self.stage != 3:
                other.data.copy_((1 - beta) * param.data + beta * other.data)
            else:
                with deepspeed.zero.GatheredParameters([param, other], modifier_rank=0):
                    other.data.copy_((1 - beta) * param.data + beta * other.data)

    def sync(self, model, group):
        for name, param in model.named_parameters():
            with deepspeed.zero.GatheredParameters([param], enabled=self.stage == 3):
                dist.broadcast(param.data, 0, group=group)

    def norms(self, model):
        return [param.grad.norm() for param in model.parameters()]

class Plain:
    def norms(self, model):
        return [param.norm() for param in model.parameters()]
""",
    """
import deepspeed
from transformers import AutoModel

def build(path):
    with deepspeed.zero.Init():
        model = AutoModel.from_pretrained(path)
    for name, param in model.named_parameters():
        with deepspeed.zero.GatheredParameters([param], modifier_rank=0):
            param.normal_()
    return model
""",
    """
import deepspeed

def total(model, stage):
    engine, _, _, _ = deepspeed.initialize(model=model, config={"zero_optimization": {"stage": 2}})
    return [param.data.norm() for param in engine.parameters()]
""",
    # nothing is spread, or gathered, where it is switched off; a model that is handed over later; what a rank holds
    """
import deepspeed
from transformers import AutoModel

def off(path):
    with deepspeed.zero.Init(enabled=False):
        model = AutoModel.from_pretrained(path)
    for parameter in model.parameters():
        parameter.data.normal_()
    with deepspeed.zero.GatheredParameters(list(model.parameters()), enabled=False):
        for parameter in model.parameters():
            parameter.data.mul_(0.5)

def later(model, config):
    for parameter in model.parameters():
        parameter.data.normal_()
    return deepspeed.initialize(model=model, config=config)

def spread(path):
    with deepspeed.zero.Init():
        model = AutoModel.from_pretrained(path)
    for parameter in model.parameters():
        if hasattr(parameter, "ds_id"):
            print(parameter.ds_tensor.norm())
        else:
            print(parameter.norm())
    gathering = deepspeed.zero.GatheredParameters(list(model.parameters()), modifier_rank=0)
    return model, gathering

def by_hand(path):
    with deepspeed.zero.Init():
        model = AutoModel.from_pretrained(path)
    gathering = deepspeed.zero.GatheredParameters(list(model.parameters()), modifier_rank=0)
    gathering.__enter__()
    for parameter in model.parameters():
        parameter.data.mul_(0.5)
    gathering.__exit__(None, None, None)
""",
    # what is written takes over, or belongs to another model
    """\
import deepspeed
import torch
import torch.distributed as dist


class Trainer:
    def __init__(self, model, config):
        self.engine, *_ = deepspeed.initialize(model=model, config=config)

    def load(self, path):
        with deepspeed.zero.GatheredParameters(list(self.engine.module.parameters(recurse=True)), modifier_rank=0):
            if dist.get_rank() == 0:
                self.engine.module.load_state_dict(torch.load(path))


def look(p):
    return p.data.norm()


def copy(model, other):
    with deepspeed.zero.GatheredParameters(model.parameters()):
        other.load_state_dict(model.state_dict())
        return [look(p) for p in model.parameters()]
""",
    # what only shares the memory of a tensor writes nothing into it
    """
import deepspeed

class Handle:
    def __init__(self, storage):
        self.storage = storage

    @staticmethod
    def of(tensor):
        tensor = tensor.share_memory_()
        return Handle(tensor.untyped_storage())

def send(model):
    handles = []
    for name, param in model.named_parameters():
        with deepspeed.zero.GatheredParameters([param]):
            handles.append(Handle.of(param.data))
    return handles
""",
]
