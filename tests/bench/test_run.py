"""`python -m bench run` as users start it: real processes, real result files, and every way to end."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import sysconfig
from dataclasses import fields
from pathlib import Path

import pytest

from bench import cli
from bench.commands import plan as plan_command
from bench.commands import run as run_command
from bench.commands.run import expand, main
from bench.configuration import Configuration, ConfigurationError, model_facts, parse, presets
from bench.launch import local
from bench.predict import planning, sizes
from bench.process import supervise
from bench.process.progress import Progress
from bench.process.supervise import classify
from bench.report.rows import collect
from bench.results import results
from bench.results.table import render
from bench.sweep import availability
from bench.sweep import flags as setting_flags
from bench.sweep.sweep import refusal
from tests.real.wheels import NotFetched, openrlhf

ROOT = Path(__file__).resolve().parents[2]
SMALL = ["--device", "cpu", "--seq-len", "32", "--steps", "2", "--warmup", "1", "--quiet"]


def bench(*arguments: str, path: str = "") -> subprocess.CompletedProcess[str]:
    environment = {k: v for k, v in os.environ.items() if k not in ("RANK", "WORLD_SIZE", "LOCAL_RANK")}
    environment["PYTHONPATH"] = os.pathsep.join(filter(None, [str(ROOT), path]))
    environment["CUDA_VISIBLE_DEVICES"] = ""
    command = [sys.executable, "-m", "bench", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=240, env=environment, check=False)


def rows(output: Path) -> dict[str, dict[str, object]]:
    found = [json.loads(path.read_text()) for path in output.glob("*/result.json")]
    return {f"{r['configuration']['backend']}/{r['configuration']['loss']}": r for r in found}


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, subprocess.CompletedProcess[str]]:
    output = tmp_path_factory.mktemp("results")
    flags = ["--backend", "fsdp2,ddp,deepspeed", "--tp", "1,2", "--num-gpus", "2", "--processes", "2"]
    return output, bench("run", *flags, *SMALL, "--output", str(output), "--dtype", "fp32")


def test_every_configuration_ends_as_a_row(finished: tuple[Path, subprocess.CompletedProcess[str]]) -> None:
    output, done = finished
    assert done.returncode == 0, done.stderr
    by_status: dict[str, list[str]] = {}
    for path in output.glob("*/result.json"):
        result = json.loads(path.read_text())
        by_status.setdefault(result["status"], []).append(result["label"])
    assert len(by_status["ok"]) == 4
    assert sorted(label.split("-")[0] for label in by_status["unsupported"]) == ["ddp", "zero2"]
    assert "[backend-tp]" in done.stdout
    assert "[deepspeed-tp-dtype]" in done.stdout


def test_backends_train_alike(finished: tuple[Path, subprocess.CompletedProcess[str]]) -> None:
    losses = [
        run["losses"]
        for path in finished[0].glob("*-2x-sdpa-*/result.json")  # those that split into two data-parallel ranks
        for run in json.loads(path.read_text())["runs"]
    ]
    assert len(losses) == 6
    common = min(map(len, losses))
    for series in losses:
        assert series[:common] == pytest.approx(losses[0][:common], rel=1e-4)


def test_process_times_stand_beside_those_of_the_clock(
    finished: tuple[Path, subprocess.CompletedProcess[str]],
) -> None:
    runs = [run for path in finished[0].glob("*/result.json") for run in json.loads(path.read_text())["runs"]]
    assert len(runs) == 8
    for run in runs:
        steps = sum(sum(step.values()) for step in run["times"])
        assert run["seconds"]["measure_process"] > 0
        assert steps <= 2.2 * run["seconds"]["measure"]  # which is rank 0's; `times` hold the slower of two, by phase


def test_pyperf_reads_and_compares_the_results(finished: tuple[Path, subprocess.CompletedProcess[str]]) -> None:
    files = sorted(map(str, finished[0].glob("*/benchmarks.json")))
    stats = subprocess.run(
        [sys.executable, "-m", "pyperf", "stats", files[0]], capture_output=True, text=True, check=True
    )
    for phase in ("forward", "backward", "optimizer", "peak_memory"):
        assert f"\n{phase}\n" in f"\n{stats.stdout}"
    compared = [sys.executable, "-m", "pyperf", "compare_to", files[0], files[-1]]  # of two backends
    told = subprocess.run(compared, capture_output=True, text=True, check=True).stdout
    assert files[0].split("/")[-2].split("-")[0] != files[-1].split("/")[-2].split("-")[0]
    assert "forward" in told
    assert "Skipped" not in told


def test_a_second_run_measures_nothing_again(finished: tuple[Path, subprocess.CompletedProcess[str]]) -> None:
    output, _ = finished
    before = {path: path.stat().st_mtime_ns for path in output.glob("*/run.*.json")}
    done = bench("run", "--backend", "fsdp2", "--num-gpus", "2", *SMALL, "--output", str(output), "--dtype", "fp32")
    assert done.returncode == 0
    assert {path: path.stat().st_mtime_ns for path in output.glob("*/run.*.json")} == before


@pytest.mark.parametrize(
    ("fault", "status", "message"),
    [
        ("raising", "crash", "rank 1: RuntimeError: first line of the fault"),
        ("out_of_memory", "oom", "rank 1: OutOfMemoryError: tried to allocate"),
        ("not_a_number", "nan", "the loss of step 0 is not finite"),
        ("killed", "crash", ""),
    ],
)
def test_a_failing_rank_is_a_row_with_its_first_error(fault: str, status: str, message: str, tmp_path: Path) -> None:
    loss = f"tests.bench.faults:{fault}"
    flags = ["--backend", "ddp", "--num-gpus", "2", "--processes", "1", "--loss", loss, "--dtype", "fp32"]
    done = bench("run", *flags, *SMALL, "--output", str(tmp_path))
    result = rows(tmp_path)[f"ddp/{loss}"]
    assert (done.returncode, result["status"]) == (1, status)
    assert message in str(result["message"])
    assert "\n" not in str(result["message"])
    assert status in done.stdout


def test_a_rank_that_stays_away_is_a_hang_and_leaves_no_process(tmp_path: Path) -> None:
    configuration = parse(
        {"num_gpus": 2, "loss": "tests.bench.faults:hanging", "device": "cpu", "seq_len": 32, "dtype": "fp32"}
    )
    (tmp_path / "configuration.json").write_text(configuration.to_json())
    deadlines = {**supervise.DEADLINES, "warmup": 3.0}
    verdict = supervise.run_group(tmp_path, 0, 2, lambda *_: None, deadlines)
    assert (verdict.status, verdict.phase) == ("hang", "warmup")
    assert verdict.rank == 1
    assert "rank 1 stayed away (in warmup, at bench/faults.py:" in verdict.message
    assert "rank 0 waits in backward (strategies/base.py:" in verdict.message
    pids = [beat["pid"] for beat in supervise.read_all(tmp_path, "heartbeat")]
    assert len(pids) == 2
    for pid in pids:
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)


def test_hints_and_defaults_are_of_flags_that_exist(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    refused = refusal(parse({"backend": "fsdp2", "num_gpus": 3, "tp": 2, "device": "cpu", "dtype": "fp32"}), 0)
    assert refused is not None
    assert refused[1] == "take --num-gpus 2"
    flags = {flag for action in run_command.parser()._actions for flag in action.option_strings}
    assert set(sizes.FLAGS.values()) <= flags
    plan_flags = {flag for action in plan_command.parser()._actions for flag in action.option_strings}
    assert set(planning.FLAGS.values()) <= plan_flags
    with pytest.raises(SystemExit):
        main(["--help"])
    help_ = " ".join(capsys.readouterr().out.split())
    assert "all of its own; default 4, without GPUs the model’s own" in help_


def paths_of_a_rank(environment: dict[str, str]) -> list[str]:
    program = "import sys; print('\\n'.join(sys.path))"
    done = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=True)
    return done.stdout.splitlines()


def test_pythonpath_wins_in_ranks_and_the_order_is_pythons_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.setenv("PYTHONSAFEPATH", "1")
    own = paths_of_a_rank(dict(os.environ))
    assert own[0] == str(tmp_path)
    installed = Path(sysconfig.get_path("purelib"))
    assert own.index(str(installed)) > own.index(sysconfig.get_path("stdlib"))
    monkeypatch.setattr(local, "ROOT", installed)
    assert paths_of_a_rank(local.environment(1)) == own
    monkeypatch.setattr(local, "ROOT", tmp_path / "checkout")  # which `python -m` has first, too
    assert paths_of_a_rank(local.environment(1)) == [str(tmp_path / "checkout"), *own]
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(tmp_path), str(tmp_path / "checkout")]))
    assert paths_of_a_rank(local.environment(1)) == [str(tmp_path), str(tmp_path / "checkout"), *own[1:]]


def test_under_torchrun_the_process_is_one_rank(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2", "-m", "bench"]
    flags = ["--backend", "fsdp2", "--ring_attn_size", "2", "--output", str(tmp_path), *SMALL]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "CUDA_VISIBLE_DEVICES": ""}
    done = subprocess.run([*command, *flags], capture_output=True, text=True, timeout=240, env=environment, check=False)
    assert done.returncode == 0, done.stderr
    assert sum(line.startswith("fsdp2-2x-ring2") and " ok " in line for line in done.stdout.splitlines()) == 1
    assert len(list(tmp_path.glob("fsdp2-2x-ring2*/benchmarks.json"))) == 1


def test_a_class_that_derives_from_ours_is_one_of_ours() -> None:
    from bench.strategies import get_strategy
    from bench.strategies.ddp import DDPStrategy

    assert type(get_strategy(parse({"backend": "bench.strategies.ddp:DDPStrategy"}))) is DDPStrategy


def test_a_class_of_ones_own_keeps_its_checkpoints_and_the_place_in_the_data() -> None:
    import torch

    from bench.strategies.external import ExternalStrategy

    calls: dict[str, tuple[object, ...]] = {}

    class Own:
        def save_ckpt(self, *given: object) -> None:
            calls["save"] = given

        def load_ckpt(self, *given: object) -> tuple[str, dict[str, object]]:
            calls["load"] = given
            return "there", dict(calls["save"][5])  # type: ignore[call-overload]

    strategy = ExternalStrategy(parse({"backend": "mine:Own"}))
    strategy.inner = Own()
    model = torch.nn.Linear(1, 1)
    left, found = (strategy.setup_dataloader([1, 2, 3], 1, shuffle=False) for _ in range(2))
    left.load_state_dict(position := {"epoch": 0, "consumed": 2})
    assert strategy.save_ckpt(model, "here", "t", client_state={"step": 5}, dataloader=left) == "here/t"
    assert calls["save"] == (model, "here", "t", 3, 1000, {"step": 5, "data_position": position}, True)
    loaded = strategy.load_ckpt(model, "here", "t", load_module_strict=False, dataloader=found)
    assert loaded == ("there", {"step": 5})
    assert calls["load"] == (model, "here", "t", False, True, True, False)
    assert found.sampler.consumed == 2


def test_a_published_strategy_class_runs_unedited(tmp_path: Path) -> None:
    try:
        tree = openrlhf("0.9.10")
    except NotFetched as error:
        pytest.skip(str(error))
    reference = "openrlhf.utils.deepspeed:DeepspeedStrategy"
    flags = ["--backend", f"{reference},deepspeed", "--num-gpus", "2", "--processes", "1", "--dtype", "bf16"]
    done = bench("run", *flags, *SMALL, "--output", str(tmp_path), path=str(tree))
    assert done.returncode == 0, done.stdout
    theirs, ours = rows(tmp_path)[f"{reference}/sft"], rows(tmp_path)["deepspeed/sft"]
    assert theirs["status"] == ours["status"] == "ok"
    pairs = zip(theirs["runs"][0]["losses"], ours["runs"][0]["losses"], strict=False)  # type: ignore[index]
    assert all(a == pytest.approx(b, rel=2e-3) for a, b in pairs)


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (
            ["--backend", "fdsp2"],
            "--backend fdsp2: use ddp, deepspeed, fsdp2 or package.module:Class; did you mean fsdp2?",
        ),
        (
            ["--backend", "zero3"],
            "use ddp, deepspeed, fsdp2 or package.module:Class; zero3 is --backend deepspeed --zero-stage 3",
        ),
        (["--backend", "FSDP2"], "did you mean fsdp2?"),
        (["--inputs", str(ROOT)], "holds no .pkl, .pickle, .pt"),
        (["--inputs", "/nowhere"], "--inputs /nowhere: no such file or directory"),
        (["--config", "/nowhere.toml"], "--config /nowhere.toml"),
        (["--max-inputs", "3"], "--max-inputs is about recorded batches: give --inputs"),
        (["--loss", "nll"], "--loss nll: use sft, ppo or module:function"),
        (["--loss", "no_such_module:loss"], "--loss no_such_module:loss: no_such_module is not found"),
        (["--backend", ","], "no rows: --backend lists nothing"),
        (["--lr", "nan"], "lr = nan: not a number from 0 on"),
    ],
)
def test_wrong_usage_is_one_line_and_status_2(
    flags: list[str], message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*flags, "--output", str(tmp_path)]) == 2
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("num_layers = 'four'", "num_layers = 'four': not a whole number"),
        ("zero-stage = [2, 7]", "zero_stage = 7: choose from 0, 1, 2, 3"),
        ("compile = 'foo'", "compile = 'foo': choose from none, blocks"),
        ("tp = 0", "tp = 0: not a whole number from 1 on"),
        ("tp = true", "tp = True: not a whole number"),
        ("packing = 'no'", "packing = 'no': neither true nor false"),
        ("backend = 3", "backend = 3: not a text"),
        ("dtype = ['bf16', 'fp23']", "dtype = 'fp23': choose from bf16"),
        ("layers = 2", "no such setting: layers; did you mean num_layers?"),
        ("processes = [1, 2]", "processes = [1, 2]: one whole number from 1 on, for all rows"),
        ("device = ['cpu', 'cuda']", "device takes one value, for all rows"),
        ("tp = ", "Invalid value"),
    ],
)
def test_a_file_of_settings_is_read_strictly(
    line: str, message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "sweep.toml").write_text(line)
    assert main(["--config", str(tmp_path / "sweep.toml"), "--output", str(tmp_path / "out")]) == 2
    error = capsys.readouterr().err
    assert error.startswith(f"bench run: --config {tmp_path / 'sweep.toml'}: {message}")
    assert error.count("\n") == 1


def test_flags_win_over_the_file_and_a_dry_run_writes_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "sweep.toml").write_text("packing = [true, false]\nnum-layers = [1, 2]\nbackend = 'ddp'\n")
    flags = ["--config", str(tmp_path / "sweep.toml"), "--num-layers", "3", "--output", str(tmp_path / "out")]
    assert main([*flags, "--device", "cpu", "--num-gpus", "1", "--model", "llama-tiny", "--dry-run"]) == 0
    shown = capsys.readouterr().out
    assert [line.split()[0] for line in shown.splitlines()[2:]] == ["ddp-1x-L3-sdpa-packed", "ddp-1x-L3-sdpa-padded"]
    assert [entry.name for entry in tmp_path.iterdir()] == ["sweep.toml"]


def test_a_rank_of_what_cannot_run_is_a_row_too(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "bench", "--backend", "ddp", "--tp", "2", "--output", str(tmp_path), *SMALL]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "CUDA_VISIBLE_DEVICES": ""}
    environment |= {"RANK": "0", "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29500"}
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, env=environment, check=False)
    assert (done.returncode, done.stderr) == (1, "")
    assert "[backend-tp]" in done.stdout
    assert [json.loads(path.read_text())["status"] for path in tmp_path.glob("*/result.json")] == ["unsupported"]


GPT2 = {"model_type": "gpt2", "n_embd": 32, "n_layer": 1, "n_head": 2, "vocab_size": 300, "n_positions": 64}
BERT = {"model_type": "bert", "hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2,
        "vocab_size": 300, "intermediate_size": 64}  # fmt: skip


def test_folders_with_a_shape_and_no_weights_are_rows_whatever_the_model(tmp_path: Path) -> None:
    """Weights are drawn; a model whose parameters cannot be counted is measured without FLOP/s; one that is no causal
    language model is refused in a line."""
    shapes = {"llama": {**presets()["llama-tiny"], "num_hidden_layers": 1}, "gpt2": GPT2, "bert": BERT}
    for name, shape in shapes.items():
        (tmp_path / name).mkdir()
        (tmp_path / name / "config.json").write_text(json.dumps(shape))
    models = ",".join(str(tmp_path / name) for name in shapes)
    flags = ["--model", models, "--backend", "ddp", "--num-gpus", "1", "--processes", "1", "--output"]
    done = bench("run", *flags, str(tmp_path / "out"), *SMALL)
    remark = "ddp-1x-sdpa-packed-gpt2: its folder holds no weights: they were drawn from the seed"
    assert f"ddp-1x-sdpa-packed-llama, {remark}" in done.stdout
    assert "BertLMHeadModel has no `lm_head` to take log-probabilities of" in done.stdout
    found = {row.model: row for row in collect([tmp_path / "out"]).rows}
    assert {name: row.status for name, row in found.items()} == {"llama": "ok", "gpt2": "ok", "bert": "unsupported"}
    assert found["llama"].summary["model_flops_per_second"] > 0
    assert "model_flops_per_second" not in found["gpt2"].summary
    assert found["gpt2"].tokens


@pytest.mark.parametrize(
    ("model", "message"),
    [
        ("{here}/lama", "no such file or folder '{here}/lama'"), ("{here}/lama", "did you mean {here}/llama?"),
        ("{here}/models/llama", "no folder '{here}/models' for"), ("./models/llama", "no folder './models'"),
        ("mixtral-tiny", "no model 'mixtral-tiny'"), ("LLaMA-tiny", "no model 'LLaMA-tiny'; did you mean llama-tiny?"),
        ("org/llama", "cannot be had from the hub (HF_HUB_OFFLINE is set): give a config.json"),
    ],
)  # fmt: skip
def test_a_model_that_is_not_there_is_told_with_what_is(
    model: str, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.chdir(tmp_path)
    (tmp_path / "llama").mkdir()
    refused = refusal(Configuration(model=model.format(here=tmp_path), device="cpu"), 0)
    assert refused is not None
    assert message.format(here=tmp_path) in refused[0]
    assert ("did you mean" in refused[0]) == (model in ("{here}/lama", "LLaMA-tiny"))


def test_lists_multiply_and_stages_belong_to_deepspeed() -> None:
    cells = expand({"backend": ["deepspeed", "fsdp2"], "zero_stage": [0, 3], "num_layers": [2, 4]}, gpus=0)
    assert [(c.backend, c.zero_stage, c.num_layers) for c in cells] == [
        ("deepspeed", 0, 2), ("deepspeed", 0, 4), ("deepspeed", 3, 2), ("deepspeed", 3, 4),
        ("fsdp2", 2, 2), ("fsdp2", 2, 4),
    ]  # fmt: skip


def test_the_tiny_model_of_a_laptop_takes_recorded_batches() -> None:
    recorded = {"inputs": __file__}
    assert expand(recorded, gpus=0)[0].fold_tokens
    assert not expand({**recorded, "model": "llama-tiny"}, gpus=0)[0].fold_tokens
    assert not expand(recorded, gpus=1)[0].fold_tokens
    assert not expand({}, gpus=0)[0].fold_tokens


def test_equal_configurations_share_a_hash_and_others_do_not() -> None:
    assert Configuration().content_hash() == parse({}).content_hash()
    hashes = {parse({"num_layers": n, "tp": t}).content_hash() for n in (1, 2, None) for t in (1, 2)}
    assert len(hashes) == 6
    with pytest.raises(ConfigurationError, match="no such setting: layers"):
        parse({"layers": 2})


def test_compiled_blocks_at_zero_3_are_the_strategys_own() -> None:
    """The table rules them out for hooks inside a layer; the strategy gathers each layer whole and has none there."""
    blocks = {"backend": "deepspeed", "compile": "blocks", "device": "cpu"}
    for stage in (2, 3):
        refused = refusal(parse({**blocks, "zero_stage": stage}), gpus=0)
        assert refused is None or "zero-3-blocks" not in refused[0]


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"attn": "sdpa_cudnn"}, "sdpa_cudnn needs a GPU"),
        ({"autotune": "max"}, "--autotune max tunes what is compiled, and nothing is: add --compile"),
        ({"async_tp": True}, "--async-tp overlaps what --backend fsdp2 --tp 2 --sequence-parallel exchange"),
        ({"attn": "sdpa_efficient"}, "sdpa_efficient needs a GPU"),
        ({"attn": "flex"}, "flex attention has no backward pass on a CPU"),
        ({"attn": "sdpa_flash"}, None),
        ({"attn": "flash_attention_3"}, "flash-attn-3 is not installed: build it"),
        ({"attn": "flash_attention_4"}, "flash-attn-4 is not installed: pip install --pre flash-attn-4"),
        ({"attn": "flash_attention_2"}, "flash_attn is not installed: pip install"),
        ({"head": "liger"}, "liger_kernel is not installed: pip install"),
        ({"device": "cuda"}, "no GPU is visible"),
        ({"backend": "mine.strategies:Sharded"}, "mine, of --backend mine.strategies:Sharded, is not found: set"),
        ({"backend": "torch.nn:Module"}, None),
        ({"num_gpus": 1, "device": "auto"}, None),
        ({"num_gpus": 2, "ring": 2}, None),
        ({"num_gpus": 2, "ring": 2, "packing": False}, "ring attention here spreads packed documents"),
    ],
)
def test_what_is_not_there_is_named_before_anything_starts(
    changes: dict[str, object], reason: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(availability, "installed", lambda name: name in ("torch", "transformers"))
    found = availability.lacking(parse({"device": "cpu", **changes}), gpus=0)
    assert found == reason if reason is None else str(found).startswith(reason)


def test_a_terminal_gets_a_bar_and_others_a_line_per_phase(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def shown(terminal: bool) -> list[str]:
        monkeypatch.setattr(sys.stderr, "isatty", lambda: terminal, raising=False)
        clock[0] = 0.0
        progress = Progress([False, False])
        progress.begin(0, "first")
        for count in (1, 2, 3):
            progress.update("measure", count, 4)
        clock[0] = 60.0
        progress.begin(1, "second")
        progress.update("measure", 3, 4)
        return capsys.readouterr().err.replace("\r\033[K", "\n").strip().splitlines()

    monkeypatch.setenv("COLUMNS", "90")
    clock = [0.0]
    monkeypatch.setattr("bench.process.progress.time.monotonic", lambda: clock[0])
    bars = shown(terminal=True)
    assert [line.rpartition("left ")[2] for line in bars] == [
        *(f"[1/2] first: measure {count}/4" for count in (1, 2, 3)), "[2/2] second: measure 3/4"
    ]  # fmt: skip
    assert [line.split("%")[0].strip() for line in bars] == ["30", "32", "34", "84"]  # 4 of 7 phases and a part
    assert [line.split("|")[2].split()[0] for line in bars] == ["?", "?", "?", "00:19"]
    assert shown(terminal=False) == ["[1/2] first: measure", "[2/2] second: measure, about 19 s left"]


def test_the_time_left_does_not_count_compilation_as_measuring(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = [0.0]
    monkeypatch.setattr("bench.process.progress.time.monotonic", lambda: clock[0])
    progress = Progress([True, False, False, True], quiet=True)
    progress.begin(0, "compiled")
    for phase, seconds in (("load", 10), ("compile", 1000), ("warmup", 5), ("measure", 15)):
        progress.update(phase, 0, 0)
        clock[0] += seconds
    progress.begin(1, "eager")
    progress.update("start", 0, 0)
    assert progress.left(0, 0) == pytest.approx(3 * 30 + 1000)  # one of the three that are left compiles
    clock[0] += 30
    progress.begin(2, "eager too")
    progress.update("start", 0, 0)
    assert progress.left(0, 0) == pytest.approx(2 * 30 + 1000)
    clock[0] += 30
    progress.begin(3, "compiled too")
    progress.update("compile", 0, 0)
    assert progress.left(0, 0) == pytest.approx(30 * 5 / 7)  # what it still compiles is not known


def test_the_table_tells_what_compiling_took_and_what_never_settled() -> None:
    graphs = {"compile_seconds": 12.34, "graphs": 3, "graph_breaks": 1, "recompiles": 2}
    summary = {
        "real_tokens_per_second": 1.0, "padded_tokens_per_second": 2.0, "model_flops_per_second": 1e12,
        "peak_share": 0.5, "peak_memory": 1e9, "first_loss": 2.0, "last_loss": 1.0,
        "effective": {"communication_share": 0.1, "graphs": graphs, "steady": False, "warmup_steps": 12},
    }  # fmt: skip
    result = {"label": "one", "status": "ok", "configuration": {"model": "tiny", "num_layers": 2}, "summary": summary}
    assert render([result]).splitlines()[3:] == [
        "",
        "one: compiled in 12.3 s: 3 graphs, 1 breaks, 2 recompilations",
        "one: step times were not steady after 12 steps of warm-up",
    ]
    quiet = {**summary, "effective": {**summary["effective"], "graphs": {"graphs": 0}, "steady": True}}  # type: ignore[dict-item]
    assert len(render([{**result, "summary": quiet}]).splitlines()) == 3


def test_a_package_that_the_base_install_lacks_is_one_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "tabulate", None)
    assert cli.main(["--dry-run", "--device", "cpu"]) == 2
    assert capsys.readouterr().err == "bench: tabulate is not installed: pip install 'meshproof[bench]'\n"


def test_model_sizes_need_no_torch() -> None:
    facts = model_facts("llama-3.1-8b", 32)
    assert facts.parameters == 8_030_261_248
    code = "import sys, bench.commands.run, bench.sweep.sweep; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=False).returncode == 0


def test_a_sweep_that_measures_nothing_fails(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Every row is refused before anything starts: that is no success, as it would be beside a row that is measured."""
    flags = ["--backend", "ddp", "--tp", "2", "--num-gpus", "2", *SMALL, "--output", str(tmp_path)]
    assert main(flags) == cli.FAILED
    assert "unsupported" in capsys.readouterr().out
    assert [row["status"] for row in rows(tmp_path).values()] == ["unsupported"]


