"""A data loader that every data-parallel rank reads its own share of, and that can go on where it stopped."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch.utils.data import DataLoader, Dataset, Sampler


class ShardedSampler(Sampler[int]):
    """Every `num_replicas`-th index of one seeded permutation, begun after `consumed` samples of the epoch.

    The permutation depends on seed and epoch only, and `consumed` counts samples over all replicas, so a
    run may go on with another number of replicas. The last samples that do not fill a round are dropped,
    or, with `drop_last=False`, filled up from the start so that every rank gets the same number.
    """

    def __init__(self, size: int, num_replicas: int, rank: int, shuffle: bool, seed: int, drop_last: bool) -> None:
        if size < 1:
            raise ValueError("the data set is empty: nothing to load")
        self.size, self.num_replicas, self.rank = size, num_replicas, rank
        self.shuffle, self.seed, self.drop_last = shuffle, seed, drop_last
        self.epoch = 0
        self.consumed = 0

    def _order(self) -> list[int]:
        if not self.shuffle:
            return list(range(self.size))
        generator = torch.Generator().manual_seed(self.seed + self.epoch)
        return torch.randperm(self.size, generator=generator).tolist()

    def __iter__(self) -> Iterator[int]:
        order = self._order()[self.consumed :]
        surplus = len(order) % self.num_replicas
        if surplus and self.drop_last:
            order = order[:-surplus]
        elif surplus:
            whole = self._order()
            missing = self.num_replicas - surplus
            order += (whole * (missing // len(whole) + 1))[:missing]
        return iter(order[self.rank :: self.num_replicas])

    def __len__(self) -> int:
        left = max(self.size - self.consumed, 0)
        return left // self.num_replicas if self.drop_last else -(-left // self.num_replicas)


class ResumableLoader:
    """Batches of one data-parallel rank, with a position that counts the batches handed out.

    Workers of the underlying loader may have read ahead; what they prefetched is not counted.
    """

    def __init__(
        self,
        dataset: Dataset[Any],
        batch_size: int,
        sampler: ShardedSampler,
        collate_fn: Callable[[list[Any]], Any] | None,
        pin_memory: bool,
        drop_last: bool,
    ) -> None:
        self.sampler = sampler
        self.batch_size = batch_size
        self.loader: DataLoader[Any] = DataLoader(
            dataset, batch_size=batch_size, sampler=sampler, collate_fn=collate_fn,
            pin_memory=pin_memory, drop_last=drop_last,
        )  # fmt: skip
        self._position = 0

    def __iter__(self) -> Iterator[Any]:
        start = self.sampler.consumed
        self._position = start
        for number, batch in enumerate(self.loader, start=1):
            self._position = start + number * self.batch_size * self.sampler.num_replicas
            yield batch
        self.set_epoch(self.sampler.epoch + 1)

    def __len__(self) -> int:
        return len(self.loader)

    def set_epoch(self, epoch: int) -> None:
        """Begin `epoch` at its first sample."""
        self.sampler.epoch, self.sampler.consumed, self._position = epoch, 0, 0

    def state_dict(self) -> dict[str, int]:
        return {"epoch": self.sampler.epoch, "consumed": self._position}

    def load_state_dict(self, state: dict[str, int]) -> None:
        self.sampler.epoch = int(state["epoch"])
        self.sampler.consumed = self._position = int(state["consumed"])
