"""Losses that callers hand to a strategy: where they come from, and what siblings do with them."""

from __future__ import annotations

from collections.abc import Iterator

from validator.analysis.interfaces.binding import bind
from validator.analysis.places import call_bound, text_of
from validator.facts.model import Call
from validator.flow.objects import Objects
from validator.flow.queries.outside_program import is_aside
from validator.project import ClassDef, Method, Project


def given_losses(project: Project, function: Method, name: str) -> Iterator[tuple[Method, str]]:
    """The functions that call a method, each with the name of the loss that it gives."""
    objects = project.analysis(Objects)
    for caller, call in project.calls(function.name):
        if function in objects.targets(caller, call) and not is_aside(caller.path):
            argument = bind(function, call).get(name)
            if argument is not None and argument.kind == "path":
                yield caller, argument.value


def makers(project: Project, caller: Method, name: str) -> Iterator[str]:
    """The lines of a caller that make its loss, and the source of the functions that it calls for it."""
    for row in caller.facts.assigns:
        if row.target == name:
            yield "\n".join(caller.module.source_text.lines[row.at[0] - 1 : row.at[2]])
            call = call_bound(caller, row)
            targets = project.analysis(Objects).targets(caller, call) if call is not None else ()
            yield from (text_of(target) for target in targets)


def engine_of_sibling(project: Project, function: Method, loss: str) -> ClassDef | None:
    """The sibling whose method of this name gives the loss, as it is, to a DeepSpeed engine that accumulates."""
    family = project.families.of(function.cls) if function.cls is not None else None
    if any(row.target == loss for row in function.facts.assigns):
        return None
    for cls in family.members if family is not None else ():
        other = cls.find(function.name)
        if other is None or other.cls is function.cls or b"gradient_accumulation_steps" not in cls.module.source.data:
            continue
        engine = "deepspeed" in cls.name.lower() or b"deepspeed.initialize" in cls.module.source.data
        if engine and any(c.method == "backward" and _gives_whole(other, c) for c in other.facts.calls):
            return cls
    return None


def _gives_whole(method: Method, call: Call) -> bool:
    """Whether a call gets one of the parameters, as callers passed it."""
    names = {p.name for p in method.facts.params} - {row.target for row in method.facts.assigns}
    return bool(call.receiver) and bool(call.positional) and call.positional[0].value in names
