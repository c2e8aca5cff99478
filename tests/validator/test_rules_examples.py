"""The examples of every rule are its tests: the marked lines are reported, as often as marked, no others."""

from __future__ import annotations

from pathlib import Path

import pytest

from validator import explain
from validator.examples import expected, run
from validator.registry import load_rules
from validator.rule import FAMILIES, LoadedRule

RULES = load_rules()
EXAMPLES = [
    pytest.param(rule, text, id=f"{rule.rule.code}-{kind}-{number}")
    for rule in RULES
    for kind, texts in (("incorrect", rule.incorrect), ("correct", rule.correct))
    for number, text in enumerate(texts)
]


@pytest.mark.parametrize(("rule", "example"), EXAMPLES)
def test_example_is_reported_exactly_where_it_says(rule: LoadedRule, example: str, tmp_path: Path) -> None:
    outcome = run(rule, example, str(tmp_path))
    assert outcome.errors == []
    assert outcome.found == outcome.expected, "\n".join(finding.message for finding in outcome.findings)


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.rule.code)
def test_rule_module_is_complete(rule: LoadedRule) -> None:
    code = rule.rule.code
    assert FAMILIES[code[:3]] == rule.family
    assert rule.incorrect, "a rule needs an example that it reports"
    assert len(rule.correct) >= 2, "a rule needs two near misses"
    assert all(expected(text, code) for text in rule.incorrect), "an incorrect example marks no line"
    assert not any(expected(text, code) for text in rule.correct), "a correct example marks a line"
    doc = explain.read(rule.doc)
    assert doc.summary.endswith(".")
    titles = [title for title, _ in doc.sections]
    assert {"What it does", "Why is this bad"} <= set(titles)
    assert rule.rule.name == rule.rule.name.lower()
    assert "_" not in rule.rule.name
