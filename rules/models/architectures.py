"""What the weights of each architecture consist of, and how many parameters follow from a configuration.

The counts are of the causal language model as transformers builds it: vision towers and multi-token
prediction layers are left out.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from rules.models import ModelFacts


@dataclass(frozen=True)
class Architecture:
    """The traits of a model type that decide its parameter count beyond its sizes.

    `norms` counts the normalisations over the hidden size in one layer. `qk_norm`: "head" has one weight of
    the head size for queries and one for keys, "width" covers all heads, "each" has a weight per head. `separate`:
    a layer has seven linear layers, `q_proj`, `k_proj`, `v_proj`, `o_proj`, `gate_proj`, `up_proj` and `down_proj`.
    `attention_bias` of None means that the configuration's own flag decides.
    """

    qkv_bias: bool | None = False
    out_bias: bool | None = False
    mlp_bias: bool = False
    norms: int = 2
    norm_bias: bool = False
    qk_norm: Literal["", "head", "width", "each"] = ""
    gated: bool = True
    head_bias: bool = False
    sinks: bool = False
    router_bias: bool = False
    expert_bias: bool = False
    shared_gate: bool = False
    separate: bool = False


ARCHITECTURES: dict[str, Architecture] = {
    "cohere": Architecture(qkv_bias=None, out_bias=None, norms=1, qk_norm="each", separate=True),
    "cohere2": Architecture(qkv_bias=None, out_bias=None, norms=1, separate=True),
    "deepseek_v2": Architecture(),
    "deepseek_v3": Architecture(),
    "gemma": Architecture(qkv_bias=None, out_bias=None, separate=True),
    "gemma2": Architecture(qkv_bias=None, out_bias=None, norms=4, separate=True),
    "gemma3_text": Architecture(qkv_bias=None, out_bias=None, norms=4, qk_norm="head", separate=True),
    "glm": Architecture(qkv_bias=None),
    "glm4": Architecture(qkv_bias=None, norms=4),
    "glm4_moe": Architecture(qkv_bias=None, qk_norm="head"),
    "gpt_neox": Architecture(qkv_bias=True, out_bias=True, mlp_bias=True, norm_bias=True, gated=False),
    "gpt_oss": Architecture(qkv_bias=True, out_bias=True, sinks=True, router_bias=True, expert_bias=True),
    "granite": Architecture(qkv_bias=None, out_bias=None, separate=True),
    "llama": Architecture(qkv_bias=None, out_bias=None, separate=True),
    "minimax_m2": Architecture(qk_norm="width"),
    "mistral": Architecture(separate=True),
    "mixtral": Architecture(),
    "olmo2": Architecture(qkv_bias=None, out_bias=None, qk_norm="width", separate=True),
    "olmo3": Architecture(qkv_bias=None, out_bias=None, qk_norm="width", separate=True),
    "olmoe": Architecture(qkv_bias=None, out_bias=None, qk_norm="width"),
    "phi": Architecture(
        qkv_bias=True, out_bias=True, mlp_bias=True, norms=1, norm_bias=True, gated=False, head_bias=True
    ),
    "phi3": Architecture(),
    "phimoe": Architecture(qkv_bias=True, out_bias=True, norm_bias=True, head_bias=True),
    "qwen2": Architecture(qkv_bias=True, separate=True),
    "qwen2_moe": Architecture(qkv_bias=True, shared_gate=True),
    "qwen3": Architecture(qkv_bias=None, out_bias=None, qk_norm="head", separate=True),
    "qwen3_moe": Architecture(qkv_bias=None, out_bias=None, qk_norm="head"),
    "seed_oss": Architecture(qkv_bias=True, separate=True),
    "smollm3": Architecture(qkv_bias=None, out_bias=None, separate=True),
    "starcoder2": Architecture(qkv_bias=True, out_bias=True, mlp_bias=True, norm_bias=True, gated=False),
}  # fmt: skip
"""By the `model_type` of a configuration."""


@dataclass(frozen=True)
class ParameterCounts:
    """Parameters by part of the model. `layer_*` are sums over all layers."""

    embedding: int
    head: int
    attention: int
    mlp: int
    experts: int
    norms: int

    @property
    def total(self) -> int:
        """All parameters; a tied head counts once, in the embedding."""
        return self.embedding + self.head + self.attention + self.mlp + self.experts + self.norms


def count(facts: ModelFacts, arch: Architecture) -> ParameterCounts:
    """The parameters of a causal language model of these sizes."""
    norm = facts.hidden * (2 if arch.norm_bias else 1)
    sparse = facts.layers - facts.dense_layers if facts.experts else 0
    head = 0 if facts.tied else facts.vocab * facts.hidden
    return ParameterCounts(
        embedding=facts.vocab * facts.hidden,
        head=head + (facts.vocab if arch.head_bias else 0),
        attention=facts.layers * _attention(facts, arch),
        mlp=(facts.layers - sparse) * _mlp(facts.hidden, facts.mlp, arch),
        experts=sparse * _experts(facts, arch),
        norms=(facts.layers * arch.norms + 1) * norm,
    )


def _attention(facts: ModelFacts, arch: Architecture) -> int:
    if facts.kv_lora_rank:
        return _latent_attention(facts)
    width, kv_width = facts.heads * facts.head_dim, facts.kv_heads * facts.head_dim
    total = 2 * facts.hidden * width + 2 * facts.hidden * kv_width
    if facts.attention_bias if arch.qkv_bias is None else arch.qkv_bias:
        total += width + 2 * kv_width
    if facts.attention_bias if arch.out_bias is None else arch.out_bias:
        total += facts.hidden
    if facts.qk_norm:
        total += {"": 0, "head": 2 * facts.head_dim}.get(arch.qk_norm, width + kv_width)
    return total + (facts.heads if arch.sinks else 0)


def _latent_attention(facts: ModelFacts) -> int:
    """Multi-head latent attention: low-rank queries (optional), keys and values, and their two norms."""
    key = facts.qk_nope_head_dim + facts.qk_rope_head_dim
    if facts.q_lora_rank:
        query = facts.hidden * facts.q_lora_rank + facts.q_lora_rank + facts.q_lora_rank * facts.heads * key
    else:
        query = facts.hidden * facts.heads * key
    compress = facts.hidden * (facts.kv_lora_rank + facts.qk_rope_head_dim) + facts.kv_lora_rank
    expand = facts.kv_lora_rank * facts.heads * (facts.qk_nope_head_dim + facts.v_head_dim)
    return query + compress + expand + facts.heads * facts.v_head_dim * facts.hidden


def _mlp(hidden: int, width: int, arch: Architecture) -> int:
    matrices = 3 if arch.gated else 2
    bias = (matrices - 1) * width + hidden if arch.mlp_bias else 0
    return matrices * hidden * width + bias


def _expert(facts: ModelFacts, arch: Architecture) -> int:
    bias = 2 * facts.moe_mlp + facts.hidden if arch.expert_bias else 0
    return _mlp(facts.hidden, facts.moe_mlp, arch) + bias


def _experts(facts: ModelFacts, arch: Architecture) -> int:
    """Router, routed experts and shared experts of one layer."""
    one = _expert(facts, arch)
    router = facts.hidden * facts.experts + (facts.experts if arch.router_bias else 0)
    shared = _mlp(facts.hidden, facts.shared_mlp, arch) if facts.shared_mlp else 0
    return router + facts.experts * one + shared + (facts.hidden if arch.shared_gate else 0)


def count_active(facts: ModelFacts, arch: Architecture) -> int:
    """Parameters that one token passes through: routed experts count as often as they are used."""
    counts = count(facts, arch)
    if not facts.experts:
        return counts.total
    sparse = facts.layers - facts.dense_layers
    one = _expert(facts, arch)
    return counts.total - sparse * (facts.experts - facts.experts_per_token) * one
