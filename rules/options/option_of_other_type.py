"""An option that is used as a value of another type than the command line gives it.

What it does
    Compares what `add_argument` says of an option (`type`, `nargs`, `action`, the default) with what is done with it:
    an attribute that values of this type lack (`args.sizes.split(",")` of `nargs="+"`), or a text that is ordered by,
    or computed with, numbers (`args.levels > 1` without `type=int`), or divided by a text (`args.folder / "train"`, as
    paths are). A warning where the default has another type that
    is right: then it fails only where the option is given. Also a text as default of an option that takes several
    values (`nargs="*"`) and that the code goes through: it goes through the letters. Likewise of the fields of a class
    that a parser makes options of (`HfArgumentParser(Arguments)`) an attribute that no list has, wherever annotations
    say that its objects come. Silent where the type is a function, where code stores the option anew, and where the
    place asks for the type.

Why is this bad
    AttributeError or TypeError on every rank, often only with the recipe that passes the option.

References
    https://docs.python.org/3/library/argparse.html#type
"""

from __future__ import annotations

from collections.abc import Iterator

from validator.analysis.options.namespaces import Namespaces, Read
from validator.analysis.options.option import Option
from validator.facts.model import At
from validator.finding import Finding, Related
from validator.flow.literals import UNKNOWN
from validator.flow.queries.base import Place
from validator.flow.queries.values.text_origins import text_origins
from validator.project import Project
from validator.rule import Rule
from validator.settings.classes import Schemas

RULE = Rule("MP310", "option-of-other-type", "error", "1.0", tokens=("add_argument", "HfArgumentParser"), solves=True)

_TYPES = {"": str, "str": str, "int": int, "float": float, "bool": bool}
_ACTIONS = {"store_true": bool, "store_false": bool, "count": int, "append": list, "extend": list}
_ORDERING = frozenset({"Lt", "LtE", "Gt", "GtE"})
_COMPUTING = frozenset({"Sub", "Div", "FloorDiv", "Pow"})


def check_project(project: Project) -> Iterator[Finding]:
    namespaces = project.analysis(Namespaces)
    yield from _of_namespaces(namespaces)
    yield from _letter_by_letter(namespaces)
    yield from _of_fields(namespaces)


def _of_namespaces(namespaces: Namespaces) -> Iterator[Finding]:
    for read in namespaces.reads:
        options = [held.parser.option(held.below(read.name)) for held in read.held]
        told = [option for option in options if option is not None]
        anew = namespaces.is_written(read.held, read.name) or any(
            held.parser in namespaces.filled for held in read.held
        )
        if read.how != "attribute" or anew or not told or len(told) < len(options):
            continue
        given = {_given(option) for option in told}
        kind = next(iter(given))
        if kind is None or len(given) > 1:
            continue
        for user in read.place.users:
            how = _misused(read.place, user, kind) if not _asks(user) else ""
            if how:
                sure = all(_fails(user, option) for option in told)
                yield _report(read.place, user, told[0], kind, how, sure)


def _letter_by_letter(namespaces: Namespaces) -> Iterator[Finding]:
    """Options of several values whose default is one text, where the code goes through them."""
    every = (option for parser in namespaces.options.parsers for option in parser.options)
    rows = {(option.path, option.at): option for option in every if _is_one_of_many(option)}
    for unit in namespaces.queries.of_program() if rows else ():
        for place in namespaces.queries.values(unit, "iter"):
            for read in _reads_behind(place, namespaces):
                anew = namespaces.is_written(read.held, read.name) or any(
                    h.parser in namespaces.filled for h in read.held
                )
                options = [held.parser.option(held.below(read.name)) for held in read.held if not anew]
                for option in options:
                    if option is not None and rows.pop((option.path, option.at), None) is not None:
                        yield _of_default(option, place)


def _is_one_of_many(option: Option) -> bool:
    many = option.nargs in ("+", "*") or isinstance(option.nargs, int)
    text = isinstance(option.default, str) and len(option.default) > 1
    return many and text and option.action == "store" and option.type in ("", "str")


def _reads_behind(place: Place, namespaces: Namespaces) -> list[Read]:
    """The reads of options whose value is gone through, where nothing anywhere compares one with a text."""
    origins = text_origins(place.operand(0), lambda each: bool(_reads_at(each, namespaces)), place)
    found = [read for origin in origins for read in _reads_at(origin.place, namespaces)]
    names = {read.name for read in found}
    users = (user for read in namespaces.reads if read.name in names for user in read.place.users)
    return [] if any(user.value.op == "compare" for user in users) else found


def _reads_at(place: Place, namespaces: Namespaces) -> list[Read]:
    if place.value.op != "attr":
        return []
    return [each for each in namespaces.reads if each.place.unit is place.unit and each.place.number == place.number]


