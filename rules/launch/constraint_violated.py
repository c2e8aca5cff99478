"""Sizes in a launch script or a configuration file that cannot work together.

What it does
    Reads what a launch script (with the launcher's processes and nodes, the program's options, the configuration
    files that it names), a configuration file or a dictionary for `deepspeed.initialize` says of parallel sizes,
    batches and settings, adds the shape of a known model, and reports each constraint of the table that does not
    hold, with the nearest values that would do. A program of the project that no table lists is read too: its own
    options, or the keys of its configuration, mean what their names can only mean (`tp_size`, `global_batch_size`),
    and what the program refuses by a test of its own (`if batch % dp: raise`) is reported too. What is not known is
    never guessed.

Why is this bad
    The job fails after it was queued and the model was loaded, or trains something else than it says.

References
    rules/CONSTRAINTS.md: every constraint, with the place in a library that states it
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from rules.launch import _programs
from rules.launch._reading.common import TOKENS, starts_or_configures
from validator.finding import Finding, Related
from validator.project import Project
from validator.rule import Rule

if TYPE_CHECKING:
    from rules.constraints import Constraint, Proposal, Violation
    from rules.launch._reading.configuration import Configuration, Said
    from rules.launch._reading.own_checks import Refusal

RULE = Rule(
    "MP705", "constraint-violated", "error", "0.1.0", (*TOKENS, "parallel", "zero_optimization", "fsdp_config"),
    ("shell", "python", "json", "yaml", "toml"),
)  # fmt: skip


def check_project(project: Project) -> Iterator[Finding]:
    if not starts_or_configures(project):
        return
    from rules.constraints import check, explain
    from rules.launch._reading.own_checks import refusals
    from rules.launch._reading.quantities import configurations

    defaults: set[tuple[str, str]] = set()
    for configuration in configurations(project):
        quantities = configuration.quantities()
        reported = set()
        for violation in check(quantities, propose=False).violations:
            if (place := _place(violation.constraint, configuration)) is not None:
                reported.add(place.flag)
                yield _report(explain(violation, quantities), configuration, place)
        for refusal in refusals(project, configuration):
            place = next((said for said in refusal.said if said.span is not None), None)
            if place is None:  # two values of a file of defaults, once for all launches that leave them
                place = next((each for said in refusal.said if (each := said.in_file()).span is not None), None)
                if place is None or (place.path, place.flag) in defaults:
                    continue
                defaults.add((place.path, place.flag))
            if place.flag not in reported:
                reported.add(place.flag)
                yield _report_refusal(refusal, configuration, place)


def about_line(project: Project, path: str, line: int) -> Iterator[str]:
    """What `--why` tells of a line beside its findings."""
    from rules.launch._reading import about as _about

    yield from _about.about_line(project, path, line)


def _concerned(constraint: Constraint) -> list[str]:
    """The quantities that a constraint is about, those that one would change first."""
    names = [*constraint.adjust, *constraint.needs, *(condition.quantity for condition in constraint.when)]
    return list(dict.fromkeys(names))


def _place(constraint: Constraint, configuration: Configuration) -> Said | None:
    """What in the file says it; None where all of it is a default."""
    said = (configuration.said.get(name) for name in _concerned(constraint))
    return next((each for each in said if each is not None and each.span is not None), None)


def _report(violation: Violation, configuration: Configuration, place: Said) -> Finding:
    constraint = violation.constraint
    assert place.span is not None
    others = [configuration.said[name] for name in _concerned(constraint) if name in configuration.said]
    related = [*place.related]
    for other in others:
        if other.span is not None and other.flag != place.flag:
            related.append(Related(other.path, other.span[0], f"`{other.flag}` is {other.value}"))
    return RULE.finding(
        place.path,
        place.span,
        f"`{configuration.name}`: {violation.message} ({constraint.id})",
        help=_help(violation, configuration),
        related=list(dict.fromkeys(related))[:6],
        context=constraint.id,
        severity=constraint.severity,
    )


def _report_refusal(refusal: Refusal, configuration: Configuration, place: Said) -> Finding:
    check = refusal.check
    assert place.span is not None
    others = [said for said in refusal.said if said.span is not None and said is not place]
    where = f"`{check.function.name}` requires this"
    return RULE.finding(
        place.path,
        place.span,
        f"`{configuration.name}` refuses this: `{check.left}` ({refusal.left}) is no multiple of `{check.right}`"
        f" ({refusal.right})",
        help=_multiples(refusal, place),
        related=[
            *place.related,
            Related(check.function.path, check.node.lineno, where),
            *(Related(said.path, said.span[0], f"`{said.flag}` is {said.value}") for said in others if said.span),
        ],
        context=f"own-check:{check.left}:{check.right}",
    )


def _multiples(refusal: Refusal, place: Said) -> str:
    """The nearest multiples, where the left side is one option."""
    below = refusal.left // refusal.right * refusal.right
    near = [value for value in (below, below + refusal.right) if value > 0]
    alone = place.value == refusal.left and len(refusal.check.left.over) == 1 and not refusal.check.left.under
    return f"set `{place.flag}` to {' or '.join(map(str, near))}" if alone else f"change `{place.flag}`"


def _help(violation: Violation, configuration: Configuration) -> str:
    parts = [part for each in violation.proposals if (part := _change(each, configuration))]
    return "; or ".join(parts) or "change one of the sizes"


def _change(proposal: Proposal, configuration: Configuration) -> str:
    said = configuration.said.get(proposal.quantity)
    if said is None or not said.flag:
        return ""
    if said.switch:
        return f"pass `{said.flag}`" if said.span is None else f"drop `{said.flag}`"
    return f"set `{said.flag}` to {' or '.join(map(str, proposal.values))}"


INCORRECT = (
    """# file: train.sh
