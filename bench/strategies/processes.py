"""Joining the process group, whoever started this process, and leaving it."""

from __future__ import annotations

import os
from datetime import timedelta

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh

MESH_DIMS = ("dp", "ring", "tp")


def pick_device(wanted: str) -> torch.device:
    """`auto` is this process's GPU where there is one; raises `ValueError` for CUDA that is not there."""
    if wanted == "cpu" or (wanted == "auto" and not torch.cuda.is_available()):
        return torch.device("cpu")
    if not torch.cuda.is_available():
        raise ValueError("device cuda was asked for and no CUDA device is visible; use --device cpu")
    return torch.device("cuda", local_rank() % torch.cuda.device_count())


def local_rank() -> int:
    """This process's number on its host, as the launcher says; without one, its global rank."""
    return int(os.environ.get("LOCAL_RANK", str(rank())))


def join(device: torch.device, timeout: timedelta) -> int:
    """Join the group that the launcher describes in the environment; alone, make a group of one.

    Returns the world size. A group that the caller initialised before is used as it is.
    """
    if device.type == "cuda":
        torch.cuda.set_device(device)
    if not dist.is_initialized():
        backend = "nccl" if device.type == "cuda" else "gloo"
        if "RANK" in os.environ and "WORLD_SIZE" in os.environ:
            dist.init_process_group(backend, timeout=timeout, device_id=device if device.type == "cuda" else None)
        else:
            dist.init_process_group(backend, store=dist.HashStore(), rank=0, world_size=1, timeout=timeout)
    return dist.get_world_size()


def build_mesh(device: torch.device, dp: int, ring: int, tp: int) -> DeviceMesh:
    """The mesh (dp, ring, tp): tensor-parallel neighbours are consecutive ranks, so they share a node."""
    return init_device_mesh(device.type, (dp, ring, tp), mesh_dim_names=MESH_DIMS)


def leave() -> None:
    """Destroy the process group. The barrier keeps a slow rank from losing its peers in mid-collective."""
    if dist.is_initialized():
        dist.barrier()
        dist.destroy_process_group()


def rank() -> int:
    return dist.get_rank() if dist.is_initialized() else 0


def world_size() -> int:
    return dist.get_world_size() if dist.is_initialized() else 1
