"""Imports between the files of a project that find nothing, and where the wanted name does exist."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cached_property
from typing import NamedTuple

from validator.analysis.brought import Brought
from validator.errors import nearest
from validator.facts.model import Guard, Import
from validator.project import External, Method, Missing, Module, Project, Unknown

# written by build steps and protocol compilers, or compiled: not part of the source
_GENERATED = re.compile(
    r"(^|_)version$|_pb2$|_pb2_grpc$|^__about__$|^_build|version_info|^_C$|^_ext$|^_[A-Z]\w*$|^lib\w+$"
)
_CAUGHT = ("ImportError", "ModuleNotFoundError")
_CONDITIONS = re.compile(r"find_spec|hasattr|available|TYPE_CHECKING|HAS_|has_|_installed|sys\.path", re.I)
_CATCH_ALL = ("*", "Exception", "BaseException")


class Lost(NamedTuple):
    """An import that finds nothing. `hidden`: a handler for everything around it turns that into something else."""

    importer: Module
    row: Import
    missing: Missing
    hidden: bool


class Imports:
    """Answers for one project, remembered."""

    def __init__(self, project: Project) -> None:
        self.project = project

    @cached_property
    def lost(self) -> tuple[Lost, ...]:
        """Every import of the project, at any depth, that no guard excuses and that finds nothing."""
        return tuple(self._lost())

    def _lost(self) -> Iterator[Lost]:
        for module in self.project.modules.values():
            for row in module.facts.imports:
                missing = self._missing(module, row)
                if (
                    missing is None
                    or not row.level
                    and (self._is_elsewhere(row) or self._is_far(module, row, missing))
                    or is_excused(row.guards)
                    or _is_looked_for(row.guards, missing)
                    or _for_other_release(module, row)
                    or self.may_have(module, missing)
                    or row.level
                    and module in self._out_of_place
                    or missing.name is None
                    and self.project.analysis(Brought).may_be(module, missing)
                ):
                    continue
                yield Lost(module, row, missing, _hidden(row.guards))

    def may_have(self, importer: Module, missing: Missing) -> bool:
        """Whether a module, or the name that it lacks, may be there at run time though the source does not have it: it
        is generated or built, found by a package's own means, or set from outside."""
        if (
            self._is_found_by_package(importer, missing)
            or self._generated(importer, missing)
            or self._is_built(missing)
        ):
            return True
        return missing.name is not None and self._set_from_outside(missing)

    def is_namesake(self, importer: Module, found: Module) -> bool:
        """Whether the importer means a library that shares its name with a package of the project: the package goes by
        a longer name, and no import by the short one finds anything in it."""
        rows = [row for row in importer.facts.imports if not row.level and row.name is None]
        rows = [row for row in rows if self.project.imported(importer, row) is found]
        return bool(rows) and all(row.module != found.name and self._is_elsewhere(row) for row in rows)

    def _missing(self, importer: Module, row: Import) -> Missing | None:
        if row.name is None and row.asname is None and "." in row.module:
            found: object = self.project.import_module(importer, row.module)
        else:
            found = self.project.imported(importer, row)
        return found if isinstance(found, Missing) else None

    def _is_elsewhere(self, row: Import) -> bool:
        """Whether the package is an installed one that merely shares its name with a folder of the project.

        Then no import of it finds anything here.
        """
        return row.module.partition(".")[0] not in self._found

    def _is_far(self, importer: Module, row: Import, missing: Missing) -> bool:
        """Whether only another project of the tree has the package: what is imported may be a third one."""
        found = missing.owner.source.absolute if missing.owner is not None else None
        return self.project.finder.is_far(row.module.partition(".")[0], importer.source.absolute, found)

    @cached_property
    def _found(self) -> frozenset[str]:
        """The top-level packages of which some absolute import finds a module or a name in the project."""
        found: set[str] = set()
        for module in self.project.modules.values():
            for row in module.facts.imports:
                top, _, rest = row.module.partition(".")
                if row.level or top in found or row.name is None and not rest:
                    continue
                symbol = (
                    self.project.imported(module, row) if row.name else self.project.import_module(module, row.module)
                )
                if not isinstance(symbol, Missing | External | Unknown):
                    found.add(top)
        return frozenset(found)

    def _is_found_by_package(self, importer: Module, missing: Missing) -> bool:
        """Whether a package above the module has a way of its own to find what is in it."""
        above = missing.module if missing.name else missing.module.rpartition(".")[0]
        while above:
            package = self.project.import_module(importer, above)
            if isinstance(package, Module) and package in self._finding:
                return True
            above = above.rpartition(".")[0]
        return False

    @cached_property
    def _finding(self) -> frozenset[Module]:
        """The packages that say where their modules are: `__path__`, finders of `sys.meta_path`."""
        return frozenset(
            function.module
            for function in self.project.functions()
            if function.module.is_package
            and any(
                path.startswith(("sys.meta_path", "__path__"))
                for path in (
                    *(ref.path for ref in function.facts.refs),
                    *(c.target for c in function.facts.calls),
                    *(row.target for row in function.facts.assigns),
                )
            )
        )

    @staticmethod
    def _generated(importer: Module, missing: Missing) -> bool:
        parts = [*(missing.module.split(".")[1:] or [missing.module]), *([missing.name] if missing.name else [])]
        return any(_GENERATED.search(part) for part in parts)

    def _is_built(self, missing: Missing) -> bool:
        """Whether the set-up script makes an extension module of that name, or in a package of that name that holds no
        other code: `Extension("pkg.C", …)`."""
        name = ".".join(filter(None, (missing.module, missing.name)))
        return any(f"{each}.".startswith(f"{name}.") for each in self._extensions)

    @cached_property
    def _extensions(self) -> frozenset[str]:
        return frozenset(
            argument.value.strip("'\"")
            for function in self.project.functions()
            if function.path.rpartition("/")[2] == "setup.py"
            for call in function.facts.calls
            if call.method.endswith("Extension")
            for argument in call.args
            if argument.kind == "const" and argument.keyword in (None, "name")
        )

    @cached_property
    def _out_of_place(self) -> frozenset[Module]:
        """Modules in folders that are no packages, and where no relative import finds anything: files to be copied
        into the package of another project."""
        folders: dict[str, list[Module]] = {}
        for module in self.project.modules.values():
            if "." not in module.name and not module.is_package and any(row.level for row in module.facts.imports):
                folders.setdefault(module.path.rpartition("/")[0], []).append(module)
        return frozenset(
            module
            for modules in folders.values()
            if all(
                isinstance(self.project.imported(each, row), Missing)
                for each in modules
                for row in each.facts.imports
                if row.level
            )
            for module in modules
        )

    def may_be_elsewhere(self, lost: Lost) -> bool:
        """Whether the file of a relative import may be meant for another place than where it lies: the import leaves
        the outermost package, fails where the package itself is imported, which nobody could then do, or would find its
        module one folder higher (`from .own.x import y`, in a file of `own`)."""
        importer, row = lost.importer, lost.row
        if not row.level:
            return False
        package = importer.name if importer.is_package else importer.name.rpartition(".")[0]
        if row.level > len(package.split(".")) or importer.is_package and row.scope == "<module>":
            return True
        own, _, rest = row.module.partition(".")
        inside = row.level == 1 and bool(rest) and package.rpartition(".")[2] == own
        return inside and isinstance(self.project.import_module(importer, f"{package}.{rest}"), Module)

    def _set_from_outside(self, missing: Missing) -> bool:
        """`module.name = …` somewhere else: patched in at run time."""
        return (missing.module.rpartition(".")[2], missing.name) in self._stored

    @cached_property
    def _stored(self) -> frozenset[tuple[str, str]]:
        found = set()
        for function in self.project.functions():
            for ref in function.facts.refs:
                if ref.context == "store":
                    owner, _, name = ref.path.rpartition(".")
                    found.add((owner.rpartition(".")[2], name))
        return frozenset(found)

    @cached_property
    def definitions(self) -> dict[str, list[Module]]:
        """The modules that define a class, function or constant at their top level, by its name."""
        found: dict[str, list[Module]] = {}
        for module in self.project.modules.values():
            for name, kind in module.facts.names.items():
                if kind != "import":
                    found.setdefault(name, []).append(module)
        return found

    def defined_in(self, name: str, importer: Module) -> Module | None:
        """The module that defines `name`, where there is one, or one that is nearest to the importer."""
        top = importer.name.partition(".")[0]
        modules = [m for m in self.definitions.get(name, ()) if m is not importer and not _is_test(m)]
        own = [m for m in modules if m.name.partition(".")[0] == top]
        return own[0] if own else modules[0] if len(modules) == 1 else None

    def near_module(self, missing: str) -> str:
        """A hint ` (did you mean 'x'?)` among the modules below the longest part of the name that exists."""
        names = [m.name for m in self.project.modules.values()]
        parent = missing.rpartition(".")[0]
        siblings = [n for n in names if n.rpartition(".")[0] == parent]
        last = missing.rpartition(".")[2]
        moved = [n for n in names if n.rpartition(".")[2] == last and n.partition(".")[0] == missing.partition(".")[0]]
        if len(moved) == 1:
            return f" (did you mean {moved[0]!r}?)"
        return nearest(missing, siblings, 0.85)


