"""Small edits: statements of which a change took away, or exchanged, one part while all the rest stayed as it was.

Two syntax trees are walked together to the one place where they differ. What was there and is not is then a factor, an
operand of `and` or `or`, an argument, an element, a call around a value, or a name in whose place another one stands.
"""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterator
from functools import cached_property
from typing import NamedTuple

from validator.drift.change import Change, Pair
from validator.drift.statements.differences import Edit, Statement, alike_syntax, edits, heads, similarity, statements
from validator.flow.queries.outside_program import is_test

_SAME = 0.6
# Names of arguments by which libraries are told who takes part.
WHO = frozenset({
    "group", "process_group", "pg", "src", "dst", "root", "src_rank", "dst_rank", "group_src", "group_dst", "mesh",
    "device_mesh", "num_replicas", "rank", "world_size", "ranks", "async_op", "map_location", "op", "reduce_op",
    "num_nodes", "nnodes", "devices", "num_processes", "nproc_per_node", "synced_gpus", "with_context_parallel",
    "mesh_dim", "sync_module_states", "modifier_rank", "rank0_only", "broadcast_from_rank0", "master_only",
    "is_main_process", "use_distributed_sampler",
})  # fmt: skip
_SHORT = 4  # a function of so few statements is the same one, however much of it is edited
MUCH = 12  # edits of functions in one file, beyond which what went, went with the rest


class Drop(NamedTuple):
    """One part that a change took out of a statement.

    `kind`: `factor` (of a product or quotient), `term` (of a sum), `operand` (of `and`, `or`), `keyword`, `argument`,
    `element`, `call` (around or on a value), `index` (a table in which a value was looked up), `guard` (`x if c else
    y`), `order` (of an argument that changed places with another one), `name` (another one stands there), `constant`
    (one stands there), `number`, `sign` (a minus or a `not`), `await`, `comparison` (another operator), `text`,
    `template` (of an f-string whose places stand otherwise).
    `old` and `new` are the smallest expressions that differ, `part` is what went.
    """

    kind: str
    pair: Pair
    edit: Edit
    old: ast.expr
    new: ast.expr
    part: ast.AST

    @property
    def text(self) -> str:
        return self.part.arg or "" if isinstance(self.part, ast.keyword) else ast.unparse(self.part)


class Drops:
    """The small edits of a change, and the functions whose statements it changed."""

    def __init__(self, change: Change) -> None:
        self.change = change

    @cached_property
    def _compared(self) -> list[tuple[Pair, list[Statement], list[Statement], bool]]:
        """The changed functions with their statements before and after, and whether they are still the same ones."""
        found = []
        for pair in self.change.pairs:
            if not is_test(pair.new.path):
                old, new = statements(pair.old), statements(pair.new)
                moved = sorted(each.text for each in old) == sorted(each.text for each in new)
                short = len(old) < _SHORT or len(new) < _SHORT and len(old) < 2 * _SHORT
                same = similarity(old, new) >= _SAME or moved or short and bool(old and new)
                found.append((pair, old, new, same))
        return found

    @cached_property
    def edited(self) -> list[tuple[Pair, list[Statement], list[Statement], list[Edit]]]:
        """The functions that were edited and not written anew, with their statements before and after."""
        return [(pair, old, new, edits(old, new)) for pair, old, new, same in self._compared if same]

    @cached_property
    def rewritten(self) -> list[tuple[Pair, frozenset[str]]]:
        """The functions that were written anew, with the statements that they have no longer."""
        rows = [(pair, old, new) for pair, old, new, same in self._compared if not same]
        return [(pair, frozenset(s.text for s in old) - {s.text for s in new}) for pair, old, new in rows]

    @cached_property
    def small(self) -> list[tuple[Pair, list[Statement], list[Statement], list[Edit]]]:
        """The edited functions of files that the change leaves mostly as they were. Where it rewrites a file, what one
        of its functions lost is mostly meant: it is part of the other way in which things are done now."""
        count = Counter[str]()
        for pair, _, _, changed in self.edited:
            count[pair.new.path] += len(changed)
        for pair, gone in self.rewritten:
            count[pair.new.path] += len(gone)
        for old, new in self.change.modules:
            if old is not None and new is not None:
                keys = self.change.before.units(old).keys() ^ self.change.after.units(new).keys()
                count[new.path] += sum(not key.endswith(">") for key in keys)
        return [row for row in self.edited if count[row[0].new.path] <= MUCH]

    @cached_property
    def drops(self) -> list[Drop]:
        found = []
        for pair, _, _, changed in self.edited:
            made = _made(changed)
            for edit in changed:
                if edit.old is not None and edit.new is not None:
                    found += [
                        _unwrapped(kind, old, new, part, made, pair, edit) for kind, old, new, part in between(edit)
                    ]
        return found


