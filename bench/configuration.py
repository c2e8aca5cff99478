"""One configuration of a measurement: what is run, and the name of its result directory. No torch needed."""

from __future__ import annotations

import hashlib
import json
import math
import re
import sys
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any, get_args, get_type_hints

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

from bench.parsing import nearest
from rules.models import ModelError, ModelFacts, from_config, load, resolve

SCHEMA = 1
FILE = "configuration.json"
PRESETS = Path(__file__).with_name("presets.toml")
CHOICES: Mapping[str, tuple[Any, ...]] = {
    "zero_stage": (0, 1, 2, 3),
    "attn": (
        "auto", "eager", "sdpa", "sdpa_flash", "sdpa_efficient", "sdpa_cudnn", "flash_attention_2", "flash_attention_3",
        "flash_attention_4", "flex",
    ),
    "compile": ("none", "blocks", "full", "deepcompile"),
    "autotune": ("none", "max", "coordinate"),
    "dtype": ("bf16", "fp16", "fp32"),
    "reduce_dtype": ("fp32", "bf16", "fp16"),
    "head": ("full", "chunked", "compiled", "liger"),
    "optimizer": ("adamw", "sgd"),
    "tp_plan": ("hf", "optimized", "llama"),
    "device": ("auto", "cpu", "cuda"),
}  # fmt: skip
"""Settings that take one of few values."""
SEED_FOLDER = re.compile(r"seed-(?P<model>.+)-[0-9a-f]{12}")
ANY_WHOLE_NUMBER = ("random_seed",)
LARGEST = 10**12
"""Of all sizes: more is a slip, and arithmetic with it would leave the range of floats."""


class ConfigurationError(ValueError):
    """A flag or setting that cannot be used; the message is one line for the user."""


