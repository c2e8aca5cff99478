"""Calls of methods that are named by a text: `run("save", tag=1)` ends in `getattr(worker, "save").remote(tag=1)`.

The function that asks for the method has its name from its callers, who may have it from theirs; so with the arguments.
Libraries do the same (`[by_name]` in the tables): `llm.collective_rpc("save", args=(1,))`.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from typing import NamedTuple

from validator.facts.model import Argument, Call
from validator.flow.program.unit import Unit, implicit
from validator.flow.queries.base import Place, Queries
from validator.flow.queries.outside_program import is_test
from validator.models import Row
from validator.project import Project

SENDING = frozenset({"remote", "options"})  # Ray: `method.options(…).remote(…)`
_SPREADS = ("*", "**")


class Dispatched(NamedTuple):
    """A method that `asking` asks for by `text`, which `call` passes; `sent`: the call that the method gets, None where
    it is not called at once; `guessed`: whether a name alone tells whom a call on the way reaches; `by_library`:
    whether `asking` is a call of a library, which knows the objects."""

    asking: Place
    call: Place
    text: Place
    sent: Call | None
    guessed: bool = False
    by_library: bool = False

    @property
    def name(self) -> str:
        return str(self.text.root.value.data)

    @property
    def workers(self) -> str:
        """The library whose workers run the method; empty where other objects do."""
        return self.asking.flow.models.by_name[self.asking.method].workers if self.by_library else ""


class Sent(NamedTuple):
    """An argument of the call that a method gets: as one is written in the source, or a parameter that is handed on."""

    keyword: str | None
    argument: Place


class Dispatches:
    """The methods that a program has run by a text; asked for with `project.analysis(Dispatches)`."""

    def __init__(self, project: Project) -> None:
        self._queries: Queries = project.analysis(Queries)

    @cached_property
    def by_program(self) -> tuple[Dispatched, ...]:
        """Those that it asks for through a function of its own to which the name is passed."""
        return tuple(_dispatched(self._queries))

    @cached_property
    def all(self) -> tuple[Dispatched, ...]:
        """The same, and those that it has a library run."""
        return (*self.by_program, *_dispatched_by_libraries(self._queries))


def _dispatched(queries: Queries) -> Iterator[Dispatched]:
    seen: set[tuple[Place, Place]] = set()
    for asking in queries.called_in_program(frozenset({"getattr"})):
        position = _named_by(asking)
        if position < 0 or asking.is_tried or any("hasattr" in test.words for test in asking.tests):
            continue
        for call, text, sent, guessed in _passing(queries, asking.unit, position, _sent(asking), set()):
            if (asking, call) in seen:
                continue
            seen.add((asking, call))
            yield Dispatched(asking, call, text, as_call(asking, sent) if sent is not None else None, guessed)


def _dispatched_by_libraries(queries: Queries) -> Iterator[Dispatched]:
    rows = queries.flow.models.by_name
    for asking in queries.named_anywhere(*rows):
        row = rows[asking.method]
        named = asking.argument(*row.asks) if row.asks is not None else None
        if named is None or queries.targets(asking) or is_test(asking.unit.path):
            continue  # of the program itself: there its parameters tell
        sent, root = _sent_along(asking, row), named.root.value
        if root.op == "const" and isinstance(root.data, str):
            yield Dispatched(asking, asking, named, as_call(asking, sent) if sent is not None else None, True, True)
        elif root.op == "param":
            for call, text, there, _ in _passing(queries, asking.unit, int(root.data[0]), sent, set()):
                yield Dispatched(asking, call, text, as_call(asking, there) if there is not None else None, True, True)


def _sent_along(asking: Place, row: Row) -> list[Sent] | None:
    """The arguments that a library passes on; None where they cannot all be seen."""
    if row.rest:
        return _rest_sent(asking, row)
    known = {None, *(each[0] for each in (row.asks, row.gives, row.named) if each is not None), *row.own}
    if not known.issuperset(asking.value.data.names):
        return None  # another library's method of that name
    given, named = (asking.argument(*each) if each is not None else None for each in (row.gives, row.named))
    found: list[Sent] = []
    if given is not None:
        if given.root.value.op not in ("tuple", "list"):
            return None
        starred = given.root.value.data or ()
        found += [Sent("*" if n in starred else None, given.root.operand(n)) for n in range(len(given.root.value.args))]
    if named is not None and named.root.value.op != "const":
        args = named.root.value.args
        keys = [named.root.value_at(key).root.value if key >= 0 else None for key in args[::2]]
        if named.root.value.op != "dict" or any(key is None or key.op != "const" for key in keys):
            return None
        found += [Sent(str(k.data), named.root.value_at(v)) for k, v in zip(keys, args[1::2], strict=True) if k]
    return found


def _rest_sent(asking: Place, row: Row) -> list[Sent]:
    """All that is passed beside the name, but for what the library takes itself."""
    assert row.asks is not None
    names = asking.value.data.names
    keyword, position = row.asks
    by_place = [n for n, name in enumerate(names) if name is None]
    left = set(by_place[position : position + 1]) if keyword not in names else set()
    return [
        Sent(name, asking.operand(n + 1))
        for n, name in enumerate(names)
        if n not in left and name != keyword and name not in row.own
    ]


def _named_by(asking: Place) -> int:
    """The position of the parameter that names what is asked for; -1 where it is something else, or has a default."""
    if len(asking.value.args) != 3 or not any(o == ("ext", "getattr") for o in asking.operand(0).val.each):
        return -1
    named = asking.operand(2).root.value
    called = any(user.value.op in ("call", "attr") and user.value.args[0] == asking.number for user in asking.users)
    return int(named.data[0]) if named.op == "param" and called else -1


def _sent(asking: Place) -> list[Sent] | None:
    """The arguments with which the method is called that was asked for; None where that cannot be seen."""
    callee = asking
    while True:
        users = [
            user for user in callee.users if user.value.op in ("call", "attr") and user.value.args[0] == callee.number
        ]
        if len(users) != 1:
            return None
        (user,) = users
        if user.value.op == "attr":
            if user.value.data not in SENDING:
                return None
        elif callee.value.op != "attr" or callee.value.data != "options":
            return [Sent(name, user.operand(i + 1)) for i, name in enumerate(user.value.data.names)]
        callee = user


def _passing(
    queries: Queries, unit: Unit, position: int, sent: list[Sent] | None, seen: set[Unit], guessed: bool = False
) -> Iterator[tuple[Place, Place, list[Sent] | None, bool]]:
    """The calls that pass a text for a parameter, through however many functions, with what the method then gets, and
    whether a name alone tells whom one of them reaches."""
    if unit in seen:
        return
    for call, by_name in _calls(queries, unit):
        text = _given(call, unit, position)
        if text is None:
            continue
        there = from_outside(sent, call, unit) if sent is not None else None
        root = text.root.value
        if root.op == "const" and isinstance(root.data, str):
            yield call, text, there, guessed or by_name
        elif root.op == "param":
            yield from _passing(queries, call.unit, int(root.data[0]), there, seen | {unit}, guessed or by_name)


def _calls(queries: Queries, unit: Unit) -> Iterator[tuple[Place, bool]]:
    """The calls that run a unit, and those on unknown objects that by their name can mean no other."""
    yield from ((call, False) for call in queries.calls_of(unit))
    for caller in queries.flow.callers(unit):
        for passed in queries.flow.guessed_to(caller, unit) or ():
            yield Place(queries.flow, caller, passed.site), True


def _given(call: Place, unit: Unit, position: int) -> Place | None:
    if call.value.op != "call":
        return None
    return call.argument(unit.code.params[position][0], position - implicit(call.unit, call.value, unit))


def from_outside(sent: list[Sent], call: Place, unit: Unit) -> list[Sent] | None:
    """The same arguments as the caller of a unit writes them."""
    found: list[Sent] = []
    for each in sent:
        root = each.argument.root.value
        if root.op != "param" or each.argument.unit is not unit:
            found.append(each)
            continue
        position = int(root.data[0])
        _, kind = unit.code.params[position]
        if kind in _SPREADS and each.keyword == kind:
            found += _rest(call, unit, kind)
        elif kind not in _SPREADS and each.keyword not in _SPREADS:
            given = _given(call, unit, position)
            found.append(Sent(each.keyword, given if given is not None else each.argument))
        else:
            return None
    return found


def _rest(call: Place, unit: Unit, kind: str) -> list[Sent]:
    """What of a call goes into `*args` or `**kwargs` of a unit."""
    params = unit.code.params[unit.has_receiver :]
    plain = [name for name, each in params if each in ("pos", "any")]
    named = {name for name, each in params if each in ("any", "kw")}
    rows = [Sent(name, call.operand(i + 1)) for i, name in enumerate(call.value.data.names)]
    if kind == "*":
        return [row for row in rows if row.keyword in (None, "*")][len(plain) :]
    return [row for row in rows if row.keyword not in (None, "*") and row.keyword not in named]


def as_call(asking: Place, sent: list[Sent]) -> Call:
    rows = [Argument(each.keyword, "other", each.argument.text, each.argument.at) for each in sent]
    return Call(asking.text, tuple(rows), "", (), asking.at, asking.at)
