# === rounds_by_rank | hang
import torch
import torch.distributed as dist

def main():
    for _ in range(dist.get_rank() + 1):
        dist.all_reduce(torch.ones(1))  # error: MP501

# === rounds_by_size | finish
import torch
import torch.distributed as dist

def main():
    for _ in range(dist.get_world_size()):
        dist.all_reduce(torch.ones(1))

# === while_by_rank | hang
import torch.distributed as dist

def main():
    todo = dist.get_rank()
    while todo > 0:
        dist.barrier()  # error: MP501
        todo -= 1

# === while_by_configuration | finish
import torch.distributed as dist

def main(todo=3):
    while todo > 0:
        dist.barrier()
        todo -= 1

# === one_source_after_another | finish
import torch
import torch.distributed as dist

def main():
    rank = dist.get_rank()
    for source in range(dist.get_world_size()):
        value = torch.ones(1) if rank == source else torch.empty(1)
        dist.broadcast(value, src=source)

# === only_the_source_calls | hang
import torch
import torch.distributed as dist

def main():
    rank = dist.get_rank()
    for source in range(dist.get_world_size()):
        if rank == source:
            dist.broadcast(torch.ones(1), src=source)  # error: MP501

# === loop_on_leader | hang
import torch
import torch.distributed as dist

def main():
    tensors = [torch.ones(1), torch.ones(1)]
    if dist.get_rank() == 0:
        for tensor in tensors:
            dist.broadcast(tensor, src=0)  # error: MP501

# === loops_in_both_arms | finish
import torch
import torch.distributed as dist

def main():
    tensors = [torch.ones(1), torch.ones(1)]
    if dist.get_rank() == 0:
        for tensor in tensors:
            dist.broadcast(tensor, src=0)
    else:
        for _ in range(2):
            dist.broadcast(torch.empty(1), src=0)

# === comprehension_on_leader | hang
import torch
import torch.distributed as dist

def main():
    rank = dist.get_rank()
    if rank == 0:
        handles = [dist.all_reduce(torch.ones(1)) for _ in range(2)]  # error: MP501

# === comprehension_by_all | finish
import torch
import torch.distributed as dist

def main():
    handles = [dist.all_reduce(torch.ones(1)) for _ in range(2)]
    if dist.get_rank() == 0:
        print(handles)

# === short_circuit | hang
import torch.distributed as dist

def reduce():
    dist.barrier()  # error: MP501
    return True

def main():
    ok = dist.get_rank() == 0 and reduce()

# === short_circuit_other_way | finish
import torch.distributed as dist

def reduce():
    dist.barrier()
    return True

def main():
    ok = reduce() and dist.get_rank() == 0

# === conditional_expression | hang
import torch
import torch.distributed as dist

def main():
    value = dist.all_reduce(torch.ones(1)) if dist.get_rank() == 0 else None  # error: MP501

# === conditional_value | finish
import torch
import torch.distributed as dist

def main():
    value = torch.ones(1) if dist.get_rank() == 0 else torch.zeros(1)
    dist.all_reduce(value)

# === handler_reduces | finish
import torch.distributed as dist

def main():
    try:
        dist.barrier()
    finally:
        dist.barrier()

# === while_true_left_by_one | hang
import torch
import torch.distributed as dist

def main():
    rank, step = dist.get_rank(), 0
    while True:
        dist.all_reduce(torch.ones(1))
        step += 1
        if step > rank:  # error: MP501
            break

# === while_true_left_by_all | finish
import torch
import torch.distributed as dist

def main():
    rank, step = dist.get_rank(), 0
    while True:
        dist.all_reduce(torch.ones(1))
        step += 1
        if step > 2:
            break

# === dict_comprehension_on_leader | hang
import torch
import torch.distributed as dist

def mean(value):
    dist.all_reduce(value)  # error: MP501
    return value

def main():
    metrics = {"loss": torch.ones(1)}
    if dist.get_rank() == 0:
        print({name: mean(value) for name, value in metrics.items()})

# === dict_comprehension_by_all | finish
import torch
import torch.distributed as dist

def mean(value):
    dist.all_reduce(value)
    return value

def main():
    metrics = {"loss": torch.ones(1)}
    reduced = {name: mean(value) for name, value in metrics.items()}
    if dist.get_rank() == 0:
        print(reduced)

# === match_on_rank | hang
import torch.distributed as dist

def main():
    match dist.get_rank():
        case 0:
            dist.barrier()  # error: MP501
        case _:
            print("others")

# === match_on_mode | finish
import torch.distributed as dist

def main(mode="train"):
    match mode:
        case "train":
            dist.barrier()
        case _:
            print("nothing")

# === out_of_memory_on_one | hang
import torch
import torch.distributed as dist

def step(loss):
    if dist.get_rank() == 2:
        raise torch.cuda.OutOfMemoryError("too much")
    return loss * 2

def main():
    for _ in range(2):
        try:
            loss = step(torch.ones(1))
            dist.all_reduce(loss)
        except torch.cuda.OutOfMemoryError:  # error: MP507
            continue
    dist.barrier()

# === out_of_memory_told_to_all | finish
import torch
import torch.distributed as dist

def step(loss):
    if dist.get_rank() == 2:
        raise torch.cuda.OutOfMemoryError("too much")
    return loss * 2

def main():
    for _ in range(2):
        loss, failed = torch.zeros(1), torch.zeros(1)
        try:
            loss = step(torch.ones(1))
        except torch.cuda.OutOfMemoryError:
            failed.fill_(1)
        dist.all_reduce(failed)
        if failed.item():
            continue
        dist.all_reduce(loss)

# === names_in_a_set | static
import torch
import torch.distributed as dist

def main():
    model = torch.nn.Linear(2, 2)
    names = {name for name, _ in model.named_parameters()}
    for name in names:  # error: MP508
        dist.all_reduce(model.get_parameter(name).data)

# === names_sorted | finish
import torch
import torch.distributed as dist

def main():
    model = torch.nn.Linear(2, 2)
    names = {name for name, _ in model.named_parameters()}
    for name in sorted(names):
        dist.all_reduce(model.get_parameter(name).data)

# === comprehension_of_a_rank | hang
import torch
import torch.distributed as dist

def main():
    loss = torch.ones(1)
    [dist.all_reduce(loss) for _ in range(dist.get_rank())]  # error: MP501

# === comprehension_of_a_size | finish
import torch
import torch.distributed as dist

def main():
    loss = torch.ones(1)
    [dist.all_reduce(loss) for _ in range(dist.get_world_size())]
