"""A question about the process group, or a collective, before the group is made, or where nothing makes it.

What it does
    Goes back from `init_process_group()`, and from calls of functions that make the group, on every way through the
    function. Reports calls of `torch.distributed` that need the default group and come before it, whether straight or
    in a function that always makes them. Silent where a branch of its own stands around one of them (it may ask whether
    there is a group), and where the group is only made if there is none, or by whoever comes first. A warning where
    such a call is a function that gives a constant without a group (`dist.get_rank() if dist.is_initialized() else 0`),
    or a constructor that keeps what one gives, and the result is used after the group is made, or sets a seed.
    Follows each program (`if __name__ == "__main__":`) along its ways, too, and reports the first call that needs the
    group, while nothing that runs before, of the project or of a library that is not known, may make it: an error where
    all ways come to one, else a warning; silent there under a condition that asks for the group or for the number of
    processes.

Why is this bad
    The call raises `Default process group has not been initialized`. The group cannot have been made before: a second
    `init_process_group()` raises, too.

References
    https://docs.pytorch.org/docs/stable/distributed.html#initialization
"""

from __future__ import annotations

from collections.abc import Iterator

from validator.effects.made_once import is_cached
from validator.finding import Finding, Related
from validator.flow.callgraph.spelled_arguments import origins
from validator.flow.control import comes_after
from validator.flow.program.flow import Flow
from validator.flow.program.unit import Unit
from validator.flow.queries.base import Place, Queries, users_of, ways_back
from validator.flow.queries.outside_program import is_test
from validator.flow.queries.ranks.groupless_programs import GrouplessPrograms
from validator.flow.queries.ranks.process_groups import TORCH, needs_group
from validator.project import Project
from validator.rule import Rule

_TOKENS = ("init_process_group", "distributed")
RULE = Rule("MP567", "before-process-group", "error", "1.0", tokens=_TOKENS, solves=True)

_ENDING = ("destroy_process_group", "_abort_process_group")
_ASKING = frozenset({"is_initialized", "is_available", "is_torchelastic_launched"})


def check_project(project: Project) -> Iterator[Finding]:
    groups = _Groups(project.analysis(Queries))
    told: set[Place] = set()
    for unit in sorted(groups.making, key=lambda each: (each.path, each.qualname)):
        for making in () if is_test(unit.path) else groups.made_in(unit):
            for early in groups.before(making):
                told.add(early)
                yield RULE.finding(
                    early.unit.path,
                    early.at,
                    f"`{early.text}` in `{early.unit.qualname}` needs the process group, which is made later",
                    help="make the process group first",
                    related=[Related(making.unit.path, making.at[0], "the process group is made here")],
                    context=f"{early.unit.qualname}:{early.text}",
                )
            for early, what in groups.fallen_back(making):
                yield RULE.finding(
                    early.unit.path,
                    early.at,
                    f"`{early.operand(0).text}`{early.where} asks for {what} before the process group is made, and what"
                    " it takes instead is used afterwards: all ranks take themselves for the same one",
                    help="make the process group first",
                    related=[Related(making.unit.path, making.at[0], "the process group is made here")],
                    context=f"{early.unit.qualname}:{early.operand(0).text}",
                    severity="warning",
                )
    yield from _never_made(project, told)


def _never_made(project: Project, told: set[Place]) -> Iterator[Finding]:
    """Needs of a group where no way through a program makes one, but for those told already."""
    for call, program, sure in project.analysis(GrouplessPrograms).found():
        if call not in told:
            told.add(call)
            yield RULE.finding(
                call.unit.path,
                call.at,
                f"`{call.text}`{call.where} needs the process group, and nothing makes one where `{program.path}` runs",
                help="call `torch.distributed.init_process_group()` first",
                related=[Related(program.path, program.at(program.code.at)[0], "the program starts here")],
                context=f"{call.unit.qualname}:{call.text}",
                severity=None if sure else "warning",
            )


