import deepspeed
import torch
import torch.distributed as dist


class DeepspeedStrategy:
    def __init__(self, args):
        self.args = args
        self.ring_size = args.ring_size

    def setup_distributed(self):
        deepspeed.init_distributed()
        self.world_size = dist.get_world_size()
        self.dp_size = self.world_size // self.ring_size

    def prepare(self, model, optimizer):
        engine, optimizer, _, _ = deepspeed.initialize(model=model, optimizer=optimizer, config=self.args.ds_config)
        return engine, optimizer

    def backward(self, loss, model, optimizer, name="model"):
        model.backward(loss)

    def optimizer_step(self, optimizer, model, scheduler, name="model"):
        model.step()

    def all_reduce(self, value, op="mean"):
        value = value.clone()
        if op == "mean":
            value /= self.world_size
        dist.all_reduce(value, op=dist.ReduceOp.MAX if op == "max" else dist.ReduceOp.SUM)
        return value

    def save_ckpt(self, model, folder, tag=None, client_state=None):
        model.save_checkpoint(folder, tag=tag, client_state=client_state or {})

    def load_ckpt(self, model, folder, tag=None, load_optimizer_states=True):
        return model.load_checkpoint(folder, tag, load_optimizer_states=load_optimizer_states)

    def is_rank_0(self):
        return dist.get_rank() == 0
