"""How many mistakes of work on several ranks, planted all over a tree by rule, the validator finds.

    python tests/benchmarks/rank_mistakes.py TREE [--mistakes 40] [--seed 1] [--only barrier,guard] [--changes]

Each mistake is one edit of what ranks do together: a collective or barrier taken away or put where one rank alone
comes by, a guard, group, sampler, epoch, wait or division taken away, a seed, root or operator changed (`KINDS`).
Each is planted alone. Found is an error or a warning in the same function, or one that names what was changed, that
the tree as it is does not have; notes are counted apart. With `--changes` the tree without the mistake is what the
validator compares with. Nothing is imported or run, so an edit can be harmless: read what is missed.
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
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

sys.path.insert(0, str(Path(__file__).parent))

from small_mistakes import ASIDE, Edit, Function, Tree, called, planted

COLLECTIVES = frozenset({
    "all_reduce", "all_gather", "all_gather_object", "all_gather_into_tensor", "reduce", "reduce_scatter",
    "reduce_scatter_tensor", "broadcast", "broadcast_object_list", "gather", "gather_object", "scatter", "all_to_all",
    "all_to_all_single",
})  # fmt: skip
WAITS = frozenset({"barrier", "wait_for_everyone", "synchronize_between_processes", "monitored_barrier"})
MADE_FOR_EFFECT = {
    "epoch": {"set_epoch"}, "gradients": {"zero_grad"}, "wait": {"wait"}, "device": {"set_device"},
    "start": {"init_process_group", "init_distributed"}, "seed": {"manual_seed", "set_seed", "seed_everything"},
    "collective": COLLECTIVES, "barrier": WAITS, "clipping": {"clip_grad_norm_"}, "mode": {"eval"},
}  # fmt: skip
WORLD = re.compile(r"(^|[._])(world_size|num_processes|get_world_size\(\)|dp_size|n_gpus?|num_replicas)$")
RANK = re.compile(r"(^|[._])(is_main_process|is_rank_0|is_master|is_local_main_process|is_global_zero)(\(\))?$")


IMPORTS_TORCH = re.compile(r"^import torch$", re.M)
Kind = TypeVar("Kind", bound=ast.AST)


class Mistake(NamedTuple):
    """`names`: what a finding may speak of; `first`, `last`: the lines of the function in which it may stand."""

    kind: str
    path: str
    line: int
    first: int
    last: int
    names: frozenset[str]
    edits: tuple[Edit, ...]


def _whole(path: str, node: ast.AST, new: str) -> Edit:
    at: Any = node
    return Edit(path, at.lineno, at.col_offset, at.end_lineno, at.end_col_offset, new)


def _mistake(tree: Tree, kind: str, path: str, node: ast.AST, names: set[str], new: str) -> Mistake:
    at: Any = node
    around: Any = tree.around(node, (ast.FunctionDef, ast.AsyncFunctionDef)) or at
    return Mistake(
        kind, path, at.lineno, around.lineno, around.end_lineno, frozenset(names), (_whole(path, node, new),)
    )


def _text(tree: Tree, path: str, node: ast.AST) -> str:
    return ast.get_source_segment(tree.texts[path], node) or ""


def _statements(tree: Tree) -> Iterator[tuple[str, ast.Expr, ast.Call]]:
    """Calls that are made for what they do."""
    for rows in tree.calls.values():
        for path, call in rows:
            above = tree.parents.get(call)
            if isinstance(above, ast.Expr) and tree.around(call, Function) is not None:
                yield path, above, call


def calls_taken_away(tree: Tree) -> Iterator[Mistake]:
    """A call that is made for what it does."""
    for path, statement, call in _statements(tree):
        for kind, names in MADE_FOR_EFFECT.items():
            if called(call) in names:
                yield _mistake(tree, kind, path, statement, {called(call)}, "pass")


def calls_put_under_a_rank(tree: Tree) -> Iterator[Mistake]:
    """A collective or barrier that one rank alone comes to."""
    for path, statement, call in _statements(tree):
        if called(call) in COLLECTIVES | WAITS:
            text = _text(tree, path, statement)
            if "\n" not in text and IMPORTS_TORCH.search(tree.texts[path]):
                new = f"if torch.distributed.get_rank() == 0: {text}"
                yield _mistake(tree, "alone", path, statement, {called(call)}, new)


def _tells_ranks(test: ast.expr) -> bool:
    text = ast.unparse(test)
    if isinstance(test, ast.Compare) and len(test.ops) == 1 and isinstance(test.ops[0], ast.Eq):
        return re.search(r"rank(\(\))?$", ast.unparse(test.left)) is not None and text.endswith("0")
    return RANK.search(text) is not None


def guards_taken_away(tree: Tree) -> Iterator[Mistake]:
    """What one rank alone did, done by all."""
    for path in tree.texts:
        for node in _nodes(tree, path, ast.If):
            if _tells_ranks(node.test) and not node.orelse:
                yield _mistake(tree, "guard", path, node.test, {ast.unparse(node.test)}, "True")


def _nodes(tree: Tree, path: str, kind: type[Kind]) -> Iterator[Kind]:
    """The nodes of a kind in the functions of a file."""
    for node in ast.walk(tree.modules[path]):
        if isinstance(node, kind) and tree.around(node, (ast.FunctionDef, ast.AsyncFunctionDef)) is not None:
            yield node


def keywords_dropped(tree: Tree) -> Iterator[Mistake]:
    """The group, sampler or device that a call is told, and another root or operator."""
    kinds = {"group": "group", "process_group": "group", "sampler": "sampler", "map_location": "location",
             "src": "root", "dst": "root", "op": "operator", "device_ids": "devices"}  # fmt: skip
    for rows in tree.calls.values():
        for path, call in rows:
            for keyword in call.keywords:
                kind = kinds.get(keyword.arg or "")
                if kind is None or tree.around(call, Function) is None:
                    continue
                if kind == "root":
                    yield _mistake(tree, kind, path, keyword.value, {keyword.arg or ""}, "1")
                elif kind == "operator":
                    if "MAX" in ast.unparse(keyword.value):
                        yield _mistake(tree, kind, path, keyword.value, {"op"}, "torch.distributed.ReduceOp.SUM")
                elif len(call.keywords) > 1 or call.args:
                    yield _without(tree, path, call, keyword, kind)


def _without(tree: Tree, path: str, call: ast.Call, keyword: ast.keyword, kind: str) -> Mistake:
    kept = [_text(tree, path, each) for each in call.args]
    kept += [_text(tree, path, each) for each in call.keywords if each is not keyword]
    new = f"{_text(tree, path, call.func)}({', '.join(' '.join(each.split()) for each in kept)})"
    return _mistake(tree, kind, path, call, {keyword.arg or "", called(call)}, new)


def divisions_dropped(tree: Tree) -> Iterator[Mistake]:
    """What was divided by the number of ranks."""
    for path in tree.texts:
        for node in _nodes(tree, path, ast.BinOp):
            if isinstance(node.op, ast.Div | ast.FloorDiv) and WORLD.search(ast.unparse(node.right)) is not None:
                yield _mistake(tree, "division", path, node, set(), _text(tree, path, node.left))
        for node in _nodes(tree, path, ast.AugAssign):
            if isinstance(node.op, ast.Div) and WORLD.search(ast.unparse(node.value)) is not None:
                yield _mistake(tree, "division", path, node, set(), "pass")


def ranks_out_of_seeds(tree: Tree) -> Iterator[Mistake]:
    """A seed of each rank's own that is one for all."""
    for path in tree.texts:
        for node in _nodes(tree, path, ast.BinOp):
            if isinstance(node.op, ast.Add):
                left, right = ast.unparse(node.left), ast.unparse(node.right)
                if "seed" in left.lower() and "rank" in right.lower():
                    yield _mistake(tree, "seed of all", path, node, {"seed"}, _text(tree, path, node.left))


