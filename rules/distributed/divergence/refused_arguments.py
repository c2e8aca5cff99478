"""An argument that a collective, or a transfer between two ranks, refuses.

What it does
    Reports calls of `torch.distributed` with an argument that torch refuses, or that sends data to the wrong memory:
    something that is no tensor; a list with another number of tensors than the group has ranks, or with one tensor
    many times; parts of another shape or type than the tensor; sizes of pieces that are those of the other tensor; a
    list that the root lacks, or that others have; an operation that is none, or is none for this type; a root or a peer
    that does not exist, or is the caller itself.

Why is this bad
    The call raises on the first step of the job, on some ranks only (the others wait for them), or the ranks overwrite
    what they got from each other.

References
    https://docs.pytorch.org/docs/stable/distributed.html
    https://github.com/pytorch/pytorch/blob/main/torch/distributed/distributed_c10d.py
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

from validator.domains.axes import UNKNOWN, WHOLE
from validator.domains.spmd import NONE, UNIFORM, Causes, only, rank
from validator.finding import Finding
from validator.flow.calls.groups import axes_in
from validator.flow.merging.conditions import truth_of
from validator.flow.queries.base import Place, Queries
from validator.flow.queries.outside_program import is_test
from validator.flow.queries.ranks.piece_sizes import are_same, summed_sizes
from validator.flow.queries.ranks.run_by_all import is_run_by_all
from validator.flow.queries.values.tensors import differ, is_of_floats, size_of
from validator.flow.values import COUNTED, Obj, Val, elements
from validator.models import Row
from validator.project import Project
from validator.rule import Rule

RULE = Rule("MP590", "refused-arguments", "warning", "0.4.0", tokens=("distributed", "dist.", "comm"))

_LISTS = ("tuple", "seq", *COUNTED)
_NO_TENSOR = ("const", "dict", "str", "size", "ordinal", *_LISTS)
_NAMELESS = ("top", "made", "param")  # of what is known to be there, but not what it is
_MAKING = ("const", "list", "tuple", "dict", "set", "collect", "join", "binary", "unary")
_BITWISE = ("BAND", "BOR", "BXOR")


_VALUES = frozenset({"float", "int", "bool", "str", "bytes", "len", "repr"})  # builtins that never give a tensor


class _Wrong(NamedTuple):
    given: Place
    why: str
    help: str
    sure: bool = True


class _Way(NamedTuple):
    """A value that comes to a call on some way. `chosen`: it was assigned just there; `asked`: a branch behind may ask
    for it (others replace it, or the call stands under a branch of its own); `by`: how ranks differ about it."""

    place: Place
    chosen: bool = False
    asked: bool = False
    by: Causes = NONE


def check_project(project: Project) -> Iterator[Finding]:
    queries = project.analysis(Queries)
    models = queries.flow.models
    names = [name for name, row in models.calls.items() if row.tensor or row.each or row.pieces]
    for call in queries.calls(*names):
        called = (models.call(o[1]) for o in call.operand(0).val.of("ext"))
        row = next((each for each in called if each is not None), None)
        if row is None or call.is_tried or is_test(call.unit.path):
            continue
        wrong = next(_wrong(call, row), None)
        if wrong is not None:
            yield RULE.finding(
                call.unit.path,
                call.at,
                f"`{call.method}` in `{call.unit.qualname}` gets `{wrong.given.text}`, {wrong.why}",
                help=wrong.help,
                context=f"{call.unit.qualname}:{call.method}:{wrong.given.text}",
                severity=None if wrong.sure else "warning",
            )


def _wrong(call: Place, row: Row) -> Iterator[_Wrong]:
    """What is wrong with the arguments of a call, most certain first."""
    tensor = call.argument(*row.tensor) if row.tensor is not None else None
    parts = call.argument(*row.each) if row.each is not None else None
    if tensor is not None:
        yield from _kind(call, tensor)
    if parts is not None:
        yield from _at_root(call, row, parts)
        yield from _length(call, row, parts)
        yield from _parts(parts, tensor)
    if row.times is not None:
        yield from _times(*(call.argument(*each) for each in row.times))
    if len(row.pieces) == 2:
        yield from _pieces(*((call.argument(*tensor), call.argument(*sizes)) for tensor, sizes in row.pieces))
    if row.operation is not None:
        yield from _operation(call, call.argument(*row.operation), tensor)
    for which in (row.root, row.peer):
        if which is not None and (rank := call.argument(*which)) is not None:
            yield from _rank(call, row, rank)


def _kind(call: Place, tensor: Place) -> Iterator[_Wrong]:
    if _is_asked(call, tensor):
        return  # `if torch.is_tensor(x): all_reduce(x)`
    if is_wrong := _some(_written(call, tensor), lambda each: _is(each, *_NO_TENSOR)):
        yield _Wrong(tensor, f"which is no tensor{_SOMETIMES[is_wrong]}", "pass a tensor", is_wrong == "all")


def _is_asked(call: Place, argument: Place) -> bool:
    """Whether a branch around a call asks for the very value that it gets."""
    return any(each.root == argument.root for test in call.tests_inside for each in test.parts)


def _at_root(call: Place, row: Row, parts: Place) -> Iterator[_Wrong]:
    """A list that only the root passes (`at_root`), or that every rank does."""
    written = _written(call, parts)
    alike = [each for each in written if not row.at_root or not each.by]
    others = len(alike) < len(written)  # the root has something else than the other ranks
    absent = _some(alike, lambda each: each.val.is_const(None), others)
    if absent and not (row.at_root and only(call.under, "rank", "member", "data", "param")):
        yield _Wrong(
            parts,
            f"and no list on any rank{_SOMETIMES[absent]}",
            "pass a list with one tensor for each rank",
            absent == "all",
        )
    held = parts.closed
    if not row.at_root or held.objs == {("tuple", ())}:
        return
    full = _some(alike, lambda each: _is(each, *_LISTS), others)
    differ = only(call.under if others else call.under | held.p | held.n, "rank", "member", "param")
    if full and not differ and is_run_by_all(call.flow.project.analysis(Queries), call):
        yield _Wrong(
            parts,
            f"a list, on all ranks{_SOMETIMES[full]}",
            "pass the list on the root alone, None on the others",
            full == "all",
        )


def _length(call: Place, row: Row, parts: Place) -> Iterator[_Wrong]:
    """A list that is longer or shorter than its group, or one tensor many times."""
    held = parts.closed
    for _, made, more in held.of("miscounted"):
        if axes_in(made) == _axes(call, row):
            count = f"{abs(more)} {'more' if more > 0 else 'fewer'} than the group has ranks"
            yield _Wrong(parts, f"a list with {count}", "make it as long as the group", not held.of("counted"))
    repeated = [each for each, *_ in _written(call, parts) if each.value.op == "binary" and each.value.data == "Mult"]
    sides = (each.operand(side) for each in repeated for side in (0, 1))
    if any(o[0] == "tensor" for side in sides for o in elements(side.val).each):
        yield _Wrong(parts, "the same tensor many times", "make one for each rank: `[torch.empty_like(x) for _ in …]`")


def _parts(parts: Place, tensor: Place | None) -> Iterator[_Wrong]:
    """Parts that are laid out otherwise than the tensor."""
    mine = tensor.closed.of("tensor") if tensor is not None else []
    theirs = elements(parts.closed).of("tensor")
    pairs = [differ(a, b) and not _as_many(a, b) for a in mine for b in theirs]
    if any(pairs) and (len(mine) == 1 or len(theirs) == 1):
        yield _Wrong(
            parts, "whose tensors have another shape or type than the rank's own", "lay them out alike", all(pairs)
        )


def _as_many(a: Obj, b: Obj) -> bool:
    """Whether two tensors have as many elements of one type: NCCL asks for no more (`[1]` for a number)."""
    return a[2] == b[2] and size_of(a) is not None and size_of(a) == size_of(b)


def _times(small: Place | None, large: Place | None) -> Iterator[_Wrong]:
    if small is None or large is None:
        return
    pairs = [(size_of(a), size_of(b)) for a in small.closed.of("tensor") for b in large.closed.of("tensor")]
    wrong = [a is not None and a == b for a, b in pairs]
    if any(wrong):
        yield _Wrong(
            large,
            f"which is as large as `{small.text}`",
            "make it as many times as large as there are ranks",
            all(wrong),
        )


_Pieces = tuple[Place | None, Place | None]  # a tensor, and the sizes of what it consists of


def _pieces(one: _Pieces, other: _Pieces) -> Iterator[_Wrong]:
    """Sizes of pieces that are those of the other tensor: of a tensor that was made as long as they are together."""
    for (tensor, sizes), (_, theirs) in ((one, other), (other, one)):
        whole = summed_sizes(tensor) if tensor is not None else None
        if tensor is None or sizes is None or theirs is None or whole is None or not are_same(whole, theirs):
            continue
        if not are_same(whole, sizes) and all(part.key != whole.key for part in sizes.parts):
            why = f"but `{tensor.text}` is as long as `{theirs.text}` adds up to, the sizes of the other's pieces"
            yield _Wrong(sizes, why, "swap the two lists: the sizes of the output's pieces come first")


def _operation(call: Place, how: Place | None, tensor: Place | None) -> Iterator[_Wrong]:
    if how is None:
        return
    if is_none := _some(_written(call, how), lambda each: _is(each, "const", "str")):
        yield _Wrong(how, f"which is no operation{_SOMETIMES[is_none]}", "pass a `dist.ReduceOp`", is_none == "all")
    held = how.closed
    bits = [o for o in held.each if o[0] == "ext" and o[1].rpartition(".")[2] in _BITWISE]
    layouts = tensor.closed.of("tensor") if tensor is not None else []
    if bits and layouts and all(map(is_of_floats, layouts)):
        yield _Wrong(
            how,
            "which is not for floating-point numbers",
            "reduce integers, or with SUM, MIN, MAX",
            len(bits) == len(held.objs),
        )


def _rank(call: Place, row: Row, rank: Place) -> Iterator[_Wrong]:
    """A root or peer that does not exist, or that is the caller."""
    written = _written(call, rank)
    absent = [_holds_absent(each.place.val, call, row) for each in written]
    ways = zip(written, absent, strict=True)
    # a negative number that is there before often stands for "not known yet", in a field beside what else it holds, too
    negative = any(_is(each.place, "const") and not each.chosen for each, wrong in ways if wrong)
    if all(absent) or any(absent) and not negative:
        yield _Wrong(rank, "a rank that does not exist", "ranks count from 0 to one less than there are", all(absent))
    if row.peer is not None and (own := _some(written, _is_own)):
        help = "a rank cannot send to itself, nor receive from itself"
        yield _Wrong(rank, f"the rank that calls{_SOMETIMES[own]}", help, own == "all")


def _holds_absent(value: Val, call: Place, row: Row) -> bool:
    return any(_is_absent(o, call, row) and (o[0] != "const" or len(value.objs) == 1) for o in value.each)


def _is_absent(o: Obj, call: Place, row: Row) -> bool:
    if o[0] == "const":
        return isinstance(o[2], int) and not isinstance(o[2], bool) and o[2] < 0
    if o[0] == "size" or o[0] == "beyond" and o[2] > 0:
        return axes_in(o[1]) == _axes(call, row)
    return False


def _is(place: Place, *kinds: str) -> bool:
    """Whether a value surely is of some kinds, for it is made here: elsewhere not every way may be known."""
    objs, value = place.val.objs, place.value
    called = place.operand(0).val.objs if value.op == "call" else ()
    if called and "const" in kinds and all(o[0] == "ext" and o[1] in _VALUES for o in called):
        return True
    library = value.op == "call" and all(o[0] == "ext" or place.receiver is not None for o in called)
    return (library or value.op in _MAKING) and bool(objs) and all(o[0] in kinds for o in objs)


def _axes(call: Place, row: Row) -> frozenset[str] | None:
    """The axes of the group on which a call works, where they are known for certain."""
    group = call.argument(*(row.group or ("group", 2)))
    axes, sure = group.spanned if group is not None else (WHOLE, True)
    return axes if sure and UNKNOWN not in axes else None


def _is_own(made: Place) -> bool:
    """Whether a value is what a library calls the rank of the caller in the job."""
    called = made.operand(0).val.of("ext") if made.value.op == "call" else []
    row = made.flow.models.call(called[0][1]) if called else None
    if row is None or row.result != "rank" or not row.numbers or row.axes:
        return False
    return row.rank_of is None or made.argument(*row.rank_of) is None


_SOMETIMES = {"all": "", "some": " on some ways"}


def _some(ways: list[_Way], is_wrong: Callable[[Place], bool], others: bool = False) -> str:
    """On which ways a value is wrong: on "all" of them, on "some" for which it was chosen, or on none that is sure.
    `others`: whether there are more ways."""
    wrong = [each for each in ways if is_wrong(each.place)]
    if wrong and len(wrong) == len(ways) and not others:
        return "all"
    return "some" if any(each.chosen for each in wrong) else ""


def _written(call: Place, argument: Place) -> list[_Way]:
    """Where an argument is written, one value for each way: in the unit, or in the only call of it."""
    found, queue, seen = [], [(_Way(argument), call)], set()
    for each, user in queue:
        here = each.place.origin
        if here in seen:
            continue
        seen.add(here)
        passed = _passed(here) if here.value.op == "param" else None
        if here.value.op == "phi":
            queue += [(way, here) for way in _ways(each, here, user)]
        elif passed is not None:
            asked = each.asked or bool(here.unit.control.deciding(user.value.block))
            queue.append((each._replace(place=passed[1], asked=asked), passed[0]))
        elif here.value.op != "undefined":
            found.append(each._replace(place=here))
    return found


def _ways(before: _Way, phi: Place, user: Place) -> Iterator[_Way]:
    """The values of a variable on the ways that meet."""
    control, blocks = phi.unit.control, phi.unit.code.blocks
    here = control.deciding(phi.value.block)
    asked = before.asked or phi.unit is not user.unit or bool(control.deciding(user.value.block) - here)
    for number, (pred, raised) in zip(phi.value.args, blocks[phi.value.block].preds, strict=True):
        branches = control.deciding(pred) - here
        places = [phi.value_at(blocks[branch].end[1]) for branch in branches]
        tests = [place.closed for place in places]
        by = only(frozenset().union(*map(truth_of, tests)), "rank", "member", "data", "param")
        by |= rank(WHOLE, sure=False) if any(map(_may_tell_ranks, places)) else NONE
        is_left = raised or blocks[pred].end[0] != "jump"
        value = phi.unit.code.values[number]
        written = value.op != "const" or bool(control.deciding(value.block) - here)
        chosen = written and (before.chosen or bool(branches) and not is_left and not asked)
        yield _Way(phi.value_at(number), chosen, asked or is_left, before.by | by)


def _may_tell_ranks(test: Place) -> bool:
    """Whether a test for equality is about something of which nothing is known: it may be the rank of the caller."""
    compared = test.root
    sides = (compared.value_at(n).closed for n in compared.value.args)
    return (
        compared.value.op == "compare"
        and compared.value.data in ("Eq", "NotEq")
        and any(UNIFORM not in side.v and all(o[0] in _NAMELESS for o in side.each) for side in sides)
    )


def _passed(parameter: Place) -> tuple[Place, Place] | None:
    """The only call of a unit, with what it passes for a parameter."""
    where = parameter.flow.only_call(parameter.unit)
    if where is None:
        return None
    position, name = parameter.value.data
    call = Place(parameter.flow, *where)
    given = call.argument(name, position - parameter.unit.has_receiver)
    return (call, given) if given is not None else None


INCORRECT = [
    """
