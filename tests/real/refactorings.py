"""Complete refactorings of real trees: each changes how a program is written, everywhere, and not what it does.

Targets are names that stand nowhere in a tree but where a syntax tree shows them; the edits are exact edits of text.
Nothing here asks the validator: what it says of the result is what is tested.
"""

from __future__ import annotations

import ast
import builtins
import random
import re
import textwrap
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from functools import cached_property
from typing import Any, NamedTuple

Function = ast.FunctionDef | ast.AsyncFunctionDef
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
_SCOPES = (*_FUNCTIONS, ast.ClassDef, ast.Lambda)
_COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)
_ASIDE = frozenset({"test", "tests", "tests_v1", "example", "examples", "docs", "third_party", "benchmark", "tools"})
_MEETING = frozenset({"barrier", "all_reduce", "all_gather", "broadcast", "all_gather_object", "broadcast_object_list",
                      "synchronize", "wait_for_everyone", "gather", "reduce", "all_to_all", "zero_grad"})  # fmt: skip
_WORD = re.compile(rb"[A-Za-z_]\w*")
_BUILTINS = frozenset(dir(builtins))


class UnfitError(Exception):
    """A target that cannot be edited completely."""


class Refactoring(NamedTuple):
    """A kind, what it was done to, and the files that it changed; None for one that is gone."""

    kind: str
    target: str
    files: dict[str, bytes | None]


class Place(NamedTuple):
    """Where a name stands in a file, in which node."""

    path: str
    node: Any


class File:
    """A file of Python with its syntax tree and the offsets of its lines."""

    def __init__(self, path: str, data: bytes) -> None:
        self.path = path
        self.data = data
        self.tree = ast.parse(data)
        self.starts = [0]
        for line in data.splitlines(keepends=True):
            self.starts.append(self.starts[-1] + len(line))

    @cached_property
    def parents(self) -> dict[ast.AST, ast.AST]:
        return {child: node for node in ast.walk(self.tree) for child in ast.iter_child_nodes(node)}

    def around(self, node: ast.AST) -> Iterator[ast.AST]:
        while (above := self.parents.get(node)) is not None:
            yield above
            node = above

    def function(self, node: ast.AST) -> Function | None:
        return next((each for each in self.around(node) if isinstance(each, _FUNCTIONS)), None)

    def start(self, node: Any) -> int:
        return int(self.starts[node.lineno - 1] + node.col_offset)

    def end(self, node: Any) -> int:
        return int(self.starts[node.end_lineno - 1] + node.end_col_offset)

    def text(self, node: Any) -> str:
        return self.data[self.start(node) : self.end(node)].decode()

    def lines(self, first: Any, last: Any | None = None) -> tuple[int, int]:
        """From the start of the line of a statement (its decorators too) to the start of that after it."""
        last = last or first
        line = min([first.lineno, *(each.lineno for each in getattr(first, "decorator_list", ()))])
        start, end = self.starts[line - 1], self.starts[last.end_lineno]
        before = self.data[start : self.start(first)] if line == first.lineno else b""
        after = self.data[self.end(last) : end].strip()
        if before.strip() or after and not after.startswith(b"#"):
            raise UnfitError
        return start, end

    def indent(self, node: Any) -> str:
        return self.data[self.starts[node.lineno - 1] : self.start(node)].decode()


class Edits:
    """Exact edits of the files of a tree."""

    def __init__(self, tree: Tree) -> None:
        self.tree = tree
        self.rows: dict[str, list[tuple[int, int, bytes]]] = defaultdict(list)
        self.made: dict[str, bytes | None] = {}

    def put(self, path: str, start: int, end: int, text: str) -> None:
        self.rows[path].append((start, end, text.encode()))

    def replace(self, file: File, node: Any, text: str) -> None:
        self.put(file.path, file.start(node), file.end(node), text)

    def name(self, file: File, node: Any, new: str) -> None:
        """Another name at the place of a node that bears one."""
        if isinstance(node, ast.Name | ast.arg):
            start = file.start(node)
            old = node.id if isinstance(node, ast.Name) else node.arg
        elif isinstance(node, ast.Attribute):
            start, old = file.end(node) - len(node.attr.encode()), node.attr
        elif isinstance(node, ast.keyword):
            start, old = file.start(node), node.arg or ""
        else:
            raise UnfitError
        if file.data[start : start + len(old.encode())] != old.encode():
            raise UnfitError
        self.put(file.path, start, start + len(old.encode()), new)

    def words(self, old: str, new: str) -> None:
        """Another word in all files, with underscores and with hyphens."""
        for path in self.tree.holding(old):
            data = self.tree.files[path]
            made = re.sub(rb"(?<![\w])" + old.encode() + rb"(?!\w)", new.encode(), data)
            dashed = old.replace("_", "-").encode()
            made = re.sub(rb"(?<![\w-])--" + dashed + rb"(?![\w-])", b"--" + new.replace("_", "-").encode(), made)
            if made != data:
                self.made[path] = made

    def files(self) -> dict[str, bytes | None]:
        found = dict(self.made)
        for path, rows in self.rows.items():
            data, last = self.tree.files[path], len(self.tree.files[path]) + 1
            for start, end, text in sorted(rows, key=lambda row: (row[0], row[1]), reverse=True):
                if end > last:
                    raise UnfitError
                data, last = data[:start] + text + data[end:], start
            found[path] = data
        for path, made in found.items():
            if path.endswith(".py") and made is not None:
                try:
                    compile(made, path, "exec", dont_inherit=True)
                except (SyntaxError, ValueError):
                    raise UnfitError from None
        return found


class Tree:
    """The files of a project, and where each name stands in them."""

    def __init__(self, files: dict[str, bytes]) -> None:
        self.files = files
        self.parsed: dict[str, File] = {}
        for path, data in sorted(files.items()):
            if path.endswith(".py"):
                try:
                    self.parsed[path] = File(path, data)
                except (SyntaxError, ValueError):
                    continue
        self.count: Counter[str] = Counter()
        self._holding: dict[str, set[str]] = defaultdict(set)
        for path, data in files.items():
            for word, number in Counter(_WORD.findall(data)).items():
                self.count[word.decode()] += number
                self._holding[word.decode()].add(path)
        self.places: dict[str, list[Place]] = defaultdict(list)
        for path, file in self.parsed.items():
            for node in ast.walk(file.tree):
                for name in _borne(node):
                    self.places[name].append(Place(path, node))

    def holding(self, name: str) -> list[str]:
        dashed = name.replace("_", "-").encode()
        return sorted(self._holding[name] | {path for path, data in self.files.items() if dashed in data})

    def is_free(self, name: str) -> bool:
        return not self.count[name]

    def is_shown(self, name: str) -> bool:
        """Whether a name stands nowhere but where syntax trees show it: in no text, comment or other file."""
        outside = sum(len(re.findall(rf"\b{name}\b".encode(), d)) for p, d in self._pages(name))
        return self.count[name] - outside == len(self.places[name])

    def _pages(self, name: str) -> Iterator[tuple[str, bytes]]:
        return ((p, self.files[p]) for p in self._holding[name] if p.endswith((".md", ".rst", ".mdx", ".qmd")))

    def own(self, kind: Any) -> list[tuple[File, Any]]:
        """The nodes of a type in the program itself, not in tests and examples."""
        return [
            (file, node)
            for path, file in self.parsed.items()
            if _ASIDE.isdisjoint(path.split("/")[:-1]) and not path.split("/")[-1].startswith(("test_", "conftest"))
            for node in ast.walk(file.tree)
            if isinstance(node, kind)
        ]

    def unique(self, node: Any) -> bool:
        """Whether a definition is the only thing that bears its name, but for what asks for it."""
        rows = self.places[node.name]
        defining = [row for row in rows if _defines(row.node)]
        return len(defining) == 1 and _is_telling(node.name)

    def unique_any(self, node: Any) -> bool:
        """The same of a function or a class, of however many words."""
        rows = [row for row in self.places[node.name] if _defines(row.node)]
        return len(rows) == 1 and len(node.name) > 5 and not node.name.startswith(("test_", "Test"))


