"""One configuration of a measurement: what is run, and the name of its result directory. No torch needed."""

from __future__ import annotations

import hashlib
import json
import math
import re
import sys
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, fields, replace
from functools import cache
from pathlib import Path
from typing import Any, get_args, get_type_hints

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

from bench import hub
from bench.pickles import one_line
from bench.problems import Problem
from bench.settings import LENGTH, LESS, MORE, NONE, PLACE, SPLIT, WAY, WORK, Setting, setting
from bench.terminal.parsing import LARGEST, nearest
from rules.models import ModelError, ModelFacts, find, from_config, load, resolve

SCHEMA = 1
FILE = "configuration.json"
WEIGHTS = ("*.safetensors", "pytorch_model*.bin")
SEED_FOLDER = re.compile(r"seed-(?P<model>.+)-[0-9a-f]{12}")


class ConfigurationError(Problem):
    """A flag or setting that cannot be used; the message is one line for the user."""


WHAT = "what runs; every setting takes a list, such as 1,2,4, and lists make a sweep"
HOW, INPUTS, HOW_LONG = "how it trains", "inputs", "how long"
"""Groups of flags."""


@dataclass(frozen=True)
class Configuration:
    """Everything that a result depends on. Equal configurations have equal hashes and share a result directory.

    Sizes count processes, batches samples, `seq_len` tokens. None means: decided by the inputs or the machine.
    """

    backend: str = setting("ddp", SPLIT, "{backends}, or package.module:Class", WHAT, word=str)
    num_gpus: int = setting(1, WORK, "processes", WHAT, unset="default: one per GPU, without GPUs 2")
    tp: int = setting(
        1, SPLIT, "tensor-parallel size", WHAT,
        others=("--tp-size", "--fsdp_tensor_parallel_size", "--ds_tensor_parallel_size"),
    )  # fmt: skip
    ring: int = setting(
        1, SPLIT, "ring-attention size: ranks that share a sequence", WHAT, others=("--ring-size", "--ring_attn_size")
    )
    zero_stage: int = setting(2, SPLIT, "of deepspeed: {choices}", WHAT, choices=(0, 1, 2, 3))
    model: str = setting(
        "llama-tiny", WORK, "preset, config.json, directory or hub name", WHAT, others=("--pretrain",),
        word=lambda value: model_name(value),
    )  # fmt: skip
    num_layers: int | None = setting(
        None, WORK, "cut or extend the model to this many layers; where a model is named, all of its own", WHAT,
        no_word="all-layers", memory=MORE,
    )  # fmt: skip
    attn: str = setting(
        "sdpa", WAY, "implementation of attention: {choices}", WHAT,
        word=lambda value: value.replace("flash_attention_", "fa"),
        choices=(
            "auto", "eager", "sdpa", "sdpa_flash", "sdpa_efficient", "sdpa_cudnn", "flash_attention_2",
            "flash_attention_3", "flash_attention_4", "flex",
        ),
    )  # fmt: skip
    compile: str = setting(
        "none", WAY, "none, blocks (each layer; the meaning of --compile alone), full, deepcompile", WHAT,
        choices=("none", "blocks", "full", "deepcompile"), alone="blocks",
        word=lambda value: "eager" if value == "none" else value,
    )  # fmt: skip
    autotune: str = setting(
        "none", WAY, "what the compiler tries out; max: kernels of matrix products, coordinate: block sizes of its own "
        "ones", HOW, choices=("none", "max", "coordinate"), word="autotune-{}".format,
    )  # fmt: skip
    packing: bool = setting(
        True, WAY, "pack samples without padding", WHAT, others=("--packing_samples",), off=("--no-packing_samples",),
        word=lambda value: "packed" if value else "padded",
    )  # fmt: skip
    dtype: str = setting(
        "bf16", WORK, "that the model computes in: {choices}", HOW, choices=("bf16", "fp16", "fp32"),
        others=("--param_dtype",), word=str,
    )  # fmt: skip
    head: str = setting(
        "chunked", WAY, "how logits are computed: {choices}; full: all at once in fp32", HOW,
        choices=("full", "chunked", "compiled", "liger"), word="{}-head".format,
    )  # fmt: skip
    loss: str = setting("sft", WORK, "sft, ppo or module:function", HOW, word=str)
    optimizer: str = setting(
        "adamw", WORK, "the same of torch for all backends: {choices}", HOW, choices=("adamw", "sgd"), word=str
    )
    lr: float = setting(
        1e-4, WORK, "learning rate", HOW, others=("--learning_rate",), word="lr{:g}".format, memory=NONE
    )
    weight_decay: float = setting(0.0, WORK, "of the optimizer", HOW, memory=NONE)
    max_norm: float = setting(1.0, WORK, "gradients are clipped to this norm; 0: not at all", HOW, memory=NONE)
    backward: bool = setting(True, WORK, "the backward pass and the optimizer's step as well", HOW)
    gradient_checkpointing: bool = setting(
        False, WAY, "compute activations again in the backward pass", HOW, memory=LESS
    )
    cpu_offload: bool = setting(
        False, WAY, "optimizer states, and with FSDP2 parameters, on the CPU", HOW, others=("--adam_offload",),
        memory=LESS,
    )  # fmt: skip
    reshard_after_forward: bool = setting(
        True, SPLIT, "FSDP2 gives gathered parameters back between forward and backward", HOW, off=("--no-reshard",),
        memory=LESS,
    )  # fmt: skip
    reduce_dtype: str = setting(
        "fp32", SPLIT, "of FSDP2's gradients: {choices}", HOW, choices=("fp32", "bf16", "fp16"), word="reduce-{}".format
    )
    sequence_parallel: bool = setting(False, SPLIT, "split norms' activations over tp ranks", HOW, memory=LESS)
    tp_plan: str = setting(
        "hf", SPLIT, "whose plan of tensor parallelism: {choices}", HOW, choices=("hf", "optimized", "llama")
    )
    async_tp: bool = setting(
        False, WAY, "exchange beside the products of fsdp2's tensor parallelism, by the GPUs' copy engines: one "
        "host, --sequence-parallel", HOW,
    )  # fmt: skip
    micro_batch_size: int | None = setting(
        None, WORK, "samples per rank and forward pass", HOW, unset="default 4, of recorded batches 1",
        others=("--micro_train_batch_size",), word="mb{}".format, no_word="mb-default",
    )  # fmt: skip
    train_batch_size: int | None = setting(
        None, WORK, "samples per step of all ranks", HOW, unset="default: a micro-batch each", word="batch{}".format,
        no_word="batch-default",
    )  # fmt: skip
    seq_len: int = setting(2048, WORK, "positions of a synthetic row", WHAT, word="seq{}".format, memory=MORE)
    full_length: bool = setting(False, WORK, "synthetic rows without padding", INPUTS)
    inputs: str | None = setting(
        None, PLACE, "recorded batches, a directory or file", INPUTS, unset="default: synthetic ones",
        no_word="synthetic",
    )  # fmt: skip
    input_hash: str | None = setting(None, WORK, "", no_word="synthetic", word="inputs-{:.8}".format)
    max_inputs: int | None = setting(
        None, WORK, "the first so many; without it all of them", INPUTS, no_word="all-inputs", recorded=True
    )
    fold_tokens: bool = setting(False, WORK, "token ids modulo the vocabulary: for tiny models", INPUTS, recorded=True)
    shuffle_inputs: bool = setting(
        False, WORK, "every rank takes all inputs in its own order", INPUTS, recorded=True, memory=NONE
    )
    simulate_ranks: int = setting(1, WORK, "orders on one process, padded to the longest", INPUTS, recorded=True)
    random_seed: int = setting(
        42, WORK, "of weights, data and orders", INPUTS, others=("--seed",), word="seed{}".format, memory=NONE,
        any_number=True,
    )  # fmt: skip
    warmup: int = setting(
        3, LENGTH, "steps at least before the measured ones; they go on until three agree", HOW_LONG,
        word="{}-warmup".format, memory=NONE,
    )  # fmt: skip
    steps: int = setting(
        10, LENGTH, "measured steps of each process group", HOW_LONG, word="{}-steps".format, memory=NONE
    )
    device: str = setting(
        "auto", PLACE, "auto: GPUs where there are some; one for all rows, since the launcher's GPUs follow from it",
        choices=("auto", "cpu", "cuda"), word=str, single=True,
    )  # fmt: skip
    trust_remote_code: bool = setting(
        False, PLACE, "run model code that a hub repository or directory holds: a permission, for all rows",
        single=True,
    )  # fmt: skip

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

    @property
    def accumulation(self) -> int:
        """Micro-batches of one optimizer step on each data-parallel rank."""
        return max(self.batch // (self.rows * self.dp), 1)

    def on_gpu(self, gpus: int) -> bool:
        """Whether it runs on GPUs where so many are visible."""
        return self.device == "cuda" or (self.device == "auto" and gpus > 0)

    @property
    def short_backend(self) -> str:
        """What rows call the backend: `zero2`, `fsdp2`, the name of a class."""
        from bench import backends

        return backends.find(self.backend).short(self.zero_stage)

    def content_hash(self) -> str:
        """Twelve hexadecimal digits over all fields and the schema of results."""
        canonical = json.dumps([SCHEMA, asdict(self)], sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(canonical.encode()).hexdigest()[:12]

    def values(self, names: Iterable[str]) -> tuple[Any, ...]:
        return tuple(getattr(self, name) for name in names)

    def split_words(self) -> list[str]:
        """The backend, and the sizes by which it splits the model."""
        return [self.short_backend, *[f"tp{self.tp}"] * (self.tp > 1), *[f"ring{self.ring}"] * (self.ring > 1)]

    def way_words(self) -> list[str]:
        """Attention, compilation and packing."""
        compiled = [self.compile] * (self.compile != "none")
        return [self.attn.replace("flash_attention_", "fa"), *compiled, "packed" if self.packing else "padded"]

    def label(self) -> str:
        """A short name for people; not unique, the directory's name adds the hash."""
        backend, *sizes = self.split_words()
        layers = [f"L{self.num_layers}"] * (self.num_layers is not None)
        return "-".join([backend, f"{self.num_gpus}x", *sizes, *layers, *self.way_words()])

    def directory(self, output: Path) -> Path:
        return output / f"{self.label()}-{self.content_hash()}"

    def to_json(self) -> str:
        return json.dumps(asdict(self), indent=1, sort_keys=True)


SETTINGS: Mapping[str, Setting] = {each.name: each.metadata["setting"] for each in fields(Configuration)}
"""The description of each setting, in the order of the fields."""
IN_LABEL = ("backend", "zero_stage", "num_gpus", "tp", "ring", "num_layers", "attn", "compile", "packing")
"""What `Configuration.label` says of any row."""


def deciding(*parts: str) -> tuple[str, ...]:
    """The settings that decide one of these (`bench.settings.SPLIT`, …)."""
    return tuple(name for name, one in SETTINGS.items() if one.decides in parts)


def model_name(model: str) -> str:
    """What people call a model: a preset, or the last part of a path or of a name on the hub."""
    made = SEED_FOLDER.fullmatch(Path(model).name)
    if made:
        return made["model"]
    path = Path(model)
    return path.parent.name if path.name == "config.json" and path.parent.name else path.name


def has_weights(model: str) -> bool:
    """Whether a model is named by a checkpoint, here or on the hub, and not by its shape alone: a preset, a
    `config.json`, or a folder that holds no more than that."""
    if Path(model).is_dir():
        return any(any(Path(model).glob(pattern)) for pattern in WEIGHTS)
    return "/" in model and not model.endswith(".json")


def seed_folder(model: str, identity: str) -> str:
    """The name of the folder of a checkpoint that is made of a model; `model_name` finds the model's in it."""
    return f"seed-{model_name(model).removesuffix('.json')}-{identity}"


def compiles(configuration: Configuration) -> bool:
    """Whether its first step compiles something."""
    return configuration.compile != "none" or configuration.head == "compiled"


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
    choices = SETTINGS[name].choices
    if choices and (isinstance(value, bool) or value not in choices):
        return f"choose from {', '.join(map(str, choices))}"
    if bool in allowed:
        return None if isinstance(value, bool) else "neither true nor false"
    if str in allowed:
        return None if isinstance(value, str) else "not a text"
    if float in allowed:
        number = isinstance(value, (int, float)) and not isinstance(value, bool)
        return None if number and math.isfinite(value) and value >= 0 else "not a number from 0 on"
    if isinstance(value, bool) or not isinstance(value, int):
        return "not a whole number"
    if choices or SETTINGS[name].any_number:
        return None
    if value > LARGEST:
        return f"larger than {LARGEST}"
    return None if value >= 1 else "not a whole number from 1 on"


def parse_known(values: Mapping[str, Any]) -> Configuration:
    """As `parse`, for results of other versions: names and choices that this one lacks are passed over or kept.

    Raises `ConfigurationError` for values of another type, which no version writes.
    """
    choices: dict[str, Any] = {
        k: value for k, value in values.items() if k in SETTINGS and SETTINGS[k].choices and isinstance(value, str)
    }
    rest = {name: value for name, value in values.items() if name in kinds() and name not in choices}
    return replace(parse(rest), **choices)


@cache
def presets() -> Mapping[str, dict[str, Any]]:
    """Shapes of our own, as a `config.json` would have them, by name."""
    return tomllib.loads(Path(__file__).with_name("presets.toml").read_text(encoding="utf-8"))


def model_facts(model: str, num_layers: int | None) -> ModelFacts:
    """The sizes of a model without torch: a preset of bench, whatever `rules.models` knows, or a name on the hub.

    Raises `rules.models.ModelError`, a one-line message.
    """
    facts = from_config(presets()[model], model) if model in presets() else _resolved(model)
    return facts.with_layers(num_layers) if num_layers else facts


@cache
def own_layers(model: str) -> int | None:
    """Of a model whose sizes are known without the hub, None for others."""
    try:
        return None if hub.is_name(model) and find(model) is None else model_facts(model, None).layers
    except ModelError:
        return None


@cache
def _resolved(model: str) -> ModelFacts:
    try:
        return resolve(model)
    except ModelError as error:
        if hub.is_name(model):
            return load(_from_hub(model))
        hint = nearest(model, presets())
        if not hint:
            raise ModelError(f"{error}; names on a hub are OWNER/NAME, here are {', '.join(presets())}") from None
        raise ModelError(f"no model {model!r}{hint}") from None


def _from_hub(model: str) -> str:
    """The `config.json` of a name on the hub, which HF_HUB_OFFLINE forbids to ask. Raises `ModelError`."""
    try:
        import huggingface_hub

        why = hub.unreachable()  # the hub's own client tries for half a minute
        if not why:
            return huggingface_hub.hf_hub_download(model, "config.json")
    except (ImportError, OSError, ValueError) as error:
        why = one_line(error)
    known = f"a config.json, a checkpoint directory or one of {', '.join(presets())}"
    raise ModelError(f"{model!r} is not here and cannot be had from the hub ({why}): give {known}")


def hash_inputs(path: Path) -> str:
    """Twelve digits over the names and sizes and contents of the recorded inputs under `path`."""
    digest = hashlib.sha256()
    files = [path] if path.is_file() else sorted(entry for entry in path.iterdir() if entry.is_file())
    for file in files:
        digest.update(file.name.encode())
        digest.update(hashlib.sha256(file.read_bytes()).digest())
    return digest.hexdigest()[:12]
