"""Sites: what is noted of whom a call, or a statement that runs a unit, runs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from validator.domains.spmd import UNIFORM, only
from validator.flow.merging.conditions import stored_under
from validator.flow.program.answers import Site
from validator.flow.values import UNKNOWN, Val

if TYPE_CHECKING:
    from validator.flow.evaluation import Evaluation


def note(at: Evaluation, number: int, site: Site) -> None:
    """Note what runs at an instruction, under the branches around it, beside what is noted there already."""
    site = site._replace(under=at.around(number))
    known = at.sites.get(number)
    at.sites[number] = known.merged(site) if known is not None else site


def note_choice(at: Evaluation, number: int, callee: Val) -> None:
    """Ranks may choose differently whom they call."""
    site = at.sites.get(number)
    if site is None or not callee.v:
        return
    # a `partial` varies with what it holds: the data of each rank, and what is passed, do not choose between them
    causes = only(callee.v, "rank", "member", *(() if callee.of("partial") else ("data", "param")))
    causes = frozenset(c for c in causes if c.sure or c.kind != "data")  # a table is looked into alike, mostly
    others = any(o[0] not in ("bound", "unit", "class", "partial") for o in callee.each)
    if causes and len(site.targets) + others > 1:
        at.sites[number] = site._replace(chosen=site.chosen | causes, others=others)


def note_away(at: Evaluation, number: int) -> None:
    """What runs at a site runs in another process."""
    site = at.sites.get(number)
    if site is not None:
        at.sites[number] = site._replace(away=True)


def note_switch(at: Evaluation, number: int, state: str) -> None:
    """A library is set up here."""
    value = stored_under(at, at.code.values[number].block, UNKNOWN)
    at.switched[number] = (state, Val(p=value.p or frozenset({UNIFORM})))
