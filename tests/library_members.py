"""Reads which members the classes of libraries have off their releases, and prints the table that MP120 asks.

    python -m tests.library_members torch WHEELS > validator/models/members/releases/torch.txt

WHEELS is a folder of wheels or source archives of one library, one of each minor release (`pip download --no-deps`);
for `python` the stubs of the standard library that come with mypy, which are read beside the sources of the Python that
runs this. Nothing of them is imported or run; classes that are
written in C are looked at where the library is installed, as stubs do not tell of all that they have.
"""

from __future__ import annotations

import argparse
import ast
import importlib
import re
import sys
import sysconfig
from collections.abc import Iterator
from fnmatch import fnmatchcase
from functools import cache
from pathlib import Path
from typing import NamedTuple

from tests.library_releases import texts_of, version_of

# By library the modules whose classes are listed, and those that are not read at all: compilers and tests, which set
# nothing on the objects of others, and models of which there are hundreds.
_MODELS = (
    "bert", "gemma", "gpt2", "gpt_neox", "llama", "mistral", "mixtral", "opt", "phi3", "qwen2", "qwen3", "t5",
)  # fmt: skip
_UNREAD = {
    "torch": (
        "torch._inductor*", "torch.testing*", "torch.onnx*", "torch._dynamo*", "torch.ao*", "torch._refs*",
        "torch._decomp*", "torch._export*", "torch.export*", "torch._functorch*", "torch._prims*", "torch._numpy*",
        "torch.quantization*", "torch._vendor*", "torch._native*", "torch.fx.*", "torch.utils.benchmark*",
        "torch.utils.model_dump*", "torch.utils.tensorboard*", "torch.utils.hipify*", "torch.utils.bottleneck*",
        "torch._higher_order_ops*", "torch._subclasses*", "torch._library*", "torch.jit*", "torch.package*",
        "torch.sparse*", "torch.masked*", "torch.nested*", "torch.bin*", "torch.distributed._tools*",
        "torch.backends*", "torch.utils.data.datapipes*", "torch.distributed.benchmarks*", "torch._lazy*",
        "torch.monitor*", "torch._awaits*", "torch.contrib*", "torch.utils.jit*", "torch.include*", "torch.share*",
    ),
    "deepspeed": (
        "deepspeed.inference*", "deepspeed.module_inject*", "deepspeed.model_implementations*", "deepspeed.nvme*",
        "deepspeed.autotuning*", "deepspeed.compression*", "deepspeed.launcher*", "deepspeed.compile*",
        "deepspeed.ops.transformer*", "deepspeed.ops.sparse_attention*", "deepspeed.elasticity*", "deepspeed.io*",
        "deepspeed.ops.op_builder*",
    ),
    "transformers": (
        "transformers.commands*", "transformers.cli*", "transformers.kernels*", "*.modular_*", "*.convert_*",
        "*modeling_tf_*", "*modeling_flax_*", "*.dummy_*", "transformers.onnx*", "transformers.sagemaker*",
        "transformers.*_tf*", "transformers.*_flax*", "transformers.*keras*", "transformers.testing_utils",
        "transformers.models.deprecated*", "transformers.exporters*", "transformers.agents*", "transformers.tools*",
        "transformers.utils.auto_docstring", "transformers.generation.continuous_batching*",
    ),
    "datasets": ("datasets.commands*", "datasets.packaged_modules*"),
    "trl": ("trl.commands*", "trl.cli*"),
    "accelerate": ("accelerate.commands*", "accelerate.test_utils*"),
    "python": ("test*", "idlelib*", "lib2to3*", "turtledemo*", "site-packages*", "dist-packages*", "ensurepip*",
               "distutils*", "pydoc_data*", "tkinter*", "turtle", "config-*", "_sysconfig*", "curses*", "dbm*",
               "encodings*", "sqlite3*", "venv*", "wsgiref*", "xmlrpc*", "msilib*", "lib-dynload*"),
}  # fmt: skip
LIBRARIES = (
    "python", "torch", "transformers", "trl", "accelerate", "peft", "deepspeed", "datasets", "pytorch_lightning",
)  # fmt: skip
_PACKAGES = {"pytorch_lightning": ("pytorch_lightning", "lightning_fabric")}  # what a library's wheel holds
# Decorators of classes that add no members: they check, register, mark or document.
_PLAIN_DECORATORS = re.compile(
    r"(.*\.)?(dataclass|total_ordering|final|runtime_checkable|deprecated|disjoint_base|type_check_only|"
    r"_?add_start_docstrings(_\w+)?|add_end_docstrings|auto_docstring|requires|compatibility|experimental|"
    r"_?deprecate\w*|functional_datapipe|exclude_from_task_mapping|docstring_wrapper|dataclass_transform|set_module|"
    r"_exposed_in|exportable|custom_dataclass|strict|use_kernel_forward_from_hub|use_kernelized_func|"
    r"_register_\w+|register_\w+|implement_\w+|abstract\w*|define|frozen|mark_compile_unsupported|_beartype\.beartype)"
)
_NO_MEMBERS = frozenset({
    "builtins.object", "abc.ABC", "typing.Generic", "typing.Protocol", "typing_extensions.Protocol",
    "typing_extensions.Generic",
})  # fmt: skip
# Classes whose `__getattr__` gives only what is registered under a name.
_REGISTERED = frozenset({"torch.nn.modules.module.Module"})
# Classes whose objects hold whatever they are given, which neither sources nor stubs show.
_OPEN = frozenset({
    "types.SimpleNamespace", "types.ModuleType", "_thread._local", "threading.local", "argparse.Namespace",
    "typing.NamedTuple", "typing.TypedDict", "typing.Any", "enum.Enum", "ctypes.Structure", "ctypes.Union",
})  # fmt: skip
# Classes whose objects libraries make ones of other classes as well, with what these add: `fully_shard` gives a module
# a class below `FSDPModule`. By home, the names of these classes.
_BECOMING = {"torch.nn.modules.module.Module": ("FSDPModule", "FSDP", "ReplicateModule")}
# Methods that put back what another object, or an earlier run, has got from the other methods of the class.
_RESTORING = frozenset({
    "__setstate__", "__copy__", "__deepcopy__", "__setattr__", "__delattr__", "load_state_dict", "copy", "clone",
})  # fmt: skip
_REGISTERING = frozenset({"register_buffer", "register_parameter", "add_module", "register_module"})
_LONGEST = 20  # parts of a dotted name: a module that is not read may seem to import from itself without end
_MAKING = frozenset({"__new__", "__init__", "__call__", "__prepare__", "__getattr__", "__getattribute__"})
# Names that pruning and reparametrizations put together of the name of a weight.
_FORMED = {"torch": frozenset(f"{w}_{end}" for w in ("weight", "bias") for end in ("orig", "mask", "g", "v", "u"))}


