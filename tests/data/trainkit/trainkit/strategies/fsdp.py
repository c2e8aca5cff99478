"""Training with FSDP2: gradients, accumulation and the optimizer's step are done here."""

import os
from datetime import timedelta

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint.state_dict import StateDictOptions, get_model_state_dict, get_state_dict
from torch.distributed.checkpoint.state_dict import set_model_state_dict, set_state_dict
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.utils.data import DataLoader, DistributedSampler


class FsdpStrategy:
    """Hides `fully_shard`."""

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
        self.micro_steps = {}
        self.grad_norms = {}

    def setup_distributed(self, timeout=timedelta(minutes=30)):
        torch.manual_seed(self.seed)
        dist.init_process_group(timeout=timeout)
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
        policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
        mesh = self.mesh["dp", "ring"]._flatten("shard")
        for layer in model.layers:
            fully_shard(layer, mesh=mesh, mp_policy=policy)
        fully_shard(model, mesh=mesh, mp_policy=policy)
        return model, optimizer, scheduler

    def backward(self, loss, model, optimizer, **kwargs):
        (loss / self.accumulation_steps).backward()

    def optimizer_step(self, optimizer, model, scheduler, name="model", **kwargs):
        self.micro_steps[name] = self.micro_steps.get(name, 0) + 1
        if self.micro_steps[name] % self.accumulation_steps != 0:
            return
        norm = torch.nn.utils.clip_grad_norm_(model.parameters(), self.max_norm)
        self.grad_norms[id(model)] = norm.full_tensor().item()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        if scheduler is not None:
            scheduler.step()

    def get_grad_norm(self, model):
        return self.grad_norms.get(id(model), 0.0)

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
        state = get_model_state_dict(model, options=StateDictOptions(full_state_dict=True, cpu_offload=True))
        if self.is_rank_0():
            os.makedirs(folder, exist_ok=True)
            model.save_pretrained(folder, state_dict=state, **kwargs)

    def save_ckpt(self, model, optimizer, scheduler, folder, tag=None, client_state=None, save_latest=True):
        weights, moments = get_state_dict(model, optimizer)
        state = {"model": weights, "optimizer": moments, "scheduler": scheduler.state_dict(), "client": client_state or {}}
        dcp.save(state, checkpoint_id=os.path.join(folder, tag or "last"))
        if save_latest and self.is_rank_0():
            with open(os.path.join(folder, "latest"), "w") as file:
                file.write(tag or "last")

    def load_ckpt(self, model, optimizer, scheduler, folder, tag=None, load_optimizer_states=True):
        path = os.path.join(folder, tag or "last")
        weights, moments = get_state_dict(model, optimizer)
        state = {"model": weights, "client": {}}
        if load_optimizer_states:
            state |= {"optimizer": moments, "scheduler": scheduler.state_dict()}
        dcp.load(state, checkpoint_id=path)
        if load_optimizer_states:
            set_state_dict(model, optimizer, model_state_dict=state["model"], optim_state_dict=state["optimizer"])
            scheduler.load_state_dict(state["scheduler"])
        else:
            set_model_state_dict(model, state["model"])
        return path, state["client"]
