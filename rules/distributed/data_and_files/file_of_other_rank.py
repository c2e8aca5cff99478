"""A file that ranks read and that nobody has written for them, or not yet.

What it does
    Follows the paths of files that are written and read (`torch.save`, `open(…, "w")`, `save_file`, `write_text`; also
    in functions that get the path) and takes them for one file by the name in the source. Reported: a name that carries
    the rank, written under a test that leaves out some of these ranks and read by all; a name that carries one rank
    where it is written and another where it is read (the global rank and the local one); a file that one rank writes
    and all read afterwards in the same function with no collective between; files of which each rank writes its own,
    and one rank reads all in a loop with no collective between; and a folder that one rank makes, and into which all
    write with no collective between (a note, where the files come in a loop). Silent where another place writes the
    file without the test, and of names with different ranks where only those below some number write: within the first
    group the ranks are the same.

Why is this bad
    The ranks that wrote nothing fail when the run is resumed, hours later, or start from other states than the first.
    Without a barrier the others read a file that is not there yet, or half of it.

References
    https://docs.pytorch.org/docs/stable/distributed.checkpoint.html
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from validator.domains.axes import LOCAL, NODE, SOME, WHOLE, Axes, axes_of, meets
from validator.domains.spmd import Causes, only
from validator.effects.divergence import Divergences
from validator.effects.evidence import asks_for_rank
from validator.effects.files import Access, Files, reaches
from validator.effects.trace import Traces
from validator.finding import Finding, Related
from validator.flow.queries.base import Place, Queries
from validator.flow.queries.outside_program import is_aside
from validator.project import Project
from validator.rule import Rule

RULE = Rule("MP581", "file-of-other-rank", "warning", "0.3.0", tokens=("open", "load", "save", "read_", "mkdir"))

_ORDERED = frozenset({"Lt", "LtE", "Gt", "GtE"})
_MAKING = ("os.makedirs", "os.mkdir")
_WHOLLY = WHOLE | SOME | {LOCAL, NODE}  # axes of numbers from which coordinates are computed


def check_project(project: Project) -> Iterator[Finding]:
    by_name: dict[str, list[Access]] = {}
    for access in project.analysis(Files).accesses:
        if access.name and not is_aside(access.place.unit.path):
            by_name.setdefault(access.name, []).append(access)
    for name, accesses in by_name.items():
        for writes, reads in _together(accesses):
            found = _not_written(name, writes, reads) or _other_rank(name, writes, reads)
            if found is not None:
                yield found
    named = [a for rows in by_name.values() for a in rows]
    yield from _too_early(project, named)
    yield from _gathered_early(project, named)
    yield from _into_no_folder(project, [a for a in project.analysis(Files).accesses if a.kind != "read"])


def _together(accesses: list[Access]) -> Iterator[tuple[list[Access], list[Access]]]:
    """Writes and reads that may be of one file: those of a class, else of a module, that does both; then the rest."""
    left = accesses
    for room in (lambda a: a.named.unit.cls, lambda a: a.named.unit.path, lambda _: True):
        rooms: dict[object, list[Access]] = {}
        for access in left:
            rooms.setdefault(room(access), []).append(access)
        left = []
        for key, rows in rooms.items():
            writes = [a for a in rows if a.kind == "write"]
            reads = [a for a in rows if a.kind == "read"]
            if key is not None and writes and reads:
                yield writes, reads
            else:
                left += rows


def _tests(access: Access) -> Causes:
    return only(access.under, "rank", "member")


def _not_written(name: str, writes: list[Access], reads: list[Access]) -> Finding | None:
    """Files of ranks that a test of the rank keeps from writing them."""
    everywhere = [r for r in reads if r.apart and not _tests(r) and not r.place.is_tried]
    places = {w.named for w in writes}
    if not everywhere or any(not _leaves_out(w) for w in writes) or len({p.unit for p in places}) < len(places):
        return None
    write, read = writes[0], everywhere[0]
    if {c.axis for c in write.apart}.isdisjoint(c.axis for c in read.apart):
        return None  # numbers of another group: which of them are written is not known
    return _finding(
        write,
        read,
        f"only some ranks write `{name}`, though each rank reads its own",
        "write it on every rank that reads one, outside of the test",
        all(c.sure for c in (*_tests(write), *write.apart, *read.apart)),
    )


def _leaves_out(write: Access) -> bool:
    """Whether a test around a write tells apart the ranks that have files of their own. Coordinates that are computed
    from one number are told apart by their names; one of a known axis is what it is, whatever it is called."""
    if not _is_by_rank(write):
        return False
    pairs = [(test, own) for test in _tests(write) for own in write.apart if meets(test.axis, frozenset({own.axis}))]
    if any(test.axis == own.axis and test.sure and own.sure and own.axis not in _WHOLLY for test, own in pairs):
        return True
    said = _coordinates(piece.text for piece in write.path if piece.kind == "text")
    asked = _coordinates(part.hint for test in write.place.tests for part in test.parts)
    return bool(pairs) and not (said and asked and said.isdisjoint(asked))


def _is_by_rank(write: Access) -> bool:
    """Whether a test around a write, or around the calls of its function, asks who the process is: that there is
    something to write is another question, though ranks may have come to it by their numbers."""
    called = write.place.flow.solver.settled(("under", write.place.unit)).v
    places = dict.fromkeys((write.place, write.named, *write.written))  # also in functions that write for others
    return bool(only(called, "rank", "member")) or any(asks_for_rank(test) for each in places for test in each.tests)


def _coordinates(names: Iterable[str]) -> Axes:
    """The axes of a mesh that names speak of."""
    return frozenset().union(*map(axes_of, names)) - WHOLE


def _other_rank(name: str, writes: list[Access], reads: list[Access]) -> Finding | None:
    """Names that carry one rank where the file is written and another where it is read."""
    if any(map(_by_first, writes)):
        return None
    wrote = {c.axis for w in writes for c in w.apart}
    read = next((r for r in reads if r.apart and {c.axis for c in r.apart}.isdisjoint(wrote) and wrote), None)
    if read is None or "?" in wrote | {c.axis for c in read.apart}:
        return None
    mine, other = sorted(wrote), sorted({c.axis for c in read.apart})
    return _finding(
        writes[0],
        read,
        f"`{name}` carries the {' and '.join(mine)} rank where it is written"
        f" and the {' and '.join(other)} rank where it is read",
        "build the name in one function that both call",
        all(c.sure for c in (*writes[0].apart, *read.apart)),
    )


def _by_first(write: Access) -> bool:
    """Whether only the ranks below, or above, some number write: within the first group a rank of the job is the rank
    inside the group, too."""
    for test in write.place.tests:
        sides = [test.operand(0), test.operand(1)] if test.value.op == "compare" else []
        if test.value.data in _ORDERED and any(side.varies("rank", "member") for side in sides):
            return True
    return False


def _in_turns(traces: Traces, place: Place) -> bool:
    """Whether a context manager around meets the other ranks: `with main_process_first()` lets them in one by one."""
    unit, sites = place.unit, place.result.sites
    managers = set(unit.managers(place.number))
    for number, value in enumerate(unit.code.values):
        site = sites.get(number) if value.op in ("enter", "leave") and value.args[0] in managers else None
        if site is not None and (site.operations or any(target.unit in traces.effectful for target in site.targets)):
            return True
    return False


def _meets(traces: Traces, call: Place) -> bool:
    """Whether the function that writes or reads lets ranks meet, perhaps between that and the other."""
    site = call.result.sites.get(call.number)
    return site is not None and any(target.unit in traces.effectful for target in site.targets)


def _too_early(project: Project, accesses: list[Access]) -> Iterator[Finding]:
    """Files that one rank writes and the others read with nothing in between that makes them wait."""
    traces = None
    for write in accesses:
        # a parameter in the name may be the rank: then the name is looked at where it is passed
        if write.kind != "write" or not _tests(write) or write.apart or any(p.kind == "param" for p in write.path):
            continue
        for read in accesses:
            same = read.kind == "read" and read.place.unit is write.place.unit and read.path == write.path
            if not same or _tests(read):
                continue
            traces = traces or project.analysis(Divergences).traces
            if _in_turns(traces, write.place) or any(_meets(traces, each.place) for each in (write, read)):
                continue
            if reaches(traces, write.place.unit, write.place.number, read.place.number):
                message = (
                    f"some ranks write `{write.name}` and all read it, with nothing in between that makes them wait"
                )
                sure = all(c.sure for c in _tests(write))
                yield _finding(write, read, message, "call `dist.barrier()` between", sure)


def _gathered_early(project: Project, accesses: list[Access]) -> Iterator[Finding]:
    """Files of which each rank writes its own, and that some rank reads one by one before the others must be done."""
    traces = None
    for write in accesses:
        if write.kind != "write" or not write.apart or _tests(write):
            continue
        for read in accesses:
            same = read.kind == "read" and read.place.unit is write.place.unit and _is_of_others(write, read)
            if not same or read.place.unit.code.blocks[read.place.value.block].loop < 0:
                continue
            traces = traces or project.analysis(Divergences).traces
            if any(_meets(traces, each.place) for each in (write, read)):
                continue
            if reaches(traces, write.place.unit, write.place.number, read.place.number):
                message = (
                    f"each rank writes its own `{write.name}`, and all of these are read before the others must be done"
                )
                yield _finding(write, read, message, "call `dist.barrier()` between", False)
                break


def _into_no_folder(project: Project, writes: list[Access]) -> Iterator[Finding]:
    """Files that all ranks write into a folder which one of them may not have made yet."""
    queries, traces = project.analysis(Queries), None
    for made in (*queries.calls(*_MAKING), *queries.named("mkdir")):
        folder = made.receiver if made.method == "mkdir" and len(made.value.args) == 1 else made.operand(1)
        told = only(made.under, "rank", "member")
        if folder is None or not any(c.sure for c in told) or is_aside(made.unit.path):
            continue
        traces = traces or project.analysis(Divergences).traces
        if _in_turns(traces, made):
            continue
        for write in writes:
            inside = write.place.unit is made.unit and any(folder.root == p.root for p in write.written[0].parts)
            if not inside or _tests(write) or write.place.is_tried or _meets(traces, write.place):
                continue
            if reaches(traces, made.unit, made.number, write.place.number):
                yield RULE.finding(
                    made.unit.path,
                    made.at,
                    f"`{made.text}`{made.where} runs on some ranks, and all write into the folder, with nothing in"
                    " between that makes them wait",
                    help="call `dist.barrier()` between, or make it on all ranks with `exist_ok=True`",
                    related=[Related(write.place.unit.path, write.place.at[0], "written here")],
                    context=f"{made.unit.qualname}:{made.text}",
                    severity="note" if _is_in_later_loop(made, write.place) else None,
                )
                break


def _is_in_later_loop(made: Place, write: Place) -> bool:
    """Whether a file is written in rounds of a loop, before which the folder is most likely there."""
    control = made.unit.control
    return not set(control.loops_around(write.value.block)) <= set(control.loops_around(made.value.block))


def _is_of_others(write: Access, read: Access) -> bool:
    """Whether a path is that of a rank's own file, with another number in place of the rank."""
    pairs = list(zip(write.path, read.path, strict=False))
    others = (a == b or a.kind == "rank" and b.kind in ("same", "any") for a, b in pairs)
    return len(write.path) == len(read.path) and all(others) and not read.apart