import torch
import torch.distributed as dist

def collect(tensor):
    size = dist.get_world_size()
    dist.all_gather([torch.zeros(4) for _ in range(size - 1)], tensor)  # error: MP590
    dist.all_gather([torch.zeros(4)] * size, tensor)  # error: MP590
    dist.all_gather(None, tensor)  # error: MP590
    dist.all_gather([torch.zeros(4) for _ in range(size)], torch.ones(4, dtype=torch.int64) * 2)  # error: MP590
    dist.all_gather([torch.zeros(4) for _ in range(size)], torch.ones(8))  # error: MP590
""",
    """
import torch
import torch.distributed as dist

def count(values):
    dist.all_reduce(1.0 if values else 0.0)  # error: MP590
    total = torch.zeros(2) + 1
    dist.all_reduce(total, op=None)  # error: MP590
    dist.all_reduce(total, op=dist.ReduceOp.BAND)  # error: MP590
    dist.all_gather_into_tensor(torch.empty(2), total)  # error: MP590
""",
    """
import torch
import torch.distributed as dist

def to_root(tensor):
    parts = [torch.zeros(4) for _ in range(dist.get_world_size())]
    dist.gather(tensor, parts, dst=0)  # error: MP590
    dist.gather(tensor, None, dst=0)  # error: MP590
    dist.scatter(tensor, parts if dist.get_rank() == 0 else None, src=-1)  # error: MP590

