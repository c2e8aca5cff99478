"""What the names of one release of torch mean, and what calling them takes.

Nothing is imported or run: names are followed through the imports of modules as Python follows them. What C defines
cannot be told, nor what a decorator may have changed.
"""

from __future__ import annotations

import ast
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from tests.library_releases import Parameter, fields_of, is_dataclass, of_arguments, version_of

# Private homes that are listed too: prototypes lived, and are imported, there.
_WITH_PRIVATE = tuple(
    f"torch.distributed.{home}"
    for home in (
        "_composable", "_tensor", "_functional_collectives", "algorithms._checkpoint", "algorithms._comm_hooks",
        "algorithms._optimizer_overlap", "checkpoint._", "fsdp._fully_shard", "tensor._api", "tensor._dtensor_spec",
        "tensor.experimental._", "_shard.api", "_shard.checkpoint", "_shard.sharded_tensor.api", "_symmetric_memory",
        "_composable_state", "optim._", "pipelining._backward",
    )
)  # fmt: skip
# What no user of the package imports: code of its tests and tools.
_LEFT_OUT = ("torch.testing._internal", "torch.utils.benchmark.examples", "torch.distributed.benchmarks")
# Questions of modules for how they run, as an installation for training answers them.
_HOLDS = {
    "TYPE_CHECKING": False, "typing.TYPE_CHECKING": False, "not TYPE_CHECKING": True,
    "is_available()": True, "torch.distributed.is_available()": True, "dist.is_available()": True,
    "not is_available()": False, "not torch.distributed.is_available()": False,
    "torch.distributed.rpc.is_available()": True, "not torch._running_with_deploy()": True,
}  # fmt: skip
_PROPER = frozenset({  # decorators, by what they are, that leave parameters as they are written
    "contextlib.contextmanager", "functools.lru_cache", "functools.cache", "functools.total_ordering", "typing.final",
    "typing.no_type_check", "typing.runtime_checkable", "typing_extensions.runtime_checkable",
    "typing_extensions.final", "typing_extensions.deprecated", "typing_extensions.override", "warnings.deprecated",
    "staticmethod", "classmethod", "abc.abstractmethod", "torch.autograd.grad_mode.no_grad",
    "torch.autograd.grad_mode.enable_grad",
    "torch.autograd.grad_mode.inference_mode", "torch._compile._disable_dynamo", "torch.compiler.disable",
    "torch._jit_internal.unused", "torch._jit_internal.ignore", "torch.utils._exposed_in.exposed_in",
})  # fmt: skip
# Decorators that take a keyword-only parameter by position too, as old releases did: behind the first one.
_SECOND = {"torch.distributed.checkpoint.utils._api_bc_check": ("storage_writer", "storage_reader")}
_READING = frozenset({"get", "items", "keys", "values"})  # methods that leave a dictionary as it is
_OVERLOADS = frozenset({"overload", "_overload", "_overload_method"})
_PLAIN_META = frozenset({"abc.ABCMeta", "type"})
_BARE = frozenset({  # bases without a constructor
    "object", "typing.Generic", "typing.Protocol", "typing_extensions.Protocol", "abc.ABC", "typing_extensions.Generic",
    "collections.abc.Iterable", "collections.abc.Iterator", "collections.abc.Callable", "collections.abc.Sized",
    "typing.Iterable", "typing.Iterator", "typing.Sized",
})  # fmt: skip


class Definition(NamedTuple):
    """A class or function and where it stands."""

    module: str
    node: ast.ClassDef | ast.FunctionDef

    @property
    def name(self) -> str:
        return f"{self.module}.{self.node.name}"


class External(NamedTuple):
    """Something of another library, or something that cannot be told (no path)."""

    path: str


class Module(NamedTuple):
    """A module of the library."""

    name: str


Meaning = Definition | External | Module
Bound = ast.stmt | ast.alias | None  # what gave a module's name its value; None: more than one thing may have
_UNKNOWN = External("")


