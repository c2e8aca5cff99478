"""One micro-batch as it is recorded, and its checks."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from bench.problems import InputError


@dataclass(frozen=True)
class Batch:
    """`sequences` (rows, positions) int64; `attention_mask` the same shape, bool; `action_mask` (rows, actions)
    bool, aligned to the *end* of the sequence: its last column says whether the last token is an action.

    Rows may be padded on both sides. `source` says where the batch comes from, for messages.
    """

    sequences: torch.Tensor
    attention_mask: torch.Tensor
    action_mask: torch.Tensor
    source: str = "batch"

    def lengths(self) -> torch.Tensor:
        """Real tokens of each row."""
        return self.attention_mask.sum(1)

    def token_actions(self) -> torch.Tensor:
        """(rows, positions) bool: whether the token at a position is an action that is learned from."""
        mask = torch.zeros_like(self.attention_mask)
        mask[:, -self.action_mask.shape[1] :] = self.action_mask
        return mask & self.attention_mask

    def check(self, vocabulary: int | None = None, mend: str = "") -> None:
        """Raise `InputError` for shapes, types or token ids that no model could take; `mend` is what to do about a
        vocabulary that is too small."""
        problem = self._problem(vocabulary, mend)
        if problem:
            raise InputError(f"{self.source}: {problem}")

    def _problem(self, vocabulary: int | None, mend: str) -> str | None:
        shape = tuple(self.sequences.shape)
        if len(shape) != 2 or 0 in shape:
            return f"sequences has shape {shape}, expected (rows, positions), neither of them 0"
        if self.sequences.dtype != torch.int64:
            return f"sequences has dtype {self.sequences.dtype}, expected torch.int64"
        if tuple(self.attention_mask.shape) != shape:
            return f"attention_mask has shape {tuple(self.attention_mask.shape)}, expected {shape}"
        actions = tuple(self.action_mask.shape)
        if len(actions) != 2 or actions[0] != shape[0] or not 0 < actions[1] <= shape[1]:
            return f"action_mask has shape {actions}, expected ({shape[0]}, 1 to {shape[1]})"
        if not bool(self.attention_mask.any(1).all()):
            row = int((~self.attention_mask.any(1)).nonzero()[0])
            return f"attention_mask: row {row} is all padding"
        return self._gaps() or self._bad_token(vocabulary, mend)

    def _gaps(self) -> str | None:
        mask = self.attention_mask.to(torch.int8)
        starts = (mask[:, 1:] > mask[:, :-1]).sum(1) + mask[:, 0]
        if int(starts.max()) > 1:
            return f"attention_mask: row {int(starts.argmax())} has padding between real tokens"
        return None

    def _bad_token(self, vocabulary: int | None, mend: str) -> str | None:
        low, high = int(self.sequences.min()), int(self.sequences.max())
        if low < 0:
            return f"sequences holds the token id {low}, which is negative"
        if vocabulary is not None and high >= vocabulary:
            return f"sequences holds the token id {high}, the model's vocabulary has {vocabulary}{mend}"
        return None


def make_batch(sequences: torch.Tensor, attention_mask: torch.Tensor, action_mask: torch.Tensor, source: str) -> Batch:
    """A checked batch; masks of any type are taken that hold nothing but 0 and 1."""
    for name, mask in (("attention_mask", attention_mask), ("action_mask", action_mask)):
        if not bool(((mask == 0) | (mask == 1)).all()):
            raise InputError(f"{source}: {name} holds values other than 0 and 1")
    batch = Batch(sequences, attention_mask.bool(), action_mask.bool(), source)
    batch.check()
    return batch


def pad_to(batch: Batch, positions: int, pad_id: int = 0) -> Batch:
    """The batch lengthened on the right to `positions`, as ranks that must agree on one shape do."""
    extra = positions - batch.sequences.shape[1]
    if extra <= 0:
        return batch
    pad = torch.nn.functional.pad
    return Batch(
        pad(batch.sequences, (0, extra), value=pad_id),
        pad(batch.attention_mask, (0, extra)),
        pad(batch.token_actions(), (0, extra)),
        batch.source,
    )