def helped(tensor, parts):
    dist.gather(tensor, parts)  # error: MP590

def run(tensor):
    dist.init_process_group("gloo")
    helped(tensor, [torch.zeros(4) for _ in range(dist.get_world_size())])
    names = [None for _ in range(dist.get_world_size())]
    dist.gather_object(str(tensor), names)  # error: MP590
    return names

def show(tensor):
    parts = [torch.zeros(4) for _ in range(dist.get_world_size())]
    dist.gather(tensor, gather_list=parts, dst=0)  # error: MP590
    if dist.get_rank() == 0:
        print(parts)

to_root(torch.ones(4))

def dispatch(x, counts):
    theirs = torch.empty_like(counts)
    dist.all_to_all_single(theirs, counts)
    out = x.new_empty(int(theirs.sum()), x.shape[1])
    dist.all_to_all_single(out, x, counts.tolist(), theirs.tolist())  # error: MP590
    other = torch.empty((sum(theirs.tolist()), 8))
    sizes = theirs.tolist()
    dist.all_to_all_single(other, x, input_split_sizes=sizes, output_split_sizes=counts.tolist())  # error: MP590
    return out, other

def next_one(tensor):
    rank, size = dist.get_rank(), dist.get_world_size()
    dist.send(tensor, dst=rank)  # error: MP590
    dist.recv(tensor, src=size)  # error: MP590
