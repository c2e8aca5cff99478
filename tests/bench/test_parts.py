"""The small parts of strategies and model that need no process group."""

from __future__ import annotations

import json
import math
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import rules.models
from bench.configuration import Configuration, model_facts, parse
from bench.losses import find_loss, ppo
from bench.measure.clock import graph_report, is_steady
from bench.measure.model import (
    HEAD_CHUNK,
    Head,
    ModelError,
    _score,
    _score_at_once,
    build_actor,
    check_for_ring,
    layers_of,
    model_config,
)
from bench.measure.profiler import _covered
from bench.parallel.tensor_parallel import choose_plan, get_hf_tp_plan
from bench.strategies.compilation import compile_blocks
from bench.strategies.data import ShardedSampler
from bench.strategies.ddp import DDPStrategy
from bench.strategies.gradients import LossScaler, clip_grad_by_total_norm_, get_grad_norm
from bench.strategies.master_weights import MasterWeights
from bench.strategies.optimizers import build_optimizer, decay_groups, move_to_new_parameters, names_by_parameter
from bench.sweep.sweep import refusal
from tests.bench import jobs


def test_collectives_side_by_side_count_once() -> None:
    ranges = [SimpleNamespace(start=start, end=end) for start, end in ((5.0, 9.0), (0.0, 2.0), (1.0, 3.0), (6.0, 7.0))]
    assert _covered(ranges) == 7.0
    assert _covered([]) == 0.0


def parameters(*gradients: list[float]) -> list[torch.nn.Parameter]:
    made = []
    for gradient in gradients:
        parameter = torch.nn.Parameter(torch.zeros(len(gradient)))
        parameter.grad = torch.tensor(gradient)
        made.append(parameter)
    return made


NUMBERS = st.lists(st.floats(-10, 10, width=32), min_size=1, max_size=5)


@given(st.lists(NUMBERS, min_size=1, max_size=4), st.floats(0.125, 100, width=32))
def test_norms_and_clipping_are_torchs(gradients: list[list[float]], max_norm: float) -> None:
    ours, theirs = parameters(*gradients), parameters(*gradients)
    norm = get_grad_norm(ours)
    clip_grad_by_total_norm_(ours, max_norm, norm)
    expected = torch.nn.utils.clip_grad_norm_(theirs, max_norm)
    torch.testing.assert_close(norm, expected)
    for mine, other in zip(ours, theirs, strict=True):
        torch.testing.assert_close(mine.grad, other.grad)


