# === through_a_function | hang
import torch.distributed as dist

def gather(value):
    out = [None] * dist.get_world_size()
    dist.all_gather_object(out, value)  # error: MP501
    return out

def main():
    if dist.get_rank() == 0:
        print(gather(1))

# === through_a_function_ok | finish
import torch.distributed as dist

def gather(value):
    out = [None] * dist.get_world_size()
    dist.all_gather_object(out, value)
    return out

def main():
    values = gather(1)
    if dist.get_rank() == 0:
        print(values)

# === through_two_functions | hang
import torch.distributed as dist

def sync():
    dist.barrier()  # error: MP501

def save():
    print("writing")
    sync()

def main():
    if dist.get_rank() == 0:
        save()

# === through_two_functions_ok | finish
import torch.distributed as dist

def sync():
    dist.barrier()

def save():
    if dist.get_rank() == 0:
        print("writing")
    sync()

def main():
    save()

# === predicate_function | hang
import torch.distributed as dist

def is_main():
    return dist.get_rank() == 0

def main():
    if is_main():
        dist.barrier()  # error: MP501

# === predicate_that_is_uniform | finish
import torch.distributed as dist

def is_parallel():
    return dist.get_world_size() > 1

def main():
    if is_parallel():
        dist.barrier()

# === rank_as_argument | hang
import torch.distributed as dist

def work(who):
    if who == 0:
        dist.barrier()  # error: MP501

def main():
    work(dist.get_rank())

# === size_as_argument | finish
import torch.distributed as dist

def work(many):
    if many > 1:
        dist.barrier()

def main():
    work(dist.get_world_size())

# === decorated_helper | hang
import functools
import torch.distributed as dist

def logged(function):
    @functools.wraps(function)
    def inner(*args):
        return function(*args)
    return inner

@logged
def sync():
    dist.barrier()  # error: MP501

def main():
    if dist.get_rank() == 0:
        sync()

# === decorated_helper_ok | finish
import functools
import torch.distributed as dist

def logged(function):
    @functools.wraps(function)
    def inner(*args):
        return function(*args)
    return inner

@logged
def sync():
    dist.barrier()

def main():
    sync()

# === decorator_that_waits | hang
import functools
import torch.distributed as dist

def together(function):
    @functools.wraps(function)
    def inner(*args):
        result = function(*args)
        dist.barrier()  # error: MP501
        return result
    return inner

@together
def show(text):
    print(text)

def main():
    if dist.get_rank() == 0:
        show("saved")

# === decorator_that_waits_ok | finish
import functools
import torch.distributed as dist

def together(function):
    @functools.wraps(function)
    def inner(*args):
        result = function(*args)
        dist.barrier()
        return result
    return inner

@together
def show(text):
    if dist.get_rank() == 0:
        print(text)

def main():
    show("saved")

# === manager_that_waits | hang
import torch.distributed as dist

class Together:
    def __enter__(self):
        return self

    def __exit__(self, *error):
        dist.barrier()  # error: MP501

def main():
    if dist.get_rank() == 0:
        with Together():
            print("saved")

# === manager_that_waits_ok | finish
import torch.distributed as dist

class Together:
    def __enter__(self):
        return self

    def __exit__(self, *error):
        dist.barrier()

def main():
    with Together():
        if dist.get_rank() == 0:
            print("saved")

# === property_that_reduces | hang
import torch
import torch.distributed as dist

class Loss:
    def __init__(self):
        self.value = torch.ones(1)

    @property
    def mean(self):
        dist.all_reduce(self.value)  # error: MP501
        return self.value / dist.get_world_size()

    def log(self):
        if dist.get_rank() == 0:
            print(self.mean)

def main():
    Loss().log()

# === property_that_reduces_ok | finish
import torch
import torch.distributed as dist

class Loss:
    def __init__(self):
        self.value = torch.ones(1)

    @property
    def mean(self):
        dist.all_reduce(self.value)
        return self.value / dist.get_world_size()

    def log(self):
        mean = self.mean
        if dist.get_rank() == 0:
            print(mean)

def main():
    Loss().log()

# === optional_sync_left_out | finish
import torch.distributed as dist

def save(sync=False):
    if sync:
        dist.barrier()

def main():
    if dist.get_rank() == 0:
        save()

# === optional_sync_asked_for | hang
import torch.distributed as dist

def save(sync=False):
    if sync:
        dist.barrier()  # error: MP501

def main():
    if dist.get_rank() == 0:
        save(sync=True)

# === called_save_only | finish
import torch.distributed as dist

def save_checkpoint(path):
    print("only a file is written", path)

def main():
    if dist.get_rank() == 0:
        save_checkpoint("model.pt")
    dist.barrier()

# === nested_function_not_called | finish
import torch.distributed as dist

def main():
    if dist.get_rank() == 0:
        def later():
            dist.barrier()
        callbacks = [later]

# === lambda_not_called | finish
import torch.distributed as dist

def main():
    if dist.get_rank() == 0:
        hook = lambda: dist.barrier()
