"""Launch scripts against the table: what passes, what is reported, and that what is proposed mends it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.rules.launch_scripts import SCRIPTS, checked, edited, identifier, mended, violations

ALL = ("MP701", "MP702", "MP703", "MP704", "MP705", "MP706", "MP709", "MP710")


@pytest.mark.parametrize("name", SCRIPTS)
def test_the_five_configurations_pass(name: str, tmp_path: Path) -> None:
    assert checked({"run.sh": SCRIPTS[name]}, ALL, tmp_path) == []


TP, RING, GPUS = "TP_SIZE:-2", "RING_SIZE:-2", "NUM_GPUS:-8"
BATCH, MICRO = "--train_batch_size 128", "--micro_train_batch_size 2"
MODEL, DTYPE = "meta-llama/Meta-Llama-3-8B", "--param_dtype bf16"
ATTENTION = "--attn_implementation flash_attention_2"
LENGTH, STAGE = "--max_len 2048", "--zero_stage 2"
MORE = "--learning_rate 5e-6 \\\n"

# (configuration, legal changes before, the one value that is wrong, constraint)
CORRUPTIONS: list[tuple[str, list[tuple[str, str]], tuple[str, str], str]] = [
    ("fsdp2-tp", [], (TP, "TP_SIZE:-3"), "world-divisible"),
    ("fsdp2-tp", [], (TP, "TP_SIZE:-5"), "world-divisible"),
    ("fsdp2-tp", [], (TP, "TP_SIZE:-16"), "dp-at-least-one"),
    ("fsdp2-tp", [], (TP, "TP_SIZE:-0"), "positive-tp"),
    ("fsdp2-tp", [], (TP, "TP_SIZE:-3"), "tp-heads"),
    ("fsdp2-tp", [], (TP, "TP_SIZE:-3"), "tp-kv-heads"),
    ("fsdp2-tp", [], (TP, "TP_SIZE:-3"), "tp-mlp-balance"),
    ("fsdp2-tp", [(GPUS, "NUM_GPUS:-16")], (TP, "TP_SIZE:-16"), "tp-kv-heads"),
    ("fsdp2-tp", [], (GPUS, "NUM_GPUS:-7"), "world-divisible"),
    ("fsdp2-tp", [], (GPUS, "NUM_GPUS:-1"), "dp-at-least-one"),
    ("fsdp2-tp", [], (GPUS, "NUM_GPUS:-6"), "train-batch-divisible"),
    ("fsdp2-tp", [], (BATCH, "--train_batch_size 100"), "train-batch-divisible"),
    ("fsdp2-tp", [], (MICRO, "--micro_train_batch_size 3"), "train-batch-divisible"),
    ("fsdp2-tp", [], (BATCH, "--train_batch_size 4"), "grad-accum-at-least-one"),
    ("fsdp2-tp", [], (f"${{MODEL:-\"{MODEL}\"}}", "google/gemma-3-1b-it"), "tp-kv-heads"),
    ("fsdp2-ring", [], (RING, "RING_SIZE:-3"), "world-divisible"),
    ("fsdp2-ring", [], (RING, "RING_SIZE:-16"), "dp-at-least-one"),
    ("fsdp2-ring", [], (RING, "RING_SIZE:-0"), "positive-ring"),
    ("fsdp2-ring", [], ("   --packing_samples \\\n", ""), "ring-needs-packing"),
    ("fsdp2-ring", [], (ATTENTION, "--attn_implementation sdpa"), "ring-needs-flash-attention"),
    ("fsdp2-ring", [], (ATTENTION, "--attn_implementation eager"), "packing-attention"),
    ("fsdp2-ring", [], (DTYPE, "--param_dtype fp32"), "ring-dtype"),
    ("fsdp2-ring", [], (MORE, f"{MORE} --ring_head_stride 3 \\\n"), "ring-head-stride"),
    ("fsdp2-ring", [(GPUS, "NUM_GPUS:-16")], (BATCH, "--train_batch_size 8"), "grad-accum-at-least-one"),
    ("fsdp2-tp-ring", [], (RING, "RING_SIZE:-8"), "dp-at-least-one"),
    ("fsdp2-tp-ring", [], (TP, "TP_SIZE:-8"), "dp-at-least-one"),
    ("fsdp2-tp-ring", [], (RING, "RING_SIZE:-3"), "world-divisible"),
    ("fsdp2-tp-ring", [], (GPUS, "NUM_GPUS:-6"), "world-divisible"),
    ("fsdp2-tp-ring", [], (BATCH, "--train_batch_size 127"), "train-batch-divisible"),
    ("fsdp2-tp-ring", [], (MICRO, "--micro_train_batch_size 0"), "positive-micro-batch-size"),
    ("fsdp2", [], (BATCH, "--train_batch_size 8"), "grad-accum-at-least-one"),
    ("fsdp2", [], (BATCH, "--train_batch_size 0"), "positive-train-batch-size"),
    ("fsdp2", [], (MICRO, "--micro_train_batch_size 3"), "train-batch-divisible"),
    ("fsdp2", [], (MICRO, "--micro_train_batch_size 32"), "grad-accum-at-least-one"),
    ("fsdp2", [], (GPUS, "NUM_GPUS:-12"), "train-batch-divisible"),
    ("fsdp2", [], (LENGTH, "--max_len 16384"), "position-range"),
    ("fsdp2", [], (DTYPE, "--param_dtype fp32"), "flash-attention-dtype"),
    ("fsdp2", [], (MORE, f"{MORE} --deepcompile \\\n"), "deepcompile-backend"),
    ("deepspeed", [], (STAGE, "--zero_stage 4"), "zero-stage-range"),
    ("deepspeed", [], (BATCH, "--train_batch_size 120"), "train-batch-divisible"),
    ("deepspeed", [], (GPUS, "NUM_GPUS:-0"), "positive-world-size"),
    ("deepspeed", [], (MORE, f"{MORE} --ds_tensor_parallel_size 3 \\\n"), "world-divisible"),
    ("deepspeed", [], (MORE, f"{MORE} --zpg 3 \\\n"), "hpz-divides-world"),
    ("deepspeed", [], (MORE, f"{MORE} --zpg 2 \\\n"), "hpz-needs-zero-3"),
    ("deepspeed", [(MORE, f"{MORE} --deepcompile \\\n")], (STAGE, "--zero_stage 0"), "deepcompile-zero"),
    ("deepspeed", [(MORE, f"{MORE} --deepcompile \\\n")], (STAGE, "--zero_stage 3"), "deepcompile-flash-attention"),
    ("deepspeed", [(MORE, f"{MORE} --adam_offload \\\n")], (STAGE, "--zero_stage 0"), "offload-optimizer"),
    (
        "deepspeed", [(MORE, f"{MORE} --ds_tensor_parallel_size 2 \\\n")], (DTYPE, "--param_dtype fp16"),
        "deepspeed-tp-dtype",
    ),
    (
        "deepspeed", [(MORE, f"{MORE} --ds_tensor_parallel_size 2 \\\n")], (MORE.strip(), f"{MORE} --deepcompile \\"),
        "deepcompile-autotp",
    ),
    (
        "deepspeed", [(MORE, f"{MORE} --ring_attn_size 2 --packing_samples \\\n")], (" --packing_samples", ""),
        "ring-needs-packing",
    ),
]  # fmt: skip


def test_there_are_enough_corruptions() -> None:
    assert len(CORRUPTIONS) >= 40
    assert len({name for _, _, _, name in CORRUPTIONS}) >= 20


@pytest.mark.parametrize(("name", "legal", "wrong", "constraint"), CORRUPTIONS)
def test_one_wrong_value_is_reported_where_it_stands_and_mended_by_what_is_proposed(
    name: str, legal: list[tuple[str, str]], wrong: tuple[str, str], constraint: str, tmp_path: Path
) -> None:
    base = edited(SCRIPTS[name], *legal)
    assert violations(base, tmp_path) == {}
    script = edited(base, wrong)

    found = violations(script, tmp_path)

    assert constraint in found
    finding = found[constraint]
    line = script.split("\n")[finding.span.line - 1]
    shown = line[finding.span.column - 1 : finding.span.end_column - 1]
    assert shown, "a finding points at text"
    assert shown.lstrip().startswith("--") or "NUM_GPUS" in shown
    proposals = mended(script, finding)
    assert proposals, finding.help
    for proposal in proposals:
        left = violations(proposal, tmp_path)
        assert constraint not in left
        assert left.keys() <= found.keys()


GENERATIONS = {
    "underscored": """deepspeed --num_gpus 8 --module openrlhf.cli.train_sft \\
    --pretrain meta-llama/Meta-Llama-3-8B --bf16 --flash_attn --zero_stage 3 \\
    --train_batch_size 128 --micro_train_batch_size 2 --packing_samples \\
    --ring_attn_size SIZE --ring_head_stride 1