def _made(changed: list[Edit]) -> dict[str, ast.Call]:
    """The variables of which the change took away the one call that gave them their value."""
    found = {}
    for edit in changed:
        node = edit.old.node if edit.old is not None and edit.new is None else None
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name) and isinstance(node.value, ast.Call):
            found[node.targets[0].id] = node.value
    return found


def _unwrapped(
    kind: str, old: ast.expr, new: ast.expr, part: ast.AST, made: dict[str, ast.Call], pair: Pair, edit: Edit
) -> Drop:
    """A small edit; where a variable gave way to what it was made of, the call around that is what went."""
    call = made.get(old.id) if kind == "name" and isinstance(old, ast.Name) else None
    if call is not None and (inner := _inside(call)) is not None and alike_syntax(inner, new):
        return Drop("call", pair, edit, call, new, call)
    return Drop(kind, pair, edit, old, new, part)


def _inside(call: ast.Call) -> ast.expr | None:
    """What a call is around: its first argument, or of a method of a value that value."""
    if isinstance(call.func, ast.Attribute) and not call.args:
        return call.func.value
    return call.args[0] if call.args else None


def differences(edit: Edit) -> list[tuple[ast.AST, ast.AST]]:
    """The smallest parts of a statement that are others now."""
    assert edit.old is not None
    assert edit.new is not None
    return list(_different(heads(edit.old.node), heads(edit.new.node)))


def between(edit: Edit) -> list[tuple[str, ast.expr, ast.expr, ast.AST]]:
    """What went out of a statement; empty where more than that changed."""
    found: list[tuple[str, ast.expr, ast.expr, ast.AST]] = []
    for old, new in differences(edit):
        if not isinstance(old, ast.expr) or not isinstance(new, ast.expr):
            return []
        row = _dropped(old, new)
        if row is None:
            return []
        found.append((row[0], old, new, row[1]))
    return found


def part_that_went(old: ast.expr, new: ast.expr, kind: str) -> ast.AST | None:
    """What of one kind an expression lacks that is else as it was; None where more changed, or something else."""
    rows = list(_different([old], [new]))
    if len(rows) != 1 or not isinstance(rows[0][0], ast.expr) or not isinstance(rows[0][1], ast.expr):
        return None
    found = _dropped(*rows[0])  # type: ignore[arg-type]
    return found[1] if found is not None and found[0] == kind else None


def _different(old: list[ast.AST], new: list[ast.AST]) -> Iterator[tuple[ast.AST, ast.AST]]:
    """The smallest pairs of parts that differ."""
    if len(old) != len(new):
        yield ast.Pass(), ast.Pass()
        return
    for one, other in zip(old, new, strict=True):
        if ast.dump(one) == ast.dump(other):
            continue
        if type(one) is not type(other) or _is_small(one, other):
            yield one, other
            continue
        inner = list(_different(*_children(one, other)))
        if inner and isinstance(one, ast.expr) and any(not isinstance(a, ast.expr) for a, _ in inner) or not inner:
            yield one, other
        else:
            yield from inner


def _children(one: ast.AST, other: ast.AST) -> tuple[list[ast.AST], list[ast.AST]]:
    return list(ast.iter_child_nodes(one)), list(ast.iter_child_nodes(other))


