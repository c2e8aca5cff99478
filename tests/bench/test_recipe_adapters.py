"""`bench plan --recipe`: jobs that train adapters, beside 4-bit weights too, and jobs of verl on Megatron."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from bench import backends
from bench.cli import main as bench
from bench.predict import adapters
from bench.predict.adapters import FOUR_BITS, FOUR_BITS_NESTED, Adapters
from bench.predict.layout import Layout
from bench.predict.memory import by_moment, estimate, weights
from rules.models import ModelError, from_config, resolve
from rules.models.architectures import ARCHITECTURES

FACTS = resolve("qwen2.5-7b")
LLAMA = resolve("llama-3.1-8b")
OPENRLHF = (
    "python3 -m openrlhf.cli.train_ppo_ray --actor_num_gpus_per_node 8 --critic_num_gpus_per_node 8 "
    "--ref_num_gpus_per_node 8 --reward_num_gpus_per_node 8 --colocate_all_models --pretrain qwen2.5-7b "
    "--reward_pretrain qwen2.5-7b --zero_stage {stage} --bf16 --gradient_checkpointing --micro_train_batch_size 1"
)
VERL = (
    "python3 -m verl.trainer.main_ppo algorithm.adv_estimator=grpo actor_rollout_ref.model.path=qwen2.5-7b "
    "actor_rollout_ref.actor.use_kl_loss=True actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu=1 "
    "actor_rollout_ref.rollout.tensor_model_parallel_size=4 trainer.n_gpus_per_node=8"
)
TRL = "accelerate launch --num_processes 8 grpo.py --model_name_or_path qwen2.5-7b --beta 0.1"


def data(capsys: pytest.CaptureFixture[str], text: str, *flags: str) -> dict[str, Any]:
    bench(["plan", "--recipe", text, *flags, "--format", "json"])
    return json.loads(capsys.readouterr().out)  # type: ignore[no-any-return]


def parts(found: dict[str, Any]) -> dict[str, Any]:
    return {part["role"]: part for part in found["parts"]}


def working(found: dict[str, Any], name: str) -> float:
    return float(next(moment["working"] for moment in found["moments"] if moment["name"] == name))


def refused(capsys: pytest.CaptureFixture[str], text: str, *flags: str) -> str:
    assert bench(["plan", "--recipe", text, *flags]) == 2
    said = capsys.readouterr().err
    assert said.count("\n") == 1
    return said


def test_adapters_are_as_many_as_peft_prints() -> None:
    """PEFT's `print_trainable_parameters` of Llama 3.1 8B: 41,943,040 at rank 16 in all linear layers, 3,407,872 at
    rank 8 in queries and values."""
    assert adapters.elements(LLAMA, Adapters(16)) == 41_943_040
    assert adapters.elements(LLAMA, Adapters(8, ("q_proj", "v_proj"))) == 3_407_872
    with pytest.raises(ModelError, match="no linear layer 'c_attn'"):
        adapters.elements(LLAMA, Adapters(8, ("c_attn",)))


@pytest.mark.parametrize("model_type", [name for name, one in ARCHITECTURES.items() if one.separate])
def test_linear_layers_are_those_that_transformers_builds(model_type: str) -> None:
    """`all-linear` are all of them but the head: of every type that is said to have seven, by name and size."""
    torch, transformers = pytest.importorskip("torch"), pytest.importorskip("transformers")
    sizes = {
        "hidden_size": 48, "intermediate_size": 80, "num_hidden_layers": 2, "num_attention_heads": 4,
        "num_key_value_heads": 2, "head_dim": 16, "vocab_size": 64, "pad_token_id": 0,
    }  # fmt: skip
    config = transformers.AutoConfig.for_model(model_type, **sizes)
    with torch.device("meta"):
        model = transformers.AutoModelForCausalLM.from_config(config)
    head = model.get_output_embeddings()
    linear = {
        name.rpartition(".")[2]: (module.in_features, module.out_features)
        for name, module in model.named_modules() if isinstance(module, torch.nn.Linear) and module is not head
    }  # fmt: skip
    facts = from_config({**config.to_dict(), "model_type": model_type})
    assert adapters.projections(facts) == linear
    count = sum(isinstance(module, torch.nn.Linear) and module is not head for module in model.modules())
    assert count == 2 * len(linear)
    assert adapters.linear_elements(facts) == sum(
        module.weight.numel()
        for module in model.modules()
        if isinstance(module, torch.nn.Linear) and module is not head
    )


@pytest.mark.parametrize("model", ["mixtral-8x7b-v0.1", "deepseek-v2-lite", "phi-4"])
def test_models_whose_linear_layers_are_not_known_have_no_adapters(model: str) -> None:
    with pytest.raises(ModelError, match="not known one by one"):
        adapters.elements(resolve(model), Adapters(8))


@pytest.mark.parametrize(
    ("backend", "stage"), [("ddp", 0), ("deepspeed", 0), ("deepspeed", 2), ("deepspeed", 3), ("fsdp2", 0)]
)
def test_only_adapters_have_gradients_and_states(backend: str, stage: int) -> None:
    """Frozen weights stay as they were; what is trained shrinks in proportion, from all weights to the adapters."""
    layout = Layout(backend=backend, zero_stage=stage, dp=8, checkpointing=True, seq_len=2048)
    tuned = replace(layout, adapters=Adapters(16))
    whole, small = estimate(LLAMA, layout), estimate(LLAMA, tuned)
    ratio = adapters.elements(LLAMA, Adapters(16)) / LLAMA.parameters
    assert small.optimizer == pytest.approx(whole.optimizer * ratio, rel=1e-6)
    assert small.parameters == pytest.approx(whole.parameters * (1 + ratio), rel=1e-6)
    ends = [max(one.gradients for one in by_moment(LLAMA, each).values()) for each in (layout, tuned)]
    assert ends[1] == pytest.approx(ends[0] * ratio, rel=0.2)
    assert small.allocated < whole.allocated
    gathered = [by_moment(LLAMA, each)["forward"].working for each in (layout, tuned)]
    assert gathered[1] >= gathered[0]  # frozen weights are gathered as others are


def test_four_bits_are_those_of_the_paper() -> None:
    """QLoRA, section 3: 0.5 bits for the scales of 64 weights in fp32, 0.127 where they are quantised in turn."""
    assert 8 * FOUR_BITS == 4.5
    assert round(8 * FOUR_BITS_NESTED, 3) == 4.127
    layout = Layout(backend="deepspeed", zero_stage=2, dp=8, adapters=Adapters(16))
    saved = weights(LLAMA, layout) - weights(LLAMA, replace(layout, quantized=FOUR_BITS))
    assert saved == pytest.approx(32 * (2 - 0.5625) * (2 * 4096**2 + 2 * 4096 * 1024 + 3 * 4096 * 14336))
    both = [estimate(LLAMA, replace(layout, quantized=size)).parameters for size in (0.0, FOUR_BITS)]
    assert both[0] - both[1] == pytest.approx(saved)
    used = [by_moment(LLAMA, replace(layout, quantized=size))["forward"].activations for size in (0.0, FOUR_BITS)]
    assert used[1] - used[0] == 2 * 4096 * 14336  # the largest matrix, in 16 bits while it is used


def test_what_the_paper_trains_on_one_gpu_fits_there() -> None:
    """QLoRA's abstract and section 1: 65B on one GPU of 48 GB, which needs more than 780 GB otherwise. At the paper's
    rank of 64 the optimizer's states lie on the host."""
    sizes = {
        "model_type": "llama", "hidden_size": 8192, "intermediate_size": 22016, "num_hidden_layers": 80,
        "num_attention_heads": 64, "vocab_size": 32000,
    }  # fmt: skip
    facts = from_config(sizes, "65B")
    layout = Layout(backend="ddp", seq_len=512, checkpointing=True)
    assert estimate(facts, layout).allocated > 780e9
    for rank, on_host in ((16, False), (64, True)):
        tuned = replace(layout, adapters=Adapters(rank, dropout=True), quantized=FOUR_BITS_NESTED)
        assert 32e9 < estimate(facts, replace(tuned, offload_optimizer=on_host)).reserved() < 48e9