class Binding(NamedTuple):
    """What a name of a module may be: a class, something of another module, or another name."""

    kind: str  # "class", "from", "module", "name", "other"
    module: str
    name: str
    node: ast.ClassDef | None = None


class Class:
    """What is known of a class, of one release or of several."""

    def __init__(self) -> None:
        self.members: set[str] = set()
        self.bases: set[str] = set()
        self.is_open = False

    def add(self, other: Class) -> None:
        self.members |= other.members
        self.bases |= other.bases
        self.is_open |= other.is_open


# -- one release -------------------------------------------------------------------------------------------


class Release:
    """One release of one library: the names of its modules, the classes, what it sets on the objects of others."""

    def __init__(self, library: str, texts: dict[str, str]) -> None:
        self.library = library
        self.packages: set[str] = set()
        self.texts: dict[str, str] = {}  # by module
        self.stubs: set[str] = set()  # modules of which only a stub tells, which is not complete
        for path, text in sorted(texts.items(), key=lambda row: row[0].endswith(".pyi")):
            module = path.rpartition(".")[0].replace("/", ".")
            if module.endswith(".__init__"):
                module = module.removesuffix(".__init__")
                self.packages.add(module)
            if not is_unread(library, module):
                if path.endswith(".pyi") and module not in self.texts:
                    self.stubs.add(module)
                self.texts.setdefault(module, text)
        self.outside: set[str] = set()
        self._trees: dict[str, ast.Module] = {}
        self._handing: dict[str, bool] = {}
        self._names: dict[str, dict[str, list[Binding]]] = {}

    def tree(self, module: str) -> ast.Module:
        if module not in self._trees:
            try:
                self._trees[module] = ast.parse(self.texts[module])
            except SyntaxError:
                self._trees[module] = ast.Module([], [])
        return self._trees[module]

    def names(self, module: str) -> dict[str, list[Binding]]:
        """What each name of a module may be; under `*` the modules of which it takes all."""
        if module not in self._names:
            found = self._names[module] = {}
            for name, binding in self._bindings(module, self.tree(module).body):
                found.setdefault(name, []).append(binding)
        return self._names[module]

    def _bindings(self, module: str, body: list[ast.stmt]) -> Iterator[tuple[str, Binding]]:
        for node in body:
            if isinstance(node, ast.ClassDef):
                yield node.name, Binding("class", module, node.name, node)
            elif isinstance(node, ast.ImportFrom):
                source = self._absolute(module, node)
                for each in node.names:
                    yield each.asname or each.name, Binding("from", source, each.name)
            elif isinstance(node, ast.Import):
                for each in node.names:
                    whole = each.name if each.asname else each.name.partition(".")[0]
                    yield each.asname or whole, Binding("module", whole, "")
            elif isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
                is_name = isinstance(node.value, ast.Name | ast.Attribute)
                value = ast.unparse(node.value) if is_name else ""
                yield node.targets[0].id, Binding("name" if is_name else "other", module, value)
            else:
                for inner in _parts(node):
                    yield from self._bindings(module, inner)

    def _absolute(self, module: str, node: ast.ImportFrom) -> str:
        if not node.level:
            return node.module or ""
        parts = module.split(".")
        up = node.level - (module in self.packages)
        return ".".join([*parts[: len(parts) - up], *([node.module] if node.module else [])])

    def hands_on(self, module: str) -> bool:
        """Whether a module is there to give names of others to its users: a package, or one with nothing of its own."""
        return module in self.packages or self._handing[module]

    def resolve(self, module: str, path: str, seen: frozenset[tuple[str, str]] = frozenset()) -> set[str]:
        """The homes of the classes that a path may mean in a module; `?` for what is none."""
        if (module, path) in seen:
            return set()
        if f"{module}.{path}" in _NO_MEMBERS:
            return {f"{module}.{path}"}
        seen |= {(module, path)}
        head, _, rest = path.partition(".")
        names = self.names(module)
        found: set[str] = set()
        for each in names.get(head, ()):
            if each.kind == "class":
                found.add(f"{module}.{path}")
            elif each.kind == "from":
                found |= self._of_module(each.module, f"{each.name}.{rest}" if rest else each.name, seen)
            elif each.kind == "module":
                found |= self.resolve_path(f"{each.module}.{rest}" if rest else each.module, seen)
            elif each.kind == "name":
                found |= self.resolve(module, f"{each.name}.{rest}" if rest else each.name, seen)
            else:
                found.add("?")
        for each in names.get("*", ()) if not (found or rest) else ():
            found |= self._of_module(each.module, path, seen) - {"?"}
        return found or ({f"builtins.{path}"} if path in _BUILTINS else {"?"})

    def _of_module(self, module: str, path: str, seen: frozenset[tuple[str, str]]) -> set[str]:
        if module in self.texts:
            head, _, rest = path.partition(".")
            if head not in self.names(module) and f"{module}.{head}" in self.texts:
                return self.resolve(f"{module}.{head}", rest, seen) if rest else {"?"}
            return self.resolve(module, path, seen)
        return self.resolve_path(f"{module}.{path}", seen)

    def resolve_path(self, path: str, seen: frozenset[tuple[str, str]] = frozenset()) -> set[str]:
        """The homes of the classes of a dotted name."""
        parts = path.split(".")
        for end in range(len(parts) - 1, 0, -1) if len(parts) < _LONGEST else ():
            if (module := ".".join(parts[:end])) in self.texts:
                return self.resolve(module, ".".join(parts[end:]), seen)
        return {path} if len(parts) < _LONGEST else {"?"}

    def classes(self) -> Iterator[tuple[str, Class]]:
        """All classes of the release, and by the way what its functions set on other objects."""
        for module in sorted(self.texts):
            names = self.names(module)
            self.outside |= set(_set_outside(self.tree(module)))
            for bindings in names.values():
                for each in bindings:
                    if each.node is not None:
                        yield f"{module}.{each.name}", self._read(module, each.node)
            defined = (ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
            self._handing[module] = not any(isinstance(node, defined) for node in self._trees.pop(module).body)

    def _read(self, module: str, node: ast.ClassDef) -> Class:
        found, home = Class(), f"{module}.{node.name}"
        found.is_open = home in _OPEN or not all(map(_is_plain, node.decorator_list))
        for base in node.bases:
            written = base.value if isinstance(base, ast.Subscript) else base
            is_name = isinstance(written, ast.Name | ast.Attribute)
            found.bases |= self.resolve(module, ast.unparse(written)) if is_name else {"?"}
        found.bases -= _NO_MEMBERS
        for keyword in node.keywords:
            found.is_open |= keyword.arg == "metaclass" and not self._is_plain_metaclass(module, keyword.value)
        for name in _listed(node):
            found.is_open |= name == "?"
            found.members.add(name)
        if any(name in found.members for name in ("__getattr__", "__getattribute__")):
            found.is_open = True
        if home in _REGISTERED:
            found.is_open = False
        found.is_open |= "?" in found.bases
        found.members = {name for name in found.members if name.isidentifier() and not _is_special(name)}
        return found

    def _is_plain_metaclass(self, module: str, value: ast.expr) -> bool:
        """Whether a metaclass only adds methods to the classes themselves."""
        homes = self.resolve(module, ast.unparse(value))
        for home in homes:
            if home in ("abc.ABCMeta", "_py_abc.ABCMeta", "builtins.type"):
                continue
            where, _, name = home.rpartition(".")
            nodes = [b.node for b in self.names(where).get(name, ()) if b.node] if where in self.texts else []
            if not nodes:
                return False
            for node in nodes:
                own = {each.name for each in node.body if isinstance(each, ast.FunctionDef)}
                if own & _MAKING or not all(self._is_plain_metaclass(where, base) for base in node.bases):
                    return False
        return True


_BUILTINS = frozenset(dir(__builtins__ if not isinstance(__builtins__, dict) else sys.modules["builtins"]))


@cache
def is_unread(library: str, module: str) -> bool:
    if not {"test", "tests"}.isdisjoint(module.split(".")) or any(
        fnmatchcase(module, each) for each in _UNREAD.get(library, ())
    ):
        return True
    parts = module.split(".")
    return parts[:2] == ["transformers", "models"] and len(parts) > 2 and parts[2] not in _MODELS


def _parts(node: ast.AST) -> Iterator[list[ast.stmt]]:
    """The bodies of a statement that does not begin a scope of its own."""
    if isinstance(node, ast.If | ast.Try | ast.With | ast.For | ast.While):
        for field in ("body", "orelse", "finalbody"):
            yield getattr(node, field, [])
        for handler in getattr(node, "handlers", ()):
            yield handler.body


def _is_plain(decorator: ast.expr) -> bool:
    written = decorator.func if isinstance(decorator, ast.Call) else decorator
    return _PLAIN_DECORATORS.fullmatch(ast.unparse(written)) is not None


def _is_special(name: str) -> bool:
    return name.startswith("__") and name.endswith("__")


# -- members -----------------------------------------------------------------------------------------------


def _listed(node: ast.ClassDef) -> Iterator[str]:
    """The members that the source of a class gives to its objects, as they are called from outside; `?` for those
    under computed names."""
    for name in _own(node):
        is_private = name.startswith("__") and not name.endswith("__")
        yield f"_{node.name.lstrip('_')}{name}" if is_private else name
        yield name


def _own(node: ast.ClassDef) -> Iterator[str]:
    yield from _of_body(node.body)
    for each in ast.walk(node):
        if isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef):
            static = any(isinstance(d, ast.Name) and d.id == "staticmethod" for d in each.decorator_list)
            plain = [*each.args.posonlyargs, *each.args.args]
            if plain and not static and each in _methods(node.body):
                yield from _of_method(each, plain[0].arg)


