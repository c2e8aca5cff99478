"""Shapes of widely trained checkpoints, from the TOML files here, a `config.json`, or the local hub cache.

    facts = resolve("llama-3.1-8b")           # a name or alias from the tables, else a path, else the cache
    facts.quantities()                        # what rules.constraints asks of a model
    facts.parameters                          # computed from the shape

A table entry holds the keys of the checkpoint's own `config.json`, so that one reader serves all three.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

from rules.models.architectures import ARCHITECTURES, ParameterCounts, count, count_active

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

_FOLDER = Path(__file__).parent
_OWN_KEYS = frozenset({"name", "also", "like", "source", "parameters"})


class ModelError(ValueError):
    """A model that cannot be found or read; the message says what to do."""


@dataclass(frozen=True)
class ModelFacts:
    """The shape of one causal language model. Sizes in elements; `layers` counts all decoder layers.

    A dense model has `experts=0`. `dense_layers` counts the layers of a mixture of experts that have a plain
    MLP; `moe_mlp` is the width of one routed expert, `shared_mlp` that of all shared experts together.
    `published_parameters` is what the publisher states, when the shape comes from a table.
    """

    name: str
    model_type: str
    hidden: int
    mlp: int
    layers: int
    heads: int
    kv_heads: int
    head_dim: int
    vocab: int
    tied: bool
    max_position_embeddings: int
    attention_bias: bool = False
    qk_norm: bool = True
    attn_softcap: bool = False
    experts: int = 0
    experts_per_token: int = 0
    moe_mlp: int = 0
    shared_mlp: int = 0
    dense_layers: int = 0
    q_lora_rank: int = 0
    kv_lora_rank: int = 0
    qk_nope_head_dim: int = 0
    qk_rope_head_dim: int = 0
    v_head_dim: int = 0
    source: str = ""
    published_parameters: int | None = None

    @property
    def counts(self) -> ParameterCounts:
        """Parameters by part. Raises ModelError for an architecture whose make-up is not known."""
        return count(self, self._architecture())

    @property
    def parameters(self) -> int:
        """All parameters, computed from the shape."""
        return self.counts.total

    @property
    def active_parameters(self) -> int:
        """Parameters used for one token (all of them in a dense model)."""
        return count_active(self, self._architecture())

    @property
    def countable(self) -> bool:
        """Whether the parameters of this kind of model can be counted, on which predictions rest."""
        return self.model_type in ARCHITECTURES

    @property
    def separate_projections(self) -> bool:
        """Whether queries, keys, values, gate and up projection are linear layers of their own."""
        return self.countable and bool(ARCHITECTURES[self.model_type].separate) and not self.experts

    def _architecture(self) -> Any:
        try:
            return ARCHITECTURES[self.model_type]
        except KeyError:
            known = ", ".join(sorted(ARCHITECTURES))
            raise ModelError(
                f"{self.name}: cannot count the parameters of model type {self.model_type!r} (known: {known})"
            ) from None

    def with_layers(self, layers: int) -> ModelFacts:
        """The same model with `layers` layers: its first ones, or more of the last kind."""
        dense = min(self.dense_layers, layers)
        return replace(self, layers=layers, dense_layers=dense, published_parameters=None)

    def quantities(self) -> dict[str, Any]:
        """The model's part of `rules.constraints.Quantities`, by name."""
        return {
            "heads": self.heads, "kv_heads": self.kv_heads, "head_dim": self.head_dim, "hidden": self.hidden,
            "mlp": self.mlp, "layers": self.layers, "vocab": self.vocab, "experts": self.experts,
            "max_position_embeddings": self.max_position_embeddings, "attn_softcap": self.attn_softcap,
        }  # fmt: skip


