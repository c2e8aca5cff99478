"""A variable of each task of Slurm that the batch script expands itself.

What it does
    Looks for `$SLURM_NODEID`, `$SLURM_PROCID` and `$SLURM_LOCALID` in the words of an `srun` command of a batch script
    (one with `#SBATCH` lines), outside of single quotes, where more than one node or task is asked for. Silent in what
    single quotes or a backslash keep for the shell of each task.

Why is this bad
    The batch script runs on the first node alone: there each of them is 0, and `srun` starts all tasks with that 0. All
    nodes then join with the same rank, and the rendezvous waits for the others until it times out.

References
    https://slurm.schedmd.com/srun.html#SECTION_OUTPUT-ENVIRONMENT-VARIABLES
    https://www.gnu.org/software/bash/manual/bash.html#Double-Quotes
"""

from __future__ import annotations

from collections.abc import Iterator

from validator.facts.script import Command, Piece, Script
from validator.finding import Finding
from validator.project import Project
from validator.rule import Rule
from validator.source import SourceFile

RULE = Rule("MP717", "task-variable-expanded", "warning", stable_since="0.6.0", tokens=("srun",), languages=("shell",))

_OF_TASKS = frozenset({"SLURM_NODEID", "SLURM_PROCID", "SLURM_LOCALID"})
_SEVERAL = frozenset({"--nodes", "-N", "--ntasks", "-n", "--ntasks-per-node"})


def check_project(project: Project) -> Iterator[Finding]:
    for source in project.files.values():
        script: Script | None = source.facts.extra.get("script")
        if script is None or not _asks_for_several(script):
            continue
        for command in script.every():
            if isinstance(command, Command) and not command.broken and _is_srun(command):
                yield from _expanded(source, command)


def _asks_for_several(script: Script) -> bool:
    """Whether a batch script may run more than one task."""
    return any(option in _SEVERAL and value.strip('"') != "1" for option, value, _ in script.directives)


def _is_srun(command: Command) -> bool:
    words = (word.pieces for word in command.words[:2])  # also behind `exec`, `time`
    return any(len(pieces) == 1 and pieces[0].value.rpartition("/")[2] == "srun" for pieces in words)


def _expanded(source: SourceFile, command: Command) -> Iterator[Finding]:
    """The first variable of a task among the words of a command: one mistake, however often it is made there."""
    for piece in (piece for word in command.words for piece in word.pieces):
        if _is_of_task(piece):
            width = max(piece.width, 1)
            yield RULE.finding(
                source.path,
                (piece.line, piece.column, piece.line, piece.column + width),
                f"`${piece.value}` is expanded by the batch script, on the first node, before `srun` starts the tasks:"
                " it is 0 for all of them",
                help=f"keep it for the shell of each task: `srun bash -c '… ${piece.value} …'` in single quotes",
                context=piece.value,
            )
            return


def _is_of_task(piece: Piece) -> bool:
    return piece.kind == "variable" and piece.value in _OF_TASKS


_BATCH = """# file: train.py
print(1)
# file: run.sh
#!/bin/bash
#SBATCH --nodes=4
#SBATCH --ntasks-per-node=1

export MASTER_ADDR=$(hostname)
{srun}
"""

INCORRECT = (
    _BATCH.replace("{srun}", "srun torchrun --nnodes=4 --node_rank=$SLURM_NODEID train.py  # error: MP717"),
    _BATCH.replace(
        "{srun}",
        'srun bash -c "torchrun --nnodes=4 --node_rank=$SLURM_NODEID --master_addr=$MASTER_ADDR train.py"'
        "  # error: MP717",
    ),
)

CORRECT = (
    _BATCH.replace(
        "{srun}", "srun bash -c 'torchrun --nnodes=4 --node_rank=$SLURM_NODEID --master_addr=$MASTER_ADDR train.py'"
    ),
    _BATCH.replace("{srun}", 'srun bash -c "torchrun --nnodes=4 --node_rank=\\$SLURM_NODEID train.py"'),
    # run by each task
    """# file: train.py
print(1)
# file: node.sh
torchrun --nnodes=4 --node_rank=$SLURM_NODEID train.py
""",
    _BATCH.replace("--nodes=4", "--nodes=1").replace(
        "{srun}", "srun torchrun --nnodes=1 --node_rank=$SLURM_NODEID train.py"
    ),
)
