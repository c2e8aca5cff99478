"""Phis: what a variable holds where ways meet."""

from __future__ import annotations

from typing import TYPE_CHECKING

from validator.domains.spmd import NONE, UNIFORM, Causes, only
from validator.flow.containers import GROWING
from validator.flow.merging.arriving import arriving, completed
from validator.flow.merging.equality import is_one_thing, is_thing
from validator.flow.merging.one_rank import is_sent, is_turn, of_one_rank
from validator.flow.queries.values.tensors import apart
from validator.flow.values import COUNTED, NONE_OBJ, NOT_YET, Obj, Val, beside, in_parts, join_ways
from validator.ir import Value as Instruction

if TYPE_CHECKING:
    from validator.flow.evaluation import Evaluation

AS_LONG = frozenset({"list", "tuple", "iter", "enumerate", "reversed", "sorted", "tqdm.tqdm"})


def phi(at: Evaluation, number: int, value: Instruction) -> Val:
    """What a variable holds behind several ways; it varies as the branches do that choose between them."""
    vals = {each: at.behind_tests(at.operand(each), each, value.block) for each in value.args}
    coming = [each for each in completed(at, value, arriving(at, value, vals)) if each != number]
    vals |= {each: at.vals[each] for each in coming if each not in vals}
    operands = [each for each in coming if vals[each] is not NOT_YET]
    if coming and not operands:
        return NOT_YET
    ways, result = _joined(at, number, value, {each: vals[each] for each in operands})
    roots = {at.root(each) for each in operands}
    if len(roots) == 1 and len({times_grown(at, each) for each in operands}) > 1:
        return result.with_causes(n=at.conditions(at.unit.control.choosing(value.block)))
    if len(roots) < 2 or are_alike(at, roots):
        return result
    choosing = at.unit.control.choosing(value.block)
    choosing = frozenset(branch for branch in choosing if not is_turn(at.unit, at.vals, branch))
    causes = at.conditions(choosing)
    if causes:
        causes = at.conditions(frozenset(branch for branch in choosing if _tells_apart(at, value, branch)))
    if not causes:
        return result
    if only(causes, "rank") and is_sent(at, value, ways):
        return Val(result.objs, frozenset({UNIFORM}), result.n, result.p, result.state)
    if len({_spans(at, each) for each in operands}) == 1:
        return result.with_causes(v=causes)  # as long on either way: `steps = tqdm(steps)`
    return _chosen(at, roots, [vals[each] for each in operands], result, causes)


def _tells_apart(at: Evaluation, value: Instruction, branch: int) -> bool:
    """Whether something else comes to a phi by one way out of a branch than by another: `if …: continue` at the end of
    a loop's round leaves what the round has made."""
    preds = [pred for pred, raised in at.code.blocks[value.block].preds if not raised]
    if len(preds) != len(value.args):
        return True
    coming = dict(zip(preds, (at.root(each) for each in value.args), strict=True))
    ways = {frozenset(coming[pred] for pred in each) for each in at.unit.control.arrivals(value.block, branch)}
    return len(ways) != 1 or len(next(iter(ways))) != 1


def _joined(at: Evaluation, number: int, value: Instruction, vals: dict[int, Val]) -> tuple[dict[int, Val], Val]:
    """The operands of a phi as each comes on its way, and all of them joined."""
    alone = of_one_rank(at, value)
    ways = {each: held for each, held in vals.items() if at.code.values[each].op != "undefined"}
    if any(each.v or each.n or each.p for each in ways.values()):
        ways |= {each: ways[each].alone() for each in at.alone.ask(number, value) if each in ways}
    result = join_ways(way.without_lengths() if each in alone else way for each, way in ways.items())
    if filled := _filled(at, number, value):
        result = Val(result.objs | filled, result.v, result.n, result.p, result.state)
    return ways, result


def are_alike(at: Evaluation, roots: set[int]) -> bool:
    """Whether values are one constant, or one thing."""
    if len({at.vals[r].objs for r in roots}) != 1:
        return False
    return all(at.code.values[r].op == "const" or is_thing(at.vals[r]) for r in roots)


def _chosen(at: Evaluation, roots: set[int], vals: list[Val], result: Val, causes: Causes) -> Val:
    """What comes of several values between which branches choose."""
    absent = any(each.objs == {NONE_OBJ} for each in vals)
    if absent and is_one_thing(at, roots):
        return result.with_causes(p=causes)
    n = _lengths_differ(vals, causes)
    if any(o[0] == "tensor" for o in result.each) and apart(vals):
        n = causes
    result = in_parts(result, vals, causes)
    return result.with_causes(v=causes, n=n, p=causes if absent else NONE)


def _filled(at: Evaluation, number: int, value: Instruction) -> frozenset[Obj]:
    """What is noted beside a list to which a loop adds one element in each round: it is as long as what is gone
    through."""
    loop = at.code.loops.get(value.block)
    counted = beside(at.vals[loop.iterator], *COUNTED) if loop is not None and loop.iterator >= 0 else NONE
    for each in value.args if counted else ():
        added, base = 0, each
        while (inner := at.code.values[base]).op == "mut":
            call = at.code.values[inner.args[1]]
            added += inner.data == -1 and at.code.values[call.args[0]].data == "append"
            base = inner.args[0]
        empty = at.vals[base].objs == {("tuple", ())} and not added
        if not (base == number and added == 1 or empty):
            return NONE
    return frozenset(counted)


def _spans(at: Evaluation, number: int) -> int:
    """What has as many elements as a value, before calls that only wrap it."""
    root = at.root(number)
    value = at.code.values[root]
    if value.op != "call" or len(value.args) < 2 or value.data.names[0] is not None:
        return root
    wrapped = any(o[0] == "ext" and at.models.named(o[1]) in AS_LONG for o in at.vals[value.args[0]].each)
    return _spans(at, value.args[1]) if wrapped else root


def times_grown(at: Evaluation, number: int) -> int:
    """How often a list was appended to since it was bound."""
    found = 0
    value = at.code.values[number]
    while value.op == "mut":
        callee = at.code.values[at.code.values[value.args[1]].args[0]] if value.data == -1 else None
        name = callee.data if callee is not None and callee.op == "attr" else ""
        if name in GROWING and at.vals[value.args[0]].of("seq") + at.vals[value.args[0]].of("tuple"):
            found += 1
        value = at.code.values[value.args[0]]
    return found


def _lengths_differ(values: list[Val], causes: Causes) -> Causes:
    """What the length depends on where branches choose between values: nothing if all are known to be as long, or if
    nothing is known of any."""
    lengths: set[int | None] = set()
    for value in values:
        known = {
            len(o[1]) if o[0] in ("tuple", "dict") else None for o in value.each if o[0] in ("tuple", "dict", "seq")
        }
        lengths |= known if len(known) < 2 else {None}  # a list that was empty, and has grown
    return causes if len(lengths) > 1 else NONE
