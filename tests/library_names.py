"""Reads which public names the modules of a library have off its releases, and prints the table that MP209 asks.

    python -m tests.library_names torch WHEELS > validator/models/members/modules/torch.txt

WHEELS is a folder of wheels or source archives of one library, one of each minor release (`pip download --no-deps`).
Nothing of them is imported or run. What C gives to a module is looked up in the stubs of each release, and in the
library itself where it is installed. A module that may have names which cannot be read is left out.
"""

from __future__ import annotations

import argparse
import ast
import importlib
import re
import sys
import textwrap
import warnings
from collections.abc import Iterator
from fnmatch import fnmatchcase
from pathlib import Path

from tests.library_releases import texts_of, version_of

# By library the modules whose names are not listed: what no training code imports, modules of which there are hundreds,
# those that packages for other devices fill, and what each build writes anew.
_UNLISTED: dict[str, tuple[str, ...]] = {
    "torch": (
        "torch.testing*", "torch.onnx*", "torch.ao*", "torch.fx*", "torch.utils.benchmark*", "torch.utils.hipify*",
        "torch.utils.model_dump*", "torch.utils.bottleneck*", "torch.utils.data.datapipes*", "torch.export*",
        "torch.quantization*", "torch.distributed.benchmarks*", "torch.contrib*", "torch.include*", "torch.bin*",
        "torch.share*", "torch.package*", "torch.xpu*", "torch.mtia*", "torch.utils.tensorboard*",
        "torch.distributed.flight_recorder*", "torch.version", "torch._inductor*", "torch._dynamo*", "torch._refs*",
        "torch._decomp*", "torch._prims*", "torch._numpy*", "torch._vendor*", "torch._native*", "torch._functorch*",
        "torch._higher_order_ops*", "torch._export*", "torch._C*", "torch._VF",
    ),
    "transformers": (
        "transformers.models*", "transformers.commands*", "transformers.cli*", "transformers.kernels*",
        "transformers.testing_utils", "transformers.agents*", "transformers.tools*", "transformers.sagemaker*",
        "transformers.onnx*", "transformers.*_tf_*", "transformers.*_flax_*", "transformers.*dummy_*",
        "transformers.convert_*", "transformers.pipelines.*",
    ),
    "datasets": ("datasets.commands*", "datasets.packaged_modules*"),
    "trl": ("trl.commands*", "trl.cli*"),
    "accelerate": ("accelerate.commands*", "accelerate.test_utils*"),
    "peft": ("peft.tuners.*.*",),
    "deepspeed": (
        "deepspeed.inference.v2*", "deepspeed.module_inject*", "deepspeed.model_implementations*", "deepspeed.nvme*",
        "deepspeed.autotuning*", "deepspeed.compression*", "deepspeed.launcher*", "deepspeed.compile*",
        "deepspeed.ops.op_builder*", "deepspeed.ops.transformer*", "deepspeed.ops.sparse_attention*",
    ),
    "pytorch_lightning": (),
}  # fmt: skip
LIBRARIES = tuple(_UNLISTED)
# Modules that take all names of what C gives, by loops over it.
_OF_C = {"torch": ("torch._C", "torch._C._VariableFunctions")}
_LAZY = re.compile(r"sys\.modules\[__name__\] = _LazyModule\(")  # its names are the texts of the file that makes it
_STRUCTURE = "define_import_structure("  # all that modules below a package export
_MARKS = frozenset({"requires", "export"})
_KEEPING = frozenset({"PropModule", "types.ModuleType", "ModuleType"})  # modules of such a class keep their names
_SCOPES = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Lambda)
_READING = frozenset({"get", "copy", "keys", "items"})


