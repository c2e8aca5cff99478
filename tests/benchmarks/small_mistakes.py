"""How many small mistakes of interfaces, planted all over a tree by rule, the validator finds.

    python tests/benchmarks/small_mistakes.py TREE [--mistakes 60] [--seed 1] [--only attribute,key] [--json FILE]

Each mistake is one that a refactoring leaves behind: a name is changed where it is defined, and not where it is used.
Kinds (`KINDS`) take turns; places are drawn by the seed, and no two mistakes share a line or a name. All of them are
planted into one copy of the tree; those of which nothing is said there are planted once more, each alone, for one
mistake can hide another. Found is what an error or a warning names that the tree as it is does not have. Nothing
is imported or run, so some mistakes are none (a name that a library defines, too): read what is missed.
"""

from __future__ import annotations

import argparse
import ast
import collections
import json
import random
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

ASIDE = re.compile(r"(^|/)(tests?|docs?|third_party)(/|$)|(^|/)test_|conftest")
CHANGED = "_zq"  # what a changed name ends in
FAMILIES = "MP1,MP2,MP3,MP7"

Function = ast.FunctionDef | ast.AsyncFunctionDef


class Edit(NamedTuple):
    """What stands between two places of a file (lines from 1, columns in bytes) becomes `new`."""

    path: str
    line: int
    column: int
    end_line: int
    end_column: int
    new: str


class Mistake(NamedTuple):
    """`names`: what a finding must speak of; `first`, `last`: the lines that no other mistake may touch."""

    kind: str
    path: str
    first: int
    last: int
    names: frozenset[str]
    edits: tuple[Edit, ...]


def _renamed(path: str, node: ast.AST, name: str, column: int | None = None, line: int | None = None) -> Edit:
    """The name that ends at the end of a node, or begins at a column, changed."""
    at: Any = node
    line = line or at.end_lineno
    begin = column if column is not None else at.end_col_offset - len(name.encode())
    return Edit(path, line, begin, line, begin + len(name.encode()), name + CHANGED)


def _swallowed(path: str, node: ast.AST, new: str, behind: ast.AST | None = None) -> Edit:
    """What reaches from a node, or from behind another one, to its end, put otherwise."""
    at: Any = node
    start: Any = behind
    line, column = (start.end_lineno, start.end_col_offset) if behind is not None else (at.lineno, at.col_offset)
    return Edit(path, line, column, at.end_lineno, at.end_col_offset, new)


