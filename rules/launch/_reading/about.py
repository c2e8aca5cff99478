"""What the table of constraints makes of one line of a script or a configuration file, for `--why`."""

from __future__ import annotations

from collections.abc import Iterator

from rules.constraints import TABLE, Quantities, data_parallel
from rules.launch._reading.configuration import Configuration, Said
from rules.launch._reading.quantities import configurations
from validator.project import Project

_SHOWN = ("world_size", "tp", "ring", "ulysses", "pp", "train_batch_size", "micro_batch_size", "grad_accum")
_TRIVIAL = "positive-"
_VERDICTS = {"holds": "holds", "violated": "does not hold", "unchecked": "cannot be checked"}


def about_line(project: Project, path: str, line: int) -> Iterator[str]:
    """The quantities that a line says, with the constraints that ask for them."""
    for configuration in configurations(project):
        here = {name: said for name, said in configuration.said.items() if _says(said, path, line)}
        quantities = configuration.quantities() if here else Quantities()
        for name, said in here.items():
            value = said.value if said.value is not None else f"not known ({said.why or 'no number'})"
            yield f"  `{said.flag}` is `{name}` of `{configuration.name}`: {value}"
            yield from _constraints(name, configuration, quantities)
        if here:
            yield f"    beside {_others(quantities, set(here))}"


def _says(said: Said, path: str, line: int) -> bool:
    if said.span is not None and said.path == path and said.span[0] <= line <= said.span[2]:
        return True
    return any(each.path == path and each.line == line for each in said.related)


def _constraints(name: str, configuration: Configuration, quantities: Quantities) -> Iterator[str]:
    """What became of each constraint about a quantity; those that do not apply are left out."""
    for constraint in TABLE:
        if name not in (*constraint.needs, *constraint.given) or constraint.id.startswith(_TRIVIAL):
            continue
        kind, missing = constraint.outcome(quantities)
        if kind in _VERDICTS:
            lacks = f": {', '.join(missing)} not known" if kind == "unchecked" else ""
            yield f"    {constraint.id} {_VERDICTS[kind]}{lacks}"


def _others(quantities: Quantities, here: set[str]) -> str:
    rows = [(name, getattr(quantities, name)) for name in _SHOWN if name not in here]
    known = [f"{name} {value}" for name, value in rows if value is not None]
    replicas = data_parallel(quantities)
    known += [f"dp {replicas}"] if replicas is not None else []
    return ", ".join(known) or "nothing else that is known"
