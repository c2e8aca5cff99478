"""Groups of gloo processes for tests, forked from one server that has imported torch, transformers and deepspeed.

Importing those takes longer than a test: the server pays for it once, and each group costs a fork per rank.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import tempfile
import time
import traceback
import warnings
from collections.abc import Callable
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

PRELOAD = [
    "torch", "torch.distributed.checkpoint", "torch.distributed.fsdp", "transformers.models.llama.modeling_llama",
    "deepspeed", "bench.strategies.deepspeed", "bench.strategies.fsdp2", "bench.strategies.ddp",
    "bench.measure.training",
]  # fmt: skip
TIMEOUT = 120.0


_FAULTS = (-signal.SIGABRT, -signal.SIGSEGV)


class GroupError(AssertionError):
    """A rank raised, died or did not answer in time."""


class FaultError(GroupError):
    """A rank ended by a fault of native code: `malloc(): unaligned tcache chunk detected`."""


def _context() -> Any:
    os.environ["OMP_NUM_THREADS"] = "1"  # read by the server when it starts; two cores serve four ranks
    os.environ["DS_ACCELERATOR"] = "cpu"
    os.environ["CUDA_VISIBLE_DEVICES"] = ""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(PRELOAD)
    return context


_NOT_MET = "Gloo connectFullMesh failed"  # raised by `init_process_group`


def _rank_main(
    function: Callable[..., Any], args: tuple[Any, ...], rank: int, size: int, store: str, answer: Connection
) -> None:
    import torch
    import torch.distributed as dist

    os.environ.update(RANK=str(rank), LOCAL_RANK=str(rank), WORLD_SIZE=str(size))
    torch.set_num_threads(1)
    try:
        if size > 1:
            dist.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=size)
        else:
            for name in ("RANK", "WORLD_SIZE"):
                del os.environ[name]
        answer.send((True, function(*args)))
        if dist.is_initialized():
            dist.barrier()
    except BaseException:
        answer.send((False, traceback.format_exc()))
        answer.close()
        os._exit(1)
    answer.close()
    # Neither gloo's threads nor DeepSpeed's exit hooks have anything to do here, and both can hang.
    os._exit(0)


def run_group(size: int, function: Callable[..., Any], *args: Any, timeout: float = TIMEOUT) -> list[Any]:
    """Call `function(*args)` on `size` ranks of one gloo group; what each rank returned, in rank order.

    `function` is a module-level one; values travel through pipes. Raises `GroupError` with the first traceback. A group
    whose ranks did not find each other is made once more: nothing of `function` ran, and gloo's ports may have been
    taken by another program in between. So is one that ended by a fault of native code, of which this project has none:
    PyTorch's own corrupts its memory once in some thousand groups. That is told as a warning.
    """
    try:
        return _run(size, function, args, timeout)
    except GroupError as error:
        if _NOT_MET not in str(error) and not isinstance(error, FaultError):
            raise
        warnings.warn(f"a group of {size} ranks is made once more: {error}", stacklevel=2)
    return _run(size, function, args, timeout)


def _run(size: int, function: Callable[..., Any], args: tuple[Any, ...], timeout: float) -> list[Any]:
    context = _context()
    with tempfile.TemporaryDirectory() as folder:
        store = str(Path(folder) / "store")
        ranks = []
        for rank in range(size):
            ours, theirs = context.Pipe(duplex=False)
            process = context.Process(target=_rank_main, args=(function, args, rank, size, store, theirs))
            process.start()
            theirs.close()
            ranks.append((process, ours))
        try:
            return _collect(ranks, time.monotonic() + timeout)
        finally:
            for process, ours in ranks:
                if process.is_alive():
                    process.join(5)
                if process.is_alive():
                    process.kill()
                process.join()
                ours.close()


def _ended(rank: int, process: Any) -> GroupError:
    """What to raise for a rank that ended without an answer."""
    fault = process.exitcode in _FAULTS
    return (FaultError if fault else GroupError)(f"rank {rank} died with exit status {process.exitcode}")


def _collect(ranks: list[tuple[Any, Connection]], deadline: float) -> list[Any]:
    answers: dict[int, Any] = {}
    while len(answers) < len(ranks):
        for rank, (process, ours) in enumerate(ranks):
            if rank in answers or not ours.poll(0.02):
                if rank not in answers and not process.is_alive() and not ours.poll(0):
                    raise _ended(rank, process)
                continue
            try:
                fine, value = ours.recv()
            except EOFError:
                process.join(5)
                raise _ended(rank, process) from None
            if not fine:
                raise GroupError(f"rank {rank}:\n{value}")
            answers[rank] = value
        if time.monotonic() > deadline:
            missing = sorted(set(range(len(ranks))) - set(answers))
            raise GroupError(f"ranks {missing} did not answer in time")
    return [answers[rank] for rank in range(len(ranks))]
