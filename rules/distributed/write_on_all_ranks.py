"""Files that are the same on all ranks, written or uploaded by all of them.

What it does
    In a function that all ranks run (it issues a collective outside of any test of the rank), reports writes to a path
    that does not depend on the rank: `save_pretrained` of a tokenizer, processor or configuration, copies to remote
    storage, `json.dump` into such a file. Silent under a test of the rank that leaves one writer; a test of a single
    mesh coordinate leaves a writer in each other group. Silent in examples and tests.

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
from validator.facts.model import Call
from validator.finding import Finding, Related
from validator.project import Method, Project
from validator.rule import Rule

RULE = Rule(
    "MP537", "write-on-all-ranks", "warning", "0.1.0", tokens=("save_pretrained", "copy", "upload", "json.dump")
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
_KIND_OF_WRITE = {"json.dump": "json.dump", "yaml.dump": "yaml.dump", "yaml.safe_dump": "yaml.safe_dump"}


def check_project(project: Project) -> Iterator[Finding]:
    effects, guards = project.analysis(Effects), project.analysis(RankGuards)
    for function in project.functions():
        if is_aside(function.path):
            continue
        writes = [call for call in function.facts.calls if _writes(function, call)]
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
]
