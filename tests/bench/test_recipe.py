"""`bench plan --recipe`: launch commands as people have posted them, and what their jobs take."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path

import pytest

from bench.cli import main as bench
from bench.predict.layout import Layout
from bench.predict.memory import estimate
from bench.predict.moments import CONSTANTS
from bench.rlhf import command, frameworks
from bench.rlhf.job import ASLEEP, Engine, Job, Part, moments, problems
from rules.models import resolve

FACTS = resolve("qwen2.5-7b")
SPLIT = Layout(backend="deepspeed", zero_stage=3, dp=8, checkpointing=True, seq_len=2048)

OPENRLHF = r"""
set -x
PRETRAIN="Qwen/Qwen2.5-7B-Instruct"
export LENGTH=1024   # of prompts
# --zero_stage 0
ray job submit --address="http://127.0.0.1:8265" \
   -- python3 -m openrlhf.cli.train_ppo_ray \
   --ref_num_nodes 1 --ref_num_gpus_per_node 8 \
   # a comment within
   --actor_num_nodes 1 --actor_num_gpus_per_node 8 --critic_num_gpus_per_node 8 --reward_num_gpus_per_node 8 \
   --vllm_num_engines 4 --vllm_tensor_parallel_size 2 --vllm_gpu_memory_utilization 0.5 {more} \
   --pretrain $PRETRAIN --reward_pretrain ${{REWARD:-Qwen/Qwen2.5-7B}} --prompt_max_len $LENGTH \
   --generate_max_len 1024 --zero_stage 3 --bf16 --adam_offload --gradient_checkpointing \
   --micro_train_batch_size=1 --micro_rollout_batch_size 2
"""
VERL = r"""
python3 -m verl.trainer.main_ppo algorithm.adv_estimator=grpo data.max_prompt_length=512 \
    data.max_response_length=512 actor_rollout_ref.model.path=Qwen/Qwen2.5-14B \
    actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu=16 actor_rollout_ref.actor.use_dynamic_bsz=True \
    actor_rollout_ref.actor.ppo_max_token_len_per_gpu=24000 actor_rollout_ref.actor.use_kl_loss=True \
    actor_rollout_ref.actor.fsdp_config.param_offload=False \
    actor_rollout_ref.rollout.tensor_model_parallel_size=8 \
    actor_rollout_ref.rollout.gpu_memory_utilization=0.6 trainer.n_gpus_per_node=8 trainer.nnodes=1