""",
]

CORRECT = [
    """
import torch
import torch.distributed as dist

def collect(tensor, other):
    rank, size = dist.get_rank(), dist.get_world_size()
    tensor = torch.ones(4) * rank
    dist.all_gather([torch.zeros(4) for _ in range(size)], tensor)
    parts = [torch.zeros_like(tensor) for _ in range(size)] if rank == 0 else None
    dist.gather(tensor, parts, dst=0)
    dist.scatter(tensor, parts if rank == 0 else [], src=0)
    dist.all_gather_into_tensor(torch.empty(4 * size), tensor)
    dist.reduce(tensor, dst=size - 1, op=dist.ReduceOp.MAX)
    dist.all_gather_object([None] * size, tensor)
    dist.all_reduce(other)
    dist.all_reduce(torch.ones(3, dtype=torch.int32) * 2, op=dist.ReduceOp.BAND)
""",
    """
import torch
import torch.distributed as dist

def merge_on_root(tensor):
    dist.gather(tensor, [torch.zeros(4) for _ in range(dist.get_world_size())], dst=0)

def names_on_root(tensor):
    names = [None for _ in range(dist.get_world_size())] if dist.get_rank() == 0 else None
    dist.gather_object(str(tensor), names)
    dist.barrier()

def dispatch(x, counts):
    theirs = torch.empty_like(counts)
    dist.all_to_all_single(theirs, counts)
    mine, theirs = counts.tolist(), theirs.cpu().tolist()
    out = x.new_empty(sum(theirs), x.shape[1])
    dist.all_to_all_single(out, x, theirs, mine)
    back = torch.empty(sum(mine), x.shape[1])
    dist.all_to_all_single(back, out, output_split_sizes=mine, input_split_sizes=theirs)
    same = torch.empty(sum(mine), x.shape[1])
    dist.all_to_all_single(same, x, [int(n) for n in mine], mine)
    return out, back, same

