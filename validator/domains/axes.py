"""The one vocabulary of mesh axes: which ranks a group, a mesh dimension or a coordinate is about.

An axis is a direction of the grid of ranks. `WORLD` stands for all of them together, whatever the grid. Axes are
orthogonal: ranks of one tensor-parallel group share their data-parallel coordinate, so a test of that coordinate takes
them the same way. A name that no row knows is an axis of its own, of which nothing is assumed.
"""

from __future__ import annotations

import re
from functools import lru_cache

WORLD = "world"
NODE = "node"  # which host; LOCAL: which process of a host
LOCAL = "local"
UNKNOWN = "?"
REDUCED = "reduced"  # no axis: the group, whichever it is, of the collective that reduces a value

Axes = frozenset[str]
WHOLE: Axes = frozenset({WORLD})
SOME: Axes = frozenset({UNKNOWN})
# Along these the ranks of one copy of the model are divided: they work on the same samples together.
MODEL_PARALLEL: Axes = frozenset({"tp", "cp", "pp"})

# Words as Megatron Core, torchtitan, DeepSpeed, verl, OpenRLHF and NeMo RL name their groups and mesh dimensions.
_WORDS = {
    "tp": "tp", "tensor": "tp", "mp": "tp", "tmp": "tp",
    "cp": "cp", "ring": "cp", "context": "cp", "sp": "cp", "sequence": "cp", "ulysses": "cp", "seq": "cp",
    "pp": "pp", "pipe": "pp", "pipeline": "pp", "stage": "pp",
    "ep": "ep", "expert": "ep", "etp": "ep", "moe": "ep",
    "dp": "dp", "data": "dp", "fsdp": "dp", "ddp": "dp", "replicate": "dp", "shard": "dp", "zero": "dp", "hsdp": "dp",
    "world": WORLD, "global": WORLD,
    "node": NODE, "host": NODE, "local": LOCAL,
}  # fmt: skip
_PIECE = re.compile(r"[A-Za-z][a-z]+|[A-Z]+(?![a-z])|[a-z]+")


@lru_cache(maxsize=4096)
def axes_of(name: str) -> Axes:
    """The axes that a name speaks of: `dp_cp` -> dp and cp, `ring_attn_group` -> cp; empty when it speaks of none."""
    words = [word.lower() for part in re.split(r"[^A-Za-z]+", name) for word in _PIECE.findall(part)]
    found = {_WORDS[word] for word in words if word in _WORDS}
    if {"model", "parallel"} <= set(words) and not found:
        return frozenset({"tp", "pp"})  # Megatron's model-parallel group
    return frozenset(found)


_COUNTED = frozenset({"size", "group", "mesh", "rank", "degree", "pg"})
_SHORT = frozenset({"tp", "cp", "pp", "sp", "ep", "dp", "mp", "ring", "ulysses", "fsdp", "ddp", "hsdp"})


def asks_own_rank(name: str) -> bool:
    """Whether a function is called as those are that give the rank of the process along axes, whichever library has it:
    `get_data_parallel_rank`; not that of another process (`get_pipeline_model_parallel_last_rank`)."""
    words = name.lower().split("_")
    along = [word for word in words[1:-1] if word not in ("parallel", "model", "group")]
    told = "parallel" in words or not _SHORT.isdisjoint(along)
    return words[0] == "get" and words[-1] == "rank" and told and all(word in _WORDS for word in along)


@lru_cache(maxsize=4096)
def of_parallelism(name: str) -> Axes:
    """The axes of the group, size, rank or mesh of which a name speaks: `ring_attn_size`, `tensor_parallel_size`.

    A word such as `sequence` or `data` means an axis only beside `parallel`: `sequence_size` is no size of a group.
    """
    words = {word.lower() for part in re.split(r"[^A-Za-z]+", name) for word in _PIECE.findall(part)}
    if not words & _COUNTED:
        return frozenset()
    if {"model", "parallel"} <= words and not words & {"tensor", "pipeline", "data", "sequence", "context", "expert"}:
        return frozenset({"tp", "pp"})
    clear = words if "parallel" in words else words & _SHORT
    return frozenset(_WORDS[word] for word in clear if word in _WORDS) - {WORLD, NODE, LOCAL}


def of_dimension(name: str) -> str:
    """The axis that one mesh dimension is; a name that the vocabulary lacks is its own."""
    found = axes_of(name)
    return next(iter(found)) if len(found) == 1 else name


# What data parallelism does along a dimension: each rank has all parameters, or a shard of them.
_REPLICATES = frozenset({"replicate", "replicated", "replica", "replicas", "ddp"})
_SHARDS = frozenset({"shard", "sharded", "shards", "fsdp", "zero"})


def of_data_parallelism(name: str) -> str:
    """Whether a mesh dimension is one along which parameters are a `replicate` or a `shard`, by its name; empty where
    it says neither, or is one of tensor, pipeline or expert parallelism: `dp_shard_cp` shards, `tp_shard` does not."""
    words = {word.lower() for part in re.split(r"[^A-Za-z]+", name) for word in _PIECE.findall(part)}
    replicates, shards = bool(words & _REPLICATES), bool(words & _SHARDS)
    if replicates is shards or axes_of(name) & {"tp", "pp", "ep"}:
        return ""
    return "replicate" if replicates else "shard"


_BUT = "world but "


def apart_from(axis: str, group: Axes) -> str:
    """The axis over which still varies what varied over all ranks and was made the same within a group."""
    known = frozenset(axis[len(_BUT) :].split(",")) if axis.startswith(_BUT) else frozenset()
    return _BUT + ",".join(sorted(known | group))


def is_whole(axis: str) -> bool:
    """Whether something varies over all ranks, but perhaps for those of some groups."""
    return axis == WORLD or axis.startswith(_BUT)


def meets(varying: str, group: Axes) -> bool | None:
    """Whether ranks of one group may differ in what varies over an axis; None where it cannot be told."""
    if WORLD in group:
        return True
    if varying.startswith(_BUT):
        return None if UNKNOWN in group else not group <= frozenset(varying[len(_BUT) :].split(","))
    if UNKNOWN in group or varying == UNKNOWN:
        return True if group and varying in group and varying != UNKNOWN else None
    if varying == WORLD:
        return True
    if varying in group:
        return True
    if varying in (NODE, LOCAL) or group & {NODE, LOCAL}:
        return None  # how the axes of the mesh lie on hosts is a matter of the launch
    return False
