"""One option of a command line, as a call of `add_argument` says it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from validator.facts.model import At, Call
from validator.flow.literals import UNKNOWN, Round, literal, rounds, text
from validator.flow.queries.base import Place

_FLAG_ACTIONS = ("store_true", "store_false", "store_const", "count", "append_const", "help", "version")


class Option(NamedTuple):
    """One option or positional. `flags` is empty for a positional; unknown properties are `UNKNOWN`.

    `type` is the source text (`int`, `str2bool`), `action` the action's name, `nargs` an int, text or None (not known
    where the action is a class, which may say it);
    `help` is the source text of its beginning.
    """

    dest: str
    flags: tuple[str, ...]
    type: str
    action: str
    nargs: Any
    choices: Any
    default: Any
    required: bool
    path: str
    at: At
    help: str = ""

    @property
    def takes_value(self) -> bool:
        return self.action not in _FLAG_ACTIONS and "BooleanOptionalAction" not in self.action


def options_of(place: Place, call: Call, given: Round | None = None) -> list[Option] | None:
    """The options that a call of `add_argument` adds; None where their names are computed. `given`: what the
    parameters hold of the function in which it stands."""
    numbers, names = place.value.args[1:], place.value.data.names
    named = {name: place.value_at(n) for name, n in zip(names, numbers, strict=True) if name is not None}
    flags = [place.value_at(n) for name, n in zip(names, numbers, strict=True) if name is None]
    found: list[Option] = []
    for known in rounds(place, given):
        spelled = [text(flag, known) for flag in flags]
        dest = text(named["dest"], known) if "dest" in named else ""
        if None in spelled or dest is None or not any(spelled):
            return None
        said = {name: literal(each, known) for name, each in named.items() if name not in ("dest", "type", "help")}
        found.append(_option([flag for flag in spelled if flag], dest, said, call, place.unit.path))
    return found


def _option(flags: Sequence[str], dest: str, said: dict[str, Any], call: Call, path: str) -> Option:
    dashed = tuple(flag for flag in flags if flag.startswith("-"))
    if not dest:
        long = next((flag for flag in dashed if flag.startswith("--")), dashed[0] if dashed else flags[0])
        dest = long.lstrip("-").replace("-", "_") if dashed else flags[0]
    source = {argument.keyword: argument.value for argument in call.args}
    action = said.get("action", "store")
    a_class = not isinstance(action, str)
    action = source["action"] if a_class else action
    opposite = ("--no-" + dashed[0].lstrip("-"),) if dashed and "BooleanOptionalAction" in action else ()
    return Option(
        dest=dest,
        flags=dashed + opposite,
        type=source.get("type", ""),
        action=action,
        nargs=said.get("nargs", UNKNOWN if a_class else None),
        choices=said.get("choices"),
        default=said.get("default"),
        required=said.get("required") is True,
        path=path,
        at=call.at,
        help=source.get("help", ""),
    )