class _Groups:
    """Where the default process group is made, and where it is needed."""

    def __init__(self, queries: Queries) -> None:
        self.queries = queries
        made = [call for call in queries.calls(f"{TORCH}init_process_group") if not _is_guarded(call)]
        self.direct = {call.unit for call in made if not (call.is_made_once or is_cached(call.unit))}
        self.making = queries.reaching({call.unit for call in queries.named("init_process_group")})
        self.ending = queries.reaching({call.unit for call in queries.named(*_ENDING)})
        self._needing: dict[Unit, bool] = {}
        self._fallbacks: dict[Unit, str] = {}

    def made_in(self, unit: Unit) -> Iterator[Place]:
        """The calls that make the group, themselves or in a function that they call."""
        for call in self.queries.calls_in(unit):
            own = call.method == "init_process_group" and unit in self.direct
            if (own or self._makes_surely(call)) and not _is_guarded(call):
                yield call

    def before(self, making: Place) -> list[Place]:
        """The calls that need the group and come before it is made, the first of each way."""
        around = making.unit.control.deciding(making.value.block)
        found = []
        for each in ways_back(making, self._settles):
            if each is None or each.value.op != "call" or each == making or self._settles(each):
                continue
            if self._needs(each) and each.unit.control.deciding(each.value.block) <= around:
                found.append(each)
        return sorted(found, key=lambda each: each.number)[:1]

    def fallen_back(self, making: Place) -> list[tuple[Place, str]]:
        """The calls before the group is made whose answer is that of a job of one process, and is used afterwards; and
        what they ask for."""
        found = {}
        for each in ways_back(making, self._settles):
            if each is None or each.value.op != "call" or each == making or self._settles(each):
                continue
            what = self._falls_back(each) or self._keeps_fallback(each)
            if what and any(
                comes_after(each.unit.code, user.value, user.number, making.value, making.number)
                for user in (each.value_at(number) for number in users_of(each.unit).get(each.number, ()))
            ):
                found[each] = what
            elif (what := self._seeded_by(each) or self._seeds(each)) and not self._is_seeded_after(making):
                found[each] = f"{what} for a seed"
        return sorted(found.items(), key=lambda row: row[0].number)

    def _seeding(self, unit: Unit) -> list[Place]:
        """The calls of a unit that seed a library's random state."""
        names = frozenset().union(*self.queries.flow.models.seeds.values())
        calls = (call for call in self.queries.calls_in(unit) if len(call.value.args) > 1)
        return [call for call in calls if any(o[0] == "ext" and o[1] in names for o in call.operand(0).val.each)]

    def _seeded_by(self, asking: Place) -> str:
        """What a call asks for whose answer, that of a job of one process, becomes part of a seed."""
        seeds = (part.number for call in self._seeding(asking.unit) for part in call.operand(1).parts)
        return self._falls_back(asking) if asking.number in seeds else ""

    def _seeds(self, call: Place) -> str:
        """The same of a function that is called, which seeds by it."""
        targets = self.queries.targets(call)
        asked = self.queries.calls_in(targets[0]) if len(targets) == 1 and call.operand(0).val.of("unit") else ()
        return next(filter(None, map(self._seeded_by, asked)), "")

    def _is_seeded_after(self, making: Place) -> bool:
        """Whether the function that makes the group, or one that it calls then, seeds when there is one."""
        code = making.unit.code
        calls = self.queries.calls_in(making.unit)
        later = [c for c in calls if comes_after(code, c.value, c.number, making.value, making.number)]
        own = self._seeding(making.unit)
        return any(call in own or any(map(self._seeding, self.queries.targets(call))) for call in later)

    def _falls_back(self, call: Place) -> str:
        """What a call asks for of which its function gives a constant where there is no group; empty for others."""
        targets = self.queries.targets(call)
        return self._fallback_of(targets[0]) if len(targets) == 1 and call.operand(0).val.of("unit") else ""

    def _fallback_of(self, unit: Unit) -> str:
        known = self._fallbacks.get(unit)
        if known is None:
            self._fallbacks[unit] = ""  # a circle
            known = self._fallbacks[unit] = self._fallback_in(unit)
        return known

    def _fallback_in(self, unit: Unit) -> str:
        code = unit.code
        ends = [code.blocks[block].end for block in code.in_order() if code.kind == "function"]
        returns = [Place(self.queries.flow, unit, end[1]).root for end in ends if end[0] == "return"]
        ways = [each.value_at(number).root for each in returns for number in origins(unit, each.number)]
        constant = any(isinstance(each.val.constant(), int) for each in ways if each.value.op == "const")
        calls = [each for each in ways if each.value.op == "call"]
        if len(calls) == 1 and len(ways) == 1:
            return self._falls_back(calls[0])
        asking = len(calls) == 1 and len(ways) == 2 and constant and needs_group(calls[0]) and not calls[0].is_tried
        return f"`{calls[0].method}`" if asking and _is_guarded(calls[0]) else ""

    def _keeps_fallback(self, call: Place) -> str:
        """The same of the attributes that a constructor fills, which nothing fills again."""
        made = call.operand(0).val
        if len(made.objs) != 1 or not made.of("class"):
            return ""
        cls, flow = made.each[0][1], self.queries.flow
        positional = sum(name is None for name in call.value.data.names)
        given = {*call.value.data.names, *flow.fields_of(cls)[:positional]}
        init = cls.find("__init__")
        unit = flow.unit_of(init) if init is not None else flow.body_of(cls)
        if unit is None:
            return ""
        for store in self.queries.values(unit, "store_attr", "store_class"):
            value = store.operand(-1).root if store.value.args else store
            if value.value.op != "call" or store.value.data in given or unit.control.deciding(store.value.block):
                continue
            what = self._falls_back(value) or (self._factory(value) if init is None else "")
            if what and {each.name for each in flow.stores.writers(store.value.data)} <= {"__init__"}:
                return what
        return ""

    def _factory(self, field: Place) -> str:
        """The same of what the field of a data class is where nothing is passed for it."""
        made = field.argument("default_factory")
        units = [o[1] for o in made.val.each if o[0] == "unit"] if made is not None else []
        return self._fallback_of(units[0]) if len(units) == 1 else ""

    def _makes_surely(self, call: Place) -> bool:
        targets = self.queries.targets(call)
        return len(targets) == 1 and targets[0] in self.direct and targets[0] is not call.unit

    def _settles(self, place: Place) -> bool:
        """Whether a call may make the group, or take it away."""
        if place.value.op != "call":
            return False
        named = place.method in ("init_process_group", "init_distributed", *_ENDING)
        return named or not (self.making | self.ending).isdisjoint(self.queries.targets(place))

    def _needs(self, call: Place) -> bool:
        """Whether a call needs the group, itself or in a function that it always calls, and nothing takes its error."""
        if call.is_tried or any(
            "suppress" in call.value_at(number).words for number in call.unit.managers(call.number)
        ):
            return False
        if needs_group(call):
            return True
        targets = self.queries.targets(call)
        return len(targets) == 1 and not call.hands_on and self._always_needs(targets[0])

    def _always_needs(self, unit: Unit) -> bool:
        known = self._needing.get(unit)
        if known is None:
            self._needing[unit] = False  # a circle
            calls = self.queries.calls_in(unit) if unit.code.kind == "function" else ()
            known = any(not unit.control.deciding(call.value.block) and self._needs(call) for call in calls)
            self._needing[unit] = known
        return known


