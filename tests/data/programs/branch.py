# === rank_zero_barrier | hang
import torch.distributed as dist

def main():
    if dist.get_rank() == 0:
        dist.barrier()  # error: MP501

# === rank_zero_barrier_ok | finish
import torch.distributed as dist

def main():
    if dist.get_rank() == 0:
        print("saving")
    dist.barrier()

# === all_reduce_on_leader | hang
import torch
import torch.distributed as dist

def main():
    loss = torch.ones(1)
    rank = dist.get_rank()
    if rank == 0:
        dist.all_reduce(loss)  # error: MP501
        print(loss)

# === all_reduce_on_leader_ok | finish
import torch
import torch.distributed as dist

def main():
    loss = torch.ones(1)
    rank = dist.get_rank()
    dist.all_reduce(loss)
    if rank == 0:
        print(loss)

# === not_leader | hang
import torch.distributed as dist

def main():
    rank = dist.get_rank()
    if not rank == 0:
        dist.barrier()  # error: MP501

# === not_leader_ok | finish
import torch.distributed as dist

def main():
    rank = dist.get_rank()
    if not rank == 0:
        dist.barrier()
    else:
        dist.barrier()

# === both_arms_in_other_order | hang
import torch
import torch.distributed as dist

def main():
    value = torch.ones(1)
    if dist.get_rank() == 0:
        dist.broadcast(value, src=0)  # error: MP501
        dist.barrier()
    else:
        dist.barrier()
        dist.broadcast(value, src=0)

# === both_arms_alike | finish
import torch
import torch.distributed as dist

def main():
    if dist.get_rank() == 0:
        value = torch.ones(1)
        dist.broadcast(value, src=0)
    else:
        value = torch.empty(1)
        dist.broadcast(value, src=0)

# === one_arm_reduces_twice | hang
import torch
import torch.distributed as dist

def main():
    value = torch.ones(1)
    if dist.get_rank() % 2:
        dist.all_reduce(value)
    else:
        dist.all_reduce(value)
        dist.all_reduce(value)  # error: MP501

# === both_arms_reduce_twice | finish
import torch
import torch.distributed as dist

def main():
    value = torch.ones(1)
    if dist.get_rank() % 2:
        dist.all_reduce(value)
        dist.all_reduce(value)
    else:
        dist.all_reduce(value)
        dist.all_reduce(value)

# === environment_rank | hang
import os
import torch.distributed as dist

def main():
    if int(os.environ["RANK"]) == 0:
        dist.barrier()  # error: MP501

# === environment_size | finish
import os
import torch.distributed as dist

def main():
    if int(os.environ["WORLD_SIZE"]) > 1:
        dist.barrier()

# === getenv_local_rank | hang
import os
import torch.distributed as dist

def main():
    local = int(os.getenv("LOCAL_RANK", "0"))
    if local == 0:
        dist.barrier()  # error: MP501

# === getenv_debug | finish
import os
import torch.distributed as dist

def main():
    debug = int(os.getenv("DEBUG_STEPS", "1"))
    if debug:
        dist.barrier()

# === conjunction_with_rank | hang
import torch.distributed as dist

def main(step=0, interval=10):
    if step % interval == 0 and dist.get_rank() == 0:
        dist.barrier()  # error: MP501

# === conjunction_of_configuration | finish
import torch.distributed as dist

def main(step=0, interval=10):
    if step % interval == 0 and dist.is_initialized():
        dist.barrier()

# === nested_under_configuration | hang
import torch.distributed as dist

def main(verbose=True):
    if dist.get_rank() == 0:
        if verbose:
            dist.barrier()  # error: MP501

# === nested_rank_under_configuration | finish
import torch.distributed as dist

def main(verbose=True):
    if verbose:
        if dist.get_rank() == 0:
            print("rank 0 speaks")
        dist.barrier()

# === elif_chain | hang
import torch.distributed as dist

def main():
    rank = dist.get_rank()
    if rank == 0:
        dist.barrier()
    elif rank == 1:
        dist.barrier()
    elif rank == 2:
        dist.barrier()  # error: MP501

# === elif_chain_ok | finish
import torch.distributed as dist

def main():
    rank = dist.get_rank()
    if rank == 0:
        dist.barrier()
    elif rank == 1:
        dist.barrier()
    else:
        dist.barrier()

# === object_gather_on_leader | hang
import torch.distributed as dist

def main():
    out = [None] * dist.get_world_size()
    if dist.get_rank() == 0:
        dist.all_gather_object(out, {"loss": 1.0})  # error: MP501

# === object_gather_by_all | finish
import torch.distributed as dist

def main():
    out = [None] * dist.get_world_size()
    dist.all_gather_object(out, {"loss": 1.0})
    if dist.get_rank() == 0:
        print(out)

# === new_group_by_members_only | hang
import torch
import torch.distributed as dist

def main():
    if dist.get_rank() < 2:
        dist.new_group([0, 1])  # error: MP501
    everyone = dist.new_group([0, 1, 2, 3])
    dist.all_reduce(torch.ones(1), group=everyone)

# === new_group_by_all | finish
import torch
import torch.distributed as dist

def main():
    group = dist.new_group([0, 1])
    if dist.get_rank() in [0, 1]:
        dist.all_reduce(torch.ones(1), group=group)

# === leader_first | finish
import torch.distributed as dist

def main():
    rank = dist.get_rank()
    if rank != 0:
        dist.barrier()
    print("load from the cache that rank 0 has filled")
    if rank == 0:
        dist.barrier()

# === leader_first_but_forgotten | hang
import torch.distributed as dist

def main():
    rank = dist.get_rank()
    if rank != 0:
        dist.barrier()  # error: MP501
    print("load from the cache that rank 0 has filled")

# === lora_rank_is_no_rank | finish
import torch.distributed as dist

def main(lora_rank=8):
    if lora_rank > 0:
        dist.barrier()

# === dp_rank_is_a_rank | hang
import torch.distributed as dist

def main():
    dp_rank = dist.get_rank() // 2
    if dp_rank == 0:
        dist.barrier()  # error: MP501

# === barrier_in_a_handler | hang
import torch.distributed as dist

def write():
    if dist.get_rank() == 1:
        raise RuntimeError("no room")

def main():
    try:
        write()
    except RuntimeError:
        dist.barrier()  # error: MP507

# === flag_from_a_handler | finish
import torch
import torch.distributed as dist

def write():
    if dist.get_rank() == 1:
        raise RuntimeError("no room")

def main():
    failed = torch.zeros(1)
    try:
        write()
    except RuntimeError:
        failed.fill_(1)
    dist.all_reduce(failed)
