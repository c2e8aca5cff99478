"""A job from flags: `--role ROLE:KEY=VALUE,…` for each of its models and for the engine.

What a role does not say is what the plain flags of `bench plan` say. Roles share all their GPUs unless `on=NAME` puts
them on GPUs of their own; each is a process of its own there, as under Ray.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from bench import backends
from bench.configuration import SETTINGS
from bench.predict.planning import Request, layout, refusal
from bench.problems import Problem
from bench.rlhf.job import ACCUMULATION, Engine, Job, Part
from bench.terminal.parsing import choice, nearest, switch, whole
from rules.models import ModelFacts

ROLLOUT = "rollout"
ROLES = ("actor", "critic", "reference", "reward", ROLLOUT)
TRAINS = ("actor", "critic")
OFFLOADS = ("none", "optimizer", "all")


def _share(text: str) -> float:
    value = float(text)
    if not 0 < value < 1:
        raise ValueError
    return value


_COMMON: Mapping[str, Callable[[str], object]] = {
    "model": str, "gpus": whole, "tp": whole, "seq-len": whole, "sleep": switch, "on": str,
}  # fmt: skip
_OF_MODELS: Mapping[str, Callable[[str], object]] = {
    **_COMMON, "backend": lambda text: choice(tuple(backends.variants()))(text), "ring": whole,
    "micro-batch-size": whole, "score-batch-size": whole, "checkpointing": switch, "offload": choice(OFFLOADS),
    "head": choice(SETTINGS["head"].choices),
}  # fmt: skip
_OF_ENGINES: Mapping[str, Callable[[str], object]] = {**_COMMON, "share": _share}
HELP = (
    "a model of an RLHF job, or its engine, such as actor, critic:backend=zero3,offload=optimizer or "
    "rollout:tp=2,share=0.5,sleep; once for each. ROLE is " + ", ".join(ROLES) + "; KEY of models "
    + ", ".join(_OF_MODELS) + "; of rollout " + ", ".join(_OF_ENGINES)
)  # fmt: skip

Role = tuple[str, dict[str, object]]


def role(text: str) -> Role:
    """`ROLE:KEY=VALUE,…`; a key alone is on. Raises argparse.ArgumentTypeError."""
    name, _, rest = text.partition(":")
    if name not in ROLES:
        raise argparse.ArgumentTypeError(f"no role {name!r}{nearest(name, ROLES) or '; there are ' + ', '.join(ROLES)}")
    known = _OF_ENGINES if name == ROLLOUT else _OF_MODELS
    found: dict[str, object] = {}
    for part in filter(None, rest.split(",")):
        key, equals, value = (piece.strip() for piece in part.partition("="))
        key = key.replace("_", "-")
        if key not in known:
            hint = nearest(key, known) or f"; there are {', '.join(known)}"
            raise argparse.ArgumentTypeError(f"{name} has no setting {key!r}{hint}")
        try:
            found[key] = known[key](value if equals else "on")
        except ValueError:
            raise argparse.ArgumentTypeError(f"{name}: {key}={value}: no share between 0 and 1") from None
        except argparse.ArgumentTypeError as error:
            raise argparse.ArgumentTypeError(f"{name}: {key}: {error}") from None
    return name, found


def job(given: Sequence[Role], common: Request, resolve: Callable[[str], ModelFacts]) -> Job:
    """The job of these roles. Raises `Problem`, one line, for one that cannot be, `ModelError` for models."""
    names = [name for name, _ in given]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice:
        raise Problem(f"--role {twice} is given twice")
    parts = tuple(_part(name, said, common, resolve) for name, said in given if name != ROLLOUT)
    engine = next((_engine(said, common, resolve) for name, said in given if name == ROLLOUT), None)
    groups: dict[object, list[str]] = {}
    for name, said in given:
        groups.setdefault(said.get("on"), []).append(name)
    sizes = {part.role: part.gpus for part in parts} | ({ROLLOUT: engine.gpus} if engine else {})
    for members in groups.values():
        if len({sizes[name] for name in members}) > 1:
            shown = ", ".join(f"{name} {sizes[name]}" for name in members)
            raise Problem(f"roles that share GPUs have different numbers of them: {shown}; say on=NAME for those apart")
    return Job("flags", parts, engine, tuple(tuple(members) for members in groups.values()))


def _part(name: str, said: Mapping[str, object], common: Request, resolve: Callable[[str], ModelFacts]) -> Part:
    trains = name in TRAINS
    variant = backends.variants()[str(said.get("backend", backends.first()))]
    offload = said.get("offload")
    changes = {
        "num_gpus": said.get("gpus"), "seq_len": said.get("seq-len"), "micro_batch_size": said.get("micro-batch-size"),
        "gradient_checkpointing": said.get("checkpointing"), "master": None if trains else common.dtype,
        "head": said.get("head", "full" if name == "actor" else "chunked"),
        "facts": resolve(str(said["model"])) if "model" in said else None,
        "cpu_offload": None if offload is None else offload != "none",
        "offload_param": None if offload is None else offload == "all",
    }  # fmt: skip
    given: dict[str, Any] = {key: value for key, value in changes.items() if value is not None}
    tp, ring = _whole(said, "tp", 1), _whole(said, "ring", 1)
    one = replace(common, **given).split((str(variant["backend"]), variant.get("zero_stage")), tp, ring)
    refused = refusal(one)
    if refused is not None:
        raise Problem(f"{name}: [{refused.constraint}] {refused.message}{'; ' * bool(refused.help)}{refused.help}")
    split = layout(one)
    if one.train_batch_size is None:
        split = replace(split, grad_accum=ACCUMULATION)
    scored = _whole(said, "score-batch-size", one.rows) * one.seq_len / ring
    away = bool(said.get("sleep"))
    return Part(name, one.facts, split, trains, scored, idle_parameters=not away, idle_optimizer=not away)


def _engine(said: Mapping[str, object], common: Request, resolve: Callable[[str], ModelFacts]) -> Engine:
    facts = resolve(str(said["model"])) if "model" in said else common.facts
    gpus, tp = _whole(said, "gpus", common.num_gpus), _whole(said, "tp", 1)
    if gpus % tp:
        raise Problem(f"{ROLLOUT}: engines of tp {tp} do not divide its {gpus} GPUs")
    share = float(str(said.get("share", 0.5)))
    return Engine(facts, gpus // tp, tp, share, bool(said.get("sleep")), _whole(said, "seq-len", common.seq_len))


def _whole(said: Mapping[str, object], key: str, default: int) -> int:
    return int(str(said.get(key, default)))
