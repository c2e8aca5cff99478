"""What nothing in a project uses: functions, classes and files that no code on the way from a program mentions.

A finding there may be right and hurts nobody who runs the project. Going by names errs on the side of use: a method is
used wherever anything of its name is asked for.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cached_property
from typing import NamedTuple

from validator.analysis.interfaces.unspelled import Unspelled
from validator.analysis.known_calls import KnownCalls
from validator.definitions import PLAIN_BASES, ClassDef, External, Method, Module, Symbol, Value
from validator.files.naming import is_installed
from validator.files.programs import COMMAND_LINE
from validator.finding import Severity
from validator.flow import Flow
from validator.flow.callgraph.name_index import words_of
from validator.flow.control import reached
from validator.flow.foreign import NOBODY
from validator.flow.program.symbols import is_plain
from validator.flow.program.unit import Unit
from validator.flow.queries.base import Place
from validator.flow.queries.outside_program import is_archived, is_foreign, is_test
from validator.flow.values import Obj
from validator.ir import Value as Instruction
from validator.ir.model import CallShape
from validator.models.members import called_by, dispatched, is_known, is_wrapping, of_libraries
from validator.project import Project

_DECORATING = CallShape(("@",))
_NAMED = frozenset({"store_global", "store_class"})
# Keywords, parameters, variables, and what kind of container a comprehension makes: names of their own.
_NAMING = frozenset({"call", "param", "phi", "undefined", "collect"})
# Or an end of one, which the program puts the beginning to: `eval("models." + name + ".build")`.
_PATH = re.compile(r"[.:]?\w+(?:[.:/-]\w+)*")
_JOINED = frozenset({"undefined", "phi"})  # these stand where ways meet, not where the source has something
_UNSAID = -1
_KEYED = frozenset({"item", "store_item"})
_DISPLAYS = frozenset({"tuple", "list", "set"})
_OWN = frozenset({"inst", "self", "class"})
# What surely has no attribute that a class of the project gives to its objects.
_OTHERS = frozenset({"const", "ext", "tuple", "seq", "dict", "module", "unit", "bound", "tensor", "str"})
# Modules whose objects are what they were made as, and hand nothing on to what they were given.
_PLAIN_MODULES = frozenset({"collections", "datetime", "io", "logging", "os", "pathlib", "re", "string", "time"})


class Idle(NamedTuple):
    """Why nobody who runs the project comes to a line, and how severe a finding there may be at most."""

    severity: Severity
    why: str


class Usage:
    """Answers for one project, remembered."""

    def __init__(self, project: Project) -> None:
        self.project = project
        self.flow = project.analysis(Flow)
        self.names = project.analysis(Unspelled)
        self.known_calls = KnownCalls(self)
        self._used: dict[Unit, bool] = {}
        self._searched: set[Unit] = set()
        self._by_path = {module.path: module for module in project.modules.values()}

    def idle(self, path: str, line: int) -> Idle | None:
        """Why nobody who runs the project comes to a line; None where somebody may."""
        if is_test(path):
            return Idle("note", "it is in a test")
        if is_foreign(path):
            return Idle("note", "it is in a copy of somebody else's code")
        if is_archived(path):
            return Idle("note", "its folder says that it is of the past")
        module = self._by_path.get(path)
        around = list(self._around(module, line)) if module is not None else []
        unused = [unit for unit in around if not self._is_used(unit)] if self.has_programs else []
        if unused and all(map(self._is_shown, unused)):
            return Idle("warning", f"nothing in the project uses `{_called(unused[0])}`, only who installs it may")
        if unused:
            return Idle("note", f"nothing in the project uses `{_called(unused[0])}`")
        said = self._passed_by(around, line)
        return Idle("note", said) if said else None

    @cached_property
    def has_programs(self) -> bool:
        """Whether any file is written to be started: else everything is there for programs that are elsewhere."""
        return any(b"__main__" in module.source.data for module in self.project.modules.values())

    def _around(self, module: Module, line: int) -> Iterator[Unit]:
        """The functions and classes around a line, and the file."""
        for unit in self.flow.units_of(module).values():
            around = unit.code.kind == "module" or unit.code.at[0] <= line <= unit.code.at[2]
            if around and unit.code.kind != "lambda":
                yield unit

    def _passed_by(self, around: list[Unit], line: int) -> str:
        """Whether no way through a function comes to a line: behind `raise`, under a condition that never holds, in
        what a file does to try itself out."""
        unit = max(around, key=lambda each: (each.code.kind != "module", each.code.at[0]), default=None)
        if unit is None:
            return ""
        here = [value for value in unit.code.values if value.at[0] == line and value.op not in _JOINED]
        # behind the last statement of a function stands the None that it gives back
        blocks = {value.block for value in here if value.op != "const"} or {value.block for value in here}
        if not blocks:
            return ""
        if blocks.isdisjoint(reached(unit.code, lambda n: self.known_calls.literal(unit, n))):
            return "no way through the function leads there"
        if self.has_programs and blocks <= self._trials(unit):
            return "others import the file, and only who tries it out by itself comes there"
        if self.has_programs and blocks.isdisjoint(self.known_calls.reached(unit)):
            return "no call in the project leads there: what all of them pass rules it out"
        return ""

    # -- who uses what -------------------------------------------------------------------------------------

    def _is_used(self, unit: Unit) -> bool:
        """Whether some program comes to a unit by way of mentions, each in a class that is used."""
        if unit not in self._used:
            if unit in self._searched:
                return True  # of a class that its own methods lead back to
            self._searched.add(unit)
            seen, queue = {unit}, [unit]
            while queue:
                here = queue.pop()
                if self._used.get(here) or self.is_begun(here):
                    self._used[unit] = True
                    break
                users = dict.fromkeys(user for user, at in self.mentions(here) if self._is_come_to(user, at))
                fresh = [each for each in users if each not in seen and self._is_in_use(each, unit)]
                seen.update(fresh)
                queue += fresh
            else:
                self._used[unit] = False
            self._searched.discard(unit)
        return self._used[unit]

    def _is_come_to(self, user: Unit, number: int) -> bool:
        """Whether some way through a unit comes to a mention, as far as it is known what the calls of it pass."""
        if number == _UNSAID:
            return True
        ways = self._ways.get(user)
        if ways is None:
            ways = self._ways[user] = frozenset(self.known_calls.reached(user))
        return user.code.values[number].block in ways

    @cached_property
    def _ways(self) -> dict[Unit, frozenset[int]]:
        return {}

    def _is_in_use(self, user: Unit, unit: Unit) -> bool:
        """Whether the class is used in which somebody stands who may use a unit."""
        body = user.outer
        return body is None or body.code.kind != "class" or _is_inside(unit, body) or self._is_used(body)

    def is_begun(self, unit: Unit) -> bool:
        """Whether something that is no mention in code begins a unit: a command, a recipe, a decorator, a library."""
        if unit.code.kind == "module":
            return self._is_live(unit.module)
        in_code = self.is_begun_in_code(unit) and not self._is_only_wrapped(unit)
        return unit.name in self.names.in_files or in_code

    def is_begun_in_code(self, unit: Unit) -> bool:
        """The same of a function or class, but for commands and recipes, which spell its name."""
        if self._is_looked_up(unit):
            return True
        if unit.code.kind == "class":
            return unit.cls is None or _is_registered(unit.cls)
        return unit.method is not None and not is_plain(unit.method.facts.decorators)

    def _is_only_wrapped(self, unit: Unit) -> bool:
        """Whether code asks for a function by its name alone: decorators of libraries tell nobody of it."""
        method = unit.method
        if method is None or unit.code.kind == "class" or self._is_looked_up(unit):
            return False
        made = (self.project.lookup(method.module.top, each.partition("(")[0]) for each in method.facts.decorators)
        return all(isinstance(symbol, External) and is_wrapping(symbol.path) for symbol in made)

    def is_for_users(self, unit: Unit) -> bool:
        """Whether a unit is there for those who install the project: a package's own file gives it to them."""
        top, names = unit, []
        while top.outer is not None and top.outer.code.kind != "module":
            names.append(top.name)
            top = top.outer
        names.append(top.name)
        private = any(name.startswith("_") and not name.endswith("__") for name in names)
        return top.code.kind != "module" and not private and (top.module, top.name) in self._exported

    def _is_shown(self, unit: Unit) -> bool:
        """Whether users are shown a unit that is there for them: the outermost package gives it, or a test uses it."""
        top = unit
        while top.outer is not None and top.outer.code.kind != "module":
            top = top.outer
        if not self.is_for_users(unit):
            return False
        tested = any(is_test(each.path) for each in self.flow.mentions.naming(unit.name))
        return tested or (top.module, top.name) in self._exported_first

    @cached_property
    def _exported_first(self) -> frozenset[tuple[Module, str]]:
        return self._given(is_outermost=True)

    @cached_property
    def _exported(self) -> frozenset[tuple[Module, str]]:
        return self._given(is_outermost=False)

    def _given(self, is_outermost: bool) -> frozenset[tuple[Module, str]]:
        """What the packages, or the outermost ones, of a project that can be installed give to others in their own
        files."""
        packages = (m for m in self.project.modules.values() if m.is_package and not (is_outermost and "." in m.name))
        given = [(m, name) for m in packages if is_installed(m.source.absolute) for name in m.facts.names]
        given += [(module, name) for module in dict.fromkeys(m for m, _ in given) for name in self._starred(module)]
        symbols = [module.member(name) for module, name in given]
        return frozenset((each.module, each.name) for each in symbols if isinstance(each, Method | ClassDef))

    def _starring(self, module: Module) -> Iterator[Module]:
        """The files that take over all names of a file: `from .models import *`."""
        if module.name.rpartition(".")[2] in self.project.starred:
            for each in self.project.modules.values():
                names = (each.absolute(name, level) for name, level in each.facts.star_imports)
                if each is not module and any(self.project.import_module(each, name) is module for name in names):
                    yield each

    def _starred(self, package: Module) -> Iterator[str]:
        """The names that a package takes over from others with `*`."""
        for name, level in package.facts.star_imports:
            module = self.project.modules.get(package.absolute(name, level))
            yield from module.facts.names if module is not None else ()

    def _is_looked_up(self, unit: Unit) -> bool:
        """Whether code may ask for a name that it puts together or is given, or hands all names of a file on."""
        if unit.outer is not None and unit.outer.code.kind == "module":
            starred = not unit.name.startswith("_") and unit.module.name.rpartition(".")[2] in self.project.starred
            if starred or unit.module in self._opened:
                return True
        return self.is_put_together(unit.name)

    def is_put_together(self, name: str) -> bool:
        """Whether some code puts together a text that begins with the first words of a name: `f"train_{name}"`."""
        return self.names.may_be_begun(name)

    @cached_property
    def _opened(self) -> frozenset[Module]:
        """The files of which code takes what a computed name says: `getattr(models, args.arch)`, `globals()[name]`."""
        found: set[Symbol] = {function.module for function, _ in self.project.calls("globals")}
        for function, call in self.project.calls("getattr", "vars", "dir", "getmembers"):
            first, *others = call.args or (None,)
            if first is not None and first.kind == "path" and not (others and others[0].kind == "const"):
                found.add(self.project.lookup(function, first.value))
        for function in self.project.functions():
            paths = (ref.path.partition(".__dict__") for ref in function.facts.refs)
            found.update(self.project.lookup(function, head) for head, inside, _ in paths if inside)
        return frozenset(each for each in found if isinstance(each, Module))

    def _is_live(self, module: Module) -> bool:
        """Whether a file is started, or is a package's own."""
        name = module.name.rpartition(".")[2]
        started = b"__main__" in module.source.data and not self._trials(self._top(module))
        return started or module.path.endswith("__init__.py") or name in self.names.in_files or _acts(module)

    def _top(self, module: Module) -> Unit | None:
        return self.flow.units_of(module).get("<module>")

    def _trials(self, unit: Unit | None) -> frozenset[int]:
        """The blocks under `__main__` of a file that other files import, takes no command line and has no function of
        its own for what it does there: nobody but its author runs it by itself."""
        if unit is None or unit.code.kind != "module":
            return frozenset()
        known = self._trying.get(unit)
        if known is None:
            known = self._trying[unit] = self._tried(unit)
        return known

    @cached_property
    def _trying(self) -> dict[Unit, frozenset[int]]:
        return {}

    def _tried(self, unit: Unit) -> frozenset[int]:
        module, values = unit.module, unit.code.values
        own = _under_main(unit)
        name = module.name.rpartition(".")[2]
        if not own or name in self.names.in_files or any(word in module.source.data for word in COMMAND_LINE):
            return frozenset()
        called = (values[value.args[0]] for value in values if value.op == "call" and value.block in own)
        if any(each.op == "closure" and not each.data.endswith(".<class>") for each in called):
            return frozenset()
        importing = (user for user, _ in self.mentions(unit) if user.module is not module and not is_test(user.path))
        return own if any(importing) else frozenset()

    def mentions(self, unit: Unit) -> Iterator[tuple[Unit, int]]:
        """The units from which a unit is come to, with the values that mention it: `_UNSAID` where none does."""
        outer, name = unit.outer, unit.name
        if unit.code.kind == "module":
            name = unit.module.name.rpartition(".")[2]
            yield from ((top, _UNSAID) for each in self._starring(unit.module) if (top := self._top(each)) is not None)
        elif outer is not None and self.is_hook(unit):
            yield outer, _UNSAID
            return
        for each in self.flow.mentions.units(name):
            if not _is_inside(each, unit) and not self._is_of_tests(each):
                trials = self._trials(each) if unit.code.kind != "module" else ()
                for number in range(len(each.code.values)):
                    if each.code.values[number].block not in trials and self._may_mean(each, number, unit, name):
                        yield each, number
        if unit.code.kind == "class" and unit.cls is not None:
            yield from (
                (body, _UNSAID) for below in unit.cls.subclasses if (body := self.flow.body_of(below)) is not None
            )

    @staticmethod
    def _is_of_tests(unit: Unit) -> bool:
        """Whether a unit is of a test that is no program: what only tests run nobody else does."""
        return is_test(unit.path) and b"__main__" not in unit.module.source.data

    def is_hook(self, unit: Unit) -> bool:
        """Whether Python or a library may call a method without the project speaking of it: one that all objects have,
        or objects of a base outside the project."""
        if unit.outer is None or unit.outer.code.kind != "class":
            return False
        cls = unit.outer.cls
        if unit.name.startswith("__") and unit.name.endswith("__") or cls is None:
            return True
        bases = [base for base in cls.external_bases if base not in PLAIN_BASES]
        caller = called_by(unit.name)
        if caller and not self.flow.mentions.units(caller):
            return not all(map(is_known, bases))
        return any(not is_known(base) or dispatched(base, unit.name) for base in bases) or (
            bool(bases) and unit.name in of_libraries()
        )

    def _may_mean(self, user: Unit, number: int, unit: Unit, name: str) -> bool:
        """Whether an instruction may speak of a unit of that name, as far as is known of which object it asks."""
        value = user.code.values[number]
        if value.op.startswith("store_") or value.op in _NAMING or not _names(value, name) or _is_key(user, number):
            return False
        if value.op == "closure":
            return user is unit.outer and value.data == unit.code.key and self._is_taken(user, number)
        if value.op == "import":  # where nothing else is done with it only a package gives it to others
            given = unit.code.kind == "module" or user.path.endswith("__init__.py")
            return given or self._is_taken(user, number) or _is_renamed(user, number, name)
        if value.op == "attr":
            return self._may_have(user, value.args[0], unit)
        if value.op == "name" and unit.outer is not None and unit.outer.code.kind == "class":
            return user is unit.outer  # elsewhere what a class gives is asked for as an attribute
        symbol = self.flow.symbol(user, value) if value.op == "name" else None
        meant = {Method: unit.method, ClassDef: unit.cls, External: None}
        return type(symbol) not in meant or symbol is meant[type(symbol)] or unit.code.kind == "module"

    def _is_taken(self, user: Unit, number: int) -> bool:
        """Whether what is defined or imported here, decorated or not, is more than given its name."""
        values = user.code.values
        if any(block.end[0] != "jump" and block.end[1] == number for block in user.code.blocks):
            return True  # it is given back, tested or raised
        trials = self._trials(user)
        users = [n for n in user.users.get(number) if values[n].op not in _NAMED and values[n].block not in trials]
        return any(values[each].data != _DECORATING or self._is_taken(user, each) for each in users)

    def _may_have(self, user: Unit, number: int, unit: Unit) -> bool:
        """Whether an object may be one whose attribute a unit is, as the file tells it by itself, else as the flow."""
        value, outer = user.code.values[user.root(number)], unit.outer
        symbol = self.flow.symbol(user, value) if value.op in ("name", "import") else None
        own = user.cls if value.op == "param" and user.is_receiver(user.root(number)) else symbol
        if isinstance(own, ClassDef):
            asking = user.method if own is user.cls else None
            return outer is not None and _may_be_of(own, outer.cls) and _is_asked_of_itself(asking, unit)
        if isinstance(own, External | Method):
            return False
        if outer is None or outer.cls is None or isinstance(own, Module):
            return True
        if isinstance(own, Value) and self._is_made_outside(own):
            return False
        held = Place(self.flow, user, number).closed.each
        return not held or any(_may_give(o, outer.cls) for o in held)

    def _is_made_outside(self, variable: Value) -> bool:
        """Whether libraries make all that a variable of a file holds, of nothing that is the project's."""
        rows = [
            (unit, value.args[0])
            for unit in self.flow.whole_units(variable.module)
            for value in unit.code.values
            if value.op == "store_global" and value.data == variable.name
        ]
        return bool(rows) and not self.flow.stores.writers(variable.name) and all(map(self._is_call_outside, rows))

    def _is_call_outside(self, row: tuple[Unit, int]) -> bool:
        unit, number = row
        values = unit.code.values
        call = values[unit.root(number)]
        if call.op != "call":
            return False
        callee, *given = (Place(self.flow, unit, each) for each in call.args)
        plain = all(each.value.op == "const" or each.value.data == "__name__" for each in given)
        return plain and bool(callee.closed.each) and all(o[0] == "ext" for o in callee.closed.each)


