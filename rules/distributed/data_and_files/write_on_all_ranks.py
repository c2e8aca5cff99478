"""Files that are the same on all ranks, written or uploaded by all of them.

What it does
    In a function that all ranks run (it issues a collective outside of any test of the rank, or what it calls does, or
    each function that calls it), reports writes to a path that does not depend on the rank: `save_pretrained` of a
    tokenizer, processor, configuration or model from `accelerator.unwrap_model`, copies to remote storage, and whatever
    truncates a file whose name stands in the source, but for what is the same on all ranks (`open(…, "w")`,
    `torch.save`, `write_text`, `shutil.copy`). Silent under a test of the rank that leaves one writer, and with
    `is_main_process=`; a test of a single mesh coordinate leaves a writer in each other group. Also reports what
    removes a folder or a file (`shutil.rmtree`, `os.remove`) in a program that has set up its process group, on all
    ranks, where nothing takes the error (`ignore_errors=True`, `except`) and the path does not tell the rank. Silent in
    demonstrations and tests, in a group of one process (`world_size=1`, also where a namespace or a class says so),
    where all collectives on the way do without a process group and nothing on the way sets one up, and where ranks have
    changed into folders of their own. A note where nothing shows that the writers harm each other: that what they write
    differs between ranks, that it is a file of tensors (`torch.save`), that a rank reads the file before all have
    written it, or that only the first can do it at all (an upload, `os.rename`, `os.symlink`); and where they add to a
    file, whose lines are then there once for each rank.

Why is this bad
    Many writers of one file: the last one's numbers are kept, others read a file that was just truncated, uploads fail,
    and on a hard-mounted NFS share writers wait for each other for ever. Of those that remove one folder the quick one
    wins; the others raise FileNotFoundError.

References
    https://huggingface.co/docs/accelerate/concept_guides/deferring_execution
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from functools import cache, partial
from itertools import chain

from validator.domains.axes import NODE, WORLD
from validator.domains.spmd import only
from validator.effects.divergence import Divergences
from validator.effects.files import Access, Files, reaches
from validator.effects.one_rank_functions import runs_on_some
from validator.effects.trace import Traces
from validator.finding import Finding, Related
from validator.flow.program.answers import Operation
from validator.flow.program.unit import Unit
from validator.flow.queries.base import Place, Queries
from validator.flow.queries.outside_program import is_aside
from validator.flow.queries.ranks.run_by_all import is_within, setting_up
from validator.flow.queries.ranks.several_processes import has_several
from validator.flow.queries.training.placements import follows
from validator.project import Project
from validator.rule import Rule

RULE = Rule(
    "MP537",
    "write-on-all-ranks",
    "warning",
    "0.1.0",
    tokens=("save_pretrained", "copy", "upload", "open(", "save", "write_", "rmtree", "remove", "unlink", "rmdir"),
)

_REPLICATED = re.compile(
    r"(^|_)(tokenizer|processor|processing_class|config|hf_config|generation_config|image_processor)$"
)
_REMOTE = ("upload_folder", "upload_file", "upload_directory", "push_to_hub", "put_file")
# words of paths that each process has of its own, and of places that no other process sees
_OWN = re.compile(
    r"rank|process|proc_|worker|node|host|shard|part|chunk|piece|stage|expert|replica|device|gpu|cuda|pid|uuid|time|now$"
    r"|te?mp|local|index|idx|seed|getpass|thread|random|devnull|/dev/|/proc/|environ|getenv|stdout|stderr",
    re.IGNORECASE,
)
_RANK = re.compile(
    r"rank|process_index|proc_id|worker_id|node_id|shard_id|uuid|tempfile|mkdtemp|TemporaryDirectory", re.I
)
# words of conditions that say that one process writes, or that one may well be all that there is
_ONE = re.compile(
    r"is_main|is_master|is_rank|rank_?0|rank_?zero|is_writer|is_saver|is_leader|local_?rank|save_on_each_node|should_save|is_local_main|on_rank|global_?rank"
    r"|world_?rank|process_?index",
    re.IGNORECASE,
)
_ALONE = re.compile(
    r"debug|profil|dump|world_size|num_processes|is_initialized|distributed|Lock$|exists", re.IGNORECASE
)
_OF_ONE = frozenset({"full_tensor", "state_dict", "distribute_tensor"})  # what one rank may also do by itself
_HELP = "let the first rank of the job write, and place a barrier behind it for whoever reads the files next"


def check_project(project: Project) -> Iterator[Finding]:
    queries, traces = project.analysis(Queries), project.analysis(Divergences).traces
    accesses = project.analysis(Files).accesses
    several = cache(partial(has_several, queries))
    apart = _in_own_folders(queries)
    for place, named, is_remote in sorted(_writes(accesses, queries), key=lambda row: (row[0].unit.path, row[0].at)):
        unit = place.unit
        if is_aside(unit.path) or _excused(place, named) or unit in apart and not is_remote:
            continue
        if runs_on_some(queries, unit) is not None:
            continue
        anchor = _anchor(queries, place, several)
        if anchor is not None:
            name, run = place.operand(0).text, _name(anchor)
            alone = is_remote or _is_done_once(place) or _is(place, "of_tensors")
            adds = any(each.place == place and each.kind == "append" for each in accesses)
            harmful = not adds and (alone or _differs(place, accesses) or _is_read(traces, place, accesses))
            yield RULE.finding(
                unit.path,
                place.at,
                f"`{name}`{place.where} {'adds to' if adds else 'writes'} the same files on many ranks, which all run"
                f" `{run}` {'there' if anchor.unit is unit else f'on the way, in `{anchor.unit.qualname}`'}",
                help=_HELP,
                related=[Related(anchor.unit.path, anchor.at[0], f"every rank calls `{run}` here")],
                context=f"{unit.qualname}:{name}",
                severity=None if harmful else "note",
            )

    yield from _removals(queries)


def _name(call: Place) -> str:
    """What a call calls, for messages."""
    called = (target.unit.name for target in call.result.sites[call.number].targets)
    return call.method or next(filter(None, called), call.text)


def _is_done_once(place: Place) -> bool:
    """Whether what a call does with files cannot be done a second time."""
    again = place.argument("dirs_exist_ok")
    return _is(place, "done_once") and not place.is_tried and (again is None or again.val.is_const(False))


def _is(place: Place, kind: str) -> bool:
    """Whether a call is one of a kind of those that work on files."""
    rows = place.flow.models.files[kind]
    return any(o[0] == "ext" and o[1] in rows for o in place.operand(0).val.each)


def _differs(place: Place, accesses: list[Access]) -> bool:
    """Whether what a call writes, or what is written later into the file that it opens, differs between ranks; where it
    does so is another matter."""
    paths = {e.number for access in accesses if access.place == place for e in access.written if e.unit is place.unit}
    if place.method == "save_pretrained":
        paths.add(place.value.args[1])
    queue = [each for call in _writers(place) for each in map(call.operand, range(1, len(call.value.args)))]
    for each in queue:
        if each.number in paths:
            continue
        if each.varies("rank", "member", "data"):
            return True
        if each.value.op in ("dict", "list", "tuple", "join"):
            queue += [each.value_at(number) for number in each.value.args if number >= 0]
    return False


def _writers(place: Place) -> Iterator[Place]:
    """A call that opens or writes a file, and the calls that are given what it opens, or are methods of that."""
    yield place
    queue, seen = [place], {place}
    for held in queue:
        for user in held.taken_by:
            if user.value.op == "call":
                yield user
            elif user.value.op in ("enter", "attr", "phi", "mut") and user not in seen:
                seen.add(user)
                queue.append(user)


def _is_read(traces: Traces, place: Place, accesses: list[Access]) -> bool:
    """Whether a rank reads the file in the same function before all others must have written it."""
    here = [access for access in accesses if access.place.unit is place.unit]
    written = {access.path for access in here if access.kind == "write" and access.place == place and access.name}
    reads = (access.place for access in here if access.kind == "read" and access.path in written)
    return any(reaches(traces, place.unit, place.number, read.number) for read in reads)


def _in_own_folders(queries: Queries) -> frozenset[Unit]:
    """What runs in programs in which each rank changes into a folder of its own."""
    changing = {call.unit for call in queries.calls("os.chdir") if call.operand(1).varies("rank", "member")}
    return frozenset(queries.reached(queries.reaching(changing))) if changing else frozenset()


def _removals(queries: Queries) -> Iterator[Finding]:
    """Findings of what removes on all ranks of a started job what is there once."""
    starting = setting_up(queries)
    for call in queries.calls(*queries.flow.models.files["removing"]):
        unit = call.unit
        if is_aside(unit.path) or call.is_tried or _takes_errors(call) or only(call.under, "rank", "member", "data"):
            continue
        path = call.operand(1) if len(call.value.args) > 1 else call
        if path.varies("rank", "member", "data") or any(map(_OWN.search, path.words)) or _excused(call, (call,)):
            continue
        asked = {word for test in call.tests for word in test.words if word != "exists"}
        named = queries.flow.models.ranks["names"]  # who asks for a rank by its name lets one do it
        if not asked.isdisjoint(named) or any(map(_ALONE.search, asked)) or not is_within(queries, starting, call):
            continue
        yield RULE.finding(
            unit.path,
            call.at,
            f"`{call.text}`{call.where} runs on all ranks: one removes it, the others find it gone or half gone",
            help="let the first rank of the job remove it, and place a barrier behind it",
            context=f"{unit.qualname}:{call.text}",
        )


def _takes_errors(call: Place) -> bool:
    """Whether a call is told what to do with errors."""
    ignoring = call.argument("ignore_errors", 1)
    named = not {"onerror", "onexc", "**"}.isdisjoint(call.value.data.names)
    return named or ignoring is not None and not ignoring.val.is_const(False)


def _writes(accesses: list[Access], queries: Queries) -> Iterator[tuple[Place, tuple[Place, ...], bool]]:
    """Calls that write what is the same on all ranks, where tests of the rank leave more than one, the expressions that
    say where they write, and whether they write to remote storage."""
    for access in accesses:
        place = access.place
        called = place.result.sites.get(place.number)
        if (
            access.kind not in ("write", "append")
            or not access.name
            or not access.is_one_for_all
            or access.apart
            or (called and called.targets)
            or place.method == "save_pretrained"  # of models that are whole on each rank: below
        ):
            continue
        if only(access.under, "rank", "member") or any(_OWN.search(w) for each in access.written for w in each.words):
            continue
        told = (test.varies("rank", "member") or any(map(_ALONE.search, test.words)) for test in place.tests)
        if not any(told):
            yield place, access.written, False
    for place in queries.named("save_pretrained", "copy", "put", *_REMOTE):
        receiver = place.receiver
        if receiver is None or _leaves_one(place) or not place.value.data.names or _is_own(place) or place.operations:
            continue  # what ranks do together is not what each does by itself
        if place.method == "push_to_hub" and place.unit.is_receiver(receiver.root.number):
            continue  # what a class has of a Trainer asks for the rank itself
        name = receiver.hint
        if place.method == "save_pretrained" and not _REPLICATED.search(name) and not _is_unwrapped(receiver):
            continue
        if place.method in ("copy", "put") and not any("hdfs" in word for word in receiver.words):
            continue
        yield place, (place,), place.method != "save_pretrained"


def _is_unwrapped(model: Place) -> bool:
    """Whether a model was taken out of what trains it, and is as it is on each rank."""
    made = model.origin
    return made.value.op == "call" and made.method == "unwrap_model" and made.receiver is not None


def _is_own(place: Place) -> bool:
    """Whether an argument tells the rank, as a name does that a function has made of it, or has a place for it."""
    arguments = [place.operand(i) for i in range(1, len(place.value.args))]
    texts = (o[2] for each in arguments for part in each.sources for o in part.closed.of("const") if o[1] == "str")
    return any(each.varies("rank", "member") for each in arguments) or any("{" in t and _RANK.search(t) for t in texts)


def _leaves_one(place: Place) -> bool:
    """Whether tests around leave one rank of the job, or of each node: its rank is tested, or two coordinates are."""
    axes = {c.axis for c in only(place.under, "rank", "member")}
    return bool(axes & {WORLD, NODE, "local"}) or len(axes) > 1


def _on_one_way(write: Place, anchor: Place) -> bool:
    """Whether who writes comes to a collective, or from it: those of another branch prove nothing."""
    return write == anchor or follows(write, anchor) or follows(anchor, write)


def _anchor(
    queries: Queries, write: Place, several: Callable[[Unit, bool], bool], seen: frozenset[Unit] = frozenset()
) -> Place | None:
    """A collective that proves that all ranks come to a write: one of its unit, else of what that calls, else one for
    each call of the unit. `several`: whether the programs that come to a unit have several processes."""
    here = _anchor_here(write, several, but=write if seen else None)
    if here is not None or write.unit in seen:
        return here
    calls = queries.calls_of(write.unit)
    if any(_excused(call, ()) or only(call.under, "rank", "member", "data") for call in calls):
        return None
    found = [_anchor(queries, call, several, seen | {write.unit}) for call in calls]
    return found[0] if found and None not in found else None


def _anchor_here(write: Place, several: Callable[[Unit, bool], bool], but: Place | None) -> Place | None:
    """A collective of a unit, else of what it calls, that proves that all ranks come to one of its calls; none in the
    call `but`, which was asked before."""
    flow, unit = write.flow, write.unit
    sites = sorted(flow.result(unit).sites.items())
    places = [Place(flow, unit, number) for number, site in sites if site.operations or site.targets]
    places = [each for each in places if each != but]
    calls = [each for each in places if not only(each.under, "rank", "member") and _on_one_way(write, each)]
    own = (place for place in calls if any(o.name not in _OF_ONE for o in place.operations))
    below = (place for place in calls if place.value.op == "call" and any(_met(place)))
    for found in chain(own, below):
        if several(unit, all(o.row.groupless for o in (*found.operations, *_met(found)))):
            return found
    return None


def _met(call: Place) -> Iterator[Operation]:
    """The collectives that a call runs under no test of the rank."""
    for operation, place in call.reached():
        if operation.sure and operation.name not in _OF_ONE and not only(place.under, "rank", "member"):
            yield operation


def _excused(place: Place, named: tuple[Place, ...]) -> bool:
    """Whether the destination, which some expressions name, differs between ranks, or a condition says that one process
    writes."""
    if not {"is_main_process", "**"}.isdisjoint(place.value.data.names):
        return True
    asked = {word.lower() for test in place.tests for word in test.words}
    coordinates = {word for word in asked if word.endswith("_rank")}
    told = any(map(_ONE.search, asked)) or len(coordinates) > 2
    return told or any(_RANK.search(word) for each in named for word in each.words)


_STATES = """
import torch
import torch.distributed as dist

