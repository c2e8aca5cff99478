"""A call that is made for what it does, and that a change took out of a function or put under a condition.

What it does
    Compares each function before and after a change. Reports a call whose result nobody takes, a context, or a check of
    sizes that went while all the rest of the function stayed as it was, that only runs under a new condition now, or
    that stands behind a new way out which some ranks take, by their rank or by the batch that each of them has:
    collectives, barriers, waits, `zero_grad`, `set_epoch`, seeds, gather contexts, and functions of the project. Also a
    barrier, wait or collective that stood among calls which a new function makes now, without it; and a call that was
    made on several things (`zero_grad` of two optimizers, `set_epoch` of a loader and of its sampler), and is made on
    all but one of them now, also where the others moved. And a condition that let clipping and steps of an optimizer
    run only where the gradients of all steps are accumulated (`sync_gradients`). And an attribute of another object
    that was set to what the function still computes, where the object is a library's, or of a class that reads the
    attribute; a note, but of libraries that are about ranks. Silent where the change makes the call elsewhere, where
    what the function calls makes it on the same thing, or on a module that holds it, where the change takes away the
    object whose method it is, or only asks whether there is what the call needs. A note of a context of precision
    (`autocast`). Also a condition that gave some ranks a constant where the others work something out, which all do
    now. Also a number that each round of a loop raised, in code or in a script, and that only some rounds raise now, as
    the statement stands in a branch that was beside it before. And a collective around which a test stands now that is
    false for what all calls of the project pass.

Why is this bad
    A barrier, a wait or a `zero_grad` that is no longer passed is missed by no test on one process: the program hangs,
    reads what is not written yet, or trains on stale gradients.
"""

from __future__ import annotations

from collections.abc import Iterator

from validator.drift.change import Change
from validator.drift.statements.counters import Counters, Uncounted
from validator.drift.statements.effects import Effects, Lost
from validator.drift.statements.extracted import Extracted
from validator.drift.statements.ruled_out import RuledOut, RuledOutCollectives
from validator.finding import Finding, Related
from validator.rule import Rule

RULE = Rule("MP905", "effect-dropped", "warning", stable_since="0.2.0", languages=("python", "shell"))

_NAMES = {
    "call": "the call", "context": "the context", "check": "the check", "decorator": "the decorator",
    "guard": "the condition around what is still there,", "store": "the statement",
}  # fmt: skip


def check_change(change: Change) -> Iterator[Finding]:
    for lost in (*change.analysis(Effects).lost, *change.analysis(Extracted).lost):
        yield _report(lost)
    for counter in change.analysis(Counters).rows:
        yield _counter(counter)
    for row in change.analysis(RuledOutCollectives).rows:
        yield _ruled_out(row)


def _ruled_out(row: RuledOut) -> Finding:
    unit = row.pair.new
    return RULE.finding(
        unit.path,
        row.call.at,
        f"no call in the project comes to `{row.call.operand(0).text}` in `{unit.qualname}` since the change: what all "
        f"of them pass leaves `{short(row.test.text)}` only one outcome",
        help="pass what it asks for, or ask for something else",
        related=[Related(unit.path, row.test.at[0], "this decides it")],
        context=f"{unit.qualname}:{row.call.method}",
    )


def _counter(row: Uncounted) -> Finding:
    return RULE.finding(
        row.path,
        row.at,
        f"`{row.name}` is raised in some rounds of this loop alone since the change: `{short(row.text)}` stood beside "
        "the branch that it stands in now",
        help="put it behind the branch again, or into all of its ways",
        context=f"{row.where}:{row.name}",
    )


def _report(lost: Lost) -> Finding:
    unit = lost.pair.new
    text = short(lost.statement.text)
    if lost.kind == "order":
        message = (
            f"`{unit.qualname}` makes the call `{text}` {lost.condition} since the change, not the other way round"
        )
    elif lost.kind == "exit":
        message = f"`{unit.qualname}` is left before the call `{text}` since the change: by `{short(lost.condition)}`"
    elif lost.kind == "each":
        message = (
            f"`{unit.qualname}` makes the call `{text}` for one of `{lost.condition}` since the change, not for each"
        )
    elif lost.kind == "extracted":
        message = (
            f"`{unit.qualname}` makes the calls that `{lost.condition}` made before, but for `{text}` between them"
        )
    elif lost.kind == "fewer":
        message = (
            f"`{unit.qualname}` makes the call `{lost.name}` no longer on `{short(lost.condition)}` since the change, "
            "and on others as before"
        )
    elif lost.condition:
        message = f"`{unit.qualname}` makes the call `{text}` only under `{short(lost.condition)}` since the change"
    else:
        message = f"`{unit.qualname}` lost {_NAMES[lost.kind]} `{text}`, and the change puts it nowhere else"
    line = max(lost.line, 1)
    return RULE.finding(
        unit.path,
        (line, 1, line, 1),
        message,
        help="put it back, or move it to where it happens on every way",
        related=[Related(unit.path, unit.code.at[0], f"`{unit.qualname}`")],
        context=f"{unit.qualname}:{lost.name}",
        severity=lost.severity,
    )


def short(text: str) -> str:
    """A line of source that fits into a message."""
    line = " ".join(text.split())
    return line if len(line) <= 100 else line[:97] + "…"


