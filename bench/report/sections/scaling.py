"""Cost against the number of layers; see `bench.report.scaling`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from bench.report.rows import Collection
from bench.report.scaling import TARGET, Fit, fits
from bench.report.sections import Table

PLACE, TITLE, KEY = 40, "Scaling with layers", "scaling"


CHECKED = ("layers", "predicted", "measured", "error")


def content(found: Collection) -> list[Fit]:
    return fits(found.rows)


def table(found: Sequence[Fit]) -> Table:
    return Table(
        ("setting", "quantity", "depths", "head", "per layer", f"{TARGET} layers", "deeper: fit, measured, error"),
        [_row(fit) for fit in found],
        "Cost = head + cost per layer × layers, by least squares. Each depth from the third on is predicted from the "
        "shallower ones; the error is that of the prediction. A cost per layer or a head that is not positive "
        "means that overheads or noise hide it: such a fit predicts nothing.",
    )


def _row(fit: Fit) -> list[str]:
    scale = fit.quantity.scale
    checks = [f"{c.layers}: {c.predicted * scale:.1f}, {c.measured * scale:.1f}, {c.error:+.0%}" for c in fit.checks]
    return [
        fit.name, f"{fit.quantity.name}, {fit.quantity.unit}", ", ".join(map(str, fit.layers)),
        f"{fit.head * scale:.2f}", f"{fit.per_layer * scale:.3f}",
        f"{fit.at(TARGET) * scale:.1f}" if fit.sensible else "-", "; ".join(checks),
    ]  # fmt: skip


def data(found: Sequence[Fit]) -> list[dict[str, Any]]:
    return [
        {
            "setting": fit.name, "quantity": fit.quantity.name, "layers": list(fit.layers), "head": fit.head,
            "per_layer": fit.per_layer,
            "checks": [{name: getattr(c, name) for name in CHECKED} for c in fit.checks],
        }
        for fit in found
    ]  # fmt: skip
