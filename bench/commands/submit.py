"""`python -m bench submit SCRIPT`: check a launch script as the validator does, with the job's real sizes and against
the options of the program that it starts; submit it only when nothing is wrong."""

from __future__ import annotations

import argparse
import os
import shlex
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from bench import validation
from bench.cli import FAILED, OK
from bench.launch import array, own_flags
from bench.launch.script import Script
from bench.problems import Problem, in_one_line
from bench.terminal.parsing import Parser


def parser() -> argparse.ArgumentParser:
    """The flags of `bench submit`."""
    p = Parser(prog="bench submit", description=__doc__)
    p.add_argument("script", type=Path, metavar="SCRIPT", help="with #SBATCH lines for sbatch, without for bash")
    p.add_argument("arguments", nargs="*", metavar="ARGUMENT", help="of the script; after -- where they begin with -")
    sizes = p.add_argument_group("sizes that win over the script's #SBATCH lines, in the check and for sbatch")
    for name in ("nodes", "gpus-per-node", "ntasks-per-node", "gpus", "gres"):
        sizes.add_argument(f"--{name}", metavar="N" if name != "gres" else "gpu:N")
    p.add_argument("--partition")
    p.add_argument("--source", type=Path, default=Path("."), help="the tree of the program; default: this folder")
    p.add_argument("--dry-run", action="store_true", help="check, and show the command; submit nothing")
    p.add_argument("--force", action="store_true", help="submit in spite of errors")
    return p


@in_one_line
def main(arguments: Sequence[str]) -> int:
    """Exit status 0 submitted, 1 refused by a check or by Slurm, 2 wrong usage."""
    before, after = _split(list(arguments))
    options = parser().parse_args(before)
    options.arguments += after
    script = _read(options.script)
    sizes = _sizes(options)
    command = _command(options, script, sizes)
    found = [*check(options.script, script, sizes, options.source), *own_flags.check(script.text)]
    for finding in found:
        print(_line(options.script, finding))
    for module in script.modules():
        if module != "bench" and not _holds(options.source, module):
            print(f"note: {module} does not lie in {options.source}: its options were not checked; give --source")
    errors = sum(finding["severity"] == "error" for finding in found)
    if errors and not options.force:
        print(f"not submitted: {errors} error{'s' * (errors > 1)} in {options.script}; --force submits all the same")
        return FAILED
    if options.dry_run:
        print(shlex.join(command))
        return OK
    if command[0] == "bash":
        return OK if subprocess.run(command, check=False).returncode == 0 else FAILED
    print(f"submitted as job {array.submit(*command[2:])}")
    return OK


def _split(arguments: list[str]) -> tuple[list[str], list[str]]:
    """What comes before and after the first `--`: argparse mixes up positions on both sides of it."""
    if "--" not in arguments:
        return arguments, []
    at = arguments.index("--")
    return arguments[:at], arguments[at + 1 :]


def _read(path: Path) -> Script:
    try:
        return Script(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "it is no UTF-8 text"
        raise Problem(f"{path}: cannot be read: {reason}") from None


def _sizes(options: argparse.Namespace) -> dict[str, str]:
    names = ("nodes", "gpus_per_node", "ntasks_per_node", "gpus", "gres")
    given = {f"--{name.replace('_', '-')}": getattr(options, name) for name in names if getattr(options, name)}
    for name, value in given.items():
        if name != "--gres" and not (value.isascii() and value.isdigit() and int(value) > 0):
            raise Problem(f"{name} {value}: give a whole number from 1 on")
    return given


def _command(options: argparse.Namespace, script: Script, sizes: dict[str, str]) -> list[str]:
    """The program and its arguments; no shell is given any of it."""
    path, rest = str(options.script), list(options.arguments)
    if not script.is_slurm:
        if sizes or options.partition:
            raise Problem(f"{path} has no #SBATCH line: sizes and --partition are Slurm's")
        return ["bash", "--", path, *rest]
    if shutil.which("sbatch") is None and not options.dry_run:
        raise Problem("sbatch is not on this machine: submit from a login node of the cluster, or use --dry-run")
    partition = [f"--partition={options.partition}"] if options.partition else []
    return ["sbatch", "--parsable", *(f"{name}={value}" for name, value in sizes.items()), *partition, path, *rest]


def check(path: Path, script: Script, sizes: dict[str, str], source: Path) -> list[dict[str, Any]]:
    """Findings that concern the script as it would run, with lines of the file as it is.

    Raises `Problem`, `bench.validation.ValidatorError`.
    """
    if not source.is_dir():
        raise Problem(f"--source {source}: no such directory")
    checked, shift = path, 0
    if sizes:
        checked, shift = _copy(path, script.with_sizes(sizes)), script.added_lines(sizes)
    try:
        paths = [str(source), os.path.relpath(checked)]
        found = validation.findings(paths, Path.cwd())
    finally:
        if checked != path:
            checked.unlink(missing_ok=True)
    mine = [finding for finding in found if Path(finding["path"]).resolve() == checked.resolve()]
    return [{**finding, "line": max(finding["line"] - shift * (finding["line"] > 1), 1)} for finding in mine]


def _holds(source: Path, module: str) -> bool:
    """Whether a tree has the module, in its root or in a folder that holds its sources."""
    inner = Path(*module.split("."))
    roots = [source, *(each for each in source.iterdir() if each.is_dir())]
    return any((root / inner).is_dir() or (root / inner).with_suffix(".py").is_file() for root in roots)


def _copy(path: Path, script: Script) -> Path:
    """The script with the sizes that win, beside the original: what it names relative to itself is found."""
    try:
        handle, name = tempfile.mkstemp(prefix=f"{path.stem}-checked-", suffix=path.suffix or ".sh", dir=path.parent)
        with open(handle, "w", encoding="utf-8") as file:
            file.write(script.text)
    except OSError as error:
        raise Problem(f"{path.parent}: cannot be written, and the sizes given need a copy: {error.strerror}") from None
    return Path(name)


def _line(path: Path, finding: dict[str, Any]) -> str:
    advice = f" → {finding['help']}" if finding.get("help") else ""
    return f"{path}:{finding['line']}: {finding['severity']} {finding['code']} {finding['message']}{advice}"
