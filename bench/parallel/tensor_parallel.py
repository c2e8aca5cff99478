"""Tensor-parallel plans and their application with PyTorch's own parallel styles.

A plan maps module patterns (`*` stands for a layer's number) to names of styles, the names that
transformers uses. Applying one makes parameters DTensors on the tensor-parallel mesh; `fully_shard` over
another dimension of the same mesh then shards them again.
"""

from __future__ import annotations

import fnmatch
from typing import Any

from torch import nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import Replicate
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    ParallelStyle,
    RowwiseParallel,
    parallelize_module,
)

from bench.parallel.sequence_parallel import Columns, JoinOutput, Norm, ScatteredRows, SplitInput
from bench.parallel.vocabulary import VocabularyShard

Plan = dict[str, str]

ATTENTION_COLUMNS, MLP_COLUMNS = ("q_proj", "k_proj", "v_proj"), ("gate_proj", "up_proj")
LLAMA_LAYER: Plan = {
    "model.layers.*.self_attn.q_proj": "colwise",
    "model.layers.*.self_attn.k_proj": "colwise",
    "model.layers.*.self_attn.v_proj": "colwise",
    "model.layers.*.self_attn.o_proj": "rowwise",
    "model.layers.*.mlp.gate_proj": "colwise",
    "model.layers.*.mlp.up_proj": "colwise",
    "model.layers.*.mlp.down_proj": "rowwise",
}
SEQUENCE_LAYER: Plan = {
    "model.layers.*.self_attn": "fused_attention",
    "model.layers.*.self_attn.o_proj": "scattered_rows",
    "model.layers.*.mlp": "gathered_mlp",
    "model.layers.*.mlp.down_proj": "scattered_rows",
}
"""What takes `LLAMA_LAYER`'s place where activations between the blocks are split along the positions."""
HEAD_NORMS: Plan = {
    "model.layers.*.self_attn.q_norm": "replicated_with_grad_allreduce",
    "model.layers.*.self_attn.k_norm": "replicated_with_grad_allreduce",
}
HEAD = "lm_head"
VOCABULARY: Plan = {"model.embed_tokens": "embedding_rowwise", HEAD: "colwise_gather_output"}
LLAMA_NORMS = ("input_layernorm", "post_attention_layernorm")
GEMMA_NORMS = (*LLAMA_NORMS, "pre_feedforward_layernorm", "post_feedforward_layernorm")


class _Chain(ParallelStyle):
    """Several styles on one module, applied in order."""

    def __init__(self, *styles: ParallelStyle) -> None:
        super().__init__()
        self.styles = styles

    def _apply(self, module: nn.Module, device_mesh: DeviceMesh) -> nn.Module:
        for style in self.styles:
            module = style._apply(module, device_mesh)
        return module


def _style(name: str, overlap: bool) -> ParallelStyle | None:
    """The torch style of a name; None for what needs no style; `ValueError` for a name without meaning here."""
    if name == "colwise":
        return ColwiseParallel()
    if name == "rowwise":
        return RowwiseParallel()
    if name == "fused_attention":
        return Columns(*ATTENTION_COLUMNS, fused=True, overlap=overlap)
    if name == "gathered_mlp":
        return Columns(*MLP_COLUMNS, fused=False, overlap=overlap)
    if name == "scattered_rows":
        return ScatteredRows(overlap)
    if name in ("colwise_gather_output", "colwise_rep"):
        return ColwiseParallel(output_layouts=Replicate())
    if name == "embedding_rowwise":
        return RowwiseParallel(input_layouts=Replicate(), output_layouts=Replicate())
    if name in ("norm", "replicated_with_grad_allreduce"):
        return Norm()
    if name == "norm_join_output":
        return _Chain(Norm(), JoinOutput())
    if name == "split_input":
        return SplitInput()
    if name in ("replicate", "replicated"):
        return None
    raise ValueError(f"tensor-parallel style {name!r} has no counterpart here; use --tp-plan llama")


def get_hf_tp_plan(model: nn.Module) -> Plan:
    """The plan that transformers carries for this model, with names relative to the causal language model.

    Raises `ValueError` where the model has none.
    """
    config: Any = getattr(model, "config", None)
    base = getattr(config, "base_model_tp_plan", None)
    if not base:
        raise ValueError(f"{type(model).__name__} carries no tensor-parallel plan: use --tp-plan llama")
    prefix = getattr(model, "base_model_prefix", "model")
    plan = {f"{prefix}.{pattern}": style for pattern, style in base.items()}
    # The class attribute, not the instance's: that one may already hold the base model's entries.
    return {**plan, **(getattr(type(model), "_tp_plan", None) or {})}