@given(
    size=st.integers(1, 50), replicas=st.integers(1, 5), later=st.integers(1, 5), steps=st.integers(0, 5),
    shuffle=st.booleans(),
)  # fmt: skip
def test_a_resumed_order_goes_on_with_any_number_of_ranks(
    size: int, replicas: int, later: int, steps: int, shuffle: bool
) -> None:
    """What some ranks read before and others after a resumption is every sample at most once, none skipped."""

    def samplers(count: int) -> list[ShardedSampler]:
        return [ShardedSampler(size, count, rank, shuffle, 7, True) for rank in range(count)]

    steps = min(steps, size // replicas)
    before = [index for s in samplers(replicas) for index in list(s)[:steps]]
    rest = samplers(later)
    for sampler in rest:
        sampler.consumed = steps * replicas
    after = [index for sampler in rest for index in sampler]
    assert len(set(before + after)) == len(before + after)
    assert len(before + after) >= size - later + 1
    assert all(len(sampler) == len(list(sampler)) for sampler in rest)


def test_a_loader_hands_on_its_position() -> None:
    def loader() -> object:
        strategy = DDPStrategy(Configuration(num_gpus=2, random_seed=3))
        strategy.dp_size, strategy.dp_rank = 2, 1
        return strategy.setup_dataloader(list(range(20)), 2)

    whole = [batch.tolist() for batch in loader()]  # type: ignore[attr-defined]
    first = loader()
    iterator = iter(first)  # type: ignore[call-overload]
    read = [next(iterator).tolist() for _ in range(2)]
    second = loader()
    second.load_state_dict(first.state_dict())  # type: ignore[attr-defined]
    assert read + [batch.tolist() for batch in second] == whole  # type: ignore[attr-defined]
    assert first.state_dict() == {"epoch": 0, "consumed": 8}  # type: ignore[attr-defined]


def test_the_loss_scale_halves_on_overflow_and_grows_after_good_steps() -> None:
    scaler = LossScaler(initial=8.0, growth_interval=2)
    assert not scaler.update(math.inf)
    assert scaler.scale == 4.0
    assert scaler.update(1.0)
    assert scaler.update(1.0)
    assert scaler.scale == 8.0
    assert not scaler.update(math.nan)
    restored = LossScaler()
    restored.load_state_dict(scaler.state_dict())
    assert restored.state_dict() == scaler.state_dict()


def test_vectors_do_not_decay_and_groups_follow_new_parameters() -> None:
    model = torch.nn.Sequential(torch.nn.Linear(3, 2), torch.nn.LayerNorm(2))
    assert [group["weight_decay"] for group in decay_groups(model, 0.1)] == [0.1, 0.0]
    optimizer = build_optimizer(model, "adamw", 1e-3, (0.9, 0.95), 1e-8, 0.1, False)
    names = names_by_parameter(model)
    replaced = torch.nn.Sequential(torch.nn.Linear(3, 2), torch.nn.LayerNorm(2))
    move_to_new_parameters(optimizer, names, replaced)
    stepped = {id(p) for group in optimizer.param_groups for p in group["params"]}
    assert stepped == {id(p) for p in replaced.parameters()}


def test_the_chunked_head_and_the_whole_one_agree() -> None:
    torch.manual_seed(0)
    actors = [
        build_actor(model="llama-tiny", num_layers=1, attn="sdpa", device=torch.device("cpu"), head=head)
        for head in ("full", "chunked")
    ]
    ids = torch.randint(0, 1024, (1, HEAD_CHUNK + 100))
    outputs = [actor(ids, ids.roll(-1, 1), return_entropy=True) for actor in actors]
    torch.testing.assert_close(outputs[0].log_probs, outputs[1].log_probs, rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(outputs[0].entropy, outputs[1].entropy, rtol=1e-5, atol=1e-5)
    for output in outputs:
        (output.log_probs.sum() + output.entropy.sum()).backward()
    for one, other in zip(*(actor.parameters() for actor in actors), strict=True):
        torch.testing.assert_close(one.grad, other.grad, rtol=1e-4, atol=1e-3)


def test_blocks_are_compiled_with_the_norm_behind_them() -> None:
    actor = build_actor(model="llama-tiny", num_layers=2, attn="sdpa", device=torch.device("cpu"))
    assert compile_blocks(actor) == 2
    body = actor.model.base_model
    assert [module for module in body.modules() if module._compiled_call_impl is not None] == [*body.layers, body.norm]


def test_the_compiled_head_fits_into_a_graph_of_the_whole() -> None:
    actor = build_actor(model="llama-tiny", num_layers=1, attn="sdpa", device=torch.device("cpu"), head="compiled")
    tokens = torch.randint(0, 1024, (1, 16))
    actor._score = torch.compile(actor._score, backend="eager")
    whole = torch.compile(actor, backend="eager", fullgraph=True)
    torch.testing.assert_close(whole(tokens, tokens).log_probs, actor(tokens, tokens).log_probs)


@pytest.mark.parametrize("tokens", [97, 1536], ids=["one chunk", "two chunks"])
@pytest.mark.parametrize("with_entropy", [False, True])
def test_the_compiled_head_s_scores_are_the_others_(tokens: int, with_entropy: bool) -> None:
    """Values and gradients, with scores that are capped and scaled."""
    logits = [(3 * torch.randn(7, tokens, generator=torch.Generator().manual_seed(2))).requires_grad_() for _ in "ab"]
    targets = torch.tensor([0, tokens - 1, 5, 5, 60, 70, 80])
    for score, each in zip((_score_at_once, _score), logits, strict=True):
        log_probs, entropy = score(each, targets, 0.7, 30.0, with_entropy)
        (log_probs * torch.arange(7.0) + entropy).sum().backward()
        expected = (torch.tanh(each.detach() / 30) * 30 / 0.7).log_softmax(-1)
        torch.testing.assert_close(log_probs.detach(), expected.gather(1, targets[:, None]).squeeze(1))
        torch.testing.assert_close(
            entropy.detach(), -(expected.exp() * expected).sum(1) if with_entropy else entropy * 0
        )
    torch.testing.assert_close(logits[0].grad, logits[1].grad)


def test_documents_are_looked_for_only_where_a_mask_is_made_of_them(monkeypatch: pytest.MonkeyPatch) -> None:
    """transformers' search waits for the device. One document needs no mask; with two, SDPA does."""
    from transformers import masking_utils

    searched = []
    search = masking_utils.find_packed_sequence_indices
    monkeypatch.setattr(
        masking_utils, "find_packed_sequence_indices", lambda positions: searched.append(1) or search(positions)
    )
    actor = build_actor(model="llama-tiny", num_layers=1, attn="sdpa", device=torch.device("cpu"))
    tokens, found = torch.arange(8)[None], []
    for lengths in ([8], [3, 5]):
        bounds = torch.tensor([0, *lengths], dtype=torch.int32).cumsum(0, dtype=torch.int32)
        positions = torch.cat([torch.arange(length) for length in lengths])[None]
        found.append(actor(tokens, tokens, position_ids=positions, cu_seq_lens_q=bounds).log_probs)
        assert len(searched) == len(lengths) - 1
    alone = actor(tokens, tokens, position_ids=tokens).log_probs
    torch.testing.assert_close(found[0], alone)
    assert not torch.allclose(found[1][:, 3:], alone[:, 3:])


@pytest.mark.parametrize(("head", "one_call", "calls"), [("chunked", False, 4), ("chunked", True, 1)])
def test_the_head_is_called_once_where_each_call_is_a_collective(head: Head, one_call: bool, calls: int) -> None:
    """Two chunks, each computed again in the backward pass: four calls, unless the backend asks for one."""
    actor = build_actor(model="llama-tiny", num_layers=1, attn="sdpa", device=torch.device("cpu"), head=head)
    whole = build_actor(model="llama-tiny", num_layers=1, attn="sdpa", device=torch.device("cpu"), head="full")
    actor.one_head_call = one_call
    seen = []
    actor.model.lm_head.register_forward_pre_hook(lambda module, inputs: seen.append(inputs[0].shape))
    ids = torch.randint(0, 1024, (1, HEAD_CHUNK + 100))
    for each in (actor, whole):
        each(ids, ids.roll(-1, 1)).log_probs.sum().backward()
    assert len(seen) == calls
    for one, other in zip(actor.parameters(), whole.parameters(), strict=True):
        torch.testing.assert_close(one.grad, other.grad, rtol=1e-4, atol=1e-3)


def test_master_weights_leave_rotary_frequencies_alone() -> None:
    actor = build_actor(model="llama-tiny", num_layers=1, attn="sdpa", device=torch.device("cpu"))
    MasterWeights(actor, None, torch.bfloat16)
    assert {p.dtype for p in actor.parameters()} == {torch.bfloat16}
    assert {buffer.dtype for buffer in actor.buffers() if buffer.is_floating_point()} == {torch.float32}


@pytest.mark.parametrize("preset", ["llama-3.1-8b", "qwen2.5-7b", "qwen3-8b", "gemma-3-4b"])
def test_presets_make_configurations_of_any_depth(preset: str) -> None:
    config = model_config(preset, 3)
    assert config.num_hidden_layers == 3
    assert len(getattr(config, "layer_types", None) or [0] * 3) == 3


@pytest.mark.parametrize(
    ("model", "layers", "reason"),
    [("gemma-3-tiny", 2, "attend to a window"), ("gemma-2-2b", 1, "window"), ("qwen3-tiny", 1, None)],
)
def test_a_ring_is_refused_for_attention_that_it_has_not(model: str, layers: int, reason: str | None) -> None:
    config = model_config(model, layers)
    if reason is None:
        check_for_ring(config, model)
        return
    with pytest.raises(ModelError, match=reason):
        check_for_ring(config, model)
    config.sliding_window = None
    if getattr(config, "attn_logit_softcapping", None):
        with pytest.raises(ModelError, match="caps attention scores"):
            check_for_ring(config, model)


def gpt2(folder: Path) -> str:
    file = folder / "config.json"
    sizes = {"model_type": "gpt2", "n_embd": 16, "n_layer": 3, "n_head": 2, "n_positions": 64, "vocab_size": 100}
    file.write_text(json.dumps(sizes))
    return str(file)


def test_layers_are_found_by_their_number_whatever_their_list_is_called(tmp_path: Path) -> None:
    actor = build_actor(model=gpt2(tmp_path), num_layers=None, attn="sdpa", device=torch.device("cpu"))
    assert layers_of(actor.model) is actor.model.transformer.h
    with pytest.raises(ModelError, match="drops scores at random"):
        check_for_ring(actor.config, "gpt2")


def test_what_no_plan_splits_is_refused_before_anything_starts(tmp_path: Path) -> None:
    split = {"backend": "fsdp2", "num_gpus": 2, "tp": 2, "device": "cpu", "dtype": "fp32"}
    refused = refusal(parse({**split, "model": gpt2(tmp_path)}), 0)
    assert refused is not None
    assert "no tensor-parallel plan for models of type gpt2" in refused[0]
    assert refusal(parse({**split, "model": "llama-tiny"}), 0) is None
    assert refusal(parse({**split, "model": gpt2(tmp_path), "tp": 1}), 0) is None


def test_short_names_of_published_models_need_no_network(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("socket.socket.connect", lambda *_: pytest.fail("a connection was opened"))
    config = model_config("qwen2.5-0.5b", 2)
    assert (config.model_type, config.hidden_size, config.num_hidden_layers) == ("qwen2", 896, 2)
    assert model_facts("qwen2.5-0.5b", 2).hidden == 896


def test_names_on_the_hub_are_asked_for_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "config.json"
    file.write_text(model_config("llama-tiny").to_json_string(use_diff=False))
    asked = []

    def download(name: str, part: str) -> str:
        asked.append((name, part))
        if name != "somebody/tiny":
            raise FileNotFoundError
        return str(file)

    monkeypatch.setattr("huggingface_hub.hf_hub_download", download)
    monkeypatch.setattr("bench.hub.unreachable", lambda: "")
    assert model_facts("somebody/tiny", 3).layers == 3
    for absent, told in (
        ("somebody/else", "cannot be had from the hub .FileNotFoundError."), (f"{tmp_path}/absent", "no such file"),
        ("absent", "no model"),
    ):  # fmt: skip
        with pytest.raises(rules.models.ModelError, match=told):
            model_facts(absent, None)
    assert asked == [("somebody/tiny", "config.json"), ("somebody/else", "config.json")]


def test_weights_that_cannot_be_had_are_told_before_anything_starts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bench.hub.unreachable", lambda: "nowhere.example cannot be reached")
    row = parse({"model": "Qwen/Qwen2.5-0.5B", "device": "cpu", "dtype": "fp32"})
    told = refusal(row, 0)
    assert told is not None
    assert told[0].endswith("not on this disk, and nowhere.example cannot be reached")
    assert refusal(row, 0, here=False) is None  # other hosts may have them
    monkeypatch.setattr("bench.hub.unreachable", lambda: "")
    assert refusal(row, 0) is None


@pytest.mark.parametrize(("model", "layers"), [("no-such-model.json", None), ("llama-tiny", 0)])
def test_a_model_that_cannot_be_built_is_one_line(model: str, layers: int | None) -> None:
    with pytest.raises(ModelError) as caught:
        model_config(model, layers)
    assert "\n" not in str(caught.value)


def test_plans_come_from_transformers_first() -> None:
    actor = build_actor(model="qwen3-tiny", num_layers=1, attn="sdpa", device=torch.device("cpu"))
    plan = get_hf_tp_plan(actor.model)
    assert plan["model.layers.*.self_attn.q_proj"] == "colwise"
    assert plan["lm_head"].startswith("colwise")
    assert choose_plan(actor.model, "hf", False) == (plan, "transformers")
    assert choose_plan(actor.model, "hf", True)[1] == "optimized"


@settings(max_examples=20)
@given(st.lists(st.floats(-3, -0.125, width=32), min_size=2, max_size=6))
def test_the_first_ppo_step_is_the_policy_gradient(values: list[float]) -> None:
    """With the old policy the present one, the gradient of the loss is minus the advantages."""
    batch = jobs.batches(1, 1, 1)[0][0]
    inputs = jobs.pack_inputs(batch, use_actions=True, seed=0)
    log_probs = torch.full(inputs.labels.shape, values[0]).requires_grad_()
    ppo(log_probs, inputs).backward()
    torch.testing.assert_close(log_probs.grad, -(inputs.advantages * inputs.loss_mask))


def test_losses_are_found_by_name() -> None:
    assert find_loss("tests.bench.faults:plain").use_actions
    for wrong in ("dpo", "no.module:loss", "bench.losses:nothing", "bench.losses:CLIP"):
        with pytest.raises(ValueError, match="--loss"):
            find_loss(wrong)


def test_steady_means_three_alike() -> None:
    assert is_steady([9.0, 1.0, 1.01, 0.99])
    assert not is_steady([1.0, 1.0])
    assert not is_steady([1.0, 1.0, 1.2])


def test_compilations_for_new_shapes_are_counted() -> None:
    def doubled(values: torch.Tensor) -> torch.Tensor:
        return values * 2

    compiled = torch.compile(doubled, backend="eager", dynamic=False)
    before = graph_report()["recompiles"]
    found = []
    for length in (3, 3, 4, 5):
        compiled(torch.ones(length))
        found.append(graph_report()["recompiles"] - before)
    assert found == [0, 0, 1, 2]
