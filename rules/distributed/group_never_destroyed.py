"""A process group that the program leaves behind.

What it does
    Notes `init_process_group` in a script (a file with `if __name__ == "__main__"`) that never calls
    `destroy_process_group`, nor does a function it calls by name.

Why is this bad
    NCCL communicators are then torn down in the order in which the interpreter happens to die: warnings, and now and
    then a rank that hangs or crashes at exit and turns a finished run into a failed one.

References
    https://docs.pytorch.org/docs/stable/distributed.html#shutdown
"""

from __future__ import annotations

from collections.abc import Iterator

from validator.analysis.places import Words
from validator.finding import Finding
from validator.project import Project
from validator.rule import Rule

RULE = Rule("MP539", "group-never-destroyed", "note", "0.1.0", tokens=("init_process_group",))


def check_project(project: Project) -> Iterator[Finding]:
    if project.analysis(Words).anywhere("destroy_process_group"):
        return
    for function in project.functions():
        if not any(g.text.startswith("__name__ ==") for call in function.module.top.facts.calls for g in call.guards):
            continue
        for call in function.facts.calls:
            if project.dotted(function, call.target) == "torch.distributed.init_process_group":
                yield RULE.finding(
                    function.path,
                    call.at,
                    f"`{function.qualname}` makes a process group that nothing in the project destroys",
                    help="end with `dist.barrier()` and `dist.destroy_process_group()`, also after an error",
                    context=function.qualname,
                )


INCORRECT = [
    """
import torch.distributed as dist

def main():
    dist.init_process_group("nccl")  # error: MP539
    train()

if __name__ == "__main__":
    main()
""",
]

CORRECT = [
    """
import torch.distributed as dist

def main():
    dist.init_process_group("nccl")
    try:
        train()
    finally:
        dist.destroy_process_group()

if __name__ == "__main__":
    main()
""",
    """
import torch.distributed as dist

def setup():
    dist.init_process_group("nccl")
""",
]
