"""The actor: a causal language model of any number of layers that answers with log-probabilities."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import Any, Literal, NamedTuple

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

from bench.configuration import has_weights, presets
from bench.parallel import flash_attention_4
from bench.parallel.ring_attention import ATTENTION_NAME
from bench.parallel.vocabulary import LocalScores, VocabularyShard, combine, local_scores
from bench.pickles import one_line
from bench.problems import Problem
from rules.models import config_of, find, raw_entries

HEAD_CHUNK = 1024
TILED = {"triton.prefer_nd_tiling": True, "triton.max_tiles": 2}
"""Of the compiler, for scores: what belongs to a position is read once per block of tokens, not once per token."""
Head = Literal["full", "chunked", "compiled", "liger"]
Scored = Callable[[torch.Tensor, torch.Tensor, bool], tuple[torch.Tensor, torch.Tensor]]


class ModelError(Problem):
    """A model that cannot be built as asked; the message says what to change."""


class ActorOutput(NamedTuple):
    """(rows, positions) fp32: the log-probability of each label; the entropy of each prediction if asked for."""

    log_probs: torch.Tensor
    entropy: torch.Tensor | None


def model_config(model: str, num_layers: int | None = None, trust_remote_code: bool = False) -> Any:
    """The transformers configuration of a preset, a listed short name, a `config.json`, a directory or a hub name.

    `num_layers` replaces the number of layers. Raises `ModelError` for what cannot be found or understood.
    """
    from transformers import AutoConfig

    try:
        values = _shape(model)
        if values is None:
            config = AutoConfig.from_pretrained(model, trust_remote_code=trust_remote_code)
        else:
            config = AutoConfig.for_model(values.pop("model_type"), **values)
    except KeyError as error:
        raise ModelError(f"--model {model}: the configuration lacks {error}") from None
    except Exception as error:  # values of another type: transformers' errors about them share no base
        names = ", ".join(sorted(presets()))
        raise ModelError(f"--model {model}: {one_line(error)} (known: {names})") from None
    config = getattr(config, "text_config", None) or config
    return _with_layers(config, num_layers)


def _shape(model: str) -> dict[str, Any] | None:
    """What `config.json` has of a preset, of a file, or of a published checkpoint by its short name, such as
    `qwen2.5-0.5b`; None for directories and names on a hub."""
    if model in presets():
        return {key: value for key, value in presets()[model].items() if key != "source"}
    if model.endswith(".json"):
        found: dict[str, Any] = json.loads(Path(model).read_text(encoding="utf-8"))
        return found
    facts = None if "/" in model or Path(model).exists() else find(model)
    if facts is None:
        return None
    entries = raw_entries()
    entry = next(e for e in entries.values() if facts.name in (e["name"], *e.get("also", ())))
    return config_of(entry, entries)


def _with_layers(config: Any, num_layers: int | None) -> Any:
    if num_layers is not None:
        if num_layers < 1:
            raise ModelError(f"--num-layers must be at least 1, got {num_layers}")
        kinds = getattr(config, "layer_types", None)
        if kinds is not None:  # the published pattern, repeated where more layers are asked for
            config.layer_types = [kinds[index % len(kinds)] for index in range(num_layers)]
        config.num_hidden_layers = num_layers
    config.use_cache = False
    return config


class Actor(nn.Module):
    """Wraps a causal language model; `forward` runs its body, then its head in chunks of positions.

    The logits of a whole batch in fp32 are often larger than everything else in memory. With the chunked head they
    exist for `HEAD_CHUNK` positions at a time and are computed again in the backward pass. The compiled head keeps
    the logits as the matrix product gives them, in 16 bits, and computes nothing twice: its fp32 softmax lives in
    the registers of one kernel. The full head keeps both.
    """

    def __init__(self, model: nn.Module, head: Head = "chunked", temperature: float = 1.0) -> None:
        super().__init__()
        self.model = model
        self.head: Head = head
        self.temperature = temperature
        self.one_head_call = False
        """Set by backends that gather the head's weight in collectives at each call: ranks with different numbers of
        chunks would wait for each other for ever. The chunked head then splits the softmax alone."""
        self.vocabulary: VocabularyShard | None = None
        """Set by backends whose head answers for a part of the vocabulary only."""
        compiled = head == "compiled"
        self._score = torch.compile(_score_at_once, options=TILED) if compiled else _score
        self._score_part = torch.compile(_score_part, options=TILED) if compiled else _score_part

    @property
    def config(self) -> Any:
        return self.model.config

    def get_input_embeddings(self) -> nn.Module:
        module: nn.Module = self.model.get_input_embeddings()
        return module

    def forward(
        self, input_ids: torch.Tensor, labels: torch.Tensor, return_entropy: bool = False, **kwargs: Any
    ) -> ActorOutput:
        """`input_ids` and `labels` (rows, positions); `kwargs` go to the model's body."""
        body = self.model.base_model
        with _without_search() if self._needs_no_mask(kwargs.get("cu_seq_lens_q")) else nullcontext():
            hidden = body(input_ids=input_ids, use_cache=False, **kwargs).last_hidden_state
        flat, targets = hidden.flatten(0, 1), labels.flatten()
        if self.head == "liger" and not return_entropy:
            scores = [_liger_log_probs(flat, self.model.lm_head, targets, self.temperature)]
            return ActorOutput(scores[0].view(labels.shape), None)
        step = HEAD_CHUNK if self.head == "chunked" else flat.shape[0]
        chunk_of: Any = self._head
        if self.one_head_call and self.head == "chunked":
            flat, chunk_of = self.model.lm_head(flat[None]).squeeze(0), self._score_logits
        log_probs, entropies = [], []
        for start in range(0, flat.shape[0], step):
            piece = slice(start, start + step)
            log_prob, entropy = self._chunk(chunk_of, flat[piece], targets[piece], return_entropy)
            log_probs.append(log_prob)
            entropies.append(entropy)
        # Copies, not views: FSDP2 cannot watch the gradient of a view.
        joined = torch.cat(log_probs).view(labels.shape).clone()
        return ActorOutput(joined, torch.cat(entropies).view(labels.shape).clone() if return_entropy else None)

    def _needs_no_mask(self, bounds: torch.Tensor | None) -> bool:
        """Whether attention takes the documents' bounds itself, or has one document only."""
        if bounds is None or torch.compiler.is_compiling():
            return False
        return bounds.numel() == 2 or str(self.config._attn_implementation).startswith("flash_attention")

    def _chunk(
        self, scored: Scored, states: torch.Tensor, targets: torch.Tensor, return_entropy: bool
    ) -> tuple[torch.Tensor, torch.Tensor]:
        if self.head != "chunked" or not torch.is_grad_enabled():
            return scored(states, targets, return_entropy)
        result: tuple[torch.Tensor, torch.Tensor] = checkpoint(
            scored, states, targets, return_entropy, use_reentrant=False, preserve_rng_state=False
        )
        return result

    def _head(
        self, hidden: torch.Tensor, targets: torch.Tensor, return_entropy: bool
    ) -> tuple[torch.Tensor, torch.Tensor]:
        # The module is called, not its weight used: sharding backends gather parameters in module hooks. Not `[0]`:
        # its backward pass would copy the logits' gradient into zeros.
        return self._score_logits(self.model.lm_head(hidden[None]).squeeze(0), targets, return_entropy)

    def _score_logits(
        self, logits: torch.Tensor, targets: torch.Tensor, return_entropy: bool
    ) -> tuple[torch.Tensor, torch.Tensor]:
        cap = getattr(self.config, "final_logit_softcapping", None)
        if self.head == "compiled" and not torch.compiler.is_compiling():  # marks are no part of a graph
            # Packed batches differ in length; the vocabulary stays fixed, or the kernel loses half its speed.
            torch._dynamo.maybe_mark_dynamic(logits, 0)
            torch._dynamo.maybe_mark_dynamic(targets, 0)
        if self.vocabulary is None:
            return self._score(logits, targets, self.temperature, cap, return_entropy)
        shard = self.vocabulary
        part = self._score_part(logits, targets, shard.start, self.temperature, cap, return_entropy)
        return combine(LocalScores(*part), shard.group)

    def gradient_checkpointing_enable(self, gradient_checkpointing_kwargs: dict[str, Any] | None = None) -> None:
        """Recompute each layer in the backward pass (not reentrant: hooks of sharding backends need that)."""
        options = gradient_checkpointing_kwargs or {"use_reentrant": False}
        self.model.gradient_checkpointing_enable(gradient_checkpointing_kwargs=options)


