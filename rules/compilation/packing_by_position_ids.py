"""A compiled model whose packed samples FlashAttention must find in the position ids.

What it does
    Reports a function or class that loads a model with `attn_implementation="flash_attention_2"`, compiles it and
    calls it with `position_ids` and no attention mask, without `cu_seq_lens_q` or `cu_seqlens`.

Why is this bad
    transformers then derives the boundaries of the samples from the position ids in every layer: each time the CPU
    waits for the GPU, and the graph breaks. With `cu_seq_lens_q/k` and integer `max_length_q/k` it compiles whole.

References
    https://huggingface.co/docs/transformers/attention_interface
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from validator.analysis.places import is_aside
from validator.facts.model import Call
from validator.finding import Finding, Related
from validator.project import Method, Project
from validator.rule import Rule

RULE = Rule("MP601", "packing-by-position-ids", "warning", "0.1.0", tokens=("position_ids",))

_MODEL = re.compile(r"^(self\.)?(\w+_)?(model|module)$")


def check_project(project: Project) -> Iterator[Finding]:
    for function in project.functions():
        if is_aside(function.path):
            continue
        for call in function.facts.calls:
            if not _MODEL.match(call.target) or not _packed(call):
                continue
            inside = list(function.cls.every_method()) if function.cls is not None else [function]
            compiled = _compiled(project, inside, call.target)
            if compiled is not None and _flash(inside):
                yield RULE.finding(
                    function.path,
                    call.at,
                    f"`{call.target}` in `{function.qualname}` is compiled, uses FlashAttention and gets its"
                    " packed samples by `position_ids` only",
                    help="pass `cu_seq_lens_q`, `cu_seq_lens_k` and integer `max_length_q`, `max_length_k`,"
                    " computed once per batch",
                    related=[Related(function.path, compiled.at[0], "the model is compiled here")],
                    context=f"{function.qualname}:{call.target}",
                )


def _packed(call: Call) -> bool:
    mask = call.keyword("attention_mask")
    given = {a.keyword for a in call.args}
    return (
        "position_ids" in given
        and (mask is None or mask.value == "None")
        and "**" not in given
        and not any("cu_seq" in (k or "") for k in given)
    )


def _compiled(project: Project, inside: list[Method], model: str) -> Call | None:
    for method in inside:
        for call in method.facts.calls:
            if call.target == f"{model}.compile":
                return call
            if project.dotted(method, call.target) == "torch.compile" and any(
                row.target == model and row.value == call.target and row.at[0] == call.at[0]
                for row in method.facts.assigns
            ):
                return call
    return None


def _flash(inside: list[Method]) -> bool:
    arguments = (c.keyword("attn_implementation") for m in inside for c in m.facts.calls)
    return any(a is not None and "flash_attention_2" in a.value for a in arguments)


INCORRECT = [
    """
import torch
from transformers import AutoModelForCausalLM

class Actor:
    def __init__(self, path):
        self.model = AutoModelForCausalLM.from_pretrained(path, attn_implementation="flash_attention_2")
        self.model = torch.compile(self.model)

    def forward(self, ids, position_ids):
        return self.model(ids, position_ids=position_ids)  # error: MP601
""",
]

CORRECT = [
    """
import torch
from transformers import AutoModelForCausalLM

class Actor:
    def __init__(self, path):
        self.model = AutoModelForCausalLM.from_pretrained(path, attn_implementation="flash_attention_2")
        self.model = torch.compile(self.model)

    def forward(self, ids, position_ids, ends, longest):
        return self.model(
            ids, position_ids=position_ids, cu_seq_lens_q=ends, cu_seq_lens_k=ends,
            max_length_q=longest, max_length_k=longest,
        )
""",
    """
import torch
from transformers import AutoModelForCausalLM

class Actor:
    def __init__(self, path):
        self.model = AutoModelForCausalLM.from_pretrained(path, attn_implementation="flash_attention_2")

    def forward(self, ids, position_ids):
        return self.model(ids, position_ids=position_ids)
""",
]
