"""A result that is not what the sibling returns or the caller unpacks.

What it does
    Reports a method of a family member that returns tuples of another length than callers unpack or than its
    sibling returns, that returns a tuple where the sibling returns a single value or where a caller reckons with the
    result (`step = strategy.load_ckpt(…)` and `range(step, …)`), or that returns nothing where the sibling returns a
    value and a caller uses it, without asking whether there is any. Only where every `return` of the method tells its
    shape.

Why is this bad
    `_, states = strategy.load_ckpt(…)` works with one backend and raises ValueError or TypeError with the other.

References
    https://docs.python.org/3/reference/simple_stmts.html#the-return-statement
"""

from __future__ import annotations

from collections.abc import Iterator

from rules.interface.siblings._examples import pair
from validator.analysis.interfaces.binding import keeps_signature
from validator.analysis.interfaces.families import Family, stands_out
from validator.analysis.interfaces.numbers import kept_as_number
from validator.analysis.interfaces.uses import Use, Uses, called_in, open_uses
from validator.contracts import Contracts, implementations, standard
from validator.facts.model import At, Return
from validator.finding import Finding, Related
from validator.flow.objects import Objects
from validator.project import ClassDef, Method, Project
from validator.rule import Rule

RULE = Rule("MP106", "sibling-result-differs", "error", stable_since="0.1.0", solves=True)

# A shape is "nothing", "value" (one object, of whatever kind), "tuple:N", or "" where it cannot be told.
_WORDS = {"nothing": "nothing", "value": "one value"}


def check_project(project: Project) -> Iterator[Finding]:
    for family in project.families.all:
        for name in project.analysis(Uses).names(family):
            methods = {cls: m for cls, m in implementations(family, name).items() if _simple(m)}
            shapes = {cls: _shape(method) for cls, method in methods.items()}
            uses = open_uses(project, family, name) if any(shapes.values()) else []
            if uses:
                yield from _check(project, family, methods, shapes, uses)


def _simple(method: Method) -> bool:
    facts = method.facts
    return keeps_signature(method) and not (
        facts.is_generator or facts.is_async or facts.is_property or facts.is_abstract
    )


def _shape(method: Method) -> str:
    facts = method.facts
    if facts.stub in ("raise", "ellipsis"):
        return ""
    kinds = {_returned(row) for row in facts.returns}
    if facts.falls:
        kinds.add("nothing")
    if "nothing" in kinds and len(kinds) > 1:
        return ""  # sometimes a value: the caller has to look
    return kinds.pop() if len(kinds) == 1 else ""


def _returned(row: Return) -> str:
    if row.kind == "tuple":
        starred = any(part.strip().startswith("*") for part in row.value.split(","))
        return "" if starred or row.value.startswith("[") else f"tuple:{row.arity}"
    if row.kind == "none":
        bare = row.at[0] == row.at[2] and row.at[3] - row.at[1] == len("return")
        return "nothing" if bare else ""  # an explicit None is an answer: callers of such a method look at it
    return "value" if row.kind == "const" or (row.kind == "call" and _gives_number(row.value)) else ""


def _gives_number(target: str) -> bool:
    return target in ("int", "float", "len", "bool") or target.endswith(".item")


def _check(
    project: Project, family: Family, methods: dict[ClassDef, Method], shapes: dict[ClassDef, str], uses: list[Use]
) -> Iterator[Finding]:
    declared = project.analysis(Contracts).operation(family, next(iter(methods.values())).name)
    first = standard(project, family, shapes, declared.result if declared is not None else None)
    found: dict[Method, tuple[ClassDef, str, Use]] = {}
    for cls, method in methods.items():
        felt = [use for use in uses if cls in use.classes]
        if shapes[cls] == "nothing":
            felt = [use for use in felt if not _asks_whether_there_is_any(project, use)]
        problem = _problem(shapes[cls], felt, methods, first, shapes[first] if cls is not first else "")
        problem = problem or _reckoned(project, shapes[cls], felt)
        if problem is not None:
            found.setdefault(method, (cls, *problem))
    if not stands_out(len(found), len(methods) - len(found)):
        return
    for method, (cls, text, use) in found.items():
        related = called_in([use])
        if first is not cls:
            related.append(Related(methods[first].path, _place(methods[first])[0], f"what `{first.name}` returns"))
        yield RULE.finding(
            method.path,
            _place(method),
            f"`{cls.name}.{method.name}` returns {_named(shapes[cls])}, but {text}",
            help="return the same shape from every sibling, and unpack that",
            related=related,
            context=f"{cls.qualname}.{method.name}",
        )


