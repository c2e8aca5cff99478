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
