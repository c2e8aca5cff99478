"""What a file is that is no result of this version, and what to do with it, in one line."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from bench.configuration import SCHEMA
from bench.matrix import READ

HEAD = 4096
TENSORS = (".pt", ".pth", ".pkl", ".bin", ".safetensors")
LOGS = "name a result directory, a file of results or a training log"
KINDS = (
    ({"schema", "configuration"}, "result"),
    ({"schema", "rows", "stack"}, "matrix"),
    ({"benchmarks"}, "pyperf"),
    ({"times", "losses"}, "process"),
    ({"rank", "phase", "time"}, "heartbeat"),
    ({"backend", "num_gpus", "model"}, "settings"),
)
"""Keys by which JSON of ours, and of pyperf, is known."""
TOLD = {
    "pyperf": "values for `python -m pyperf stats` and `bench compare`; a report reads the result.json beside it",
    "process": "what one process of a row measured; name the row's folder or its result.json",
    "heartbeat": "a sign of life of a rank; name the row's folder or its result.json",
    "settings": "the settings of a row that has no result yet: the command that wrote it goes on with it",
    "matrix": "a compatibility matrix: `bench report` shows it, `bench matrix --diff OLD NEW` compares two",
}


def told(path: Path) -> str:
    """Of a file that cannot be used as what it was named for. Raises `OSError` where it cannot be read."""
    with path.open("rb") as file:
        head = file.read(HEAD)
    if not head.strip():
        return "the file is empty"
    if head[:2] == b"PK" or (b"\0" in head and path.suffix in TENSORS):
        return f"tensors, not a log; {LOGS} (recorded batches are for `bench replay --inputs`)"
    if b"\0" in head:
        return f"not a text file; {LOGS}"
    if head.lstrip()[:1] not in (b"{", b"["):
        return f"no loss, gradient norm or time found in it; is it a training log? Else {LOGS}"
    return _json(path)


def _json(path: Path) -> str:
    text = path.read_text(encoding="utf-8", errors="replace")
    try:
        value = json.loads(text)
    except (ValueError, RecursionError) as error:
        value = _first_line(text)
        if value is None:
            return f"not whole, or no JSON ({error}); the command that wrote it measures its row again"
    return described(value)


def _first_line(text: str) -> dict[str, Any] | None:
    """The first object of a file that holds one a line."""
    try:
        value = json.loads(text.lstrip().splitlines()[0])
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def kind_of(value: dict[str, Any]) -> str:
    """Which of `KINDS` a JSON object is; "" for none."""
    return next((name for keys, name in KINDS if keys <= value.keys()), "")


def described(value: Any) -> str:
    """What a JSON document is."""
    if not isinstance(value, dict):
        return f"JSON of something else (a {type(value).__name__}); {LOGS}"
    kind = kind_of(value)
    reads = {"result": (SCHEMA,), "matrix": READ}.get(kind, ())
    if reads and value["schema"] not in reads:
        return _of_another_schema(f"a {kind}", value["schema"], reads)
    if kind in TOLD:
        return TOLD[kind]
    keys = ", ".join(list(map(str, value))[:4]) or "none"
    return f"JSON of something else (its keys: {keys}); {LOGS}"


def _of_another_schema(what: str, schema: Any, reads: tuple[int, ...]) -> str:
    newer = isinstance(schema, int) and schema > max(reads)
    mend = "update meshproof, or measure it again" if newer else "measure it again"
    whose = "a newer version wrote it" if newer else "no version that this one knows wrote it"
    return f"{what} of schema {schema!r}; this version reads {', '.join(map(str, reads))}: {whose}; {mend}"
