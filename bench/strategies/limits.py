"""The table of parallelism constraints, applied to what a strategy is about to set up."""

from __future__ import annotations

from importlib import metadata
from typing import Any

from bench.configuration import graph_mode
from bench.strategies.config import StrategyConfig
from rules import constraints
from rules.constraints import Quantities


class UnsupportedError(ValueError):
    """A configuration that the table rules out. `constraint` is the id of the first constraint it breaks."""

    def __init__(self, constraint: str, message: str) -> None:
        super().__init__(f"{message} [{constraint}]")
        self.constraint = constraint


def version_of(package: str) -> str | None:
    """The installed version of a distribution, without importing it; None where it is absent."""
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def quantities(config: StrategyConfig, device: str, model: dict[str, Any] | None = None) -> Quantities:
    """The configuration in the table's words. `model` holds the sizes that `bench.measure.model.describe` gives."""
    from bench.parallel.ring_attention import has_flash_kernels

    known: dict[str, Any] = {
        "backend": config.backend if config.backend in ("deepspeed", "fsdp2", "ddp") else None,
        "world_size": config.world_size, "tp": config.tp, "ring": config.ring, "device": device,
        "train_batch_size": config.train_batch_size, "micro_batch_size": config.micro_batch_size,
        "dtype": config.dtype, "packing": config.packing,
        "sequence_parallel": config.sequence_parallel,
        "compile": graph_mode(config.backend, config.zero_stage, config.compile),
        "offload_optimizer": config.cpu_offload,
        "attn": "sdpa" if config.attn.startswith("sdpa_") else config.attn,
        # Documents are padded to the ring and the row to tp; maximum lengths are passed as integers.
        "pads_sequence": True, "dynamic_batch": False, "max_length_type": "int",
        "zero_stage": config.zero_stage if config.backend == "deepspeed" else None,
    }  # fmt: skip
    if config.ring > 1:
        known["ring_impl"] = "zigzag" if device == "cuda" and has_flash_kernels() else "sdpa"
        known["ring_import_shim"], known["ring_hf_adapter"] = True, False
    for package in ("torch", "transformers", "deepspeed", "flash_attn", "ring_flash_attn"):
        known[f"{package}_version"] = version_of(package.replace("_", "-"))
    sizes = model or {}
    names = {
        "heads": "num_attention_heads", "kv_heads": "num_key_value_heads", "head_dim": "head_dim",
        "hidden": "hidden_size", "mlp": "intermediate_size", "layers": "num_layers", "vocab": "vocab_size",
    }  # fmt: skip
    known |= {ours: sizes.get(theirs) for ours, theirs in names.items()}
    return Quantities.of(**known).with_unit_sizes()


def refusal(config: StrategyConfig, device: str, model: dict[str, Any] | None = None) -> tuple[str, str] | None:
    """The id and message of the first constraint that the configuration breaks, or None."""
    for violation in constraints.check(quantities(config, device, model)).errors:
        help_ = violation.help()
        return violation.constraint.id, f"{violation.message}{'; ' + help_ if help_ else ''}"
    return None


def require(config: StrategyConfig, device: str, model: dict[str, Any] | None = None) -> None:
    """Raise `UnsupportedError` for a configuration that cannot work."""
    refused = refusal(config, device, model)
    if refused is not None:
        raise UnsupportedError(*refused)
