"""A key of the configuration that is read and that no file defines.

What it does
    For programs that Hydra starts: takes the configuration that `@hydra.main` composes, and finds the names that hold
    all of it (`config`, `self.config`: whoever reads several of its sections, and nothing that it has not). Reports
    `config.algorithm.clip_range` where the section has no such key and the key stands nowhere else in the project: in
    no YAML file, no dataclass, no script's override (`+algorithm.clip_range=0.2`), no text and no assignment.
    Silent: `.get("clip_range")`, reads behind `"clip_range" in` and `hasattr`, sections that are put together from
    files outside the project, and programs that make their configuration less strict (`open_dict`, `set_struct`) or
    give it a schema (`ConfigStore`).

Why is this bad
    Hydra's configurations are strict: the read raises ConfigAttributeError, when the line runs. That is after the
    models were loaded, and for what happens late (a checkpoint, an evaluation) after hours.

References
    https://omegaconf.readthedocs.io/en/latest/usage.html#struct-flag
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

from validator.analysis.bindings import first_name
from validator.analysis.commands.programs import Programs
from validator.analysis.options.composed import Compositions, Node
from validator.errors import nearest
from validator.facts.config_files import MAPPING
from validator.facts.model import At, Guard
from validator.finding import Finding, Related
from validator.flow.queries.outside_program import is_aside
from validator.project import ClassDef, Method, Module, Project
from validator.rule import Rule

RULE = Rule("MP304", "undefined-key", "error", stable_since="0.1.0", tokens=("hydra",))

_HOLDER = re.compile(r"(?:(\w+)\.)?_?(?:config|cfg|conf)\.")
_LOOSENS = ("open_dict", "set_struct", "ConfigStore", "flag_override", "OmegaConf.structured")
_OF_MAPPINGS = frozenset({"get", "items", "keys", "values", "pop", "copy", "update", "setdefault", "merge_with"})
_READS = 4  # keys of the configuration that must be read of what is taken for it, of two sections


class _Read(NamedTuple):
    """A chain that begins with what may hold a configuration. `links`: what is read of it."""

    function: Method
    holder: str
    links: tuple[str, ...]
    guards: tuple[Guard, ...]
    at: At


def check_project(project: Project) -> Iterator[Finding]:
    roots = project.analysis(Compositions).programs
    programs = project.analysis(Programs)
    if not roots:
        return
    loose = {m for m in project.modules.values() if any(each in m.source.text for each in _LOOSENS)}
    strict = [program for program in roots if loose.isdisjoint(programs.modules(program))]
    users: dict[Module, list[Module]] = {}
    for program in roots if strict else ():
        for module in programs.modules(program):
            users.setdefault(module, []).append(program)
    for module, mains in users.items():
        if is_aside(module.path) or any(main not in strict for main in mains):
            continue
        for reads in _by_holder(module):
            if all(_holds(reads, roots[main]) for main in mains):
                yield from _undefined(project, reads, mains, roots)


def _by_holder(module: Module) -> Iterator[list[_Read]]:
    """The reads of each name of a function and of each attribute of a class that may hold a configuration."""
    found: dict[tuple[Method | ClassDef, str], list[_Read]] = {}
    for function in module.functions.values():
        for read in _chains(function):
            scope = _scope(function, read.holder.partition(".")[0])
            owner: Method | ClassDef | None = scope
            if "." in read.holder:
                owner = _giver(scope, read.holder)
            elif not _is_parameter(scope, read.holder):
                owner = None
            if owner is not None:
                found.setdefault((owner, read.holder), []).append(read)
    yield from found.values()


def _chains(function: Method) -> Iterator[_Read]:
    rows = [(ref.path, ref.guards, ref.at) for ref in function.facts.refs if ref.context == "load"]
    rows += [(call.target, call.guards, call.at) for call in function.facts.calls]
    for path, guards, at in rows:
        match = _HOLDER.match(path)
        if match is not None:
            links = tuple(re.split(r"[.\[(]", path[match.end() :].partition("[")[0].partition("(")[0]))
            yield _Read(function, path[: match.end() - 1], links, guards, at)


def _is_parameter(function: Method, name: str) -> bool:
    return any(p.name == name for p in function.facts.params) and all(r.target != name for r in function.facts.assigns)


def _scope(function: Method, name: str) -> Method:
    """The function around a closure whose variable a name is."""
    while name not in function.facts.bound and function.enclosing is not None:
        if function.enclosing.qualname == "<module>":
            break
        function = function.enclosing
    return function


def _giver(function: Method, path: str) -> ClassDef | None:
    """The class whose methods fill an attribute with what they are given, if nothing else fills it."""
    if function.cls is None or path.partition(".")[0] != first_name(function):
        return None
    methods = [method for owner in function.cls.mro for method in owner.every_method()]
    rows = [(method, row) for method in methods for row in method.facts.assigns if row.target == path]
    if not rows or not all(row.kind == "path" and _is_parameter(method, row.value) for method, row in rows):
        return None
    return rows[-1][0].cls


def _holds(reads: list[_Read], root: Node) -> bool:
    """Whether what is read of something shows that it is the whole configuration."""
    sections = {read.links[0] for read in reads} - _OF_MAPPINGS
    known = {read.links[:2] for read in reads if len(read.links) > 1 and root.find(read.links[:2]) is not None}
    whole = not root.open and sections <= set(root.children)
    return whole and len(known) >= _READS and len({links[0] for links in known}) > 1


def _undefined(
    project: Project, reads: list[_Read], mains: list[Module], roots: dict[Module, Node]
) -> Iterator[Finding]:
    seen: set[str] = set()
    for read in reads:
        lacking = {_lacking(read.links, roots[main]) for main in mains}
        index = lacking.pop() if len(lacking) == 1 else None
        if index is None or (key := ".".join(read.links[: index + 1])) in seen:
            continue
        name = read.links[index]
        if not _is_asked_about(name, read.guards) and _is_nowhere(project, name):
            seen.add(key)
            yield _report(read, index, mains[0], roots[mains[0]])


def _lacking(links: tuple[str, ...], root: Node) -> int | None:
    """Which link of a chain is no key, below a section whose keys are all known."""
    node = root
    for index, link in enumerate(links):
        if node.kind != MAPPING or node.open or not node.children or link in _OF_MAPPINGS:
            return None
        if link not in node.children:
            return index
        node = node.children[link]
    return None


def _is_asked_about(name: str, guards: tuple[Guard, ...]) -> bool:
    """Whether a condition around a read speaks of the key, or its absence is caught."""
    return any(guard.kind == "try" or re.search(rf"\b{name}\b", guard.text) for guard in guards)


def _is_nowhere(project: Project, name: str) -> bool:
    """Whether nothing in the project may give the configuration a key of this name."""
    word = re.escape(name)
    given = re.compile(
        rf"[\"'](?:[\w.+]*\.)?{word}[\"'.=]|\.{word}\s*=(?!=)|^\s+{word}\s*:"
        rf"|\b(?:\w*[dD]ict\w*|update|create|merge\w*)\([^()]*\b{word}\s*=",
        re.MULTILINE,
    )
    anywhere = re.compile(rf"\b{word}\b")
    return not any(
        (given if source.facts.language == "python" else anywhere).search(source.text)
        for source in project.files.values()
        if name.encode() in source.data
    )


def _report(read: _Read, index: int, main: Module, root: Node) -> Finding:
    name, section = read.links[index], root.find(read.links[:index]) or root
    shown = ".".join((read.holder, *read.links[: index + 1]))
    where = f"`{'.'.join(read.links[:index])}`" if index else "it"
    first = next(iter(section.children.values()), section)
    line, column, *_ = read.at
    return RULE.finding(
        read.function.path,
        (line, column, line, column + len(shown)),
        f"`{shown}` is in no configuration: {where} of `{main.name}` has no `{name}`, and nothing adds it",
        help=f"read a key that exists, or define it{nearest(name, sorted(section.children))}",
        related=[Related(first.path, first.at[0], "what is defined there")] if first.path else [],
        context=f"{read.function.qualname}:{shown}",
    )


_MAIN = """# file: rl/__init__.py
# file: rl/conf/base.yaml
data: {batch_size: 8, path: train.parquet}
actor: {lr: 1.0e-6, grad_clip: 1.0}
algorithm: {gamma: 1.0, clip_ratio: 0.2}
extra: {}
# file: rl/main.py
import hydra
import torch.distributed as dist

