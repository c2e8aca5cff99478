"""A call of torch's API that no release of torch accepts, or none that the project admits.

What it does
    Binds calls of torch's classes and Python functions to their real signatures, release by release: optimizers and
    schedulers, modules and functions of `torch.nn`, data loaders, checkpoints, autocast, collectives, FSDP1 and FSDP2,
    DTensor, device meshes. Unknown keywords, too many positional arguments, missing ones. For a keyword of the other
    FSDP generation the help says what to write. An error where no known release takes the call (a warning where the
    requirements beside the code admit none of the known ones); where some take it, an error if the requirements admit
    none of those, a warning if the newest one that they admit refuses it. Silent where nothing is required and some
    release takes the call, where TypeError is caught, and where the signature or version is asked for.

Why is this bad
    FSDP1 and FSDP2 look alike and share no keyword, and names of other libraries look right too: `TypeError` when the
    first layer is wrapped or the first epoch ends, on the machines where a broad `except` does not turn it into
    something harder to read.

References
    https://docs.pytorch.org/docs/stable/distributed.fsdp.fully_shard.html
    https://docs.pytorch.org/docs/stable/optim.html
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from functools import cache
from typing import Any

from validator.analysis.interfaces.binding import Misfit, misfit_of, written
from validator.analysis.interfaces.library_calls import Refused, advice, is_asked_for, is_replaced, refused
from validator.analysis.requirements import Requirements
from validator.errors import nearest
from validator.facts.model import Call
from validator.files.tables import load_toml
from validator.finding import Finding
from validator.models.signatures import Signature, Version
from validator.models.signatures.torch_tables import torch_signature
from validator.project import Method, Module, Project
from validator.rule import Rule

RULE = Rule("MP124", "torch-api-misuse", "error", stable_since="0.1.0", tokens=("torch",))

_PARTIAL = frozenset({"partial", "functools.partial"})
_NOWHERE = ("self.", "cls.", "super()")


def check_project(project: Project) -> Iterator[Finding]:
    for module in project.modules.values():
        if "torch" in module.source.text:
            for function in module.functions.values():
                for call in function.facts.calls:
                    yield from _check(project, function, call)


def _check(project: Project, function: Method, call: Call) -> Iterator[Finding]:
    partial = call.target in _PARTIAL and bool(call.args) and call.args[0].kind == "path"
    made = call._replace(target=call.args[0].value, args=call.args[1:]) if partial else call
    if made.target.startswith(_NOWHERE):
        return
    found = project.dotted(function, made.target)
    taken = torch_signature(_unmistakable().get(found, found))
    if taken is None or is_asked_for(call) or is_replaced(function, made.target.partition(".")[0]):
        return

    misfits = {each: misfit_of(taken.parameters(each), made, partial=partial) for each in taken.releases}
    refusal = _refusal(project, function.module, taken, misfits)
    if refusal is not None:
        yield _report(function, made, taken, refusal)


def _refusal(
    project: Project, module: Module, taken: Signature, misfits: dict[Version, Misfit | None]
) -> Refused | None:
    """Why a call fails; its `releases` are empty where it fails with all that are known."""
    library, newest = taken.library, misfits[taken.releases[-1]]
    declared = project.analysis(Requirements).admitted(library.distribution, module.source.absolute)
    if newest is None or not all(misfits.values()):
        return refused(project, module, library, taken.releases, misfits.__getitem__) if declared else None
    admitted = [each for each in library.releases if any(row.has_release(each) for row in declared)]
    if admitted and not set(admitted) & set(taken.releases):
        return None  # it has another home there, or none
    return Refused(taken.releases[-1], newest, "", "warning" if declared and not admitted else "error")


@cache
def _table() -> dict[str, Any]:
    return load_toml(os.path.join(os.path.dirname(os.path.abspath(__file__)), "torch_api.toml"))


@cache
def _unmistakable() -> dict[str, str]:
    """Short names that mean the sharding API even where a file forgets, or hides, their import."""
    return {name.rpartition(".")[2]: name for name in _table()["unmistakable"]}


@cache
def _instead() -> dict[str, dict[str, str]]:
    """What to write instead of a keyword, by the names of rows."""
    rows = ((torch_signature(name), words) for name, words in _table()["instead"].items())
    return {row.name: words for row, words in rows if row is not None}


def _report(function: Method, call: Call, taken: Signature, found: Refused) -> Finding:
    misfit = found.misfit
    short = taken.name.rpartition(".")[2]
    where = "" if function.qualname == "<module>" else f" in `{function.qualname}`"
    releases = f" with torch {found.releases}" if found.releases else ""
    return RULE.finding(
        function.module.path,
        misfit.at if misfit.kind != "missing" else call.name_at,
        f"`{short}(…)`{where} raises TypeError{releases}: torch's `{short}` {misfit.message}",
        help=_advice(taken, found),
        context=f"{function.qualname}:{taken.name}:{misfit.kind}:{misfit.name}",
        severity=found.severity,
    )


def _advice(taken: Signature, found: Refused) -> str:
    misfit = found.misfit
    instead = _instead().get(taken.name, {}).get(misfit.name)
    if instead is not None:
        return f"{instead[9:]}; drop it" if instead.startswith("nothing: ") else f"write {instead}"
    if found.releases and misfit.kind == "unknown-keyword":
        return advice(taken, found)
    params = [each for each in taken.parameters(found.newest) if not each.name.startswith("_")]
    known = [each.name for each in params if each.kind in ("any", "kw")]
    hint = nearest(misfit.name, known) if misfit.kind == "unknown-keyword" else ""
    return f"its parameters: `{written(taken.name, tuple(params))}`{hint}"


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
    # no release takes these
    """\
