"""An interpolation, or another path of keys, that leads to no key of the configuration.

What it does
    Looks up what stands in `${trainer.steps}` of YAML files where its first link is a section of the same file, and
    reports a link that the section there lacks. Silent where any other file, command line or code of the project knows
    a key of that name, which may bring it in when files are merged; about resolvers (`${oc.env:HOME}`) and relative
    paths.

Why is this bad
    OmegaConf raises InterpolationKeyError when the value is read: at the start, or hours later where it is a setting of
    the evaluation.

References
    https://omegaconf.readthedocs.io/en/latest/usage.html#variable-interpolation
"""

from __future__ import annotations

from collections.abc import Iterator

from validator.analysis.recipes.key_paths import LedAstray, led_astray
from validator.errors import nearest
from validator.facts.config_files import MAPPING, Setting, settings_of
from validator.files.languages import language
from validator.finding import Finding
from validator.flow import Flow
from validator.flow.queries.outside_program import is_foreign, is_test
from validator.project import Project
from validator.rule import Rule
from validator.source import SourceFile

RULE = Rule("MP716", "interpolation-of-nothing", "warning", stable_since="0.6.0", languages=("yaml", "json", "toml"))


def check_project(project: Project) -> Iterator[Finding]:
    names = _Names(project)
    for source in project.files.values():
        if (
            language(source.path) != "yaml"
            or b"${" not in source.data
            or is_test(source.path)
            or is_foreign(source.path)
        ):
            continue
        rows = settings_of(source).settings
        mappings = _mappings(rows)
        for setting in rows:
            for path in _interpolated(setting.value) if isinstance(setting.value, str) else ():
                lacking = _lacking(path, mappings)
                if lacking is not None and not names.are_known_beside(source, path[lacking]):
                    yield _report(source, setting, path, lacking, mappings[path[:lacking]])
    for astray in led_astray(project):
        yield _led_astray(astray)


def _mappings(rows: tuple[Setting, ...]) -> dict[tuple[str, ...], list[str]]:
    """The sections of a file by their path, with their keys."""
    found: dict[tuple[str, ...], list[str]] = {(): []}
    for each in rows:
        if each.kind == MAPPING:
            found[each.path] = []
    for each in rows:
        if each.path[:-1] in found:
            found[each.path[:-1]].append(each.path[-1])
    return found


def _interpolated(text: str) -> Iterator[tuple[str, ...]]:
    """The absolute paths of several links in the interpolations of a text."""
    for part in text.split("${")[1:]:
        inside, closed, _ = part.partition("}")
        links = tuple(inside.strip().split("."))
        if closed and len(links) > 1 and all(link.isidentifier() for link in links):
            yield links


def _lacking(path: tuple[str, ...], mappings: dict[tuple[str, ...], list[str]]) -> int | None:
    """Which link of a path a section lacks; None where the path leads somewhere, or out of the file."""
    if path[0] not in mappings[()] or "defaults" in mappings[()]:
        return None
    for place in range(1, len(path)):
        keys = mappings.get(path[:place])
        if not keys or "<<" in keys:
            return None
        if path[place] not in keys:
            return place
    return None


class _Names:
    """Where a name stands besides in one file: keys of other files, names in code, words of command lines."""

    def __init__(self, project: Project) -> None:
        self.project = project
        self.flow = project.analysis(Flow)

    def are_known_beside(self, source: SourceFile, name: str) -> bool:
        if self.flow.mentions.units(name):
            return True
        word = name.encode()
        others = (each for each in self.project.files.values() if each is not source and word in each.data)
        return any(each.path not in self.project.modules for each in others)


def _report(source: SourceFile, setting: Setting, path: tuple[str, ...], lacking: int, keys: list[str]) -> Finding:
    section = ".".join(path[:lacking])
    return RULE.finding(
        source.path,
        setting.value_at,
        f"`${{{'.'.join(path)}}}` leads nowhere: `{section}` has no `{path[lacking]}`",
        help=f"name a key that is there{nearest(path[lacking], keys)}",
        context=f"{source.path}:{'.'.join(setting.path)}",
    )


def _led_astray(astray: LedAstray) -> Finding:
    path, meant = ".".join(astray.path.links), ".".join(astray.meant)
    return RULE.finding(
        astray.path.recipe.source.path,
        astray.path.at,
        f"`{path}` leads nowhere: {astray.others} others in such sections lead to keys, and the file has `{meant}`",
        help=f"write `{meant}`",
        context=f"{astray.path.recipe.source.path}:{'.'.join(astray.path.where)}",
    )


_TRAIN = """# file: train.py
import sys

from omegaconf import OmegaConf


def main():
    config = OmegaConf.load(sys.argv[1])
    return config.trainer.total_steps, config.schedule.steps


main()
# file: config.yaml
trainer:
  total_steps: 8000
schedule:
  steps: ${trainer.NAME}MARK
"""

_MAPPED = """# file: train.py
import sys

from omegaconf import OmegaConf


def main():
    config = OmegaConf.load(sys.argv[1])
    for source, target in config.train.mapping.items():
        OmegaConf.update(config, target, OmegaConf.select(config, source))
    return config.model.params.ckpt_path, config.model.params.seed


main()
"""


def _mapped(name: str, target: str = "model.params.ckpt_path", more: str = "", source: str = "train.ckpt") -> str:
    return f"""# file: configs/{name}.yaml
model:
  params: {{ckpt_path: null, seed: 1{more}}}
train:
  ckpt: weights/{name}
  seed: 42
  mapping:
    {source}: {target}
    train.seed: model.params.seed
"""


INCORRECT = (
    _TRAIN.replace("NAME", "max_steps").replace("MARK", "  # error: MP716"),
    _TRAIN.replace("${trainer.NAME}", '"run-${trainer.all_steps}"').replace("MARK", "  # error: MP716"),
    # a path without braces, beside those of other recipes
    _MAPPED + _mapped("small") + _mapped("large", "model.ckpt_path  # error: MP716"),
)

CORRECT = (
    _TRAIN.replace("NAME", "total_steps").replace("MARK", ""),
    # another file brings it in
    _TRAIN.replace("NAME", "max_steps").replace("MARK", "") + "# file: more.yaml\ntrainer:\n  max_steps: 3\n",
    _TRAIN.replace("${trainer.NAME}", "${oc.env:STEPS}").replace("MARK", ""),
    _MAPPED + _mapped("small") + _mapped("large"),
    # a key that is made so; names that are no paths of keys
    _MAPPED + _mapped("small") + _mapped("large", "model.params.resume"),
    _MAPPED + _mapped("small", "model.Small") + _mapped("large", "model.Large", ", Large: 1"),
)