def scope_of(module: Module, row: Import) -> Method | None:
    """The function that an import stands in; None at the top level."""
    return module.functions.get(row.scope) if row.scope != "<module>" else None


def is_excused(guards: tuple[Guard, ...]) -> bool:
    for guard in guards:
        if guard.kind in ("try", "except", "with") and any(name in guard.text for name in _CAUGHT):
            return True
        if guard.kind == "with" and "suppress" in guard.text or guard.kind == "except" and guard.text in _CATCH_ALL:
            return True
        if guard.kind == "if" and _CONDITIONS.search(guard.text):
            return True
    return False


def _is_looked_for(guards: tuple[Guard, ...], missing: Missing) -> bool:
    """Whether the import stands behind a test that names the file of the module: `isfile("…/__version__.py")`."""
    file = missing.module.rpartition(".")[2] + ".py"
    return any(guard.kind == "if" and file in guard.text for guard in guards)


def _for_other_release(module: Module, row: Import) -> bool:
    """Whether an import stands behind a test for the release of its own package: another one may have the module."""
    package = row.module.partition(".")[0]
    return any(g.kind == "if" and "version" in g.text.lower() for g in row.guards) and (
        not row.level and f"{package}.__version__" in "\n".join(module.source_text.lines)
    )


def _hidden(guards: tuple[Guard, ...]) -> bool:
    return any(g.kind == "try" and any(name in _CATCH_ALL for name in g.text.split(", ")) for g in guards)


def _is_test(module: Module) -> bool:
    return any(part in ("tests", "test") or part.startswith("test_") for part in module.name.split("."))
