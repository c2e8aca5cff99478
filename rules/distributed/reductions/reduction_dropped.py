"""What is reduced or gathered among ranks is dropped.

What it does
    Reports a call, used as a statement, of a function that only gives back what it reduced: its collectives work on
    copies (`tensor.to(device)`, a list made for the purpose), it changes none of its arguments and stores nothing. So
    it is with collectives of libraries that give a new tensor, such as Accelerate's `gather` and `reduce`. Reports also
    a collective on a tensor that the function has read before and that nothing reads afterwards; one that writes into a
    copy of a tensor (`t = t.cuda()`) which nothing reads afterwards, one that gathers what the program has computed
    into a list or a tensor made for the purpose that nothing reads, and `broadcast_object_list([x])`, which puts what
    it receives into a list that nobody has.

Why is this bad
    The caller goes on with the number of its own rank. Logs and schedules are wrong, ranks that decide by it decide
    differently, and nothing fails. `all_reduce` works in place, a helper around it often does not.

References
    https://docs.pytorch.org/docs/stable/distributed.html#torch.distributed.all_reduce
    https://docs.pytorch.org/docs/stable/generated/torch.Tensor.to.html
"""

from __future__ import annotations

from collections.abc import Iterator

from validator.domains.spmd import only
from validator.finding import Finding, Related
from validator.flow.program.unit import Unit
from validator.flow.queries.base import Place, Queries
from validator.flow.queries.escapes import argument_of
from validator.flow.queries.outside_program import is_test
from validator.flow.queries.ranks.unread_results import unread_result
from validator.flow.queries.values.demands import only_target
from validator.flow.queries.values.in_place import writes_into_arguments
from validator.models import Row
from validator.project import Project
from validator.rule import Rule

RULE = Rule("MP555", "reduction-dropped", "warning", "1.0", tokens=("torch.distributed", "accelerate"))

_MAKING = frozenset({"list", "binary", "dict", "comprehension"})
_JOINED = frozenset({"phi"})
_REDUCED = _JOINED | {"mut", "binary"}  # what goes on with a tensor behind a collective that nobody may ask for


def check_project(project: Project) -> Iterator[Finding]:
    queries = project.analysis(Queries)
    giving: dict[Unit, Place] = {}
    for call in queries.collectives():
        if call.unit not in giving and (made := _only_given_back(queries, call.unit)) is not None:
            giving[call.unit] = made
        if _gives(call) and _is_dropped(call):
            yield _report(call, None)
        elif (copy := _unread_copy(call)) is not None:
            if not _is_of_root(call):
                yield _report_copy(call, copy, "a copy that")
        elif (made := unread_result(queries, call)) is not None:
            yield _report_copy(call, made, "made for the purpose, which")
        elif (into := _reduced_in_place(call)) is not None:
            for place, given in _with_callers(queries, call, into):
                if (read := _read_before_alone(place, given)) is not None:
                    yield _report_late(place, read)
    for unit, made in giving.items():
        for call in queries.calls_of(unit):
            targets = queries.targets(call)
            if _is_dropped(call) and all(target in giving for target in targets) and not call.hands_on:
                yield _report(call, made)


def _is_dropped(call: Place) -> bool:
    """Whether nobody takes what a call gives."""
    unit = call.unit
    if call.value.op == "part":
        return False  # the body of the function stands here, and so does what it gives
    ends = any(call.number in block.end[1:2] for block in unit.code.blocks if block.end[0] != "jump")
    return not (call.taken_by or call.number in unit.variables or ends or is_test(unit.path))


def _is_of_root(call: Place) -> bool:
    """Whether a call that hands something out from one rank stands where only some ranks come: the others have a call
    of their own for what they get."""
    rooted = any(o.row.root is not None for o in call.operations)
    return rooted and bool(only(call.under, "rank", "member"))


def _gives(call: Place) -> bool:
    """Whether a collective of a library gives a new value, and leaves its arguments as they were."""
    rows = [operation.row for operation in call.operations]
    sure = all(operation.sure for operation in call.operations) and any(map(_is_of_program, call.sources))
    return bool(rows) and sure and all(row.result == "uniform" and _written(row) is None and row.reads for row in rows)


