"""Over which axes a value differs from rank to rank, and why.

The vocabulary is that of SPMD types: a value without a cause is *replicated* as far as is known; one with a cause
*varies* over the cause's axis. Three facets are told apart, since a batch differs between ranks in what it holds but
rarely in how long it is: the value itself, its length (or shape), and whether it is there at all (`is not None`).
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache
from typing import NamedTuple

from validator.domains.axes import UNKNOWN, WORLD, Axes, apart_from, is_whole


class Cause(NamedTuple):
    """Why a value varies.

    `kind`: `rank` (it tells who the process is), `member` (whether the process belongs to some list of ranks), `data`
    (what the process holds for itself), `share` (of a length: that of this rank's share of something, which is the same
    on all ranks or one more, but zero on some where there are fewer things than ranks), `failure` (something failed on
    one rank), `param` (as the caller's argument does: `facet` is then v, n or p, f behind arithmetic, a of an
    attribute, t of the truth), `uniform` (it is known to be the same, on some way). `sure`: certain, not likely.
    `some`: only on some of several ways, and which of them is taken is not known: on the others nothing says that ranks
    differ.
    """

    kind: str
    axis: str
    sure: bool = True
    facet: str = ""
    position: int = -1
    some: bool = False


Causes = frozenset[Cause]
NONE: Causes = frozenset()
_OF_RANKS = ("rank", "member", "data")
UNIFORM = Cause("uniform", "")
# Comparisons of a number of processes that tell whether there is one, and on which way.
OF_ONE = {
    ("Eq", 1): True, ("LtE", 1): True, ("Lt", 2): True, ("NotEq", 1): False, ("Gt", 1): False, ("GtE", 2): False
}  # fmt: skip


def rank(axes: Iterable[str], sure: bool = True) -> Causes:
    return frozenset(Cause("rank", axis, sure) for axis in axes)


def data(axes: Iterable[str] = (WORLD,), sure: bool = True) -> Causes:
    return frozenset(Cause("data", axis, sure) for axis in axes)


@cache
def member(causes: Causes) -> Causes:
    """What a test of membership (`rank in ranks`) depends on, for a rank that depends on `causes`."""
    return frozenset(c._replace(kind="member") if c.kind == "rank" else c for c in causes)


@cache
def folded(causes: Causes) -> Causes:
    """What arithmetic leaves of a rank: ranks of the job still differ in it, but which ones depends on the numbers."""
    return frozenset(
        c._replace(axis=UNKNOWN) if c.kind == "rank" and c.axis == WORLD
        else c._replace(facet="f") if c.kind == "param" and c.facet == "v" else c
        for c in causes
    )  # fmt: skip


def placed_along(causes: Causes, axes: Axes) -> Causes:
    """What a name that speaks of axes tells of a rank of which nobody knows along which it counts."""
    told = [Cause("rank", axis, False) for axis in sorted(axes)]
    lost = frozenset(c for c in causes if c.kind == "rank" and c.axis in (WORLD, UNKNOWN)) if told else NONE
    return (causes - lost) | frozenset(told) if lost else causes


@cache
def held(causes: Causes) -> Causes:
    """What each rank has for itself by who it is: random numbers from a seed that tells the rank."""
    return frozenset(c._replace(kind="data") if c.kind in ("rank", "member") else c for c in causes)


@cache
def shared_out(causes: Causes) -> Causes:
    """By what the length of a share varies that a rank takes by its number."""
    return frozenset(Cause("share", c.axis) for c in causes if c.kind in ("rank", "member"))


@cache
def emptied(causes: Causes) -> Causes:
    """What a test for elements depends on: who asks whether there are any in a share expects ranks without."""
    return frozenset(Cause("data", c.axis, False) if c.kind == "share" else c for c in causes)


@cache
def unsure(causes: Causes) -> Causes:
    if not any(c.sure and c != UNIFORM for c in causes):
        return causes
    return frozenset(c if c == UNIFORM else c._replace(sure=False) for c in causes)


@cache
def on_some_ways(causes: Causes) -> Causes:
    return frozenset(c if c == UNIFORM else c._replace(some=True) for c in causes)


def on_ways(joined: Causes, ways: Iterable[Causes]) -> Causes:
    """The joined causes of what comes on several ways; they are causes on some only if a way has none."""
    if not joined or all(any(not c.some and c != UNIFORM for c in way) for way in ways):
        return joined
    return on_some_ways(joined)


@cache
def varying(causes: Causes) -> Causes:
    """The causes that make ranks differ; none where a value is known to be the same on some way."""
    return NONE if UNIFORM in causes else frozenset(c for c in causes if c.kind in _OF_RANKS and not c.some)


def combined(*parts: Causes) -> Causes:
    """What a value made of several depends on: it is known to be equal only if nothing in it may differ.

    A part that is known to be equal makes none of the others equal, nor does it make the whole differ.
    """
    if not any(parts):
        return NONE
    differing = frozenset().union(*(part for part in parts if UNIFORM not in part))
    return differing or frozenset().union(*parts)


def decided_by(causes: Causes, control: Causes) -> Causes:
    """What a value depends on that is chosen by branches: whatever the alternatives are, it varies as they do."""
    if not only(control, "rank", "member", "data"):
        return causes | control
    return (causes - {UNIFORM}) | control


@cache
def only(causes: Causes, *kinds: str) -> Causes:
    if not causes:
        return causes
    return frozenset(c for c in causes if c.kind in kinds)


def equalled(causes: Causes, group: Axes) -> Causes:
    """What is left of causes once a collective has made a value the same on all ranks of a group."""
    if not causes or WORLD in group or UNKNOWN in group or not group:
        return NONE
    batches = "dp" in group  # what differs between data-parallel ranks is then alike
    kept = (
        c._replace(axis=apart_from(c.axis, group)) if is_whole(c.axis) else c
        for c in causes
        if c.kind in ("rank", "member") and c.axis not in group
    )
    return frozenset([*kept, *(c for c in unsure(causes) if c.kind in ("data", "param") and not batches)])


def between(lower: Causes, upper: Causes) -> Causes:
    """By what the distance of two bounds varies: where they move together it is this rank's share."""
    moving = only(lower, "rank", "member") and only(upper, "rank", "member")
    passed = only(lower, "param") & only(upper, "param")  # what a caller's rank is to both
    return shared_out(lower) if moving or any(c.facet != "a" for c in passed) else lower | upper
