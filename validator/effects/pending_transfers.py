"""Transfers that are started and go on while the program does: who waits for them, who touches their tensors before.

From each call that starts one, all ways through the program are followed, into the functions that are called and out
to the callers, until the handle is waited for. A use of the tensor on a way before that is a race. A context manager
that a generator makes runs up to its `yield` where it is entered, and goes on from there where it is left.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from typing import NamedTuple

from validator.domains.spmd import only
from validator.flow.access_paths import Path, holds, paths_of
from validator.flow.program.answers import Target
from validator.flow.program.flow import Flow
from validator.flow.program.unit import Unit
from validator.flow.queries.base import Place, users_of
from validator.flow.queries.escapes import Held, Holders, Index, argument_of, given_by
from validator.flow.values import BOTTOM, Val
from validator.ir.model import Value
from validator.models import Row
from validator.project import Project

_WAITS = frozenset({
    "wait", "result", "synchronize", "join", "block_current_stream", "exception", "get", "value",
    "add_done_callback",
})  # fmt: skip
_ABOUT = frozenset({  # what asks about a tensor without reading what it holds
    "size", "dim", "numel", "data_ptr", "element_size", "stride", "is_contiguous", "ndimension",
    "record_stream", "nelement", "storage_offset", "untyped_storage", "get_device", "requires_grad_",
    "register_hook", "is_floating_point", "nbytes", "is_set_to",
})  # fmt: skip
_SHAPES = frozenset({
    "shape", "dtype", "device", "ndim", "is_cuda", "requires_grad", "grad_fn", "layout", "names",
    "itemsize", "is_leaf",
})  # fmt: skip
_ASKING = frozenset({
    "len", "isinstance", "id", "type", "hasattr", "getattr", "setattr", "callable", "zip", "enumerate",
    "range", "list", "tuple", "reversed", "iter",
})  # fmt: skip
_GROWING = frozenset({
    "append", "extend", "add", "insert", "update", "appendleft", "setdefault", "pop", "popleft", "get",
    "items", "keys", "values", "clear",
})  # fmt: skip


# Context managers that run, where they are left, what they were given.
_RUNNING = frozenset({
    "contextlib.ExitStack", "contextlib.AsyncExitStack", "contextlib.closing", "contextlib.aclosing",
})  # fmt: skip

_SELF_OR_COPY = frozenset({"contiguous", "reshape", "flatten"})  # a tensor that is so already is given back


class Started(NamedTuple):
    """A call that starts a transfer. `sure`: it is certain that it goes on behind the call."""

    unit: Unit
    number: int
    row: Row
    sure: bool


class Buffer(NamedTuple):
    """A tensor in flight, in terms of one unit. `written`: the transfer writes it, else it reads it.

    `path`: the value itself, empty once its variables hold something else; `place`: the elements of what it is.
    """

    path: Path
    place: Path
    written: bool


class Use(NamedTuple):
    """What touches a tensor in flight. `waits`: on other ways somebody waits before; `by_rank`: the rank decides it."""

    unit: Unit
    number: int
    buffer: Buffer
    waits: tuple[Held, ...] = ()
    by_rank: bool = False


class Lost(NamedTuple):
    """A way out of the function with the only handle of a transfer, which still goes on: the value that is returned,
    and where others wait."""

    unit: Unit
    number: int
    buffer: Buffer
    waits: tuple[Held, ...]


class Fate(NamedTuple):
    """What becomes of a transfer that was started."""

    started: Started
    holders: Holders
    waits: tuple[Held, ...]
    uses: tuple[Use, ...]
    synchronized: bool  # something waits for all that the device has to do
    overtaken: bool  # the next one is started while the handle of this one is lost
    lost: tuple[Lost, ...] = ()

    @property
    def is_waited_for(self) -> bool:
        """Whether somebody may wait. A list in an attribute may be read by whoever has the object."""
        given_away = self.holders.given or self.holders.escapes or (self.holders.gathered and self.holders.attributes)
        return bool(self.waits or given_away or self.synchronized)


class Pending:
    """Answers for one project; asked for with `project.analysis(Pending)`."""

    def __init__(self, project: Project) -> None:
        self.flow = project.analysis(Flow)
        self.index = Index(self.flow)

    @cached_property
    def started(self) -> list[Started]:
        rows = self.flow.models.calls.values()
        names = {row.name for row in rows if row.starts or row.handle}
        found = [s for unit in self.flow.calling(*names) for s in self._started_in(unit)]
        return sorted(found, key=lambda s: (s.unit.path, s.unit.code.values[s.number].at))

    def _started_in(self, unit: Unit) -> Iterator[Started]:
        rows = self.flow.models.starting
        for number, value in enumerate(unit.code.values):
            if value.op != "call":
                continue
            callee = unit.code.values[value.args[0]]
            if callee.op not in ("attr", "name", "import") or not self._may_start(value, callee, rows):
                continue
            for o in self.flow.result(unit).vals[value.args[0]].each:
                row = self.flow.models.call(o[1]) if o[0] == "ext" else None
                if row is not None and (row.starts or self._flag(unit, value, row).is_const(True)):
                    yield Started(unit, number, row, True)
                    break
                if row is not None:
                    yield from self._started_through(unit, value, row, {unit})

    def _started_through(self, unit: Unit, value: Value, row: Row, seen: set[Unit]) -> Iterator[Started]:
        """The calls of a function that hands its callers' flag on to a collective, and what that gives back to them."""
        flag = next((o[1] for o in self._flag(unit, value, row, closed=False).of("param")), None)
        if flag is None or not any(unit.code.values[unit.root(end)] is value for end in unit.code.returned):
            return
        mine = row._replace(
            handle=unit.code.params[flag][0], writes=self._parameter(unit, value, row.writes or row.equal),
            reads=self._parameter(unit, value, row.reads), equal=None,
        )  # fmt: skip
        for caller, call, target in self.index.sites(unit):
            given = target.argument(flag)
            if caller in seen or given is None or caller.code.values[call].op != "call":
                continue
            if given.is_const(True):
                yield Started(caller, call, mine, True)
            elif given.of("param"):
                yield from self._started_through(caller, caller.code.values[call], mine, {*seen, caller})

    @staticmethod
    def _parameter(unit: Unit, value: Value, which: tuple[str, int] | None) -> tuple[str, int] | None:
        """The parameter of a unit that it hands on as a parameter of a collective."""
        for place, name in enumerate(value.data.names) if which is not None else ():
            if which is not None and (name == which[0] or (name is None and place == which[1])):
                passed = unit.code.values[unit.root(value.args[place + 1])]
                if passed.op == "param":
                    return passed.data[1], passed.data[0] - unit.has_receiver
        return None

    @staticmethod
    def _may_start(value: Value, callee: Value, rows: frozenset[str]) -> bool:
        return "async_op" in value.data.names or callee.op == "import" or callee.data in rows or callee.op == "name"

    def _flag(self, unit: Unit, value: Value, row: Row, closed: bool = True) -> Val:
        """The flag that makes a collective asynchronous, as it is given."""
        for place, name in enumerate(value.data.names):
            if row.handle and name == row.handle:
                given = self.flow.result(unit).vals[value.args[place + 1]]
                return self.flow.close(given, unit) if closed else given
        return BOTTOM

    @cached_property
    def fates(self) -> list[Fate]:
        return [self._fate(each) for each in self.started]

    def _fate(self, started: Started) -> Fate:
        holders = Holders(self.flow, self.index, started.unit, started.number)
        waits = tuple((unit, call) for unit, call, name in holders.called if name in _WAITS)
        walk = Walk(self, started, holders, waits)
        walk.run()
        overtaken = bool(waits) and walk.comes_again and not holders.gathered and not holders.attributes
        return Fate(
            started, holders, waits, tuple(walk.found()), walk.synchronized, overtaken and not walk.waited_inside,
            tuple(walk.lost()),
        )  # fmt: skip


