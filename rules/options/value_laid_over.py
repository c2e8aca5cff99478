"""A value of a configuration that the files behind `_self_` always replace.

What it does
    Reads `defaults` lists of Hydra in which `_self_` stands before other files, and reports a value that the file sets
    itself, under a key to which every file that may be chosen there gives another one. Silent where one of the files
    leaves the key out, says the same or `???`, or cannot be found, where some file, script or text of the code chooses
    none (`override /optim: null`, `~optim`), and where code puts more choices into the group (`ConfigStore`).

Why is this bad
    What stands behind `_self_` is laid over the file. The value that its reader sees is never the one that trains.

References
    https://hydra.cc/docs/advanced/defaults_list/#composition-order
"""

from __future__ import annotations

from collections.abc import Iterator

from validator.analysis.recipes.composed import Compositions, Node
from validator.facts.config_files import MAPPING
from validator.finding import Finding, Related
from validator.flow.queries.outside_program import is_test
from validator.project import Project
from validator.rule import Rule

RULE = Rule("MP323", "value-laid-over", "warning", "1.0", tokens=("hydra",), languages=("python", "yaml"))

_MISSING = "???"


def check_project(project: Project) -> Iterator[Finding]:
    compositions = project.analysis(Compositions)
    for path, (source, settings) in compositions.files.items() if compositions.programs else ():
        if is_test(source.path) or settings.get("defaults") is None:
            continue
        laid = list(compositions.laid_after(path))
        for keys, own in _values(compositions.tree(path), ()):
            found = [[other for node in nodes if (other := node.find(keys)) is not None] for nodes in laid]
            if any(not _replaces(other, own) for others in found for other in others):
                continue
            for nodes, others in zip(laid, found, strict=True):
                if len(others) == len(nodes):
                    yield _report(keys, own, others)


def _values(node: Node, keys: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], Node]]:
    """What a file sets, by its keys; a list is one value."""
    for name, child in node.children.items():
        if child.kind == MAPPING:
            yield from _values(child, (*keys, name))
        else:
            yield (*keys, name), child


def _replaces(other: Node, own: Node) -> bool:
    """Whether a value that is laid over another one is a different one."""
    if other.kind != own.kind or other.kind == MAPPING or other.value == _MISSING:
        return False
    return _content(other) != _content(own)


def _content(node: Node) -> object:
    return [(name, _content(child)) for name, child in node.children.items()] or node.value


def _report(keys: tuple[str, ...], own: Node, others: list[Node]) -> Finding:
    key = ".".join(keys)
    more = f", as all {len(others)} files do that may be chosen there" if len(others) > 1 else ""
    return RULE.finding(
        own.path,
        own.at,
        f"`{key}` is never what it is here: `{others[0].path}`, which stands behind `_self_`, is laid over it{more}",
        help="let `_self_` stand behind it in `defaults`, or drop the value",
        related=[Related(other.path, other.at[0], f"`{key}` is replaced here") for other in others[:3]],
        context=key,
    )


_FILES = """# file: train.py
import hydra


@hydra.main(version_base="1.3", config_path="conf", config_name="config")
def main(cfg):
    print(cfg.optim.lr, cfg.optim.betas, cfg.steps)


if __name__ == "__main__":
    main()
# file: conf/config.yaml
defaults:
  {first}
  - optim: adamw
  {last}
steps: 10
optim:
  lr: 2.0e-4  {mark}
  betas: [0.9, 0.95]  {mark}
# file: conf/optim/adamw.yaml
lr: 1.0e-3
betas: [0.9, 0.999]
eps: 1.0e-8
# file: conf/optim/lion.yaml
lr: 1.0e-5
{lion}
"""
_LION = "betas: [0.95, 0.98]"

_BEHIND = _FILES.format(first="- _self_", last="", mark="", lion=_LION)

INCORRECT = (_FILES.format(first="- _self_", last="", mark="# error: MP323", lion=_LION),)

CORRECT = (
    _FILES.format(first="", last="- _self_", mark="", lion=_LION),
    # a choice leaves it as it is
    _FILES.format(first="- _self_", last="", mark="", lion=_LION)
    .replace("lr: 1.0e-5\n", "eps: 0.1\n")
    .replace(_LION, ""),
    # which is what `???` does
    _FILES.format(first="- _self_", last="", mark="", lion="betas: ???").replace("lr: 1.0e-5", "lr: ???"),
    # somebody chooses none: the values are for that
    _BEHIND + "# file: run.sh\npython train.py optim=null\n",
    _BEHIND + "# file: run.sh\npython train.py ~optim\n",
    _BEHIND + "# file: conf/plain.yaml\ndefaults:\n  - config\n  - override optim: null\n  - _self_\nsteps: 20\n",
    # code puts another choice beside the files; a file that stands behind gives it back
    _BEHIND.replace(
        "\n\n\n@hydra",
        "\nfrom hydra.core.config_store import ConfigStore\n\n"
        "ConfigStore.instance().store(group='optim', name='plain', node={'eps': 1e-8})\n\n\n@hydra",
    ),
    _BEHIND.replace("- optim: adamw\n", "- optim: adamw\n  - size: small\n")
    + "# file: conf/size/small.yaml\n# @package _global_\noptim:\n  lr: 2.0e-4\n  betas: [0.9, 0.95]\n",
)
