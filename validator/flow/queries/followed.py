"""What the analysis of objects follows and what it does not, as examples: the page `rules/OBJECTS.md`."""

from __future__ import annotations

import os
from typing import NamedTuple

from validator.files.tables import load_toml

_CLASSES = """\
class Actor:
    pass


class Critic:
    pass

"""


class Example(NamedTuple):
    """A program that asks `probe(x)` of which classes `x` is: `holds`; empty where that is not known for certain."""

    title: str
    holds: tuple[str, ...]
    code: str

    @property
    def program(self) -> str:
        own = "class Actor" in self.code
        return f"ROLE = input()\n\n\n{'' if own else _CLASSES}{self.code}"


def examples() -> list[Example]:
    """All examples, those that are followed first."""
    path = os.path.join(os.path.dirname(os.path.abspath(__file__)), "followed.toml")
    return [Example(row["title"], tuple(row.get("holds", ())), row["code"]) for row in load_toml(path)["example"]]


def page() -> str:
    """The text of the page."""
    lines = [
        "# Which objects are followed",
        "",
        "<!-- Made by `python -m validator.docs` from `validator/flow/queries/followed.toml`; change that. -->",
        "",
        "Rules about interfaces ask of which classes of the project an object is. Each way below is an example that a "
        "test runs; `probe(x)` stands for the place that is asked about, `Actor` and `Critic` for classes.",
    ]
    for title, followed in (("Followed", True), ("Not followed: rules that need a certain answer are silent", False)):
        lines += ["", f"## {title}"]
        for example in examples():
            if bool(example.holds) is followed:
                known = f" → {', '.join(f'`{name}`' for name in example.holds)}" if example.holds else ""
                lines += ["", f"**{example.title}**{known}", "", "```python", example.code.strip(), "```"]
    return "\n".join(lines) + "\n"