def _borne(node: Any) -> Iterator[str]:
    if isinstance(node, ast.Name):
        yield node.id
    elif isinstance(node, ast.Attribute):
        yield node.attr
    elif isinstance(node, (*_FUNCTIONS, ast.ClassDef)):
        yield node.name
    elif isinstance(node, ast.arg):
        yield node.arg
    elif isinstance(node, ast.keyword | ast.ExceptHandler | ast.MatchAs):
        name = node.arg if isinstance(node, ast.keyword) else node.name
        if name:
            yield name
    elif isinstance(node, ast.Global | ast.Nonlocal):
        yield from node.names
    elif isinstance(node, ast.ImportFrom | ast.Import):
        for alias in node.names:
            yield from alias.name.split(".")
            if alias.asname:
                yield alias.asname
        if isinstance(node, ast.ImportFrom) and node.module:
            yield from node.module.split(".")


def _defines(node: Any) -> bool:
    if isinstance(node, (*_FUNCTIONS, ast.ClassDef, ast.arg, ast.ExceptHandler, ast.MatchAs)):
        return True
    return isinstance(node, ast.Name | ast.Attribute) and not isinstance(node.ctx, ast.Load)


def _is_telling(name: str) -> bool:
    return len([part for part in name.split("_") if part]) > 1 and not name.startswith(("__", "test_", "pytest_"))


def _owner(file: File, node: ast.AST) -> ast.ClassDef | None:
    above = file.parents[node]
    return above if isinstance(above, ast.ClassDef) else None


def _used(node: ast.AST, context: Any = ast.Load) -> set[str]:
    return {n.id for n in ast.walk(node) if isinstance(n, ast.Name) and isinstance(n.ctx, context)}


def _block(text: str, indent: str) -> str:
    return textwrap.indent(textwrap.dedent(text), indent, lambda line: bool(line.strip()))


def _is_text_over_lines(node: ast.AST) -> bool:
    return any(
        isinstance(n, ast.JoinedStr | ast.Constant) and n.lineno != n.end_lineno and not isinstance(n, ast.expr_context)
        for n in ast.walk(node)
        if hasattr(n, "lineno")
    )


# -- names -----------------------------------------------------------------------------------------------------


def _renamed(name: str, rng: random.Random) -> str:
    first, *rest = [part for part in name.strip("_").split("_") if part]
    lead = "_" * (len(name) - len(name.lstrip("_")))
    return lead + rng.choice(
        [f"{first}_all_{'_'.join(rest)}", f"{'_'.join(rest)}_{first}", f"{first}_{'_'.join(rest)}_now"]
    )


def rename_function(tree: Tree, rng: random.Random) -> Iterator[Refactoring]:
    for file, node in _shuffled(tree.own(_FUNCTIONS), rng):
        owner = _owner(file, node)
        if not tree.unique(node) or len(tree.places[node.name]) < 2 or file.function(node) is not None:
            continue
        if owner is not None and (owner.bases or owner.decorator_list):
            continue  # a base may ask for it
        if any(isinstance(row.node, ast.keyword) for row in tree.places[node.name]):
            continue
        new = _renamed(node.name, rng)
        if tree.is_free(new):
            edits = Edits(tree)
            edits.words(node.name, new)
            yield Refactoring(
                "renamed " + ("method" if owner else "function"), f"{file.path}: {node.name} -> {new}", edits.files()
            )


def rename_attribute(tree: Tree, rng: random.Random) -> Iterator[Refactoring]:
    rows = [(f, n) for f, n in tree.own(ast.Attribute) if isinstance(n.ctx, ast.Store) and _is_telling(n.attr)]
    for file, node in _shuffled(rows, rng):
        places = tree.places[node.attr]
        own = isinstance(node.value, ast.Name) and node.value.id == "self"
        loads = sum(isinstance(row.node, ast.Attribute) and isinstance(row.node.ctx, ast.Load) for row in places)
        if not own or not loads or not all(isinstance(row.node, ast.Attribute) for row in places):
            continue
        if not tree.is_shown(node.attr) or not all(_is_of_self(row.node) for row in places):
            continue
        new = _renamed(node.attr, rng)
        if tree.is_free(new):
            edits = Edits(tree)
            edits.words(node.attr, new)
            yield Refactoring("renamed attribute", f"{file.path}: {node.attr} -> {new}", edits.files())


def _is_of_self(node: ast.Attribute) -> bool:
    return isinstance(node.value, ast.Name) and node.value.id == "self"


def rename_option(tree: Tree, rng: random.Random) -> Iterator[Refactoring]:
    """A field of a data class or a flag of a parser, with all that reads and sets it."""
    rows = []
    for file, node in tree.own((ast.ClassDef, ast.Call)):
        if isinstance(node, ast.ClassDef):
            if any("dataclass" in ast.unparse(each) for each in node.decorator_list) and not node.bases:
                rows += [
                    (file, s.target.id)
                    for s in node.body
                    if isinstance(s, ast.AnnAssign) and isinstance(s.target, ast.Name)
                ]
        elif isinstance(node.func, ast.Attribute) and node.func.attr == "add_argument" and node.args:
            first = node.args[0]
            if (
                isinstance(first, ast.Constant)
                and isinstance(first.value, str)
                and re.fullmatch(r"--[\w-]+", first.value)
            ):
                rows.append((file, first.value[2:].replace("-", "_")))
    for file, name in _shuffled(rows, rng):
        defined = {
            name
            for name in tree.places
            if any(isinstance(r.node, (*_FUNCTIONS, ast.ClassDef)) for r in tree.places[name])
        }
        passed = [row for row in tree.places[name] if isinstance(row.node, ast.keyword)]
        if not _is_telling(name) or len(tree.holding(name)) < 2 or not tree.places[name]:
            continue
        if any(_callee(tree.parsed[row.path].parents[row.node]) not in defined for row in passed):
            continue
        if any(isinstance(row.node, _FUNCTIONS) for row in tree.places[name]):
            continue
        new = _renamed(name, rng)
        if tree.is_free(new) and not tree.holding(new):
            edits = Edits(tree)
            edits.words(name, new)
            yield Refactoring("renamed option", f"{file.path}: {name} -> {new}", edits.files())


def _callee(node: Any) -> str:
    func = getattr(node, "func", None)
    return func.id if isinstance(func, ast.Name) else func.attr if isinstance(func, ast.Attribute) else ""


