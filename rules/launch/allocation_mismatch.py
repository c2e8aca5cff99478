"""A launcher starts other numbers of nodes and processes than the job has.

What it does
    Compares `#SBATCH` lines with the launchers of the script: `--nnodes` with `--nodes`, `--nproc_per_node` with the
    GPUs of a node (`--gpus-per-node`, `--gres=gpu:…`, `--gpus-per-task`), and reports launchers that `srun` starts
    several times on a node (`--ntasks-per-node`) and that each start all processes of it. Accelerate counts the
    processes of all nodes together, and has both numbers of the file that it names (`--config_file`), too. Steps with
    `srun --nodes` or `--ntasks` of their own are judged by these. Also a warning where torchrun or Accelerate start
    more processes than the script names devices in `CUDA_VISIBLE_DEVICES`.

Why is this bad
    Ranks wait for nodes that never come until the rendezvous times out, or two ranks get one GPU, which NCCL refuses;
    with fewer processes than GPUs the rest is reserved and idle.

References
    https://slurm.schedmd.com/sbatch.html
    https://docs.pytorch.org/docs/stable/elastic/run.html
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

from rules.launch._reading.common import origin, span
from validator.analysis.commands.fields import Field
from validator.analysis.commands.launch import Launch, Launches, arguments_of
from validator.facts.model import At
from validator.files.integers import whole
from validator.finding import Finding, Related
from validator.project import Project
from validator.rule import Rule

RULE = Rule(
    "MP706", "allocation-mismatch", "error", "0.1.0", tokens=("#SBATCH", "CUDA_VISIBLE_DEVICES"), languages=("shell",)
)


_ATTACHED = re.compile(r"-[A-Za-z][0-9]+")
_DEVICE = re.compile(r"(?:[\w.-]+=)?cuda:([0-9]{1,3})")


class _Asked(NamedTuple):
    """A number of the job's header or of its step, with the line that says it."""

    number: int
    option: str
    at: At | None


def check_project(project: Project) -> Iterator[Finding]:
    for launch in project.analysis(Launches).all:
        if any(_ATTACHED.fullmatch(name) for name in launch.steps):
            continue  # `srun -N1`
        if launch.directives and launch.engine in ("torchrun", "accelerate", "deepspeed", "colossalai"):
            nodes = _nodes(launch)
            yield from _about_nodes(launch, nodes)
            yield from _about_processes(launch, nodes)
            yield from _about_tasks(launch, nodes)
        yield from _about_devices(launch)
        yield from _about_numbers(project, launch)


def _about_numbers(project: Project, launch: Launch) -> Iterator[Finding]:
    """A device that is named by its number among all, where the program sees some, which are counted from 0."""
    source, seen, devices = project.files.get(launch.path), launch.visible_devices(), launch.devices
    if source is None or seen is None or devices is None or source.data.count(b"CUDA_VISIBLE_DEVICES") > 1:
        return  # another place of the script may say otherwise
    home = devices.home
    for field in arguments_of(launch):
        found = _DEVICE.fullmatch(field.text) if field.known else None
        if found is not None and int(found[1]) >= seen:
            yield RULE.finding(
                field.place.path,
                span(field),
                f"`{launch.name}` is told `cuda:{found[1]}`, and sees {seen} devices, which are counted from 0",
                help="give its place among the devices of `CUDA_VISIBLE_DEVICES`",
                related=[Related(home.path, home.line, f"`{devices.text}` is set here")],
                context=f"{launch.name}:device:{found[1]}",
                severity="warning",
            )


def _about_devices(launch: Launch) -> Iterator[Finding]:
    """Processes of one node for which no device is left that they see."""
    field = launch.processes
    started = field.integer() if field is not None else None
    seen = launch.visible_devices()
    ids = launch.in_file.get("gpu_ids")
    chosen = launch.launcher_option("gpu_ids") is not None or ids is not None and ids.text != "all" or launch.on_cpu
    if launch.engine not in ("torchrun", "accelerate") or field is None or started is None or seen is None or chosen:
        return
    if started > seen and launch.node_count() == 1 and launch.devices is not None:
        home = launch.devices.home
        yield RULE.finding(
            field.place.path,
            span(field),
            f"`{launch.engine}` starts {started} processes, and `CUDA_VISIBLE_DEVICES` lets them see {seen} devices:"
            " the others have none",
            help=f"start {seen}, or name {started} devices",
            related=[*origin(field), Related(home.path, home.line, f"`{launch.devices.text}` is set here")],
            context=f"{launch.name}:devices",
            severity="warning",
        )


