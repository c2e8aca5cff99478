"""A call of torch's distributed API that no release from 2.4 to 2.13 accepts.

What it does
    Binds calls of FSDP1, FSDP2, DTensor, device meshes, tensor-parallel styles, DDP, collectives and distributed
    checkpoints to their real signatures (`torch_api.toml` beside this rule): unknown keywords, too many positional
    arguments, missing ones. For a keyword of the other FSDP generation the help says what to write. A warning where the
    project's requirements admit an older torch, whose signatures are not known here. Silent where TypeError is caught
    or the signature or version is asked for.

Why is this bad
    FSDP1 and FSDP2 look alike and share no keyword: `TypeError` when the first layer is wrapped, on the machines
    where a broad `except` does not turn it into something harder to read.

References
    https://docs.pytorch.org/docs/stable/distributed.fsdp.fully_shard.html
    https://docs.pytorch.org/docs/stable/fsdp.html
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from functools import cache
from typing import Any

from validator.analysis.interfaces.binding import Misfit, misfit_of, written
from validator.analysis.interfaces.library_calls import is_asked_for, is_replaced
from validator.analysis.requirements import Requirements
from validator.errors import nearest
from validator.facts.model import Call, Param
from validator.files.tables import load_toml
from validator.finding import Finding, Severity
from validator.project import Method, Project
from validator.rule import Rule

RULE = Rule("MP124", "torch-api-misuse", "error", stable_since="0.1.0", tokens=("torch",))

_PARTIAL = frozenset({"partial", "functools.partial"})
_METHODS_OF = ("DTensor", "Parallel")
_OLDEST = (2, 4)  # release of torch that the table knows


def check_project(project: Project) -> Iterator[Finding]:
    names = {name.rpartition(".")[2] for name in _signatures()}
    for function in project.functions():
        imported = function.module.facts.names
        for call in function.facts.calls:
            partial = call.target in _PARTIAL and bool(call.args) and call.args[0].kind == "path"
            made = call._replace(target=call.args[0].value, args=call.args[1:]) if partial else call
            last = made.target.rpartition(".")[2]
            if last not in names and made.target not in imported:
                continue
            found = project.dotted(function, made.target)
            name = _unmistakable().get(found) or _canonical(found)
            params = _signatures().get(name)
            misfit = misfit_of(params, made, partial=partial) if params is not None else None
            if (
                params is not None
                and misfit is not None
                and not is_asked_for(call)
                and not is_replaced(function, made.target.partition(".")[0])
            ):
                oldest = project.analysis(Requirements).oldest("torch", function.module.source.absolute)
                yield _report(
                    function, made, name, params, misfit, "warning" if oldest and oldest < _OLDEST else "error"
                )


@cache
def _table() -> dict[str, Any]:
    return load_toml(os.path.join(os.path.dirname(os.path.abspath(__file__)), "torch_api.toml"))


@cache
def _signatures() -> dict[str, tuple[Param, ...]]:
    return {name: parameters(words) for name, words in _table()["signatures"].items()}


def parameters(words: list[str]) -> tuple[Param, ...]:
    """The parameters that a row of the table describes."""
    found, kind = [], "any"
    for word in words:
        if word == "*":
            kind = "kw"
        elif word.startswith("**"):
            found.append(Param(word[2:], "**", None, "", (0, 0, 0, 0)))
        elif word.startswith("*"):
            found.append(Param(word[1:], "*", None, "", (0, 0, 0, 0)))
            kind = "kw"
        else:
            found.append(Param(word.rstrip("="), kind, "…" if word.endswith("=") else None, "", (0, 0, 0, 0)))
    return tuple(found)


@cache
def _unmistakable() -> dict[str, str]:
    """Short names that mean the sharding API even where a file forgets, or hides, their import."""
    homes = ("torch.distributed.fsdp.", "torch.distributed.tensor.", "torch.distributed.device_mesh.")
    names = (name for name in _signatures() if name.startswith(homes))
    return {name.rpartition(".")[2]: name for name in names if not name.rpartition(".")[0].endswith(_METHODS_OF)}


def _canonical(name: str) -> str:
    """The name under which the table knows something: old homes of modules are mapped to the present ones."""
    for old, new in _table()["moved"].items():
        if name == old or name.startswith(old + "."):
            return str(new + name[len(old) :])
    return name


def _report(
    function: Method, call: Call, name: str, params: tuple[Param, ...], misfit: Misfit, severity: Severity
) -> Finding:
    short = name.rpartition(".")[2]
    where = "" if function.qualname == "<module>" else f" in `{function.qualname}`"
    return RULE.finding(
        function.module.path,
        misfit.at if misfit.kind != "missing" else call.name_at,
        f"`{short}(…)`{where} raises TypeError: torch's `{short}` {misfit.message}",
        help=_advice(name, params, misfit),
        context=f"{function.qualname}:{name}:{misfit.kind}:{misfit.name}",
        severity=severity,
    )


def _advice(name: str, params: tuple[Param, ...], misfit: Misfit) -> str:
    instead = _table()["instead"].get(name, {}).get(misfit.name)
    if instead is not None:
        return f"{instead[9:]}; drop it" if instead.startswith("nothing: ") else f"write {instead}"
    known = [p.name for p in params if p.kind in ("any", "kw") and not p.name.startswith("_")]
    hint = nearest(misfit.name, known) if misfit.kind == "unknown-keyword" else ""
    public = tuple(p for p in params if not p.name.startswith("_"))
    return f"its parameters: `{written(name, public)}`{hint}"


INCORRECT = (
    """\
import torch
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard


def wrap(layer, mesh):
    policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, buffer_dtype=torch.bfloat16)  # error: MP124
    return fully_shard(layer, mesh=mesh, mixed_precision=policy)  # error: MP124
""",
    """\
import torch.distributed as dist
from torch.distributed._composable.fsdp import fully_shard
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP


def build(model, mesh, rank):
    fully_shard(model, mesh)  # error: MP124
    dist.all_reduce(model.loss, dist.ReduceOp.SUM, None, True, rank)  # error: MP124
    return FSDP(model, mesh=mesh)  # error: MP124
""",
)

CORRECT = (
    """\
import torch
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed import checkpoint
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

mesh = init_device_mesh("cuda", (2, 4), mesh_dim_names=("dp", "tp"))


def wrap(layer, **options):
    policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
    checkpoint.load(layer.state_dict(), checkpoint.FileSystemReader("last"), planner=None)
    return fully_shard(layer, mesh=mesh["dp"], mp_policy=policy, **options)
""",
    # its own function of that name; a TypeError that is expected
    """\
from torch.distributed.fsdp import MixedPrecisionPolicy


def fully_shard(model, mixed_precision):
    return model, mixed_precision


def policy(dtype):
    try:
        return fully_shard(None, MixedPrecisionPolicy(param_dtype=dtype, output_dtype=dtype, buffer_dtype=dtype))
    except TypeError:
        return MixedPrecisionPolicy(param_dtype=dtype)
""",
)