def wrappings_dropped(tree: Tree) -> Iterator[Mistake]:
    """A model that nothing wraps any more."""
    for name in ("DistributedDataParallel", "DDP", "fully_shard", "FullyShardedDataParallel", "FSDP"):
        for path, call in tree.calls[name]:
            above = tree.parents.get(call)
            if call.args and isinstance(above, ast.Assign) and tree.around(call, Function) is not None:
                yield _mistake(tree, "wrapper", path, call, {name}, _text(tree, path, call.args[0]))


def arguments_swapped(tree: Tree) -> Iterator[Mistake]:
    """The first two arguments, where both are names."""
    for _, function, _ in tree.alone():
        for path, call in tree.calls[function.name]:
            texts = [_text(tree, path, each) for each in call.args]
            if len(texts) > 1 and len(set(texts)) == len(texts) and all(isinstance(e, ast.Name) for e in call.args[:2]):
                given = [texts[1], texts[0], *texts[2:], *(_text(tree, path, each) for each in call.keywords)]
                new = f"{_text(tree, path, call.func)}({', '.join(given)})"
                yield _mistake(tree, "swapped", path, call, {function.name}, new)


def left_early(tree: Tree) -> Iterator[Mistake]:
    """One rank goes on alone to a collective of the same block."""
    for path, statement, call in _statements(tree):
        block = tree.parents.get(statement)
        if called(call) in COLLECTIVES | WAITS and isinstance(block, Function) and statement in block.body[1:]:
            if not IMPORTS_TORCH.search(tree.texts[path]):
                continue
            text = _text(tree, path, statement)
            indent = " " * statement.col_offset
            new = f"if torch.distributed.get_rank() != 0:\n{indent}    return\n{indent}{text}"
            yield _mistake(tree, "left early", path, statement, {called(call)}, new)


