"""Things that a change altered in one place, while another place still goes by what it was.

An operation that adds up over ranks, and the factor that takes this back; a collective that gives its result to all
ranks, and the code that reads it on all of them; two tests that come true in the same rounds of a loop.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cached_property
from typing import NamedTuple

from validator.domains.axes import axes_of, of_parallelism
from validator.drift.change import Change, Pair
from validator.drift.statements.differences import Edit, Statement, alike_syntax, in_head, node_of, own_paths, paths
from validator.drift.statements.drops import Drops, differences
from validator.drift.statements.named_effects import tables
from validator.drift.statements.surroundings import called, condition, is_about_ranks, last_name

_SUMS = frozenset({"SUM", "sum"})
_MEANS = frozenset({"AVG", "avg", "mean"})


class Apart(NamedTuple):
    """An expression that no longer agrees with another place. `text`: in what."""

    pair: Pair
    at: ast.AST
    before: str
    text: str


class Turn(NamedTuple):
    """A test of a remainder: `(step + 1) % every`, with the number that is added."""

    counted: str
    every: str
    more: int


class Agreements:
    """The places that a change put apart."""

    def __init__(self, change: Change) -> None:
        self.change = change

    @cached_property
    def broken(self) -> list[Apart]:
        found: list[Apart] = []
        for pair, old, new, edits in self.change.analysis(Drops).small:
            found += self._not_divided(pair, old, new)
            for edit in edits:
                if edit.old is not None and edit.new is not None:
                    found += _rescaled(pair, edit)
                    found += _counted_alone(pair, edit, new)
                    found += _for_one(pair, edit, new)
                    found += _among_others(pair, edit, new)
                    found += _always_asynchronous(pair, edit, new)
                    found += self._out_of_turn(pair, edit)
        return found

    def _not_divided(self, pair: Pair, old: list[Statement], new: list[Statement]) -> Iterator[Apart]:
        """A sum over ranks that was divided by their number before, is not divided now, and is still read. Silent where
        the change divides anything by that number in another place."""
        factors, left = _factors(node_of(pair.old)), _factors(node_of(pair.new))
        gone = {text: factor for text, factor in sorted(factors.items()) if text not in left}
        if not gone or self._new_factors:
            return
        kept = {each.text for each in old}
        for place, each in enumerate(new):
            summed = _summed(each) if each.text in kept else ""
            divided = next((text for text, factor in gone.items() if summed and _is_quotient_of(factor, summed)), "")
            if divided and any(summed in own_paths(later.node) for later in new[place + 1 :]):
                text = f"`{summed}` is what all ranks have together; before the change it was divided by their number"
                yield Apart(pair, each.node, divided, text)

    @cached_property
    def _new_factors(self) -> frozenset[str]:
        """The products and quotients by a number of ranks that changed files have since the change."""
        sides = [[pair[side] for pair in self.change.modules] for side in (0, 1)]
        old, new = (
            {text for module in rows if module is not None for text in _factors(module.source.tree)} for rows in sides
        )
        return frozenset(new - old)

    def _out_of_turn(self, pair: Pair, edit: Edit) -> Iterator[Apart]:
        """A test that came true in the rounds of another one, and does so in other rounds now."""
        assert edit.old is not None
        assert edit.new is not None
        before, after = (list(_turns(statement.node)) for statement in (edit.old, edit.new))
        if len(before) != 1 or len(after) != 1:
            return
        (old, _), (new, node) = before[0], after[0]
        if (old.counted, old.every) == (new.counted, new.every) and old.more != new.more:
            other = next(self._others(pair, old, edit.new), None)
            if other is not None:
                text = f"this comes true in other rounds than before the change, not in those of `{ast.unparse(other)}`"
                yield Apart(pair, node, edit.old.text, text)

    @staticmethod
    def _others(pair: Pair, turn: Turn, here: Statement) -> Iterator[ast.expr]:
        """The remainders in a changed file that are still what one was before."""
        for node in ast.walk(pair.new.module.source.tree):
            if isinstance(node, ast.stmt) and node is not here.node:
                yield from (part for other, part in _turns(node) if other == turn)


def _turns(node: ast.stmt) -> Iterator[tuple[Turn, ast.expr]]:
    """The remainders that a statement tests, on its own lines."""
    for each in in_head(node):
        if not isinstance(each, ast.BinOp) or not isinstance(each.op, ast.Mod):
            continue
        counted, more = each.left, 0
        if isinstance(counted, ast.BinOp) and isinstance(counted.op, ast.Add | ast.Sub):
            step = counted.right.value if isinstance(counted.right, ast.Constant) else None
            if isinstance(step, int):
                more = step if isinstance(counted.op, ast.Add) else -step
                counted = counted.left
        names = last_name(counted), last_name(each.right)
        if all(names) and not isinstance(counted, ast.Call):
            yield Turn(*names, more), each


def _rescaled(pair: Pair, edit: Edit) -> Iterator[Apart]:
    """A sum over ranks that is a mean now, or the other way round, beside a factor of the number of ranks that the
    change left as it was."""
    assert edit.old is not None
    for old, new in differences(edit) if edit.new is not None else ():
        if not isinstance(old, ast.expr) or not isinstance(new, ast.expr):
            return
        was, now = _operation(old), _operation(new)
        if not (was in _SUMS and now in _MEANS or was in _MEANS and now in _SUMS):
            continue
        before, after = (_factors(unit) for unit in (node_of(pair.old), node_of(pair.new)))
        left = sorted(before.keys() & after.keys())
        if left and before.keys() == after.keys():
            yield Apart(
                pair,
                new,
                edit.old.text,
                f"`{now}` stands for `{was}`, while the number of ranks is still reckoned with: `{_cut(left[0])}`",
            )


def _counted_alone(pair: Pair, edit: Edit, new: list[Statement]) -> Iterator[Apart]:
    """A number of what all ranks have, which the file divides among them, that gave way to the size of what one rank
    has, where the quotient is added up over ranks."""
    assert edit.old is not None
    assert edit.new is not None
    for was, now in differences(edit):
        if not isinstance(was, ast.Name | ast.Attribute) or not isinstance(now, ast.expr) or not _is_own_size(now):
            continue
        shared = next(_divided_among_ranks(pair.new.module.source.tree, last_name(was)), None)
        place = next(index for index, each in enumerate(new) if each.node is edit.new.node)
        summed = next((each for each in new[place + 1 :] if _is_summed(each, edit.new)), None)
        if shared is not None and summed is not None and _divides(edit.new.node, now):
            text = (
                f"`{_cut(ast.unparse(now))}` counts what this rank has, `{ast.unparse(was)}` what all have "
                f"(`{_cut(ast.unparse(shared))}`), and line {summed.node.lineno} adds up over ranks what it divides"
            )
            yield Apart(pair, now, edit.old.text, text)


def _is_own_size(node: ast.expr) -> bool:
    """Whether an expression is the size of something at hand: `len(x)`, `x.size(0)`, `x.shape[0]`."""
    if isinstance(node, ast.Subscript):
        return isinstance(node.value, ast.Attribute) and node.value.attr == "shape"
    return isinstance(node, ast.Call) and last_name(node.func) in ("len", "size", "numel")


def _divided_among_ranks(tree: ast.Module, name: str) -> Iterator[ast.BinOp]:
    """The quotients and remainders of something by a number of ranks."""
    for node in ast.walk(tree):
        if not isinstance(node, ast.BinOp) or not isinstance(node.op, ast.Div | ast.FloorDiv | ast.Mod):
            continue
        if last_name(node.left) == name and _is_number_of_ranks(node.right):
            yield node


def _divides(node: ast.stmt, divisor: ast.expr) -> bool:
    """Whether a statement divides by an expression."""
    if isinstance(node, ast.AugAssign) and isinstance(node.op, ast.Div | ast.FloorDiv):
        return node.value is divisor
    parts = list(in_head(node))
    if any(isinstance(n, ast.BinOp) and isinstance(n.op, ast.Div | ast.FloorDiv) and n.right is divisor for n in parts):
        return True
    calls = (
        n for n in parts if isinstance(n, ast.Call) and last_name(n.func) in ("div", "div_", "divide", "true_divide")
    )
    return any(divisor in call.args for call in calls)


def _is_summed(statement: Statement, scaled: Statement) -> bool:
    """Whether a statement adds up over ranks what another one scaled."""
    given = _summed(statement)
    return bool(given) and given in paths(scaled.node)


def _summed(statement: Statement) -> str:
    """What a statement adds up over ranks, in place; empty where it does not."""
    for node in in_head(statement.node):
        if not isinstance(node, ast.Call) or not node.args or last_name(node.func) not in ("all_reduce", "reduce"):
            continue
        operation = next((k.value for k in node.keywords if k.arg == "op"), None)
        if operation is None or _operation(operation) in _SUMS:
            return ast.unparse(node.args[0])
    return ""


def _is_quotient_of(factor: ast.BinOp | ast.AugAssign, path: str) -> bool:
    if not isinstance(factor.op, ast.Div):
        return False
    return ast.unparse(factor.target) == path if isinstance(factor, ast.AugAssign) else path in paths(factor.left)


def _operation(node: ast.expr) -> str:
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else last_name(node)


def _factors(function: ast.AST | None) -> dict[str, ast.BinOp | ast.AugAssign]:
    """The products and quotients of a function by a number of ranks, by how they are written."""
    found: dict[str, ast.BinOp | ast.AugAssign] = {}
    for node in ast.walk(function) if function is not None else ():
        if isinstance(node, ast.BinOp | ast.AugAssign) and isinstance(node.op, ast.Mult | ast.Div):
            sides = (node.left, node.right) if isinstance(node, ast.BinOp) else (node.value,)
            if any(_is_number_of_ranks(side) for side in sides):
                found.setdefault(ast.unparse(node), node)
    return found


def _is_number_of_ranks(node: ast.expr) -> bool:
    name = last_name(node)
    return name.endswith(("world_size", "num_processes")) or bool(of_parallelism(name)) and "size" in name


def _for_one(pair: Pair, edit: Edit, new: list[Statement]) -> Iterator[Apart]:
    """A collective that gave its result to all ranks and gives it to one now, where all of them still read it."""
    assert edit.old is not None
    assert edit.new is not None
    before, after = called(edit.old.node), called(edit.new.node)
    if before is None or after is None or not before.args or not after.args:
        return
    was, now = last_name(before.func), last_name(after.func)
    if tables()["to_one"].get(was) != now or ast.dump(before.args[0]) != ast.dump(after.args[0]):
        return
    result = ast.unparse(after.args[0])
    place = next(index for index, each in enumerate(new) if each.node is edit.new.node)
    for each in new[place + 1 :]:
        guarded = any((test := condition(head)) is not None and is_about_ranks(test) for head in each.inside)
        read = any(isinstance(n, ast.expr) and ast.unparse(n) == result for n in in_head(each.node))
        if read and not guarded:
            text = f"`{now}` gives one rank what `{was}` gave all of them, and line {each.node.lineno} reads it on all"
            yield Apart(pair, edit.new.node, edit.old.text, text)
            return


def _among_others(pair: Pair, edit: Edit, new: list[Statement]) -> Iterator[Apart]:
    """A group that is asked for otherwise since the change (`get_group(with_context=True)`), where other calls of the
    function are still passed the one of before by the same keyword."""
    assert edit.old is not None
    assert edit.new is not None
    before, after = (list(_groups(statement)) for statement in (edit.old, edit.new))
    place = next(index for index, each in enumerate(new) if each.node is edit.new.node)
    others = [row for each in new if each.node is not edit.new.node for row in _groups(each)]
    beside = [row for each in (*new[max(place - 1, 0) : place], *new[place + 1 : place + 2]) for row in _groups(each)]
    if [row[:2] for row in before] != [row[:2] for row in after]:
        return
    for (called_as, keyword, was), (_, _, now) in zip(before, after, strict=True):
        rows = beside if any(alike_syntax(each, now) for *_, each in others) else others
        same = [each for _, name, each in rows if name == keyword and alike_syntax(each, was)]
        if alike_syntax(was, now) or not same:
            continue
        if not axes_of(last_name(was)) or not isinstance(now, ast.Call) or last_name(now) != last_name(was):
            continue  # a group by another name is told by that (MP906)
        text = (
            f"`{called_as}` works among `{_cut(ast.unparse(now))}` since the change, and line {same[0].lineno} still "
            f"among `{_cut(ast.unparse(was))}`"
        )
        yield Apart(pair, now, edit.old.text, text)


def _always_asynchronous(pair: Pair, edit: Edit, new: list[Statement]) -> Iterator[Apart]:
    """A collective that waits, or does not, whatever a switch says since the change, where another one of the function
    still goes by the switch: so does what waits for their handles."""
    assert edit.old is not None
    assert edit.new is not None
    before, after = (_asynchronous(statement) for statement in (edit.old, edit.new))
    if before is None or after is None or before.func != after.func or isinstance(before.switch, ast.Constant):
        return
    others = (_asynchronous(each) for each in new if each.node is not edit.new.node)
    same = [each for each in others if each is not None and alike_syntax(each.switch, before.switch)]
    if isinstance(after.switch, ast.Constant) and isinstance(after.switch.value, bool) and same:
        how = "returns before it is done" if after.switch.value else "waits until it is done"
        text = (
            f"`{after.func}` always {how} since the change, and line {same[0].switch.lineno} still goes by"
            f" `{_cut(ast.unparse(before.switch))}`"
        )
        yield Apart(pair, after.switch, edit.old.text, text)


class _Asynchronous(NamedTuple):
    """A call that is told whether to return before it is done."""

    func: str
    switch: ast.expr


def _asynchronous(statement: Statement) -> _Asynchronous | None:
    for call in (each for each in in_head(statement.node) if isinstance(each, ast.Call)):
        for keyword in call.keywords:
            if keyword.arg == "async_op":
                return _Asynchronous(last_name(call.func), keyword.value)
    return None


def _groups(statement: Statement) -> Iterator[tuple[str, str, ast.expr]]:
    """The groups that calls of a statement are passed by keyword: what is called, the keyword, the group."""
    for call in (each for each in in_head(statement.node) if isinstance(each, ast.Call)):
        for keyword in call.keywords:
            if keyword.arg is not None and keyword.arg.endswith(("group", "mesh")):
                yield last_name(call.func), keyword.arg, keyword.value


def _cut(text: str) -> str:
    return text if len(text) <= 60 else f"{text[:59]}…"
