# === group_rank_on_its_group | hang
import torch
import torch.distributed as dist

def main():
    groups = [dist.new_group([0, 1]), dist.new_group([2, 3])]
    tp_group = groups[dist.get_rank() // 2]
    if dist.get_rank(tp_group) == 0:
        dist.all_reduce(torch.ones(1), group=tp_group)  # error: MP501

# === group_by_all_its_members | finish
import torch
import torch.distributed as dist

def main():
    groups = [dist.new_group([0, 1]), dist.new_group([2, 3])]
    tp_group = groups[dist.get_rank() // 2]
    dist.all_reduce(torch.ones(1), group=tp_group)
    if dist.get_rank(tp_group) == 0:
        print("leader of the pair")

# === membership | finish
import torch
import torch.distributed as dist

def main():
    ranks = [0, 2]
    group = dist.new_group(ranks)
    if dist.get_rank() in ranks:
        dist.all_reduce(torch.ones(1), group=group)

# === membership_but_world | hang
import torch
import torch.distributed as dist

def main():
    ranks = [0, 2]
    dist.new_group(ranks)
    rank = dist.get_rank()
    if rank == 0 or rank == 2:
        dist.all_reduce(torch.ones(1))  # error: MP501

# === world_under_group_rank | hang
import torch.distributed as dist

def main():
    groups = [dist.new_group([0, 1]), dist.new_group([2, 3])]
    ring_group = groups[dist.get_rank() // 2]
    ring_rank = dist.get_rank(ring_group)
    if ring_rank == 0:
        dist.barrier()  # error: MP501

# === leaders_group | finish
import torch
import torch.distributed as dist

def main():
    groups = [dist.new_group([0, 1]), dist.new_group([2, 3])]
    leaders_group = dist.new_group([0, 2])
    ring_group = groups[dist.get_rank() // 2]
    ring_rank = dist.get_rank(ring_group)
    if ring_rank == 0:
        dist.all_reduce(torch.ones(1), group=leaders_group)

# === other_dimension | finish
import torch
import torch.distributed as dist

def main():
    rank = dist.get_rank()
    tp_groups = [dist.new_group([0, 1]), dist.new_group([2, 3])]
    dp_groups = [dist.new_group([0, 2]), dist.new_group([1, 3])]
    tp_group, dp_group = tp_groups[rank // 2], dp_groups[rank % 2]
    tp_rank = dist.get_rank(tp_group)
    if tp_rank == 0:
        dist.all_reduce(torch.ones(1), group=dp_group)

# === same_dimension | hang
import torch
import torch.distributed as dist

def main():
    rank = dist.get_rank()
    dp_groups = [dist.new_group([0, 2]), dist.new_group([1, 3])]
    dp_group = dp_groups[rank % 2]
    dp_rank = dist.get_rank(dp_group)
    if dp_rank == 0:
        dist.all_reduce(torch.ones(1), group=dp_group)  # error: MP501

# === group_none_or_leader | finish
import torch.distributed as dist

def main(ring_group=None):
    if ring_group is None or dist.get_rank(ring_group) == 0:
        dist.barrier() if ring_group is None else None

# === mesh_coordinate | hang
import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh

def main():
    mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("dp", "tp"))
    if mesh["tp"].get_local_rank() == 0:
        dist.barrier()  # error: MP501

# === mesh_size | finish
import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh

def main():
    mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("dp", "tp"))
    if mesh["tp"].size() == 2:
        dist.barrier()

# === mesh_on_leader | hang
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh

def main():
    if dist.get_rank() == 0:
        init_device_mesh("cpu", (2, 2))  # error: MP501

# === mesh_by_all | finish
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh

def main():
    mesh = init_device_mesh("cpu", (4,))
    if dist.get_rank() == 0:
        print(mesh)

# === coordinate_of_pipeline | hang
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh

def main():
    mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("pp", "dp"))
    stage = mesh.get_local_rank("pp")
    if stage != 0:  # error: MP501
        return
    dist.barrier()

# === coordinate_of_pipeline_in_its_group | finish
import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh

def main():
    mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("pp", "dp"))
    stage = mesh.get_local_rank("pp")
    dp_group = mesh.get_group("dp")
    if stage != 0:
        return
    dist.all_reduce(torch.ones(1), group=dp_group)

# === among_ranks_but_world | hang
import torch.distributed as dist

def main():
    if dist.get_rank() in (0, 1):
        dist.barrier()  # error: MP501

# === among_ranks_in_their_group | finish
import torch
import torch.distributed as dist

def main():
    pair = dist.new_group([0, 1])
    if dist.get_rank() in (0, 1):
        dist.barrier(group=pair)
