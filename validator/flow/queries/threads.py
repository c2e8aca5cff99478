"""Which functions run in a thread of their own, and where that thread is started."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from validator.flow.program.unit import Unit
from validator.flow.queries.base import Place, Queries
from validator.flow.values import Val

_POOL = "concurrent.futures.ThreadPoolExecutor"
_WAITING = frozenset({"join", "result", "wait", "shutdown", "exception"})


class Thread(NamedTuple):
    """Where a thread is started, and the functions that it runs."""

    start: Place
    units: tuple[Unit, ...]


def threads(queries: Queries) -> Iterator[Thread]:
    """The threads that a project starts: by themselves, by executors, for event loops."""
    for call in queries.calls("threading.Thread"):
        target = call.argument("target", 1)
        if target is not None:
            yield Thread(call, tuple(_functions(target.closed)))
    for call in queries.calls("asyncio.to_thread"):
        yield Thread(call, tuple(_functions(call.operand(1).closed)) if len(call.value.args) > 1 else ())
    for unit in queries.called("run"):
        if unit.cls is not None and "threading.Thread" in unit.cls.external_bases:
            yield from (Thread(call, (unit,)) for call in queries.named(unit.cls.name))
    for call in queries.named(*queries.flow.models.devices["submitting"]):
        executor = call.receiver.closed if call.receiver is not None else Val()
        first = 2 if call.method == "run_in_executor" else 1
        pooled = call.method == "run_in_executor" or any(o[:2] == ("made", _POOL) for o in executor.each)
        if pooled and len(call.value.args) > first:
            yield Thread(call, tuple(_functions(call.operand(first).closed)))


def is_prepared(queries: Queries, thread: Thread) -> bool:
    """Whether a thread is one of an executor that prepares its threads."""
    executor = thread.start.receiver
    for made in queries.calls(_POOL) if executor is not None else ():
        if made.argument("initializer", 2) is not None and executor is not None:
            kept = [user.value.data for user in made.users if user.value.op == "store_attr"]
            if executor.root.number == made.number and executor.unit is made.unit or executor.hint in kept:
                return True
    return False


def _functions(value: Val) -> Iterator[Unit]:
    """The functions of the project that a value may be."""
    for o in value.each:
        if o[0] in ("unit", "bound"):
            yield o[1]
        elif o[0] == "partial":
            yield from _functions(o[1])


def run_by(queries: Queries, thread: Thread) -> list[Unit]:
    """All functions that a thread runs: what it calls, and what others hand to its event loop."""
    units = queries.reached(thread.units)
    if any(_is_loop(queries, unit) for unit in units):
        given: dict[Unit, None] = {}
        for call in queries.calls("asyncio.run_coroutine_threadsafe"):
            coroutine = call.operand(1).root if len(call.value.args) > 1 else call
            if near(call.unit, thread.start.unit) and coroutine.value.op == "call":
                given.update(dict.fromkeys(queries.targets(coroutine)))
        units = queries.reached((*units, *given))
    return units


def _is_loop(queries: Queries, unit: Unit) -> bool:
    return any(call.method in queries.flow.models.devices["loops"] for call in queries.calls_in(unit))


def near(one: Unit, other: Unit) -> bool:
    """Whether two functions belong to one class or to classes that share an object, or to one module outside of any."""
    if one.cls is not None and other.cls is not None:
        family = {*one.cls.mro, *one.cls.descendants()}
        return other.cls in family or any(other.cls in below.mro for below in one.cls.descendants())
    return one.module is other.module


def is_awaited(thread: Thread) -> bool:
    """Whether the function that starts a thread waits for its end, too, or hands it to an executor that it closes."""
    start = thread.start
    unit = start.unit
    managers = set(unit.managers(start.number))
    if start.receiver is not None and any(source.number in managers for source in start.receiver.sources):
        return True
    calls = (Place(start.flow, unit, number) for number, value in enumerate(unit.code.values) if value.op == "call")
    return any(
        call.method in _WAITING and call.receiver is not None and start in call.receiver.sources for call in calls
    )
