"""Dropout that a module applies in evaluation, too.

What it does
    Reports calls of a module of a network that drop elements by themselves (`F.dropout` without `training`, attention
    with `dropout_p`) with a share that the module keeps, in methods that never ask whether they train.

Why is this bad
    `model.eval()` switches modules such as `nn.Dropout` off, no function: what the model says in evaluation differs
    from call to call, log-probabilities of a rollout differ from those of training, and nothing says why.

References
    https://docs.pytorch.org/docs/stable/generated/torch.nn.functional.scaled_dot_product_attention.html
"""

from __future__ import annotations

from collections.abc import Iterator

from validator.definitions import ClassDef
from validator.finding import Finding
from validator.flow.queries.base import Place, Queries
from validator.flow.queries.outside_program import is_test
from validator.models import Row
from validator.project import Project
from validator.rule import Rule

RULE = Rule("MP598", "dropout-in-evaluation", "note", "0.5.0", tokens=("dropout",), solves=True)

_ASKING = frozenset({"training", "is_training", "train", "eval", "deterministic", "inference"})


def check_project(project: Project) -> Iterator[Finding]:
    queries = project.analysis(Queries)
    models = queries.flow.models
    rows = {name: row for name, row in models.calls.items() if row.drops is not None}
    for unit in queries.flow.mentions.calling(*(name.rpartition(".")[2] for name in rows)):
        cls = unit.method.cls if unit.method is not None else None
        if cls is None or is_test(unit.path) or not _ASKING.isdisjoint(unit.words) or not _is_module(queries, cls):
            continue
        for call in queries.calls_in(unit):
            row = next(
                (rows[name] for o in call.operand(0).val.of("ext") if (name := models.named(o[1])) in rows), None
            )
            if row is not None and _drops(call, row):
                yield RULE.finding(
                    unit.path,
                    call.at,
                    f"`{call.method}` in `{unit.qualname}` drops elements in evaluation, too: it is not told whether"
                    " the module trains",
                    help="pass `training=self.training`, or a share of 0.0 where the module does not train",
                    context=f"{unit.qualname}:{call.method}",
                )


def _is_module(queries: Queries, cls: ClassDef) -> bool:
    return any(queries.flow.models.named(base) == "torch.nn.Module" for base in cls.external_bases)


def _drops(call: Place, row: Row) -> bool:
    """Whether a call surely drops something, whatever the module does."""
    assert row.drops is not None
    if {"*", "**"} & set(call.value.data.names) or row.unless is not None and call.argument(*row.unless) is not None:
        return False
    share = call.argument(*row.drops)
    if share is None:
        return row.default_drop > 0
    root = share.root
    kept = (
        root.value.op == "attr" and call.unit.is_receiver(root.value.args[0]) and not root.result.sites.get(root.number)
    )
    if root.value.op != "const" and not kept:
        return False
    known = [o[2] for o in share.closed.each if o[0] == "const"]
    return not (known and all(number in (None, 0, 0.0) for number in known) and len(known) == len(share.closed.objs))


INCORRECT = [
    """
import torch
import torch.nn.functional as F

class Attention(torch.nn.Module):
    def __init__(self, dropout):
        super().__init__()
        self.dropout = dropout

    def forward(self, query, key, value):
        out = F.scaled_dot_product_attention(query, key, value, dropout_p=self.dropout)  # error: MP598
        return F.dropout(out, self.dropout)  # error: MP598
""",
]

CORRECT = [
    """
import torch
import torch.nn.functional as F

class Attention(torch.nn.Module):
    def __init__(self, dropout):
        super().__init__()
        self.dropout = dropout

    def forward(self, query, key, value):
        dropout = self.dropout if self.training else 0.0
        return F.scaled_dot_product_attention(query, key, value, dropout_p=dropout)
""",
    """
import torch
import torch.nn.functional as F

class Attention(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.dropout = 0.0

    def forward(self, query, key, value, dropout):
        out = F.scaled_dot_product_attention(query, key, value, dropout_p=self.dropout)
        out = F.scaled_dot_product_attention(out, key, value, dropout_p=dropout)
        return F.scaled_dot_product_attention(out, key, value)

class Noise:
    def draw(self, values):
        return F.dropout(values, 0.1)
""",
]
