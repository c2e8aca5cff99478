"""What nothing in a project uses: functions, classes and files that no code on the way from a program mentions.

A finding there may be right and hurts nobody who runs the project. Going by names errs on the side of use: a method is
used wherever anything of its name is asked for.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property

from validator.analysis.interfaces.unspelled import Unspelled
from validator.definitions import PLAIN_BASES, ClassDef, External, Method, Module, Symbol
from validator.flow import Flow
from validator.flow.callgraph.name_index import words_of
from validator.flow.program.symbols import is_plain
from validator.flow.program.unit import Unit
from validator.flow.queries.outside_program import is_foreign, is_test
from validator.ir.model import CallShape, Code
from validator.project import Project

_DECORATING = CallShape(("@",))
_NAMED = frozenset({"store_global", "store_class"})
_NAMING = frozenset({"call", "param"})  # keywords and parameters are names of their own


class Usage:
    """Answers for one project, remembered."""

    def __init__(self, project: Project) -> None:
        self.project = project
        self.flow = project.analysis(Flow)
        self.names = project.analysis(Unspelled)
        self._used: dict[Unit, bool] = {}
        self._by_path = {module.path: module for module in project.modules.values()}

    def idle(self, path: str, line: int) -> str:
        """In a few words why nobody who runs the project comes to a line; empty where somebody may."""
        if is_test(path):
            return "it is in a test"
        if is_foreign(path):
            return "it is in a copy of somebody else's code"
        module = self._by_path.get(path)
        around = list(self._around(module, line)) if module is not None else []
        unused = (unit for unit in around if not self._is_used(unit)) if self.has_programs else ()
        said = next((f"nothing in the project uses `{_called(unit)}`" for unit in unused), "")
        return said or _passed_by(around, line)

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

    def _is_used(self, unit: Unit) -> bool:
        """Whether some program comes to a unit by way of mentions."""
        if unit not in self._used:
            seen, queue = {unit}, [unit]
            while queue:
                here = queue.pop()
                if self._used.get(here) or self._is_begun(here):
                    self._used[unit] = True
                    break
                fresh = [each for each in self._mentions(here) if each not in seen]
                seen.update(fresh)
                queue += fresh
            else:
                self._used.update(dict.fromkeys(seen, False))
        return self._used[unit]

    def _is_begun(self, unit: Unit) -> bool:
        """Whether something that is no mention in code begins a unit: a command, a recipe, a decorator, a library."""
        if unit.code.kind == "module":
            return self._is_live(unit.module)
        if unit.name in self.names.in_files or self._is_looked_up(unit):
            return True
        if unit.code.kind == "class":
            return unit.cls is None or _is_registered(unit.cls)
        return unit.method is not None and not is_plain(unit.method.facts.decorators)

    def _is_looked_up(self, unit: Unit) -> bool:
        """Whether code may ask for a name that it puts together or is given, or hands all names of a file on."""
        if unit.outer is not None and unit.outer.code.kind == "module":
            starred = not unit.name.startswith("_") and unit.module.name.rpartition(".")[2] in self.project.starred
            if starred or unit.module in self._opened:
                return True
        # who puts the name together spells its first words, with something behind them that is filled in
        words = unit.name.split("_")
        starts = ("_".join([*words[:end], ""]) for end in range(1, len(words)) if any(words[:end]))
        spelled = [f"{start}{mark}".encode() for start in starts for mark in "{%"]
        return any(each in module.source.data for module in self.project.modules.values() for each in spelled)

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
        data = module.source.data
        return (
            b"__main__" in data or module.path.endswith("__init__.py") or name in self.names.in_files or _acts(module)
        )

    def _mentions(self, unit: Unit) -> Iterator[Unit]:
        """The units from which a unit is come to."""
        outer, name = unit.outer, unit.name
        if unit.code.kind == "module":
            name = unit.module.name.rpartition(".")[2]
        elif outer is not None and outer.code.kind == "class" and self._may_be_hook(outer.cls, name):
            yield outer
            return
        for each in self.flow.mentions.units(name):
            if not _is_inside(each, unit) and any(
                self._may_mean(each, n, unit, name) for n in range(len(each.code.values))
            ):
                yield each
        if unit.code.kind == "class" and unit.cls is not None:
            yield from (body for below in unit.cls.subclasses if (body := self.flow.body_of(below)) is not None)

    def _may_be_hook(self, cls: ClassDef | None, name: str) -> bool:
        """Whether Python or a library may call a method without the project speaking of it."""
        special = name.startswith("__") and name.endswith("__")
        return special or cls is None or any(base not in PLAIN_BASES for base in cls.external_bases)

    def _may_mean(self, user: Unit, number: int, unit: Unit, name: str) -> bool:
        """Whether an instruction may speak of a unit of that name, as far as is known of which object it asks."""
        value = user.code.values[number]
        if value.op.startswith("store_") or value.op in _NAMING or name not in words_of((value.data,)):
            return False
        if value.op == "closure":
            return self._is_taken(user, number)
        if value.op == "import":  # where nothing else is done with it only a package gives it to others
            return self._is_taken(user, number) or unit.code.kind == "module" or user.path.endswith("__init__.py")
        if value.op == "attr":
            return self._may_have(user, value.args[0], unit)
        symbol = self.flow.symbol(user, value) if value.op == "name" else None
        meant = {Method: unit.method, ClassDef: unit.cls, External: None}
        return type(symbol) not in meant or symbol is meant[type(symbol)] or unit.code.kind == "module"

    def _is_taken(self, user: Unit, number: int) -> bool:
        """Whether what is defined or imported here, decorated or not, is more than given its name."""
        values = user.code.values
        users = [each for each in user.users.get(number) if values[each].op not in _NAMED]
        return any(values[each].data != _DECORATING or self._is_taken(user, each) for each in users)

    def _may_have(self, user: Unit, number: int, unit: Unit) -> bool:
        """Whether an object may be one whose attribute a unit is, as the file tells it by itself."""
        value, outer = user.code.values[user.root(number)], unit.outer
        symbol = self.flow.symbol(user, value) if value.op in ("name", "import") else None
        own = user.cls if value.op == "param" and user.is_receiver(user.root(number)) else symbol
        if isinstance(own, ClassDef):
            below = (own, *own.descendants())
            return outer is not None and outer.cls in {above for each in below for above in (each, *each.mro)}
        return not isinstance(own, External | Method)


def _passed_by(around: list[Unit], line: int) -> str:
    """Whether no way through a function comes to a line: behind `raise`, under a condition that never holds."""
    unit = max(around, key=lambda each: (each.code.kind != "module", each.code.at[0]), default=None)
    if unit is None:
        return ""
    blocks = {value.block for value in unit.code.values if value.at[0] == line and value.op != "undefined"}
    return "no way through the function leads there" if blocks and blocks.isdisjoint(_reached(unit.code)) else ""


def _reached(code: Code) -> set[int]:
    """The blocks to which some way leads, going by conditions that are constants."""
    found, queue = {0}, [0]
    while queue:
        block = code.blocks[queue.pop()]
        following = [*block.successors(), *block.handlers]
        if block.end[0] == "branch" and (test := code.values[block.end[1]]).op == "const":
            following = [block.end[2 if test.data else 3], *block.handlers]
        fresh = [each for each in following if each not in found]
        found.update(fresh)
        queue += fresh
    return found


def _called(unit: Unit) -> str:
    return unit.path if unit.code.kind == "module" else unit.qualname.removesuffix(".<class>")


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
    """Whether a file does something when it is run, besides making what it defines."""
    return any(call.use == "discard" for call in module.top.facts.calls)