_STEPS = """# before: rl/trainer.py
class Trainer:
    def train_step(self, loss):
        loss.backward()
        self.saver.maybe_wait_for_copies()
        self.optimizers.step()
        return loss
# file: rl/trainer.py
class Trainer:
    def train_step(self, loss):
        loss.backward()
        self.optimizers.step(){mark}
        return loss
# file: rl/saver.py
class Saver:
    def maybe_wait_for_copies(self):
        if self.copies is not None:
            self.copies.result()
# file: rl/critic.py
class Critic:
    def train_step(self, loss):
        loss.sum().backward()
        self.saver.maybe_wait_for_copies()
        self.optimizers.step()
# file: rl/reward.py
class Reward:
    def train_step(self, loss, mask):
        (loss * mask).backward()
        self.saver.maybe_wait_for_copies()
        self.optimizers.step()
"""

_ACCUMULATED = """# before: train.py
def train(accelerator, model, optimizer, loader, config):
    model.train()
    losses = []
    for batch in loader:
        with accelerator.accumulate(model):
            loss = model(**batch).loss
            accelerator.backward(loss)
            if accelerator.sync_gradients:
                accelerator.clip_grad_norm_(model.parameters(), config.max_norm)
            optimizer.step()
            optimizer.zero_grad()
        losses.append(loss.detach())
    return losses
# file: train.py
def train(accelerator, model, optimizer, loader, config):
    model.train()
    losses = []
    for batch in loader:
        with accelerator.accumulate(model):
            loss = model(**batch).loss
            accelerator.backward(loss)
            {now}
            optimizer.step()
            optimizer.zero_grad()
        losses.append(loss.detach())
    return losses
"""

_NODES = """#!/bin/bash
RANK=0
for HOST in "$@"; do
    if [ "$HOST" == "$(hostname)" ]; then
        bash run.sh $RANK
    else
        ssh $HOST bash run.sh $RANK
{inner}    fi
{behind}done
"""
_BATCHES = """def epochs(loader, model, log):
    seen = 0
    for batch in loader:
        loss = model(batch)
        if loss > 10:
            log(loss)
{inner}{behind}    return seen
"""

_AGREED = """# before: balance.py
import torch
import torch.distributed as dist


def micro_batches(tokens, size, group=None):
    count = torch.tensor([tokens.sum() // size])
    if dist.is_initialized():
        dist.all_reduce(count, op=dist.ReduceOp.MAX, group=group)
    return count.item()
# file: balance.py
import torch
import torch.distributed as dist


def micro_batches(tokens, size, group=None):
    count = torch.tensor([tokens.sum() // size])
    if group is not None:
        dist.all_reduce(count, op=dist.ReduceOp.MAX, group=group){mark}
    return count.item()
# file: train.py
from balance import micro_batches


def train(strategy, tokens):
    return micro_batches(tokens, 8{passed})


if __name__ == "__main__":
    train(None, [])
"""