def rename_locals(tree: Tree, rng: random.Random) -> Iterator[Refactoring]:
    for file, node in _shuffled(tree.own(_FUNCTIONS), rng):
        inside = [each for each in ast.walk(node) if each is not node]
        if len(node.body) < 6 or any(
            isinstance(each, (*_SCOPES, ast.Global, ast.Nonlocal, *_COMPREHENSIONS)) for each in inside
        ):
            continue
        params = {each.arg for each in ast.walk(node.args) if isinstance(each, ast.arg)}
        held = {name for each in inside for name in _imported(each)}
        names = {n for n in _used(node, ast.Store) - params - held if len(n) > 2}
        if (
            not names
            or "locals" in _used(node)
            or any(isinstance(each, ast.MatchAs | ast.ExceptHandler) for each in inside)
        ):
            continue
        edits = Edits(tree)
        for each in inside:
            if isinstance(each, ast.Name) and each.id in names:
                edits.name(file, each, f"own_{each.id}")
        yield Refactoring("renamed locals", f"{file.path}: {node.name}", edits.files())


def _imported(node: ast.AST) -> Iterator[str]:
    if isinstance(node, ast.Import | ast.ImportFrom):
        for alias in node.names:
            yield (alias.asname or alias.name).partition(".")[0]


# -- places ----------------------------------------------------------------------------------------------------


def _top_imports(file: File) -> dict[str, str]:
    """By bound name the statement that imports it at the top."""
    found = {}
    for node in file.tree.body:
        if isinstance(node, ast.Import | ast.ImportFrom):
            for alias in node.names:
                name = (alias.asname or alias.name).partition(".")[0]
                alone = (
                    ast.ImportFrom(node.module, [alias], node.level)
                    if isinstance(node, ast.ImportFrom)
                    else ast.Import([alias])
                )
                found[name] = ast.unparse(alone)
    return found


def _move(tree: Tree, rng: random.Random, keep: bool) -> Iterator[Refactoring]:
    for file, node in _shuffled(tree.own((*_FUNCTIONS, ast.ClassDef)), rng):
        if file.parents[node] is not file.tree or not tree.unique_any(node) or file.path.endswith("__init__.py"):
            continue
        name, rows = node.name, tree.places[node.name]
        imports = _top_imports(file)
        needed = _globals(node) - {name}
        if not tree.is_shown(name) or len(rows) < 2 or not needed <= set(imports) | _BUILTINS:
            continue
        if any(isinstance(row.node, ast.Attribute | ast.keyword) for row in rows):
            continue
        old = file.path.rpartition("/")[2][:-3]
        fresh = f"{name.strip('_').lower()}_parts"
        if not tree.is_free(fresh) or "/" not in file.path:
            continue
        edits = Edits(tree)
        users = [row for row in rows if isinstance(row.node, ast.ImportFrom)]
        try:
            for row in users:
                if (row.node.module or "").rpartition(".")[2] == old and not keep:
                    _reimport(edits, tree.parsed[row.path], row.node, name, fresh)
                elif not keep and (row.node.module or "") and not _is_package(tree, row.node.module):
                    raise UnfitError
            start, end = file.lines(node)
            here = keep or any(row.path == file.path and row.node is not node for row in rows)
            edits.put(file.path, start, end, "")
            if here:
                edits.put(file.path, *_after_docs(file), f"from .{fresh} import {name}\n")
            lines = [
                "from __future__ import annotations",
                "",
                *sorted({imports[each] for each in needed if each in imports}),
            ]
            lines = [line for line in lines if not line.startswith("from __future__") or line == lines[0]]
            text = "\n".join(lines) + "\n\n\n" + file.data[start:end].decode()
            files = edits.files()
        except UnfitError:
            continue
        files[f"{file.path.rpartition('/')[0]}/{fresh}.py"] = text.encode()
        kind = ("moved class" if isinstance(node, ast.ClassDef) else "moved function") + (
            ", kept in reach" if keep else ""
        )
        yield Refactoring(kind, f"{file.path}: {name}", files)


def move(tree: Tree, rng: random.Random) -> Iterator[Refactoring]:
    return _move(tree, rng, keep=False)


def move_and_reexport(tree: Tree, rng: random.Random) -> Iterator[Refactoring]:
    return _move(tree, rng, keep=True)


def _is_package(tree: Tree, module: str) -> bool:
    tail = module.replace(".", "/") + "/__init__.py"
    return any(path.endswith(tail) for path in tree.parsed)


def _reimport(edits: Edits, file: File, node: ast.ImportFrom, name: str, fresh: str) -> None:
    moved = [alias for alias in node.names if alias.name == name]
    rest = [alias for alias in node.names if alias.name != name]
    head = (node.module or "").rpartition(".")[0]
    lines = [ast.unparse(ast.ImportFrom(f"{head}.{fresh}" if head else fresh, moved, node.level))]
    if rest:
        lines.append(ast.unparse(ast.ImportFrom(node.module, rest, node.level)))
    start, end = file.lines(node)
    edits.put(file.path, start, end, "".join(f"{file.indent(node)}{line}\n" for line in lines))


def _after_docs(file: File) -> tuple[int, int]:
    """A place behind the documentation and `__future__` of a module, before all else."""
    for node in file.tree.body:
        is_doc = isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
        if not is_doc and not (isinstance(node, ast.ImportFrom) and node.module == "__future__"):
            return (file.lines(node)[0],) * 2
    raise UnfitError


def _globals(node: ast.AST) -> set[str]:
    """Names that a definition reads and does not bind."""
    bound = _used(node, ast.Store)
    for each in ast.walk(node):
        if isinstance(each, ast.arg):
            bound.add(each.arg)
        elif isinstance(each, (*_FUNCTIONS, ast.ClassDef, ast.ExceptHandler)) and each.name:
            bound.add(each.name)
        bound.update(_imported(each))
    read = _used(node)
    for each in ast.walk(node):
        if (
            isinstance(each, ast.Constant)
            and isinstance(each.value, str)
            and each.value.isidentifier()
            and each.value[0].isupper()
        ):
            read.add(each.value)  # it may be an annotation
    texts = {each for each in read if each not in _used(node)}
    return (read - texts) - bound


# -- parts -----------------------------------------------------------------------------------------------------


def extract(tree: Tree, rng: random.Random) -> Iterator[Refactoring]:
    """A few statements become a function, or a method, that is called in their place."""
    found = []
    for file, node in tree.own(_FUNCTIONS):
        if file.function(node) is not None or len(node.body) < 4:
            continue
        for each in ast.walk(node):
            for name in ("body", "orelse"):
                body = getattr(each, name, None)
                if isinstance(body, list) and len(body) > 2 and file.function(body[0]) is node:
                    for at in range(len(body) - 2):
                        found.append((file, node, body[at : at + rng.choice([2, 3])]))
    meeting = [row for row in found if any(_callee(n) in _MEETING for s in row[2] for n in ast.walk(s))]
    turn = _alternating(_shuffled(meeting, rng), _shuffled(found, rng))
    for file, node, body in turn:
        try:
            yield _extracted(tree, file, node, body)
        except UnfitError:
            continue


def _alternating(one: list[Any], other: list[Any]) -> Iterator[Any]:
    for index in range(max(len(one), len(other))):
        yield from one[index : index + 1]
        yield from other[index : index + 1]


