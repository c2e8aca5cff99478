"""`python -m validator.docs`: writes the reference page of each family from its rule modules, and that of the objects
that are followed.

With `--check` it writes nothing and fails where a page is not what the modules say.
"""

from __future__ import annotations

import argparse
import os
import sys

from validator import pin_packages
from validator.explain import example, read
from validator.flow.queries.followed import page
from validator.registry import load_rules
from validator.rule import LoadedRule


def main(arguments: list[str] | None = None) -> int:
    """Write or check the pages; the exit status."""
    parser = argparse.ArgumentParser(prog="python -m validator.docs", description=__doc__)
    parser.add_argument("--check", action="store_true", help="fail where a page is stale; write nothing")
    options = parser.parse_args(arguments)
    pin_packages()
    stale = [path for path, text in pages().items() if _content(path) != text]
    for path in stale:
        if options.check:
            print(f"{os.path.relpath(path)} is stale: run `python -m validator.docs`", file=sys.stderr)
            continue
        with open(path, "w", encoding="utf-8", newline="\n") as file:
            file.write(pages()[path])
    return 1 if stale and options.check else 0


def pages() -> dict[str, str]:
    """The text of each page by its path."""
    import rules

    home = os.path.dirname(os.path.abspath(rules.__file__ or ""))
    families: dict[str, list[LoadedRule]] = {}
    for each in load_rules():
        families.setdefault(each.family, []).append(each)
    found = {os.path.join(home, family, "README.md"): _page(family, members) for family, members in families.items()}
    return {**found, os.path.join(home, "OBJECTS.md"): page()}


def _content(path: str) -> str | None:
    try:
        with open(path, encoding="utf-8", newline="") as file:
            return file.read()
    except OSError:
        return None


def _page(family: str, members: list[LoadedRule]) -> str:
    lines = [
        f"# {family.capitalize()} rules",
        "",
        "<!-- Made by `python -m validator.docs` from the modules beside this file; change those. -->",
        "",
        "| Code | Name | Severity | Fix | |",
        "| --- | --- | --- | --- | --- |",
    ]
    for each in members:
        rule = each.rule
        link = f"[{rule.code}](#{rule.code.lower()}-{rule.name})"
        lines.append(f"| {link} | `{rule.name}` | {rule.severity} | {rule.fix or ''} | {read(each.doc).summary} |")
    return "\n".join(lines) + "\n" + "".join(_entry(each) for each in members)


def _entry(each: LoadedRule) -> str:
    rule, doc = each.rule, read(each.doc)
    parts = [f"## {rule.code} {rule.name}", doc.summary]
    for title, text in doc.sections:
        parts.append(f"**{title}**\n\n{_linked(text) if title == 'References' else text}")
    for title, examples in (("Reported", each.incorrect), ("Silent", each.correct)):
        if (shown := example(examples, keep_marks=True)) is not None:
            parts.append(f"**{title}**\n\n{_fenced(shown)}")
    parts.append(f"Since {rule.stable_since}.")
    return "\n" + "\n\n".join(parts) + "\n"


def _linked(text: str) -> str:
    return "\n".join(f"- <{line.strip()}>" if line.strip().startswith("http") else line for line in text.split("\n"))


def _fenced(text: str) -> str:
    fence = "````" if "```" in text else "```"
    return f"{fence}python\n{text}\n{fence}"


if __name__ == "__main__":
    sys.exit(main())