def _may_give(o: Obj, cls: ClassDef) -> bool:
    """Whether what is known of an object lets it have what a class gives."""
    if o[0] in _OWN:
        return _may_be_of(o[1], cls)
    if o[0] == "tensor" and o[1] is None:
        return True  # `.half()` and `.to(dtype)` of what is unknown: models have these methods as well
    if o[0] == "ext" and o[1].partition(".")[0] == NOBODY:
        return True  # an attribute of what nobody knows: a proxy's, say, which asks an object of the project
    return o[0] not in _OTHERS and not (o[0] == "made" and o[1].partition(".")[0] in _PLAIN_MODULES)


def _may_be_of(own: ClassDef, cls: ClassDef | None) -> bool:
    """Whether an object of a class, or of one below it, may have what another class gives: by inheritance, or by
    `__getattr__`, which may ask any object."""
    above = {each for below in (own, *own.descendants()) for each in (below, *below.mro)}
    return cls in above or any(name in each.methods for each in above for name in ("__getattr__", "__getattribute__"))


def _is_asked_of_itself(asking: Method | None, unit: Unit) -> bool:
    """Whether objects of which a unit is a method also run the one that asks its own object for it: a class that
    overrides that one may never."""
    if asking is None or unit.cls is None or unit.method is None or asking.facts.is_static:
        return True
    heirs = (each for each in (unit.cls, *unit.cls.descendants()) if each.runs(unit.method))
    return any(each.runs(asking) for each in heirs)