def _about_nodes(launch: Launch, asked: _Asked | None) -> Iterator[Finding]:
    field = launch.nodes
    started = field.integer() if field is not None else None
    if field is None or started is None or asked is None or launch.steps.keys() & {"-w", "--nodelist"}:
        return
    # without srun the script runs on one node and reaches the others in ways of its own
    if started > asked.number or (started < asked.number and launch.steps_given):
        yield _report(
            launch, field, asked, f"`{launch.engine}` waits for {started} nodes, but the job has {asked.number}",
            f"make it {asked.number}, or ask for {started} nodes", "nodes",
        )  # fmt: skip


def _about_processes(launch: Launch, nodes: _Asked | None) -> Iterator[Finding]:
    field = launch.processes
    started = launch.processes_per_node()
    asked = _gpus(launch, nodes)
    if field is None or started is None or asked is None or asked.number == started or asked.number < 1:
        return
    of_accelerate = launch.engine == "accelerate"
    if of_accelerate and (
        launch.on_cpu or started < asked.number and (field.integer() == 1 or launch.devices is not None)
    ):
        return  # a small step of the job, or one beside others
    if started > asked.number:
        message = (
            f"`{launch.engine}` starts {started} processes on each node, but the job has {asked.number} GPUs there"
        )
        yield _report(
            launch, field, asked, f"{message}: NCCL refuses two ranks on one device (processes-fit-node)",
            f"start {asked.number}, or ask for {started} GPUs", "gpus",
        )  # fmt: skip
    else:
        idle = asked.number - started
        message = f"`{launch.engine}` starts {started} processes on each node: {idle} of its {asked.number} GPUs idle"
        yield _report(
            launch, field, asked, message, f"start {asked.number}, or ask for {started} GPUs", "idle",
        )._replace(severity="warning")  # fmt: skip


def _about_tasks(launch: Launch, nodes: _Asked | None) -> Iterator[Finding]:
    started = launch.processes_per_node() or 1
    asked = _tasks_per_node(launch, nodes)
    if not launch.steps_given or asked is None or asked.number < 2 or started < 2:
        return
    field = launch.processes or launch.program
    yield _report(
        launch, field, asked,
        f"`srun` starts `{launch.engine}` {asked.number} times on each node, and each starts {started} processes",
        "ask for one task per node: the launcher starts the others", "tasks",
    )  # fmt: skip


def _nodes(launch: Launch) -> _Asked | None:
    return _step(launch, "--nodes", "-N") or _header(launch, "--nodes", "-N")


