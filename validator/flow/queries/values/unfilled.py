"""Memory that is made without contents (`torch.empty`), and where it is read before anything has written into it.

From each place that makes such memory its values are followed through views, lists and variables. Whatever is given it
and is not known to leave it alone may fill it; what reads it where no such call can have come before reads rubbish.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from typing import NamedTuple

from validator.domains.spmd import NONE, only
from validator.flow.program.flow import Flow
from validator.flow.program.unit import Unit
from validator.flow.queries.base import Place, Queries, blocks_of, users_of
from validator.flow.queries.escapes import Index, argument_of
from validator.ir.model import Value

# What asks about a tensor without reading what it holds.
_ABOUT = frozenset({
    "size", "dim", "numel", "element_size", "stride", "is_contiguous", "ndimension", "record_stream", "nelement",
    "storage_offset", "get_device", "is_floating_point", "is_complex", "shape", "dtype", "device", "ndim", "is_cuda",
    "requires_grad", "grad_fn", "layout", "names", "itemsize", "nbytes", "is_leaf", "is_meta", "new_empty", "new_zeros",
    "new_ones", "new_full", "new_tensor", "index", "count", "__len__",
})  # fmt: skip
_VIEWS = frozenset({"data", "T", "mT", "H", "real", "imag", "numpy", "clone", "as_strided"})
JOINING = frozenset({
    "cat", "concat", "concatenate", "stack", "hstack", "vstack", "dstack", "column_stack", "row_stack",
})  # fmt: skip
_GIVING = frozenset({"item", "tolist", "tobytes"})
_ADDING = frozenset({"add_", "sub_", "mul_", "div_"})
_COMPUTING = frozenset({
    "copy_", "add_", "sub_", "mul_", "div_", "matmul", "mm", "bmm", "add", "sub", "mul", "div",
})  # fmt: skip
_SAME = frozenset({"list", "tuple", "reversed", "sorted", "iter"})
_IDLE = frozenset({"len", "print", "isinstance", "id", "type", "str", "repr", "hasattr", "callable", "issubclass"})
_NUMBERS = frozenset({"float", "int", "bool", "sum", "max", "min", "any", "all"})
_COUNTING = frozenset({"numel", "nelement", "len"})
_TENSOR, _NOTHING, _MAYBE = ("tensor",), ("nothing",), ("maybe",)
_SIZED = frozenset({"zeros", "ones", "empty", "full", "arange", "rand", "randn"})
_FILLERS = frozenset({"zeros", "zeros_like", "ones", "ones_like", "full", "full_like", "new_zeros", "new_ones"})

# What a value is: a tensor or None that nobody has filled; `("all", of)`: a container of nothing else; `("table", of)`:
# a dictionary; `("parts", ((position, of), …))`: a tuple that holds some; `maybe`: something that may lead there.
Kind = tuple[object, ...]


class Unfilled(NamedTuple):
    """`read` reads what `made` made, and nothing has written into. `slots`: a list with a place for each rank;
    `empty`: what its memory holds is chance; `always`: it is so on every way; `some`: ranks that take one way fill or
    replace it, the others do not."""

    made: Place
    read: Place
    slots: bool
    empty: bool
    always: bool
    some: bool


class _Made(NamedTuple):
    number: int
    kind: Kind
    made: Place
    slots: bool
    empty: bool
    always: bool


def unfilled(queries: Queries) -> Iterator[Unfilled]:
    """All reads of a project of what nobody has filled, one for each place that makes such memory."""
    search = _Search(queries.flow)
    seen: set[tuple[Unit, int]] = set()
    told: set[Place] = set()
    queue = [(each.made.unit, each) for each in _made(queries)]
    for unit, made in queue:
        if (unit, made.number) in seen or made.made in told:
            continue
        seen.add((unit, made.number))
        ways = _Ways(search, unit, made.number, made.kind)
        read, given = ways.first_read, ways.returned
        if read is not None and not _is_for_nothing(read):
            told.add(made.made)
            always = made.always and ways.is_certain(read.number)
            yield Unfilled(made.made, read, made.slots, made.empty, always, ways.is_of_some(read.number))
        elif given is not None:
            queue += [
                (call.unit, made._replace(number=call.number, kind=given.kind, always=made.always and given.always))
                for call in queries.calls_of(unit)
                if call.value.op == "call" and queries.targets(call) == [unit]
            ]


def _made(queries: Queries) -> Iterator[_Made]:
    """What is made without contents, and lists of such or of nothing with a place for each rank."""
    for call in queries.named("empty", "empty_like", "new_empty", *sorted(_FILLERS)):
        if call.method != "new_empty" and call.method not in ("new_zeros", "new_ones") and not _is_torch(call):
            continue
        slots, empty = _is_slot(call), call.method not in _FILLERS
        if (slots or empty) and not _is_hollow(call) and not _is_for_nothing(call):
            yield _Made(call.number, _TENSOR, call, slots, empty, True)
    for unit in queries.flow.calling("get_world_size", "size"):
        for number, value in enumerate(unit.code.values):
            place = Place(queries.flow, unit, number)
            if value.op == "const" and value.data is None and _is_slot(place):
                yield _Made(number, _NOTHING, place, True, False, True)


def _is_torch(call: Place) -> bool:
    return any(o[0] == "ext" and o[1] == f"torch.{call.method}" for o in call.operand(0).val.each)


def _is_hollow(call: Place) -> bool:
    """Whether a tensor has no elements, or no memory."""
    device = call.argument("device")
    if device is not None and any(part.closed.is_const("meta") for part in device.parts):
        return True
    if call.method.endswith("_like"):
        return False
    for size in _sizes(call):
        if size.value.op == "const" and size.value.data == 0 and not isinstance(size.value.data, bool):
            return True
        if size.closed.is_const(0):
            return True
    return False


def _is_for_nothing(place: Place) -> bool:
    """Whether a tensor is made, or read, where another one has no elements: what is made of its size has none."""
    return _says_nothing_there(place, place.value.block, set())


def _says_nothing_there(place: Place, block: int, sizes: set[int]) -> bool:
    """Whether the tests that hold in a block of a unit say that there are no elements; of `a or b` both must."""
    blocks = place.unit.code.blocks

    def says(branch: int, way: int) -> bool:
        end = blocks[branch].end
        return end[0] == "branch" and _says_nothing(place.value_at(end[1]).root, end[2] == way, sizes)

    ways = [says(previous, block) for previous, _ in blocks[block].preds]
    return any(says(*row) for row in place.unit.control.settled(block)) or bool(ways) and all(ways)


def _says_nothing(asked: Place, holds: bool, sizes: set[int]) -> bool:
    """Whether a test that holds, or does not, says that there are no elements: of what is counted, or by a size."""
    while asked.value.op == "unary" and asked.value.data == "Not":
        asked, holds = asked.operand(0).root, not holds
    counted = asked
    if asked.value.op == "compare":
        counted, number = asked.operand(0).root, asked.operand(1).val
        none = {("Eq", True): 0, ("NotEq", False): 0, ("LtE", True): 0, ("Gt", False): 0, ("Lt", True): 1}
        known = none.get((asked.value.data, holds))
        if known is None or not number.is_const(known):
            return False
    elif holds:
        return False
    return counted.number in sizes or counted.value.op == "call" and counted.method in _COUNTING


def _sizes(made: Place) -> Iterator[Place]:
    """The sizes that a tensor is made with."""
    queue = [made.value_at(number) for number in made.value.args[1:]]
    for place in queue:
        root = place.root
        yield root
        if root.value.op in ("tuple", "list", "binary"):
            queue += [root.value_at(number) for number in root.value.args if number >= 0]


def _is_slot(place: Place) -> bool:
    """Whether a value is made once for each rank: `[x for _ in range(size)]`, `[x] * size`."""
    for user in place.users:
        if user.value.op == "list" and len(user.value.args) == 1:
            for times in user.users:
                if times.value.op == "binary" and times.value.data == "Mult":
                    other = next((n for n in times.value.args if n != user.number), -1)
                    if other >= 0 and _counts_ranks(place._replace(number=other)):
                        return True
        elif user.value.op == "collect" and user.value.args[0] == place.number and user.value.data[:2] == ("list", 1):
            goes = user._replace(number=user.value.args[1]).root.gone_through.root
            if goes.value.op == "call" and goes.method == "range" and len(goes.value.args) == 2:
                return _counts_ranks(goes.operand(1))
    return False


def _counts_ranks(place: Place) -> bool:
    sizes = place.flow.models.ranks["sizes"]
    each = [o for o in place.closed.each if o != ("const", "int", 1)]  # what a job of one process has
    return bool(each) and all(o[0] == "size" or o[0] == "environment" and o[1] in sizes for o in each)


class _Given(NamedTuple):
    """What a unit gives back that is still unfilled. `always`: it gives back nothing else."""

    kind: Kind
    always: bool


class _Search:
    """What functions do with what they are given."""

    def __init__(self, flow: Flow) -> None:
        self.flow = flow
        self.index = Index(flow)
        self._known: dict[tuple[Unit, int, Kind], _Ways | None] = {}

    def inside(self, unit: Unit, position: int, kind: Kind) -> _Ways | None:
        """What becomes of a parameter; None while that is being asked for, and where nobody knows."""
        key = unit, position, kind
        if key not in self._known:
            self._known[key] = None
            params = (n for n, v in enumerate(unit.code.values) if v.op == "param" and v.data[0] == position)
            number = next(params, None)
            plain = unit.code.kind == "function" and unit.code.params[position][1] not in ("*", "**")
            if number is not None and plain and not unit.code.is_generator:
                self._known[key] = _Ways(self, unit, number, kind)
        return self._known[key]


class _Ways:
    """The values of one unit that lead to what was made in it, what may write into that, and what reads it."""

    def __init__(self, search: _Search, unit: Unit, number: int, kind: Kind) -> None:
        self.search, self.flow, self.unit, self.made = search, search.flow, unit, number
        self.values = unit.code.values
        self.held: dict[int, Kind] = {}
        self._met: dict[int, frozenset[int]] = {}  # by value the blocks where it met something else under its name
        self._by_rank: set[int] = set()  # those of them to which ranks come by different ways
        self.writes: set[int] = set()
        self.reads: dict[int, frozenset[int]] = {}
        self._captured = {
            number
            for name, numbers in unit.code.definitions.items()
            if search.index.free(unit, name)
            for number in numbers
        }  # fmt: skip
        self.escapes = False
        self._queue: list[int] = []
        self._here: frozenset[int] = frozenset()
        self._add(number, kind)
        while self._queue and not self.escapes:
            number = self._queue.pop()
            self._here = self._met[number]
            for user in users_of(unit).get(number, ()):
                self._used(number, self.held[number], user, self.values[user])

    def _add(self, number: int, kind: Kind) -> None:
        known, met = self.held.get(number), self._met.get(number, frozenset()) | self._here
        if known is None or known != kind and known != _MAYBE or met != self._met[number]:
            self.held[number] = kind if known in (None, kind) else _MAYBE
            self._met[number] = met
            self._queue.append(number)
        self.escapes = self.escapes or number in self._captured

    def _reads(self, user: int) -> None:
        self.reads[user] = self.reads.get(user, frozenset()) | self._here

    # -- what becomes of it --------------------------------------------------------------------------------

    @cached_property
    def first_read(self) -> Place | None:
        """The first read that nothing which writes can have come before."""
        if self.escapes:
            return None
        for number in sorted(self.reads, key=lambda n: self.values[n].at):
            block = self.values[number].block
            if block in self._order and self._goes_on(self.reads[number], block) and not self._is_written(number):
                return Place(self.flow, self.unit, number)
            if block in self._order and self.is_of_some(number) and not self.reads[number]:
                return Place(self.flow, self.unit, number)
        return None

    def is_certain(self, read: int) -> bool:
        """Whether nothing else can be what is read."""
        return not self.reads[read] and not self._is_written(read)

    def is_of_some(self, read: int) -> bool:
        """Whether something else is what ranks read that have come by another way, or have written into it."""
        block = self.values[read].block
        writes, past = self._written_before(read)
        if not writes:
            return not self._by_rank.isdisjoint(self.reads[read])
        made = Place(self.flow, self.unit, self.made)
        if not past or made.under or self._is_by_rank(block, self.unit.control.deciding(made.value.block)):
            return False
        deciding = self.unit.control.deciding(block)
        return all(self._is_by_rank(self.values[each].block, deciding) for each in writes)

    def _goes_on(self, met: frozenset[int], block: int) -> bool:
        """Whether all that comes to some places, where values met, comes to a block too: of what a loop changes in its
        first round, of what ranks have by different ways on all of them."""
        deciding = self.unit.control.deciding
        for each in met:
            if each in self._by_rank:
                if self._is_by_rank(block, deciding(each)):
                    return False
            elif each in self.unit.code.loops:
                if block not in self._inside(each) or not deciding(block) <= deciding(each) | {each}:
                    return False
            elif not deciding(block) <= deciding(each):
                return False
        return True

    def _inside(self, header: int) -> set[int]:
        return {header, *blocks_of(self.unit.code, header)}

    def _is_by_rank(self, block: int, but: frozenset[int] | set[int]) -> bool:
        """Whether the rank decides, at a branch that is none of some, about coming to a block."""
        first = next(iter(self.unit.code.blocks[block].values), None)
        around = Place(self.flow, self.unit, first).around(frozenset(but)) if first is not None else NONE
        return bool(only(around, "rank", "member"))

    @cached_property
    def returned(self) -> _Given | None:
        """What the unit gives back that is still unfilled."""
        code = self.unit.code
        if self.escapes or code.kind != "function" or code.is_generator:
            return None
        for block in self._order:
            end = code.blocks[block].end
            kind = self.held.get(end[1]) if end[0] == "return" else None
            if kind is not None and kind != _MAYBE and not self._is_written(-1, block):
                met = self._met[end[1]]
                if self._goes_on(met, block) and not self._is_nothing(block):
                    return _Given(kind, not met and len(code.returned) == 1)
        return None

    def _is_nothing(self, block: int) -> bool:
        """Whether what was made has no elements where a block is reached."""
        made = Place(self.flow, self.unit, self.made)
        sizes = {part.number for part in _sizes(made)} if made.value.op == "call" else set()
        return _says_nothing_there(made, block, sizes)

    @cached_property
    def _order(self) -> list[int]:
        return self.unit.code.in_order()

    def _is_written(self, number: int, block: int = -1) -> bool:
        """Whether something that may write can have come before a value, or before the end of a block."""
        return bool(self._written_before(number, block)[0])

    def _written_before(self, number: int, block: int = -1) -> tuple[set[int], bool]:
        """The last that may write on each way to a value, or to the end of a block, and whether a way is without."""
        code = self.unit.code
        block = self.values[number].block if block < 0 else block
        loops = self._first_rounds(block)
        inside = code.blocks[block].values
        stack = [(block, inside[: inside.index(number)] if number >= 0 else inside)]
        seen: set[int] = set()
        found: set[int] = set()
        past = False
        while stack:
            at, before = stack.pop()
            last = next((n for n in reversed(before) if n in self.writes or n == self.made), -1)
            if last in self.writes:
                found.add(last)
            elif last == self.made and self.values[last].op == "call":
                past = True
            else:
                past = past or not code.blocks[at].preds
                fresh = [p for p, _ in code.blocks[at].preds if p not in seen and p not in loops.get(at, ())]
                seen.update(fresh)
                stack += [(previous, code.blocks[previous].values) for previous in fresh]
        return found, past

    def _first_rounds(self, block: int) -> dict[int, set[int]]:
        """By header the loops around a block, made outside of them, that come to it in their first round already, and
        their blocks, from which only later rounds come."""
        code, control = self.unit.code, self.unit.control
        around = {header: self._inside(header) for header in code.loops}
        made = self.values[self.made].block
        around = {header: inside for header, inside in around.items() if block in inside and made not in inside}
        before: set[int] = set()
        stack = [block] if around else []
        for at in stack:
            preds = {each for each, _ in code.blocks[at].preds} if at != made else set()
            fresh = preds - around.get(at, set()) - before
            before |= fresh
            stack += fresh
        return around if control.deciding(block) & before <= control.deciding(made) | set(around) else {}

    # -- uses ----------------------------------------------------------------------------------------------

    def _used(self, number: int, kind: Kind, user: int, value: Value) -> None:
        op, args = value.op, value.args
        if op in ("mut", "enter", "await", "iter") and args[0] == number:
            self._add(user, kind)
        elif op == "phi":
            self._merged(user, kind)
        elif op == "next":
            self._element(user, _part(kind, None) if kind[0] != "table" else _MAYBE)
        elif op == "item":
            if args[0] == number:
                key = self.values[args[1]]
                self._element(user, kind if key.op == "slice" else _part(kind, key.data if key.op == "const" else None))
            elif kind == _TENSOR:
                self._reads(user)
        elif op == "unpack":
            self._element(user, _part(kind, value.data[0] if value.data[2] < 0 else None))
        elif op in ("tuple", "list"):
            self._add(user, self._display(value, number, kind))
        elif op == "collect":
            if number in args[: value.data[1]]:
                plain = value.data[:2] in (("list", 1), ("generator", 1), ("tuple", 1)) and kind != _MAYBE
                self._add(user, ("all", kind) if plain else _MAYBE)
        elif op in ("set", "dict", "slice"):
            self._add(user, _MAYBE)
        elif op in ("binary", "unary"):
            self._computed(kind, user, value)
        elif op == "compare":
            if kind == _TENSOR and value.data not in ("Is", "IsNot", "In", "NotIn"):
                self._read(user)
        elif op == "attr":
            self._attribute(kind, user, value)
        elif op == "call":
            if args[0] == number:
                self.writes.add(user)
            else:
                self._given(number, kind, user, value)
        elif op == "store_item":
            self._stored(number, user, value)
        elif op.startswith("store") or op in ("yield", "yield from"):
            self.writes.add(user)

    def _read(self, user: int) -> None:
        """What is computed of it, if anybody wants to know."""
        used = any(self.values[each].op != "mut" for each in users_of(self.unit).get(user, ()))
        if used or user in self.unit.code.returned:
            self._reads(user)

    def _element(self, user: int, kind: Kind) -> None:
        if kind == _NOTHING:
            users = (self.values[each] for each in users_of(self.unit).get(user, ()))
            if any(value.op != "compare" for value in users):
                self._reads(user)
        self._add(user, kind)

    def _merged(self, phi: int, kind: Kind) -> None:
        """A variable to which several ways lead: all of them back to one value, or some to others."""
        if self.unit.root(phi) in {self.unit.root(number) for number in self.held if number != phi}:
            self._add(phi, kind)
        else:
            block = self.values[phi].block
            if self._is_replaced_by_rank(phi):
                self._by_rank.add(block)
            here, self._here = self._here, self._here | {block}
            self._add(phi, kind)
            self._here = here

    def _is_replaced_by_rank(self, phi: int) -> bool:
        """Whether all ways on which a variable holds something else are those of some ranks."""
        value = self.values[phi]
        blocks, deciding = self.unit.code.blocks, self.unit.control.deciding(value.block)
        if value.block in self.unit.code.loops or Place(self.flow, self.unit, self.made).under:
            return False
        ways = zip(blocks[value.block].preds, value.args, strict=True)
        roots = {self.unit.root(number) for number in self.held}
        others = [block for (block, _), number in ways if self.unit.root(number) not in roots]
        return bool(others) and all(self._is_by_rank(block, deciding) for block in others)

    def _display(self, value: Value, number: int, kind: Kind) -> Kind:
        if value.data or kind == _MAYBE:
            return _MAYBE
        if all(number == each for each in value.args):
            return ("all", kind)
        return ("parts", tuple((i, kind) for i, each in enumerate(value.args) if each == number))

    def _computed(self, kind: Kind, user: int, value: Value) -> None:
        if kind == _TENSOR:
            self._read(user)
        elif kind[0] == "all" and value.data == "Mult":
            self._add(user, kind)
        elif kind != _NOTHING:
            self._add(user, _MAYBE)

    def _stored(self, number: int, user: int, value: Value) -> None:
        """An element or a slice of it is set, or it is put into a container."""
        if value.args[2] != number:
            if value.args[0] == number and value.args[2] not in self.held:
                self.writes.add(user)
            return
        container = self.unit.root(value.args[0])
        made, kind = self.values[container], self.held[number]
        if made.op == "dict" and not made.args and kind != _MAYBE:
            self._add(container, ("table", kind))
        elif made.op in ("list", "dict", "binary", "collect"):
            self._add(container, _MAYBE)
        else:
            self.writes.add(user)

    def _attribute(self, kind: Kind, user: int, value: Value) -> None:
        name = value.data
        if name in _ABOUT:
            return
        calls = [each for each in users_of(self.unit).get(user, ()) if self.values[each].op == "call"]
        calls = [each for each in calls if self.values[each].args[0] == user]
        if not calls:
            self._add(user, kind if name in _VIEWS and kind == _TENSOR else _MAYBE)
        for call in calls:
            self._method(kind, call, name)

    def _method(self, kind: Kind, call: int, name: str) -> None:
        tensors = self.flow.models.tensors
        if kind == _TENSOR:
            if name in tensors["marking"]:
                self._add(call, kind)
            elif name.endswith("_"):
                if name in _ADDING:
                    self._reads(call)
                self.writes.add(call)
                self._add(call, kind)
            elif name in ("chunk", "split", "unbind"):
                self._add(call, ("all", kind))
            elif name in tensors["views"] or name in tensors["moves"] or name in tensors["casts"] or name in _VIEWS:
                self._add(call, kind)
            elif name in _GIVING or name in self.flow.models.same_methods - {"data_ptr"} or name in tensors["reducing"]:
                self._read(call)
            else:
                self.writes.add(call)
        elif name in ("append", "extend", "insert", "appendleft"):
            if not any(number in self.held for number in self.values[call].args[1:]):
                self.writes.add(call)
        elif name in ("copy", "values"):
            self._add(call, ("all", _part(kind, None)) if name == "values" else kind)
        elif name in ("pop", "popleft", "get"):
            self._add(call, _part(kind, None))
        elif name == "items":
            self._add(call, ("all", ("parts", ((1, _part(kind, None)),))))
        elif name == "keys":
            pass
        else:
            self.writes.add(call)

    def _given(self, number: int, kind: Kind, call: int, value: Value) -> None:
        """It is an argument of a call."""
        place = Place(self.flow, self.unit, call)
        names = dict(zip(value.args[1:], value.data.names, strict=True))
        site = place.result.sites.get(call)
        callee = self.values[value.args[0]]
        plain = callee.op == "name" and site is None
        if names.get(number) == "out" or site is not None and (site.operations or site.away or site.others):
            self.writes.add(call)
        elif site is not None and site.targets:
            self._given_on(number, kind, call, [target.unit for target in site.targets])
        elif plain and callee.data in _IDLE:
            pass
        elif plain and callee.data in _SAME:
            self._add(call, kind if kind[0] != "table" else _MAYBE)
        elif plain and callee.data in ("zip", "enumerate"):
            shift = int(callee.data == "enumerate")
            parts = tuple((i + shift, _part(kind, None)) for i, each in enumerate(value.args[1:]) if each == number)
            plain = "*" not in value.data.names and kind != _MAYBE and kind[0] != "table"
            self._add(call, _MAYBE if not plain else ("all", ("parts", parts)))
        elif plain and callee.data in _NUMBERS:
            if kind in (_TENSOR, ("all", _TENSOR), ("all", _NOTHING)):
                self._read(call)
        elif callee.op == "attr" and callee.data in ("append", "appendleft"):
            self._appended(kind, call, callee)
        elif self._is_ignored(place, number):
            pass
        elif (name := self._torch(place)) is not None:
            self._given_torch(name, kind, call, value)
        elif callee.op == "attr" and callee.data in _COMPUTING and self.values[callee.args[0]].op != "name":
            if kind == _TENSOR:
                self._reads(call)
        elif callee.op != "attr" or callee.data not in ("expand_as", "view_as", "type_as", "reshape_as"):
            self.writes.add(call)

    def _given_on(self, number: int, kind: Kind, call: int, units: list[Unit]) -> None:
        """Functions of the project are given it: what they do with it is done here."""
        for unit in units:
            positions = (p for p, _ in enumerate(unit.code.params) if argument_of(self.unit, call, unit, p) == number)
            position = next(positions, None)
            inside = self.search.inside(unit, position, kind) if position is not None else None
            if inside is None or inside.escapes or inside.writes:
                self.writes.add(call)
            elif len(units) == 1:
                if inside.first_read is not None and inside.is_certain(inside.first_read.number):
                    self._reads(call)
                elif inside.returned is not None:
                    self._add(call, inside.returned.kind)
            if inside is not None and any(n in inside.held for n in unit.code.returned if n >= 0):
                self._add(call, _MAYBE if inside.returned is None or len(units) > 1 else inside.returned.kind)

    def _is_ignored(self, place: Place, number: int) -> bool:
        """Whether a function of torch does not read a value that it is given first: `baddbmm(x, a, b, beta=0)`."""
        beta = place.argument("beta")
        zero = beta is not None and not place.value.data.names[0] and beta.closed.constant() == 0
        return zero and place.value.args[1] == number and self._torch(place) in self.flow.models.tensors["unread"]

    def _torch(self, place: Place) -> str | None:
        """The name of a function of torch itself, not of one of its parts."""
        each = list(place.operand(0).val.each)
        names = [str(o[1]).rpartition(".") for o in each if o[0] == "ext"]
        if len(names) != 1 or len(each) != 1:
            return None
        return "view" if names[0][0] == "einops" else names[0][2] if names[0][0] == "torch" else None

    def _given_torch(self, name: str, kind: Kind, call: int, value: Value) -> None:
        tensors = self.flow.models.tensors
        computing = JOINING | _SIZED | {*tensors["reading"], *tensors["reducing"]} | self.flow.models.same_methods
        if "out" in value.data.names:
            self.writes.add(call)
        elif name.endswith("_like") or name in _ABOUT or name == "is_tensor":
            pass
        elif name in ("chunk", "split", "unbind", "tensor_split"):
            self._add(call, ("all", kind))
        elif name in tensors["views"] or name in ("clone", "as_tensor"):
            self._add(call, kind)
        elif name in computing and not name.endswith("_"):
            if kind in (_TENSOR, ("all", _TENSOR)):
                self._read(call)
        else:
            self.writes.add(call)

    def _appended(self, kind: Kind, call: int, callee: Value) -> None:
        """It is put into a list: one of its kind, if nothing else is."""
        container = self.unit.root(callee.args[0])
        made = self.values[container]
        if made.op != "list":
            self.writes.add(call)
        elif made.args or kind == _MAYBE:
            self._add(container, _MAYBE)
        else:
            self._add(container, ("all", kind))


def _part(kind: Kind, key: object) -> Kind:
    """An element of something; the one at a position that is known."""
    if kind[0] in ("all", "table"):
        return kind[1]  # type: ignore[return-value]
    if kind[0] == "parts":
        return dict(kind[1]).get(key, _MAYBE)  # type: ignore[call-overload, no-any-return]
    return kind if kind == _TENSOR else _MAYBE