class Release:
    """One release of torch. Modules are parsed when they are asked for."""

    def __init__(self, archive: Path) -> None:
        self.version = version_of(archive)
        self._texts: dict[str, str] = {}
        self._packages: set[str] = set()
        with zipfile.ZipFile(archive) as wheel:
            for name in wheel.namelist():
                if name.startswith("torch/") and name.endswith(".py"):
                    dotted = name.removesuffix(".py").removesuffix("/__init__").replace("/", ".")
                    self._texts[dotted] = wheel.read(name).decode("utf-8", "replace")
                    if name.endswith("/__init__.py"):
                        self._packages.add(dotted)
        self._bindings: dict[str, dict[str, tuple[str, Bound]]] = {}
        self._following: set[tuple[str, str]] = set()

    def modules(self) -> Iterator[str]:
        """The modules whose names users write."""
        for name in sorted(self._texts):
            private = any(part.startswith("_") for part in name.split("."))
            if (not private or name.startswith(_WITH_PRIVATE)) and not name.startswith(_LEFT_OUT):
                yield name

    # -- what names mean ---------------------------------------------------------------------------------------

    def bindings(self, module: str) -> dict[str, tuple[str, Bound]]:
        """What each name of a module was given by, with the module in which that stands."""
        if module not in self._bindings:
            self._bindings[module] = {}  # for a circle of star imports
            try:
                body = ast.parse(self._texts[module]).body
            except SyntaxError:  # written for a newer Python
                body = []
            self._bindings[module] = dict(self._bound(module, body))
        return self._bindings[module]

    def _bound(self, module: str, body: list[ast.stmt]) -> dict[str, tuple[str, Bound]]:
        found: dict[str, tuple[str, Bound]] = {}
        for row in body:
            if isinstance(row, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
                if not self._is_overload(module, row):
                    found[row.name] = (module, row)
            elif isinstance(row, ast.Import):
                for each in row.names:
                    found[each.asname or each.name.partition(".")[0]] = (module, ast.Import([each]))
            elif isinstance(row, ast.ImportFrom):
                found.update(self._imported(module, row))
            elif isinstance(row, ast.Assign | ast.AnnAssign | ast.AugAssign):
                for target in row.targets if isinstance(row, ast.Assign) else [row.target]:
                    for each in ast.walk(target):
                        if isinstance(each, ast.Name) and isinstance(each.ctx, ast.Store):
                            found[each.id] = (module, row if each is target else None)
            elif isinstance(row, ast.If | ast.Try | ast.With | ast.For | ast.While):
                for name, given in self._branched(module, row).items():
                    found[name] = (
                        given if name not in found or given == found[name] else self._either(found[name], given, row)
                    )
        return found

    def _branched(self, module: str, row: ast.stmt) -> dict[str, tuple[str, Bound]]:
        if isinstance(row, ast.If):
            holds = _HOLDS.get(ast.unparse(row.test))
            parts = [row.body] * (holds is not False) + [row.orelse] * (holds is not True)
        elif isinstance(row, ast.Try):
            parts = [row.body + row.orelse + row.finalbody, *(each.body for each in row.handlers)]
        else:
            parts = [row.body]  # type: ignore[attr-defined]
        found: dict[str, tuple[str, Bound]] = {}
        for part in parts:
            for name, given in self._bound(module, part).items():
                found[name] = self._either(found[name], given, row) if name in found else given
        return found

    def _either(self, one: tuple[str, Bound], other: tuple[str, Bound], row: ast.stmt) -> tuple[str, Bound]:
        """One of two things; a value of None stands for what is not there."""
        if isinstance(row, ast.If) and _HOLDS.get(ast.unparse(row.test)) is not None or _is_nothing(one[1]):
            return other
        return one if _is_nothing(other[1]) else (one[0], None)

    def _imported(self, module: str, row: ast.ImportFrom) -> Iterator[tuple[str, tuple[str, Bound]]]:
        source = self._absolute(module, row)
        for each in row.names:
            if each.name != "*":
                yield each.asname or each.name, (module, ast.ImportFrom(source, [each], 0))
            elif source in self._texts:
                for name in self.exported(source):
                    yield name, (module, ast.ImportFrom(source, [ast.alias(name)], 0))

    def _absolute(self, module: str, row: ast.ImportFrom) -> str:
        parts = module.split(".")
        up = row.level - (module in self._packages)
        above = parts[: len(parts) - up] if row.level else []
        return ".".join([*above, *([row.module] if row.module else [])])

    def exported(self, module: str) -> list[str]:
        """The names that `from module import *` brings."""
        given = self.bindings(module)
        row = given.get("__all__", ("", None))[1]
        if isinstance(row, ast.Assign) and isinstance(row.value, ast.List | ast.Tuple):
            return [each.value for each in row.value.elts if isinstance(each, ast.Constant)]  # type: ignore[misc]
        return [name for name in given if not name.startswith("_")]

    def meaning(self, module: str, name: str) -> Meaning:
        """What a name of a module means."""
        if (module, name) in self._following:  # `from torch import amp` in torch itself
            return Module(f"{module}.{name}") if f"{module}.{name}" in self._texts else _UNKNOWN
        self._following.add((module, name))
        try:
            given = self.bindings(module).get(name)
            if given is not None:
                return self._given(*given)
            return Module(f"{module}.{name}") if f"{module}.{name}" in self._texts else _UNKNOWN
        finally:
            self._following.discard((module, name))

    def _given(self, module: str, row: Bound) -> Meaning:
        if isinstance(row, ast.ClassDef | ast.FunctionDef):
            return Definition(module, row)
        if isinstance(row, ast.Import):
            name = row.names[0].name if row.names[0].asname else row.names[0].name.partition(".")[0]
            return Module(name) if name in self._texts else External(name)
        if isinstance(row, ast.ImportFrom):
            if row.module in self._texts:
                return self.meaning(row.module, row.names[0].name)
            return External(f"{row.module}.{row.names[0].name}")
        if isinstance(row, ast.Assign | ast.AnnAssign) and isinstance(row.value, ast.Name | ast.Attribute):
            return self.expressed(module, row.value)
        return _UNKNOWN

    def expressed(self, module: str, node: ast.expr) -> Meaning:
        """What an expression of a module means: a name and attributes."""
        if isinstance(node, ast.Name):
            inside = self.bindings(module).get(node.id)
            return self.meaning(module, node.id) if inside is not None else External(node.id)
        if isinstance(node, ast.Attribute):
            owner = self.expressed(module, node.value)
            if isinstance(owner, Module):
                return self.meaning(owner.name, node.attr)
            return External(f"{owner.path}.{node.attr}") if isinstance(owner, External) and owner.path else _UNKNOWN
        return self.expressed(module, node.value) if isinstance(node, ast.Subscript) else _UNKNOWN

    # -- what calls take ---------------------------------------------------------------------------------------

    def parameters(self, given: Definition) -> list[Parameter] | None:
        """What calling something takes; None where that cannot be told."""
        if isinstance(given.node, ast.ClassDef):
            return self._constructor(given)
        params = of_arguments(given.node.args)
        for each in given.node.decorator_list:
            found = self.expressed(given.module, each)
            second = _SECOND.get(found.name) if isinstance(found, Definition) else None
            if second is not None:
                moved = [each._replace(keyword=False) for each in params if each.name in second]
                params = [params[0], *moved, *(each for each in params[1:] if each.name not in second)]
            elif not self._keeps(given.module, each, given.node):
                return None
        return params

    def methods(self, given: Definition) -> Iterator[tuple[str, list[Parameter] | None]]:
        """The public static and class methods of a class, those of the classes above it too."""
        seen: set[str] = set()
        for each in self.line(given) or ():
            if isinstance(each, External):
                return  # it may define any
            assert isinstance(each.node, ast.ClassDef)
            for name, (_, row) in self._members(each).items():
                if name in seen or name.startswith("_"):
                    continue
                seen.add(name)
                if isinstance(row, ast.FunctionDef) and (kind := _kind(row)):
                    params = self.parameters(Definition(each.module, row))
                    yield name, params[1:] if params and kind == "classmethod" else params

    def line(self, given: Definition, above: tuple[str, ...] = ()) -> list[Definition | External] | None:
        """A class and those above it in the order in which Python asks them; None where there is none."""
        assert isinstance(given.node, ast.ClassDef)
        lines: list[list[Definition | External]] = []
        for base in given.node.bases:
            found = self.expressed(given.module, base)
            if isinstance(found, Definition) and isinstance(found.node, ast.ClassDef):
                inherited = self.line(found, (*above, given.name)) if found.name not in above else None
                if inherited is None:
                    return None
                lines.append(inherited)
            elif not isinstance(found, External) or found.path not in _BARE:
                lines.append([found if isinstance(found, External) else _UNKNOWN])
        order = _linear([*lines, [each[0] for each in lines]])
        return [given, *order] if order is not None else None

    def _constructor(self, given: Definition) -> list[Parameter] | None:
        line = self.line(given)
        if line is None or not all(self._has_plain_meta(each) for each in line if isinstance(each, Definition)):
            return None
        if not self._has_plain_decorators(given) or self._is_protocol(given):
            return None
        making: dict[str, list[Parameter] | None] = {}
        for at, each in enumerate(line):
            if isinstance(each, External):
                if each.path == "typing.NamedTuple" and not making and at == 1:
                    return list(fields_of(given.node)) if isinstance(given.node, ast.ClassDef) else None
                if "__init__" not in making or not each.path or each.path.startswith("enum."):
                    return None
                continue
            members = self._members(each)
            for name in ("__init__", "__new__"):
                if name in members and name not in making:
                    making[name] = self._maker(each.module, members[name][1])
            if is_dataclass(each.node) and "__init__" not in making:
                making["__init__"] = self._fields(line[at:])
        if not making:
            return []
        one, *others = making.values()
        return one if all(other == one for other in others) else None

    def _maker(self, module: str, row: Bound) -> list[Parameter] | None:
        params = self.parameters(Definition(module, row)) if isinstance(row, ast.FunctionDef) else None
        return params[1:] if params and not params[0].name.startswith("*") else None

    def _members(self, given: Definition) -> dict[str, tuple[str, Bound]]:
        assert isinstance(given.node, ast.ClassDef)
        return self._bound(given.module, given.node.body)

    def _fields(self, line: list[Definition | External]) -> list[Parameter] | None:
        """The parameters of a data class, those of the classes above it first."""
        found: dict[str, Parameter] = {}
        for each in reversed(line):
            if isinstance(each, External):
                return None
            if is_dataclass(each.node):
                found.update((field.name, field) for field in fields_of(each.node))
        return list(found.values())

    def _has_plain_decorators(self, given: Definition) -> bool:
        return all(
            self._keeps(given.module, each, None)
            for each in given.node.decorator_list
            if ast.unparse(each).partition("(")[0].rpartition(".")[2] != "dataclass"
        )

    def _is_protocol(self, given: Definition) -> bool:
        """Whether a class says what others are like, and makes no objects itself."""
        assert isinstance(given.node, ast.ClassDef)
        found = [self.expressed(given.module, base) for base in given.node.bases]
        return any(isinstance(each, External) and each.path.endswith(".Protocol") for each in found)

    def _has_plain_meta(self, given: Definition) -> bool:
        """Whether calling a class makes an object as classes do: no metaclass sees to it."""
        assert isinstance(given.node, ast.ClassDef)
        for each in given.node.keywords:
            meta = self.expressed(given.module, each.value) if each.arg == "metaclass" else None
            if isinstance(meta, External) and meta.path not in _PLAIN_META or isinstance(meta, Module):
                return False
            if isinstance(meta, Definition) and not self._is_plain_meta(meta):
                return False
        return True

    def _is_plain_meta(self, meta: Definition) -> bool:
        line = self.line(meta) if isinstance(meta.node, ast.ClassDef) else None
        return line is not None and all(
            each.path in _PLAIN_META if isinstance(each, External) else "__call__" not in self._members(each)
            for each in line
        )

    # -- decorators --------------------------------------------------------------------------------------------

    def _is_overload(self, module: str, node: ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
        """Whether a function is one of the spellings of another, which stands behind it."""
        return any(ast.unparse(each).rpartition(".")[2] in _OVERLOADS for each in node.decorator_list)

    def _keeps(self, module: str, decorator: ast.expr, node: ast.FunctionDef | None) -> bool:
        """Whether what is decorated takes what it takes without."""
        called = isinstance(decorator, ast.Call)
        found = self.expressed(module, decorator.func if isinstance(decorator, ast.Call) else decorator)
        if isinstance(found, External):
            return found.path in _PROPER
        if not isinstance(found, Definition):
            return False
        if found.name in _PROPER:
            return True
        return isinstance(found.node, ast.FunctionDef) and _hands_on(found.node, called, node)


# -- what decorators do ----------------------------------------------------------------------------------------


def _kind(method: ast.FunctionDef) -> str:
    names = {ast.unparse(each) for each in method.decorator_list} & {"staticmethod", "classmethod"}
    return next(iter(names), "")


def _hands_on(decorator: ast.FunctionDef, called: bool, node: ast.FunctionDef | None) -> bool:
    """Whether a decorator gives back what it gets, or a wrapper that hands on what it is given. One that is called
    first makes the decorator inside of it."""
    if not called:
        return _gives(decorator, node)
    inner = {each.name: each for each in ast.walk(decorator) if isinstance(each, ast.FunctionDef)}
    named = [ast.unparse(each.value) for each in _returns(decorator) if each.value is not None]
    return bool(named) and all(name in inner and _gives(inner[name], node) for name in named)


def _gives(decorator: ast.FunctionDef, node: ast.FunctionDef | None) -> bool:
    plain = decorator.args.args
    if not plain:
        return False
    taken = plain[0].arg
    wrappers = {each.name: each for each in decorator.body if isinstance(each, ast.FunctionDef)}
    returns = list(_returns(decorator))
    for each in returns:
        value = each.value
        if isinstance(value, ast.Call) and ast.unparse(value.func).rpartition(".")[2] == "cast" and value.args:
            value = value.args[-1]
        if not isinstance(value, ast.Name):
            return False
        if value.id != taken and not (value.id in wrappers and _passes(wrappers[value.id], taken, node)):
            return False
    stored = any(
        isinstance(n, ast.Name) and n.id == taken and isinstance(n.ctx, ast.Store) for n in ast.walk(decorator)
    )
    return bool(returns) and not stored


def _returns(function: ast.FunctionDef) -> Iterator[ast.Return]:
    """The `return`s of a function, without those of the functions inside of it."""
    todo: list[ast.AST] = list(function.body)
    while todo:
        node = todo.pop()
        if isinstance(node, ast.Return):
            yield node
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef | ast.Lambda):
            todo.extend(ast.iter_child_nodes(node))


def _passes(wrapper: ast.FunctionDef, taken: str, node: ast.FunctionDef | None) -> bool:
    """Whether a wrapper calls what it wraps with all that it is given, and changes nothing of that."""
    args = wrapper.args
    if node is None or args.vararg is None or args.kwarg is None or args.kwonlyargs or args.posonlyargs:
        return False
    leading, rest, options = [each.arg for each in args.args], args.vararg.arg, args.kwarg.arg
    if leading != [each.arg for each in node.args.args[: len(leading)]]:
        return False
    handed, calls = 0, 0
    for each in ast.walk(wrapper):
        if isinstance(each, ast.FormattedValue) or isinstance(each, ast.Attribute) and each.attr in _READING:
            handed += ast.unparse(each.value) == options
        if isinstance(each, ast.Dict):
            pairs = zip(each.keys, each.values, strict=True)
            handed += sum(key is None and ast.unparse(value) == options for key, value in pairs)
        if isinstance(each, ast.Call):
            given = [(k.arg, ast.unparse(k.value)) for k in each.keywords]
            handed += given.count((None, options))
            if ast.unparse(each.func) == taken:
                positional = [ast.unparse(a) for a in each.args]
                calls += 1
                if len(positional) != len(leading) + 1 or positional[-1] != f"*{rest}" or given != [(None, options)]:
                    return False
    used = sum(isinstance(each, ast.Name) and each.id == options for each in ast.walk(wrapper))
    return calls > 0 and used == handed and not _stores(wrapper, rest)


def _stores(function: ast.FunctionDef, name: str) -> bool:
    """Whether a function gives one of its parameters another value."""
    stored = (each.id for each in ast.walk(function) if isinstance(each, ast.Name) and isinstance(each.ctx, ast.Store))
    return name in stored


def _linear(lines: list[list[Definition | External]]) -> list[Definition | External] | None:
    """Python's order of the classes above a class."""
    found: list[Definition | External] = []
    while lines := [line for line in lines if line]:
        for line in lines:
            first = line[0]
            if not any(_same(first, other) for each in lines for other in each[1:]):
                break
        else:
            return None
        found.append(first)
        lines = [line[1:] if _same(line[0], first) else line for line in lines]
    return found


def _same(one: Definition | External, other: Definition | External) -> bool:
    if isinstance(one, Definition) and isinstance(other, Definition):
        return one.node is other.node
    return one is other


def _is_nothing(row: Bound) -> bool:
    """Whether a value is given for what is not there."""
    return isinstance(row, ast.Assign | ast.AnnAssign) and (row.value is None or ast.unparse(row.value) == "None")