class Loader:
    def save_state(self, folder):
        torch.save(self.state_dict(), folder / "loader.pt"){mark}

class Trainer:
    def __init__(self, loader: Loader):
        self.loader = loader

    def save(self, folder):
        dist.barrier(){test}
        self.loader.save_state(folder)
"""

INCORRECT = [
    _STATES.replace("{mark}", "  # error: MP537").replace("{test}", ""),
    """
import torch.distributed.checkpoint as dcp

def save_checkpoint(state, tokenizer, path):
    dcp.save(state, checkpoint_id=path)
    tokenizer.save_pretrained(path)  # error: MP537
""",
    """
import torch.distributed as dist
from megatron.core import mpu
from storage import hdfs_io

class Manager:
    def save(self, local, remote):
        if mpu.get_data_parallel_rank() == 0:
            hdfs_io.copy(src=local, dst=remote)  # error: MP537
        dist.barrier()
""",
    """
import os
from pathlib import Path

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp

class Trainer:
    def save(self, state):
        dcp.save(state, checkpoint_id=self.folder)
        with open(os.path.join(self.folder, "latest"), "w") as file:  # error: MP537
            file.write(str(self.step))

    def finish(self, scheduler):
        dist.barrier()
        path = Path(self.folder) / "scheduler.pt"
        torch.save(scheduler.state_dict(), path)  # error: MP537
        Path(self.folder, "done").write_text("done")  # error: MP537
