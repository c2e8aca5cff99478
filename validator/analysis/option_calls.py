"""What one call of `add_argument` says: its options, once for each pass of the literal loops around it."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable
from functools import lru_cache
from typing import Any, NamedTuple

from validator.facts.model import Argument, Assign, At, Call
from validator.project import Method

UNKNOWN = object()  # a value that the source does not tell

_LOOP = re.compile(r"^(.+?) in (.+)$")
_HOLE = re.compile(r"\{(\w+)(?:![rsa])?\}")
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


def option_of(flags: list[str], dest: str, known: dict[str, Argument], path: str, at: At) -> Option:
    dashed = tuple(f for f in flags if f.startswith("-"))
    if not dest:
        long = next((f for f in dashed if f.startswith("--")), dashed[0] if dashed else flags[0])
        dest = long.lstrip("-").replace("-", "_") if dashed else flags[0]
    action = value_of(known.get("action"), "store")
    if not isinstance(action, str):
        action = known["action"].value
    opposite = ("--no-" + dashed[0].lstrip("-"),) if dashed and "BooleanOptionalAction" in action else ()
    return Option(
        dest=dest,
        flags=dashed + opposite,
        type=known["type"].value if "type" in known else "",
        action=action,
        nargs=value_of(known.get("nargs"), UNKNOWN if value_of(known.get("action"), "") is UNKNOWN else None),
        choices=value_of(known.get("choices"), None),
        default=value_of(known.get("default"), None),
        required=value_of(known.get("required"), False) is True,
        path=path,
        at=at,
        help=known["help"].value if "help" in known else "",
    )


def value_of(argument: Argument | None, otherwise: Any) -> Any:
    """The literal value of an argument; `UNKNOWN` where it is computed."""
    if argument is None:
        return otherwise
    try:
        return _literal(argument.value)
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        return UNKNOWN


@lru_cache(maxsize=4096)  # parsers of one project say the same again and again
def _literal(text: str) -> Any:
    return ast.literal_eval(text)


def text_of(argument: Argument, values: dict[str, str]) -> str | None:
    """The text of a literal or of an f-string whose holes are known; None where it is computed."""
    text = argument.value
    if argument.kind == "path" and text in values:
        return values[text]
    found = value_of(argument, "")
    if isinstance(found, str):
        return found
    match = re.fullmatch(r"[fF]([\"'])(.*)\1", text)
    if match is None:
        return _sum(text, values)
    holes = _HOLE.findall(match[2])
    if any(hole not in values for hole in holes) or "{" in _HOLE.sub("", match[2]):
        return None
    return _HOLE.sub(lambda m: values[m[1]], match[2])


def _sum(text: str, values: dict[str, str]) -> str | None:
    """`"--" + prefix + ".lr"`."""
    parts = [part.strip() for part in text.split("+")]
    if len(parts) < 2:
        return None
    found = []
    for part in parts:
        if part in values:
            found.append(values[part])
        elif re.fullmatch(r"\"[^\"]*\"|'[^']*'", part):
            found.append(part[1:-1])
        else:
            return None
    return "".join(found)


def loop_passes(call: Call, function: Method) -> Iterable[dict[str, str]]:
    """The values of the loop variables around a call, once for each pass over literal values."""
    rows: list[dict[str, str]] = [{}]
    for guard in call.guards:
        if guard.kind != "loop" or (match := _LOOP.match(guard.text)) is None:
            continue
        names = [name.strip() for name in match[1].strip("() ").split(",")]
        items = _items(match[2], function)
        if items is None:
            continue
        passes = []
        for item in items:
            parts = list(item) if isinstance(item, tuple | list) and len(names) > 1 else [item]
            if len(parts) == len(names):
                passes.append({n: str(v) for n, v in zip(names, parts, strict=True)})
        rows = [{**outer, **inner} for outer in rows for inner in passes]
    return rows


def _items(text: str, function: Method) -> list[Any] | None:
    """The values a loop runs over: a literal, or a name bound to one."""
    scope: Method | None = function
    for _ in range(3):
        try:
            found = ast.literal_eval(text)
        except (ValueError, SyntaxError):
            rows: list[Assign] = []
            while scope is not None and not rows:
                rows = [
                    r for r in scope.facts.assigns if r.target == text and r.kind in ("tuple", "const", "path", "other")
                ]
                scope = scope.enclosing or (scope.module.top if scope is not scope.module.top else None)
            if len(rows) != 1:
                return None
            text = rows[0].value
            continue
        return list(found) if isinstance(found, tuple | list | set | dict | frozenset) else None
    return None
