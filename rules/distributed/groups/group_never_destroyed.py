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

from validator.finding import Finding
from validator.flow.program.unit import Unit
from validator.flow.queries.base import Queries
from validator.flow.queries.outside_program import is_test
from validator.project import Project
from validator.rule import Rule

RULE = Rule("MP539", "group-never-destroyed", "note", "0.1.0", tokens=("init_process_group",))


def check_project(project: Project) -> Iterator[Finding]:
    queries = project.analysis(Queries)
    if any(not is_test(place.unit.path) for place in queries.named("destroy_process_group")):
        return
    for place in queries.calls("torch.distributed.init_process_group"):
        if _is_script(queries.flow.units_of(place.unit.module).get("<module>")):
            yield RULE.finding(
                place.unit.path,
                place.at,
                f"`{place.unit.qualname}` makes a process group that nothing in the project destroys",
                help="end with `dist.barrier()` and `dist.destroy_process_group()`, also after an error",
                context=place.unit.qualname,
            )


def _is_script(top: Unit | None) -> bool:
    """Whether a module tests `__name__`, as scripts do."""
    return top is not None and any(v.op == "name" and v.data == "__name__" for v in top.code.values)


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
