# === optional_images | hang
import torch.distributed as dist

def step(images):
    if images is not None:
        out = [None] * dist.get_world_size()
        dist.all_gather_object(out, images)  # error: MP501

def main():
    step([1] if dist.get_rank() % 2 else None)

# === optional_images_always_gathered | finish
import torch.distributed as dist

def step(images):
    out = [None] * dist.get_world_size()
    dist.all_gather_object(out, images)

def main():
    step([1] if dist.get_rank() % 2 else None)

# === item_of_the_batch | hang
import torch
import torch.distributed as dist

def step(batch):
    if batch["mask"].sum().item() == 0:  # error: MP501
        return
    dist.all_reduce(torch.ones(1))

def main():
    step({"mask": torch.full((2,), dist.get_rank())})

# === item_after_reduction | finish
import torch
import torch.distributed as dist

def step(batch):
    total = batch["mask"].sum()
    dist.all_reduce(total)
    if total.item() == 0:
        return
    dist.all_reduce(torch.ones(1))

def main():
    step({"mask": torch.full((2,), dist.get_rank())})

# === any_of_labels | hang
import torch
import torch.distributed as dist

def step(labels):
    if (labels > 0).any():
        dist.all_reduce(torch.ones(1))  # error: MP501

def main():
    step(torch.full((2,), dist.get_rank()))

# === any_of_labels_reduced | finish
import torch
import torch.distributed as dist

def step(labels):
    found = (labels > 0).any().to(torch.int32)
    dist.all_reduce(found)
    if found:
        dist.all_reduce(torch.ones(1))

def main():
    step(torch.full((2,), dist.get_rank()))

# === step_counter | finish
import torch
import torch.distributed as dist

def main():
    for step in range(4):
        if step % 2 == 0:
            dist.all_reduce(torch.ones(1))

# === clock | hang
import time
import torch
import torch.distributed as dist

def main(limit=0.2):
    time.sleep(0.0 if dist.get_rank() else 0.4)
    begun = time.time() % 1000
    deadline = 0
    if time.time() - START > limit:
        dist.all_reduce(torch.ones(1))  # error: MP502

START = __import__("time").time()

# === clock_of_rank_zero | finish
import time
import torch
import torch.distributed as dist

def main(limit=0.2):
    late = torch.tensor([float(time.time() % 2 > limit)])
    dist.broadcast(late, src=0)
    if late.item() > 0:
        dist.all_reduce(torch.ones(1))

# === rounds_of_the_batch | hang
import torch
import torch.distributed as dist

def step(batch):
    longest = batch["lengths"].max().item()
    for _ in range(longest):
        dist.all_reduce(torch.ones(1))  # error: MP501

def main():
    step({"lengths": torch.tensor([1, 1 + dist.get_rank()])})

# === rounds_of_the_longest_batch | finish
import torch
import torch.distributed as dist

def step(batch):
    longest = batch["lengths"].max()
    dist.all_reduce(longest, op=dist.ReduceOp.MAX)
    for _ in range(longest.item()):
        dist.all_reduce(torch.ones(1))

def main():
    step({"lengths": torch.tensor([1, 1 + dist.get_rank()])})

# === size_of_the_batch_is_shared | finish
import torch
import torch.distributed as dist

def step(batch):
    if batch["mask"].shape[0] > 1:
        dist.all_reduce(torch.ones(1))

def main():
    step({"mask": torch.ones(2)})

# === folder_made_meanwhile | hang
import os
import tempfile
import time
import torch.distributed as dist

def prepare(folder):
    if not os.path.exists(folder):
        if dist.get_rank() == 0:
            os.makedirs(folder)
        dist.barrier()  # error: MP502

def main():
    names = [tempfile.mkdtemp() + "/run"]
    dist.broadcast_object_list(names, src=0)
    time.sleep(0.3 * dist.get_rank())
    prepare(names[0])

# === folder_made_before | finish
import os
import tempfile
import time
import torch.distributed as dist

def prepare(folder):
    if dist.get_rank() == 0 and not os.path.exists(folder):
        os.makedirs(folder)
    dist.barrier()

def main():
    names = [tempfile.mkdtemp() + "/run"]
    dist.broadcast_object_list(names, src=0)
    time.sleep(0.3 * dist.get_rank())
    prepare(names[0])
