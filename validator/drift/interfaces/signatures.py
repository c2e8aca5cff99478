"""Functions whose parameters changed, and the calls that fitted before and fit no longer."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property, partial
from typing import NamedTuple

from validator.analysis.commands.same_names import words
from validator.analysis.interfaces.binding import misfit_of
from validator.definitions import ClassDef, Method
from validator.drift.change import Change, Side
from validator.drift.interfaces.calls import RUN_UNNAMED, Site, constructor, misfit, params_of, sites, taken, unnamed
from validator.drift.statements.differences import statements
from validator.drift.statements.named_effects import named
from validator.drift.statements.surroundings import called_names, names_asked, names_called, reports
from validator.drift.statements.weakened import DEVICES
from validator.facts.model import Call, Param
from validator.flow.callgraph.spelled_arguments import call_of
from validator.flow.objects import Objects
from validator.flow.program.unit import Unit
from validator.flow.queries.base import Place
from validator.flow.queries.outside_program import is_foreign, is_test
from validator.models.members import is_telling
from validator.source import SourceFile


class Broken(NamedTuple):
    """A call that a change broke: the definition as it was and as it is, and what is wrong.

    `kind`: `refused`, `swallowed` (a keyword goes to `**kwargs` now), `shifted` (an argument by position goes to
    another parameter now), `adapted` (the change wrote the same call otherwise elsewhere), `handed` (another caller
    does now what the function did), `unread` (a keyword is read out of `**kwargs` no longer).
    """

    site: Site
    old: Method | ClassDef
    new: Method | ClassDef
    kind: str
    text: str

    @property
    def renamed(self) -> tuple[str, str] | None:
        """A keyword that the call passes under its old name, with the new one; None where that cannot be told."""
        before, after = (_named(each) for each in (self.old, self.new))
        gone = [a.keyword for a in self.site.call.args if a.keyword in before - after]
        came = sorted(after - before)
        return (str(gone[0]), came[0]) if len(gone) == len(came) == 1 else None


class Signatures:
    """The calls that the changed signatures of a change broke."""

    def __init__(self, change: Change) -> None:
        self.change = change
        self.before = change.before
        self.after = change.after
        self._places: dict[Method, list[Site]] = {}
        self._otherwise: dict[str, tuple[frozenset[Unit], frozenset[str]]] = {}

    @cached_property
    def changed(self) -> dict[str, list[tuple[Method | ClassDef, Method | ClassDef]]]:
        """By name of what is called: the definitions whose parameters are not what they were."""
        found: dict[str, list[tuple[Method | ClassDef, Method | ClassDef]]] = {}
        for old, new in self.change.modules:
            if old is None or new is None:
                continue
            for qualname, method in old.functions.items():
                other = new.functions.get(qualname)
                if other is None or outline(method.facts.params) == outline(other.facts.params):
                    continue
                if method.name == "__init__" and method.cls is not None and other.cls is not None:
                    for cls in (method.cls, *method.cls.descendants()):
                        found.setdefault(cls.name, []).append((method.cls, other.cls))
                found.setdefault(method.name, []).append((method, other))
        for old_cls, new_cls in self.change.classes:
            if old_cls.find("__init__") is new_cls.find("__init__") is None and _fields_differ(old_cls, new_cls):
                for cls in (new_cls, *new_cls.descendants()):
                    found.setdefault(cls.name, []).append((old_cls, new_cls))
        return found

    @cached_property
    def broken(self) -> list[Broken]:
        found: dict[tuple[str, int, str], Broken] = {}
        for name, rows in sorted(self.changed.items()):
            among = self._heirs(rows) if name == "__init__" else None
            methods = [new for _, new in rows if isinstance(new, Method) and not is_foreign(new.path)]
            ran = unnamed(self.after, methods) if name in RUN_UNNAMED else ()
            for site in (*sites(self.after, name, among, partial(_may_break, rows)), *ran):
                for old, new in rows:
                    broken = self._broken(site, old, new)
                    if broken is not None and site.is_in(self.before):
                        found.setdefault((site.unit.path, site.number, site.unit.code.key), broken)
        return list(found.values())

    def _heirs(self, rows: list[tuple[Method | ClassDef, Method | ClassDef]]) -> frozenset[SourceFile]:
        """The files of the classes that may call a constructor by its name."""
        owners = [new.cls for _, new in rows if isinstance(new, Method) and new.cls is not None]
        return frozenset(cls.module.source for owner in owners for cls in (owner, *owner.descendants()))

    def _broken(self, site: Site, old: Method | ClassDef, new: Method | ClassDef) -> Broken | None:
        """Whether a call reaches a changed definition, fitted it before, and does not now."""
        if not reaches(site, new) or old.facts.decorators != new.facts.decorators:
            return None
        earlier, later = params_of(old, site), params_of(new, site)
        if earlier is None or later is None or misfit(self.before, old, site) != "":
            return None
        text = misfit(self.after, new, site)
        if text:
            return Broken(site, old, new, "refused", text) if self._is_meant(site, new) else None
        if text is None:
            return None
        kind, text = _otherwise(site.call, earlier, later)
        if kind == "swallowed" and not _named(new) - _named(old) and passes_on(self.after, new):
            return None
        return Broken(site, old, new, kind, text) if kind and self._is_meant(site, new) else None

    # -- calls that were adapted ---------------------------------------------------------------------------

    @cached_property
    def unadapted(self) -> list[Broken]:
        """Calls of a changed function that stand as they were, while the change wrote the same call otherwise."""
        broken = {(b.site.unit.path, b.site.call.at) for b in self.broken}
        found = []
        for old, new in self._redefined:
            units, texts = self._rewritten(new.name)
            if not any(texts & self._texts(each, new.name) for each in self.after.mentioning(new.name)):
                continue
            rows = sites(self.after, new.name, wanted=partial(_is_among, units, texts))
            places = [site for site in rows if site.reached == (new,) and site.how == "call"]
            adapted = {text: (site, call) for site in places for text, call in calls_before(self.before, site).items()}
            for site in places:
                key = (site.unit.path, site.call.at)
                if site.text not in adapted or key in broken or not site.call.args or is_test(site.unit.path):
                    continue
                if _is_forgotten(site, *adapted[site.text]) and site.is_in(self.before):
                    found.append(Broken(site, old, new, "adapted", "is called as before"))
        return found

    def _rewritten(self, name: str) -> tuple[frozenset[Unit], frozenset[str]]:
        """The functions of the change that call what has a name otherwise than before, and their calls of before: only
        of these and of others like them it is asked what they mean."""
        if name not in self._otherwise:
            rows = [(pair.new, _calls(pair.old, name), _calls(pair.new, name)) for pair in self.change.pairs]
            gone = [(unit, before.keys() - now.keys()) for unit, before, now in rows]
            self._otherwise[name] = (
                frozenset(unit for unit, texts in gone if texts),
                frozenset(text for _, texts in gone for text in texts),
            )
        return self._otherwise[name]

    def _texts(self, source: SourceFile, name: str) -> set[str]:
        """The calls of what has a name in a file."""
        module = self.after.project.modules.get(source.absolute)
        units = self.after.units(module).values() if module is not None and not is_test(source.path) else ()
        return {text for unit in units for text in _calls(unit, name)}

    def _only(self, new: Method) -> list[Site]:
        """The calls that reach a function and nothing else."""
        if new not in self._places:
            found = sites(self.after, new.name)
            self._places[new] = [site for site in found if site.reached == (new,) and site.how == "call"]
        return self._places[new]

    @cached_property
    def handed_over(self) -> list[Broken]:
        """Calls of a function that no longer makes some call itself, where the change makes another caller do it."""
        told = {(each.site.unit.path, each.site.call.at) for each in (*self.broken, *self.unadapted)}
        found: list[Broken] = []
        for pair in self.change.pairs:
            if (methods := pair.methods) is None or is_test(pair.new.path):
                continue
            gone = called_names(pair.old, "attr") - called_names(pair.new, "attr")
            for name in sorted(each for each in gone if each != pair.new.name and self._is_work(each)):
                found += self._relying(*methods, name) if _is_for_all(pair.old, name) else ()
        return [each for each in found if (each.site.unit.path, each.site.call.at) not in told]

    def _is_work(self, name: str) -> bool:
        """Whether a call by this name does what somebody must do: it moves a value to a device, has an effect,
        or is one of the project's own."""
        if reports(name):
            return False
        return name in DEVICES or name in named() or is_telling(name) and name in self.after.methods

    def _relying(self, old: Method, new: Method, name: str) -> Iterator[Broken]:
        """The callers of a function that make a call themselves neither before nor after a change, which others that
        it altered make now."""
        pairs = {each.new: each.old for each in self.change.pairs}
        if not any(called_names(one)[name] > called_names(other)[name] for one, other in pairs.items()):
            return
        places = self._only(new)
        taking = [
            site
            for site in places
            if site.unit in pairs and called_names(site.unit)[name] > called_names(pairs[site.unit])[name]
        ]
        if not taking:
            return
        text = f"no longer calls `{name}` itself, which `{taking[0].unit.qualname}` does since the change"
        for site in places:
            if site.unit not in pairs and not called_names(site.unit)[name] and not is_test(site.unit.path):
                yield Broken(site, old, new, "handed", text)

    @cached_property
    def _redefined(self) -> list[tuple[Method, Method]]:
        """The functions whose parameters or results changed."""
        found = []
        for pair in self.change.pairs:
            methods = pair.methods
            if pair.new.code.kind == "function" and methods is not None:
                old, new = methods
                given = [tuple(r.value for r in m.facts.returns) for m in methods]
                if _asks_otherwise(old, new) or given[0] != given[1]:
                    found.append(methods)
        return found

    def _is_meant(self, site: Site, new: Method | ClassDef) -> bool:
        """Whether the call is meant for this definition: none other takes it, or those that do stand in for it."""
        if site.each or site.sure and len(site.reached) == 1:
            return True
        others = [each for each in site.reached if each is not new]
        taking = [each for each in others if misfit(self.after, each, site) == ""]
        if not taking:
            return True
        if is_test(site.unit.path):
            return False  # what a test makes is of the one class that it is about
        if not isinstance(new, Method) or new.cls is None:
            return False
        if _is_asked_of_itself(site, new) or self._is_made_for(site, new) or _is_called_as(site, new.cls, taking):
            return True
        kin = _kin(new.cls)
        alike = [each for each in taking if isinstance(each, Method) and each.cls is not None and _kin(each.cls) & kin]
        return 2 * len(alike) >= len(taking) and len(taking) <= len(others) + 1 - len(taking)

    def _is_made_for(self, site: Site, new: Method) -> bool:
        """Whether the flow brings an object of a class that has this method to the call, which no condition around
        it leaves to one kind of them by its name."""
        place = Place(self.after.flow, site.unit, site.number)
        receiver = place.receiver if site.how == "call" else None
        if receiver is None:
            return False
        held = self.after.project.analysis(Objects).held(receiver, place).classes
        kinds = {part.lower() for cls in held for part in cls.module.name.split(".")}
        named = {word.lower() for test in place.tests_inside for word in test.words}
        return kinds.isdisjoint(named) and any(cls.find(new.name) is new for cls in held)