def from_config(config: Mapping[str, Any], name: str = "model", source: str = "") -> ModelFacts:
    """The facts in a Hugging Face `config.json`; a multimodal one gives those of its text model.

    Raises ModelError naming the key that is missing or not a number.
    """
    if isinstance(config.get("text_config"), Mapping):
        config = {**config["text_config"], **({"tie_word_embeddings": True} if _ties(config) else {})}
    read = _Reader(config, name)
    heads = read.size("num_attention_heads", "n_head")
    hidden = read.size("hidden_size", "n_embd")
    experts = read.optional("num_local_experts", "num_experts", "n_routed_experts")
    layers = read.size("num_hidden_layers", "n_layer")
    mlp = read.optional("intermediate_size", "n_inner") or 4 * hidden
    moe_mlp = read.optional("moe_intermediate_size") or (mlp if experts else 0)
    latent = read.optional("kv_lora_rank")
    return ModelFacts(
        name=name,
        model_type=str(config.get("model_type", "")),
        hidden=hidden,
        mlp=mlp,
        layers=layers,
        heads=heads,
        kv_heads=heads if latent else read.optional("num_key_value_heads", "num_kv_heads") or heads,
        head_dim=_head_dim(read, hidden, heads, latent),
        vocab=read.size("vocab_size"),
        tied=bool(config.get("tie_word_embeddings", config.get("model_type") in _TIED_BY_DEFAULT)),
        max_position_embeddings=read.optional("max_position_embeddings", "n_positions"),
        attention_bias=bool(config.get("attention_bias", False)),
        qk_norm=bool(config.get("use_qk_norm", config.get("model_type") not in _QK_NORM_ON_REQUEST)),
        attn_softcap=bool(config.get("attn_logit_softcapping")),
        experts=experts,
        experts_per_token=read.optional("num_experts_per_tok"),
        moe_mlp=moe_mlp,
        shared_mlp=read.optional("shared_expert_intermediate_size") or read.optional("n_shared_experts") * moe_mlp,
        dense_layers=_dense_layers(config, layers),
        q_lora_rank=read.optional("q_lora_rank"),
        kv_lora_rank=latent,
        qk_nope_head_dim=read.optional("qk_nope_head_dim"),
        qk_rope_head_dim=read.optional("qk_rope_head_dim") if latent else 0,
        v_head_dim=read.optional("v_head_dim"),
        source=source,
    )


_TIED_BY_DEFAULT = ("gemma", "gemma2", "gemma3_text", "cohere", "cohere2")
_QK_NORM_ON_REQUEST = ("cohere", "glm4_moe")


def _ties(config: Mapping[str, Any]) -> bool:
    return bool(config.get("tie_word_embeddings", config.get("model_type") in ("gemma3",)))


def _head_dim(read: _Reader, hidden: int, heads: int, latent: int) -> int:
    if latent:
        return read.size("qk_nope_head_dim") + read.size("qk_rope_head_dim")
    return read.optional("head_dim") or hidden // heads


def _dense_layers(config: Mapping[str, Any], layers: int) -> int:
    leading = int(config.get("first_k_dense_replace") or 0)
    return min(layers, leading + len(config.get("mlp_only_layers") or ()))


class _Reader:
    """Positive whole numbers out of a configuration, under the first of several names."""

    def __init__(self, config: Mapping[str, Any], name: str) -> None:
        self.config, self.name = config, name

    def optional(self, *keys: str) -> int:
        for key in keys:
            value = self.config.get(key)
            if value is None:
                continue
            if isinstance(value, bool) or not isinstance(value, int) or value < 0:
                raise ModelError(f"{self.name}: {key} is {value!r}, not a whole number")
            return value
        return 0

    def size(self, *keys: str) -> int:
        value = self.optional(*keys)
        if value < 1:
            raise ModelError(f"{self.name}: the configuration has no {' or '.join(keys)}")
        return value


@lru_cache(maxsize=1)
def table() -> Mapping[str, ModelFacts]:
    """The checkpoints of the TOML files here, by their names on the hub."""
    found: dict[str, ModelFacts] = {}
    entries = raw_entries()
    for entry in entries.values():
        config = config_of(entry, entries)
        for name in (entry["name"], *entry.get("also", ())):
            found[name] = _published(from_config(config, name, entry.get("source", "")), entry, entries)
    return found


def _published(facts: ModelFacts, entry: Mapping[str, Any], entries: Mapping[str, Any]) -> ModelFacts:
    origin = entries[entry["like"]] if "like" in entry else entry
    return replace(
        facts,
        published_parameters=entry.get("parameters", origin.get("parameters")),
        source=entry.get("source", origin.get("source", "")),
    )


