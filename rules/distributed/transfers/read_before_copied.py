"""A tensor that the host reads while the device still copies it.

What it does
    Follows copies from the device into host memory that do not wait (`.to("cpu", non_blocking=True)`, `copy_(…,
    non_blocking=True)` into pinned memory) through containers, results and views of the same memory (`numpy()`) to
    where the host reads them (`tolist()`, `torch.save`, a queue). Reports a read to which a way leads on which nothing
    waits for the device: no `synchronize()`, no event or stream that is waited for, no other copy that blocks.

Why is this bad
    The call returns before the copy is done. The host reads what lay in the memory before, or half of the new values;
    it does so now and then, more often under load.

References
    https://docs.pytorch.org/tutorials/intermediate/pinmem_nonblock.html
"""

from __future__ import annotations

from collections.abc import Iterator

from validator.finding import Finding, Related
from validator.flow.program.unit import Unit
from validator.flow.queries.base import Place, Queries
from validator.flow.queries.outside_program import is_aside
from validator.project import Project
from validator.rule import Rule

RULE = Rule("MP587", "read-before-copied", "warning", "0.4.0", tokens=("non_blocking",))

_READING = frozenset({"tolist", "item", "copy", "sum", "max", "min"})
_TAKING = frozenset({
    "save", "dump", "dumps", "save_file", "put", "put_nowait", "send", "send_bytes", "array", "float", "int", "print",
    "write",
})  # fmt: skip
_VIEWING = frozenset({"numpy", "asarray", "from_numpy"})  # the same memory: what waits before it is read suffices
_HOLDING = frozenset({"dict", "list", "tuple", "set", "collect", "phi", "item", "unpack", "next", "iter"})
_PASSING = _VIEWING | {"append", "extend", "setdefault", "list", "tuple", "dict", "items", "values"}
_WAITING = frozenset({
    "synchronize", "wait", "wait_stream", "wait_event", "query", "result", "join", "current_stream", "barrier",
})  # fmt: skip
_BLOCKING = frozenset({"item", "tolist", "cpu"})  # of a tensor on the device: they wait for all that is queued


def check_project(project: Project) -> Iterator[Finding]:
    queries = project.analysis(Queries)
    waiting = queries.reaching({call.unit for call in queries.named(*_WAITING)})
    for copy in queries.named("to", "copy_"):
        if is_aside(copy.unit.path) or not _to_host(copy):
            continue
        read = next(_reads(queries, waiting, copy), None)
        if read is not None:
            yield _report(copy, read)


def _to_host(copy: Place) -> bool:
    """Whether a call starts a copy into host memory and does not wait for it."""
    waits_not = copy.argument("non_blocking", 1)
    if waits_not is None or not waits_not.closed.is_const(True) or copy.receiver is None:
        return False
    if copy.method == "to":
        device = copy.argument("device", 0)
        return device is not None and _is_host(device)
    made = copy.receiver.root
    if made.value.op != "call":
        return False
    device, pinned = made.argument("device"), made.argument("pin_memory")
    return pinned is not None and pinned.val.is_const(True) and (device is None or _is_host(device))


def _is_host(device: Place) -> bool:
    value = device.root
    if value.value.op == "call" and value.method == "device" and len(value.value.args) > 1:
        value = value.operand(1)
    return value.closed.is_const("cpu")


def _reads(queries: Queries, waiting: frozenset[Unit], copy: Place) -> Iterator[Place]:
    """Where the host reads the copy with nothing having waited, in its function and where that returns to."""
    start = copy if copy.method == "to" else copy.users[-1] if copy.users else copy
    stack, seen = [(start, copy)], set()
    while stack:
        held, since = stack.pop()
        if held in seen:
            continue
        seen.add(held)
        values = _held(held)
        for read in _readings(values):
            if _reaches(queries, waiting, since, read.number):
                yield read
        ends = held.unit.code.returned
        if any(each.number in ends and _reaches(queries, waiting, since, -1) for each in values):
            stack += [(call, call) for call in queries.calls_of(held.unit)]


def _held(start: Place) -> list[Place]:
    """The values of a function that hold a tensor, or a container in which it lies under a key that is known."""
    found: dict[Place, object] = {start: None}  # with the key, None for whatever
    queue = [start]
    for place in queue:
        for user in place.users:
            op, number, key = user.value.op, place.number, found[place]
            holds = op in _HOLDING or op == "mut" and (user.value.args[0] == number or user.value.data != -1)
            holds = holds or op == "call" and user.method in _PASSING
            if op == "item" and key is not None and user.operand(1).val.constant() not in (None, key):
                continue
            key = key if op in ("mut", "phi") else None
            if op == "store_item" and user.value.args[2] == number:
                user, holds, key = user.operand(0).root, True, user.operand(1).val.constant()
            if op == "attr" and user.value.data in ("items", "values", *_VIEWING):
                holds = True
            if holds and user not in found:
                found[user] = key
                queue.append(user)
    return queue


