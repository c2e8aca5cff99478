"""The reference page `rules/CONSTRAINTS.md`, generated from the table.

python -m rules.constraints.page            # write it
python -m rules.constraints.page --check    # exit 1 when it is stale
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from rules.constraints import BACKENDS, SECTIONS, TABLE, Constraint

PAGE = Path(__file__).resolve().parent.parent / "CONSTRAINTS.md"

_INTRODUCTION = """\
# Constraints

Generated from `rules/constraints/`; do not edit. Every constraint is checked wherever its quantities are
known: in code, in launch scripts, and before a benchmark starts anything. One that applies but lacks a
quantity is a note, "cannot be checked: …". Sizes count processes, batch sizes count samples, lengths count
tokens. `dp` is `world_size / (tp × ring × ulysses × pp)`.
"""


def page() -> str:
    """The page as Markdown."""
    parts = [_INTRODUCTION, _backends()]
    for title, section in SECTIONS.items():
        parts.append(f"## {title}\n")
        parts.extend(_entry(constraint) for constraint in section)
    return "\n".join(parts)


def _backends() -> str:
    rows = [
        "## Backends\n",
        "| backend | key/value heads | model-parallel sizes | MLP size | as stated in |",
        "| --- | --- | --- | --- | --- |",
    ]
    for name, backend in BACKENDS.items():
        mlp = "divides by tp" if backend.even_mlp else "any"
        rows.append(f"| {name} | {backend.kv_heads} | {', '.join(sorted(backend.splits))} | {mlp} | {backend.source} |")
    return "\n".join(rows) + "\n"


def _entry(constraint: Constraint) -> str:
    lines = [f"### {constraint.id}\n", f"`{constraint.rule}` ({constraint.severity})\n"]
    if constraint.when:
        lines.append(f"Applies when {' and '.join(f'`{c.text()}`' for c in constraint.when)}.\n")
    lines.append(f"Needs {', '.join(f'`{name}`' for name in constraint.needs)}; mended through ")
    lines[-1] += f"{', '.join(f'`{name}`' for name in constraint.adjust)}.\n"
    lines.extend(f"- {source}" for source in constraint.sources)
    return "\n".join(lines) + "\n"


def main(arguments: Sequence[str]) -> int:
    """Write the page, or with `--check` compare it. Returns the exit status."""
    if list(arguments) not in ([], ["--check"]):
        print("usage: python -m rules.constraints.page [--check]", file=sys.stderr)
        return 2
    text = page()
    if not arguments:
        PAGE.write_text(text, encoding="utf-8")
        return 0
    if PAGE.is_file() and PAGE.read_text(encoding="utf-8") == text:
        return 0
    print(f"{PAGE.name} does not match the table of {len(TABLE)} constraints: run this without --check",
          file=sys.stderr)  # fmt: skip
    return 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