from rl.worker import Worker


@hydra.main(config_path="conf", config_name="base", version_base=None)
def main(config):
    dist.init_process_group()
    Worker(config).step()
"""

INCORRECT = (
    _MAIN
    + """# file: rl/worker.py
import torch.distributed as dist


class Worker:
    def __init__(self, config):
        self.config = config
        self.rank = dist.get_rank()

    def step(self):
        print(self.config.actor.lr, self.config.actor.grad_clip, self.config.data.path, self.config.algorithm.gamma)
        return self.loss(clip_range=self.config.algorithm.clip_range)  # error: MP304

    def loss(self, clip_range):
        return clip_range * self.config.data.batch_sizes  # error: MP304


class Critic(Worker):
    def step(self):
        def loss(values):
            return values * self.config.algorithm.value_coef  # error: MP304

        return loss
""",
)

CORRECT = (
    _MAIN
    + """# file: rl/worker.py
import torch.distributed as dist


class Worker:
    def __init__(self, config):
        self.config = config
        self.rank = dist.get_rank()

    def step(self):
        print(self.config.actor.lr, self.config.actor.grad_clip, self.config.data.path, self.config.algorithm.gamma)
        print(self.config.algorithm.get("clip_range"), self.config.extra.anything, self.config.data.seed)
        if "warmup" in self.config.actor:
            print(self.config.actor.warmup)
        return self.config.algorithm.items(), self.config.algorithm.added

    @staticmethod
    def of(config):
        return config.num_layers, config.actor.depth
# file: rl/model.py
import torch.distributed as dist


class Part:
    def __init__(self, config):
        self.config = config.actor
        self.rank = dist.get_rank()

    def show(self):
        return self.config.lr, self.config.algorithm.unknown
# file: rl/conf/other.yaml
data: {seed: 3}
# file: run.sh
python -m rl.main +algorithm.added=3
""",
    _MAIN
    + """# file: rl/worker.py
import torch.distributed as dist
from omegaconf import open_dict


def run(config):
    dist.barrier()
    with open_dict(config):
        config.algorithm = {}
    return config.actor.lr, config.actor.grad_clip, config.data.path, config.algorithm.gamma, config.algorithm.lam


class Worker:
    def __init__(self, config):
        run(config)
""",
)
