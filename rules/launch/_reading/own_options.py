"""What the options of a program of the project mean, where `flags.toml` does not list the program.

The names of its options, or of the keys of its configuration, say it, where no program means anything else by them
(`names.toml`), and a section or a prefix says whose they are: `rollout.tensor_parallel_size` is that of generation.
A size that the program offers under no name is 1 only where all of its options are known and none of the others
might be a size. What two options say differently stays unknown.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable
from functools import lru_cache
from typing import Any, NamedTuple

from rules.launch._reading.configuration import Configuration, Offer, Said
from validator.files.tables import load_toml

_FILE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "names.toml")
_SIZES = ("tp", "pp", "ring", "ulysses")
_TAGS = {"ring": "cp", "ulysses": "cp"}
_TEXTS = ("model", "backend")
_OF_A_NUMBER = ("heads", "kv_heads")
# a name that may be that of a size of the mesh, for all that its words say
_MAY_SPLIT = re.compile(r"parallel|(^|_)(sp|ep|etp|ddp|hsdp|replicas?|mesh|degree|(shard|group)_size)(_|$)")
# below these a bare word names a dimension: `parallel.tensor`
_SECTIONS = frozenset({"parallel", "parallelism", "parallelisms", "parallelization", "parallel_dims", "mesh"})
_BACKENDS = {"deepspeed": "deepspeed", "fsdp": "own", "fsdp2": "own", "ddp": "own", "megatron": "own"}


class _Names(NamedTuple):
    quantities: dict[str, str]
    roles: dict[str, str]


@lru_cache(maxsize=1)
def _names() -> _Names:
    table = load_toml(_FILE)
    quantities = {name: quantity for quantity, names in table["names"].items() for name in names}
    roles = {word: role for role, words in table["roles"].items() for word in words}
    return _Names(quantities, roles)


def meaning(path: tuple[str, ...]) -> str:
    """The quantity that a path names; `?` for a size that cannot be told, empty for anything else."""
    leaf = path[-1].replace("-", "_").lower()
    names = _names()
    if len(path) > 1 and path[-2].lower() in _SECTIONS and leaf.isalpha():
        leaf = next((each for each in (f"{leaf}_parallel", f"{leaf}_parallel_size") if each in names.quantities), leaf)
    if len(path) > 1 and names.quantities.get(f"{path[-2]}_{leaf}") == "model":
        return "model" if all(_role(part) in ("", "training") for part in path[:-2]) else ""
    words = leaf.split("_")
    for start in range(min(len(words), 4)):
        quantity = names.quantities.get("_".join(words[start:]))
        if quantity is None:
            continue
        roles = [*(_role(part) for part in path[:-1]), _role("_".join(words[:start]))]
        role = next((each for each in reversed(roles) if each), "training")
        if role == "training":
            return quantity if start == 0 or len(words) - start > 1 or quantity in _SIZES else ""
        return "engine_tp" if role == "generation" and quantity == "tp" else ""
    return "?" if _MAY_SPLIT.search(leaf) else ""


def _role(words: str) -> str:
    """`training`, `generation`, `other`, or empty for no words at all."""
    if not words:
        return ""
    known = {_names().roles.get(word, "other") for word in words.lower().replace("-", "_").split("_")}
    known = {role for role in known if role != "other"} or known
    return known.pop() if len(known) == 1 else "other"


class Source(NamedTuple):
    """What a program's source tells, asked only where it matters.

    `text`: all of it. `divided`: the sizes by which it divides its ranks, as tags of
    `validator.analysis.sizes.dimensions`. `batches`: the options that it divides by micro-batches.
    """

    text: Callable[[], str]
    divided: Callable[[], frozenset[str]]
    batches: Callable[[], frozenset[str]]


def understood(result: Configuration, offers: Iterable[Offer], *, complete: bool, source: Source) -> None:
    """Add to a configuration what the options of its program mean; what is said already, wins.

    `complete`: the program has no others.
    """
    found: dict[str, list[Offer]] = {}
    for offer in offers:
        found.setdefault(meaning(offer.path), []).append(offer)
    doubtful = [offer for offer in found.pop("?", ()) if not _is_one(offer)]
    found.pop("", None)
    telling = (*_SIZES, "engine_tp", "train_batch_size", "zero_stage")
    if not any(size in found or size in result.said for size in telling):
        return
    if "mini_batch_size" in found:
        for name in ("train_batch_size", "micro_batch_size", "grad_accum"):
            found.pop(name, None)  # of rollouts, of one update: which of them is not told by the name
    if not _is_global(found, source):
        found.pop("train_batch_size", None)
    said = {quantity: one for quantity, rows in found.items() if (one := _agreed(quantity, rows)) is not None}
    if "model" in said:
        for name in _OF_A_NUMBER:
            said.pop(name, None)
    for quantity, each in said.items():
        result.said.setdefault(quantity, each)
    _backend(result, source.text)
    if not doubtful and (complete or _divides_by_all(found, source)):
        for size in _SIZES:
            if size not in found:
                result.implied.setdefault(size, 1)


def _divides_by_all(found: dict[str, list[Offer]], source: Source) -> bool:
    """Whether the program divides its ranks by sizes, and by all that it offers: then it knows no others."""
    sizes = {_TAGS.get(size, size) for size in _SIZES if size in found}
    divided = source.divided()
    return bool(divided) and divided == sizes


def _is_global(found: dict[str, list[Offer]], source: Source) -> bool:
    """Whether the batch is that of all ranks: its name says so, or the program divides it, beside a smaller one."""
    for offer in found.get("train_batch_size", ()):
        name = offer.path[-1].replace("-", "_")
        if "global" in name:
            continue
        if "micro_batch_size" not in found:
            return False
        divided = re.search(rf"\b{name}\)?\s*(//|%)|[\"']{name}[\"']\s*:", source.text())
        if not divided and (offer.said is None or offer.said.flag not in source.batches()):
            return False
    return True


def _is_one(offer: Offer) -> bool:
    """Whether a size that cannot be told is 1, or off: then it splits nothing."""
    value = None if offer.said is None else offer.said.value
    return value is not None and str(value).lower() in ("1", "false", "none", "null")


def _agreed(quantity: str, rows: list[Offer]) -> Said | None:
    """What the options of one meaning say, if they say one thing."""
    said = [row.said for row in rows]
    if any(each is None for each in said):
        return None
    known = [each for each in said if each is not None]
    given = [each for each in known if each.span is not None]
    if len(given) > 1 and len({str(each.value) for each in given}) > 1:
        return None
    if not given and len({str(each.value) for each in known}) > 1 or len(given) == 1 != len(rows):
        return None
    one = (given or known)[0]
    return _converted(quantity, one)


def _converted(quantity: str, said: Said) -> Said | None:
    if said.value is None:
        return said if said.why else None
    text = str(said.value).strip().strip("\"'")
    if quantity in _TEXTS:
        return said._replace(value=text) if text not in ("None", "null", "") else None
    # 0 and -1 stand for "as many as there are", a word for something else of that name
    return (
        said._replace(value=int(text)) if re.fullmatch(r"[0-9]{1,12}", text) and int(text) >= _least(quantity) else None
    )


def _least(quantity: str) -> int:
    return 0 if quantity == "zero_stage" else 1


def _backend(result: Configuration, text: Callable[[], str]) -> None:
    """The engine that trains: as an option says, or the only one that the program imports."""
    said = result.said.pop("backend", None)
    value: Any = _BACKENDS.get(str(said.value).lower()) if said is not None else None
    if value is None:
        value = _engine(text())
    if value is not None:
        result.implied.setdefault("backend", value)


@lru_cache(maxsize=8)  # many launches and configuration files are of a few programs
def _engine(text: str) -> str | None:
    """The only engine that a program imports."""
    mixed = re.search(r"fully_shard|FullyShardedDataParallel|DistributedDataParallel", text)
    alone = "deepspeed.initialize(" in text and not mixed
    return "deepspeed" if alone else "own" if "deepspeed" not in text.lower() else None


__all__ = ["meaning", "understood"]
