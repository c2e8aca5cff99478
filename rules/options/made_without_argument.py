"""A section that Hydra makes something of, without an argument that this needs.

What it does
    Follows `hydra.utils.instantiate(cfg.optimizer)` to the sections that it may be given, and holds the keys of each,
    and of those in it that name what they make, with the arguments of the call against what is named: a class or
    function of the project, or of torch and other libraries with a table of what they take. Reports a section that
    lacks what has no default, and does not say `_partial_: true`.
    Silent where the section may have more keys than are known, where code puts something under such a key, where the
    call unpacks something, where an override sets `_partial_`, and where the signature is not plain to see.

Why is this bad
    Hydra calls what is named at once: TypeError (missing 1 required positional argument). Optimizers and schedulers
    need what exists only later; `_partial_: true` makes a function of them.

References
    https://hydra.cc/docs/advanced/instantiate_objects/overview/#partial-instantiation
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from validator.analysis.commands.launch import Launches
from validator.analysis.interfaces.binding import keeps_signature, parameters
from validator.analysis.named import Named, is_path
from validator.analysis.recipes.composed import Compositions, Node
from validator.analysis.recipes.sections import Sections
from validator.definitions import ClassDef, Method
from validator.facts.model import Param
from validator.finding import Finding, Related
from validator.flow.constructors import Constructors
from validator.flow.queries.base import Place, Queries
from validator.flow.queries.outside_program import is_test
from validator.models.signatures import signature
from validator.models.signatures.torch_tables import torch_signature
from validator.project import Project
from validator.rule import Rule

RULE = Rule(
    "MP322", "made-without-argument", "error", "1.0",
    tokens=("instantiate",), languages=("python", "yaml"), solves=True,
)  # fmt: skip

_MAKES = ("hydra.utils.instantiate", "hydra.utils.call")
_TARGET, _PARTIAL, _RECURSIVE, _ARGUMENTS = "_target_", "_partial_", "_recursive_", "_args_"
_OWN = frozenset({_TARGET, _PARTIAL, _RECURSIVE, _ARGUMENTS, "_convert_"})


class _Made(NamedTuple):
    """A section that names what it makes, by its keys, and what the call gives it beside them."""

    node: Node
    keys: str
    positional: int
    named: frozenset[str]


def check_project(project: Project) -> Iterator[Finding]:
    if not project.analysis(Compositions).files:
        return
    sections, seen = project.analysis(Sections), set()
    for call in project.analysis(Queries).calls_anywhere(*_MAKES):
        if is_test(call.unit.path) or not _is_plain(call):
            continue
        for part in sections.of(call.operand(1).closed):
            for made in _made(call, part.node, part.keys) if part.given and not part.open else ():
                lacking = _lacking(project, made)
                place = (made.node.path, made.node.at)
                put = place in seen or any(map(sections.is_put_by_code, lacking))
                if lacking and not put and not _is_overridden(project, made.keys, lacking):
                    seen.add(place)
                    yield _report(call, made, lacking)


def _is_plain(call: Place) -> bool:
    """Whether all that a call passes is known by name."""
    names = call.value.data.names
    return len(names) > 0 and names[0] is None and not {"*", "**", _PARTIAL, _RECURSIVE} & {*names}


def _made(call: Place, node: Node, keys: str) -> Iterator[_Made]:
    """The section that a call makes something of, and those in it."""
    names = call.value.data.names[1:]
    named = frozenset(name for name in names if name is not None)
    if _TARGET in node.children:
        yield _Made(node, keys, sum(name is None for name in names), named)
    if node.get(_RECURSIVE) is not False:
        for name, child in node.children.items():
            if name not in named:
                yield from _inside(child, f"{keys}.{name}" if keys else name)


def _inside(node: Node, keys: str) -> Iterator[_Made]:
    if _TARGET in node.children:
        yield _Made(node, keys, 0, frozenset())
    if node.get(_RECURSIVE) is not False and not node.open:
        for name, child in node.children.items():
            yield from _inside(child, f"{keys}.{name}")


def _lacking(project: Project, made: _Made) -> list[str]:
    """The parameters without a default that get nothing."""
    node, target = made.node, made.node.get(_TARGET)
    if node.open or not is_path(target) or node.children.get(_PARTIAL) is not None or _ARGUMENTS in node.children:
        return []
    params = _parameters(project, str(target))
    given = {*(name for name in node.children if name not in _OWN), *made.named}
    places = [param for param in params if param.kind in ("any", "pos")][made.positional :]
    needed = [*places, *(param for param in params if param.kind == "kw")]
    return [param.name for param in needed if param.default is None and param.name not in given]


def _parameters(project: Project, target: str) -> tuple[Param, ...]:
    """What is named takes, in the newest release that is known; nothing where that is not plain to see."""
    symbol = project.analysis(Named).of(target)
    if isinstance(symbol, ClassDef):
        return project.analysis(Constructors).of(symbol) or ()
    if isinstance(symbol, Method):
        plain = keeps_signature(symbol) and (not symbol.is_method or symbol.facts.is_classmethod)
        return parameters(symbol, bound=symbol.is_method) if plain else ()
    taken = torch_signature(target) or signature(target) if symbol is None else None
    return taken.parameters(taken.releases[-1]) if taken is not None else ()


def _is_overridden(project: Project, keys: str, lacking: list[str]) -> bool:
    """Whether a command line gives what a section lacks, or says that what it makes is only made ready."""
    compositions = project.analysis(Compositions)
    found = (compositions.of(launch) for launch in project.analysis(Launches).all)
    return any(
        each is not None and each.overridden(f"{keys}.{name}") is not None
        for each in found
        for name in (_PARTIAL, *lacking)
    )


def _report(call: Place, made: _Made, lacking: list[str]) -> Finding:
    target = made.node.children[_TARGET]
    names = ", ".join(f"`{name}`" for name in lacking)
    return RULE.finding(
        target.path,
        target.at,
        f"`{target.value}`, of which this section is made, needs {names}, which neither the section nor"
        f" `{call.text}`{call.where} gives: TypeError",
        help=f"add `{_PARTIAL}: true` and call what is made with it, or pass it",
        related=[Related(call.unit.path, call.at[0], "it is made here")],
        context=f"{made.keys}:{lacking[0]}",
    )


_MAIN = """# file: train.py
import hydra

