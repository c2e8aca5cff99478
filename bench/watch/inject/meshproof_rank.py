"""One process of a watched job, from inside: says whether its rank moves, and on demand where it stands.

A thread looks every few seconds at what no program has to be changed for: the place of the main thread, and how many
collectives each process group has begun. `heartbeat.<rank>.json` holds when either was last seen to change. Once a
file `ask` is there, the thread leaves the recorder's dump, says in `standing.<rank>.json` in which collective of which
group the rank stands, and lets out what the program has printed. Stacks are written by a handler in C of an otherwise
unused signal, so also where Python does not run.
"""

from __future__ import annotations

import _thread
import atexit
import contextlib
import os
import sys
import time

FOLDER = "MESHPROOF_WATCH"
TICK = "MESHPROOF_WATCH_TICK"
"""Environment variables: where to report, and seconds between two looks."""

OLD_NAMES = (
    ("TORCH_NCCL_TRACE_BUFFER_SIZE", "TORCH_FR_BUFFER_SIZE"),
    ("TORCH_NCCL_DEBUG_INFO_TEMP_FILE", "TORCH_FR_DUMP_TEMP_FILE"),
)

NO_COLLECTIVES = ("_", "send", "isend", "recv", "irecv", "batch_isend", "destroy", "abort")
"""How functions of torch.distributed begin that take a group and that not all of its ranks need to call."""

PATIENCE = 10.0
"""Seconds that NCCL's own thread has for its dump, before the rank writes it here: that thread may itself wait."""

IDLE = ("wait", "get", "select", "poll", "join", "accept", "recv", "_recv", "_wait_for_tstate_lock", "result")
"""Python functions in which a thread waits for other threads or processes."""


def begin() -> None:
    """Watch this process, if it is a rank or becomes one."""
    agent = Agent(os.environ[FOLDER], float(os.environ.get(TICK, "1")))
    atexit.register(agent.finish)  # the first to be registered is the last to be called
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(after_in_child=agent.after_fork)
    if os.environ.get("RANK", "").isdigit():
        agent.tick()  # before anything of the program can hang
        agent.start()
    sys.meta_path.insert(0, Trigger(agent))


class Trigger:
    """An import hook that finds nothing: programs that never load torch.distributed get no thread."""

    def __init__(self, agent: Agent) -> None:
        self.agent = agent

    def find_spec(self, name: str, path: object = None, target: object = None) -> None:
        if name == "torch.distributed":
            _name_as_before(getattr(sys.modules.get("torch"), "__version__", ""))
            if not self.agent.running:
                self.agent.start()


def _name_as_before(version: str) -> None:
    """The recorder's variables as they were called before torch 2.9, which warns of the old names."""
    parts = [int(part) for part in str(version).split(".")[:2] if part.isdigit()]
    if parts and parts < [2, 9]:
        for old, new in OLD_NAMES:
            os.environ.setdefault(old, os.environ.get(new, ""))