def _is_of_program(place: Place) -> bool:
    """Whether a value comes from somewhere else than from constants: a collective of those is a way to wait."""
    return place.value.op in ("param", "free", "unpack", "next", "item", "binary") or (
        place.value.op == "call" and place.receiver is not None and place.receiver.value.op != "name"
    )


def _written(row: Row) -> tuple[str, int] | None:
    """The argument into which a collective writes."""
    return row.writes or row.into or row.equal


def _only_given_back(queries: Queries, unit: Unit) -> Place | None:
    """The first collective of a unit that leaves what its collectives give nowhere but in what it returns."""
    code, result = unit.code, queries.flow.result(unit)
    if code.kind != "function" or code.is_generator or result.outs or _stores(unit):
        return None
    if writes_into_arguments(queries.flow, unit):
        return None
    made: list[Place] = []
    for number, site in sorted(result.sites.items()):
        place = Place(queries.flow, unit, number)
        if any(_changes(queries, target.unit) for target in site.targets):
            return None
        for operation in site.operations:
            written = _written(operation.row)
            into = place.argument(*written) if written is not None else None
            if into is None or operation.row.root is not None and operation.row.root[0] == "dst" or not _is_own(into):
                return None
            given = place.argument(*operation.row.reads) if operation.row.reads is not None else into
            if given is None or not any(_is_given(each) for each in given.sources):
                return None  # what the function made all by itself is nobody's argument
            made.append(into)
    returned = [Place(queries.flow, unit, number) for number in code.returned if number >= 0]
    if not made or not any(source.root in {m.root for m in made} for each in returned for source in each.sources):
        return None
    return made[0]


def _unread_copy(call: Place) -> Place | None:
    """The copy of a tensor into which a collective writes, and which nothing reads afterwards."""
    unit = call.unit
    for operation in call.operations if not is_test(unit.path) and not call.hands_on else ():
        written = _written(operation.row)
        into = call.argument(*written) if written is not None and operation.sure else None
        if into is None or operation.row.root is not None and operation.row.root[0] == "dst":
            continue
        if operation.row.objects and _is_for_nothing_else(call, into) and not only(call.under, "rank", "member"):
            return into
        using = into.taken_by
        behind = [user for user in using if user.value.op == "mut" and call.number in user.value.args]
        others = [user for user in using if user.number != call.number and user not in behind]
        if any(map(_is_read, behind)) or not behind and others:
            continue
        made = [into.root.value_at(n) for n in into.root.value.args] if into.root.value.op == "phi" else [into]
        copies = [each for each in made if _is_copy(each)]
        kept = any(user.value.op.startswith("store") for each in copies for user in each.root.users)
        if copies and not kept and all(_is_copy(each) or each.root.value.op == "param" for each in made):
            return copies[0]
    return None


def _reduced_in_place(call: Place) -> Place | None:
    """The tensor into which a collective writes for every rank."""
    operation = next((each for each in call.operations if each.sure and not each.row.objects), None)
    written = _written(operation.row) if operation is not None and operation.row.root is None else None
    return call.argument(*written) if written is not None else None


def _with_callers(queries: Queries, call: Place, into: Place) -> Iterator[tuple[Place, Place]]:
    """A collective with its tensor, and the calls that surely run its function, with what they pass for the tensor."""
    yield call, into
    position = into.root.value.data[0] if into.root.value.op == "param" else -1
    for caller in queries.calls_of(call.unit) if position >= 0 and not call.tests_inside else ():
        given = argument_of(caller.unit, caller.number, call.unit, position)
        if given is not None and only_target(caller) is call.unit:
            yield caller, caller.value_at(given)


def _read_before_alone(call: Place, into: Place) -> Place | None:
    """Where a tensor is read that a call reduces in place, if that is before the call, and what it leaves in the
    tensor is never read, nor what is computed of that."""
    if call.hands_on or is_test(call.unit.path) or _is_captured(into):
        return None
    forms = [into.root]  # the tensor, after each call that was given it
    for form in forms:
        later = (user for user in form.users if user.value.op == "mut" and user.value.args[0] == form.number)
        joined = (user for user in form.users if user.value.op == "phi" and user not in forms)
        same = (each for each in joined if {each.value_at(n).root for n in each.value.args} == {into.root})
        forms += [*later, *same]
    behind = [form for form in forms if form.value.op == "mut" and form.value.args[1] == call.number]
    before = [form for form in forms if form not in behind]
    reads = [user for form in before for user in form.users if user not in forms and user.number != call.number]
    reads = [user for user in reads if user.value.op not in ("mut", "part")]  # the body of a `part` stands here, too
    if forms[0].value.op not in ("call", "binary") or not behind or not reads:
        return None
    if not all(map(_is_own_reading, reads)) or any(_is_read(each, _REDUCED) for each in behind):
        return None
    return min(reads, key=lambda place: place.at)


