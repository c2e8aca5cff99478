"""A collective in a thread of its own, on the group with which the rest of the program communicates.

What it does
    Follows what `threading.Thread`, executors and event loops run. Reported: a collective on the default group in such
    a thread, where the program issues collectives on that group elsewhere, too. Silent where the function that starts
    the thread waits for its end, where the thread was given a group, and where only programs come to it that make none.

Why is this bad
    Collectives of one group must be issued in the same order on all ranks. Which of two threads comes first is another
    thing on each rank: rank 0 pairs its barrier with the gradients of rank 1, and the job hangs or computes nonsense.

References
    https://docs.pytorch.org/docs/stable/distributed.html#torch.distributed.new_group
    https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/usage/communicators.html
"""

from __future__ import annotations

from collections.abc import Iterator

from validator.finding import Finding, Related
from validator.flow.program.unit import Unit
from validator.flow.queries.base import Place, Queries
from validator.flow.queries.outside_program import is_test
from validator.flow.queries.ranks.groupless_programs import GrouplessPrograms
from validator.flow.queries.threads import Thread, is_awaited, run_by, threads
from validator.project import Project
from validator.rule import Rule

RULE = Rule("MP554", "collective-in-thread", "warning", "1.0", tokens=("Thread", "ThreadPoolExecutor", "to_thread"))


def check_project(project: Project) -> Iterator[Finding]:
    queries = project.analysis(Queries)
    started = [thread for thread in threads(queries) if not is_test(thread.start.unit.path) and not is_awaited(thread)]
    run = [run_by(queries, thread) for thread in started]
    aside = {unit for units in run for unit in units}
    groupless = project.analysis(GrouplessPrograms)
    for thread, units in zip(started, run, strict=True):
        call = next((c for unit in units for c in queries.calls_in(unit) if _is_on_default(c)), None)
        if call is not None and groupless.is_only_for(thread.start.unit):
            continue
        other = _elsewhere(queries, aside) if call is not None else None
        if call is not None and other is not None:
            yield _report(thread, call, other)


def _is_on_default(call: Place) -> bool:
    """Whether a call is a collective for which no group was chosen, whoever calls the function around it."""
    for operation in call.operations:
        if not operation.sure or operation.row.group is None or call.hands_on:
            continue
        group = call.argument(*operation.row.group)
        if (group is None and not {"*", "**"} & set(call.value.data.names)) or (
            group is not None and group.closed.is_const(None)
        ):
            return True
    return False


def _elsewhere(queries: Queries, aside: set[Unit]) -> Place | None:
    """A collective on the default group that no thread of its own runs."""
    calls = (call for call in queries.collectives() if call.unit not in aside and not is_test(call.unit.path))
    return next((call for call in calls if _is_on_default(call)), None)


def _report(thread: Thread, call: Place, other: Place) -> Finding:
    start = thread.start
    return RULE.finding(
        call.unit.path,
        call.at,
        f"`{call.text}`{call.where} runs in a thread that `{start.unit.qualname}` starts, on the default group, with"
        " which other threads communicate, too: which comes first differs between ranks",
        help="make a group of its own for the thread (`new_group`, on all ranks) and pass it as `group=`",
        related=[
            Related(start.unit.path, start.at[0], "the thread is started here"),
            Related(other.unit.path, other.at[0], "the default group is used here"),
        ],
        context=f"{call.unit.qualname}:{call.method}",
    )


INCORRECT = [
    """
import threading
import torch.distributed as dist

class Saver:
    def save(self, state):
        self.thread = threading.Thread(target=self._write, args=(state,))
        self.thread.start()

    def _write(self, state):
        store(state)
        dist.barrier()  # error: MP554

def train(model, loss):
    loss.backward()
    for param in model.parameters():
        dist.all_reduce(param.grad)
""",
    """
from concurrent.futures import ThreadPoolExecutor
import torch.distributed as dist

class Engine:
    def __init__(self):
        self.pool = ThreadPoolExecutor(max_workers=1)

    def save(self, writer, folder):
        group = dist.new_group(backend="gloo")

        def commit():
            writer.result()
            dist.barrier(group=group)
            if dist.get_rank() == 0:
                folder.rename("done")
            dist.barrier()  # error: MP554

        return self.pool.submit(commit)

    def log(self, loss):
        dist.all_reduce(loss)
""",
]

CORRECT = [
    """
import threading
import torch.distributed as dist

class Saver:
    def __init__(self):
        self.group = dist.new_group(backend="gloo")

    def save(self, state):
        self.thread = threading.Thread(target=self._write, args=(state, self.group))
        self.thread.start()

    def _write(self, state, group):
        store(state)
        dist.barrier(group=group)

def train(model, loss):
    loss.backward()
    for param in model.parameters():
        dist.all_reduce(param.grad)
""",
    """
import threading
import torch.distributed as dist

def with_timeout(seconds):
    thread = threading.Thread(target=_meet, daemon=True)
    thread.start()
    thread.join(seconds)
    return not thread.is_alive()

def _meet():
    dist.barrier()

def log(loss):
    dist.all_reduce(loss)
""",
    # a service that loads data: no program that starts it makes a group
    """
# file: rows/__init__.py
# file: rows/data.py
import os
import torch.distributed as dist

def load(path):
    if dist.is_initialized():
        dist.barrier()
    return os.listdir(path)
# file: rows/service.py
import asyncio
from rows.data import load

def make(app):
    @app.post("/load")
    async def load_rows(path):
        return await asyncio.to_thread(load, path)

    return app
# file: rows/__main__.py
import web
from rows.service import make

def main():
    web.run(make(web.App()))

if __name__ == "__main__":
    main()
# file: train.py
import torch.distributed as dist
from rows.data import load

def main(model):
    dist.init_process_group("nccl")
    dist.all_reduce(model.loss)
    print(load("data"))

if __name__ == "__main__":
    main(open("model"))
""",
]
