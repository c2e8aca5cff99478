"""A coroutine whose result is used, or left, without `await`.

What it does
    Finds calls that reach nothing but `async def` functions of the project, directly or through objects, and whose
    value is used as if it were the result (computed with, compared, indexed, iterated over, unpacked, asked for an
    attribute), or not used at all. Where nothing is known of the object that is asked in an `async def`, a warning, if
    all methods of the project that bear the name are coroutines, and the name is no library's. Silent where the
    coroutine is handed on: to `asyncio.gather`, `create_task`, `asyncio.run`, a list, a variable that is awaited later,
    for decorated functions and actors, and where the result of an unknown object is asked for a method that other
    classes of the project have than those which the coroutine gives: it stands for others and gives a handle.

Why is this bad
    Nothing in the function runs: the first use raises TypeError, and a call that stands alone does nothing but warn.

References
    https://docs.python.org/3/library/asyncio-task.html#coroutines
"""

from __future__ import annotations

from collections.abc import Iterator
from types import CoroutineType

from validator.analysis.interfaces.binding import parameters
from validator.finding import Finding, Related, Severity
from validator.flow.objects import Callee, Objects, is_of_unknown, is_passed
from validator.flow.queries.base import Place, Queries
from validator.flow.queries.other_results import OtherResults
from validator.project import Method, Project
from validator.rule import Rule

RULE = Rule("MP131", "coroutine-not-awaited", "error", stable_since="0.3.0", solves=True)
_USED = {
    "binary": "computed with", "unary": "computed with", "compare": "compared", "item": "indexed",
    "attr": "asked for an attribute", "unpack": "taken apart", "iter": "iterated over",
}  # fmt: skip
_OF_COROUTINES = frozenset(dir(CoroutineType))


def check_project(project: Project) -> Iterator[Finding]:
    queries, objects, others = project.analysis(Queries), project.analysis(Objects), project.analysis(OtherResults)
    names = {function.name for function in project.functions() if function.facts.is_async}
    for place in queries.called_in_program(frozenset(names)):
        how = _misused(place)
        if not how:
            continue
        reached = objects.reached_by(place.operand(0), place)
        if reached.complete and reached.callees and all(map(_is_coroutine, reached.callees)):
            yield _report(place, reached.callees[0], how, "warning" if is_passed(place.operand(0)) else RULE.severity)
        elif place.unit.code.is_async and is_of_unknown(objects, place.operand(0)):
            methods = list(queries.flow.guessed.methods(place.method))
            named = [Callee(each.qualname, parameters(each), each) for each in methods]
            if named and all(map(_is_coroutine, named)) and not others.are_of_others(place, methods):
                yield _report(place, named[0], how, "warning")


def _is_coroutine(callee: Callee) -> bool:
    facts = callee.place.facts if isinstance(callee.place, Method) else None
    return facts is not None and facts.is_async and not facts.is_generator and not facts.decorators


def _misused(place: Place) -> str:
    """What is done with a value that a coroutine does not bear; empty where nothing is."""
    if "remote" in place.operand(0).text:
        return ""
    users = [user.value for user in place.users if user.value.op != "mut"]
    if not users and not _is_returned(place):
        return "never awaited"
    for user in users:
        first = user.args[0] == place.number or user.op in ("binary", "compare")
        if user.op in _USED and first and not (user.op == "attr" and user.data in _OF_COROUTINES):
            return f"{_USED[user.op]} without `await`"
    return ""


def _is_returned(place: Place) -> bool:
    blocks = place.unit.code.blocks
    return any(place.number in block.end[1:2] for block in blocks if block.end[0] in ("return", "branch", "raise"))


def _report(place: Place, callee: Callee, how: str, severity: Severity) -> Finding:
    inside = place.unit.code.is_async
    return RULE.finding(
        place.unit.path,
        place.at,
        f"`{place.text}`{place.where} gives a coroutine, which is {how}: `{callee.name}` is `async def`",
        help="write `await` before the call"
        if inside
        else "make this function `async def` and await the call, or run it with `asyncio.run`",
        related=[Related(callee.place.path, callee.place.facts.name_at[0], f"`{callee.name}` is defined here")],
        context=f"{place.unit.qualname}:{callee.name}",
        severity=severity,
    )


INCORRECT = (
    """\
class AgentLoop:
    async def tokenize(self, strategy, messages):
        return [1, 2]

    async def sleep(self):
        return None


class ToolLoop(AgentLoop):
    async def step(self, strategy, prompt_ids, messages):
        prompt_ids += self.tokenize(strategy, messages)  # error: MP131
        self.sleep()  # error: MP131
        return prompt_ids


class Manager:
    def __init__(self, strategy):
        self.loop = ToolLoop()

    def first(self, strategy, messages):
        return self.loop.tokenize(strategy, messages)[0]  # error: MP131
""",
    # of whom nobody knows, by a name that coroutines alone have
    """\
class Pool:
    async def release_slot(self, server):
        await self.free.put(server)


class Loop:
    def __init__(self, pool, strategy):
        self.pool, self.strategy = pool, strategy

    async def run(self, server):
        self.pool.release_slot(server)  # error: MP131
""",
)

CORRECT = (
    # whose method it is nobody knows, and another one is none; a function that may hand it on to a loop
    """\
class Pool:
    async def release_slot(self, server):
        await self.free.put(server)

    async def close_all(self):
        return None


class Local:
    def release_slot(self, server):
        return None


class Loop:
    def __init__(self, pool, strategy):
        self.pool, self.strategy = pool, strategy

    async def run(self, server):
        self.pool.release_slot(server)

    def stop(self):
        self.pool.close_all()
""",
    # awaited later, gathered, handed on, returned
    """\
import asyncio


class Engine:
    async def generate(self, strategy, prompt):
        return prompt

    def generate_many(self, strategy, prompts):
        return asyncio.run(self._all(strategy, prompts))

    async def _all(self, strategy, prompts):
        pending = self.generate(strategy, prompts[0])
        tasks = [self.generate(strategy, prompt) for prompt in prompts]
        found = await asyncio.gather(*tasks)
        asyncio.create_task(self.generate(strategy, ""))
        return await pending, found

    def later(self, strategy, prompt):
        return self.generate(strategy, prompt)
""",
    # an object that is awaited as its coroutine is
    """\
class Result:
    async def wait(self, strategy):
        return self

    def __await__(self):
        return self.wait(None).__await__()
""",
    # one of two is no coroutine; an actor's methods are called elsewhere
    """\
import ray


class Remote:
    async def ready(self, strategy):
        return True


class Local:
    def ready(self, strategy):
        return True


@ray.remote
class Server:
    async def start(self, strategy):
        return strategy


def run(strategy, local):
    engine = Local() if local else Remote()
    server = Server.remote()
    server.start.remote(strategy)
    return engine.ready(strategy) == True
""",
    # what is asked here belongs to a handle that an object gives which stands for several
    """
import ray


class Handle:
    def __init__(self, references):
        self.references = references

    async def gathered(self):
        return await self.references


class Group:
    def __init__(self, actors, names):
        self.actors = actors
        for name in names:
            setattr(self, name, self.calling(name))

    def calling(self, name):
        return lambda *given: Handle([getattr(actor, name).remote(*given) for actor in self.actors])


class Engine:
    async def generate_rows(self, prompts):
        return [prompts]


class Router:
    def __init__(self, engines, strategy):
        self.engines, self.strategy = engines, strategy

    async def answer(self, prompts):
        return await self.engines.generate_rows(prompts).gathered()
""",
)
