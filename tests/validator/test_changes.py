"""Two revisions compared from the command line: which files count, what is said, and what cannot be compared."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from validator import cli

ENGINE = """\
import torch.distributed as dist


class Engine:
    def pause_generation(self, reason):
        self.paused = reason
"""
RENAMED = ENGINE.replace("pause_generation", "pause_requests")
TRAINER = """\
def sync(engines):
    for engine in engines:
        engine.pause_generation("weights")
"""
MENDED = TRAINER.replace("pause_generation", "pause_requests")
CONCISE = ("--format", "concise", "--no-cache")


def git(folder: Path, *arguments: str) -> str:
    identity = ("-c", "user.name=t", "-c", "user.email=t@example.org", "-c", "init.defaultBranch=main")
    environment = {key: value for key, value in os.environ.items() if not key.startswith("GIT_")}
    command = ["git", *identity, *arguments]
    return subprocess.run(
        command, cwd=folder, check=True, capture_output=True, text=True, timeout=60, env=environment
    ).stdout


def write(folder: Path, **files: str) -> None:
    """Write Python files; `rl__engine` is `rl/engine.py`."""
    for name, text in files.items():
        path = folder / (name.replace("__", "/", 1) + ".py")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


@pytest.fixture(autouse=True)
def repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working directory with one commit: a class, and a caller in another file."""
    folder = tmp_path / "project"
    folder.mkdir()
    write(folder, rl__engine=ENGINE, rl__trainer=TRAINER)
    git(folder, "init", "-q")
    git(folder, "add", ".")
    git(folder, "commit", "-qm", "one")
    for name in [name for name in os.environ if name.startswith(("GIT_", "PRE_COMMIT"))]:
        monkeypatch.delenv(name)
    monkeypatch.chdir(folder)
    return folder


