"""`python -m bench diagnose`: dumps of a real hung job, dumps that part in every other way, and hostile files."""

from __future__ import annotations

import io
import json
import os
import pickle
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bench import validation
from bench.commands.diagnose import main
from bench.diagnose import analysis, dumps
from bench.launch.flight import environment

ROOT = Path(__file__).resolve().parents[2]
TREE = ROOT / "tests" / "data" / "hang"


@pytest.fixture(scope="module")
def hung(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What a real job of two ranks left: `pickled`, `json` and `stacks` folders."""
    folder = tmp_path_factory.mktemp("hung")
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]
    recording = {**os.environ, **environment(folder), "PYTHONPATH": str(ROOT), "CUDA_VISIBLE_DEVICES": ""}
    subprocess.run(
        [*command, str(TREE / "hanging_job.py"), str(folder)], cwd=ROOT, env=recording, capture_output=True,
        timeout=120, check=True,
    )  # fmt: skip
    for kind, pattern in (("json", "*.json"), ("stacks", "stacks.*"), ("pickled", "trace_rank_*")):
        (folder / kind).mkdir()
        for path in folder.glob(pattern):
            if path.is_file():
                path.rename(folder / kind / path.name)
    return folder


@pytest.mark.parametrize("kind", ["pickled", "json"])
def test_a_real_hang_is_explained_down_to_the_source(
    kind: str, hung: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(validation, "PATIENCE", 0.0)
    assert main([str(hung / kind), str(hung / "stacks"), "--source", str(TREE)]) == 1
    told, said = capsys.readouterr()
    assert said == f"reading the Python files of {TREE.resolve()}; a smaller --source takes less time\n"
    assert "(default_pg), ranks 0-1: not all ranks came" in told
    assert "rank 0 waits in all_gather #2, called at hang/hanging_job.py:20 in save" in told
    assert "rank 1 never came: its last was all_reduce #1" in told
    assert "; it is at hang/hanging_job.py:" in told
    assert "explains it: hang/hanging_job.py:20: MP501" in told


def test_stacks_alone_tell_who_waits(hung: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([str(hung / "stacks")]) == 1
    told = capsys.readouterr().out.splitlines()
    assert told[0].startswith("rank 0 waits in all_gather (hang/hanging_job.py:20 in save)")
    assert told[1].startswith("rank 1 never came: it is at hang/hanging_job.py:")


def test_a_missing_dump_is_the_first_suspect(hung: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([str(hung / "pickled" / "trace_rank_1")]) == 0
    told = capsys.readouterr().out
    assert told == "rank 1: every recorded collective has ended\nrank 0 left no dump and no stacks\n"


def test_dumps_of_before_the_first_collective_say_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(write(tmp_path, {0: [], 1: []}, world=2)) == 0
    assert capsys.readouterr().out == "ranks 0-1: no collective is recorded\n"


def entry(
    number: int, operation: str = "all_reduce", size: int = 4, done: bool = True, group: str = "0"
) -> dict[str, Any]:
    return {
        "frames": [{"name": "step", "filename": "/job/train.py", "line": number}], "pg_id": int(group),
        "process_group": (group, "default_pg" if group == "0" else "undefined"), "collective_seq_id": number,
        "profiling_name": f"nccl:{operation}", "input_sizes": [[size]], "input_dtypes": ["Float"],
        "state": "completed" if done else "scheduled", "retired": done, "is_p2p": False,
    }  # fmt: skip


def write(folder: Path, ranks: dict[int, list[dict[str, Any]]], world: int) -> list[str]:
    members = {"0": {"name": "0", "desc": "default_pg", "ranks": str(list(range(world)))}}
    for rank, entries in ranks.items():
        (folder / f"nccl_trace_rank_{rank}").write_bytes(pickle.dumps({"pg_config": members, "entries": entries}))
    return [str(folder)]


@pytest.mark.parametrize(
    ("ranks", "words"),
    [
        (
            {0: [entry(1), entry(2, "all_gather", done=False)], 1: [entry(1), entry(2, done=False)]},
            ("different collectives", "rank 0 called all_gather #2", "rank 1 called all_reduce #2"),
        ),
        (
            {0: [entry(1, size=4, done=False)], 1: [entry(1, size=5, done=False)]},
            ("different sizes", "rank 0 called all_reduce #1", "train.py:1 in step of 4 Float", "of 5 Float"),
        ),
        ({0: [entry(1, done=False)], 1: [entry(1, done=False)]}, ("all ranks wait", "a rank's earlier kernels")),
        ({0: [entry(1, done=False)], 1: []}, ("rank 1 never came: it entered none of this group",)),
        ({0: [entry(1, "all_to_all", 4, False)], 1: [entry(1, "all_to_all", 5, False)]}, ("all ranks wait",)),
        ({0: [entry(1, done=False)]}, ("rank 1 left no dump",)),
    ],
)  # fmt: skip
def test_every_way_to_part_is_told(
    ranks: dict[int, list[dict[str, Any]]], words: tuple[str, ...], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(write(tmp_path, ranks, world=2)) == 1
    told = capsys.readouterr().out
    for one in words:
        assert one in told


def message(words: str, done: bool) -> dict[str, Any]:
    return {
        **entry(7, done=done), "is_p2p": True, "profiling_name": f"nccl:{words}", "collective_seq_id": 0,
    }  # fmt: skip


def test_messages_before_a_collective_that_all_wait_in_are_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    ranks = {
        0: [message("send 0->1", done=True), message("recv 0<-1", done=False), entry(1, done=False)],
        1: [message("recv 1<-0", done=False), message("send 1->0", done=False), entry(1, done=False)],
    }
    assert main(write(tmp_path, ranks, world=2)) == 1
    told = capsys.readouterr().out
    each = [f"rank {rank}'s recv from rank {1 - rank} (called at job/train.py:7 in step)" for rank in (0, 1)]
    assert f"all have entered it: before it {' and '.join(each)} have not ended" in told
    assert "send" not in told


def stand(folder: Path, rank: int, group: str, members: str = "[0, 1]") -> None:
    call = {
        **entry(1, done=False, group=group),
        "profiling_name": "all_reduce",
        "state": "not begun",
        "input_sizes": [],
    }
    config = {group: {"desc": "undefined", "ranks": members}}
    (folder / f"standing.{rank}.json").write_text(json.dumps({"entries": [call], "pg_config": config}))


@pytest.mark.parametrize("dumped", [(0, 1), (0,), ()])
def test_calls_that_no_recorder_has_tell_of_groups_in_opposite_orders(
    dumped: tuple[int, ...], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Also where dumps are missing: each rank stands in the first collective of a group, which connects it."""
    paths = write(tmp_path, {rank: [entry(1), entry(2)] for rank in dumped}, world=2)
    stand(tmp_path, 0, "1")
    stand(tmp_path, 1, "2")
    assert main(paths) == 1
    told = capsys.readouterr().out
    assert "group 1, ranks 0-1: not all ranks came\n  rank 0 waits in all_reduce #1, called at job/train.py:1" in told
    assert "group 2, ranks 0-1: not all ranks came\n  rank 1 waits in all_reduce #1, called at job/train.py:1" in told
    assert "ranks wait for each other in groups 1 and 2" in told


def test_a_call_that_is_recorded_is_not_told_of_twice(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    paths = write(tmp_path, {0: [entry(1), entry(2, done=False)], 1: [entry(1)]}, world=2)
    stand(tmp_path, 0, "0")
    assert main(paths) == 1
    told = capsys.readouterr().out
    assert "rank 0 waits in all_reduce #2" in told
    assert "#3" not in told


def test_a_rank_of_which_only_its_call_is_known_is_not_said_to_have_stayed_away_elsewhere(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    paths = write(tmp_path, {0: [entry(1), entry(2, done=False)]}, world=2)
    stand(tmp_path, 1, "1")
    assert main(paths) == 1
    told = capsys.readouterr().out
    assert "rank 0 waits in all_reduce #2" in told
    assert "rank 1 left no dump" in told
    assert "entered none of this group" not in told.split("group 1")[0]


@given(st.integers(2, 9), st.integers(1, 6), st.data())
def test_the_rank_that_stopped_early_is_named(world: int, length: int, data: st.DataObject) -> None:
    away = data.draw(st.integers(0, world - 1))
    came = data.draw(st.integers(0, length - 1))
    recorded = []
    for rank in range(world):
        last = came if rank == away else came + 1
        raw = {"entries": [entry(n, done=n <= came) for n in range(1, last + 1)]}
        raw["pg_config"] = {"0": {"name": "0", "desc": "default_pg", "ranks": str(list(range(world)))}}
        recorded.append(dumps._dump(rank, Path(f"trace_{rank}"), raw))
    (stall,) = analysis.stalls(recorded)
    assert stall.absent == (away,)
    assert set(stall.waiting) == set(range(world)) - {away}
    assert {e.number for e in stall.waiting.values()} == {came + 1}


class Calls:
    """A payload that would run a program if its pickle were loaded."""

    def __init__(self, function: Any, *arguments: Any) -> None:
        self.function, self.arguments = function, arguments

    def __reduce__(self) -> Any:
        return self.function, self.arguments


def hostile(marker: Path) -> list[bytes]:
    command = f"touch {marker}"
    return [
        *(pickle.dumps({"entries": [Calls(os.system, command)]}, protocol) for protocol in range(6)),
        pickle.dumps(Calls(eval, f"open({str(marker)!r}, 'w')")),
        pickle.dumps(Calls(io.open, str(marker), "w")),
        b"cos\nsystem\n(S'" + command.encode() + b"'\ntR.",
        b"(S'" + command.encode() + b"'\nios\nsystem\n.",
        b"\x80\x04\x8c\x02os\x8c\x06system\x93.",
        b"Pid\n.", b"\x82\x01.", b"", b"\x80", b"{", b"[" * 100_000, b'{"entries": 5}', b'{"entries": [5]}',
        b'{"entries": [{"process_group": []}]}', pickle.dumps([1]), pickle.dumps({"entries": [{}]}), b"\x00" * 1000,
        pickle.dumps({"entries": [], "pg_config": {"0": {"ranks": "__import__('os')"}}}),
    ]  # fmt: skip


@pytest.mark.parametrize("number", range(len(hostile(Path("x")))))
def test_a_hostile_dump_is_one_line_and_runs_nothing(
    number: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    marker = tmp_path / "ran"
    path = tmp_path / "trace_0"
    path.write_bytes(hostile(marker)[number])
    assert main([str(path)]) == 2
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    assert "trace_0: " in error
    assert not marker.exists()


def test_wrong_usage_is_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write(tmp_path, {0: [entry(1)], 1: [entry(1)]}, 2)
    (tmp_path / "again_1.json").write_text(json.dumps({"entries": []}))
    (tmp_path / "empty").mkdir()
    for arguments, words in (
        ([str(tmp_path / "none")], "none: no such file or directory"),
        ([str(tmp_path / "empty")], "no flight-recorder dump and no stacks"),
        ([str(tmp_path)], "two dumps of rank 1"),
        ([str(tmp_path / "nccl_trace_rank_0"), "--source", str(tmp_path / "none")], "--source"),
    ):
        assert main(arguments) == 2
        error = capsys.readouterr().err
        assert words in error
        assert error.count("\n") == 1