@pytest.mark.parametrize(
    ("error", "status"),
    [
        ({"type": "OutOfMemoryError", "message": "CUDA out of memory."}, "oom"),
        ({"type": "RuntimeError", "message": "DefaultCPUAllocator: can't allocate: out of memory"}, "oom"),
        ({"type": "UnsupportedError", "message": "x"}, "unsupported"),
        ({"type": "RuntimeError", "message": "No available kernel. Aborting execution."}, "unsupported"),
        ({"type": "InternalTorchDynamoError", "message": "x", "traceback": "torch/_inductor/a.py"}, "compile_error"),
        ({"type": "KeyError", "message": "x", "traceback": "bench/model.py"}, "crash"),
    ],
)
def test_errors_are_told_apart(error: dict[str, str], status: str) -> None:
    assert classify(error) == status


def test_an_unreadable_result_is_measured_again(tmp_path: Path) -> None:
    (tmp_path / "result.json").write_text('{"schema": 1, "status"')
    assert results.read_result(tmp_path) is None
    (tmp_path / "result.json").write_text('{"schema": 999}')
    assert results.read_result(tmp_path) is None


def test_every_setting_takes_a_list(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "sweep.toml").write_text("max-norm = [0, 1.0]\nprocesses = 3\ngradient_checkpointing = [true, false]\n")
    flags = ["--config", str(tmp_path / "sweep.toml"), "--micro-batch-size", "1,2", "--dtype", "fp32,bf16"]
    options = run_command.parser().parse_args([*flags, "--lr", "1e-3,1e-4", "--packing", "on,off", "--head", "full"])
    cells = expand(run_command._settings(options), gpus=0)
    assert options.processes == 3
    varied = ("max_norm", "gradient_checkpointing", "micro_batch_size", "dtype", "lr", "packing")
    assert len({tuple(getattr(c, name) for name in varied) for c in cells}) == len(cells) == 2**6
    names = {field.name for field in fields(Configuration)} - {"device", "trust_remote_code", "input_hash"}
    assert names <= {action.dest for action in run_command.parser()._actions if action.type or action.nargs == "?"}
    for flag, values in (("--no-backward", [False]), ("--backward", [True]), ("--no-reshard", [False])):
        given = run_command._settings(run_command.parser().parse_args([flag]))
        assert list(given.values()) == [values]


