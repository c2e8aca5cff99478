"""An option that is compared with a text which is none of its choices, while a choice is compared nowhere.

What it does
    Reports `args.estimator == "grpo"` where `add_argument` says `choices=("gae", "rloo", "group_norm")`: the test never
    holds, and `group_norm`, which no code compares with anything, takes the way of all others. The option is known by
    what the parser gives; where that cannot be followed, by the name, which one option of the project has and no field
    of a class. Silent where code stores the option, where it may come from elsewhere too, and where each choice but the
    default is named in a comparison or as a key: then the test is only left over.

Why is this bad
    A choice that the help offers silently trains with what stands behind the last `else`.

References
    https://docs.python.org/3/library/argparse.html#choices
"""

from __future__ import annotations

from collections.abc import Iterator

from validator.analysis.options.namespaces import Namespaces
from validator.analysis.options.option import Option
from validator.errors import nearest
from validator.finding import Finding, Related
from validator.flow.queries.base import Place, Queries
from validator.flow.queries.outside_program import is_test
from validator.flow.queries.values.text_origins import text_origins
from validator.models.members import of_libraries
from validator.project import Project
from validator.rule import Rule
from validator.settings.classes import Schemas

RULE = Rule("MP316", "compared-with-no-choice", "warning", "1.1", tokens=("choices",), solves=True)

_EQUAL = frozenset({"Eq", "NotEq"})


def check_project(project: Project) -> Iterator[Finding]:
    namespaces = project.analysis(Namespaces)
    options = _with_choices(namespaces)
    tests: dict[str, list[tuple[Place, str]]] = {}
    for unit in namespaces.queries.of_program() if options else ():
        for place in namespaces.queries.values(unit, "compare") if not is_test(unit.path) else ():
            for name, text in _compared(place, options, namespaces) if place.value.data in _EQUAL else ():
                tests.setdefault(name, []).append((place, text))
    for name, rows in tests.items():
        option, named = options[name], {text for _, text in rows}
        left = [each for each in option.choices if each not in named and each != option.default]
        left = [each for each in left if not _is_asked_for(each, namespaces.queries)]
        strange = [(place, text) for place, text in rows if text not in option.choices and text != option.default]
        if left and len(named) > len({text for _, text in strange}):
            for place, text in strange:
                yield _report(place, text, option, left)


def _with_choices(namespaces: Namespaces) -> dict[str, Option]:
    """By destination the options whose choices are texts, where one place of the project defines the name."""
    by_name: dict[str, dict[object, Option]] = {}
    for parser in namespaces.options.made.values():
        for option in parser.options:
            by_name.setdefault(option.dest, {})[option.path, option.at] = option
    for _, option in namespaces.options.strays:
        by_name.setdefault(option.dest, {})[option.path, option.at] = option
    fields = namespaces.project.analysis(Schemas).by_field
    anew = namespaces.written | fields.keys()
    alone = {name: next(iter(rows.values())) for name, rows in by_name.items() if len(rows) == 1 and name not in anew}
    return {name: option for name, option in alone.items() if _takes_texts(option) and "*" not in anew}


def _takes_texts(option: Option) -> bool:
    texts = isinstance(option.choices, list | tuple | set) and all(isinstance(each, str) for each in option.choices)
    return texts and option.nargs is None and option.type in ("", "str") and option.action == "store"


def _compared(place: Place, options: dict[str, Option], namespaces: Namespaces) -> Iterator[tuple[str, str]]:
    """The option and the text that a comparison is about."""
    sides = [place.operand(0), place.operand(1)]
    texts = [side.closed.constant() for side in sides]
    for side, text in zip(sides, reversed(texts), strict=True):
        if isinstance(text, str) and side.root.value.op != "const":
            origins = list(text_origins(side, lambda each: _option(each, options, namespaces) != ""))
            names = {_option(each.place, options, namespaces) for each in origins}
            if len(names) == 1 and "" not in names and not any(each.folded for each in origins):
                yield names.pop(), text


def _option(place: Place, options: dict[str, Option], namespaces: Namespaces) -> str:
    """The option that an attribute is; empty where it is none, or one of something else that has the name: of what is
    not known, where libraries have it, too (`device.type`)."""
    name = str(place.value.data) if place.value.op == "attr" else ""
    if name not in options:
        return ""
    held = namespaces.held(place.operand(0))
    unknown = all(o[0] == "top" for o in place.operand(0).closed.each) and name not in of_libraries()
    return name if any(each.below(name) == name for each in held) or unknown else ""


def _is_asked_for(text: str, queries: Queries) -> bool:
    """Whether code spells a text besides where the choices are: as a key, in a list that is asked, as a name."""
    units = queries.flow.mentions.units(text)
    places = (place for unit in units for place in queries.values(unit, "const") if place.value.data == text)
    return len({(place.unit.path, place.at) for place in places if not is_test(place.unit.path)}) > 1


def _report(place: Place, text: str, option: Option, left: list[str]) -> Finding:
    flag = option.flags[0] if option.flags else option.dest
    others = ", ".join(repr(each) for each in left)
    return RULE.finding(
        place.unit.path,
        place.at,
        f"`{flag}` is never {text!r}: that is none of its choices, and no code asks for {others}",
        help=f"compare it with a choice that it has, or add this one{nearest(text, left)}",
        related=[Related(option.path, option.at[0], "the choices are given here")],
        context=f"{place.unit.qualname}:{flag}:{text}",
    )


_PROGRAM = """# file: options.py
import argparse

FREE = ("rloo", "{choice}")


def parser():
    made = argparse.ArgumentParser()
    made.add_argument("--estimator", choices=("gae",) + FREE, default="gae")
    return made
# file: train.py
from options import parser


def advantages(args, scores):
    kind = args.estimator
    if kind == "rloo":
        return scores
    elif kind == "grpo":{mark}
        return [each - 1 for each in scores]
    return []


advantages(parser().parse_args(), [1.0])
"""

INCORRECT = [_PROGRAM.format(choice="group_norm", mark="  # error: MP316")]

CORRECT = [
    _PROGRAM.format(choice="grpo", mark=""),
    # what is not known has an attribute of that name, as devices have
    """
import argparse

parser = argparse.ArgumentParser()
parser.add_argument("--type", choices=("instance", "semantic", "panoptic"), default="instance")
args = parser.parse_args()

def use(tensor):
    return tensor.device.type == "cuda" or args.type == "instance"
""",
    # the test is left over: each choice has its way
    """
import argparse

parser = argparse.ArgumentParser()
parser.add_argument("--loss", choices=["sft", "dpo", "kto"], default="sft")
args = parser.parse_args()
LOSSES = {"kto": max}
if args.loss == "dpo":
    print(1)
elif args.loss == "ipo":
    print(2)
else:
    print(LOSSES.get(args.loss, min))
""",
    # code gives the option another value
    """
import argparse

parser = argparse.ArgumentParser()
parser.add_argument("--loss", choices=["sft", "dpo", "kto"], default="sft")
args = parser.parse_args()
if args.loss == "kto":
    args.loss = "ipo"
if args.loss == "ipo":
    print(2)
""",
]
