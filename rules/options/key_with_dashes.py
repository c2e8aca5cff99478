"""A key of a file with the dashes of a flag, where options are set by their names.

What it does
    Where code lays a section of a configuration file over the options of a command line, key by key
    (`parser.set_defaults(**config)`, `setattr(args, key, value)`, `vars(args).update(config)`), reports the keys that
    no option has as its name, but with underscores for the dashes. Where no text, option or script names the file, most
    of its keys must be options. Silent where code looks such a key up by a text, and where it gives
    the options, or what it read, other names than the file has.

Why is this bad
    argparse calls the option `--weight-decay` `weight_decay`. A key with dashes makes an attribute that nobody can
    read: the option keeps its default, without a word.

References
    https://docs.python.org/3/library/argparse.html#dest
    https://docs.python.org/3/library/argparse.html#argparse.ArgumentParser.set_defaults
"""

from __future__ import annotations

from collections.abc import Iterator

from validator.analysis.options.parsers import Parser
from validator.analysis.options.set_anew import SetAnew
from validator.analysis.recipes.composed import Compositions, Node
from validator.analysis.recipes.laid_over import LaidOver, laid_over
from validator.analysis.recipes.sections import Sections
from validator.finding import Finding, Related
from validator.flow.queries.outside_program import is_test
from validator.flow.values import Obj
from validator.project import Project
from validator.rule import Rule

RULE = Rule(
    "MP324", "key-with-dashes", "warning", "1.0",
    tokens=("set_defaults", "setattr", "update"), languages=("python", "yaml", "json", "toml"), solves=True,
)  # fmt: skip


def check_project(project: Project) -> Iterator[Finding]:
    if not project.analysis(Compositions).files:
        return
    seen: set[tuple[str, tuple[int, ...]]] = set()
    for laid in laid_over(project):
        if any(anew.renames for anew in project.analysis(SetAnew).of_options(laid.parsers)):
            continue
        for o in laid.section.closed.of("section"):
            renamed = any(anew.renames for anew in project.analysis(SetAnew).of_section(o))
            for node, known in _nodes(project, o, laid.parsers) if not renamed else ():
                for key, child in node.children.items():
                    if _is_lost(project, key, laid.parsers) and (child.path, child.at) not in seen:
                        seen.add((child.path, child.at))
                        yield _report(laid, key, child, known)


def _nodes(project: Project, o: Obj, parsers: tuple[Parser, ...]) -> Iterator[tuple[Node, bool]]:
    """What a section holds, and whether it is known that the program is given this file."""
    sections, links = project.analysis(Sections), o[2].split(".") if o[2] else []
    roots = sections.roots(o[1])
    if roots:
        found = (root.node.find(links) for root in roots)
        yield from ((node, True) for node in found if node is not None)
        return
    compositions = project.analysis(Compositions)
    dests = {option.dest for parser in parsers for option in parser.options}
    for path, (source, _) in compositions.files.items():
        node = compositions.tree(path).find(links) if not is_test(source.path) else None
        keys = [key.replace("-", "_") in dests for key in node.children] if node is not None else []
        if node is not None and 2 * sum(keys) > len(keys):
            yield node, False


def _is_lost(project: Project, key: str, parsers: tuple[Parser, ...]) -> bool:
    """Whether a key is the name of no option, as which all parsers know it with underscores."""
    if "-" not in key or any(parser.option(key) is not None for parser in parsers):
        return False
    known = all(parser.option(key.replace("-", "_")) is not None for parser in parsers)
    return known and not project.analysis(Sections).is_put_by_code(key) and not _is_spelled(project, key)


def _is_spelled(project: Project, key: str) -> bool:
    """Whether a file of the code has a key as a text."""
    spelled = (f'"{key}"', f"'{key}'")
    return any(each in module.source.text for module in project.modules.values() for each in spelled)


def _report(laid: LaidOver, key: str, child: Node, known: bool) -> Finding:
    name, call = key.replace("-", "_"), laid.call
    option = laid.parsers[0].option(name)
    basis = "" if known else "; nothing names the file: that it is read there rests on its keys"
    related = [Related(call.unit.path, call.at[0], "the options are set here")]
    if option is not None:
        related.append(Related(option.path, option.at[0], "the option"))
    return RULE.finding(
        child.path,
        child.at,
        f"no option is named `{key}`, but `{name}`: `{call.text}`{call.where} leaves it as it is{basis}",
        help=f"write `{name}`",
        related=related,
        context=key,
    )


_PROGRAM = """# file: train.py
import argparse

import yaml

parser = argparse.ArgumentParser()
parser.add_argument("--config")
parser.add_argument("--lr", type=float, default=0.1)
parser.add_argument("--weight-decay", type=float, default=0.0)
parser.add_argument("--run-name", default="")
known, rest = parser.parse_known_args()
with open(known.config) as file:
    config = yaml.safe_load(file)
{laid}
print(args.lr, args.weight_decay, args.run_name)
# file: large.yaml
lr: 0.01
{decay}: 0.05{mark}
run_name: large
# file: server.yaml
host: here
weight-decay: 3
port: 80
"""
_DEFAULTS = "parser.set_defaults(**config)\nargs = parser.parse_args(rest)"
_EACH = "args = known\nfor key, value in config.items():\n    setattr(args, {key}, value)"
_LATER = "\nfor key, value in list(vars(args).items()):\n    setattr(args, key.replace('-', '_'), value)"
_REBUILT = '\nargs = argparse.Namespace(**{key.replace("-", "_"): value for key, value in vars(args).items()})'
_BEFORE = "for key in list(config):\n    config[key.replace('-', '_')] = config.pop(key)\n"
_MARK = "  # error: MP324"

INCORRECT = (
    _PROGRAM.format(laid=_DEFAULTS, decay="weight-decay", mark=_MARK),
    _PROGRAM.format(laid=_EACH.format(key="key"), decay="weight-decay", mark=_MARK),
)

CORRECT = (
    _PROGRAM.format(laid=_DEFAULTS, decay="weight_decay", mark=""),
    _PROGRAM.format(laid=_EACH.format(key='key.replace("-", "_")'), decay="weight-decay", mark=""),
    _PROGRAM.format(laid=_DEFAULTS + '\nprint(getattr(args, "weight-decay"))', decay="weight-decay", mark=""),
    # the names are mended once all is laid, or before
    _PROGRAM.format(laid=_EACH.format(key="key") + _LATER, decay="weight-decay", mark=""),
    _PROGRAM.format(laid=_EACH.format(key="key") + _REBUILT, decay="weight-decay", mark=""),
    _PROGRAM.format(laid=_BEFORE + _EACH.format(key="key"), decay="weight-decay", mark=""),
)
