"""`bench plan`: predictions against measurements and by hand, legality against brute force, and the command."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bench.cli import main as bench
from bench.commands.plan import main, memory_size
from bench.predict.flops import per_token, traffic
from bench.predict.layout import Layout
from bench.predict.memory import GIB, estimate
from bench.predict.planning import Request, plan
from rules.models import ModelFacts, resolve, table

ROOT = Path(__file__).resolve().parents[2]
LLAMA = resolve("llama-3.1-8b")


@pytest.mark.parametrize(("layers", "tokens_per_second", "tera"), [(4, 64_000, 590), (32, 11_300, 583)])
def test_flops_agree_with_the_measured_rate(layers: int, tokens_per_second: int, tera: float) -> None:
    flops = per_token(LLAMA.with_layers(layers), 8192)
    assert flops.model * tokens_per_second / 1e12 == pytest.approx(tera, rel=0.01)


def test_states_by_hand() -> None:
    # 8 ranks: 16-bit parameters 2, fp32 copy and AdamW's moments 12, in bytes per parameter.
    n = LLAMA.parameters
    two = estimate(LLAMA, Layout(backend="deepspeed", zero_stage=2, dp=8))
    three = estimate(LLAMA, Layout(backend="deepspeed", zero_stage=3, dp=4, ring=2))
    fsdp = estimate(LLAMA, Layout(backend="fsdp2", dp=8))
    assert (two.parameters, two.optimizer) == (2 * n, 12 * n / 8)
    assert (three.parameters, three.optimizer) == (2 * n / 8, 12 * n / 8)
    assert (fsdp.parameters, fsdp.optimizer) == (4 * n / 8, 8 * n / 8)
    assert estimate(LLAMA, Layout(backend="fsdp2", master="bf16", dp=8)).optimizer == 4 * n / 8
    assert estimate(LLAMA, Layout(backend="deepspeed", dtype="fp32", dp=8)).optimizer == 8 * n / 8
    assert estimate(LLAMA, Layout(backend="deepspeed", offload_optimizer=True)).optimizer == 0


def test_flops_by_hand() -> None:
    tiny = ModelFacts("tiny", "llama", 8, 16, 2, 2, 1, 4, 10, False, 64)
    weights = 2 * (8 * 8 * 2 + 8 * 4 * 2 + 3 * 8 * 16) + 8 * 10
    flops = per_token(tiny, 32)
    assert flops.weights == 6 * weights
    # Forward: two products of 2·width operations with each of 32/2 visible tokens, in two layers.
    assert flops.attention == 3 * (2 * 2 * (2 * 4) * 32 / 2) * 2
    assert per_token(tiny, 32, causal=False).attention == 2 * flops.attention
    assert per_token(tiny, 32, checkpointing=True).recomputed == (flops.model - 6 * 80) / 3


def test_only_active_experts_are_counted() -> None:
    sparse = resolve("qwen3-30b-a3b")
    assert per_token(sparse, 1).weights < 6 * sparse.active_parameters < sparse.parameters


LAYOUTS = st.builds(
    Layout,
    backend=st.sampled_from(["deepspeed", "fsdp2", "ddp"]), zero_stage=st.integers(0, 3),
    dp=st.sampled_from([1, 2, 8]), tp=st.sampled_from([1, 2, 4]), ring=st.sampled_from([1, 2]),
    micro_batch_size=st.integers(1, 4), seq_len=st.sampled_from([512, 4096]), grad_accum=st.integers(1, 3),
    compiled=st.booleans(), checkpointing=st.booleans(), sequence_parallel=st.booleans(),
)  # fmt: skip


@given(st.sampled_from(sorted(table())), LAYOUTS)
def test_more_takes_more(name: str, layout: Layout) -> None:
    facts = table()[name]
    one = estimate(facts, layout)
    assert min(one.__dict__.values()) >= 0
    grown = Layout(**{**layout.__dict__, "seq_len": 2 * layout.seq_len})
    assert estimate(facts, grown).allocated >= one.allocated
    if not layout.checkpointing:
        saved = Layout(**{**layout.__dict__, "checkpointing": True})
        assert estimate(facts, saved).allocated <= one.allocated * 1.05
    split = Layout(**{**layout.__dict__, "tp": 2 * layout.tp})
    assert estimate(facts, split).allocated <= one.allocated
    assert traffic(facts, layout).total >= 0


def _request(facts: ModelFacts, gpus: int, **more: Any) -> Request:
    asked = {"gpus_per_node": 8, "gpu_memory": 80e9, "variants": (("fsdp2", None),), **more}
    return Request(facts=facts, num_gpus=gpus, **asked)


def brute_force(gpus: int, heads: int, kv_heads: int, seq_len: int) -> set[tuple[int, int, int]]:
    return {
        (dp, tp, ring)
        for dp in range(1, gpus + 1) for tp in range(1, gpus + 1) for ring in range(1, gpus + 1)
        if dp * tp * ring == gpus and heads % tp == 0 and kv_heads % tp == 0
        and (ring == 1 or seq_len % (2 * ring) == 0)
    }  # fmt: skip


@settings(deadline=None, max_examples=12)
@given(
    st.integers(1, 16),
    st.sampled_from(["llama-3.1-8b", "qwen2.5-7b", "gemma-3-1b-pt"]),
    st.sampled_from([4096, 1000, 250]),
)
def test_legal_sizes_agree_with_brute_force(gpus: int, name: str, seq_len: int) -> None:
    facts = resolve(name)
    attn = "sdpa" if facts.head_dim > 256 else "flash_attention_2"
    legal, refused = plan(_request(facts, gpus, seq_len=seq_len, attn=attn, gpus_per_node=16))
    found = {(one.layout.dp, one.layout.tp, one.layout.ring) for one in legal}
    assert found == brute_force(gpus, facts.heads, facts.kv_heads, seq_len)
    assert not found & {(gpus // (r.tp * r.ring), r.tp, r.ring) for r in refused if gpus % (r.tp * r.ring) == 0}
    assert [one.fits for one in legal] == sorted((one.fits for one in legal), reverse=True)


def test_checkpointing_is_switched_on_where_it_is_needed() -> None:
    request = _request(LLAMA, 8, seq_len=8192, gpu_memory=60e9)
    rows = {(one.layout.tp, one.layout.ring): one for one in plan(request)[0]}
    assert rows[1, 1].layout.checkpointing
    assert rows[1, 1].fits
    assert not rows[2, 2].layout.checkpointing


# --- the command


def test_json(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--model", "llama-3.1-8b", "--gpus", "8", "--format", "json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["version"] == 1
    assert document["model"]["parameters"] == 8_030_261_248
    first = document["plans"][0]
    assert first["fits"]
    parts = ("parameters", "gradients", "optimizer", "activations", "logits", "working")
    assert sum(first["memory"][part] for part in parts) == pytest.approx(first["memory"]["allocated"])
    assert {"tp", "ring", "constraint", "message", "help"} <= document["refused"][0].keys()


def test_text_names_the_constraint_in_the_way(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--model", "qwen2.5-7b", "--gpus", "8", "--backend", "fsdp2"]) == 0
    out = capsys.readouterr().out
    assert "[tp-heads] tp 8 ring 1" in out
    assert "[world-divisible]" in out
    assert "7.62B parameters" in out


def test_what_to_change_is_told_where_nothing_fits(capsys: pytest.CaptureFixture[str]) -> None:
    flags = ["--model", "llama-3.1-70b", "--gpus", "16"]
    assert main(flags) == 0
    told = re.search(r"nothing fits: .* --gpu-memory from (\d+GB) on or --offload-optimizer", capsys.readouterr().out)
    assert told is not None
    for way in (["--gpu-memory", told[1]], ["--offload-optimizer"]):
        assert main([*flags, *way]) == 0
        assert "nothing fits" not in capsys.readouterr().out


def test_markdown_rows_have_as_many_cells_as_headings(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--model", "llama-3.1-8b", "--gpus", "4", "--format", "markdown", "--backend", "fsdp2"]) == 0
    lines = capsys.readouterr().out.splitlines()
    heading, *rows = [line for line in lines if line.startswith(("| backend", "| fsdp2"))]
    assert len(rows) == 6
    assert {row.count("|") for row in rows} == {heading.count("|")}


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--model", "llama-9"], "no model 'llama-9'"),
        (["--model", "llama-3.1-8b", "--backend", "horovod"], "--backend 'horovod': choose from"),
        (["--model", "llama-3.1-8b", "--zero-stage", "4"], "--zero-stage '4': choose from"),
        (["--model", "llama-3.1-8b", "--gpus", "9"], "take 8 GPUs"),
    ],
)
def test_wrong_values_are_one_line_and_status_2(
    flags: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["--gpus", "8", *flags]) == 2
    err = capsys.readouterr().err
    assert message in err
    assert err.count("\n") == 1


@pytest.mark.parametrize("value", ["0", "-1", "eight", "1.5"])
def test_gpus_must_be_a_whole_number(value: str) -> None:
    with pytest.raises(SystemExit) as stopped:
        main(["--model", "llama-3.1-8b", "--gpus", value])
    assert stopped.value.code == 2


@pytest.mark.parametrize(("text", "size"), [("80GB", 80e9), ("141 GiB", 141 * GIB), ("24", 24e9), ("0.5TB", 5e11)])
def test_memory_sizes(text: str, size: float) -> None:
    assert memory_size(text) == size


def test_a_configuration_on_disk(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config = {
        "model_type": "llama", "hidden_size": 128, "intermediate_size": 352, "num_hidden_layers": 2,
        "num_attention_heads": 8, "num_key_value_heads": 4, "vocab_size": 1024, "max_position_embeddings": 512,
    }  # fmt: skip
    (tmp_path / "config.json").write_text(json.dumps(config))
    assert main(["--model", str(tmp_path), "--gpus", "2"]) == 0
    assert "1 × 512 tokens" in capsys.readouterr().out


def test_a_preset_of_the_harness(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--model", "llama-tiny", "--gpus", "2", "--backend", "fsdp2"]) == 0
    assert capsys.readouterr().out.startswith("llama-tiny: 0.63M parameters, 2 layers")


def test_other_spellings_of_flags_mean_the_same(capsys: pytest.CaptureFixture[str]) -> None:
    def planned(*flags: str) -> str:
        assert main(["--model", "llama-tiny", "--backend", "fsdp2", "--format", "json", *flags]) == 0
        return capsys.readouterr().out

    ours = planned(
        "--gpus", "4", "--tp", "2", "--ring", "2", "--attn", "sdpa", "--ring-impl", "sdpa", "--compile=blocks"
    )
    old = (
        "--num_gpus",
        "4",
        "--fsdp_tensor_parallel_size",
        "2",
        "--ring_attn_size",
        "2",
        "--no-flash-attn",
        "--compile",
    )
    assert planned(*old, "--ring-impl", "sdpa") == ours
    assert planned("--gpus", "4") == planned("--gpus", "4", "--flash-attn") != ours


def test_unknown_command_names_the_nearest(capsys: pytest.CaptureFixture[str]) -> None:
    assert bench(["plam"]) == 2
    assert "did you mean plan?" in capsys.readouterr().err


def test_it_runs_without_torch() -> None:
    code = (
        "import sys\n"
        "class No:\n"
        "    def find_spec(self, name, *rest):\n"
        "        if name.split('.')[0] in ('torch', 'transformers', 'numpy', 'deepspeed', 'libcst'):\n"
        "            raise ImportError(name)\n"
        "sys.meta_path.insert(0, No())\n"
        "from bench.cli import main\n"
        "sys.exit(main(['plan', '--model', 'llama-3.1-8b', '--gpus', '8', '--top', '1']))\n"
    )
    run = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert run.returncode == 0, run.stderr
    assert "8.03B parameters" in run.stdout


def planned(gpus: int, **streams: object) -> subprocess.CompletedProcess[str]:
    """`bench plan` for the given number of GPUs in a process of its own."""
    command = [sys.executable, "-m", "bench", "plan", "--model", "llama-3.1-8b", "--gpus", str(gpus)]
    options = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, **streams}
    return subprocess.run(command, cwd=ROOT, text=True, timeout=60, check=False, **options)  # type: ignore[call-overload,no-any-return]


def test_worlds_of_many_divisors_and_absurd_ones() -> None:
    large = planned(10_000)
    assert large.returncode == 0
    assert "take --tp 4 or 8" in large.stdout
    absurd = planned(10**10)
    assert absurd.returncode == 2
    assert absurd.stderr.splitlines() == [f"bench plan: --gpus {10**10}: at most 1000000 are planned for"]


def test_output_that_nobody_takes() -> None:
    reader, writer = os.pipe()
    os.close(reader)
    with os.fdopen(writer, "w") as pipe:
        gone = planned(8, stdout=pipe)
        listed = subprocess.run(
            [sys.executable, "-m", "bench", "--help"], stdout=pipe, stderr=subprocess.PIPE, text=True
        )
    assert (gone.returncode, gone.stderr) == (listed.returncode, listed.stderr) == (141, "")
    if Path("/dev/full").exists():
        with open("/dev/full", "w") as disk:
            full = planned(8, stdout=disk)
        assert (full.returncode, full.stderr) == (2, "bench: cannot write: No space left on device\n")