def _is_captured(tensor: Place) -> bool:
    """Whether a function that is made in the same one reads the variable of a tensor."""
    inner = list(tensor.flow.mentions.inner(tensor.unit))
    for each in inner:
        inner += tensor.flow.mentions.inner(each)
    return any(value.op == "free" and value.data == tensor.hint for each in inner for value in each.code.values)


def _is_own_reading(place: Place) -> bool:
    """Whether something is computed of a tensor that shares no memory with it."""
    tensors = place.flow.models.tensors
    shared = {*tensors["views"], *tensors["moves"], *tensors["casts"]}
    if place.value.op == "call":
        named = (o[1].rpartition(".") for o in place.operand(0).closed.each if o[0] == "ext")
        computing = {*tensors["keep"], *tensors["reducing"], *tensors["reading"]} - shared
        return any(home == "torch" and name in computing for home, _, name in named)
    if place.value.op != "attr":
        return place.value.op in ("binary", "compare")
    calls = place.users
    called = bool(calls) and all(user.value.op == "call" and user.value.args[0] == place.number for user in calls)
    return called and place.value.data not in shared and not str(place.value.data).endswith("_")  # in place


def _is_for_nothing_else(call: Place, made: Place) -> bool:
    """Whether a list is made of variables in the very call to which it is given, and nobody else has it."""
    value = made.value
    named = value.op == "list" and any(made.value_at(number).value.op != "const" for number in value.args)
    return named and all(user.number == call.number or user.value.op == "mut" and not user.users for user in made.users)


def _is_read(place: Place, through: frozenset[str] = _JOINED) -> bool:
    """Whether a value is read, or given back, at once or behind a branch; `through`: instructions that read it only
    where what they give is read."""
    seen, queue = {place.number}, [place]
    while queue:
        each = queue.pop()
        if each.number in each.unit.code.returned:
            return True
        for user in each.users:
            if user.value.op not in through:
                return True
            if user.number not in seen:
                seen.add(user.number)
                queue.append(user)
    return False


def _is_copy(place: Place) -> bool:
    """Whether a value is what a parameter or an attribute is on another device, or of another type."""
    tensors, moved, place = place.flow.models.tensors, False, place.root
    while place.value.op == "call" and place.receiver is not None:
        if place.method in tensors["moves"] or place.method in tensors["casts"] or place.method == "clone":
            moved = True
        elif place.method not in tensors["views"]:
            return False
        place = place.receiver.root
    return moved and place.value.op in ("param", "attr")


def _report_copy(call: Place, copy: Place, what: str) -> Finding:
    return RULE.finding(
        call.unit.path,
        call.at,
        f"`{call.text}`{call.where} writes into `{copy.text}`, {what} nothing reads afterwards",
        help="go on with what is gathered"
        if what[0] == "m"
        else "copy the result back (`t.copy_(copy)`), or return it",
        related=[Related(copy.unit.path, copy.at[0], "it is made here")],
        context=f"{call.unit.qualname}:{call.method}:copy",
    )


def _report_late(call: Place, read: Place) -> Finding:
    return RULE.finding(
        call.unit.path,
        call.at,
        f"`{call.text}`{call.where} comes after the tensor was read, and nothing reads it afterwards",
        help="reduce it before it is read",
        related=[Related(call.unit.path, read.at[0], "it is read here, as each rank has it")],
        context=f"{call.unit.qualname}:{call.method}:late",
    )


def _is_given(place: Place) -> bool:
    """Whether a value is an argument of its function, and not the object whose method it is."""
    return place.value.op == "param" and not place.unit.is_receiver(place.number)


def _stores(unit: Unit) -> bool:
    """Whether a unit leaves something in an object, a container or a variable that is not its own."""
    return any(value.op.startswith("store") for value in unit.code.values)


def _changes(queries: Queries, unit: Unit) -> bool:
    result = queries.flow.result(unit)
    return bool(result.outs) or _stores(unit) or any(site.operations for site in result.sites.values())


