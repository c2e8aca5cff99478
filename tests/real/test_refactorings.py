"""A complete refactoring of a real tree is no finding: what is renamed, moved or taken apart everywhere still works.

MESHPROOF_MIRRORS names the folder of the clones (see test_clones).
"""

from __future__ import annotations

import io
import subprocess
import tarfile

import pytest

from tests.real.refactorings import Refactoring, Tree, refactorings, together
from tests.real.test_clones import clone
from validator.drift.change import Change, Side
from validator.files.languages import has_suffix
from validator.finding import Finding
from validator.registry import load_rules
from validator.run.config import Config
from validator.source import SourceFile

pytestmark = pytest.mark.slow

TREES = (
    "OpenRLHF/OpenRLHF", "volcengine/verl", "huggingface/trl", "huggingface/accelerate", "THUDM/slime",
    "inclusionAI/AReaL", "axolotl-ai-cloud/axolotl", "hiyouga/LLaMA-Factory",
)  # fmt: skip
SEED = 1
LEAST = 8  # refactorings of a tree
CHECKS = [rule for rule in load_rules() if rule.check_change is not None]
ROOT = "/tree"


def files(name: str) -> dict[str, bytes]:
    """The files of the newest commit of a clone that a run reads, and its pages."""
    command = ["git", "-C", str(clone(*name.split("/"))), "archive", "HEAD"]
    data = subprocess.run(command, check=True, capture_output=True).stdout
    found = {}
    with tarfile.open(fileobj=io.BytesIO(data)) as tar:
        for entry in tar:
            if (
                entry.isfile()
                and entry.size < 1_000_000
                and (has_suffix(entry.name) or entry.name.endswith((".md", ".mdx")))
            ):
                held = tar.extractfile(entry)
                found[entry.name] = held.read() if held is not None else b""
    return found


class Before:
    """A tree as it was, which many changes share."""

    def __init__(self, texts: dict[str, bytes]) -> None:
        self.config = Config(root=ROOT)
        self.sources = {p: SourceFile(p, f"{ROOT}/{p}", data) for p, data in texts.items() if has_suffix(p)}
        self.side = Side(self.sources.values(), self.config)

    def findings(self, made: Refactoring) -> list[Finding]:
        """What the rules about changes say of a refactoring."""
        after = {path: source for path, source in self.sources.items() if path not in made.files}
        for path, data in made.files.items():
            if data is not None and has_suffix(path):
                after[path] = SourceFile(path, f"{ROOT}/{path}", data)
        changed = [f"{ROOT}/{path}" for path in made.files if has_suffix(path)]
        change = Change(self.side, Side(after.values(), self.config), changed)
        return [each for rule in CHECKS if rule.check_change is not None for each in rule.check_change(change)]


@pytest.mark.parametrize("name", TREES)
def test_complete_refactorings_are_not_reported(name: str) -> None:
    texts = files(name)
    before = Before(texts)
    made = list(refactorings(Tree(texts), SEED))
    assert len(made) >= LEAST
    made.append(together(made))
    said = [
        f"{each.kind}, {each.target}: {finding.code} {finding.path}:{finding.span.line}: {finding.message}"
        for each in made
        for finding in before.findings(each)
    ]
    assert not said, "\n".join(said)
