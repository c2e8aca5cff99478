"""What callables of torch take in which of its releases, under the names by which users call them.

One table for each large package of torch, loaded when one of its names is asked for; `tests/torch_releases.py` reads
them off the releases, grammar at the head of each. Rows are texts inside of the tables: a thousand are read at once.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from functools import cache

from validator.files.tables import load_toml
from validator.models.signatures import Library, Signature

PACKAGES = ("distributed", "nn", "optim", "utils", "cuda", "amp", "ao", "fx", "onnx", "distributions")
TABLES = ("torch", *PACKAGES, "others")
_FOLDER = os.path.join(os.path.dirname(os.path.abspath(__file__)), "torch")


def table_of(dotted: str) -> str:
    """The table in which a name of torch stands: of a package, `torch` for what torch itself offers, or the last."""
    below, *deeper = dotted.split(".")[1:] or [""]
    if below in PACKAGES:
        return below
    return "others" if deeper and not below[:1].isupper() else "torch"


class Table:
    """The table of one package."""

    def __init__(self, name: str) -> None:
        table = load_toml(os.path.join(_FOLDER, f"{name}.toml"))
        calls = {
            f"{module}.{called}": words for module, text in table["calls"].items() for called, words in _calls(text)
        }
        also = table["also"].items()
        self.homes = {f"{m}.{name}": f"{home}.{name}" for m, text in also for home, name in _also(text)}
        self.library = Library("torch", {"releases": table["releases"], "calls": calls, "instead": {}, "hooks": {}})

    def home(self, dotted: str) -> str:
        """The name of the row, here or in another table, of a callable or of a method of a class."""
        owner, _, last = dotted.rpartition(".")
        if dotted in self.homes or dotted in self.library.calls or owner not in self.homes:
            return self.homes.get(dotted, dotted)
        return f"{self.homes[owner]}.{last}"


def _rows(text: str) -> Iterator[tuple[str, str]]:
    """The rows of a text, in two parts; what is indented continues a row."""
    for row in text.replace("\n    ", " ").splitlines():
        first, _, rest = row.partition(":")
        yield first, rest.strip()


def _calls(text: str) -> Iterator[tuple[str, list[str]]]:
    for first, rest in _rows(text):
        name, _, since = first.partition(" ")
        yield name, [f"({since})"] * bool(since) + (rest.split(", ") if rest else [])


def _also(text: str) -> Iterator[tuple[str, str]]:
    return ((home, name) for home, names in _rows(text) for name in names.split(", "))


@cache
def table(name: str) -> Table:
    return Table(name)


@cache
def torch_signature(dotted: str) -> Signature | None:
    """What a callable of torch takes, by any of its dotted names; None where no table has it."""
    if not dotted.startswith("torch."):
        return None
    name = table(table_of(dotted)).home(dotted)
    library = table(table_of(name)).library
    return Signature(library, name) if name in library.calls else None
