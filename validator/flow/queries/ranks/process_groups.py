"""Calls of torch that need the default process group."""

from __future__ import annotations

from validator.flow.queries.base import Place

TORCH = "torch.distributed."
_DDP = "torch.nn.parallel.DistributedDataParallel"
_SAMPLER = "torch.utils.data.distributed.DistributedSampler"
# What is passed so that they need no default group.
_INSTEAD = {_DDP: (("process_group", 6),), _SAMPLER: (("num_replicas", 1), ("rank", 2))}
# Beside the collectives: each raises without the default group (`_get_default_group`).
_ASKING = frozenset(f"{TORCH}{name}" for name in ("get_rank", "get_world_size", "get_backend", "new_group"))


def needs_group(call: Place) -> bool:
    """Whether a call is a collective of torch on the default group, asks for its ranks, or makes what does."""
    made = [str(o[1]) for o in call.operand(0).val.each if o[0] == "ext"]
    if made and _ASKING.issuperset(made):
        group = call.argument("group", 0) if not made[0].endswith("new_group") else None
        return group is None or group.val.is_const(None)
    named = {call.flow.models.named(name) for name in made}
    if named == {_DDP} or named == {_SAMPLER}:
        given = [call.argument(*each) for each in _INSTEAD[named.pop()]]
        spread = {"*", "**"} & set(call.value.data.names)
        return not spread and any(each is None or each.val.is_const(None) for each in given)
    row = next((operation.row for operation in call.operations), None)
    if row is None or row.groupless or not any(name.startswith(TORCH) for name in made):
        return False
    group = call.argument(*row.group) if row.group is not None else None
    return group is None or group.val.is_const(None)