"""


def plan(text: str, tmp_path: Path, *flags: str) -> tuple[int, str]:
    (tmp_path / "job.sh").write_text(text)
    return bench(["plan", "--recipe", str(tmp_path / "job.sh"), *flags]), str(tmp_path)


def data(text: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], *flags: str) -> dict[str, object]:
    plan(text, tmp_path, "--format", "json", *flags)
    return json.loads(capsys.readouterr().out)  # type: ignore[no-any-return]


def test_a_script_is_read_with_its_variables() -> None:
    read = command.read(OPENRLHF.format(more="--vllm_enable_sleep"), frameworks.starts)
    assert (read.text("pretrain"), read.text("reward_pretrain")) == ("Qwen/Qwen2.5-7B-Instruct", "Qwen/Qwen2.5-7B")
    assert (read.number("prompt_max_len", 0), read.number("zero_stage", 0)) == (1024, 3)
    assert (read.on("vllm_enable_sleep"), read.on("bf16"), read.on("packing_samples")) == (True, True, False)
    assert read.number("micro_train_batch_size", 0) == 1


DOTTED = {
    "pretrain": "actor.model_name_or_path", "reward_pretrain": "reward.model_name_or_path",
    "ref_num_nodes": "ref.num_nodes", "ref_num_gpus_per_node": "ref.num_gpus_per_node",
    "actor_num_nodes": "actor.num_nodes", "actor_num_gpus_per_node": "actor.num_gpus_per_node",
    "critic_num_gpus_per_node": "critic.num_gpus_per_node", "reward_num_gpus_per_node": "reward.num_gpus_per_node",
    "vllm_num_engines": "vllm.num_engines", "vllm_tensor_parallel_size": "vllm.tensor_parallel_size",
    "vllm_gpu_memory_utilization": "vllm.gpu_memory_utilization", "vllm_enable_sleep": "vllm.enable_sleep",
    "zero_stage": "ds.zero_stage", "adam_offload": "ds.adam_offload", "colocate_all_models": "train.colocate_all",
    "gradient_checkpointing": "actor.gradient_checkpointing_enable", "deepspeed_enable_sleep": "ds.enable_sleep",
    "micro_train_batch_size": "train.micro_batch_size", "micro_rollout_batch_size": "rollout.micro_batch_size",
    "ref_reward_offload": "ref.offload", "n_samples_per_prompt": "rollout.n_samples_per_prompt",
    "advantage_estimator": "algo.advantage.estimator",
}  # fmt: skip
"""Names of before 0.10.2 and after, from the parsers of both."""


def dotted(text: str) -> str:
    """The same script in the newer style, where the length is one number."""
    text = re.sub(r"--prompt_max_len \S+|--bf16", "", text).replace("--generate_max_len 1024", "--data.max_len 2048")
    return re.sub(r"--(\w+)", lambda found: f"--{DOTTED.get(found[1], found[1])}", text)


@pytest.mark.parametrize(
    "more",
    [
        "",
        "--colocate_all_models --vllm_enable_sleep --deepspeed_enable_sleep",
        "--advantage_estimator rloo --n_samples_per_prompt 2",
    ],
)
def test_both_styles_of_openrlhf_are_the_same_job(
    more: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    old, new = (
        data(text, tmp_path, capsys) for text in (OPENRLHF.format(more=more), dotted(OPENRLHF.format(more=more)))
    )
    assert old == new
    assert old["parts"][0]["model"] == "Qwen/Qwen2.5-7B-Instruct"  # type: ignore[index]
    assert ("critic" in [part["role"] for part in old["parts"]]) == ("rloo" not in more)  # type: ignore[attr-defined]


def test_dynamic_batches_of_openrlhf_are_rows_of_tokens(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def trained(more: str) -> tuple[float, object]:
        found = data(dotted(OPENRLHF.format(more=more)), tmp_path, capsys)
        moments = {each["name"]: each["working"] for each in found["moments"]}  # type: ignore[attr-defined]
        return moments["train: actor"], found["notes"]

    full, (note,) = trained("")  # type: ignore[misc]
    assert note == "every sample is counted at its full length, 2,048 tokens: this is the worst case"
    short, none = trained("--train.dynamic_batch_enable --train.max_tokens_per_gpu 2048")
    assert (none, short) == ([], full)  # a row of one sample
    long, _ = trained("--train.dynamic_batch_enable --train.max_tokens_per_gpu 16384")
    assert long > full + 7 * 2048 * FACTS.vocab * 4


def test_the_trainers_of_one_model_are_not_planned_as_ppo(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert plan("deepspeed --module openrlhf.cli.train_sft --pretrain qwen2.5-7b\n", tmp_path)[0] == 2
    assert "openrlhf.cli.train_sft is no RLHF job of several models" in capsys.readouterr().err
    sft = "torchrun --nproc_per_node=8 -m verl.trainer.fsdp_sft_trainer data.max_length=2048 model.partial_pretrain=x\n"
    assert plan(sft, tmp_path)[0] == 2
    assert "verl.trainer.fsdp_sft_trainer without actor_rollout_ref is no RLHF job" in capsys.readouterr().err
    assert plan(VERL.rstrip() + " actor_rollout_ref.actor.strategy=veomni\n", tmp_path)[0] == 2
    assert "strategy=veomni: only jobs of verl with FSDP or Megatron are planned" in capsys.readouterr().err


def test_what_stands_outside_of_a_script_is_asked_for(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    nodes = VERL.replace("trainer.nnodes=1", "trainer.nnodes=$SLURM_JOB_NUM_NODES")
    assert plan(nodes, tmp_path)[0] == 2
    assert "'$SLURM_JOB_NUM_NODES' is not a whole number; the script does not say it" in capsys.readouterr().err
    assert data(nodes, tmp_path, capsys, "--gpus", "16")["parts"][0]["gpus"] == 16  # type: ignore[index]


def test_a_number_is_computed_as_the_shell_does(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    computed = VERL.replace("trainer.nnodes=1", "trainer.nnodes=$(((a + b) / c))")
    assert (
        data("a=3\nb=5\nc=4\n" + computed, tmp_path, capsys)["parts"]
        == data(VERL.replace("trainer.nnodes=1", "trainer.nnodes=2"), tmp_path, capsys)["parts"]
    )
    assert plan("a=3\nb=5\n" + computed + "\nc=4\n", tmp_path)[0] == 2
    assert "'$(((a + b) / c))' is not a whole number; the script does not say it, or only further down" in (
        capsys.readouterr().err
    )


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("OpenRLHF/Llama-3-8b-rm-700k", "meta-llama/Meta-Llama-3-8B"),
        ("Skywork/Skywork-Reward-Llama-3.1-8B", "meta-llama/Llama-3.1-8B"),
        ("$HOME/models/Skywork-Reward-V2-Llama-3.2-3B/", "meta-llama/Llama-3.2-3B"), ("x/Qwen2.5-VL-7B", None),
        ("x/Qwen2.5-Omni-7B", None), ("x/Llama-3-2x8b-rm", None), ("x/Llama-3-rm", None), ("x/reward-8b", None),
    ],
)  # fmt: skip
def test_models_trained_from_a_published_one_are_counted_as_it(
    name: str, meant: str | None, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The name has to say the size; where it may be another network nothing is guessed."""
    script = OPENRLHF.format(more="--vllm_enable_sleep").replace("${REWARD:-Qwen/Qwen2.5-7B}", name)
    status, _ = plan(script, tmp_path, "--format", "json")
    seen = capsys.readouterr()
    if meant is None:
        assert (status, "of the critic model" in seen.err) == (2, True)
        return
    found = json.loads(seen.out)
    assert {part["role"]: part["model"] for part in found["parts"]}["reward"] == meant
    assert any(f"is counted as {meant}, by its name" in note for note in found["notes"])


