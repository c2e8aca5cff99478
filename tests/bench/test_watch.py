"""`python -m bench watch`: real jobs that hang in twelve ways, and what must stay as it is without it."""

from __future__ import annotations

import inspect
import json
import os
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace

import pytest

from bench.watch import evidence
from bench.watch.ranks import GAP, Watcher

ROOT = Path(__file__).resolve().parents[2]
TREE = ROOT / "tests" / "data" / "hang"
WATCH = [sys.executable, "-m", "bench", "watch"]
TORCHRUN = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]
LIMIT = "4"
AT = "hang/many_hangs.py:"

CASES = {
    "one_rank_saves": (
        f"rank 0 called all_gather #4 at {AT}", "rank 1 called barrier #4 at",
        "Why: hang/many_hangs.py:", "not every rank reaches `all_gather`: in `one_rank_saves` only some ranks",
    ),
    "waits_for_a_file": (
        f"rank 0 waits in all_reduce #4, called at {AT}",
        "rank 1 never came: its last was all_reduce #3", "in waits_for_a_file.",
    ),
    "busy_forever": ("rank 0 waits in all_reduce #4", "rank 1 never came", "in busy_forever."),
    "opposite_orders": (
        "Group 1, ranks 0-1: not all ranks came: rank 0 waits in all_reduce #1",
        "Group 2, ranks 0-1: not all ranks came: rank 1 waits in all_reduce #1",
        "Ranks wait for each other in groups 1 and 2: every rank has to call the collectives of both",
    ),
    "fewer_batches": (
        "rank 0 called all_reduce #11 at", "rank 1 called barrier #11 at", "Why: hang/many_hangs.py:",
        "have left the loop.",
    ),
    "both_receive": (
        f"Rank 0 waits in recv ({AT}", f"Rank 1 waits in recv ({AT}", "every recorded collective has ended.",
    ),
    "lock_held_elsewhere": ("rank 0 waits in all_reduce #4", "rank 1 never came", "in lock_held_elsewhere."),
    "group_made_by_one": (
        "Rank 0 waits in new_group (", "Rank 1 never came: it is at", "not every rank reaches `new_group`",
    ),
    "swallowed_error": (
        "rank 0 called all_reduce #6", "rank 1 called broadcast #6",
        "in `swallowed_error` only some ranks, told apart by `rank == 1`, get there; the others skip it.",
    ),
    "stopped": (
        "rank 0 waits in all_reduce #4", "rank 1 left no dump",
        "Rank 1: its process is stopped, by a signal or a debugger.",
    ),
    "interpreter_held": (
        "rank 0 waits in all_reduce #4", "rank 1 left no dump; it is at", "in interpreter_held",
        "Rank 1: its Python does not run: a call in C holds the interpreter's lock.",
    ),
    "before_the_group": (
        "Rank 0 waits in init_process_group (", f"Rank 1 never came: it is at {AT}", "in main.",
    ),
}  # fmt: skip
"""Ways to hang, and what the paragraph says of each."""

EXPLAINED = ("one_rank_saves", "fewer_batches", "group_made_by_one", "swallowed_error")
"""Those that a finding of the source explains."""

UNDER_TORCHRUN = ("one_rank_saves",)
SLOW = ("waits_for_a_file", "lock_held_elsewhere")
QUICK = [way for way in CASES if way not in SLOW]


def watch(
    folder: Path, command: list[str], *flags: str, path: str = "", **variables: str
) -> subprocess.CompletedProcess[str]:
    """A watched job that is started in `folder`, where its stacks and dumps go; `path` goes before PYTHONPATH."""
    environment = {**os.environ, "PYTHONSAFEPATH": "1", "CUDA_VISIBLE_DEVICES": "", "OMP_NUM_THREADS": "1"}
    environment.pop("RANK", None)
    return subprocess.run(
        [*WATCH, *flags, "--", *command], cwd=folder, capture_output=True, text=True, timeout=240, check=False,
        env={**environment, "PYTHONPATH": os.pathsep.join(filter(None, [path, str(ROOT)])), **variables},
    )  # fmt: skip


def hang(folder: Path, way: str) -> subprocess.CompletedProcess[str]:
    source = ["--source", str(TREE)] if way in EXPLAINED else []
    start = TORCHRUN if way in UNDER_TORCHRUN else [sys.executable]
    return watch(folder, [*start, str(TREE / "many_hangs.py"), way], "--limit", LIMIT, "--output", way, *source)


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> dict[str, subprocess.CompletedProcess[str]]:
    """All quick jobs, several at once: they mostly wait."""
    folder = tmp_path_factory.mktemp("hangs")
    with ThreadPoolExecutor(6) as pool:
        return dict(zip(QUICK, pool.map(lambda way: hang(folder, way), QUICK), strict=True))


def check(way: str, done: subprocess.CompletedProcess[str]) -> None:
    assert done.returncode == 124, done.stderr
    assert done.stderr.count("bench watch: the job hangs") == 1
    paragraph = " ".join(next(text for text in done.stderr.split("\n\n") if "stood still for" in text).split())
    for words in CASES[way]:
        assert words in paragraph
    if way != "before_the_group":
        assert done.stdout.startswith("the last words of rank 0\n")  # they had not left its buffer


