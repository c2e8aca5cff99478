"""`bench plan --recipe`: the job in a launch script or command, and what its GPUs must hold."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from bench.predict.layout import Layout
from bench.predict.planning import variant_name
from bench.problems import Problem
from bench.rlhf import command, frameworks
from bench.rlhf.job import GENERATE, Job, moments, problems
from bench.terminal.parsing import nearest
from bench.terminal.text import grid
from rules.models import ModelError, ModelFacts, find, resolve

SIZE = re.compile(r"\d+(?:\.\d+)?[bm]")
OTHER_NETWORK = re.compile(r"vl|omni|audio|vision|moe|draft|eagle\d*|distill|\d+x\d+(?:\.\d+)?b")
"""Words of names of models that have not the sizes of the one they are named after."""
ERROR = 0.08
"""Relative error of predicted peaks (`reports/h200/memory.md`)."""


def job_of(recipe: str, gpus: int | None, named: Sequence[str] = ()) -> Job:
    """The job of a script, or of a command given as one text. `named` say which model a role has, as `ROLE=NAME`
    with commas between, or `NAME` for all whose own is not known. Raises `Problem`, one line."""
    path = Path(recipe)
    shown = recipe if len(recipe) < 60 else f"{recipe[:57]}…"
    try:
        is_file = path.is_file()
    except OSError:  # a command that is too long for a name
        is_file = False
    if not is_file and " " not in recipe.strip():
        raise Problem(f"--recipe {recipe}: no such file, and no command")
    try:
        text = path.read_text(encoding="utf-8", errors="replace") if is_file else recipe
        read = command.read(text, frameworks.starts)
        said = _named(named, frameworks.of(read).MODELS)
        models, guessed = _models(read, said)
        made = frameworks.job(read, models, gpus)
    except (OSError, ValueError, ModelError) as error:
        raise Problem(f"--recipe {shown}: {getattr(error, 'strerror', None) or error}") from None
    unused = [role for role in said if role and role not in {part.role for part in made.parts}]
    notes = (*made.notes, *guessed, *(f"--model {role}: this job has no such model" for role in unused))
    return replace(made, notes=notes)


def _named(given: Sequence[str], roles: Iterable[str]) -> dict[str, str]:
    """Models by role, "" for all whose own is not known. Raises `Problem` for a role that there is not, or twice."""
    found: dict[str, str] = {}
    for part in (part for text in given for part in text.split(",") if part):
        role, equals, name = part.partition("=")
        if not equals or Path(part).exists():
            role, name = "", part
        elif role not in roles:
            raise Problem(
                f"--model {part}: no role {role!r}{nearest(role, roles) or '; there are ' + ', '.join(roles)}"
            )
        if found.get(role, name) != name:
            raise Problem(f"--model gives {role or 'all roles'} two models, {found[role]} and {name}")
        found[role] = name
    return found


def _models(read: command.Command, named: Mapping[str, str]) -> tuple[dict[str, ModelFacts], list[str]]:
    """The model of each role, and a note on each that is taken for another by its name."""
    framework = frameworks.of(read)
    found, notes = {}, []
    for role in framework.roles(read):
        said = next((read.text(option) for option in framework.MODELS[role] if read.text(option)), "")
        known = _model(role, said, named)
        if known is None and (known := alike(said.rstrip("/").rpartition("/")[2])) is not None:
            notes.append(f"{role}: {said} is counted as {known.name}, by its name; if it is not: --model {role}=NAME")
        if known is None:
            problem = f"sizes of the {role} model, {said}, are not known" if said else f"no model is named as {role}"
            raise Problem(f"{problem}: --model {role}=NAME")
        found[role] = known
    return found, notes


def _model(role: str, said: str, named: Mapping[str, str]) -> ModelFacts | None:
    """By what `--model` says of the role, by what the command names, by what `--model` says of all."""
    if role in named:
        return resolve(named[role])
    known = (find(said) or find(said.rstrip("/").rpartition("/")[2]) or _on_disk(said)) if said else None
    return resolve(named[""]) if known is None and "" in named else known


def alike(name: str) -> ModelFacts | None:
    """The published model whose name, with its size, is within this one, as `llama-3-8b` is in `Llama-3-8b-rm-700k`:
    what somebody trained from it. None where words tell that it is another network."""
    words = name.lower().split("-")
    if any(OTHER_NETWORK.fullmatch(word) for word in words):
        return None
    parts = (words[start:end] for start in range(len(words)) for end in range(len(words), start + 1, -1))
    named = ("-".join(part) for part in parts if any(SIZE.fullmatch(word) for word in part))
    return next((found for part in named if (found := find(part))), None)


def _on_disk(said: str) -> ModelFacts | None:
    return resolve(said) if Path(said).exists() else None


def as_text(job: Job, gpu_memory: float) -> str:
    """Models, moments, and whether it fits."""
    notes = [f"note: {note}" for note in job.notes]
    lines = [*_models_text(job), "", *_moments_text(job, gpu_memory), "", *notes, *verdict(job, gpu_memory)]
    return "\n".join(lines)


def verdict(job: Job, gpu_memory: float) -> list[str]:
    """The last lines: fits, with what is left, or why not."""
    wrong = problems(job, gpu_memory)
    if wrong:
        return [f"does not fit: {line}" for line in wrong]
    predicted = [moment for moment in moments(job, gpu_memory) if moment.name != GENERATE]  # a share is no prediction
    if not predicted:
        return ["fits"]
    left = gpu_memory - predicted[0].needed
    word = "tight" if left < ERROR * gpu_memory else "fits"
    advice = ", which is less than predictions are good for" if word == "tight" else ""
    return [f"{word}: {left / 1e9:.1f} GB are left at the fullest moment, {predicted[0].name}{advice}"]


def _models_text(job: Job) -> list[str]:
    rows: list[tuple[str, ...]] = [("model", "", "GPUs", "split", "micro-batch", "weights GB", "optimizer GB")]
    for part in job.parts:
        layout = part.layout
        split = _split(layout)
        micro = f"{layout.micro_batch_size} x {layout.seq_len}" if part.trains else f"{part.score_tokens:,.0f} tokens"
        sizes = [f"{size / 1e9:.1f}" for size in (part.weights, part.optimizer)]
        rows.append((part.role, part.facts.name, str(part.gpus), split, micro, *sizes))
    if job.engine:
        one = job.engine
        cached = f"{one.share:.0%} of a GPU{', sleeps' if one.sleeps else ''}"
        rows.append(("rollout", one.facts.name, str(one.gpus), f"{one.count} engines tp {one.tp}", cached,
                     f"{one.weights / 1e9:.1f}", "-"))  # fmt: skip
    return [f"{job.framework}:", "", grid(rows[1:], rows[0])]


def _split(layout: Layout) -> str:
    backend = variant_name(layout.backend, layout.zero_stage)
    more = {"pp": layout.pp, "virtual pp": layout.virtual_pp, "ep": layout.ep}
    shown = [f"{backend} dp {layout.dp} tp {layout.tp} ring {layout.ring}"]
    shown += [f"{name} {size}" for name, size in more.items() if size > 1]
    shown += [f"lora {layout.adapters.rank}"] if layout.adapters else []
    return " ".join([*shown, *["4-bit"] * (layout.quantized > 0)])


def _moments_text(job: Job, gpu_memory: float) -> list[str]:
    rows: list[tuple[str, ...]] = [
        ("GPUs of", "moment", "working GB", "others GB", "engine GB", "overhead GB", "needed GB", "")
    ]
    for moment in moments(job, gpu_memory):
        parts = (moment.working, moment.resident, moment.engine, moment.overhead, moment.needed)
        shown = [f"{size / 1e9:.1f}" for size in parts]
        rows.append((" + ".join(moment.group), moment.name, *shown, "" if moment.needed <= gpu_memory else "too much"))
    lines = [grid(rows[1:], rows[0])]
    if job.engine:
        tokens = job.engine.cache_tokens(gpu_memory)
        lines.append(f"the engine's cache holds {max(tokens, 0):,} tokens, a sequence at most {job.engine.length:,}")
    return lines


def as_data(job: Job, gpu_memory: float) -> dict[str, Any]:
    """Plain values in bytes: `{"version": 1, "framework", "parts", "engine", "moments", "problems", "notes"}`."""
    engine = job.engine
    return {
        "version": 1, "framework": job.framework, "gpu_memory": gpu_memory, "problems": problems(job, gpu_memory),
        "notes": list(job.notes),
        "parts": [
            {"role": p.role, "model": p.facts.name, "gpus": p.gpus, "weights": p.weights, "optimizer": p.optimizer}
            for p in job.parts
        ],
        "engine": engine and {
            "gpus": engine.gpus, "tp": engine.tp, "share": engine.share, "sleeps": engine.sleeps,
            "weights": engine.weights, "cache_tokens": engine.cache_tokens(gpu_memory),
        },
        "moments": [{**asdict(moment), "needed": moment.needed} for moment in moments(job, gpu_memory)],
    }  # fmt: skip
