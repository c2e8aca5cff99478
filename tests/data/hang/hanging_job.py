"""A user's job that hangs: two ranks over gloo, of which one calls a collective that the other never reaches.

`hanging_job.py FOLDER` under torchrun leaves the dump of PyTorch's own flight recorder and the
stacks of each rank, then ends.
"""

import faulthandler
import os
import sys
import threading
import time
from pathlib import Path

import torch
import torch.distributed as dist


def save(values, shards):
    if dist.get_rank() == 0:
        dist.all_gather(shards, values)
        print("saved")


def leave_dump(folder, rank):
    from torch._C._distributed_c10d import _dump_fr_trace, _dump_fr_trace_json

    time.sleep(1.0)
    with (folder / f"stacks.{rank}.txt").open("w") as file:
        faulthandler.dump_traceback(file)
    (folder / f"trace_rank_{rank}").write_bytes(_dump_fr_trace())
    (folder / f"trace_rank_{rank}.json").write_bytes(_dump_fr_trace_json())
    time.sleep(1.0)  # the other one too
    os._exit(0)


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    values = torch.ones(4)
    dist.all_reduce(values)
    threading.Thread(target=leave_dump, args=(Path(sys.argv[1]), rank)).start()
    save(values, [torch.ones(4) for _ in range(dist.get_world_size())])
    time.sleep(60)


if __name__ == "__main__":
    main()
