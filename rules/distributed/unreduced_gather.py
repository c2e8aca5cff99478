"""A gather of tensors whose length each rank chooses for itself.

What it does
    Reports `gather`, `gather_for_metrics` or `all_gather` of a tensor that spans the sequence (logits of a causal
    model, `attention_mask`, `input_ids`, `labels` of the batch) and that nothing has reduced or padded to a common
    length in the function.

Why is this bad
    Every rank pads its own batch to its own longest sample. Tensors of different shapes in one all-gather hang on
    NCCL or return shifted data; gathering full logits also costs vocabulary × sequence memory on every rank.

References
    https://huggingface.co/docs/accelerate/concept_guides/deferring_execution
    https://docs.pytorch.org/docs/stable/distributed.html#torch.distributed.all_gather
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from validator.analysis.bodies import Bodies
from validator.analysis.places import is_aside
from validator.facts.model import Call
from validator.facts.text import path_of
from validator.finding import Finding
from validator.project import Method, Project
from validator.rule import Rule

RULE = Rule("MP513", "unreduced-gather", "error", "0.1.0", tokens=("gather",))

_METHODS = frozenset({"gather_for_metrics", "gather"})
_BATCHES = frozenset({"inputs", "batch", "model_inputs", "micro_batch"})
_SEQUENCE = frozenset({"attention_mask", "input_ids", "labels", "position_ids", "loss_mask", "completion_mask"})
_LOGITS = re.compile(r"^(\w+_)?(chosen|rejected|policy|reference|lm|token|student|teacher)_logits$|^logits$")
_PADDED = re.compile(r"pad_across_processes|pad_to_length|pad_to_max|pad_to_same|all_gather_variable|pad\(")
_REDUCING = frozenset({
    "mean", "sum", "nansum", "nanmean", "max", "min", "argmax", "item", "size", "numel", "masked_mean", "shape",
    "squeeze", "len",
})  # fmt: skip


def check_project(project: Project) -> Iterator[Finding]:
    bodies = project.analysis(Bodies)
    for function, call in project.calls(*_METHODS):
        accelerated = call.receiver.rpartition(".")[2] == "accelerator" and not is_aside(function.path)
        if accelerated and call.args:
            name = _sequence(project, bodies, function, call)
            if name:
                yield _report(function, call, name)


def _sequence(project: Project, bodies: Bodies, function: Method, call: Call) -> str:
    """The source of what is gathered, if it spans the sequence and nothing was done about its length."""
    node = bodies.node(function)
    if node is None:
        return ""
    gathered = next(
        (n for n in ast.walk(node) if isinstance(n, ast.Call) and function.module.source_text.at(n) == call.at), None
    )
    if gathered is None or not gathered.args:
        return ""
    value = gathered.args[0]
    text = ast.unparse(value)
    if isinstance(value, ast.Subscript) and isinstance(value.slice, ast.Constant):
        spans = path_of(value.value) in _BATCHES and value.slice.value in _SEQUENCE
    else:
        spans = isinstance(value, ast.Name) and bool(_LOGITS.match(value.id))
    if not spans or any(_PADDED.search(c.target + "(") for c in function.facts.calls):
        return ""
    return "" if isinstance(value, ast.Name) and _reduced(node, value.id) else text


def _reduced(node: ast.AST, name: str) -> bool:
    """Whether a name is bound to something that a reduction gives."""
    for each in ast.walk(node):
        targets = each.targets if isinstance(each, ast.Assign) else []
        if any(isinstance(t, ast.Name) and t.id == name for t in targets):
            for inner in ast.walk(each.value):  # type: ignore[attr-defined]
                if isinstance(inner, ast.Attribute) and inner.attr in _REDUCING:
                    return True
                if isinstance(inner, ast.Call) and path_of(inner.func).rpartition(".")[2] in _REDUCING:
                    return True
    return False


def _report(function: Method, call: Call, name: str) -> Finding:
    return RULE.finding(
        function.path,
        call.at,
        f"`{call.method}({name})` in `{function.qualname}` gathers whole sequences, whose length differs between ranks",
        help=f"reduce on each rank first (`{call.method}({name}.sum())`, `.mean()`), or pad with"
        " `accelerator.pad_across_processes`",
        context=f"{function.qualname}:{name}",
    )


INCORRECT = [
    """
class Trainer:
    def compute_loss(self, model, inputs):
        tokens = self.accelerator.gather_for_metrics(inputs["attention_mask"]).sum().item()  # error: MP513
        return tokens
""",
    """
class Trainer:
    def log(self, batch):
        chosen_logits, loss = self.forward(batch)
        return self.accelerator.gather_for_metrics(chosen_logits).detach().mean()  # error: MP513
""",
]

CORRECT = [
    """
class Trainer:
    def compute_loss(self, model, inputs):
        return self.accelerator.gather_for_metrics(inputs["attention_mask"].sum()).sum().item()
""",
    """
class Trainer:
    def log(self, batch):
        labels = self.accelerator.pad_across_processes(batch["labels"], dim=1)
        return self.accelerator.gather_for_metrics(batch["labels"])
""",
    """
class Trainer:
    def log(self, batch):
        chosen_logps, loss = self.forward(batch)
        chosen_logits = self.logits(batch).mean()
        return self.accelerator.gather_for_metrics(chosen_logps), self.accelerator.gather(chosen_logits)
""",
]