def _is_small(one: ast.AST, other: ast.AST) -> bool:
    """Whether two parts of one type are compared as they are: names, numbers, calls with other arguments."""
    if isinstance(one, ast.Attribute) and isinstance(other, ast.Attribute) and one.attr == other.attr:
        return isinstance(one.value, ast.Name | ast.Attribute)
    if isinstance(one, ast.Name | ast.Constant | ast.Attribute):
        return True
    if isinstance(one, ast.Call) and isinstance(other, ast.Call):
        if _is_around(one, other) or _is_around(other, one):
            return True
        if alike_syntax(one.func, other.func) and _turned_round(one, other) is not None:
            return True
        return len(one.args) != len(other.args) or [k.arg for k in one.keywords] != [k.arg for k in other.keywords]
    if isinstance(one, ast.Tuple | ast.List | ast.Set) and isinstance(other, ast.Tuple | ast.List | ast.Set):
        return len(one.elts) != len(other.elts) or _exchanged(one.elts, other.elts) is not None
    if isinstance(one, ast.JoinedStr) and isinstance(other, ast.JoinedStr):
        return list(map(type, one.values)) != list(map(type, other.values))
    if isinstance(one, ast.BoolOp) and isinstance(other, ast.BoolOp):
        return (
            len(one.values) != len(other.values)
            or type(one.op) is not type(other.op)
            or _dropped(one, other) is not None
        )
    if isinstance(one, ast.BinOp) and isinstance(other, ast.BinOp):
        return type(one.op) is not type(other.op) or _dropped(one, other) is not None
    return False


def _dropped(old: ast.expr, new: ast.expr) -> tuple[str, ast.AST] | None:
    """What the new expression lacks of the old one; None where it is no part that went or was exchanged."""
    if isinstance(old, ast.BinOp):
        found = _of_chain(old, new)
        if found is not None:
            return found
    if isinstance(old, ast.BoolOp):
        if isinstance(new, ast.BoolOp) and type(new.op) is type(old.op) and len(new.values) == len(old.values):
            changed = [(v, w) for v, w in zip(old.values, new.values, strict=True) if not alike_syntax(v, w)]
            if len(changed) == 1 and not (set(_loaded(changed[0][0])) & set(_loaded(changed[0][1]))):
                return "operand", changed[0][0]
        rest = [v for v in old.values if not alike_syntax(v, new)]
        if isinstance(new, ast.BoolOp) and type(new.op) is type(old.op):
            rest = _missing(old.values, new.values)
        if len(rest) == 1 and len(old.values) - 1 == (len(new.values) if isinstance(new, ast.BoolOp) else 1):
            return "operand", rest[0]
    if isinstance(old, ast.Call) and isinstance(new, ast.Call) and alike_syntax(old.func, new.func):
        turned = _turned_round(old, new)
        return ("order", turned) if turned is not None else _of_arguments(old, new)
    if isinstance(old, ast.Tuple | ast.List | ast.Set) and type(new) is type(old):
        if (turned := _exchanged(old.elts, new.elts)) is not None:
            return "order", turned
        rest = _missing(old.elts, new.elts)
        if len(rest) == 1 and len(new.elts) == len(old.elts) - 1:
            return "element", rest[0]
    if isinstance(old, ast.UnaryOp) and alike_syntax(old.operand, new):
        return "sign", old
    if isinstance(old, ast.Await) and alike_syntax(old.value, new):
        return "await", old.value
    if isinstance(old, ast.Compare) and isinstance(new, ast.Compare):
        same = alike_syntax(old.left, new.left) and len(old.comparators) == len(new.comparators)
        if same and all(alike_syntax(a, b) for a, b in zip(old.comparators, new.comparators, strict=True)):
            return "comparison", old
    if isinstance(old, ast.IfExp) and (alike_syntax(old.body, new) or alike_syntax(old.orelse, new)):
        return "guard", old.test
    if isinstance(old, ast.Call) and _is_around(old, new):
        return "call", old
    if isinstance(old, ast.Subscript) and alike_syntax(old.slice, new):
        return "index", old
    if isinstance(old, ast.ListComp) and _looks_each_up(old) and alike_syntax(old.generators[0].iter, new):
        return "index", old.elt
    if isinstance(old, ast.Name | ast.Attribute) and isinstance(new, ast.Name | ast.Attribute):
        return "name", old
    named = ast.Name | ast.Attribute | ast.Call
    if isinstance(old, named) and isinstance(new, named) and type(old) is not type(new):
        return "name", old
    if isinstance(old, ast.Call | ast.Attribute | ast.Name) and isinstance(new, ast.Constant):
        return "constant", old
    if isinstance(old, ast.JoinedStr) and isinstance(new, ast.JoinedStr):
        return "template", old
    if isinstance(old, ast.Constant) and isinstance(new, ast.Constant) and type(old.value) is type(new.value):
        return "number" if isinstance(old.value, int | float) else "text", old
    return None


