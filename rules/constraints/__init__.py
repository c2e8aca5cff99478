"""The one table of parallelism constraints: used on code, on launch scripts, and before anything is started.

    from rules.constraints import Quantities, check

    report = check(Quantities.of(backend="fsdp2", world_size=8, tp=3, ring=1).with_unit_sizes())
    for violation in report.violations:
        print(violation.constraint.id, violation.message, violation.help())

Each constraint knows which quantities it needs. What is unknown is never guessed: such a constraint ends in
`report.unchecked` ("cannot be checked: …") when it applies, and in `report.undecided` when even that is not
known. Nothing here imports more than the standard library.
"""

from __future__ import annotations

from rules.constraints import batches, engines, experts, kernels, model, rollout, sampling, sizes
from rules.constraints.backends import BACKENDS, FRAMEWORKS, Backend
from rules.constraints.core import (
    Condition,
    Constraint,
    Outcome,
    Proposal,
    Report,
    Unchecked,
    Violation,
    check_against,
)
from rules.constraints.core import nearest as _nearest
from rules.constraints.core import proposals as _proposals
from rules.constraints.quantities import CHOICES, NAMES, Quantities, data_parallel, model_parallel

__all__ = [
    "BACKENDS", "CHOICES", "FRAMEWORKS", "NAMES", "SECTIONS", "TABLE", "Backend", "Condition", "Constraint",
    "Outcome", "Proposal", "Quantities", "Report", "Unchecked", "Violation", "check", "constraint",
    "data_parallel", "explain", "model_parallel", "nearest",
]  # fmt: skip

SECTIONS: dict[str, tuple[Constraint, ...]] = {
    "Mesh and sizes": sizes.TABLE,
    "Batches and lengths": batches.TABLE,
    "The model's shape": model.TABLE,
    "Experts": experts.TABLE,
    "Kernels and compilation": kernels.TABLE,
    "Training engines": engines.TABLE,
    "Reinforcement learning": rollout.TABLE,
    "Log-probabilities of trainer and engine": sampling.TABLE,
}
"""The table by subject, as the reference page shows it."""

TABLE: tuple[Constraint, ...] = tuple(c for section in SECTIONS.values() for c in section)
"""Every constraint, in the order of the reference page."""

_BY_ID = {c.id: c for c in TABLE}


def constraint(identifier: str) -> Constraint:
    """The constraint with this id; KeyError when there is none."""
    return _BY_ID[identifier]


def check(quantities: Quantities, *, propose: bool = True) -> Report:
    """What the table says about a configuration, with the nearest values that would mend each violation."""
    return check_against(TABLE, quantities, propose=propose)


def explain(violation: Violation, quantities: Quantities) -> Violation:
    """A violation found with `propose=False`, with its proposals: the search costs milliseconds."""
    return violation._replace(proposals=tuple(_proposals(TABLE, violation.constraint, quantities)))


def nearest(identifier: str, quantities: Quantities, quantity: str) -> tuple[object, ...]:
    """The values of `quantity` nearest to its present one that satisfy the constraint and break no other."""
    return _nearest(TABLE, constraint(identifier), quantities, quantity)
