"""Frameworks whose launch commands can be read: one module each, found by itself.

A module has `starts(words) -> bool`, `TABLE` (its row of the validator's table of options,
`rules/launch/_reading/flags.toml`), `PROGRAM` (the module by which that table knows it; "": the command as it is),
`MODELS` (the option that names the model of each role) and `job(command, models, gpus) -> Job`, which raises `Problem`,
one line, for values that cannot be.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from fnmatch import fnmatchcase
from typing import Any

from bench import registry
from bench.launch.script import project
from bench.predict.sizes import advice
from bench.problems import Problem
from bench.rlhf.command import Command
from bench.rlhf.job import Job
from rules.constraints import Quantities, Violation, check, explain
from rules.models import ModelFacts

Models = Mapping[str, ModelFacts]


def modules() -> list[Any]:
    """All frameworks."""
    return list(registry.modules(__name__, __path__).values())


def starts(words: Sequence[str]) -> bool:
    """Whether a command starts any of them."""
    return any(module.starts(words) for module in modules())


def of(command: Command) -> Any:
    """The framework that a command starts. Raises `Problem` for one that is not known."""
    options = {word.partition("=")[0] for word in command.words}
    started = [module for module in modules() if module.starts(command.words)]
    if started:  # an option that only one of them has tells more than a name
        return next((module for module in started if module.TABLE.marks & options), started[0])
    raise Problem(f"which framework is it? known are {', '.join(m.__name__.rpartition('.')[2] for m in modules())}")


def job(command: Command, models: Models, gpus: int | None) -> Job:
    """The job that a command starts, on `gpus` GPUs where it does not say so itself.

    Raises `Problem` for one that cannot run: a misspelt option, or sizes against a constraint of the table.
    """
    framework = of(command)
    made: Job = framework.job(command, models, gpus)
    strange = _strange(command, framework)
    found = [*_violations(command, framework, made, gpus)]
    refused = [each for each in found if each.constraint.severity == "error"]
    if refused:
        raise Problem("; ".join(_line(each, command, framework) for each in refused))
    if gpus not in (None, made.gpus):
        raise Problem(f"--gpus {gpus}: the command itself says how many each model has, {made.gpus} together")
    return replace(made, notes=(*made.notes, *strange, *(_line(each, command, framework) for each in found)))


def _strange(command: Command, framework: Any) -> list[str]:
    """A line for each option that the plan does not count and that may take memory. Raises `Problem`: misspelt."""
    table = framework.TABLE
    known = sorted(command.asked | table.all_options())
    strange = command.not_asked()
    for name in strange:
        meant = "" if name in known or name in table.unrelated else command.misspelt(name, known)
        if meant:
            raise Problem(f"option {_shown(command, name)} is not understood; did you mean {_shown(command, meant)}?")
    counts = [name for name in strange if not any(fnmatchcase(name, pattern) for pattern in table.unrelated)]
    return [f"option {_shown(command, name)} is not understood: the plan does not count it" for name in counts]


def _shown(command: Command, name: str) -> str:
    return name if command.settings and name not in command.flags else f"--{name}"


def _violations(command: Command, framework: Any, made: Job, gpus: int | None) -> Iterator[Violation]:
    """What the table of constraints says against the command, as the validator reads it, with the models and the GPUs
    as they are known here."""
    from rules.launch._reading.quantities import configurations

    text = shlex.join(["python3", "-m", framework.PROGRAM, *command.options()] if framework.PROGRAM else command.words)
    read = configurations(project(text))
    known = next((each.quantities() for each in read), Quantities.of())
    if gpus is not None and len(made.groups) == 1:
        known = known.replace(world_size=gpus)
    if made.engine is not None:
        known = known.replace(engine_tp=made.engine.tp, engine_share=made.engine.share)
    actor = next((part.facts for part in made.parts if part.role == "actor"), None)
    known = known.replace(**(actor.quantities() if actor is not None else {}))
    return (explain(each, known) for each in check(known, propose=False).violations)


def _line(found: Violation, command: Command, framework: Any) -> str:
    """A violation with what would mend it, in options of the command."""
    options = {each.quantity: framework.TABLE.options(each.quantity) for each in found.proposals}
    flags = {
        quantity: _shown(command, next((name for name in names if command.given(name) is not None), names[0]))
        for quantity, names in options.items() if names
    }  # fmt: skip
    help_ = advice(found, flags)
    return f"[{found.constraint.id}] {found.message}{'; ' * bool(help_)}{help_}"
