"""Weights that one rank has loaded, sharded by FSDP without being handed to the others.

What it does
    Reports `FullyShardedDataParallel(module)` without `sync_module_states=True` where the weights of the module are
    loaded under a test of the rank in the same function (`if rank == 0: module.load_state_dict(…)`), or where ranks
    make the module in different ways (`from_pretrained` on one, from its configuration or inside of
    `init_empty_weights` on the others), in a function that gives it as well. Also a whole state
    (`StateDictOptions(full_state_dict=True)`) that only some ranks have read, and that `set_model_state_dict` gets
    without `broadcast_from_rank0`. Silent where a collective may run in between, which may hand them out, and, where a
    context manager left them out, where the function loads weights once more or its file a checkpoint of all ranks.

Why is this bad
    FSDP takes from each rank its own shard of what that rank holds. All shards but the first are then random, or memory
    that nobody has written, and training begins with a model that is none.

References
    https://docs.pytorch.org/docs/stable/fsdp.html
"""

from __future__ import annotations

from collections.abc import Iterator

from validator.domains.spmd import only
from validator.finding import Finding, Related
from validator.flow.queries.base import Place, Queries
from validator.flow.queries.origins import calls_behind, sources, trail
from validator.flow.queries.outside_program import is_aside
from validator.flow.values import BOTTOM
from validator.project import Project
from validator.rule import Rule

RULE = Rule(
    "MP553",
    "weights-of-one-rank",
    "warning",
    "1.0",
    tokens=("FullyShardedDataParallel", "FSDP", "StateDictOptions"),
    solves=True,
)

_STATES = "torch.distributed.checkpoint.state_dict."
_TAKING = {"set_model_state_dict": ("model_state_dict", 1), "set_optimizer_state_dict": ("optim_state_dict", 2)}
_FILLING = ("load_state_dict", "load_checkpoint", "load_weights")
_RESUMING = frozenset({"set_model_state_dict", "set_state_dict", "dcp"})
_LOADING = frozenset({"load_state_dict", "load_weights", "from_pretrained"})


def check_project(project: Project) -> Iterator[Finding]:
    queries = project.analysis(Queries)
    for call in queries.calls("torch.distributed.fsdp.FullyShardedDataParallel"):
        sync, module = call.passed("sync_module_states", 10), call.argument("module", 0)
        left_out = sync is not None and (sync == BOTTOM or sync.is_const(False))
        if not left_out or module is None or is_aside(call.unit.path):
            continue
        loaded = _loaded(queries, call, module) or _made_apart(module)
        if loaded is not None and not _meets(queries, loaded, call):
            yield _finding(call, loaded)
    for name, which in _TAKING.items():
        for call in queries.calls(_STATES + name):
            state, options = call.argument(*which), call.argument("options")
            if state is None or options is None or is_aside(call.unit.path) or not _takes_whole(options):
                continue
            loaded = _read_on_one(state)
            if loaded is not None and not _meets(queries, loaded, call):
                yield _report_state(call, state, loaded)


def _takes_whole(options: Place) -> bool:
    """Whether options surely ask for a whole state on each rank: none is broadcast."""
    made = calls_behind(options, lambda each: each.method == "StateDictOptions") or []
    whole = (each.passed("full_state_dict", 0) for each in made)
    sent = [each.passed("broadcast_from_rank0", 5) for each in made]
    is_whole = bool(made) and all(value is not None and value.is_const(True) for value in whole)
    return is_whole and all(value is not None and (value == BOTTOM or value.is_const(False)) for value in sent)


def _read_on_one(state: Place) -> Place | None:
    """Where some ranks read the state that the others leave empty."""
    for ways in _ways_by_rank(state, "phi"):
        read = [each for each in ways if each.value.op == "call"]
        empty = [each for each in ways if each.value.op in ("dict", "const") and not each.value.args]
        if read and empty:
            return read[0]
    return None


def _ways_by_rank(value: Place, *choosing: str) -> Iterator[list[Place]]:
    """What a value may be where ranks take different ways to it."""
    for place in trail(value, frozenset()):
        if place.value.op in choosing and only(place.val.v, "rank", "member"):
            yield [each.root for each in sources(place) or ()]


