"""A plan of tensor parallelism that names a module which the model does not have.

What it does
    Reads plans (tables of patterns such as `model.layers.*.mlp.up_proj` to styles) of functions, variables or entries
    that are named after a family of models (Llama, Qwen, Gemma, Mistral, Phi), and reports a pattern with a name
    that neither the models of that family in transformers have nor a class of the project gives to an attribute. In a
    plan for modules of the project, it reports a name that is nearly one of theirs and belongs to no module, and a
    name below a module (`attention.o_proj`) whose class has the others that the plan names there, but not this one.

Why is this bad
    `parallelize_module` passes over patterns that match nothing, with a warning at most. The layer stays whole on every
    rank while its neighbours are split: shapes do not fit, or the model computes something else.

References
    https://docs.pytorch.org/docs/stable/distributed.tensor.parallel.html#torch.distributed.tensor.parallel.parallelize_module
    https://huggingface.co/docs/transformers/perf_infer_gpu_multi
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from functools import lru_cache

from validator.analysis.sizes.plans import TOKENS, Entry, Plan, Plans
from validator.analysis.sizes.submodules import ModelClass, Submodules
from validator.errors import nearest
from validator.files.tables import load_toml
from validator.finding import Finding, Related
from validator.flow.queries.outside_program import is_aside
from validator.project import Project
from validator.rule import Rule

RULE = Rule("MP421", "plan-without-module", "error", "0.1.0", tokens=TOKENS)

_BESIDE = 3  # entries below one module, which make it plain which class is meant
_ATTRIBUTE = re.compile(r"^\s+self\.(\w+)(?::[^=\n]+)?\s*=[^=]", re.MULTILINE)
_OWN = re.compile(r"\bself\.(?=(\w+))")  # looked at, not taken: `self.self.x` names two


def check_project(project: Project) -> Iterator[Finding]:
    for plan in project.analysis(Plans).all:
        family = _family(plan)
        if is_aside(plan.function.path):
            continue
        lacking = list(_of_own_classes(project, plan))
        if lacking:
            yield from (_report_lacking(plan, *each) for each in lacking)
            continue
        if not family:
            yield from _of_own_models(project, plan)
            continue
        known = _modules(family)
        for entry in plan.entries:
            unknown = [name for name in entry.pattern.split(".") if _is_name(name) and name not in known]
            if not unknown:
                continue
            missing = next((name for name in unknown if not _given(project, name)), None)
            if missing is not None:
                yield _report(plan, entry, missing, family, known)


def _of_own_classes(project: Project, plan: Plan) -> Iterator[tuple[Entry, ModelClass, str]]:
    """The entries below a module whose class, as far as the project holds it by that name, has no such module."""
    submodules = project.analysis(Submodules)
    for prefix in dict.fromkeys(entry.prefix for entry in plan.entries if entry.prefix):
        below = [entry for entry in plan.entries if entry.prefix == prefix and _is_name(entry.module)]
        classes = submodules.at(prefix.rpartition(".")[2]) if len(below) >= _BESIDE else ()
        if not classes:
            continue
        names = {entry.module for entry in below}
        lacking = [entry for entry in below if not any(entry.module in each.made for each in classes)]
        meant = max(classes, key=lambda each: len(names & each.made.keys()))
        if len(lacking) == 1 and len(names & meant.made.keys()) == len(names) - 1:
            left = meant.linear - names
            yield lacking[0], meant, next(iter(left)) if len(left) == 1 else ""


def _of_own_models(project: Project, plan: Plan) -> Iterator[Finding]:
    """The names in a plan for modules of the project that none of them has, but almost has."""
    names = {name for entry in plan.entries for name in entry.pattern.split(".") if _is_name(name)}
    known = _everywhere()
    attributes: frozenset[str] | None = None
    for entry in plan.entries:
        unknown = [n for n in entry.pattern.split(".") if _is_name(n) and n not in known and not _given(project, n)]
        if not unknown or "." not in entry.pattern:
            continue
        if attributes is None:
            attributes = _submodules(project)
        mostly = 2 * len(names & attributes) >= len(names)
        if mostly and (near := nearest(unknown[0], sorted(attributes - names))):
            yield _report_own(plan, entry, unknown[0], near)


def _submodules(project: Project) -> frozenset[str]:
    """The attributes that classes of the project set, in files that use `torch.nn`."""
    modules = [m for m in project.modules.values() if "nn." in m.source.text and not is_aside(m.path)]
    return frozenset(name for m in modules for name in _ATTRIBUTE.findall(m.source.text))


def _given(project: Project, name: str) -> bool:
    """Whether a class of the project has an attribute of this name: then it has models of its own."""
    return name in project.analysis(_OwnNames).names


class _OwnNames:
    """What the code of a project reads or stores as `self.name`."""

    def __init__(self, project: Project) -> None:
        texts = (module.source.text for module in project.modules.values())
        self.names = frozenset(name for text in texts for name in _OWN.findall(text))


def _is_name(part: str) -> bool:
    return part.isidentifier()


def _family(plan: Plan) -> str:
    """The family of models that a plan is named after."""
    words = f"{plan.function.name} {plan.name}".lower()
    found = [family for family in _table()["families"] if family in words]
    return max(found, key=len, default="")


@lru_cache(maxsize=1)
def _everywhere() -> frozenset[str]:
    """The names that models of any family have."""
    table = _table()
    return frozenset([*table["common"], *(name for names in table["families"].values() for name in names)])


def _modules(family: str) -> frozenset[str]:
    table = _table()
    return frozenset([*table["common"], *table["families"][family]])


@lru_cache(maxsize=1)
def _table() -> dict[str, dict[str, list[str]]]:
    return load_toml(os.path.join(os.path.dirname(os.path.abspath(__file__)), "modules.toml"))


def _report(plan: Plan, entry: Entry, missing: str, family: str, known: frozenset[str]) -> Finding:
    near = nearest(missing, sorted(known))
    return RULE.finding(
        plan.function.path,
        plan.function.module.source_text.at(entry.key),
        f"the plan of `{plan.function.qualname}` names `{entry.pattern}`, but {family.capitalize()} models have no"
        f" `{missing}`",
        help=f"did you mean `{near}`?" if near else "a pattern that matches nothing is passed over in silence",
        context=f"{plan.function.qualname}:{plan.name}:{entry.pattern}",
    )


def _report_lacking(plan: Plan, entry: Entry, model: ModelClass, near: str) -> Finding:
    return RULE.finding(
        plan.function.path,
        plan.function.module.source_text.at(entry.key),
        f"the plan of `{plan.function.qualname}` names `{entry.pattern}`, but `{model.name}` has no `{entry.module}`",
        help=f"did you mean `{near}`?" if near else "a pattern that matches nothing is passed over in silence",
        related=[Related(model.cls.path, model.cls.facts.name_at[0], f"`{model.name}` is here")],
        context=f"{plan.function.qualname}:{plan.name}:{entry.pattern}",
    )


def _report_own(plan: Plan, entry: Entry, missing: str, near: str) -> Finding:
    return RULE.finding(
        plan.function.path,
        plan.function.module.source_text.at(entry.key),
        f"the plan of `{plan.function.qualname}` names `{entry.pattern}`, but no module of the project has `{missing}`",
        help=f"did you mean `{near}`?",
        context=f"{plan.function.qualname}:{plan.name}:{entry.pattern}",
    )


INCORRECT = [
    """