def _extracted(tree: Tree, file: File, node: Function, body: list[ast.stmt]) -> Refactoring:
    inside = [each for s in body for each in ast.walk(s)]
    leaving = (ast.Return, ast.Break, ast.Continue, ast.Yield, ast.YieldFrom, ast.Await, *_SCOPES, ast.NamedExpr)
    leaving = (*leaving, ast.Import, ast.ImportFrom, ast.Delete, ast.AsyncFor, ast.AsyncWith, ast.Match, ast.Try)
    if any(isinstance(each, leaving) for each in inside) or any(_is_text_over_lines(s) for s in body):
        raise UnfitError
    whole = list(ast.walk(node))
    if (
        any(isinstance(each, ast.Global | ast.Nonlocal) for each in whole)
        or isinstance(body[0], ast.Expr)
        and isinstance(body[0].value, ast.Constant)
    ):
        raise UnfitError
    owner = _owner(file, node)
    params = [each.arg for each in ast.walk(node.args) if isinstance(each, ast.arg)]
    is_method = (
        owner is not None
        and params[:1] == ["self"]
        and not any("static" in ast.unparse(d) for d in node.decorator_list)
    )
    if owner is not None and not is_method or file.function(node) is not None:
        raise UnfitError
    own = {id(each) for each in inside}
    comprised = {
        n
        for each in inside
        if isinstance(each, _COMPREHENSIONS)
        for g in each.generators
        for n in _used(g.target, ast.Store)
    }
    outside = [each for each in whole if id(each) not in own and isinstance(each, ast.Name)]
    if comprised & ({each.id for each in outside} | set(params)):
        raise UnfitError
    bound = {n for s in body for n in _used(s, ast.Store)} - comprised
    read = {n for s in body for n in _used(s)} | {
        each.target.id for each in inside if isinstance(each, ast.AugAssign) and isinstance(each.target, ast.Name)
    }
    if read & {"super", "locals", "vars", "exec", "eval", "__class__"}:
        raise UnfitError
    first = body[0].lineno
    earlier = {each.id for each in outside if isinstance(each.ctx, ast.Store) and each.lineno < first} | set(params)
    earlier |= {
        name
        for each in whole
        if each.__class__ in (ast.Import, ast.ImportFrom) and each.lineno < first
        for name in _imported(each)
    }
    earlier |= {
        each.name
        for each in whole
        if isinstance(each, (*_FUNCTIONS, ast.ClassDef, ast.ExceptHandler)) and each is not node and each.name
    }
    later = {each.id for each in outside if isinstance(each.ctx, ast.Store)} - earlier
    if later & read - bound:
        raise UnfitError
    fresh: set[str] = set()
    seen: set[str] = set()
    certain: set[str] = set()
    for s in body:
        if isinstance(s, ast.Assign):
            seen |= _used(s.value)
            certain |= {n for t in s.targets for n in _used(t, ast.Store)}
            fresh |= certain - seen
        seen |= _used(s) | _used(s, ast.Store)
    given = sorted((read & earlier) - {"self"} - fresh - comprised)
    kept = sorted(bound & {each.id for each in outside if isinstance(each.ctx, ast.Load)})
    if set(kept) - certain - set(given) or len(kept) > 3:
        raise UnfitError
    name = f"_{node.name.strip('_')}_part"
    if not tree.is_free(name):
        raise UnfitError
    start, end = file.lines(body[0], body[-1])
    depth = file.indent(body[0])
    if depth.strip() or file.data[start:end].count(b"\t"):
        raise UnfitError
    call = f"{'self.' if is_method else ''}{name}({', '.join(given)})"
    edits = Edits(tree)
    edits.put(file.path, start, end, f"{depth}{', '.join(kept) + ' = ' if kept else ''}{call}\n")
    outer = " " * node.col_offset
    lines = f"\n{outer}def {name}({', '.join([*(['self'] if is_method else []), *given])}):\n"
    lines += _block(file.data[start:end].decode(), outer + "    ")
    lines += f"{outer}    return {', '.join(kept)}\n" if kept else ""
    after = file.lines(node)[1]
    edits.put(file.path, after, after, lines)
    meets = any(_callee(each) in _MEETING for each in inside)
    kind = "extracted " + ("method" if is_method else "function") + (" that meets" if meets else "")
    return Refactoring(kind, f"{file.path}: {node.name}:{first}", edits.files())


def inline(tree: Tree, rng: random.Random) -> Iterator[Refactoring]:
    """A helper that is called once is written out there."""
    for file, node in _shuffled(tree.own(ast.FunctionDef), rng):
        try:
            yield _inlined(tree, file, node)
        except UnfitError:
            continue


def _inlined(tree: Tree, file: File, node: ast.FunctionDef) -> Refactoring:
    rows = [row for row in tree.places[node.name] if row.node is not node]
    args, owner = node.args, _owner(file, node)
    if len(rows) != 1 or not tree.unique(node) or not tree.is_shown(node.name) or rows[0].path != file.path:
        raise UnfitError
    if node.decorator_list or args.vararg or args.kwarg or args.kwonlyargs or args.defaults or args.posonlyargs:
        raise UnfitError
    if owner is None and file.parents[node] is not file.tree:
        raise UnfitError
    use = rows[0].node
    call = file.parents[use]
    line = file.parents.get(call)
    there = file.function(use)
    if not isinstance(call, ast.Call) or call.func is not use or call.keywords or there is None or there is node:
        raise UnfitError
    if not isinstance(line, ast.Assign | ast.Expr | ast.Return) or line.value is not call:
        raise UnfitError
    if file.function(line) is not there or any(isinstance(n, ast.Starred) for n in call.args):
        raise UnfitError
    params = [each.arg for each in args.args]
    if owner is not None:
        mine = isinstance(use, ast.Attribute) and isinstance(use.value, ast.Name) and use.value.id == "self"
        if params[:1] != ["self"] or not mine or _owner(file, there) is not owner:
            raise UnfitError
        params = params[1:]
    elif not isinstance(use, ast.Name):
        raise UnfitError
    inside = [n for n in ast.walk(node) if n is not node]
    body = [s for s in node.body if not (isinstance(s, ast.Expr) and isinstance(s.value, ast.Constant))]
    returns = [n for n in inside if isinstance(n, ast.Return)]
    bad = (
        ast.Yield,
        ast.YieldFrom,
        ast.Await,
        *_SCOPES,
        ast.Global,
        ast.Nonlocal,
        ast.Import,
        ast.ImportFrom,
        *_COMPREHENSIONS,
    )
    if any(isinstance(n, bad) for n in inside) or len(body) < 2 or _is_text_over_lines(node) and body is node.body:
        raise UnfitError
    if any(_is_text_over_lines(s) for s in body) or len(params) != len(call.args) or "super" in _used(node):
        raise UnfitError
    ends = isinstance(body[-1], ast.Return)
    if len(returns) != int(ends) or not ends and not isinstance(line, ast.Expr):
        raise UnfitError
    local = set(params) | _used(node, ast.Store)
    taken = _used(there) | _used(there, ast.Store) | {n.arg for n in ast.walk(there.args) if isinstance(n, ast.arg)}
    names = {n: n if n not in taken else f"{n}_{node.name.strip('_')[:6]}" for n in local}
    if any(isinstance(n, ast.ExceptHandler) and n.name for n in inside) or (_used(node) - local) & _used(
        there, ast.Store
    ):
        raise UnfitError
    piece = Edits(tree)
    for n in inside:
        if isinstance(n, ast.Name) and n.id in names and names[n.id] != n.id:
            piece.name(file, n, names[n.id])
    depth = file.indent(line)
    assigned = "".join(f"{depth}{names[p]} = {ast.unparse(a)}\n" for p, a in zip(params, call.args, strict=True))
    text = assigned
    firsts = body[:-1] if ends else body
    for s in firsts:
        text += _block(_cut(piece, file, *file.lines(s)), depth)
    if ends:
        value = body[-1].value  # type: ignore[attr-defined]
        back = _cut(piece, file, file.start(value), file.end(value)) if value is not None else "None"
        back = f"({back})" if "\n" in back else back
        left = file.data[file.start(line) : file.start(call)].decode()
        text += f"{depth}{left}{back}\n"
    edits = Edits(tree)
    edits.put(file.path, *file.lines(line), text)
    edits.put(file.path, *file.lines(node), f"{file.indent(node)}pass\n" if owner and len(owner.body) == 1 else "")
    return Refactoring("inlined helper", f"{file.path}: {node.name}", edits.files())