""",
    "two backends": """torchrun --nproc_per_node=8 -m openrlhf.cli.train_sft --backend fsdp2 \\
    --pretrain meta-llama/Meta-Llama-3-8B --param_dtype bf16 --attn_implementation flash_attention_2 \\
    --train_batch_size 128 --micro_train_batch_size 2 --packing_samples \\
    --ring_attn_size SIZE
""",
    "dotted": """deepspeed --include=localhost:0,1,2,3,4,5,6,7 --module openrlhf.cli.train_sft \\
    --model.model_name_or_path meta-llama/Meta-Llama-3-8B --ds.param_dtype bf16 --ds.zero_stage 3 \\
    --ds.attn_implementation flash_attention_2 --train.batch_size 128 --train.micro_batch_size 2 \\
    --ds.packing_samples --ds.ring_attn_size SIZE
""",
}


@pytest.mark.parametrize("text", GENERATIONS.values(), ids=GENERATIONS)
def test_each_generation_of_flags_is_understood(text: str, tmp_path: Path) -> None:
    assert violations(text.replace("SIZE", "2"), tmp_path) == {}
    found = violations(text.replace("SIZE", "3"), tmp_path)
    assert set(found) == {"world-divisible"}
    assert "ring_attn_size` to 2 or 4" in found["world-divisible"].help


PPO = """ray job submit --address="http://127.0.0.1:8265" \\
   --runtime-env-json='{"working_dir": "/openrlhf"}' \\
   -- python3 -m openrlhf.cli.train_ppo_ray \\
   --ref_num_nodes 1 --ref_num_gpus_per_node 8 --actor_num_nodes 1 --actor_num_gpus_per_node 8 \\
   --vllm_num_engines 4 --vllm_tensor_parallel_size 2 --colocate_all_models \\
   --pretrain meta-llama/Meta-Llama-3-8B --advantage_estimator reinforce_baseline --init_kl_coef 1e-3 \\
   --micro_train_batch_size 8 --train_batch_size 128 --micro_rollout_batch_size 16 --rollout_batch_size 128 \\
   --n_samples_per_prompt 8 --zero_stage 3 --bf16 --packing_samples
