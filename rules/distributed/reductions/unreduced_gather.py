"""A gather of tensors whose length each rank chooses for itself.

What it does
    Reports `gather`, `gather_for_metrics` or `all_gather` of a tensor that spans the sequence (logits of a causal
    model, `attention_mask`, `input_ids`, `labels` of the batch) and that nothing has reduced or padded to a common
    length in the function. Logits are a warning: those of a classifier do not span the sequence.

Why is this bad
    Every rank pads its own batch to its own longest sample. Tensors of different shapes in one all-gather hang on
    NCCL or return shifted data; gathering full logits also costs vocabulary × sequence memory on every rank.

References
    https://huggingface.co/docs/accelerate/concept_guides/deferring_execution
    https://docs.pytorch.org/docs/stable/distributed.html#torch.distributed.all_gather
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from validator.finding import Finding, Severity
from validator.flow.program.unit import Unit
from validator.flow.queries.base import Place, Queries
from validator.flow.queries.outside_program import is_aside
from validator.project import Project
from validator.rule import Rule

RULE = Rule("MP513", "unreduced-gather", "error", "0.1.0", tokens=("gather",))

_BATCHES = frozenset({"inputs", "batch", "model_inputs", "micro_batch"})
_SEQUENCE = frozenset({"attention_mask", "input_ids", "labels", "position_ids", "loss_mask", "completion_mask"})
_LOGITS = re.compile(r"^(\w+_)?(chosen|rejected|policy|reference|lm|token|student|teacher)_logits$|^logits$")
_PADDING = re.compile(r"pad_across_processes|pad_to_length|pad_to_max|pad_to_same|all_gather_variable|pad$")
_REDUCING = frozenset({
    "mean", "sum", "nansum", "nanmean", "max", "min", "argmax", "item", "size", "numel", "masked_mean", "shape",
    "squeeze", "len",
})  # fmt: skip


def check_project(project: Project) -> Iterator[Finding]:
    queries = project.analysis(Queries)
    for call in queries.named("gather_for_metrics", "gather"):
        accelerated = call.receiver is not None and call.receiver.hint == "accelerator"
        given = call.argument("tensor", 0) or call.argument("input_data", 0) if accelerated else None
        if given is None or is_aside(call.unit.path) or _pads(queries, call.unit):
            continue
        if _is_column(given):
            yield _report(call, given, "error")
        elif _are_logits(given) and not _is_reduced(given) and not _is_score(given):
            yield _report(call, given, "warning")


def _is_column(given: Place) -> bool:
    """Whether a value is a column of the batch that spans the sequence."""
    given = given.origin
    if given.value.op != "item":
        return False
    return given.operand(0).hint in _BATCHES and given.operand(1).val.constant() in _SEQUENCE


def _are_logits(given: Place) -> bool:
    """Whether a value is called logits; those of a classifier have one row for each sample, whatever its length."""
    given = given.origin
    if given.value.op == "attr":
        return bool(_LOGITS.match(str(given.value.data)))
    return any(_LOGITS.match(name) for name, held in given.unit.code.definitions.items() if given.number in held)


def _is_score(given: Place) -> bool:
    """Whether the function takes the same logits for one number a sample: it drops their last dimension."""
    given = given.origin
    numbers = (n for n, value in enumerate(given.unit.code.values) if value.op == "attr")
    same = (each for each in (given.value_at(n) for n in numbers) if each.key == given.key)
    return any(user.value.op == "attr" and user.value.data == "squeeze" for each in same for user in each.users)


def _pads(queries: Queries, unit: Unit) -> bool:
    return any(_PADDING.search(call.method) for call in queries.calls_in(unit))


def _is_reduced(given: Place) -> bool:
    """Whether a reduction lies on the way to a value."""
    return any(
        each.value.op == "attr" and each.value.data in _REDUCING
        or each.value.op == "name" and each.unit.known_as(each.number) in _REDUCING
        for each in given.sources
    )  # fmt: skip


def _report(call: Place, given: Place, severity: Severity) -> Finding:
    name, where = given.text, f"`{call.unit.qualname}`"
    return RULE.finding(
        call.unit.path,
        call.at,
        f"`{call.method}({name})` in {where} gathers whole sequences, whose length differs between ranks",
        help=f"reduce on each rank first (`{call.method}({name}.sum())`, `.mean()`), or pad with"
        " `accelerator.pad_across_processes`",
        context=f"{call.unit.qualname}:{name}",
        severity=severity,
    )


INCORRECT = [
    """
import accelerate

class Trainer:
    def compute_loss(self, model, inputs):
        tokens = self.accelerator.gather_for_metrics(inputs["attention_mask"]).sum().item()  # error: MP513
        return tokens
""",
    """
import accelerate

class Trainer:
    def log(self, batch):
        chosen_logits, loss = self.forward(batch)
        return self.accelerator.gather_for_metrics(chosen_logits).detach().mean()  # error: MP513
""",
    """
import accelerate

class Trainer:
    def evaluate(self, model, batch):
        logits = model(**batch).logits
        ids = batch["input_ids"]
        return self.accelerator.gather(logits), self.accelerator.gather(ids)  # error: MP513, MP513
""",
]

CORRECT = [
    """
import accelerate

class Trainer:
    def compute_loss(self, model, inputs):
        outputs = model(**inputs)
        chosen, rejected = outputs.logits.squeeze(-1).chunk(2)
        rewards = self.accelerator.gather(outputs.logits)
        return (rejected - chosen).mean(), rewards.max()
""",
    """
import accelerate

class Trainer:
    def compute_loss(self, model, inputs):
        return self.accelerator.gather_for_metrics(inputs["attention_mask"].sum()).sum().item()
""",
    """
import accelerate

class Trainer:
    def log(self, batch):
        labels = self.accelerator.pad_across_processes(batch["labels"], dim=1)
        return self.accelerator.gather_for_metrics(batch["labels"])
""",
    """
import accelerate

class Trainer:
    def log(self, batch):
        chosen_logps, loss = self.forward(batch)
        chosen_logits = self.logits(batch).mean()
        return self.accelerator.gather_for_metrics(chosen_logps), self.accelerator.gather(chosen_logits)
""",
]
