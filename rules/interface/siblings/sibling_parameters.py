"""Parameters that siblings name or order differently, although callers use the method on both.

What it does
    Compares the parameters of a method over the members of a family, for methods that callers use on objects of
    the family. Reports a member that gives another name to the parameter at a position (leading underscores
    aside), or that takes the same parameters in another order while callers pass them by position. The
    declared contract, the callers (where their calls bind to one and not to the other), the majority, or the member
    that annotations name says which of two is the odd one.
    Parameters that only one sibling adds are left to the calls that do not bind (MP103).

Why is this bad
    A keyword that one backend takes is unknown to the other, or disappears in its `**kwargs`; with another order
    the arguments of a positional call are silently swapped.

References
    https://docs.python.org/3/reference/compound_stmts.html#function-definitions
"""

from __future__ import annotations

from collections.abc import Iterator

from rules.interface.siblings._examples import pair
from validator.analysis.interfaces.binding import keeps_signature, misfit, parameters, signature
from validator.analysis.interfaces.families import Family
from validator.analysis.interfaces.uses import Use, Uses, called_in, open_uses, where
from validator.contracts import Contracts, implementations, standard
from validator.facts.model import Param
from validator.finding import Finding, Related
from validator.project import ClassDef, Method, Project
from validator.rule import Rule

RULE = Rule("MP102", "sibling-parameters-differ", "warning", stable_since="0.1.0", solves=True)

Params = tuple[Param, ...]


def check_project(project: Project) -> Iterator[Finding]:
    for family in project.families.all:
        for name in project.analysis(Uses).names(family) if len(family.members) > 1 else ():
            found = implementations(family, name)
            methods = {cls: m for cls, m in found.items() if not m.facts.is_property and keeps_signature(m)}
            if len({_shape(parameters(m)) for m in methods.values()}) > 1:
                uses = open_uses(project, family, name)
                if uses:
                    yield from _compare(project, family, methods, uses)


def _compare(project: Project, family: Family, methods: dict[ClassDef, Method], uses: list[Use]) -> Iterator[Finding]:
    declared = project.analysis(Contracts).operation(family, next(iter(methods.values())).name)
    shapes = {cls: _shape(parameters(method)) for cls, method in methods.items()}
    wanted = _shape(declared.params) if declared is not None else None
    fitting = {cls: shapes[cls] for cls in methods if _fits(methods[cls], [u for u in uses if cls in u.classes])}
    if wanted not in shapes.values() and fitting:
        shapes = fitting  # callers contradict the others: those are the odd ones
    first = standard(project, family, shapes, wanted)
    reported: set[Method] = set()
    for cls, method in methods.items():
        felt = [use for use in uses if cls in use.classes]
        if cls is first or not felt or method in reported:
            continue
        problem = _difference(parameters(methods[first]), parameters(method), felt)
        if problem is not None:
            reported.add(method)
            yield _report(cls, method, first, methods[first], problem, felt)


def _fits(method: Method, uses: list[Use]) -> bool:
    return all(misfit(method, use.call) is None for use in uses)


def _shape(params: Params) -> tuple[str, ...]:
    return tuple(_bare(p) for p in params if p.kind in ("any", "pos"))


def _bare(param: Param) -> str:
    return param.name.lstrip("_")


def _difference(expected: Params, params: Params, uses: list[Use]) -> tuple[Param, str] | None:
    """The first parameter that is renamed or moved, with the words for it."""
    wanted = [p for p in expected if p.kind in ("any", "pos")]
    given = [p for p in params if p.kind in ("any", "pos")]
    names, others = [_bare(p) for p in wanted], [_bare(p) for p in given]
    deepest = max((len(use.call.positional) for use in uses), default=0)
    for index, (want, got) in enumerate(zip(wanted, given, strict=False)):
        name, other = _bare(want), _bare(got)
        if name == other:
            continue
        if name not in others and other not in names and _is_rename(index, name, names, others):
            return got, f"calls parameter {index + 1} `{got.name}` where {{sibling}} calls it `{want.name}`"
        if name in others and other in names and deepest > index:
            return got, f"takes `{got.name}` as parameter {index + 1} where {{sibling}} takes `{want.name}`"
        return None  # one of them has an extra parameter here: a matter of whether calls bind
    return None


def _is_rename(index: int, name: str, names: list[str], others: list[str]) -> bool:
    """Whether the lists agree after this position, so that only the name changed."""
    return names[index + 1 :][:2] == others[index + 1 :][:2] or set(names) - {name} <= set(others)


def _report(
    cls: ClassDef, method: Method, sibling: ClassDef, other: Method, problem: tuple[Param, str], uses: list[Use]
) -> Finding:
    param, text = problem
    owner = f"`{cls.name}.{method.name}`"
    problems = ((use, misfit(method, use.call)) for use in uses)
    lost = next(((use, bad.name) for use, bad in problems if bad is not None and bad.kind == "unknown-keyword"), None)
    callers = f"{where(lost[0])} passes `{lost[1]}=`" if lost is not None else "callers use it on both"
    return RULE.finding(
        method.path,
        param.at,
        f"{owner} {text.format(sibling=f'`{sibling.name}`')}; {callers}",
        help=f"give both the same parameters: `{signature(other)}`",
        related=[
            Related(other.path, other.facts.name_at[0], f"`{sibling.name}.{other.name}` is defined here"),
            *called_in(uses),
        ],
        context=f"{cls.qualname}.{method.name}:{param.name}",
    )


_BASE = "def save_model(self, model, path, tag=None): model.save(path, tag)"
_USE = "strategy.save_model(model, args.path)"

INCORRECT = [
    pair(_BASE, "def save_model(self, model, folder, tag=None):  # error: MP102\n    model.write(folder, tag)", _USE),
    pair(_BASE, "def save_model(self, path, model, tag=None):  # error: MP102\n    model.write(path, tag)", _USE),
    # what callers pass decides, not the order of the classes
    pair(
        "def save_model(self, model, folder, tag=None):  # error: MP102\n    model.write(folder, tag)",
        _BASE,
        "strategy.save_model(model, path=args.path)",
    ),
]
CORRECT = [
    pair(_BASE, "def save_model(self, model, path, tag=None, shards=1): model.write(path, tag, shards)", _USE),
    pair(_BASE, "def save_model(self, _model, path, tag=None): self.engine.write(path, tag)", _USE),
    pair(_BASE, "def save_model(self, model, folder, tag=None): model.write(folder, tag)", "print(strategy)"),
]