import torch
import torch.nn.functional as F
from torch import nn
from torch.optim.lr_scheduler import CosineAnnealingLR
from torch.utils.checkpoint import checkpoint_sequential
from torch.utils.data import DataLoader


def train(data, steps):
    model = nn.Sequential(nn.Linear(3, 4, bias_=False), nn.LayerNorm(4, epsilon=1e-6))  # error: MP124, MP124
    optimizer = torch.optim.AdamW(model.parameters(), weight_decays=0.1)  # error: MP124
    schedule = CosineAnnealingLR(optimizer, max_t=steps)  # error: MP124
    scaler = torch.amp.GradScaler("cuda", scale=2**10)  # error: MP124
    for batch in DataLoader(data, worker=3):  # error: MP124
        with torch.autocast("cuda", dtypes=torch.bfloat16):  # error: MP124
            small = F.interpolate(batch, sizes=2)  # error: MP124
            scaler.scale(checkpoint_sequential(model, input=small).sum()).backward()  # error: MP124
        scaler.step(optimizer)
        schedule.step()
    torch.save(model.state_dict(), path="last.pt")  # error: MP124
""",
    # some releases take these, but none that is required
    """\
# file: requirements.txt
torch>=2.7
# file: train.py
from torch.optim.lr_scheduler import StepLR


def schedule(optimizer):
    return StepLR(optimizer, 10, verbose=True)  # error: MP124
""",
    """\
# file: requirements.txt
torch>=2.4
# file: train.py
from torch.optim.lr_scheduler import StepLR


def schedule(optimizer):
    return StepLR(optimizer, 10, verbose=True)  # error: MP124
""",
    """\
# file: requirements.txt
torch==2.4.1
# file: train.py
from torch.utils.data import DataLoader


def loader(data):
    return DataLoader(data, batch_size=4, in_order=False)  # error: MP124
""",
    # releases that are older than what is known
    """\
# file: requirements.txt
torch==1.12.1
# file: train.py
from torch.utils.data import DataLoader


def loader(data):
    return DataLoader(data, size=4)  # error: MP124
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
    # releases differ, and nothing says which one runs
    """\
import torch
from torch.optim.lr_scheduler import StepLR
from torch.utils.data import DataLoader


def build(model, data):
    optimizer = torch.optim.AdamW(model.parameters(), 1e-3, fused=True)
    return DataLoader(data, 4, in_order=False), StepLR(optimizer, 10, verbose=True)
""",
    """\
# file: requirements.txt
torch>=2.2
# file: train.py
import torch
import torch.distributed.checkpoint as dcp
from torch.utils.checkpoint import checkpoint
from torch.utils.data import DataLoader


def build(model, data, batch, state):
    dcp.save(state, dcp.FileSystemWriter("last"))
    return DataLoader(data, 4, in_order=False), checkpoint(model, batch, use_reentrant=False, mask=None)
""",
)