def _tasks_per_node(launch: Launch, nodes: _Asked | None) -> _Asked | None:
    total = _step(launch, "--ntasks", "-n")
    per_node = _step(launch, "--ntasks-per-node") or _header(launch, "--ntasks-per-node")
    if total is None and per_node is not None:
        return per_node
    total = total or _header(launch, "--ntasks", "-n")
    if total is None or nodes is None or total.number % max(nodes.number, 1):
        return None
    return total._replace(number=total.number // nodes.number)


def _gpus(launch: Launch, nodes: _Asked | None) -> _Asked | None:
    """The GPUs that the job has on a node."""
    if (found := launch.gpus_per_node()) is not None:
        return _Asked(found[0], "gpus per node", found[1])
    each = _header(launch, "--gpus-per-task")
    tasks = _tasks_per_node(launch, nodes)
    if each is not None and tasks is not None:
        return each._replace(number=each.number * tasks.number)
    total = _header(launch, "--gpus", "-G")
    if total is None or nodes is None or total.number % max(nodes.number, 1):
        return None
    return total._replace(number=total.number // nodes.number)


def _header(launch: Launch, *names: str) -> _Asked | None:
    found = launch.directive(*names)
    number = whole(found[0]) if found is not None else None
    return _Asked(number, names[0], found[1]) if found is not None and number is not None else None


def _step(launch: Launch, *names: str) -> _Asked | None:
    field = next((launch.steps[name] for name in names if name in launch.steps), None)
    number = field.integer() if field is not None else None
    return _Asked(number, names[0], None) if number is not None else None


def _report(launch: Launch, field: Field, asked: _Asked, message: str, help: str, context: str) -> Finding:
    related = list(origin(field))
    if asked.at is not None:
        related.append(Related(launch.path, asked.at[0], f"the job asks for {asked.number} here"))
    return RULE.finding(
        field.place.path, span(field), message, help=help, related=related, context=f"{launch.name}:{context}"
    )


_ACCELERATE = """# file: accelerate/fsdp.yaml
distributed_type: FSDP
num_machines: 2
num_processes: {processes}
# file: train.sh
#!/bin/bash
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=1
#SBATCH --gres=gpu:2
accelerate launch --config_file accelerate/fsdp.yaml {options}train.py
"""

INCORRECT = (
    """# file: train.slurm
#!/bin/bash
#SBATCH --nodes=2
#SBATCH --gpus-per-node=4
GPUS=8
srun torchrun \\
    --nnodes 4 \\  # error: MP706
    --nproc_per_node $GPUS \\  # error: MP706
    -m demo.train
""",
    """# file: train.sh
#!/bin/bash
#SBATCH -N 2
#SBATCH --ntasks-per-node=8
#SBATCH --gres=gpu:h100:8
srun bash -c "torchrun --nnodes $SLURM_NNODES --nproc_per_node 8 train.py"  # error: MP706
torchrun --nproc_per_node 4 train.py  # error: MP706
""",
    """# file: train.sh
export CUDA_VISIBLE_DEVICES=0,1
accelerate launch --num_machines=1 --num_processes=4 \\  # error: MP706
    train.py
CUDA_VISIBLE_DEVICES=2,3,4 torchrun --nproc_per_node 4 train.py  # error: MP706
""",
    # the file of Accelerate counts the processes of all nodes
    _ACCELERATE.format(processes="2  # error: MP706", options=""),
    _ACCELERATE.format(processes=4, options="--num_processes 8 ").replace("train.py", "train.py  # error: MP706"),
    # a device by its number among all
    """# file: train.sh
CUDA_VISIBLE_DEVICES=3,4,5 torchrun --nproc_per_node 2 train.py --vllm_device "cuda:5"  # error: MP706
""",
    # the file of Accelerate says how many processes there are, the script how many devices
    """# file: accelerate/fsdp.yaml
distributed_type: FSDP
gpu_ids: all
num_machines: 1
num_processes: 4  # error: MP706
# file: train.sh
#!/bin/bash
CUDA_VISIBLE_DEVICES=0,1 accelerate launch --config_file accelerate/fsdp.yaml train.py
""",
)

CORRECT = (
    """# file: train.sh
export CUDA_VISIBLE_DEVICES=0,1
accelerate launch --num_machines=1 --num_processes=2 train.py
CUDA_VISIBLE_DEVICES=0,1,2,3 torchrun --nproc_per_node 4 train.py
CUDA_VISIBLE_DEVICES=$DEVICES torchrun --nproc_per_node 4 train.py
CUDA_VISIBLE_DEVICES= torchrun --nproc_per_node 4 train.py
accelerate launch --num_processes=4 --gpu_ids all train.py
torchrun --nnodes 2 --nproc_per_node 4 train.py
export CUDA_VISIBLE_DEVICES=$(seq -s, 0 7)
torchrun --nproc_per_node 4 train.py
""",
    """# file: train.slurm
#!/bin/bash
#SBATCH --ntasks=4
#SBATCH --nodes=4
#SBATCH --gpus-per-task=8
srun torchrun --nnodes 4 --nproc_per_node 8 --rdzv_id 101 -m demo.train
srun --nodes=1 --ntasks=1 torchrun --nnodes 1 --nproc_per_node 8 -m demo.evaluate
torchrun --nproc_per_node $GPUS train.py
""",
    """# file: train.sh
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=8
#SBATCH --gpus-per-node=8
srun python train.py --nproc_per_node 16
srun --ntasks-per-node=1 torchrun --nnodes=$SLURM_JOB_NUM_NODES --nproc_per_node=$SLURM_GPUS_PER_NODE train.py
for node in $nodes; do
    torchrun --nnodes 2 --nproc_per_node 8 train.py &
done
""",
    _ACCELERATE.format(processes=4, options=""),
    _ACCELERATE.format(processes=2, options="--num_processes 4 "),
    # how many nodes there are is said nowhere
    _ACCELERATE.format(processes=4, options="").replace("num_machines: 2", "mixed_precision: bf16"),
    """# file: train.sh
CUDA_VISIBLE_DEVICES=3,4,5 torchrun --nproc_per_node 2 train.py --vllm_device cuda:2 --device=cuda:0
torchrun --nproc_per_node 2 train.py --vllm_device cuda:7
""",
    # as many as it sees, and other devices than those
    """# file: accelerate/fsdp.yaml
num_machines: 1
num_processes: 2
# file: accelerate/chosen.yaml
gpu_ids: 4,5,6,7
num_machines: 1
num_processes: 4
# file: train.sh
#!/bin/bash
CUDA_VISIBLE_DEVICES=0,1 accelerate launch --config_file accelerate/fsdp.yaml train.py
CUDA_VISIBLE_DEVICES=0,1 accelerate launch --config_file accelerate/chosen.yaml train.py
""",
    # several processes are started where several devices are seen
    """# file: train.sh
export CUDA_VISIBLE_DEVICES=0
if [[ $CUDA_VISIBLE_DEVICES != *","* ]]; then
    python train.py
else
    torchrun --nproc_per_node 2 train.py
fi
""",
)
