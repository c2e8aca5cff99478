"""From a batch to the tensors that one rank's model takes: padded rows, or documents packed into one row."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import torch

from bench.inputs.batch import Batch
from bench.parallel.ring_attention import zigzag_indices


@dataclass(frozen=True)
class ModelInputs:
    """Local to one rank. Shapes: padded (rows, positions), packed (1, total positions of the rank).

    `labels` is the next token of each position (shifted before any slicing), `loss_mask` where it counts,
    `advantages` one fp32 number per position. `lengths` are the local lengths of the packed documents, padding
    included; they stay on the host so that no kernel launch waits for the device.
    `real_tokens` and `positions` count the whole batch before it is sliced over a ring.
    """

    input_ids: torch.Tensor
    labels: torch.Tensor
    loss_mask: torch.Tensor
    position_ids: torch.Tensor
    advantages: torch.Tensor
    attention_mask: torch.Tensor | None
    cu_seq_lens: torch.Tensor | None
    max_length: int | None
    lengths: tuple[int, ...]
    real_tokens: int
    positions: int
    sum_squared_lengths: int

    def to(self, device: torch.device) -> ModelInputs:
        """The same with every tensor on `device`. The host does not wait for a GPU, whose pinned copies it keeps."""
        tensors = {name: value for name, value in self.__dict__.items() if isinstance(value, torch.Tensor)}
        if device.type == "cuda":
            tensors = {n: v if v.is_cuda else v.pin_memory() for n, v in tensors.items()}
        return replace(self, **{name: value.to(device, non_blocking=True) for name, value in tensors.items()})

    def model_kwargs(self, ring: bool) -> dict[str, Any]:
        """Keyword arguments for a transformers model; `ring` adds what ring attention reads."""
        kwargs: dict[str, Any] = {"position_ids": self.position_ids, "attention_mask": self.attention_mask}
        if self.cu_seq_lens is not None:
            kwargs |= {
                "cu_seq_lens_q": self.cu_seq_lens, "cu_seq_lens_k": self.cu_seq_lens,
                "max_length_q": self.max_length, "max_length_k": self.max_length,
            }  # fmt: skip
        if ring:
            kwargs["ring_lengths"] = self.lengths
        return kwargs


def _round_up(value: int, multiple: int) -> int:
    return -(-value // multiple) * multiple


def advantages_for(batch: Batch, seed: int) -> torch.Tensor:
    """Standard normal advantages, one per position, that depend on the batch's tokens and the seed alone."""
    key = int(batch.sequences.sum()) * 1_000_003 + seed
    generator = torch.Generator().manual_seed(key % (2**63 - 1))
    return torch.randn(batch.sequences.shape, generator=generator)


def _targets(batch: Batch, use_actions: bool) -> tuple[torch.Tensor, torch.Tensor]:
    """Labels and loss mask, both (rows, positions): position p answers for token p + 1."""
    labels = torch.roll(batch.sequences, -1, 1)
    learned = batch.token_actions() if use_actions else batch.attention_mask
    mask = torch.roll(learned, -1, 1) & batch.attention_mask
    mask[:, -1] = False
    return labels, mask


def pad_inputs(batch: Batch, *, use_actions: bool, seed: int, multiple: int = 1) -> ModelInputs:
    """Rows as they are, lengthened to a multiple of `multiple` positions where that is asked for."""
    from bench.inputs.batch import pad_to

    batch = pad_to(batch, _round_up(batch.sequences.shape[1], multiple))
    labels, mask = _targets(batch, use_actions)
    positions = (batch.attention_mask.long().cumsum(1) - 1).clamp_min(0)
    lengths = tuple(batch.lengths().tolist())
    return ModelInputs(
        input_ids=batch.sequences, labels=labels, loss_mask=mask, position_ids=positions,
        advantages=advantages_for(batch, seed), attention_mask=batch.attention_mask.long(), cu_seq_lens=None,
        max_length=None, lengths=lengths, real_tokens=sum(lengths), positions=batch.sequences.numel(),
        sum_squared_lengths=sum(n * n for n in lengths),
    )  # fmt: skip


def pack_inputs(
    batch: Batch,
    *,
    use_actions: bool,
    seed: int,
    ring_rank: int = 0,
    ring_size: int = 1,
    multiple: int = 1,
    length_bucket: int = 1,
) -> ModelInputs:
    """Real tokens only, document after document in one row, cut zig-zag over the ring.

    With a ring every document is padded to a multiple of `2 * ring_size`, without one only the end of the row,
    to a multiple of `multiple` (sequence parallelism). The maximum length is rounded up to `length_bucket`, so that
    compiled kernels see few distinct integers.
    """
    labels, mask = _targets(batch, use_actions)
    advantages = advantages_for(batch, seed)
    step = 2 * ring_size if ring_size > 1 else 1
    fields: dict[str, list[torch.Tensor]] = {n: [] for n in ("ids", "labels", "mask", "positions", "advantages")}
    lengths = []
    for row, keep in enumerate(batch.attention_mask):
        length = int(keep.sum())
        padded = _round_up(length, step)
        lengths.append(padded)
        pad = torch.nn.functional.pad
        for name, values in (
            ("ids", batch.sequences[row]), ("labels", labels[row]), ("mask", mask[row]), ("advantages", advantages[row])
        ):  # fmt: skip
            fields[name].append(pad(values[keep], (0, padded - length)))
        fields["positions"].append(torch.arange(padded))
    _fill_row(fields, lengths, _round_up(sum(lengths), multiple * (step if multiple > 1 else 1)))
    joined = {name: torch.cat(parts) for name, parts in fields.items()}
    if ring_size > 1:
        kept = zigzag_indices(lengths, ring_rank, ring_size)
        joined = {name: values[kept] for name, values in joined.items()}
    local = tuple(length // ring_size for length in lengths)
    cumulative = torch.tensor([0, *local], dtype=torch.int32).cumsum(0, dtype=torch.int32)
    real = batch.lengths().tolist()
    return ModelInputs(
        input_ids=joined["ids"][None], labels=joined["labels"][None], loss_mask=joined["mask"][None],
        position_ids=joined["positions"][None], advantages=joined["advantages"][None], attention_mask=None,
        cu_seq_lens=cumulative, max_length=_round_up(max(local), length_bucket), lengths=local,
        real_tokens=sum(real), positions=sum(lengths), sum_squared_lengths=sum(n * n for n in real),
    )  # fmt: skip


def _fill_row(fields: dict[str, list[torch.Tensor]], lengths: list[int], total: int) -> None:
    """Add one document of padding that brings the row to `total` positions, if it is shorter."""
    missing = total - sum(lengths)
    if missing <= 0:
        return
    lengths.append(missing)
    for name, parts in fields.items():
        parts.append(torch.arange(missing) if name == "positions" else parts[0].new_zeros(missing))
