"""Files that ranks read and write: who does, under which names, and tests for files that ranks answer differently.

Storage counts as shared: a checkpoint that lies there is there for every rank. But where one rank also creates or
removes what all ask for, with no collective between, the quick rank changes the answer of the slow ones.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

from validator.domains.spmd import NONE, UNIFORM, Causes, data
from validator.effects.condition_keys import Key
from validator.flow.program.flow import Flow
from validator.flow.program.unit import Unit, implicit
from validator.flow.queries.base import Place, Queries
from validator.flow.queries.escapes import argument_of
from validator.flow.queries.origins import returned
from validator.flow.queries.pure_functions import Computed, origin
from validator.project import Project

if TYPE_CHECKING:
    from validator.effects.trace import Traces

_RANKS = ("rank", "member")
_TELLING = frozenset({"print", "debug", "info", "warning", "error", "exception", "log"})  # people of a file
_DEEP = 3  # calls from a test for a file down to what writes it


def raced(traces: Traces, unit: Unit, number: int) -> Causes:
    """Why the answer to a question about a file, or the opposite of one, differs between ranks; nothing where it does
    not."""
    number = origin(traces.flow, unit, number)
    if unit.code.values[number].op == "unary":
        number = origin(traces.flow, unit, unit.code.values[number].args[0])
    path = _path(traces, unit, number, "asks")
    if path is None:
        return frozenset()
    values = unit.code.values
    block = values[number].block
    for site, written, on_some in _writes(traces, unit):
        if written != path or not on_some:
            continue  # all ranks write it
        there = values[site].block
        follows = block in unit.control.deciding(there) and reaches(traces, unit, number, site)
        if follows or (block != there and reaches(traces, unit, site, number)):
            return data()
    handed = any(reaches(traces, unit, number, site) for site in _handed(traces, unit, path, block))
    return data(sure=False) if handed else NONE


def _handed(traces: Traces, unit: Unit, path: Key, block: int) -> Iterator[int]:
    """Calls on some ranks that are given a path where an answer about it has decided: one rank makes what is missing
    (`download(url, path)`)."""
    for site, value in enumerate(unit.code.values):
        if value.op == "call" and block in unit.control.deciding(value.block) and _is_on_some(traces, unit, site):
            callee = Place(traces.flow, unit, site).operand(0)
            reading = callee.text.rpartition(".")[2] in _TELLING or _path(traces, unit, site, "asks") is not None
            if not reading and any(traces.keys(unit).of(each) == path for each in value.args[1:]):
                yield site


def _is_on_some(traces: Traces, unit: Unit, site: int) -> bool:
    """Whether tests of the rank decide about a call."""
    vals, blocks = traces.flow.result(unit).vals, unit.code.blocks
    tests = [vals[blocks[b].end[1]] for b in unit.control.deciding(unit.code.values[site].block)]
    return any(c.kind in _RANKS for test in tests for c in test.v | test.p)


def _writes(traces: Traces, unit: Unit, depth: int = 0) -> Iterator[tuple[int, Key, bool]]:
    """The calls of a unit that write files, themselves or below: (call, key of the path, whether some ranks do)."""
    result = traces.flow.result(unit)
    for site, value in enumerate(unit.code.values):
        if value.op != "call":
            continue
        on_some = _is_on_some(traces, unit, site)
        path = _path(traces, unit, site, "writes")
        called = result.sites.get(site)
        if path is not None:
            yield site, path, on_some
        elif called is not None and len(called.targets) == 1 and not called.away and depth < _DEEP:
            inner = called.targets[0].unit
            for _, key, below in _writes(traces, inner, depth + 1):
                here = traces.keys(unit).from_inside(key, Computed(inner, -1), site)
                if here is not None:
                    yield site, here, on_some or below


def _path(traces: Traces, unit: Unit, number: int, what: str) -> Key | None:
    """The key of the path that a call asks for or writes."""
    value = unit.code.values[number]
    if value.op != "call":
        return None
    files = traces.flow.models.files
    callee = unit.code.values[value.args[0]]
    for o in traces.flow.result(unit).vals[value.args[0]].each:
        if o[0] == "ext" and o[1] in files[what] and len(value.args) > 1:
            return traces.keys(unit).of(value.args[1])
    kind, path = _by_row(Place(traces.flow, unit, number)) or ("", None)
    if path is not None and what == "writes" and kind in ("write", "append"):
        return traces.keys(unit).of(path.number)
    if (
        callee.op == "attr"
        and callee.data in files[f"{what}_methods"]
        and not any(name is None for name in value.data.names)
    ):
        return traces.keys(unit).of(callee.args[0])
    return None


def _by_row(call: Place) -> tuple[str, Place] | None:
    """What a row of the tables says that a call does with a file (`write`, `append`, `read`), and its path."""
    for o in call.operand(0).val.each:
        row = call.flow.models.call(o[1]) if o[0] == "ext" else None
        which = row and (row.loads or row.saves)
        path = call.argument(*which) if which else None
        if row is not None and path is not None:
            mode = call.argument(*row.mode) if row.mode else None
            letters = mode.val.constant() if mode is not None else ""
            if isinstance(letters, str):
                wrote = row.saves is not None or not set("wx").isdisjoint(letters)
                return "write" if wrote else "append" if "a" in letters else "read", path
    return None


def reaches(traces: Traces, unit: Unit, first: int, last: int) -> bool:
    """Whether a way leads from one value to another without a collective between.

    Past a collective that stands under a test alike on all ranks (`if dist.is_initialized(): dist.barrier()`) no way is
    followed: there may be one process alone then. A loop around the first value ends, whatever its rounds do.
    """
    code, sites = unit.code, traces.flow.result(unit).sites
    meeting = {n for n, s in sites.items() if s.operations or any(t.unit in traces.effectful for t in s.targets)}
    meeting |= {n for n, value in enumerate(code.values) if value.op == "call" and _may_meet(traces, unit, n)}

    def is_alike(branch: int) -> bool:
        return not Place(traces.flow, unit, code.blocks[branch].end[1]).varies("rank", "member", "data")

    guards: dict[int, int] = {}
    for block in dict.fromkeys(code.values[number].block for number in meeting):
        guards |= {branch: way for branch, way in unit.control.arms.get(block, ()) if is_alike(branch)}
        loops = [header for header in unit.control.loops_around(block) if code.loops[header].iterator >= 0]
        if loops and all(is_alike(branch) for branch in unit.control.deciding(block)):
            guards |= {header: code.loops[header].body for header in loops}
    seen: set[int] = set()
    start = code.values[first].block
    for header in unit.control.loops_around(start):
        guards.pop(header, None)
    stack = [(start, code.blocks[start].values.index(first) + 1)]
    while stack:
        block, index = stack.pop()
        for number in code.blocks[block].values[index:]:
            if number == last:
                return True
            if number in meeting:
                break
        else:
            for following in (guards[block],) if block in guards else code.blocks[block].successors():
                if following not in seen:
                    seen.add(following)
                    stack.append((following, 0))
    return False


def _may_meet(traces: Traces, unit: Unit, number: int) -> bool:
    """Whether a call may make ranks wait without being known: a function of a library that is not at hand, which gets
    nothing and whose result nobody takes (`comm.synchronize()`)."""
    empty = len(unit.code.values[number].args) == 1 and not unit.users.get(number)
    return empty and Place(traces.flow, unit, number).calls_unknown_library


class Piece(NamedTuple):
    """A piece of a path: a text, a value that tells the rank (`apart`), one that is the same on all ranks, a parameter,
    a temporary file of the process (`own`), or anything else (`*`)."""

    kind: str  # text, rank, same, param, own, any
    text: str = ""
    apart: Causes = NONE
    position: int = -1


_ANY = Piece("any")
_SAME = Piece("same")
_SLASH = Piece("text", "/")
_OWN = Piece("own")  # a folder or file of `tempfile`, which no other process has


class Access(NamedTuple):
    """A file that is read, written or appended to. `under`: by which causes ranks differ about whether they do it;
    `named`: the place, nearest to the access, at which all of the file's name is known; `done`: the call that reads or
    writes, where `place` is one of the function around it; `written`: the expressions of which the path is made, from
    the access outward."""

    place: Place
    kind: str
    path: tuple[Piece, ...]
    under: Causes
    named: Place
    done: Place
    written: tuple[Place, ...] = ()

    @property
    def name(self) -> str:
        """The name of the file without its folder, `*` for what varies; empty where no text stands in it."""
        whole = "".join(p.text if p.kind == "text" else "{rank}" if p.kind == "rank" else "*" for p in self.path)
        last = whole.rpartition("/")[2].replace("**", "*")
        return last if last.replace("{rank}", "").strip("*._-") else ""

    @property
    def is_one_for_all(self) -> bool:
        """Whether nothing in the name of the file, without its folder, may be another on another rank."""
        behind = next((i for i in range(len(self.path), 0, -1) if "/" in self.path[i - 1].text), 1) - 1
        return all(piece.kind in ("text", "same") for piece in self.path[behind:])

    @property
    def opened(self) -> bool:
        """Whether it is done with `open`: nothing is known of what is written."""
        return self.place.method == "open"

    @property
    def apart(self) -> Causes:
        """By which causes ranks have files of their own here."""
        return frozenset(c for p in self.path for c in p.apart)


_PERCENT = re.compile(r"%[-+ #0-9.]*[a-z]")
_BRACES = re.compile(r"\{[^{}]*\}")
_WRITING = frozenset({"write_text", "write_bytes"})


class Files:
    """Reads and writes of files in a project; asked for with `project.analysis(Files)`."""

    def __init__(self, project: Project) -> None:
        self.queries = project.analysis(Queries)
        self.flow: Flow = self.queries.flow

    @property
    def accesses(self) -> list[Access]:
        """Those of programs of several processes; none where nothing is distributed."""
        return self.everywhere if self.flow.is_distributed else []

    @cached_property
    def everywhere(self) -> list[Access]:
        """Each read and write with the path that callers pass, once for each way to it that names a file."""
        found: dict[tuple[Unit, int, str, tuple[Piece, ...], Causes], Access] = {}
        queue = [access for unit in self.flow.mentions.calling(*self.names) for access in self._own(unit)]
        while queue:
            access = queue.pop()
            key = (access.place.unit, access.place.number, access.kind, access.path, access.under)
            if key in found:
                continue
            found[key] = access
            if any(p.kind == "param" for p in access.path):
                for call in self.queries.calls_of(access.place.unit):
                    path, given = self._passed(call, access)
                    if len(path) <= _LONG:
                        under, written = access.under | call.under, (*access.written, *given)
                        outer = Access(call, access.kind, path, under, call, access.done, written)
                        if _OWN in path:
                            continue
                        queue.append(outer._replace(named=access.named) if outer.name == access.name else outer)
        return sorted(found.values(), key=lambda a: (a.place.unit.path, a.place.at, a.kind, a.path))

    @cached_property
    def names(self) -> list[str]:
        """The names of the calls that read and write files."""
        rows = self.flow.models.calls.values()
        named = {row.name for row in rows if row.loads is not None or row.saves is not None}
        files = self.flow.models.files
        return sorted(named | _WRITING | files["reads_methods"] | files["saves_methods"])

    def _own(self, unit: Unit) -> Iterator[Access]:
        for number, value in enumerate(unit.code.values):
            if value.op != "call":
                continue
            place = Place(self.flow, unit, number)
            for kind, path in self._paths(place):
                pieces = self.pieces(path)
                if _OWN not in pieces:
                    yield Access(place, kind, tuple(pieces), place.under, place, place, _spelled(path))

    def _paths(self, place: Place) -> Iterator[tuple[str, Place]]:
        models, told = self.flow.models, _by_row(place)
        if told is not None:
            yield told
            return
        receiver = place.receiver
        if receiver is not None and place.method in models.files["saves_methods"]:
            first = next((n for n in place.value.data.names if n is None or n not in ("*", "**")), "*")
            if first is None and not self.queries.targets(place):
                yield "write", place.operand(1)
        elif receiver is not None and place.method in _WRITING:
            yield "write", receiver
        elif receiver is not None and place.method in models.files["reads_methods"]:
            yield "read", receiver

    def _passed(self, call: Place, access: Access) -> tuple[tuple[Piece, ...], tuple[Place, ...]]:
        """A path in the terms of a caller, and the arguments that it is made of."""
        unit = access.place.unit
        shift = implicit(call.unit, call.value, unit) if call.value.op == "call" else 0
        found: list[Piece] = []
        arguments: list[Place] = []
        for piece in access.path:
            if piece.kind != "param":
                found.append(piece)
                continue
            given = call.argument(unit.code.params[piece.position][0], piece.position - shift)
            found += self.pieces(given) if given is not None else [_ANY]
            arguments += [given] if given is not None else []
        return tuple(found), tuple(arguments)

    def _returned(self, call: Place) -> list[Piece] | None:
        """The path that a function of the project gives, where it has one `return`."""
        targets = self.queries.targets(call)
        ends = targets[0].code.returned if targets else []
        if len(targets) != 1 or len(ends) != 1 or ends[0] < 0 or targets[0] in self._inside:
            return None
        unit = targets[0]
        self._inside.append(unit)
        inner = self.pieces(Place(self.flow, unit, ends[0]))
        self._inside.pop()
        if not any(piece.kind in ("text", "rank") for piece in inner):
            return None
        found: list[Piece] = []
        for piece in inner:
            position = piece.position if piece.kind == "param" else -1
            number = argument_of(call.unit, call.number, unit, position) if position >= 0 else None
            if number is not None:
                found += self.pieces(call.value_at(number))
            else:
                found.append(_ANY if position >= 0 else piece)
        return found

    @cached_property
    def _inside(self) -> list[Unit]:
        """The functions whose paths are being made out."""
        return []

    def _formatted(self, texts: list[str], parts: list[Place]) -> list[Piece]:
        """A text with values put between its parts; in any order where the text names them."""
        found: list[Piece] = []
        for i, text in enumerate(texts):
            found += [Piece("text", text)] if text else []
            if i + 1 < len(texts):
                found += self.pieces(parts[i]) if i < len(parts) else [_ANY]
        return found

    def pieces(self, place: Place) -> list[Piece]:
        place = place.root
        value, val = place.value, place.val
        constant = val.constant()
        if isinstance(constant, str):
            return [Piece("text", constant)]
        if value.op == "join":
            return [p for i in range(len(value.args)) for p in self.pieces(place.operand(i))]
        if value.op == "binary" and value.data == "Mod" and isinstance(place.operand(0).val.constant(), str):
            given = place.operand(1).root
            parts = [given.operand(i) for i in range(len(given.value.args))] if given.value.op == "tuple" else [given]
            return self._formatted(_PERCENT.split(str(place.operand(0).val.constant())), parts)
        if value.op == "call" and place.method == "format" and place.receiver is not None:
            text = place.receiver.val.constant()
            if isinstance(text, str):
                parts = [place.operand(i) for i in range(1, len(value.args))]
                return self._formatted(_BRACES.split(text), parts)
        if value.op == "binary" and value.data in ("Add", "Div"):
            between = [_SLASH] if value.data == "Div" else []
            return [*self.pieces(place.operand(0)), *between, *self.pieces(place.operand(1))]
        if value.op == "call" and place.method in ("join", "Path", "str", "joinpath", "PurePath", "abspath", "fspath"):
            parts = [place.operand(i) for i in range(1, len(value.args))]
            receiver = [place.receiver] if place.method == "joinpath" and place.receiver is not None else []
            pieces = [self.pieces(part) for part in (*receiver, *parts)]
            return [p for i, each in enumerate(pieces) for p in ([_SLASH] if i else []) + each]
        if (
            value.op == "param"
            and self.queries.calls_of(place.unit)
            and not (value.data[0] == 0 and place.unit.has_receiver)
        ):
            return [Piece("param", position=value.data[0])]
        given_back = self._returned(place) if value.op == "call" else None
        if given_back is not None:
            return given_back
        if _is_temporary(place):
            return [_OWN]
        apart = place.varies("rank", "member")
        if apart:
            return [Piece("rank", apart=apart)]
        told = place.closed
        sizes = bool(told.each) and all(o[0] in ("size", "const") for o in told.each)
        return [_SAME if UNIFORM in told.v or sizes else _ANY]


def _spelled(path: Place) -> tuple[Place, ...]:
    """An expression for a path, and those that functions of the project give back for parts of it."""
    found = [path]
    for place in found:
        given = (each for part in place.parts if part.value.op == "call" for each in returned(part) or ())
        found += [each for each in dict.fromkeys(given) if each not in found]
    return tuple(found)


def _is_temporary(place: Place) -> bool:
    """Whether a value is, or names, what `tempfile` makes here."""
    while place.value.op in ("enter", "attr", "unpack", "item"):
        place = place.operand(0).root
    return place.value.op == "call" and any(str(o[1]).startswith("tempfile.") for o in place.operand(0).val.of("ext"))


_LONG = 24
