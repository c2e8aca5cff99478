"""A configuration key that nothing reads, beside the one that is read.

What it does
    Reports a key that a command line adds (`+key=value`), or that a YAML file adds to the configuration it builds on
    (`defaults:`), where the configuration has a key of nearly the same name that the project's code reads, and no
    code reads the one that is set. Silent where the name occurs in the code as a key, an attribute or a parameter, or
    in an interpolation (`${model.name}`).

Why is this bad
    Nothing complains: the setting has no effect, or the key that the code reads is missing when it is needed.

References
    https://hydra.cc/docs/advanced/override_grammar/basic/
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cached_property

from validator.analysis.commands.launch import Launches
from validator.analysis.options.composed import Composition, Compositions, Node, Override
from validator.files.languages import CONFIGURATION, language
from validator.finding import Finding, Related
from validator.project import Project
from validator.rule import Rule

RULE = Rule("MP708", "key-never-read", "warning", stable_since="0.1.0", languages=("yaml",))

_NEAR = 0.8
_INTERPOLATION = re.compile(r"\$\{(?:[\w.]+:)?([\w.]+)")


def check_project(project: Project) -> Iterator[Finding]:
    compositions = project.analysis(Compositions)
    if not compositions.files:
        return
    reads = project.analysis(_Reads)
    for launch in project.analysis(Launches).all:
        composition = compositions.of(launch)
        for override in composition.overrides if composition is not None else ():
            if override.sign == "+" and composition is not None:
                yield from _appended(override, composition, reads)
    for path in compositions.files:
        if (base := compositions.bases(path)) is not None:
            yield from _renamed(compositions.tree(path), base, (), reads)


def _appended(override: Override, composition: Composition, reads: _Reads) -> Iterator[Finding]:
    *above, name = override.key.split(".")
    node = composition.root.find(above)
    if node is None or node.open or (near := _twin(name, node, reads)) is None:
        return
    place = override.word.place
    yield RULE.finding(
        place.path,
        (place.line, place.column, place.line, max(override.word.end, place.column + 1)),
        f"`+{override.key}` adds a key that no code reads; the configuration has `{near}` there",
        help=f"set `{'.'.join([*above, near])}=…` without the `+`",
        related=[Related(node.children[near].path, node.children[near].at[0], f"`{near}` is here")],
        context=f"{composition.name}:{override.key}",
    )


def _renamed(own: Node, base: Node, links: tuple[str, ...], reads: _Reads) -> Iterator[Finding]:
    for name, child in own.children.items():
        known = base.children.get(name)
        if known is not None:
            yield from _renamed(child, known, (*links, name), reads)
        elif not base.open and base.children and (near := _twin(name, base, reads)) is not None:
            if near in own.children:
                continue
            key = ".".join((*links, name))
            yield RULE.finding(
                child.path,
                child.at,
                f"no code reads `{key}`; the configuration that this one builds on has `{near}` there",
                help=f"name it `{near}`, or drop it",
                related=[Related(base.children[near].path, base.children[near].at[0], f"`{near}` is here")],
                context=key,
            )


def _twin(name: str, node: Node, reads: _Reads) -> str | None:
    """The key of nearly the same name that code reads, where no code reads this one."""
    if name in node.children or len(name) < 6:
        return None
    from difflib import SequenceMatcher

    close = [(SequenceMatcher(None, name, other).ratio(), other) for other in node.children]
    ratio, other = max(close, default=(0.0, ""))
    if ratio < _NEAR or reads.has(name) or not reads.has(other):
        return None
    return other


class _Reads:
    """Which names the code of a project uses as keys, attributes or parameters, and its files in interpolations."""

    def __init__(self, project: Project) -> None:
        self.project = project
        self._known: dict[str, bool] = {}

    def has(self, name: str) -> bool:
        if name not in self._known:
            word = re.escape(name)
            use = re.compile(
                rf"[\"']{word}[\"'.]|[.]{word}\b(?!\s*\()|[\"'.]{word}[\"']|^\s+{word}\s*:|[(,]\s*{word}\s*[=:,)]|^\s+{word}\s*[=,]",
                re.MULTILINE,
            )
            sources = (module.source for module in self.project.modules.values())
            self._known[name] = name in self._interpolated or any(
                name.encode() in source.data and use.search(source.text) for source in sources
            )
        return self._known[name]

    @cached_property
    def _interpolated(self) -> frozenset[str]:
        """The last links of what stands in `${model.name}`."""
        texts = (source.text for source in self.project.files.values() if language(source.path) in CONFIGURATION)
        return frozenset(path.rpartition(".")[2] for text in texts for path in _INTERPOLATION.findall(text))


_CODE = """# file: demo/__init__.py
# file: demo/main.py
import hydra


@hydra.main(config_path="config", config_name="trainer", version_base=None)
def main(config):
    print(config.model.enable_activation_offload, config.model["ratio_clip_min"], config.get("use_remove_padding"))


def enable_activation_offloading(model):
    return model
# file: demo/config/trainer.yaml
model:
  enable_activation_offload: false
  ratio_clip_min: 0.2
"""

INCORRECT = (
    _CODE
    + """# file: run.sh
python3 -m demo.main \\
    model.ratio_clip_min=0.1 \\
    +model.enable_activation_offloading=True  # error: MP708
""",
    _CODE
    + """# file: examples/base.yaml
model:
  ratio_clip_min: 0.2
  name: x
# file: examples/larger.yaml
defaults: base.yaml
model:
  ratio_eps_min: 0.1  # error: MP708
  other: 3
""",
)

CORRECT = (
    _CODE
    + """# file: run.sh
python3 -m demo.main +model.use_remove_padding=True +model.custom=1 ++model.enable_activation_offloads=True
""",
    _CODE
    + """# file: examples/base.yaml
model:
  use_remove_paddings: 3
  ratio_clip_min: 0.1
# file: examples/larger.yaml
defaults:
  - base.yaml
model:
  use_remove_padding: 4
  ratio_clip_min: 0.3
  ratio_clip_mean: ${model.ratio_clip_min}
# file: demo/later.py
def later(ratio_clip_mean):
    return ratio_clip_mean
""",
    # read by another key of the file
    _CODE
    + """# file: examples/base.yaml
model:
  agent_template: x
  ratio_clip_min: 0.1
# file: examples/larger.yaml
defaults:
  - base.yaml
model:
  ratio_clip_mins: 0.3
  ratio_clip_min: ${model.ratio_clip_mins}
""",
)