set -x
read -r -d '' training_commands <<EOF
openrlhf.cli.train_sft \\
   --train_batch_size 256 \\
   --micro_train_batch_size 2 \\
   --pretrain meta-llama/Meta-Llama-3-8B \\
   --zero_stage 2 \\
   --bf16 \\
   --flash_attn \\
   --ring_attn_size 2  # error: MP705
EOF
deepspeed --num_gpus 8 --module $training_commands
""",
    """# file: rollout.sh
python3 -m verl.trainer.main_ppo \\
    actor_rollout_ref.model.path=Qwen/Qwen2.5-7B \\
    actor_rollout_ref.rollout.gpu_memory_utilization=85  # error: MP705
""",
    """# file: train.sh
TP_SIZE=${TP_SIZE:-3}
torchrun --nproc_per_node=8 -m openrlhf.cli.train_sft \\
    --backend fsdp2 --pretrain meta-llama/Meta-Llama-3-8B \\
    --train_batch_size 128 --micro_train_batch_size 2 \\
    --fsdp_tensor_parallel_size $TP_SIZE  # error: MP705, MP705, MP705, MP705
""",
    """# file: ds_config.json
{
  "train_batch_size": "auto",
  "zero_optimization": {
    "stage": 4  # error: MP705
  }
}
""",
    """# file: train.py
import argparse

import deepspeed

parser = argparse.ArgumentParser()
parser.add_argument("--ds_config", default="ds.json")
print(deepspeed.initialize(config=parser.parse_args().ds_config))
# file: ds.json
{
  "train_batch_size": 100,  # error: MP705
  "train_micro_batch_size_per_gpu": 4
}
# file: alone.json
{
  "train_batch_size": 100,  # error: MP705
  "train_micro_batch_size_per_gpu": 4,
  "gradient_accumulation_steps": 3,
  "fp16": {"enabled": true},  # error: MP705
  "bf16": {"enabled": true},
  "zero_optimization": {"stage": 2}
}
# file: run.sh
deepspeed --num_gpus 8 train.py
""",
    """# file: train.py
import deepspeed

CONFIG = {
    "train_batch_size": 100,  # error: MP705
    "train_micro_batch_size_per_gpu": 4,
    "gradient_accumulation_steps": 3,
}
print(CONFIG["train_batch_size"])


def engines(model):
    both = {"enabled": True}
    return deepspeed.initialize(model=model, config=CONFIG), deepspeed.initialize(
        model=model,
        config_params={
            "zero_optimization": {"stage": 4},  # error: MP705
            "fp16": both,
        },
    )
""",
    _programs.OWN
    + """# file: run.sh
torchrun --nnodes 2 --nproc_per_node 8 -m mine.train --model_name_or_path Qwen/Qwen2.5-7B \\
    --cp_size 2 --train_batch_size 100 --micro_batch_size 4  # error: MP705
torchrun --nproc_per_node 8 mine/train.py --model_name_or_path Qwen/Qwen2.5-7B \\
    --tp_size 3  # error: MP705, MP705
""",
    _programs.HYDRA
    + """# file: run.sh
python3 -m rl.main \\
    actor.ulysses_size=8 \\  # error: MP705
    rollout.tensor_parallel_size=3  # error: MP705, MP705