@lru_cache(maxsize=1)
def raw_entries() -> Mapping[str, Mapping[str, Any]]:
    """The entries of all TOML files as they stand, by name."""
    entries: dict[str, Mapping[str, Any]] = {}
    for path in sorted(_FOLDER.glob("*.toml")):
        for entry in tomllib.loads(path.read_text(encoding="utf-8"))["checkpoint"]:
            if entry["name"] in entries:
                raise ModelError(f"{path.name}: {entry['name']} is listed twice")
            entries[entry["name"]] = entry
    return entries


def config_of(entry: Mapping[str, Any], entries: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """The configuration keys of an entry, with those of the entry that it is `like`."""
    base = config_of(entries[entry["like"]], entries) if "like" in entry else {}
    return {**base, **{key: value for key, value in entry.items() if key not in _OWN_KEYS}}


def alias(name: str) -> str:
    """The short form of a checkpoint's name: `meta-llama/Meta-Llama-3-8B` is `llama-3-8b`."""
    short = name.rsplit("/", 1)[-1].lower().removesuffix("-hf")
    return short.removeprefix("meta-")


@lru_cache(maxsize=1)
def _aliases() -> Mapping[str, str]:
    names: dict[str, str] = {}
    for name in table():
        names.setdefault(alias(name), name)
        names[name.lower()] = name
    return names


def find(name: str) -> ModelFacts | None:
    """A checkpoint of the tables by its hub name or short alias, letter case aside; None when not listed."""
    key = name.strip().lower()
    full = _aliases().get(key) or (_aliases().get(alias(key)) if "/" not in key else None)
    return table()[full] if full else None


def load(path: str | os.PathLike[str]) -> ModelFacts:
    """The facts of a `config.json` or of the checkpoint directory that holds it. Raises ModelError."""
    place = Path(path)
    file = place / "config.json" if place.is_dir() else place
    try:
        config = json.loads(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise ModelError(f"{file}: {error.strerror or error}") from None
    except ValueError as error:
        raise ModelError(f"{file}: not JSON ({error})") from None
    if not isinstance(config, dict):
        raise ModelError(f"{file}: not a model configuration")
    return from_config(config, place.name if place.is_dir() else place.stem, str(file))


def hub_cache() -> Path:
    """Where the hub's client keeps its files, by the variables that it honours."""
    home = os.environ.get("HF_HOME") or os.path.join(
        os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache"), "huggingface"
    )
    return Path(os.environ.get("HF_HUB_CACHE") or os.path.join(home, "hub"))


def cached(name: str) -> ModelFacts | None:
    """A checkpoint of the local hub cache by its `organisation/name`; None when it is not there."""
    if name.count("/") != 1 or ".." in name:
        return None
    folder = hub_cache() / f"models--{name.replace('/', '--')}"
    try:
        revision = (folder / "refs" / "main").read_text(encoding="ascii").strip()
    except (OSError, ValueError):
        return None
    file = folder / "snapshots" / revision / "config.json"
    if not revision.isalnum() or not file.is_file():
        return None
    facts = load(file)
    return from_config(json.loads(file.read_text(encoding="utf-8")), name, facts.source)


def resolve(name: str) -> ModelFacts:
    """A model by name, alias or path: the tables first, then the disk, then the local hub cache.

    Raises ModelError with the nearest known name.
    """
    facts = find(name)
    if facts is not None:
        return facts
    if os.path.exists(name):
        return load(name)
    facts = cached(name)
    if facts is not None:
        return facts
    import difflib

    folder, last = os.path.split(name)
    if os.path.isabs(name) or name.startswith(".") or os.path.isdir(folder):
        there = os.listdir(folder or ".") if os.path.isdir(folder or ".") else []
        near = [os.path.join(folder, one) for one in difflib.get_close_matches(last, there, n=1)]
        what = f"no such file or folder {name!r}" if there else f"no folder {folder!r} for {name!r}"
    else:
        near = difflib.get_close_matches(alias(name), _aliases(), n=1)
        what = f"no model {name!r}"
    hint = f"; did you mean {near[0]}?" if near else ""
    raise ModelError(f"{what}: give a known name, a config.json or a checkpoint directory{hint}")