def _finding(write: Access, read: Access, message: str, help_: str, sure: bool) -> Finding:
    place = write.named
    return RULE.finding(
        place.unit.path,
        place.at,
        f"{message} (`{place.unit.qualname}`)",
        help=help_,
        related=[Related(read.named.unit.path, read.named.at[0], "read here")],
        context=f"{place.unit.qualname}:{write.name}",
        severity="error" if sure else "warning",
    )


_EPOCHS = """
import os
import torch
import torch.distributed as dist
from tap import Tap

class Options(Tap):
    folder: str = "."
    is_local_master: bool = False

def options_of(local_rank) -> Options:
    options = Options(explicit_bool=True).parse_args()
    options.is_local_master = local_rank == 0
    return options

def evaluate(model):
    total = model(torch.ones(1))
    dist.all_reduce(total)
    return total.item()

def save(name, options, state):
    path = os.path.join(options.folder, name)
    if options.is_local_master:
        torch.save(state, path)

def main(model, epochs):
    dist.init_process_group("nccl")
    options: Options = options_of(int(os.environ["LOCAL_RANK"]))
    for epoch in range(epochs):
        if evaluate(model) > 0:
            save("best.pth", options, model.state_dict()){error}
        {within}
    {after}
    best = os.path.join(options.folder, "best.pth")
    if os.path.exists(best):
        model.load_state_dict(torch.load(best))
    evaluate(model)

main(torch.nn.Linear(1, 1), 3)
"""


