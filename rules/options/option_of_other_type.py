"""An option that is used as a value of another type than the command line gives it.

What it does
    Compares what `add_argument` says of an option (`type`, `nargs`, `action`, the default) with what is done with it:
    an attribute that values of this type lack (`args.sizes.split(",")` of `nargs="+"`), or a text that is ordered by,
    or computed with, numbers (`args.levels > 1` without `type=int`), or divided by a text (`args.folder / "train"`, as
    paths are). A warning where the default has another type that
    is right: then it fails only where the option is given. Silent where the type is a function, where code stores the
    option anew, and where the place asks for the type.

Why is this bad
    AttributeError or TypeError on every rank, often only with the recipe that passes the option.

References
    https://docs.python.org/3/library/argparse.html#type
"""

from __future__ import annotations

from collections.abc import Iterator

from validator.analysis.options.namespaces import Namespaces, Read
from validator.analysis.options.option import Option
from validator.finding import Finding, Related
from validator.flow.literals import UNKNOWN
from validator.flow.queries.base import Place
from validator.project import Project
from validator.rule import Rule

RULE = Rule("MP310", "option-of-other-type", "error", "1.0", tokens=("add_argument",), solves=True)

_TYPES = {"": str, "str": str, "int": int, "float": float, "bool": bool}
_ACTIONS = {"store_true": bool, "store_false": bool, "count": int, "append": list, "extend": list}
_ORDERING = frozenset({"Lt", "LtE", "Gt", "GtE"})
_COMPUTING = frozenset({"Sub", "Div", "FloorDiv", "Pow"})


def check_project(project: Project) -> Iterator[Finding]:
    namespaces = project.analysis(Namespaces)
    for read in namespaces.reads:
        options = [held.parser.option(held.below(read.name)) for held in read.held]
        told = [option for option in options if option is not None]
        anew = {read.name, "*"} & namespaces.written or any(held.parser in namespaces.filled for held in read.held)
        if read.how != "attribute" or anew or not told or len(told) < len(options):
            continue
        given = {_given(option) for option in told}
        kind = next(iter(given))
        if kind is None or len(given) > 1:
            continue
        for user in read.place.users:
            how = _misused(read.place, user, kind) if not _asks(user) else ""
            if how:
                yield _report(read, user, told[0], kind, how, all(_fails(user, option) for option in told))


def _given(option: Option) -> type | None:
    """The type that an option has when it is given on the command line; None where that is not known."""
    if option.action in _ACTIONS or "BooleanOptionalAction" in option.action:
        return _ACTIONS.get(option.action, bool)
    if option.action != "store" or option.nargs is UNKNOWN:
        return None
    return list if option.nargs in ("+", "*") or isinstance(option.nargs, int) else _TYPES.get(option.type)


def _misused(value: Place, user: Place, kind: type) -> str:
    """What is done with a value that no value of a type bears; empty where nothing is."""
    data = user.value.data
    if user.value.op == "attr":
        return f"has no attribute `{data}`" if not hasattr(kind, str(data)) else ""
    compares = user.value.op == "compare" and data in _ORDERING
    if kind is str and (compares or user.value.op == "binary" and data in _COMPUTING):
        others = [user.operand(i) for i in (0, 1) if user.operand(i).number != value.number]
        numbers = [other.val.constant() for other in others]
        if any(isinstance(number, int | float) and not isinstance(number, bool) for number in numbers):
            return f"cannot be {'compared' if compares else 'computed'} with a number"
        if not compares and any(isinstance(other, str) for other in numbers):
            return "cannot be computed with another text"
    return ""


def _fails(user: Place, option: Option) -> bool:
    """Whether a use fails with the default as well, or there is none."""
    default = option.default
    if option.required or default is None or default is UNKNOWN:
        return default is not UNKNOWN and (option.required or user.value.op != "attr")
    return isinstance(default, str) if user.value.op != "attr" else not hasattr(default, str(user.value.data))


def _asks(user: Place) -> bool:
    """Whether the place asks for a type, or takes the error."""
    if user.catches("AttributeError", "TypeError", "Exception"):
        return True
    return any(
        part.value.op == "call" and part.method == "isinstance" for test in user.tests_inside for part in test.parts
    )


def _report(read: Read, user: Place, option: Option, kind: type, how: str, sure: bool) -> Finding:
    when = "" if sure else " where it is given"
    return RULE.finding(
        user.unit.path,
        user.at,
        f"`{read.receiver}.{read.name}`{user.where} is a `{kind.__name__}`{when}: it {how}",
        help="say the type in `add_argument` that the code expects, or use the value as what it is",
        related=[Related(option.path, option.at[0], "the option is defined here")],
        context=f"{user.unit.qualname}:{read.receiver}.{read.name}:{how}",
        severity="error" if sure else "warning",
    )


INCORRECT = [
    """
import argparse

def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--dims", type=int, nargs="+", default=[768])
    parser.add_argument("--levels", default=4)
    parser.add_argument("--workers")
    parser.add_argument("--folder", required=True)
    args = parser.parse_args()
    dims = args.dims.split(",")  # error: MP310
    if args.levels > 1:  # error: MP310
        print(dims)
    print(args.folder / "train")  # error: MP310
    return args.workers - 1  # error: MP310

main()
""",
]

CORRECT = [
    """
import argparse
import pathlib

def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--dims", type=str, default="768")
    parser.add_argument("--levels", type=int, default=4)
    parser.add_argument("--sizes", type=lambda text: text.split(","))
    parser.add_argument("--folder", type=pathlib.Path)
    args = parser.parse_args()
    dims = args.dims.split(",")
    if args.levels > 1:
        print(dims, args.sizes.count("a"), args.sizes.copy(), args.folder / "train")

main()
""",
    """
import argparse

def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--dims", nargs="+")
    parser.add_argument("--levels", default=4)
    args = parser.parse_args()
    args.levels = int(args.levels)
    if isinstance(args.dims, str):
        print(args.dims.split(","))
    return args.levels - 1

main()
""",
]
