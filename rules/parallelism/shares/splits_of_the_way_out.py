"""The way back of an all-to-all that takes the split sizes of the way out.

What it does
    Follows the two lists of split sizes of `all_to_all_single`, also through functions of the project (a helper, an
    autograd function). Reports a second call that sends on what the first has given, with the same two lists in the
    same places. Silent where the two lists are one, where no lists are passed, and where something else than the
    first call's result decides how much is sent.

Why is this bad
    Behind the way out a rank holds as many rows as it received: the way back sends that many, and receives what it
    sent first. With the lists in the order of the way out the sizes do not fit as soon as ranks send unevenly; where
    the sums happen to agree, rows come back to ranks that did not send them.

References
    https://docs.pytorch.org/docs/stable/distributed.html#torch.distributed.all_to_all_single
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from validator.finding import Finding, Related
from validator.flow.program.unit import Unit
from validator.flow.queries.base import Place, Queries
from validator.flow.queries.escapes import argument_of
from validator.flow.queries.outside_program import is_aside
from validator.project import Project
from validator.rule import Rule

RULE = Rule("MP441", "splits-of-the-way-out", "warning", "0.6.0", tokens=("all_to_all_single",), solves=True)


# What tells of a tensor how large it is, or of which kind, and nothing of its rows.
_ABOUT = frozenset({"shape", "dtype", "device", "layout", "ndim", "size", "dim", "numel", "stride"})
_FILLED = frozenset({"full", "tile", "repeat"})  # functions that give one number many times


class _Sent(NamedTuple):
    """What a call sends, and the two lists of sizes; `result`: where what comes in lies. `under`: what a call passes
    for the parameters that decide, in the function that it calls, whether this is sent."""

    call: Place
    given: Place
    result: Place
    received: Place
    sent: Place
    under: tuple[Any, ...] = ()


def check_project(project: Project) -> Iterator[Finding]:
    queries = project.analysis(Queries)
    direct = [sent for call in queries.named("all_to_all_single") if (sent := _direct(call)) is not None]
    rows = [*direct, *(found for sent in direct for found in _through(queries, sent))]
    units: dict[Unit, list[_Sent]] = {}
    for row in rows:
        if not is_aside(row.call.unit.path) and row.received.root.key != row.sent.root.key:
            if _is_of_equal_parts(row.received) and _is_of_equal_parts(row.sent):
                continue
            units.setdefault(row.call.unit, []).append(row)
    for several in units.values():
        for out in several:
            for back in several:
                if _is_sent_on(out, back):
                    yield _report(out, back)


def _direct(call: Place) -> _Sent | None:
    """A call of PyTorch's own."""
    into, given = call.argument("output", 0), call.argument("input", 1)
    received, sent = call.argument("output_split_sizes", 2), call.argument("input_split_sizes", 3)
    if into is None or given is None or received is None or sent is None or not call.operations:
        return None
    return _Sent(call, given, into, received, sent)


def _through(queries: Queries, inner: _Sent) -> Iterator[_Sent]:
    """The calls of the function around it that pass it what it sends and both lists."""
    unit = inner.call.unit
    wanted = [_parameter(each) for each in (inner.given, inner.received, inner.sent)]
    if None in wanted:
        return
    for call in queries.calls_of(unit):
        numbers = [argument_of(call.unit, call.number, unit, each) for each in wanted if each is not None]
        places = [call.value_at(number) for number in numbers if number is not None]
        if len(places) == len(wanted):
            given, received, sent = places
            yield _Sent(call, given, call, received, sent, _decided_by(inner, call))


def _decided_by(inner: _Sent, call: Place) -> tuple[Any, ...]:
    """What a call passes for the parameters by which the function that it calls decides over what it sends."""
    parts = (part.root for test in inner.call.tests_inside for part in test.sources)
    positions = sorted({int(part.value.data[0]) for part in parts if part.value.op == "param"})
    given = (argument_of(call.unit, call.number, inner.call.unit, position) for position in positions)
    return tuple(call.value_at(number).root.key if number is not None else None for number in given)


def _is_of_equal_parts(sizes: Place) -> bool:
    """Whether a list holds one number many times: what goes to each rank is as large."""
    root = sizes.root
    while root.value.op == "call" and root.receiver is not None and root.method == "tolist":
        root = root.receiver.root
    if root.value.op == "binary" and root.value.data == "Mult":
        return any(root.operand(i).root.value.op == "list" for i in (0, 1))
    if root.value.op == "collect":
        return not any(part.value.op == "next" for part in root.operand(0).sources)
    return root.value.op == "call" and root.method in _FILLED


def _parameter(place: Place) -> int | None:
    """The parameter that a value is, as it came or moved together."""
    root = place.root
    while root.value.op == "call" and root.method == "contiguous" and root.receiver is not None:
        root = root.receiver.root
    return int(root.value.data[0]) if root.value.op == "param" else None


def _is_sent_on(out: _Sent, back: _Sent) -> bool:
    """Whether one call sends what is made of another's result, and by the same lists in the same places."""
    same = (out.received.root, out.sent.root) == (back.received.root, back.sent.root)
    if out is back or not same or out.under != back.under:
        return False
    return back.call.number > out.call.number and any(part.root == out.result.root for part in _rows(back.given))


