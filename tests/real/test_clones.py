"""Trees that exist only as clones: a commit with two sibling strategies, and the newest main.

MESHPROOF_MIRRORS names the folder of the clones, one per repository, as `OWNER+NAME/repo`, `OWNER/NAME` or
`NAME`. Without it these tests cannot run, and say so.
"""

from __future__ import annotations

import os
import subprocess
import tarfile
from pathlib import Path

import pytest

from tests.real import trees

pytestmark = pytest.mark.slow

TWO_STRATEGIES = "94074f7e"
FSDP2 = "openrlhf/utils/fsdp2/fsdp2.py"


def clone(owner: str, name: str) -> Path:
    folder = os.environ.get("MESHPROOF_MIRRORS")
    if not folder:
        pytest.skip("MESHPROOF_MIRRORS is not set: it names a folder of clones")
    for place in (f"{owner}+{name}/repo", f"{owner}/{name}", name):
        if (Path(folder) / place).is_dir():
            return Path(folder) / place
    pytest.skip(f"MESHPROOF_MIRRORS holds no clone of {owner}/{name}")


@pytest.fixture(scope="module")
def checkout(tmp_path_factory):
    """A function from a revision of OpenRLHF to its tree."""

    def of(revision: str) -> Path:
        repository = clone("OpenRLHF", "OpenRLHF")
        folder = tmp_path_factory.mktemp(f"openrlhf-{revision}")
        archive = folder / "tree.tar"
        command = ["git", "-C", str(repository), "archive", f"--output={archive}", revision, "openrlhf"]
        subprocess.run(command, check=True)
        with tarfile.open(archive) as tar:
            tar.extractall(folder, filter="data")
        return folder

    return of


def test_the_newest_tree_is_reported_on_sparingly_and_every_finding_has_a_verdict(checkout):
    tree = checkout("HEAD")

    assert len(trees.report(tree)["findings"]) <= trees.thousand_lines(tree)
    assert trees.not_judged(tree) == []


@pytest.mark.parametrize(
    ("rule", "words"),
    [
        ("MP108", ("load_ckpt", "load_optimizer_states")),
        ("MP108", ("load_ckpt", "load_lr_scheduler_states")),
        ("MP109", ("save_ckpt", "optimizer")),
        ("MP110", ("_step_count",)),
    ],
)
def test_what_a_careful_reader_finds_in_the_second_strategy(checkout, rule, words):
    found = trees.found(checkout(TWO_STRATEGIES))

    assert any(
        (rule, FSDP2) == (code, path) and all(word in message for word in words) for code, path, message in found
    )