"""


@pytest.mark.parametrize(
    ("wrong", "constraint"),
    [
        (("--vllm_num_engines 4", "--vllm_num_engines 2"), "colocated-engines"),
        (("--ref_num_gpus_per_node 8", "--ref_num_gpus_per_node 4"), "colocated-reference"),
        (("--n_samples_per_prompt 8", "--n_samples_per_prompt 1"), "group-of-samples"),
        (("--rollout_batch_size 128", "--rollout_batch_size 9"), "rollout-train-steps"),
        (("--micro_rollout_batch_size 16", "--micro_rollout_batch_size 512"), "rollout-batches-per-rank"),
        (("--vllm_tensor_parallel_size 2", "--vllm_tensor_parallel_size 3"), "engine-heads"),
        (("--actor_num_gpus_per_node 8", "--actor_num_gpus_per_node 6"), "train-batch-divisible"),
    ],
)
def test_reinforcement_learning_with_ray(wrong: tuple[str, str], constraint: str, tmp_path: Path) -> None:
    assert violations(PPO, tmp_path) == {}
    assert constraint in violations(edited(PPO, wrong), tmp_path)


def test_asynchronous_training_colocates_no_engines(tmp_path: Path) -> None:
    text = edited(PPO, ("--vllm_num_engines 4", "--vllm_num_engines 2"))
    assert violations(text.replace("--colocate_all_models", "--colocate_all_models --async_train"), tmp_path) == {}


OTHERS = {
    "megatron": (
        """MODEL_ARGS=(--num-layers 36 --hidden-size 2560 --num-attention-heads 32 --group-query-attention
    --num-query-groups 8 --ffn-hidden-size 9728)
