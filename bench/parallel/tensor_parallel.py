"""Tensor-parallel plans and their application with PyTorch's own parallel styles.

A plan maps module patterns (`*` stands for a layer's number) to names of styles, the names that
transformers uses. Applying one makes parameters DTensors on the tensor-parallel mesh; `fully_shard` over
another dimension of the same mesh then shards them again.
"""

from __future__ import annotations

import fnmatch
from collections.abc import Callable, Mapping
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
FAMILIES: Mapping[str, tuple[tuple[str, ...], Plan]] = {
    **dict.fromkeys(("llama", "mistral"), (LLAMA_NORMS, {})),
    **dict.fromkeys(("qwen2", "qwen3"), (LLAMA_NORMS, HEAD_NORMS)),
    **dict.fromkeys(("gemma3_text", "gemma3"), (GEMMA_NORMS, HEAD_NORMS)),
}
"""By model type: the norms of a decoder layer, and those per head. Llama's plan fits every Llama-shaped model."""


class _Chain(ParallelStyle):
    """Several styles on one module, applied in order."""

    def __init__(self, *styles: ParallelStyle) -> None:
        super().__init__()
        self.styles = styles

    def _apply(self, module: nn.Module, device_mesh: DeviceMesh) -> nn.Module:
        for style in self.styles:
            module = style._apply(module, device_mesh)
        return module


STYLES: Mapping[str, Callable[[bool], ParallelStyle | None]] = {
    "colwise": lambda overlap: ColwiseParallel(),
    "rowwise": lambda overlap: RowwiseParallel(),
    "colwise_gather_output": lambda overlap: ColwiseParallel(output_layouts=Replicate()),
    "colwise_rep": lambda overlap: ColwiseParallel(output_layouts=Replicate()),
    "embedding_rowwise": lambda overlap: RowwiseParallel(input_layouts=Replicate(), output_layouts=Replicate()),
    "fused_attention": lambda overlap: Columns(*ATTENTION_COLUMNS, fused=True, overlap=overlap),
    "gathered_mlp": lambda overlap: Columns(*MLP_COLUMNS, fused=False, overlap=overlap),
    "scattered_rows": ScatteredRows,
    "norm": lambda overlap: Norm(),
    "replicated_with_grad_allreduce": lambda overlap: Norm(),
    "norm_join_output": lambda overlap: _Chain(Norm(), JoinOutput()),
    "split_input": lambda overlap: SplitInput(),
    "replicate": lambda overlap: None,
    "replicated": lambda overlap: None,
}
"""The torch style of each name, given whether exchanges overlap with products; None for what needs no style."""


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


def family_tp_plan(family: str, sequence_parallel: bool) -> Plan:
    """Column-parallel into attention and MLP, row-parallel out of them, with the norms of one of `FAMILIES`."""
    norms, head_norms = FAMILIES[family]
    return {**_layers(sequence_parallel, norms), **VOCABULARY, **head_norms}


def choose_plan(model: nn.Module, wanted: str, sequence_parallel: bool) -> tuple[Plan, str]:
    """The plan to use and where it comes from. transformers' plans hold no sequence-parallel entries."""
    if wanted == "hf" and not sequence_parallel:
        try:
            return get_hf_tp_plan(model), "transformers"
        except ValueError:
            wanted = "optimized"
    family = str(getattr(getattr(model, "config", None), "model_type", ""))
    if wanted != "llama" and family in FAMILIES:
        return family_tp_plan(family, sequence_parallel), "optimized"
    return family_tp_plan("llama", sequence_parallel), "llama"


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
        if name not in STYLES:
            raise ValueError(f"tensor-parallel style {name!r} has no counterpart here; use --tp-plan llama")
        style = STYLES[name](overlap)
        if style is not None:
            for module in modules:
                styles.setdefault(module, []).append(style)
    if not styles:
        raise ValueError(f"the tensor-parallel plan matches no module of {type(model).__name__}")
    for module_name, several in styles.items():
        style = several[0] if len(several) == 1 else _Chain(*several)
        parallelize_module(model.get_submodule(module_name), mesh, style)
    return unmatched
