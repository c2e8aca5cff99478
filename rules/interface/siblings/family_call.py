"""A call that does not fit every class whose object it may be made on.

What it does
    Binds each call on an object of a family to the method of *every* class that the object may be an instance of
    (what the factory may return), by Python's rules: too many positional arguments (which `**kwargs` does not
    take), unknown keywords, missing or doubled arguments. Silent where a test of the backend or `isinstance`
    stands before the call, `TypeError` is caught, or a decorator may change the signature.

Why is this bad
    The call works with one backend and raises TypeError with the other: for `save_ckpt` hours into a run.

References
    https://docs.python.org/3/reference/expressions.html#calls
"""

from __future__ import annotations

from collections.abc import Iterator

from rules.interface.siblings._examples import pair
from validator.analysis.interfaces.binding import Misfit, advice, bind, keeps_signature, misfit, parameters, signature
from validator.analysis.interfaces.families import Family
from validator.analysis.interfaces.keywords import renamed_keyword
from validator.analysis.interfaces.uses import Use, Uses, backend_words, is_guarded, open_uses
from validator.errors import close
from validator.facts.model import Call
from validator.finding import Finding, Related
from validator.flow.objects import Objects
from validator.flow.queries.outside_program import is_test
from validator.project import ClassDef, Method, Project
from validator.rule import Rule

RULE = Rule("MP103", "family-call-does-not-bind", "error", stable_since="0.1.0", solves=True, fix="unsafe")
_CATCHING = frozenset({"TypeError"})


Broken = tuple[ClassDef, Method, Misfit]


def check_project(project: Project) -> Iterator[Finding]:
    for family in project.families.all:
        for name in project.analysis(Uses).names(family):
            for use in open_uses(project, family, name, _CATCHING):
                yield from _check(family, use)


def _check(family: Family, use: Use) -> Iterator[Finding]:
    broken: list[Broken] = []
    for cls in sorted(use.classes, key=lambda c: (c.module.name, c.qualname)):
        method = cls.find(use.call.method)
        if method is None or method.facts.is_property or not keeps_signature(method):
            continue
        if (problem := misfit(method, use.call)) is not None:
            broken.append((cls, method, problem))
    if broken:
        yield _report(family, use, broken)


fix = renamed_keyword


def about_line(project: Project, path: str, line: int) -> Iterator[str]:
    """Which classes the calls of a line are held against, and why nothing is reported."""
    methods = {name for cls in project.classes() for name in cls.methods if not name.startswith("__")}
    for function, call in project.calls(*methods):
        if function.path == path and call.receiver and call.at[0] <= line <= call.at[2]:
            uses = [(f, u) for f in project.families.all for u in project.analysis(Uses).of(f, call.method)]
            found = [(family, use) for family, use in uses if use.caller is function and use.call is call]
            if not found:
                yield f"  {RULE.code}: `{call.target}(…)` is not held against a family of classes"
                yield f"    silent: {_outside(project, function, call)}"
            for family, use in found:
                yield f"  {RULE.code}: `{call.target}(…)` is held against"
                yield from (f"    `{cls.name}.{call.method}` ({cls.path}): {_fits(cls, use)}" for cls in _sorted(use))
                yield f"    {_outcome(family, use)}"


def _sorted(use: Use) -> list[ClassDef]:
    return sorted(use.classes, key=lambda c: (c.module.name, c.qualname))


def _outside(project: Project, function: Method, call: Call) -> str:
    """Why a call is held against no family."""
    classes = project.analysis(Objects).receivers(function, call)
    if not any(call.method in cls.attributes for family in project.families.all for cls in family.members):
        return f"no family has a `{call.method}`; a family is what a factory returns, or what the configuration names"
    if not classes:
        return f"of which class `{call.receiver}` is, is not known"
    names = ", ".join(sorted(f"`{cls.name}`" for cls in classes))
    return f"`{call.receiver}` may be of {names}, of no family, or is the family's own object"


def _fits(cls: ClassDef, use: Use) -> str:
    method = cls.find(use.call.method)
    if method is None:
        beyond = ", ".join(f"`{base}`" for base in sorted(cls.external_bases))
        return f"not known, its base {beyond} is not read" if beyond else "it has no such method"
    if method.facts.is_property:
        return "not known, it is a property"
    if not keeps_signature(method):
        return "not known, a decorator may change its parameters"
    problem = misfit(method, use.call)
    return f"`{signature(method)}` {problem.message if problem is not None else 'fits'}"


