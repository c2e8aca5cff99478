"""Reads the signatures of torch's public Python API off its releases, and writes the tables that MP124 asks.

    python -m tests.torch_releases WHEELS validator/models/signatures/torch

WHEELS is a folder of wheels of torch, one of each minor release (`pip download --no-deps`); archives of their `.py`
files alone do. Each row stands under the names that users write.
"""

from __future__ import annotations

import argparse
import ast
import textwrap
from collections.abc import Iterator
from pathlib import Path

from tests.library_releases import Parameter, Version, merged, ranges, version_of
from tests.torch_source import Definition, Module, Release
from validator.models.signatures.torch_tables import table_of

_UNTOLD = [Parameter("*_", True, False), Parameter("**__", True, False)]  # takes whatever it is given
Parameters = list[Parameter] | None  # None: they cannot be told


class Unit:
    """What is known of a name of a module: its own parameters (under "") and those of its methods, by release, and
    which definitions it has meant."""

    def __init__(self) -> None:
        self.rows: dict[str, dict[Version, list[Parameter]]] = {}
        self.origins: set[str] = set()

    def covers(self, other: Unit) -> bool:
        """Whether it tells all that another name of the same thing tells."""
        return bool(self.origins & other.origins) and all(
            method in self.rows and all(self.rows[method].get(version) == params for version, params in row.items())
            for method, row in other.rows.items()
        )


Units = dict[tuple[str, str], Unit]  # by module and name


def names_of(release: Release) -> Iterator[tuple[str, str, str, dict[str, Parameters]]]:
    """The public names of the modules of a release: module, name, origin, and parameters as in a unit."""
    known: dict[str, dict[str, Parameters]] = {}
    for module in release.modules():
        for name in release.bindings(module):
            found = release.meaning(module, name)
            if name.startswith("_") or isinstance(found, Module):
                continue
            if not isinstance(found, Definition):
                yield module, name, "", {"": None}
                continue
            if found.name not in known:
                methods = release.methods(found) if isinstance(found.node, ast.ClassDef) else ()
                known[found.name] = {"": release.parameters(found), **dict(methods)}
            yield module, name, found.name, known[found.name]


def units(archives: list[Path]) -> Units:
    """What the releases tell of each name of each module."""
    found: Units = {}
    for release in (Release(each) for each in archives):
        for module, name, origin, taken in names_of(release):
            unit = found.setdefault((module, name), Unit())
            unit.origins.update({origin} - {""})
            for method, params in taken.items():
                unit.rows.setdefault(method, {})[release.version] = _UNTOLD if params is None else params
    for unit in found.values():
        for method in [m for m, row in unit.rows.items() if all(_takes_all(each) for each in row.values())]:
            del unit.rows[method]
    return {key: unit for key, unit in found.items() if unit.rows}


def _takes_all(params: list[Parameter]) -> bool:
    return {each.name[: each.name.count("*")] for each in params} == {"*", "**"}


def homes(found: Units) -> dict[tuple[str, str], str]:
    """For each name of each module the module under which its rows stand: one that tells all that this one tells."""
    by_name: dict[str, list[str]] = {}
    for module, name in found:
        by_name.setdefault(name, []).append(module)
    chosen: dict[tuple[str, str], str] = {}
    for name, modules in by_name.items():
        told = {module: sum(map(len, found[module, name].rows.values())) for module in modules}
        first: list[str] = []
        for module in sorted(modules, key=lambda m: (-told[m], "._" in m, m.count("."), len(m))):
            home = next((h for h in first if found[h, name].covers(found[module, name])), module)
            first += [home] * (home == module)
            chosen[module, name] = home
    return chosen


def row_of(name: str, row: dict[Version, list[Parameter]], there: list[Version]) -> str:
    """The line of one callable: `AdamW: params, lr=, *, fused= 2.0-`; behind the name the releases that have it."""
    words = merged(row, sorted(row))
    order = [word.partition(" ")[0].rstrip("=") for word in words]
    told = {version: params if _is_in_order(params, order) else _UNTOLD for version, params in row.items()}
    words = merged(told, sorted(told))
    return f"{name}{ranges(set(row), there)}: {', '.join(words)}".strip()


def _is_in_order(params: list[Parameter], order: list[str]) -> bool:
    """Whether the common order of all releases gives arguments without names to the parameters of one of them."""
    names = {each.name for each in params}
    plain = [each.name for each in params if not each.keyword and not each.name.startswith("*")]
    return [name for name in order if name in names and not name.startswith("*")][: len(plain)] == plain


def table(package: str, there: list[Version], rows: dict[str, list[str]], also: dict[str, dict[str, list[str]]]) -> str:
    """The text of the table of one package."""
    of = {"torch": "torch itself", "others": "torch's smaller packages"}.get(package, f"torch.{package}")
    first, last = (".".join(map(str, each)) for each in (there[0], there[-1]))
    lines = [
        f"# Signatures of {of}, read off torch {first} to {last} by `tests/torch_releases.py`: by module,",
        "# the names of callables, the releases that have one if not all do, and its parameters: `=` marks one with a",
        "# default, `*` begins the keyword-only ones; behind each the releases that take it, if not all do. `also`: by",
        "# module, which names of which other modules it has too.",
        f'releases = "{" ".join(".".join(map(str, v)) for v in there)}"',
        "",
        "[calls]",
    ]
    for module in sorted(rows):
        lines += [f"\"{module}\" = '''", *(part for row in sorted(rows[module]) for part in _wrapped(row)), "'''"]
    lines += ["", "[also]"]
    for module in sorted(also):
        lines += [f"\"{module}\" = '''"]
        for home, names in sorted(also[module].items()):
            lines += _wrapped(f"{home}: {', '.join(sorted(names))}")
        lines += ["'''"]
    return "\n".join(lines) + "\n"


def _wrapped(text: str) -> list[str]:
    return textwrap.wrap(text, 118, subsequent_indent="    ", break_long_words=False, break_on_hyphens=False)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("wheels", type=Path)
    parser.add_argument("tables", type=Path)
    given = parser.parse_args()
    archives = sorted(given.wheels.iterdir(), key=version_of)
    write(units(archives), [version_of(each) for each in archives], given.tables)


def write(found: Units, there: list[Version], folder: Path) -> None:
    """Write the tables of all packages."""
    rows: dict[str, dict[str, list[str]]] = {}
    also: dict[str, dict[str, dict[str, list[str]]]] = {}
    for (module, name), home in homes(found).items():
        package = table_of(f"{module}.{name}")
        if home == module:
            for method, row in found[module, name].rows.items():
                line = row_of(name + f".{method}" * bool(method), row, there)
                rows.setdefault(package, {}).setdefault(module, []).append(line)
        else:
            also.setdefault(package, {}).setdefault(module, {}).setdefault(home, []).append(name)
    for package in rows.keys() | also.keys():
        text = table(package, there, rows.get(package, {}), also.get(package, {}))
        (folder / f"{package}.toml").write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