def passes_on(side: Side, target: Method | ClassDef) -> bool:
    """Whether a function hands the keywords that it does not name to something that it calls."""
    method = target.find("__init__") if isinstance(target, ClassDef) else target
    unit = side.unit_of(method) if method is not None else None
    if unit is None:
        return True
    spread = (
        unit.root(operand)
        for value in unit.code.values
        if value.op == "call"
        for name, operand in zip(value.data.names, value.args[1:], strict=True)
        if name == "**"
    )
    kinds = dict(unit.code.params)
    roots = (unit.code.values[number] for number in spread)
    return any(value.op == "param" and kinds.get(str(value.data[1])) == "**" for value in roots)


def _may_break(rows: list[tuple[Method | ClassDef, Method | ClassDef]], unit: Unit, number: int) -> bool:
    """Whether a call by a name may fit one of the changed definitions no longer, whichever it reaches."""
    call = call_of(unit, number)
    for old, new in rows:
        for bound in (True, False):
            earlier, later = taken(old, bound), taken(new, bound)
            if earlier is None or later is None or misfit_of(earlier, call) is not None:
                continue
            if misfit_of(later, call) is not None or _otherwise(call, earlier, later)[0]:
                return True
    return False


def _is_among(units: frozenset[Unit], texts: frozenset[str], unit: Unit, number: int) -> bool:
    """Whether a call stands in one of some functions, or is written as one of some."""
    return unit in units or unit.text(unit.code.values[number].at) in texts