@pytest.mark.parametrize("way", QUICK)
def test_a_hang_is_told_in_one_paragraph(way: str, told: dict[str, subprocess.CompletedProcess[str]]) -> None:
    check(way, told[way])


@pytest.mark.slow
@pytest.mark.parametrize("way", SLOW)
def test_more_hangs_are_told(way: str, tmp_path: Path) -> None:
    check(way, hang(tmp_path, way))


def test_groups_in_opposite_orders_are_told_without_a_recorder(tmp_path: Path) -> None:
    """As with NCCL, which records no collective of a group that is not connected yet: ranks say where they stand."""
    program = (TREE / "many_hangs.py").read_text()
    without = tmp_path / "hang" / "many_hangs.py"
    without.parent.mkdir()
    without.write_text(program.replace("import torch\n", "os.environ['TORCH_FR_BUFFER_SIZE'] = '0'\nimport torch\n", 1))
    check("opposite_orders", watch(tmp_path, [sys.executable, str(without), "opposite_orders"], "--limit", LIMIT))


def test_of_calls_only_those_of_collectives_are_told() -> None:
    """Each of torch.distributed's functions that all ranks of a group call, and none of the others."""
    import torch.distributed.distributed_c10d as real

    from bench.watch.inject.meshproof_rank import _is_collective

    def stands_in(function: str) -> bool:
        code = inspect.unwrap(getattr(real, function)).__code__
        return _is_collective(SimpleNamespace(f_code=code))

    all_call = ["all_reduce", "all_gather", "all_gather_into_tensor", "reduce_scatter_tensor", "barrier", "broadcast",
                "all_to_all_single", "gather", "scatter", "all_gather_object", "broadcast_object_list"]  # fmt: skip
    assert [name for name in all_call if not stands_in(name)] == []
    assert [
        n for n in ("send", "recv", "isend", "irecv", "destroy_process_group", "_get_default_group") if stands_in(n)
    ] == []


def python(program: str) -> list[str]:
    return [sys.executable, "-c", program]


def test_a_job_that_ends_is_as_without_it(tmp_path: Path) -> None:
    done = watch(tmp_path, [sys.executable, str(TREE / "many_hangs.py"), "no_hang"], "--limit", "60")
    assert (done.returncode, done.stderr) == (0, "")
    assert sorted(done.stdout.splitlines()) == ["rank 0 is done", "rank 1 is done", "the last words of rank 0"]
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("command", "status", "words"),
    [
        (["sh", "-c", "echo out; echo err >&2; exit 5"], 5, "err\n"),
        (["sh", "-c", "kill -9 $$"], 137, ""),
        (["no-such-program"], 127, "bench watch: no-such-program cannot be run: No such file or directory\n"),
        ([str(ROOT / "README.md")], 126, f"bench watch: {ROOT / 'README.md'} cannot be run: Permission denied\n"),
        ([], 2, "bench watch: there is no command after --\n"),
    ],
)
def test_the_exit_status_is_the_jobs(command: list[str], status: int, words: str, tmp_path: Path) -> None:
    done = watch(tmp_path, command)
    assert (done.returncode, done.stderr) == (status, words)
    assert list(tmp_path.iterdir()) == []


def test_wrong_usage_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "file").touch()
    for flags, words in (
        (["--limt", "3"], "no such flag: --limt; did you mean --limit?"),
        (["--limit", "0"], "'0': give seconds, from 1 on"),
        (["--source", "none"], "--source none: no such directory"),
        (["--output", "full"], "--output full: give a new or an empty folder"),
        (["--output", "full/file/x"], "--output full/file/x: cannot be written"),
    ):
        done = watch(tmp_path, ["true"], *flags)
        assert done.returncode == 2
        assert words in done.stderr
        assert done.stderr.count("\n") == 1
    done = subprocess.run([*WATCH, "torchrun", "train.py"], cwd=ROOT, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)
    assert "give the job's command after --" in done.stderr


SIGNALLED = """
import signal, sys, time
def got(number, frame):
    print(signal.Signals(number).name, flush=True)
    if number == signal.SIGTERM:
        sys.exit(7)
for name in ("SIGINT", "SIGHUP", "SIGUSR1", "SIGUSR2", "SIGTERM"):
    signal.signal(getattr(signal, name), got)
print("ready", flush=True)
while True:
    time.sleep(0.05)
"""


def test_signals_reach_the_job(tmp_path: Path) -> None:
    process = subprocess.Popen(
        [*WATCH, "--", *python(SIGNALLED)], cwd=tmp_path, stdout=subprocess.PIPE, text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )  # fmt: skip
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    for name in ("SIGINT", "SIGHUP", "SIGUSR1", "SIGUSR2", "SIGTERM"):
        process.send_signal(getattr(signal, name))
        assert process.stdout.readline() == f"{name}\n"
    assert process.wait(60) == 7
    process.stdout.close()


