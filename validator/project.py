"""Facts of many files linked into one project: modules, classes, methods, and what a name means where it stands.

Nothing here judges. What cannot be resolved is `Unknown`, what lies outside the project is `External` with its
full dotted name, and what should be there and is not is `Missing`; rules decide what to make of it.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterable, Iterator
from functools import cached_property
from operator import itemgetter
from typing import TYPE_CHECKING, Any, TypeVar

from validator.definitions import ClassDef, External, Method, Missing, Module, Symbol, Unknown, Value
from validator.facts.model import Call, Guard, Import
from validator.files import naming
from validator.files.programs import mark_programs
from validator.models.members.public_names import LIBRARIES
from validator.source import SourceFile

if TYPE_CHECKING:
    from validator.analysis.interfaces.families import Families


__all__ = [
    "ClassDef", "External", "Method", "Missing", "Module", "Project", "Symbol", "Unknown", "Value", "guarded_by",
]  # fmt: skip

T = TypeVar("T")
_WORDS = re.compile(r"[A-Za-z_]\w*")


class Project:
    """The linked files of one run."""

    def __init__(self, files: Iterable[SourceFile], config: Any = None) -> None:
        naming.forget()
        self.config = config
        files = list(files)
        mark_programs(f for f in files if f.facts.language == "python")
        self.files: dict[str, SourceFile] = {f.path: f for f in files}
        code = [f for f in self.files.values() if f.facts.language == "python"]
        self.finder = naming.Finder(f.absolute for f in code)
        self.modules: dict[str, Module] = {}  # by absolute path of the file
        for source in code:
            if source.facts.problem is None:
                self.modules[source.absolute] = Module(self, source, naming.locate(source.absolute))
        self._members: dict[tuple[Module, str], Symbol] = {}
        self._lookups: dict[tuple[Method, str], Symbol] = {}
        self._analyses: dict[type, Any] = {}
        self._imported: dict[tuple[Module, str], list[Module | Unknown | Missing]] = {}
        self._started: dict[str, bool] = {}
        for cls in self.classes():
            for base in cls.bases:
                if isinstance(base, ClassDef):
                    base.subclasses.append(cls)

    @cached_property
    def families(self) -> Families:
        """Classes that stand in for each other."""
        from validator.analysis.interfaces.families import Families

        return Families(self)

    def analysis(self, kind: type[T]) -> T:
        """The one instance of an analysis class, made with this project when first asked for."""
        if kind not in self._analyses:
            self._analyses[kind] = kind(self)  # type: ignore[call-arg]
        found: T = self._analyses[kind]
        return found

    # -- iteration -----------------------------------------------------------------------------------------

    def classes(self) -> Iterator[ClassDef]:
        for module in self.modules.values():
            yield from module.classes.values()

    def functions(self) -> Iterator[Method]:
        """Every function, method, class body and module top level."""
        for module in self.modules.values():
            yield from module.functions.values()

    def calls(self, *names: str) -> list[tuple[Method, Call]]:
        """The calls of functions and methods of these names, on whatever object, in the order of the files."""
        found = [row for name in dict.fromkeys(names) for row in self._calls.get(name, ())]
        if len(names) > 1:
            found.sort(key=itemgetter(0))
        return [(function, call) for _, function, call in found]

    @cached_property
    def _calls(self) -> dict[str, list[tuple[int, Method, Call]]]:
        found: dict[str, list[tuple[int, Method, Call]]] = {}
        for place, (function, call) in enumerate((f, call) for f in self.functions() for call in f.facts.calls):
            found.setdefault(call.method, []).append((place, function, call))
        return found

    @cached_property
    def defined(self) -> frozenset[str]:
        """Every name that a function or class of the project can be called by; most calls are of nothing in it."""
        found: set[str] = set()
        for module in self.modules.values():
            found.update(module.facts.names)
            found.update(name for _, name in module.imports)
            found.update(each.name for each in module.functions.values())
            found.update(each.rpartition(".")[2] for each in module.classes)
        return frozenset(found)

    @cached_property
    def given(self) -> frozenset[str]:
        """Every word by which something is given a name anywhere: definitions, stores, parameters, keywords. What is
        not among them is at most read."""
        found: set[str] = set(self.defined)
        for module in self.modules.values():
            found.update(name for cls in module.facts.classes for name, _ in cls.attributes)
            for function in module.facts.functions:
                found.update(param.name for param in function.params)
                found.update(function.bound)
                found.update(row.target.rpartition(".")[2] for row in function.assigns)
                found.update(ref.path.rpartition(".")[2] for ref in function.refs if ref.context == "store")
                for call in function.calls:
                    found.update(argument.keyword for argument in call.args if argument.keyword)
        return frozenset(found)

    @cached_property
    def texts(self) -> frozenset[str]:
        """The words in the texts that calls pass."""
        calls = (call for function in self.functions() for call in function.facts.calls)
        return frozenset(w for call in calls for a in call.args if a.kind == "const" for w in _WORDS.findall(a.value))

    @cached_property
    def starred(self) -> frozenset[str]:
        """The last names of the modules from which some file imports `*`."""
        facts = (module.facts for module in self.modules.values())
        return frozenset(name.rpartition(".")[2] for each in facts for name, _ in each.star_imports)

    @cached_property
    def _nested(self) -> dict[Method, list[Method]]:
        found: dict[Method, list[Method]] = {}
        for function in self.functions():
            outer = function.enclosing
            while outer is not None:
                found.setdefault(outer, []).append(function)
                outer = outer.enclosing
        return found

    def nested(self, function: Method) -> list[Method]:
        """The functions defined inside a function, at any depth."""
        return self._nested.get(function, [])

    # -- modules -------------------------------------------------------------------------------------------

    def module_at(self, path: str) -> Module | None:
        file = self.finder.file(path)
        return self.modules.get(file) if file is not None else None

    def import_module(self, importer: Module, name: str) -> Module | External | Unknown | Missing:
        """The module that `name`, absolute, means when `importer` imports it."""
        found = self._modules_of(importer, name)
        return found[0] if found else External(name)

    def through_folders(self, importer: Module, name: str) -> Module | None:
        """The module to which a name leads through folders without an `__init__.py` (`import src.util`); None else."""
        if name.partition(".")[0] not in self.finder.spaces:
            return None
        module = self.import_module(importer, name)
        return module if isinstance(module, Module) else None

    def _modules_of(self, importer: Module, name: str) -> list[Module | Unknown | Missing]:
        """What `name` may mean, the likeliest first. Empty: it lies outside the project."""
        known = self._imported.get((importer, name))
        if known is None:
            known = self._imported[importer, name] = self._found_as(importer, name)
        return known

    def _found_as(self, importer: Module, name: str) -> list[Module | Unknown | Missing]:
        top, *rest = name.split(".")
        modules: list[Module | Unknown | Missing] = []
        others: list[Module | Unknown | Missing] = []
        file = importer.source.absolute
        # a module beside the importer may bear the name of an installed package, which has modules of its own
        tops = [path for path in self.finder.tops(top, file) if not (rest and self.finder.is_module_file(path))]
        if not rest and top in sys.stdlib_module_names:
            tops = [path for path in tops if not self.finder.is_module_file(path) or self._hides_standard(path)]
        script = self._beside_script(importer, [top, *rest])
        if not any(self.finder.is_above(path, file) for path in tops):
            beside = script or self.finder.beside([top, *rest], file)
            if beside is None and tops:  # where a package above is the working directory, rather than some other folder
                above = ("/".join([folder, top, *rest]) for folder in self.finder.towards(file))
                beside = next((path for path in above if self.finder.file(path) is not None), None)
            modules += [module] if beside is not None and (module := self.module_at(beside)) is not None else []
        for path in tops:
            within = self.finder.is_below_package(os.path.dirname(path))
            path = "/".join([path, *rest])
            module = self.module_at(path)
            if module is not None:
                modules.append(module)
            else:
                known = within or self.finder.file(path) is not None or self.finder.on_disk(path)
                others.append(Unknown(name) if known else Missing(name, None))
        if modules and script is not None and (module := self.module_at(script)) is not None and module not in modules:
            modules.append(module)  # that one, where the program is started by its path
        if not modules:
            # also a folder beside a program, which may be started there, where a package further up bears its name
            space = self.finder.in_namespace([top, *rest]) or self.finder.beside([top, *rest], file)
            module = self.module_at(space) if space is not None else None
            modules = [module] if module is not None else []
        if not modules and not others:
            modules += self._on_path(importer, name)
        return modules + sorted(others, key=lambda each: isinstance(each, Missing))

    def _on_path(self, importer: Module, name: str) -> list[Module]:
        """The one module of that name below some folder, where a file beside the importer puts folders on the search
        path: `sys.path.insert(0, "../lib")`."""
        top, *rest = name.split(".")
        if (
            top in sys.stdlib_module_names
            or top in LIBRARIES
            or os.path.dirname(importer.source.absolute) not in self._adding
        ):
            return []
        whole = "/".join([top, *rest])
        found = []
        for module in self._by_last.get((rest or [top])[-1], []):
            inside = module.source.absolute.removesuffix("/__init__.py").removesuffix(".py")
            folder = inside.removesuffix(f"/{whole}")
            if folder != inside and not self.finder.is_below_package(f"{folder}/_"):
                found.append(module)
        return found if len(found) == 1 and found[0] is not importer else []

    @cached_property
    def _by_last(self) -> dict[str, list[Module]]:
        """The modules by the last part of their names."""
        found: dict[str, list[Module]] = {}
        for module in self.modules.values():
            folder, file = os.path.split(module.source.absolute)
            last = os.path.basename(folder) if file == "__init__.py" else file.removesuffix(".py")
            found.setdefault(last, []).append(module)
        return found

    @cached_property
    def _adding(self) -> frozenset[str]:
        """The folders of files that add to the search path."""
        rows = self.calls("insert", "append", "extend")
        files = (f.module.source.absolute for f, call in rows if call.target.startswith("sys.path."))
        return frozenset(map(os.path.dirname, files))

    def _beside_script(self, importer: Module, parts: list[str]) -> str | None:
        """The module that a name means beside a program in a package above the importer: where that is started, its own
        folder is looked through first."""
        for folder in self.finder.towards(importer.source.absolute):
            path = "/".join([folder, *parts])
            found = self.module_at(path)
            if found is not None and found is not importer and self._has_program(folder):
                return path
        return None

    def _hides_standard(self, path: str) -> bool:
        """Whether a module is found before the standard one of its name: beside a program that is started by its path,
        where its folder is no part of a package, whose modules are imported by longer names."""
        folder = os.path.dirname(path)
        return self._has_program(folder) and not self.finder.is_below_package(folder)

    def _has_program(self, folder: str) -> bool:
        """Whether a file of a folder is written to be started, and can be by its path: with relative imports it is not,
        and `python -m` looks nothing up in the folder."""
        known = self._started.get(folder)
        if known is None:
            rows = (each for each in self.modules.values() if os.path.dirname(each.source.absolute) == folder)
            known = any(b"__main__" in each.source.data and not _is_part_of_package(each) for each in rows)
            self._started[folder] = known
        return known

    def imported(self, importer: Module, row: Import) -> Symbol:
        """What an import binds."""
        name = importer.absolute(row.module, row.level)
        if row.level:
            module = self._relative(importer, row)
        elif row.name is None and row.asname is None:
            return self._another(importer, name.partition(".")[0])
        else:
            module = self._another(importer, name)
        if row.name is None:
            return module
        if isinstance(module, External):  # a folder without an `__init__.py` has modules, and no code of its own
            inside = self.import_module(importer, f"{name}.{row.name}") if not row.level else module
            return inside if isinstance(inside, Module) else External(f"{module.path}.{row.name}")
        if isinstance(module, Module):
            found = module.member(row.name)
            return (
                self._elsewhere(importer, name, row.name, found)
                if isinstance(found, Missing) and not row.level
                else found
            )
        return module if isinstance(module, Missing) else Unknown(f"{name}.{row.name}")

    def meanings(self, importer: Module, name: str, above: tuple[tuple[Module, str], ...] = ()) -> list[Symbol]:
        """All that the imports of a module may bind to a name, each under its condition: what they import may be
        imported there in several ways, too. Empty where no import binds it."""
        found: list[Symbol] = []
        if (importer, name) in above or importer.facts.names.get(name) != "import":
            return found
        for row in importer.imports_of(name):
            source = self._relative(importer, row) if row.level else self._another(importer, row.module)
            inner: list[Symbol] = []
            if isinstance(source, Module) and row.name is not None:
                inner = self.meanings(source, row.name, (*above, (importer, name)))
            found += inner if len(inner) > 1 else [self.imported(importer, row)]
        return list(dict.fromkeys(found))

    def member_of_any(self, importer: Module, module: Module, name: str) -> Symbol:
        """What a module has under a name; where it lacks it, what another module has that its name may mean as well."""
        found = module.member(name)
        return self._elsewhere(importer, module.name, name, found) if isinstance(found, Missing) else found

    def _another(self, importer: Module, name: str) -> Module | External | Unknown | Missing:
        """The module that an import statement means: `import logging` in a `logging.py` is not about that file."""
        found = [each for each in self._modules_of(importer, name) if each is not importer or "." in name]
        return found[0] if found else External(name)

    def _elsewhere(self, importer: Module, name: str, member: str, missing: Missing) -> Symbol:
        """A member that the likeliest module of this name lacks, in the others of the same name."""
        for module in self._modules_of(importer, name)[1:]:
            if not isinstance(module, Module):
                continue
            if not isinstance(found := module.member(member), Missing):
                return found
        return missing

    def _relative(self, importer: Module, row: Import) -> Module | External | Unknown | Missing:
        folder = importer.source.absolute.rpartition("/")[0]
        for _ in range(row.level - 1):
            folder = folder.rpartition("/")[0]
        path = "/".join([folder, *row.module.split(".")]) if row.module else folder
        module = self.module_at(path)
        if module is not None:
            return module
        known = self.finder.file(path) is not None or self.finder.on_disk(path)
        name = importer.absolute(row.module, row.level)
        return Unknown(name) if known or not row.module else Missing(name, None)

    def _member(self, module: Module, name: str) -> Symbol:
        key = (module, name)
        if key not in self._members:
            # an import cycle finds this: `from package import module` in the package itself means its module
            self._members[key] = self._submodule(module, name) or Unknown(name)
            self._members[key] = self._find_member(module, name)
        return self._members[key]

    def _submodule(self, package: Module, name: str) -> Module | Unknown | None:
        """A module in the folder of a package; Unknown where it is there but not read."""
        if not package.is_package:
            return None
        path = f"{package.source.absolute.rpartition('/')[0]}/{name}"
        if (found := self.module_at(path)) is not None:
            return found
        return Unknown(name) if self.finder.file(path) is not None or self.finder.on_disk(path) else None

    def _find_member(self, module: Module, name: str) -> Symbol:
        kind = module.facts.names.get(name)
        if kind == "class" and name in module.classes:
            return module.classes[name]
        if kind == "def" and name in module.functions:
            return module.functions[name]
        if kind == "import":
            row = module.imports.get(("<module>", name))
            return self.imported(module, row) if row is not None else Unknown(name)
        if kind is not None:
            return Value(module, name)
        if (submodule := self._submodule(module, name)) is not None:
            return submodule
        for star, level in reversed(module.facts.star_imports):  # the last one that has the name binds it
            row = Import(star, None, star, level, "<module>", (), (1, 1, 1, 1))
            source = self._relative(module, row) if level else self.import_module(module, star)
            if not isinstance(source, Module):
                return Unknown(name)
            if not isinstance(found := source.member(name), Missing):
                return found
        if module.facts.dynamic or name.startswith("__") and name.endswith("__"):
            return Unknown(name)
        return Missing(module.name, name, module)

    # -- names ---------------------------------------------------------------------------------------------

    def lookup(self, function: Method, path: str) -> Symbol:
        """What a path of plain names means inside a function. Values, calls and subscripts give `Unknown`."""
        key = (function, path)
        if key not in self._lookups:
            self._lookups[key] = self._look_up(function, path)
        return self._lookups[key]

    def _look_up(self, function: Method, path: str) -> Symbol:
        if "(" in path or "[" in path or path.startswith("?"):
            return Unknown(path)
        head, *links = path.split(".")
        symbol = self._name(function, head)
        for link in links:
            symbol = self._attribute(function.module, symbol, link, path)
        return symbol

    def _attribute(self, importer: Module, symbol: Symbol, name: str, path: str) -> Symbol:
        if isinstance(symbol, Module):
            return symbol.member(name)
        if isinstance(symbol, External):
            inside = f"{symbol.path}.{name}"
            return self.through_folders(importer, inside) or External(inside)
        if isinstance(symbol, ClassDef):
            nested = symbol.module.classes.get(f"{symbol.qualname}.{name}")
            return nested or symbol.find(name) or Unknown(path)
        return symbol if isinstance(symbol, Missing) else Unknown(path)

    def _name(self, function: Method, name: str) -> Symbol:
        module = function.module
        scope: Method | None = function
        while scope is not None and scope.qualname != "<module>":
            if name in scope.facts.bound:
                row = module.imports.get((scope.qualname, name))
                if row is not None:
                    return self.imported(module, row)
                local = f"{scope.qualname}.<locals>.{name}"
                return module.functions.get(local) or module.classes.get(local) or Unknown(name)
            scope = scope.enclosing
        if name in module.facts.names or module.facts.star_imports:
            found = module.member(name)
            return External(name) if isinstance(found, Missing) and name not in module.facts.names else found
        return External(name)  # a builtin, or nothing

    def dotted(self, function: Method, path: str) -> str:
        """The full dotted name of something external (`dist.barrier` -> `torch.distributed.barrier`), else empty."""
        symbol = self.lookup(function, path)
        return symbol.path if isinstance(symbol, External) else ""


def _is_part_of_package(module: Module) -> bool:
    """Whether a file imports what lies beside it relatively whenever it is run, which fails where it is started."""
    rows = (row for row in module.facts.imports if row.scope == "<module>" and not row.guards)
    levels = [*(row.level for row in rows), *(level for _, level in module.facts.star_imports)]
    return any(levels) and b"__package__" not in module.source.data


def guarded_by(guards: Iterable[Guard], *words: str) -> bool:
    """Whether any condition around a place mentions one of the words."""
    return any(word in guard.text for guard in guards for word in words)
