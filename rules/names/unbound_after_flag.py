"""A name that is bound only while a flag holds, and read whether it holds or not.

What it does
    Reports a local name that `if flag:` binds and that is read after it unconditionally, where the function
    itself sets `flag = False` on a way that does not bind the name. Only this clear case: other conditions may
    be known to hold by whoever wrote them.

Why is this bad
    UnboundLocalError on the rare path: the first step whose gradients overflow ends the run that the flag was
    meant to save.

References
    https://docs.python.org/3/library/exceptions.html#UnboundLocalError
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from validator.analysis.assignment import binds, block_binds, blocks_around, reads
from validator.facts.control import terminates
from validator.facts.model import Function
from validator.finding import Finding, Related
from validator.rule import Rule
from validator.source import SourceFile

RULE = Rule("MP206", "unbound-after-flag", "error", stable_since="0.1.0", tokens=("False",))


def check_file(source: SourceFile) -> Iterator[Finding]:
    for function in source.facts.functions:
        candidates = set(_candidates(function))
        if not candidates:
            continue
        node = _node(source, function)
        if node is None:
            continue
        for flag, name in sorted(candidates):
            finding = _check(source, function, node, flag, name)
            if finding is not None:
                yield finding


def _candidates(function: Function) -> Iterator[tuple[str, str]]:
    """The (flag, name) pairs that facts alone do not rule out."""
    flags = {a.target for a in function.assigns if a.kind == "const" and a.value == "False" and a.target.isidentifier()}
    if not flags or function.qualname == "<module>":
        return
    always = {a.target for a in function.assigns if not a.guards} | {p.name for p in function.params}
    for row in function.assigns:
        if row.target.isidentifier() and row.target not in always and len(row.guards) == 1:
            guard = row.guards[0]
            if guard.kind == "if" and not guard.negated and guard.text in flags:
                yield guard.text, row.target


def _node(source: SourceFile, function: Function) -> ast.FunctionDef | ast.AsyncFunctionDef | None:
    for node in ast.walk(source.tree):
        if (
            isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
            and node.lineno == function.at[0]
            and node.name == function.name
        ):
            return node
    return None


def _check(
    source: SourceFile, function: Function, node: ast.FunctionDef | ast.AsyncFunctionDef, flag: str, name: str
) -> Finding | None:
    body = node.body
    if any(isinstance(n, ast.Global | ast.Nonlocal) and name in n.names for n in ast.walk(node)):
        return None
    at = next((i for i, s in enumerate(body) if _tests(s, flag) and block_binds(s.body, name)), None)  # type: ignore[attr-defined]
    if at is None or block_binds(body[:at], name) or binds(body[at], name):
        return None
    lowered = _lowered(body[:at], flag, name)
    if lowered is None:
        return None
    for statement in body[at + 1 :]:
        place = reads(statement, name)
        if place is not None:
            line, column = place.lineno, place.col_offset + 1
            return RULE.finding(
                source.path,
                (line, column, line, column + len(name)),
                f"`{name}` may be unbound here: `{function.qualname}` binds it only while `{flag}` holds, "
                f"and sets `{flag} = False` itself",
                help=f"bind `{name}` before the branches, or return before it is read",
                related=[
                    Related(source.path, lowered.lineno, f"on this way `{name}` is not bound"),
                    Related(source.path, body[at].lineno, f"`{name}` is bound below this test only"),
                ],
                context=f"{function.qualname}:{name}",
            )
        if (
            binds(statement, name)
            or isinstance(statement, ast.If)
            and terminates(statement.body)
            and flag in ast.dump(statement.test)
        ):
            return None
        if terminates([statement]):
            return None
    return None


def _tests(node: ast.stmt, flag: str) -> bool:
    return isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == flag


def _lowered(body: list[ast.stmt], flag: str, name: str) -> ast.stmt | None:
    """A statement `flag = False` that control passes without binding the name."""
    for node in ast.walk(ast.Module(body, [])):
        if not isinstance(node, ast.Assign) or not _lowers(node, flag):
            continue
        around = blocks_around(body, node)
        if around is None or len(around) == 1:
            continue  # at the top it is only the flag's beginning
        if not any(block_binds(b, name) or terminates(b) for b in around):
            return node
    return None


def _lowers(node: ast.Assign, flag: str) -> bool:
    to_false = isinstance(node.value, ast.Constant) and node.value.value is False
    return to_false and any(isinstance(t, ast.Name) and t.id == flag for t in node.targets)


INCORRECT = (
    """import torch.distributed as dist


def step(optimizer, check):
    valid = True
    if check:
        overflow = optimizer.prepare()
        if overflow:
            valid = False
        else:
            norm = optimizer.norm()
    if valid:
        norm = optimizer.step()
    optimizer.zero_grad()
    return {}, norm  # error: MP206
""",
)

CORRECT = (
    """import torch.distributed as dist


def step(optimizer, overflow):
    valid = True
    norm = None
    if overflow:
        valid = False
    if valid:
        norm = optimizer.step()
    return norm
""",
    """import torch.distributed as dist


def step(optimizer, overflow):
    valid = True
    if overflow:
        valid = False
        norm = 0.0
    if valid:
        norm = optimizer.step()
    return norm
""",
    """import torch.distributed as dist


def step(optimizer, overflow):
    valid = True
    if overflow:
        valid = False
    if valid:
        norm = optimizer.step()
    if not valid:
        return None
    return norm
""",
)
