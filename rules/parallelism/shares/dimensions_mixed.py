"""A reshape that puts elements of one dimension into another.

What it does
    Follows the sizes of a tensor through one function: from `b, t, h, d = x.shape`, `view`, `reshape`, `unflatten`-like
    sizes that are written out, `permute`, `transpose`, `flatten` and `unsqueeze` to a `view` or `reshape` whose sizes
    are the same ones, split or multiplied. Reports it where these do not come from neighbours in their order: of `[b,
    w, t, h, d]` `reshape(b, t, h * w, d)`. Silent where the result is cut or turned round at once, as skewed matrices
    are, where a test tells of one of the sizes, where a size is not known, where two sizes may be told apart by
    nothing, and where the sizes do not make up the whole.

Why is this bad
    The number of elements fits, so nothing fails: steps in time and heads, or ranks and heads, are mixed. The loss does
    not go down, or a model that was trained elsewhere gives garbage. Mostly a `transpose` or `permute` is missing or is
    another one, often around an `all_to_all`, which is not noticed on one rank.

References
    https://docs.pytorch.org/docs/stable/generated/torch.reshape.html
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

from validator.finding import Finding, Related
from validator.flow.queries.base import Place, Queries
from validator.flow.queries.outside_program import is_test
from validator.project import Project
from validator.rule import Rule

RULE = Rule("MP446", "dimensions-mixed", "warning", "1.1", tokens=("reshape", "view"), solves=True)

_RESHAPING = frozenset({"view", "reshape"})
_SAME = frozenset({"contiguous", "clone", "detach", "to", "float", "half", "bfloat16", "cuda", "cpu", "type_as"})
_SCRATCH = frozenset({"new_zeros", "new_empty", "new_full", "new_ones"})  # memory that is laid out as one likes
Factor = Any  # what tells one size from another: a number, or the key of what is computed
Sizes = list[tuple[Factor, ...]]  # of each dimension the sizes whose product it is
_REST: tuple[Factor, ...] = ("rest",)  # -1


def check_project(project: Project) -> Iterator[Finding]:
    queries = project.analysis(Queries)
    for call in queries.named_anywhere(*sorted(_RESHAPING)):
        if is_test(call.unit.path) or call.receiver is None:
            continue
        wanted, source = _given(call), call.receiver
        held = _sizes(source) if wanted is not None and len(wanted) > 1 else None
        if wanted is not None and held is not None and _are_mixed(held, wanted) and not _is_meant(call, wanted):
            yield _report(call, source)


def _is_meant(call: Place, wanted: Sizes) -> bool:
    """Whether elements are moved into other rows on purpose (a skewed matrix is cut, or turned round, at once), or a
    test around tells of one of the sizes."""
    for user in call.users:
        cut = user.value.op == "item" and any(part.value.op == "slice" for part in user.operand(1).parts)
        turned = user.value.op == "attr" and user.value.data in ("t", "T", "mT", "transpose", "permute", "swapaxes")
        if cut or turned:
            return True
    sizes = {factor for each in wanted for factor in each}
    tests = (test for test, _ in call.settled_tests)
    return any(test.value.op == "compare" and test.operand(i).key in sizes for test in tests for i in (0, 1))


def _report(call: Place, source: Place) -> Finding:
    made = source.root
    return RULE.finding(
        call.unit.path,
        call.at,
        f"`{call.text}`{call.where} takes elements of one dimension into another: its sizes are those of"
        f" `{source.text}`, but not of neighbours in their order",
        help="bring the dimensions together first (`permute`, `transpose`), and reshape then",
        related=[Related(call.unit.path, made.at[0], "the order of the dimensions comes from here")],
        context=f"{call.unit.qualname}:{call.text}",
    )


def _are_mixed(held: Sizes, wanted: Sizes) -> bool:
    """Whether sizes make up the same whole as others, and cannot come from neighbours among these."""
    source = [factor for each in held for factor in each if factor != 1]
    target = [factor for each in wanted for factor in each if factor != 1]
    if _REST[0] in target:
        if wanted.count(_REST) > 1:
            return False
        rest = Counter(source)
        rest.subtract(factor for factor in target if factor != _REST[0])
        if any(count < 0 for count in rest.values()):
            return False
        position = wanted.index(_REST)
        before = sum(len([f for f in each if f != 1]) for each in wanted[:position])
        size = len(source) - (len(target) - 1)
        wanted = [*wanted[:position], tuple(source[before : before + size]), *wanted[position + 1 :]]
        target = [factor for each in wanted for factor in each if factor != 1]
    if Counter(source) != Counter(target) or any(count > 1 for count in Counter(source).values()):
        return False
    start = 0
    for each in wanted:
        factors = [factor for factor in each if factor != 1]
        if Counter(source[start : start + len(factors)]) != Counter(factors):
            return True
        start += len(factors)
    return False


def _sizes(place: Place) -> Sizes | None:
    """The sizes of a tensor, as far as one function tells."""
    if place.value.op == "mut" and str(place.operand(1).method).endswith("_"):
        return None  # turned round in place, say
    place = place.root
    if place.value.op != "call" or place.receiver is None:
        return _unpacked(place)
    if place.method in _SCRATCH:
        return None
    if place.method in _RESHAPING:
        given = _given(place)
        return given if given is not None and _REST not in given else None
    before = _sizes(place.receiver) if place.method in _CHANGING or place.method in _SAME else None
    if before is None or place.method in _SAME:
        return before or _unpacked(place)
    numbers = _numbers(place)
    return _CHANGING[place.method](before, numbers) if numbers is not None else None


def _unpacked(place: Place) -> Sizes | None:
    """The sizes by which a function takes the shape of a tensor apart: `b, t, h, d = x.shape`."""
    for user in place.users:
        shape = user.value.op == "attr" and user.value.data == "shape"
        parts = [part for part in user.users if part.value.op == "unpack"] if shape else []
        if parts and all(part.value.data[2] < 0 for part in parts):
            by_position = {part.value.data[0]: part for part in parts}
            if len(by_position) == parts[0].value.data[1]:
                return [(by_position[i].key,) for i in range(len(by_position))]
    return None


def _given(call: Place) -> Sizes | None:
    """The sizes that a call names, each by itself or in a tuple; None where one is not written out."""
    if any(name is not None for name in call.value.data.names):
        return None
    given = _listed(call)
    if len(given) == 1 and given[0].root.value.op in ("attr", "call", "item", "param", "binary", "phi"):
        return None  # a shape, or a type
    return [_factors(each) for each in given] if all(each.value.op != "star" for each in given) else None


def _listed(call: Place) -> list[Place]:
    """What a call passes, each by itself or all in one tuple."""
    given = [call.value_at(number) for number in call.value.args[1:]]
    if len(given) == 1 and given[0].root.value.op in ("tuple", "list"):
        row = given[0].root
        given = [row.operand(i) for i in range(len(row.value.args))]
    return given


def _factors(place: Place) -> tuple[Factor, ...]:
    """The sizes whose product a number is."""
    place = place.root
    constant = place.val.constant() if place.value.op in ("const", "unary") else None
    if constant == -1:
        return _REST
    if isinstance(constant, int):
        return (constant,)
    if place.value.op == "binary" and place.value.data == "Mult":
        return (*_factors(place.operand(0)), *_factors(place.operand(1)))
    return (place.key,)


def _numbers(call: Place) -> list[int] | None:
    """The numbers that a call passes."""
    given = _listed(call)
    found = [each.val.constant() for each in given]
    plain = all(isinstance(each, int) and not isinstance(each, bool) for each in found)
    return found if plain and not any(call.value.data.names) else None


def _permuted(sizes: Sizes, order: list[int]) -> Sizes | None:
    whole = [each % len(sizes) for each in order] if sizes else []
    return [sizes[each] for each in whole] if sorted(whole) == list(range(len(sizes))) else None


def _transposed(sizes: Sizes, pair: list[int]) -> Sizes | None:
    if len(pair) != 2 or any(not -len(sizes) <= each < len(sizes) for each in pair):
        return None
    found = list(sizes)
    found[pair[0]], found[pair[1]] = found[pair[1]], found[pair[0]]
    return found


def _flattened(sizes: Sizes, ends: list[int]) -> Sizes | None:
    first, last = [*ends, *(0, -1)[len(ends) :]][:2]
    if len(ends) > 2 or any(not -len(sizes) <= each < len(sizes) for each in (first, last)):
        return None
    first, last = first % len(sizes), last % len(sizes)
    merged = tuple(factor for each in sizes[first : last + 1] for factor in each)
    return [*sizes[:first], merged, *sizes[last + 1 :]] if first <= last else None


def _unsqueezed(sizes: Sizes, where: list[int]) -> Sizes | None:
    if len(where) != 1 or not -len(sizes) - 1 <= where[0] <= len(sizes):
        return None
    position = where[0] % (len(sizes) + 1)
    return [*sizes[:position], (1,), *sizes[position:]]


_CHANGING = {
    "permute": _permuted, "transpose": _transposed, "swapaxes": _transposed, "flatten": _flattened,
    "unsqueeze": _unsqueezed,
}  # fmt: skip


INCORRECT = [
    """
