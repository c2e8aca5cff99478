"""`bench convert-ckpt`: what a backend trained is what another program reads, and the other way round."""

from __future__ import annotations

import json
import pickle
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch.distributed.checkpoint.metadata import BytesStorageMetadata

from bench.checkpoints.checkpoint import CheckpointError
from bench.checkpoints.conversion import TAG
from bench.commands.convert_ckpt import main
from bench.configuration import Configuration
from bench.measure.model import build_actor, model_config
from tests.bench import jobs
from tests.bench.pool import run_group
from tests.bench.test_inputs import payloads

BASE = Configuration(train_batch_size=4, micro_batch_size=1, dtype="fp32", device="cpu")
CONFIGS = {
    "ddp": replace(BASE, backend="ddp"),
    "fsdp4-tp2": replace(BASE, backend="fsdp2", num_gpus=4, tp=2),
    "zero3": replace(BASE, backend="deepspeed", zero_stage=3, num_gpus=2),
}
MODEL = ["--model", "llama-tiny", "--num-layers", "2"]


def trained(config: Configuration, folder: str) -> float:
    """Train a step and save a checkpoint; the loss of the next batch."""
    strategy, actor, optimizer, _ = jobs.start(config)
    first, second = jobs.batches(2, 4, 1)
    jobs.train_step(strategy, actor, optimizer, None, jobs.micro_batches(strategy, first), jobs.sft)
    strategy.save_ckpt(actor, folder, tag="step1", optimizer=optimizer)
    return jobs.evaluate(strategy, actor, second)


def loaded(config: Configuration, folder: str) -> tuple[float, str]:
    """The loss with a converted checkpoint's weights, and what loading its optimizer says."""
    strategy, actor, optimizer, _ = jobs.start(replace(config, random_seed=config.random_seed + 1))
    strategy.load_ckpt(actor, folder, load_module_only=True)
    loss = jobs.evaluate(strategy, actor, jobs.batches(2, 4, 1)[1])
    try:
        strategy.load_ckpt(actor, folder, optimizer=optimizer)
    except CheckpointError as error:
        return loss, str(error)
    return loss, ""


def loss_of(folder: Path) -> float:
    from bench.strategies import get_strategy

    strategy = get_strategy(CONFIGS["ddp"])
    strategy.setup_distributed()
    actor = build_actor(model=str(folder), num_layers=None, attn="sdpa", device=strategy.device)
    return jobs.evaluate(strategy, actor, jobs.batches(2, 4, 1)[1])


@pytest.mark.parametrize(
    ("writer", "reader"), [("fsdp4-tp2", "zero3"), pytest.param("zero3", "fsdp4-tp2", marks=pytest.mark.slow)]
)
def test_weights_go_to_hugging_face_and_back(writer: str, reader: str, tmp_path: Path) -> None:
    theirs, back = tmp_path / "huggingface", tmp_path / "back"
    expected = run_group(CONFIGS[writer].num_gpus, trained, CONFIGS[writer], str(tmp_path / "ours"))[0]
    assert main([str(tmp_path / "ours"), str(theirs), *MODEL]) == 0
    (theirs / "tokenizer.json").write_text("{}")
    assert loss_of(theirs) == pytest.approx(expected, rel=1e-5)
    assert main([str(theirs), str(back)]) == 0
    loss, message = run_group(CONFIGS[reader].num_gpus, loaded, CONFIGS[reader], str(back))[0]
    assert loss == pytest.approx(expected, rel=1e-5)
    assert "holds weights only" in message
    again = tmp_path / "again"  # the way back needs no --model, and loses no bit and no tokenizer
    assert main([str(back), str(again)]) == 0
    first, second = (load_file(folder / "model.safetensors") for folder in (theirs, again))
    assert first.keys() == second.keys()
    assert all(torch.equal(first[name], second[name]) for name in first)
    assert (again / "tokenizer.json").read_text() == "{}"


def native(config: Configuration, folder: str) -> float:
    """DeepSpeed's own checkpoint, as other programs write it."""
    strategy, actor, *_ = jobs.start(config)
    actor.save_checkpoint(folder, tag="global_step0")
    return jobs.evaluate(strategy, actor, jobs.batches(2, 4, 1)[1])


