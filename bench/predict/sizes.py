"""A configuration in the words of others: a layout for the models of memory and traffic, quantities for the table of
constraints. No torch needed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from bench import backends
from bench.configuration import SETTINGS, Configuration
from bench.predict.layout import Layout
from bench.results import environment
from rules.constraints import NAMES, Quantities, Violation, check

OTHER_NAMES = {"world_size": "num_gpus", "offload_optimizer": "cpu_offload"}
"""Quantities whose setting is called otherwise."""
FLAGS = {
    quantity: f"--{OTHER_NAMES.get(quantity, quantity).replace('_', '-')}"
    for quantity in NAMES if OTHER_NAMES.get(quantity, quantity) in SETTINGS
}  # fmt: skip
"""The flag of `bench run` that sets a quantity."""


def layout(c: Configuration, positions: float | None = None) -> Layout:
    """A configuration as it lies on its GPUs; `positions` of its longest micro-batch, where they are known.

    A packed batch is one row of its tokens; a padded one has `seq_len` positions in every row.
    """
    padded = not c.packing or positions is None
    return Layout(
        backend=c.backend, zero_stage=c.zero_stage, dp=c.dp, tp=c.tp, ring=c.ring,
        micro_batch_size=c.rows if padded else 1, seq_len=c.seq_len if padded else round(positions or 0),
        grad_accum=c.accumulation, dtype=c.dtype, head=c.head, compiled=c.compile != "none",
        eager_attention=c.attn == "eager", checkpointing=c.gradient_checkpointing,
        sequence_parallel=c.sequence_parallel, reshard=c.reshard_after_forward, offload_optimizer=c.cpu_offload,
        offload_param=c.cpu_offload and backends.find(c.backend).offloads_parameters,
        whole_gradients=backends.find(c.backend).keeps_whole_gradients(c),
    )  # fmt: skip


def quantities(
    c: Configuration, device: str, model: Mapping[str, Any] | None = None, versions: Mapping[str, str] | None = None
) -> Quantities:
    """A configuration in the table's words on `cpu` or `cuda`. `model` holds the sizes of the model by their names
    there; `versions` are those installed where none are given. What runs here pads and packs as `bench.inputs` does."""
    backend = backends.find(c.backend)
    known: dict[str, Any] = {
        **(model or {}), **backend.quantities(c.zero_stage),
        "world_size": c.num_gpus, "tp": c.tp, "ring": c.ring, "device": device, "train_batch_size": c.batch,
        "micro_batch_size": c.rows, "dtype": c.dtype, "packing": c.packing, "sequence_parallel": c.sequence_parallel,
        "compile": backend.graph_mode(c.zero_stage, c.compile), "offload_optimizer": c.cpu_offload,
        "attn": "sdpa" if c.attn.startswith("sdpa_") else c.attn,
        # Documents are padded to the ring and the row to tp; maximum lengths are passed as integers.
        "pads_sequence": True, "dynamic_batch": False, "max_length_type": "int",
    }  # fmt: skip
    if c.ring > 1:
        known |= {"ring_impl": "zigzag" if device == "cuda" else "sdpa", "ring_import_shim": True}
        known["ring_hf_adapter"] = False
    found = environment.versions() if versions is None else versions
    known |= {f"{package.replace('-', '_')}_version": version for package, version in found.items()}
    return Quantities.of(**{name: value for name, value in known.items() if name in NAMES}).with_unit_sizes()


def refusal(c: Configuration, device: str, model: Mapping[str, Any] | None = None) -> tuple[str, str, str] | None:
    """The id, the message and the help of the first constraint that a configuration breaks, or None."""
    for violation in check(quantities(c, device, model)).errors:
        return violation.constraint.id, violation.message, advice(violation)
    return None


def advice(violation: Violation, flags: Mapping[str, str] = FLAGS) -> str:
    """The changes that would satisfy a constraint, as flags: `--tp 2 or 4, or --num-gpus 6`; those without one are left
    out."""
    found = [_flag(flags[each.quantity], each.values) for each in violation.proposals if each.quantity in flags]
    return f"take {', or '.join(found)}" if found else ""


def _flag(flag: str, values: Sequence[Any]) -> str:
    words = ["on" if value is True else "off" if value is False else str(value) for value in values]
    return f"{flag} {' or '.join(words)}"
