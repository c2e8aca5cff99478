"""A configuration key that nothing reads, beside the one that is read.

What it does
    Reports a key that a command line adds (`+key=value`), or that a YAML file adds to the configuration it builds on
    (`defaults:`), where the configuration has a key of nearly the same name that the project's code reads, and no
    code reads the one that is set. Silent where the name occurs in the code as a key, an attribute or a parameter, or
    in an interpolation (`${model.name}`).
    Of a YAML file that is laid over another one (also by a key that names it, `base: base.yaml`, and by
    `OmegaConf.merge`), it reports what stands in the wrong section: a key that the file below has in one other section
    alone, where the code reads it and the file on top leaves it as it is; and a section that no code reads, all keys of
    which are those of one beside it. Silent where what asks for such a key may have another section, where a section is
    unpacked, gone through or handed on as a whole, and about anchors.

Why is this bad
    Nothing complains: the setting has no effect, or the key that the code reads is missing when it is needed.

References
    https://hydra.cc/docs/advanced/override_grammar/basic/
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from functools import cached_property

from validator.analysis.commands.launch import Launches
from validator.analysis.recipes.composed import Composition, Compositions, Node, Override
from validator.analysis.recipes.key_reads import KeyReads
from validator.analysis.recipes.overlays import Overlay, Overlays
from validator.files.languages import CONFIGURATION, language
from validator.finding import Finding, Related
from validator.flow import Flow
from validator.project import Project
from validator.rule import Rule

RULE = Rule("MP708", "key-never-read", "warning", stable_since="0.1.0", languages=("yaml",), solves=True)

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
    for overlay in project.analysis(Overlays).all:
        if overlay.packed:
            yield from _renamed(overlay.own, overlay.base, (), reads)
        yield from _misplaced(project, overlay, reads)


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


def _misplaced(project: Project, overlay: Overlay, reads: _Reads) -> Iterator[Finding]:
    """What stands where no code reads it, and what the configuration below has elsewhere."""
    key_reads, targets = project.analysis(KeyReads), project.analysis(Flow).models.targets.keys()
    for section, name, child in _added(overlay.own, overlay.base, (), targets):
        links = (*section, name)
        home = _home(overlay, section, name, child)
        if (
            home is None
            or project.analysis(Overlays).is_aliased(overlay, links)
            or any(map(reads.is_interpolated, links))
        ):
            continue
        *above, last = home
        if key_reads.reads(tuple(above), last) and not key_reads.may_read(section, name, overlay.packed):
            yield _elsewhere(overlay, links, child, home)


def _added(
    own: Node, base: Node, links: tuple[str, ...], targets: Collection[str]
) -> Iterator[tuple[tuple[str, ...], str, Node]]:
    """What a file sets that the one below does not have, in sections that are all known and that make nothing: section,
    key and node."""
    if base.open or not base.children or any(name in targets for name in (*own.children, *base.children)):
        return
    for name, child in own.children.items():
        if name in base.children:
            yield from _added(child, base.children[name], (*links, name), targets)
        elif name.isidentifier() and not name.startswith("_"):
            yield links, name, child


def _home(overlay: Overlay, section: tuple[str, ...], name: str, child: Node) -> tuple[str, ...] | None:
    """The one key of the configuration below that is meant, and that the file on top leaves as it is."""
    beside = overlay.base.find(section)
    if child.children:
        homes = [
            (*section, other) for other, node in (beside.children if beside else {}).items() if _holds(node, child)
        ]
    else:
        homes = [links for links, node in _all(overlay.base, ()) if links[-1] == name and not node.children]
    return homes[0] if len(homes) == 1 and overlay.own.find(homes[0]) is None else None


def _holds(node: Node, other: Node) -> bool:
    """Whether a section has all keys of another one."""
    return len(other.children) > 1 and not node.open and other.children.keys() <= node.children.keys()


def _all(node: Node, links: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], Node]]:
    for name, child in node.children.items():
        yield (*links, name), child
        yield from _all(child, (*links, name))


def _elsewhere(overlay: Overlay, links: tuple[str, ...], child: Node, home: tuple[str, ...]) -> Finding:
    key, meant = ".".join(links), ".".join(home)
    node = overlay.base.find(home) or overlay.base
    basis = "" if overlay.known else "; nothing names this file: that it is laid over the other rests on its keys"
    return RULE.finding(
        child.path,
        child.at,
        f"no code reads `{key}`; the configuration that this file is laid over has it as `{meant}`, which stays as it"
        f" is{basis}",
        help=f"set `{meant}`",
        related=[Related(node.path, node.at[0], f"`{meant}` is here")],
        context=key,
    )


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

    def is_interpolated(self, name: str) -> bool:
        """Whether a key is one of those that stand in `${model.name}`."""
        return name in self._links

    @cached_property
    def _paths(self) -> list[str]:
        """What stands in `${model.name}`."""
        texts = (source.text for source in self.project.files.values() if language(source.path) in CONFIGURATION)
        return [path for text in texts for path in _INTERPOLATION.findall(text)]

    @cached_property
    def _links(self) -> frozenset[str]:
        return frozenset(link for path in self._paths for link in path.split("."))

    @cached_property
    def _interpolated(self) -> frozenset[str]:
        return frozenset(path.rpartition(".")[2] for path in self._paths)


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

_MERGED = """# file: train.py
import sys

