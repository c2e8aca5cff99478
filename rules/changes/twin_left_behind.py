"""A formula, a guard or a call that a change altered in one of two functions that were alike.

What it does
    Compares what a change altered in a function with the functions of the same name (siblings of a family, versions of
    a module, recipes) and those of the same file that share most of its statements. Reports a statement that one of
    them still has as it was: a warning where it is about ranks, else a note, as twins may part on purpose. Reports also
    a parameter that one of several functions of one signature lost while callers that choose among them pass it; and
    an argument of a decorator of one of two methods whose names begin alike, while the other has it as both had it. And
    what a collective makes of a tensor (`SUM`, `AVG`), where another function makes as before the same call. Also a
    statement that at least three functions had alike, wherever they are, and that one of them has otherwise since the
    change, in more than numbers, texts and new names, and as no other place has it.

Why is this bad
    What is mended in one of two twins is still wrong in the other; what is broken in one of them makes two backends
    train differently.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from rules.changes.effect_dropped import short
from validator.drift.change import Change
from validator.drift.statements.agreed import Agreed, Parted
from validator.drift.statements.decorators import Decorators, Redecorated
from validator.drift.statements.twins import Left, Twins, Untwinned
from validator.finding import Finding, Related
from validator.rule import Rule

RULE = Rule("MP907", "twin-left-behind", "warning", stable_since="0.2.0")


def check_change(change: Change) -> Iterator[Finding]:
    twins = change.analysis(Twins)
    for left in twins.left:
        yield _statement(left)
    for parted in change.analysis(Agreed).parted:
        yield _parted(parted)
    for row in twins.parameters:
        yield _parameter(row)
    for decorated in change.analysis(Decorators).rows:
        yield _decorated(decorated)


def _parted(row: Parted) -> Finding:
    unit = row.pair.new
    count = len({other for other, _ in row.others})
    return RULE.finding(
        unit.path,
        unit.module.source_text.at(row.new.node),
        f"`{short(row.old.text)}` is `{short(row.new.text)}` here since the change, and still as it was in "
        f"{count} other functions",
        help="change all of them alike, or say why this one differs",
        related=[Related(u.path, s.node.lineno, f"`{u.qualname}` has it as it was") for u, s in row.others[:3]],
        context=f"{unit.qualname}:{row.old.text[:80]}",
        severity="warning",
    )


def _decorated(row: Redecorated) -> Finding:
    was, now = short(ast.unparse(row.old)), short(ast.unparse(row.new))
    return RULE.finding(
        row.cls.path,
        row.cls.module.source_text.at(row.new),
        f"`{row.function.name}` is registered with `{row.name}={now}` since the change, and `{row.twin.name}` with"
        f" `{was}` as both were",
        help="change both, or neither",
        related=[Related(row.cls.path, row.twin.lineno, f"`{row.twin.name}` has it as it was")],
        context=f"{row.cls.qualname}.{row.function.name}:{row.name}",
    )


def _statement(left: Left) -> Finding:
    unit, twin = left.pair.new, left.twin
    now = f"`{short(left.now)}`" if left.now else "gone"
    return RULE.finding(
        unit.path,
        (left.line, 1, left.line, 1),
        f"`{short(left.before)}` is {now} here since the change, and still as it was in `{twin.qualname}`",
        help="change both, or neither",
        related=[Related(twin.path, left.twin_line, f"`{twin.qualname}` has it as it was")],
        context=f"{unit.qualname}:{left.before[:80]}",
        severity=left.severity,
    )


def _parameter(row: Untwinned) -> Finding:
    if row.renamed:
        return _renamed(row)
    others = ", ".join(f"`{twin.module.name}`" for twin in row.twins[:3])
    return RULE.finding(
        row.new.path,
        row.new.facts.name_at,
        f"`{row.new.name}` no longer takes `{row.name}`, which those in {others} take and callers pass",
        help="take it again, or change all of them and their callers",
        related=[Related(twin.path, twin.facts.name_at[0], f"`{twin.name}` as it was here") for twin in row.twins[:3]],
        context=f"{row.new.qualname}:{row.name}",
    )


def _renamed(row: Untwinned) -> Finding:
    twin = row.twins[0]
    return RULE.finding(
        twin.path,
        twin.facts.name_at,
        f"`{twin.qualname}` still takes `{row.name}`, for which callers that choose among those of its kind pass "
        f"`{row.renamed}` since the change",
        help=f"call it `{row.renamed}` here too",
        related=[
            Related(row.new.path, row.new.facts.name_at[0], f"`{row.new.qualname}` takes `{row.renamed}` now"),
            *(Related(each.path, each.facts.name_at[0], "this one as well") for each in row.twins[1:4]),
        ],
        context=f"{twin.qualname}:{row.name}",
    )


_WORKERS = """# before: workers.py
from registry import Mode, register