def _epochs(error: str = "", within: str = "print(epoch)", after: str = "print(epochs)") -> str:
    return _EPOCHS.format(error=error, within=within, after=after)


_FOLDER = """
import os
import torch
import torch.distributed as dist

def save(state, folder):
    rank = dist.get_rank()
    parts = os.path.join(folder, "parts")
    if rank == 0:
        os.makedirs(parts, exist_ok=True){mark}
    {between}
    torch.save(state, os.path.join(parts, f"{{rank}}.pt"))
"""

INCORRECT = [
    _FOLDER.format(mark="  # error: MP581", between=""),
    _epochs("  # error: MP581"),  # after the last round nothing meets
    """
import os
import torch
import torch.distributed as dist

def save(state, folder):
    rank = dist.get_rank()
    if rank == 0:
        torch.save(state, os.path.join(folder, f"rng_{rank}.pt"))  # error: MP581

def load(folder):
    return torch.load(os.path.join(folder, f"rng_{dist.get_rank()}.pt"))
""",
    """
import json
import os
import torch
import torch.distributed as dist

def name_of(folder, rank):
    return f"{folder}/optimizer_{rank}.pt"

def write(state, path):
    torch.save(state, path)

def save(state, folder):
    write(state, f"{folder}/optimizer_{dist.get_rank()}.pt")  # error: MP581

def load(folder):
    local = int(os.environ["LOCAL_RANK"])
    return torch.load(f"{folder}/optimizer_{local}.pt")

def share(table, folder):
    path = os.path.join(folder, "table.json")
    if dist.get_rank() == 0:
        with open(path, "w") as file:  # error: MP581
            json.dump(table, file)
    with open(path) as file:
        return json.load(file)
""",
    # each class its own files, under names that look alike
    """
import os
import torch
import torch.distributed as dist

class Engine:
    def save(self, folder):
        self._save_optimizer(folder)

    def _save_optimizer(self, folder):
        rank = dist.get_rank()
        if rank == 0:
            torch.save(self.state, os.path.join(folder, f"optimizer_{rank}.pt"))  # error: MP581

    def load(self, folder):
        return torch.load(os.path.join(folder, f"optimizer_{dist.get_rank()}.pt"))

class Other:
    def save(self, folder):
        torch.save(self.state, os.path.join(folder, f"optimizer_{dist.get_rank()}.pt"))

    def load(self, folder):
        return torch.load(os.path.join(folder, f"optimizer_{dist.get_rank()}.pt"))
""",
    """
import json
import os
import torch.distributed as dist

def save(result, folder, name):
    with open(os.path.join(folder, "%s_rank%d.json" % (name, dist.get_rank())), "w") as f:  # error: MP581
        json.dump(result, f)
    if dist.get_rank() == 0:
        for rank in range(dist.get_world_size()):
            result += json.load(open(os.path.join(folder, "%s_rank%d.json" % (name, rank))))
    dist.barrier()
    return result
""",
]

