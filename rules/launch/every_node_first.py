"""torchrun is started on several nodes without what tells them apart.

What it does
    Reports `torchrun` (`python -m torch.distributed.run`) with several `--nnodes`, which `srun` starts or which gets a
    `--rdzv_id`, without `--node_rank` and with no `--rdzv_backend` (or with `static`, which is the default). Silent
    where options stand in a variable that is not known, and where the project sets options by the environment
    (`PET_NODE_RANK`, `PET_RDZV_BACKEND`).

Why is this bad
    The static rendezvous knows nothing of `--rdzv_id` and takes the rank of a node from `--node_rank`, which is 0 by
    default. Every node takes itself for the first one: they fight for one port, or wait for each other until the
    rendezvous times out.

References
    https://docs.pytorch.org/docs/stable/elastic/run.html
"""

from __future__ import annotations

from collections.abc import Iterator

from rules.launch._reading.common import span
from validator.analysis.commands.launch import Launch, Launches
from validator.finding import Finding, Severity
from validator.project import Project
from validator.rule import Rule

RULE = Rule("MP718", "every-node-first", "error", "1.0", tokens=("nnodes",), languages=("shell",))

_TELLING = ("node_rank", "standalone", "*")
_STATIC = "static"
_BY_ENVIRONMENT = b"PET_"


def check_project(project: Project) -> Iterator[Finding]:
    launches = [launch for launch in project.analysis(Launches).all if _is_static(launch)]
    if launches and not any(_BY_ENVIRONMENT in source.data for source in project.files.values()):
        for launch in launches:
            yield _report(launch)


def _is_static(launch: Launch) -> bool:
    """Whether a launch asks for several nodes, all of which are the first one."""
    if launch.engine != "torchrun" or launch.broken or (launch.node_count() or 0) < 2:
        return False
    backend = launch.launcher_option("rdzv_backend")
    static = backend is None or backend.known and backend.text == _STATIC
    started = launch.steps_given or launch.launcher_option("rdzv_id") is not None
    return static and started and launch.launcher_option(*_TELLING) is None


def _report(launch: Launch) -> Finding:
    field = launch.launcher_option("rdzv_id") or launch.nodes or launch.program
    given = ", beside which `--rdzv_id` means nothing" if launch.launcher_option("rdzv_id") is not None else ""
    severity: Severity = "error" if launch.steps_given else "warning"
    return RULE.finding(
        field.place.path,
        span(field),
        f"`{launch.engine}` takes part on {launch.node_count()} nodes with the static rendezvous{given}, and no"
        " `--node_rank`: each node takes itself for the first",
        help="pass `--rdzv_backend c10d`, or another `--node_rank` on each node",
        context=f"{launch.name}:rdzv",
        severity=severity,
    )


_BATCH = """# file: train.slurm
#!/bin/bash
#SBATCH --nodes=2
#SBATCH --gpus-per-node=8
srun torchrun --nnodes=$SLURM_NNODES --nproc_per_node=8 \\
    --rdzv_endpoint="$HEAD:29500" \\
    {more}
    train.py
"""

INCORRECT = (
    _BATCH.replace("{more}", '--rdzv_id="$SLURM_JOB_ID" \\  # error: MP718'),
    """# file: train.sh
torchrun --nnodes 4 --nproc_per_node 8 --master_addr $HEAD --rdzv_id 12 train.py  # error: MP718
""",
)

CORRECT = (
    _BATCH.replace("{more}", '--rdzv_id="$SLURM_JOB_ID" --rdzv_backend=c10d \\'),
    _BATCH.replace("{more}", '$RDZV_ARGS --rdzv_id="$SLURM_JOB_ID" \\'),
    _BATCH.replace("{more}", '--rdzv_id="$SLURM_JOB_ID" \\').replace("--nnodes=$SLURM_NNODES", "--nnodes=1"),
    """# file: train.sh
torchrun --nnodes 4 --nproc_per_node 8 --master_addr $HEAD train.py
torchrun --nnodes 4 --nproc_per_node 8 --master_addr $HEAD --node_rank $RANK --rdzv_id 12 train.py
torchrun --nnodes 4 --nproc_per_node 8 $OPTIONS --rdzv_id 12 train.py
""",
    """# file: train.slurm
#SBATCH --nodes=2
srun bash -c 'torchrun --nnodes 2 --node_rank $SLURM_NODEID --nproc_per_node 8 --master_addr $HEAD train.py'
srun bash -c 'PET_NODE_RANK=$SLURM_NODEID torchrun --nnodes 2 --nproc_per_node 8 --master_addr $HEAD train.py'
""",
)
