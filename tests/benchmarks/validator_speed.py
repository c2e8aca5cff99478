"""Measures the validator's speed and memory against its limits, next to Fixit and TorchFix.

    python tests/benchmarks/validator_speed.py [--report reports/speed.md] [--json speed.json]

Two trees: OpenRLHF (the published 0.11.2, or the one that MESHPROOF_OPENRLHF or --tree names), copied into a
git work tree of its own, and the installed `transformers`. All commands of one tree are run in turns. Exit
status 1 when a limit is missed.
"""

from __future__ import annotations

import argparse
import importlib.util
import itertools
import os
import platform
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pyperf

REPOSITORY = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(REPOSITORY))

from tests.benchmarks.processes import Clock, Command, Failed, in_turns, median  # noqa: E402
from tests.real import wheels  # noqa: E402

# Prints the seconds that parsing takes, without reading the files and without the import.
PARSE = """
import libcst, pathlib, sys, time
texts = [pathlib.Path(path).read_bytes() for path in pathlib.Path(sys.argv[1]).read_text().split("\\0")]
clock = {"wall": time.perf_counter, "cpu": time.process_time}[sys.argv[2]]
began = clock()
for text in texts:
    libcst.parse_module(text)
print(clock() - began)
"""


class Row(NamedTuple):
    """One line of the result. `limit` None: shown for comparison only."""

    what: str
    value: float
    limit: float | None
    unit: str

    @property
    def met(self) -> bool:
        return self.limit is None or self.value <= self.limit


class Tree:
    """A tree to validate, with a cache folder of its own."""

    def __init__(self, name: str, folder: Path, scratch: Path) -> None:
        self.name = name
        self.folder = folder
        self.cache = scratch / f"{name}-cache"
        self.files = sorted(path for path in folder.rglob("*.py") if path.is_file())
        self.lines = sum(path.read_bytes().count(b"\n") for path in self.files)
        self.listing = scratch / f"{name}-files"
        self.listing.write_text("\0".join(map(str, self.files)))
        self._numbers = itertools.count()

    def validate(self, name: str, **how: object) -> Command:
        arguments = (sys.executable, "-m", "validator", "--format", "concise", str(self.folder))
        environment = {"MESHPROOF_CACHE_DIR": str(self.cache)}
        return Command(name, arguments, environment, cwd=self.folder, **how)  # type: ignore[arg-type]

    def forget(self) -> None:
        shutil.rmtree(self.cache, ignore_errors=True)

    def change_one_file(self) -> None:
        """Change the file that most of the project hangs on, as an editor would."""
        path = next((path for path in self.files if path.name == "deepspeed.py"), self.files[-1])
        with path.open("a") as file:
            file.write(f"\n_CHANGED = {next(self._numbers)}\n")

    def cold(self) -> Command:
        return self.validate(f"{self.name}: cold", before=self.forget)

    def warm(self) -> Command:
        return self.validate(f"{self.name}: warm")

    def changed(self) -> Command:
        return self.validate(f"{self.name}: one file changed", before=self.change_one_file)

    def parsed(self, clock: Clock) -> Command:
        arguments = (sys.executable, "-c", PARSE, str(self.listing), clock)
        return Command(f"{self.name}: libcst.parse_module alone", arguments, own_clock=True)


def open_rlhf(given: str | None, scratch: Path) -> Tree:
    """A copy of OpenRLHF's package in a git work tree, where it may be changed."""
    named = given or os.environ.get("MESHPROOF_OPENRLHF")
    source = Path(named) if named else wheels.openrlhf("0.11.2")
    if (source / "openrlhf").is_dir():
        source = source / "openrlhf"
    folder = scratch / "checkout" / "openrlhf"
    shutil.copytree(source, folder, ignore=shutil.ignore_patterns("__pycache__", ".git"))
    for arguments in (["init", "--quiet"], ["add", "--all"]):
        subprocess.run(["git", *arguments], cwd=folder.parent, check=True)
    return Tree("OpenRLHF", folder, scratch)


def transformers(scratch: Path) -> Tree:
    spec = importlib.util.find_spec("transformers")
    if spec is None or spec.origin is None:
        raise Failed("transformers is not installed: install '.[bench]' or give --no-transformers")
    return Tree("transformers", Path(spec.origin).parent, scratch)


def peers(tree: Tree) -> Iterator[Command]:
    """Fixit and TorchFix, each with its own rules, from a virtual environment that is kept in the cache."""
    venv = wheels.cache_folder() / "peers"
    python = venv / "bin" / "python"
    if not (venv / "installed").exists():
        subprocess.run([sys.executable, "-m", "venv", str(venv)], check=True)
        install = ["-m", "pip", "--quiet", "--disable-pip-version-check", "install", "fixit", "torchfix"]
        subprocess.run([str(python), *install], check=True)
        (venv / "installed").touch()
    yield Command("Fixit", (str(venv / "bin" / "fixit"), "--quiet", "lint", str(tree.folder)))
    yield Command("TorchFix", (str(venv / "bin" / "torchfix"), "--select", "ALL", str(tree.folder)))