def _report_state(call: Place, state: Place, loaded: Place) -> Finding:
    return RULE.finding(
        call.unit.path,
        call.at,
        f"`{call.method}`{call.where} takes each rank's shard of `{state.text}`, which only some ranks have read"
        f" (`{loaded.method}`)",
        help="pass `broadcast_from_rank0=True` in the `StateDictOptions`",
        related=[Related(loaded.unit.path, loaded.at[0], "read here, on some ranks")],
        context=f"{call.unit.qualname}:{call.method}",
    )


def _loaded(queries: Queries, call: Place, module: Place) -> Place | None:
    """The call before that loads the weights of a module on some ranks only."""
    loading = (each for each in queries.calls_in(call.unit) if each.number < call.number and each.method in _LOADING)
    for each in loading:
        owner = each.receiver
        if owner is not None and owner.root == module.root and only(each.under, "rank", "member"):
            return each
    return None


def _made_apart(module: Place) -> Place | None:
    """Where one rank loads the module that others only make: on one of the ways to a variable, or in a function that
    gives it."""
    for makers in _ways_by_rank(module, "phi", "call"):
        loading = [each for each in makers if each.value.op == "call" and each.method in _LOADING]
        if loading and len(loading) < len(makers):
            return loading[0]
    made = (each for each in trail(module, frozenset()) if each.value.op == "call" and each.method in _LOADING)
    found = next(filter(_is_empty_on_some, made), None)
    return found if found is None or not _is_filled(module) else None


def _is_filled(module: Place) -> bool:
    """Whether the function loads weights once more, or its file a checkpoint of all ranks: both may fill the model."""
    unit = module.unit
    loads = [n for name in _FILLING for n in unit.named.get(name, ())]
    whole = module.flow.units_of(unit.module).values()
    return bool(loads) or any(not _RESUMING.isdisjoint(each.named) for each in whole)


def _is_empty_on_some(made: Place) -> bool:
    """Whether a context manager that only some ranks enter leaves what is made inside without contents."""
    library = made.flow.models.library
    for number in made.unit.managers(made.number):
        manager = made.value_at(number)
        chosen = [manager, manager.operand(0)] if manager.value.op == "call" else [manager]
        for each in (place.closed for place in chosen):
            names = (o[1] for o in each.each if o[0] in ("ext", "made"))
            if only(each.v, "rank", "member") and any(library(f"{name}()").inside == "meta" for name in names):
                return True
    return False


def _meets(queries: Queries, first: Place, last: Place) -> bool:
    """Whether a collective that moves data may run between two calls: in their function, else in those that come to
    both."""
    if first.unit is last.unit:
        between = [each for each in queries.calls_in(first.unit) if first.number < each.number < last.number]
    else:
        both = queries.reaching({first.unit}) & queries.reaching({last.unit})
        own = [each for each in queries.calls_in(last.unit) if each.number < last.number]
        between = [each for unit in both for each in queries.calls_in(unit)] + own
    return any(operation.name != "barrier" for each in between for operation, _ in each.reached())


def _finding(call: Place, loaded: Place) -> Finding:
    wrapper = call.unit.known_as(call.value.args[0])
    return RULE.finding(
        call.unit.path,
        call.at,
        f"`{wrapper}`{call.where} shards weights that only some ranks have loaded (`{loaded.method}`)",
        help="pass `sync_module_states=True`, so that rank 0's weights are broadcast first",
        related=[Related(loaded.unit.path, loaded.at[0], "loaded here, on some ranks")],
        context=f"{call.unit.qualname}:{loaded.method}",
    )


# Weights that a context manager of some ranks leaves out.
_EMPTY = """\
import torch
import torch.distributed as dist
from accelerate import init_empty_weights
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
from transformers import AutoModelForCausalLM


def init_context(use_meta):
    on_cpu = lambda: torch.device("cpu")
    if use_meta:
        context = init_empty_weights if dist.get_rank() != 0 else on_cpu
    else:
        context = on_cpu
    return context


def fill(module):
    if dist.get_rank() != 0:
        module.to_empty(device=torch.cuda.current_device(), recurse=False)
    return module


def build(path, config):
    context = init_context(use_meta=not config.tie_word_embeddings)
    with context():
        model = AutoModelForCausalLM.from_pretrained(path)
        model.to(torch.float32)
    return FSDP(model, param_init_fn=fill, {sync}){mark}


def main(path, config):
    dist.init_process_group("nccl")
    return build(path, config)
"""