@dataclass(frozen=True)
class Configuration:
    """Everything that a result depends on. Equal configurations have equal hashes and share a result directory.

    Sizes count processes, batches samples, `seq_len` tokens. None means: decided by the inputs or the machine.
    """

    backend: str = "ddp"
    num_gpus: int = 1
    tp: int = 1
    ring: int = 1
    zero_stage: int = 2
    model: str = "llama-tiny"
    num_layers: int | None = None
    attn: str = "sdpa"
    compile: str = "none"
    autotune: str = "none"
    packing: bool = True
    dtype: str = "bf16"
    head: str = "chunked"
    loss: str = "sft"
    optimizer: str = "adamw"
    lr: float = 1e-4
    weight_decay: float = 0.0
    max_norm: float = 1.0
    backward: bool = True
    gradient_checkpointing: bool = False
    cpu_offload: bool = False
    reshard_after_forward: bool = True
    reduce_dtype: str = "fp32"
    sequence_parallel: bool = False
    tp_plan: str = "hf"
    async_tp: bool = False
    micro_batch_size: int | None = None
    train_batch_size: int | None = None
    seq_len: int = 2048
    full_length: bool = False
    inputs: str | None = None
    input_hash: str | None = None
    max_inputs: int | None = None
    fold_tokens: bool = False
    shuffle_inputs: bool = False
    simulate_ranks: int = 1
    random_seed: int = 42
    warmup: int = 3
    steps: int = 10
    device: str = "auto"
    trust_remote_code: bool = False

    @property
    def dp(self) -> int:
        return max(self.num_gpus // (self.tp * self.ring), 1)

    @property
    def rows(self) -> int:
        """Samples of one forward pass; recorded batches keep their own number where none is asked for."""
        return self.micro_batch_size or (1 if self.inputs else 4)

    @property
    def batch(self) -> int:
        """Samples of one optimizer step."""
        return self.train_batch_size or self.rows * self.dp

    def content_hash(self) -> str:
        """Twelve hexadecimal digits over all fields and the schema of results."""
        canonical = json.dumps([SCHEMA, asdict(self)], sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(canonical.encode()).hexdigest()[:12]

    def label(self) -> str:
        """A short name for people; not unique, the directory's name adds the hash."""
        backend = f"zero{self.zero_stage}" if self.backend == "deepspeed" else self.backend.rpartition(":")[2]
        parts = [backend, f"{self.num_gpus}x"]
        parts += [f"tp{self.tp}"] * (self.tp > 1) + [f"ring{self.ring}"] * (self.ring > 1)
        parts += [f"L{self.num_layers}"] * (self.num_layers is not None)
        parts += [self.attn.replace("flash_attention_", "fa")]
        parts += [self.compile] * (self.compile != "none") + ["packed" if self.packing else "padded"]
        return "-".join(parts)

    def directory(self, output: Path) -> Path:
        return output / f"{self.label()}-{self.content_hash()}"

    def to_json(self) -> str:
        return json.dumps(asdict(self), indent=1, sort_keys=True)


def model_name(model: str) -> str:
    """What people call a model: a preset, or the last part of a path or of a name on the hub."""
    made = SEED_FOLDER.fullmatch(Path(model).name)
    if made:
        return made["model"]
    path = Path(model)
    return path.parent.name if path.name == "config.json" and path.parent.name else path.name


def seed_folder(model: str, identity: str) -> str:
    """The name of the folder of a checkpoint that is made of a model; `model_name` finds the model's in it."""
    return f"seed-{model_name(model).removesuffix('.json')}-{identity}"


def compiles(configuration: Configuration) -> bool:
    """Whether its first step compiles something."""
    return configuration.compile != "none" or configuration.head == "compiled"


def graph_mode(backend: str, zero_stage: int, compile: str) -> str:
    """The compile mode in the table's words.

    The table rules out compiled blocks at ZeRO-3, because hooks on every module inside a layer break its graph.
    `DeepspeedStrategy` makes each layer one leaf that is gathered whole and compiles what lies between its hooks.
    """
    return "none" if backend == "deepspeed" and zero_stage == 3 and compile == "blocks" else compile


def store(configuration: Configuration, folder: Path) -> None:
    """Write a configuration where the ranks that work in a folder read it."""
    (folder / FILE).write_text(configuration.to_json(), encoding="utf-8")


def stored(folder: Path) -> Configuration:
    """The configuration that `store` wrote there."""
    return parse(json.loads((folder / FILE).read_text(encoding="utf-8")))


def parse(values: Mapping[str, Any]) -> Configuration:
    """A configuration from plain values; raises `ConfigurationError` for names that do not exist and for values that
    a setting cannot have."""
    unknown = sorted(set(values) - set(kinds()))
    if unknown:
        raise ConfigurationError(f"no such setting: {', '.join(unknown)}{nearest(unknown[0], kinds())}")
    for name, value in values.items():
        problem = _problem(name, value)
        if problem:
            raise ConfigurationError(f"{name} = {value!r}: {problem}")
    return replace(Configuration(), **values)


@cache
def kinds() -> dict[str, tuple[type, ...]]:
    """The types that each setting may have."""
    return {name: get_args(hint) or (hint,) for name, hint in get_type_hints(Configuration).items()}


def _problem(name: str, value: Any) -> str | None:
    """What is wrong with the value of a setting."""
    allowed = kinds()[name]
    if value is None and type(None) in allowed:
        return None
    if name in CHOICES and (isinstance(value, bool) or value not in CHOICES[name]):
        return f"choose from {', '.join(map(str, CHOICES[name]))}"
    if bool in allowed:
        return None if isinstance(value, bool) else "neither true nor false"
    if str in allowed:
        return None if isinstance(value, str) else "not a text"
    if float in allowed:
        number = isinstance(value, (int, float)) and not isinstance(value, bool)
        return None if number and math.isfinite(value) and value >= 0 else "not a number from 0 on"
    if isinstance(value, bool) or not isinstance(value, int):
        return "not a whole number"
    if name in CHOICES or name in ANY_WHOLE_NUMBER:
        return None
    if value > LARGEST:
        return f"larger than {LARGEST}"
    return None if value >= 1 else "not a whole number from 1 on"


def parse_known(values: Mapping[str, Any]) -> Configuration:
    """As `parse`, for results of other versions: names and choices that this one lacks are passed over or kept.

    Raises `ConfigurationError` for values of another type, which no version writes.
    """
    choices: dict[str, Any] = {k: value for k, value in values.items() if k in CHOICES and isinstance(value, str)}
    rest = {name: value for name, value in values.items() if name in kinds() and name not in choices}
    return replace(parse(rest), **choices)


def model_facts(model: str, num_layers: int | None) -> ModelFacts:
    """The sizes of a model without torch: a preset of bench, whatever `rules.models` knows, or a name on the hub.

    Raises `rules.models.ModelError`, a one-line message.
    """
    with PRESETS.open("rb") as file:
        presets = tomllib.load(file)
    facts = from_config(presets[model], model) if model in presets else _resolved(model)
    return facts.with_layers(num_layers) if num_layers else facts


@cache
def _resolved(model: str) -> ModelFacts:
    try:
        return resolve(model)
    except ModelError:
        path = _from_hub(model)
        if path is None:
            raise
        return load(path)


def _from_hub(model: str) -> str | None:
    """The `config.json` of a name on the hub, which HF_HUB_OFFLINE forbids to ask; None for what looks like a path."""
    if not re.fullmatch(r"[\w-][\w.-]*/[\w.-]+", model) or Path(model).parent.exists():
        return None
    try:
        import huggingface_hub

        return huggingface_hub.hf_hub_download(model, "config.json")
    except (ImportError, OSError, ValueError):
        return None


def hash_inputs(path: Path) -> str:
    """Twelve digits over the names and sizes and contents of the recorded inputs under `path`."""
    digest = hashlib.sha256()
    files = [path] if path.is_file() else sorted(entry for entry in path.iterdir() if entry.is_file())
    for file in files:
        digest.update(file.name.encode())
        digest.update(hashlib.sha256(file.read_bytes()).digest())
    return digest.hexdigest()[:12]
