"""Lines of code in bench/ before a set of features and now, the features left out.

    python tests/benchmarks/bench_lines.py [--before REV] [--now REV] [--modules]

A line of code is one that holds anything but blanks, comments and docstrings. What is a feature of its own stands in
`bench_features.toml` beside this file, as modules or as functions, classes and methods of a module; a name that does
not exist (any more) is an error, so that the table cannot outlive the code. Without `--now` the working tree is read.
The result is Markdown: a table by folder, where a module of the earlier tree counts for the folder in which its code
lies now, and the features.
"""

from __future__ import annotations

import argparse
import ast
import io
import subprocess
import sys
import tokenize
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

ROOT = Path(__file__).resolve().parents[2]
TABLE = Path(__file__).with_name("bench_features.toml")
NO_CODE = {
    tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER,
}  # fmt: skip
DEFINITIONS = (ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)


def code_lines(text: str) -> set[int]:
    """Numbers of the lines that hold code; strings that stand alone are documentation."""
    tokens = tokenize.generate_tokens(io.StringIO(text).readline)
    found = {n for one in tokens if one.type not in NO_CODE for n in range(one.start[0], one.end[0] + 1)}
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, (ast.Module, *DEFINITIONS)) and ast.get_docstring(node, clean=False) is not None:
            found -= set(range(node.body[0].lineno, (node.body[0].end_lineno or 0) + 1))
    return found


def definitions(text: str) -> dict[str, set[int]]:
    """The lines of each function and class at top level, and of each `Class.method`."""
    lines, found = code_lines(text), {}
    pairs = [("", node) for node in ast.parse(text).body]
    for prefix, node in pairs:
        if isinstance(node, DEFINITIONS):
            start = min([node.lineno, *(each.lineno for each in node.decorator_list)])
            found[prefix + node.name] = lines & set(range(start, (node.end_lineno or 0) + 1))
            if isinstance(node, ast.ClassDef) and not prefix:
                pairs += [(f"{node.name}.", each) for each in node.body]
    return found


def sources(revision: str | None) -> dict[str, str]:
    """By path below bench/: the text of each module."""
    if revision is None:
        return {str(p.relative_to(ROOT / "bench")): p.read_text("utf-8") for p in (ROOT / "bench").rglob("*.py")}
    listed = _git("ls-tree", "-r", "--name-only", revision, "--", "bench").split("\n")
    return {name[6:]: _git("show", f"{revision}:{name}") for name in listed if name.endswith(".py")}


def _git(*arguments: str) -> str:
    return subprocess.run(["git", "-C", str(ROOT), *arguments], capture_output=True, text=True, check=True).stdout


def of_features(now: Mapping[str, str], features: Mapping[str, list[str]]) -> Iterator[tuple[str, str, set[int]]]:
    """A feature, a module, and the lines of the module that are the feature's."""
    for feature, places in features.items():
        for place in places:
            path, _, names = place.partition(":")
            modules = [name for name in now if name == f"{path}.py" or name.startswith(f"{path}/")]
            if not modules:
                raise SystemExit(f"{TABLE.name}: there is no bench/{path}")
            for module in modules:
                known = definitions(now[module]) if names else {}
                for name in names.split():
                    if name not in known:
                        raise SystemExit(f"{TABLE.name}: bench/{module} has no {name}")
                yield (
                    feature,
                    module,
                    set().union(*(known[n] for n in names.split())) if names else code_lines(now[module]),
                )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    table = tomllib.loads(TABLE.read_text("utf-8"))
    parser.add_argument("--before", default=table["before"], help="a commit; default: the table's")
    parser.add_argument("--now", help="a commit; default: the working tree")
    parser.add_argument("--modules", action="store_true", help="a row for each module of today")
    options = parser.parse_args()
    before, now = sources(options.before), sources(options.now)
    taken: dict[str, set[int]] = {module: set() for module in now}
    sizes: Counter[str] = Counter()
    for feature, module, lines in of_features(now, table["features"]):
        sizes[feature] += len(lines - taken[module])  # a line counts once, for the feature that is named first
        taken[module] |= lines
    moved = {name: folder for folder, names in table["moved"].items() for name in names}

    def place(module: str) -> str:
        return module if options.modules else module.rpartition("/")[0].partition("/")[0] or "(bench itself)"

    rows: dict[str, list[int]] = {}
    for module, text in before.items():
        rows.setdefault(place(f"{moved[module[:-3]]}/x" if module[:-3] in moved else module), [0, 0, 0])[0] += len(
            code_lines(text)
        )
    for module, text in now.items():
        row = rows.setdefault(place(module), [0, 0, 0])
        row[1] += len(code_lines(text))
        row[2] += len(taken[module])
    rows = dict(sorted(rows.items())) | {"**all**": [sum(row[n] for row in rows.values()) for n in range(3)]}
    print("| folder | before | now | of features | now, the rest |\n| --- | ---: | ---: | ---: | ---: |")
    for name, (old, new, own) in rows.items():
        print(f"| {name} | {old:,} | {new:,} | {own:,} | {new - own:,} |")
    seams = sum(len(code_lines(now[f"{module}.py"])) for module in table["registries"])
    print(f"\nWhat finds and describes modules of one kind, part of the rest: {seams:,} lines.")
    print("\n| feature | lines |\n| --- | ---: |")
    for feature in table["features"]:
        print(f"| {feature} | {sizes[feature]:,} |")


if __name__ == "__main__":
    main()