""",
    # a function names the file after what is the same on all ranks
    """
import os

import torch
import torch.distributed as dist

class Manager:
    def __init__(self, root):
        self.root, self.count = root, dist.get_world_size()

    def path(self):
        return os.path.join(self.root, f"extra_of_{self.count}.pt")

    def save(self, loader):
        dist.barrier()
        torch.save({"loader": loader.state_dict(), "rng": torch.get_rng_state()}, self.path())  # error: MP537
        dist.barrier()
""",
    # all ranks meet in what it calls
    """
import torch
import torch.distributed as dist

def meet(losses):
    dist.all_reduce(losses)
    return losses

def close(losses, folder):
    total = meet(losses)
    with open(f"{folder}/losses.txt", "w") as file:  # error: MP537
        file.write(str(total))
""",
    """
from accelerate import Accelerator

def save(model, folder):
    accelerator = Accelerator()
    accelerator.wait_for_everyone()
    accelerator.unwrap_model(model).save_pretrained(folder)  # error: MP537
""",
    # what is written may speak of devices, where the path does not
    """
import os
import torch
import torch.distributed as dist

def main(model, gpu, folder):
    model = model.cuda(gpu)
    dist.barrier()
    torch.save({"model": model.state_dict()}, os.path.join(folder, "last.pt"))  # error: MP537
    with open(os.path.join(folder, "log.txt"), "a") as log:  # error: MP537
        log.write("done")
