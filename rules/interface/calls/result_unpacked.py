"""A result that is taken apart into another number of names than it has parts.

What it does
    Follows what is unpacked (`a, b = f(…)`, `for a, b in f(…)`) to the tuples that it may be: through functions of the
    project, remote calls and `ray.get`, `await`, fields and what callers pass; a named tuple has as many parts as
    fields. Reported where all of them have another length; as a warning where one `return` has, which nothing that is
    passed decides, or one of several functions always gives among which the caller itself has chosen
    (`KINDS[kind](…)`), or a flag for which the call passes what is now true and now false (`hidden=self.coefficient >
    0`). What comes from callers alone is a warning, and what is asked of an object that is not known, where each method
    of the project that bears the name gives another length, and no known library has one of that name. A warning, too,
    where a dictionary is taken apart, which gives its keys (in a loop that goes through several data sets, the batch of
    one of them), and where a clause takes every error (`except:`): what it does instead is always done. Silent about
    lists that may have grown, about what may be something else, and behind a test of the very value (`if len(result) ==
    3`).

Why is this bad
    It raises ValueError: somebody added a result, or took one away, and did not come to this caller.

References
    https://docs.python.org/3/reference/simple_stmts.html#assignment-statements
"""

from __future__ import annotations

from collections.abc import Iterator

from validator.analysis.interfaces.chosen import is_chosen_here
from validator.analysis.interfaces.handed_on import HandedOn
from validator.finding import Finding, Related, Severity
from validator.flow.constructors import length_of
from validator.flow.foreign import is_unknown
from validator.flow.objects import is_passed
from validator.flow.program.unit import Unit
from validator.flow.queries.base import Place, Queries
from validator.flow.queries.values.excluded_constants import is_excluded
from validator.flow.values import NONE_OBJ, Obj
from validator.project import Project
from validator.rule import Rule

RULE = Rule("MP130", "result-unpacked-otherwise", "error", stable_since="0.3.0", solves=True)


_ADDING = frozenset({"append", "extend", "insert"})


def check_project(project: Project) -> Iterator[Finding]:
    queries = project.analysis(Queries)
    for unit in queries.of_program():
        for place in queries.values(unit, "unpack"):
            position, wanted, star = place.value.data
            source = place.operand(0)
            matched = any(user.value.op == "match" for user in source.users)  # a part of a pattern, whatever it is
            if position != 0 or matched or place.asked_about(source) or (place.is_tried and not _is_swallowed(place)):
                continue
            if keys := _keys(source, wanted):
                yield _of_dictionary(queries, source, keys)
                continue
            lengths = _lengths(source) if not _is_of_excluded(source) else []
            if place.is_tried:
                if lengths and wanted not in lengths and star < 0 and not _is_partly_known(queries, source):
                    yield _report(queries, source, lengths, wanted, "warning")
                continue
            if not lengths and wanted not in (named := _lengths_by_name(queries, source)) and named and star < 0:
                yield _report(queries, source, named, wanted, "warning")
            if star < 0 and (odd := _given_by_flag(queries, source, wanted)):
                yield _report(queries, source, odd, wanted, "warning")
                continue
            wrong = [n for n in lengths if (n != wanted if star < 0 else n < wanted - 1)]
            if not wrong or _is_partly_known(queries, source) or _is_extended(queries, source):
                continue
            if len(wrong) == len(lengths):
                yield _report(queries, source, lengths, wanted, "warning" if is_passed(source) else RULE.severity)
            elif odd := _given_to_any(queries, source, wrong) or _given_by_one(queries, place, wrong):
                yield _report(queries, source, odd, wanted, "warning")


def _is_swallowed(place: Place) -> bool:
    """Whether clauses that take any error stand around a place, which take nothing apart themselves: whoever wrote them
    did not think of this one."""
    code = place.unit.code
    handlers = code.blocks[place.value.block].handlers
    numbers = [n for handler in handlers for n in code.blocks[handler].values]
    said = {str(code.values[n].data) for n in numbers if code.values[n].op == "caught"}
    return said <= {"*", "Exception", "BaseException"} and all(code.values[n].op != "unpack" for n in numbers)