def _methods(body: list[ast.stmt]) -> Iterator[ast.stmt]:
    for node in body:
        yield node
        for inner in _parts(node):
            yield from _methods(inner)


def _of_body(body: list[ast.stmt]) -> Iterator[str]:
    for node in body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield node.name
        elif isinstance(node, ast.Import | ast.ImportFrom):
            yield from ((each.asname or each.name).partition(".")[0] for each in node.names)
        elif isinstance(node, ast.Assign | ast.AnnAssign | ast.For | ast.With):
            if any(isinstance(n, ast.Call) and ast.unparse(n.func) in ("locals", "vars") for n in ast.walk(node)):
                yield "?"
            yield from (n.id for n in ast.walk(node) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store))
            if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__slots__":
                yield from (str(n.value) for n in ast.walk(node.value) if isinstance(n, ast.Constant))
        elif isinstance(node, ast.Expr) and ast.unparse(node).partition("(")[0] in _FILLING:
            yield "?"
        for inner in _parts(node):
            yield from _of_body(inner)


def _of_method(method: ast.FunctionDef | ast.AsyncFunctionDef, own: str) -> Iterator[str]:
    spelling = Spelling(method, own)
    for node in ast.walk(method):
        if isinstance(node, ast.Attribute) and not isinstance(node.ctx, ast.Load) and _is(node.value, own):
            if node.attr == "__dict__" and not spelling.restores or node.attr == "__class__":
                yield "?"
            yield node.attr
        elif isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Store):
            if _is_dict_of(node.value, own):
                yield from spelling.of(node.slice)
        elif isinstance(node, ast.Call):
            yield from _of_call(node, own, spelling)