""",
    # what a namespace is made with does not hold for ever, nor where a command line comes into it
    """
import argparse
import os
import torch
import torch.distributed as dist

def main(model):
    args = argparse.Namespace(world_size=1, rank=0)
    if "WORLD_SIZE" in os.environ:
        args.world_size = int(os.environ["WORLD_SIZE"])
    dist.init_process_group("nccl", world_size=args.world_size)
    dist.barrier()
    torch.save(model.state_dict(), "model.pt")  # error: MP537
""",
    """
import argparse
import torch
import torch.distributed as dist

def main(model):
    parser = argparse.ArgumentParser()
    parser.add_argument("--world_size", type=int)
    args = parser.parse_args(namespace=argparse.Namespace(world_size=1))
    dist.init_process_group("nccl", world_size=args.world_size)
    dist.barrier()
    torch.save(model.state_dict(), "model.pt")  # error: MP537
""",
    # the group is set up before the ways part
    """
import sys
import deepspeed
import torch
import torch.distributed as dist

def export(model):
    with deepspeed.zero.GatheredParameters(list(model.parameters())):
        torch.save(model.state_dict(), "model.pt")  # error: MP537

def main(model):
    dist.init_process_group("nccl")
    if sys.argv[1] == "export":
        export(model)
    else:
        dist.barrier()