class Worker:
    @register(mode=Mode.PROTO)
    def update_actor(self, rows):
        return rows

    @register(mode=Mode.PROTO)
    def update_critic(self, rows):
        return rows

    @register(mode=Mode.METRICS)
    def measure(self, rows):
        return rows
# file: workers.py
from registry import Mode, register


class Worker:
    @register(mode=Mode.{actor})
    def update_actor(self, rows):
        return rows

    @register(mode=Mode.METRICS){mark}
    def update_critic(self, rows):
        return rows

    @register(mode=Mode.METRICS)
    def measure(self, rows):
        return rows
# file: registry.py
class Mode:
    PROTO, METRICS = range(2)


def register(mode):
    def keep(function):
        function.mode = mode
        return function

    return keep
"""

_FORWARD = """# before: solver.py
import torch.distributed as dist


class Solver:
    def forward(self, parameters, steps):
        for step in range(steps):
            for each in parameters:
                dist.all_reduce(each.grad, op=dist.ReduceOp.SUM)
                each.data -= each.grad
        return parameters

    def recompute(self, parameters, rows):
        found = []
        for row in rows:
            found.append(row.loss())
            for each in parameters:
                dist.all_reduce(each.grad, op=dist.ReduceOp.SUM)
        return found
# file: solver.py
import torch.distributed as dist


class Solver:
    def forward(self, parameters, steps):
        for step in range(steps):
            for each in parameters:
                dist.all_reduce(each.grad, op=dist.ReduceOp.AVG){mark}
                each.data -= each.grad
        return parameters

    def recompute(self, parameters, rows):
        found = []
        for row in rows:
            found.append(row.loss())
            for each in parameters:
                dist.all_reduce(each.grad, op=dist.ReduceOp.{other})
        return found
"""

_SHARED = """# before: rows.py
class Images:
    def __init__(self, rows, **given):
        self.own_rows = rows[given["rank"] :: given["ranks"]]


class Videos:
    def __init__(self, rows, **given):
        self.frames = given["frames"]
        self.own_rows = rows[given["rank"] :: given["ranks"]]


class Texts:
    def __init__(self, rows, **given):
        self.length = given["length"]
        rows = [row for row in rows if len(row) < self.length]
        self.own_rows = rows[given["rank"] :: given["ranks"]]
# file: rows.py
class Images:
    def __init__(self, rows, **given):
        self.own_rows = {images}


class Videos:
    def __init__(self, rows, **given):
        self.frames = given["frames"]
        start = given["rank"] * 2
        self.own_rows = {videos}{mark}


class Texts:
    def __init__(self, rows, **given):
        self.length = given["length"]
        rows = [row for row in rows if len(row) < self.length]
        self.own_rows = {images}
"""
_STRIDED = 'rows[given["rank"] :: given["ranks"]]'
_STRETCH = "rows[start : start + 2]"


INCORRECT = (
    """# before: rl/meshes.py
