"""A folder into which all ranks write together, and which each of them names for itself.

What it does
    Finds calls by which all ranks write their parts of one checkpoint (`dcp.save`, `engine.save_checkpoint`,
    `accelerator.save_state`) into a folder whose name, or tag, is made of what each process has for itself: its rank,
    its clock (`datetime.now()`, `time.time()`), random bytes, its process number, a number out of a tensor that no
    collective has reduced (`loss.item()`). The name is followed through variables, attributes, results and parameters.
    Silent where a collective has given all ranks the name of one of them.

Why is this bad
    Processes that start a second apart write to different folders. Each has a part of the checkpoint, none can be
    loaded, and nothing fails until somebody resumes. On one node the clock often agrees, on many it does not.

References
    https://docs.pytorch.org/docs/stable/distributed.checkpoint.html
    https://www.deepspeed.ai/getting-started/#model-checkpointing
"""

from __future__ import annotations

from collections.abc import Iterator

from validator.domains.spmd import UNIFORM, only
from validator.finding import Finding, Related
from validator.flow.queries.base import Place, Queries
from validator.flow.queries.origins import sources, stored_here, stores_on_namespace
from validator.flow.queries.outside_program import is_aside
from validator.flow.queries.ranks.random_draws import rows_of
from validator.project import Project
from validator.rule import Rule

RULE = Rule("MP509", "folder-of-own-clock", "warning", "1.0", tokens=("save",))

_NAMING = ("time.", "datetime.", "uuid.", "secrets.", "os.getpid", "os.urandom", "tempfile.")


def check_project(project: Project) -> Iterator[Finding]:
    queries = project.analysis(Queries)
    for call in queries.named(*_saving(queries)):
        named = [] if is_aside(call.unit.path) else _names(call)
        own = next((own for each in named if (own := _own_name(each)) is not None), None)
        if own is not None:
            yield RULE.finding(
                call.unit.path,
                call.at,
                f"`{call.unit.qualname}` lets all ranks write into one folder with `{call.method}`, and each of them"
                f" names it by its own `{own.text}`",
                help="let one rank make the name and send it to the others (`dist.broadcast_object_list`)",
                related=[Related(own.unit.path, own.at[0], "made by each rank for itself")],
                context=f"{call.unit.qualname}:{call.method}",
            )


def _saving(queries: Queries) -> list[str]:
    """The names of the calls that write one folder together."""
    models = queries.flow.models
    rows = (*models.calls.values(), *models.methods.values())
    return sorted({row.name for row in rows if row.shared})


def _names(call: Place) -> list[Place]:
    """What names the folder into which a call lets all ranks write."""
    rows = [row for _, row in rows_of(call) if row is not None] or [each.row for each in call.operations]
    shared = next((row.shared for row in rows if row.shared), ())
    given = (call.argument(*each) for each in shared)
    return [each for each in given if each is not None]


def _own_name(folder: Place) -> Place | None:
    """What each process has for itself, of which the name of a folder is made; None where all have the same."""
    seen, queue = {(folder.unit, folder.number)}, [folder]
    for place in queue:
        if UNIFORM in place.val.v or is_aside(place.unit.path):
            continue  # what a test names is no folder of the program
        if _is_own(place):
            return place
        for each in _before(place):
            if (each.unit, each.number) not in seen:
                seen.add((each.unit, each.number))
                queue.append(each)
    return None


def _is_own(place: Place) -> bool:
    """Whether a value is each process's own: its rank, a number out of a tensor that nothing has reduced, or what a
    library gives to each."""
    if place.val.of("ordinal") or place.value.op == "call" and place.method == "item" and only(place.closed.v, "data"):
        return True
    named = (f"{owner}.{row.name.rpartition('.')[2]}" for owner, row in rows_of(place) if row and row.result == "own")
    return any(name.startswith(_NAMING) for name in named)


def _before(place: Place) -> Iterator[Place]:
    """The values of which one is made, one step before."""
    value = place.value
    if value.op == "unpack" and (taken := _taken(place)):
        yield from taken
        return
    parts = value.args[:1] if value.op == "mut" else value.args
    if value.op == "call" and place.method == "len":
        return  # a count says nothing of what is counted
    if value.op == "attr" and not any(user.value.op == "call" and user.operand(0) == place for user in place.users):
        parts = ()  # what else an object holds says nothing of an attribute
    site = place.result.sites.get(place.number)
    if site is not None and site.targets:
        parts = ()  # a function of the project: what it gives back is asked
    yield from map(place.value_at, (n for n in parts if n >= 0))
    if value.op in ("attr", "param", "free", "name", "call"):
        yield from sources(place) or ()
    if value.op == "attr":
        yield from stores_on_namespace(place)
        yield from stored_here(place)


