"""Calls between a project and libraries, held against the releases of the library that the project admits."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from validator.analysis.interfaces.binding import Misfit
from validator.analysis.requirements import Range, Requirements
from validator.errors import nearest
from validator.facts.model import Call
from validator.finding import Severity
from validator.models.signatures import Library, Signature, Version
from validator.project import Method, Module, Project

_ASKED = ("signature", "version", "fields", "torch_")


class Refused(NamedTuple):
    """A call that the newest admitted release refuses: why, in which releases, and how sure that is."""

    newest: Version
    misfit: Misfit
    releases: str
    severity: Severity


def refused(
    project: Project,
    module: Module,
    library: Library,
    releases: Sequence[Version],
    refuses: Callable[[Version], Misfit | None],
) -> Refused | None:
    """What becomes of a call in the releases that a file's project admits.

    An error where every one that is admitted refuses; a warning where the newest one does, which an installation
    takes, or where older ones than the table knows are admitted; a note where nothing says which are.
    """
    declared = project.analysis(Requirements).admitted(library.distribution, module.source.absolute)
    known = [each for each in releases if not declared or any(row.has_release(each) for row in declared)]
    misfit = refuses(known[-1]) if known else None
    if misfit is None:
        return None
    first = next(at for at in range(len(known)) if all(refuses(each) is not None for each in known[at:]))
    spelled = f"{_spelled(known[first])} to {_spelled(known[-1])}" if first < len(known) - 1 else _spelled(known[first])
    if known[-1] == library.releases[-1] and first < len(known) - 1:
        spelled = f"{_spelled(known[first])} and later"
    return Refused(known[-1], misfit, spelled, _severity(declared, library, first > 0))


def advice(taken: Signature, found: Refused, dashes: str = "") -> str:
    """What to do about a keyword that is not taken; `dashes` where it is an option of a command line."""
    name, library = found.misfit.name, taken.library
    newest = [param.name for param in taken.parameters(taken.releases[-1]) if param.kind in ("any", "kw")]
    instead = library.instead.get(f"{taken.name}.{name}")
    close = nearest(dashes + name, [dashes + each for each in newest])
    hint = f" (write {dashes + instead!r})" if instead in newest else close
    last = max((r for r in taken.releases if name in {p.name for p in taken.parameters(r)}), default=None)
    if last is None:
        return f"no release from {_spelled(taken.releases[0])} on has it{hint}"
    return f"{_spelled(last)} was the last release that took it{hint}; or require that one"


def _severity(declared: tuple[Range, ...], library: Library, some_take_it: bool) -> Severity:
    if not declared:
        return "note" if some_take_it else "warning"
    older = any(row.low is None or row.low < library.releases[0] for row in declared)
    return "warning" if some_take_it or older else "error"


def _spelled(release: Version) -> str:
    return ".".join(map(str, release))


def is_asked_for(call: Call) -> bool:
    """Whether a call stands where its failure is expected, or after a question for a version or a signature."""
    for guard in call.guards:
        if guard.kind == "try" and ("TypeError" in guard.text or guard.text == "*"):
            return True
        if guard.kind == "if" and any(word in guard.text.lower() for word in _ASKED):
            return True
        if guard.kind == "with" and "raises" in guard.text.lower():
            return True
    return False


def is_replaced(function: Method, name: str) -> bool:
    """Whether the module also binds a name to something else (None stands for "not installed")."""
    facts = function.module.facts
    if len({(row.module, row.name) for row in facts.imports if row.bound_as == name}) > 1:
        return True
    if any(f.qualname == name for f in facts.functions) or any(c.qualname == name for c in facts.classes):
        return True
    return any(row.target == name and row.value != "None" for row in function.module.top.facts.assigns)