def _place(method: Method) -> At:
    rows = method.facts.returns
    return rows[0].at if rows else method.facts.name_at


def _named(shape: str) -> str:
    return _WORDS.get(shape) or f"a tuple of {shape[6:]}"


def _problem(
    shape: str, uses: list[Use], methods: dict[ClassDef, Method], first: ClassDef, expected: str
) -> tuple[str, Use] | None:
    """Why the shape does not do, and for whom."""
    if not shape:
        return None
    for use in uses:
        kind = use.call.use
        if kind.startswith("unpack:") and kind != "unpack:*" and shape != f"tuple:{kind[7:]}":
            if shape == "value":
                continue  # a constant may be a string of the right length
            return f"`{use.caller.qualname}` unpacks {kind[7:]} values from it", use
        if shape == "nothing" and kind in ("attribute", "subscript", "iterate", "unpack:*"):
            return f"`{use.caller.qualname}` uses the result", use
    used = [use for use in uses if use.call.use not in ("discard", "await")]
    sibling = f"`{first.name}`"
    if not used or not expected or expected == shape:
        other = next((c for c, m in methods.items() if shape == "nothing" and _gives(m)), None)
        return (
            (f"`{other.name}` returns a value that `{used[0].caller.qualname}` uses", used[0])
            if other and used
            else None
        )
    return f"{sibling} returns {_named(expected)}, and `{used[0].caller.qualname}` uses it", used[0]


def _asks_whether_there_is_any(project: Project, use: Use) -> bool:
    """Whether a caller tests what it gets for None, or for its truth."""
    call = project.analysis(Objects).call_at(use.caller.module, use.call.at)
    if call is None:
        return False
    asked = any(user.value.op == "compare" and user.operand(1).val.is_const(None) for user in call.users)
    return asked or any(block.end[:2] == ("branch", call.number) for block in call.unit.code.blocks)


def _reckoned(project: Project, shape: str, uses: list[Use]) -> tuple[str, Use] | None:
    """Who takes a tuple for a number."""
    if shape.startswith("tuple:"):
        for use in uses:
            if use.call.use == "value" and kept_as_number(project, use):
                return f"`{use.caller.qualname}` takes it for a number", use
    return None


def _gives(method: Method) -> bool:
    """Whether every path of a method ends in returning something."""
    rows = method.facts.returns
    return (
        bool(rows) and not method.facts.falls and all(row.kind not in ("none",) and row.value != "None" for row in rows)
    )


_BASE = "def load_ckpt(self, model, path): return path, model.load(path)"
_USE = "_, states = strategy.load_ckpt(model, args.path)"

INCORRECT = [
    pair(_BASE, "def load_ckpt(self, model, path):\n    return path, model.load(path), 0  # error: MP106", _USE),
    pair(_BASE, "def load_ckpt(self, model, path):  # error: MP106\n    model.load(path)", _USE),
    pair(
        "def all_reduce(self, data): return data.reduce()",
        "def all_reduce(self, data):  # error: MP106\n    data.reduce_()",
        "loss = strategy.all_reduce(model.loss)",
    ),
    pair(
        "def load_ckpt(self, model, path): return model.load(path)['step']",
        "def load_ckpt(self, model, path):\n    return path, model.load(path)['step']  # error: MP106",
        "start = 0\nif args.path:\n    start = strategy.load_ckpt(model, args.path)\n"
        "for step in range(start, args.steps):\n    model.step(step)",
    ),
    pair(
        "def count(self, model): return int(model.samples())",
        "def count(self, model):\n    return 0, model.samples()  # error: MP106",
        "print(strategy.count(model))",
    ),
]
CORRECT = [
    pair(_BASE, "def load_ckpt(self, model, path): return path, model.read(path)", _USE),
    pair(_BASE, "def load_ckpt(self, model, path): return self.engine.load(path)", _USE),
    pair(_BASE, "def load_ckpt(self, model, path): model.load(path)", "strategy.load_ckpt(model, args.path)"),
    pair(
        "def load_ckpt(self, model, path): return model.load(path)['step']",
        "def load_ckpt(self, model, path):\n    return path, model.load(path)['step']",
        "start = strategy.load_ckpt(model, args.path)\nprint(start[0], start[1] + 1)",
    ),
    # whoever calls asks whether there is a result
    pair(
        "def all_reduce(self, data): return data.reduce()",
        "def all_reduce(self, data):\n    data.reduce_()",
        "loss = strategy.all_reduce(model.loss)\nif loss is not None:\n    print(loss.item())",
    ),
]