def _rows(given: Place) -> list[Place]:
    """The values of which something is made row by row: not those of which it takes one number, or the shape."""
    reducing = given.flow.models.tensors["reducing"]
    found = [given]
    for place in found:
        value = place.value
        if value.op == "attr" and value.data in _ABOUT:
            continue
        if value.op == "call" and (place.method in reducing or place.method in _ABOUT or place.method == "item"):
            continue
        if value.op == "call" and (like := _is_like(place)) is not None:
            found += [each for each in (like,) if each not in found]
            continue
        if value.op == "call" and (place.method.startswith("new_") or place.method.endswith("_like")):
            continue
        args = value.args[:1] if value.op == "mut" else value.args
        found += [each for each in map(place.value_at, (a for a in args if a >= 0)) if each not in found]
    return found


def _is_like(call: Place) -> Place | None:
    """What a call moves, or shapes, after the pattern of another tensor: `x` of `x.to(y)` and `x.view_as(y)`."""
    return call.receiver if call.method == "to" or call.method.endswith("_as") else None


def _report(out: _Sent, back: _Sent) -> Finding:
    return RULE.finding(
        back.call.unit.path,
        back.call.at,
        f"`{back.call.unit.qualname}` sends back what an all-to-all has brought with the split sizes of the way out:"
        f" it receives by `{back.received.text}` and sends by `{back.sent.text}` both times",
        help="exchange the two lists on the way back",
        related=[Related(out.call.unit.path, out.call.at[0], "the way out")],
        context=f"{back.call.unit.qualname}:{back.received.text}",
    )


_EXPERTS = """
import torch
import torch.distributed as dist

class AllToAll(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, output_splits, input_splits, group):
        ctx.splits, ctx.group = (input_splits, output_splits), group
        out = x.new_empty(sum(output_splits), *x.shape[1:])
        dist.all_to_all_single(out, x.contiguous(), output_splits, input_splits, group=group)
        return out

    @staticmethod
    def backward(ctx, grad):
        return AllToAll.apply(grad, *ctx.splits, ctx.group), None, None, None

def experts(tokens, expert, counts, group):
    received = torch.empty_like(counts)
    dist.all_to_all_single(received, counts, group=group)
    send, recv = counts.tolist(), received.tolist()
    inputs = AllToAll.apply(tokens, recv, send, group)
    return AllToAll.apply(expert(inputs), {splits}, group)
"""

INCORRECT = [
    _EXPERTS.replace("{splits}, group)", "recv, send, group)  # error: MP441"),
    """
import torch
import torch.distributed as dist

def there_and_back(rows, expert, recv, send):
    there = rows.new_empty(sum(recv), rows.shape[1])
    dist.all_to_all_single(there, rows, recv, send)
    back = torch.empty_like(rows)
    dist.all_to_all_single(back, expert(there), recv, send)  # error: MP441
    return back
""",
]

CORRECT = [
    _EXPERTS.replace("{splits}", "send, recv"),
    """
import torch
import torch.distributed as dist

def twice(rows, weights, recv, send):
    there = rows.new_empty(sum(recv), rows.shape[1])
    dist.all_to_all_single(there, rows, recv, send)
    other = weights.new_empty(sum(recv))
    dist.all_to_all_single(other, weights, recv, send)
    return there, other

def alike(rows, capacity, size):
    recv, send = [capacity] * size, [capacity] * size
    there = rows.new_empty(capacity * size, rows.shape[1])
    dist.all_to_all_single(there, rows, recv, send)
    back = torch.empty_like(rows)
    dist.all_to_all_single(back, there, recv, send)
    return back

def scaled(rows, weights, recv, send):
    there = rows.new_empty(sum(recv), rows.shape[1])
    dist.all_to_all_single(there, rows, recv, send)
    other = weights.new_empty(sum(recv))
    dist.all_to_all_single(other, weights / there.abs().amax(), recv, send)
    return other

def round_trip(rows, sizes):
    there = torch.empty_like(rows)
    dist.all_to_all_single(there, rows, sizes, sizes)
    back = torch.empty_like(rows)
    dist.all_to_all_single(back, there, sizes, sizes)
    return back
""",
    # a flag exchanges the lists; another tensor is sent the same way, in the type of the first; all parts are as large
    """
import torch
import torch.distributed as dist

def exchange(x, recv, send, back=False):
    if back:
        out = x.new_empty(sum(send), *x.shape[1:])
        dist.all_to_all_single(out, x, send, recv)
    else:
        out = x.new_empty(sum(recv), *x.shape[1:])
        dist.all_to_all_single(out, x, recv, send)
    return out

def experts(x, scores, expert, recv, send):
    tokens = exchange(x, recv, send)
    scores = exchange(scores.to(tokens.dtype).view(-1, tokens.size(1)), recv, send)
    return exchange(expert(tokens) * scores, recv, send, back=True)

def capacity(x, expert, size, ranks):
    recv, send = [size] * ranks, [size for _ in range(ranks)]
    there = torch.empty_like(x)
    dist.all_to_all_single(there, x, recv, send)
    back = torch.empty_like(x)
    dist.all_to_all_single(back, expert(there), recv, send)
    return back
""",
]
