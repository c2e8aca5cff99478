"""Two arguments of a call that stand in each other's places, as their names tell.

What it does
    Takes calls whose arguments, passed by position, bear the names of two parameters of what is called, each that of
    the other: `create(name, use_w2, use_w1)` for `def create(self, name, use_w1, use_w2)`. Where several definitions
    may be reached, all must have these parameters in this order. Silent in the function itself, behind a test of the
    two, where the function passes them in the other order too, where a statement exchanges the two, where their names
    are those of the two ways of one thing (`scatter_dim`, `gather_dim`), and where a name says that the exchange is
    meant (`swap`, `reverse`, `transpose`).

Why is this bad
    Nothing fails where both are of one type: the wrong matrix is decomposed, the wrong model is the reference.

References
    https://errorprone.info/bugpattern/ArgumentSelectionDefectChecker
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from validator.facts.model import Call
from validator.finding import Finding, Related
from validator.flow.objects import Objects
from validator.flow.queries.outside_program import is_test
from validator.project import Method, Project
from validator.rule import Rule

RULE = Rule("MP145", "arguments-swapped", "warning", stable_since="0.4.0", solves=True)
MEANT = re.compile(r"swap|revers|flip|transpos|invers|mirror|exchang|permut|commut|rotat|backward|symmetr|opposite")
# Words of which each names the way back of the other: who exchanges them goes the other way.
_WAYS = frozenset(
    frozenset(pair)
    for pair in (
        ("gather", "scatter"), ("in", "out"), ("input", "output"), ("src", "dst"), ("source", "target"),
        ("send", "recv"), ("from", "to"), ("up", "down"), ("encode", "decode"), ("first", "last"), ("start", "end"),
    )
)  # fmt: skip


def check_project(project: Project) -> Iterator[Finding]:
    objects = project.analysis(Objects)
    by_name: dict[str, list[Method]] = {}
    for function in project.functions():
        name = function.cls.name if function.cls is not None and function.name == "__init__" else function.name
        by_name.setdefault(name, []).append(function)
    for function in project.functions():
        if is_test(function.path) or MEANT.search(function.qualname.lower()):
            continue
        for call in function.facts.calls:
            names = _names(call)
            if len(names) < 2 or MEANT.search(call.target.lower()):
                continue
            if not any(_swapped(names, _params(each)) for each in by_name.get(call.method, ())):
                continue
            place = objects.call_at(function.module, call.at)
            if place is None:
                continue
            reached = objects.reached_by(place.operand(0), place)
            rows = [
                _swapped(names, [p.name for p in each.params if p.kind in ("any", "pos")]) for each in reached.callees
            ]
            if not rows or None in rows or len(set(rows)) != 1 or any(each.given for each in reached.callees):
                continue
            callee = reached.callees[0].place
            if rows[0] is None or callee is function or go_back(*rows[0]) or not _is_alone(function, call, *rows[0]):
                continue
            yield _report(function, call, reached.callees[0].name, callee, *rows[0])


def _report(function: Method, call: Call, name: str, callee: object, one: str, other: str) -> Finding:
    related = [Related(callee.path, callee.facts.name_at[0], "what is called")] if isinstance(callee, Method) else []
    return RULE.finding(
        function.path,
        call.at,
        f"`{function.qualname}` passes `{one}` for the parameter `{other}` of `{name}`, and `{other}` for `{one}`",
        help="exchange them, or pass them by keyword",
        related=related,
        context=f"{function.qualname}:{name}:{one}",
    )


def _names(call: Call) -> list[str]:
    """The last names of what is passed by position, up to a `*`; empty texts for other expressions."""
    found = []
    for each in call.args:
        if each.keyword == "*":
            break
        if each.keyword is None:
            found.append(each.value.rpartition(".")[2] if each.kind == "path" else "")
    return found


def _params(function: Method) -> list[str]:
    names = [p.name for p in function.facts.params if p.kind in ("any", "pos")]
    return names[1:] if function.is_method and names else names


def _swapped(names: list[str], params: list[str]) -> tuple[str, str] | None:
    """The two names of which each stands where the parameter of the other name is."""
    for place, name in enumerate(names[: len(params)]):
        if not name or name == params[place] or name not in params:
            continue
        other = params.index(name)
        if place < other < len(names) and names[other] == params[place] and names.count(name) == 1:
            return name, names[other]
    return None


def go_back(one: str, other: str) -> bool:
    """Whether to exchange two things is to go the other way."""
    words = (frozenset(name.lower().split("_")) for name in (one, other))
    return frozenset(next(words) ^ next(words)) in _WAYS


def _is_alone(function: Method, call: Call, one: str, other: str) -> bool:
    """Whether nothing in the function says that the exchange is meant."""
    for each in function.facts.calls:
        names = _names(each) if each is not call else []
        if one in names and other in names and names.index(other) < names.index(one):
            return False
    node = function.module.definitions_by_line.get((function.facts.at[0], function.name))
    both = {one, other}
    for part in ast.walk(node) if node is not None else ():
        if isinstance(part, ast.If | ast.IfExp | ast.While) and both <= _variables(part.test):
            return False
        if isinstance(part, ast.Assign) and any(both <= _variables(target) for target in part.targets):
            return False
    return True


def _variables(node: ast.AST) -> set[str]:
    return {n.id for n in ast.walk(node) if isinstance(n, ast.Name)}


INCORRECT = [
    """
class Layer:
    def create(self, name, use_first, use_second):
        self.kinds[name] = (use_first, use_second)

    def update(self, name, rank, shape):
        use_first = rank < shape[0]
        use_second = rank < shape[1]
        self.create(name, use_second, use_first)  # error: MP145
""",
    """
def loss(policy_logits, reference_logits, beta):
    return beta * (policy_logits - reference_logits)

class Trainer:
    def step(self, batch):
        policy_logits = self.policy(batch)
        reference_logits = self.reference(batch)
        return loss(reference_logits, policy_logits, self.beta)  # error: MP145
""",
]

CORRECT = [
    """
class Layer:
    def create(self, name, use_first, use_second):
        self.kinds[name] = (use_first, use_second)

    def update(self, name, use_first, use_second):
        self.create(name, use_first, use_second)
        self.create(name, use_second=use_first, use_first=use_second)
""",
    """
def distance(left, right):
    return left - right

def both(left, right):
    return distance(left, right) + distance(right, left)

def ordered(left, right):
    if left < right:
        return distance(right, left)
    return distance(left, right)

def reversed_distance(left, right):
    return distance(right, left)
""",
    """
class Grid:
    def resize(self, height, width):
        self.size = height, width

class Other:
    def resize(self, width, height):
        self.size = height, width

def fit(grid, width, height):
    grid.resize(width, height)
""",
]
