"""Files that are no result of this version: `report` and `compare` say what each is and what to do, in one line."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from bench.cli import main as bench
from bench.configuration import SCHEMA, Configuration
from bench.results.results import build_result, write_json

NEWER = {**build_result(Configuration(), [], status="oom"), "schema": SCHEMA + 1}
FILES: dict[str, tuple[bytes | dict[str, object] | list[int], str]] = {
    "newer/result.json": (NEWER, "a result of schema 2; this version reads 1: a newer version wrote it; update"),
    "odd/result.json": ({**NEWER, "schema": "x"}, "a result of schema 'x'; this version reads 1: no version"),
    "rows.jsonl": (json.dumps(NEWER).encode() + b"\n", "a result of schema 2"),
    "half/result.json": (b'{"schema": 1, "confi', "not whole, or no JSON"),
    "else/result.json": ({"accuracy": 0.5}, "JSON of something else (its keys: accuracy)"),
    "list/result.json": ([1], "JSON of something else (a list)"),
    "m/matrix.json": ({"schema": 9, "rows": [], "stack": {}, "kind": "x"}, "a matrix of schema 9; this version reads"),
    "heartbeat.0.json": ({"rank": 0, "phase": "load", "time": 1.0}, "a sign of life of a rank"),
    "configuration.json": ({"backend": "ddp", "num_gpus": 1, "model": "m"}, "the settings of a row"),
    "batch.pt": (b"PK\x03\x04\0", "tensors, not a log"),
    "program": (b"\x7fELF\0\0", "not a text file"),
    "table.csv": (b"a,b\n1,2\n", "no loss, gradient norm or time found in it"),
    "empty.log": (b"\n", "the file is empty"),
}  # fmt: skip


def _write(path: Path, content: bytes | dict[str, object] | list[int]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content if isinstance(content, bytes) else json.dumps(content).encode())
    return path


@pytest.mark.parametrize("name", FILES)
def test_a_file_of_something_else_is_named(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    content, expected = FILES[name]
    path = _write(tmp_path / name, content)
    good = tmp_path / "good.jsonl"
    good.write_text(json.dumps({"name": "a", "losses": [2.0, 1.0]}))
    for arguments in (["report", str(path)], ["compare", str(good), str(path)]):
        assert bench(arguments) == 2
        told = capsys.readouterr().err
        assert told.startswith(f"bench {arguments[0]}: {path}: ")
        assert expected in told
        assert told.count("\n") == 1


def test_what_is_named_instead_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """pyperf files are for `compare`, matrices for `report`."""
    suite = _write(tmp_path / "benchmarks.json", {"benchmarks": []})
    assert bench(["report", str(suite)]) == 2
    assert "`python -m pyperf stats` and `bench compare`" in capsys.readouterr().err
    matrix = _write(tmp_path / "matrix.json", {"schema": 2, "rows": [], "stack": {}, "kind": "x"})
    assert bench(["compare", str(matrix), str(matrix)]) == 2
    assert "`bench matrix --diff OLD NEW` compares two" in capsys.readouterr().err


def test_a_folder_is_reported_with_a_line_on_each_file_that_is_left_out(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_json(tmp_path / "good" / "result.json", build_result(Configuration(), [], status="oom"))
    for name in ("newer/result.json", "half/result.json"):
        _write(tmp_path / name, FILES[name][0])
    _write(tmp_path / "data" / "train.jsonl", b'{"prompt": "x"}\n')  # a data set that lies there: nothing to say
    assert bench(["report", str(tmp_path)]) == 0
    told = capsys.readouterr().err.splitlines()
    assert len(told) == 2
    assert all(line.startswith("bench report: passed over: ") for line in told)


def test_a_newer_result_is_not_replaced_by_a_refusal(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """What this version cannot read may still be a measurement."""
    flags = ["--backend", "ddp", "--device", "cpu", "--attn", "flash_attention_2", "--quiet", "--output", str(tmp_path)]
    assert bench(flags) == 1
    (file,) = tmp_path.glob("*/result.json")
    newer = {**json.loads(file.read_text()), "schema": SCHEMA + 1, "status": "ok"}
    write_json(file, newer)
    assert bench(flags) == 1
    assert json.loads(file.read_text())["schema"] == SCHEMA + 1