class Torch:
    def names(self, sizes):
        dp_shard, dp = ["dp_shard"], ["dp"]
        if sizes.cp > 1:
            dp.append("cp")
            dp_shard.append("cp")
        return dp_shard, dp


class Accelerate:
    def names(self, sizes):
        dp_shard, dp = ["dp_shard"], ["dp"]
        if sizes.cp > 1:
            dp.append("cp")
            dp_shard.append("cp")
        return dp_shard, dp
# file: rl/meshes.py
class Torch:
    def names(self, sizes):  # error: MP907
        dp_shard, dp = ["dp_shard"], ["dp"]
        if sizes.cp > 1:
            dp.append("cp")
        return dp_shard, dp


class Accelerate:
    def names(self, sizes):
        dp_shard, dp = ["dp_shard"], ["dp"]
        if sizes.cp > 1:
            dp.append("cp")
            dp_shard.append("cp")
        return dp_shard, dp
""",
    """# before: rl/saving.py
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
from torch.distributed.fsdp import StateDictType


class Checkpointer:
    def save(self, model, data):
        with FSDP.state_dict_type(model, StateDictType.LOCAL_STATE_DICT):
            data["model"] = model.state_dict()
        return data

    def load(self, model, data):
        with FSDP.state_dict_type(model, StateDictType.LOCAL_STATE_DICT):
            return model.load_state_dict(data["model"])
# file: rl/saving.py
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
from torch.distributed.fsdp import StateDictType


class Checkpointer:
    def save(self, model, data):
        with FSDP.state_dict_type(model, StateDictType.SHARDED_STATE_DICT):  # error: MP907
            data["model"] = model.state_dict()
        return data

    def load(self, model, data):
        with FSDP.state_dict_type(model, StateDictType.LOCAL_STATE_DICT):
            return model.load_state_dict(data["model"])
""",
    """# before: rl/schedule.py
class Cosine:
    def __init__(self, optimizer, init_lr, warmup_start_lr=-1, **more):
        self.start = (optimizer, init_lr, warmup_start_lr)


class Step:
    def __init__(self, optimizer, init_lr, warmup_start_lr=-1, **more):
        self.start = (optimizer, init_lr, warmup_start_lr)
# file: rl/schedule.py
class Cosine:
    def __init__(self, optimizer, init_lr, warmup_lr=-1, **more):
        self.start = (optimizer, init_lr, warmup_lr)


class Step:
    def __init__(self, optimizer, init_lr, warmup_start_lr=-1, **more):  # error: MP907
        self.start = (optimizer, init_lr, warmup_start_lr)
# before: rl/run.py
def schedule(registry, name, optimizer, rate):
    made = registry.get(name)
    return made(optimizer, init_lr=1.0, warmup_start_lr=rate)
# file: rl/run.py
def schedule(registry, name, optimizer, rate):
    made = registry.get(name)
    return made(optimizer, init_lr=1.0, warmup_lr=rate)
""",
    """# before: rl/actor.py
def clip(ratio, low, high, advantage):
    first = ratio * advantage
    second = ratio.clamp(1 - low, 1 + high) * advantage
    return -first.minimum(second)
# file: rl/actor.py
def clip(ratio, low, high, advantage):
    first = ratio * advantage
    second = ratio.clamp(1 - low, 1 + 2 * high) * advantage  # error: MP907
    return -first.minimum(second)
# file: rl/old_actor.py
def clip(ratio, low, high, advantage):
    first = ratio * advantage
    second = ratio.clamp(1 - low, 1 + high) * advantage
    return -first.minimum(second)
""",
    """# file: rl/__init__.py
# before: rl/sft.py
def generate(args, data, evaluation=False):
    return args, data, evaluation
# file: rl/sft.py
def generate(args, data):  # error: MP907
    return args, data
# file: rl/remote.py
def generate(args, data, evaluation=False):
    return args, data, evaluation