def test_dropout_and_casts_keep_inputs_and_rank_keeps_little() -> None:
    layout = Layout(backend="ddp", seq_len=4096)
    kept = [
        max(one.activations for one in by_moment(LLAMA, replace(layout, adapters=one)).values())
        for one in (Adapters(8), Adapters(64), Adapters(8, dropout=True), Adapters(8, casts=True))
    ]
    inputs = 32 * 4096 * (6 * 4096 + 14336)  # of seven projections in each layer
    assert kept[1] - kept[0] == 32 * 4096 * 2 * 7 * (64 - 8)
    assert kept[2] - kept[0] == 3 * inputs  # 16-bit values and a mask of bytes
    assert kept[3] - kept[0] == 2 * inputs


def test_openrlhf_trains_adapters_of_actor_and_critic(capsys: pytest.CaptureFixture[str]) -> None:
    whole = data(capsys, OPENRLHF.format(stage=2))
    tuned = data(capsys, OPENRLHF.format(stage=2) + " --lora_rank 64")
    four = data(capsys, OPENRLHF.format(stage=2) + " --lora_rank 64 --load_in_4bit")
    few = data(capsys, OPENRLHF.format(stage=2) + " --target_modules q_proj v_proj --lora_rank 64")
    dotted = OPENRLHF.format(stage=2) + " --ds.lora.rank 64 --ds.load_in_4bit --ds.lora.target_modules all-linear"
    assert data(capsys, dotted)["parts"] == four["parts"]
    ratio = adapters.elements(FACTS, Adapters(64)) / FACTS.parameters
    for role in ("actor", "critic"):
        assert parts(tuned)[role]["optimizer"] == pytest.approx(parts(whole)[role]["optimizer"] * ratio)
        assert working(four, f"train: {role}") < working(tuned, f"train: {role}") < working(whole, f"train: {role}")
    queries_and_values = adapters.elements(FACTS, Adapters(64, ("q_proj", "v_proj"))) / FACTS.parameters
    assert parts(few)["actor"]["optimizer"] == pytest.approx(parts(whole)["actor"]["optimizer"] * queries_and_values)
    for role in ("reference", "reward"):  # whole models, which 4 bits make smaller and adapters do not
        assert parts(tuned)[role] == parts(whole)[role]
        assert parts(four)[role]["weights"] == pytest.approx(
            parts(whole)[role]["weights"] - (2 - FOUR_BITS_NESTED) * adapters.linear_elements(FACTS)
        )