def test_options_in_arrays_and_functions_are_read(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    head, *rest = VERL.replace("\\\n", " ").split("data.max_response_length=512")
    text = f'MORE=(\n    data.max_response_length=$((256 * 2))\n    {rest[0].strip()}\n)\n{head} "${{MORE[@]}}"\n'
    assert data(text, tmp_path, capsys) == data(VERL, tmp_path, capsys)


CHANGED = [
    (VERL, "max_response_length", "max_respons_length",
     "option data.max_respons_length is not understood; did you mean data.max_response_length?"),
    (VERL, "ppo_micro_batch_size_per_gpu", "ppo_micro_batchsize_per_gpu",
     "did you mean actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu?"),
    (VERL, "actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu", "ppo_micro_batchsize_per_gpu",
     ".ppo_micro_batch_size_per_gpu?"),
    (VERL, "actor.use_kl_loss", "aktor.use_kl_loss", "did you mean actor_rollout_ref.actor.use_kl_loss?"),
    (VERL, "tensor_model_parallel_size=8", "tensor_model_parallel_size=3", "[engine-heads] 40 attention heads do not"),
    (VERL, "gpu_memory_utilization=0.6", "gpu_memory_utilization=1.2", "[engine-share] generation engines"),
    (OPENRLHF, "--zero_stage 3", "--zero_stage 7", "[zero-stage-range] there is no ZeRO stage 7"),
    (OPENRLHF, "--zero_stage 3", "--zero_stagee 3", "--zero_stagee is not understood; did you mean --zero_stage?"),
    (OPENRLHF, "_parallel_size 2", "_parallel_size 3", "[engine-heads] 28 attention heads do not divide"),
]  # fmt: skip


IN_BOTH_STYLES = [(row, "dotted") for row in CHANGED if row[0] is OPENRLHF and "--zero_stagee" not in row[2]]


@pytest.mark.parametrize(("row", "style"), [*((row, "old") for row in CHANGED), *IN_BOTH_STYLES])
def test_what_cannot_run_is_refused(
    row: tuple[str, str, str, str], style: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text, old, new, told = row
    changed = text.replace(old, new).replace("{more}", "").replace("{{", "{").replace("}}", "}")
    assert changed.count(new)
    if style == "dotted":
        changed = dotted(changed)
    assert plan(changed, tmp_path)[0] == 2
    said = capsys.readouterr()
    assert told in said.err
    assert (said.out, said.err.count("\n")) == ("", 1)


def test_gpus_that_win_over_the_script_are_those_that_are_checked(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert plan(VERL, tmp_path, "--gpus", "12")[0] == 2
    assert "generation with tp 8 does not divide the 12 GPUs" in capsys.readouterr().err
    assert plan(VERL, tmp_path, "--gpus", "16")[0] in (0, 1)


def test_what_the_plan_does_not_count_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    more = "actor_rollout_ref.model.fused_kernels=32 trainer.logger=console +data.new_thing=1"
    plan(f"{VERL.rstrip()} {more}\n", tmp_path)
    told = [line for line in capsys.readouterr().out.splitlines() if line.startswith("note: option")]
    assert told == ["note: option actor_rollout_ref.model.fused_kernels is not understood: the plan does not count it"]
    found = data(dotted(OPENRLHF.format(more="--ds.use_liger_kernel --logger.wandb.key x")), tmp_path, capsys)
    assert "option --ds.use_liger_kernel is not understood: the plan does not count it" in found["notes"]  # type: ignore[operator]
    assert not any("wandb" in note for note in found["notes"])  # type: ignore[attr-defined]


def test_log_probabilities_of_verl_follow_the_actors_dynamic_batches(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def scored(more: str = "") -> dict[str, float]:
        found = data(VERL.rstrip() + f" {more}\n", tmp_path, capsys)
        return {m["name"]: m["working"] for m in found["moments"] if "score" in m["name"]}  # type: ignore[attr-defined]

    follows, said = scored(), "log_prob_max_token_len_per_gpu=24000"
    assert scored(f"actor_rollout_ref.ref.{said} actor_rollout_ref.rollout.{said}") == follows
    halves = scored(f"actor_rollout_ref.ref.{said.replace('24000', '12000')}")
    assert halves["score: actor"] == follows["score: actor"]
    assert halves["score: reference"] < follows["score: reference"]
    fixed = "log_prob_use_dynamic_bsz=False"
    one = scored(f"actor_rollout_ref.ref.{fixed} actor_rollout_ref.ref.log_prob_micro_batch_size_per_gpu=1")
    assert one["score: reference"] < halves["score: reference"]
    notes = data(VERL, tmp_path, capsys)["notes"]
    assert not any("worst case" in note for note in notes)  # type: ignore[attr-defined]
    notes = data(VERL.replace("use_dynamic_bsz=True", "use_dynamic_bsz=False"), tmp_path, capsys)["notes"]
    assert "actor, reference: every sample is counted at its full length" in notes[0]  # type: ignore[index]


def test_a_sequence_that_is_split_takes_less(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    whole = VERL.replace("use_dynamic_bsz=True", "use_dynamic_bsz=False")
    split = whole.rstrip() + " actor_rollout_ref.actor.ulysses_sequence_parallel_size=2\n"
    one, two = (
        {m["name"]: m["working"] for m in data(text, tmp_path, capsys)["moments"]}  # type: ignore[attr-defined]
        for text in (whole, split)
    )
    assert two["train: actor"] < one["train: actor"]


def test_models_apart_do_not_add_up_and_together_they_do(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    apart = data(OPENRLHF.format(more=""), tmp_path, capsys)
    assert sorted(moment["name"] for moment in apart["moments"]) == [  # type: ignore[attr-defined]
        "generate", *(f"score: {role}" for role in ("actor", "critic", "reference", "reward")), "train: actor",
        "train: critic",
    ]  # fmt: skip
    assert all(moment["resident"] == 0 for moment in apart["moments"])  # type: ignore[attr-defined]
    together = data(OPENRLHF.format(more="--colocate_all_models"), tmp_path, capsys)
    train = next(m for m in together["moments"] if m["name"] == "train: actor")  # type: ignore[attr-defined]
    assert train["engine"] == 40e9  # it does not sleep
    assert len(train["group"]) == 5
    assert train["resident"] > 0
    sleeping = data(
        OPENRLHF.format(more="--colocate_all_models --vllm_enable_sleep --deepspeed_enable_sleep"), tmp_path, capsys
    )
    train = next(m for m in sleeping["moments"] if m["name"] == "train: actor")  # type: ignore[attr-defined]
    assert train["engine"] == ASLEEP


def test_what_posted_commands_run_out_of_memory_with_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """verl, all of it on every GPU, no offload: reported as out of memory on 8 GPUs of 80 GB."""
    status, _ = plan(VERL, tmp_path)
    told = capsys.readouterr().out
    assert status == 1
    assert "does not fit: actor + reference + rollout: train: actor needs " in told
    saved = VERL.replace("=24000", "=4000").replace("gpu_memory_utilization=0.6", "gpu_memory_utilization=0.4")
    assert plan(saved, tmp_path)[0] == 0
    assert "\nfits: " in capsys.readouterr().out


def test_a_training_moment_is_the_estimate_of_its_model() -> None:
    actor = Part("actor", FACTS, SPLIT, True, 4096.0)
    (score, train) = sorted(moments(Job("x", (actor,), None, (("actor",),)), 80e9), key=lambda one: one.name)
    assert train.working == estimate(FACTS, SPLIT).allocated
    assert train.needed == pytest.approx(estimate(FACTS, SPLIT).reserved(CONSTANTS))
    assert score.working < train.working


def test_a_cache_that_holds_no_sequence_is_refused() -> None:
    def wrong(share: float, tp: int, length: int) -> list[str]:
        engine = Engine(FACTS, 1, tp, share, False, length)
        return problems(Job("x", (), engine, (("rollout",),)), 24e9)

    assert "leave no cache in 60% of 24.0 GB" in wrong(0.6, 1, 1024)[0]
    assert wrong(0.9, 2, 1024) == []
    assert "tokens, one sequence may have 10,000,000" in wrong(0.9, 2, 10**7)[0]
    # 28 layers, 4 key/value heads of 128, keys and values in 16 bits.
    assert Engine(FACTS, 1, 1, 0.9, False, 1).cache_per_token == 28 * 4 * 128 * 2 * 2


@pytest.mark.parametrize(
    ("text", "flags", "told"),
    [
        ("echo hello\n", [], "no command of OpenRLHF, verl or TRL in it"),
        ("python -m openrlhf.cli.train_ppo --pretrain qwen2.5-7b --reward_pretrain qwen2.5-7b", [], "how many GPUs?"),
        ("python -m openrlhf.cli.train_ppo --pretrain /my/model", ["--gpus", "8"], "--model actor=NAME"),
        ("python -m openrlhf.cli.train_ppo_ray --pretrain qwen2.5-7b --reward_pretrain qwen2.5-7b",
         ["--gpus", "4"], "--gpus 4: the command itself says how many each model has, 32 together"),
        ("python -m verl.trainer.main_ppo actor_rollout_ref.model.path=qwen2.5-7b trainer.nnodes=two", [],
         "trainer.nnodes: 'two' is not a whole number"),
    ],
)  # fmt: skip
def test_what_cannot_be_planned_is_one_line(
    text: str, flags: list[str], told: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert plan(text, tmp_path, *flags)[0] == 2
    error = capsys.readouterr().err
    assert error.startswith("bench plan: --recipe ")
    assert told in error
    assert error.count("\n") == 1


def test_models_of_several_flags_all_count(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = "python -m openrlhf.cli.train_ppo --pretrain /my/model --reward_pretrain /my/other --vllm_num_engines 0"
    flags = ("--gpus", "8", "--model", "actor=qwen2.5-7b", "--model", "reward=llama-3.1-8b,critic=qwen2.5-0.5b")
    found = data(text, tmp_path, capsys, *flags, "--model", "qwen2.5-1.5b")
    models = {part["role"]: part["model"] for part in found["parts"]}  # type: ignore[attr-defined]
    assert [models[role].lower().rpartition("/")[2] for role in ("actor", "critic", "reference", "reward")] == [
        "qwen2.5-7b", "qwen2.5-0.5b", "qwen2.5-1.5b", "llama-3.1-8b",
    ]  # fmt: skip
    for more, told in (
        ("critik=llama-3.1-8b", "no role 'critik'; did you mean critic?"),
        ("actor=llama-3.1-8b", "--model gives actor two models, qwen2.5-7b and llama-3.1-8b"),
    ):
        assert plan(text, tmp_path, *flags, "--model", more)[0] == 2
        assert told in capsys.readouterr().err
    found = data(VERL, tmp_path, capsys, "--model", "critic=llama-3.1-8b")
    assert "--model critic: this job has no such model" in found["notes"]  # type: ignore[operator]


def test_trl_takes_the_stage_of_accelerates_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "zero3.yaml").write_text("deepspeed_config:\n  zero_stage: 3\n")
    text = (
        f"accelerate launch --config_file {tmp_path}/zero3.yaml --num_processes 8 grpo.py --model_name_or_path "
        "qwen2.5-7b --per_device_train_batch_size 2 --bf16 --gradient_checkpointing --use_vllm --vllm_mode colocate "
        "--vllm_gpu_memory_utilization 0.3 --max_prompt_length 512 --max_completion_length 512"
    )
    found = data(text, tmp_path, capsys)
    assert found["framework"] == "TRL"
    assert [part["role"] for part in found["parts"]] == ["actor"]  # type: ignore[attr-defined]
    assert found["parts"][0]["weights"] == pytest.approx(2 * FACTS.parameters / 8)  # type: ignore[index]
    assert found["engine"]["tp"] == 1  # type: ignore[index]


REPORT = Path(__file__).resolve().parents[2] / "reports" / "rlhf"
TABLED = re.findall(
    r"^\| ([^|]+) \| `(\S+\.sh[^`]*)` \| (refused|tight|fits) \|", (REPORT / "README.md").read_text(), re.M
)


def test_the_published_table_names_every_script() -> None:
    assert {row[1].split()[0] for row in TABLED} == {path.name for path in REPORT.glob("*.sh")}
    refused = sum(row[2] == "refused" for row in TABLED)
    assert f"Refused: {refused} of {len(TABLED)};" in (REPORT / "README.md").read_text()


@pytest.mark.parametrize(("name", "line", "verdict"), TABLED, ids=[row[0] for row in TABLED])
def test_the_published_verdicts_are_the_plans(
    name: str, line: str, verdict: str, capsys: pytest.CaptureFixture[str]
) -> None:
    script, *flags = shlex.split(line)
    status = bench(["plan", "--recipe", str(REPORT / script), *flags])
    last = capsys.readouterr().out.splitlines()[-1]
    assert (status, last.split(":")[0]) == ((1, "does not fit") if verdict == "refused" else (0, verdict))


ROLES = ("actor", "critic:backend=zero3,offload=optimizer", "reference:sleep", "rollout:tp=2,share=0.5,sleep")


def roles(capsys: pytest.CaptureFixture[str], *given: str, more: tuple[str, ...] = ()) -> dict[str, object]:
    flags = [word for one in given for word in ("--role", one)]
    bench(["plan", "--model", "llama-3.1-8b", "--gpus", "8", *flags, *more, "--format", "json"])
    return json.loads(capsys.readouterr().out)  # type: ignore[no-any-return]


def test_each_role_has_its_own_backend_offload_and_sleep(capsys: pytest.CaptureFixture[str]) -> None:
    found = roles(capsys, *ROLES)
    parts = {part["role"]: part for part in found["parts"]}  # type: ignore[attr-defined]
    facts = resolve("llama-3.1-8b")
    assert parts["critic"]["optimizer"] == 0.0
    assert parts["actor"]["optimizer"] == pytest.approx(8 * facts.parameters / 8, rel=0.01)  # two fp32 states, 8 ways
    assert parts["critic"]["weights"] == pytest.approx(2 * facts.parameters / 8, rel=0.01)
    assert found["engine"]["share"] == 0.5  # type: ignore[index]
    moments = {moment["name"]: moment for moment in found["moments"]}  # type: ignore[attr-defined]
    train = moments["train: critic"]
    assert train["engine"] == ASLEEP
    asleep = train["resident"]
    awake = {m["name"]: m for m in roles(capsys, *(r.replace(":sleep", "") for r in ROLES))["moments"]}  # type: ignore[attr-defined]
    assert awake["train: critic"]["resident"] - asleep == pytest.approx(2 * facts.parameters / 8, rel=0.01)
    apart = roles(capsys, "actor", "rollout:tp=4,gpus=16,on=others")
    assert sorted(moment["group"] for moment in apart["moments"]) == [["actor"], ["actor"], ["rollout"]]  # type: ignore[attr-defined]


def test_longer_sequences_of_one_role_are_its_own(capsys: pytest.CaptureFixture[str]) -> None:
    short, long = (roles(capsys, f"actor:seq-len={n}", "critic")["moments"] for n in (2048, 8192))
    for name, grows in (("train: actor", True), ("train: critic", False)):
        needed = [next(m["needed"] for m in each if m["name"] == name) for each in (short, long)]  # type: ignore[attr-defined]
        assert (needed[1] > needed[0] + 5e9) == grows
    status = bench(["plan", "--model", "llama-3.1-70b", "--gpus", "8", "--role", "actor"])
    assert (status, "does not fit: actor: train: actor" in capsys.readouterr().out) == (1, True)


@pytest.mark.parametrize(
    ("given", "told"),
    [
        (["aktor"], "no role 'aktor'; did you mean actor?"), (["actor:tp=3"], "actor: [world-divisible] world_size 8"),
        (["actor:backed=ddp"], "no setting 'backed'; did you mean backend?"), (["rollout:share=2"], "no share"),
        (["actor:gpus=4", "critic"], "actor 4, critic 8; say on=NAME"), (["actor", "actor"], "actor is given twice"),
        (["actor:tp=none"], "actor: tp: 'none' is not a whole number"), (["rollout:tp=3"], "do not divide its 8 GPUs"),
        (["actor:model=none-such"], "none-such"),
    ],
)  # fmt: skip
def test_roles_that_cannot_be_are_one_line(given: list[str], told: str, capsys: pytest.CaptureFixture[str]) -> None:
    flags = [word for one in given for word in ("--role", one)]
    try:
        status = bench(["plan", "--model", "llama-3.1-8b", "--gpus", "8", *flags])
    except SystemExit as error:
        status = int(error.code or 0)
    said = capsys.readouterr().err
    assert status == 2
    assert said.startswith("bench plan: ")
    assert told in said
    assert said.count("\n") == 1