torchrun --nproc_per_node 8 --nnodes 2 pretrain_gpt.py ${MODEL_ARGS[@]} \\
    --tensor-model-parallel-size 4 --pipeline-model-parallel-size 2 --sequence-parallel \\
    --micro-batch-size 1 --global-batch-size 64 --bf16
""",
        [
            (("--tensor-model-parallel-size 4", "--tensor-model-parallel-size 3"), "world-divisible"),
            (("--pipeline-model-parallel-size 2", "--pipeline-model-parallel-size 8"), "dp-at-least-one"),
            (("--num-layers 36", "--num-layers 35"), "pipeline-layers"),
            (("--num-attention-heads 32", "--num-attention-heads 30"), "tp-heads"),
            (("--num-query-groups 8", "--num-query-groups 3"), "tp-kv-heads-repeated"),
            (("--global-batch-size 64", "--global-batch-size 63"), "train-batch-divisible"),
            (("--hidden-size 2560", "--hidden-size 2570"), "hidden-heads"),
        ],
    ),
    "megatron-experts": (
        """torchrun --nproc_per_node 8 --nnodes 2 pretrain_gpt.py --num-layers 32 --hidden-size 4096 \\
    --num-attention-heads 32 --kv-channels 100 --num-experts 8 --expert-model-parallel-size 4 --sequence-parallel \\
    --tensor-model-parallel-size 2 --pipeline-model-parallel-size 4 --num-virtual-stages-per-pipeline-rank 2 \\
    --micro-batch-size 1 --global-batch-size 64 --bf16
""",
        [
            ((" --sequence-parallel", ""), "experts-sequence-parallel"),
            (("--expert-model-parallel-size 4", "--expert-model-parallel-size 3"), "experts-divisible"),
            (("--global-batch-size 64", "--global-batch-size 60"), "virtual-pipeline-microbatches"),
        ],
    ),
    "verl": (
        """python3 -m verl.trainer.main_ppo actor_rollout_ref.actor.strategy=fsdp \\
    actor_rollout_ref.model.path=Qwen/Qwen2-7B-Instruct data.train_batch_size=1024 \\
    actor_rollout_ref.actor.ppo_mini_batch_size=256 actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu=16 \\
    actor_rollout_ref.rollout.n=5 actor_rollout_ref.rollout.tensor_model_parallel_size=2 \\
    actor_rollout_ref.actor.use_dynamic_bsz=False actor_rollout_ref.actor.ulysses_sequence_parallel_size=2 \\
    trainer.n_gpus_per_node=8 trainer.nnodes=1 actor_rollout_ref.model.use_remove_padding=True
""",
        [
            (("tensor_model_parallel_size=2", "tensor_model_parallel_size=3"), "engine-world"),
            (("sequence_parallel_size=2", "sequence_parallel_size=8"), "ulysses-heads"),
            (("size_per_gpu=16", "size_per_gpu=24"), "mini-batch-divisible"),
            (("use_remove_padding=True", "use_remove_padding=False"), "ulysses-needs-packing"),
            (("data.train_batch_size=1024", "data.train_batch_size=1023"), "rollout-divisible"),
        ],
    ),
    "torchtitan": (
        """torchrun --nnodes 4 --nproc_per_node 8 -m torchtitan.train --job.config_file ./configs/llama3_70b.toml \\
    --parallelism.tensor_parallel_degree 8 --parallelism.pipeline_parallel_degree 2