from omegaconf import OmegaConf

from sampling import Sampler


def load(path):
    return OmegaConf.merge(OmegaConf.load("conf/base.yaml"), OmegaConf.load(path))


class Trainer:
    def __init__(self, config):
        self.config = config
        self.sampler = Sampler(config.model.path, config.worker.sampling)

    def fit(self, loss):
        {fit}


def main():
    Trainer(load(sys.argv[1])).fit(0.0)
# file: sampling.py
class Sampler:
    def __init__(self, path, config):
        self.path, self.config = path, config

    def sample(self, prompts):
        return [prompts] * self.config.copies, self.config.temperature
# file: conf/base.yaml
model: {path: null}
worker:
  actor: {clip: 0.2}
  sampling: {copies: 1, temperature: 1.0}
algorithm: {kind: gae}
# file: conf/grouped.yaml
model: {path: some/model}
worker:
  actor:
    clip: 0.3
    copies: 8  {actor}
  sampling:
    temperature: 0.7
    {sampling}
algorithm: {kind: grpo}
"""
_NAMES_BASE = """# file: train.py
import os
import sys

import yaml


def merge(base, top):
    out = dict(base)
    for key, value in top.items():
        inside = isinstance(value, dict) and isinstance(out.get(key), dict)
        out[key] = merge(out[key], value) if inside else value
    return out


def load(path):
    with open(path) as file:
        raw = yaml.safe_load(file)
    below = raw.pop("below", None)
    return raw if below is None else merge(load(os.path.join(os.path.dirname(path), below)), raw)


def main():
    config = load(sys.argv[1])
    print(config["run"]["steps"], config["data"]["path"])
    {reads}
# file: base.yaml
run: {steps: 100}
data: {path: train.pt}
optimizer: {lr: 1.0e-4, decay: 0.1, betas: [0.9, 0.95]}
# file: tuned.yaml
below: base.yaml
run: {steps: 10}
data: {path: tuned.pt}
optim:  {mark}
  lr: 1.0e-5
  decay: 0.0
"""


def _filled(text: str, **parts: str) -> str:
    """An example with its parts put in."""
    for name, part in parts.items():
        text = text.replace(f"{{{name}}}", part)
    return text


_OPTIMIZER = 'print(config["optimizer"])'
_CLIPPED = "return min(loss, self.config.worker.actor.clip)"

INCORRECT = (
    # in the section beside the one in which it is read
    _filled(_MERGED, fit=_CLIPPED, actor="# error: MP708", sampling=""),
    # a section of another name than the one that it is meant to change
    _filled(_NAMES_BASE, reads=_OPTIMIZER, mark="# error: MP708"),
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
    # it is set where it is read, too; the actor gets its section as a whole
    _filled(_MERGED, fit=_CLIPPED, actor="", sampling="copies: 8"),
    _filled(_MERGED, fit="return Actor(**self.config.worker.actor).step(loss)", actor="", sampling=""),
    _filled(_MERGED, fit="return [loss] * self.config.worker.actor.copies", actor="", sampling=""),
    # another library reads it
    _filled(_MERGED, fit="return PPO(self.config).step(loss)", actor="", sampling="").replace(
        "import sys\n", "import sys\n\nfrom ppo_of_others import PPO\n"
    ),
    _filled(_NAMES_BASE, reads=f'{_OPTIMIZER}\n    print(config["optim"])', mark=""),
    _filled(_NAMES_BASE, reads=f'{_OPTIMIZER}\n    print(config[sys.argv[2]], "optim")', mark=""),
    # an anchor
    _filled(_NAMES_BASE, reads=_OPTIMIZER, mark="&own\n") + "tuned:\n  <<: *own\n",
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