def _of_call(node: ast.Call, own: str, spelling: Spelling) -> Iterator[str]:
    called, args = node.func, node.args
    if isinstance(called, ast.Name):
        if called.id == "setattr" and len(args) > 1 and _is(args[0], own):
            yield from spelling.of(args[1])
        elif any(_is_call_of(each, "locals") for each in args[:1]):
            yield "?"
    elif isinstance(called, ast.Attribute):
        if called.attr in ("update", "setdefault") and _is_dict_of(called.value, own) and not spelling.restores:
            yield "?"
        elif called.attr == "__setattr__" and args:
            given = len(args) > 2 and _is(args[0], own)
            if given or _is(called.value, own) or ast.unparse(called.value).startswith("super("):
                yield from spelling.of(args[1] if given else args[0])
        elif called.attr in _REGISTERING - {spelling.method} and _is(called.value, own):
            # `str(index)` is no name that a program can write
            yield from (name for each in args[:1] if not _is_call_of(each, "str") for name in spelling.of(each))


class Spelling:
    """Which names the texts mean by which a method sets members."""

    def __init__(self, method: ast.FunctionDef | ast.AsyncFunctionDef, own: str) -> None:
        self.method, self.restores = method.name, method.name in _RESTORING
        self._own = own
        self._there: set[str] = set()  # texts by which the method asks for a member, which is there then
        self._tables: dict[str, ast.expr] = {}
        self._loops: dict[str, list[str] | None] = {}
        for node in ast.walk(method):
            if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
                self._tables[node.targets[0].id] = node.value
            elif isinstance(node, ast.Call) and len(node.args) == 2 and _is(node.args[0], own):
                self._there |= {ast.unparse(node.args[1])} if ast.unparse(node.func) in _ASKING else set()
        for node in ast.walk(method):
            if isinstance(node, ast.For):
                self._read_loop(node)

    def _read_loop(self, node: ast.For) -> None:
        table = self._tables.get(node.iter.id) if isinstance(node.iter, ast.Name) else node.iter
        rows: list[ast.expr] = table.elts if isinstance(table, ast.Tuple | ast.List | ast.Set) else []
        targets = node.target.elts if isinstance(node.target, ast.Tuple) else [node.target]
        for index, target in enumerate(targets):
            parts = [row.elts[index] if isinstance(row, ast.Tuple) and index < len(row.elts) else row for row in rows]
            names = [part.value for part in parts if isinstance(part, ast.Constant) and isinstance(part.value, str)]
            if isinstance(target, ast.Name):
                told = bool(names) and len(names) == len(parts) and target.id not in self._loops
                self._loops[target.id] = names if told else None

    def of(self, node: ast.expr) -> Iterator[str]:
        """The names; `?` where they are not to be told, and may be those of members that are not there yet."""
        names = self._texts(node)
        if names is not None:
            yield from names
        elif not self.restores and ast.unparse(node) not in self._there:
            yield "?"

    def _texts(self, node: ast.expr) -> list[str] | None:
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            return [node.value]
        if isinstance(node, ast.Name):
            return self._loops.get(node.id)
        if isinstance(node, ast.FormattedValue):
            return self._texts(node.value)
        if isinstance(node, ast.JoinedStr):
            found = [""]
            for part in node.values:
                texts = self._texts(part)
                if texts is None:
                    return None
                found = [start + text for start in found for text in texts]
            return found
        return None