class Agent:
    """The state of one process. `claimed`: this process speaks for its rank."""

    def __init__(self, folder: str, tick: float) -> None:
        self.folder, self.seconds = folder, tick
        self.main = _thread.get_ident()
        self.running = self.claimed = self.over = False
        self.answered = 0.0
        self.rank, self.signal, self.count = -1, 0, 0
        self.key: object = None
        self.moved = time.time()

    def start(self) -> None:
        self.running = True
        _thread.start_new_thread(watch_this_rank, (self,))  # unseen by `threading`, whose count programs may use

    def after_fork(self) -> None:
        """Threads do not survive a fork. The children of a rank are its helpers; others may become ranks."""
        self.main = _thread.get_ident()
        if self.running and not self.claimed:
            self.moved = time.time()
            self.start()

    def tick(self) -> None:
        joined, rank = self._look()
        if self.over:
            return
        if rank < 0 or not self._is_ours(rank, joined):
            self.claimed = False
            return
        if not self.claimed:
            self._claim(rank)
        self._report("run", joined)
        if not self.answered and os.path.exists(os.path.join(self.folder, "ask")):
            self.answered = time.time()
            self._answer()
        elif self.answered and time.time() - self.answered > PATIENCE:
            self.answered = float("inf")
            self._stand_in()

    def finish(self) -> None:
        """The program is over: from here on no thread can say that the interpreter still has something to do."""
        self.over = True
        if self.claimed:
            with contextlib.suppress(Exception):
                self.moved = time.time()
                self._report("end", True)

    def _look(self) -> tuple[bool, int]:
        """Note whether anything has moved. Whether this process is in a group, and its rank, -1 before it has one."""
        groups = _groups()
        self.count = sum(_begun(group) for group in groups)
        key = (self.count, len(groups), _standing(self.main))
        if key != self.key:
            self.key, self.moved = key, time.time()
        text = os.environ.get("RANK", "")
        return bool(groups), int(text) if text.isdigit() else _rank_in_group()

    def _path(self, name: str) -> str:
        return os.path.join(self.folder, name)

    def _is_ours(self, rank: int, joined: bool) -> bool:
        """Whether no other living process speaks for the rank: one that is in a group goes before one that is not,
        such as a wrapper that only starts the program."""
        import json

        try:
            with open(self._path(f"heartbeat.{rank}.json")) as file:
                other = json.load(file)
        except (OSError, ValueError):
            return True
        if other["pid"] == os.getpid() or other["host"] != _host() or not _is_alive(other["pid"]):
            return True
        return joined and not other["joined"] and not self.claimed

    def _claim(self, rank: int) -> None:
        import faulthandler

        self.rank, self.claimed = rank, True
        self.signal = _unused_signal()
        if self.signal:
            file = os.open(self._path(f"stacks.{rank}.txt"), os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
            faulthandler.register(self.signal, file=file, all_threads=True)

    def _report(self, phase: str, joined: bool) -> None:
        import json

        beat = {
            "rank": self.rank, "world": _number("WORLD_SIZE") or _size_of_group(), "phase": phase,
            "done": self.count, "total": 0, "time": self.moved, "seen": time.time(), "pid": os.getpid(),
            "host": _host(), "step": _slurm_step(), "signal": self.signal, "joined": joined,
            "spent": time.thread_time(),
        }  # fmt: skip
        self._write(f"heartbeat.{self.rank}.json", json.dumps(beat).encode())

    def _answer(self) -> None:
        if not self.signal:
            import faulthandler

            with open(self._path(f"stacks.{self.rank}.txt"), "w") as file:
                faulthandler.dump_traceback(file)
        dump = getattr(sys.modules.get("torch._C._distributed_c10d"), "_dump_fr_trace", None)
        if dump is not None and not self._has_pipe():
            self._write(f"flight.{self.rank}", _with_members(dump()))  # NCCL's recorder answers on its pipe itself
        if time.time() - self.moved > self.seconds:
            self._stand()
        self._write(f"answered.{self.rank}", b"")
        for stream in (sys.stdout, sys.stderr):
            stream.flush()

    def _has_pipe(self) -> bool:
        return os.path.exists(self._path(f"flight.pipe{self.rank}.pipe"))

    def _stand(self) -> None:
        """Say where the rank stands. Recorders do not know of a collective whose group is only being connected: NCCL
        connects one at its first collective, once all of its ranks have come."""
        import json

        with contextlib.suppress(Exception):  # names that another version of PyTorch does not have
            call = _standing_call(self.main)
            if call is not None:
                self._write(f"standing.{self.rank}.json", json.dumps(call).encode())

    def _stand_in(self) -> None:
        """The dump of NCCL's recorder, where its own thread does not answer: it may wait for what the program holds."""
        dump = getattr(sys.modules.get("torch._C._distributed_c10d"), "_dump_nccl_trace", None)
        if dump is not None and self._has_pipe() and not os.path.exists(self._path(f"flight.{self.rank}")):
            self._write(f"flight.{self.rank}", dump())

    def _write(self, name: str, content: bytes) -> None:
        part = self._path(f".{name}.part")
        with open(part, "wb") as file:
            file.write(content)
        os.replace(part, self._path(name))


def watch_this_rank(agent: Agent) -> None:
    """The thread. The program never hears of what fails in here: a full disk, a module that is half loaded."""
    while True:
        with contextlib.suppress(Exception):
            agent.tick()
        time.sleep(agent.seconds)


def _standing(main: int) -> int:
    """A number that stays while the main thread stays at one place; where that waits for others, while they all do."""
    frames = sys._current_frames()
    here = frames.pop(main, None)
    frames.pop(_thread.get_ident(), None)
    if here is None or here.f_code.co_name not in IDLE:
        frames.clear()
    key = _place(here)
    for ident, frame in frames.items():
        if frame.f_code.co_name not in IDLE:
            key = hash((key, ident, _place(frame)))
    return key


def _place(frame: object) -> int:
    key = 0
    while frame is not None:
        key = hash((key, id(frame.f_code), frame.f_lasti))  # type: ignore[attr-defined]
        frame = frame.f_back  # type: ignore[attr-defined]
    return key


def _standing_call(main: int) -> object:
    """The collective in which a thread stands, the main one first, as a recorder writes its entries; None for none."""
    frames = sys._current_frames()
    frames.pop(_thread.get_ident(), None)
    for ident in sorted(frames, key=lambda ident: ident != main):
        frame = frames[ident]
        while frame is not None:
            if _is_collective(frame):
                return _as_recorded(frame)
            frame = frame.f_back  # type: ignore[assignment]
    return None


def _is_collective(frame: object) -> bool:
    """Whether it is a function of torch.distributed that all ranks of a group call; `recv` and the like are not."""
    code = frame.f_code  # type: ignore[attr-defined]
    name, path = code.co_name, code.co_filename.replace("\\", "/")
    if name.startswith(NO_COLLECTIVES) or not path.endswith("torch/distributed/distributed_c10d.py"):
        return False
    return "group" in code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]


