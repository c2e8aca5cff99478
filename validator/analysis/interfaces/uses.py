"""What callers do with a family: the calls whose receiver may be any of its members.

A receiver is known by the flow (`Objects`). Where the members of a family are only ever made by its factory, a
receiver that an annotation ties to one member may just as well hold another one, and counts for all of them.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

from validator.analysis.interfaces.members import method_of
from validator.facts.model import At, Call, Guard
from validator.finding import Related
from validator.flow.objects import Objects
from validator.flow.queries.outside_program import is_test

if TYPE_CHECKING:
    from validator.analysis.interfaces.families import Family
    from validator.project import ClassDef, Method, Project

_WORDS = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+\d*|\d+")
_IDENTIFIER = re.compile(r"\w+")
_CATCHING = frozenset({"AttributeError", "NotImplementedError", "TypeError", "Exception", "BaseException", "*"})
_ASKING = ("isinstance(", "type(", "backend")
_ASKED_FOR = re.compile(r"\b(?:hasattr|getattr|callable)\(([\w.]+)")


class Use(NamedTuple):
    """A call in `caller` whose receiver may be an instance of each of `classes`, all members of one family."""

    caller: Method
    call: Call
    classes: frozenset[ClassDef]

    @property
    def guards(self) -> tuple[Guard, ...]:
        return (*self.caller.facts.guards, *self.call.guards)


class Read(NamedTuple):
    """An attribute that `caller` reads from an object that may be an instance of each of `classes`."""

    caller: Method
    at: At
    guards: tuple[Guard, ...]
    classes: frozenset[ClassDef]


class Uses:
    """Answers for one project, remembered."""

    def __init__(self, project: Project) -> None:
        self.project = project

    def of(self, family: Family, name: str) -> list[Use]:
        """The calls of the method `name` on objects of the family, in the order of the files."""
        return self._all.get(family, {}).get(name, [])

    def names(self, family: Family) -> list[str]:
        """The members of the family that callers call on its objects."""
        return sorted(self._all.get(family, {}))

    @cached_property
    def _all(self) -> dict[Family, dict[str, list[Use]]]:
        home = {cls: family for family in self.project.families.all for cls in family.members}
        found: dict[Family, dict[str, list[Use]]] = {family: {} for family in self.project.families.all}
        objects, wanted = self.project.analysis(Objects), frozenset().union(*(cls.attributes for cls in home))
        for function, call in self.project.calls(*wanted):
            around = method_of(function)  # a function inside of a method has its object, too
            if not call.receiver or (around.cls in home and _on_self(around, call)):
                continue
            classes = objects.receivers(function, call)
            for family in {home[cls]: None for cls in classes if cls in home}:
                use = Use(function, call, self._widened(family, classes))
                found[family].setdefault(call.method, []).append(use)
        return found

    def reads(self, family: Family, name: str) -> list[Read]:
        """The places that read the attribute `name` of an object of the family without calling it."""
        return self._reads.get(family, {}).get(name, [])

    @cached_property
    def _reads(self) -> dict[Family, dict[str, list[Read]]]:
        home = {cls: family for family in self.project.families.all for cls in family.members}
        objects, wanted = self.project.analysis(Objects), frozenset().union(*(cls.attributes for cls in home))
        found: dict[Family, dict[str, list[Read]]] = {family: {} for family in self.project.families.all}
        for function in self.project.functions() if home else ():
            if method_of(function).cls in home:
                continue
            rows = [(ref.path, ref.at, ref.guards) for ref in function.facts.refs if ref.context == "load"]
            rows += [(call.receiver, call.at, call.guards) for call in function.facts.calls]
            for path, at, guards in rows:
                for receiver, name in _prefixes(path, wanted):
                    classes = objects.owners(function, at, f"{receiver}.{name}")
                    for family in {home[cls]: None for cls in classes if cls in home}:
                        read = Read(function, at, (*function.facts.guards, *guards), self._widened(family, classes))
                        found[family].setdefault(name, []).append(read)
        return found

    def _widened(self, family: Family, classes: frozenset[ClassDef]) -> frozenset[ClassDef]:
        members = frozenset(family.members) & classes
        made = self._made_by_factory.get(family, frozenset())
        return members | made if members & made else members

    @cached_property
    def _made_by_factory(self) -> dict[Family, frozenset[ClassDef]]:
        """Per family the members that nobody but its factory makes."""
        found: dict[Family, frozenset[ClassDef]] = {}
        for family in self.project.families.all:
            if family.factory is not None:
                returned = self.project.analysis(Objects).results(family.factory) & frozenset(family.members)
                found[family] = frozenset(c for c in returned if self.makers(c) <= {family.factory})
        return found

    def makers(self, cls: ClassDef) -> set[Method]:
        """The functions that construct the class, those of test files left out."""
        return {function for function in self._makers.get(cls, ()) if not is_test(function.path)}

    @cached_property
    def _makers(self) -> dict[ClassDef, set[Method]]:
        members = {cls.name: cls for family in self.project.families.all for cls in family.members}
        found: dict[ClassDef, set[Method]] = {}
        for function, call in self.project.calls(*members):
            symbol = self.project.lookup(function, call.target)
            if symbol in members.values():
                found.setdefault(symbol, set()).add(function)  # type: ignore[arg-type]
        return found


def _on_self(function: Method, call: Call) -> bool:
    return (
        bool(function.facts.params) and call.receiver == function.facts.params[0].name and not function.facts.is_static
    )


def _prefixes(path: str, wanted: frozenset[str]) -> Iterator[tuple[str, str]]:
    """`self.strategy.args.bf16` -> (`self.strategy`, `args`) where `args` is wanted, and so on."""
    links = path.split(".")
    for i in range(1, len(links)):
        if links[i] in wanted:
            yield ".".join(links[:i]), links[i]


def backend_words(family: Family) -> frozenset[str]:
    """Words that tell the members apart in conditions: `deepspeed`, `fsdp2`, `fsdp`, …"""
    found: set[str] = set()
    for cls in family.members:
        stem = cls.name.removesuffix(family.name)
        found.add(stem.lower())
        found.update(word.lower() for word in _WORDS.findall(stem) if len(word) > 2)
    return frozenset(word for word in found if len(word) > 2)


def is_guarded(
    guards: Iterable[Guard], words: Iterable[str], catching: frozenset[str] = _CATCHING, receiver: str = ""
) -> bool:
    """Whether a condition around a place asks what the object is or can do, or one of the exceptions is caught. Where
    the `receiver` is told, what another object has (`getattr(args, "eval", None)`) says nothing of it."""
    for guard in guards:
        text = guard.text.lower()
        asked = _ASKED_FOR.findall(guard.text)
        if guard.kind == "if" and any(not receiver or _is_part(receiver, path) for path in asked):
            return True
        if guard.kind == "if" and (any(a in text for a in _ASKING) or any(word in text for word in words)):
            return True
        if guard.kind == "try" and not catching.isdisjoint(guard.text.replace(",", " ").split()):
            return True
    return False


def _is_part(path: str, other: str) -> bool:
    """Whether one of two paths leads on from the other: `self.strategy`, `self.strategy.save`."""
    return f"{path}.".startswith(f"{other}.") or f"{other}.".startswith(f"{path}.")


def open_uses(project: Project, family: Family, name: str, catching: frozenset[str] = _CATCHING) -> list[Use]:
    """The uses that nothing guards and that are no tests: what the family really has to bear."""
    words = backend_words(family)
    uses = project.analysis(Uses).of(family, name)
    return [
        u for u in uses if not is_test(u.caller.path) and not is_guarded(u.guards, words, catching, u.call.receiver)
    ]


def open_reads(project: Project, family: Family, name: str) -> list[Read]:
    """The same for places that read an attribute without calling it."""
    words = backend_words(family)
    reads = project.analysis(Uses).reads(family, name)
    return [r for r in reads if not is_test(r.caller.path) and not is_guarded(r.guards, words)]


def lead(project: Project, family: Family) -> ClassDef:
    """The member that others are measured by where nothing else decides: the one that annotations name most, else
    the one that the factory returns by default."""
    counts = dict.fromkeys(family.members, 0)
    names = {cls.name: cls for cls in family.members}
    for function in project.functions():
        for param in function.facts.params:
            for word in _IDENTIFIER.findall(param.annotation) if param.annotation else ():
                if word in names:
                    counts[names[word]] += 1
    defaults = _defaults(project, family)
    return max(family.members, key=lambda cls: (counts[cls], cls in defaults, len(cls.attributes)))


def _defaults(project: Project, family: Family) -> set[ClassDef]:
    """The members that the factory makes where none of its conditions holds."""
    found: set[ClassDef] = set()
    for call in family.factory.facts.calls if family.factory is not None else ():
        asked = any(guard.kind == "if" and not guard.negated for guard in call.guards)
        symbol = None if asked or family.factory is None else project.lookup(family.factory, call.target)
        found.update(cls for cls in family.members if cls is symbol)
    return found


def where(use: Use | Read) -> str:
    """The caller as messages name it."""
    return (
        f"`{use.caller.qualname}`"
        if use.caller.qualname != "<module>"
        else f"the top level of `{use.caller.module.name}`"
    )


def called_in(uses: Iterable[Use | Read], most: int = 3) -> list[Related]:
    """The first few callers, one for each function."""
    first: dict[Method, Use | Read] = {}
    for use in uses:
        first.setdefault(use.caller, use)
    places = [(use, use.call.at if isinstance(use, Use) else use.at) for use in first.values()]
    return [Related(use.caller.path, at[0], f"used here, in {where(use)}") for use, at in places[:most]]
