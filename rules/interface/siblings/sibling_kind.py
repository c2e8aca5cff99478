"""A member that is a property, a coroutine or a generator in one sibling and something else in another.

What it does
    Compares what kind of thing a name is over the members of a family: property or method, `async` or not,
    generator (or context manager) or not, bound to the class or to the object. Reports the member that differs
    where callers use the name on objects of the family.

Why is this bad
    `strategy.rank` gives a number with one backend and a bound method with the other, which is true in every
    condition; a coroutine that nobody awaits does nothing; a generator runs no line before it is iterated.

References
    https://docs.python.org/3/reference/datamodel.html#the-standard-type-hierarchy
"""

from __future__ import annotations

from collections.abc import Iterator

from rules.interface.siblings._examples import pair
from validator.analysis.interfaces.families import Family, stands_out
from validator.analysis.interfaces.uses import Read, Use, called_in, open_reads, open_uses, where
from validator.contracts import Contracts, implementations, standard
from validator.finding import Finding, Related
from validator.project import ClassDef, Method, Project
from validator.rule import Rule

RULE = Rule("MP105", "sibling-kind-differs", "error", stable_since="0.1.0", solves=True)
# through an object a class method is called like any other
_CALLED_ALIKE = frozenset({"a class method", "a plain method"})


def check_project(project: Project) -> Iterator[Finding]:
    for family in project.families.all:
        if len(family.members) < 2:
            continue
        names = frozenset().union(*(_methods(cls) for cls in family.members))
        for name in sorted(n for n in names if not n.startswith("__")):
            methods = implementations(family, name)
            kinds = {cls: _kind(method) for cls, method in methods.items()}
            if len(set(kinds.values())) > 1:
                uses: list[Use | Read] = [*open_uses(project, family, name)]
                uses += open_reads(project, family, name)
                yield from _check(project, family, methods, kinds, uses)


def _methods(cls: ClassDef) -> frozenset[str]:
    return frozenset(name for owner in cls.mro for name in owner.methods)


def _kind(method: Method) -> str:
    facts = method.facts
    if facts.is_property:
        return "a property"
    if any(d.rpartition(".")[2] in ("contextmanager", "asynccontextmanager") for d in facts.decorators):
        return "a context manager"
    if facts.is_async:
        return "an async generator" if facts.is_generator else "a coroutine (`async def`)"
    if facts.is_generator:
        return "a generator"
    return "a class method" if facts.is_classmethod else "a static method" if facts.is_static else "a plain method"


def _asked_for(kinds: dict[ClassDef, str], uses: list[Use | Read]) -> str | None:
    """The kind that callers expect: a property where nobody calls it, no property where all call it."""
    calls = [use for use in uses if isinstance(use, Use)]
    if calls and len(calls) < len(uses):
        return None
    fitting = [kind for kind in kinds.values() if (kind == "a property") != bool(calls)]
    awaited = any(use.call.use == "await" for use in calls)
    plain = [kind for kind in fitting if kind != "a plain method" or not awaited]
    return min(plain, key=lambda kind: kind != "a plain method", default=None)


def _check(
    project: Project,
    family: Family,
    methods: dict[ClassDef, Method],
    kinds: dict[ClassDef, str],
    uses: list[Use | Read],
) -> Iterator[Finding]:
    declared = project.analysis(Contracts).operation(family, next(iter(methods.values())).name)
    wanted = {"property": "a property", "method": "a plain method"}.get(declared.kind if declared else "")
    first = standard(project, family, kinds, wanted or _asked_for(kinds, uses))
    expected = kinds[first]
    seen: set[Method] = set()
    others = sum(kind == expected for kind in kinds.values())
    if not stands_out(len(kinds) - others, others):
        return
    for cls, method in methods.items():
        felt = [use for use in uses if cls in use.classes]
        if kinds[cls] == expected or not felt or method in seen or {kinds[cls], expected} <= _CALLED_ALIKE:
            continue
        seen.add(method)
        other = methods[first]
        yield RULE.finding(
            method.path,
            method.facts.name_at,
            f"`{cls.name}.{method.name}` is {kinds[cls]} where `{first.name}.{method.name}` is {expected}; "
            f"{where(felt[0])} uses it on both",
            help=f"make it {expected} in all siblings",
            related=[
                Related(other.path, other.facts.name_at[0], f"{expected} in `{first.name}`"),
                *called_in(felt),
            ],
            context=f"{cls.qualname}.{method.name}",
        )


_METHOD = "def rank(self): return 0"
_PROPERTY = "@property\ndef rank(self): return 0"

INCORRECT = [
    pair(_METHOD, "@property\ndef rank(self): return 0  # error: MP105", "print(strategy.rank())"),
    pair(_METHOD, "async def rank(self): return 0  # error: MP105", "print(strategy.rank())"),
]
CORRECT = [
    pair(_PROPERTY, _PROPERTY, "print(strategy.rank)"),
    pair(_METHOD, "@property\ndef rank(self): return 0", 'if args.backend != "fsdp":\n    print(strategy.rank())'),
    pair(_METHOD, "def rank(self): return self.mesh.rank()", "print(strategy.rank())"),
]