@contextmanager
def _without_search() -> Iterator[None]:
    """Keep transformers from looking for documents among the positions, which it would make a mask of: it waits for the
    device, before the first layer of every step."""
    from transformers import masking_utils

    search = masking_utils.find_packed_sequence_indices
    masking_utils.find_packed_sequence_indices = lambda position_ids: None
    try:
        yield
    finally:
        masking_utils.find_packed_sequence_indices = search


def _scaled(logits: torch.Tensor, temperature: float, cap: float | None) -> torch.Tensor:
    """The logits in fp32, capped and divided by the temperature."""
    scores = logits.float()
    if cap is not None:
        scores = torch.tanh(scores / cap) * cap
    return scores / temperature if temperature != 1.0 else scores


def _score_part(
    logits: torch.Tensor, targets: torch.Tensor, start: int, temperature: float, cap: float | None, with_entropy: bool
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """What `LocalScores` holds, of the logits of the tokens from `start` on."""
    return local_scores(_scaled(logits, temperature, cap), targets, start, with_entropy)


def _score(
    logits: torch.Tensor, targets: torch.Tensor, temperature: float, cap: float | None, with_entropy: bool
) -> tuple[torch.Tensor, torch.Tensor]:
    """Log-probabilities of `targets` and entropies (zeros unless asked for), both (positions,) fp32."""
    scores = _scaled(logits, temperature, cap)
    log_probs = -nn.functional.cross_entropy(scores, targets, reduction="none")
    if not with_entropy:
        return log_probs, torch.zeros_like(log_probs)
    all_log_probs = scores.log_softmax(-1)
    return log_probs, -(all_log_probs.exp() * all_log_probs).sum(-1)


def _score_at_once(
    logits: torch.Tensor, targets: torch.Tensor, temperature: float, cap: float | None, with_entropy: bool
) -> tuple[torch.Tensor, torch.Tensor]:
    """What `_score` computes, in fewer passes over the logits where it is compiled."""
    lse, target, entropy = _score_part(logits, targets, 0, temperature, cap, with_entropy)
    return target - lse, entropy


def _liger_log_probs(hidden: torch.Tensor, head: nn.Linear, targets: torch.Tensor, temperature: float) -> torch.Tensor:
    try:
        from liger_kernel.transformers.functional import liger_fused_linear_cross_entropy
    except ImportError:
        raise ModelError("--head liger needs the liger-kernel package and a GPU: pip install liger-kernel") from None
    losses = liger_fused_linear_cross_entropy(hidden / temperature, head.weight, targets, reduction="none")
    return -losses


def attention_name(attn: str, ring: int) -> str:
    """What transformers calls the attention: the ring's name where the sequence is spread over ranks."""
    if ring > 1:
        return ATTENTION_NAME
    return "sdpa" if attn.startswith("sdpa") else {"flex": "flex_attention"}.get(attn, attn)


def attention_context(attn: str) -> AbstractContextManager[None]:
    """Within it scaled-dot-product attention uses the one kernel that `sdpa_flash` and the like name."""
    from torch.nn.attention import SDPBackend, sdpa_kernel

    kernels = {
        "sdpa_flash": SDPBackend.FLASH_ATTENTION, "sdpa_efficient": SDPBackend.EFFICIENT_ATTENTION,
        "sdpa_cudnn": SDPBackend.CUDNN_ATTENTION,
    }  # fmt: skip
    return sdpa_kernel(kernels[attn]) if attn in kernels else nullcontext()


def build_actor(
    *,
    model: str,
    num_layers: int | None,
    attn: str,
    device: torch.device,
    dtype: torch.dtype = torch.float32,
    head: Head = "chunked",
    seed: int = 42,
    gradient_checkpointing: bool = False,
    trust_remote_code: bool = False,
    ring: int = 1,
) -> Actor:
    """An actor in fp32 on `device`, the same on every rank: from the checkpoint's weights or from `seed`.

    With a 16-bit `dtype` the weights are rounded to it first. DeepSpeed makes its fp32 copies from 16-bit weights,
    FSDP2 keeps fp32 ones: only rounded weights let both start from the same point.
    """
    from transformers import AutoModelForCausalLM

    from bench.parallel.ring_attention import register

    config = model_config(model, num_layers, trust_remote_code)
    if ring > 1:
        check_for_ring(config, model)
        register()
    elif attn == flash_attention_4.NAME:
        flash_attention_4.register()
    torch.manual_seed(seed)
    implementation = attention_name(attn, ring)
    common = {"attn_implementation": implementation, "dtype": torch.float32, "trust_remote_code": trust_remote_code}
    if type(config) not in AutoModelForCausalLM._model_mapping and not trust_remote_code:
        raise ModelError(f"--model {model}: transformers has no causal language model of type {config.model_type!r}")
    if has_weights(model):
        network = AutoModelForCausalLM.from_pretrained(model, config=config, **common).to(device)
    else:
        with device:
            network = AutoModelForCausalLM.from_config(config, **common)
    if not hasattr(network, "lm_head"):
        raise ModelError(f"--model {model}: {type(network).__name__} has no `lm_head` to take log-probabilities of")
    if dtype != torch.float32:
        with torch.no_grad():
            for parameter in network.parameters():
                parameter.copy_(parameter.to(dtype))
    if gradient_checkpointing:
        network.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
    network.train()
    return Actor(network, head)


def check_for_ring(config: Any, model: str) -> None:
    """Raise `ModelError` where layers need what ring attention has not: a window, or a cap on the scores."""
    windowed = getattr(config, "sliding_window", None) is not None
    kinds = getattr(config, "layer_types", None)
    if windowed and (kinds is None or "sliding_attention" in kinds):
        raise ModelError(f"--model {model}: its layers attend to a window, which ring attention does not: use --ring 1")
    if getattr(config, "attention_dropout", 0) or getattr(config, "attn_pdrop", 0):
        raise ModelError(f"--model {model}: its attention drops scores at random, which a ring does not: use --ring 1")
    if getattr(config, "attn_logit_softcapping", None):
        raise ModelError(f"--model {model}: it caps attention scores, which ring attention does not: use --ring 1")


def layers_of(network: nn.Module) -> nn.ModuleList:
    """The decoder layers of a causal language model, which its body holds in one list; raises `ModelError` where they
    are not found."""
    body: Any = getattr(network, "base_model", None)
    count = getattr(getattr(network, "config", None), "num_hidden_layers", 0)
    lists = [child for child in body.children() if isinstance(child, nn.ModuleList)] if body is not None else []
    found = [child for child in lists if len(child) == count]
    if len(found) != 1:
        raise ModelError(f"{type(network).__name__} holds no list of its {count} layers in its base_model")
    return found[0]


def network_of(model: nn.Module) -> nn.Module:
    """The causal language model inside whatever wraps it."""
    while not isinstance(model, Actor) and hasattr(model, "module"):
        model = model.module
    return model.model if isinstance(model, Actor) else model


def count_parameters(network: nn.Module) -> int:
    """Parameters, shared ones once, before any sharding."""
    return sum(parameter.numel() for parameter in network.parameters())
