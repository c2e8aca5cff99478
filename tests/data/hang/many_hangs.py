"""A user's program of two ranks that hangs in the way that it is told: `many_hangs.py WAY [nccl]`.

Under torchrun each process is a rank; alone, it imports torch once and forks both, over gloo. They take some steps
first.
"""

import ctypes
import os
import signal
import sys
import tempfile
import threading
import time

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

BACKEND = sys.argv[2] if len(sys.argv) > 2 else "gloo"


def one_rank_saves(rank):
    """A collective that only rank 0 calls."""
    if rank == 0:
        dist.all_gather([torch.ones(4), torch.ones(4)], torch.ones(4))
    dist.barrier()


def waits_for_a_file(rank):
    if rank == 1:
        while not os.path.exists("/nonexistent/lock"):
            time.sleep(0.05)
    dist.all_reduce(torch.ones(4))


def busy_forever(rank):
    """A loop whose condition no rank but this one will ever change."""
    loss = 1.0
    while rank == 1 and loss > 0:
        loss = loss * 0.5 + 0.5
    dist.all_reduce(torch.ones(4))


def opposite_orders(rank):
    """Two groups, whose collectives the ranks call in opposite orders."""
    groups = [dist.new_group([0, 1]), dist.new_group([0, 1])]
    for group in groups if rank == 0 else reversed(groups):
        dist.all_reduce(torch.ones(4), group=group)


def fewer_batches(rank):
    """Rank 1 has fewer batches, and waits at the end of the epoch while rank 0 reduces gradients."""
    model = DistributedDataParallel(torch.nn.Linear(4, 1))
    for _ in range(3 if rank == 0 else 2):
        model(torch.ones(2, 4)).sum().backward()
    dist.barrier()


def both_receive(rank):
    values = torch.zeros(4)
    dist.recv(values, src=1 - rank)
    dist.send(values, dst=1 - rank)


def lock_held_elsewhere(rank):
    """A helper thread of rank 1 ends without giving back a lock."""
    lock = threading.Lock()
    if rank == 1:
        helper = threading.Thread(target=lock.acquire)
        helper.start()
        helper.join()
    with lock:
        dist.all_reduce(torch.ones(4))


def group_made_by_one(rank):
    if rank == 0:
        dist.new_group([0, 1])
    time.sleep(600)


def swallowed_error(rank):
    """Rank 1 skips a batch that it cannot read, and is one collective behind from then on."""
    for batch in range(3):
        try:
            if rank == 1 and batch == 1:
                raise ValueError("broken batch")
            dist.all_reduce(torch.ones(4))
        except ValueError:
            print("skipping a batch")
    dist.broadcast(torch.ones(4), src=1)
    time.sleep(600 * rank)


def stopped(rank):
    """A debugger, or a signal, has stopped rank 1."""
    if rank == 1:
        os.kill(os.getpid(), signal.SIGSTOP)
    dist.all_reduce(torch.ones(4))


def interpreter_held(rank):
    """A call in C of rank 1 waits for a mutex that it holds itself, and keeps the interpreter's lock."""
    if rank == 1:
        mutex = ctypes.create_string_buffer(64)
        for _ in range(2):
            ctypes.PyDLL(None).pthread_mutex_lock(mutex)
    dist.all_reduce(torch.ones(4))


def before_the_group(rank):
    """Never called after joining: see `main`."""


def no_hang(rank):
    dist.barrier()
    sys.stdout.write(f"rank {rank} is done\n")  # one write: ranks share the stream, and print makes two
    sys.stdout.flush()


def main(rank, way):
    if way == "before_the_group" and rank == 1:
        time.sleep(600)
    if BACKEND == "nccl":
        torch.set_default_device(f"cuda:{rank}")
        torch.cuda.set_device(rank)
    dist.init_process_group(BACKEND)
    for _ in range(3):
        dist.all_reduce(torch.ones(4))
        time.sleep(0.1)
    if rank == 0:
        print("the last words of rank 0")  # buffered where nobody looks on
    globals()[way](rank)
    dist.barrier()
    dist.destroy_process_group()


def fork_two(way):
    import torch._inductor  # which a dump with stacks imports: here once for both
    store = tempfile.mkdtemp()
    children = []
    for rank in range(2):
        child = os.fork()
        if child == 0:
            os.environ.update(RANK=str(rank), WORLD_SIZE="2", LOCAL_RANK=str(rank))
            dist.init_process_group = lambda backend, join=dist.init_process_group: join(
                backend, init_method=f"file://{store}/meet", rank=rank, world_size=2
            )
            main(rank, way)
            sys.exit()
        children.append(child)
    for child in children:
        os.waitpid(child, 0)


if __name__ == "__main__":
    torch.set_num_threads(1)
    if "RANK" in os.environ:
        main(int(os.environ["RANK"]), sys.argv[1])
    else:
        fork_two(sys.argv[1])