def _cut(edits: Edits, file: File, start: int, end: int) -> str:
    """A part of a file with the edits that fall into it."""
    data = file.data[start:end]
    for first, last, text in sorted(edits.rows[file.path], reverse=True):
        if start <= first and last <= end:
            data = data[: first - start] + text + data[last - start :]
    return data.decode()


def split_class(tree: Tree, rng: random.Random) -> Iterator[Refactoring]:
    """The first half of a class becomes a base of it."""
    for file, node in _shuffled(tree.own(ast.ClassDef), rng):
        names = [s.name for s in node.body if isinstance(s, _FUNCTIONS)]
        if len(names) < 4 or len(set(names)) < len(names) or node.decorator_list or node.keywords:
            continue
        if (
            file.parents[node] is not file.tree
            or "__slots__" in ast.unparse(node)
            or re.search(r"\b__[a-z]\w*[a-z]\b(?!__)", file.text(node))
        ):
            continue
        functions = [index for index, s in enumerate(node.body) if isinstance(s, _FUNCTIONS)]
        cut = functions[len(functions) // 2]
        tail = node.body[cut:]
        head = {n for s in node.body[:cut] for n in [*_used(s, ast.Store), *_borne(s)]}
        early = {n for s in tail for d in getattr(s, "decorator_list", []) for n in _used(d)}
        early |= {n for s in tail if not isinstance(s, _FUNCTIONS) for n in _used(s)}
        new = f"{node.name}Parts"
        if early & head or not tree.is_free(new):
            continue
        text = file.data[file.start(node) : file.start(node.body[0])].decode()
        edits = Edits(tree)
        try:
            at = file.lines(tail[0])[0]
            start = file.start(node) + text.index(node.name)
        except (UnfitError, ValueError):
            continue
        edits.put(file.path, start, start + len(node.name), new)
        edits.put(file.path, at, at, f"\nclass {node.name}({new}):\n")
        try:
            yield Refactoring("split class", f"{file.path}: {node.name}", edits.files())
        except UnfitError:
            continue


# -- signatures and results ------------------------------------------------------------------------------------


class Called(NamedTuple):
    """A function and all its calls, which are all that ever mentions it."""

    file: File
    node: Function
    owner: ast.ClassDef | None
    calls: list[tuple[File, ast.Call]]
    imports: list[Place]


def _called(tree: Tree, rng: random.Random, least: int = 1) -> Iterator[Called]:
    for file, node in _shuffled(tree.own(_FUNCTIONS), rng):
        if not tree.unique(node) or not tree.is_shown(node.name) or file.function(node) is not None:
            continue
        owner = _owner(file, node)
        if owner is not None and (owner.bases or owner.decorator_list) or node.decorator_list:
            continue
        calls, imports = [], []
        for row in tree.places[node.name]:
            if row.node is node:
                continue
            there = tree.parsed[row.path]
            call = there.parents[row.node] if isinstance(row.node, ast.Name | ast.Attribute) else None
            if isinstance(row.node, ast.ImportFrom) and not any(
                a.asname for a in row.node.names if a.name == node.name
            ):
                imports.append(row)
            elif isinstance(call, ast.Call) and call.func is row.node:
                calls.append((there, call))
            else:
                break
        else:
            if len(calls) >= least:
                yield Called(file, node, owner, calls, imports)


def _plain_params(row: Called) -> list[ast.arg]:
    args = row.node.args
    if args.vararg or args.kwarg or args.posonlyargs:
        raise UnfitError
    found = args.args[1:] if row.owner is not None else args.args
    if row.owner is not None and args.args[:1] and args.args[0].arg != "self":
        raise UnfitError
    if any(isinstance(a, ast.Starred) for _, c in row.calls for a in c.args) or any(
        k.arg is None for _, c in row.calls for k in c.keywords
    ):
        raise UnfitError
    return found


def _many(
    make: Callable[[Tree, Called, random.Random], Refactoring],
) -> Callable[[Tree, random.Random], Iterator[Refactoring]]:
    def found(tree: Tree, rng: random.Random) -> Iterator[Refactoring]:
        for row in _called(tree, rng):
            try:
                yield make(tree, row, rng)
            except UnfitError:
                continue

    found.__name__ = make.__name__.strip("_")
    return found


def _rename_parameter(tree: Tree, row: Called, rng: random.Random) -> Refactoring:
    params = _plain_params(row)
    if not params:
        raise UnfitError
    chosen = rng.choice(params)
    new = f"given_{chosen.arg}"
    inner = [n for n in ast.walk(row.node) if isinstance(n, ast.arg) and n.arg == chosen.arg]
    bound = [
        n for n in ast.walk(row.node) if isinstance(n, ast.comprehension) and chosen.arg in _used(n.target, ast.Store)
    ]
    if len(inner) != 1 or bound or not tree.is_free(new) or "locals" in _used(row.node):
        raise UnfitError
    edits = Edits(tree)
    edits.name(row.file, chosen, new)
    for n in ast.walk(row.node):
        if isinstance(n, ast.Name) and n.id == chosen.arg:
            edits.name(row.file, n, new)
    for file, call in row.calls:
        for keyword in call.keywords:
            if keyword.arg == chosen.arg:
                edits.name(file, keyword, new)
    return Refactoring("renamed parameter", f"{row.file.path}: {row.node.name}({chosen.arg})", edits.files())


def _reorder(tree: Tree, row: Called, rng: random.Random) -> Refactoring:
    """The first two parameters change places; what is passed by position goes by name."""
    params = _plain_params(row)
    if len(params) < 2 or len(row.node.args.defaults) > len(params) - 2:
        raise UnfitError
    one, other = params[:2]
    edits = Edits(tree)
    texts = [row.file.text(one), row.file.text(other)]
    edits.replace(row.file, one, texts[1])
    edits.replace(row.file, other, texts[0])
    for file, call in row.calls:
        if len(call.args) >= 2:
            first, second = call.args[:2]
            edits.replace(file, first, file.text(second))
            edits.replace(file, second, file.text(first))
        elif len(call.args) == 1:
            edits.put(file.path, file.start(call.args[0]), file.start(call.args[0]), f"{one.arg}=")
    return Refactoring("reordered parameters", f"{row.file.path}: {row.node.name}", edits.files())


def _add_parameter(tree: Tree, row: Called, rng: random.Random) -> Refactoring:
    """A parameter that the function keeps to itself, given by all callers."""
    params = _plain_params(row)
    if not params or row.node.args.defaults or row.node.args.kwonlyargs:
        raise UnfitError
    edits = Edits(tree)
    edits.put(row.file.path, row.file.end(params[-1]), row.file.end(params[-1]), ", purpose_of_call")
    for file, call in row.calls:
        last = [*call.args, *call.keywords]
        if not last:
            raise UnfitError
        at = file.end(max(last, key=file.end))
        edits.put(file.path, at, at, f", purpose_of_call={row.node.name!r}")
    return Refactoring("added parameter", f"{row.file.path}: {row.node.name}", edits.files())


def _drop_parameter(tree: Tree, row: Called, rng: random.Random) -> Refactoring:
    """A parameter that no caller gives becomes a variable of the function with what was its default."""
    params = _plain_params(row)
    args = row.node.args
    if not args.defaults or args.kwonlyargs or len(params) < 2:
        raise UnfitError
    last, default = args.args[-1], args.defaults[-1]
    place = len(params) - 1
    if not isinstance(default, ast.Constant):
        raise UnfitError
    for _, call in row.calls:
        if len(call.args) > place or any(k.arg == last.arg for k in call.keywords):
            raise UnfitError
    edits = Edits(tree)
    edits.put(
        row.file.path,
        row.file.end(args.args[-2]) if len(args.defaults) < 2 else row.file.end(args.defaults[-2]),
        row.file.end(default),
        "",
    )
    first = row.node.body[0]
    at = row.file.lines(first)[0]
    if first.lineno == row.node.lineno or isinstance(first, ast.Expr) and len(row.node.body) == 1:
        raise UnfitError
    if last.arg in _used(row.node):
        edits.put(row.file.path, at, at, f"{row.file.indent(first)}{last.arg} = {ast.unparse(default)}\n")
    return Refactoring("dropped parameter", f"{row.file.path}: {row.node.name}({last.arg})", edits.files())


def _reshape(tree: Tree, row: Called, rng: random.Random) -> Refactoring:
    """A tuple that a function gives becomes a dictionary, or gets one more value."""
    returned = [n for n in ast.walk(row.node) if isinstance(n, ast.Return) and row.file.function(n) is row.node]
    sizes = {len(n.value.elts) if isinstance(n.value, ast.Tuple) else -1 for n in returned}
    if len(sizes) != 1 or (size := sizes.pop()) < 2 or any(isinstance(n, ast.Yield) for n in ast.walk(row.node)):
        raise UnfitError
    keyed = rng.random() < 0.5
    keys = [f"part_{index}" for index in range(size)]
    edits = Edits(tree)
    for n in returned:
        assert isinstance(n.value, ast.Tuple)
        texts = [ast.unparse(each) for each in n.value.elts]
        if any(isinstance(each, ast.Starred) for each in n.value.elts):
            raise UnfitError
        pairs = ", ".join(f'"{key}": {text}' for key, text in zip(keys, texts, strict=True))
        edits.replace(row.file, n, f"return {{{pairs}}}" if keyed else f"return {', '.join(texts)}, None")
    for file, call in row.calls:
        line: Any = file.parents[call]
        whole = line if isinstance(line, ast.Await) else call
        line = file.parents[line] if isinstance(line, ast.Await) else line
        if not isinstance(line, ast.Assign) or len(line.targets) != 1 or not isinstance(line.targets[0], ast.Tuple):
            raise UnfitError
        target = line.targets[0]
        if len(target.elts) != size or any(isinstance(e, ast.Starred) for e in target.elts):
            raise UnfitError
        if keyed:
            takes = ", ".join(f'given_parts["{key}"]' for key in keys)
            text = f"given_parts = {file.text(whole)}\n{file.indent(line)}{ast.unparse(target)[1:-1]} = {takes}"
        else:
            text = f"{ast.unparse(target)[1:-1]}, _ = {file.text(whole)}"
        edits.replace(file, line, text)
    if row.node.returns is not None:
        edits.replace(row.file, row.node.returns, "object")
    return Refactoring(
        "reshaped result" + (" with keys" if keyed else ""), f"{row.file.path}: {row.node.name}", edits.files()
    )


def _to_async(tree: Tree, row: Called, rng: random.Random) -> Refactoring:
    if not isinstance(row.node, ast.FunctionDef) or any(
        isinstance(n, ast.Yield | ast.YieldFrom) for n in ast.walk(row.node)
    ):
        raise UnfitError
    edits = Edits(tree)
    edits.put(row.file.path, row.file.start(row.node), row.file.start(row.node), "async ")
    for file, call in row.calls:
        scope = next((n for n in file.around(call) if isinstance(n, (*_SCOPES, *_COMPREHENSIONS))), None)
        if not isinstance(scope, ast.AsyncFunctionDef):
            raise UnfitError
        edits.put(file.path, file.start(call), file.start(call), "(await ")
        edits.put(file.path, file.end(call), file.end(call), ")")
    return Refactoring("made a coroutine", f"{row.file.path}: {row.node.name}", edits.files())


def _delete(tree: Tree, row: Called, rng: random.Random) -> Refactoring:
    """A function whose result nobody takes goes with all its calls and what only they needed."""
    edits = Edits(tree)
    inside = list(ast.walk(row.node))
    defining = any(isinstance(n, ast.Attribute | ast.Subscript) and isinstance(n.ctx, ast.Store) for n in inside)
    if row.node.name.startswith("main") or defining or any(_callee(n) == "add_argument" for n in inside):
        raise UnfitError  # others may ask for what it defines
    for file, call in row.calls:
        line = file.parents[call]
        there = file.function(call)
        if not isinstance(line, ast.Expr) or there is None or there is row.node:
            raise UnfitError
        rest = Counter(n.id for n in ast.walk(there) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Load))
        rest -= Counter(n.id for n in ast.walk(line) if isinstance(n, ast.Name))
        params = {n.arg for n in ast.walk(there.args) if isinstance(n, ast.arg)} | _used(there, ast.Store)
        if (_used(line) & params) - set(rest):
            raise UnfitError
        above: Any = file.parents[line]
        body = next(
            b
            for name in ("body", "orelse", "finalbody")
            if isinstance(b := getattr(above, name, None), list) and line in b
        )
        if len(body) == 1:
            raise UnfitError
        edits.put(file.path, *file.lines(line), "")
    for place in row.imports:
        file = tree.parsed[place.path]
        rest = [alias for alias in place.node.names if alias.name != row.node.name]
        above = file.parents[place.node]
        if not rest and len(getattr(above, "body", [1])) == 1:
            raise UnfitError
        text = f"{file.indent(place.node)}{ast.unparse(ast.ImportFrom(place.node.module, rest, place.node.level))}\n"
        edits.put(file.path, *file.lines(place.node), text if rest else "")
    if row.owner is not None and len(row.owner.body) == 1:
        raise UnfitError
    edits.put(row.file.path, *row.file.lines(row.node), "")
    return Refactoring("deleted", f"{row.file.path}: {row.node.name}", edits.files())