uv run --extra vllm -m rl.main trainer.nnodes=2 \\
    actor.ppo_mini_batch_size=250  # error: MP705
""",
    _programs.FILE
    + """# file: conf.toml
[model]
n_heads = 32

[parallel]
tp = 3  # error: MP705, MP705
""",
    _programs.LAYOUT
    + """# file: run.sh
torchrun --nnodes 2 --nproc_per_node 8 -m lay.train --cp_size 4 --micro_train_batch_size 2 \\
    --train_batch_size 60  # error: MP705
""",
    _programs.LOOP
    + """# file: run.sh
python -m rl.main data.train_batch_size=512 \\
    actor.mini_batch_size=120 \\  # error: MP705
    critic.mini_batch_size=128
""",
    _programs.SECTIONS
    + """# file: conf.toml
[parallel]
context = 2
tensor = 2

[training]
local_batch_size = 4
global_batch_size = 100  # error: MP705
""",
    """# file: train.py
import argparse

def validate(args, world_size):
    for name in ("num_heads", "num_kv_heads"):
        if getattr(args, name) % args.tp:
            raise ValueError(f"{name} must be divisible by tp")

def main():
    parser = argparse.ArgumentParser()
    for name in ("--num-heads", "--num-kv-heads", "--tp"):
        parser.add_argument(name, type=int, default=8)
    args = parser.parse_args()
    validate(args, 8)

if __name__ == "__main__":
    main()
# file: run.sh
torchrun --nproc_per_node 8 train.py --num-heads 32 --num-kv-heads 2 --tp 4  # error: MP705
""",
    _programs.READER
    + """# file: examples/configs/recipes/wide.yaml
defaults: ../small.yaml
policy:
  dtensor:
    tensor_parallel_size: 3  # error: MP705
# file: run.sh
uv run examples/train.py cluster.gpus_per_node=4
""",
    """# file: train.py
import hydra

@hydra.main(config_path="configs", config_name="base", version_base=None)
def main(cfg):
    if cfg.model.num_heads % cfg.model.num_kv_heads:
        raise ValueError("kv heads")

if __name__ == "__main__":
    main()
# file: configs/base.yaml
model:
  num_heads: 32  # error: MP705
  num_kv_heads: 12
# file: one.sh
torchrun --nproc_per_node 8 train.py
# file: two.sh
torchrun --nproc_per_node 4 train.py
""",
    # weights on one rank alone
    """\
# file: fsdp.yaml
compute_environment: LOCAL_MACHINE
distributed_type: FSDP
num_processes: 8
fsdp_config:
  fsdp_sync_module_states: false  # error: MP705
  cpu_ram_efficient_loading: true
""",
    # a file of Accelerate without its environment
    """\
# file: mesh.yaml
num_processes: 8  # error: MP705
distributed_type: FSDP
fsdp_config:
  fsdp_version: 2
parallelism_config:
  parallelism_config_tp_size: 3  # error: MP705
""",
)

CORRECT = (
    """# file: train.py
import deepspeed

from mine import fitted

CHANGED = {"train_batch_size": 100, "train_micro_batch_size_per_gpu": 4, "gradient_accumulation_steps": 3}
CHANGED["train_batch_size"] = 96
HANDED = {"train_batch_size": 100, "train_micro_batch_size_per_gpu": 4, "gradient_accumulation_steps": 3}
fitted(HANDED)


def engines(model, steps, config={"zero_optimization": {"stage": 4}}, **more):
    counted = {"train_batch_size": 100, "train_micro_batch_size_per_gpu": 3, "gradient_accumulation_steps": steps}
    unpacked = {"zero_optimization": {"stage": 4}, **more}
    for each in (CHANGED, HANDED, unpacked):
        print(each)
    return [
        deepspeed.initialize(model=model, config=CHANGED),
        deepspeed.initialize(model=model, config=HANDED),
        deepspeed.initialize(model=model, config=counted),
        deepspeed.initialize(model=model, config=unpacked),
        deepspeed.initialize(model=model, config=config),
    ]
""",
    """# file: train.sh
torchrun --nproc_per_node=8 -m openrlhf.cli.train_sft \\
    --backend fsdp2 --pretrain meta-llama/Meta-Llama-3-8B \\
    --train_batch_size 128 --micro_train_batch_size 2 \\
    --fsdp_tensor_parallel_size 2 --ring_attn_size 2 --packing_samples
torchrun --nproc_per_node=$GPUS -m openrlhf.cli.train_sft --ring_attn_size $RING --train_batch_size 7
""",
    """# file: train.sh