def _is(node: ast.expr, name: str) -> bool:
    return isinstance(node, ast.Name) and node.id == name


def _is_call_of(node: ast.expr, name: str) -> bool:
    return isinstance(node, ast.Call) and _is(node.func, name)


def _is_dict_of(node: ast.expr, own: str) -> bool:
    """`self.__dict__`, `vars(self)`."""
    if isinstance(node, ast.Attribute):
        return node.attr == "__dict__" and _is(node.value, own)
    return _is_call_of(node, "vars") and isinstance(node, ast.Call) and bool(node.args) and _is(node.args[0], own)


def _set_outside(tree: ast.Module) -> Iterator[str]:
    """The names that code sets on other objects than its own."""
    own: set[int] = set()  # the first parameters of methods, where they are named
    for cls in (node for node in ast.walk(tree) if isinstance(node, ast.ClassDef)):
        for method in _methods(cls.body):
            if isinstance(method, ast.FunctionDef | ast.AsyncFunctionDef) and method.args.args:
                first = method.args.args[0].arg
                if first in ("self", "cls"):
                    own.update(id(n) for n in ast.walk(method) if isinstance(n, ast.Name) and n.id == first)
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store) and id(node.value) not in own:
            yield node.attr
        elif isinstance(node, ast.Call):
            name = ast.unparse(node.func) if isinstance(node.func, ast.Name | ast.Attribute) else ""
            index = 0 if name.rpartition(".")[2] in _REGISTERING else 1 if name in _SETTING else None
            if index is not None and len(node.args) > index:
                value = node.args[index]
                if isinstance(value, ast.Constant) and isinstance(value.value, str):
                    yield value.value