INCORRECT = (
    # what an object goes by, set to a number that is still computed and only printed now
    """# before: rl/accumulate.py
from accelerate import Accelerator


def fit(args, model, loader, optimizer):
    accelerator = Accelerator()
    model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
    steps = args.total_batch // (args.batch * accelerator.num_processes)
    accelerator.gradient_accumulation_steps = steps
    print("accumulating over", steps)
    for batch in loader:
        with accelerator.accumulate(model):
            accelerator.backward(model(batch).loss)
            optimizer.step()
            optimizer.zero_grad()
# file: rl/accumulate.py
from accelerate import Accelerator


def fit(args, model, loader, optimizer):
    accelerator = Accelerator()
    model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
    steps = args.total_batch // (args.batch * accelerator.num_processes)
    print("accumulating over", steps)  # error: MP905
    for batch in loader:
        with accelerator.accumulate(model):
            accelerator.backward(model(batch).loss)
            optimizer.step()
            optimizer.zero_grad()
""",
    # one of two optimizers, while the line for the other one moved
    """# before: rl/ppo.py
class PPO:
    def train_step(self, batch):
        self.actor_opt.zero_grad()
        self.critic_opt.zero_grad()
        loss = self.actor(batch)
        value = self.critic(batch)
        (loss + value).backward()
        self.actor_opt.step()
        self.critic_opt.step()
        return loss, value
# file: rl/ppo.py
class PPO:
    def train_step(self, batch):
        loss = self.actor(batch)  # error: MP905
        value = self.critic(batch)
        self.actor_opt.zero_grad()
        (loss + value).backward()
        self.actor_opt.step()
        self.critic_opt.step()
        return loss, value
""",
    # the sampler behind a loader, on the way into a function of its own; the wait for one of two transfers
    """# before: rl/train.py
import torch.distributed as dist


class Trainer:
    def fit(self, epochs):
        for epoch in range(epochs):
            self.loader.set_epoch(epoch)
            self.loader.sampler.set_epoch(epoch)
            self.model.train()
            for batch in self.loader:
                loss = self.model(batch)
                loss.backward()
                self.optimizer.step()
                self.optimizer.zero_grad()


def exchange(send, recv, left, right):
    sent = dist.isend(send, left)
    received = dist.irecv(recv, right)
    sent.wait()
    received.wait()
    return recv * 2
# file: rl/train.py
import torch.distributed as dist


class Trainer:
    def begin(self, epoch):
        self.loader.set_epoch(epoch)
        self.model.train()

    def fit(self, epochs):
        for epoch in range(epochs):
            self.begin(epoch)
            for batch in self.loader:  # error: MP905
                loss = self.model(batch)
                loss.backward()
                self.optimizer.step()
                self.optimizer.zero_grad()


def exchange(send, recv, left, right):
    sent = dist.isend(send, left)
    received = dist.irecv(recv, right)
    sent.wait()
    return recv * 2  # error: MP905
""",
    # a loop over two that became one; what only asked whether there is a sampler of ranks went as well
    """# before: rl/fit.py
def fit(self, epochs):
    for epoch in range(epochs):
        for loader in (self.prompts, self.pretrain):
            loader.sampler.set_epoch(epoch)
        for batch, extra in zip(self.prompts, self.pretrain):
            self.strategy.step(self.model(batch) + self.model(extra))
# file: rl/fit.py
def fit(self, epochs):
    for epoch in range(epochs):
        self.prompts.sampler.set_epoch(epoch)
        for batch, extra in zip(self.prompts, self.pretrain):  # error: MP905
            self.strategy.step(self.model(batch) + self.model(extra))
""",
    """# before: rl/validate.py
from torch.utils.data import DistributedSampler


def validate(self, epochs):
    for epoch in range(epochs):
        if isinstance(self.rows.sampler, DistributedSampler):
            self.rows.sampler.set_epoch(epoch)
        for batch in self.rows:
            print(self.model(batch))
# file: rl/validate.py
from torch.utils.data import DistributedSampler


def validate(self, epochs):
    for epoch in range(epochs):
        for batch in self.rows:  # error: MP905
            print(self.model(batch))
""",
    # a wait that all others still make before they step
    _STEPS.format(mark="  # error: MP905"),
    # a context that gathers parameters, which one rank alone enters now
    """# before: rl/weights.py
import deepspeed
import torch


def publish(params, send):
    for param in params:
        with gathered_parameters(param):
            send(param)


def gathered_parameters(param):
    return deepspeed.zero.GatheredParameters([param])
# file: rl/weights.py
import deepspeed
import torch


def publish(params, send):
    for param in params:
        if torch.distributed.get_rank() != 0:
            continue  # error: MP905
        with gathered_parameters(param):
            send(param)


def gathered_parameters(param):
    return deepspeed.zero.GatheredParameters([param])
""",
    # two stretches that went into one function, without what stood in them
    """# before: rl/evaluate.py
import torch.distributed as dist


def predict(model, rows, path):
    path.write_text(str([model(row) for row in rows]))


def merge(folder):
    return sorted(folder.glob("*.txt"))


def main(model, rows, folder, rank, only):
    if only:
        predict(model, rows, folder / f"{rank}.txt")
        dist.barrier()
        if rank == 0:
            print(merge(folder))
        return
    model.train()
    predict(model, rows, folder / f"{rank}.txt")
    dist.barrier()
    if rank == 0:
        print(merge(folder))
    model.eval()
    model.save(folder)
    state = model.state_dict()
    for name, value in state.items():
        print(name, value)
    model.load_state_dict(state)
    model.report()
    model.close()
# file: rl/evaluate.py
import torch.distributed as dist


def predict(model, rows, path):
    path.write_text(str([model(row) for row in rows]))


def merge(folder):
    return sorted(folder.glob("*.txt"))


def test_and_merge(model, rows, folder, rank):
    predict(model, rows, folder / f"{rank}.txt")
    if rank != 0:
        return
    print(merge(folder))  # error: MP905


def main(model, rows, folder, rank, only):
    if only:
        test_and_merge(model, rows, folder, rank)
        return
    model.train()
    test_and_merge(model, rows, folder, rank)
    model.eval()
    model.save(folder)
    state = model.state_dict()
    for name, value in state.items():
        print(name, value)
    model.load_state_dict(state)
    model.report()
    model.close()
""",
    # some ranks leave by a new way out, told by what is reckoned from their rank
    """# before: rl/generate.py
import torch.distributed as dist


def generate(model, steps, size, total, write):
    rank, world_size = dist.get_rank(), dist.get_world_size()
    for step in range(steps):
        first = (world_size * step + rank) * size
        rows = model.sample(first, size)
        dist.barrier()
        write(rows)
# file: rl/generate.py
import torch.distributed as dist


def generate(model, steps, size, total, write):
    rank, world_size = dist.get_rank(), dist.get_world_size()
    for step in range(steps):
        first = (world_size * step + rank) * size
        if first >= total:
            continue  # error: MP905
        rows = model.sample(first, size)
        dist.barrier()
        write(rows)
""",
    # some ranks leave by a new way out, told by their rank or by the batch that each has for itself
    """# before: rl/saving.py
def save_final(model, accelerator, folder, rows, write):
    state = accelerator.get_state_dict(model)
    if accelerator.is_main_process:
        write(state, folder)


def train(model, train_loader, optimizer, dist):
    for images, targets in train_loader:
        kept = [each for each in targets if each]
        loss = model(images, kept)
        dist.all_reduce(loss)
        optimizer.step()
# file: rl/saving.py
def save_final(model, accelerator, folder, rows, write):
    if not accelerator.is_main_process:
        return  # error: MP905
    state = accelerator.get_state_dict(model)
    if accelerator.is_main_process:
        write(state, folder)


def train(model, train_loader, optimizer, dist):
    for images, targets in train_loader:
        kept = [each for each in targets if each]
        if len(kept) == 0:
            continue  # error: MP905
        loss = model(images, kept)
        dist.all_reduce(loss)
        optimizer.step()
""",
    # all went through a context one after the other, and one alone goes in now
    """# before: rl/data.py
def prepared(data, fabric):
    with fabric.rank_zero_first():
        data.prepare()
    data.setup()
    return data
# file: rl/data.py
def prepared(data, fabric):
    if fabric.global_rank == 0:
        data.prepare()  # error: MP905
    data.setup()
    return data
""",
    """# before: rl/evaluate.py
def evaluate(model, batches, evaluator):
    if isinstance(evaluator, list):
        evaluator = Several(evaluator)
    evaluator.reset()
    for batch in batches:
        evaluator.process(model(batch))
    return evaluator.result


class Several:
    def __init__(self, each):
        self.each = each
# file: rl/evaluate.py
def evaluate(model, batches, evaluator):
    if isinstance(evaluator, list):
        evaluator = Several(evaluator)
        evaluator.reset()  # error: MP905
    for batch in batches:
        evaluator.process(model(batch))
    return evaluator.result


class Several:
    def __init__(self, each):
        self.each = each
""",
    """# before: rl/schedule.py
def scaled(loss, aux_loss, steps):
    aux_loss /= steps
    loss /= steps
    loss += aux_loss
    return loss
# file: rl/schedule.py
def scaled(loss, aux_loss, steps):
    loss /= steps  # error: MP905
    loss += aux_loss
    return loss
""",
    """# before: rl/clipping.py
import torch


def clip(model, config):
    model.train()
    if config.fsdp.use:
        norm = model.clip_grad_norm_(config.max_norm)
    else:
        norm = torch.nn.utils.clip_grad_norm_(model.parameters(), config.max_norm)
    return norm
# file: rl/clipping.py
import torch


def clip(model, config):
    model.train()
    norm = torch.nn.utils.clip_grad_norm_(model.parameters(), config.max_norm)  # error: MP905
    return norm
""",
    """# before: rl/hooks.py
import torch.distributed as dist


def gather_state(model):
    dist.all_gather_object([], model)
    return model


class Hook:
    def save(self, model):
        return gather_state(model)
# file: rl/hooks.py
import torch.distributed as dist
from rl.ranks import master_only


def gather_state(model):
    dist.all_gather_object([], model)
    return model


class Hook:
    @master_only
    def save(self, model):  # error: MP905
        return gather_state(model)
# file: rl/ranks.py
def master_only(function):
    return function
""",
    """# before: rl/metrics.py
import torch.distributed as dist


def all_reduce_mean(value):
    dist.all_reduce(value)
    return value


def report(values, writer):
    for name, value in values.items():
        number = all_reduce_mean(value)
        if writer is not None:
            writer.add(name, number)
# file: rl/metrics.py
import torch.distributed as dist


def all_reduce_mean(value):
    dist.all_reduce(value)
    return value


def report(values, writer):
    for name, value in values.items():
        if writer is not None:
            number = all_reduce_mean(value)  # error: MP905
            writer.add(name, number)
""",
    """# before: rl/gathering.py
import torch
import torch.distributed as dist


def gather(t, rank, world):
    parts = [torch.empty_like(t) for _ in range(world)]
    dist.all_gather(parts, t)
    parts[rank] = t
    return torch.cat(parts)
# file: rl/gathering.py
import torch
import torch.distributed as dist


def gather(t, rank, world):
    parts = [torch.empty_like(t) for _ in range(world)]
    dist.all_gather(parts, t)
    return torch.cat(parts)  # error: MP905
""",
    """# before: rl/epochs.py
def train(sampler, loader, epochs):
    for epoch in range(epochs):
        sampler.set_epoch(epoch)
        batches = iter(loader)
        print(next(batches))
# file: rl/epochs.py
def train(sampler, loader, epochs):
    for epoch in range(epochs):
        batches = iter(loader)
        sampler.set_epoch(epoch)  # error: MP905
        print(next(batches))
""",
    """# before: rl/pictures.py
class Blocks:
    def switch_for_inference(self):
        self.forward_only = True

    def switch_for_training(self):
        self.forward_only = False


def sample(blocks, prompt):
    blocks.switch_for_inference()
    picture = prompt * 2
    print(picture)
    blocks.switch_for_training()
    return picture
# file: rl/pictures.py
class Blocks:
    def switch_for_inference(self):
        self.forward_only = True

    def switch_for_training(self):
        self.forward_only = False


def sample(blocks, prompt):
    blocks.switch_for_inference()
    picture = prompt * 2
    print(picture)
    return picture  # error: MP905
""",
    """# before: rl/saving.py
import torch.distributed as dist


def save(model, path, rank):
    if rank == 0:
        model.write(path)
    dist.barrier()
    return path
# file: rl/saving.py
import torch.distributed as dist


def save(model, path, rank):
    if rank == 0:
        model.write(path)
    return path  # error: MP905
""",
    """# before: rl/train.py
def epochs(loader, count, resume):
    for epoch in range(resume, count):
        loader.sampler.set_epoch(epoch)
        yield from loader
# file: rl/train.py
def epochs(loader, count, resume):
    for epoch in range(resume, count):
        if resume:
            loader.sampler.set_epoch(epoch)  # error: MP905
        yield from loader
""",
    """# before: rl/average.py
import deepspeed


def average(param, kept):
    with deepspeed.zero.GatheredParameters([param, kept]):
        data = param.data.clone()
        kept.data.copy_(data)
# file: rl/average.py
import deepspeed


def average(param, kept):
    data = param.data.clone()  # error: MP905
    kept.data.copy_(data)
""",
    """# before: rl/save.py
import torch.distributed as dist


def save(engine, path, world):
    error = None
    try:
        if dist.get_rank() == 0:
            engine.write(path)
    except OSError as problem:
        error = problem
    dist.barrier()
    if error is not None:
        raise error
# file: rl/save.py
import torch.distributed as dist


def save(engine, path, world):
    error = None
    if dist.get_rank() == 0:
        engine.write(path)  # error: MP905
    dist.barrier()
    if error is not None:
        raise error
""",
    """# before: rl/tokens.py
import torch.distributed as dist


def count(tokens, state, groups):
    state.seen += 1
    dist.all_reduce(tokens)
    if groups.shard is None:
        return None
    return state.save(tokens.item())
# file: rl/tokens.py
import torch.distributed as dist


def count(tokens, state, groups):
    state.seen += 1
    if groups.shard is None:
        return None  # error: MP905
    dist.all_reduce(tokens)
    return state.save(tokens.item())
""",
    """# before: rl/seeds.py
import torch.distributed as dist


def agree(args, rank):
    if dist.is_initialized():
        seeds = [args.seed] if rank == 0 else [None]
        dist.broadcast_object_list(seeds, src=0)
        args.seed = seeds[0]
    return args.seed
# file: rl/seeds.py
import torch.distributed as dist


def agree(args, rank):
    if dist.is_initialized() and args.seed < 0:  # error: MP905
        seeds = [args.seed] if rank == 0 else [None]
        dist.broadcast_object_list(seeds, src=0)
        args.seed = seeds[0]
    return args.seed
""",
    """# before: rl/train.py
import torch.distributed as dist


def any_rank_done(flag):
    dist.all_reduce(flag, op=dist.ReduceOp.MAX)
    return bool(flag)


def train(loader, model):
    for batch, flag in loader:
        done = any_rank_done(flag)
        if done:
            break
        model(batch)
# file: rl/train.py
import torch.distributed as dist


def any_rank_done(flag):
    dist.all_reduce(flag, op=dist.ReduceOp.MAX)
    return bool(flag)


def train(loader, model):
    for batch, flag in loader:
        done = flag and any_rank_done(flag)  # error: MP905
        if done:
            break
        model(batch)
""",
    """# before: rl/streams.py
import torch


class Buckets:
    def finish(self):
        main = torch.cuda.current_stream()
        self.count += 1
        self.time = 0.0
        for stream in self.streams:
            main.wait_stream(stream)
        self.open = False
# file: rl/streams.py
import torch


class Buckets:
    def finish(self):
        main = torch.cuda.current_stream()
        self.count += 1
        self.time = 0.0
        main.wait_stream(self.streams[self.last])  # error: MP905
        self.open = False
""",
    # gradients of each step are clipped, before the others are added
    _ACCUMULATED.format(
        now="accelerator.clip_grad_norm_(model.parameters(), config.max_norm)  # error: MP905",
    ),
    # numbers that each round raised
    "# before: nodes.sh\n"
    + _NODES.format(inner="", behind="    RANK=$((RANK + 1))\n")
    + "# file: nodes.sh\n"
    + _NODES.format(inner="        RANK=$((RANK + 1))  # error: MP905\n", behind=""),
    "# before: epochs.py\n"
    + _BATCHES.format(inner="", behind="        seen += 1\n")
    + "# file: epochs.py\n"
    + _BATCHES.format(inner="            seen += 1  # error: MP905\n", behind=""),
    # nobody passes what switches a collective on now
    _AGREED.format(passed="", mark="  # error: MP905"),
    # ranks without a share of the batch counted nothing
    """# before: rl/evaluate.py
import torch
import torch.distributed as dist


def count(rank, size, batch, match):
    if rank * size >= len(batch):
        correct = 0
    else:
        correct = sum(map(match, batch[:size]))
    total = torch.tensor([correct])
    dist.all_reduce(total)
    return total
# file: rl/evaluate.py
import torch
import torch.distributed as dist


def count(rank, size, batch, match):
    correct = sum(map(match, batch[:size]))  # error: MP905
    total = torch.tensor([correct])
    dist.all_reduce(total)
    return total
""",
    # of three ways to clip that of one kind of model
    """# before: rl/step.py
def step(model, optimizer, limit, clip, FSDP, FSDPModule):
    if isinstance(model, FSDP):
        norm = model.clip_grad_norm_(limit)
    elif isinstance(model, FSDPModule):
        norm = clip(model, limit, whole=True)
    else:
        norm = clip(model, limit)
    optimizer.step()
    return norm
# file: rl/step.py
def step(model, optimizer, limit, clip, FSDP, FSDPModule):
    if isinstance(model, FSDPModule):  # error: MP905
        norm = clip(model, limit, whole=True)
    else:
        norm = clip(model, limit)
    optimizer.step()
    return norm
""",
)
CORRECT = (
    # the same is sent by a method of a group; two barriers of which each way passes one
    """# before: rl/weights.py
import time

import torch.distributed as dist


def publish(params, extra, comm, group, log):
    for param in params:
        dist.broadcast(extra, 0, group=group)
        dist.broadcast(param, 0, group=group)
        log.info("sent")
    return params


def meet(strategy, log):
    if strategy.ring is None:
        dist.barrier()
    else:
        dist.barrier(group=strategy.ring)
    log.info("met")
    return strategy
# file: rl/weights.py
import time

import torch.distributed as dist


def publish(params, extra, comm, group, log):
    for param in params:
        dist.broadcast(extra, 0, group=group)
        comm.broadcast(param, src=0)
        log.info("sent")
    return params


def meet(strategy, log):
    if strategy.ring is None:
        dist.barrier()
    else:
        time.sleep(3)
    log.info("met")
    return strategy
""",
    # a setting that a constructor, or a method, is given now; one that nobody reads
    """# before: rl/accumulate.py
from accelerate import Accelerator

from rl.engine import Engine


def fit(model, loader, optimizer, steps):
    accelerator = Accelerator()
    accelerator.gradient_accumulation_steps = steps
    model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
    print("accumulating over", steps)
    for batch in loader:
        with accelerator.accumulate(model):
            accelerator.backward(model(batch).loss)
            optimizer.step()
            optimizer.zero_grad()


def run(batches, every):
    engine = Engine()
    engine.every = every
    for number, batch in enumerate(batches):
        engine.last = number
        engine.step(batch)
        print(number, every)
# file: rl/accumulate.py
from accelerate import Accelerator

from rl.engine import Engine


def fit(model, loader, optimizer, steps):
    accelerator = Accelerator(gradient_accumulation_steps=steps)
    model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
    print("accumulating over", steps)
    for batch in loader:
        with accelerator.accumulate(model):
            accelerator.backward(model(batch).loss)
            optimizer.step()
            optimizer.zero_grad()


def run(batches, every):
    engine = Engine()
    engine.set_rounds(every)
    for number, batch in enumerate(batches):
        engine.step(batch)
        print(number, every)
# file: rl/engine.py
class Engine:
    def __init__(self):
        self.every, self.count = 1, 0

    def set_rounds(self, every):
        self.every = every

    def step(self, batch):
        self.count += 1
        if self.count % self.every == 0:
            print(batch)
""",
    # a loader of the project hands the number on to its sampler; a loop, and a function, that do both
    """# before: rl/train.py
from rl.loader import Loader


def clear(optimizer):
    optimizer.zero_grad(set_to_none=True)


class Trainer:
    def __init__(self, rows, sampler):
        self.loader = Loader(rows, sampler)

    def fit(self, epochs):
        for epoch in range(epochs):
            self.loader.set_epoch(epoch)
            self.loader.sampler.set_epoch(epoch)
            for batch in self.loader:
                self.step(batch)

    def step(self, batch):
        self.actor_opt.zero_grad()
        self.critic_opt.zero_grad()
        (self.actor(batch) + self.critic(batch)).backward()
        self.actor_opt.step()
        self.critic_opt.step()
        return batch


def finish(sent, received, out):
    sent.wait()
    received.wait()
    return out * 2
# file: rl/train.py
from rl.loader import Loader


def clear(optimizer):
    optimizer.zero_grad(set_to_none=True)


class Trainer:
    def __init__(self, rows, sampler):
        self.loader = Loader(rows, sampler)

    def fit(self, epochs):
        for epoch in range(epochs):
            self.loader.set_epoch(epoch)
            for batch in self.loader:
                self.step(batch)

    def step(self, batch):
        clear(self.actor_opt)
        clear(self.critic_opt)
        (self.actor(batch) + self.critic(batch)).backward()
        self.actor_opt.step()
        self.critic_opt.step()
        return batch


def finish(sent, received, out):
    for handle in (sent, received):
        handle.wait()
    return out * 2
# file: rl/loader.py
class Loader:
    def __init__(self, rows, sampler):
        self.rows, self.sampler = rows, sampler

    def set_epoch(self, epoch):
        self.sampler.set_epoch(epoch)

    def __iter__(self):
        return iter(self.rows)
""",
    # one of two is gone altogether; a module that holds another one tells it, too
    """# before: rl/ppo.py
import torch


class Both(torch.nn.Module):
    def __init__(self, actor, critic):
        super().__init__()
        self.actor, self.critic = actor, critic


def rollout(actor, critic, prompts):
    both = Both(actor, critic)
    both.eval()
    critic.eval()
    return both.actor(prompts), both.critic(prompts)


def step(self, batch):
    loss = self.actor(batch)
    value = self.critic(batch)
    self.actor_opt.zero_grad()
    self.critic_opt.zero_grad()
    loss.backward()
    value.backward()
    self.actor_opt.step()
    self.critic_opt.step()
    self.count += 1
    self.log(loss)
    return loss
# file: rl/ppo.py
import torch


class Both(torch.nn.Module):
    def __init__(self, actor, critic):
        super().__init__()
        self.actor, self.critic = actor, critic


def rollout(actor, critic, prompts):
    both = Both(actor, critic)
    both.eval()
    return both.actor(prompts), both.critic(prompts)


def step(self, batch):
    loss = self.actor(batch)
    self.actor_opt.zero_grad()
    loss.backward()
    self.actor_opt.step()
    self.count += 1
    self.log(loss)
    return loss
""",
    # ranks still meet in the new function, by a function of the project
    """# before: rl/evaluate.py
import torch.distributed as dist


def predict(model, rows, path):
    path.write_text(str([model(row) for row in rows]))


def merge(folder):
    return sorted(folder.glob("*.txt"))


def main(model, rows, folder, rank):
    model.train()
    predict(model, rows, folder / f"{rank}.txt")
    dist.barrier()
    if rank == 0:
        print(merge(folder))
    model.eval()
    model.save(folder)
    model.close()
# file: rl/evaluate.py
import torch.distributed as dist


def predict(model, rows, path):
    path.write_text(str([model(row) for row in rows]))


def merge(folder):
    return sorted(folder.glob("*.txt"))


def all_are_here():
    if dist.is_initialized():
        dist.barrier()


def test_and_merge(model, rows, folder, rank):
    predict(model, rows, folder / f"{rank}.txt")
    all_are_here()
    if rank == 0:
        print(merge(folder))


def main(model, rows, folder, rank):
    model.train()
    test_and_merge(model, rows, folder, rank)
    model.eval()
    model.save(folder)
    model.close()
""",
    # all leave together: it is reckoned from the number of ranks
    """# before: rl/generate.py
import torch.distributed as dist


def generate(model, steps, size, total, write):
    rank, world_size = dist.get_rank(), dist.get_world_size()
    for step in range(steps):
        first = world_size * step * size
        rows = model.sample(first + rank * size, size)
        dist.barrier()
        write(rows)
# file: rl/generate.py
import torch.distributed as dist


def generate(model, steps, size, total, write):
    rank, world_size = dist.get_rank(), dist.get_world_size()
    for step in range(steps):
        first = world_size * step * size
        if first >= total:
            continue
        rows = model.sample(first + rank * size, size)
        dist.barrier()
        write(rows)
""",
    # rounds are counted alike on all ranks; what stands behind the way out waits for nobody
    """# before: rl/train.py
def train(model, train_loader, start, dist):
    for step, batch in enumerate(train_loader):
        loss = model(batch)
        dist.all_reduce(loss)


def save(model, accelerator, folder, write):
    state = model.state_dict()
    write(state, folder)
# file: rl/train.py
def train(model, train_loader, start, dist):
    for step, batch in enumerate(train_loader):
        if step < start:
            continue
        loss = model(batch)
        dist.all_reduce(loss)


def save(model, accelerator, folder, write):
    if not accelerator.is_main_process:
        return
    state = model.state_dict()
    write(state, folder)
""",
    # what all ranks must call hung behind the condition
    """# before: rl/saving.py
import deepspeed


def gathered_state(params):
    with deepspeed.zero.GatheredParameters(params):
        return [p.clone() for p in params]


def save(model, rank, write, folder):
    path = folder / "adapter"
    if rank == 0:
        state = gathered_state(model.parameters())
        other = gathered_state(model.heads())
        model.config.write(path)
        write(state, path)
        write(other, path)
    model.saved = path
# file: rl/saving.py
import deepspeed


def gathered_state(params):
    with deepspeed.zero.GatheredParameters(params):
        return [p.clone() for p in params]


def save(model, rank, write, folder):
    path = folder / "adapter"

    state = gathered_state(model.parameters())
    other = gathered_state(model.heads())
    if rank == 0:
        model.config.write(path)
        write(state, path)
        write(other, path)
    model.saved = path
""",
    # the other call does that as well
    """# before: rl/seeds.py
import random

import torch


def seed_everything(seed):
    random.seed(seed)
    torch.manual_seed(seed)
    torch.cuda.manual_seed_all(seed)
    return seed
# file: rl/seeds.py
import random

import torch


def seed_everything(seed):
    random.seed(seed)
    torch.manual_seed(seed)
    return seed
""",
    # the condition asks for what the call needs: without it, it raised before
    """# before: rl/memory.py
class Memory:
    def add(self, samples):
        for name, tensor in samples.items():
            self.tensors[name][self.index].copy_(tensor)
        self.index += 1
# file: rl/memory.py
class Memory:
    def add(self, samples):
        for name, tensor in samples.items():
            if name in self.tensors:
                self.tensors[name][self.index].copy_(tensor)
        self.index += 1
""",
    """# before: rl/loading.py
import torch.distributed.checkpoint as dcp


def load(model, state, folder, other):
    other.prepare(model)
    dcp.load_state_dict(state, checkpoint_id=folder)
    return model
# file: rl/loading.py
import torch.distributed.checkpoint as dcp


def load(model, state, folder, other):
    other.prepare(model)
    dcp.load_model_state(folder, model)
    return model
""",
    """# before: rl/engine.py
class Wrapper:
    def backward(self, loss):
        self.engine.backward(loss)
        self.engine.step()
# file: rl/engine.py
class Wrapper:
    def backward(self, loss, sync_gradients=True):
        self.engine.backward(loss)
        if sync_gradients:
            self.engine.step()
""",
    """# before: rl/seeds.py
import torch


def seed_all(seed):
    torch.manual_seed(seed)
    if is_qaic_available():
        torch.qaic.manual_seed_all(seed)
    return seed
# file: rl/seeds.py
import torch


def seed_all(seed):
    torch.manual_seed(seed)
    return seed
""",
    """# before: rl/metrics.py
import torch.distributed as dist


def all_reduce_mean(value):
    dist.all_reduce(value)
    return value


def report(value, distributed):
    number = all_reduce_mean(value)
    return number
# file: rl/metrics.py
import torch.distributed as dist


def all_reduce_mean(value):
    dist.all_reduce(value)
    return value


def report(value, distributed):
    number = value
    if distributed:
        number = all_reduce_mean(value)
    return number
""",
    """# before: rl/entropy.py
import torch


class Trainer:
    def entropies(self, logits):
        if self.wanted:
            with torch.no_grad():
                found = logits.mean()
            return found
        return None
# file: rl/entropy.py
import torch


class Trainer:
    def entropies(self, logits):
        if self.wanted:
            if self.bonus:
                found = logits.mean()
            else:
                with torch.no_grad():
                    found = logits.mean()
            return found
        return None
""",
    """# before: rl/saving.py
import torch.distributed as dist


def save(model, path):
    model.write(path)
    dist.barrier()
# file: rl/saving.py
import torch.distributed as dist


def save(model, path):
    model.write(path)


def save_all(models, path):
    for model in models:
        save(model, path)
    dist.barrier()
""",
    """# before: rl/train.py
def step(optimizer, loss, log):
    loss.backward()
    optimizer.step()
    print("stepped")
# file: rl/train.py
def step(optimizer, loss, log):
    loss.backward()
    optimizer.step()
""",
    """# before: rl/tokens.py
import torch.distributed as dist


def count(tokens, state, groups):
    dist.all_reduce(tokens)
    state.seen += 1
    if groups.shard is None:
        return None
    return state.save(tokens.item())
# file: rl/tokens.py
import torch.distributed as dist


def count(tokens, state, groups):
    dist.all_reduce(tokens)
    if groups.shard is None:
        return None
    state.seen += 1
    return state.save(tokens.item())
""",
    """# before: rl/train.py
import torch.distributed as dist


def stop(flag, world_size):
    if flag is not None:
        dist.all_reduce(flag)
    return flag
# file: rl/train.py
import torch.distributed as dist


def stop(flag, world_size):
    if flag is not None and dist.is_initialized():
        dist.all_reduce(flag)
    return flag
""",
    """# before: rl/state.py
import torch


class Trainer:
    def __init__(self, model, mixed):
        self.model = model
        self.scaler = torch.amp.GradScaler("cuda", enabled=mixed)

    def set_state(self, weights):
        self.model.load_state_dict(weights["model"])
        self.scaler.load_state_dict(weights["scaler"])
# file: rl/state.py
import torch


class Trainer:
    def __init__(self, model, mixed):
        self.model = model

    def set_state(self, weights):
        self.model.load_state_dict(weights["model"])
""",
    """# before: rl/distillation.py
import torch


class Pair(torch.nn.Module):
    def __init__(self, teacher, student):
        super().__init__()
        self.teacher = teacher
        self.teacher.eval()
        self.student = student

    def train(self, mode=True):
        super().train(mode)
        self.teacher.eval()
# file: rl/distillation.py
import torch


class Pair(torch.nn.Module):
    def __init__(self, teacher, student):
        super().__init__()
        self.teacher = teacher
        self.student = student

    def train(self, mode=True):
        super().train(mode)
        self.teacher.eval()
""",
    """# before: rl/arguments.py
class Arguments:
    def complete(self):
        if self.report_to in (None, "all"):
            self.report_to = self.available()
        elif self.report_to == "none":
            self.report_to = []
        elif not isinstance(self.report_to, list):
            self.report_to = [self.report_to]

    def reports(self):
        return len(self.report_to)
# file: rl/arguments.py
class Arguments:
    def complete(self):
        if self.report_to in (None, "all"):
            self.report_to = self.available()
        elif not isinstance(self.report_to, list):
            self.report_to = [self.report_to]

    def reports(self):
        return len(self.report_to)
""",
    # asked otherwise
    _ACCUMULATED.format(
        now="if accelerator.gradient_state.sync_gradients:\n"
        "                accelerator.clip_grad_norm_(model.parameters(), config.max_norm)",
    ),
    # an optimizer of accelerate waits by itself
    """# before: train.py
def train(accelerator, model, optimizer, loader):
    model.train()
    for batch in loader:
        with accelerator.accumulate(model):
            loss = model(**batch).loss
            accelerator.backward(loss)
            if accelerator.sync_gradients:
                optimizer.step()
        print(loss)
# file: train.py
def train(accelerator, model, optimizer, loader):
    model.train()
    for batch in loader:
        with accelerator.accumulate(model):
            loss = model(**batch).loss
            accelerator.backward(loss)
            optimizer.step()
        print(loss)
""",
    # every way counts; a condition that came with the change says when
    "# before: nodes.sh\n"
    + _NODES.format(inner="", behind="    RANK=$((RANK + 1))\n")
    + "# file: nodes.sh\n"
    + _NODES.format(inner="        RANK=$((RANK + 1))\n", behind="").replace(
        "bash run.sh $RANK\n    else", "bash run.sh $RANK\n        RANK=$((RANK + 1))\n    else"
    ),
    "# before: epochs.py\n"
    + _BATCHES.format(inner="", behind="        seen += 1\n")
    + "# file: epochs.py\n"
    + _BATCHES.format(inner="", behind="        if batch:\n            seen += 1\n"),
    _AGREED.format(passed=", strategy.group", mark=""),
    # the condition asks for the same in other words
    """# before: rl/evaluate.py
def count(rank, size, batch, match):
    if rank * size >= len(batch):
        correct = 0
    else:
        correct = sum(map(match, batch[:size]))
    return correct
# file: rl/evaluate.py
def count(rank, size, batch, match):
    first = rank * size
    if first < len(batch):
        correct = sum(map(match, batch[:size]))
    else:
        correct = 0
    return correct
""",
)
