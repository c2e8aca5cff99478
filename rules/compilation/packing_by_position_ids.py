"""A compiled model whose packed samples FlashAttention must find in the position ids.

What it does
    Reports a call of a model with `position_ids` and no attention mask, without `cu_seq_lens_q` or `cu_seqlens`, where
    the model was loaded with `attn_implementation="flash_attention_2"`, by a helper too, and compiled: in the same
    function or class, or before it was given to them.

Why is this bad
    transformers then derives the boundaries of the samples from the position ids in every layer: each time the CPU
    waits for the GPU, and the graph breaks. With `cu_seq_lens_q/k` and integer `max_length_q/k` it compiles whole.

References
    https://huggingface.co/docs/transformers/attention_interface
"""

from __future__ import annotations

from collections.abc import Iterator

from validator.analysis.aliases import Aliases
from validator.analysis.places import within
from validator.facts.model import Call
from validator.finding import Finding, Related
from validator.flow.aside import is_aside
from validator.flow.objects import Objects
from validator.project import Method, Project
from validator.rule import Rule

RULE = Rule("MP601", "packing-by-position-ids", "warning", "0.1.0", tokens=("position_ids",))

_COMPILERS = frozenset({"torch.compile"})


def check_project(project: Project) -> Iterator[Finding]:
    for function in project.functions():
        if is_aside(function.path):
            continue
        for call in function.facts.calls:
            if not _packed(call):
                continue
            origins = _origins(project, function, call.target)
            compiled = _compiled(project, origins)
            if compiled is not None and _flash(project, origins):
                yield _report(function, call, *compiled)


def _report(function: Method, call: Call, compiling: Method, compiled: Call) -> Finding:
    return RULE.finding(
        function.path,
        call.at,
        f"`{call.target}` in `{function.qualname}` is compiled, uses FlashAttention and gets its"
        " packed samples by `position_ids` only",
        help="pass `cu_seq_lens_q`, `cu_seq_lens_k` and integer `max_length_q`, `max_length_k`,"
        " computed once per batch",
        related=[Related(compiling.path, compiled.at[0], "the model is compiled here")],
        context=f"{function.qualname}:{call.target}",
    )


def _origins(project: Project, function: Method, path: str) -> list[tuple[Method, str]]:
    """The functions that may know the model, each with its name there; all methods of a class know its attributes."""
    found: dict[tuple[Method, str], None] = {}
    for each, name in project.analysis(Aliases).of(function, path):
        found[each, name] = None
        if each.cls is not None and each.own_object and name.startswith(f"{each.own_object}."):
            found |= {(method, name): None for method in each.cls.every_method()}
    return list(found)


def _packed(call: Call) -> bool:
    mask = call.keyword("attention_mask")
    given = {a.keyword for a in call.args}
    return (
        "position_ids" in given
        and (mask is None or mask.value == "None")
        and "**" not in given
        and not any("cu_seq" in (k or "") for k in given)
    )


def _compiled(project: Project, origins: list[tuple[Method, str]]) -> tuple[Method, Call] | None:
    for function, name in origins:
        for call in function.facts.calls:
            if call.target == f"{name}.compile":
                return function, call
            if project.dotted(function, call.target) in _COMPILERS and any(
                row.target == name and row.value == call.target and row.at[0] == call.at[0]
                for row in function.facts.assigns
            ):
                return function, call
    return None


def _flash(project: Project, origins: list[tuple[Method, str]]) -> bool:
    """Whether the model is loaded with FlashAttention: where one of its names gets its value, or in a helper there."""
    for function, name in origins:
        if function.cls is not None and any(map(_asks_for_flash, function.facts.calls)):
            return True
        for row in function.facts.assigns:
            if row.target == name and row.kind == "call":
                calls = [c for c in function.facts.calls if c.target == row.value and within(c.at, row.at)]
                helpers = [each for c in calls for each in project.analysis(Objects).targets(function, c)]
                if any(map(_asks_for_flash, [*calls, *(c for each in helpers for c in each.facts.calls)])):
                    return True
    return False


def _asks_for_flash(call: Call) -> bool:
    argument = call.keyword("attn_implementation")
    return argument is not None and "flash_attention_2" in argument.value


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
    """
from transformers import AutoModelForCausalLM

def load_model(path):
    return AutoModelForCausalLM.from_pretrained(path, attn_implementation="flash_attention_2")

class Trainer:
    def __init__(self, actor, reference):
        self.actor = actor
        self.reference = reference

    def loss(self, ids, position_ids):
        base = self.reference(ids, position_ids=position_ids)
        return self.actor(ids, position_ids=position_ids, use_cache=False) - base  # error: MP601

def main(path, strategy):
    actor = load_model(path)
    actor.compile()
    actor, optimizer = strategy.prepare(actor)
    reference = load_model(path)
    return Trainer(actor, reference)
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
    """
from transformers import AutoModelForCausalLM

def load_model(path, kind):
    return AutoModelForCausalLM.from_pretrained(path, attn_implementation=kind)

class Trainer:
    def __init__(self, actor):
        self.actor = actor

    def loss(self, ids, position_ids, mask):
        self.actor(ids, position_ids=position_ids)
        return self.actor(ids, position_ids=position_ids, attention_mask=mask)

def main(path):
    actor = load_model(path, "sdpa")
    actor.compile()
    return Trainer(actor)
""",
]
