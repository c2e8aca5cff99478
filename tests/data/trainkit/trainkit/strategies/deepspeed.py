"""Training with DeepSpeed: the engine owns gradients, accumulation and the optimizer's step."""

import os
from datetime import timedelta

import deepspeed
import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.utils.data import DataLoader, DistributedSampler


class DeepspeedStrategy:
    """Hides a DeepSpeed engine."""

    def __init__(self, seed=42, max_norm=1.0, micro_batch_size=1, batch_size=8, args=None):
        self.args = args
        self.seed = seed
        self.max_norm = max_norm
        self.micro_batch_size = micro_batch_size
        self.batch_size = batch_size
        self.ring_size = args.ring_size
        self.world_size = 1
        self.accumulation_steps = 1
        self.mesh = None
        self.ring_group = None

    def setup_distributed(self, timeout=timedelta(minutes=30)):
        torch.manual_seed(self.seed)
        deepspeed.init_distributed(timeout=timeout)
        self.world_size = dist.get_world_size()
        if self.world_size % self.ring_size != 0:
            raise ValueError(f"world size {self.world_size} is no multiple of ring size {self.ring_size}")
        dp = self.world_size // self.ring_size
        if self.batch_size % (self.micro_batch_size * dp) != 0:
            raise ValueError(f"batch size {self.batch_size} is no multiple of {self.micro_batch_size} x {dp}")
        self.mesh = init_device_mesh("cuda", (dp, self.ring_size), mesh_dim_names=("dp", "ring"))
        self.accumulation_steps = self.batch_size // (self.micro_batch_size * dp)
        self.setup_ring_attn(self.mesh)

    def setup_ring_attn(self, mesh):
        if self.ring_size > 1:
            self.ring_group = mesh["ring"].get_group()

    @property
    def is_ring(self):
        return self.ring_group is not None

    def create_optimizer(self, model, lr=1e-5, weight_decay=0.0):
        return torch.optim.AdamW(model.parameters(), lr=lr, weight_decay=weight_decay)

    def prepare(self, model, optimizer, scheduler):
        config = {
            "train_micro_batch_size_per_gpu": self.micro_batch_size,
            "gradient_accumulation_steps": self.accumulation_steps,
            "gradient_clipping": self.max_norm,
        }
        engine, optimizer, _, scheduler = deepspeed.initialize(
            model=model, optimizer=optimizer, lr_scheduler=scheduler, config=config
        )
        return engine, optimizer, scheduler

    def backward(self, loss, model, optimizer, **kwargs):
        model.backward(loss)

    def optimizer_step(self, optimizer, model, scheduler, name="model", **kwargs):
        model.step()

    def get_grad_norm(self, model):
        return float(model.get_global_grad_norm() or 0.0)

    def setup_dataloader(self, dataset, batch_size, shuffle=True, drop_last=True):
        group = self.mesh["dp"].get_group()
        sampler = DistributedSampler(
            dataset,
            num_replicas=dist.get_world_size(group=group),
            rank=dist.get_rank(group=group),
            shuffle=shuffle,
            drop_last=drop_last,
        )
        return DataLoader(dataset, batch_size=batch_size, sampler=sampler, drop_last=drop_last)

    def all_reduce(self, data, op="mean"):
        if op not in ("mean", "max", "sum"):
            raise ValueError(f"op must be mean, max or sum, not {op!r}")
        data = torch.as_tensor(data, device="cuda", dtype=torch.float32)
        if op == "mean":
            data = data / self.world_size
        dist.all_reduce(data, op=dist.ReduceOp.MAX if op == "max" else dist.ReduceOp.SUM)
        return data.item()

    def is_rank_0(self):
        return not dist.is_initialized() or dist.get_rank() == 0

    def log(self, *message):
        if self.is_rank_0():
            print(*message)

    def save_model(self, model, folder, **kwargs):
        state = model._zero3_consolidated_16bit_state_dict() if self.args.zero_stage == 3 else model.module.state_dict()
        if self.is_rank_0():
            os.makedirs(folder, exist_ok=True)
            model.module.save_pretrained(folder, state_dict=state, **kwargs)

    def save_ckpt(self, model, optimizer, scheduler, folder, tag=None, client_state=None, save_latest=True):
        model.save_checkpoint(folder, tag=tag, client_state=client_state or {}, save_latest=save_latest)

    def load_ckpt(self, model, optimizer, scheduler, folder, tag=None, load_optimizer_states=True):
        path, state = model.load_checkpoint(folder, tag, load_optimizer_states=load_optimizer_states)
        if path is None:
            raise FileNotFoundError(f"{folder} holds no checkpoint")
        return path, state
