"""Files, flags and environments that nobody should have made: one line and exit status 2, or a row passed over."""

from __future__ import annotations

import io
import json
import os
import re
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import pytest
import torch

from bench.cli import main
from bench.compare.logs import read_log
from bench.configuration import Configuration
from bench.inputs.batch import Batch
from bench.inputs.captured import write_batch
from bench.inputs.dataset import read_samples
from bench.losses import find_loss
from bench.problems import InputError as DataError
from bench.results.results import build_result, write_json
from bench.terminal.streams import Visible, visible
from bench.terminal.text import grid

if TYPE_CHECKING:
    from bench.inputs.packing import ModelInputs

HUGE = 10**30


def result(folder: Path, **changes: Any) -> None:
    """A measured row; `changes` are settings of another type, or values of the summary under `summary`."""
    configuration = Configuration(num_layers=2, device="cpu")
    run = {
        "times": changes.pop("times", [{"forward": 0.1, "backward": 0.2}] * 2), "warmups": [], "losses": [3.0, 2.0],
        "grad_norms": changes.pop("grad_norms", [1.0, 1.0]),
        "memory": {kind: {"forward": 10**9} for kind in ("allocated", "reserved")},
        "tokens": {"real": 2000.0, "positions": 2000.0, "squares": 1e6}, "parameters": 10**6,
        "effective": {"communication_share": 0.1, "device": "cpu"}, "matmul_flops": 1e12,
    }  # fmt: skip
    value = build_result(configuration, [run], status="ok")
    value["runs"][0]["memory"] = changes.pop("memory", run["memory"])
    value["configuration"] |= changes
    write_json(folder / "result.json", value)


@pytest.mark.parametrize(
    "changes",
    [
        {"num_gpus": []}, {"tp": 0}, {"ring": "x"}, {"backend": 5}, {"lr": [1]}, {"num_layers": HUGE},
        {"memory": {"allocated": {"forward": 10**400}, "reserved": {}}},
        {"times": [{"forward": float("inf"), "backward": 0.2}]},
    ],
    ids=str,
)  # fmt: skip
def test_results_with_values_of_another_type_are_passed_over(
    changes: dict[str, Any], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    result(tmp_path / "good")
    result(tmp_path / "bad", **changes)
    assert main(["report", str(tmp_path), "--output", str(tmp_path / "page.html")]) == 0
    assert "passed over" in capsys.readouterr().err
    assert main(["compare", str(tmp_path / "good"), str(tmp_path / "bad")]) == 2
    assert capsys.readouterr().err.count("\n") == 1


def test_choices_of_later_versions_are_shown(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    result(tmp_path / "later", attn="flash_attention_9", a_new_setting=[1])
    assert main(["report", str(tmp_path)]) == 0
    assert "fa9 packed" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"\xff\xfe", "--config "),
        (b"a = " + b"[" * 5000 + b"]" * 5000, "--config "),
        (b"inputs = 5", "sweep.toml: inputs = 5: not a text"),
        (b"inputs = ['a']", "--inputs a: no such file or directory"),
        (b"tp = 99999999999999999999", "tp = 99999999999999999999: larger than"),
        (b"tp = [%s]\nring = [%s]" % ((b"1," * 200,) * 2), "the lists make 40000 rows"),
        (b"backend = 'a:../../../elsewhere'", "--backend a:../../../elsewhere: use"),
        (b'"a\\u001b[2J" = 1', "no such setting: a\\x1b[2J"),
    ],
    ids=range(8),
)
def test_files_of_settings_are_no_trap(
    content: bytes, message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "sweep.toml").write_bytes(content)
    flags = ["--config", str(tmp_path / "sweep.toml"), "--output", str(tmp_path / "out"), "--dry-run"]
    assert main(flags) == 2
    error = capsys.readouterr().err
    assert error.startswith("bench run: ")
    assert message in error
    assert error.count("\n") == 1


