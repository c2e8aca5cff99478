"""An asynchronous collective or save that nobody waits for, or whose tensor is touched before.

What it does
    Follows every transfer that goes on while the program does: `async_op=True`, `isend`, `irecv`, `batch_isend_irecv`
    and `async_save` of `torch.distributed.checkpoint`. Reports those whose handle no way of the program waits for,
    whether it is thrown away, kept under a name or gathered in a list, or where a method alone waits that nobody calls
    while others start the transfer (a warning); those of which a loop keeps the last handle
    only; and what is done with their tensor before anybody has waited: reading what the transfer writes, writing what
    it reads, on all ways or on those on which the wait is left out (by a test of the rank: on some ranks only); and
    a `return` that gives the tensor away on a way that leaves the wait out, where the handle ends with the function.
    Of gradients whose transfers hooks of the backward pass start: reports what bounds them before the wait, and what
    starts one more behind the wait, before the optimizer's step (warnings).
    Handles and tensors are followed through lists, tuples, dicts, attributes, arguments and results. Silent where the
    handle goes to code that nobody knows, and where the program waits for the whole device.

Why is this bad
    The tensor is read or freed while the transfer still runs: wrong numbers now and then, and an error of the
    transfer that nobody ever sees. A checkpoint that nobody waits for may be half written when the process group
    ends or the next one begins, and a full disk goes unnoticed until somebody wants to resume.

References
    https://docs.pytorch.org/docs/stable/distributed.html#asynchronous-collective-operations
    https://docs.pytorch.org/docs/stable/distributed.checkpoint.html
"""

from __future__ import annotations

from collections.abc import Iterator

from validator.analysis.usage import Usage
from validator.effects.gradients_in_flight import Flying, GradientsInFlight
from validator.effects.pending_transfers import Fate, Lost, Pending, Use
from validator.finding import Finding, Related, Severity
from validator.flow.program.unit import Unit
from validator.flow.queries.base import Place, Queries
from validator.flow.queries.outside_program import is_aside
from validator.project import Project
from validator.rule import Rule

RULE = Rule(
    "MP515", "async-never-waited", "error", "0.1.0", tokens=("async_op", "isend", "irecv", "isend_irecv", "async_save")
)


def check_project(project: Project) -> Iterator[Finding]:
    pending, queries = project.analysis(Pending), project.analysis(Queries)
    reported: set[Place] = set()
    for fate in pending.fates:
        if is_aside(fate.started.unit.path):
            continue
        start = Place(pending.flow, fate.started.unit, fate.started.number)
        meant_to_wait = fate.is_waited_for or bool(fate.holders.attributes and fate.uses)  # elsewhere, where it is used
        if not meant_to_wait:
            # NCCL sends in the order of the stream and keeps the tensor until it has: only gloo must be waited for
            yield _report(start, _kept(fate), "note" if start.method == "isend" else None)
        elif (waiting := _never_run(project, fate)) is not None:
            yield _report(start, f"is waited for in `{waiting.qualname}` alone, which nobody calls", "warning")
        elif fate.overtaken:
            # NCCL works through what one group is given in order: the last is done behind all others, on gloo not
            severity: Severity = "warning" if _has_gloo(queries) else "note"
            yield _report(start, "keeps the {} of the last round only", severity)
        for use in fate.uses if meant_to_wait else ():
            place = Place(pending.flow, use.unit, use.number)
            if place not in reported:
                reported.add(place)
                yield _touched(start, place, use)
        for lost in fate.lost if meant_to_wait else ():
            place = Place(pending.flow, lost.unit, lost.number)
            if place not in reported:
                reported.add(place)
                yield _given_away(start, place, lost)
    flying = project.analysis(GradientsInFlight)
    yield from map(_bounded, flying.bounded())
    yield from map(_stepped, flying.stepped())