def _taken(place: Place) -> list[Place]:
    """The parts of tuples that a variable takes; none where something else is taken apart."""
    position, _, star = place.value.data
    whole = place.operand(0).root
    tuples = [each.root for each in (sources(whole) or ())] if whole.value.op == "call" else [whole]
    if star >= 0 or not all(each.value.op == "tuple" and position < len(each.value.args) for each in tuples):
        return []
    return [each.operand(position) for each in tuples]


_RUN = """
import os
from datetime import datetime
from accelerate import Accelerator

def main(args, model, loader):
    accelerator = Accelerator()
    model, loader = accelerator.prepare(model, loader)
    if not args.resume:
        args.output_dir = os.path.join(args.output_dir, {name})
    for step, batch in enumerate(loader):
        accelerator.backward(model(batch).loss)
        path = os.path.join(args.output_dir, f"checkpoint-{step}")
        accelerator.save_state(path){mark}
"""

_TRAINER = """
import time
import torch.distributed as dist
import torch.distributed.checkpoint as dcp

def agreed(name):
    box = [name]
    dist.broadcast_object_list(box, src=0)
    return box[0]

class Trainer:
    def __init__(self, root):
        self.folder = f"{root}/{name}"

    def save(self, state, step):
        dcp.save(state, checkpoint_id=f"{self.folder}/{step}"){mark}
"""

_TAGS = """
import deepspeed
import torch.distributed as dist
from torch.utils.data import DataLoader, DistributedSampler

def mean(loss):
    dist.all_reduce(loss, op=dist.ReduceOp.AVG)
    return loss.item()

class Saver:
    def __init__(self, root):
        self.root, self.total = root, 0.0

    def add(self, loss):
        self.total += loss.detach()

    def save(self, engine, step):
        tag = f"step{step}-NAME"
        engine.save_checkpoint(self.root, tag=tag){mark}

def train(args, model, data):
    engine, *_ = deepspeed.initialize(args=args, model=model)
    saver = Saver(args.folder)
    for step, batch in enumerate(DataLoader(data, sampler=DistributedSampler(data))):
        loss = engine(batch)
        engine.backward(loss)
        engine.step()
        saver.add(loss)
        saver.save(engine, step)
"""

INCORRECT = (
    _RUN.replace("{name}", 'datetime.now().strftime("%Y%m%d-%H%M%S")').replace("{mark}", "  # error: MP509"),
    _TRAINER.replace("{name}", "{int(time.time())}").replace("{mark}", "  # error: MP509"),
    _TAGS.replace("NAME", "loss{self.total.item():.3f}").replace("{mark}", "  # error: MP509"),
    _TAGS.replace("NAME", "rank{dist.get_rank()}").replace("{mark}", "  # error: MP509"),
)
CORRECT = (
    # the name is an option; one rank has sent it; the time tells how long it took
    _RUN.replace("{name}", "args.name").replace("{mark}", ""),
    _TRAINER.replace("{name}", "{agreed(int(time.time()))}").replace("{mark}", ""),
    _TAGS.replace("NAME", "loss{mean(self.total):.3f}").replace("{mark}", ""),
    """
import time
import deepspeed

def train(args, model, loader):
    engine, *_ = deepspeed.initialize(args=args, model=model)
    began = time.time()
    for step, batch in enumerate(loader):
        engine.backward(engine(batch))
        engine.save_checkpoint(args.folder, tag=f"step-{step}")
        print(time.time() - began)
""",
    # as many batches as each rank's loader has: no rank's number is part of that
    """
import os
from accelerate import Accelerator
from torch.utils.data import DataLoader
from transformers import AutoModelForCausalLM

def main(args, data):
    accelerator = Accelerator()
    model = AutoModelForCausalLM.from_pretrained(args.model, device_map={"": accelerator.local_process_index})
    loader = DataLoader(data, batch_size=8)
    model, loader = accelerator.prepare(model, loader)
    step = args.first_epoch * len(loader)
    for batch in loader:
        accelerator.backward(model(**batch).loss)
        step += 1
        accelerator.save_state(os.path.join(args.folder, f"step_{step}"))
""",
    # a test, which runs as one process, names another folder than the program does
    """# file: trainer.py
from dataclasses import dataclass
from accelerate import Accelerator

@dataclass
class Config:
    folder: str = "out"

class Trainer:
    def __init__(self, config: Config, model):
        self.config, self.accelerator = config, Accelerator()
        self.model = self.accelerator.prepare(model)

    def save(self, folder=None):
        self.accelerator.save_state(folder or self.config.folder)
# file: tests/test_trainer.py
import tempfile
from trainer import Config, Trainer

def test_save(model):
    with tempfile.TemporaryDirectory() as folder:
        config = Config()
        config.folder = folder
        Trainer(config, model).save()
""",
)
