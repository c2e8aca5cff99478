"""What a rule's own module says of it: for `--explain`, `--list-rules`, the reference pages and SARIF."""

from __future__ import annotations

import re
import textwrap
from typing import NamedTuple

from validator.errors import UsageError
from validator.registry import ALL, is_prefix, load_rules, meant
from validator.rule import LoadedRule

_MARK = re.compile(r"[ \t]*# error: [A-Z]+[0-9]+(?:,? +[A-Z]+[0-9]+)*$", re.MULTILINE)
_LONGEST = 60  # lines of an example worth showing


class Doc(NamedTuple):
    """A rule's docstring: its first sentence, and its sections by title, in order."""

    summary: str
    sections: tuple[tuple[str, str], ...]


def known(folders: tuple[str, ...]) -> list[LoadedRule]:
    return load_rules(folders)


def read(doc: str) -> Doc:
    """Split a docstring: a line at the margin that is followed by indented text is a section's title."""
    summary, _, rest = doc.partition("\n\n")
    sections: list[tuple[str, list[str]]] = []
    lines = rest.split("\n")
    for index, line in enumerate(lines):
        follows = lines[index + 1] if index + 1 < len(lines) else ""
        if line and not line[0].isspace() and follows[:1].isspace() and follows.strip():
            sections.append((line.strip().rstrip(":"), []))
        elif sections:
            sections[-1][1].append(line)
        elif line.strip():
            summary += "\n" + line
    texts = ((title, textwrap.dedent("\n".join(body)).strip("\n")) for title, body in sections)
    return Doc(" ".join(summary.split()), tuple(texts))


def find(rules: list[LoadedRule], wanted: str) -> LoadedRule:
    """The rule of a code or name. Raises UsageError."""
    for each in rules:
        if wanted.upper() == each.rule.code or wanted == each.rule.name:
            return each
    raise UsageError(f"--explain: unknown rule {wanted!r}{meant(wanted, rules)}")


def _beginning_with(rules: list[LoadedRule], wanted: str) -> list[LoadedRule]:
    """The rules whose codes begin with what is wanted, or `ALL`; none where it is a whole code or begins none."""
    if wanted.upper() == ALL:
        return rules
    if not is_prefix(wanted) or any(each.rule.code == wanted.upper() for each in rules):
        return []
    return [each for each in rules if each.rule.code.startswith(wanted.upper())]


def listed(rules: list[LoadedRule], as_json: bool) -> str:
    """All rules, one a line or as JSON."""
    if as_json:
        import json

        return json.dumps([_as_dict(each) for each in rules], indent=2) + "\n"
    width = max((len(each.rule.name) for each in rules), default=0)
    lines = []
    for each in rules:
        rule = each.rule
        fix = {"safe": "fix", "unsafe": "unsafe fix", None: ""}[rule.fix]
        columns = (
            rule.code,
            f"{rule.name:<{width}}",
            f"{rule.severity:<7}",
            f"{fix:<10}",
            read(each.doc).summary,
        )
        lines.append("  ".join(columns))
    return "\n".join(lines) + "\n"


def _as_dict(each: LoadedRule) -> dict[str, object]:
    rule, doc = each.rule, read(each.doc)
    return {
        "code": rule.code,
        "name": rule.name,
        "severity": rule.severity,
        "family": each.family,
        "fix": rule.fix,
        "stable_since": rule.stable_since,
        "summary": doc.summary,
    }


def explained(rules: list[LoadedRule], wanted: str) -> str:
    """The page of one rule as plain text; of the beginning of codes the list of its rules. Raises UsageError."""
    if family := _beginning_with(rules, wanted):
        return f"{listed(family, False)}\n--explain {family[0].rule.code} explains one of them\n"
    each = find(rules, wanted)
    rule, doc = each.rule, read(each.doc)
    fix = {"safe": "a safe fix", "unsafe": "an unsafe fix", None: "no fix"}[rule.fix]
    parts = [
        f"{rule.code} {rule.name}\n{rule.severity} · {each.family} · {fix} · since {rule.stable_since}",
        textwrap.fill(doc.summary or "Its module says nothing about it: it has no docstring.", 100),
    ]
    parts += [f"{title}\n{textwrap.indent(text, '    ')}" for title, text in doc.sections]
    for title, examples in (("Reported", each.incorrect), ("Silent", each.correct)):
        if (shown := example(examples)) is not None:
            parts.append(f"{title}\n{textwrap.indent(shown, '    ')}")
    parts.append(f"Silence it on one line with\n    # validator: ignore[{rule.code}] the reason")
    return "\n\n".join(parts) + "\n"


def example(examples: tuple[str, ...], keep_marks: bool = False) -> str | None:
    """The first example that a person can read, without the marks for the tests."""
    for text in examples:
        lines = text.strip("\n").split("\n")
        if len(lines) <= _LONGEST and max(map(len, lines)) < 200:
            shown = "\n".join(lines) if keep_marks else _MARK.sub("", "\n".join(lines))
            return "".join(char if char.isprintable() or char == "\n" else "�" for char in shown)
    return None