ray job submit --address="http://127.0.0.1:8265" -- python3 -m openrlhf.cli.train_ppo_ray \\
    --actor_num_nodes 1 --actor_num_gpus_per_node 6 --ref_num_nodes 1 --ref_num_gpus_per_node 6 \\
    --vllm_num_engines 2 --vllm_tensor_parallel_size 1 \\
    --colocate_all_models --async_train \\
    --train_batch_size 192 --micro_train_batch_size 8 --rollout_batch_size 192 --n_samples_per_prompt 8
# file: ds_config.json
{"train_micro_batch_size_per_gpu": "auto", "zero_optimization": {"stage": 3}}
""",
    """# file: train.py
import argparse

import deepspeed

parser = argparse.ArgumentParser()
parser.add_argument("--ds_config", default="ds.json")
print(deepspeed.initialize(config=parser.parse_args().ds_config))
# file: ds.json
{
  "train_batch_size": 96, "train_micro_batch_size_per_gpu": 4, "gradient_accumulation_steps": 3,
  "fp16": {"enabled": "auto"}, "bf16": {"enabled": true}
}
# file: shape.json
{"train_batch_size": 100, "micro_batch_size": 3}
# file: run.sh
deepspeed --num_gpus 8 train.py
deepspeed --num_gpus $GPUS train.py --ds_config other.json
""",
    _programs.OWN
    + """# file: run.sh
torchrun --nnodes 2 --nproc_per_node 8 -m mine.train --model_name_or_path Qwen/Qwen2.5-7B \\
    --cp_size 2 --train_batch_size 96 --micro_batch_size 4
torchrun --nproc_per_node $GPUS -m mine.train --model_name_or_path $MODEL --tp_size 3 --train_batch_size 7
# file: mine/per_device.py
import argparse

parser = argparse.ArgumentParser()
parser.add_argument("--train_batch_size", type=int, help="of each device")
parser.add_argument("--sp_size", type=int, default=1)
parser.add_argument("--ref_tp_size", type=int, default=1)
print(parser.parse_args())
# file: other.sh
torchrun --nproc_per_node 8 -m mine.per_device --train_batch_size 7 --sp_size 3 --ref_tp_size 5
""",
    _programs.HYDRA
    + """# file: run.sh
python3 -m rl.main actor.ulysses_size=4 rollout.tensor_parallel_size=4 actor.ppo_mini_batch_size=250
python3 -m rl.main trainer.nnodes=$NODES actor.ppo_mini_batch_size=250
python3 -m rl.main actor.ulysses_size=$SP actor.model_path=$MODEL rollout.tensor_parallel_size=3
""",
    _programs.FILE
    + """# file: conf.toml
[model]
n_heads = 32
[parallel]
tp = 4
cp = -1
""",
    _programs.LAYOUT
    + """# file: run.sh
torchrun --nnodes 2 --nproc_per_node 8 -m lay.train --cp_size 4 --micro_train_batch_size 2 \\
    --train_batch_size 64 --eval_batch_size 7
torchrun --nnodes $NODES --nproc_per_node 8 -m lay.train --micro_train_batch_size 2 --train_batch_size 60
# file: lay/other.py
from lay.layout import Layout
from lay.train import build_parser

args = build_parser().parse_args()
print(Layout(8, 1, 1).micro_batches(args.eval_batch_size, args.micro_train_batch_size))
# file: other.sh
torchrun --nproc_per_node 8 -m lay.other --train_batch_size 60 --eval_batch_size 60 --micro_train_batch_size $MICRO
""",
    _programs.LOOP
    + """# file: run.sh
python -m rl.main data.train_batch_size=512 actor.mini_batch_size=128 actor.micro_batch_size=5
python -m rl.main data.train_batch_size=$BATCH actor.mini_batch_size=120
python -m rl.main critic.micro_batch_size=120
""",
    _programs.SECTIONS
    + """# file: conf.toml
[parallel]
context = 2
tensor = 2

[training]
local_batch_size = 4
global_batch_size = 104
""",
    # what is left of another engine
    """\
# file: fsdp.yaml
compute_environment: LOCAL_MACHINE
distributed_type: FSDP
num_processes: 8
fsdp_config:
  fsdp_sync_module_states: false
# file: other.yaml
compute_environment: LOCAL_MACHINE
distributed_type: MULTI_GPU
num_processes: 8
fsdp_config:
  fsdp_sync_module_states: false
  fsdp_cpu_ram_efficient_loading: true
""",
)