KINDS: tuple[Callable[[Tree], Iterator[Mistake]], ...] = (
    calls_taken_away, calls_put_under_a_rank, guards_taken_away, keywords_dropped, divisions_dropped,
    ranks_out_of_seeds, wrappings_dropped, arguments_swapped, left_early,
)  # fmt: skip


def drawn(tree: Tree, count: int, seed: int, only: frozenset[str]) -> list[Mistake]:
    """So many mistakes, of all kinds in turn."""
    chance = random.Random(seed)
    heaps: dict[str, list[Mistake]] = collections.defaultdict(list)
    for kind in KINDS:
        for each in kind(tree):
            if not ASIDE.search(each.path) and (not only or each.kind in only):
                heaps[each.kind].append(each)
    for heap in heaps.values():
        chance.shuffle(heap)
    found: list[Mistake] = []
    while len(found) < count and any(heaps.values()):
        found += [heap.pop() for heap in heaps.values() if heap]
    return found[:count]


def findings(folder: Path, *more: str) -> list[dict[str, Any]]:
    """What the validator says of a folder."""
    command = [sys.executable, "-m", "validator", "--isolated", "--format", "json", "--notes", *more, "."]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=folder)
    rows: list[dict[str, Any]] = json.loads(done.stdout)["findings"]
    return rows


def _identity(row: dict[str, Any]) -> tuple[str, str, str]:
    return row["code"], row["path"], re.sub(r"\d+", "", row["message"])


def told(rows: list[dict[str, Any]], before: set[tuple[str, str, str]], each: Mistake, more: int) -> list[str]:
    """The rules that speak of a mistake, with an asterisk where they only note it."""
    found = set()
    for row in rows:
        near = row["path"] == each.path and each.first <= row["line"] <= each.last + more
        words = f"{row['message']} {row.get('help', '')}"
        if _identity(row) not in before and (near or any(re.search(rf"\b{re.escape(n)}\b", words) for n in each.names)):
            found.add(row["code"] + ("*" if row["severity"] == "note" else ""))
    return sorted(found)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("tree", type=Path)
    parser.add_argument("--mistakes", type=int, default=40)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", default="", help="kinds, separated by commas")
    parser.add_argument("--changes", action="store_true", help="compare with the tree without the mistake")
    given = parser.parse_args()
    tree = Tree(given.tree)
    counts: dict[str, collections.Counter[str]] = collections.defaultdict(collections.Counter)
    with tempfile.TemporaryDirectory() as above:
        name = given.tree.resolve().name
        first = Path(above) / "first" / name
        shutil.copytree(tree.root, first)
        before = set() if given.changes else {_identity(row) for row in findings(first)}
        for each in drawn(tree, given.mistakes, given.seed, frozenset(filter(None, given.only.split(",")))):
            folder = Path(above) / "second" / name
            planted(tree, each.edits, folder)
            more = ("--against", str(first)) if given.changes else ()
            by = told(findings(folder, *more), before, each, sum(e.new.count("\n") for e in each.edits))
            shutil.rmtree(folder.parent)
            counts[each.kind]["found" if any("*" not in c for c in by) else "note" if by else "missed"] += 1
            print(f"{each.kind}: {each.path}:{each.line} {' '.join(by) or 'missed'}", flush=True)
    for kind, row in counts.items():
        print(f"{kind:12} {row['found']} of {row.total()}, {row['note']} more by a note")
    every = sum(counts.values(), collections.Counter())
    print(f"found {every['found']} of {every.total()}, {every['note']} more by a note")


if __name__ == "__main__":
    main()