class Release:
    """One release of a library, module by module."""

    def __init__(self, library: str, archive: Path) -> None:
        self.library, self.version = library, version_of(archive)
        self.texts: dict[str, list[str]] = {}  # by module: its source and its stub
        self._packages: set[str] = set()
        self._trees: dict[str, list[ast.Module] | None] = {}
        self._known: dict[str, set[str]] = {}
        self._below: dict[str, set[str]] = {}
        for path, text in texts_of(archive, (".py", ".pyi")):
            _, between, inside = f"/{path}".partition(f"/{library}/")
            if between and "/tests/" not in path:
                self._add(f"{library}/{inside}", text)

    def _add(self, path: str, text: str) -> None:
        module = path.rpartition(".")[0].replace("/", ".")
        if module.endswith(".__init__"):
            module = module.removesuffix(".__init__")
            self._packages.add(module)
        self.texts.setdefault(module, []).append(text)
        while module:  # folders without an `__init__.py` are packages too
            above, _, name = module.rpartition(".")
            self._below.setdefault(above, set()).add(name)
            module = above

    def trees(self, module: str) -> list[ast.Module] | None:
        """The source of a module and its stub; None where they are written for a newer Python."""
        if module not in self._trees:
            try:
                self._trees[module] = [ast.parse(text) for text in self.texts[module]]
            except SyntaxError:
                self._trees[module] = None
        return self._trees[module]

    def names(self, module: str) -> set[str]:
        """All names that a module may have; `?` among them where there may be others."""
        if module not in self._known:
            self._known[module] = set()  # for a circle of star imports
            self._known[module] = self._names(module)
        return self._known[module]

    def _names(self, module: str) -> set[str]:
        found = set(self._below.get(module, ()))
        special = _OF_C.get(module, ())
        for each in special:
            found |= self.names(each) - {"?"}
        trees = self.trees(module)
        if trees is None:
            return {"?"}
        is_lazy = self._is_lazy(module)
        if any(_STRUCTURE in text for text in self.texts[module]):
            found |= self._structured(module)
        for tree in trees:
            computed = set(_computed(tree, is_lazy))
            found |= set(self._bound(module, tree.body)) | (computed - {"?"} if special else computed)
            found |= _texts(tree) if is_lazy else set()
        return found

    def _is_never_there(self, module: str) -> bool:
        """Whether a module is none of the library's: what C gives is private, and all else is in the release."""
        parts = module.split(".")
        return parts[0] == self.library and not any(part.startswith("_") for part in parts)

    def _is_lazy(self, module: str) -> bool:
        return any(_LAZY.search(text) for text in self.texts[module])

    def _structured(self, package: str) -> set[str]:
        """The names that modules below a package export, or mark for export."""
        found: set[str] = set()
        for module in self.texts:
            for tree in self.trees(module) or () if module.startswith(f"{package}.") else ():
                found |= {*(_all(tree) or ()), *_marked(tree)}
        return found

    def _bound(self, module: str, body: list[ast.stmt]) -> Iterator[str]:
        """The names that the statements of a module bind, on whatever way they are run."""
        for node in (each for row in body for each in _walk(row)):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                yield node.name
                yield from _declared_global(node)
            elif isinstance(node, ast.Import):
                yield from ((each.asname or each.name).partition(".")[0] for each in node.names)
            elif isinstance(node, ast.ImportFrom):
                for each in node.names:
                    if each.name == "*":
                        yield from self.exported(self._absolute(module, node), module)
                    else:
                        yield each.asname or each.name
            elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
                yield node.id

    def exported(self, module: str, importer: str) -> set[str]:
        """The names that `from module import *` brings to another module."""
        if module in _OF_C.get(importer, ()):
            return set()  # they are known already
        if module.partition(".")[0] in sys.stdlib_module_names:
            return {name for name in of_installed(module) if not name.startswith("_")}
        if module not in self.texts:
            return set() if self._is_lazy(importer) or self._is_never_there(module) else {"?"}
        told: list[str] | None = []
        for tree in self.trees(module) or ():
            each = _all(tree)
            told = told + each if each is not None and told is not None else None
        return set(told) if told else {name for name in self.names(module) if not name.startswith("_")}

    def _absolute(self, module: str, node: ast.ImportFrom) -> str:
        parts = module.split(".")
        up = node.level - (module in self._packages)
        above = parts[: len(parts) - up] if node.level else []
        return ".".join([*above, *([node.module] if node.module else [])])

    def set_from_outside(self) -> dict[str, set[str]]:
        """The names that modules of the library set on others of its modules, by module."""
        found: dict[str, set[str]] = {}
        for module in self.texts:
            for tree in self.trees(module) or () if is_read(self.library, module) else ():
                nodes = list(ast.walk(tree))
                meant = self._imported(module, nodes)
                for node in nodes:
                    if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
                        head, dot, rest = ast.unparse(node.value).partition(".")
                        if head in meant:
                            found.setdefault(meant[head] + dot + rest, set()).add(node.attr)
        return found

    def _imported(self, module: str, nodes: list[ast.AST]) -> dict[str, str]:
        meant: dict[str, str] = {}
        for node in nodes:
            if isinstance(node, ast.Import):
                for each in node.names:
                    meant[each.asname or each.name.partition(".")[0]] = (
                        each.name if each.asname else each.name.partition(".")[0]
                    )
            elif isinstance(node, ast.ImportFrom):
                source = self._absolute(module, node)
                meant.update((each.asname or each.name, f"{source}.{each.name}") for each in node.names)
        return meant