import torch.nn as nn
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

class FeedForward(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.lin_gate = nn.Linear(width, 4 * width)
        self.lin_down = nn.Linear(4 * width, width)

class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.ff = FeedForward(width)

def parallelize(model, mesh):
    parallelize_module(
        model,
        mesh["tp"],
        {
            "ff.lin_gates": ColwiseParallel(),  # error: MP421
            "ff.lin_down": RowwiseParallel(),
        },
    )
""",
    """
import torch.nn as nn
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

class Attention(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.wq = nn.Linear(dim, dim)
        self.wk = nn.Linear(dim, dim)
        self.wo = nn.Linear(dim, dim)

class Block(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.attention = Attention(dim)

def parallelize(model, mesh):
    plan = {
        "attention.wq": ColwiseParallel(),
        "attention.wk": ColwiseParallel(),
        "attention.o_proj": RowwiseParallel(),  # error: MP421
    }
    for block in model.layers:
        parallelize_module(block, mesh["tp"], plan)
""",
    """
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel

def get_llama_tp_plan():
    return {
        "model.layers.*.self_attn.q_proj": ColwiseParallel(),
        "model.layers.*.self_attn.k_proj": ColwiseParallel(),
        "model.layers.*.self_attn.v_proj": ColwiseParallel(),
        "model.layers.*.self_attention.o_proj": RowwiseParallel(),  # error: MP421
        "model.layers.*.mlp.up_proj": ColwiseParallel(),
        "model.layers.*.mlp.down": RowwiseParallel(),  # error: MP421
    }
""",
]

CORRECT = [
    """
import torch.nn as nn
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

class Attention(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.wq = nn.Linear(dim, dim)
        self.wk = nn.Linear(dim, dim)
        self.wo = nn.Linear(dim, dim)

class Latent(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.wq = nn.Linear(dim, dim)
        self.o_proj = nn.Linear(dim, dim)

class Block(nn.Module):
    def __init__(self, dim, latent):
        super().__init__()
        self.attention = Latent(dim)
        if not latent:
            self.attention = Attention(dim)
        self.mixer = make_mixer(dim)

def parallelize(model, mesh):
    plan = {
        "attention.wq": ColwiseParallel(),
        "attention.wk": ColwiseParallel(),
        "attention.o_proj": RowwiseParallel(),
        "mixer.wq": ColwiseParallel(),
        "mixer.wk": ColwiseParallel(),
        "mixer.o_proj": RowwiseParallel(),
    }
    for block in model.layers:
        parallelize_module(block, mesh["tp"], plan)

def make_mixer(dim):
    return nn.Identity()
""",
    """
import torch.nn as nn
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

class FeedForward(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.lin_gate = nn.Linear(width, 4 * width)
        self.lin_down = nn.Linear(4 * width, width)

def parallelize(model, mesh):
    parallelize_module(model.ff, mesh["tp"], {"lin_gate": ColwiseParallel(), "lin_down": RowwiseParallel()})

def of_another_library(model, mesh):
    plan = {"ff.lin_gate": ColwiseParallel(), "encoder.w_in": ColwiseParallel(), "encoder.w_out": RowwiseParallel()}
    parallelize_module(model, mesh["tp"], plan)
""",
    """
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel

def get_qwen3_tp_plan(prefix):
    return {
        f"{prefix}.layers.*.self_attn.q_proj": ColwiseParallel(),
        f"{prefix}.layers.*.self_attn.q_norm": ColwiseParallel(),
        f"{prefix}.layers.*.self_attn.o_proj": RowwiseParallel(),
    }
""",
    """
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel

class Attention:
    def __init__(self, attn, output_proj, wq):
        self.attn, self.output_proj, self.wq = attn, output_proj, wq

LLAMA_PLAN = {
    "layers.*.attn.wq": ColwiseParallel(),
    "layers.*.attn.output_proj": RowwiseParallel(),
    "lm_head": ColwiseParallel(),
}
""",
]