_SETTING = frozenset({"setattr", "object.__setattr__"})
_ASKING = frozenset({"hasattr", "getattr"})
_FILLING = frozenset({"locals", "vars", "exec", "setattr"})


# -- all releases ------------------------------------------------------------------------------------------


class Table:
    """What some release of a library has."""

    def __init__(self, library: str) -> None:
        self.library, self.is_python = library, library == "python"
        self.classes: dict[str, Class] = {}
        self.homes: dict[str, set[str]] = {}  # by public name
        self.outside: set[str] = set(_FORMED.get(library, ()))

    def add(self, release: Release) -> None:
        for home, cls in release.classes():
            if home.rpartition(".")[0] in release.stubs:
                cls.members |= _of_installed(home)
            self.classes.setdefault(home, Class()).add(cls)
        self.outside |= release.outside
        for module in release.texts:
            if any(part.startswith("_") for part in module.split(".")):
                continue
            for name in self._given(release, module):
                found = release.resolve(module, name)
                self.homes.setdefault(f"{module}.{name}", set()).update(found)

    @staticmethod
    def _given(release: Release, module: str, seen: frozenset[str] = frozenset()) -> Iterator[str]:
        for name, bindings in release.names(module).items():
            if name != "*":
                kinds = ("class", "from", "name") if release.hands_on(module) else ("class", "name")
                if not name.startswith("_") and any(each.kind in kinds for each in bindings):
                    yield name
                continue
            for each in bindings:
                if each.module in release.texts and each.module not in seen:
                    yield from Table._given(release, each.module, seen | {module})

    def set_on_others(self) -> list[str]:
        """What the library sets on objects that are not its own: no public name that its own classes have, as these are
        what it sets that on, and what no program can ask for."""
        own = {name for cls in self.classes.values() for name in cls.members if not name.startswith("_")}
        return sorted(name for name in self.outside - own if not _is_special(name) and name.isidentifier())

    def lines(self) -> Iterator[str]:
        """The lines of the table: open classes, and what no public name means, are left out."""
        for home, others in _BECOMING.items():
            for other in (each for each in self.classes if each.rpartition(".")[2] in others and home in self.classes):
                self.classes[home].members |= self.classes[other].members
        public = {name: homes - {"?"} for name, homes in self.homes.items()}
        public = {name: homes for name, homes in public.items() if homes and all(map(self._is_closed, homes))}
        needed: set[str] = set()
        waiting = [home for homes in public.values() for home in homes]
        while waiting:
            home = waiting.pop()
            if home not in needed and home in self.classes:
                needed.add(home)
                waiting += self.classes[home].bases
        for home in sorted(needed):
            cls = self.classes[home]
            yield " ".join([home, f"({' '.join(sorted(cls.bases))})", *sorted(cls.members)])
        for name in sorted(public):
            homes = {home for home in public[name] if home != name}
            if homes and (homes & needed or name in needed):
                yield " ".join([f"={name}", *sorted(public[name])])

    def _is_closed(self, home: str, seen: frozenset[str] = frozenset()) -> bool:
        """Whether nothing of this library adds members that are not known; others answer for themselves."""
        cls = self.classes.get(home)
        if cls is None:
            return home.partition(".")[0] not in _PACKAGES.get(self.library, (self.library,)) and not self.is_python
        return not cls.is_open and all(self._is_closed(each, seen | {home}) for each in cls.bases if each not in seen)


