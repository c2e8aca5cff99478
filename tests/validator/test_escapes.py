"""What a tree holds reaches no terminal, build log or parser as something to be obeyed."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from validator.run.config import FORMATS

ROOT = Path(__file__).resolve().parents[2]
ESCAPES = "\x1b[31m\x1b]0;title\x07\x9b1m\u202e\u2066\u2028\r\x85"
NAME = os.fsencode(f"ev{ESCAPES}il\n::error::x ##[error]y") + b"\xff"
OBEYED = re.compile("[\x00-\x09\x0b-\x1f\x7f-\x9f\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]|##\\[")


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Escapes in the names of a folder and its files, in lines that are reported, and in what messages quote."""
    top = tmp_path_factory.mktemp("tree")
    folder = os.path.join(os.fsencode(top), NAME)
    try:
        os.mkdir(folder)
    except OSError:
        pytest.skip("this file system does not take any bytes for a name")
    option = f"--lr{ESCAPES}".replace("\r", "").replace("\u2028", "").replace("\x85", "")
    files = {
        b"train.py": "import argparse\nimport torch.distributed as dist\np = argparse.ArgumentParser()\n"
        f'p.add_argument("{option}", type=int)\nargs = p.parse_args()\nprint(args.lx)\n'
        f"if dist.get_rank() == 0:  # {option} ##[stop-commands]x\n    dist.barrier()  # {option}\n",
        b"go.sh": f"torchrun --nproc-per-node=2 train.py '{option}x=2' # ##[group]\n",
        NAME + b".py": f"# {option}\nx = (  # {option}\n",
    }
    for name, text in files.items():
        with open(os.path.join(folder, name), "wb") as file:
            file.write(text.encode())
    (top / "::error::a.py").write_text("x = (\n")
    return top


def validate(tree: Path, *arguments: str | bytes) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "PYTHONUTF8": "1"}
    command = [sys.executable, "-m", "validator", "--isolated", "--no-cache", *arguments]
    done = subprocess.run(command, cwd=tree, env=environment, capture_output=True, timeout=60, check=False)
    return subprocess.CompletedProcess(command, done.returncode, done.stdout.decode(), done.stderr.decode())


def texts(value: Any) -> Iterator[str]:
    """Every text in a JSON document."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, (dict, list)):
        for each in value.values() if isinstance(value, dict) else value:
            yield from texts(each)


@pytest.mark.parametrize("style", FORMATS)
def test_no_format_lets_through_what_is_obeyed(tree: Path, style: str) -> None:
    done = validate(tree, "--notes", "--format", style, ".")
    assert (done.returncode, done.stderr) == (1, "")
    assert OBEYED.search(done.stdout.replace("##[", "") if style in ("json", "sarif") else done.stdout) is None
    assert {"MP001", "MP301", "MP303", "MP501", "MP701"} <= set(re.findall(r"MP\d+", done.stdout))
    commands = [line for line in done.stdout.splitlines() if line.lstrip().startswith("::")]
    if style == "github":
        assert commands == done.stdout.splitlines()
        assert all(re.match(r"::(error|warning|notice) title=", line) for line in commands)
    else:
        assert commands == []


@pytest.mark.parametrize("style", ["sarif", "gitlab"])
def test_the_texts_that_services_show_are_clean(tree: Path, style: str) -> None:
    found = json.loads(validate(tree, "--format", style, ".").stdout)
    shown = found if style == "gitlab" else found["runs"][0]["results"]
    assert shown
    assert all(OBEYED.search(text.replace("\n", " ")) is None for text in texts(shown))


def test_junit_is_read_back_clean(tree: Path) -> None:
    root = ElementTree.fromstring(validate(tree, "--format", "junit", ".").stdout.encode("ascii"))
    assert len(root.findall(".//failure")) > 4
    for element in root.iter():
        assert all(
            OBEYED.search((text or "").replace("\n", " ")) is None for text in (*element.attrib.values(), element.text)
        )


def test_json_names_files_as_they_are_but_holds_no_half_characters(tree: Path) -> None:
    found = json.loads(validate(tree, "--format", "json", ".").stdout)["findings"]
    assert any("\x1b[31m" in each["path"] and "\\udcff" in each["path"] for each in found)
    assert not any(re.search("[\ud800-\udfff]", text) for text in texts(found))


@pytest.mark.parametrize(
    "arguments",
    [
        (b"no" + NAME,),
        ("--select", ESCAPES),
        ("--explain", ESCAPES),
        ("--stdin-filename", ESCAPES, "."),
        ("--why", b"no" + NAME + b":1"),
        ("--why", b"./" + NAME + b"/train.py:8"),
        ("--changed-since", f"x{ESCAPES}"),
        ("--baseline", b"no" + NAME),
        ("--add-ignore", "--diff", NAME),
        ("--output", b"no/" + NAME),
        (f"--{ESCAPES}",),
    ],
    ids=lambda arguments: str(arguments[0])[:15],
)
def test_what_is_said_is_one_clean_line(tree: Path, arguments: tuple[str | bytes, ...]) -> None:
    done = validate(tree, *arguments)
    assert OBEYED.search(done.stdout + done.stderr) is None
    assert done.returncode == 2 or arguments[0] == "--why"
    assert "Traceback" not in done.stderr
    assert done.stderr.count("\n") <= 1