def _is_key(unit: Unit, number: int) -> bool:
    """Whether a text only says what is meant in a container, or is compared, alone or among others: nothing is asked
    for a member by it."""
    values = unit.code.values
    users = unit.users.get(number) if values[number].op == "const" else ()
    return bool(users) and all(_is_compared(unit, each) or _is_keyed(values[each], number) for each in users)


def _is_keyed(user: Instruction, number: int) -> bool:
    return user.op in _KEYED and user.args[1] == number and user.args.count(number) == 1


def _is_compared(unit: Unit, user: int) -> bool:
    """Whether an instruction compares, or makes what is only asked whether it has something in it."""
    values = unit.code.values
    if values[user].op in _DISPLAYS:
        among = [values[each] for each in unit.users.get(user)]
        return bool(among) and all(each.op == "compare" and each.data in ("In", "NotIn") for each in among)
    return values[user].op == "compare"


def _names(value: Instruction, name: str) -> bool:
    """Whether an instruction has a name in it: a text where it is a name, or a path to it, and no prose."""
    if value.op == "const" and isinstance(value.data, str) and not _PATH.fullmatch(value.data):
        return False
    return name in words_of((value.data,))


def _under_main(unit: Unit) -> frozenset[int]:
    """The blocks of a file that only run where it is started itself."""
    code = unit.code
    for number, block in enumerate(code.blocks):
        test = code.values[block.end[1]] if block.end[0] == "branch" else None
        if test is not None and test.op == "compare" and test.data == "Eq":
            words = {code.values[each].data for each in test.args}
            if words == {"__name__", "__main__"}:
                leads = unit.control.leads
                return frozenset(b for b in range(len(code.blocks)) if leads(b, number, block.end[2]))
    return frozenset()


def _called(unit: Unit) -> str:
    return unit.path if unit.code.kind == "module" else unit.qualname.removesuffix(".<class>")


def _is_renamed(user: Unit, number: int, name: str) -> bool:
    """Whether a file imports something under another name, by which its functions ask for it."""
    stores = (user.code.values[each] for each in user.users.get(number, ()))
    return any(value.op in _NAMED and value.data != name for value in stores)


def _is_inside(unit: Unit | None, other: Unit) -> bool:
    while unit is not None and unit is not other:
        unit = unit.outer
    return unit is not None


def _is_registered(cls: ClassDef) -> bool:
    """Whether a class is known to somebody by being defined: a decorator, a metaclass, `__init_subclass__`."""
    if any("__init_subclass__" in each.methods or each.facts.keywords for each in cls.mro):
        return True
    return not cls.has_plain_decorators


def _acts(module: Module) -> bool:
    """Whether a file does something when it is run, besides making what it defines and telling others of its classes:
    `AutoModel.register(Config, Model)`."""
    calls = (call for call in module.top.facts.calls if call.use == "discard")
    return any(not any(each.value in module.classes for each in call.args) for call in calls)
