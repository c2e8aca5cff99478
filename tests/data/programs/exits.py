# === early_return | hang
import torch.distributed as dist

def main():
    if dist.get_rank() != 0:  # error: MP501
        return
    dist.barrier()

# === early_return_after | finish
import torch.distributed as dist

def main():
    dist.barrier()
    if dist.get_rank() != 0:
        return
    print("report")

# === early_return_of_all | finish
import torch.distributed as dist

def main(enabled=False):
    if not enabled:
        return
    dist.barrier()

# === return_between | hang
import torch
import torch.distributed as dist

def main():
    stats = torch.ones(1)
    dist.all_reduce(stats)
    if dist.get_rank() > 1:  # error: MP501
        return
    dist.all_reduce(stats)

# === return_between_ok | finish
import torch
import torch.distributed as dist

def main():
    stats = torch.ones(1)
    dist.all_reduce(stats)
    dist.all_reduce(stats)
    if dist.get_rank() > 1:
        return
    print(stats)

# === continue_skips_round | hang
import torch
import torch.distributed as dist

def main():
    rank = dist.get_rank()
    for step in range(3):
        if rank == 0 and step == 1:  # error: MP501
            continue
        dist.all_reduce(torch.ones(1))

# === continue_of_all | finish
import torch
import torch.distributed as dist

def main():
    for step in range(3):
        if step == 1:
            continue
        dist.all_reduce(torch.ones(1))

# === break_of_one | hang
import torch
import torch.distributed as dist

def main():
    rank = dist.get_rank()
    for step in range(3):
        dist.all_reduce(torch.ones(1))
        if rank == 0:  # error: MP501
            break

# === break_of_all | finish
import torch
import torch.distributed as dist

def main(last=1):
    for step in range(3):
        dist.all_reduce(torch.ones(1))
        if step == last:
            break

# === return_in_loop | hang
import torch
import torch.distributed as dist

def main():
    rank = dist.get_rank()
    for step in range(3):
        if step == rank:  # error: MP501
            return
        dist.barrier()

# === return_after_loop | finish
import torch
import torch.distributed as dist

def main():
    rank = dist.get_rank()
    for step in range(3):
        dist.barrier()
    if rank == 1:
        return
    print("done")

# === return_in_else | hang
import torch.distributed as dist

def main():
    if dist.get_rank() == 0:
        print("rank 0 goes on")
    else:
        return
    dist.barrier()  # error: MP501

# === print_in_else | finish
import torch.distributed as dist

def main():
    if dist.get_rank() == 0:
        print("rank 0 goes on")
    else:
        print("the others too")
    dist.barrier()