def _is_for_all(unit: Unit, name: str) -> bool:
    """Whether a function makes some call by a name whatever its parameters are: for all of its callers."""
    params = {param for param, _ in unit.code.params[unit.has_receiver :]}
    return any(name in names_called(each.node) and params.isdisjoint(names_asked(each)) for each in statements(unit))


def _asks_otherwise(old: Method, new: Method) -> bool:
    """Whether the parameters or the annotations of a function are others; an annotation that allows more is none."""
    if outline(old.facts.params) != outline(new.facts.params):
        return True
    before, after = ([p.annotation or "" for p in m.facts.params] for m in (old, new))
    if any(one not in other for one, other in zip(before, after, strict=True)):
        return True
    return old.facts.returns_annotation != new.facts.returns_annotation


def _calls(unit: Unit, name: str) -> dict[str, int]:
    """The calls of a name in a unit by their texts."""
    found = {}
    values = unit.code.values
    for number, v in enumerate(values):
        if v.op != "call" or values[v.args[0]].op not in ("name", "attr", "import"):
            continue
        if unit.known_as(v.args[0]) == name or values[v.args[0]].data == name:
            found[unit.text(v.at)] = number
    return found


def calls_before(before: Side, site: Site) -> dict[str, Call]:
    """The calls of a function that its unit made before and makes no longer, by their texts, if this one is new."""
    unit = before.twin(site.unit)
    if unit is None or site.is_in(before):
        return {}
    name = site.reached[0].name
    now = set(_calls(site.unit, name))
    return {text: call_of(unit, number) for text, number in _calls(unit, name).items() if text not in now}