""",
        [
            (("tensor_parallel_degree 8", "tensor_parallel_degree 6"), "world-divisible"),
            (("--nproc_per_node 8", "--nproc_per_node 3"), "tp-within-node"),
        ],
    ),
}  # fmt: skip


@pytest.mark.parametrize(
    ("text", "wrong", "constraint"),
    [pytest.param(text, *case, id=f"{name}-{case[1]}") for name, (text, cases) in OTHERS.items() for case in cases],
)
def test_other_frameworks(text: str, wrong: tuple[str, str], constraint: str, tmp_path: Path) -> None:
    assert violations(text, tmp_path) == {}
    assert constraint in violations(edited(text, wrong), tmp_path)


TRL = """accelerate launch --num_processes 8 grpo.py --model_name_or_path Qwen/Qwen2.5-7B --num_generations 8 \\
    --per_device_train_batch_size 8 --use_vllm --top_p 1.0 --vllm_importance_sampling_correction True
"""
RATIO = [
    (
        PPO.replace("--bf16", "--bf16 --top_p 1.0 --enable_vllm_is_correction"),
        "--top_p 1.0",
        "--top_p 0.9",
        "ratio-top-p",
    ),
    (PPO.replace("--bf16", "--param_dtype bf16"), "--param_dtype bf16", "--param_dtype fp16", "engine-dtype"),
    (TRL, "--top_p 1.0", "--top_p 0.95", "ratio-top-p"),
    (TRL, "--top_p 1.0", "--top_k 50", "ratio-top-k"),
    (TRL, "--top_p 1.0", "--min_p 0.1", "ratio-min-p"),
]
SLIME = """ray job submit -- python3 train.py --actor-num-nodes 1 --actor-num-gpus-per-node 8 --rollout-batch-size 32 \\
    --tensor-model-parallel-size 2 --n-samples-per-prompt 8 --global-batch-size 256 --use-tis --rollout-top-p 1 \\
    --rollout-top-k -1
"""
RATIO += [
    (SLIME, "top-p 1", "top-p 0.9", "ratio-top-p"), (SLIME, "top-k -1", "top-k 20", "ratio-top-k"),
    (SLIME.replace("tis", "rollout-logprobs"), "top-p 1", "top-p 0.9", "ratio-top-p"),
]  # fmt: skip
VERL_RATIO = """python3 -m verl.trainer.main_ppo actor_rollout_ref.model.path=Qwen/Qwen2-7B-Instruct \\
    algorithm.rollout_correction.rollout_is=token actor_rollout_ref.rollout.calculate_log_probs=True \\
    actor_rollout_ref.rollout.temperature=0.6 actor_rollout_ref.rollout.logprobs_mode=processed_logprobs \\
    actor_rollout_ref.rollout.top_k=-1 actor_rollout_ref.rollout.top_p=1 actor_rollout_ref.rollout.dtype=bfloat16