def property_to_method(tree: Tree, rng: random.Random) -> Iterator[Refactoring]:
    for file, node in _shuffled(tree.own(ast.FunctionDef), rng):
        owner = _owner(file, node)
        if (
            [ast.unparse(d) for d in node.decorator_list] != ["property"]
            or owner is None
            or owner.bases
            or owner.decorator_list
        ):
            continue
        rows = [row for row in tree.places[node.name] if row.node is not node]
        loads = all(isinstance(row.node, ast.Attribute) and isinstance(row.node.ctx, ast.Load) for row in rows)
        if not rows or not loads or not tree.is_shown(node.name) or not _is_telling(node.name):
            continue
        edits = Edits(tree)
        edits.put(file.path, file.starts[node.decorator_list[0].lineno - 1], file.starts[node.lineno - 1], "")
        for row in rows:
            there = tree.parsed[row.path]
            edits.put(row.path, there.end(row.node), there.end(row.node), "()")
        try:
            yield Refactoring("property to method", f"{file.path}: {owner.name}.{node.name}", edits.files())
        except UnfitError:
            continue


# -- statements ------------------------------------------------------------------------------------------------


def wrap(tree: Tree, rng: random.Random) -> Iterator[Refactoring]:
    """A few statements go into a context that does nothing."""
    for file, node in _shuffled(tree.own(_FUNCTIONS), rng):
        if len(node.body) < 5:
            continue
        at = rng.randrange(1, len(node.body) - 2)
        body = node.body[at : at + 2]
        if any(_is_text_over_lines(s) for s in body):
            continue
        edits = Edits(tree)
        try:
            start, end = file.lines(body[0], body[-1])
            depth = file.indent(body[0])
            text = _block(file.data[start:end].decode(), depth + "    ")
            edits.put(file.path, start, end, f"{depth}with contextlib.nullcontext():\n{text}")
            edits.put(file.path, *_after_docs(file), "import contextlib\n")
            yield Refactoring("wrapped in a context", f"{file.path}: {node.name}:{body[0].lineno}", edits.files())
        except UnfitError:
            continue


