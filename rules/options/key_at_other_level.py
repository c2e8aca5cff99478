"""A key of a recipe that stands at another level than the one where code asks for it.

What it does
    Compares where recipes (YAML, JSON, TOML) have a key with where code asks for it and goes on with a default:
    `config.pop("lightning").get("trainer").get("precision", 32)` asks for `lightning.trainer.precision`. Reports a
    recipe that has the key in another section, in which no code asks for it, while its siblings have it where code
    asks; one that alone has a key of several words, in another section than the one that is asked for it; and code
    that asks one section, while all recipes have the key in another one. Which section a thing is, the keys tell that
    are asked of it, where they stand in one and the same section in all recipes. A warning, as that rests on them.
    Silent where anything whose section is not known asks for the key, where a parameter or field has its name and all
    of a section is handed on, where code or a script sets the key, about keys that interpolations read, and files that
    `defaults` put together.

Why is this bad
    Nothing complains: the setting has no effect, and the default is used in its place.

References
    https://omegaconf.readthedocs.io/en/latest/usage.html#access
"""

from __future__ import annotations

from collections.abc import Iterator

from validator.analysis.recipes.other_levels import OtherLevel, OtherLevels
from validator.finding import Finding, Related
from validator.project import Project
from validator.rule import Rule

RULE = Rule(
    "MP329",
    "key-at-other-level",
    "warning",
    stable_since="1.1",
    languages=("python", "yaml", "json", "toml"),
    solves=True,
)


def check_project(project: Project) -> Iterator[Finding]:
    if not any("settings" in source.facts.extra for source in project.files.values()):
        return
    seen: set[tuple[str, str]] = set()
    for row in project.analysis(OtherLevels).all:
        if row.is_code:
            yield _of_code(row)
        elif (row.recipes[0].source.path, row.name) not in seen:
            seen.add((row.recipes[0].source.path, row.name))
            yield _of_recipe(row)


def _of_code(row: OtherLevel) -> Finding:
    first, place = row.recipes[0], row.asked.place
    return RULE.finding(
        place.unit.path,
        place.at,
        f"no recipe has `{_dotted(row.wanted, row.name)}`, for which this asks, as the other keys tell:"
        f" {len(row.recipes)} set `{_dotted(row.found, row.name)}`, for which no code asks",
        help=f"look for `{row.name}` {_section(row.found)}",
        related=[Related(first.source.path, first.setting(row.found, row.name).at[0], f"`{row.name}` is set here")],
        context=f"{place.unit.qualname}:{_dotted(row.wanted, row.name)}",
    )


def _of_recipe(row: OtherLevel) -> Finding:
    recipe, place = row.recipes[0], row.asked.place
    count = len(row.siblings)
    like = f"{count} recipes like this one have it" if count > 1 else "another recipe like this one has it"
    others = f", where {like}" if count else ""
    return RULE.finding(
        recipe.source.path,
        recipe.setting(row.found, row.name).at,
        f"`{row.name}` stands {_section(row.found)}; `{_short(place.text)}` looks {_section(row.wanted)}, as the"
        f" other keys that it is asked for tell{others}, and takes its default",
        help=f"set `{_dotted(row.wanted, row.name)}`",
        related=[
            Related(place.unit.path, place.at[0], "asked for here"),
            *(
                Related(each.source.path, each.setting(row.wanted, row.name).at[0], "set here")
                for each in row.siblings[:3]
            ),
        ],
        context=_dotted(row.found, row.name),
    )


def _dotted(section: tuple[str, ...], name: str) -> str:
    return ".".join((*section, name))