def test_recorded_inputs_are_an_axis_too(tmp_path: Path) -> None:
    for name in ("a", "b,c"):
        (tmp_path / name).write_text(name)
    both = f"{tmp_path / 'a'},{__file__}"
    assert len({c.input_hash for c in expand({"inputs": setting_flags.listed_value("inputs")(both)}, 0)}) == 2
    assert setting_flags.listed_value("inputs")(str(tmp_path / "b,c")) == [str(tmp_path / "b,c")]


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--num-layer", "2"], "no such flag: --num-layer; did you mean --num-layers?"),
        (["--dtype", "fp31"], "'fp31': choose from bf16, fp16, fp32; did you mean fp32?"),
        (["--tp", "0"], "'0' is not a whole number from 1 on"),
        (["--packing", "perhaps"], "'perhaps' is neither on nor off"),
        (["surplus"], "no such argument: surplus; python -m bench run --help shows what there is"),
    ],
)
def test_wrong_flags_are_one_line_with_the_nearest_name(
    flags: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as stopped:
        main(flags)
    error = capsys.readouterr().err
    assert stopped.value.code == 2
    assert error.startswith("bench run: ")
    assert error.endswith(f"{message}\n")
    assert error.count("\n") == 1


@pytest.mark.parametrize(
    ("changes", "gpus", "reason"),
    [
        ({"num_gpus": 999_999, "device": "cpu"}, 0, "999,999 ranks: no cluster has as many"),
        ({"num_gpus": 999_999, "device": "cuda"}, 10**6, "999,999 ranks: no cluster has as many"),
        ({"num_gpus": 60_000, "device": "cpu"}, 0, "60,000 processes on 2 cores"),
        ({"num_layers": 10**7, "device": "cpu"}, 0, "it would need about "),
        ({"num_layers": 10**4, "model": "llama-3.1-8b", "device": "cuda"}, 1, "it would need about "),
        ({"num_layers": 8, "model": "llama-3.1-8b", "device": "cuda"}, 1, None),
    ],
)
def test_what_cannot_exist_is_refused(
    changes: dict[str, object], gpus: int, reason: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("bench.predict.capacity.os.cpu_count", lambda: 2)
    refused = refusal(parse(changes), gpus)
    assert refused is None if reason is None else str(refused and refused[0]).startswith(reason)


def test_a_dry_run_says_what_is_kept(
    finished: tuple[Path, subprocess.CompletedProcess[str]], capsys: pytest.CaptureFixture[str]
) -> None:
    output, _ = finished
    flags = ["--backend", "fsdp2", "--num-gpus", "2", *SMALL, "--output", str(output), "--dtype", "fp32", "--dry-run"]
    for more, words in (
        ([], ["kept: ok", "would run"]), (["--force"], ["would run"] * 2),
        (["--processes", "3"], ["would run, 1 more process", "would run"]),
    ):  # fmt: skip
        assert main([*flags, *more, "--seq-len", "32,64"]) == 0
        lines = capsys.readouterr().out.splitlines()[2:]
        assert [line.split("-  ")[-1].strip() for line in lines] == words