def _as_recorded(frame: object) -> object:
    group = frame.f_locals.get("group")  # type: ignore[attr-defined]
    known = _world()
    if group is None or group not in known.pg_names:  # type: ignore[attr-defined]
        group = known.default_pg  # type: ignore[attr-defined]
    name, description = str(known.pg_names[group]), str(group.group_desc)  # type: ignore[attr-defined]
    members = sorted(known.pg_group_ranks[group])  # type: ignore[attr-defined]
    entry = {
        "process_group": [name, description], "collective_seq_id": 1, "state": "not begun",
        "profiling_name": frame.f_code.co_name, "frames": _lines(frame),  # type: ignore[attr-defined]
    }  # fmt: skip
    return {"entries": [entry], "pg_config": {name: {"desc": description, "ranks": str(members)}}}


def _lines(frame: object) -> list[object]:
    found: list[object] = []
    while frame is not None:
        code = frame.f_code  # type: ignore[attr-defined]
        found.append({"filename": code.co_filename, "line": frame.f_lineno, "name": code.co_name})  # type: ignore[attr-defined]
        frame = frame.f_back  # type: ignore[attr-defined]
    return found


def _world() -> object:
    return getattr(sys.modules.get("torch.distributed.distributed_c10d"), "_world", None)


def _groups() -> list[object]:
    """The process groups of this process, once torch.distributed is loaded."""
    return list(getattr(_world(), "pg_names", ()))


def _begun(group: object) -> int:
    """How many collectives a group has begun; 0 for those that do not count."""
    try:
        return int(group._get_sequence_number_for_group())  # type: ignore[attr-defined]
    except Exception:
        return 0


def _rank_in_group() -> int:
    group = getattr(_world(), "default_pg", None)
    return -1 if group is None else int(group.rank())


def _size_of_group() -> int:
    group = getattr(_world(), "default_pg", None)
    return 0 if group is None else int(group.size())


def _with_members(dump: bytes) -> bytes:
    """The dump of gloo's recorder, which does not say which ranks a group has."""
    import pickle

    content = pickle.loads(dump)
    members = getattr(_world(), "pg_group_ranks", {})
    for group, name in list(getattr(_world(), "pg_names", {}).items()):
        described = {"name": name, "desc": group.group_desc, "ranks": str(sorted(members.get(group, ())))}
        content.setdefault("pg_config", {}).setdefault(name, described)
    return pickle.dumps(content, protocol=2)


def _unused_signal() -> int:
    """A real-time signal that nobody handles; 0 where there is none: then the thread writes the stacks."""
    import signal

    last = int(getattr(signal, "SIGRTMAX", 0))
    unused = (n for n in range(last - 7, last - 15, -1) if last and signal.getsignal(n) == signal.SIG_DFL)
    return next(unused, 0)


def _is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except OSError:
        return True  # somebody else's
    return True


def _host() -> str:
    return os.uname().nodename


def _number(name: str) -> int:
    text = os.environ.get(name, "")
    return int(text) if text.isdigit() else 0


def _slurm_step() -> str:
    """As `bench.process.heartbeat.slurm_step`."""
    job, step = os.environ.get("SLURM_JOB_ID"), os.environ.get("SLURM_STEP_ID")
    return f"{job}.{step}" if job and step and "SLURM_PROCID" in os.environ else ""