def _keys(source: Place, wanted: int) -> list[str]:
    """The keys of what is a dictionary; none of what may be something else, but for tuples that fit, as other data sets
    give them to the same loop."""
    objs = source.closed.objs - {NONE_OBJ}
    given = [o for o in objs if o[0] == "dict"]
    others = {_length(o) for o in objs if o[0] != "dict"}
    if any(o[2] is not None for o in given) or others and (others != {wanted} or not _is_element(source.root)):
        return []
    return list(dict.fromkeys(str(key) for o in sorted(given, key=str) for key, _ in o[1]))


def _is_element(place: Place) -> bool:
    """Whether a value is what comes next: in a round of a loop, or of an iterator that is asked."""
    called = place.operand(0).val.objs if place.value.op == "call" else ()
    return place.value.op == "next" or ("ext", "next") in called


def _lengths(source: Place) -> list[int]:
    """The lengths that a tuple may have; none where it may be something else, or a list that something is added to."""
    lengths = {_length(o) for o in source.closed.objs - {NONE_OBJ}}
    return sorted(n for n in lengths if n) if all(lengths) else []


def _is_of_excluded(source: Place) -> bool:
    """Whether a text is split of which nothing is known but what it is not."""
    root = source.root
    receiver = root.receiver if root.value.op == "call" else None
    return receiver is not None and is_excluded(receiver, root)


def _length(o: Obj) -> int | None:
    if o[0] in ("inst", "self"):  # a class below a named tuple has no more parts
        return length_of(o[1])
    return len(o[1]) if o[0] == "tuple" else None


def _lengths_by_name(queries: Queries, source: Place) -> list[int]:
    """The lengths of what every method gives that bears the name of the one that is called, of whatever object; none
    where one may give something else."""
    name = _called(source)
    methods = queries.flow.guessed.methods(name) if name else []
    lengths: set[int] = set()
    for unit in queries.flow.units(iter(methods)):
        given = [Place(source.flow, unit, number) for number in unit.code.returned]
        known = [_lengths(place) for place in given]
        if not known or not all(known) or unit.code.is_generator:
            return []
        lengths.update(*known)
    return sorted(lengths)


def _is_known(asked: Place) -> bool:
    """Whether an object is known, or is the function's own: that it has no method of a name here says that a base has
    which is not shown, or a library's class, not that it is an object of another class."""
    kinds = {o[0] for o in asked.closed.each}
    return not kinds.isdisjoint(("inst", "self", "class", "ext", "made")) and not is_unknown(asked.closed)


def _called(source: Place) -> str:
    """The method that is called for a value, of an object that is not known, in another process too:
    `ray.get(x.engines.remote())`."""
    root = source.root
    if root.value.op == "await":
        return _called(root.operand(0))
    if root.value.op != "call":
        return ""
    if root.operand(0).val.objs == {("ext", "ray.get")} and len(root.value.args) > 1:
        return _called(root.operand(1))
    callee = root.operand(0).root
    if callee.value.op == "attr" and callee.value.data == "remote":
        callee = callee.operand(0).root
    return callee.value.data if callee.value.op == "attr" and not _is_known(callee.operand(0)) else ""


def _is_partly_known(queries: Queries, source: Place) -> bool:
    """Whether what is called may also be something of a library, or give what a library gives, which nobody knows."""
    call = source.root
    callees = call.operand(0).closed.each if call.value.op == "call" else ()
    targets = queries.targets(call)
    if any(o[0] in ("ext", "made") for o in callees) and targets:
        return True
    given = [[Place(source.flow, unit, number) for number in unit.code.returned] for unit in targets]
    return len(given) > 1 and any(not place.closed.objs for places in given for place in places)


def _is_extended(queries: Queries, source: Place) -> bool:
    """Whether what is read is an entry of an attribute to whose entries code adds: `self.pending[key].extend(…)`."""
    held = source.root
    kept = held.operand(0).root if held.value.op == "item" else None
    if kept is None or kept.value.op != "attr":
        return False
    receivers = (place.receiver for place in queries.called_in_program(_ADDING))
    adding = (place.root for place in receivers if place is not None)
    owners = (place.operand(0).root.value for place in adding if place.value.op == "item")
    return any(owner.op == "attr" and owner.data == kept.value.data for owner in owners)


