"""A file that is named after the number of the process on its node.

What it does
    Reports what ranks write (`torch.save`, `save_file`, `numpy.save`; `open(…, "w")` where the same name is read
    again) under a path in which only the local rank tells them apart (`LOCAL_RANK`, `local_process_index`,
    `get_local_rank()`, the current device); also where callers pass it to the function that writes. Silent where the
    number of the node or the host is in the path, where tests let one node write, and for paths that speak of storage
    of the node's own (`/tmp`, a cache).

Why is this bad
    Checkpoints lie on storage that all nodes share. Ranks with the same number on different nodes write one file: the
    last one wins, and on resume the others continue from its state: random numbers repeat, shards are lost. On one
    node nobody notices.

References
    https://docs.pytorch.org/docs/stable/elastic/run.html#environment-variables
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from validator.domains.axes import LOCAL, NODE, WORLD
from validator.domains.spmd import only
from validator.effects.files import Access, Files
from validator.finding import Finding
from validator.flow.queries.base import Place
from validator.flow.queries.outside_program import is_aside
from validator.project import Project
from validator.rule import Rule

RULE = Rule("MP582", "file-by-local-rank", "warning", "0.4.0", tokens=("open", "save"))

_OWN_STORAGE = re.compile(
    r"tmp|temp|shm|cache|scratch|nvme|trace|profil|log|host|node|local_(dir|path|disk|folder)", re.IGNORECASE
)


def check_project(project: Project) -> Iterator[Finding]:
    accesses = project.analysis(Files).accesses
    again = {access.name for access in accesses if access.kind == "read"}
    reported: set[Place] = set()
    for access in accesses:
        if access.kind != "write" or not access.name or is_aside(access.place.unit.path) or access.named in reported:
            continue
        if not _by_local_rank(access) or access.name not in again and access.opened:
            continue
        reported.add(access.named)
        told = _teller(access)
        yield RULE.finding(
            access.named.unit.path,
            told.seen_from(access.named),
            f"`{access.named.unit.qualname}` writes `{access.name}`, which tells ranks apart by `{told.text}` alone:"
            " processes with the same number on other nodes write the same file",
            help="put the rank in the job into the name (`dist.get_rank()`), or the number of the node beside it",
            context=f"{access.named.unit.qualname}:{access.name}",
        )


def _by_local_rank(access: Access) -> bool:
    """Whether a path tells ranks of one node apart and no others, and ranks of several nodes get there."""
    if {c.axis for c in access.apart} != {LOCAL}:
        return False
    if {c.axis for c in only(access.under, "rank", "member")} & {WORLD, NODE, LOCAL}:
        return False
    texts = [piece.text for piece in access.path]
    words = [word for place in access.written for word in place.words]
    return not any(_OWN_STORAGE.search(word) for word in (*texts, *words) if "local_rank" not in word)


def _teller(access: Access) -> Place:
    """The value that tells the rank: in the path, or an argument that becomes a part of it."""
    mine = [place for place in access.written if place.unit is access.named.unit]
    telling = [each for place in mine for each in place.sources if each.varies("rank", "member")]
    simple = [place for place in telling if place.value.op in ("attr", "name", "call", "item", "param")]
    return next(iter(simple or telling), access.named)


INCORRECT = [
    # folders, links, texts that are put together by `%` and `format`, methods of libraries that write
    """
import os
import shutil
import joblib

def two(index):
    return f"{index:0>2d}"

class Engine:
    def __init__(self):
        self.local_rank = int(os.environ["LOCAL_RANK"])

    def use_node_local_storage(self):
        return False

    def save(self, folder, swap, state, frame):
        self.use_node_local_storage()
        own = "rank" + two(self.local_rank)
        shutil.copytree(swap, os.path.join(folder, "offloaded", own))  # error: MP582
        joblib.dump(state, "{}/state_{}.pkl".format(folder, self.local_rank))  # error: MP582
        joblib.dump(state, "%s/state-%d.pkl" % (folder, self.local_rank))  # error: MP582
        frame.to_parquet(f"{folder}/rollouts_{self.local_rank}.parquet")  # error: MP582
""",
    """
import os
import torch

def save(state, folder):
    local = int(os.environ["LOCAL_RANK"])
    torch.save(state, os.path.join(folder, f"rng_{local}.pt"))  # error: MP582
""",
    """
import pickle
from accelerate import Accelerator

def write(folder, state, index):
    with open(f"{folder}/random_{index}.pkl", "wb") as file:
        pickle.dump(state, file)

def read(folder, index):
    with open(f"{folder}/random_{index}.pkl", "rb") as file:
        return pickle.load(file)

class Trainer:
    def __init__(self):
        self.accelerator = Accelerator()

    def save(self, folder, state):
        write(folder, state, self.accelerator.local_process_index)  # error: MP582

    def load(self, folder):
        return read(folder, self.accelerator.local_process_index)
""",
]

CORRECT = [
    """
import os
import shutil
import joblib
import torch.distributed as dist

class Engine:
    def __init__(self):
        self.local_rank = int(os.environ["LOCAL_RANK"])
        self.rank = dist.get_rank()

    def save(self, folder, swap, state, frame):
        shutil.copytree(swap, os.path.join(folder, "offloaded", f"rank{self.rank}"))
        shutil.copytree(swap, f"/tmp/swap_{self.local_rank}")
        joblib.dump(state, "{}/state_{}.pkl".format(folder, self.rank))
        joblib.dump(state, "%s/state-%d-%d.pkl" % (folder, self.rank, self.local_rank))
        frame.to_parquet(f"{folder}/rollouts_{self.rank}.parquet")
""",
    """
import os
import torch
import torch.distributed as dist

def save(state, folder):
    local = int(os.environ["LOCAL_RANK"])
    node = int(os.environ["GROUP_RANK"])
    torch.save(state, os.path.join(folder, f"rng_{dist.get_rank()}.pt"))
    torch.save(state, os.path.join(folder, f"rng_{node}_{local}.pt"))
    torch.save(state, f"/tmp/rng_{local}.pt")
    if dist.get_rank() < 8:
        torch.save(state, os.path.join(folder, f"first_{local}.pt"))
""",
    """
import os

def note(folder, text):
    local = int(os.environ["LOCAL_RANK"])
    with open(f"{folder}/notes_{local}.txt", "w") as file:
        file.write(text)
""",
]