def _short(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= 80 else line[:77] + "…"


def _section(section: tuple[str, ...]) -> str:
    return f"in `{'.'.join(section)}`" if section else "at the top level"


_PROGRAM = """# file: train.py
import argparse

from omegaconf import OmegaConf
from pytorch_lightning import Trainer


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--base", nargs="*", default=[])
    args, rest = parser.parse_known_args()
    config = OmegaConf.merge(*[OmegaConf.load(path) for path in args.base], OmegaConf.from_dotlist(rest))
    lightning = config.pop("lightning", OmegaConf.create())
    trainer = lightning.get("trainer", OmegaConf.create())
    print(config.model.name, config.data.path)
    settings = {"logger": lightning.get("logger", None)}
    settings["precision"] = {read}
    return Trainer.from_argparse_args(argparse.Namespace(**trainer), **settings)


main()
"""

_RECIPE = """# file: configs/{file}.yaml
model: {name: {file}}
data: {path: {file}.csv}
lightning:
  {outside}
  trainer:
    max_steps: 100
    {inside}
"""
_TOLD = "  # error: MP329"


def _recipe(file: str, outside: str = "# as it is", inside: str = "benchmark: true") -> str:
    parts = {"{file}": file, "{outside}": outside, "{inside}": inside}
    text = _RECIPE
    for name, part in parts.items():
        text = text.replace(name, part)
    return text


_PLAIN = "".join(_recipe(name, outside="precision: 16") for name in ("small", "large"))
_OF_LIGHTNING = 'lightning.get("precision", 32)'
_OF_TRAINER = 'trainer.get("precision", 32)'

_MODEL = """# file: models/upscaler.py
from somebody.registry import MODELS
from somebody.models import Model


@MODELS.register()
class Upscaler(Model):
    def feed(self, data):
        if self.opt.get("second_order_noise", True):
            self.kernel = data["kernel"]
        return self.opt["sharpen_target"], self.opt["sharpen_features"], self.opt["scale"]
# file: options/plain.yml
scale: 4
sharpen_target: true
sharpen_features: true
datasets:
  train: {kind: Images, size: 400}
# file: options/pairs.yml
scale: 4
sharpen_target: true
sharpen_features: false
{top}
datasets:
  train:
    kind: Pairs
    size: 256
    {inside}
"""

INCORRECT = (
    # code reads the section beside the one in which all recipes have it
    _PROGRAM.replace("{read}", f"{_OF_TRAINER}{_TOLD}") + _PLAIN,
    # one recipe has it where no other one has it, and where no code asks for it
    _PROGRAM.replace("{read}", _OF_LIGHTNING) + _PLAIN + _recipe("wide", inside=f"precision: 16{_TOLD}"),
    # a library reads the file: the other keys tell what `self.opt` is
    _MODEL.replace("{top}", "# as it is").replace("{inside}", f"second_order_noise: false{_TOLD}"),
)

CORRECT = (
    _PROGRAM.replace("{read}", _OF_LIGHTNING) + _PLAIN,
    _PROGRAM.replace("{read}", _OF_TRAINER)
    + _PLAIN
    + "# file: run.sh\npython train.py lightning.trainer.precision=8\n",
    # other code reads it there
    _PROGRAM.replace("{read}", f'{_OF_TRAINER} or lightning["precision"]') + _PLAIN,
    _PROGRAM.replace("{read}", f"{_OF_TRAINER} or amp(lightning)")
    + _PLAIN
    + "# file: amp.py\ndef amp(part):\n    return part.precision\n",
    # it is where it is asked for, too
    _PROGRAM.replace("{read}", _OF_LIGHTNING) + _PLAIN + _recipe("wide", "precision: 16", "precision: 16"),
    _MODEL.replace("{top}", "second_order_noise: false").replace("{inside}", "shuffle: true"),
    # the data set may take it
    _MODEL.replace("{top}", "# as it is").replace("{inside}", "second_order_noise: false")
    + "# file: data.py\nclass Pairs:\n    def __init__(self, size, second_order_noise):\n        self.size = size\n",
    _MODEL.replace("{top}", "# as it is").replace("{inside}", "second_order_noise: false")
    + '# file: data.py\nclass Pairs:\n    def __init__(self, opt):\n        self.noise = opt["second_order_noise"]\n',
)