def _given_to_any(queries: Queries, source: Place, wrong: list[int]) -> list[int]:
    """Of some lengths those that the function which is called gives whatever it is given: nothing that callers pass,
    or ask for themselves before they call it, decides which of its returns is taken."""
    targets = queries.targets(source.root)
    if len(targets) != 1:
        return []
    asked = {name for test in source.tests for name in _attributes(test)}
    found = set()
    for block in targets[0].code.blocks:
        if block.end[0] == "return":
            place = Place(source.flow, targets[0], block.end[1])
            length = len(place.value.args)
            chosen = any(is_passed(test) or not asked.isdisjoint(_attributes(test)) for test in place.tests_inside)
            if place.value.op == "tuple" and length in wrong and not chosen:
                found.add(length)
    return sorted(found)


def _given_by_one(queries: Queries, user: Place, wrong: list[int]) -> list[int]:
    """Of some lengths those that one of several functions always gives which the function of the call has chosen, or
    whose objects it has, while all others give a tuple that fits."""
    call = user.operand(0).root
    chosen = call.value.op == "call" and is_chosen_here(call, objects=True, user=user)
    targets = queries.targets(call) if chosen else []
    odd: set[int] = set()
    fitting = 0
    for unit in targets:
        given = [_lengths(Place(user.flow, unit, number)) for number in unit.code.returned]
        lengths = {n for each in given for n in each}
        if not given or not all(given) or lengths - {*wrong} and lengths & {*wrong}:
            return []
        fitting += not lengths & {*wrong}
        odd |= lengths & {*wrong}
    return sorted(odd) if fitting else []


def _given_by_flag(queries: Queries, source: Place, wanted: int) -> list[int]:
    """The other lengths that a function gives where a flag says so for which this call passes what may be true and may
    be false, and which it does not ask for itself where it takes the result apart."""
    root = source.root
    if root.value.op != "call":
        return []
    asked = {name for test in source.tests for name in _attributes(test)}
    flags = {
        keyword: value
        for keyword, number in zip(root.value.data.names, root.value.args[1:], strict=True)
        if keyword not in (None, "*", "**") and _is_open(value := root.value_at(number), asked)
    }
    unit = _behind(queries, root) if flags else None
    found = set()
    for block in unit.code.blocks if unit is not None else ():
        place = Place(source.flow, unit, block.end[1]) if unit is not None and block.end[0] == "return" else None
        if place is not None and place.value.op == "tuple" and len(place.value.args) != wanted:
            tests = [test.operand(0) if test.value.op == "unary" else test for test in place.tests_inside]
            names = [test.root.value.data[1] if test.root.value.op == "param" else None for test in tests]
            if names and all(name in flags for name in names):
                found.add(len(place.value.args))
    return sorted(found)


def _is_open(value: Place, asked: set[str]) -> bool:
    """Whether an argument is no constant, nothing that callers pass, and not asked for around the call."""
    known = value.root.value.op == "const" or value.closed.constant() is not None
    return not known and not is_passed(value) and asked.isdisjoint(_attributes(value)) and bool(_attributes(value))


def _behind(queries: Queries, call: Place) -> Unit | None:
    """The one function that a call runs, or the one to which that hands its keywords on, and whose result it gives."""
    handed = queries.project.analysis(HandedOn)
    seen: set[Unit] = set()
    while call.value.op == "call":
        targets = queries.targets(call)
        if len(targets) != 1 or targets[0] in seen:
            return None
        unit = targets[0]
        seen.add(unit)
        passed = list(handed.calls(unit.method)) if unit.method is not None else []
        if len(passed) != 1 or [unit.root(number) for number in unit.code.returned] != [passed[0].number]:
            return unit
        call = passed[0]
    return None


def _attributes(test: Place) -> set[str]:
    return {part.value.data for part in test.parts if part.value.op == "attr"}


