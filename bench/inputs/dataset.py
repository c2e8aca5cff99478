"""Text for supervised fine-tuning: prompts with answers from files, a hub data set or the embedded one, as batches."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import torch

from bench import hub
from bench.inputs.batch import Batch
from bench.inputs.embedded import embedded_samples
from bench.inputs.formats import readers
from bench.pickles import one_line
from bench.problems import InputError
from bench.terminal.text import plain

EMBEDDED = "embedded"
INPUT_KEYS = ("input", "question", "prompt", "instruction", "query")
SHORTEST_EMBEDDED = 64
_HALF = re.compile("[\ud800-\udfff]")
OUTPUT_KEYS = ("output", "response", "answer", "completion", "text")
_DESCRIPTIONS = frozenset({"dataset_info.json", "dataset_dict.json", "dataset_infos.json", "state.json"})


class Sample(NamedTuple):
    """A prompt, which may be empty, and the answer that is learned."""

    prompt: str
    answer: str


class Tokenizer(Protocol):
    """What is asked of a tokenizer: ids of a text without special ones, and the id that ends a sample."""

    eos_token_id: int

    def encode(self, text: str, add_special_tokens: bool = ...) -> list[int]: ...


class ByteTokenizer:
    """UTF-8 bytes as ids 0 to 255; 256 ends a sample. Any model with 257 tokens or more can take it."""

    eos_token_id = 256
    size = 257

    def encode(self, text: str, add_special_tokens: bool = False) -> list[int]:
        return list(text.encode("utf-8"))


def find_tokenizer(name: str, model: str) -> Tokenizer:
    """`byte`, the name or directory of a published one, or `auto`: the model's own where that is on this disk.

    Raises `InputError` where a tokenizer that was asked for cannot be loaded.
    """
    own = "tokenizer_config.json"
    has_own = (Path(model) / own).is_file() or (hub.is_name(model) and hub.is_cached(model, own))
    if name == "byte" or (name == "auto" and not has_own):
        return ByteTokenizer()
    from transformers import AutoTokenizer

    place = model if name == "auto" else name
    try:
        tokenizer = AutoTokenizer.from_pretrained(place)
    except (OSError, ValueError) as error:
        raise InputError(f"--tokenizer {place}: {one_line(error)} (or --tokenizer byte)") from None
    if tokenizer.eos_token_id is None:
        raise InputError(f"--tokenizer {place}: it has no token that ends a sample")
    loaded: Tokenizer = tokenizer
    return loaded


def _file_rows(path: Path) -> Iterator[Mapping[str, Any]]:
    reader = readers().get(path.suffix)
    if reader is None:
        raise InputError(f"{path}: a data set is one of {', '.join(readers())}, or a directory of them")
    try:
        yield from reader(path)
    except InputError:
        raise
    except (OSError, ValueError) as error:  # pyarrow's errors are ValueErrors, and so are wrong encodings
        raise InputError(f"{path}: cannot be read: {getattr(error, 'strerror', None) or one_line(error)}") from None


def _training_files(names: Iterable[str]) -> list[str]:
    """Data files in the order of their names; those of the split `train` alone where there is one."""
    found = [n for n in sorted(names) if n.endswith(tuple(readers())) and n.rpartition("/")[2] not in _DESCRIPTIONS]
    return [n for n in found if "train" in n] or found


def _directory_rows(path: Path) -> Iterator[Mapping[str, Any]]:
    names = _training_files(f.relative_to(path).as_posix() for f in path.rglob("*") if f.is_file())
    if not names:
        raise InputError(f"{path}: holds no {', '.join(readers())} file")
    for name in names:
        yield from _file_rows(path / name)


def _hub_rows(name: str) -> Iterator[Mapping[str, Any]]:
    """Rows of a data set of the hub, a file at a time, so that a few samples cost one download."""
    from huggingface_hub import HfApi, hf_hub_download, logging

    logging.set_verbosity_error()  # it tells of each of its retries; the last error is ours to tell
    try:
        names = _training_files(HfApi().list_repo_files(name, repo_type="dataset"))
        if not names:
            raise InputError(f"--dataset {name}: holds no {', '.join(readers())} file")
        for file in names:
            yield from _file_rows(Path(hf_hub_download(name, file, repo_type="dataset")))
    except InputError:
        raise
    except Exception as error:  # the hub's errors share no base; offline, its client raises the network's
        raise InputError(
            f"--dataset {name}: no such file or directory, and not to be had from the hub: {one_line(error)}; use "
            f"--dataset {EMBEDDED}, or a file"
        ) from None


def _columns(row: Mapping[str, Any], most: int = 300) -> str:
    names = plain(", ".join(sorted(map(str, row))))
    return names if len(names) <= most else f"{names[:most]}…"


def _column(row: Mapping[str, Any], wanted: str | None, usual: tuple[str, ...], flag: str, source: str) -> str | None:
    if wanted is not None:
        if wanted not in row:
            raise InputError(f"{source}: no column {wanted!r} for {flag}; there are: {_columns(row)}")
        return wanted
    return next((name for name in usual if name in row), None)


def _samples(
    rows: Iterable[Mapping[str, Any]], input_key: str | None, output_key: str | None, source: str
) -> Iterator[Sample]:
    for row in rows:
        answer = _column(row, output_key, OUTPUT_KEYS, "--output-key", source)
        if answer is None:
            raise InputError(f"{source}: which column is the answer? --output-key, one of {_columns(row)}")
        prompt = _column(row, input_key, tuple(k for k in INPUT_KEYS if k != answer), "--input-key", source)
        texts = [row[prompt] if prompt else "", row[answer]]
        if not all(isinstance(text, str) for text in texts):
            raise InputError(f"{source}: column {prompt if not isinstance(texts[0], str) else answer!r} holds no text")
        if any(_HALF.search(text) for text in texts):  # JSON may hold them, no tokenizer takes them
            raise InputError(f"{source}: a text holds half of a character (\\ud800 to \\udfff)")
        if texts[1]:
            yield Sample(*texts)


def read_samples(
    dataset: str, *, max_len: int, seed: int, input_key: str | None = None, output_key: str | None = None
) -> Iterator[Sample]:
    """The samples of a file, a directory, a hub data set or, by the name `embedded`, our own without end.

    Raises `InputError` for what cannot be found or read, naming file, line or column.
    """
    if dataset == EMBEDDED:
        if max_len < SHORTEST_EMBEDDED:
            raise InputError(f"--dataset embedded needs --max-len {SHORTEST_EMBEDDED} or more, got {max_len}")
        yield from (Sample(*pair) for pair in embedded_samples(max_len - 1, seed))
        return
    path = Path(dataset)
    if path.is_dir():
        rows = _directory_rows(path)
    elif path.exists() or path.suffix in readers():
        rows = _file_rows(path)
    else:
        rows = _hub_rows(dataset)
    yield from _samples(rows, input_key, output_key, dataset)


def tokenize(samples: Iterable[Sample], tokenizer: Tokenizer, max_len: int, limit: int) -> Batch:
    """(rows, longest) positions of at most `limit` samples, padded on the right; the answer's tokens are actions.

    What is longer than `max_len` tokens is cut at its end; a sample whose prompt alone fills it is left out.
    Raises `InputError` where nothing remains.
    """
    rows: list[tuple[list[int], int]] = []
    for sample in samples:
        if len(rows) == limit:
            break
        prompt = tokenizer.encode(sample.prompt, add_special_tokens=False) if sample.prompt else []
        answer = tokenizer.encode(sample.answer, add_special_tokens=False)
        ids = [*prompt, *answer, tokenizer.eos_token_id][:max_len]
        if max(len(prompt), 1) < len(ids):
            rows.append((ids, len(prompt)))
    if not rows:
        raise InputError(f"no sample has an answer within --max-len {max_len} tokens")
    longest = max(len(ids) for ids, _ in rows)
    tokens = torch.zeros(len(rows), longest, dtype=torch.int64)
    attention = torch.zeros(len(rows), longest, dtype=torch.bool)
    actions = torch.zeros(len(rows), longest, dtype=torch.bool)
    for number, (ids, prompt_length) in enumerate(rows):
        tokens[number, : len(ids)] = torch.tensor(ids)
        attention[number, : len(ids)] = True
        actions[number, prompt_length : len(ids)] = True
    return Batch(tokens, attention, actions, "data set")
