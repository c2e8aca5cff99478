"""A thread that works on the current device, which is device 0 in every new thread.

What it does
    Follows what `threading.Thread`, executors (`submit`, `run_in_executor`, `to_thread`) and event loops that a thread
    runs (with the coroutines that `run_coroutine_threadsafe` gives them) come to. Reported: work on the current device
    (`.cuda()`, `"cuda"` without an index, `current_device()`, a stream, `barrier`, collectives of objects, engines
    such as Megatron's or vLLM's), where no function of that thread chooses a device, though the class or the module
    does elsewhere with `set_device`.

Why is this bad
    `cudaSetDevice` is a matter of the calling thread. The thread of every rank works on GPU 0: wrong results or
    illegal accesses where tensors lie elsewhere, NCCL's "duplicate GPU", and the memory of all ranks on one GPU.

References
    https://docs.nvidia.com/cuda/cuda-runtime-api/group__CUDART__DEVICE.html
    https://docs.pytorch.org/docs/stable/generated/torch.cuda.set_device.html
"""

from __future__ import annotations

from collections.abc import Iterator

from validator.finding import Finding, Related
from validator.flow.program.unit import Unit
from validator.flow.queries.base import Place, Queries
from validator.flow.queries.outside_program import is_aside
from validator.flow.queries.threads import Thread, is_prepared, near, run_by, threads
from validator.project import Project
from validator.rule import Rule

RULE = Rule("MP584", "thread-without-device", "warning", "0.4.0", tokens=("set_device",))


def check_project(project: Project) -> Iterator[Finding]:
    queries = project.analysis(Queries)
    tables = queries.flow.models.devices
    setting = [call for call in queries.named(*tables["chosen_methods"]) if not is_aside(call.unit.path)]
    if not setting:
        return
    for thread in threads(queries):
        units = run_by(queries, thread)
        if (
            is_aside(thread.start.unit.path)
            or is_prepared(queries, thread)
            or any(_chooses(queries, unit) for unit in units)
        ):
            continue
        chosen = next((call for call in setting if near(call.unit, thread.start.unit)), None)
        use = next((place for unit in units for place in _uses(queries, unit)), None)
        if use is not None and chosen is not None:
            yield _report(thread, use, chosen)


_TALKING = ("Client", "Config", "Params")  # what such a package makes to speak to what computes


def _chooses(queries: Queries, unit: Unit) -> bool:
    """Whether a function chooses the device."""
    tables = queries.flow.models.devices
    for call in queries.calls_in(unit):
        if call.method in tables["chosen_methods"] or not _named(call).isdisjoint(tables["chosen"]):
            return True
    return False


def _named(call: Place) -> frozenset[str]:
    """The full names of what may be called outside of the project."""
    return frozenset(str(o[1]) for o in call.operand(0).val.each if o[0] == "ext")


def _uses(queries: Queries, unit: Unit) -> Iterator[Place]:
    """What a function does on the current device."""
    tables = queries.flow.models.devices
    for call in queries.calls_in(unit):
        given = [call.operand(i) for i in range(1, len(call.value.args))]
        if (
            (bool(named := _named(call)) and named <= tables["current"] and not given)
            or (call.method in tables["current_methods"] and call.receiver is not None and not given)
            or any(each.val.constant() in tables["devices"] for each in given)
            or _computes(call, tables["computing"])
            or any(_on_current(call) for _ in call.operations)
        ):
            yield call


def _computes(call: Place, packages: frozenset[str]) -> bool:
    """Whether a call runs a method of something that a package made which computes on the current device."""
    made = call.receiver.val.objs if call.receiver is not None else frozenset()
    names = [o[1] for o in made if o[0] == "made" and not o[1].endswith(_TALKING)]
    return any(name.startswith(f"{package}.") for name in names for package in packages)


def _on_current(call: Place) -> bool:
    """Whether a collective takes the current device, no tensor telling it: those of objects, and `barrier`."""
    operation = call.operations[0]
    if not (operation.row.objects or operation.name == "barrier"):
        return False
    group = call.argument(*operation.row.group or ("group", -1))
    words = list(group.words) if group is not None else []
    backends = [o[3] for o in operation.group.each if o[0] == "group"]
    return not any("gloo" in word or "cpu" in word for word in words) and "gloo" not in backends


def _report(thread: Thread, use: Place, chosen: Place) -> Finding:
    start = thread.start
    return RULE.finding(
        start.unit.path,
        start.at,
        f"the thread that `{start.unit.qualname}` starts comes to `{use.text}` without choosing a device: the current"
        f" one is a thread's own, and what `{chosen.unit.qualname}` chose is not its",
        help="call `torch.cuda.set_device(local_rank)` at the beginning of the thread (`initializer=` of an executor)",
        related=[
            Related(use.unit.path, use.at[0], "works on the current device"),
            Related(chosen.unit.path, chosen.at[0], "the device of another thread is chosen here"),
        ],
        context=f"{start.unit.qualname}:{use.method}",
    )


INCORRECT = [
    """
import os
import threading
import torch

class Worker:
    def __init__(self):
        torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))

    def start(self, batches):
        threading.Thread(target=self._copy, args=(batches,), daemon=True).start()  # error: MP584

    def _copy(self, batches):
        for batch in batches:
            self.queue.put(self._moved(batch))

    def _moved(self, batch):
        return {name: tensor.cuda() for name, tensor in batch.items()}
""",
    """
import asyncio
import os
import threading
import torch
from megatron.core.inference.engines import DynamicInferenceEngine

class Generation:
    def build(self, controller, context):
        torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
        self.engine = DynamicInferenceEngine(controller, context)

    def start(self):
        def run():
            self.loop = asyncio.new_event_loop()
            self.loop.run_forever()

        self.thread = threading.Thread(target=run)  # error: MP584
        self.thread.start()

    def wake(self):
        asyncio.run_coroutine_threadsafe(self._wake(), self.loop).result()

    async def _wake(self):
        await self.engine.resume()
""",
]

CORRECT = [
    """
import os
import threading
import torch

class Worker:
    def __init__(self):
        self.device = int(os.environ["LOCAL_RANK"])
        torch.cuda.set_device(self.device)

    def start(self, batches):
        threading.Thread(target=self._copy, args=(batches,), daemon=True).start()
        threading.Thread(target=self._move, args=(batches,), daemon=True).start()
        threading.Thread(target=self._count, args=(batches,), daemon=True).start()

    def _copy(self, batches):
        torch.cuda.set_device(self.device)
        for batch in batches:
            self.queue.put(batch.cuda())

    def _move(self, batches):
        for batch in batches:
            self.queue.put(batch.to(f"cuda:{self.device}"))

    def _count(self, batches):
        print(len(batches))

    def run(self, work, *works):
        threading.Thread(target=work).start()
        threading.Thread(None, *works).start()
""",
    """
import asyncio
import os
import threading
import torch
from megatron.core.inference.engines import DynamicInferenceEngine

class Generation:
    def build(self, controller, context):
        self.device = int(os.environ["LOCAL_RANK"])
        torch.cuda.set_device(self.device)
        self.engine = DynamicInferenceEngine(controller, context)

    def start(self):
        def run():
            torch.cuda.set_device(self.device)
            self.loop = asyncio.new_event_loop()
            self.loop.run_forever()

        self.thread = threading.Thread(target=run)
        self.thread.start()

    def wake(self):
        asyncio.run_coroutine_threadsafe(self._wake(), self.loop).result()

    async def _wake(self):
        await self.engine.resume()
""",
]