class Walk:
    """The ways from one start."""

    def __init__(self, pending: Pending, started: Started, holders: Holders, waits: tuple[Held, ...]) -> None:
        self.flow = pending.flow
        self.index = pending.index
        self.started = started
        self.holders = holders
        self.waits = {*waits, *holders.given}
        self.uses: dict[Held, Use] = {}
        self.met: dict[Held, None] = {}  # the waits that some way comes to
        self.synchronized = False
        self.comes_again = False
        self.left: dict[int, tuple[Buffer, ...]] = {}  # blocks that return with nobody having waited, and what flies
        self._active: set[tuple[Unit, int]] = set()
        self._waiting_units = self._units_that_wait()

    def run(self) -> None:
        unit, number = self.started.unit, self.started.number
        buffers = tuple(self._buffers())
        self._outwards(unit, number, buffers)

    # -- what is in flight ---------------------------------------------------------------------------------

    def _buffers(self) -> Iterator[Buffer]:
        unit, number, row = self.started.unit, self.started.number, self.started.row
        value = unit.code.values[number]
        paths = paths_of(unit)
        for which, written in ((row.writes or row.equal, True), (row.reads, False)):
            for place, name in enumerate(value.data.names) if which is not None else ():
                if which is not None and (name == which[0] or (name is None and place == which[1])):
                    operand = value.args[place + 1]
                    operand = self._behind(operand) if written else operand
                    yield Buffer(paths.path(operand), paths.place(operand), written)

    def _behind(self, operand: int) -> int:
        """The tensor that a transfer is meant to write: `x` of `all_reduce(x.contiguous())`, which has no other name
        for what it writes."""
        unit = self.started.unit
        value = unit.code.values[operand]
        callee = unit.code.values[value.args[0]] if value.op == "call" else value
        itself = value.op == "call" and callee.op == "attr" and callee.data in _SELF_OR_COPY
        users = [each for each in users_of(unit).get(operand, ()) if unit.code.values[each].op != "mut"]
        if not itself or len(users) > 1 or operand in _named(unit):
            return operand
        return self._behind(callee.args[0])

    def _units_that_wait(self) -> set[Unit]:
        """The units that wait for the handle, themselves or by what they call."""
        found = {unit for unit, _ in self.waits}
        queue = list(found)
        while queue:
            for caller in self.flow.callers(queue.pop()):
                if caller not in found:
                    found.add(caller)
                    queue.append(caller)
        return found

    # -- ways ----------------------------------------------------------------------------------------------

    def _outwards(self, unit: Unit, number: int, buffers: tuple[Buffer, ...]) -> None:
        """Follow what comes behind a call, in its unit and where that returns to."""
        if (unit, number) in self._active or not (buffers or unit is self.started.unit):
            return
        self._active.add((unit, number))
        block = unit.code.values[number].block
        index = unit.code.blocks[block].values.index(number) + 1
        if not self._through(unit, block, index, buffers):
            return
        for caller, call, target in self.index.sites(unit):
            mapped = tuple(self._returned(unit, caller, call, target, buffers))
            if mapped:
                self._outwards(caller, call, mapped)

    def _through(self, unit: Unit, block: int, index: int, buffers: tuple[Buffer, ...]) -> bool:
        """Follow the ways from a place to the end of the unit; whether one comes there with nobody having waited."""
        code = unit.code
        seen: set[tuple[int, bool, tuple[Buffer, ...]]] = set()
        stack = [(block, index, buffers, False)]
        left = False
        while stack:
            at, first, flying, again = stack.pop()
            goes_on, flying = self._block(unit, at, first, flying)
            if not goes_on:
                left = left or goes_on is None
                continue
            if code.blocks[at].end[0] == "return":
                left = True
                if unit is self.started.unit:
                    self.left.setdefault(at, flying)
            for following in self._ways(unit, at, again):
                round_again = following in code.loops and following <= at
                arriving = self._renamed(unit, at, following, flying)
                if (following, round_again, arriving) not in seen:
                    seen.add((following, round_again, arriving))
                    stack.append((following, 0, arriving, round_again))
        return left

    @staticmethod
    def _renamed(unit: Unit, at: int, following: int, buffers: tuple[Buffer, ...]) -> tuple[Buffer, ...]:
        """What is in flight, under the variables that hold it where a block goes on to another one."""
        code = unit.code
        preds = [pred for pred, _ in code.blocks[following].preds]
        phis = [n for n in code.blocks[following].values if code.values[n].op == "phi"] if at in preds else []
        if not phis:
            return buffers
        found = dict.fromkeys(b._replace(path=()) if b.path and b.path[0] in phis else b for b in buffers)
        for number in phis:
            path = paths_of(unit).path(code.values[number].args[preds.index(at)])
            found.update((Buffer((number,), (number,), b.written), None) for b in buffers if b.path and b.path == path)
        return tuple(found)

    def _block(
        self, unit: Unit, block: int, first: int, buffers: tuple[Buffer, ...]
    ) -> tuple[bool | None, tuple[Buffer, ...]]:
        """Go through a block; whether the transfer is still pending behind it, and what is in flight then. None where
        it ends at a `yield` to who entered the unit by `with`."""
        for number in unit.code.blocks[block].values[first:]:
            value = unit.code.values[number]
            if value.op == "yield" and self.index.is_entered(unit):
                return None, buffers
            if (unit, number) in self.waits:
                self.met[unit, number] = None
                return False, buffers
            if unit is self.started.unit and number == self.started.number:
                self.comes_again = True
                return False, buffers
            buffers = tuple(self._renewed(unit, number, each) for each in buffers)
            used = next((b for b in buffers if self._touches(unit, number, value, b)), None)
            if used is not None:
                self.uses.setdefault((unit, number), Use(unit, number, used))
                return False, buffers
            if value.op in ("call", "enter") and not self._called(unit, number, value, buffers):
                return False, buffers
            if value.op == "leave" and not self._leaves(unit, number, buffers):
                return False, buffers
        return True, buffers

    @staticmethod
    def _renewed(unit: Unit, number: int, buffer: Buffer) -> Buffer:
        """A variable of a loop that gets its next element is not what is in flight."""
        if not buffer.path or unit.code.values[number].op in ("param", "phi"):
            return buffer
        keys = (step[2:-1] for step in buffer.path[1:] if isinstance(step, str) and step.startswith("[%"))
        if buffer.path[0] == number or any(f"({number}," in key for key in keys):
            return buffer._replace(path=())
        return buffer

    def _called(self, unit: Unit, number: int, value: Value, buffers: tuple[Buffer, ...]) -> bool:
        """Follow a call into what it calls; whether the transfer may still be pending behind it."""
        callee = self.flow.result(unit).vals[value.args[0]]
        for o in callee.each:
            row = self.flow.models.call(o[1]) if o[0] == "ext" else None
            if row is not None and row.waits:
                self.synchronized = True
                return False
        if callee.objs and any(o[0] == "ext" and o[1].endswith(".destroy_process_group") for o in callee.each):
            return False
        name = unit.code.values[value.args[0]].data
        if unit.code.values[value.args[0]].op == "attr" and name in ("synchronize", "wait_stream", "wait_event"):
            self.synchronized = True
            return False
        return self._run(unit, number, self._targets(unit, number), buffers)

    def _targets(self, unit: Unit, number: int) -> list[Unit]:
        site = self.flow.result(unit).sites.get(number)
        return [target.unit for target in site.targets] if site is not None and not site.away else []

    def _run(self, unit: Unit, number: int, targets: list[Unit], buffers: tuple[Buffer, ...]) -> bool:
        going = [self._inside(unit, number, target, buffers) for target in targets]
        return not going or any(going)

    def _leaves(self, unit: Unit, number: int, buffers: tuple[Buffer, ...]) -> bool:
        """Follow what runs where `with` leaves a context manager; whether the transfer may still be pending behind it.

        What a library runs there of what it was given is not seen: functions elsewhere that wait may be among it.
        """
        manager = self.flow.result(unit).vals[unit.code.values[number].args[0]]
        if any(o[0] == "made" and o[1] in _RUNNING for o in manager.each):
            return self._waiting_units <= {unit}
        made = [o[1] for o in manager.of("generator")]
        return self._run(unit, number, [*self._targets(unit, number), *made], buffers)

    def _inside(self, unit: Unit, call: int, target: Unit, buffers: tuple[Buffer, ...]) -> bool:
        mapped = tuple(self._given(unit, call, target, buffers))
        if not mapped and target not in self._waiting_units:
            return True
        if (target, -1) in self._active:
            return True
        self._active.add((target, -1))
        resumed = unit.code.values[call].op == "leave" and target.code.is_generator
        left = [self._through(target, block, index, mapped) for block, index in _starts(target, resumed)]
        self._active.discard((target, -1))
        return any(left)

    def _ways(self, unit: Unit, block: int, again: bool) -> tuple[int, ...]:
        """Where a block goes on: where it asks whether there is a handle, on the way that waits for it.

        What is iterated is believed to hold something: a loop is left only `again` at its head.
        """
        end = unit.code.blocks[block].end
        following = unit.code.blocks[block].successors()
        if end[0] == "branch" and unit.code.values[end[1]].op == "more" and not again:
            return following[:1]
        if end[0] != "branch" or not self._asks_for_handle(unit, end[1]):
            return following
        waiting = [way for way in following if self._waits_under(unit, block, way)]
        return tuple(waiting) or following

    def _asks_for_handle(self, unit: Unit, number: int) -> bool:
        """Whether a test is about the handle or what holds it: is it there, does the list hold any."""
        value = unit.code.values[number]
        if (unit, number) in self.holders.held:
            return True
        if value.op == "more":
            return any((unit, each) in self.holders.held for each in value.args)
        if value.op == "unary":
            return self._asks_for_handle(unit, value.args[0])
        if value.op == "compare":
            left, right = value.args
            other = unit.code.values[right]
            empty = (
                other.op == "const" and other.data in (None, 0) and value.data in ("Is", "IsNot", "Gt", "NotEq", "Eq")
            )
            return empty and self._asks_for_handle(unit, left)
        if value.op == "call" and unit.code.values[value.args[0]].data in (
            "len",
            "any",
            "hasattr",
            "isinstance",
            "is_completed",
        ):
            return any((unit, each) in self.holders.held for each in value.args[1:])
        return False

    def _waits_under(self, unit: Unit, branch: int, way: int) -> bool:
        arms = unit.control.arms
        for block in self._blocks_that_wait(unit):
            seen, stack = set(), [block]
            while stack:
                for arm in arms.get(stack.pop(), ()):
                    if arm == (branch, way):
                        return True
                    if arm[0] not in seen:
                        seen.add(arm[0])
                        stack.append(arm[0])
        return False

    def _blocks_that_wait(self, unit: Unit) -> set[int]:
        found = {unit.code.values[number].block for where, number in self.waits if where is unit}
        for number, site in self.flow.result(unit).sites.items():
            if any(target.unit in self._waiting_units for target in site.targets):
                found.add(unit.code.values[number].block)
        return found

    # -- tensors in other units ----------------------------------------------------------------------------

    def _given(self, unit: Unit, call: int, target: Unit, buffers: tuple[Buffer, ...]) -> Iterator[Buffer]:
        """What is in flight, in terms of a unit that is called."""
        paths = paths_of(unit)
        for number, value in enumerate(target.code.values):
            given = argument_of(unit, call, target, value.data[0]) if value.op == "param" else None
            if given is None:
                continue
            path, place = paths.path(given), paths.place(given)
            for buffer in buffers:
                if buffer.path and buffer.path[: len(path)] == path:
                    rest = buffer.path[len(path) :]
                    yield Buffer((number, *rest), (number, *rest), buffer.written)
                elif buffer.path and path[: len(buffer.path)] == buffer.path:
                    yield Buffer((number,), (number,), buffer.written)
                elif buffer.place[: len(place)] == place and len(buffer.place) > len(place):
                    yield Buffer((), (number, *buffer.place[len(place) :]), buffer.written)

    def _returned(
        self, unit: Unit, caller: Unit, call: int, target: Target, buffers: tuple[Buffer, ...]
    ) -> Iterator[Buffer]:
        """What is in flight, in terms of a caller."""
        paths = paths_of(caller)
        for buffer in buffers:
            root = buffer.place[0]
            value = unit.code.values[root] if isinstance(root, int) else None
            if value is not None and value.op == "param":
                given = argument_of(caller, call, unit, value.data[0])
                if given is not None:
                    rest = buffer.place[1:]
                    exact = buffer.path == buffer.place
                    yield Buffer(
                        (*paths.path(given), *rest) if exact else (), (*paths.place(given), *rest), buffer.written
                    )
            else:
                result = paths.path(call)  # what is entered is not told from what it gives
                for path in self._in_result(unit, buffer):
                    yield Buffer((*result, *path), (*result, *path), buffer.written)

    @staticmethod
    def _in_result(unit: Unit, buffer: Buffer, only_at: int | None = None) -> Iterator[Path]:
        """Where in what a unit returns, by any `return` or by one, or yields, a tensor lies."""
        own = paths_of(unit)
        ends = given_by(unit) if only_at is None else [unit.code.blocks[only_at].end[1]]
        for end in ends:
            value = unit.code.values[end]
            parts = enumerate(value.args) if value.op in ("tuple", "list") else ()
            rows = [((), end), *(((f"#{i}",), part) for i, part in parts)]
            for prefix, part in rows:
                path = own.path(part)
                if buffer.path and buffer.path[: len(path)] == path:
                    yield (*prefix, *buffer.path[len(path) :])

    # -- uses ----------------------------------------------------------------------------------------------

    def _touches(self, unit: Unit, number: int, value: Value, buffer: Buffer) -> bool:
        op = value.op
        if op in ("binary", "compare", "unary", "join"):
            return self._reads(unit, number, value, buffer)
        if op == "store_item":
            return self._is(unit, value.args[0], buffer)
        return op == "call" and self._call_touches(unit, number, value, buffer)

    def _reads(self, unit: Unit, number: int, value: Value, buffer: Buffer) -> bool:
        if not buffer.written or value.op == "unary" and value.data == "Not":
            return False
        if value.op == "compare" and value.data in ("Is", "IsNot", "In", "NotIn"):
            return False
        return any(self._is(unit, each, buffer) for each in value.args)

    def _call_touches(self, unit: Unit, number: int, value: Value, buffer: Buffer) -> bool:
        callee = unit.code.values[value.args[0]]
        site = self.flow.result(unit).sites.get(number)
        if site is not None and (site.operations or site.targets):
            return False  # transfers keep their order; what is called is followed
        name = str(callee.data)
        if callee.op == "attr" and self._is(unit, callee.args[0], buffer):
            writes = name.endswith("_") and not name.endswith("__")
            views = paths_of(unit).path(number)[0] != number
            idle = name in self.flow.models.same_methods and not _is_taken(unit, number)
            asks = name in _ABOUT | _GROWING or views or idle
            return not asks and (buffer.written or writes)
        if name in _ASKING or name in _GROWING or not buffer.written:
            return False
        computes = callee.op == "attr" and name in self.flow.models.tensors["reading"]
        if not computes and self._starts(unit, value):
            return False
        return any(self._is(unit, each, buffer) or self._is_whole(unit, each, buffer) for each in value.args[1:])

    def _starts(self, unit: Unit, value: Value) -> bool:
        """Whether a call is a transfer of its own, or makes something else than a tensor of its arguments."""
        for o in self.flow.result(unit).vals[value.args[0]].each:
            row = self.flow.models.call(o[1]) if o[0] == "ext" else None
            if row is not None and (row.is_collective or row.starts or row.waits):
                return True
            if o[0] == "ext" and not o[1].startswith(("torch.", "numpy.")) and "." in o[1]:
                return True  # nobody knows when it reads
            if o[0] not in ("ext",):
                return True
        return False

    def _is(self, unit: Unit, number: int, buffer: Buffer) -> bool:
        """Whether a value is a tensor in flight, or a part of it."""
        paths = paths_of(unit)
        path, place = paths.path(number), paths.place(number)
        if any(step in path for step in (f".{shape}" for shape in _SHAPES)):
            return False
        if buffer.path and path[: len(buffer.path)] == buffer.path:
            return True
        other = not buffer.path or path[0] != buffer.path[0]
        varies = "*" in place or "*" in buffer.place
        return other and varies and path != place and place[: len(buffer.place)] == buffer.place

    def _is_whole(self, unit: Unit, number: int, buffer: Buffer) -> bool:
        """Whether a value is a container that holds a tensor in flight."""
        place = paths_of(unit).place(number)
        return holds(place, buffer.place) or bool(buffer.path) and holds(place, buffer.path)

    # -- what was found ------------------------------------------------------------------------------------

    @property
    def waited_inside(self) -> bool:
        """Whether a loop around the start waits for handles too."""
        code = self.started.unit.code
        loops = set(self._loops(code.blocks[code.values[self.started.number].block].loop))
        for unit, number in self.waits:
            if unit is not self.started.unit or loops & set(self._loops(code.blocks[code.values[number].block].loop)):
                return True
        return False

    def _loops(self, header: int) -> Iterator[int]:
        code = self.started.unit.code
        while header >= 0:
            yield header
            before = [p for p, _ in code.blocks[header].preds if p < header]
            header = code.blocks[before[0]].loop if before else -1

    def found(self) -> Iterator[Use]:
        """The uses of which it is certain that some way comes to them while the transfer runs."""
        if self.holders.escapes or self.holders.given:
            return
        for use in self.uses.values():
            if not self.met:
                yield use
                continue
            before = tuple(held for held in self.met if self._decided_apart(held, use))
            if before:
                yield use._replace(waits=before, by_rank=any(self._by_rank(held) for held in before))
            elif self._precedes(use):
                yield use

    def lost(self) -> Iterator[Lost]:
        """The returns that give a tensor in flight away while its handle, which is waited for elsewhere, ends."""
        unit, holders = self.started.unit, self.holders
        away = holders.escapes or holders.given or holders.gathered or holders.attributes or self.synchronized
        if away or self.uses or any(where is not unit for where, _ in holders.held):
            return
        waits = tuple(held for held in self.met if held[0] is unit and self._left_out(held[1]))
        for block, flying in self.left.items() if waits and len(waits) == len(self.met) else ():
            for buffer in flying:
                if buffer.written and self._goes_out(unit, block, buffer):
                    yield Lost(unit, unit.code.blocks[block].end[1], buffer, waits)
                    break

    def _goes_out(self, unit: Unit, block: int, buffer: Buffer) -> bool:
        """Whether whoever called has the tensor behind a `return`: it is returned, or was passed."""
        root = buffer.place[0]
        passed = isinstance(root, int) and unit.code.values[root].op == "param"
        return passed or any(True for _ in self._in_result(unit, buffer, block))

    def _left_out(self, number: int) -> bool:
        """Whether branches that leave out a wait ask for something that neither decides over the start nor tells that
        there is nothing to wait for."""
        unit = self.started.unit
        start, mine = self._deciding(unit, self.started.number), self._deciding(unit, number)
        if not start < mine:
            return False
        known = {self._test(branch).condition[0] for branch in start}
        value, row = unit.code.values[self.started.number], self.started.row
        flags = {value.args[i + 1] for i, name in enumerate(value.data.names) if name and name == row.handle}
        for branch in mine - start:
            test = self._test(branch)
            sources = list(test.sources)
            if test.condition[0] in known or any(place.number in flags for place in sources):
                return False
            if any(place.val.of("size") or place.hint in self.flow.models.likely["sizes"] for place in sources):
                return False
        return True

    def _test(self, branch: int) -> Place:
        unit = self.started.unit
        return Place(self.flow, unit, unit.code.blocks[branch].end[1])

    def _precedes(self, use: Use) -> bool:
        """Whether every wait comes only behind the use, on the way that leads through it."""
        for unit, number in self.met:
            if unit is not use.unit:
                return False
            first, last = use.unit.code.values[use.number], unit.code.values[number]
            if not _dominates(unit, first.block, last.block) and first.block != last.block:
                return False
        return True

    def _deciding(self, unit: Unit, number: int) -> set[int]:
        """The branches that decide over a value, but for loops over containers and questions for the handle."""
        code = unit.code
        found = set()
        for block in unit.control.deciding(code.values[number].block):
            test = code.blocks[block].end[1]
            if code.values[test].op != "more" and not self._asks_for_handle(unit, test):
                found.add(block)
        return found

    def _decided_apart(self, held: Held, use: Use) -> bool:
        """Whether a wait stands under a branch of its own, which neither the start nor the use depends on."""
        unit, number = held
        start = self._deciding(self.started.unit, self.started.number)
        mine = self._deciding(unit, number)
        if start and (unit is not self.started.unit or not start < mine):
            return False
        if use.unit is unit and self._deciding(unit, use.number) - start:
            return False
        chain = mine - start
        if not chain:
            return self._called_apart(held, use)
        return True

    def _called_apart(self, held: Held, use: Use) -> bool:
        """The same of the call by which the start comes to a wait elsewhere."""
        for caller, call, _ in self.index.sites(held[0]):
            if caller is self.started.unit:
                start = self._deciding(caller, self.started.number)
                if not start and self._deciding(caller, call):
                    return use.unit is not caller or not self._deciding(caller, use.number)
        return False

    def _by_rank(self, held: Held) -> bool:
        unit, number = held
        result = self.flow.result(unit)
        for block in self._deciding(unit, number):
            test = self.flow.close(result.vals[unit.code.blocks[block].end[1]], unit)
            if any(cause.sure for cause in only(test.v | test.p, "rank", "member")):
                return True
        return False


def _starts(unit: Unit, resumed: bool) -> list[tuple[int, int]]:
    """Where a unit begins to run, by block and index there: a generator that is `resumed`, behind each `yield`."""
    if not resumed:
        return [(0, 0)]
    blocks = enumerate(unit.code.blocks)
    rows = ((at, i, number) for at, block in blocks for i, number in enumerate(block.values, 1))
    return [(at, behind) for at, behind, number in rows if unit.code.values[number].op == "yield"]


def _is_taken(unit: Unit, number: int) -> bool:
    """Whether somebody takes what a call gives."""
    ends = any(number in block.end[1:2] for block in unit.code.blocks if block.end[0] != "jump")
    return ends or any(unit.code.values[user].op != "mut" for user in unit.users.get(number, ()))


def _named(unit: Unit) -> set[int]:
    """The values that variables hold."""
    return {number for held in unit.code.definitions.values() for number in held}


def _dominates(unit: Unit, first: int, last: int) -> bool:
    """Whether every way to a block leads through another one."""
    seen, stack = {0}, [0] if first != 0 else []
    while stack:
        for following in unit.code.blocks[stack.pop()].successors():
            if following not in seen and following != first:
                seen.add(following)
                stack.append(following)
    return last not in seen or first == 0