def measure_open_rlhf(
    tree: Tree, rounds: int, clock: Clock, with_peers: bool
) -> tuple[list[Row], list[pyperf.Benchmark]]:
    empty = Command("python -c pass", (sys.executable, "-c", "pass"))
    imports = Command("import libcst", (sys.executable, "-c", "import libcst"))
    long = in_turns([tree.parsed(clock), tree.cold(), *(peers(tree) if with_peers else ())], rounds, clock)
    short = in_turns([empty, imports, tree.warm(), tree.changed()], rounds * 2, clock, warmups=3)
    seconds = {name: median(bench) for name, bench in (long | short).items()}
    cold = seconds["OpenRLHF: cold"]
    rows = [
        Row("cold / libcst.parse_module alone", cold / seconds["OpenRLHF: libcst.parse_module alone"], 1.6, "×"),
        Row("warm / python -c pass", seconds["OpenRLHF: warm"] / seconds["python -c pass"], 4, "×"),
        Row(
            "one file changed / import libcst", seconds["OpenRLHF: one file changed"] / seconds["import libcst"], 2, "×"
        ),
        Row("peak memory, cold", tree.cold().peak_memory() / 1e6, 250, " MB"),
    ]
    rows += [
        Row(f"{name} / cold", seconds[name] / cold, None, "×") for name in ("Fixit", "TorchFix") if name in seconds
    ]
    return rows, [*long.values(), *short.values()]


def measure_transformers(tree: Tree, rounds: int, clock: Clock) -> tuple[list[Row], list[pyperf.Benchmark]]:
    long = in_turns([tree.parsed(clock), tree.cold()], rounds, clock, warmups=0)
    short = in_turns([tree.warm()], rounds * 5, clock, warmups=2)
    seconds = {name: median(bench) for name, bench in (long | short).items()}
    ratio = seconds["transformers: cold"] / seconds["transformers: libcst.parse_module alone"]
    rows = [
        Row("cold / libcst.parse_module alone", ratio, 1.2, "×"),
        Row("warm", seconds["transformers: warm"], 0.5, " s"),
        Row("peak memory, cold", tree.cold().peak_memory() / 1e6, None, " MB"),
    ]
    return rows, [*long.values(), *short.values()]


def table(tree: Tree, rows: list[Row], benchmarks: list[pyperf.Benchmark]) -> str:
    lines = [f"## {tree.name}: {len(tree.files)} files, {tree.lines / 1000:.1f} thousand lines", ""]
    lines += ["| what | measured | limit | |", "|---|---:|---:|---|"]
    for row in rows:
        limit = "" if row.limit is None else f"≤ {row.limit:g}{row.unit}"
        verdict = "" if row.limit is None else "met" if row.met else "**missed**"
        lines.append(f"| {row.what} | {row.value:.2f}{row.unit} | {limit} | {verdict} |")
    lines += ["", "| process | median | fastest | slowest | runs |", "|---|---:|---:|---:|---:|"]
    for bench in benchmarks:
        values = bench.get_values()
        spread = f"{min(values):.3f} s | {max(values):.3f} s | {len(values)}"
        lines.append(f"| {bench.get_name()} | {median(bench):.3f} s | {spread} |")
    return "\n".join(lines) + "\n"


def heading(command: str, clock: Clock) -> str:
    revision = subprocess.run(
        ["git", "-C", str(REPOSITORY), "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=False
    ).stdout.strip()
    load = ", ".join(f"{value:.1f}" for value in os.getloadavg())
    return (
        "# Speed and memory of the validator\n\n"
        f"Made by `{command}` at revision {revision or 'unknown'}: {platform.python_implementation()} "
        f"{platform.python_version()}, {platform.system()} {platform.machine()}, {os.cpu_count()} cores; load "
        f"average at the end {load}. Whole processes, {clock} time, in turns; *cold* starts without a cache and "
        "writes one, *warm* finds everything in it. `libcst.parse_module` is timed inside its process, without "
        "start-up and import. Memory is the sum over all processes with shared pages counted once.\n"
    )


def main() -> int:
    options = arguments()
    parts: list[str] = []
    rows: list[Row] = []
    benchmarks: list[pyperf.Benchmark] = []
    with tempfile.TemporaryDirectory(prefix="meshproof-speed-") as folder:
        scratch = Path(folder)
        tree = open_rlhf(options.tree, scratch)
        results = [(tree, *measure_open_rlhf(tree, options.rounds, options.clock, options.peers))]
        if options.transformers:
            large = transformers(scratch)
            results.append((large, *measure_transformers(large, options.large_rounds, options.clock)))
        for tree, found, measured in results:
            parts.append(table(tree, found, measured))
            rows += found
            benchmarks += measured
    text = "\n".join(
        [heading("python tests/benchmarks/validator_speed.py " + " ".join(sys.argv[1:]), options.clock), *parts]
    )
    print(text)
    if options.report:
        Path(options.report).write_text(text)
    if options.json:
        unique = {bench.get_name(): bench for bench in benchmarks}
        pyperf.BenchmarkSuite(list(unique.values())).dump(options.json, replace=True)
    return 0 if all(row.met for row in rows) else 1


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Measure the validator against its limits.")
    parser.add_argument("--tree", help="folder of OpenRLHF (default: $MESHPROOF_OPENRLHF, else 0.11.2 from PyPI)")
    parser.add_argument("--rounds", type=int, default=7, help="processes per command on OpenRLHF (default: 7)")
    parser.add_argument("--large-rounds", type=int, default=2, help="the same on transformers (default: 2)")
    yes_or_no = argparse.BooleanOptionalAction
    parser.add_argument("--peers", action=yes_or_no, default=True, help="also time Fixit and TorchFix")
    parser.add_argument("--transformers", action=yes_or_no, default=True, help="also measure on transformers")
    parser.add_argument(
        "--clock",
        choices=("wall", "cpu"),
        default="wall",
        help="what is measured (default: wall, for which the limits hold; cpu on a machine that is busy)",
    )
    parser.add_argument("--report", help="write the tables to this file")
    parser.add_argument("--json", help="write the values as a pyperf suite")
    return parser.parse_args()


if __name__ == "__main__":
    try:
        sys.exit(main())
    except (Failed, wheels.NotFetched, OSError, subprocess.CalledProcessError) as problem:
        print(f"error: {problem}", file=sys.stderr)
        sys.exit(2)