def _is_own(place: Place) -> bool:
    """Whether a tensor or a list was made in its function, and shares no memory with what the function was given."""
    place = place.root
    value = place.value
    if value.op in _MAKING:
        return True
    if value.op != "call":
        return False
    if place.method in place.flow.models.tensors["views"]:
        return place.receiver is not None and _is_own(place.receiver)
    return not place.result.sites.get(place.number) or not place.result.sites[place.number].targets


def _report(call: Place, made: Place | None) -> Finding:
    related = []
    if made is not None:
        related.append(Related(made.unit.path, made.at[0], f"`{made.text}` is no argument, but made here"))
    return RULE.finding(
        call.unit.path,
        call.at,
        f"`{call.text}`{call.where} gives what it computes among ranks back, and the result is dropped: its argument"
        " stays what it was",
        help="take the result: `x = …(x)`",
        related=related,
        context=f"{call.unit.qualname}:{call.method}",
    )


INCORRECT = (
    # read before it is reduced
    """
import torch.distributed as dist

def evaluate(model, batches):
    total, steps = 0, 0
    for batch in batches:
        loss = model(batch)
        total += loss.mean().item()
        steps += 1
        dist.all_reduce(loss)  # error: MP555
        loss = loss / dist.get_world_size()
    return total / steps
""",
    """
import torch
import torch.distributed as dist

class Trainer:
    def _all_reduce(self, t):
        if not dist.is_initialized():
            return t
        device = t.device
        t = t.to(device=self.device)
        dist.all_reduce(t)
        return t.to(device=device)

    def log(self, losses):
        stats = torch.tensor([losses["loss"], 1.0])
        self._all_reduce(stats)  # error: MP555
        print(stats[0] / stats[1])
""",
    """
from accelerate import Accelerator

accelerator = Accelerator()

def evaluate(model, loader):
    for batch in loader:
        loss = model(batch).mean()
        accelerator.reduce(loss)  # error: MP555
        print(loss)
""",
    """
import torch.distributed as dist

def allreduce(t, async_op=False):
    if not t.is_cuda:
        t = t.detach().cuda()
    return dist.all_reduce(t, async_op=async_op)  # error: MP555

class Meter:
    def synchronize(self):
        dist.all_reduce(self.total.double())  # error: MP555
""",
    """
import torch
import torch.distributed as dist

class Queue:
    def forward(self, x):
        keys = self.net(x)
        rows = [torch.zeros_like(keys) for _ in range(dist.get_world_size())]
        dist.all_gather(rows, keys)  # error: MP555
        self.enqueue(keys)
        return keys

    def update(self, keys):
        whole = torch.empty(dist.get_world_size() * keys.shape[0], keys.shape[1])
        dist.all_gather_into_tensor(whole, keys.contiguous())  # error: MP555
        self.enqueue(keys)

    def names(self, name):
        names = [None] * dist.get_world_size()
        dist.all_gather_object(names, name)  # error: MP555
        return name
""",
    # read by a function of torch, in a function that has others inside
    """
import torch
import torch.distributed as dist

def rollout(model, batches, stats):
    for batch in batches:
        ratio = model(batch)
        names = [key for key in batch]
        kl = ratio.sum(1).mean()
        if stats is None:
            names = []
        stats["kl"] = torch.sqrt(kl).item()
        if dist.is_initialized():
            dist.all_reduce(kl, dist.ReduceOp.AVG)  # error: MP555
        print(names, stats)
""",
    # a function of another file reduces it
    """
# file: helpers.py
import torch.distributed as dist

def average(tensor):
    tensor.div_(dist.get_world_size())
    dist.all_reduce(tensor)
# file: train.py
import torch

from helpers import average

def log(ratio, stats):
    kl = ratio.sum(1).mean()
    stats["kl"] = torch.sqrt(kl).item()
    average(kl)  # error: MP555
""",
)