def shift(tensor, model, found=None, source=-1):
    rank, size = dist.get_rank(), dist.get_world_size()
    if found is not None:
        dist.all_reduce(found)
    parts = [torch.zeros(4)] if model.training else {"loss": torch.zeros(4)}
    if torch.is_tensor(parts):
        dist.all_reduce(parts)
    gradient = None
    if model.training:
        gradient = torch.mm(tensor, tensor)
    dist.all_reduce(gradient)
    if source < 0:
        source = model.source
    dist.broadcast(tensor, src=source)
    if rank == 0:
        dist.gather(tensor, [torch.zeros(4) for _ in range(size)], dst=0)
    else:
        dist.gather(tensor, None, dst=0)
    ranks, mine = model.ranks()
    parts = [torch.empty_like(tensor) for _ in ranks] if mine == 0 else None
    dist.gather(tensor, parts, ranks[0])
    dist.send(tensor, dst=(rank + 1) % size)
    dist.recv(tensor, src=(rank - 1) % size)
""",
    # a number comes into a list of tensors with one element
    """
import torch
import torch.distributed as dist

def scales(group):
    scale = torch.tensor(1.0)
    parts = [torch.ones(1) for _ in range(dist.get_world_size(group))]
    dist.all_gather(parts, scale, group=group)
    return parts
""",
]
