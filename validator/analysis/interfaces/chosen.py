"""What is called where a condition, a table or a registry has chosen it: `cls = Sharded if args.sharded else Plain`.

Which of them it is, the call does not know; a condition around it may.
"""

from __future__ import annotations

from collections.abc import Iterator

from validator.flow.objects import ways
from validator.flow.queries.base import Place

_CHOSEN = frozenset({"phi", "item", "call"})


def is_chosen_here(place: Place, objects: bool = False, user: Place | None = None) -> bool:
    """Whether the function of a call chooses what is called, and not callers, and no condition around the call knows
    which it is, nor around the user of its result. `objects`: or the object whose method it is."""
    callee = place.operand(0).root
    if objects and callee.value.op == "attr":
        callee = callee.operand(0).root
    if callee.value.op not in _CHOSEN or any(o[0] == "param" for o in callee.val.objs):
        return False
    places = [place] if user is None else [place, user]
    caught = any(each.is_tried or each.value.block not in place.unit.control.without_exceptions for each in places)
    return not caught and not any(_is_told(each, callee) for each in places)


def _is_told(place: Place, callee: Place) -> bool:
    """Whether a condition around a call may know what was chosen: it asks for what the choice asks for, or for what was
    set beside it, compares a text, or asks the class itself."""
    choosing = [callee, *ways(callee)]
    asked = {word for way in choosing for word in _behind(way)}
    for kept, value in enumerate(place.unit.code.values):  # `self.is_sharded = kind == "sharded"`
        if value.op == "store_attr" and not asked.isdisjoint(_behind(place.value_at(kept).operand(1))):
            asked.add(value.data)
    blocks = {way.value.block for way in choosing}
    for test in (*place.tests, *_settled(place)):
        parts = list(test.parts)
        if any(part.value.op == "name" and part.value.data == "__name__" for part in parts):
            continue  # how the file is started
        if any(part.value.op == "phi" and part.value.block in blocks for part in parts):
            return True
        if any(map(_asks_text, parts)) or not asked.isdisjoint(_behind(test)):
            return True
    return False


def _settled(place: Place) -> Iterator[Place]:
    """The conditions of the function that have gone one way where a value is: those after which nothing else goes on,
    too (`if name == "b": raise …`)."""
    control, blocks = place.unit.control, place.unit.code.blocks
    for branch, block in enumerate(blocks):
        if block.end[0] == "branch" and any(control.leads(place.value.block, branch, way) for way in block.end[2:4]):
            yield place.value_at(block.end[1])


def _behind(value: Place) -> set[str]:
    """The names by which a value is chosen: those of which it is made, and of the conditions that choose them."""
    found: set[str] = set()
    seen, queue = {value.number}, [value]
    for each in queue:
        found.update(_asked(each))
        for part in (way for phi in each.parts if phi.value.op == "phi" for way in ways(phi)):
            for other in (part, *part.tests_inside):
                if other.number not in seen:
                    seen.add(other.number)
                    queue.append(other)
    return found


def _asked(value: Place) -> Iterator[str]:
    """The names that an expression is about: of `args.sharded` and `group["sharded"]` the last."""
    seen, queue = {value.number}, [value]
    for each in queue:
        found = each.value
        if found.op in ("attr", "name"):
            yield str(found.data)
        elif found.op in ("param", "free"):
            yield str(found.data[1])
        elif found.op == "item" and isinstance(each.operand(1).value.data, str):
            yield each.operand(1).value.data
        else:
            further = [each.operand(n) for n, number in enumerate(found.args) if number >= 0]
            queue += (part for part in further if part.number not in seen)
            seen.update(part.number for part in further)


def _asks_text(part: Place) -> bool:
    """Whether a text is compared, or passed to what looks into another; not the key of an entry."""
    asks = part.value.op == "compare" or part.value.op == "call" and part.method not in ("get", "getattr", "hasattr")
    return asks and any(
        isinstance(part.operand(n).value.data, str) and part.operand(n).value.op == "const"
        for n in range(len(part.value.args))
    )