class Tree:
    """The Python files of a folder, and who defines, calls and reads what by which name."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.texts: dict[str, str] = {}
        self.modules: dict[str, ast.Module] = {}
        self.parents: dict[ast.AST, ast.AST] = {}
        self.functions: dict[str, list[tuple[str, Function]]] = collections.defaultdict(list)
        self.classes: list[tuple[str, ast.ClassDef]] = []
        self.calls: dict[str, list[tuple[str, ast.Call]]] = collections.defaultdict(list)
        self.stores: dict[str, list[tuple[str, ast.Attribute]]] = collections.defaultdict(list)
        self.keys: dict[str, list[tuple[str, ast.Constant]]] = collections.defaultdict(list)
        self.reads: collections.Counter[str] = collections.Counter()
        self.asked: collections.Counter[str] = collections.Counter()  # keys by which something is read
        self.spelled: collections.Counter[str] = collections.Counter()  # all texts
        for file in sorted(root.rglob("*.py")):
            path = file.relative_to(root).as_posix()
            try:
                text = file.read_text(encoding="utf-8")
                module = ast.parse(text)
            except (OSError, SyntaxError, ValueError):
                continue
            self.texts[path], self.modules[path] = text, module
            for node in ast.walk(module):
                self.parents.update((child, node) for child in ast.iter_child_nodes(node))
            for node in ast.walk(module):
                self._note(path, node)

    def _note(self, path: str, node: ast.AST) -> None:
        aside = ASIDE.search(path) is not None
        if isinstance(node, Function):
            self.functions[node.name].append((path, node))
        elif isinstance(node, ast.ClassDef) and not aside:
            self.classes.append((path, node))
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            self.stores[node.attr].append((path, node))
        elif isinstance(node, ast.Attribute) and not aside:
            self.reads[node.attr] += 1
        elif isinstance(node, ast.Call) and (name := called(node)) and not aside:
            self.calls[name].append((path, node))
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            self.spelled[node.value] += 1
        elif isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Load):
            key = node.slice
            self.asked.update([key.value] if isinstance(key, ast.Constant) and isinstance(key.value, str) else [])
        elif isinstance(node, ast.Dict) and not aside:
            for key in node.keys:
                if isinstance(key, ast.Constant) and isinstance(key.value, str):
                    self.keys[key.value].append((path, key))

    def around(self, node: ast.AST, kind: type[ast.AST] | tuple[type[ast.AST], ...]) -> ast.AST | None:
        """The innermost node of a kind in which one lies."""
        above = self.parents.get(node)
        while above is not None and not isinstance(above, kind):
            above = self.parents.get(above)
        return above

    def alone(self) -> Iterator[tuple[str, Function, bool]]:
        """The functions of the program whose names nothing else bears, with whether they are methods."""
        for name, rows in self.functions.items():
            path, function = rows[0]
            if len(rows) == 1 and not name.startswith("__") and not ASIDE.search(path) and self.calls[name]:
                yield path, function, isinstance(self.parents.get(function), ast.ClassDef)


def called(call: ast.Call) -> str:
    """The name by which something is called."""
    if isinstance(call.func, ast.Attribute):
        return call.func.attr
    return call.func.id if isinstance(call.func, ast.Name) else ""


def parameters(function: Function, is_method: bool) -> list[ast.arg]:
    """The parameters that callers fill."""
    static = any(ast.unparse(each) == "staticmethod" for each in function.decorator_list)
    every = [*function.args.posonlyargs, *function.args.args, *function.args.kwonlyargs]
    return every[1:] if is_method and not static else every


def _mistake(kind: str, path: str, node: ast.AST, names: set[str], *edits: Edit) -> Mistake:
    at: Any = node
    return Mistake(kind, path, at.lineno, at.end_lineno, frozenset(names), edits)


# -- kinds ---------------------------------------------------------------------------------------------------------


def functions(tree: Tree) -> Iterator[Mistake]:
    """A function or method gets another name, its callers keep the old one."""
    for path, function, _ in tree.alone():
        if not tree.spelled[function.name] and not function.decorator_list:
            line = tree.texts[path].split("\n")[function.lineno - 1]
            column = len(line[: line.index(function.name, line.index("def "))].encode())
            edit = _renamed(path, function, function.name, column, function.lineno)
            yield _mistake("function", path, function, {function.name}, edit)


def parameter_names(tree: Tree) -> Iterator[Mistake]:
    """A parameter gets another name, callers pass it by the old one."""
    for path, function, is_method in tree.alone():
        passed = {k.arg for _, call in tree.calls[function.name] for k in call.keywords}
        for each in parameters(function, is_method) if function.args.kwarg is None else ():
            if each.arg in passed:
                inside = (n for n in ast.walk(function) if isinstance(n, ast.Name) and n.id == each.arg)
                edits = [_renamed(path, n, each.arg, n.col_offset, n.lineno) for n in inside]
                edits.append(_renamed(path, each, each.arg, each.col_offset, each.lineno))
                yield _mistake("parameter", path, function, {each.arg}, *edits)


def new_parameters(tree: Tree) -> Iterator[Mistake]:
    """A function asks for one more argument, first."""
    for path, function, is_method in tree.alone():
        params = parameters(function, is_method)
        if params and not function.args.vararg and not function.decorator_list and not function.args.defaults:
            at = params[0]
            edit = Edit(path, at.lineno, at.col_offset, at.lineno, at.col_offset, f"more{CHANGED}, ")
            yield _mistake("argument", path, function, {function.name}, edit)


def results(tree: Tree) -> Iterator[Mistake]:
    """A function gives back one more value, callers take apart as many as before."""
    for path, function, _ in tree.alone():
        kinds = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)
        given = [n for n in ast.walk(function) if isinstance(n, ast.Return) and tree.around(n, kinds) is function]
        tuples = [each.value for each in given if isinstance(each.value, ast.Tuple) and each.value.elts]
        taken = (tree.parents.get(call) for _, call in tree.calls[function.name])
        counts = {
            len(a.targets[0].elts) for a in taken if isinstance(a, ast.Assign) and isinstance(a.targets[0], ast.Tuple)
        }
        if tuples and len(tuples) == len(given) and len(tuples[0].elts) in counts:
            edits = [_swallowed(path, t.elts[-1], ", None", behind=t.elts[-1]) for t in tuples]
            yield _mistake("result", path, function, {function.name}, *edits)


def call_keywords(tree: Tree) -> Iterator[Mistake]:
    """A call passes a keyword that the function does not have."""
    for _, function, is_method in tree.alone():
        names = {each.arg for each in parameters(function, is_method)}
        for path, call in tree.calls[function.name] if function.args.kwarg is None else ():
            for keyword in call.keywords:
                if keyword.arg in names:
                    edit = _renamed(path, keyword, keyword.arg, keyword.col_offset, keyword.lineno)
                    yield _mistake("keyword", path, call, {keyword.arg}, edit)


def attributes(tree: Tree) -> Iterator[Mistake]:
    """A class sets an attribute under another name, and reads it by the old one."""
    fields = {
        t.target.id
        for _, c in tree.classes
        for t in c.body
        if isinstance(t, ast.AnnAssign) and isinstance(t.target, ast.Name)
    }
    for name, rows in tree.stores.items():
        owners = {tree.around(node, ast.ClassDef) for _, node in rows}
        own = all(isinstance(node.value, ast.Name) and node.value.id == "self" for _, node in rows)
        free = not tree.spelled[name] and name not in tree.functions and name not in fields
        if (
            own
            and len(owners) == 1
            and None not in owners
            and free
            and tree.reads[name]
            and not ASIDE.search(rows[0][0])
        ):
            yield _mistake("attribute", rows[0][0], rows[0][1], {name}, *(_renamed(p, node, name) for p, node in rows))


def keys(tree: Tree) -> Iterator[Mistake]:
    """A dictionary gets a key under another name than that by which it is read."""
    for key, rows in tree.keys.items():
        if len(rows) == 1 and key.isidentifier() and tree.asked[key] and tree.spelled[key] == 1 + tree.asked[key]:
            path, node = rows[0]
            yield _mistake("key", path, node, {key}, _swallowed(path, node, f'"{key}{CHANGED}"'))


def options(tree: Tree) -> Iterator[Mistake]:
    """An option of the command line gets another name."""
    rows = collections.defaultdict(list)
    for path, call in tree.calls["add_argument"]:
        first = call.args[0] if call.args else None
        if (
            isinstance(first, ast.Constant)
            and str(first.value).startswith("--")
            and "dest" not in {k.arg for k in call.keywords}
        ):
            rows[str(first.value)].append((path, first))
    for flag, places in rows.items():
        name = flag[2:].replace("-", "_")
        if len(places) == 1 and tree.reads[name]:
            path, node = places[0]
            yield _mistake("option", path, node, {name}, _swallowed(path, node, f'"{flag}{CHANGED}"'))


def data_fields(tree: Tree) -> Iterator[Mistake]:
    """A field of a data class gets another name."""
    for path, cls in tree.classes:
        for row in cls.body if any("dataclass" in ast.unparse(each) for each in cls.decorator_list) else ():
            if isinstance(row, ast.AnnAssign) and isinstance(row.target, ast.Name):
                name = row.target.id
                if tree.reads[name] and not tree.spelled[name]:
                    yield _mistake("field", path, row, {name}, _renamed(path, row.target, name))


def members(tree: Tree) -> Iterator[Mistake]:
    """A call asks for a method that there is not."""
    for _, function, is_method in tree.alone():
        for path, call in tree.calls[function.name] if is_method and not tree.spelled[function.name] else ():
            if isinstance(call.func, ast.Attribute):
                yield _mistake("member", path, call, {function.name}, _renamed(path, call.func, function.name))


KINDS: tuple[Callable[[Tree], Iterator[Mistake]], ...] = (
    functions, parameter_names, new_parameters, results, call_keywords, attributes, keys, options, data_fields, members,
)  # fmt: skip


# -- planting and counting -----------------------------------------------------------------------------------------


def drawn(tree: Tree, count: int, seed: int, only: frozenset[str]) -> list[Mistake]:
    """So many mistakes, of all kinds in turn, that do not meet."""
    chance = random.Random(seed)
    heaps = [[each for each in kind(tree) if not only or each.kind in only] for kind in KINDS]
    for heap in heaps:
        chance.shuffle(heap)
    found: list[Mistake] = []
    taken: set[str] = set()
    lines: dict[str, set[int]] = collections.defaultdict(set)
    while len(found) < count and any(heaps):
        for heap in filter(None, heaps):
            each = heap.pop()
            touched = {(e.path, n) for e in each.edits for n in range(e.line, e.end_line + 1)}
            touched |= {(each.path, n) for n in range(each.first, each.last + 1)}
            if len(found) < count and each.names.isdisjoint(taken) and not any(n in lines[p] for p, n in touched):
                found.append(each)
                taken |= each.names
                for path, number in touched:
                    lines[path].add(number)
    return found


def planted(tree: Tree, edits: Iterable[Edit], folder: Path) -> None:
    """A copy of the tree with some edits."""
    shutil.copytree(tree.root, folder)
    ordered = sorted(set(edits), reverse=True)
    for path, text in tree.texts.items():
        rows = [edit for edit in ordered if edit.path == path]
        lines = text.split("\n")
        for edit in rows:
            first, last = lines[edit.line - 1].encode(), lines[edit.end_line - 1].encode()
            changed = (first[: edit.column] + edit.new.encode() + last[edit.end_column :]).decode()
            lines[edit.line - 1 : edit.end_line] = changed.split("\n")
        if rows:
            (folder / path).write_text("\n".join(lines), encoding="utf-8")


def findings(folder: Path) -> list[dict[str, Any]]:
    """What the validator says of a folder."""
    command = [
        sys.executable,
        "-m",
        "validator",
        "--isolated",
        "--no-cache",
        "--format",
        "json",
        "--select",
        FAMILIES,
        str(folder),
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    rows: list[dict[str, Any]] = json.loads(done.stdout)["findings"]
    return rows


def told(before: set[tuple[str, str]], mistakes: list[Mistake], tree: Tree) -> dict[int, list[str]]:
    """Which of the mistakes, planted together, are found by which rules."""
    with tempfile.TemporaryDirectory() as above:
        folder = Path(above) / tree.root.resolve().name  # its own files may import it by its name
        planted(tree, (edit for each in mistakes for edit in each.edits), folder)
        rows = [row for row in findings(folder) if row["severity"] != "note" and _identity(row) not in before]
    by: dict[int, list[str]] = {}
    for number, each in enumerate(mistakes):
        names = each.names | {name + CHANGED for name in each.names}
        speaking = {
            row["code"] for row in rows if names & set(re.findall(r"\w+", f"{row['message']} {row.get('help', '')}"))
        }
        if speaking:
            by[number] = sorted(speaking)
    return by


def _identity(row: dict[str, Any]) -> tuple[str, str]:
    return row["code"], re.sub(r"\d+", "", row["message"])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("tree", type=Path)
    parser.add_argument("--mistakes", type=int, default=60)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", default="", help="kinds, separated by commas")
    parser.add_argument("--json", type=Path, help="where to write what was planted and found")
    given = parser.parse_args()
    tree = Tree(given.tree)
    before = {_identity(row) for row in findings(given.tree)}
    mistakes = drawn(tree, given.mistakes, given.seed, frozenset(filter(None, given.only.split(","))))
    by = told(before, mistakes, tree)
    for number, each in enumerate(mistakes):
        if number not in by and (alone := told(before, [each], tree)):
            by[number] = alone[0]
        if number not in by:
            print(f"missed: {each.kind} {', '.join(sorted(each.names))} ({each.path}:{each.first})", flush=True)
    for kind in dict.fromkeys(each.kind for each in mistakes):
        own = [number for number, each in enumerate(mistakes) if each.kind == kind]
        print(f"{kind:10} {sum(number in by for number in own)} of {len(own)}")
    print(f"found {len(by)} of {len(mistakes)}")
    if given.json is not None:
        rows = [{**each._asdict(), "names": sorted(each.names), "by": by.get(n, [])} for n, each in enumerate(mistakes)]
        given.json.write_text(json.dumps(rows, indent=1), encoding="utf-8")


if __name__ == "__main__":
    main()