""",
    # what is removed
    """
import os
import shutil
import torch.distributed as dist

def clean(out):
    if os.path.exists(out):
        shutil.rmtree(out)  # error: MP537

def main(out, lock):
    dist.init_process_group("nccl")
    shutil.rmtree(out)  # error: MP537
    os.makedirs(out)
    clean(out)
    os.remove(path=lock)  # error: MP537
""",
]

CORRECT = [
    _STATES.replace("{mark}", "").replace("{test}", "\n        if dist.get_rank() != 0:\n            return"),
    # a function names it after the rank, after what nobody knows, or puts it into a folder of the node
    """
import os

import torch
import torch.distributed as dist

class Manager:
    def __init__(self, root, number, cache):
        self.root, self.number, self.local_cache = root, number, cache
        self.rank, self.count = dist.get_rank(), dist.get_world_size()

    def own(self):
        return os.path.join(self.root, f"extra_of_{self.count}_{self.rank}.pt")

    def numbered(self):
        return os.path.join(self.root, f"extra_of_{self.count}_{self.number}.pt")

    def cached(self):
        return os.path.join(self.local_cache, f"extra_of_{self.count}.pt")

    def save(self, state):
        torch.save(state, self.own())
        torch.save(state, self.numbered())
        torch.save(state, self.cached())
        dist.barrier()