def _is_guarded(call: Place) -> bool:
    """Whether a test around a call asks whether there is a group, or may: it stands in a function of its own."""
    tests = [test for each in call.tests for test in each.sources]
    return call.is_tried or any(test.value.op == "call" and _asks(test, frozenset()) for test in tests)


def _asks(call: Place, around: frozenset[Unit]) -> bool:
    """Whether a call asks if there is a group, itself or by a function that does nothing else."""
    if call.method in _ASKING:
        return True
    site = call.result.sites.get(call.number)
    units = {target.unit for target in site.targets} if site is not None else set()
    return bool(units - around) and all(_only_asks(call.flow, unit, around | units) for unit in units - around)


def _only_asks(flow: Flow, unit: Unit, around: frozenset[Unit]) -> bool:
    """Whether a function calls nothing but what asks if there is a group."""
    calls = [Place(flow, unit, number) for number, value in enumerate(unit.code.values) if value.op == "call"]
    return bool(calls) and all(_asks(call, around) for call in calls)


_FALLBACK = """
from dataclasses import dataclass, field

import torch
import torch.distributed as dist

def own_rank():
    return dist.get_rank() if dist.is_available() and dist.is_initialized() else 0

def is_first():
    return own_rank() == 0

def is_there():
    if not dist.is_available():
        return False
    return dist.is_initialized()

def size():
    if not is_there():
        return 1
    return dist.get_world_size()

@dataclass
class Config:
    folder: str
    rank: int = field(default_factory=own_rank)
    steps: int = 1

class Logger:
    def __init__(self, folder):
        self.folder, self.rank, self.file = folder, own_rank(), None
        self.closed: bool

def seed_all(seed):
    torch.manual_seed(seed + own_rank())

def setup():
    dist.init_process_group("nccl")

def main(folder, train):
    {before}
    setup()
    {after}
"""

# A program; `setup` makes no group, unless it does.
_ALONE = """
import contextlib
import os
from functools import wraps

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler

def in_group(function):
    @wraps(function)
    def run(*args):
        dist.init_process_group("nccl")
        return function(*args)
    return run

@contextlib.contextmanager
def group():
    dist.init_process_group("gloo")
    yield
    dist.destroy_process_group()

def own_rank():
    return dist.get_rank() if dist.is_initialized() else 0

def setup(args):
    if not torch.cuda.is_available():
        raise SystemExit("no GPU")
    torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    {setup}

{decorated}def main(args):
    setup(args)
    print(own_rank(), len(args))
    model = torch.nn.Linear(4, 4).cuda()
    {body}

if __name__ == "__main__":
    main([])
"""


