"""Files that are the same on all ranks, written or uploaded by all of them.

What it does
    In a function that all ranks run (it issues a collective outside of any test of the rank), reports writes to a path
    that does not depend on the rank: `save_pretrained` of a tokenizer, processor or configuration, copies to remote
    storage, `json.dump` into such a file, and whatever truncates a file whose name stands in the source
    (`open(…, "w")`, `torch.save`, `write_text`, `shutil.copy`). Silent under a test of the rank that leaves one writer;
    a test of a single mesh coordinate leaves a writer in each other group. Silent in examples and tests.

Why is this bad
    Many writers of one file: truncated files, failed uploads, and on a hard-mounted NFS share writers that wait for
    each other for ever.

References
    https://huggingface.co/docs/accelerate/concept_guides/deferring_execution
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from validator.analysis.effects import Effects
from validator.analysis.places import every_guard, is_aside
from validator.analysis.rank_guards import RankGuards
from validator.analysis.writes import Writes, may_write
from validator.facts.model import Call
from validator.finding import Finding, Related
from validator.project import Method, Project
from validator.rule import Rule

RULE = Rule(
    "MP537",
    "write-on-all-ranks",
    "warning",
    "0.1.0",
    tokens=("save_pretrained", "copy", "upload", "json.dump", "open(", "save", "write_"),
)

_REPLICATED = re.compile(
    r"(^|[._])(tokenizer|processor|processing_class|config|hf_config|generation_config|image_processor)$"
)
_REMOTE = frozenset({"upload_folder", "upload_file", "upload_directory", "push_to_hub", "put_file"})
_RANK = re.compile(
    r"rank|process_index|proc_id|worker_id|node_id|shard_id|uuid|tempfile|mkdtemp|TemporaryDirectory", re.IGNORECASE
)
_ONE = re.compile(
    r"is_main|is_master|is_rank|rank_?0|rank_?zero|is_writer|is_saver|is_leader|save_on_each_node|should_save|is_local_main|on_rank"
)
# conditions under which one process may well be all that there is, or that keep others out
_ALONE = re.compile(
    r"debug|profil|dump|world_size|num_processes|is_initialized|distributed|Lock\(|exists", re.IGNORECASE
)
_KIND_OF_WRITE = {"json.dump": "json.dump", "yaml.dump": "yaml.dump", "yaml.safe_dump": "yaml.safe_dump"}


def check_project(project: Project) -> Iterator[Finding]:
    effects, guards, paths = project.analysis(Effects), project.analysis(RankGuards), project.analysis(Writes)
    for function in effects.direct:
        if is_aside(function.path):
            continue
        writes = [
            call
            for call in function.facts.calls
            if _writes(function, call) or _truncates(paths, guards, function, call)
        ]
        anchor = _by_all(effects, guards, function) if writes else None
        for call in writes:
            if anchor is None or guards.leaves_one(function, call.guards) or _excused(function, call):
                continue
            yield RULE.finding(
                function.path,
                call.at,
                f"`{call.target}` in `{function.qualname}` writes the same files on many ranks, which all run"
                f" `{anchor.method}` there",
                help="let the first rank of the job write, and place a barrier behind it for whoever reads the"
                " files next",
                related=[Related(function.path, anchor.at[0], f"every rank calls `{anchor.method}` here")],
                context=f"{function.qualname}:{call.target}",
            )


def _writes(function: Method, call: Call) -> bool:
    if call.method == "save_pretrained":
        return bool(_REPLICATED.search(call.receiver)) and bool(call.args)
    if call.method in _REMOTE:
        return bool(call.receiver)
    if call.target.startswith("hdfs_io.") and call.method in ("copy", "put"):
        return True
    opened = next((g for g in reversed(call.guards) if g.kind == "with" and g.text.startswith("open(")), None)
    return call.target in _KIND_OF_WRITE and opened is not None and re.search(r"[\"']wb?[\"']", opened.text) is not None


def _truncates(paths: Writes, guards: RankGuards, function: Method, call: Call) -> bool:
    """Whether a call makes a file anew under a name that is the same on all ranks, with no test of the rank around."""
    if not may_write(call) or guards.all_of(function, call.guards):
        return False
    if any(guard.kind in ("if", "with") and _ALONE.search(guard.text) for guard in every_guard(function, call.guards)):
        return False
    path = paths.path(function, call)
    if path is None or (call.target == "open" and _is_dumped_into(function, call)):
        return False
    return paths.is_alike(function, path)


def _is_dumped_into(function: Method, call: Call) -> bool:
    """Whether the finding is one about what is dumped into an opened file."""
    return any(
        _writes(function, other) and any(g.kind == "with" and g.line == call.at[0] for g in other.guards)
        for other in function.facts.calls
    )


def _by_all(effects: Effects, guards: RankGuards, function: Method) -> Call | None:
    """A collective of the whole job that proves that all ranks run the function."""
    rows = [(call, row.name) for call, row in effects.direct.get(function, {}).values()]
    rows = [(call, name) for call, name in rows if name not in ("full_tensor", "state_dict", "distribute_tensor")]
    sure = (c for c, _ in sorted(rows) if not guards.all_of(function, c.guards))
    return next(sure, None)


def _excused(function: Method, call: Call) -> bool:
    """Whether the destination differs between ranks, or a condition says that one process writes."""
    texts = [argument.value for argument in call.args]
    texts += [guard.text for guard in call.guards if guard.kind == "with"]
    names = set(re.findall(r"[A-Za-z_]\w*", " ".join(texts)))
    texts += [row.value for row in function.facts.assigns if row.target in names]
    told = any(_ONE.search(guard.text) for guard in every_guard(function, call.guards) if guard.kind == "if")
    return (
        told
        or any(_RANK.search(text) for text in texts)
        or any(a.keyword in ("is_main_process", "**") for a in call.args)
    )


INCORRECT = [
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
]

CORRECT = [
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
        with open(os.path.join(self.folder, "log"), "a") as file:
            file.write("saved")
        if self.rank == 0:
            with open(os.path.join(self.folder, "latest"), "w") as file:
                file.write("saved")

def name_of(path):
    return os.path.join(path, "model.pt")

def write(folder):
    with open(os.path.join(folder, "latest"), "w") as file:
        file.write("saved")
""",
]