""",
    # each in a folder of its own; a group of one process
    """
import json
import os
import torch.distributed as dist

def main(settings):
    dist.init_process_group("nccl")
    os.chdir(f"run_{dist.get_rank()}")
    with open("settings.json", "w") as file:
        json.dump(settings, file)
    dist.barrier()
""",
    """
import torch
import torch.distributed as dist

def main(model):
    dist.init_process_group("gloo", rank=0, world_size=1)
    dist.barrier()
    torch.save(model.state_dict(), "model.pt")
""",
    # the same by what a namespace is made with, or a class says; helpers that may set up a group come later
    """
import argparse
import torch
import torch.distributed as dist

args = argparse.Namespace(layers=12, world_size=1, rank=0)
dist.init_process_group("gloo", world_size=args.world_size, rank=args.rank)

def load(size):
    if not dist.is_initialized():
        dist.init_process_group("nccl", world_size=size)
    dist.barrier()
    return torch.nn.Linear(4, 4)

model = load(args.layers)
torch.save(model.state_dict(), "model.pt")
""",
    """
import torch
import torch.distributed as dist

class Settings:
    world_size = 1
    rank = 0

def convert(model):
    dist.barrier()
    torch.save(model.state_dict(), "model.pt")

def main(model):
    settings = Settings()
    dist.init_process_group("gloo", world_size=settings.world_size, rank=settings.rank)
    convert(model)
""",
    # one process exports; parameters are gathered where there are parts of them
    """
import sys
import deepspeed
import torch
import torch.distributed as dist

def load(sharded):
    model = torch.nn.Linear(4, 4)
    if sharded:
        with deepspeed.zero.GatheredParameters(list(model.parameters()), modifier_rank=0):
            torch.nn.init.zeros_(model.weight)
    return model

def train(sharded):
    dist.init_process_group("nccl")
    load(sharded)
    dist.barrier()

def export(sharded):
    torch.save(load(sharded).state_dict(), "model.pt")

def main():
    if sys.argv[1] == "export":
        export(False)
    else:
        train(True)
""",
    # the ranks meet on the other way
    """
import sys
import torch
import torch.distributed as dist

def main(model):
    if sys.argv[1] == "export":
        torch.save(model.state_dict(), "model.pt")
    else:
        dist.init_process_group("nccl")
        dist.barrier()
""",
    # a name that a function makes of the rank; an actor whose class is handed on
    """
import ray
import torch.distributed as dist

def named(template, **more):
    settings = {}
    for key, value in (("rank", dist.get_rank()),):
        settings[key] = value
    return template.format(**settings, **more)

class Tracer:
    def __init__(self):
        self.name = "trace-{rank}.json"

    def end(self, logger, file):
        logger.upload_file(named(self.name), file)
        dist.barrier()

@ray.remote
class Worker:
    def __init__(self, rank):
        self.rank = rank

    def save(self, tokenizer, folder):
        dist.barrier()
        if self.rank == 0:
            tokenizer.save_pretrained(folder)

def workers(group):
    return group(Worker)
""",
    """
import torch.distributed as dist
import torch.distributed.checkpoint as dcp

def save_checkpoint(state, tokenizer, path):
    dcp.save(state, checkpoint_id=path)
    if dist.get_rank() == 0:
        tokenizer.save_pretrained(path)
    dist.barrier()
""",
    """
import json
import torch.distributed as dist

def save(metrics, path):
    dist.barrier()
    with open(f"{path}/rank_{dist.get_rank()}.json", "w") as file:
        json.dump(metrics, file)
""",
    """
def save(tokenizer, path):
    tokenizer.save_pretrained(path)
""",
    # a program of one process: checkpoints are loaded there without a process group
    """
import sys
import torch
import torch.distributed.checkpoint as dcp

def convert(state, path):
    dcp.load(state, checkpoint_id=path)
    torch.save(state, "converted.pt")

