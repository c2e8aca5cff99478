"""A value of an argument that one sibling handles and another does not.

What it does
    Collects the strings that a method compares a parameter with (`op == "max"`, `case "max"`, `{"max": …}[op]`,
    `op in ("mean", "max")`) in each member of a family, also in the functions of the project that get the parameter
    from it, and in tables of the module (`_OPS[op]`). Reports the member that has no branch for a value which a
    sibling has one for, where a caller passes that value, or where the member lists the legal values and leaves it
    out. A member that hands the parameter on to something else is silent.

Why is this bad
    `strategy.all_reduce(loss, op="max")` is the maximum with one backend, and the sum with the other.

References
    https://pytorch.org/docs/stable/distributed.html#torch.distributed.ReduceOp
"""

from __future__ import annotations

from collections.abc import Iterator

from rules.interface.siblings._examples import pair
from validator.analysis.interfaces.binding import bind, parameters
from validator.analysis.interfaces.bodies import Bodies
from validator.analysis.interfaces.families import Family
from validator.analysis.interfaces.uses import Use, Uses, called_in, open_uses
from validator.contracts import implementations
from validator.facts.model import Param
from validator.finding import Finding, Related
from validator.project import ClassDef, Method, Project
from validator.rule import Rule

RULE = Rule("MP112", "sibling-value-unhandled", "error", stable_since="0.1.0", solves=True)


def check_project(project: Project) -> Iterator[Finding]:
    for family in project.families.all:
        for name in project.analysis(Uses).names(family) if len(family.members) > 1 else ():
            methods = {c: m for c, m in implementations(family, name).items() if m.cls is c and not m.facts.stub}
            for param in _textual(methods) if len(methods) > 1 else ():
                yield from _check(project, family, methods, param)


def _textual(methods: dict[ClassDef, Method]) -> list[str]:
    """Parameters of text that at least two members have."""
    rows = [p.name for m in methods.values() for p in parameters(m) if _is_text(p)]
    return sorted({name for name in rows if sum(_has(m, name) for m in methods.values()) > 1})


def _is_text(param: Param) -> bool:
    return (param.default or "")[:1] in ("'", '"') or param.annotation in ("str", "Optional[str]", "str | None")


def _has(method: Method, name: str) -> bool:
    return any(p.name == name for p in parameters(method))


def _check(project: Project, family: Family, methods: dict[ClassDef, Method], param: str) -> Iterator[Finding]:
    bodies = project.analysis(Bodies)
    values = {cls: bodies.handled(m, param) for cls, m in methods.items() if _has(m, param)}
    if len({frozenset(v) for v in values.values()}) < 2:
        return
    uses = open_uses(project, family, next(iter(methods.values())).name)
    for cls, method in methods.items():
        if cls not in values or bodies.passes_on(method, param):
            continue
        felt = [use for use in uses if cls in use.classes]
        for sibling, theirs in values.items():
            missing = [v for v, branch in theirs.items() if branch and v not in values[cls]]
            asked = {v: [u for u in felt if _passes(methods[sibling], u, param, v)] for v in missing}
            wrong = [v for v in missing if asked[v] or felt and _lists(values[cls], theirs)]
            if wrong:
                read = param in bodies.reads(method)
                yield _report(cls, method, sibling, methods[sibling], (param, read), wrong[0], asked[wrong[0]] or felt)
                break


def _passes(method: Method, use: Use, param: str, value: str) -> bool:
    argument = bind(method, use.call).get(param)
    return argument is not None and argument.kind == "const" and argument.value.strip("'\"") == value


def _lists(own: dict[str, bool], theirs: dict[str, bool]) -> bool:
    """Whether a member has a branch for every value that it knows, and knows at least two: then it lists them all."""
    return len(own) >= 2 and set(own) < set(theirs) and all(own.values())


def _report(
    cls: ClassDef,
    method: Method,
    sibling: ClassDef,
    other: Method,
    asked: tuple[str, bool],
    value: str,
    uses: list[Use],
) -> Finding:
    param, read = asked
    owner = f"`{cls.name}.{method.name}`"
    text = f'does not know `{param}="{value}"`' if read else f'never looks at `{param}`, not even for "{value}"'
    return RULE.finding(
        method.path,
        method.facts.name_at,
        f"{owner} {text}, which `{sibling.name}` handles and `{uses[0].caller.qualname}` may pass",
        help=f'handle "{value}" as the sibling does, or raise ValueError for values that are not supported',
        related=[
            *called_in(uses),
            Related(other.path, other.facts.name_at[0], f'`{sibling.name}.{other.name}` handles "{value}"'),
        ],
        context=f"{cls.qualname}.{method.name}:{param}={value}",
    )


_BASE = """
def all_reduce(self, data, op="mean"):
    if op == "max":
        return self.engine.maximum(data)
    return self.engine.total(data) / (self.world_size if op == "mean" else 1)
"""
_SUM = """
def all_reduce(self, data, op="mean"):{mark}
    return data.total() / (self.world_size if op == "mean" else 1)
"""
_HELPER = """
def reduce_number(data, group=None, op="mean"):
    return data.maximum(group) if op == "max" else data.total(group)
"""

INCORRECT = [
    pair(_BASE, _SUM.format(mark="  # error: MP112"), 'return strategy.all_reduce(model.loss, op="max")'),
    pair(
        _BASE,
        "def all_reduce(self, data, op='mean'):  # error: MP112\n    return data.total()",
        'return strategy.all_reduce(model.loss, "max")',
    ),
    pair(
        "def all_reduce(self, data, op='mean'): return reduce_number(data, op=op)",
        "def all_reduce(self, data, op='mean'):  # error: MP112\n    return reduce_number(data)",
        'return strategy.all_reduce(model.loss, op="max")',
    )
    + _HELPER,
    pair(
        "def all_reduce(self, data, op='mean'): return self.engine.reduce(data, _OPS[op])",
        "def all_reduce(self, data, op='mean'):  # error: MP112\n    return data.total()",
        'return strategy.all_reduce(model.loss, op="max")',
    )
    + '\n_OPS = {"mean": 0, "max": 1}\n',
]
CORRECT = [
    pair(_BASE, _SUM.format(mark=""), 'return strategy.all_reduce(model.loss, op="sum")'),
    pair(
        _BASE,
        "def all_reduce(self, data, op='mean'): return self.group.reduce(data, op)",
        'return strategy.all_reduce(model.loss, op="max")',
    ),
    pair(_BASE, _BASE, 'return strategy.all_reduce(model.loss, op="max")'),
    # both hand it on, one of them by a name of its own
    pair(
        "def all_reduce(self, data, op='mean'): return reduce_number(data, op=op)",
        "def all_reduce(self, data, op='mean', group=None): return reduce_number(data, group, op)",
        'return strategy.all_reduce(model.loss, op="max")',
    )
    + _HELPER,
    # a label: nobody chooses by it
    pair(
        "def all_reduce(self, data, op='mean'): return self.engine.reduce(data, label=op)",
        "def all_reduce(self, data, op='mean'): return data.total()",
        'return strategy.all_reduce(model.loss, op="max")',
    ),
]
