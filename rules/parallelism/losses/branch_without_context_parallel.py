"""A loss that is scaled for context parallelism in one branch and left as it is in the other.

What it does
    Reports an `if` without `else` that multiplies a loss by a number of ranks which counts those of context parallelism
    (`get_data_parallel_world_size(with_context_parallel=True)`, a ring size), where the function returns the loss and
    scales it for context parallelism nowhere else.

Why is this bad
    The ranks of context parallelism hold parts of each sequence, and the framework divides their gradients by their
    number. The way that the condition leaves out is not corrected for it: with that option the gradients are too small
    by the size of context parallelism.

References
    https://docs.nvidia.com/megatron-core/developer-guide/latest/api-guide/core/core.parallel_state.html
    https://github.com/THUDM/slime/pull/990
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from validator.analysis.bindings import own_nodes
from validator.facts.text import path_of
from validator.finding import Finding
from validator.flow.queries.outside_program import is_aside
from validator.project import Method, Project
from validator.rule import Rule

RULE = Rule("MP415", "branch-without-context-parallel", "warning", "0.1.0", tokens=("context_parallel",))

_CONTEXT = re.compile(
    r"with_context_parallel=True|get_context_parallel_world_size|\b(cp|context_parallel|ring_attn)_size"
)
_OPTION = re.compile(r"^(not )?[\w.]+$")
_LOSS = re.compile(r"(^|_)loss$")


def check_project(project: Project) -> Iterator[Finding]:
    for function in project.functions():
        if is_aside(function.path) or not any("loss" in row.value for row in function.facts.returns):
            continue
        if not any(_speaks_of_context(call.method, call.args) for call in function.facts.calls):
            continue
        for node in own_nodes(function.node) if function.node is not None else ():
            name = _scaled_in(node)
            if name and isinstance(node, ast.If) and not _scaled_elsewhere(function, name, node):
                yield _report(function, node, name)


def _speaks_of_context(method: str, args: tuple[object, ...]) -> bool:
    return "context_parallel" in method or any(getattr(a, "keyword", "") == "with_context_parallel" for a in args)


def _scaled_in(node: ast.AST) -> str:
    """The loss that the only branch of a test on an option multiplies by ranks of context parallelism."""
    if not isinstance(node, ast.If) or node.orelse or not _OPTION.match(ast.unparse(node.test)):
        return ""
    if _CONTEXT.search(ast.unparse(node.test)):
        return ""
    return next((name for statement in node.body if (name := _rescaled(statement))), "")


def _rescaled(statement: ast.stmt) -> str:
    """The name in `loss = loss * … * cp_size` and `loss *= cp_size`."""
    if isinstance(statement, ast.Assign) and len(statement.targets) == 1:
        name, value = path_of(statement.targets[0]), statement.value
        own = any(isinstance(n, ast.Name) and n.id == name for n in ast.walk(value))
    elif isinstance(statement, ast.AugAssign) and isinstance(statement.op, ast.Mult | ast.Div):
        name, value, own = path_of(statement.target), statement.value, True
    else:
        return ""
    return name if own and _LOSS.search(name) and _CONTEXT.search(ast.unparse(value)) else ""


def _scaled_elsewhere(function: Method, name: str, branch: ast.If) -> bool:
    inside = {id(n) for n in ast.walk(branch)}
    rows = (n for n in own_nodes(function.node) if isinstance(n, ast.stmt)) if function.node is not None else ()
    return any(id(n) not in inside and _rescaled(n) == name for n in rows)


def _factor(branch: ast.If) -> ast.AST:
    """The factor of context parallelism that only one branch has: the shortest expression that names it."""
    found = [n for s in branch.body for n in ast.walk(s) if isinstance(n, ast.expr) and _CONTEXT.search(ast.unparse(n))]
    return min(found, key=lambda n: len(ast.unparse(n)), default=branch.test)


def _report(function: Method, node: ast.If, name: str) -> Finding:
    test = ast.unparse(node.test)
    return RULE.finding(
        function.path,
        function.module.source_text.at(_factor(node)),
        f"`{function.qualname}` scales `{name}` by the ranks of context parallelism if `{test}`, and not otherwise",
        help="scale it in the other branch too: by the size of context parallelism where the data-parallel average is"
        " not undone",
        context=f"{function.qualname}:{test}",
    )


INCORRECT = [
    """
from megatron.core import mpu

def loss_function(args, batch, num_microbatches):
    loss, log = policy_loss(args, batch)
    if not args.calculate_per_token_loss:
        loss = (
            loss
            * num_microbatches
            / args.global_batch_size
            * mpu.get_data_parallel_world_size(with_context_parallel=True)  # error: MP415
        )
    return loss, log
""",
]

CORRECT = [
    """
from megatron.core import mpu

def loss_function(args, batch, num_microbatches):
    loss, log = policy_loss(args, batch)
    if not args.calculate_per_token_loss:
        loss = loss * num_microbatches / args.batch * mpu.get_data_parallel_world_size(with_context_parallel=True)
    else:
        loss = loss * mpu.get_context_parallel_world_size()
    return loss, log
""",
    """
from megatron.core import mpu

def loss_function(args, batch):
    loss, log = policy_loss(args, batch)
    if args.cp_size > 1:
        loss = loss * mpu.get_context_parallel_world_size()
    return loss, log
""",
]
