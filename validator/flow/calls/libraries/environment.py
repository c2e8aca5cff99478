"""Environment variables: ranks and sizes that launchers tell processes by them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from validator.domains.axes import LOCAL, WHOLE
from validator.domains.spmd import rank
from validator.flow.values import STRING, Obj, Val, group_of, join, join2, obj

if TYPE_CHECKING:
    from validator.models import Models


def environment(models: Models, key: Val, default: Val | None = None) -> Val:
    """What the environment variable of a name holds, or one of several (`for name in ("RANK", "PMI_RANK")`): a text, or
    what is taken where it is not set."""
    names = [o[2] for o in key.each if o[0] == "const"]
    if not names or len(names) < len(key.objs):
        return _variable(models, None, default)
    return join(_variable(models, name, default) for name in names)


def _variable(models: Models, name: object, default: Val | None) -> Val:
    if isinstance(name, str) and (name in models.ranks["environment"] or name.endswith("_RANK")):
        local = "LOCAL" in name
        node = "NODE" in name or name == "GROUP_RANK"
        among = "" if node else "node" if local else "job"
        axes = frozenset({"local"} if local else {"node"} if node else WHOLE)
        sure = name in models.ranks["environment"]  # else what a launcher that nobody knows says
        return Val(frozenset({("environment", name, among)}), rank(axes, sure))
    if isinstance(name, str) and name in models.ranks["sizes"]:
        return obj("size", group_of(WHOLE))
    if isinstance(name, str) and name in models.ranks["node_sizes"]:
        return obj("size", group_of(frozenset({LOCAL})))
    return STRING if default is None else join2(STRING, default)


def rank_spelled(text: Val) -> frozenset[Obj]:
    """The rank that the text of an environment variable spells."""
    axes = {"node": frozenset({LOCAL}), "job": WHOLE}
    return frozenset(("ordinal", o[2], axes[o[2]]) for o in text.of("environment") if o[2])
