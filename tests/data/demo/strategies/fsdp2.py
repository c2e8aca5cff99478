import os

import torch
import torch.distributed as dist
from torch.distributed.fsdp import fully_shard


class FSDP2Strategy:
    def __init__(self, args):
        self.args = args
        self.ring_size = args.ring_size

    def setup_distributed(self):
        dist.init_process_group("nccl")
        self.world_size = dist.get_world_size()
        if self.world_size % self.ring_size:
            raise ValueError(f"world size {self.world_size} is not a multiple of ring size {self.ring_size}")
        self.dp_size = self.world_size // self.ring_size

    def prepare(self, model, optimizer):
        fully_shard(model)
        return model

    def backward(self, loss, model, optimizer):
        loss.backward()

    def optimizer_step(self, optimizer, model, scheduler, name="model"):
        optimizer.step()
        optimizer.zero_grad()
        scheduler.step()

    def all_reduce(self, value, op="mean"):
        value = value.clone()
        dist.all_reduce(value)
        return value / self.world_size if op == "mean" else value

    def save_ckpt(self, model, folder, tag=None, client_state=None):
        if dist.get_rank() == 0:
            state = {name: value.full_tensor() for name, value in model.state_dict().items()}
            torch.save({"model": state, "client": client_state}, os.path.join(folder, f"{tag}.pt"))

    def load_ckpt(self, model, folder, tag=None, load_optimizer_states=True):
        state = torch.load(os.path.join(folder, f"{tag}.pt"))
        model.load_state_dict(state["model"])
        return folder, state["client"]

    def is_rank_0(self):
        return dist.get_rank() == 0
