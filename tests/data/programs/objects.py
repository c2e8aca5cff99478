# === method_of_self | hang
import torch.distributed as dist

class Trainer:
    def sync(self):
        dist.barrier()  # error: MP501

    def run(self):
        if dist.get_rank() == 0:
            self.sync()

def main():
    Trainer().run()

# === method_of_self_ok | finish
import torch.distributed as dist

class Trainer:
    def sync(self):
        dist.barrier()

    def run(self):
        if dist.get_rank() == 0:
            print("first")
        self.sync()

def main():
    Trainer().run()

# === rank_attribute | hang
import torch.distributed as dist

class Trainer:
    def __init__(self):
        self.rank = dist.get_rank()
        self.world_size = dist.get_world_size()

    def run(self):
        if self.rank == 0:
            dist.barrier()  # error: MP501

def main():
    Trainer().run()

# === size_attribute | finish
import torch.distributed as dist

class Trainer:
    def __init__(self):
        self.rank = dist.get_rank()
        self.world_size = dist.get_world_size()

    def run(self):
        if self.world_size > 1:
            dist.barrier()

def main():
    Trainer().run()

# === predicate_method | hang
import torch.distributed as dist

class Strategy:
    def is_rank_0(self):
        return dist.get_rank() == 0

    def save(self):
        if self.is_rank_0():
            dist.barrier()  # error: MP501

def main():
    Strategy().save()

# === predicate_method_ok | finish
import torch.distributed as dist

class Strategy:
    def is_rank_0(self):
        return dist.get_rank() == 0

    def save(self):
        if self.is_rank_0():
            print("config written")
        dist.barrier()

def main():
    Strategy().save()

# === property_rank | hang
import torch.distributed as dist

class State:
    @property
    def is_leader(self):
        return dist.get_rank() == 0

def main():
    state = State()
    if state.is_leader:
        dist.barrier()  # error: MP501

# === property_size | finish
import torch.distributed as dist

class State:
    @property
    def is_distributed(self):
        return dist.get_world_size() > 1

def main():
    state = State()
    if state.is_distributed:
        dist.barrier()

# === other_object | hang
import torch.distributed as dist

class Strategy:
    def all_reduce(self, value):
        dist.barrier()  # error: MP501
        return value

class Trainer:
    def __init__(self, strategy):
        self.strategy = strategy

    def log(self):
        if dist.get_rank() == 0:
            print(self.strategy.all_reduce(1))

def main():
    Trainer(Strategy()).log()

# === other_object_ok | finish
import torch.distributed as dist

class Strategy:
    def all_reduce(self, value):
        dist.barrier()
        return value

class Trainer:
    def __init__(self, strategy):
        self.strategy = strategy

    def log(self):
        value = self.strategy.all_reduce(1)
        if dist.get_rank() == 0:
            print(value)

def main():
    Trainer(Strategy()).log()

# === override_syncs | hang
import torch.distributed as dist

class Base:
    def finish(self):
        print("nothing to do")

    def run(self):
        if dist.get_rank() == 0:
            self.finish()

class Sharded(Base):
    def finish(self):
        dist.barrier()  # error: MP501

def main():
    Sharded().run()

# === override_silent | finish
import torch.distributed as dist

class Base:
    def finish(self):
        print("nothing to do")

    def run(self):
        if dist.get_rank() == 0:
            self.finish()

class Sharded(Base):
    def finish(self):
        print("nothing either")

def main():
    Sharded().run()

# === super_syncs | hang
import torch.distributed as dist

class Base:
    def save(self):
        dist.barrier()  # error: MP501

class Child(Base):
    def save(self):
        if dist.get_rank() == 0:
            super().save()

def main():
    Child().save()

# === super_syncs_ok | finish
import torch.distributed as dist

class Base:
    def save(self):
        dist.barrier()

class Child(Base):
    def save(self):
        super().save()
        if dist.get_rank() == 0:
            print("saved")

def main():
    Child().save()

# === rank_kept_from_argument | hang
import torch.distributed as dist

class Worker:
    def __init__(self, who):
        self.who = who

    def step(self):
        if self.who == 0:
            dist.barrier()  # error: MP501

def main():
    Worker(dist.get_rank()).step()

# === size_kept_from_argument | finish
import torch.distributed as dist

class Worker:
    def __init__(self, many):
        self.many = many

    def step(self):
        if self.many > 1:
            dist.barrier()

def main():
    Worker(dist.get_world_size()).step()

# === context_manager_leader_first | finish
import contextlib
import torch.distributed as dist

@contextlib.contextmanager
def leader_first(is_leader):
    if not is_leader:
        dist.barrier()
    yield
    if is_leader:
        dist.barrier()

def main():
    with leader_first(dist.get_rank() == 0):
        print("one after the other")
