"""Files made to crash, stall or mislead what reads them."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from validator import cli, contracts
from validator.errors import UsageError
from validator.facts import config_files, shell
from validator.files import tables
from validator.files.integers import whole
from validator.source import SourceFile


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def run(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    status = cli.main(list(arguments))
    output = capsys.readouterr()
    return status, output.out, output.err


def process(*arguments: str, **options: object) -> subprocess.CompletedProcess[str]:
    home = str(Path(cli.__file__).parents[1])
    environment = {**os.environ, "PYTHONPATH": home}
    return subprocess.run(  # type: ignore[call-overload,no-any-return]
        [sys.executable, "-m", "validator", *arguments],
        env=environment, text=True, timeout=60, check=False, **{"stderr": subprocess.PIPE, **options},
    )  # fmt: skip


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("a.yaml", "[" * 60_000 + "]" * 60_000),
        ("a.yaml", "{a: " * 60_000 + "}" * 60_000),
        ("a.yaml", "a: " + "- " * 60_000 + "x\n"),
        ("a.yaml", "".join(" " * (2 * i) + "- " * 20 + "\n" for i in range(400))),
        ("a.json", '{"zero_optimization": ' + "[" * 60_000 + "]" * 60_000 + "}"),
        ("a.toml", "seq_len = " + "[" * 60_000 + "]" * 60_000),
    ],
)
def test_a_deep_configuration_file_is_data(here: Path, name: str, text: str) -> None:
    (here / name).write_text(text)
    done = process("--no-cache", "--isolated", name, stdout=subprocess.PIPE)
    assert (done.returncode, done.stderr) == (0, "")


def test_aliases_of_aliases_are_not_followed_forever(here: Path) -> None:
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 9)}]" for i in range(1, 12)]
    with pytest.raises(ValueError, match="aliases"):
        config_files.read("\n".join(lines), "yaml")
    settings = config_files.read("a: &a {lr: 1}\nb: *a\n", "yaml")
    assert [each.path for each in settings.settings] == [("a",), ("a", "lr"), ("b",), ("b", "lr")]


def test_keys_of_thousands_of_parts_are_refused(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (here / "pyproject.toml").write_text("[tool.validator]\n" + ".".join(["a"] * 10_000) + " = 1\n")
    started = time.monotonic()
    status, _, err = run(capsys, ".")
    assert status == 2
    assert "a key of more than 200 parts" in err
    (here / "pyproject.toml").write_text("[tool.validator]\nselect = " + "[" * 60_000 + "]" * 60_000 + "\n")
    status, _, err = run(capsys, ".")
    assert status == 2
    assert "nested too deeply" in err
    assert err.count("\n") == 1
    assert time.monotonic() - started < 5
    assert not tables.too_dotted("d = [" + ", ".join(['"a>=1.0.0"'] * 300) + "]")
    assert tables.too_dotted("x = {" + ".".join(['"a"'] * 300) + " = 1}")


@pytest.mark.parametrize("text", ["(" * 3_000 + "ls" + ")" * 3_000, "echo " + "$(" * 3_000 + ")" * 3_000])
def test_a_deep_shell_script_is_a_finding(text: str) -> None:
    facts = shell.extract(SourceFile("a.sh", "a.sh", text.encode()))
    assert facts.problem is not None
    assert facts.problem.kind == "nesting"


@pytest.mark.parametrize("line", ['A{0}="${{A{1}}}${{A{1}}}"', 'A{0}=("${{A{1}[@]}}" "${{A{1}[@]}}")'])
def test_variables_that_double_each_other_come_to_an_end(here: Path, line: str) -> None:
    lines = ["A0=x", *(line.format(number, number - 1) for number in range(1, 60)), "torchrun train.py --a $A59"]
    (here / "a.sh").write_text("\n".join(lines) + "\n")
    (here / "train.py").write_text("import argparse\np = argparse.ArgumentParser()\np.parse_args()\n")
    assert process("--no-cache", "--isolated", ".", stdout=subprocess.PIPE).returncode in (0, 1)


def test_numbers_of_other_scripts_are_no_versions(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (here / "a.py").write_text("x = 1\n")
    for bad in ("3.²", "3.١", "3." + "1" * 5_000):
        status, _, err = run(capsys, "--target-python", bad, "a.py")
        assert (status, "must be a version" in err) == (2, True)
    (here / "pyproject.toml").write_text('[project]\nrequires-python = ">=3.²"\n')
    assert run(capsys, "a.py")[0] == 0


def test_a_pipe_in_place_of_the_configuration_is_not_read(here: Path) -> None:
    os.mkfifo(here / "pyproject.toml")
    done = process(".", stdout=subprocess.PIPE)
    assert done.returncode == 2
    assert "not a regular file" in done.stderr
    assert done.stderr.count("\n") == 1


@pytest.mark.parametrize("key", ["contracts", "collectives", "rules", "baseline"])
def test_a_pipe_named_by_the_configuration_is_not_read(here: Path, key: str) -> None:
    (here / "checks").mkdir()
    os.mkfifo(here / "checks/pipe.py")
    value = {"baseline": '"checks/pipe.py"', "rules": '["checks"]'}.get(key, '["checks/pipe.py"]')
    (here / "pyproject.toml").write_text(f"[tool.validator]\n{key} = {value}\n")
    for name in ("setup.cfg", "requirements.txt"):
        os.mkfifo(here / name)
    (here / "a.py").write_text("import torch.distributed as dist\n\ndist.barrier()\nmatch = 1\n")
    done = process("--no-cache", "a.py", stdout=subprocess.PIPE)
    assert done.returncode == 2
    assert "not a regular file" in done.stderr
    assert done.stderr.count("\n") == 1
    done = process("--no-cache", "--isolated", "a.py", stdout=subprocess.PIPE)
    assert (done.returncode, done.stderr) == (0, "")


def test_digits_that_are_no_numbers(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    many = "1" * 5_000
    (here / "a.sh").write_text(
        f"#SBATCH --nodes=²\n#SBATCH --gpus=٣\n#SBATCH --ntasks={many}\n#SBATCH --gres=gpu:{many}\n"
        f'a=(1 2); echo ${{{many}}} ${{²}} ${{a[²]}} ${{a[{many}]}} "${{a[@]:{many}}}" "${{@:²}}" $(({many} + 1))\n'
        f"[ {many} -gt 1 ] && echo\n"
        f"torchrun --nproc-per-node={many} --nnodes=² train.py --lr ${{a[1]}}\n"
    )
    (here / "requirements.txt").write_text(f"torch>={many}.{many}\n")
    (here / "a.py").write_text("import torch  # noqa: MP²\nx = 1  # validator: ignore[MP²] why\n")
    status, _, err = run(capsys, "--no-cache", ".")
    assert status in (0, 1)
    assert err == ""
    (here / "contract.toml").write_text('name = "x"\n[operation.f]\nsignature = "f()"\nresult = "tuple:²"\n')
    with pytest.raises(UsageError, match="tuple:N"):
        contracts.load(str(here / "contract.toml"))


@given(st.text(st.characters(categories=["Nd", "No"]), max_size=4) | st.integers(0, 10**30).map(str))
def test_a_whole_number_is_plain_digits(text: str) -> None:
    plain = 0 < len(text) <= 18 and set(text) <= set("0123456789")
    assert whole(text) == (int(text) if plain else None)


@pytest.mark.parametrize(
    "line", ['contracts = ["a\\u0000b"]', 'baseline = "a\\u0000b"', 'extend-exclude = ["a\\u0000"]']
)
def test_nul_in_the_configuration_is_wrong_usage(here: Path, capsys: pytest.CaptureFixture[str], line: str) -> None:
    (here / "pyproject.toml").write_text(f"[tool.validator]\n{line}\n")
    status, _, err = run(capsys, ".")
    assert status == 2
    assert "NUL" in err


def test_the_shown_configuration_holds_no_escapes(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (here / "pyproject.toml").write_text('[tool.validator]\nselect = ["\\u001b[31m"]\n')
    status, out, _ = run(capsys, "--show-config")
    assert status == 0
    assert "\x1b" not in out
    assert '"\\U0000001B[31m"' in out


@pytest.mark.parametrize("content", ["precious\n", '{"name": "web", "version": 1}', "[" * 100_000])
def test_only_a_baseline_is_overwritten_as_one(here: Path, capsys: pytest.CaptureFixture[str], content: str) -> None:
    (here / "a.py").write_text("x = (\n")
    (here / "package.json").write_text(content)
    status, _, err = run(capsys, "--baseline", "package.json", "--update-baseline", "a.py")
    assert (status, err.count("\n")) == (2, 1)
    assert (here / "package.json").read_text() == content


def test_a_configuration_writes_no_baseline_outside(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (here / "tree").mkdir()
    (here / "tree/a.py").write_text("x = (\n")
    (here / "tree/pyproject.toml").write_text('[tool.validator]\nbaseline = "../out.json"\n')
    status, _, err = run(capsys, "--update-baseline", "tree")
    assert status == 2
    assert "leads out of" in err
    assert not (here / "out.json").exists()
    assert run(capsys, "--baseline", "out.json", "--update-baseline", "tree")[0] == 0


def test_a_baseline_keeps_what_was_not_reported_on(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (here / "a.py").write_text("x = (\n")
    (here / "b.py").write_text("y = (\n")
    for command in (["init", "-q"], ["add", "a.py"], ["commit", "-qm", "first"]):
        identity = ["-c", "user.name=t", "-c", "user.email=t@example.org"]
        subprocess.run(["git", *identity, *command], check=True, timeout=60)
    update = ("--baseline", "base.json", "--update-baseline")
    assert run(capsys, *update, ".")[0] == 0
    assert run(capsys, *update, "--changed-since", "HEAD", ".")[0] == 0
    status, out, _ = run(capsys, "--baseline", "base.json", ".")
    assert (status, "2 baselined" in out) == (0, True)


@pytest.mark.parametrize("kind", ["pipe", "file"])
def test_the_output_may_be_an_open_file(here: Path, kind: str) -> None:
    (here / "a.py").write_text("x = 1\n")
    with open(here / "out", "w") as file:
        done = process("--output", "/dev/stdout", "a.py", stdout=file if kind == "file" else subprocess.PIPE)
    assert (done.returncode, done.stderr) == (0, "")
    assert "no findings" in ((here / "out").read_text() if kind == "file" else done.stdout)


def test_links_out_of_the_tree_are_read_by_name_only_and_never_written(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    secret = "import yaml\n\n\ndef read(file):\n    return yaml.load(file)\n"
    (here / "secret.py").write_text(secret)
    (here / "tree").mkdir()
    (here / "tree/link.py").symlink_to("../secret.py")
    status, out, _ = run(capsys, "--no-cache", "--select", "MP803", "tree")
    assert (status, "in 0 files" in out) == (0, True)
    assert run(capsys, "--no-cache", "--select", "MP803", "tree/link.py")[0] == 1
    (here / "tree/own.py").write_text(secret)
    both = ("--no-cache", "--select", "MP803", "tree/link.py", "tree/own.py")
    status, out, err = run(capsys, *both, "--diff", "--unsafe-fixes")
    assert (status, "own.py" in out, "link.py" in out) == (1, True, False)
    _, _, err = run(capsys, *both, "--fix", "--unsafe-fixes")
    assert err == "meshproof: tree/link.py: a link that leads elsewhere; not written\nmeshproof: 1 fix applied\n"
    assert (here / "secret.py").read_text() == secret


def _walk_a_deep_folder(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    top = os.getcwd()
    try:
        for _ in range(1_200):
            os.mkdir("d")
            os.chdir("d")
        Path("a.py").write_text("x = 1\n")
    finally:
        os.chdir(top)
    (here / "b.py").write_text("x = (\n")
    status, out, _ = run(capsys, "--no-cache", "--format", "concise", ".")
    assert (status, "b.py:1" in out) == (1, True)


def test_folders_may_be_as_deep_as_they_like(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    try:
        _walk_a_deep_folder(here, capsys)
    finally:
        subprocess.run(["rm", "-rf", str(here / "d")], check=True)  # deeper than shutil.rmtree can go


def test_a_bad_pattern_is_named(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for line in ('extend-exclude = ["[z-a]"]', 'per-file-ignores."[z-a]" = ["MP101"]'):
        (here / "pyproject.toml").write_text(f"[tool.validator]\n{line}\n")
        status, _, err = run(capsys, ".")
        assert status == 2
        assert "'[z-a]' is no pattern" in err
    for pattern, why in (("", "it is empty"), ("/", "it is empty"), ("!a.py", "cannot be taken back")):
        (here / "pyproject.toml").write_text(f'[tool.validator]\nextend-exclude = ["{pattern}"]\n')
        assert why in run(capsys, ".")[2]
    (here / "pyproject.toml").write_text(f'[tool.validator]\nextend-exclude = ["{here.name}"]\n')
    assert run(capsys, ".")[1:] == ("no findings in 1 file\n", ""), "the root itself is not left out"


def test_a_baseline_of_odd_numbers_or_a_pipe(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (here / "base.json").write_text('{"version": 1, "findings": {"a.py": {"MP1": {"x": Infinity}}}}')
    status, _, err = run(capsys, "--baseline", "base.json", ".")
    assert (status, "not a baseline" in err) == (2, True)
    os.mkfifo(here / "pipe")
    status, _, err = run(capsys, "--baseline", "pipe", ".")
    assert (status, "not a regular file" in err) == (2, True)


def test_thousands_of_misspelt_options_are_not_compared_with_each_other(here: Path) -> None:
    lines = ["import argparse", "p = argparse.ArgumentParser()"]
    lines += [f"p.add_argument('--o{i}')" for i in range(2_000)]
    lines += ["args = p.parse_args()", *(f"args.o{i}x" for i in range(2_000))]
    (here / "a.py").write_text("\n".join(lines) + "\n")
    started = time.monotonic()
    done = process("--no-cache", "--isolated", "--select", "MP301", "--statistics", "a.py", stdout=subprocess.PIPE)
    assert "2000  MP301" in done.stdout
    assert time.monotonic() - started < 20


def test_a_thousand_classes_in_one_line_are_read_in_seconds(here: Path) -> None:
    top = "class C0:\n    def step(self):\n        dist.barrier()\n    def m0(self):\n        pass\n"
    below = (
        f"class C{i}(C{i - 1}):\n    def step(self):\n        super().step()\n        self.m{i - 1}()\n"
        f"    def m{i}(self):\n        self.a{i} = self.m{i - 1}()\n"
        for i in range(1, 1000)
    )
    end = "def main(rank):\n    c = C999()\n    c.absent()\n    if dist.get_rank() == 0:\n        c.step()\n"
    (here / "deep.py").write_text("import torch.distributed as dist\n" + top + "".join(below) + end)
    done = process("--no-cache", "--isolated", "--format", "concise", "deep.py", stdout=subprocess.PIPE)
    assert "MP120 `C999` has no method `absent`" in done.stdout
    (hanging,) = [line for line in done.stdout.splitlines() if "MP501" in line]
    assert "`step` → `…` → `step`" in hanging
    assert len(hanging) < 400


def test_functions_that_loop_over_each_other_come_to_an_end(here: Path) -> None:
    n = 300
    pairs = (
        f"def f{i}(rank, x):\n    if rank == {i}:\n        g{(i + 1) % n}(rank, x)\n        f{(i + 7) % n}(rank, x)\n"
        f"    dist.barrier()\ndef g{i}(rank, x):\n    while x:\n        f{(i + 3) % n}(rank, x)\n"
        f"        g{(i + 11) % n}(rank, x)\n        dist.all_reduce(x)\n"
        for i in range(n)
    )
    (here / "mutual.py").write_text("import torch.distributed as dist\n" + "".join(pairs))
    assert process("--no-cache", "--isolated", "mutual.py", stdout=subprocess.PIPE).returncode in (0, 1)