def factor(tree: Tree, rng: random.Random) -> Iterator[Refactoring]:
    """Part of a formula gets a name."""
    for file, node in _shuffled(tree.own(ast.BinOp), rng):
        line: Any = next((n for n in file.around(node) if isinstance(n, ast.stmt)), None)
        inner = node.left
        wide = (ast.Mult, ast.FloorDiv, ast.Div, ast.Mod)
        if not isinstance(node.op, wide) or not isinstance(inner, ast.BinOp) or not isinstance(inner.op, wide):
            continue
        if not isinstance(line, ast.Assign | ast.Return) or line.value is not node or file.function(line) is None:
            continue
        if any(isinstance(n, ast.Constant) and isinstance(n.value, str) for n in ast.walk(node)):
            continue
        edits = Edits(tree)
        try:
            start, _ = file.lines(line)
            edits.put(file.path, start, start, f"{file.indent(line)}part_of_it = {ast.unparse(inner)}\n")
            edits.put(file.path, file.start(node), file.end(node), f"part_of_it {_sign(node.op)} {_right(node)}")
            yield Refactoring("factored formula", f"{file.path}:{line.lineno}", edits.files())
        except UnfitError:
            continue


def _sign(op: ast.operator) -> str:
    return {ast.Mult: "*", ast.FloorDiv: "//", ast.Div: "/", ast.Mod: "%"}[type(op)]  # type: ignore[index]


def _right(node: ast.BinOp) -> str:
    text = ast.unparse(node.right)
    return (
        f"({text})" if isinstance(node.right, ast.BinOp | ast.IfExp | ast.BoolOp | ast.Lambda | ast.Compare) else text
    )


# -- more of the same ------------------------------------------------------------------------------------------


def rename_size(tree: Tree, rng: random.Random) -> Iterator[Refactoring]:
    """An attribute or variable that is named after a size, rank or group of some axis gets a name that says less."""
    for file, node in _shuffled(tree.own(_FUNCTIONS), rng):
        inside = [each for each in ast.walk(node) if each is not node]
        if any(
            isinstance(each, (*_SCOPES, ast.Global, ast.Nonlocal, *_COMPREHENSIONS, ast.MatchAs)) for each in inside
        ):
            continue
        held = {name for each in inside for name in _imported(each)}
        names = [
            n
            for n in sorted(_used(node, ast.Store) - held)
            if re.fullmatch(r"(dp|tp|cp|pp|sp|ep|fsdp|local)_(size|rank|group|world_size)", n)
        ]
        for name in names:
            new = f"own_{name.partition('_')[2]}"
            params = {each.arg for each in ast.walk(node.args) if isinstance(each, ast.arg)}
            if name in params or new in _used(node) | _used(node, ast.Store):
                continue
            edits = Edits(tree)
            for each in inside:
                if isinstance(each, ast.Name) and each.id == name:
                    edits.name(file, each, new)
            yield Refactoring("renamed size", f"{file.path}: {node.name}: {name} -> {new}", edits.files())


def rename_key(tree: Tree, rng: random.Random) -> Iterator[Refactoring]:
    """A key that stands nowhere but between quotes."""
    rows = [(f, n) for f, n in tree.own(ast.Subscript) if isinstance(n.slice, ast.Constant)]
    for file, node in _shuffled(rows, rng):
        name = node.slice.value
        if not isinstance(name, str) or not name.isidentifier() or not _is_telling(name) or tree.places[name]:
            continue
        if not name.islower() or not isinstance(node.ctx, ast.Store):
            continue  # somebody else may read it
        texts = sum(len(re.findall(rb"[\"']" + name.encode() + rb"[\"']", data)) for data in tree.files.values())
        new = _renamed(name, rng)
        if texts < 2 or texts != tree.count[name] or not tree.is_free(new):
            continue
        edits = Edits(tree)
        edits.words(name, new)
        yield Refactoring("renamed key", f"{file.path}: {name} -> {new}", edits.files())


def move_module(tree: Tree, rng: random.Random) -> Iterator[Refactoring]:
    """A module gets another name, in all imports and texts."""
    for path in _shuffled(sorted(tree.parsed), rng):
        folder, _, last = path.rpartition("/")
        name = last[:-3]
        if (
            not _ASIDE.isdisjoint(folder.split("/"))
            or not _is_telling(name)
            or not folder
            or f"{folder}/__init__.py" not in tree.files
        ):
            continue
        rows = tree.places[name]
        if not rows or not all(isinstance(row.node, ast.Import | ast.ImportFrom) for row in rows):
            continue
        if sum(each.endswith(f"/{last}") for each in tree.files) != 1 or any(
            f"/{name}/" in each for each in tree.files
        ):
            continue
        new = _renamed(name, rng)
        if not tree.is_free(new):
            continue
        edits = Edits(tree)
        edits.words(name, new)
        files = edits.files()
        files[f"{folder}/{new}.py"] = files.get(path) or tree.files[path]
        files[path] = None
        yield Refactoring("moved module", f"{path} -> {new}", files)


