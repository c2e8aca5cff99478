"""A `with` around what is no context manager.

What it does
    Reports `with f(…):` where `f` is a generator function without `@contextmanager`, and `with` around an object of a
    class of the project that neither it nor a base gives `__enter__` and `__exit__`; `async with` around what has no
    `__aenter__` and `__aexit__`, and the reverse. Where only some of what may come there is so, it is a warning.
    Silent where a decorator or a base of a library may give the methods, where an `except` takes the error, in tests.

Why is this bad
    It raises TypeError ("does not support the context manager protocol") before the first statement inside.

References
    https://docs.python.org/3/reference/datamodel.html#with-statement-context-managers
    https://docs.python.org/3/library/contextlib.html#contextlib.contextmanager
"""

from __future__ import annotations

from collections.abc import Iterator

from validator.definitions import PLAIN_BASES, ClassDef, Method
from validator.finding import Finding, Related
from validator.flow.callgraph.spelled_arguments import origins
from validator.flow.objects import is_bound_again
from validator.flow.queries.base import Place, Queries
from validator.flow.queries.outside_program import is_test
from validator.flow.values import Obj
from validator.project import Project
from validator.rule import Rule

RULE = Rule("MP154", "not-a-context-manager", "error", "1.0", tokens=("with",), solves=True)

_PLAIN = ("__enter__", "__exit__")
_ASYNC = ("__aenter__", "__aexit__")


def check_project(project: Project) -> Iterator[Finding]:
    queries = project.analysis(Queries)
    for unit in queries.of_program():
        for place in queries.values(unit, "enter") if not is_test(unit.path) else ():
            held, waits = place.operand(0), place.value.data == "async"
            ways = (place.value_at(number) for number in origins(place.unit, held.root.number))
            refusing = next((why for part in (held, *ways) if (why := _refusing(part, waits))), None)
            if refusing is not None and not place.catches("TypeError", "AttributeError", "Exception"):
                yield _report(place, *refusing, sure=_refusing(held, waits) is not None)


def _refusing(held: Place, waits: bool) -> tuple[Obj, str] | None:
    """What a value is, and why it cannot be entered, if nothing that it may be can."""
    found = [(o, _why(o, waits)) for o in held.closed.each]
    return found[0] if found and all(why for _, why in found) else None


def _why(o: Obj, waits: bool) -> str:
    """Why an object cannot be entered; empty where it can, or that is not known."""
    wanted, others = (_ASYNC, _PLAIN) if waits else (_PLAIN, _ASYNC)
    if o[0] == "generator":
        method: Method | None = o[1].method
        plain = method is not None and not method.facts.decorators and not is_bound_again(method)
        manager = "asynccontextmanager" if waits else "contextmanager"
        return f"is a generator function without `@{manager}`" if plain else ""
    if o[0] != "inst" or not _is_closed(o[1]):
        return ""
    lacking = [name for name in wanted if name not in o[1].attributes]
    hint = ": its methods are for the other kind of `with`" if all(name in o[1].attributes for name in others) else ""
    return f"has no {' and no '.join(f'`{name}`' for name in lacking)}{hint}" if lacking else ""


def _is_closed(cls: ClassDef) -> bool:
    """Whether the source tells all special methods that objects of a class have."""
    return (
        all(
            base.has_plain_decorators and not base.facts.keywords and PLAIN_BASES.issuperset(base.external_bases)
            for base in cls.mro
        )
        and not cls.is_protocol
    )


def _report(place: Place, o: Obj, why: str, *, sure: bool) -> Finding:
    at = o[1].method if o[0] == "generator" else o[1]
    shown = f"`{at.qualname}`"
    return RULE.finding(
        place.unit.path,
        place.at,
        f"`with {place.operand(0).text}`{place.where} {'raises' if sure else 'may raise'} TypeError: {shown} {why}",
        help="write `@contextlib.contextmanager` before the function"
        if o[0] == "generator"
        else f"give `{at.name}` the methods of the protocol, or call it without `with`",
        related=[Related(at.path, at.facts.name_at[0], f"{shown} is defined here")],
        context=f"{place.unit.qualname}:{at.qualname}",
        severity="error" if sure else "warning",
    )


_OFFLOADED = """\
import contextlib


{decorator}def offloaded(strategy, device):
    strategy.move("cpu")
    try:
        yield
    finally:
        strategy.move(device)


class Timer:
    def __enter__(self):
        return self

    def __exit__(self, *_):
        return None


class Worker:
    def __init__(self, strategy):
        self.strategy = strategy

    def rollout(self, engine, prompts):
        with offloaded(self.strategy, "cuda"), Timer():{mark}
            return engine.generate(prompts)
"""

INCORRECT = (
    _OFFLOADED.format(decorator="", mark="  # error: MP154"),
    """\
import contextlib


class Profile:
    def start(self, strategy):
        return self


class Lock:
    async def __aenter__(self):
        return self

    async def __aexit__(self, *_):
        return None


class Timer:
    def __enter__(self):
        return self

    def __exit__(self, *_):
        return None


async def run(strategy, lock: Lock, wanted):
    with Profile():  # error: MP154
        strategy.step()
    with Lock():  # error: MP154
        strategy.step()
    async with Timer():  # error: MP154
        strategy.step()
    with Profile() if wanted else contextlib.nullcontext():  # error: MP154
        strategy.step()
""",
)

CORRECT = (
    _OFFLOADED.format(decorator="@contextlib.contextmanager\n", mark=""),
    """\
import contextlib


class Lock:
    async def __aenter__(self):
        return self

    async def __aexit__(self, *_):
        return None


class Profile(contextlib.ContextDecorator):
    pass


def moved(strategy):
    yield strategy


moved = contextlib.contextmanager(moved)


async def run(strategy):
    async with Lock():
        strategy.step()
    with Profile(), moved(strategy), contextlib.closing(strategy.each()):
        strategy.step()
""",
    # one of the classes below, each with objects of its own
    """\
class Component:
    def __init_subclass__(cls):
        cls.Config.owner = cls

    class Config:
        owner = None

        def build(self):
            return self.owner()


class Profiler(Component):
    class Config(Component.Config):
        pass

    def __enter__(self):
        return self

    def __exit__(self, *_):
        return None


class Loader(Component):
    class Config(Component.Config):
        pass


def main(strategy):
    with Profiler.Config().build() as profiler:
        return profiler, Loader.Config().build(), strategy
""",
)
