"""What README and CONTRIBUTING show is true: commands print what they say, snippets load, links lead somewhere."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from validator.examples import run
from validator.registry import load_rules
from validator.rule import FAMILIES
from validator.run import arguments, config

ROOT = Path(__file__).resolve().parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")
CONTRIBUTING = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
PAGE = ROOT / "rules" / "changes" / "what-a-change-breaks.md"
CHANGES = PAGE.read_text(encoding="utf-8")
SKIPPED = "…"


def blocks(text: str, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)


def snippet(text: str, name: str) -> str:
    """The snippet that a comment before it calls by a file's name."""
    found = re.search(rf"<!-- tested: {re.escape(name)} -->\n```\w+\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    assert found is not None, f"no snippet is called {name}"
    return found[1]


def sessions(text: str = README, folder: str = ".") -> list[tuple[str, str, str]]:
    """Each command of the console blocks as (folder, command, printed output)."""
    found = []
    for block in blocks(text, "console"):
        for part in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
            command, _, output = part.partition("\n")
            if command.startswith("cd "):
                folder = command[3:]
            else:
                found.append((folder, command, output))
    return found


@pytest.mark.parametrize(("folder", "command", "printed"), sessions(), ids=lambda value: str(value)[:60])
def test_a_command_prints_what_the_readme_says(folder, command, printed):
    words = shlex.split(command)
    assert words[0] == "python"
    environment = {**os.environ, "COLUMNS": "200"}
    done = subprocess.run(
        [sys.executable, *words[1:]],
        cwd=ROOT / folder, env=environment, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.stderr == ""
    assert done.returncode in (0, 1)
    missing = in_order(printed.splitlines(), done.stdout.splitlines())
    assert missing is None, f"{command!r} does not print {missing!r}, but:\n{done.stdout}"


def in_order(wanted: list[str], printed: list[str]) -> str | None:
    """The first wanted line that is not printed where it should be; `…` stands for any number of lines."""
    position, skipping = 0, False
    for line in wanted:
        if line == SKIPPED:
            skipping = True
            continue
        reach = len(printed) if skipping else position + 1
        hits = [at for at in range(position, min(reach, len(printed))) if printed[at].startswith(line)]
        if not hits:
            return line
        position, skipping = hits[0] + 1, False
    return None if skipping or position == len(printed) else f"the end, before {printed[position]!r}"


def test_the_make_targets_that_are_named_exist():
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    named = set(
        re.findall(r"\bmake (\w+)", "\n".join(blocks(README, "sh")) + "".join(re.findall(r"`[^`]+`", CONTRIBUTING)))
    )
    assert {"demo", "test", "lint"} <= named
    assert all(re.search(rf"^{name}:", makefile, re.MULTILINE) for name in named)


def test_links_lead_to_files():
    for text, folder in ((README, ROOT), (CONTRIBUTING, ROOT), (CHANGES, PAGE.parent)):
        for target in re.findall(r"\]\(([^)#]+)\)", text):
            assert "://" in target or (folder / target).exists(), target


def test_the_table_of_rules_has_every_family():
    for prefix, family in FAMILIES.items():
        assert re.search(rf"^\| {prefix} \| \[?{family}\b", README, re.MULTILINE), family


def test_the_configuration_shown_is_accepted(tmp_path):
    (tmp_path / "pyproject.toml").write_text(snippet(README, "pyproject.toml"))

    loaded = config.load(str(tmp_path))

    assert loaded.ignore == ("MP303",)
    assert not loaded.baseline


def test_the_hooks_shown_exist():
    shown = yaml.safe_load(snippet(README, ".pre-commit-config.yaml"))
    offered = {hook["id"] for hook in yaml.safe_load((ROOT / ".pre-commit-hooks.yaml").read_text())}
    assert {hook["id"] for repo in shown["repos"] for hook in repo["hooks"]} <= offered
    assert all(f"`{name}`" in README for name in offered)


def test_what_a_change_breaks_is_found_as_its_page_says(tmp_path):
    for folder in ("before", "after"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "saving.py").write_text(snippet(CHANGES, f"{folder}/saving.py"))
        (tmp_path / folder / "trainer.py").write_text(snippet(CHANGES, "trainer.py"))
    shown = sessions(CHANGES, "after")
    assert len(shown) == 3
    for folder, command, printed in shown:
        done = subprocess.run(
            [sys.executable, *shlex.split(command)[1:]], cwd=tmp_path / folder, text=True, check=False,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, env={**os.environ, "PYTHONPATH": str(ROOT)},
        )  # fmt: skip
        assert in_order(printed.splitlines(), done.stdout.splitlines()) is None, f"{command}:\n{done.stdout}"


def test_the_page_about_changes_tells_of_every_rule_and_option():
    codes = [each.rule.code for each in load_rules() if each.check_change is not None]
    assert codes
    assert all(f"**{code}**" in CHANGES for code in codes)
    assert all(f"`{option}`" in CHANGES for option in ("--staged", "--no-change-rules", "--against DIR"))
    hooks = yaml.safe_load(snippet(CHANGES, ".pre-commit-config.yaml"))
    assert hooks["repos"][0]["hooks"] == [{"id": "meshproof"}]
    steps = yaml.safe_load(snippet(CHANGES, ".github/workflows/meshproof.yml"))["jobs"]["changes"]["steps"]
    (command,) = (step["run"] for step in steps if step.get("run", "").startswith("meshproof "))
    options = arguments.parser().parse_args(shlex.split(command)[1:])
    arguments.check_combinations(options)
    assert options.output == steps[-1]["with"]["sarif_file"]


def test_the_suppression_shown_silences_and_is_used(tmp_path):
    text = snippet(README, "suppressed.py")
    command = [sys.executable, "-m", "validator", "--isolated", "--format", "concise", "."]
    (tmp_path / "suppressed.py").write_text(text)
    silenced = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    (tmp_path / "suppressed.py").write_text(re.sub(r"  # validator.*", "", text))
    reported = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)

    assert (silenced.returncode, reported.returncode) == (0, 1), silenced.stdout + reported.stdout
    assert "MP501" in reported.stdout


def test_the_rule_shown_is_a_rule_and_its_examples_hold(tmp_path):
    name = "process_group_without_timeout.py"
    folder = tmp_path / "my_rules"
    folder.mkdir()
    (folder / name).write_text(snippet(CONTRIBUTING, name))

    rule = next(each for each in load_rules([str(folder)]) if each.rule.code == "LAB001")

    assert rule.incorrect
    assert len(rule.correct) >= 2
    for number, example in enumerate((*rule.incorrect, *rule.correct)):
        outcome = run(rule, example, str(tmp_path / str(number)))
        assert outcome.errors == []
        assert outcome.found == outcome.expected