def _looks_each_up(node: ast.ListComp) -> bool:
    """Whether a list is another one with each element looked up in a table: `[mapping[x] for x in ranks]`."""
    (round_, *others) = node.generators
    asked = node.elt.slice if isinstance(node.elt, ast.Subscript) else None
    if asked is None or others or round_.ifs or not isinstance(round_.target, ast.Name):
        return False
    return _loaded(asked) == [round_.target.id]


def _loaded(node: ast.expr) -> list[str]:
    """The names and attributes that an expression reads."""
    nodes = ast.walk(node)
    return [n.id if isinstance(n, ast.Name) else n.attr for n in nodes if isinstance(n, ast.Name | ast.Attribute)]


def _of_chain(old: ast.BinOp, new: ast.expr) -> tuple[str, ast.AST] | None:
    """`a * b` that is `a` now, `a // b // c` that is `a // b`."""
    kind = "factor" if isinstance(old.op, ast.Mult | ast.Div | ast.FloorDiv | ast.Mod) else "term"
    if not isinstance(old.op, ast.Mult | ast.Div | ast.FloorDiv | ast.Mod | ast.Add | ast.Sub):
        return None
    if alike_syntax(old.left, new):
        return kind, old.right
    if alike_syntax(old.right, new):
        return kind, old.left
    if isinstance(new, ast.BinOp) and type(new.op) is type(old.op):
        if alike_syntax(old.right, new.right) and isinstance(old.left, ast.BinOp):
            return _of_chain(old.left, new.left)
        if alike_syntax(old.left, new.left) and isinstance(old.right, ast.BinOp):
            return _of_chain(old.right, new.right)
    return None


def _of_arguments(old: ast.Call, new: ast.Call) -> tuple[str, ast.AST] | None:
    if len(old.args) + len(old.keywords) <= len(new.args) + len(new.keywords):
        return None  # what was passed by position is passed by name now, or the other way round
    keywords = [k for k in old.keywords if not any(alike_syntax(k, other) for other in new.keywords)]
    arguments = _missing(old.args, new.args)
    together = len(keywords) == 1 or {k.arg for k in keywords} <= WHO  # who takes part is told by several
    if keywords and together and not arguments and len(new.keywords) == len(old.keywords) - len(keywords):
        return "keyword", keywords[0]
    if not keywords and len(arguments) == 1 and len(new.args) == len(old.args) - 1:
        return "argument", arguments[0]
    return None


def _turned_round(old: ast.Call, new: ast.Call) -> ast.expr | None:
    """The first of two arguments by position that changed places; None where something else changed."""
    if list(map(ast.dump, old.keywords)) != list(map(ast.dump, new.keywords)):
        return None
    return _exchanged(old.args, new.args)


def _exchanged(old: list[ast.expr], new: list[ast.expr]) -> ast.expr | None:
    """The first of two expressions of a row that changed places; None where more, or something else, changed."""
    if len(old) != len(new):
        return None
    other = [(a, b) for a, b in zip(old, new, strict=True) if not alike_syntax(a, b)]
    if len(other) != 2 or not (alike_syntax(other[0][0], other[1][1]) and alike_syntax(other[0][1], other[1][0])):
        return None
    return other[0][0]


def _missing(old: list[ast.expr], new: list[ast.expr]) -> list[ast.expr]:
    """What the new row lacks; what it has in addition makes the answer empty."""
    left = Counter(ast.dump(each) for each in new)
    missing = []
    for each in old:
        text = ast.dump(each)
        if left[text]:
            left[text] -= 1
        else:
            missing.append(each)
    return missing if not any(left.values()) else []


def _is_around(call: ast.Call, value: ast.expr) -> bool:
    """Whether a call is nothing but a value with a call of one of its methods behind it, or a function around it."""
    inner = [call.func.value] if isinstance(call.func, ast.Attribute) else []
    inner += call.args[:1] if len(call.args) == 1 else []
    return any(alike_syntax(each, value) for each in inner)
