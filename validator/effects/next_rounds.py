"""What the next round of a loop tests, for who goes round again without having changed it."""

from __future__ import annotations

from validator.flow.control import reachable
from validator.flow.program.unit import Unit


def tests_again(unit: Unit, header: int, block: int, way: int) -> bool:
    """Whether the test of a `while` loop comes out in the next round as in this one, for who leaves a block of it that
    way: it compares what the loop carries from round to round, and nothing that follows stores any of that anew."""
    end = unit.code.blocks[header].end
    if end[0] != "branch" or unit.code.loops[header].iterator >= 0:
        return False
    carried = _carried(unit, header, end[1])
    if not carried:
        return False
    passed = {*reachable(unit.code, but=header, start=way), block} if way != header else {block}
    edges = {
        (source, target)
        for target in passed | {header}
        for source, _ in unit.code.blocks[target].preds
        if source in passed and (source != block or target == way)
    }
    return all(_stays(unit, number, header, edges) for number in carried)


def _carried(unit: Unit, header: int, test: int) -> set[int]:
    """The variables that a test compares, each made at the head of a loop; empty if it asks for something else too."""
    found: set[int] = set()
    stack = [test]
    while stack:
        value = unit.code.values[number := stack.pop()]
        if value.op == "phi" and value.block == header:
            found.add(number)
        elif value.op in ("compare", "binary", "unary"):
            stack += value.args
        elif value.op not in ("const", "param"):
            return set()
    return found


def _stays(unit: Unit, carried: int, header: int, edges: set[tuple[int, int]]) -> bool:
    """Whether a variable has, over each of some edges that leads back to the head of its loop, the value of before."""
    seen: set[int] = set()
    stack = [n for n, source in _entering(unit, carried) if (source, header) in edges]
    while stack:
        number = stack.pop()
        if number == carried or number in seen:
            continue
        seen.add(number)
        value = unit.code.values[number]
        if value.op != "phi":
            return False
        stack += [n for n, source in _entering(unit, number) if (source, value.block) in edges]
    return True


def _entering(unit: Unit, phi: int) -> list[tuple[int, int]]:
    """What a variable is on each edge into its block, and from where that comes."""
    value = unit.code.values[phi]
    return [(n, source) for n, (source, _) in zip(value.args, unit.code.blocks[value.block].preds, strict=False)]


__all__ = ["tests_again"]