def _is_forgotten(site: Site, adapted: Site, earlier: Call) -> bool:
    """Whether a call could be adapted as another one was: what that one passes now is at hand here too. A constant that
    one call passes in addition is a choice of its own. Of what takes the place of another argument the keys are at hand
    with that."""
    before = {(a.keyword, a.value) for a in earlier.args}
    now = {(a.keyword, a.value) for a in adapted.call.args}
    shape = adapted.unit.code.values[adapted.number]
    added = [
        (number, argument.keyword not in {each.keyword for each in earlier.args})
        for number, argument in zip(shape.args[1:], adapted.call.args, strict=False)
        if (argument.keyword, argument.value) not in before
    ]
    needs = {need for number, fresh in added for need in _needs(adapted.unit, number) if fresh or need[0] != "["}
    at_hand = site.unit is adapted.unit or all(_has(site.unit, need, adapted.unit) for need in needs)
    return at_hand and (bool(needs) or not before <= now)


def _needs(unit: Unit, number: int) -> Iterator[str]:
    """The variables, the attributes of the object itself, and the keys, out of which an argument comes."""
    number = unit.root(number)
    value, last = unit.code.values[number], ""
    while value.op in ("attr", "item"):
        last = str(value.data) if value.op == "attr" else last
        key = unit.code.values[value.args[1]] if value.op == "item" else value
        if key.op == "const" and isinstance(key.data, str):
            yield f"[{key.data}]"
        number = unit.root(value.args[0])
        value = unit.code.values[number]
    if value.op == "param":
        yield f"self.{last}" if value.data[0] == 0 and unit.has_receiver and last else str(value.data[1])
    elif value.op in ("name", "import"):
        yield str(value.data if value.op == "name" else value.data[1] or value.data[0])
    elif value.op in ("call", "binary", "unary", "compare", "tuple", "list", "join"):
        for operand in value.args:
            yield from _needs(unit, operand)
    elif value.op != "const":
        yield next((name for name, made in unit.code.definitions.items() if number in made), "?")