"""
RATIO += [
    (VERL_RATIO, *change)
    for change in (
        ("top_p=1", "top_p=0.7", "ratio-top-p"), ("top_k=-1", "top_k=20", "ratio-top-k"),
        ("mode=processed", "mode=raw", "ratio-temperature"), ("dtype=bfloat16", "dtype=float16", "engine-dtype"),
        ("log_probs=True", "log_probs=False", "ratio-needs-logprobs"),
        ("actor_rollout_ref.rollout.calculate_log_probs=True", "", "ratio-needs-logprobs"),
    )
]  # fmt: skip


@pytest.mark.parametrize(("text", "right", "wrong", "constraint"), RATIO)
def test_settings_that_part_the_probabilities_of_trainer_and_engine(
    text: str, right: str, wrong: str, constraint: str, tmp_path: Path
) -> None:
    assert violations(text, tmp_path) == {}
    assert set(violations(edited(text, (right, wrong)), tmp_path)) == {constraint}


def test_without_a_ratio_to_the_engine_its_sampling_is_nobodys_business(tmp_path: Path) -> None:
    for text, ratio, none in (
        (TRL, "correction True", "correction False"), (TRL, "--use_vllm ", ""), (SLIME, "--use-tis", ""),
        (VERL_RATIO, "rollout_is=token", "rollout_is=null"), (VERL_RATIO, "rollout_is=token", "bypass_mode=False"),
    ):  # fmt: skip
        cut = (
            text.replace("top_p 1.0", "top_p 0.9")
            .replace("top-p 1", "top-p 0.9")
            .replace("top_p=1", "top_p=0.9")
            .replace("mode=processed", "mode=raw")
        )
        assert violations(cut, tmp_path) != {}
        assert violations(cut.replace(ratio, none), tmp_path) == {}
    elsewhere = VERL_RATIO.replace("actor_rollout_ref.rollout.calculate_log_probs=True", "--config-name mine")
    assert violations(elsewhere, tmp_path) == {}


@pytest.mark.parametrize(("tp", "fits"), [(4, True), (3, False)])
def test_what_the_programs_file_says_beats_the_programs_default(tp: int, fits: bool, tmp_path: Path) -> None:
    files = {
        "run.sh": "torchrun --nproc_per_node=8 -m torchtitan.train --job.config_file cfg.toml\n",
        "cfg.toml": f"[parallelism]\ndata_parallel_shard_degree = 2\ntensor_parallel_degree = {tp}\n",
    }
    assert (checked(files, ("MP705",), tmp_path) == []) == fits


def test_configuration_files_that_a_command_names_are_read(tmp_path: Path) -> None:
    files = {
        "run.sh": "torchrun --nproc_per_node 8 sft.py --per_device_train_batch_size 4 "
        "--gradient_accumulation_steps 2 --deepspeed configs/zero.json\n",
        "configs/zero.json": '{\n\t"train_batch_size": 60,\n\t"zero_optimization": {"stage": 3}\n}\n',
        "configs/auto.json": '{"train_batch_size": "auto", "zero_optimization": {"stage": 2}}',
        "launch.sh": "accelerate launch --config_file configs/tp.yaml train.py\n",
        "configs/tp.yaml": "compute_environment: LOCAL_MACHINE\nnum_processes: 8\nparallelism_config:\n"
        "  parallelism_config_tp_size: 3\n  parallelism_config_dp_shard_size: 2\n",
        "configs/ulysses.yaml": "compute_environment: LOCAL_MACHINE\ndistributed_type: FSDP\nnum_processes: 8\n"
        "fsdp_config:\n  fsdp_version: 2\nparallelism_config:\n  parallelism_config_sp_size: 2\n"
        "  parallelism_config_dp_shard_size: 4\n",
        "titan.toml": "[training]\nlocal_batch_size = 2\n[parallelism]\ntensor_parallel_degree = 0\n",
    }
    found = {(f.path, f.span.line, identifier(f)) for f in checked(files, ("MP705",), tmp_path)}
    assert ("configs/zero.json", 2, "grad-accum-product") in found
    assert ("configs/tp.yaml", 5, "replicate-shard-product") in found
    assert ("configs/ulysses.yaml", 2, "ulysses-engine") in found
    assert ("titan.toml", 4, "positive-tp") in found
    assert not any(path == "configs/auto.json" for path, _, _ in found)


PROGRAM = """import argparse
parser = argparse.ArgumentParser()
parser.add_argument("--pretrain", required=True)
parser.add_argument("--train_batch_size", type=int)
parser.add_argument("--backend", choices=["deepspeed", "fsdp2"])
parser.add_argument("--ds.tensor_parallel_size", type=int)
parser.parse_args()
"""
WRONG = "--trian_batch_size 8 --backend zero --ds.tensor_parallel_size two --ds.tensor_parallel_size 2"
LAUNCHERS = {
    "torchrun": "torchrun --nproc_per_node 8 -m demo.train {}",
    "run": "python -m torch.distributed.run --nproc_per_node=8 -m demo.train {}",
    "launch": "python3 -m torch.distributed.launch --nproc_per_node 8 demo/train.py {}",
    "deepspeed": "deepspeed --include localhost:0,1 --module demo.train {}",
    "hostfile": "deepspeed --hostfile hosts demo/train.py {}",
    "accelerate": "accelerate launch --num_processes 8 -m demo.train {}",
    "slurm": "#SBATCH --nodes=2\nsrun --ntasks-per-node 1 torchrun --nnodes 2 --nproc_per_node 8 -m demo.train {}",
    "ray": "ray job submit --address http://head:8265 -- python3 -m demo.train {}",
    "heredoc": "read -r -d '' what <<EOT\ndemo.train \\\n    {}\nEOT\ntorchrun --nproc_per_node 8 -m ${{what}}",
    "array": 'ARGS=({})\ntorchrun --nproc_per_node $((4 * 2)) -m demo.train "${{ARGS[@]}}"',
    "function": "run() {{\n  torchrun --nproc_per_node $1 -m demo.train ${{@:2}}\n}}\nrun 8 {}",
    "loop": "for part in '{}'; do torchrun --nproc_per_node 8 -m demo.train $part; done",
    "default": "ARGS=${{ARGS:-{}}}\ntorchrun --nproc_per_node ${{N:-8}} -m demo.train $ARGS",
}


@pytest.mark.parametrize("launcher", LAUNCHERS)
def test_every_launcher_leads_to_the_options_of_its_program(launcher: str, tmp_path: Path) -> None:
    program = {"demo/__init__.py": "", "demo/train.py": PROGRAM}
    right = LAUNCHERS[launcher].format("--pretrain x --train_batch_size 8")
    assert checked({**program, "run.sh": f"{right}\n"}, ("MP701", "MP702", "MP703", "MP704"), tmp_path) == []
    wrong = LAUNCHERS[launcher].format(WRONG)
    found = checked({**program, "run.sh": f"{wrong}\n"}, ("MP701", "MP702", "MP703", "MP704"), tmp_path)
    assert [f.code for f in sorted(found, key=lambda f: f.code)] == ["MP701", "MP702", "MP702", "MP703", "MP704"]
    assert any("--train_batch_size" in (f.help or "") for f in found if f.code == "MP701")


def test_what_is_not_set_is_a_note_and_no_finding(tmp_path: Path) -> None:
    script = SCRIPTS["fsdp2-tp"].replace('${MODEL:-"meta-llama/Meta-Llama-3-8B"}', "$1")
    found = checked({"run.sh": script}, ("MP705", "MP710"), tmp_path)
    assert [(f.code, f.severity) for f in found] == [("MP710", "note")]
    assert "`$1` is not given" in found[0].message
    assert "tp-heads" in found[0].message


def test_a_value_set_elsewhere_is_shown_beside_the_flag(tmp_path: Path) -> None:
    script = edited(SCRIPTS["fsdp2-ring"], (RING, "RING_SIZE:-3"))
    finding = violations(script, tmp_path)["world-divisible"]
    lines = script.split("\n")
    assert "--ring_attn_size" in lines[finding.span.line - 1]
    assert any("RING_SIZE:-3" in lines[each.line - 1] for each in finding.related)


def test_suppressions_stand_above_a_command(tmp_path: Path) -> None:
    script = "{}\n--bf16 \\\n  --more\n"
    plain = checked({"run.sh": script.format("# wanted")}, ("MP709",), tmp_path)
    assert [f.span.line for f in plain] == [2]
    assert checked({"run.sh": script.format("# validator: ignore[MP709] wanted")}, ("MP709",), tmp_path) == []