def _layers(sequence_parallel: bool, norms: tuple[str, ...]) -> Plan:
    """The decoder layers; with sequence parallelism, activations between their blocks are split along the positions."""
    if not sequence_parallel:
        return LLAMA_LAYER
    return {
        "model.layers.0": "split_input",
        **{f"model.layers.*.{norm}": "norm" for norm in norms},
        **SEQUENCE_LAYER,
        "model.norm": "norm_join_output",
    }


def get_llama_tp_plan(sequence_parallel: bool = False) -> Plan:
    """Column-parallel into attention and MLP, row-parallel out of them: fits every Llama-shaped model."""
    return {**_layers(sequence_parallel, LLAMA_NORMS), **VOCABULARY}


def get_qwen_tp_plan(sequence_parallel: bool = False) -> Plan:
    """Qwen2 and Qwen3: Llama's, with Qwen3's norms per head."""
    return {**get_llama_tp_plan(sequence_parallel), **HEAD_NORMS}


def get_gemma_tp_plan(sequence_parallel: bool = False) -> Plan:
    """Gemma 3: norms per head, and norms behind attention and MLP as well as before them."""
    return {**_layers(sequence_parallel, GEMMA_NORMS), **VOCABULARY, **HEAD_NORMS}


def get_optimized_tp_plan(model: nn.Module, sequence_parallel: bool = False) -> Plan | None:
    """The plan written for this family of models, or None for a family without one."""
    kind = str(getattr(getattr(model, "config", None), "model_type", ""))
    if kind in ("llama", "mistral"):
        return get_llama_tp_plan(sequence_parallel)
    if kind in ("qwen2", "qwen3"):
        return get_qwen_tp_plan(sequence_parallel)
    if kind in ("gemma3_text", "gemma3"):
        return get_gemma_tp_plan(sequence_parallel)
    return None


def choose_plan(model: nn.Module, wanted: str, sequence_parallel: bool) -> tuple[Plan, str]:
    """The plan to use and where it comes from. transformers' plans hold no sequence-parallel entries."""
    if wanted == "hf" and not sequence_parallel:
        try:
            return get_hf_tp_plan(model), "transformers"
        except ValueError:
            wanted = "optimized"
    plan = get_optimized_tp_plan(model, sequence_parallel) if wanted != "llama" else None
    if plan is not None:
        return plan, "optimized"
    return get_llama_tp_plan(sequence_parallel), "llama"


def _matching(model: nn.Module, pattern: str) -> list[str]:
    return [name for name, _ in model.named_modules() if fnmatch.fnmatchcase(name, pattern)]


def _is_tied(model: nn.Module) -> bool:
    """Whether embedding and head share one tensor; sharding would part them, so they stay replicated."""
    head, embedding = getattr(model, "lm_head", None), model.get_input_embeddings()
    return head is not None and head.weight is embedding.weight


def split_head(model: nn.Module, plan: Plan) -> Plan | None:
    """The plan with a head that leaves its logits split over the vocabulary; None where it does not split the head."""
    if _is_tied(model) or plan.get(HEAD) not in ("colwise_gather_output", "colwise_rep"):
        return None
    return {**plan, HEAD: "colwise"}


def vocabulary_shard(model: nn.Module, mesh: DeviceMesh) -> VocabularyShard:
    """The stretch of the vocabulary that this rank's slice of a split head answers for."""
    vocabulary = model.get_output_embeddings().weight.shape[0]
    start = min(mesh.get_local_rank() * -(-vocabulary // mesh.size()), vocabulary)
    return VocabularyShard(mesh.get_group(), start)


def apply_tensor_parallel(model: nn.Module, mesh: DeviceMesh, plan: Plan, overlap: bool = False) -> list[str]:
    """Shard the modules of a causal language model in place; returns the patterns that matched nothing.

    `overlap`: gathers before products and reductions behind them run beside these, where activations are split.

    Raises `ValueError` when no pattern matches, which means the plan is for another kind of model.
    """
    tied = _is_tied(model)
    styles: dict[str, list[ParallelStyle]] = {}
    unmatched = []
    for pattern, name in plan.items():
        if tied and pattern in VOCABULARY:
            continue
        modules = _matching(model, pattern)
        if not modules:
            unmatched.append(pattern)
        style = _style(name, overlap)
        if style is not None:
            for module in modules:
                styles.setdefault(module, []).append(style)
    if not styles:
        raise ValueError(f"the tensor-parallel plan matches no module of {type(model).__name__}")
    for module_name, several in styles.items():
        style = several[0] if len(several) == 1 else _Chain(*several)
        parallelize_module(model.get_submodule(module_name), mesh, style)
    return unmatched