def _has(unit: Unit, need: str, other: Unit) -> bool:
    """Whether what one unit passes is there in another one as well; a key, where its file knows of it."""
    if need.startswith("["):
        return need[1:-1].encode() in unit.module.source.data
    if need.startswith("self."):
        return unit.cls is not None and other.cls is not None and bool(_kin(unit.cls) & _kin(other.cls))
    names = {name for name, _ in unit.code.params}
    return need in names or need in unit.code.definitions or need in unit.named


def _named(target: Method | ClassDef) -> set[str]:
    """The parameters that callers may name."""
    params = constructor(target) or () if isinstance(target, ClassDef) else target.facts.params
    return {p.name for p in params if p.kind in ("any", "kw")}


def reaches(site: Site, target: Method | ClassDef) -> bool:
    """Whether a call may run a function, or the constructor of a class."""
    if isinstance(target, Method):
        return target in site.reached
    return any(isinstance(each, ClassDef) and target in each.mro and _makes(each, target) for each in site.reached)


def _is_asked_of_itself(site: Site, new: Method) -> bool:
    """Whether the method that calls is one that objects of the class of a method inherit, and asks these for it."""
    unit, values = site.unit, site.unit.code.values
    assert new.cls is not None
    if unit.cls is None or unit.cls not in new.cls.mro or new.cls.find(unit.name) is not unit.method:
        return False
    operands = (values[number] for number in values[site.number].args)
    return any(each.op == "attr" and each.data == new.name and unit.is_receiver(each.args[0]) for each in operands)


def _is_called_as(site: Site, cls: ClassDef, others: list[Method | ClassDef]) -> bool:
    """Whether the name of the object tells of which class it is: `critic_group` for a `CriticWorker`, beside methods of
    an `ActorWorker`."""
    called = set(words(site.call.receiver.rpartition(".")[2]))
    beside = (each.cls.name if isinstance(each, Method) and each.cls is not None else each.name for each in others)
    return bool(called & set(words(cls.name)) - {word for name in beside for word in words(name)})


def _makes(cls: ClassDef, base: ClassDef) -> bool:
    """Whether objects of a class are made by the constructor of a base."""
    found = cls.find("__init__")
    return found.cls is base if found is not None else constructor(cls) is not None


def _fields_differ(old: ClassDef, new: ClassDef) -> bool:
    """Whether two classes of fields are made otherwise."""
    before, after = constructor(old), constructor(new)
    return before is not None and after is not None and outline(before) != outline(after)


def _kin(cls: ClassDef) -> frozenset[object]:
    """What classes that stand in for each other have in common: a base class, in the project or outside."""
    outside = {
        base for base in cls.external_bases if base.rpartition(".")[2] not in ("object", "ABC", "Module", "Enum")
    }
    return frozenset({*cls.mro, *outside})


def outline(params: tuple[Param, ...]) -> tuple[tuple[str, str, bool], ...]:
    """The parameters without annotations and values of defaults: two outlines that are alike take the same calls."""
    return tuple((p.name, p.kind, p.default is None) for p in params)


def _otherwise(call: Call, earlier: tuple[Param, ...], later: tuple[Param, ...]) -> tuple[str, str]:
    """What becomes of the arguments of a call that still fits: (kind, text), empty where it means what it meant."""
    named = {p.name for p in later if p.kind in ("any", "kw")}
    before = {p.name for p in earlier if p.kind in ("any", "kw")}
    for argument in call.args:
        keyword = argument.keyword
        if keyword in before and keyword not in named and any(p.kind == "**" for p in earlier):
            return "swallowed", f"passes `{keyword}`, which is no parameter any more and goes to `**`"
    return _shifted(call, earlier, later)


def _shifted(call: Call, earlier: tuple[Param, ...], later: tuple[Param, ...]) -> tuple[str, str]:
    if any(a.keyword in ("*", "**") for a in call.args):
        return "", ""
    old = [p.name for p in earlier if p.kind in ("any", "pos")]
    new = [p.name for p in later if p.kind in ("any", "pos")]
    count = len(call.positional)
    for place in range(min(count, len(old), len(new))):
        if old[place] != new[place] and (old[place] in new or new[place] in old):
            return "shifted", f"passes by position what was `{old[place]}` and is `{new[place]}` now"
    return "", ""
