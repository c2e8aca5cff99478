"""How a model is laid out over GPUs: all that decides memory and traffic besides its shape. No torch needed."""

from __future__ import annotations

from dataclasses import dataclass

from bench.predict.adapters import Adapters

ITEM_SIZE = {"bf16": 2, "fp16": 2, "fp32": 4}


@dataclass(frozen=True)
class Layout:
    """What decides memory besides the model. Sizes count processes, batches samples, `seq_len` tokens.

    `master` is the type of the weights that the optimizer updates. FSDP2 keeps its (sharded) parameters in
    it, the other backends keep a copy beside the parameters. `embedding_apart` says whether FSDP2 shards the
    embedding as a group of its own; with the head in the root's group both are gathered and reduced at once.

    `whole_gradients`: ZeRO leaves them where the backward pass puts them, as `bench` has it do on one rank. `pp`,
    `virtual_pp`, `ep`, `expert_tp`, `shards_optimizer` and `main_grads` (the type of the gradients' buffer) are
    Megatron's. With `adapters` they alone are trained. `quantized`: bytes of a frozen weight in a linear layer; 0 where
    they are as the others.
    """

    backend: str
    zero_stage: int = 2
    dp: int = 1
    tp: int = 1
    ring: int = 1
    micro_batch_size: int = 1
    seq_len: int = 4096
    grad_accum: int = 1
    dtype: str = "bf16"
    master: str = "fp32"
    head: str = "chunked"
    compiled: bool = False
    eager_attention: bool = False
    checkpointing: bool = False
    sequence_parallel: bool = False
    reshard: bool = True
    embedding_apart: bool = True
    offload_optimizer: bool = False
    offload_param: bool = False
    whole_gradients: bool = False
    pp: int = 1
    virtual_pp: int = 1
    ep: int = 1
    expert_tp: int = 1
    shards_optimizer: bool = True
    main_grads: str = "fp32"
    adapters: Adapters | None = None
    quantized: float = 0.0

    @property
    def shards(self) -> int:
        """Ranks over which states are sharded: gradients are reduced over data and ring ranks alike."""
        return self.dp * self.ring

    @property
    def tokens(self) -> float:
        """Tokens of one micro-batch on one GPU."""
        return self.micro_batch_size * self.seq_len / self.ring

    @property
    def item(self) -> int:
        """Bytes of an element of the training type."""
        return ITEM_SIZE[self.dtype]