def _alone(body: str, setup: str = "print(args)", decorated: str = "") -> str:
    return _ALONE.format(body=body, setup=setup, decorated=decorated)


INCORRECT = [
    # on some ways
    _alone("if args: dist.barrier()  # error: MP567"),
    _alone("for each in args: dist.all_reduce(each)  # error: MP567"),
    _alone("print(dist.get_world_size())  # error: MP567"),
    _alone("model = DistributedDataParallel(model)  # error: MP567"),
    _alone("loader = DataLoader(args, sampler=DistributedSampler(args, shuffle=True))  # error: MP567"),
    _alone("print(model)", setup="dist.barrier()  # error: MP567"),
    # what is kept is the answer of a job of one process
    _FALLBACK.format(before="config = Config(folder)  # error: MP567", after="train(config)"),
    _FALLBACK.format(before="logger = Logger(folder)  # error: MP567", after="train(logger)"),
    _FALLBACK.format(before="parts = size()  # error: MP567", after="train(folder, parts)"),
    # the seed tells no rank
    _FALLBACK.format(before="torch.manual_seed(7 + own_rank())  # error: MP567", after="train(folder)"),
    _FALLBACK.format(before="seed_all(7)  # error: MP567", after="train(folder)"),
    """
import torch
import torch.distributed as dist

def main(model, lr):
    lr = lr * dist.get_world_size()  # error: MP567
    dist.init_process_group("nccl")
    return torch.optim.SGD(model.parameters(), lr=lr)
""",
    """
import os
import torch.distributed as dist

def log(message):
    print(dist.get_rank(), message)

def setup(distributed):
    if distributed:
        dist.init_process_group("nccl")

def main(config, distributed):
    log(config)  # error: MP567
    setup(distributed)
""",
]

CORRECT = [
    _alone("dist.barrier()", setup='dist.init_process_group("nccl")'),
    _alone("dist.barrier()", setup='if args: dist.init_process_group("nccl")'),
    _alone("dist.barrier()", decorated="@in_group\n"),
    _alone("with group(): dist.barrier()"),
    _alone("dist.barrier()", setup="import cluster; cluster.join(args)"),
    _alone("dist.barrier()", setup="torch.distributed.init_device_mesh('cuda', (2,))"),
    # none is needed, or not on every way
    _alone(
        "sampler = DistributedSampler(args, num_replicas=int(os.environ['WORLD_SIZE']), rank=int(os.environ['RANK']))"
    ),
    _alone("if dist.is_initialized(): dist.barrier()"),
    _alone("for each in args if dist.is_available() else (): print(each)"),
    _alone("try: dist.barrier()\n    except ValueError: print('alone')"),
    # no program: whoever calls it has made the group
    _alone("dist.barrier()").partition("if __name__")[0],
    _FALLBACK.format(before="print(own_rank(), folder.name())", after="train(Config(folder), Logger(folder), size())"),
    _FALLBACK.format(before="config = Config(folder, 0)", after="train(config, own_rank())"),
    _FALLBACK.format(before="seed_all(7)", after="seed_all(7)\n    train(folder)"),
    _FALLBACK.format(before="torch.manual_seed(7)", after="seed_all(own_rank())"),
    _FALLBACK.format(before="logger = Logger(folder)", after="logger.rank = own_rank()"),
    """
import torch.distributed as dist

def log(message):
    if dist.is_initialized():
        print(dist.get_rank(), message)

def setup():
    if not dist.is_initialized():
        dist.init_process_group("nccl")

def main(config, resumed):
    log(config)
    if resumed:
        print(dist.get_rank())
    setup()
    print(dist.get_rank())
    setup()
""",
    """
import contextlib

import torch.distributed as dist

def rounds(sizes):
    for size in sizes:
        dist.init_process_group("gloo")
        print(dist.get_world_size(), size)
        dist.destroy_process_group()

def safe():
    try:
        return dist.get_rank()
    except (RuntimeError, ValueError):
        return 0

def suppressed():
    with contextlib.suppress(ValueError):
        print(dist.get_rank())
    dist.init_process_group("gloo")

def stop():
    dist.destroy_process_group()

def change(backend):
    rank = dist.get_rank()
    stop()
    dist.init_process_group(backend, rank=rank)

def again(backends):
    print(safe())
    for backend in backends:
        dist.init_process_group(backend)
        dist.barrier()
        stop()

def under(group):
    print(dist.get_world_size(group))
    dist.init_process_group("gloo")
""",
    # whoever comes first makes it
    """
import torch.distributed as dist

class World:
    ready = False

    def __init__(self):
        if self.ready:
            return
        dist.init_process_group("nccl")
        self.ready = True

WORLD = World

def save(model):
    dist.barrier()
    World()
    return model
""",
]