def attribute_to_property(tree: Tree, rng: random.Random) -> Iterator[Refactoring]:
    """What a class stores is read through a property of the old name."""
    rows = [(f, n) for f, n in tree.own(ast.Attribute) if isinstance(n.ctx, ast.Store) and _is_telling(n.attr)]
    for file, node in _shuffled(rows, rng):
        places = tree.places[node.attr]
        owner = next((n for n in file.around(node) if isinstance(n, ast.ClassDef)), None)
        stored = [row for row in places if isinstance(row.node, ast.Attribute) and isinstance(row.node.ctx, ast.Store)]
        fits = all(_is_of_self(row.node) and owner in tree.parsed[row.path].around(row.node) for row in stored)
        if owner is None or not fits or not all(isinstance(row.node, ast.Attribute) for row in places):
            continue
        if not tree.is_shown(node.attr) or len(places) == len(stored) or owner.bases or node.attr.startswith("_"):
            continue
        first = next((s for s in owner.body if isinstance(s, _FUNCTIONS)), None)
        if first is None or not tree.is_free(f"_{node.attr}"):
            continue
        edits = Edits(tree)
        for row in stored:
            edits.name(tree.parsed[row.path], row.node, f"_{node.attr}")
        depth = " " * first.col_offset
        at = file.lines(first)[0]
        edits.put(
            file.path,
            at,
            at,
            f"{depth}@property\n{depth}def {node.attr}(self):\n{depth}    return self._{node.attr}\n\n",
        )
        yield Refactoring("attribute to property", f"{file.path}: {node.attr}", edits.files())


def inline_variable(tree: Tree, rng: random.Random) -> Iterator[Refactoring]:
    """A variable that only the next statement reads goes."""
    for file, node in _shuffled(tree.own(_FUNCTIONS), rng):
        if len(node.body) < 4 or any(
            isinstance(each, (*_SCOPES, *_COMPREHENSIONS)) for each in ast.walk(node) if each is not node
        ):
            continue
        names = Counter(n.id for n in ast.walk(node) if isinstance(n, ast.Name))
        for line, following in zip(node.body, node.body[1:], strict=False):
            if not isinstance(line, ast.Assign) or len(line.targets) != 1 or not isinstance(line.targets[0], ast.Name):
                continue
            uses = [n for n in ast.walk(following) if isinstance(n, ast.Name) and n.id == line.targets[0].id]
            simple = isinstance(following, ast.Assign | ast.Return | ast.Expr | ast.If)
            if names[line.targets[0].id] != 2 or len(uses) != 1 or not simple or _is_text_over_lines(line):
                continue
            if isinstance(following, ast.If) and uses[0] not in list(ast.walk(following.test)):
                continue
            edits = Edits(tree)
            try:
                edits.put(file.path, *file.lines(line), "")
                edits.replace(file, uses[0], f"({ast.unparse(line.value)})")
                yield Refactoring("inlined variable", f"{file.path}:{line.lineno}", edits.files())
            except UnfitError:
                continue


def delete_dead(tree: Tree, rng: random.Random) -> Iterator[Refactoring]:
    """A function that nothing ever mentions goes."""
    for file, node in _shuffled(tree.own(_FUNCTIONS), rng):
        owner = _owner(file, node)
        if (
            tree.count[node.name] != 1
            or node.decorator_list
            or owner is not None
            and (owner.bases or len(owner.body) < 2)
        ):
            continue
        if file.function(node) is not None or owner is None and file.parents[node] is not file.tree:
            continue
        if any(isinstance(n, ast.Attribute | ast.Subscript) and isinstance(n.ctx, ast.Store) for n in ast.walk(node)):
            continue
        edits = Edits(tree)
        try:
            edits.put(file.path, *file.lines(node), "")
            yield Refactoring("deleted dead code", f"{file.path}: {node.name}", edits.files())
        except UnfitError:
            continue


def pull_up(tree: Tree, rng: random.Random) -> Iterator[Refactoring]:
    """A method goes to the base of its class, which stands in the same file."""
    for file, node in _shuffled(tree.own(_FUNCTIONS), rng):
        owner = _owner(file, node)
        if owner is None or len(owner.bases) != 1 or not isinstance(owner.bases[0], ast.Name) or not tree.unique(node):
            continue
        tops = [s for s in file.tree.body if isinstance(s, ast.ClassDef) and s.name == owner.bases[0].id]  # type: ignore[attr-defined]
        if (
            len(tops) != 1
            or node.decorator_list
            or owner not in file.tree.body
            or len(owner.body) < 2
            or "super" in _used(node)
        ):
            continue
        edits = Edits(tree)
        try:
            start, end = file.lines(node)
            at = file.lines(tops[0].body[-1])[1]
            if at > start:
                continue
            edits.put(file.path, at, at, "\n" + file.data[start:end].decode())
            edits.put(file.path, start, end, "")
            yield Refactoring("pulled up", f"{file.path}: {owner.name}.{node.name}", edits.files())
        except UnfitError:
            continue


def call_by_name(tree: Tree, rng: random.Random) -> Iterator[Refactoring]:
    """All calls of a function pass their arguments by name."""
    for row in _called(tree, rng, least=2):
        try:
            params = _plain_params(row)
            edits = Edits(tree)
            for file, call in row.calls:
                for param, argument in zip(params, call.args, strict=False):
                    edits.put(file.path, file.start(argument), file.start(argument), f"{param.arg}=")
            if not params or not edits.rows:
                continue
            yield Refactoring("called by name", f"{row.file.path}: {row.node.name}", edits.files())
        except UnfitError:
            continue


def _shuffled(rows: list[Any], rng: random.Random) -> list[Any]:
    rows = list(rows)
    rng.shuffle(rows)
    return rows


rename_parameter = _many(_rename_parameter)
reorder = _many(_reorder)
add_parameter = _many(_add_parameter)
drop_parameter = _many(_drop_parameter)
reshape = _many(_reshape)
to_async = _many(_to_async)
delete = _many(_delete)

KINDS: tuple[Callable[[Tree, random.Random], Iterator[Refactoring]], ...] = (
    rename_function, rename_attribute, rename_option, rename_locals, rename_size, rename_key, rename_parameter,
    move, move_and_reexport, move_module, extract, inline, split_class, pull_up, wrap, factor, inline_variable,
    reorder, add_parameter, drop_parameter, call_by_name, reshape, to_async, property_to_method, attribute_to_property,
    delete, delete_dead,
)  # fmt: skip


def refactorings(tree: Tree, seed: int, each: int = 1) -> Iterator[Refactoring]:
    """So many refactorings of each kind, always the same ones for a seed."""
    for make in KINDS:
        rng = random.Random(f"{seed} {make.__name__}")
        found = make(tree, rng)
        for _ in range(each):
            try:
                made = next(found, None)
            except UnfitError:
                break
            if made is None:
                break
            yield made


def together(rows: list[Refactoring]) -> Refactoring:
    """Refactorings of files of their own, as one change."""
    files: dict[str, bytes | None] = {}
    kinds = []
    for row in rows:
        if files.keys().isdisjoint(row.files):
            files.update(row.files)
            kinds.append(row.kind)
    return Refactoring("several at once", ", ".join(kinds), files)
