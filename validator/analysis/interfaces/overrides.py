"""Overrides that refuse calls which the method they replace takes, and who makes such calls.

Whether an object of the subclass ever comes to such a call is told by what the value may be (`Objects`), by what it
is declared to be, and by the absence of any call that would fit the override: a method with a signature of its own
on purpose has callers of its own.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

from validator.analysis.interfaces.binding import Misfit, keeps_signature, misfit, parameters
from validator.analysis.interfaces.members import Members, method_of, own_object
from validator.facts.model import Call, Guard
from validator.flow.objects import Objects
from validator.flow.queries.outside_program import is_test
from validator.project import ClassDef, Method, Project

HARMLESS = frozenset({"object", "ABC", "Protocol", "Generic", "Module", "Exception"})  # call no method of others
_OF_MODULE = frozenset({"forward", "train", "eval", "to", "state_dict", "load_state_dict", "extra_repr"})
_WORDS = re.compile(r"[A-Z]+(?![a-z])|[A-Z][a-z]+|[a-z]+|\d+")
_ASKING = re.compile(r"isinstance|issubclass|hasattr|\btype\(|__class__|signature|TypeError")
_PRESENT = re.compile(r"[\w.]+ is (not )?None")  # says nothing of the class


class Override(NamedTuple):
    """A public method and the one that it replaces, the nearest above it."""

    cls: ClassDef
    method: Method
    base: Method


class Refusal(NamedTuple):
    """A call in `function` that the replaced method takes and the override does not. `known`: what the receiver
    may be is inferred, and an object of the subclass is among it."""

    function: Method
    call: Call
    misfit: Misfit
    known: bool


class Overrides:
    """Answers for one project."""

    def __init__(self, project: Project) -> None:
        self.project = project
        self.members = project.analysis(Members)
        self.objects = project.analysis(Objects)

    def narrowing(self) -> Iterator[Override]:
        """The overrides that refuse some call which the replaced method takes, whether anybody makes it or not."""
        for cls in self.project.classes():
            if len(cls.mro) < 2 or is_test(cls.path):
                continue
            for name, method in cls.methods.items():
                base = next((c.methods[name] for c in cls.mro[1:] if name in c.methods), None)
                if base is None or name.startswith("__") or not (_plain(method) and _plain(base)):
                    continue
                if _narrows(method, base) and not _is_left_out(method) and self._called_by_project_only(cls, name):
                    yield Override(cls, method, base)

    def refusals(self, each: Override) -> list[Refusal]:
        """The calls that fail on objects of the subclass; none where some caller knows the override's own signature."""
        found = []
        refused: dict[tuple[str | None, ...], bool] = {}
        for function, call in self.project.calls(each.method.name):
            given = tuple([argument.keyword for argument in call.args])
            if given not in refused:
                refused[given] = misfit(each.method, call) is not None and misfit(each.base, call) is None
            if not refused[given] or call.receiver in ("", "super()") or is_test(function.path):
                continue
            reached = self._reaches(each, function, call)
            problem = misfit(each.method, call)
            if not reached or problem is None or _asked(each, function, call):
                continue
            if not self._drops_keyword(each, function, call, problem):
                found.append(Refusal(function, call, problem, reached == "known"))
        if not found or self._has_callers_of_its_own(each, certain=any(row.known for row in found)):
            return []
        return found

    # -- what an override is -------------------------------------------------------------------------------

    def _called_by_project_only(self, cls: ClassDef, name: str) -> bool:
        """Whether no framework calls the method, nothing replaces it, and it is defined once."""
        outer = {base.removesuffix("[]").rpartition(".")[2] for base in cls.external_bases}
        if not outer <= HARMLESS or "Module" in outer and name in _OF_MODULE:
            return False
        if name in self.members.written or len(cls.definitions[name]) > 1:
            return False
        return not any(name in each.instance_attributes for each in cls.relatives)

    # -- whether an object of the subclass gets there ------------------------------------------------------

    def _reaches(self, each: Override, function: Method, call: Call) -> str:
        """How it is known that the receiver may be an object of the subclass: `known`, `declared`, or not at all."""
        owner = method_of(function)
        if call.receiver == own_object(owner):
            return "declared" if self._inherits(each, owner) else ""
        types = self.objects.receivers(function, call)
        methods = {c: m for c in types if (m := c.find(each.method.name)) is not None and m is not each.method}
        takes = [c for c, m in methods.items() if misfit(m, call) is None]
        if any(c.find(each.method.name) is each.method for c in types):
            if 2 * len(takes) < len(methods) or self._set_by_base(owner, call.receiver):
                return ""  # so many refuse it that they are not what really comes here
            return "known" if any(each.base.cls in c.mro for c in takes) else ""
        above = [c for c in takes if c in each.cls.mro]
        return "declared" if any(self._stands_for_subclasses(c) for c in above) else ""

    def _inherits(self, each: Override, owner: Method) -> bool:
        """Whether objects of the subclass have a method, and somebody calls it on what may be one of them."""
        if each.cls.is_abstract or owner.cls not in each.cls.mro[1:] or each.cls.find(owner.name) is not owner:
            return False
        calls = self.project.calls(owner.name)
        return any(call.receiver and not is_test(f.path) and self._is_one(each, f, call) for f, call in calls)

    def _is_one(self, each: Override, function: Method, call: Call) -> bool:
        """Whether the receiver of a call is known to be of the subclass, or declared as a class that stands for it."""
        owner = method_of(function)
        if call.receiver == own_object(owner):
            return owner.cls is not None and (owner.cls is each.cls or owner.cls in each.cls.descendants())
        types = self.objects.receivers(function, call)
        below = {each.cls, *each.cls.descendants()}
        return any(c in below or c in each.cls.mro and self._stands_for_subclasses(c) for c in types)

    def _set_by_base(self, owner: Method, receiver: str) -> bool:
        """Whether an attribute of the object gets its value in a base class, from the constructors of all below it."""
        own, _, path = receiver.partition(".")
        if own != own_object(owner) or owner.cls is None:
            return False
        return path.partition(".")[0] not in owner.cls.instance_attributes

    def _stands_for_subclasses(self, cls: ClassDef) -> bool:
        """Whether a value of the class is sure to be of one below it: nobody makes objects of the class itself."""
        return cls.is_abstract or cls not in self.members.made

    def _drops_keyword(self, each: Override, function: Method, call: Call, problem: Misfit) -> bool:
        """Whether the subclass lacks a keyword of the very method that the call names: a finding of its own (MP122)."""
        if problem.kind != "unknown-keyword" or problem.name not in {p.name for p in parameters(each.base)}:
            return False
        own = call.receiver == own_object(method_of(function))
        return own or each.base.cls in self.objects.receivers(function, call)

    # -- callers of its own --------------------------------------------------------------------------------

    def _has_callers_of_its_own(self, each: Override, *, certain: bool) -> bool:
        """Whether somebody calls the method as only the override takes it, or in a way that cannot be seen."""
        name = each.method.name
        for function, call in [*self.project.calls(name), *self._remote(name)]:
            if is_test(function.path) or not call.receiver or misfit(each.method, call) is not None:
                continue
            unpacks = any(a.keyword in ("*", "**") for a in call.args)
            if (misfit(each.base, call) is not None or unpacks and not certain) and self._may_be(each, function, call):
                return True
        return not certain and self._handed_on(each)

    def _remote(self, name: str) -> Iterator[tuple[Method, Call]]:
        """Calls of the method of an actor, as calls of the method itself."""
        for function, call in self.project.calls("remote"):
            if call.receiver.endswith(f".{name}"):
                yield function, call._replace(target=call.receiver)

    def _may_be(self, each: Override, function: Method, call: Call) -> bool:
        owner = method_of(function)
        if call.receiver == own_object(owner):
            return owner.cls in each.cls.relatives
        if call.receiver == "super()":
            return owner.cls in each.cls.descendants() and each.cls not in self.members.made
        types = self.objects.receivers(function, call)
        return not types or any(c in each.cls.relatives for c in types)

    def _handed_on(self, each: Override) -> bool:
        """Whether the method is taken without being called, or asked for by its name: anybody may call it then."""
        name = each.method.name
        strings = (f"'{name}'", f'"{name}"')
        for function in self.project.functions():
            for ref in function.facts.refs:
                if ref.context == "load" and ref.path.endswith(f".{name}"):
                    return True
            for call in function.facts.calls:
                if any(argument.kind == "const" and argument.value in strings for argument in call.args):
                    return True
        return False


