"""The constants of the memory model, fitted to some recorded peaks, and the error on all the others."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path
from statistics import median

from bench.configuration import model_facts
from bench.predict.layout import Layout
from bench.predict.memory import by_moment
from bench.predict.moments import CONSTANTS, Constants
from bench.report.predicted import layout, memory_errors
from bench.report.rows import Row, collect
from rules.models import ModelFacts, resolve

CHOICES = {
    "chunk_backward": [10.0, 12.0, 14.0, 16.0, 18.0, 20.0],
    "zero_table_copies": [1.0, 2.0, 3.0, 4.0],
    "fsdp_layers": [0.0, 1.0, 2.0, 3.0],
}
"""Values tried for each fitted constant: whole tensors, for each stands for a number of them."""

PROTOTYPE: tuple[tuple[int, float, dict[str, object]], ...] = (
    (4, 38.5, {"backend": "deepspeed", "zero_stage": 0, "head": "full"}),
    (4, 19.4, {"backend": "deepspeed", "zero_stage": 1, "head": "full"}),
    (4, 19.4, {"backend": "deepspeed", "zero_stage": 2, "head": "full"}),
    (4, 20.5, {"backend": "deepspeed", "zero_stage": 3, "head": "full"}),
    (4, 17.7, {"backend": "fsdp2", "head": "full", "embedding_apart": False}),
    (32, 81.0, {"backend": "fsdp2", "head": "compiled", "compiled": True, "reshard": False}),
    (32, 67.0, {"backend": "fsdp2", "head": "compiled", "compiled": True, "embedding_apart": False}),
    (32, 83.0, {"backend": "fsdp2", "head": "compiled", "embedding_apart": False}),
    (32, 81.0, {"backend": "deepspeed", "zero_stage": 2, "head": "compiled", "compiled": True}),
    (32, 92.0, {"backend": "deepspeed", "zero_stage": 3, "head": "compiled"}),
)
"""Layers, peak GB and layout of a prototype written apart from this code, on four H200s with torch 2.11 and the shape
of Llama 3.1 8B: 4,096 tokens per GPU with 4 layers, 8,192 with 32."""


@dataclass(frozen=True)
class Peak:
    """One measured peak in bytes, and what it was measured with; `fitted` says that constants were fitted to it."""

    name: str
    facts: ModelFacts
    layout: Layout
    measured: float
    fitted: bool

    def estimate(self, constants: Constants = CONSTANTS) -> tuple[float, str]:
        """Predicted bytes, and the moment of the step in which they are reached."""
        moments = by_moment(self.facts, self.layout, constants)
        worst = max(moments, key=lambda name: moments[name].allocated)
        return moments[worst].allocated, worst

    def error(self, constants: Constants = CONSTANTS) -> float:
        return self.estimate(constants)[0] / self.measured - 1.0


def fitted_to(row: Row) -> bool:
    """What the constants are fitted to: 2, 4 and 8 layers on four GPUs without tensor parallelism and ring, as
    `matrix.jsonl` holds them. Fewer rows do not tell a gathered layer from a larger chunk."""
    c = row.configuration
    return row.source.name == "matrix.jsonl" and c.tp == 1 and c.ring == 1


def peaks(results: Path) -> list[Peak]:
    """All recorded peaks under `results` that the model can predict, and those of the prototype."""
    found = []
    for one in memory_errors(collect([results]).rows):
        row, c = one.row, one.row.configuration
        extra = [*["offload"] * c.cpu_offload, *["checkpointing"] * c.gradient_checkpointing]
        extra += [*["no reshard"] * (not c.reshard_after_forward), c.head]
        name = f"{row.variant}, {c.num_gpus} GPU, {c.num_layers} layers, {row.setting}, {' '.join(extra)}"
        facts = model_facts(c.model, c.num_layers)
        found.append(Peak(f"{row.source.stem}: {name}", facts, layout(row), one.measured, fitted_to(row)))
    llama = resolve("llama-3.1-8b")
    for layers, gigabytes, settings in PROTOTYPE:
        setting = Layout(dp=4, seq_len=8192 if layers == 32 else 4096, **settings)  # type: ignore[arg-type]
        name = ", ".join(str(value) for key, value in settings.items() if key not in ("reshard", "embedding_apart"))
        found.append(Peak(f"prototype: {name}, {layers} layers", llama.with_layers(layers), setting,
                          gigabytes * 1e9, fitted=False))  # fmt: skip
    return found


def fit(known: Sequence[Peak]) -> Constants:
    """Of all combinations of `CHOICES` the one with the least mean absolute error.

    Memory that another stream used is freed when that stream is done: a few peaks stand apart by a gigabyte, and
    squares would follow them.
    """

    def distance(constants: Constants) -> float:
        return sum(abs(peak.error(constants)) for peak in known)

    values = product(*CHOICES.values())
    return min((replace(CONSTANTS, **dict(zip(CHOICES, one, strict=True))) for one in values), key=distance)


def spread(found: Sequence[Peak], constants: Constants = CONSTANTS) -> tuple[float, float]:
    """Median and largest absolute error."""
    errors = [abs(peak.error(constants)) for peak in found]
    return median(errors), max(errors)
