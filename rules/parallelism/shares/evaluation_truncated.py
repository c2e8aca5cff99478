"""Evaluation data cut to a multiple of the number of ranks.

What it does
    Reports, in a loop over an evaluation or validation loader, a batch that is replaced by the result of a project
    function which cuts a sequence to a multiple of some size (`x[: len(x) // n * n]`).

Why is this bad
    Training may lose a few samples of each epoch; an evaluation that loses them measures something else, and one whose
    batches are smaller than the number of ranks is left with nothing and reports it as a result.

References
    https://github.com/NovaSky-AI/SkyRL/pull/62
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from validator.analysis.bindings import own_nodes
from validator.analysis.places import text_of
from validator.facts.text import path_of
from validator.finding import Finding, Related
from validator.flow.objects import Objects
from validator.flow.queries.outside_program import is_aside
from validator.project import Method, Project
from validator.rule import Rule

RULE = Rule("MP417", "evaluation-truncated", "warning", "0.1.0", tokens=("eval", "val"))

_EVALUATION = re.compile(r"(^|_)(eval|evaluation|val|valid|validation|test)_(\w+_)?(data)?(loader|set)s?$")


def check_project(project: Project) -> Iterator[Finding]:
    cutting = {function for function in project.functions() if _truncates(function)}
    for function in project.functions() if cutting else ():
        if is_aside(function.path) or not any(_evaluates(ref.path) for ref in function.facts.refs):
            continue
        for node in own_nodes(function.node) if function.node is not None else ():
            if not isinstance(node, ast.For) or not _evaluates(ast.unparse(node.iter)):
                continue
            names = {n.id for n in ast.walk(node.target) if isinstance(n, ast.Name)}
            for statement in node.body:
                cut = _cut(project, function, statement, names, cutting)
                if cut is not None:
                    yield _report(function, statement, _loader(node.iter), cut)


def _evaluates(text: str) -> bool:
    return any(_EVALUATION.search(word) for word in re.findall(r"\w+", text))


def _loader(node: ast.expr) -> str:
    """The loader in `enumerate(self.eval_dataloader)`."""
    paths = (path_of(n) for n in ast.walk(node) if isinstance(n, ast.Name | ast.Attribute))
    return next((path for path in paths if _evaluates(path)), ast.unparse(node))


def _cut(
    project: Project, function: Method, statement: ast.stmt, names: set[str], cutting: set[Method]
) -> Method | None:
    """The function that cuts a batch of the loop and whose result replaces it."""
    if not isinstance(statement, ast.Assign) or not isinstance(statement.value, ast.Call):
        return None
    given = {n.id for a in statement.value.args for n in ast.walk(a) if isinstance(n, ast.Name)}
    targets = {path_of(t) for t in statement.targets}
    if not (given & names) or not targets & given:
        return None
    reached = project.analysis(Objects).run_at(function.module, function.module.source_text.at(statement.value))
    return next((m for m in reached if m in cutting), None)


def _truncates(function: Method) -> bool:
    """Whether a function returns `x[: len(x) // n * n]`."""
    sliced = any(row.value.endswith("[]") for row in function.facts.returns) and "//" in text_of(function)
    for node in ast.walk(function.node) if sliced and function.node is not None else ():
        if isinstance(node, ast.Return) and isinstance(node.value, ast.Subscript):
            part = node.value.slice
            if isinstance(part, ast.Slice) and part.lower is None and isinstance(part.upper, ast.BinOp):
                sequence = ast.unparse(node.value.value)
                text = ast.unparse(part.upper)
                if isinstance(part.upper.op, ast.Mult) and "//" in text and f"len({sequence})" in text:
                    return True
    return False


def _report(function: Method, node: ast.stmt, loader: str, cut: Method) -> Finding:
    return RULE.finding(
        function.path,
        function.module.source_text.at(node),
        f"`{function.qualname}` cuts each batch of `{loader}` to a multiple with `{cut.name}`, which leaves nothing"
        " of a small one",
        help="evaluate all samples: pad the last batch and leave the padding out of the result",
        related=[Related(cut.path, cut.facts.name_at[0], f"`{cut.name}` cuts what it is given")],
        context=f"{function.qualname}:{cut.name}",
    )


INCORRECT = [
    """
import torch.distributed as dist

class Trainer:
    def evaluate(self):
        for _, prompts in enumerate(self.eval_dataloader):
            prompts = self._without_tail(prompts)  # error: MP417
            self.generate(prompts)

    def _without_tail(self, entries):
        size = dist.get_world_size()
        return entries[: (len(entries) // size) * size]
""",
]

CORRECT = [
    """
import torch.distributed as dist

class Trainer:
    def evaluate(self):
        for _, prompts in enumerate(self.eval_dataloader):
            self.generate(prompts)

    def train(self):
        for _, prompts in enumerate(self.train_dataloader):
            prompts = self._without_tail(prompts)
            self.generate(prompts)

    def _without_tail(self, entries):
        size = dist.get_world_size()
        return entries[: (len(entries) // size) * size]
""",
    """
import torch.distributed as dist

class Trainer:
    def evaluate(self):
        for prompts in self.eval_dataloader:
            prompts = self._padded(prompts)
            self.generate(prompts)

    def _padded(self, entries):
        return entries + [entries[-1]] * (-len(entries) % dist.get_world_size())
""",
]