@pytest.mark.parametrize("stage", [0, 3])
def test_deepspeeds_own_checkpoints_are_read_when_they_are_trusted(
    stage: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = replace(CONFIGS["zero3"], zero_stage=stage)
    expected = run_group(2, native, config, str(tmp_path / "native"))[0]
    command = [str(tmp_path / "native"), str(tmp_path / "out"), *MODEL]
    assert main(command) == 2
    assert "--trust-pickle reads them" in capsys.readouterr().err
    assert main([*command, "--trust-pickle"]) == 0
    assert loss_of(tmp_path / "out") == pytest.approx(expected, rel=1e-5)


@pytest.fixture(scope="module")
def tied(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A Hugging Face directory of a model whose head is its embedding."""
    from transformers import AutoModelForCausalLM

    folder = tmp_path_factory.mktemp("tied")
    config: Any = model_config("llama-tiny", 1)
    config.tie_word_embeddings = True
    AutoModelForCausalLM.from_config(config).save_pretrained(folder)
    return folder


def test_tied_weights_names_and_types_are_kept(tied: Path, tmp_path: Path) -> None:
    assert main([str(tied), str(tmp_path / "ours"), "--bare"]) == 0
    assert main([str(tmp_path / "ours"), str(tmp_path / "theirs"), "--dtype", "bf16"]) == 0
    before, after = load_file(tied / "model.safetensors"), load_file(tmp_path / "theirs" / "model.safetensors")
    assert before.keys() == after.keys()
    assert all(torch.equal(before[name].bfloat16(), after[name]) for name in before)
    written = json.loads((tmp_path / "theirs" / "config.json").read_text())
    assert (written["dtype"], written["tie_word_embeddings"]) == ("bfloat16", True)


def test_experts_keep_their_names_on_disk(tmp_path: Path) -> None:
    from transformers import AutoConfig, AutoModelForCausalLM

    sizes = {"hidden_size": 32, "intermediate_size": 32, "num_attention_heads": 2, "num_key_value_heads": 1}
    config = AutoConfig.for_model("mixtral", num_hidden_layers=1, vocab_size=64, num_local_experts=4, **sizes)
    AutoModelForCausalLM.from_config(config).save_pretrained(tmp_path / "theirs")
    assert main([str(tmp_path / "theirs"), str(tmp_path / "ours")]) == 0
    assert main([str(tmp_path / "ours"), str(tmp_path / "again")]) == 0
    before, after = (load_file(tmp_path / name / "model.safetensors") for name in ("theirs", "again"))
    assert before.keys() == after.keys()
    assert all(torch.equal(before[name], after[name]) for name in before)


def test_what_cannot_be_converted_is_one_line(tied: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([str(tied), str(tmp_path / "ours")]) == 0
    full = tmp_path / "full"
    full.mkdir()
    (full / "file").write_text("")
    cut = tmp_path / "cut"
    cut.mkdir()
    weights = load_file(tied / "model.safetensors")
    del weights["model.norm.weight"]
    save_file(weights, cut / "model.safetensors", {"format": "pt"})
    (cut / "config.json").write_text((tied / "config.json").read_text())
    broken = tmp_path / "broken"
    broken.mkdir()
    (broken / "model.safetensors").write_bytes(b"\x08")
    (broken / "config.json").write_text((tied / "config.json").read_text())
    out = str(tmp_path / "out")
    capsys.readouterr()
    for arguments, text in (
        ([str(tmp_path / "absent"), out], "no such directory"),
        ([str(full), out], "holds no checkpoint"),
        ([str(tied), str(tmp_path / "ours")], "exists"),
        ([str(tmp_path / "ours"), str(full)], "is not empty"),
        ([str(tmp_path / "ours"), out, "--tag", "step9"], "no checkpoint"),
        ([str(tmp_path / "ours"), out, "--model", "llama-tiny", "--num-layers", "2"], "tensors are missing"),
        ([str(tmp_path / "ours"), out, "--model", "qwen3-tiny"], "missing"),
        ([str(tmp_path / "ours"), out, "--model", "nothing.json"], "nothing.json"),
        ([str(cut), out], "model.norm.weight"),
        ([str(broken), out], "broken"),
    ):
        assert main(arguments) == 2, arguments
        message = capsys.readouterr().err
        lines = [line for line in message.splitlines() if line.startswith("bench convert-ckpt: ")]
        assert len(lines) == 1
        assert text in lines[0]


def test_a_checkpoint_that_would_run_code_is_refused(
    tied: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """torch's own reader executes what the index of a checkpoint says."""
    assert main([str(tied), str(tmp_path / "ours")]) == 0
    index = tmp_path / "ours" / TAG / "state" / ".metadata"
    good, marker = index.read_bytes(), tmp_path / "ran"
    first = next(iter(pickle.loads(good).storage_data))

    def changed(change: Callable[[Any], None]) -> bytes:
        value = pickle.loads(good)
        change(value)
        return pickle.dumps(value)

    def as_bytes(value: Any) -> None:  # torch unpickles such an entry without asking
        value.state_dict_metadata[first.fqn] = BytesStorageMetadata()

    def elsewhere(value: Any) -> None:
        value.storage_data[first].relative_path = "/dev/zero"

    def in_part(value: Any) -> None:
        value.state_dict_metadata[first.fqn].chunks = []

    hostile = payloads(marker)
    hostile |= {
        "bytes": changed(as_bytes), "elsewhere": changed(elsewhere), "in part": changed(in_part),
        "storage": changed(lambda value: setattr(value, "storage_meta", 5)),
    }  # fmt: skip
    capsys.readouterr()
    for name, content in hostile.items():
        index.write_bytes(content)
        assert main([str(tmp_path / "ours"), str(tmp_path / "out")]) == 2, name
        error = capsys.readouterr().err
        assert not marker.exists(), name
        assert error.startswith(f"bench convert-ckpt: {index}: refused: "), name
        assert error.count("\n") == 1, name
    assert not (tmp_path / "out").exists()
    index.write_bytes(good)
    for file, content, text in (
        ("latest", b"../../elsewhere", "does not hold the name of a checkpoint"),
        ("latest", b"\xff\xfe", "does not hold the name of a checkpoint"),
        (f"{TAG}/training.json", b"[]", "holds a list"),
        (f"{TAG}/model/config.json", b'{"model_type": "llama", "num_hidden_layers": "x"}', "num_hidden_layers"),
    ):
        path = tmp_path / "ours" / file
        kept = path.read_bytes()
        path.write_bytes(content)
        assert main([str(tmp_path / "ours"), str(tmp_path / "out")]) == 2
        error = capsys.readouterr().err
        assert text in error
        assert error.count("\n") == 1
        path.write_bytes(kept)
    assert main([str(tmp_path / "ours"), str(tmp_path / "out")]) == 0
