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

from validator.facts.model import Call
from validator.finding import Finding, Related
from validator.flow.objects import Objects
from validator.flow.queries.base import Place
from validator.flow.queries.origins import trail
from validator.flow.queries.outside_program import is_aside
from validator.project import Method, Project
from validator.rule import Rule

RULE = Rule("MP601", "packing-by-position-ids", "warning", "0.1.0", tokens=("position_ids",))

_COMPILERS = frozenset({"torch.compile"})


def check_project(project: Project) -> Iterator[Finding]:
    objects = project.analysis(Objects)
    for function in project.functions():
        if is_aside(function.path):
            continue
        for call in function.facts.calls:
            place = objects.call_at(function.module, call.at) if _packed(call) else None
            before = trail(place.operand(0), _COMPILERS) if place is not None else []
            compiled = next((each for known in before for each in _compiling(known)), None)
            if compiled is not None and any(_is_flash(objects, each) for each in before):
                yield _report(function, call, compiled)


def _report(function: Method, call: Call, compiled: Place) -> Finding:
    return RULE.finding(
        function.path,
        call.at,
        f"`{call.target}` in `{function.qualname}` is compiled, uses FlashAttention and gets its"
        " packed samples by `position_ids` only",
        help="pass `cu_seq_lens_q`, `cu_seq_lens_k` and integer `max_length_q`, `max_length_k`,"
        " computed once per batch",
        related=[Related(compiled.unit.path, compiled.at[0], "the model is compiled here")],
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


def _compiling(place: Place) -> Iterator[Place]:
    """The calls that compile a model: `torch.compile(model)`, `model.compile()`."""
    if place.value.op == "call" and any(o[0] == "ext" and o[1] in _COMPILERS for o in place.operand(0).val.each):
        yield place
    copies = (n for n in range(len(place.unit.code.values)) if place.unit.root(n) == place.number)
    for user in (user for n in copies for user in place.value_at(n).users):
        if user.value.op == "attr" and user.value.data == "compile":
            yield from (each for each in user.users if each.value.op == "call" and each.value.args[0] == user.number)


def _is_flash(objects: Objects, place: Place) -> bool:
    """Whether a model is loaded with FlashAttention: where it gets its value, or in a helper there."""
    units = [place.unit] if place.unit.cls is not None else []
    helpers = objects.run_by(place) if place.value.op == "call" else ()
    calls = [each for unit in (*units, *objects.flow.units(iter(helpers))) for each in objects.queries.calls_in(unit)]
    return any(map(_asks_for_flash, [*calls, *([place] if place.value.op == "call" else [])]))


def _asks_for_flash(call: Place) -> bool:
    given = call.argument("attn_implementation")
    consts = given.closed.of("const") if given is not None else ()
    return any("flash_attention_2" in str(o[2]) for o in consts)


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
