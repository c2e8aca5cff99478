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
from validator.analysis.interfaces.uses import Use, Uses, open_uses
from validator.errors import close
from validator.finding import Finding, Related
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