def _of_installed(home: str) -> set[str]:
    """The members of a class that is written in C, as the library says that is installed here; none if it is not."""
    module, _, name = home.rpartition(".")
    if module.partition(".")[0] in ("antigravity", "this"):
        return set()
    try:
        return {each for each in dir(getattr(importlib.import_module(module), name)) if not _is_special(each)}
    except (ImportError, AttributeError):
        return set()


def releases_of(library: str, folder: Path) -> Iterator[tuple[str, Release]]:
    if library == "python":
        own = Path(sysconfig.get_paths()["stdlib"])
        yield f"{sys.version_info[0]}.{sys.version_info[1]}", Release(library, _of_folder(own, ".py"))
        yield "stubs", Release(library, _of_folder(folder, ".pyi"))
        return
    for archive in sorted(folder.iterdir(), key=version_of):
        endings = (".py", "/_C/__init__.pyi", "/_C/_distributed_c10d.pyi", "/_C/_autograd.pyi")
        found = {}
        for name, text in texts_of(archive, endings):
            for package in _PACKAGES.get(library, (library,)):
                _, between, inside = f"/{name}".partition(f"/{package}/")
                if between and "/tests/" not in name:
                    found.setdefault(f"{package}/{inside}", text)
                    break
        yield ".".join(map(str, version_of(archive))), Release(library, found)


def _of_folder(folder: Path, ending: str) -> dict[str, str]:
    paths = folder.rglob(f"*{ending}")
    inside = {str(path.relative_to(folder)): path for path in paths}
    return {
        name: path.read_text("utf-8", "replace")
        for name, path in inside.items()
        if not is_unread("python", name.replace("/", "."))
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("library", choices=LIBRARIES)
    parser.add_argument("wheels", type=Path)
    given = parser.parse_args()
    table, there = Table(given.library), list[str]()
    for name, release in releases_of(given.library, given.wheels):
        there.append(name)
        table.add(release)
    lines = [
        f"# Members of the classes of {given.library}, read off {' '.join(there)} by `tests/library_members.py`.",
        "# `*`: what it sets on objects of others. A class by its home: its bases in brackets, its own members. `=`:",
        "# another name, and the homes of the classes that it means.",
        " ".join(["*", *table.set_on_others()]),
        *table.lines(),
    ]
    sys.stdout.write("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