def _marked(tree: ast.Module) -> Iterator[str]:
    for node in tree.body:
        if isinstance(node, ast.ClassDef | ast.FunctionDef):
            marks = [ast.unparse(each).partition("(")[0] for each in node.decorator_list]
            yield from [node.name] * (not _MARKS.isdisjoint(marks))


def _walk(node: ast.AST) -> Iterator[ast.AST]:
    """A node and what is in it, but nothing that is in a scope of its own."""
    yield node
    if not isinstance(node, _SCOPES):
        for each in ast.iter_child_nodes(node):
            yield from _walk(each)


def _declared_global(node: ast.AST) -> Iterator[str]:
    for each in ast.walk(node):
        if isinstance(each, ast.Global):
            yield from each.names


def _computed(tree: ast.Module, is_lazy: bool) -> Iterator[str]:
    """The names that a module gives itself by other means than statements; `?` for those that cannot be told."""
    known = {
        id(inner) for node in ast.walk(tree) if is_lazy or _only_reads(node) for inner in ast.iter_child_nodes(node)
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign) and (cls := _class_of_itself(tree, node)) is not None:
            yield from (each for row in cls.body for each in _names_in(row))
            known |= {id(inner) for inner in ast.walk(node)}
        elif isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Store) and _is_call_of(node.value, "globals"):
            if id(node) in known:
                continue  # it keeps what `__getattr__` gives
            yield str(node.slice.value) if isinstance(node.slice, ast.Constant) else "?"
        elif (_is_own_module(node) or _is_call_of(node, "globals")) and id(node) not in known:
            yield "?"
    for row in (each for part in tree.body for each in _walk(part)):
        if isinstance(row, ast.FunctionDef) and row.name == "__getattr__":
            yield from _gotten(tree, row)
        elif id(row) not in known and any(_is_call_of(row, name) for name in ("exec", "locals", "vars")):
            yield "?"


def _class_of_itself(tree: ast.Module, node: ast.Assign) -> ast.ClassDef | None:
    """The class of which a module makes itself an object that keeps its names, and has those of the class as well."""
    target, value = node.targets[0], node.value
    if isinstance(target, ast.Attribute) and target.attr == "__class__" and _is_own_module(target.value):
        name = value
    elif _is_own_module(target) and isinstance(value, ast.Call) and value.args and _is_own_module(value.args[0]):
        name = value.func
    else:
        return None
    for cls in tree.body:
        if isinstance(cls, ast.ClassDef) and isinstance(name, ast.Name) and cls.name == name.id:
            methods = {each.name for each in cls.body if isinstance(each, ast.FunctionDef)}
            is_kept = all(ast.unparse(base) in _KEEPING for base in cls.bases)
            return cls if is_kept and methods.isdisjoint({"__getattr__", "__getattribute__"}) else None
    return None


def _names_in(row: ast.stmt) -> Iterator[str]:
    if isinstance(row, ast.FunctionDef | ast.ClassDef):
        yield row.name
    yield from (n.id for n in _walk(row) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store))


def _only_reads(node: ast.AST) -> bool:
    """Whether a node holds `globals()`, or the module itself, only to read of it: `globals()["x"]`."""
    if isinstance(node, ast.Subscript):
        return True  # stores are looked at by themselves
    if isinstance(node, ast.Call) and _is_call_of(node, "hasattr"):
        return True
    return isinstance(node, ast.Attribute) and node.attr in _READING or isinstance(node, ast.Compare)


def _is_call_of(node: ast.AST, name: str) -> bool:
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == name


def _is_own_module(node: ast.AST) -> bool:
    return (
        isinstance(node, ast.Subscript)
        and isinstance(node.slice, ast.Name)
        and node.slice.id == "__name__"
        and ast.unparse(node.value) == "sys.modules"
    )