def _of_default(option: Option, place: Place) -> Finding:
    name = option.flags[0] if option.flags else option.dest
    return RULE.finding(
        option.path,
        option.at,
        f"the default of `{name}`, which takes several values, is a text: `{place.operand(0).text}`{place.where} is "
        "gone through letter by letter",
        help=f"write it as a list: `default=[{option.default!r}]`",
        related=[Related(place.unit.path, place.at[0], "it is gone through here")],
        context=f"{name}:default",
        severity="warning",
    )


def _of_fields(namespaces: Namespaces) -> Iterator[Finding]:
    """Fields of classes that a parser makes options of, whose objects come there as an annotation says."""
    parsers = [parser for parser in namespaces.options.parsers if parser.from_dataclasses]
    lists = {(each.path, each.at): each for parser in parsers for each in parser.options if _is_list(each.type)}
    for unit in namespaces.queries.of_program() if lists else ():
        for user in namespaces.queries.values(unit, "attr"):
            place = user.operand(0).root
            if place.value.op != "attr" or hasattr(list, str(user.value.data)) or _asks(user):
                continue
            option = _field(place, lists, namespaces)
            if option is not None and not _is_stored(place, namespaces):
                held = place.closed.each
                sure = not any(o[0] == "const" and o[1] == "str" for o in held)
                yield _report(place, user, option, list, _misused(place, user, list), sure)


def _is_list(annotation: str) -> bool:
    return annotation.removeprefix("Optional[").startswith(("List[", "list["))


def _field(place: Place, lists: dict[tuple[str, At], Option], namespaces: Namespaces) -> Option | None:
    """The option of the field that an attribute is, of whichever class its owner may be."""
    schemas = namespaces.project.analysis(Schemas)
    found = set()
    for o in place.operand(0).closed.each:
        if o[0] == "top":
            continue  # besides what the annotation says
        schema = schemas.of(o[1]) if o[0] in ("self", "inst") else None
        field = schema.fields.get(str(place.value.data)) if schema is not None else None
        found.add(lists.get((schema.cls.path, field.at)) if schema is not None and field is not None else None)
    return next(iter(found)) if len(found) == 1 else None


def _is_stored(place: Place, namespaces: Namespaces) -> bool:
    """Whether code gives anything an attribute of that name by itself, or one whose name is computed."""
    refs = (ref for function in namespaces.project.functions() for ref in function.facts.refs)
    stores = {ref.path.rpartition(".")[2] for ref in refs if ref.context == "store" and "." in ref.path}
    return place.value.data in stores or "*" in namespaces.written


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


def _report(value: Place, user: Place, option: Option, kind: type, how: str, sure: bool) -> Finding:
    when = "" if sure else " where it is given"
    return RULE.finding(
        user.unit.path,
        user.at,
        f"`{value.text}`{user.where} is a `{kind.__name__}`{when}: it {how}",
        help="say the type in `add_argument` that the code expects, or use the value as what it is",
        related=[Related(option.path, option.at[0], "the option is defined here")],
        context=f"{user.unit.qualname}:{value.text}:{how}",
        severity="error" if sure else "warning",
    )


INCORRECT = [
    """# file: options.py
import argparse

def read():
    parser = argparse.ArgumentParser()
    parser.add_argument("--freeze", nargs="*", default="visual")  # error: MP310
    parser.add_argument("--no-decay", nargs="*", default=["bias"])
    return parser.parse_args()
# file: train.py
from options import read

def frozen(names, patterns):
    return [name for name in names if any(part in name for part in patterns)]

args = read()
print(frozen(["visual.weight"], args.freeze), frozen(["visual.bias"], args.no_decay))
""",
    """# file: options.py
from dataclasses import dataclass, field
from typing import List, Optional

from transformers import HfArgumentParser

@dataclass
class Arguments:
    targets: List[str] = field(default_factory=lambda: ["q_proj"])
    saved: Optional[str] = "score"

def read():
    return HfArgumentParser(Arguments).parse_args_into_dataclasses()[0]
# file: model.py
from options import Arguments

def adapted(args: Arguments):
    return args.targets.split(","), args.saved.split(",")  # error: MP310
""",
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

parser = argparse.ArgumentParser()
parser.add_argument("--parts", nargs="+", default="all")
parser.add_argument("--names", nargs="+", default="a b")
args = parser.parse_args()
parts = ["a", "b"] if args.parts == "all" else args.parts
names = args.names.split() if isinstance(args.names, str) else args.names
for part in parts + [name for name in names]:
    print(part)
""",
    """
from dataclasses import dataclass
from typing import List

from transformers import HfArgumentParser

@dataclass
class Arguments:
    targets: List[str]
    sizes: List[str]

def adapted(args: Arguments):
    args.sizes = ",".join(args.sizes)
    if isinstance(args.targets, str):
        return args.targets.split(",")
    return args.targets.copy(), args.sizes.split(",")

adapted(HfArgumentParser(Arguments).parse_args_into_dataclasses()[0])
""",
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