def _bounded(flying: Flying) -> Finding:
    """A finding of gradients that are bounded while they are reduced."""
    use = flying.use
    return RULE.finding(
        use.unit.path,
        use.at,
        f"`{use.operand(0).text}` in `{use.unit.qualname}` bounds gradients while `{flying.start.operand(0).text}`"
        " still reduces them: it is waited for afterwards",
        help="wait before gradients are bounded",
        related=[
            Related(flying.start.unit.path, flying.start.at[0], "the transfer is started here"),
            Related(flying.wait.unit.path, flying.wait.at[0], "it is waited for here"),
        ],
        context=f"{use.unit.qualname}:{use.operand(0).text}",
        severity="warning",
    )


def _stepped(flying: Flying) -> Finding:
    """A finding of gradients that are reduced while an optimizer steps."""
    start = flying.start
    return RULE.finding(
        start.unit.path,
        start.at,
        f"`{start.operand(0).text}` in `{start.unit.qualname}` starts to reduce gradients behind the wait for the"
        f" others: nobody waits for these before `{flying.use.operand(0).text}`",
        help="start the last transfer before the wait",
        related=[
            Related(flying.wait.unit.path, flying.wait.at[0], "the others are waited for here"),
            Related(flying.use.unit.path, flying.use.at[0], "the optimizer steps here"),
        ],
        context=f"{start.unit.qualname}:{start.operand(0).text}",
        severity="warning",
    )


def _has_gloo(queries: Queries) -> bool:
    """Whether the project makes a group whose transfers are carried out by several threads."""
    for call in queries.calls("torch.distributed.init_process_group", "torch.distributed.new_group"):
        backend = call.argument("backend", 0 if call.method == "init_process_group" else 2)
        aside = is_aside(call.unit.path)
        if not aside and backend is not None and ("const", "str", "gloo") in backend.closed.objs:
            return True
    return False


def _never_run(project: Project, fate: Fate) -> Unit | None:
    """The function in which alone somebody waits for a handle that an object keeps, where nothing mentions it, while
    others than the object start the transfer."""
    started, waiting = fate.started.unit, {unit for unit, _ in fate.waits}
    away = fate.holders.given or fate.holders.escapes or fate.synchronized or not fate.holders.attributes
    if away or len(waiting) != 1 or started.cls is None:
        return None
    usage, (unit,) = project.analysis(Usage), waiting
    outside = any(user.cls is not started.cls for user, _ in usage.mentions(started))
    if not outside or unit.cls is None or unit is started or usage.is_begun(unit) or any(usage.mentions(unit)):
        return None
    return None if usage.is_for_users(unit) else unit


def _kept(fate: Fate) -> str:
    """What becomes of a handle that nobody waits for."""
    unit, number = fate.started.unit, fate.started.number
    names = [name for name, values in unit.code.definitions.items() if number in values]
    attributes = [f"….{name}" for name in fate.holders.attributes]
    if fate.holders.gathered:
        return "gathers the {}s in a container, and nobody waits for them"
    if kept := [*names, *attributes]:
        return f"keeps the {{}} as `{kept[0]}`, and nobody waits for it"
    return "throws the {} away"


def _report(start: Place, kept: str, severity: Severity | None = None) -> Finding:
    name, where = start.method, start.unit.qualname
    saves = name == "async_save"
    what = "future" if saves else "handle"
    return RULE.finding(
        start.unit.path,
        start.at,
        f"`{where}` starts `{name}` without waiting for it: it {kept.format(what)}",
        help="keep the future and call `result()` before the next save and before the process group ends"
        if saves
        else "keep the handle and call `wait()` before the tensor is used or freed, or drop `async_op=True`",
        context=f"{where}:{name}",
        severity=severity,
    )


def _touched(start: Place, place: Place, use: Use) -> Finding:
    does = "reads what" if use.buffer.written else "writes what"
    still = "still writes" if use.buffer.written else "still reads"
    ranks = ", where nobody has waited for it" if use.waits else ""
    if use.by_rank:
        ranks = ", on the ranks that do not wait for it"
    related = [Related(start.unit.path, start.at[0], f"`{start.method}` is started here")]
    for unit, number in use.waits:
        related.append(Related(unit.path, unit.at(unit.code.values[number].at)[0], "only here it is waited for"))
    return RULE.finding(
        use.unit.path,
        place.at,
        f"`{place.text}` in `{use.unit.qualname}` {does} `{start.method}` {still}{ranks}",
        help="wait for the handle before the tensor is used, on all ranks",
        related=related,
        context=f"{use.unit.qualname}:{start.method}:{place.text}",
        severity=None if not use.waits or use.by_rank else "warning",
    )