from net import Net


@hydra.main(version_base=None, config_path=".", config_name="config")
def main(cfg):
    model = hydra.utils.instantiate(cfg.model)
    optimizer = {make}
    print(model, optimizer)


if __name__ == "__main__":
    main()
# file: net.py
class Net:
    def __init__(self, width, depth=2, head=None):
        self.width, self.depth, self.head = width, depth, head


class Head:
    def __init__(self, classes):
        self.classes = classes
# file: config.yaml
model:
  _target_: net.Net
  {width}
  head:
    _target_: net.Head{head}
    {classes}
optimizer:
  _target_: torch.optim.AdamW{mark}
  {partial}
  lr: 0.1
"""


def _filled(**parts: str) -> str:
    text = _MAIN
    given = {"make": "hydra.utils.instantiate(cfg.optimizer)", "width": "width: 3", "classes": "classes: 2", **parts}
    for name, part in given.items():
        text = text.replace(f"{{{name}}}", part)
    return text.replace("{head}", "").replace("{mark}", "").replace("{partial}", "")


INCORRECT = (
    _filled(mark="  # error: MP322"),
    _filled(partial="_partial_: true", classes="", head="  # error: MP322"),
)

CORRECT = (
    _filled(make="hydra.utils.instantiate(cfg.optimizer)(model.parameters())", partial="_partial_: true"),
    _filled(make="hydra.utils.instantiate(cfg.optimizer, params=model.parameters())"),
    _filled(make="hydra.utils.instantiate(cfg.optimizer, model.parameters())"),
    _filled(make="hydra.utils.instantiate(cfg.optimizer, _partial_=True)(model.parameters())"),
    _filled() + "# file: run.sh\npython train.py +optimizer._partial_=true\n",
)