def _readings(values: list[Place]) -> Iterator[Place]:
    for place in values:
        for user in place.users:
            if user.value.op == "call" and user.value.args[0] != place.number and user.method in _TAKING:
                yield user
            elif user.value.op == "attr" and user.value.data in _READING:
                yield from (call for call in user.users if call.value.op == "call")


def _reaches(queries: Queries, waiting: frozenset[Unit], first: Place, last: int) -> bool:
    """Whether a way leads from one value to another (-1: to a `return`) on which nothing waits."""
    code = first.unit.code
    block = first.value.block
    seen: set[int] = set()
    stack = [(block, code.blocks[block].values.index(first.number) + 1)]
    while stack:
        at, index = stack.pop()
        for number in code.blocks[at].values[index:]:
            if number == last:
                return True
            if code.values[number].op == "call" and _waits(queries, waiting, first.value_at(number)):
                break
        else:
            if last < 0 and code.blocks[at].end[0] == "return":
                return True
            for following in code.blocks[at].successors():
                if following not in seen:
                    seen.add(following)
                    stack.append((following, 0))
    return False


def _waits(queries: Queries, waiting: frozenset[Unit], call: Place) -> bool:
    """Whether a call waits for the device, itself or in what it runs."""
    if call.method in _WAITING or call.method in _BLOCKING and call.receiver is not None:
        return True
    if call.method == "to" and call.receiver is not None and _is_blocking(call):
        return True  # copies of one stream are done in their order
    return any(unit in waiting for unit in queries.targets(call))


def _is_blocking(copy: Place) -> bool:
    """Whether a call of `to` copies into host memory and waits for it."""
    device, waits_not = copy.argument("device", 0), copy.argument("non_blocking", 1)
    return device is not None and _is_host(device) and (waits_not is None or waits_not.closed.is_const(False))


def _report(copy: Place, read: Place) -> Finding:
    return RULE.finding(
        read.unit.path,
        read.at,
        f"`{read.text}` in `{read.unit.qualname}` reads what `{copy.text}` still copies: nothing has waited for the"
        " device",
        help="call `torch.cuda.synchronize()`, or wait for an event that is recorded behind the copy, before the read",
        related=[Related(copy.unit.path, copy.at[0], "the copy is started here")],
        context=f"{read.unit.qualname}:{read.method}:{copy.text}",
    )


INCORRECT = [
    """
import torch

def save(model, path):
    state = {}
    for name, tensor in model.state_dict().items():
        state[name] = tensor.to("cpu", non_blocking=True)
    torch.save(state, path)  # error: MP587

def shown(loss):
    value = loss.detach().to("cpu", non_blocking=True)
    return value.numpy().tolist()  # error: MP587
""",
    """
import torch

def offloaded(tensors):
    return {name: tensor.to(torch.device("cpu"), non_blocking=True) for name, tensor in tensors.items()}

def publish(tensors, queue):
    host = offloaded(tensors)
    queue.put(host)  # error: MP587

def staged(tensor):
    host = torch.empty(tensor.shape, dtype=tensor.dtype, pin_memory=True)
    host.copy_(tensor, non_blocking=True)
    return host.tolist()  # error: MP587
""",
]

CORRECT = [
    """
import torch

def save(model, path):
    state = {}
    for name, tensor in model.state_dict().items():
        state[name] = tensor.to("cpu", non_blocking=True)
    torch.cuda.synchronize()
    torch.save(state, path)

def shown(loss):
    done = torch.cuda.Event()
    value = loss.detach().to("cpu", non_blocking=True)
    done.record()
    done.synchronize()
    return value.numpy()

def moved(batch, device):
    return {name: tensor.to(device, non_blocking=True) for name, tensor in batch.items()}

def blocking(loss):
    return loss.to("cpu").numpy()
""",
    """
import torch

def offloaded(tensors):
    return {name: tensor.to(torch.device("cpu"), non_blocking=True) for name, tensor in tensors.items()}

def wait():
    torch.cuda.current_stream().synchronize()

def publish(tensors, queue):
    host = offloaded(tensors)
    wait()
    queue.put(host)

def back(tensors, device):
    host = offloaded(tensors)
    return {name: tensor.to(device, non_blocking=True) for name, tensor in host.items()}
""",
    # an array is a view of the same memory: it may be made before the copy is done, and read behind it
    """
import torch

def splits(counts):
    view = counts.to("cpu", non_blocking=True).numpy()
    torch.cuda.current_stream().synchronize()
    return view.tolist()
""",
    # a copy that blocks comes behind those that were started before it
    """
import torch

def sizes(sent, received):
    sent = sent.sum(dim=1).to(torch.device("cpu"), non_blocking=True)
    received = received.sum(dim=1).to(torch.device("cpu"), non_blocking=False)
    return sent.tolist(), received.tolist()
""",
    # another entry of the dictionary that holds the copy
    """\
import torch


def prepare(strategy, buff, size):
    buff["dones_cpu"] = buff["dones"].to("cpu", copy=True, non_blocking=True)
    left = size - buff["valids"].sum().item()
    return strategy.train(buff, left)
""",
]