def _plain(method: Method) -> bool:
    facts = method.facts
    other = facts.is_static or facts.is_classmethod or facts.is_property or facts.is_overload
    return not other and keeps_signature(method)


def _is_left_out(method: Method) -> bool:
    """Whether a method does nothing but say that it is not there."""
    facts = method.facts
    names = ("NotImplemented", "NotImplementedError")
    return facts.is_abstract or facts.stub == "raise" or any(row.value.startswith(names) for row in facts.returns)


def _narrows(method: Method, base: Method) -> bool:
    own, old = parameters(method), parameters(base)
    if {p.name for p in own if _required(p)} - {p.name for p in old if _required(p)}:
        return True
    kinds, old_kinds = [p.kind for p in own], [p.kind for p in old]
    if "*" not in kinds and ("*" in old_kinds or _count(kinds) < _count(old_kinds)):
        return True
    names = {p.name for p in own if p.kind in ("any", "kw")}
    return "**" not in kinds and ("**" in old_kinds or any(p.name not in names for p in old if p.kind in ("any", "kw")))


def _required(param: object) -> bool:
    return getattr(param, "default", None) is None and getattr(param, "kind", "") in ("any", "pos", "kw")


def _count(kinds: list[str]) -> int:
    return sum(kind in ("any", "pos") for kind in kinds)


def _asked(each: Override, function: Method, call: Call) -> bool:
    """Whether what is tested or caught around a call may keep objects of the subclass away from it."""
    guards = (*function.facts.guards, *call.guards)
    words = _telling_words(each) if guards else frozenset()
    return any(_tells(guard, words) for guard in guards)


def _telling_words(each: Override) -> frozenset[str]:
    """Words by which conditions tell the subclasses apart: those of their names that the base's name lacks."""
    assert each.base.cls is not None
    common = {word.lower() for word in _WORDS.findall(each.base.cls.name)}
    names = {c.name for c in (each.cls, *each.base.cls.descendants())}
    return frozenset(word.lower() for name in names for word in _WORDS.findall(name) if len(word) > 2) - common


def _tells(guard: Guard, words: frozenset[str]) -> bool:
    if guard.kind == "try":
        return "TypeError" in guard.text or guard.text == "*" or guard.text in ("Exception", "BaseException")
    if guard.kind != "if":
        return False
    text = _PRESENT.sub("", guard.text)
    return bool(_ASKING.search(text)) or any(word in text.lower() for word in words)