def _of_dictionary(queries: Queries, source: Place, keys: list[str]) -> Finding:
    named = ", ".join(f"`{key}`" for key in keys[:3])
    return RULE.finding(
        source.unit.path,
        source.at,
        f"`{source.text}`{source.where} is a dictionary: what it is taken apart into are its keys ({named})",
        help="ask it for its values by their keys",
        related=_given_by(queries, source),
        context=f"{source.unit.qualname}:{source.text}",
        severity="warning",
    )


def _given_by(queries: Queries, source: Place) -> list[Related]:
    units = (unit for unit in queries.targets(source.root) if unit.method is not None)
    return [Related(u.path, u.method.facts.name_at[0], f"`{u.qualname}` gives it") for u in units if u.method]


def _report(queries: Queries, source: Place, lengths: list[int], wanted: int, severity: Severity) -> Finding:
    counted = " or ".join(map(str, lengths))
    return RULE.finding(
        source.unit.path,
        source.at,
        f"`{source.text}`{source.where} has {counted} parts and is taken apart into {wanted}: ValueError",
        help="take as many parts as there are, or give the result the parts that its callers take",
        related=_given_by(queries, source),
        context=f"{source.unit.qualname}:{source.text}",
        severity=severity,
    )


INCORRECT = (
    """\
def forward(strategy, batch):
    loss, kl = strategy.step(batch)
    return loss, kl, batch.tokens


class Trainer:
    def __init__(self, strategy):
        self.strategy = strategy
        self.last = None

    def fit(self, batches):
        for batch in batches:
            loss, kl = forward(self.strategy, batch)  # error: MP130
        return loss
""",
    # a named tuple has as many parts as fields
    """\
from collections import namedtuple

NAMES = ["loss", "kl", "tokens"]
Stats = namedtuple("Stats", NAMES)


def step(strategy, batch):
    return Stats(strategy.loss(batch), strategy.kl(batch), len(batch))


def train(strategy, batch):
    loss, kl = step(strategy, batch)  # error: MP130
    loss, kl, tokens = step(strategy, batch)
    return loss, kl, tokens
""",
    # from another process
    """\
import ray


@ray.remote
class Rollout:
    def engines(self):
        return self.servers, self.lock, self.ports


def connect(strategy):
    rollout = Rollout.remote()
    servers, lock = ray.get(rollout.engines.remote())  # error: MP130
    return servers, lock
""",
    # one return is left behind
    """\
def load(strategy):
    if strategy.step == 0:
        return 0, None
    return strategy.step, strategy.path, strategy.state


def resume(strategy):
    step, path, state = load(strategy)
    return step, path, state


class Checkpoints:
    def load(self):
        if self.step == 0:
            return 0, None
        return self.step, self.path, self.state

    def resume(self, strategy):
        step, path, state = self.load()  # error: MP130
        return step, path, strategy
""",
    # as a flag says, behind a function that hands it on
    """\
class Value:
    def forward(self, batch, with_hidden=False):
        if with_hidden:
            return batch.values, batch.last, batch.hidden
        return batch.values, batch.last


class Critic:
    def __init__(self, strategy):
        self.model = Value()
        self.strategy = strategy

    def run(self, batch, **options):
        return self.model.forward(batch, **options)

    def values(self, batch):
        values, _ = self.run(batch)
        return values

    def update(self, batch):
        values, last = self.run(batch, with_hidden=self.strategy.coefficient > 0)  # error: MP130
        return values - last
""",
    # a choice of two functions that give as many
    """\
async def first(strategy):
    return 1, 2


async def second(strategy):
    return 3, 4


async def run(strategy, fast):
    step = first if fast else second
    loss, kl, tokens = await step(strategy)  # error: MP130
    return loss
""",
    # of whom nobody knows, by a name that one class alone has
    """\
import ray


class RolloutManager:
    def updatable_engines(self):
        return self.engines, self.lock, self.ports


def update(strategy, manager):
    engines, lock, ports, offsets = ray.get(manager.updatable_engines.remote())  # error: MP130
    return engines, lock, ports, offsets
""",
    # a dictionary gives its keys; a clause that takes every error takes this one, too, each time
    """\
def measured(strategy):
    return {"accuracy": strategy.right, "loss": strategy.loss}


def overlap(boxes):
    return boxes.loss, boxes.giou, boxes.iou


def report(strategy, boxes):
    accuracy, loss = measured(strategy)  # error: MP130
    try:
        giou, iou = overlap(boxes)  # error: MP130
    except:
        giou, iou = 0.0, 0.0
    return accuracy, loss, giou, iou
""",
    """
from typing import List, NamedTuple

class Call(NamedTuple):
    name: str
    arguments: str
    number: str = ""

def written(calls: List["Call"]):
    text = ""
    for name, arguments in calls:  # error: MP130
        text += f"{name}({arguments})"
    return text

print(written([Call("add", "1, 2")]))
""",
    # one of two data sets gives dictionaries
    """\
from torch.utils.data import DataLoader, Dataset


class Plain(Dataset):
    def __init__(self, rows):
        self.rows = rows

    def __getitem__(self, index):
        return self.rows[index]

    def collate(self, rows):
        return [row["text"] for row in rows], [row["label"] for row in rows]


class Labelled(Plain):
    def collate(self, rows):
        return {"texts": [row["text"] for row in rows], "labels": [row["label"] for row in rows]}


def main(kind, rows, train):
    if kind == "plain":
        data = Plain(rows)
        loader = DataLoader(data, batch_size=8, collate_fn=data.collate)
    else:
        data = Labelled(rows)
        loader = DataLoader(data, batch_size=8, collate_fn=data.collate)
    for batch in loader:  # error: MP130
        texts, labels = batch
        train(texts, labels)
""",
    # a test that the text passes
    """\
def other():
    for key in ["labels", "names"]:
        if key.startswith("l"):
            block, name = key.split(".", 1)  # error: MP130
            print(block, name)
""",
    # one of several classes, or functions, gives something more
    """\
class Padded:
    def split(self, batch):
        return batch, batch


class Packed:
    def split(self, batch):
        return batch, batch, len(batch)


KINDS = {"padded": Padded, "packed": Packed}


def halves(kind, batch):
    packer = KINDS[kind]()
    left, right = packer.split(batch)  # error: MP130
    return left, right


def first(batch):
    return batch, 1


def last(batch):
    return batch, 1, 2


def ends(args, batch):
    end = first if args.short else last
    part, size = end(batch)  # error: MP130
    return part, size
""",
)