# file: rl/train.py
from rl.loading import load


def roll(args, data):
    function = load(args.generate_path)
    return function(args, data, evaluation=True)
# file: rl/loading.py
import importlib


def load(path):
    return getattr(importlib.import_module(path), "generate")
""",
    # a decorator of one of two methods
    _WORKERS.format(actor="PROTO", mark="  # error: MP907"),
    # what a collective makes of the same
    _FORWARD.format(mark="  # error: MP907", other="SUM"),
    # one of three that dealt rows out alike
    _SHARED.format(images=_STRIDED, videos=_STRETCH, mark="  # error: MP907"),
)
CORRECT = (
    # the call that passes it stands in one of the two, which hands on to what it wraps
    """# before: rl/pixels.py
class Pixels:
    def render(self, mode="rgb_array", height=None):
        return self.env.render(mode=mode, height=height)
# file: rl/pixels.py
class Pixels:
    def render(self, height=None):
        mode = self.env.render_mode
        return self.env.render(mode=mode, height=height)
# file: rl/wrapped.py
class Wrapped:
    def render(self, mode="rgb_array", height=None):
        return self.camera.draw(mode, height)
""",
    """# file: rl/__init__.py
# before: rl/single.py
class Single:
    def setup_data(self, options, state):
        return options, state
# file: rl/single.py
class Single:
    def setup_data(self, options):
        return options
# file: rl/several.py
class Several:
    def setup(self, options):
        return self.setup_data(options, state=None)

    def setup_data(self, options, state):
        return options, state
""",
    """# before: rl/actor.py
def clip(ratio, low, high, advantage):
    first = ratio * advantage
    second = ratio.clamp(1 - low, 1 + high) * advantage
    return -first.minimum(second)
# file: rl/actor.py
def clip(ratio, low, high, advantage):
    first = ratio * advantage
    second = ratio.clamp(1 - low, 1 + 2 * high) * advantage
    return -first.minimum(second)
# before: rl/old_actor.py
def clip(ratio, low, high, advantage):
    first = ratio * advantage
    second = ratio.clamp(1 - low, 1 + high) * advantage
    return -first.minimum(second)
# file: rl/old_actor.py
def clip(ratio, low, high, advantage):
    first = ratio * advantage
    second = ratio.clamp(1 - low, 1 + 2 * high) * advantage
    return -first.minimum(second)
""",
    """# before: rl/actor.py
def load(path):
    print("reading", path)
    return open(path).read()
# file: rl/actor.py
def load(path):
    print("loading", path)
    return open(path).read()
# file: rl/other.py
def load(path):
    print("reading", path)
    return open(path).read()
""",
    """# before: rl/policies.py
class Memory:
    def reset(self, dones=None, states=None):
        self.states = states if dones is None else None


class Student:
    def __init__(self):
        self.memory = Memory()

    def reset(self, dones=None, states=None):
        self.memory.reset(dones, states)
# file: rl/policies.py
class Memory:
    def reset(self, dones=None, state=None):
        self.state = state if dones is None else None


class Student:
    def __init__(self):
        self.memory = Memory()

    def reset(self, dones=None, states=None):
        self.memory.reset(dones, states)
# file: rl/algorithm.py
from rl.policies import Student


class Algorithm:
    policy: Student

    def __init__(self, policy: Student):
        self.policy = policy

    def update(self, last):
        self.policy.reset(states=last)
""",
    _WORKERS.format(actor="METRICS", mark=""),
    _FORWARD.format(mark="", other="AVG"),
    # all three deal rows out otherwise; in one of them the rows have another name now
    _SHARED.format(images=_STRETCH, videos=_STRETCH, mark=""),
    _SHARED.format(images=_STRIDED, videos='wide_rows[given["rank"] :: given["ranks"]]', mark="").replace(
        "start = given", "wide_rows = rows + given"
    ),
)