def _outcome(family: Family, use: Use) -> str:
    if is_test(use.caller.path):
        return "silent: tests are left out"
    if is_guarded(use.guards, backend_words(family), _CATCHING, use.call.receiver):
        return "silent: a test around it asks which class it is, or TypeError is caught"
    broken = any(_check(family, use))
    return "reported" if broken else "silent: no class is known to refuse it"


def _report(family: Family, use: Use, broken: list[Broken]) -> Finding:
    cls, method, problem = broken[0]
    source = f", which `{family.factory.name}` may return" if family.factory is not None else ""
    fitting = [c for c in use.classes if c not in [row[0] for row in broken] and c.find(method.name) is not None]
    new = "" if fitting else _meant(use, broken)
    others = " and ".join(f"`{row[0].name}`" for row in broken[1:])
    rest = f"; it fits `{fitting[0].name}`" if fitting else f"; nor does it fit {others}" if others else ""
    return RULE.finding(
        use.caller.path,
        use.call.at,
        f"`{use.call.target}(…)` in `{use.caller.qualname}` raises TypeError on `{cls.name}`{source}: "
        f"`{signature(method)}` {problem.message}{rest}",
        help=_help(broken, fitting, new),
        related=[
            Related(each.path, each.facts.name_at[0], f"`{owner.name}.{each.name}` is defined here")
            for owner, each, _ in broken
        ],
        context=f"{use.caller.qualname}:{use.call.target}" + (f":{problem.name}>{new}" if new else ""),
    )


def _help(broken: list[Broken], fitting: list[ClassDef], new: str) -> str:
    cls, method, problem = broken[0]
    if new:
        return f"write `{new}=` for `{problem.name}=`"
    if fitting:  # the siblings disagree: the call or the class may be what is wrong
        like = f"`{fitting[0].name}.{method.name}`"
        return (
            f"pass what every class accepts (by keyword), or give `{cls.name}.{method.name}` the parameters of {like}"
        )
    return advice(problem)


def _meant(use: Use, broken: list[Broken]) -> str:
    """The parameter that every class has and that a keyword which none of them takes must be; empty where that cannot
    be told: it is spelled alike, or is the only one that is missing."""
    name = broken[0][2].name
    if any((problem.kind, problem.name) != ("unknown-keyword", name) for _, _, problem in broken):
        return ""
    free = [_free(method, use) for _, method, _ in broken]
    shared = set.intersection(*(set(each) for each in free))
    missing = {each for each in shared if all(row[each] for row in free)}
    alike = set(close(name, sorted(shared), 2))
    (found, *more) = sorted(alike or missing) or [""]
    return found if not more else ""


def _free(method: Method, use: Use) -> dict[str, bool]:
    """The parameters that may be named and that the call does not fill, and whether it must."""
    filled = bind(method, use.call)
    named = [param for param in parameters(method) if param.kind in ("any", "kw")]
    return {param.name: param.default is None for param in named if param.name not in filled}


_FULL = "def save_ckpt(self, model, path, tag=None, max_num=3): model.save(path, tag, max_num)"
_LOOSE = "def save_ckpt(self, model, path, tag=None, **kwargs): model.write(path, tag, **kwargs)"

INCORRECT = [
    pair(_FULL, _LOOSE, 'strategy.save_ckpt(model, "out", "latest", 3)  # error: MP103'),
    pair(_FULL, _LOOSE, "strategy.save_ckpt(model)  # error: MP103"),
    pair(_FULL, _LOOSE, 'if getattr(args, "eval", None):\n    strategy.save_ckpt(model)  # error: MP103'),
]
CORRECT = [
    pair(_FULL, _LOOSE, 'strategy.save_ckpt(model, "out", tag="latest", max_num=3)'),
    pair(_FULL, _LOOSE, 'if args.backend != "fsdp":\n    strategy.save_ckpt(model, "out", "latest", 3)'),
    pair(_FULL, _LOOSE, "strategy.save_ckpt(*args.checkpoint)"),
    pair(_FULL, _LOOSE, 'if hasattr(strategy, "engine"):\n    strategy.save_ckpt(model)'),
]