_STATE = """
import torch
import torch.distributed as dist
from torch.distributed.checkpoint.state_dict import StateDictOptions, set_model_state_dict
from torch.distributed.fsdp import fully_shard

def load(model, path):
    fully_shard(model)
    state = {}
    if {test}:
        state = torch.load(path, map_location="cpu", mmap=True)
    options = StateDictOptions(full_state_dict=True{more})
    set_model_state_dict(model, state, options=options){mark}
"""
# one function makes the module, another wraps it, a third knows with which arguments
_ACROSS = """
import torch
import torch.distributed as dist
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
from transformers import AutoConfig, AutoModelForCausalLM

def make(name, rank):
    if rank == 0:
        return AutoModelForCausalLM.from_pretrained(name)
    with torch.device("meta"):
        return AutoModelForCausalLM.from_config(AutoConfig.from_pretrained(name))

def settings():
    return dict(use_orig_params=True, device_id=0{sync})

def wrapped(model):
    return FSDP(model, **settings()){mark}

def build(name):
    model = make(name, dist.get_rank())
    dist.barrier()
    return wrapped(model)
"""

INCORRECT = [
    _STATE.replace("{test}", "dist.get_rank() == 0").replace("{more}", "").replace("{mark}", "  # error: MP553"),
    """
import torch
import torch.distributed as dist
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP

def build(model, path, init):
    if dist.get_rank() == 0:
        model.load_state_dict(torch.load(path), assign=True)
    dist.barrier()
    return FSDP(model, param_init_fn=init, device_id=0)  # error: MP553
""",
    """
import torch.distributed as dist
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
from transformers import AutoConfig, AutoModelForCausalLM

def build(name):
    if dist.get_rank() == 0:
        model = AutoModelForCausalLM.from_pretrained(name)
    else:
        model = AutoModelForCausalLM.from_config(AutoConfig.from_pretrained(name))
    return FSDP(model, sync_module_states=False)  # error: MP553
""",
    _ACROSS.replace("{sync}", "").replace("{mark}", "  # error: MP553"),
    # a context manager of some ranks leaves the module without contents
    _EMPTY.format(sync="use_orig_params=False", mark="  # error: MP553"),
]

CORRECT = [
    _STATE.replace("{test}", "dist.get_rank() == 0")
    .replace("{more}", ", broadcast_from_rank0=True")
    .replace("{mark}", ""),
    _STATE.replace("{test}", "path").replace("{more}", "").replace("{mark}", ""),
    _ACROSS.replace("{sync}", ", sync_module_states=True").replace("{mark}", ""),
    _ACROSS.replace("{sync}", "").replace("{mark}", "").replace("dist.barrier()", "dist.broadcast(model.bias, src=0)"),
    """
import torch
import torch.distributed as dist
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP

def build(model, path, init):
    if dist.get_rank() == 0:
        model.load_state_dict(torch.load(path), assign=True)
    return FSDP(model, param_init_fn=init, sync_module_states=True)

def everywhere(model, path):
    model.load_state_dict(torch.load(path))
    return FSDP(model)
""",
    """
import torch
import torch.distributed as dist
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP

def build(model, path, sync):
    if dist.get_rank() == 0:
        model.load_state_dict(torch.load(path))
    for parameter in model.parameters():
        dist.broadcast(parameter.data, src=0)
    return FSDP(model)

def as_told(model, path, sync):
    if dist.get_rank() == 0:
        model.load_state_dict(torch.load(path))
    return FSDP(model, sync_module_states=sync)
""",
    # the contents come from rank 0, or no rank has any
    _EMPTY.format(sync="sync_module_states=True", mark="")
    + """\


def same(path):
    with init_empty_weights():
        return FSDP(AutoModelForCausalLM.from_pretrained(path), param_init_fn=fill)
""",
]