def _given_away(start: Place, place: Place, lost: Lost) -> Finding:
    related = [Related(start.unit.path, start.at[0], f"`{start.method}` is started here")]
    for unit, number in lost.waits:
        related.append(Related(unit.path, unit.at(unit.code.values[number].at)[0], "only here it is waited for"))
    return RULE.finding(
        lost.unit.path,
        place.at if place.value.op in ("tuple", "list", "dict") else start.at,
        f"`{lost.unit.qualname}` gives the tensor of `{start.method}` away on a way on which it has not waited for it,"
        " and the handle with it ends: nobody else can wait",
        help="wait for the handle before every `return`, or return it too",
        related=related,
        context=f"{lost.unit.qualname}:{start.method}:return",
        severity="warning",
    )


_BUCKETS = """
import torch.distributed as dist

class Buckets:
    def __init__(self, group):
        self.group, self.flying, self.tied = group, [], []

    def start(self, grads):
        for grad in grads:
            self.flying.append(dist.all_reduce(grad, group=self.group, async_op=True))

    def start_tied(self, weight):
        work = dist.all_reduce(weight.grad, async_op=True){mark}
        self.tied.append(work)

    def finish(self):
        for work in self.flying:
            work.wait()

    def finish_tied(self):
        for work in self.tied:
            work.wait()

def step(buckets: Buckets, model, optimizer):
    buckets.start([p.grad for p in model.parameters()])
    buckets.start_tied(model.embedding.weight)
    buckets.finish()
    {finish}
    optimizer.step()
"""

_HOOKS = """
import torch
import torch.distributed as dist

class Reducer:
    def __init__(self, model):
        self.bucket, self.flying = [], []
        for parameter in model.parameters():
            parameter.register_post_accumulate_grad_hook(self.take)

    def take(self, parameter):
        self.bucket.append(parameter)
        if len(self.bucket) == 8:
            self.launch()

    def launch(self):
        grads = [parameter.grad for parameter in self.bucket]
        self.flying += [dist.all_reduce(grad, async_op=True) for grad in grads]
        self.bucket = []

    def finish(self):
        {before}
        for work in self.flying:
            work.wait()
        self.flying.clear()
        {after}

class Engine:
    def __init__(self, model):
        self.model, self.reducer = model, Reducer(model)
        self.optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    def step(self, batch):
        self.model(batch).backward()
        {first}
        {second}
        self.optimizer.step()
"""
_FINISH, _CLIP = "self.reducer.finish()", "torch.nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)"


def _hooks(before: str = "self.launch()", after: str = "pass", first: str = _FINISH, second: str = _CLIP) -> str:
    return _HOOKS.format(before=before, after=after, first=first, second=second)


_WITH = """
from contextlib import ExitStack, contextmanager
import torch
import torch.distributed as dist

class Overlap:
    def __init__(self):
        self.works = []

    def add(self, work):
        self.works.append(work)

    def __enter__(self):
        return self

    def __exit__(self, *exc):
        self.finalize()

    def finalize(self):
        while self.works:
            self.works.pop().wait()

@contextmanager
def waiting():
    works = []
    try:
        yield works
    finally:
        for work in works:
            work.wait()

class Work:
    def __init__(self, work):
        self.work = work

    def __exit__(self, *exc):
        self.work.wait()

    def __enter__(self):
        return self

def by_object(loss, count):
    with Overlap() as overlap:
        overlap.add(dist.all_reduce(loss, async_op=True))
        overlap.add(dist.all_reduce(count, async_op=True))
        {inside}
    return (loss / count).item()

def by_generator(losses):
    with waiting() as works:
        for loss in losses:
            works.append(dist.all_reduce(loss, async_op=True))
    return [loss.item() for loss in losses]

def by_library(loss):
    with ExitStack() as stack:
        stack.enter_context(Work(dist.all_reduce(loss, async_op=True)))
    return loss.item()
"""

