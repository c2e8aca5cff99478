"""What functions give back, before and after a change, and the places that reckon with what they gave."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cached_property
from itertools import chain, takewhile
from typing import NamedTuple

from validator.analysis.interfaces.binding import keeps_signature
from validator.definitions import ClassDef, Method
from validator.drift.change import Change, Pair, Side
from validator.drift.interfaces.calls import RUN_UNNAMED, Site, handed, sites, taken_over, unnamed
from validator.drift.interfaces.result_shapes import Form, Forms, FormsOf, Use, fits, is_asked, part, shown, still, uses
from validator.drift.interfaces.told_by_key import ToldByKey
from validator.drift.statements.differences import node_of
from validator.drift.statements.surroundings import last_name
from validator.facts.model import At
from validator.flow.program.unit import Unit
from validator.flow.queries.base import Place
from validator.flow.queries.outside_program import is_foreign
from validator.ir.model import Value
from validator.models.members import is_telling

_PART = Form("part")
_LETTERS = 4  # so long a name of an object says which class it is of
_WAITING = frozenset({
    "gather", "create_task", "ensure_future", "run", "wait_for", "run_until_complete", "as_completed", "append",
    "extend", "wait", "run_coroutine_threadsafe", "put", "shield", "submit", "run_async", "add", "start_soon",
})  # fmt: skip
_USING = frozenset({"attr", "item", "binary", "unary", "iter", "unpack", "store_item", "store_attr", "enter"})


class Reckoned(NamedTuple):
    """A place that reckons with what a function gave before. `text`: what it does that fits no longer."""

    unit: Unit
    at: At
    old: Method
    new: Method
    text: str
    sure: bool


class Results:
    """The places that a change of results left behind."""

    def __init__(self, change: Change) -> None:
        self.change = change
        self.after = change.after
        self.earlier = FormsOf(change.before)
        self.later = FormsOf(change.after)
        self._calls: dict[Method, list[Site]] = {}
        self._ran: dict[Method, list[Site]] = {}

    @cached_property
    def reckoned(self) -> list[Reckoned]:
        found: dict[tuple[str, At], Reckoned] = {}
        for pair in self.change.pairs:
            if pair.new.code.kind != "function" or (methods := pair.methods) is None or is_foreign(pair.new.path):
                continue
            for row in self._of_pair(pair, *methods):
                found.setdefault((row.unit.path, row.at), row)
        for pair in self.change.pairs:
            for row in self._no_longer_awaited(pair):
                found.setdefault((row.unit.path, row.at), row)
        return list(found.values())

    def _of_pair(self, pair: Pair, old: Method, new: Method) -> Iterator[Reckoned]:
        if self.change.before.is_property(old) != self.after.is_property(new):
            yield from self._kind(old, new)
            return
        if old.facts.is_async != new.facts.is_async and not new.facts.is_generator:
            yield from self._coroutine(old, new)
        if new.facts.is_abstract or new.facts.stub:
            return
        before, after = self.earlier.of(pair.old), self.later.of(pair.new)
        if before == after and _returned(pair.old) == _returned(pair.new):
            return
        for passing in self._passing(pair):
            yield from self._callers(passing)
        for each, key in self.change.analysis(ToldByKey).left(pair, before, after):
            at = each.unit.at(each.unit.code.values[each.number].at)
            yield Reckoned(each.unit, at, old, new, _said(Use("item", key), after), False)

    def _callers(self, pair: Pair) -> Iterator[Reckoned]:
        """What the callers do with the result of a function that is another than before."""
        if (methods := pair.methods) is None:
            return
        before, after = self.earlier.of(pair.old), self.later.of(pair.new)
        after = frozenset({_PART}) if _gives_one_alone(pair) else after
        if before != after:
            yield from self._misread(*methods, before, after)
            yield from self._kin(*methods, before, after)
            yield from self._alone(pair, *methods, before, after)
        yield from self._unadapted(*methods, after)
        yield from self._swapped(pair, *methods)
        given, nothing = ([len(_giving(unit, some)) for unit in pair] for some in (True, False))
        if given[1] < given[0] and nothing[1] > nothing[0]:
            yield from self._untested(*methods)
        if given[0] and not given[1]:
            yield from self._never_true(*methods)

    def _swapped(self, pair: Pair, old: Method, new: Method) -> Iterator[Reckoned]:
        """Callers that unpack a result into the names of its values, in the order in which they were given."""
        before, after = (_names_given(unit) for unit in pair)
        if not before or not after or before == after:
            return
        same = sorted(before) == sorted(after)
        for site in self._sites(new):
            names, rest = _unpacked(site)
            if not (same and len(names) == len(before) or rest and len(names) <= min(len(before), len(after))):
                continue
            kept = [(place, name) for place, name in enumerate(names) if name.strip("_")]
            moved = [place for place, name in kept if name != after[place] != before[place]]
            if moved and all(_means(names[p], before[p], after[p]) for p in (moved[:1] if rest else moved)):
                if len(site.reached) > 1 and self._others(site, new):
                    text = f"gives `{after[moved[0]]}` where those that the same calls reach give `{before[moved[0]]}`"
                    yield Reckoned(pair.new, _given_at(pair.new, new), old, new, text, False)
                    return
                text = f"takes `{before[moved[0]]}` where `{after[moved[0]]}` is given now"
                yield Reckoned(site.unit, site.call.at, old, new, text, site.sure and len(site.reached) == 1)

    def _untested(self, old: Method, new: Method) -> Iterator[Reckoned]:
        """Callers that take apart, without a look, what may be nothing since the change."""
        for site in self._sites(new):
            for number in _carried(site.unit, site.number):
                if self._is_likely(site, new) and _takes_apart(site.unit, number):
                    yield Reckoned(site.unit, site.call.at, old, new, "takes apart what may be nothing now", False)

    def _never_true(self, old: Method, new: Method) -> Iterator[Reckoned]:
        """Callers that ask whether a result is true, which is nothing on all ways since the change."""
        for site in self._reaching(new):
            for number in _carried(site.unit, site.number):
                if self._is_likely(site, new) and _asks_whether_true(site.unit, number):
                    yield Reckoned(
                        site.unit, site.call.at, old, new, "asks whether it is true what is nothing always now", False
                    )

    def _passing(self, pair: Pair) -> list[Pair]:
        """A function, and those that give its result back as their own."""
        found = [pair]
        for each in found:
            for site in self._sites(each.methods[1]) if each.methods is not None else ():
                given = {site.unit.root(number) for number in site.unit.code.returned}
                earlier = (
                    self.change.before.twin(site.unit)
                    if not given.isdisjoint(_carried(site.unit, site.number))
                    else None
                )
                if earlier is not None and not any(site.unit is other.new for other in found):
                    found.append(Pair(earlier, site.unit))
        return found

    def _misread(self, old: Method, new: Method, before: Forms, after: Forms) -> Iterator[Reckoned]:
        """Callers that take a result apart as it was."""
        for site in self._sites(new):
            others = [self.later.result(each) for each in site.reached if isinstance(each, Method) and each is not new]
            others = [] if site.each else others
            if any(isinstance(each, ClassDef) for each in site.reached):
                continue
            sure = site.sure and len(site.reached) == 1
            for number in _carried(site.unit, site.number):
                left = list(_unfit(site.unit, number, before, [after, *others]))
                for use, user in left:
                    if self._is_ready(site.unit, user, use):
                        continue
                    if _PART in after and self._goes_the_other_way(site, new):
                        continue
                    at = site.call.at if use.kind == "unpack" else site.unit.at(site.unit.code.values[user].at)
                    yield Reckoned(site.unit, at, old, new, _said(use, after), sure)
                handed_on = (
                    taken_over(self.after, site.unit, each) for each in still(site.unit, number) if sure and not left
                )
                for unit, given in chain.from_iterable(handed_on):
                    for use, user in _unfit(unit, given, before, [after]) if not is_asked(unit, given) else ():
                        at = unit.at(unit.code.values[user].at)
                        text = f"{_said(use, after)}, as `{site.unit.qualname}` hands it on"
                        yield Reckoned(unit, at, old, new, text, False)

    def _is_ready(self, unit: Unit, number: int, use: Use) -> bool:
        """Whether the code is ready for a result of another shape: it takes the error, asks the object first, or puts
        the key there itself."""
        place = Place(self.after.flow, unit, number)
        if place.catches("KeyError", "LookupError", "IndexError", "ValueError", "TypeError", "Exception"):
            return True
        taken = place.operand(0).root
        if any(part.root == taken for test in place.tests_inside for part in test.sources):
            return True
        return use.kind == "item" and isinstance(use.what, str) and _puts(unit, use.what)

    def _goes_the_other_way(self, site: Site, method: Method) -> bool:
        """Whether a call passes a constant for the parameter on which the way depends that gives one value alone."""
        unit = self.after.unit_of(method)
        node = node_of(unit) if unit is not None else None
        for each in ast.walk(node) if node is not None else ():
            if not isinstance(each, ast.If) or not any(isinstance(part, ast.Return) for part in each.body):
                continue
            test = each.test
            wanted = not (isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not))
            name = test.operand if isinstance(test, ast.UnaryOp) else test
            if not isinstance(name, ast.Name) or any(
                isinstance(part, ast.Return) and isinstance(part.value, ast.Tuple) for part in each.body
            ):
                continue
            given = next((a.value for a in site.call.args if a.keyword == name.id), None)
            default = next((p.default for p in method.facts.params if p.name == name.id), None)
            value = given if given is not None else default
            if value in ("True", "False") and (value == "True") != wanted:
                return True
        return False

    def _kin(self, old: Method, new: Method, before: Forms, after: Forms) -> Iterator[Reckoned]:
        """Functions that a caller may reach in place of one whose result changed, and that give what was given before:
        the caller takes it apart as it is now."""
        for site in self._sites(new):
            if not self._is_likely(site, new) and not self._is_of_family(site, new):
                continue
            for number in _carried(site.unit, site.number):
                for use, _, _ in uses(site.unit, number):
                    if fits(before, use) is not False or fits(after, use) is False:
                        continue
                    for other in self._others(site, new):
                        given = self.later.result(other)
                        unit = self.after.unit_of(other)
                        if unit is not None and fits(given, use) is False:
                            text = f"still gives {shown(given)}, `{site.unit.qualname}` {_doing(use)} since the change"
                            yield Reckoned(unit, other.facts.name_at, old, new, text, False)

    def _alone(self, pair: Pair, old: Method, new: Method, before: Forms, after: Forms) -> Iterator[Reckoned]:
        """A method that gives something else now, while its base or an override of it, which the same calls reach,
        gives what they take apart."""
        for site in self._sites(new):
            kin = [each for each in self._others(site, new) if each.cls is not None]
            kin = [each for each in kin if self.later.result(each) == before]
            for number in _carried(site.unit, site.number) if kin else ():
                for use, _, _ in uses(site.unit, number):
                    alone = _PART in after and use.kind == "unpack"
                    if fits(before, use) is not True or not alone and fits(after, use) is not False:
                        continue
                    text = f"gives {shown(after)} now, where `{kin[0].qualname}` gives {shown(before)} and "
                    text += f"`{site.unit.qualname}` {_doing(use)}"
                    yield Reckoned(pair.new, _given_at(pair.new, new), old, new, text, False)
                    return

    @staticmethod
    def _is_likely(site: Site, new: Method) -> bool:
        """Whether a call means a function, or one beside it: nothing else bears the name, or the object is called as
        its class is (`self.backend` for a `TinkerBackend`)."""
        if site.sure or is_telling(new.name):
            return True
        called = site.call.receiver.rpartition(".")[2].replace("_", "").lower()
        above = [cls.name.lower() for cls in new.cls.mro] if new.cls is not None else []
        return len(called) >= _LETTERS and any(name.endswith(called) for name in above)

    @staticmethod
    def _is_of_family(site: Site, new: Method) -> bool:
        """Whether a call stands in a class of the family of a method."""
        return site.unit.cls is not None and new.cls is not None and new.cls in site.unit.cls.relatives

    def _others(self, site: Site, new: Method) -> list[Method]:
        """The overrides of a method, and what callers hand in for a function that is called."""
        kin = set(new.cls.relatives) if new.cls is not None else set()
        found = [each for each in site.reached if isinstance(each, Method) and each is not new and each.cls in kin]
        callee = site.unit.code.values[site.number].args[0]
        found += [each for each in handed(self.after, site.unit, callee) if each is not new]
        return [each for each in dict.fromkeys(found) if not each.facts.is_abstract and not is_foreign(each.path)]

    def _unadapted(self, old: Method, new: Method, after: Forms) -> Iterator[Reckoned]:
        """Callers that do with a changed result what another one, which the change adapted, no longer does."""
        lost: dict[Use, str] = {}
        found = list(self._sites(new))
        done: dict[tuple[Unit, str], set[Use]] = {}  # by one of several branches too
        for site in found:
            done.setdefault((site.unit, site.text), set()).update(_done(site.unit, site.number))
        for site in found:
            earlier = self._before(site)
            if earlier is not None:
                for use in set(_done(*earlier)) - done[site.unit, site.text]:
                    lost.setdefault(use, site.unit.qualname)
        for site in found:
            left = [use for use in _done(site.unit, site.number) if use in lost and fits(after, use) is not True]
            if (
                left
                and len(site.reached) == 1
                and not is_asked(site.unit, site.number)
                and site.is_in(self.change.before)
            ):
                text = f"still {_doing(left[0])}, as `{lost[left[0]]}` did until this change of what is given back"
                yield Reckoned(site.unit, site.call.at, old, new, text, False)

    def _before(self, site: Site) -> tuple[Unit, int] | None:
        """The same call in the same function as it was before the change."""
        old = next((pair.old for pair in self.change.pairs if pair.new is site.unit), None)
        if old is None:
            return None
        text = site.text
        same = [n for n, value in enumerate(old.code.values) if value.op == "call" and old.text(value.at) == text]
        return (old, same[0]) if len(same) == 1 else None

    def _sites(self, new: Method) -> list[Site]:
        """The calls that may reach a function, and that can be followed."""
        found = self._calls.get(new)
        if found is None:
            rows = (*self._reaching(new), *(site for site in self._unnamed(new) if new in site.reached))
            found = self._calls[new] = [site for site in rows if not is_asked(site.unit, site.number)]
        return found

    def _reaching(self, new: Method) -> Iterator[Site]:
        """The calls by its name that may reach a function."""
        return (site for site in sites(self.after, new.name) if new in site.reached and site.how != "text")

    def _unnamed(self, new: Method) -> list[Site]:
        """The calls of objects that run a method: all methods of the change are looked for at once."""
        if new.name not in RUN_UNNAMED:
            return []
        if new not in self._ran:
            methods = {pair.new.method for pair in self.change.pairs if pair.new.name in RUN_UNNAMED} - {None} | {new}
            wanted = [method for method in methods if method is not None and method not in self._ran]
            self._ran |= {method: [] for method in wanted}
            for name in RUN_UNNAMED:
                for site in unnamed(self.after, [method for method in wanted if method.name == name]):
                    for method in site.reached:
                        if isinstance(method, Method) and method in self._ran:
                            self._ran[method].append(site)
        return self._ran[new]

    def _kind(self, old: Method, new: Method) -> Iterator[Reckoned]:
        """A property that is a method now, or the other way round."""
        for row in self.after.occurrences(new.name):
            unit = row.unit
            if unit is None or row.role != "asks" or row.kind != "attribute" or new.cls is None:
                continue
            classes = self.after.classes_of(unit, row.number)
            kin = set(new.cls.relatives)
            if not (classes and all(each in kin for each in classes)) and not (
                not classes and is_telling(new.name) and len(self.after.methods.get(new.name, ())) == 1
            ):
                continue
            if not _stood(self.change.before, unit, row.at):
                continue
            users = [unit.code.values[user] for user in unit.users.get(row.number, ())]
            called = any(user.op == "call" and user.args[0] == row.number for user in users)
            if self.after.is_property(new) and called:
                yield Reckoned(unit, row.at, old, new, "calls what is a property now", bool(classes))
            elif not self.after.is_property(new) and not called:
                yield Reckoned(unit, row.at, old, new, "takes a method for the value that it gives", bool(classes))

    def _coroutine(self, old: Method, new: Method) -> Iterator[Reckoned]:
        for site in self._reaching(new):
            as_before = [m for m in site.reached if isinstance(m, Method) and m.facts.is_async == old.facts.is_async]
            if any(new.cls is None or m.cls not in new.cls.relatives for m in as_before):
                continue  # one of another kind may be meant
            if as_before and _awaited(site.unit, site.number) == old.facts.is_async and not _is_remote(site):
                unit = self.after.unit_of(new)
                kind = "a coroutine now" if new.facts.is_async else "no coroutine any more"
                text = f"is {kind}, while others of its kind are as they were for `{site.unit.qualname}`"
                if unit is not None:
                    yield Reckoned(unit, new.facts.name_at, old, new, text, False)
                return
            if _is_remote(site) or not self._is_likely(site, new):
                continue
            sure = site.sure and len(site.reached) == 1
            awaited = _awaited(site.unit, site.number)
            if new.facts.is_async and not awaited and _is_used(site.unit, site.number):
                yield Reckoned(site.unit, site.call.at, old, new, "does not await what is a coroutine now", sure)
            elif old.facts.is_async and awaited and keeps_signature(new):  # else a decorator may make it one
                unit = self.after.unit_of(new)
                plain = unit is not None and None not in self.later.of(unit)  # what is not known may be awaited
                yield Reckoned(
                    site.unit, site.call.at, old, new, "awaits what is no coroutine any more", sure and plain
                )

    def _no_longer_awaited(self, pair: Pair) -> Iterator[Reckoned]:
        """Calls of coroutines that were awaited and are not any more."""
        lost = _awaits(pair.old) - _awaits(pair.new)
        for name in sorted(lost):
            for site in sites(self.after, name):
                if site.unit is not pair.new or _is_remote(site) or not site.reached:
                    continue
                first = site.reached[0]
                if not all(isinstance(each, Method) and each.facts.is_async for each in site.reached):
                    continue
                if not site.sure and not is_telling(name) or _is_entered(pair.new, site.number):
                    continue
                awaited = _awaited(pair.new, site.number)
                if isinstance(first, Method) and not awaited and _is_used(pair.new, site.number):
                    text = "no longer awaits the coroutine"
                    yield Reckoned(pair.new, site.call.at, first, first, text, site.sure)


def _awaits(unit: Unit) -> set[str]:
    """The names of what is called and awaited in a unit."""
    found = set()
    for value in unit.code.values:
        if value.op == "await":
            call = unit.code.values[value.args[0]]
            callee = unit.code.values[call.args[0]] if call.op == "call" else call
            if callee.op in ("attr", "name"):
                found.add(str(callee.data))
    return found


def _is_remote(site: Site) -> bool:
    callee = site.unit.code.values[site.unit.code.values[site.number].args[0]]
    return callee.op == "attr" and callee.data in ("remote", "submit")


def _awaited(unit: Unit, number: int) -> bool:
    return any(unit.code.values[user].op == "await" for user in unit.users.get(number, ()))


def _is_entered(unit: Unit, number: int) -> bool:
    """Whether a result is entered as a context: `async with` waits by itself."""
    return any(unit.code.values[user].op == "enter" for user in unit.users.get(number, ()))


def _is_used(unit: Unit, number: int) -> bool:
    """Whether a result is dropped, taken apart as no coroutine can be, or handed to what waits for none."""
    users = [unit.code.values[user] for user in unit.users.get(number, ()) if unit.code.values[user].op != "mut"]
    if not users:
        return all(block.end[1] != number for block in unit.code.blocks if block.end[0] in ("return", "branch"))
    if any(user.op in _USING for user in users):
        return True
    calls = [user for user in users if user.op == "call" and number in user.args[1:]]
    return bool(calls) and all(_callee(unit, call) not in _WAITING for call in calls)


def _callee(unit: Unit, call: Value) -> str:
    callee = unit.code.values[call.args[0]]
    return str(callee.data) if callee.op in ("attr", "name") else ""


def _stood(side: Side, unit: Unit, at: At) -> bool:
    """Whether the line of a place stood in the same file before."""
    source = side.project.files.get(unit.path)
    line = unit.module.source.text.split("\n")[at[0] - 1].strip()
    return source is not None and any(line == other.strip() for other in source.text.split("\n"))


def _unfit(unit: Unit, number: int, before: Forms, after: list[Forms]) -> Iterator[tuple[Use, int]]:
    """What is done with a value that fits none of what it may be now, and did fit what it was."""
    for use, user, taken in uses(unit, number):
        if all(fits(each, use) is False for each in after):
            if fits(before, use) is not False:
                yield use, user
            continue
        if use.kind == "unpack" and fits(before, use) is True and all(_PART in each for each in after):
            yield use, user
            continue
        for item, element in taken:
            yield from _unfit(unit, element, part(before, item), [part(each, item) for each in after])


def _said(use: Use, after: Forms) -> str:
    if use.kind == "item" and isinstance(use.what, str) and any(form and form.keys for form in after):
        return f"asks for the key {use.what!r}, which the result no longer has"
    if _PART in after and use.kind == "unpack":
        return f"{_doing(use)}, on one way it gives one of them alone now"
    return f"{_doing(use)}, it gives {shown(after)} now"


def _doing(use: Use) -> str:
    if use.kind == "unpack":
        return f"unpacks {use.what} values"
    return f"asks for `.{use.what}`" if use.kind == "attr" else f"asks for item {use.what!r}"


def _done(unit: Unit, number: int) -> Iterator[Use]:
    """What is done with a result, and with what it is after `await` and `ray.get`."""
    for each in _carried(unit, number):
        for use, _, _ in uses(unit, each):
            yield use


def _takes_apart(unit: Unit, number: int) -> bool:
    """Whether a value is run through, unpacked or asked for a member, and never tested."""
    values = unit.code.values
    users = [values[user] for user in unit.users.get(number, ())]
    tested = any(user.op in ("compare", "unary", "phi", "not") for user in users)
    tested = tested or any(block.end[0] == "branch" and block.end[1] == number for block in unit.code.blocks)
    spread = (
        user.op == "call" and any(k == "*" and v == number for k, v in zip(user.data.names, user.args[1:], strict=True))
        for user in users
    )
    return not tested and (any(user.op in ("iter", "unpack", "item", "attr") for user in users) or any(spread))


def _puts(unit: Unit, key: str) -> bool:
    """Whether a function puts a key into some dictionary."""
    values = unit.code.values
    for value in values:
        if value.op == "store_item" and values[value.args[1]].data == key:
            return True
        method = values[value.args[0]].data if value.op == "call" and values[value.args[0]].op == "attr" else ""
        first = values[value.args[1]].data if method == "setdefault" and len(value.args) > 1 else None
        if first == key or method == "update" and key in value.data.names:
            return True
    return False


def _asks_whether_true(unit: Unit, number: int) -> bool:
    """Whether a way is chosen by a value, or by the opposite of it."""
    opposite = {n for n in unit.users.get(number, ()) if unit.code.values[n].op == "unary"}
    return any(block.end[0] == "branch" and block.end[1] in {number, *opposite} for block in unit.code.blocks)


def _giving(unit: Unit, some: bool = True) -> list[ast.Return]:
    """The `return`s of a function that give something, or those that give nothing."""
    node = node_of(unit)
    found = (each for each in ast.walk(node) if isinstance(each, ast.Return)) if node is not None else ()
    return [each for each in found if (each.value is not None and ast.unparse(each.value) != "None") is some]


def _given_at(unit: Unit, method: Method) -> At:
    """Where a function gives something back."""
    given = _giving(unit)
    return unit.module.source_text.at(given[-1]) if given else method.facts.name_at


def _gives_one_alone(pair: Pair) -> bool:
    """Whether a function that gave several values together gives one of these alone now."""
    before, after = ([each.value for each in _giving(unit)] for unit in pair)
    if not before or not after or not all(isinstance(each, ast.Tuple) for each in before):
        return False
    parts = {ast.dump(part) for each in before if isinstance(each, ast.Tuple) for part in each.elts}
    return all(each is not None and ast.dump(each) in parts for each in after)


def _names_given(unit: Unit) -> list[str]:
    """The names of the values that a function gives back together, at its one place that gives several."""
    tuples = [each.value for each in _giving(unit) if isinstance(each.value, ast.Tuple)]
    if len(tuples) != 1:
        return []
    named = [_identifiers(each) for each in tuples[0].elts]
    of_all = set.intersection(*map(set, named)) if len(named) > 1 else set()  # `numpy` in `a.numpy(), b.numpy()`
    own = ([name for name in names if name not in of_all] for names in named)
    return [names[-1] if names else "?" for names in own]


def _identifiers(value: ast.expr) -> list[str]:
    """The names in what gives a value its name: a variable, the attributes behind it, the function that is called."""
    if isinstance(value, ast.Call):
        return _identifiers(value.func)
    if isinstance(value, ast.Attribute):
        return [*_identifiers(value.value), value.attr]
    return [value.id] if isinstance(value, ast.Name) else [name] if (name := last_name(value)) else []


def _unpacked(site: Site) -> tuple[list[str], bool]:
    """The names into which a result is unpacked where it is called, and whether one with a star takes the rest."""
    node, text = node_of(site.unit), site.unit.module.source_text
    for each in ast.walk(node) if node is not None else ():
        if isinstance(each, ast.Assign) and isinstance(each.targets[0], ast.Tuple):
            value = each.value.value if isinstance(each.value, ast.Await) else each.value
            if isinstance(value, ast.Call) and text.at(value) == site.call.at:
                named = list(takewhile(lambda name: not isinstance(name, ast.Starred), each.targets[0].elts))
                return [_called(name) for name in named], len(named) < len(each.targets[0].elts)
    return [], False


def _called(target: ast.expr) -> str:
    """By which name a value is put where it is unpacked: of a variable, an attribute or a key."""
    if isinstance(target, ast.Subscript) and isinstance(target.slice, ast.Constant):
        return str(target.slice.value)
    return last_name(target)


def _means(name: str, before: str, after: str) -> bool:
    """Whether a caller's name for a value is that of what was given before and not of what is given now."""
    if before in (name, after) or name == after:
        return before == name
    words, was, now = (set(each.strip("_").lower().split("_")) for each in (name, before, after))
    return bool(words & (was - now)) and not words & (now - was)


def _returned(unit: Unit) -> list[str]:
    """What stands behind each `return`."""
    node = node_of(unit)
    found = ast.walk(node) if node is not None else ()
    return [ast.unparse(each) for each in found if isinstance(each, ast.Return)]


def _carried(unit: Unit, number: int) -> Iterator[int]:
    """A result, and what it is after `await` and `ray.get`."""
    yield number
    for user in unit.users.get(number, ()):
        value = unit.code.values[user]
        if value.op == "await":
            yield from _carried(unit, user)
        elif value.op == "call" and len(value.args) == 2 and value.args[1] == number:
            callee = unit.code.values[value.args[0]]
            owner = unit.code.values[callee.args[0]] if callee.op == "attr" else callee
            if callee.op == "attr" and callee.data == "get" and owner.op == "name" and owner.data == "ray":
                yield from _carried(unit, user)