CORRECT = [
    # the first model-parallel group alone writes: rank of the job and rank inside the group are one number there
    """
import os
import torch
import torch.distributed as dist
from megatron.core import mpu

def save(state, folder, model_parallel_size):
    if dist.get_rank() < model_parallel_size:
        torch.save(state, os.path.join(folder, f"model_{dist.get_rank()}.pt"))

def load(folder):
    return torch.load(os.path.join(folder, f"model_{mpu.get_tensor_model_parallel_rank()}.pt"))
""",
    _FOLDER.format(mark="", between="dist.barrier()"),
    _epochs(within="dist.barrier()"),
    _epochs(after="dist.barrier()"),
    _epochs(after="evaluate(model)"),
    # the others wait in the context manager; each rank has a file of its own
    """
import contextlib
import torch
import torch.distributed as dist

@contextlib.contextmanager
def main_process_first():
    rank = dist.get_rank()
    if rank != 0:
        dist.barrier()
    yield
    if rank == 0:
        dist.barrier()

def prepare():
    with main_process_first():
        if dist.get_rank() == 0:
            torch.save(torch.arange(10), "dataset.bin")
        return torch.load("dataset.bin")
""",
    # a folder of the process that writes it
    """
import os
import tempfile
import torch
import torch.distributed as dist

def fetch(store, path):
    with tempfile.TemporaryDirectory() as folder:
        name = os.path.join(folder, "link.pt")
        if dist.get_rank() == 0:
            torch.save(store, name)
            return torch.load(name)
        return None

def read(store):
    folder = tempfile.mkdtemp()
    if dist.get_rank() == 0:
        torch.save(store, os.path.join(folder, "link.pt"))
    elif os.path.exists(os.path.join(folder, "link.pt")):
        return torch.load(os.path.join(folder, "link.pt"))
""",
    """
import os
import torch
import torch.distributed as dist

class Engine:
    def save(self, folder):
        torch.save(self.state, os.path.join(folder, f"engine_{dist.get_rank()}.pt"))

    def load(self, folder):
        return torch.load(os.path.join(folder, f"engine_{dist.get_rank()}.pt"))

def show(state, folder):
    rank = dist.get_rank()
    if rank == 0:
        torch.save(state, os.path.join(folder, f"engine_{rank}.pt"))
""",
    """
import os
import torch
import torch.distributed as dist
from megatron.core import mpu

def save(state, shard, folder):
    rank = dist.get_rank()
    torch.save(state, os.path.join(folder, f"rng_{rank}.pt"))
    if mpu.get_data_parallel_rank() == 0:
        torch.save(shard, os.path.join(folder, f"model_{mpu.get_tensor_model_parallel_rank()}.pt"))

def load(folder):
    shard = torch.load(os.path.join(folder, f"model_{mpu.get_tensor_model_parallel_rank()}.pt"))
    return shard, torch.load(os.path.join(folder, f"rng_{dist.get_rank()}.pt"))
""",
    """
import json
import os
import torch
import torch.distributed as dist

def save(state, folder):
    if dist.get_rank() == 0:
        torch.save(state, os.path.join(folder, "model.pt"))

def load(folder):
    return torch.load(os.path.join(folder, "model.pt"))

def share(table, folder):
    path = os.path.join(folder, "table.json")
    if dist.get_rank() == 0:
        with open(path, "w") as file:
            json.dump(table, file)
    dist.barrier()
    with open(path) as file:
        return json.load(file)
""",
    # one process alone needs no barrier; each call of a function has its own; coordinates are not those of the test
    """
import os
import torch
import torch.distributed as dist

def shared(table, path):
    if dist.get_rank() == 0:
        torch.save(table, path + "/table.bin")
    if dist.is_initialized():
        dist.barrier()
    return torch.load(path + "/table.bin")

def index(folder):
    path = folder + "/index.bin"
    if not os.path.exists(path) and dist.get_rank() == 0:
        torch.save([], path)
    dist.barrier()
    return torch.load(path)

def both(folder):
    return index(folder), index(folder)

class Grid:
    def __init__(self, tp_size):
        self.tp_rank = dist.get_rank() % tp_size
        self.dp_rank = dist.get_rank() // tp_size

    def save(self, state, folder):
        if self.dp_rank == 0:
            torch.save(state, os.path.join(folder, f"weights_tp_{self.tp_rank}.pt"))

    def load(self, folder):
        return torch.load(os.path.join(folder, f"weights_tp_{self.tp_rank}.pt"))
""",
    """
import json
import os
import torch.distributed as dist

def save(result, folder, name):
    with open(os.path.join(folder, "%s_rank%d.json" % (name, dist.get_rank())), "w") as f:
        json.dump(result, f)
    dist.barrier()
    if dist.get_rank() == 0:
        for rank in range(dist.get_world_size()):
            result += json.load(open(os.path.join(folder, "%s_rank%d.json" % (name, rank))))
    return result
""",
    # what a library that is not at hand does, with nothing to work on, may be a barrier
    """
import json
import os
import torch.distributed as dist
from somelib.common import helpers

def share(table, folder):
    path = os.path.join(folder, "table.json")
    if dist.get_rank() == 0:
        with open(path, "w") as file:
            json.dump(table, file)
    helpers.synchronize()
    with open(path) as file:
        return json.load(file)
""",
    # who has nothing to write is asked, not who the process is: each rank has eight rows
    """
import torch
import torch.distributed as dist

class Buffer:
    def __init__(self, folder, saves):
        self.folder, self.saves, self.known = folder, saves, {}
        self.rank = dist.get_rank()

    def add(self, rows):
        if not rows:
            return
        for row in rows:
            self.known[self.rank] = row
        if self.saves:
            torch.save(self.known, f"{self.folder}/rows_{self.rank}.pt")

    def load(self):
        self.known = torch.load(f"{self.folder}/rows_{self.rank}.pt", weights_only=True)

def main(buffer: Buffer, rows):
    mine = rows[dist.get_rank() * 8 : dist.get_rank() * 8 + 8]
    buffer.add(mine)
    buffer.load()
""",
]
