"""How a model is laid out over GPUs: all that decides memory and traffic besides its shape. No torch needed."""

from __future__ import annotations

from dataclasses import dataclass

from bench.configuration import Configuration

ITEM_SIZE = {"bf16": 2, "fp16": 2, "fp32": 4}
HEADS = ("full", "chunked", "compiled", "liger")


@dataclass(frozen=True)
class Layout:
    """What decides memory besides the model. Sizes count processes, batches samples, `seq_len` tokens.

    `master` is the type of the weights that the optimizer updates. FSDP2 keeps its (sharded) parameters in
    it, the other backends keep a copy beside the parameters. `embedding_apart` says whether FSDP2 shards the
    embedding as a group of its own; with the head in the root's group both are gathered and reduced at once.
    """

    backend: str = "fsdp2"
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


def of(c: Configuration, positions: float | None = None) -> Layout:
    """A configuration of the harness; `positions` of its longest micro-batch, where they are known.

    A packed batch is one row of its tokens; a padded one has `seq_len` positions in every row.
    """
    padded = not c.packing or positions is None
    return Layout(
        backend=c.backend, zero_stage=c.zero_stage, dp=c.dp, tp=c.tp, ring=c.ring,
        micro_batch_size=c.rows if padded else 1, seq_len=c.seq_len if padded else round(positions or 0),
        grad_accum=max(c.batch // (c.rows * c.dp), 1), dtype=c.dtype, head=c.head, compiled=c.compile != "none",
        eager_attention=c.attn == "eager", checkpointing=c.gradient_checkpointing,
        sequence_parallel=c.sequence_parallel, reshard=c.reshard_after_forward, offload_optimizer=c.cpu_offload,
        offload_param=c.cpu_offload and c.backend == "fsdp2",  # FSDP2's policy keeps both on the host
    )  # fmt: skip