def test_the_job_gets_its_own_input_and_loses_no_output(tmp_path: Path) -> None:
    command = [*WATCH, "--", *python("import sys; text = sys.stdin.read(); print(text * 3, end='')")]
    text = "x" * 2_000_000
    done = subprocess.run(
        command, cwd=tmp_path, input=text, capture_output=True, text=True, timeout=60, check=False,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )  # fmt: skip
    assert (done.stdout == text * 3, done.stderr, done.returncode) == (True, "", 0)


INSIDE = """
import json, os, sitecustomize, subprocess, sys, threading
child = subprocess.run([sys.executable, "-c", "import time; time.sleep(1)"])
beat = json.load(open(os.path.join(os.environ["MESHPROOF_WATCH"], "heartbeat.3.json")))
ours = [entry for entry in sys.path if entry.endswith("inject")]
print(json.dumps([sitecustomize.__file__, threading.active_count(), ours, beat["pid"] == os.getpid(), beat["rank"]]))
"""


def test_a_program_notices_nothing_and_its_own_sitecustomize_runs(tmp_path: Path) -> None:
    """Its helpers, which inherit RANK, do not speak for its rank."""
    (tmp_path / "own").mkdir()
    (tmp_path / "own" / "sitecustomize.py").write_text("print('their own')\n")
    done = watch(tmp_path, python(INSIDE), "--limit", "10", path=str(tmp_path / "own"), RANK="3", WORLD_SIZE="4")
    own, *told = done.stdout.splitlines()[-2:]
    assert own == "their own"
    assert json.loads(told[0]) == [str(tmp_path / "own" / "sitecustomize.py"), 1, [], True, 3]


def test_with_keep_the_job_goes_on(tmp_path: Path) -> None:
    program = "import time; time.sleep(4); print('done')"
    done = watch(tmp_path, python(program), "--limit", "1", "--keep", RANK="0", WORLD_SIZE="1")
    assert (done.returncode, done.stdout) == (0, "done\n")
    assert "Rank 0 has stood still for" in done.stderr
    assert "bench watch: the job goes on; more: python -m bench diagnose watch-" in done.stderr


TIMED_OUT = """
import os, pickle, sys
for rank in (0, 1):
    entry = {
        "frames": [{"name": "step", "filename": "/job/train.py", "line": 7}], "process_group": ("0", "default_pg"),
        "collective_seq_id": 1, "profiling_name": "nccl:all_reduce", "state": "started", "is_p2p": False,
    }
    group = {"name": "0", "desc": "default_pg", "ranks": "[0, 1]"}
    content = {"pg_config": {"0": group}, "entries": [entry] * (rank == 0)}
    with open(os.environ["TORCH_FR_DUMP_TEMP_FILE"] + str(rank), "wb") as file:
        pickle.dump(content, file)
sys.exit(6)
"""


def test_dumps_of_the_jobs_own_time_out_are_told_of(tmp_path: Path) -> None:
    """NCCL writes them where it is told to, and ends the job itself."""
    done = watch(tmp_path, python(TIMED_OUT), "--output", "dumps")
    assert done.returncode == 6
    assert "bench watch: the job ended by itself and left flight-recorder dumps:" in done.stderr
    told = " ".join(done.stderr.split())
    assert "rank 0 waits in all_reduce #1, called at job/train.py:7 in step; rank 1 never came" in told
    assert sorted(path.name for path in (tmp_path / "dumps").iterdir()) == ["flight.0", "flight.1"]


def test_a_dump_that_the_recorder_owes_is_waited_for(tmp_path: Path) -> None:
    """The thread in a rank answers at once; NCCL's recorder takes its time, until PyTorch has imported its compiler."""
    beat = {"pid": os.getpid(), "host": os.uname()[1]}
    (tmp_path / "answered.0").touch()
    assert not evidence._is_awaited(tmp_path, 0, beat)
    (tmp_path / "flight.pipe0.pipe").touch()
    assert evidence._is_awaited(tmp_path, 0, beat)
    (tmp_path / "flight.0").touch()
    assert not evidence._is_awaited(tmp_path, 0, beat)


def test_time_in_which_nothing_ran_does_not_count(tmp_path: Path) -> None:
    """A laptop that sleeps, or Ctrl-Z."""
    beat = {
        "rank": 0, "world": 1, "phase": "run", "done": 1, "total": 0, "time": time.time() - 100, "host": os.uname()[1],
        "seen": time.time() - 100, "pid": os.getpid(), "step": "", "signal": 0, "joined": True,
    }  # fmt: skip
    (tmp_path / "heartbeat.0.json").write_text(json.dumps(beat))
    watcher = Watcher(tmp_path, limit=50, tick=1)
    watcher.looked -= GAP + 100
    assert watcher.look() is None
    watcher.looked -= 2
    assert watcher.look() is None
    watcher.resumed, watcher.looked = 0.0, watcher.looked - 2
    hang = watcher.look()
    assert hang is not None
    assert (hang.still, 99 < hang.seconds < 160) == ((0,), True)


def test_it_says_when_no_rank_is_heard(tmp_path: Path) -> None:
    watcher = Watcher(tmp_path, limit=50, tick=1)
    assert not watcher.is_deaf()
    watcher.started = watcher.resumed = time.time() - 300
    assert watcher.is_deaf()
