"""What a change no longer does to a value before it is used: copying it, padding it, rounding it up.

A value that is written into in place was copied first; a tensor that a collective takes was brought to the size that
all ranks have; a count was made a whole multiple of a number of ranks. Each of these is one expression or statement
that a reader takes for a detail, and whose loss shows only on several ranks.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cache, cached_property
from typing import NamedTuple

from validator.drift.change import Change, Pair
from validator.drift.statements.differences import Edit, Statement, alike_syntax, in_head, own_paths, paths
from validator.drift.statements.drops import Drops, differences
from validator.drift.statements.named_effects import collective
from validator.drift.statements.surroundings import factors, last_name
from validator.drift.statements.weakened import is_parallel
from validator.models import models

_COPIES = frozenset({"clone", "copy", "deepcopy"})
_FRESH = frozenset({"state_dict", "to_dict", "asdict", "model_dump"})  # give a dictionary of its own at each call
_CONTAINERS = frozenset({"list", "dict", "set", "sorted"})
_FILLING = frozenset({"append", "extend", "insert", "update", "pop", "popitem", "clear", "setdefault", "sort", "add",
                      "remove", "discard", "reverse"})  # fmt: skip
_MAKING = (
    ast.BinOp, ast.UnaryOp, ast.Compare, ast.Dict, ast.List, ast.Set, ast.DictComp, ast.ListComp, ast.SetComp,
)  # fmt: skip
_ROUNDING = frozenset({"ceil", "int", "floor", "round", "cdiv"})


class Unprepared(NamedTuple):
    """A value that lost a step before its use. `at`: what stands there now; `text`: what was lost."""

    pair: Pair
    at: ast.AST
    before: str
    text: str


class Preparations:
    """The steps that a change took away."""

    def __init__(self, change: Change) -> None:
        self.change = change

    @cached_property
    def lost(self) -> list[Unprepared]:
        found: list[Unprepared] = []
        for pair, old, new, edits in self.change.analysis(Drops).small:
            for edit in edits:
                if edit.old is not None and edit.new is not None:
                    found += _uncopied(pair, edit, new)
                    found += _unrounded(pair, edit)
                    found += _left_out(pair, edit, new)
                elif edit.new is None:
                    found += _unaligned(pair, edit, old, new)
                    found += _of_other_lengths(pair, edit, edits)
                    found += _unfilled(pair, edit, new)
                    if len(edits) == len(self.change.pairs) == 1:  # nothing else changed that may do it now
                        found += _unshared(pair, edit, old, new)
        return found


def _uncopied(pair: Pair, edit: Edit, new: list[Statement]) -> Iterator[Unprepared]:
    """A variable that holds what it was given, where it held a copy, and is written into."""
    assert edit.old is not None
    assert edit.new is not None
    node = edit.new.node
    if not isinstance(node, ast.Assign):
        return
    copies = [n for n in in_head(edit.old.node) if isinstance(n, ast.Call) and _is_copy(n)]
    if not copies or any(isinstance(n, ast.Call) and _is_copy(n) for n in in_head(node)) or _is_new(node.value):
        return
    targets = {n.id for each in node.targets for n in ast.walk(each) if isinstance(n, ast.Name)}
    deep = any(last_name(call.func) == "deepcopy" for call in copies)
    place = next((index for index, each in enumerate(new) if each.node is node), len(new))
    for each in new[place + 1 :]:
        written = (_written(each.node) | (_written_inside(each.node) if deep else set())) & targets
        if written:
            name = min(written)
            text = f"`{name}` was a copy before the change: `{each.text}` writes into what it is made of now"
            yield Unprepared(pair, node, edit.old.text, text)
            return
        if _stored(each.node) >= targets:
            return


def _is_copy(call: ast.Call) -> bool:
    if isinstance(call.func, ast.Name) and call.func.id in _CONTAINERS:
        return len(call.args) == 1 and isinstance(call.args[0], ast.Name | ast.Attribute)
    asked = any(k.arg == "copy" and isinstance(k.value, ast.Constant) and k.value.value is True for k in call.keywords)
    return asked or last_name(call.func) in _COPIES


def _is_new(value: ast.expr) -> bool:
    """Whether an expression computes an object of its own: arithmetic, and what gives tensors of other memory."""
    if isinstance(
        value, ast.BinOp | ast.UnaryOp | ast.Compare | ast.Dict | ast.List | ast.Set | ast.DictComp | ast.ListComp
    ):
        return True
    return isinstance(value, ast.Call) and last_name(value.func) in _computing() | _FRESH


@cache
def _computing() -> frozenset[str]:
    table = models().tensors
    sharing = {*table["views"], *table["moves"], *table["casts"]}
    names = {name for kind in ("keep", "reading", "reducing", "counting", "testing") for name in table[kind]}
    return frozenset(name for name in names - sharing if not name.endswith("_"))


def _written(node: ast.stmt) -> set[str]:
    """The variables whose objects a statement writes into in place."""
    found: set[str] = set()
    if isinstance(node, ast.AugAssign):
        found |= _names(node.target)
    targets = node.targets if isinstance(node, ast.Assign | ast.Delete) else []
    found |= {name for each in targets if isinstance(each, ast.Subscript) for name in _names(each.value)}
    for call in (n for n in in_head(node) if isinstance(n, ast.Call)):
        name = last_name(call.func)
        if isinstance(call.func, ast.Attribute) and (name in _FILLING or name.endswith("_") and name[:1] != "_"):
            found |= _names(call.func.value)
        if name in collective():
            found |= {inner for each in call.args[:1] for inner in _names(each)}
    return found


def _written_inside(node: ast.stmt) -> set[str]:
    """The variables in a part of whose objects a statement stores something: `ref.args["save"] = False`."""
    targets = node.targets if isinstance(node, ast.Assign | ast.Delete) else []
    targets = [node.target] if isinstance(node, ast.AugAssign) else targets
    return {name for each in targets if isinstance(each, ast.Attribute | ast.Subscript) for name in _root(each)}


def _root(node: ast.expr) -> set[str]:
    while isinstance(node, ast.Attribute | ast.Subscript):
        node = node.value
    return _names(node)


def _names(node: ast.AST) -> set[str]:
    return {node.id} if isinstance(node, ast.Name) else set()


def _stored(node: ast.stmt) -> set[str]:
    targets = node.targets if isinstance(node, ast.Assign) else []
    return {
        n.id for each in targets for n in ast.walk(each) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)
    }


def _left_out(pair: Pair, edit: Edit, new: list[Statement]) -> Iterator[Unprepared]:
    """A variable that went through a call together with others (`model, loader = prepare(model, loader)`), which still
    do, and is used as it is now."""
    assert edit.old is not None
    assert edit.new is not None
    before, now = (_through(each.node) for each in (edit.old, edit.new))
    if before is None or now is None or not now < before:
        return
    assert isinstance(edit.old.node, ast.Assign)
    assert isinstance(edit.old.node.value, ast.Call)
    call = ast.unparse(edit.old.node.value.func)
    following = new[next((index for index, each in enumerate(new) if each.node is edit.new.node), len(new)) + 1 :]
    for name in sorted(before - now):
        used = next((each for each in following if name in _read(each.node)), None)
        if used is not None and name not in _given(following, call) | _stored_in(following):
            text = f"`{name}` comes here as it is, where `{call}` gave it back before the change"
            yield Unprepared(pair, used.node, edit.old.text, text)


def _stored_in(rows: list[Statement]) -> set[str]:
    return {name for each in rows for name in _stored(each.node)}


def _given(rows: list[Statement], call: str) -> set[str]:
    """The variables that calls of a name are given."""
    calls = (n for each in rows for n in in_head(each.node) if isinstance(n, ast.Call) and ast.unparse(n.func) == call)
    return {name for each in calls for given in each.args for name in _names(given)}


def _through(node: ast.stmt) -> frozenset[str] | None:
    """The variables that go into a call and come out of it again, all of them in order; None of other statements."""
    if not isinstance(node, ast.Assign) or len(node.targets) != 1 or not isinstance(node.value, ast.Call):
        return None
    target, call = node.targets[0], node.value
    names = [ast.unparse(each) for each in (target.elts if isinstance(target, ast.Tuple) else [target])]
    given = [ast.unparse(each) for each in call.args]
    return frozenset(names) if names == given and not call.keywords else None


def _read(node: ast.stmt) -> set[str]:
    return {n.id for n in in_head(node) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Load)}


def _unrounded(pair: Pair, edit: Edit) -> Iterator[Unprepared]:
    """A number that was a whole multiple of a number of ranks, and is so no longer."""
    assert edit.old is not None
    assert edit.new is not None
    for old, new in differences(edit):
        if not isinstance(old, ast.expr) or not isinstance(new, ast.expr):
            return
        factor = _multiple_of(old)
        if factor is None or not is_parallel(factor) or _multiple_of(new) is not None:
            continue
        text = f"this was a whole multiple of `{ast.unparse(factor)}` before the change"
        if ast.dump(factor) not in {ast.dump(n) for n in ast.walk(new)}:
            yield Unprepared(pair, new, edit.old.text, text)


def _of_other_lengths(pair: Pair, gone: Edit, edits: list[Edit]) -> Iterator[Unprepared]:
    """Every n-th element up to a whole multiple of n, where the bound went and the steps stayed: not all parts have one
    length any more."""
    assert gone.old is not None
    node = gone.old.node
    factor = _multiple_of(node.value) if isinstance(node, ast.Assign) else None
    if factor is None:
        return
    bound = _stored(node)
    for edit in edits:
        if edit.old is None or edit.new is None:
            continue
        was = [each for each in in_head(edit.old.node) if _steps_by(each, factor) and bound & paths(each)]
        now = [each for each in in_head(edit.new.node) if _steps_by(each, factor)]
        if len(was) == len(now) == 1 and not bound & paths(now[0]):
            text = f"the parts in steps of `{ast.unparse(factor)}` had one length before the change: the rest that does"
            text += " not divide among them makes some longer now"
            yield Unprepared(pair, edit.new.node, gone.old.text, text)


def _unfilled(pair: Pair, gone: Edit, new: list[Statement]) -> Iterator[Unprepared]:
    """A row that was filled up to a number of parts of one length, and is cut into such parts as it is."""
    assert gone.old is not None
    node = gone.old.node
    wanted = _length_wanted(node.test) if isinstance(node, ast.If) and not node.orelse else None
    if wanted is None or not isinstance(node, ast.If):
        return
    row, number = wanted
    if not any(row in _grown(each) for each in ast.walk(node)) or any(row in _grown(each.node) for each in new):
        return
    names = paths(number)
    for each in new:
        if any(isinstance(n, ast.Slice) and _cuts_by(n, names) for n in in_head(each.node)):
            text = f"`{row}` was filled up to `{ast.unparse(number)}` before the change: the last parts are shorter now"
            yield Unprepared(pair, each.node, gone.old.text, f"{text}, or empty")
            return


def _unshared(pair: Pair, gone: Edit, old: list[Statement], new: list[Statement]) -> Iterator[Unprepared]:
    """A variable that went through a collective (`largest = all_reduce(largest, op="max")`) and is used as it is."""
    assert gone.old is not None
    node = gone.old.node
    call = node.value if isinstance(node, ast.Assign) and len(node.targets) == 1 else None
    if not isinstance(node, ast.Assign) or not isinstance(call, ast.Call) or last_name(call.func) not in collective():
        return
    target = node.targets[0]
    if not isinstance(target, ast.Name) or not any(target.id in paths(each) for each in call.args):
        return
    behind = {each.text for each in old[next(i for i, each in enumerate(old) if each.node is node) + 1 :]}
    for each in new:
        if each.text in behind and target.id in paths(each.node) and target.id not in _stored(each.node):
            text = (
                f"`{target.id}` went through `{ast.unparse(call.func)}` before the change: each rank uses its own now"
            )
            yield Unprepared(pair, each.node, gone.old.text, text)
            return


def _length_wanted(test: ast.expr) -> tuple[str, ast.expr] | None:
    """The row that a test finds too short, and what its length should be or be divided by: `len(rows) < size * parts`,
    `len(rows) % parts`."""
    if isinstance(test, ast.Compare) and len(test.ops) == 1 and isinstance(test.ops[0], ast.Lt | ast.NotEq | ast.Gt):
        left, right = test.left, test.comparators[0]
        if isinstance(left, ast.BinOp):
            return _length_wanted(left)
        products = isinstance(test.ops[0], ast.Lt) and isinstance(right, ast.BinOp) and isinstance(right.op, ast.Mult)
        return (row, right) if products and (row := _measured(left)) else None
    if isinstance(test, ast.BinOp) and isinstance(test.op, ast.Mod):
        return (row, test.right) if (row := _measured(test.left)) else None
    return None


def _measured(node: ast.expr) -> str:
    """The row of which an expression is the length."""
    is_length = isinstance(node, ast.Call) and last_name(node.func) == "len" and len(node.args) == 1
    return ast.unparse(node.args[0]) if is_length and isinstance(node, ast.Call) else ""


def _grown(node: ast.AST) -> frozenset[str]:
    """What a statement makes longer by what it adds to it."""
    if isinstance(node, ast.Expr) and isinstance(node.value, ast.Call) and isinstance(node.value.func, ast.Attribute):
        grows = node.value.func.attr in ("extend", "append")
        return frozenset({ast.unparse(node.value.func.value)}) if grows else frozenset()
    if isinstance(node, ast.AugAssign):
        return frozenset({ast.unparse(node.target)}) if isinstance(node.op, ast.Add) else frozenset()
    if isinstance(node, ast.Assign) and isinstance(node.value, ast.BinOp) and isinstance(node.value.op, ast.Add):
        return own_paths(node, ast.Store) & paths(node.value)
    return frozenset()


def _cuts_by(cut: ast.Slice, names: frozenset[str]) -> bool:
    """Whether the bounds of a part are multiples of one of some sizes."""
    bounds = [each for each in (cut.lower, cut.upper) if each is not None]
    products = [n for each in bounds for n in ast.walk(each) if isinstance(n, ast.BinOp) and isinstance(n.op, ast.Mult)]
    return any(names & paths(each) for each in products)


def _steps_by(node: ast.AST, step: ast.expr) -> bool:
    return isinstance(node, ast.Slice) and node.step is not None and alike_syntax(node.step, step)


def _multiple_of(node: ast.expr) -> ast.expr | None:
    """The number of which an expression is a whole multiple by the way it is written: `ceil(a / n) * n`, `a // n * n`,
    `((a - 1) // (b * n) + 1) * n`, `a - a % n`."""
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Sub) and isinstance(node.right, ast.BinOp):
        inner = node.right
        if isinstance(inner.op, ast.Mod) and ast.dump(inner.left) == ast.dump(node.left):
            return inner.right
    if not isinstance(node, ast.BinOp) or not isinstance(node.op, ast.Mult):
        return None
    for whole, factor in ((node.left, node.right), (node.right, node.left)):
        if isinstance(whole, ast.Call) and last_name(whole.func) in _ROUNDING and whole.args:
            quotients = [n for n in ast.walk(whole.args[0]) if isinstance(n, ast.BinOp) and isinstance(n.op, ast.Div)]
            if last_name(whole.func) == "cdiv" and len(whole.args) == 2 and alike_syntax(whole.args[1], factor):
                return factor
        else:
            core = _without_rest(whole)
            quotients = [core] if isinstance(core, ast.BinOp) and isinstance(core.op, ast.FloorDiv) else []
        if any(alike_syntax(part, factor) for each in quotients for part in factors(each.right)):
            return factor
    return None


def _without_rest(node: ast.expr) -> ast.expr:
    """An expression without its sign and the whole number that is added to it: `a // n` of `a // n + 1`."""
    while True:
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
            node = node.operand
        elif isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add | ast.Sub) and _is_whole(node.right):
            node = node.left
        else:
            return node


def _is_whole(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and isinstance(node.value, int)


def _unaligned(pair: Pair, edit: Edit, old: list[Statement], new: list[Statement]) -> Iterator[Unprepared]:
    """A variable that was made anew out of itself before a collective was handed it, and goes there as it is now."""
    assert edit.old is not None
    node = edit.old.node
    if not isinstance(node, ast.Assign) or len(node.targets) != 1 or not isinstance(node.targets[0], ast.Name):
        return
    name = node.targets[0].id
    read = {n.id for n in ast.walk(node.value) if isinstance(n, ast.Name)}
    if name not in read or not isinstance(node.value, ast.Call):
        return
    place = next(index for index, each in enumerate(old) if each is edit.old)
    following = {each.text for each in old[place + 1 :]}
    for each in new:
        calls = (n for n in in_head(each.node) if isinstance(n, ast.Call) and last_name(n.func) in collective())
        if each.text in following and any(name in _names(given) for call in calls for given in call.args):
            if not any(name in _stored(other.node) and other.text not in {e.text for e in old} for other in new):
                text = f"`{name}` comes here as it is, where it was `{ast.unparse(node.value)}` before the change"
                yield Unprepared(pair, each.node, edit.old.text, text)
            return
