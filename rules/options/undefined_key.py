"""A key of the configuration that is read and that no file defines.

What it does
    Follows the configuration that Hydra composes for a program, or that is read from a YAML, JSON or TOML file (named
    by a text, by the default of an option, by a script that sets it), into functions, objects and closures. Reports
    `config.algorithm.clip_range` and `config["algorithm"]["clip_range"]` where none of the files that may be there has
    the key in this section, and nothing in the project puts one of that name anywhere: no file, no script's override
    (`+algorithm.clip_range=0.2`), no text, no assignment, no data class.
    Silent: `.get("clip_range")`, reads behind `"clip_range" in` and `hasattr`, sections that are put together from
    files outside the project, and programs that make their configuration less strict (`open_dict`, `set_struct`) or
    give it a schema (`ConfigStore`).

Why is this bad
    Such configurations are strict: the read raises ConfigAttributeError or KeyError, when the line runs. That is after
    the models were loaded, and for what happens late (a checkpoint, an evaluation) after hours.

References
    https://omegaconf.readthedocs.io/en/latest/usage.html#struct-flag
"""

from __future__ import annotations

from collections.abc import Iterator

from validator.analysis.commands.programs import Programs
from validator.analysis.recipes.composed import Node
from validator.analysis.recipes.sections import Sections
from validator.errors import nearest
from validator.facts.config_files import MAPPING
from validator.finding import Finding, Related
from validator.flow import Flow
from validator.flow.callgraph.receivers import meeting
from validator.flow.queries.base import Place, Queries
from validator.flow.queries.outside_program import is_aside
from validator.flow.values import Obj
from validator.project import Module, Project
from validator.rule import Rule

RULE = Rule("MP304", "undefined-key", "error", "0.1.0", tokens=("hydra", "load"), solves=True)

_LOOSENS = ("open_dict", "set_struct", "ConfigStore", "flag_override", "structured")
_OF_MAPPINGS = frozenset(dir(dict)) | {"merge_with", "to_dict", "merge", "dump", "freeze", "defrost"}


def check_project(project: Project) -> Iterator[Finding]:
    if not any("settings" in source.facts.extra for source in project.files.values()):
        return
    queries, sections = project.analysis(Queries), project.analysis(Sections)
    loose = {function.module for function, _ in project.calls(*_LOOSENS)}
    seen: set[tuple[str, str, str]] = set()
    for unit in meeting(project.analysis(Flow), "section"):
        for read in queries.values(unit, "attr", "item") if not is_aside(unit.path) else ():
            name = _name(read)
            owner: list[Obj] = read.operand(0).closed.of("section") if name and not read.may_lack(name) else []
            lacking = [_lacking(sections, o, name, loose, project) for o in owner]
            sections_there = [node for node in lacking if node is not None]
            if not sections_there or len(sections_there) < len(lacking) or sections.is_put(name):
                continue
            key = (unit.path, unit.qualname, f"{owner[0][2]}.{name}")
            if key not in seen:
                seen.add(key)
                yield _report(read, name, owner[0][2], sections_there[0])


def _name(read: Place) -> str:
    """The key that is read; empty of what mappings have by themselves."""
    if read.value.op == "attr":
        name = str(read.value.data)
        return "" if name in _OF_MAPPINGS or name.startswith("_") else name
    key = read.operand(1).val.constant()
    return key if isinstance(key, str) and not read.catches("KeyError") else ""


def _lacking(sections: Sections, o: Obj, name: str, loose: set[Module], project: Project) -> Node | None:
    """The section in which a key is missing, whichever file is read; None where it may be there."""
    if not loose.isdisjoint(project.analysis(Programs).modules(o[1][-1][0].module)):
        return None
    found = None
    for root in sections.roots(o[1]):
        node = root.node
        for link in o[2].split(".") if o[2] else ():
            if node.open or link not in node.children:
                break
            node = node.children[link]
        else:
            if node.kind != MAPPING or node.open or not node.children or name in node.children:
                return None
            found = found or node
            continue
        if root.given:
            return None
    return found


def _report(read: Place, name: str, keys: str, section: Node) -> Finding:
    first = next(iter(section.children.values()))
    where = f"`{keys}`" if keys else "it"
    return RULE.finding(
        read.unit.path,
        read.at,
        f"`{read.text}` is in no configuration: {where} has no `{name}`, and nothing adds it",
        help=f"read a key that exists, or define it{nearest(name, sorted(section.children))}",
        related=[Related(first.path, first.at[0], "what is defined there")] if first.path else [],
        context=f"{read.unit.qualname}:{keys}.{name}",
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

_LOADED = """# file: train.py
import os
import yaml


class Trainer:
    def __init__(self, settings):
        self.settings = settings

    def fit(self):
        print(self.settings["steps"])
        return self.settings["optimizer"]["{key}"]{mark}


def read(name):
    with open(os.path.join(os.path.dirname(__file__), "conf", name)) as file:
        return yaml.safe_load(file)


if __name__ == "__main__":
    print(Trainer(read("large.yaml")).fit(), read("small.yaml")["steps"])
# file: conf/large.yaml
steps: 1000
optimizer: {lr: 1.0e-3}
# file: conf/small.yaml
steps: 10
"""

INCORRECT = (
    _LOADED.replace("{key}", "rate").replace("{mark}", "  # error: MP304"),
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
    _LOADED.replace("{key}", "lr").replace("{mark}", ""),
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
    # a key with dots in it, which the same function puts there
    """# file: sweep.py
import yaml


def main():
    with open("sweep.yaml") as file:
        space = yaml.safe_load(file)
    space["train.group"] = "first"
    names = list(space)
    print(names, space["train.group"], space["lr"])


main()
# file: sweep.yaml
lr: {strategy: uniform, values: [0.1, 0.2]}
steps: {strategy: choice, values: [1, 2]}
""",
)