_ENTERED = """
from contextlib import contextmanager
import torch
import torch.distributed as dist

class Reducer:
    def __init__(self, model):
        self.flying = []
        for parameter in model.parameters():
            parameter.register_post_accumulate_grad_hook(self.take)

    def take(self, parameter):
        self.flying.append(dist.all_reduce(parameter.grad, async_op=True))

    @contextmanager
    def reducing(self):
        yield
        for work in self.flying:
            work.wait()
        self.flying.clear()

def train(model, optimizer, batches):
    reducer = Reducer(model)
    for batch in batches:
        optimizer.zero_grad()
        with reducer.reducing():
            model(batch).backward()
            {inside}
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
"""

INCORRECT = [
    # the last transfer is started behind the wait; gradients are bounded before it
    _hooks("pass", "self.launch()  # error: MP515"),
    _hooks(first=f"{_CLIP}  # error: MP515", second=_FINISH),
    # a method waits, and nobody calls it
    _BUCKETS.replace("{mark}", "  # error: MP515").replace("{finish}", ""),
    """
import torch
import torch.distributed as dist

def gather(output, tensor, group=None, async_op=False):
    return dist.all_gather_into_tensor(output, tensor, group=group or dist.group.WORLD, async_op=async_op)

def backward(grad_output, tensor, group, is_split):
    handle = None
    whole = tensor
    if is_split:
        whole = torch.empty(8, 8, device=tensor.device)
        handle = gather(whole, tensor, group=group, async_op=True)
    grad_weight = grad_output.t().matmul(whole.view(4, 16))  # error: MP515
    if handle is not None:
        handle.wait()
    return grad_weight
""",
    # what is in flight is read or written before the wait, on all ways or on those of some ranks
    """
import torch
import torch.distributed as dist

def exchange(mine, peer):
    halo = torch.zeros_like(mine)
    reading, sending = dist.irecv(halo, src=peer), dist.isend(mine, dst=peer)
    return halo, (reading, sending)

def step(mine, peer):
    halo, handles = exchange(mine, peer)
    low = halo.min().item()  # error: MP515
    mine.zero_()  # error: MP515
    for handle in handles:
        handle.wait()
    return low

def reduce(loss):
    handle = dist.all_reduce(loss, async_op=True)
    if dist.get_rank() == 0:
        handle.wait()
    return loss.item()  # error: MP515

def reduce_all(tensors):
    for tensor in tensors:
        handle = dist.all_reduce(tensor, async_op=True)  # error: MP515
    handle.wait()
""",
    """
import torch
import torch.distributed as dist

class Window:
    def __init__(self, depth):
        self.depth, self.handles = depth, []

    def submit(self, tensor):
        self.handles.append(dist.all_reduce(tensor, async_op=True))
        if len(self.handles) >= self.depth:
            self.drain()

    def drain(self):
        while self.handles:
            self.handles.pop().wait()

def total(chunks):
    window = Window(2)
    for chunk in chunks:
        window.submit(chunk)
    return sum(chunk.sum() for chunk in chunks)  # error: MP515
""",
    # the project is the library itself: what the tables say of its functions holds
    """
# file: deepspeed/__init__.py
# file: deepspeed/comm/__init__.py
from .comm import *
# file: deepspeed/comm/comm.py
cdb = None

def all_reduce(tensor, op=None, group=None, async_op=False):
    return cdb.all_reduce(tensor, op, group, async_op)
# file: deepspeed/layers.py
from deepspeed import comm as dist

def reduce(loss):
    handle = dist.all_reduce(loss, async_op=True)
    value = loss.item()  # error: MP515
    handle.wait()
    return value
""",
    # an early return leaves the wait out, and nobody else has the handle
    """
import torch
import torch.distributed as dist

class Linear(torch.autograd.Function):
    @staticmethod
    def backward(ctx, grad):
        inputs, weight = ctx.saved_tensors
        grad_inputs = grad.matmul(weight)
        handle = dist.all_reduce(grad_inputs.contiguous(), group=ctx.group, async_op=True)
        if not ctx.needs_input_grad[1]:
            return grad_inputs, None  # error: MP515
        grad_weight = grad.t().matmul(inputs)
        handle.wait()
        return grad_inputs, grad_weight
""",
    # nobody waits
    """
import torch.distributed as dist

def reduce(grads):
    for grad in grads:
        dist.all_reduce(grad, async_op=True)  # error: MP515
""",
    """
import torch.distributed as dist

def reduce(loss):
    work = dist.all_reduce(loss, async_op=True)  # error: MP515
    return loss.item()
""",
    """
import torch.distributed as dist

def reduce(grads, scale):
    handles, others = [], 0
    works: list = []
    for grad in grads:
        work = dist.all_reduce(grad, async_op=True)  # error: MP515
        if work is not None:
            works.append((grad, work))
    for grad in grads:
        grad.mul_(scale)

def gather(shards, outs):
    handles = []
    for shard, out in zip(shards, outs):
        handles.append(dist.all_gather_into_tensor(out, shard, async_op=True))  # error: MP515
    handles += [dist.isend(shards[0], 1)]  # error: MP515
    by_name = {}
    by_name["first"] = dist.broadcast(outs[0], 0, async_op=True)  # error: MP515
    works = [dist.all_reduce(out, async_op=True) for out in outs]  # error: MP515
    return outs
""",
    """
import torch.distributed.checkpoint as dcp

class Checkpointer:
    def save(self, state, path):
        if self.asynchronous:
            dcp.async_save(state, checkpoint_id=path)  # error: MP515
        else:
            dcp.save(state, checkpoint_id=path)
""",
    """
from torch.distributed.checkpoint import async_save

class Checkpointer:
    def save(self, state, path):
        self.pending = async_save(state, checkpoint_id=path)  # error: MP515
""",
    # the end of a `with` waits, and what is used inside it comes before
    _ENTERED.replace("{inside}", "torch.nn.utils.clip_grad_value_(model.parameters(), 1.0)  # error: MP515"),
    _WITH.replace("{inside}", "print(count.item())  # error: MP515"),
    """
import torch.distributed as dist
from contextlib import contextmanager

@contextmanager
def keeping():
    works = []
    yield works
    works.clear()

def reduce(grads):
    with keeping() as works:
        for grad in grads:
            works.append(dist.all_reduce(grad, async_op=True))  # error: MP515
""",
]

