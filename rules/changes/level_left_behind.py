"""A key of a recipe that a change parted from the code that asks for it, at another level.

What it does
    Compares where recipes (YAML, JSON, TOML) have a key before and after a change, and where code asks for it. Reports
    a key that the change moved with its value into another section of a recipe, while code still asks for it where it
    was, and no other recipe had it where it is now; and code that asks another section for a key since, while the
    recipes have it in the one that was asked before. What section a thing is, the keys tell that lead to it, and those
    that are asked of it besides. Silent where a function that the change altered, or any that it does not show to ask
    elsewhere, may ask for the key where it stands now.

Why is this bad
    The setting has no effect any more: `get` gives its default, or the key is missing when it is needed.
"""

from __future__ import annotations

from collections.abc import Iterator

from validator.drift.change import Change
from validator.drift.settings.moved_levels import MovedLevels, Parted
from validator.finding import Finding, Related
from validator.rule import Rule

RULE = Rule("MP916", "level-left-behind", "warning", stable_since="1.1")


def check_change(change: Change) -> Iterator[Finding]:
    for row in change.analysis(MovedLevels).parted:
        yield _of_recipe(row) if row.moved else _of_code(row)


def _of_recipe(row: Parted) -> Finding:
    return RULE.finding(
        row.recipe.source.path,
        row.recipe.setting(row.found, row.name).at,
        f"the change moved `{row.name}`, which is {_section(row.found)} now;"
        f" `{row.asked.unit.path}` still looks for it {_section(row.wanted)}",
        help=f"set `{_dotted(row.wanted, row.name)}`, or ask for it where it is now",
        related=[Related(row.asked.unit.path, row.asked.at[0], "asked for here")],
        context=_dotted(row.found, row.name),
    )


def _of_code(row: Parted) -> Finding:
    return RULE.finding(
        row.asked.unit.path,
        row.asked.at,
        f"`{row.name}` is looked for {_section(row.wanted)} since the change; recipes have it {_section(row.found)},"
        " where it was looked for before",
        help=f"look for it {_section(row.found)}, or move it in the recipes",
        related=[
            Related(row.recipe.source.path, row.recipe.setting(row.found, row.name).at[0], f"`{row.name}` is set here")
        ],
        context=f"{row.asked.unit.qualname}:{_dotted(row.wanted, row.name)}",
    )


def _dotted(section: tuple[str, ...], name: str) -> str:
    return ".".join((*section, name))


def _section(section: tuple[str, ...]) -> str:
    return f"in `{'.'.join(section)}`" if section else "at the top level"


_TRAIN = """file: train.py
import sys

from omegaconf import OmegaConf


def main():
    config = OmegaConf.load(sys.argv[1])
    lightning = config.pop("lightning", OmegaConf.create())
    trainer = lightning.get("trainer", OmegaConf.create())
    print(config.model.name, trainer.get("max_steps", 100), lightning.get("logger", None))
    return {read}


main()
"""


def _recipe(name: str, outside: str = "precision: 16", inside: str = "benchmark: true") -> str:
    return f"""file: configs/{name}.yaml
model: {{name: {name}}}
lightning:
  logger: csv
  {outside}
  trainer:
    max_steps: 100
    {inside}
"""


_OF_LIGHTNING = 'lightning.get("precision", 32)'
_OF_TRAINER = 'trainer.get("precision", 32)'
_TOLD = "  # error: MP916"
_BEFORE = f"# before: {_TRAIN[6:]}".replace("{read}", _OF_LIGHTNING)


def _moved(inside: str = "precision: 16", more: str = "") -> str:
    """One of two recipes changed."""
    old, other = _recipe("large"), _recipe("small")
    new = _recipe("large", "# as it is", inside)
    code = _TRAIN.replace("{read}", _OF_LIGHTNING)
    before = "".join(f"# before: {part[6:]}" for part in (code, old, other))
    return before + "".join(f"# {part}" for part in (code, new, other)) + more


def _asked(read: str, mark: str = "", recipe: str | None = None) -> str:
    """Code changed, and the recipe as it is told."""
    was = _recipe("large")
    before = _BEFORE + f"# before: {was[6:]}"
    return f"{before}# {_TRAIN.replace('{read}', read + mark)}# {recipe or was}"


INCORRECT = (
    _moved(f"precision: 16{_TOLD}"),
    _asked(_OF_TRAINER, _TOLD),
)

CORRECT = (
    # both were changed; the key is asked for in both; another value, which is another setting
    _asked(_OF_TRAINER, recipe=_recipe("large", "# as it is", "precision: 16")),
    _asked(f"{_OF_TRAINER} or {_OF_LIGHTNING}"),
    _moved("precision: bf16"),
)
