"""Which values came over a network: what somebody else wrote, who may be anybody."""

from __future__ import annotations

from validator.flow.queries.base import Place
from validator.flow.values import Obj


def is_fetched(place: Place) -> bool:
    """Whether a value, or what it is computed from, is what a library fetched from elsewhere, or the path of it."""
    fetching = place.flow.models.network
    return any(_fetches(fetching, o) for source in place.sources for o in source.closed.objs)


def _fetches(fetching: dict[str, frozenset[str]], o: Obj) -> bool:
    if o[0] != "made":
        return False
    package, _, name = o[1].partition(".")
    return name.rpartition(".")[2] in fetching.get(package, ())