if __name__ == "__main__":
    convert({}, sys.argv[1])
""",
    """
import os

import torch
import torch.distributed as dist

class Trainer:
    def __init__(self, folder):
        self.rank = dist.get_rank()
        self.file = os.path.join(folder, f"state_{self.rank}.pt")
        self.folder = folder

    def save(self, state, path, experts):
        dist.barrier()
        torch.save(state, self.file)
        torch.save(state, path)
        torch.save(state, name_of(path))
        for number, expert in experts.items():
            torch.save(expert, os.path.join(self.folder, f"expert_{number}.pt"))
        for key in state:
            torch.save(state[key], os.path.join(self.folder, f"{key}.pt"))
        if self.rank == 0:
            with open(os.path.join(self.folder, "latest"), "w") as file:
                file.write("saved")

def name_of(path):
    return REGISTERED[path]

def write(folder):
    with open(os.path.join(folder, "latest"), "w") as file:
        file.write("saved")
""",
    # a parameter that is called `rank` is one, whoever passes it
    """\
import json
import os

from torch.distributed.fsdp import FullyShardedDataParallel as FSDP


def save(model, optimizer, rank, out, step):
    state = FSDP.optim_state_dict(model, optimizer)
    if rank <= 0:
        with open(os.path.join(out, f"checkpoint-{step}", "config.json"), "w") as file:
            json.dump(sorted(state), file)
""",
    # who does not come to a `try` does not come to its handler
    """
import os
import torch
from torch.nn.parallel import DistributedDataParallel

def train(model, steps):
    rank = int(os.environ["RANK"])
    model = DistributedDataParallel(model)
    if rank == 0:
        torch.save(model.state_dict(), "model.pt")
        try:
            os.symlink("model.pt", "latest.pt")
        except FileExistsError:
            os.remove("latest.pt")
            os.symlink("model.pt", "latest.pt")
""",
    # one rank alone meets nobody in what it calls: the test is there; `is_main_process`
    """
import torch.distributed as dist
from accelerate import Accelerator

def meet(losses):
    if dist.get_rank() < 4:
        dist.all_reduce(losses, group=LOSSES)
    return losses

def close(losses, folder):
    total = meet(losses)
    with open(f"{folder}/losses.txt", "w") as file:
        file.write(str(total))

def save(model, folder):
    accelerator = Accelerator()
    accelerator.wait_for_everyone()
    accelerator.unwrap_model(model).save_pretrained(folder, is_main_process=accelerator.is_main_process)
    if accelerator.is_main_process:
        accelerator.unwrap_model(model).save_pretrained(folder)
""",
    # a configuration that says the rank under its name
    """
import torch
import torch.distributed as dist
from settings import read

def train(model, path):
    settings = read(path)
    dist.init_process_group("nccl")
    model(path)
    dist.barrier()
    if settings["rank"] == 0:
        torch.save(model.state_dict(), "model.pt")
""",
    # removed by one, by each for itself, before others are started, or in spite of errors
    """
import os
import shutil
import torch.distributed as dist
import torch.multiprocessing as mp

def work(rank, out, lock):
    dist.init_process_group("nccl", rank=rank, world_size=2)
    shutil.rmtree(out, ignore_errors=True)
    shutil.rmtree(os.path.join(out, str(rank)))
    if rank == 0:
        shutil.rmtree(out)
    try:
        os.remove(lock)
    except FileNotFoundError:
        pass

def start(function, out, lock):
    if out:
        mp.spawn(function, args=(out, lock), nprocs=2)
    else:
        function(0, out, lock)

def main(out, lock):
    start(work, out, lock)
    shutil.rmtree(out)
""",
    # a trainer saves on all ranks and lets one of them upload
    """
from transformers import Trainer

class PolicyTrainer(Trainer):
    pass

def main(model, args):
    trainer = PolicyTrainer(model, args)
    trainer.train()
    trainer.push_to_hub()
""",
    """
import torch.distributed as dist
from transformers import Trainer

class Own(Trainer):
    def save_model(self, folder):
        dist.barrier()
        self.push_to_hub(commit_message="Model save")
""",
]