def heads_to_time(exchange, x, world):
    b, t_full, h, d = x.shape
    t = t_full // world
    x = exchange(x.view(b, world, t, h, d).permute(1, 0, 2, 3, 4).flatten(0, 3))
    x = x.view(world, b, t, h, d).permute(1, 0, 2, 3, 4)
    return x.reshape(b, t, h * world, d)  # error: MP446


def heads_first(x):
    b, t, h, d = x.shape
    return x.view(b, h, t, d)  # error: MP446


def packed(x, world, heads):
    b, t, three, h, d = x.shape
    x = x.view(world, b, t, three, heads, d).permute(1, 2, 0, 3, 4, 5).contiguous()
    return x.reshape(b, t, three, heads * world, -1)  # error: MP446
""",
]

CORRECT = [
    """
def heads_to_time(exchange, x, world):
    b, t_full, h, d = x.shape
    t = t_full // world
    x = exchange(x.view(b, world, t, h, d).permute(1, 0, 2, 3, 4).flatten(0, 3))
    x = x.view(world, b, t, h, d).permute(1, 2, 0, 3, 4)
    return x.reshape(b, t, h * world, d)


def heads_first(x):
    b, t, h, d = x.shape
    return x.transpose(1, 2).reshape(b, h, t, d).reshape(b * h, t, d).view(-1, t, d)
""",
    """
def windows(x, size):
    b, h, w, c = x.shape
    x = x.view(b, h // size, size, w // size, size, c)
    return x.permute(0, 1, 3, 2, 4, 5).contiguous().view(-1, size, size, c)


def unknown(x, shape, b, t):
    x = x.view(*shape)
    y = x.view(shape)
    return y.reshape(t, b), x.view(b, t).reshape(b * 2, t // 2)
""",
]
