"""Reading flight-recorder dumps and stacks of ranks. Dumps are pickles: nothing in them is ever called."""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from bench.pickles import RestrictedUnpickler, one_line
from bench.problems import Problem
from bench.process.stacks import Frame, where

MAX_BYTES = 512 * 2**20
NOT_BEGUN = "not begun"
"""The state of a collective that a rank has called and its recorder does not know of: its group is being connected."""
STANDING = "standing."
"""How files begin in which `bench watch` has such a call."""
STACKS = re.compile(r"(?:^|\n)(?:Current thread|Thread) ")


class DumpError(Problem):
    """A file that is no dump; the message is one line and names it."""


@dataclass(frozen=True)
class Entry:
    """One collective that a rank enqueued. `number` counts those of its group, from 1; sizes are in elements."""

    group: str
    number: int
    operation: str
    input_sizes: tuple[tuple[int, ...], ...]
    dtype: str
    state: str
    done: bool
    frames: tuple[Frame, ...]
    with_rank: str = ""
    """Of a message between two ranks: to or from which, as far as the dump says."""

    def where(self) -> str:
        """The innermost call outside libraries, as "file:line in function"; "" where the dump has no stack."""
        return where(self.frames)

    def name(self) -> str:
        return f"{self.operation} #{self.number}"


@dataclass(frozen=True)
class Group:
    """A process group as a dump describes it; `ranks` is empty where it does not say."""

    name: str
    description: str
    ranks: tuple[int, ...]


@dataclass
class Dump:
    """What one rank recorded: its collectives by group, in order, and its messages to and from single ranks."""

    rank: int
    path: Path
    groups: dict[str, Group] = field(default_factory=dict)
    entries: dict[str, list[Entry]] = field(default_factory=dict)
    messages: list[Entry] = field(default_factory=list)
    whole: bool = True
    """False where nothing is known but the call in which the rank stands."""

    def add(self, standing: Dump) -> None:
        """Add the call in which the rank stands, unless it is among those that the recorder has."""
        for name, (call, *_) in standing.entries.items():
            known = self.entries.setdefault(name, [])
            if all(entry.done for entry in known):
                number = 1 + max((entry.number for entry in known), default=0)
                known.append(replace(call, number=number))
            self.groups.setdefault(name, standing.groups[name])
            if not self.groups[name].ranks:
                self.groups[name] = standing.groups[name]


def files(paths: Iterable[Path]) -> list[Path]:
    """The files among and directly under `paths`, sorted. Raises `DumpError` for what is not there."""
    found: list[Path] = []
    for path in paths:
        if path.is_dir():
            found += sorted(p for p in path.iterdir() if p.is_file() and not p.name.startswith("."))
        elif path.is_file():
            found.append(path)
        else:
            raise DumpError(f"{path}: no such file or directory")
    return found


def rank_of(path: Path) -> int | None:
    """The rank in a file's name: its last number (`nccl_trace_rank_3`, `flight.3`, `stacks.3.txt`)."""
    numbers = re.findall(r"\d+", path.name)
    return int(numbers[-1]) if numbers else None


def is_stacks(path: Path) -> bool:
    """Whether a file holds stacks by faulthandler or py-spy."""
    with path.open("rb") as file:
        return bool(STACKS.search(file.read(4096).decode("utf-8", errors="replace")))


def read(path: Path) -> Dump:
    """A dump, pickled or JSON. Raises `DumpError`."""
    rank = rank_of(path)
    if rank is None:
        raise DumpError(f"{path}: the name holds no rank: end it with the rank's number")
    try:
        if path.stat().st_size > MAX_BYTES:
            raise DumpError(f"{path}: more than {MAX_BYTES >> 20} MiB, which no dump has")
        content = _parse(path)
    except OSError as error:
        raise DumpError(f"{path}: cannot be read: {error.strerror}") from None
    if not isinstance(content, dict) or not isinstance(content.get("entries"), list):
        raise DumpError(f"{path}: no flight-recorder dump: it holds no list `entries`")
    try:
        return _dump(rank, path, content)
    except (KeyError, TypeError, ValueError, IndexError, AttributeError, SyntaxError) as error:
        raise DumpError(f"{path}: not the fields of a flight-recorder dump: {error!r}") from None


def _parse(path: Path) -> Any:
    with path.open("rb") as file:
        first = file.read(1)
        file.seek(0)
        try:
            return json.load(file) if first in (b"{", b"[") else RestrictedUnpickler(file).load()
        except RecursionError:
            raise DumpError(f"{path}: refused: nested too deep") from None
        except Exception as error:  # whatever a hostile stream raises, it is one refused file
            raise DumpError(f"{path}: refused: {one_line(error)}") from None


def _dump(rank: int, path: Path, content: Mapping[str, Any]) -> Dump:
    dump = Dump(rank, path)
    for name, config in content.get("pg_config", {}).items():
        dump.groups[str(name)] = Group(str(name), str(config.get("desc", "")), _ranks(config.get("ranks", "")))
    status = content.get("pg_status", {})
    for raw in content["entries"]:
        if raw.get("is_p2p"):
            dump.messages.append(_message(raw))
            continue
        entry = _entry(raw, status)
        dump.entries.setdefault(entry.group, []).append(entry)
        if entry.group not in dump.groups:
            dump.groups[entry.group] = Group(entry.group, str(raw["process_group"][1]), ())
    for entries in dump.entries.values():
        entries.sort(key=lambda entry: entry.number)
    return dump


def _ranks(value: Any) -> tuple[int, ...]:
    """Dumps write the members as text: "[0, 1]"."""
    items = ast.literal_eval(value) if isinstance(value, str) and value else value
    return tuple(int(item) for item in items or ())


def _entry(raw: Mapping[str, Any], status: Mapping[str, Any]) -> Entry:
    group, number = str(raw["process_group"][0]), int(raw["collective_seq_id"])
    completed = int(status.get(str(raw.get("pg_id", group)), {}).get("last_completed_collective", -1))
    state = str(raw.get("state", ""))
    return Entry(
        group, number, str(raw["profiling_name"]).rpartition(":")[2],
        tuple(tuple(int(n) for n in size) for size in raw.get("input_sizes", ())),
        ",".join(map(str, raw.get("input_dtypes", ()))), state,
        state == "completed" or bool(raw.get("retired")) or number <= completed, _frames(raw.get("frames", ())),
    )  # fmt: skip


def _message(raw: Mapping[str, Any]) -> Entry:
    """A send or receive; NCCL names it "nccl:recv 1<-0": the rank itself, and the other one."""
    words = str(raw["profiling_name"]).rpartition(":")[2].split()
    state = str(raw.get("state", ""))
    return Entry(
        str(raw["process_group"][0]), int(raw.get("p2p_seq_id", 0)), words[0], (), "", state,
        state == "completed" or bool(raw.get("retired")), _frames(raw.get("frames", ())),
        re.split(r"<-|->", words[1])[-1] if len(words) > 1 else "",
    )  # fmt: skip


def _frames(raw: Sequence[Mapping[str, Any]]) -> tuple[Frame, ...]:
    return tuple(Frame(str(f["filename"]), int(f["line"]), str(f["name"])) for f in raw)