def test_the_table_says_what_is_trained(capsys: pytest.CaptureFixture[str]) -> None:
    bench(["plan", "--recipe", OPENRLHF.format(stage=2) + " --lora_rank 64 --load_in_4bit"])
    lines = capsys.readouterr().out.splitlines()
    assert any("actor" in line and "zero-2 dp 8 tp 1 ring 1 lora 64 4-bit" in line for line in lines)
    assert any("reference" in line and "zero-2 dp 8 tp 1 ring 1 4-bit" in line for line in lines)


def test_verl_with_adapters_is_its_own_reference(capsys: pytest.CaptureFixture[str]) -> None:
    whole, tuned = data(capsys, VERL), data(capsys, VERL + " actor_rollout_ref.model.lora_rank=32")
    assert list(parts(whole)) == ["actor", "reference"]
    assert list(parts(tuned)) == ["actor"]
    assert tuned["notes"] == [note.replace("actor, reference", "actor") for note in whole["notes"]]
    ratio = adapters.elements(FACTS, Adapters(32)) / FACTS.parameters
    assert parts(tuned)["actor"]["optimizer"] == pytest.approx(parts(whole)["actor"]["optimizer"] * ratio)
    assert parts(tuned)["actor"]["weights"] == pytest.approx(4 * FACTS.parameters * (1 + ratio) / 8)  # fp32
    listed = VERL + " actor_rollout_ref.model.lora_rank=32 'actor_rollout_ref.model.target_modules=[q_proj,v_proj]'"
    few = adapters.elements(FACTS, Adapters(32, ("q_proj", "v_proj"))) / FACTS.parameters
    assert parts(data(capsys, listed))["actor"]["optimizer"] == pytest.approx(parts(whole)["actor"]["optimizer"] * few)
    low = VERL + " actor_rollout_ref.model.lora_rank=32 actor_rollout_ref.actor.fsdp_config.model_dtype=bfloat16"
    assert parts(data(capsys, low))["actor"]["weights"] == pytest.approx(2 * FACTS.parameters * (1 + ratio) / 8)