CORRECT = (
    # both ways are reckoned with
    """\
def overlap(boxes):
    return boxes.loss, boxes.giou, boxes.iou


def report(boxes):
    try:
        giou, iou = overlap(boxes)
    except ValueError:
        _, giou, iou = overlap(boxes)
    try:
        giou, iou = overlap(boxes)
    except Exception:
        _, giou, iou = overlap(boxes)
    first, second = {"giou": giou, "iou": iou}.values()
    return first, second
""",
    # another method is put into its place
    """\
from torch import nn


class Encoder(nn.Module):
    def forward(self, x):
        return x, 1

    def chunk(self, x):
        return x, 1, 2


def export(strategy):
    encoder = Encoder()
    encoder.forward = encoder.chunk
    x, offset, size = encoder(strategy.x)
    return x, offset, size
""",
    # a flag that decides how the result is taken apart, and one that callers choose
    """\
class Value:
    def forward(self, batch, with_hidden=False):
        if with_hidden:
            return batch.values, batch.last, batch.hidden
        return batch.values, batch.last


class Critic:
    def __init__(self, strategy):
        self.model = Value()
        self.strategy = strategy

    def update(self, batch, hidden=False):
        if self.strategy.coefficient > 0:
            values, last, _ = self.model.forward(batch, with_hidden=self.strategy.coefficient > 0)
        else:
            values, last = self.model.forward(batch, with_hidden=hidden)
        return values - last
""",
    # the class's own method, which its base has, is none of another class
    """
from somewhere import Base


class Tokens:
    def encode_rows_all(self, x):
        return x, x, x


class Worker(Base):
    def run(self, x):
        rows, mask = self.encode_rows_all(x)
        return rows, mask

    async def wait(self, x):
        rows, mask = await self.encode_rows_all(x)
        return rows, mask
""",
    # an entry to which more is added elsewhere
    """\
def extend(strategy, param):
    strategy.seen += [param]


class Optimizer:
    def __init__(self, strategy):
        self.strategy = strategy
        self.pending = {}

    def launch(self, param, sparse):
        self.pending[param] = (None, param.grad)
        if sparse:
            extend(self.strategy, param)
            self.pending[param].extend((self.strategy.gather(param), param.values))

    def step(self, param):
        indices, received, future, values = self.pending[param]
        return indices, received, future, values
""",
    # an option decides how many parts there are, for both
    """\
from options import options


def read(strategy, batch):
    args = options()
    if args.with_kl:
        return batch.loss, batch.tokens, batch.kl
    else:
        return batch.loss, batch.tokens


def train(strategy, batch):
    args = options()
    kl = None
    if args.with_kl:
        loss, tokens, kl = read(strategy, batch)
    else:
        loss, tokens = read(strategy, batch)
    return loss, tokens, kl
""",
    # another that is made in its place may give more
    """\
from deepspeed.moe.layer import MoE


class Dense:
    def __call__(self, x):
        return x, None


class Layer:
    def __init__(self, args):
        self.experts = args.experts
        self.mlp = Dense() if args.experts == 1 else MoE(args.hidden)

    def forward(self, x):
        if self.experts == 1:
            y, bias = self.mlp(x)
        else:
            y, loss, _ = self.mlp(x)
        return y
""",
    # two lengths, as the caller asks
    """\
def forward(strategy, batch, with_kl=False):
    if with_kl:
        return batch.loss, batch.kl
    return batch.loss, batch.kl, batch.tokens


def train(strategy, batch):
    loss, kl = forward(strategy, batch, with_kl=True)
    first, *rest = forward(strategy, batch)
    return loss, kl, first, rest
""",
    # patterns take what they name
    """\
def choose(strategy, name, options):
    match (name, options):
        case ("adam", {"lr": rate, **rest}):
            return strategy.adam(rate, rest)
        case _:
            raise ValueError(name)
""",
    # lists grow; somebody reckons with it
    """\
def collect(strategy, batches):
    found = []
    for batch in batches:
        found.append(batch.loss)
    return found


def pair(strategy):
    return 1, 2, 3


def train(strategy, batches):
    loss, kl = collect(strategy, batches)
    try:
        a, b = pair(strategy)
    except ValueError:
        a, b = None, None
    return loss, kl, a, b
""",
    # two classes have the method, and one gives as much
    """\
import ray


class RolloutManager:
    def updatable_engines(self):
        return self.engines, self.lock, self.ports


class Fake:
    def updatable_engines(self):
        return [], None


def update(strategy, manager):
    engines, lock = ray.get(manager.updatable_engines.remote())
    return engines, lock
""",
    # asked for its length
    """\
class Camera:
    def pose(self):
        if self.time:
            return self.where, self.view, self.time
        return self.where, self.view

    def show(self, strategy):
        found = self.pose()
        if len(found) == 3:
            where, view, time = found
        else:
            where, view = found
        return where, view, strategy
""",
    # as many as there are; one of several gives what a library gives
    """\
class Layers:
    def __init__(self, strategy, sizes):
        self.sizes = [(size, size) for size in range(sizes)]
        self.settings = [strategy.heads, strategy.depths]

    def build(self, strategy):
        for (inputs, outputs), heads, depth in zip(self.sizes, *self.settings):
            strategy.add(inputs, outputs, heads, depth)


class Units:
    def __init__(self, strategy, decoder):
        self.decoder = decoder

    def decode(self, batch):
        return self.decoder(batch)


class Durations:
    def decode(self, batch):
        return batch.units, batch.padding, batch.durations


def train(strategy, batch):
    model = Durations() if strategy.durations else Units(strategy, strategy.decoder)
    units, padding = model.decode(batch)
    return units, padding
""",
    # behind a test of the very value, which is read anew
    """\
class Rows:
    def __init__(self, strategy, rows):
        self.kind = strategy.kind
        self.rows = [(1, 2, 3, 4), (5, 6, 7, 8, 9, 10)]

    def get(self, i):
        if len(self.rows[i]) == 5:
            first, second, third, fourth, _ = self.rows[i]
            return first + second + third + fourth
        return 0
""",
    # options that a function adds: one object more
    """\
from dataclasses import dataclass

from transformers import HfArgumentParser


@dataclass
class Training:
    steps: int = 1


def with_more(parser):
    parser.add_argument_group("more").add_argument("--rank")
    return parser


def main():
    parser = HfArgumentParser(Training)
    parser = with_more(parser)
    training, rest = parser.parse_args_into_dataclasses()
    return training, rest
""",
    """
from typing import List, NamedTuple

class Call(NamedTuple):
    name: str
    arguments: str
    number: str = ""

def written(calls: List["Call"]):
    text = ""
    for name, arguments, _ in calls:
        text += f"{name}({arguments})"
    return text

print(written([Call("add", "1, 2")]))
""",
    # each batch is asked first
    """\
from torch.utils.data import DataLoader


def plain(rows):
    return [row["text"] for row in rows], [row["label"] for row in rows]


def labelled(rows):
    return {"texts": [row["text"] for row in rows], "labels": [row["label"] for row in rows]}


def main(kind, rows, train):
    loader = DataLoader(rows, collate_fn=plain if kind == "plain" else labelled)
    for batch in loader:
        if isinstance(batch, dict):
            batch = batch["texts"], batch["labels"]
        texts, labels = batch
        train(texts, labels)
""",
    # nothing is known of a text but that it is not this one, which the list lacks here
    """
def weight(current, items: list[str]):
    if "all" in items:
        items = [item for item in items if item != "all"]
        for item in items:
            name, value = item.split(":")
            if name == current:
                return float(value)
        return 1.0
    for item in items:
        name, value = item.split(":")
        if name == current:
            return float(value)
    return 0.0

class Data:
    def __init__(self, strategy, items: list[str] | None = None):
        if items is None:
            items = ["all"]
        self.items, self.strategy = items, strategy

    def __getitem__(self, index):
        return weight(index, self.items)

def main(strategy):
    return Data(strategy)[0]
""",
    # a text has more parts where a test has found what parts it
    """
class Tee:
    def __init__(self, lines):
        self.rest, self.lines = "", lines

    def write(self, text):
        self.rest += text
        while "\\n" in self.rest:
            line, self.rest = self.rest.split("\\n", 1)
            self.lines.append(line)
""",
    # a test leaves none of the texts that are known
    """\
def prepare(blocks, labels):
    keys = ["labels"]
    for i, _ in enumerate(blocks):
        keys.append(f"block_{i}.pos")
    found = {}
    for key, value in zip(keys, [labels, *blocks]):
        if key.startswith("block_"):
            block, name = key.split(".", 1)
            found[block, name] = value
        else:
            found[key] = value
    return found


def unlike():
    for key in ["labels", "names"]:
        if key != "labels" and key != "names":
            block, name = key.split(".", 1)
            print(block, name)
""",
    # who takes it apart knows which of them it is
    """\
def first(batch):
    return batch, 1


def last(batch):
    return batch, 1, 2


ENDS = {"first": first, "last": last}


def ends(args, batch):
    end = first if args.short else last
    if args.short:
        part, size = end(batch)
    else:
        part, size, _ = end(batch)
    return part, size


def named(kind, batch):
    assert kind == "first"
    part, size = ENDS[kind](batch)
    return part, size


def later(kind, batch):
    result = ENDS[kind](batch)
    if kind == "first":
        part, size = result
    else:
        part, size, _ = result
    return part, size
""",
    # numbered elements of a generator
    """
def rows(strategy):
    for index in range(3):
        yield {"strategy": strategy, "index": index}


def main(strategy):
    for step, row in enumerate(rows(strategy)):
        print(step, row["index"])
""",
)