CORRECT = (
    # read before and afterwards, or by somebody who shares its memory
    """
import torch.distributed as dist

def evaluate(model, batches, kept):
    own, total = 0, 0
    for batch in batches:
        loss = model(batch)
        own += loss.item()
        dist.all_reduce(loss)
        total += loss.item()
    shared = model.measure(kept)
    flat = shared.view(-1)
    print(shared.mean())
    dist.all_reduce(shared)
    last = model.measure(kept)
    kept.append(last)
    print(last.mean())
    dist.all_reduce(last)
    return own, total, flat
""",
    # the body of the helper stands where it is called
    """
import torch
import torch.distributed as dist

class Criterion:
    def forward(self, outputs, indices):
        boxes = self._count(indices)
        found = {}
        for name in self.losses:
            found.update(self.loss(name, outputs, boxes))
        return found

    def _count(self, indices):
        count = torch.as_tensor([sum(len(each) for each in indices)])
        if dist.is_initialized():
            dist.all_reduce(count)
        return torch.clamp(count / dist.get_world_size(), min=1).item()
""",
    # how long it takes to gather what was made for that
    """
import time
import torch
import torch.distributed as dist

def measure(size, rounds):
    x = torch.randn(size).cuda()
    out = [torch.empty_like(x) for _ in range(dist.get_world_size())]
    begin = time.time()
    for _ in range(rounds):
        dist.all_gather(out, x)
        dist.all_reduce(x.clone())
    torch.cuda.synchronize()
    return (time.time() - begin) / rounds
""",
    # read later, in a function inside, or by who has the tensor of which the list is made; a way to wait
    """
import torch
import torch.distributed as dist

class Queue:
    def forward(self, x):
        keys, size = self.net(x), dist.get_world_size()
        rows = [torch.zeros_like(keys) for _ in range(size)]
        dist.all_gather(rows, keys)
        self.enqueue(torch.cat(rows))
        whole = torch.empty(size * 8)
        work = dist.all_gather_into_tensor(whole, keys, async_op=True)
        later = lambda: whole.sum()
        shared = torch.empty(size, 8)
        dist.all_gather([shared[i] for i in range(size)], keys)
        dist.all_gather([torch.zeros(1) for _ in range(size)], torch.ones(1))
        return work, later, shared

    def names(self, name):
        names = [None] * dist.get_world_size()
        dist.all_gather_object(names, name)
        return [each for each in names if each]
""",
    """
import torch
import torch.distributed as dist

class Trainer:
    def _all_reduce(self, t):
        t = t.to(device=self.device)
        dist.all_reduce(t)
        return t

    def _in_place(self, t):
        flat = t.view(-1)
        dist.all_reduce(flat)
        return flat

    def log(self, losses):
        stats = self._all_reduce(torch.tensor([losses["loss"], 1.0]))
        print(stats[0] / stats[1])
        self._in_place(stats)
""",
    """
import torch
import torch.distributed as dist

class Meter:
    def synchronize(self):
        total = torch.tensor([self.total, self.count])
        dist.all_reduce(total)
        self.total, self.count = total.tolist()
        return total

def meet(meter):
    meter.synchronize()
""",
    """
import torch
import torch.distributed as dist

def allreduce(t, async_op=False):
    if not t.is_cuda:
        copy = t.detach().cuda()
        work = dist.all_reduce(copy, async_op=async_op)
        t.copy_(copy.cpu())
    else:
        work = dist.all_reduce(t, async_op=async_op)
    return work

def meet(device):
    dist.all_reduce(torch.zeros(1).to(device))
    dist.all_reduce(torch.ones(1, device=device))

def share(weight):
    weight.data = weight.data.cuda()
    dist.all_reduce(weight.data)

def shown(loss):
    total = loss.detach().clone()
    dist.all_reduce(total)
    print(total.item())
""",
    # what lies in the argument is changed in place, whatever list it is put in; the norm is for the log
    """
import torch
import torch.distributed as dist

def clip(parameters, most):
    parameters = list(filter(lambda p: p.grad is not None, parameters))
    total = torch.tensor([sum(p.grad.norm() ** 2 for p in parameters)])
    dist.all_reduce(total)
    total = total.item() ** 0.5
    if total > most:
        for p in parameters:
            p.grad.data.mul_(most / total)
    return total

def step(model, optimizer):
    clip(model.parameters(), 1.0)
    optimizer.step()
""",
    # the source has nothing to take out of the list; the others have one of their own
    """
import torch.distributed as dist

def folder_of(path):
    if dist.get_rank() == 0:
        dist.broadcast_object_list([path], src=0)
    else:
        found = [None]
        dist.broadcast_object_list(found, src=0)
        path = found[0]
    return path
""",
)