def _gotten(tree: ast.Module, function: ast.FunctionDef) -> Iterator[str]:
    """What `__getattr__` of a module may give: the texts in it, and those in the tables that it asks."""
    asked = function.args.args[0].arg
    used = {node.id for node in ast.walk(function) if isinstance(node, ast.Name)}
    yield from _texts(function)
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name) and node.targets[0].id in used:
            yield from _texts(node.value)
    refuses = any(isinstance(n, ast.Raise) and "AttributeError" in ast.unparse(n) for n in ast.walk(function))
    passes = any(
        isinstance(n, ast.Call) and ast.unparse(n.func) == "getattr" and ast.unparse(n.args[1]) == asked
        for n in ast.walk(function)
    )
    if not refuses or passes or ".startswith" in ast.unparse(function):
        yield "?"


def _texts(node: ast.AST) -> set[str]:
    """The texts in some code that may be names, the first part of dotted ones."""
    texts = (n.value for n in ast.walk(node) if isinstance(n, ast.Constant) and isinstance(n.value, str))
    return {first for text in texts if (first := text.partition(".")[0]).isidentifier()}


def _all(tree: ast.Module) -> list[str] | None:
    """The names in `__all__`; None where it cannot be told, or where there is none."""
    found: list[str] = []
    for node in (each for row in tree.body for each in _walk(row)):
        if isinstance(node, ast.Assign | ast.AugAssign | ast.AnnAssign):
            target = node.targets[0] if isinstance(node, ast.Assign) else node.target
            if isinstance(target, ast.Name) and target.id == "__all__":
                value = node.value
                if not isinstance(value, ast.List | ast.Tuple) or not all(
                    isinstance(e, ast.Constant) for e in value.elts
                ):
                    return None
                found += [str(e.value) for e in value.elts if isinstance(e, ast.Constant)]
        elif isinstance(node, ast.Attribute) and ast.unparse(node.value) == "__all__":
            return None
    return found or None


# -- all releases ------------------------------------------------------------------------------------------


def is_listed(library: str, module: str) -> bool:
    """Whether users import from a module."""
    return is_read(library, module) and not any(part.startswith("_") for part in module.split("."))


def is_read(library: str, module: str) -> bool:
    """Whether a module is of those that users, or the modules they use, import."""
    tests = not {"test", "tests", "testing"}.isdisjoint(module.split("."))
    return not tests and not any(fnmatchcase(module, each) for each in _UNLISTED[library])


def table(library: str, releases: Iterator[Release]) -> dict[str, set[str]]:
    """The public names of each module, in any release."""
    found: dict[str, set[str]] = {}
    for release in releases:
        for module in release.texts:
            if is_listed(library, module):
                found.setdefault(module, set()).update(release.names(module))
        for module, names in release.set_from_outside().items():
            if module in found:
                found[module] |= names
    for module, names in found.items():
        names |= of_installed(module)
    return {
        module: {name for name in names if not name.startswith("_")}
        for module, names in found.items()
        if "?" not in names
    }


def of_installed(module: str) -> set[str]:
    """The names of a module in the release that is installed here; none where it is not, or needs something else."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return set(dir(importlib.import_module(module)))
        except Exception:  # whatever an import may do
            return set()


def lines(library: str, archives: list[Path]) -> Iterator[str]:
    """The lines of the table."""
    versions = [".".join(map(str, version_of(each))) for each in archives]
    found = table(library, (Release(library, each) for each in archives))
    yield f"# Public names of the modules of {library}, in any of the releases {' '.join(versions)}, read off them by"
    yield "# `tests/library_names.py`. A module: its names. Modules that may have others are left out."
    yield f"releases: {' '.join(versions)}"
    for module in sorted(found):
        yield from textwrap.wrap(
            f"{module}: {' '.join(sorted(found[module]))}", 118, subsequent_indent=" ", break_on_hyphens=False
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("library", choices=LIBRARIES)
    parser.add_argument("wheels", type=Path)
    given = parser.parse_args()
    archives = sorted(given.wheels.iterdir(), key=version_of)
    sys.stdout.write("\n".join(lines(given.library, archives)) + "\n")


if __name__ == "__main__":
    main()