@pytest.mark.parametrize("command", ["run", "replay", "sft"])
@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({}, "RANK is set, but WORLD_SIZE, MASTER_ADDR, MASTER_PORT not"),
        ({"WORLD_SIZE": "x"}, "WORLD_SIZE='x'"),
        ({"RANK": "-1", "WORLD_SIZE": "2"}, "RANK='-1'"),
        ({"RANK": "5", "WORLD_SIZE": "2"}, "RANK=5 and WORLD_SIZE=2"),
        ({"WORLD_SIZE": "1", "MASTER_PORT": "99999"}, "MASTER_PORT=99999 is no port"),
    ],
    ids=range(5),
)
def test_ranks_that_cannot_be(
    command: str, given: dict[str, str], message: str,
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    for name in ("WORLD_SIZE", "LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT"):
        monkeypatch.delenv(name, raising=False)
    meeting = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29500"} if given else {}
    for name, value in {"RANK": "0", **meeting, **given}.items():
        monkeypatch.setenv(name, value)
    assert main([command]) == 2
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1


def test_logs_with_numbers_that_are_none_are_read_in_time() -> None:
    digits = "9" * 5000
    lines = [
        f'{{"step": {digits}, "loss": 1}}', '{"step": 1e300, "loss": 2}', f"step: {digits} loss: 3",
        f"Train:  5%|#| {digits}/{digits} [00:01<00:02, lr=2.0]", "loss: " + "9" * 90_000 + "x",
        "[a 11-11 25:61:61.0 Actor forward start", "step: 1 loss: 4", "Epoch [1/2]:  5%|#| 3/9 [00:01<00:02, loss=2.0]",
    ]  # fmt: skip
    started = time.monotonic()
    run = read_log(lines, "log")
    assert time.monotonic() - started < 5
    assert run.loss is not None
    assert run.loss.values == {1: 4.0, 2: 2.0}


def test_a_report_waits_for_no_pipe(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    result(tmp_path / "good")
    os.mkfifo(tmp_path / "pipe.log")
    (tmp_path / "endless.jsonl").symlink_to("/dev/zero")
    (tmp_path / "large.jsonl").write_text(f'{{"losses": [{10**400}]}}')
    assert main(["report", str(tmp_path)]) == 0
    assert capsys.readouterr().err.count("passed over") == 1


def test_losses_at_the_end_of_floats_are_a_gap(tmp_path: Path) -> None:
    rows = [{"label": name, "losses": [1.0, sign * 1e308, 2.0]} for name, sign in (("one", 1), ("two", -1))]
    (tmp_path / "runs.jsonl").write_text("\n".join(map(json.dumps, rows)))
    assert main(["report", str(tmp_path), "--output", str(tmp_path / "page.html")]) == 0


def test_terminals_are_given_nothing_to_obey(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    log = [json.dumps({"step": 0, "loss": 1.0}), "ValueError: \x9b2J\x1b]0;owned\x07 \u202egnp.exe \ud800"]
    for name in ("one", "two\x1b[31m"):
        (tmp_path / f"{name}.log").write_text("\n".join(log), encoding="utf-8", errors="surrogatepass")
    main(["compare", *map(str, sorted(tmp_path.iterdir()))])
    shown = capsys.readouterr().out
    assert "two\\x1b[31m" in shown
    assert shown == visible(shown)


def test_streams_show_what_their_encoding_lacks() -> None:
    raw = io.BytesIO()
    stream = io.TextIOWrapper(raw, encoding="ascii", newline="")
    print("1 ± 2 → \ud800\x1b", file=Visible(stream), end="\n")
    print("\r\x1b[Kbar\r\x1b[2J", file=Visible(stream, bars=True), flush=True)
    assert raw.getvalue() == b"1 \\xb1 2 \\u2192 \\ud800\\x1b\n\r\x1b[Kbar\r\\x1b[2J\n"


def test_texts_of_others_stay_within_their_cell() -> None:
    told = grid([["a\nb | c", "<b>1</b>"]], ["name", "value"], "github")
    assert told.splitlines()[-1].count("|") - told.splitlines()[-1].count("\\|") == 3
    assert "a b \\| c" in told
    assert "\\<b>" in told
    import tabulate

    padding = tabulate.MIN_PADDING
    assert len(grid([["a\nb", "1"]], ["name", "value"]).splitlines()) == 3
    assert padding == tabulate.MIN_PADDING != 0  # a setting of the whole process, which other tables need


def test_what_is_written_is_json_whatever_was_measured(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def strictly(text: str) -> Any:
        return json.loads(text, parse_constant=lambda name: pytest.fail(f"{name} is no JSON"))

    for name, norm in (("one", float("nan")), ("two", float("inf"))):
        result(tmp_path / name, grad_norms=[norm, 1.0])
        assert strictly((tmp_path / name / "result.json").read_text())["runs"][0]["grad_norms"] == [None, 1.0]
        log = [{"step": 0, "loss": 2.0, "grad_norm": norm}, {"step": 1, "loss": norm, "grad_norm": 1.0}]
        (tmp_path / f"{name}.log").write_text("\n".join(map(json.dumps, log)))
    for paths in (["one", "two"], ["one.log", "two.log"]):
        main(["compare", *(str(tmp_path / path) for path in paths), "--format", "json"])
        assert strictly(capsys.readouterr().out)
    assert main(["report", str(tmp_path), "--format", "json"]) == 0
    assert strictly(capsys.readouterr().out)["rows"]


def plain_number(log_probs: Any, inputs: Any) -> float:
    return 1.0


def one_per_token(log_probs: Any, inputs: Any) -> Any:
    return -log_probs


@pytest.mark.parametrize(("name", "message"), [("plain_number", "gave float"), ("one_per_token", "gave shape (2, 3)")])
def test_a_loss_that_gives_no_sum_is_named(name: str, message: str) -> None:
    loss = find_loss(f"{__name__}:{name}")
    with pytest.raises(ValueError, match=re.escape(f"--loss {__name__}:{name} {message}: it should give the sum")):
        loss.function(torch.zeros(2, 3), cast("ModelInputs", None))


def test_a_full_disk_is_one_line(tmp_path: Path) -> None:
    """A limit of the size of files, which a process may set itself, stands for the disk."""
    batch = tmp_path / "batch.safetensors"
    mask = torch.ones(8, 4096, dtype=torch.bool)
    write_batch(Batch(mask.long(), mask, mask, "test"), batch)
    script = (
        "import resource, signal, sys; from bench.cli import main; signal.signal(signal.SIGXFSZ, signal.SIG_IGN); "
        "resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096)); sys.exit(main(sys.argv[1:]))"
    )
    done = subprocess.run(
        [sys.executable, "-c", script, "convert", str(batch), str(tmp_path / "out")],
        capture_output=True, text=True, check=False, cwd=Path(__file__).resolve().parents[2],
    )  # fmt: skip
    assert done.returncode == 2
    assert "batch.safetensors" in done.stderr
    assert "File too large" in done.stderr
    assert done.stderr.count("\n") == 1


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ({"input": "a", "output": "\ud800"}, "half of a character"),
        ({"x\n\ny": "a"}, "one of x y"),
        ({"z" * 10**6: "a"}, "…"),
    ],
    ids=range(3),
)
def test_texts_of_data_sets_are_told_in_one_line(row: dict[str, str], message: str, tmp_path: Path) -> None:
    path = tmp_path / "data.jsonl"
    path.write_text(json.dumps(row))
    with pytest.raises(DataError, match=message) as caught:
        list(read_samples(str(path), max_len=64, seed=0))
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 1000