CORRECT = [
    _hooks(),
    _BUCKETS.replace("{mark}", "").replace("{finish}", "buckets.finish_tied()"),
    # who has the object asks for the method by name
    _BUCKETS.replace("{mark}", "").replace("{finish}", "getattr(buckets, 'finish_tied')()"),
    # nobody takes the copy
    """
import torch.distributed as dist

def share(value, group):
    there = value.cuda()
    handle = dist.all_reduce(there, async_op=True, group=group)
    there.cpu()
    handle.wait()
    return there
""",
    """
import torch
import torch.distributed as dist

def gather(output, tensor, group=None, async_op=False):
    return dist.all_gather_into_tensor(output, tensor, group=group or dist.group.WORLD, async_op=async_op)

def backward(grad_output, tensor, group, is_split):
    handle = None
    whole = tensor
    if is_split:
        whole = torch.empty(8, 8, device=tensor.device)
        handle = gather(whole, tensor, group=group, async_op=True)
    grad_input = grad_output.sum(0)
    if handle is not None:
        handle.wait()
    return grad_input, grad_output.t().matmul(whole.view(4, 16))

def blocking(tensor, group):
    whole = torch.empty(8, 8, device=tensor.device)
    gather(whole, tensor, group=group)
    return whole.sum()
""",
    # every way waits, gives the handle on, needs none, or was never started
    """
import torch.distributed as dist

def reduce(grad, group, scale, later):
    handle = dist.all_reduce(grad, group=group, async_op=True)
    if scale is None:
        handle.wait()
        return grad
    if later:
        return grad, handle
    if not grad.numel():
        raise ValueError(scale)
    handle.wait()
    return grad * scale

def overlapped(grad, group, overlap, other):
    if overlap:
        handle = dist.all_reduce(grad, group=group, async_op=True)
    other = other.sum()
    if overlap:
        handle.wait()
    return grad, other

def alone(grad, group):
    handle = dist.all_reduce(grad, group=group, async_op=True)
    if dist.get_world_size(group) == 1:
        return grad
    handle.wait()
    return grad
""",
    # the next transfer is started while this one's result is used, each waited for before
    """
import torch
import torch.distributed as dist

def prefetched(shards, out, use):
    handle = dist.all_gather_into_tensor(out[0], shards[0], async_op=True)
    for index in range(len(shards)):
        handle.wait()
        if index + 1 < len(shards):
            handle = dist.all_gather_into_tensor(out[index + 1], shards[index + 1], async_op=True)
        use(out[index].sum())

def overlapped(grads, overlap):
    handle = None
    if overlap:
        handle = dist.all_reduce(grads, async_op=True)
    else:
        dist.all_reduce(grads)
    print(grads.shape)
    if handle is not None:
        handle.wait()
    return grads.sum()
""",
    """
import torch.distributed as dist

def reduce(grads):
    handles = [dist.all_reduce(grad, async_op=True) for grad in grads]
    for handle in handles:
        handle.wait()
""",
    # the list is given away, filled for the caller, waited for in one go, or asked for by another name
    """
import torch
import torch.distributed as dist

def reduce(grads, pending):
    handles = []
    for grad in grads:
        work = dist.all_reduce(grad, async_op=True)
        handles.append(work)
        pending.append(dist.all_reduce(grad, async_op=True))
    return handles

class Reducer:
    def reduce(self, grads):
        handles = self.handles
        for grad in grads:
            handles.append(dist.all_reduce(grad, async_op=True))
        self.others = works = []
        works.append(dist.all_reduce(grads[0], async_op=True))

    def flush(self, grads):
        handles = [(grad, dist.all_reduce(grad, async_op=True)) for grad in grads]

        def wait():
            for _, handle in handles:
                handle.wait()

        return wait

def reduce_all(grads):
    handles = []
    for grad in grads:
        handles.append(dist.all_reduce(grad, async_op=True))
    torch.cuda.synchronize()
""",
    """
import torch.distributed as dist

def reduce(grads):
    handles = {}
    for name, grad in grads.items():
        work = dist.all_reduce(grad, async_op=True)
        if work is not None:
            handles[name] = work
    while handles:
        handles.popitem()[1].wait()
""",
    """
import torch.distributed as dist

def reduce(loss, log):
    work = dist.all_reduce(loss, async_op=True)
    log.update()
    work.wait()
    return loss.item()
""",
    """
import torch.distributed as dist

def reduce(loss):
    dist.all_reduce(loss)
    return dist.all_reduce(loss, async_op=True)
""",
    """
import torch.distributed.checkpoint as dcp

class Checkpointer:
    def save(self, state, path):
        if self.pending is not None:
            self.pending.result()
        self.pending = dcp.async_save(state, checkpoint_id=path)
""",
    """
import torch.distributed.checkpoint as dcp

def save(state, path, waiting):
    waiting.append(dcp.async_save(state, checkpoint_id=path))
    self_made = dcp.async_save(state, checkpoint_id=path)
    self_made.result()
""",
    # a function that is mapped over the handles waits for each
    """
import torch.distributed as dist

def share(buckets, group):
    handles = []
    for bucket in buckets:
        handles.append(dist.broadcast(bucket, src=0, group=group, async_op=True))
    _ = list(filter(lambda each: each.wait(), handles))
    return [bucket.float() for bucket in buckets]
""",
    # a queue that functions inside of another one share
    """
from collections import deque
import torch.distributed as dist

def gather(param, handles, group):
    handles.append(dist.all_gather_into_tensor(param.full, param.part, group=group, async_op=True))

def hook(modules, group):
    handles = deque()

    def before(module, *arguments):
        gather(module.weight, handles, group)
        handles.popleft().wait()

    for module in modules:
        module.register_forward_pre_hook(before)
""",
    # what `with` leaves waits: an object, a generator, or what a library's stack was given
    _ENTERED.replace("{inside}", "pass"),
    _WITH.replace("{inside}", "pass"),
]