def test_trl_with_adapters_is_its_own_reference(capsys: pytest.CaptureFixture[str]) -> None:
    whole, tuned = data(capsys, TRL), data(capsys, TRL + " --use_peft --lora_r 8")
    assert list(parts(whole)) == ["actor", "reference"]
    assert list(parts(tuned)) == ["actor"]
    by_default = adapters.elements(FACTS, Adapters(8, ("q_proj", "v_proj"))) / FACTS.parameters
    assert parts(tuned)["actor"]["optimizer"] == pytest.approx(parts(whole)["actor"]["optimizer"] * by_default)
    every = data(capsys, TRL + " --use_peft --lora_r 8 --lora_target_modules all-linear")
    assert parts(every)["actor"]["optimizer"] > 3 * parts(tuned)["actor"]["optimizer"]
    four = data(capsys, TRL + " --use_peft --lora_r 8 --load_in_4bit")
    nested = data(capsys, TRL + " --use_peft --lora_r 8 --load_in_4bit --use_bnb_nested_quant")
    sizes = [parts(each)["actor"]["weights"] for each in (tuned, four, nested)]
    linear = adapters.linear_elements(FACTS)
    assert sizes[0] - sizes[1] == pytest.approx((2 - FOUR_BITS) * linear)
    assert sizes[1] - sizes[2] == pytest.approx((FOUR_BITS - FOUR_BITS_NESTED) * linear)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (OPENRLHF.format(stage=2) + " --load_in_4bit", "4-bit weights cannot be trained themselves"),
        (OPENRLHF.format(stage=3) + " --load_in_4bit --lora_rank 8", "4-bit weights at ZeRO-3"),
        (OPENRLHF.format(stage=2) + " --load_in_4bit --lora_rank 8 --param_dtype fp16", "in bf16 alone"),
        (OPENRLHF.format(stage=2) + " --lora_rank 8 --target_modules c_attn", "no linear layer 'c_attn'"),
        (OPENRLHF.format(stage=2).replace("--pretrain qwen2.5-7b", "--pretrain mixtral-8x7b-v0.1") + " --lora_rank 8",
         "not known one by one"),
        (TRL + " --load_in_4bit", "without --use_peft"), (TRL + " --load_in_8bit --use_peft", "--load_in_8bit"),
        (TRL + " --use_peft --lora_modules_to_save lm_head", "only adapters of linear layers"),
        (TRL.replace("qwen2.5-7b", "smollm3-3b") + " --use_peft", "--lora_target_modules"),
        (TRL.replace("grpo.py", "ppo.py") + " --use_peft --load_in_4bit --reward_model_path qwen2.5-7b", "with PPO"),
        (VERL + " actor_rollout_ref.model.lora_adapter_path=/my/adapter", "which rank has it?"),
        (VERL + " actor_rollout_ref.actor.strategy=megatron actor_rollout_ref.model.lora.rank=8",
         "adapters on Megatron are not planned"),
        (VERL + " actor_rollout_ref.actor.strategy=megatron "
         "actor_rollout_ref.actor.megatron.override_transformer_config.num_layers_in_first_pipeline_stage=3",
         "num_layers_in_first_pipeline_stage is not planned"),
        (VERL + " actor_rollout_ref.actor.fsdp_config.model_dtype=int8", "'int8' is none of bf16"),
    ],
)  # fmt: skip
def test_what_is_not_known_of_adapters_is_refused(text: str, told: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert told in refused(capsys, text)


MEGATRON = Layout(
    backend="megatron", dp=8, head="full", compiled=True, sequence_parallel=False, seq_len=4096, checkpointing=True
)


def test_bytes_of_a_parameter_are_megatrons() -> None:
    """6 + 12/d over d ranks with gradients in fp32, 4 + 16/d with 16-bit ones; 18 with no sharding."""

    def each(**changes: Any) -> float:
        ends = by_moment(LLAMA, replace(MEGATRON, **changes))["forward"]
        return (ends.parameters + ends.gradients + ends.optimizer) / LLAMA.parameters

    assert each() == pytest.approx(6 + 12 / 8)
    assert each(dp=2, ring=2) == pytest.approx(6 + 12 / 4)
    assert each(main_grads="bf16") == pytest.approx(4 + 16 / 8)
    assert each(shards_optimizer=False) == pytest.approx(18)
    assert each(tp=4, dp=2) == pytest.approx((6 + 12 / 2) / 4)


def test_a_stage_has_its_share_and_the_first_one_most_in_flight() -> None:
    one, four = by_moment(LLAMA, MEGATRON), by_moment(LLAMA, replace(MEGATRON, dp=2, pp=4))
    assert {name.partition(",")[0] for name in four} == {"first stage", "last stage"}
    tables = 2 * LLAMA.vocab * LLAMA.hidden
    share = (LLAMA.parameters - tables) / 4 + tables / 2
    assert four["first stage, forward"].parameters == pytest.approx(2 * share, rel=1e-3)
    assert four["first stage, forward"].logits == 0 < four["last stage, head"].logits
    inputs = 8 * 4096 * LLAMA.hidden * 2  # of a quarter of the layers, one micro-batch
    assert four["first stage, forward"].activations - four["last stage, forward"].activations == pytest.approx(
        3 * inputs - (one["forward"].activations - 32 * 4096 * LLAMA.hidden * 2 - _layer()), rel=1e-6
    )
    chunks = by_moment(LLAMA, replace(MEGATRON, dp=2, pp=4, virtual_pp=2))
    assert chunks["first stage, forward"].activations > four["first stage, forward"].activations


def _layer() -> float:
    """Bytes of a layer that is computed again: what eight layers keep more than seven, without checkpointing."""
    whole = replace(MEGATRON, checkpointing=False)
    seven, eight = (by_moment(LLAMA.with_layers(n), whole)["forward"].activations for n in (7, 8))
    return eight - seven


def test_experts_are_split_and_their_states_sharded_over_fewer_ranks() -> None:
    facts = resolve("qwen3-30b-a3b")
    whole, split = (by_moment(facts, replace(MEGATRON, ep=ep))["forward"] for ep in (1, 8))
    idle = facts.parameters - facts.active_parameters
    routed = idle * facts.experts / (facts.experts - facts.experts_per_token)
    assert (whole.parameters - split.parameters) / 2 == pytest.approx(routed * 7 / 8)
    # Eight ranks hold one eighth of the experts each, whose states nobody else holds: an eighth, as before.
    assert split.optimizer == pytest.approx(whole.optimizer)


def megatron(more: str = "", **sizes: int) -> str:
    own = "actor_rollout_ref.actor.megatron"
    names = {name: "context" if name == "context" else f"{name}_model" for name in sizes}  # as verl has them
    given = " ".join(f"{own}.{names[name]}_parallel_size={size}" for name, size in sizes.items())
    return f"{VERL} actor_rollout_ref.actor.strategy=megatron {given} {more}"


def test_verl_on_megatron_has_its_sizes(capsys: pytest.CaptureFixture[str]) -> None:
    found = data(capsys, megatron(tensor=2, pipeline=2))
    bench(["plan", "--recipe", megatron(tensor=2, pipeline=2)])
    assert capsys.readouterr().out.count("megatron dp 2 tp 2 ring 1 pp 2") == 2  # the reference follows the actor
    layout = Layout(
        backend="megatron", dp=2, tp=2, pp=2, seq_len=1024, grad_accum=2, head="full", compiled=True,
        sequence_parallel=True,
    )  # fmt: skip
    assert working(found, "train: actor") == estimate(FACTS, layout).allocated
    assert parts(found)["reference"]["weights"] == weights(FACTS, layout)
    assert parts(found)["actor"]["gpus"] == 8
    wide = data(capsys, megatron(tensor=4, pipeline=2))
    assert working(wide, "train: actor") < working(found, "train: actor")
    own = "actor_rollout_ref.actor.megatron.override_transformer_config.recompute"
    again = data(
        capsys, megatron(f"+{own}_granularity=full +{own}_method=uniform +{own}_num_layers=1", tensor=2, pipeline=2)
    )
    assert working(again, "train: actor") < working(found, "train: actor")
    assert again["notes"] == found["notes"]  # all of it is understood


def test_context_parallelism_on_megatron_is_read_by_verls_own_name(capsys: pytest.CaptureFixture[str]) -> None:
    split = data(capsys, megatron(tensor=2, pipeline=2, context=2))
    bench(["plan", "--recipe", megatron(tensor=2, pipeline=2, context=2)])
    told = capsys.readouterr().out
    assert told.count("megatron dp 1 tp 2 ring 2 pp 2") == 2
    whole = data(capsys, megatron(tensor=2, pipeline=2))
    assert working(split, "train: actor") < working(whole, "train: actor")
    of_reference = megatron("actor_rollout_ref.ref.megatron.context_parallel_size=1", tensor=2, pipeline=2)
    assert data(capsys, of_reference)["notes"] == whole["notes"]


def test_offload_on_megatron_takes_gradients_with_parameters(capsys: pytest.CaptureFixture[str]) -> None:
    own = "actor_rollout_ref.actor.megatron"

    def resident(more: str) -> float:
        found = data(capsys, megatron(more, tensor=2, pipeline=2))
        return float(next(moment["resident"] for moment in found["moments"] if moment["name"] == "generate"))

    layout = Layout(backend="megatron", dp=2, tp=2, pp=2)
    actor, reference = estimate(FACTS, layout), weights(FACTS, layout)
    nothing = resident("")
    parameters = resident(f"{own}.param_offload=True")
    both = resident(f"{own}.param_offload=True {own}.optimizer_offload=True")
    assert nothing - parameters == pytest.approx(3 * actor.parameters + reference)  # 4 bytes of gradient beside 2
    assert parameters - both == pytest.approx(actor.optimizer)
    assert both == 0


def test_sizes_of_megatron_that_do_not_divide_are_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert "[tp-heads]" in refused(capsys, megatron(tensor=8))
    assert "[pipeline-layers]" in refused(capsys, megatron(tensor=1, pipeline=8))
    assert "actor on Megatron: tp x pp x cp = 16 do not divide the 8 GPUs" in refused(
        capsys, megatron(tensor=4, pipeline=4)
    )
    assert "tp x pp x cp = 3 do not divide the 8 GPUs" in refused(capsys, megatron(context=3))
    assert "pp x ep x expert tp = 16 do not divide the 8 GPUs" in refused(capsys, megatron(tensor=2, expert=8))


def test_by_the_name_of_its_file_a_job_is_on_megatron(capsys: pytest.CaptureFixture[str]) -> None:
    for given in ("--config-name=ppo_megatron_trainer.yaml", "model_engine=megatron"):
        bench(["plan", "--recipe", VERL.replace("main_ppo ", f"main_ppo {given} ")])
        assert "megatron dp 8 tp 1 ring 1" in capsys.readouterr().out


def test_megatron_is_planned_and_not_run(capsys: pytest.CaptureFixture[str]) -> None:
    assert "megatron" not in backends.names()
    assert "megatron" not in backends.variants()
    assert bench(["run", "--backend", "megatron", "--dry-run"]) == 2