def run(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    status = cli.main(list(arguments))
    output = capsys.readouterr()
    return status, output.out, output.err


def found(capsys: pytest.CaptureFixture[str], *arguments: str) -> list[tuple[str, int, str]]:
    """The findings as (path, line, code)."""
    status, out, err = run(capsys, *arguments, "--format", "json")
    assert status in (0, 1), err
    return [(each["path"], each["line"], each["code"]) for each in json.loads(out)["findings"]]


LEFT_BEHIND = [("rl/trainer.py", 3, "MP901")]


# -- which revisions ---------------------------------------------------------------------------------------


def test_changed_since_finds_what_was_left_behind(repository: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write(repository, rl__engine=RENAMED)
    commit = git(repository, "rev-parse", "HEAD")[:10]
    status, out, err = run(capsys, "--changed-since", "HEAD", *CONCISE)
    assert (status, out.splitlines()[0][:30]) == (1, "rl/trainer.py:3:16: warning MP")
    assert err == f"meshproof: compared with HEAD ({commit}): 1 file changed\n"
    write(repository, rl__trainer=MENDED)
    assert run(capsys, "--changed-since", "HEAD", *CONCISE)[0] == 0


def test_the_comparison_is_with_where_the_branch_began(repository: Path, capsys: pytest.CaptureFixture[str]) -> None:
    git(repository, "checkout", "-qb", "work")
    write(repository, rl__engine=RENAMED)
    git(repository, "commit", "-qam", "rename")
    git(repository, "checkout", "-q", "main")
    write(repository, other="x = 1\n")
    git(repository, "add", ".")
    git(repository, "commit", "-qm", "meanwhile")
    git(repository, "checkout", "-q", "work")
    assert found(capsys, "--changed-since", "main") == LEFT_BEHIND
    assert ": 1 file changed" in run(capsys, "--changed-since", "main")[2], "what came to main is no change of ours"


def test_no_change_rules_reports_on_changed_files_alone(repository: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write(repository, rl__engine=RENAMED + "\n\nx = (\n", old="y = (\n")
    git(repository, "add", "old.py")
    git(repository, "commit", "-qm", "old", "old.py")
    assert found(capsys, "--changed-since", "HEAD", "--no-change-rules") == [("rl/engine.py", 9, "MP001")]
    assert run(capsys, "--no-change-rules", ".")[0] == 2


def test_staged_is_the_index_and_not_the_disk(repository: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write(repository, rl__engine=RENAMED)
    assert found(capsys, "--staged") == [], "nothing is staged"
    git(repository, "add", ".")
    write(repository, rl__trainer=MENDED)  # mended on the disk, not in the commit
    assert found(capsys, "--staged") == LEFT_BEHIND
    git(repository, "add", ".")
    write(repository, rl__engine=ENGINE, rl__trainer="x = (\n")  # the disk has what the commit has not
    status, _, err = run(capsys, "--staged", *CONCISE)
    assert (status, err.partition(" (")[0]) == (0, "meshproof: what is staged, compared with HEAD")
    assert err.endswith(": 2 files changed\n")


def test_a_line_of_the_report_is_one_of_the_index(repository: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write(repository, rl__engine=RENAMED)
    git(repository, "add", ".")
    write(repository, rl__trainer="# pushed down\n" * 5 + TRAINER)
    out = run(capsys, "--staged", "--format", "full", "--no-cache")[1]
    assert '3 |         engine.pause_generation("weights")' in out


def test_staged_before_the_first_commit(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch) -> None:
    folder = tmp_path / "new"
    folder.mkdir()
    git(folder, "init", "-q")
    write(folder, a="x = (\n", b="y = (\n")
    git(folder, "add", "a.py")
    monkeypatch.chdir(folder)
    status, out, err = run(capsys, "--staged", *CONCISE)
    assert (status, err) == (
        1,
        "meshproof: what is staged, compared with nothing (there is no commit yet): 1 file changed\n",
    )
    assert out.startswith("a.py:1:5: error MP001")
    assert "b.py" not in out
    assert run(capsys, "--changed-since", "HEAD")[2] == "meshproof: error: git knows no revision 'HEAD'\n"


def test_staged_in_a_hook_of_pre_commit_for_pushed_commits(
    repository: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    write(repository, rl__engine=RENAMED)
    git(repository, "commit", "-qam", "rename")
    assert found(capsys, "--staged") == []
    monkeypatch.setenv("PRE_COMMIT_FROM_REF", git(repository, "rev-parse", "HEAD^").strip())
    assert found(capsys, "--staged") == LEFT_BEHIND


@pytest.mark.parametrize("arguments", [("-am", "rename"), ("-m", "rename", "rl/engine.py"), ("-m", "rename")])
def test_a_hook_of_git_sees_the_index_of_its_commit(repository: Path, arguments: tuple[str, ...]) -> None:
    """`git commit -a` and `git commit FILE` fill an index of their own and name it to the hook."""
    hook = repository / ".git" / "hooks" / "pre-commit"
    hook.parent.mkdir(exist_ok=True)
    root = Path(cli.__file__).resolve().parents[1]
    hook.write_text(f'#!/bin/sh\nPYTHONPATH="{root}" exec "{sys.executable}" -m validator --staged --no-cache\n')
    hook.chmod(0o755)
    write(repository, rl__engine=RENAMED)
    if arguments == ("-m", "rename"):
        git(repository, "add", ".")
    with pytest.raises(subprocess.CalledProcessError) as refused:
        git(repository, "commit", *arguments)
    assert "MP901" in refused.value.stdout + refused.value.stderr
    assert git(repository, "rev-list", "--count", "HEAD").strip() == "1"


def test_against_another_copy_without_git(repository: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    shutil.rmtree(repository / ".git")
    shutil.copytree(repository, tmp_path / "before")
    write(repository, rl__engine=RENAMED)
    assert found(capsys, "--against", "../before") == LEFT_BEHIND
    err = run(capsys, "--against", "../before", *CONCISE)[2]
    assert err == "meshproof: compared with ../before: 1 file changed\n"
    assert run(capsys, "--against", "../nowhere")[2] == "meshproof: error: --against: ../nowhere is no folder\n"


def test_against_leaves_out_what_a_run_does_not_read(
    repository: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write(repository, third_party__old="def one():\n    pass\n")
    (repository / "pyproject.toml").write_text('[tool.validator]\nextend-exclude = ["third_party"]\n')
    shutil.copytree(repository, tmp_path / "before", ignore=shutil.ignore_patterns(".git"))
    assert ": 0 files changed" in run(capsys, "--against", "../before", ".")[2]
    shutil.rmtree(repository / "third_party")
    assert ": 0 files changed" in run(capsys, "--against", "../before", ".")[2]
    assert ": 0 files changed" in run(capsys, "--against", "../before/rl", "rl/engine.py")[2], "others are not gone"


# -- files that came, went and moved -----------------------------------------------------------------------


def test_a_renamed_file_takes_its_names_along(repository: Path, capsys: pytest.CaptureFixture[str]) -> None:
    git(repository, "mv", "rl/engine.py", "rl/engines.py")
    assert found(capsys, "--changed-since", "HEAD") == []
    assert ": 2 files changed" in run(capsys, "--staged")[2], "one that is gone and one that is new"
    write(repository, rl__engines=RENAMED)
    git(repository, "add", ".")
    assert found(capsys, "--changed-since", "HEAD") == LEFT_BEHIND
    assert found(capsys, "--staged") == LEFT_BEHIND


def test_a_function_that_moved_is_told_once_at_each_import(
    repository: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write(
        repository,
        rl____init__="",
        rl__cp="def gather(rows):\n    return rows\n",
        rl__loss="from rl.cp import gather\n\n\ndef loss(rows):\n    return gather(rows)\n",
        rl__late="def late(rows):\n    from rl.cp import gather\n\n    return gather(rows)\n",
    )
    git(repository, "add", ".")
    git(repository, "commit", "-qm", "two")
    for name in ("cp", "loss"):
        (repository / "rl" / f"{name}.py").unlink()
    write(
        repository,
        rl__cp="",
        rl__parallel="def gather(rows):\n    return rows\n",
        rl__losses="from rl.parallel import gather\n\n\ndef loss(rows):\n    return gather(rows)\n",
    )
    git(repository, "add", ".")
    assert found(capsys, "--staged", "--select", "MP9") == [("rl/late.py", 2, "MP901")]
    assert "import it from `rl.parallel`" in run(capsys, "--staged", "--select", "MP9")[1]


def test_a_removed_file_leaves_its_callers(repository: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (repository / "rl" / "engine.py").unlink()
    assert found(capsys, "--staged") == [], "the removal is not staged"
    assert found(capsys, "--changed-since", "HEAD") == LEFT_BEHIND
    git(repository, "rm", "-q", "rl/engine.py")
    assert found(capsys, "--staged") == LEFT_BEHIND


def test_a_file_that_could_not_be_read_before(repository: Path, capsys: pytest.CaptureFixture[str]) -> None:
    texts = (b"def f(:\n", b"x = '\xff'\n", b"x = 1\0\n", b"x = " + b"(" * 5000 + b")" * 5000, b"")
    for number, text in enumerate(texts):
        (repository / f"odd{number}.py").write_bytes(text)
    (repository / "odd.yaml").write_bytes(b"a: [\n")
    git(repository, "add", ".")
    git(repository, "commit", "-qm", "odd")
    for number in range(len(texts)):
        write(repository, **{f"odd{number}": "def f():\n    return 1\n"})
    (repository / "odd.yaml").write_text("a: 1\n")
    write(repository, rl__engine=RENAMED)
    assert found(capsys, "--changed-since", "HEAD") == LEFT_BEHIND


def test_only_the_paths_that_are_named_are_read(repository: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write(repository, rl__engine=RENAMED, tools__x="x = (\n")
    assert found(capsys, "--changed-since", "HEAD", "tools") == [("tools/x.py", 1, "MP001")]
    assert found(capsys, "--changed-since", "HEAD", "rl") == LEFT_BEHIND


def test_a_call_that_is_gone_is_told_at_the_line_that_followed_it(
    repository: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lines = [
        "import torch.distributed as dist",
        "def update(rank, engines):",
        "    if rank == 0:",
        "        engines.pause()",
        "    engines.send()",
        "    dist.barrier()",
        "    if rank == 0:",
        "        engines.go_on()",
        "    return engines",
    ]
    write(repository, rl__sync="\n".join(lines) + "\n")
    git(repository, "add", ".")
    git(repository, "commit", "-qm", "two")
    write(repository, rl__sync="\n".join(line for line in lines if "barrier" not in line) + "\n")
    assert found(capsys, "--changed-since", "HEAD") == [("rl/sync.py", 6, "MP905")]


# -- what cannot be compared -------------------------------------------------------------------------------


def test_what_cannot_be_compared_is_one_line(
    repository: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for revision in ("none", "HEAD^", "--all", "HEAD:rl"):
        status, out, err = run(capsys, f"--changed-since={revision}")
        assert (status, out, err) == (2, "", f"meshproof: error: git knows no revision '{revision}'\n")
    assert run(capsys, "--changed-since", "")[0] == 2
    assert run(capsys, "--changed-since", "HEAD", "--staged")[0] == 2
    assert run(capsys, "--staged", "--fix")[0] == 2
    assert run(capsys, "--staged", "-")[0] == 2
    (tmp_path / "plain").mkdir()
    monkeypatch.chdir(tmp_path / "plain")
    for arguments in (("--changed-since", "HEAD"), ("--staged",)):
        status, out, err = run(capsys, *arguments)
        assert (status, out, err.count("\n")) == (2, "", 1)
        assert "is not in a git work tree" in err


@pytest.mark.parametrize("kind", ["HEAD:rl/engine.py", "HEAD:rl", "HEAD"])
def test_a_clone_that_lacks_an_object(repository: Path, kind: str, capsys: pytest.CaptureFixture[str]) -> None:
    write(repository, rl__engine=RENAMED)
    name = git(repository, "rev-parse", kind).strip()
    (repository / ".git" / "objects" / name[:2] / name[2:]).unlink()
    status, out, err = run(capsys, "--changed-since", "HEAD")
    assert (status, out, err.count("\n")) == (2, "", 1), err
    assert {"HEAD:rl/engine.py": "lacks the object", "HEAD:rl": "cannot list", "HEAD": "no revision"}[kind] in err


# -- what is made of the findings --------------------------------------------------------------------------


def test_the_formats_of_continuous_integration(repository: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write(repository, rl__engine=RENAMED)
    since = ("--changed-since", "HEAD", "--format")
    document = json.loads(run(capsys, *since, "sarif")[1])
    result = document["runs"][0]["results"][0]
    place = result["locations"][0]["physicalLocation"]
    assert (result["ruleId"], place["region"]["startLine"]) == ("MP901", 3)
    assert place["artifactLocation"]["uri"] == "rl/trainer.py"
    assert "MP901" in [rule["id"] for rule in document["runs"][0]["tool"]["driver"]["rules"]]
    assert run(capsys, *since, "github")[1].startswith(
        "::warning title=MP901 name-left-behind,file=rl/trainer.py,line=3,"
    )
    assert json.loads(run(capsys, *since, "gitlab")[1])[0]["location"]["path"] == "rl/trainer.py"
    assert "rl/trainer.py" in run(capsys, *since, "junit")[1]


def test_notes_that_were_there_before_a_change_are_not_shown(
    repository: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    old = "import torch\n\n\ndef load(path):\n    return torch.load(path)\n"
    write(repository, rl__load=old)
    git(repository, "add", ".")
    git(repository, "commit", "-qm", "a note")
    write(repository, rl__load=old + "\n\ndef again(path):\n    return torch.load(path, None)\n")
    assert found(capsys, "--changed-since", "HEAD") == []
    assert found(capsys, "--changed-since", "HEAD", "--notes") == [("rl/load.py", 9, "MP802")]
    assert len(found(capsys, "--changed-since", "HEAD", "--notes", "--old-findings")) == 2


def test_what_was_wrong_before_a_change_fails_no_commit(repository: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Of a rule about the project and of one about comments, in a file that the change touches."""
    old = """\
x = 1  # validator: ignore[MP001] nothing here


class Actor:
    def fit(self):
        self.absent()


if __name__ == "__main__":
    Actor().fit()
"""
    write(repository, rl__actor=old, rl__other="y = 1  # validator: ignore[MP120] nothing here\n")
    git(repository, "add", ".")
    git(repository, "commit", "-qm", "old findings")
    write(repository, rl__actor=old.replace("class", "SIZE = 1\n\n\nclass"))
    status, out, err = run(capsys, "--changed-since", "HEAD", "--no-cache", *CONCISE)
    assert (status, out.splitlines()[:-1]) == (0, [])
    assert "2 findings were in the changed files before the change, too: not shown; --old-findings shows them" in err
    asked = ("--changed-since", "HEAD", "--old-findings")
    assert found(capsys, *asked) == [("rl/actor.py", 1, "MP010"), ("rl/actor.py", 9, "MP120")]
    assert run(capsys, *asked)[0] == 1
    status, _, err = run(capsys, "--changed-since", "HEAD", "--no-change-rules")
    assert (status, "--baseline FILE --update-baseline" in err) == (1, True), "nothing is known of before"

    # as many as before are old
    more = "\n\nclass Critic:\n    def fit(self):\n        self.absent()\n\n\nCritic().fit()\n"
    write(repository, rl__actor=old + more, rl__other="y = 1  # validator: ignore[MP120] still nothing\n")
    assert found(capsys, "--changed-since", "HEAD") == [("rl/actor.py", 15, "MP120"), ("rl/other.py", 1, "MP010")]

    # what a comment silenced is new where the comment went
    silenced = old.replace("self.absent()", "self.absent()  # validator: ignore[MP120] set elsewhere")
    write(repository, rl__actor=silenced)
    git(repository, "commit", "-qam", "a comment")
    write(repository, rl__actor=old)
    assert found(capsys, "--changed-since", "HEAD") == [("rl/actor.py", 6, "MP120")]


def test_a_baseline_knows_what_a_change_broke(repository: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write(repository, rl__engine=RENAMED)
    since = ("--changed-since", "HEAD", "--baseline", "known.json")
    for _ in range(2):
        assert run(capsys, *since, "--update-baseline")[0] == 0
    assert json.loads((repository / "known.json").read_text())["findings"]["rl/trainer.py"]["MP901"].popitem()[1] == 1
    assert found(capsys, *since) == []
    write(repository, rl__trainer=TRAINER + '        engine.pause_generation("again")\n')
    assert found(capsys, *since) == [("rl/trainer.py", 4, "MP901")]


def test_a_comment_about_a_change_is_never_unused(repository: Path, capsys: pytest.CaptureFixture[str]) -> None:
    line = 'engine.pause_generation("weights")'
    write(
        repository,
        rl__engine=RENAMED,
        rl__trainer=TRAINER.replace(line, line + "  # validator: ignore[MP901] engines of another package too"),
    )
    assert found(capsys, "--changed-since", "HEAD") == []
    git(repository, "commit", "-qam", "two")
    assert found(capsys, ".") == [], "without a comparison the comment has nothing to silence"
    assert found(capsys, "--changed-since", "HEAD") == []


def test_add_ignore_and_fixes_keep_to_the_change(repository: Path, capsys: pytest.CaptureFixture[str]) -> None:
    unused = "x = 1  # validator: ignore[MP001] nothing here\n"
    write(repository, old=unused)
    git(repository, "add", ".")
    git(repository, "commit", "-qm", "two")
    write(repository, new=unused, rl__engine=RENAMED)
    assert run(capsys, "--changed-since", "HEAD", "--fix")[0] == 1
    assert (repository / "old.py").read_text() == unused
    assert (repository / "new.py").read_text() == "x = 1\n"
    assert run(capsys, "--changed-since", "HEAD", "--add-ignore", "--reason", "engines of old")[0] == 0
    assert "# validator: ignore[MP901] engines of old" in (repository / "rl" / "trainer.py").read_text()


def test_a_second_run_says_the_same(repository: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write(repository, rl__engine=RENAMED)
    git(repository, "add", ".")
    first = run(capsys, "--staged", "--format", "full")
    assert run(capsys, "--staged", "--format", "full") == first
    write(repository, rl__trainer=MENDED)
    assert run(capsys, "--staged", "--format", "full") == first, "the disk is not what is staged"
    assert found(capsys, "--changed-since", "HEAD") == [], "nor is what is staged the disk"
    assert found(capsys, ".") == []
    git(repository, "add", ".")
    assert found(capsys, "--staged") == []


def test_other_rules_are_heard_elsewhere_where_it_is_about_a_name_that_went(
    repository: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    program = """\
import argparse


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--num_padding", type=int, default=0)
    print(parser.parse_args().num_padding)


if __name__ == "__main__":
    main()
"""
    write(repository, train=program)
    (repository / "run.sh").write_text("torchrun train.py --num_padding 1\n")
    (repository / "old.sh").write_text("torchrun train.py --never_known 1\n")
    git(repository, "add", ".")
    git(repository, "commit", "-qm", "two")
    write(repository, train=program.replace("num_padding", "left_padding"))
    rows = found(capsys, "--changed-since", "HEAD", "--no-cache")
    assert ("run.sh", 1, "MP701") in rows
    assert not [row for row in rows if row[0] == "old.sh"]  # wrong before the change too
    assert not [row for row in found(capsys, "--changed-since", "HEAD", "--no-change-rules") if row[0] == "run.sh"]


def test_what_other_rules_find_in_unchanged_files_counts_where_the_change_made_it_so(
    repository: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    siblings = "class {}:\n    def prepare(self, model):\n        return model\n\n\n"
    engines = siblings.format("Deepspeed") + siblings.format("FSDP2")
    caller = """\
import torch.distributed as dist

from rl.engine import FSDP2, Deepspeed


def train(args):
    dist.barrier()
    strategy = Deepspeed() if args.fast else FSDP2()
    strategy.absent()
    return strategy.prepare(args.model)
"""
    write(repository, rl__engine=engines, rl__train=caller, rl__trainer="")
    git(repository, "add", ".")
    git(repository, "commit", "-qm", "two strategies")
    write(repository, rl__engine=engines.replace("self, model", "self, model, optimizer", 1))
    assert found(capsys, "--changed-since", "HEAD") == [("rl/train.py", 10, "MP902")], "`absent` was wrong before"
    without = found(capsys, "--changed-since", "HEAD", "--ignore", "MP902")
    assert without == [("rl/train.py", 10, "MP133")], "of two warnings of one cause that of the change is told"
    write(repository, rl__engine=engines.replace("self, model", "self, model, optimizer"))
    assert found(capsys, "--changed-since", "HEAD") == [("rl/train.py", 10, "MP121")], "MP902 leaves it to the error"


def test_findings_in_unchanged_files_count_though_they_name_no_changed_one(
    repository: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Since the change each rank draws its own order; the other draw was each rank's own before it, too."""
    data = """\
import random

import numpy as np
import torch.distributed as dist


def split(rows):
    random.shuffle(rows)
    return rows[dist.get_rank() :: dist.get_world_size()]


def pick(rows):
    order = np.random.permutation(len(rows))
    return order[dist.get_rank() :: dist.get_world_size()]
"""
    seeding = """\
import random

import numpy as np
import torch.distributed as dist

from rl.data import pick, split

random.seed({})
np.random.seed(dist.get_rank())
print(split(list(range(100))), pick(list(range(100))))
"""
    write(repository, rl__data=data, rl__train=seeding.format("7"), rl__trainer="")
    git(repository, "add", ".")
    git(repository, "commit", "-qm", "two draws")
    write(repository, rl__train=seeding.format("dist.get_rank()"))
    for _ in range(2):  # the second time it is known what was found before
        new = [row for row in found(capsys, "--changed-since", "HEAD") if row[0] == "rl/data.py"]
        assert new == [("rl/data.py", 8, "MP532")]


def test_one_mistake_is_told_once_and_with_the_new_name(repository: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A member (a warning by itself), an option and a keyword (errors by themselves), renamed at their definition."""
    strategies = """\
class Strategy:
    def save(self, model, tag=None):
        return model, tag


class DDP(Strategy):
    def save(self, model, tag=None):
        return model, tag, 1


class FSDP(Strategy):
    def save(self, model, tag=None):
        return model, tag, 2


def get_strategy(args):
    return DDP() if args.ddp else FSDP()


class Tower:
    def freeze_weights(self):
        self.paused = True
"""
    program = """\
import argparse

from rl.strategies import Tower, get_strategy


def sync(tower: Tower):
    tower.freeze_weights()


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--ddp", action="store_true")
    parser.add_argument("--freezing_steps", type=int)
    args = parser.parse_args()
    print(args.freezing_steps)
    strategy = get_strategy(args)
    strategy.save(None, tag="last")
    sync(Tower())
"""
    (repository / "run.sh").write_text("python -m rl.program --freezing_steps 3\n")
    write(repository, rl__strategies=strategies, rl__program=program)
    git(repository, "add", ".")
    git(repository, "commit", "-qm", "two strategies")
    after = strategies.replace("freeze_weights", "freeze_layers").replace("tag", "label")
    write(repository, rl__strategies=after, rl__program=program.replace("freezing_steps", "frozen_steps"))
    report = json.loads(run(capsys, "--changed-since", "HEAD", "--format", "json")[1])
    told = {(each["path"], each["line"]): each for each in report["findings"] if each["severity"] != "note"}
    assert {place: each["code"] for place, each in told.items()} == {
        ("rl/program.py", 7): "MP901", ("rl/program.py", 17): "MP103", ("run.sh", 1): "MP701",
    }  # fmt: skip
    assert len(told) == sum(each["severity"] != "note" for each in report["findings"]), "one for each place"
    assert "MP120" in told["rl/program.py", 7]["related"][-1]["message"]
    assert told["rl/program.py", 17]["help"] == "write `label`: the change renamed `tag`"
    assert told["run.sh", 1]["help"] == "write `--frozen_steps`: the change renamed `--freezing_steps`"
    assert run(capsys, "--changed-since", "HEAD", "--fix", "--unsafe-fixes")[0] == 0
    assert 'strategy.save(None, label="last")' in (repository / "rl" / "program.py").read_text()
    assert (repository / "run.sh").read_text() == "python -m rl.program --frozen_steps 3\n"


def test_fixes_finish_a_rename(repository: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write(repository, rl__engine=RENAMED)
    status, _, err = run(capsys, "--changed-since", "HEAD", "--fix", "--unsafe-fixes", "--no-cache")
    assert (status, (repository / "rl" / "trainer.py").read_text()) == (0, MENDED), err


def test_notes_about_a_change_are_shown_and_stop_no_commit(
    repository: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    area = "def area(width, height, scale):\n    size = width * height{}\n    print(size)\n    return size\n"
    write(repository, rl__sizes=area.format(" * scale") + "\n\nprint(area(1, 2, 3))\n")
    git(repository, "add", ".")
    git(repository, "commit", "-qm", "two")
    write(repository, rl__sizes=area.format("") + "\n\nprint(area(1, 2, 3))\n")
    status, out, _ = run(capsys, *CONCISE, "--select", "MP904", "--changed-since", "HEAD", ".")
    assert status == 0
    assert "note MP904 `scale`" in out


SAVING = """\
import torch.distributed as dist


def save(model, path, rank):
    if rank == 0:
        model.write(path)
    dist.barrier()
    print(path)
    return path
"""


@pytest.mark.parametrize(
    ("instead", "said"),
    [
        ("", "warning MP905 `save` lost the call `dist.barrier()`"),
        ("    # the caller makes the barrier\n", "no findings"),
    ],
)
def test_what_went_is_meant_where_the_change_speaks_of_it(
    repository: Path, capsys: pytest.CaptureFixture[str], instead: str, said: str
) -> None:
    write(repository, rl__saving=SAVING)
    git(repository, "add", ".")
    git(repository, "commit", "-qm", "two")
    write(repository, rl__saving=SAVING.replace("    dist.barrier()\n", instead))
    _, out, _ = run(capsys, *CONCISE, "--select", "MP905", "--changed-since", "HEAD", ".")
    assert said in out


def severities(capsys: pytest.CaptureFixture[str]) -> list[tuple[str, str]]:
    """The findings about what is not committed as (code, severity)."""
    _, out, _ = run(capsys, "--changed-since", "HEAD", "--select", "MP9", "--no-cache", "--format", "json")
    return [(each["code"], each["severity"]) for each in json.loads(out)["findings"]]


def test_what_the_author_may_have_meant_is_a_note(repository: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A key that may be in what was written before, where its maker is gone; a context of precision."""
    maker = 'def tag(rows):\n    return [{"num_bytes": len(row), "row": row} for row in rows]\n'
    reader = 'def ratio(dataset):\n    return 2048 / dataset["num_bytes"].mean()\n'
    model = (
        "import torch\n\n\ndef run(model, x):\n    with torch.autocast('cuda'):\n        y = model(x)\n    return y\n"
    )
    write(repository, rl__maker=maker, rl__reader=reader, rl__model=model)
    git(repository, "add", ".")
    git(repository, "commit", "-qm", "two")
    (repository / "rl/maker.py").unlink()
    write(repository, rl__model="import torch\n\n\ndef run(model, x):\n    y = model(x)\n    return y\n")
    assert severities(capsys) == [("MP905", "note"), ("MP901", "note")]
    write(repository, rl__maker=maker.replace('"num_bytes": len(row), ', ""), rl__model=model)
    assert severities(capsys) == [("MP901", "warning")]
