"""The small programs of `tests/data/programs`: what the validator must say of each, and what each really does.

A file holds the programs of one class, each begun by `# === name | outcome`. `outcome` is what happens on four ranks:
`hang` (or an exception, or ranks left out of step), `finish`, or `static` for a program that is not run. The lines
that must be reported end in `# error: CODE`.

`python -m tests.rules.programs` prints true and false positives and negatives per class (a finding counts only on
the right line with the right rule) and the noise ratio; `--run` executes the programs as well.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import re
import sys
import tempfile
from collections import Counter
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any, NamedTuple

from tabulate import tabulate

from validator.project import Project
from validator.registry import load_rules
from validator.source import SourceFile

FOLDER = Path(__file__).parent.parent / "data" / "programs"
RANKS = 4
PATIENCE = 3.0  # seconds after which ranks that have not answered count as hanging

_HEADER = re.compile(r"^# === (\w+) \| (\w+)\n", re.MULTILINE)
_MARK = re.compile(r"# error: (MP\d+)")


class Program(NamedTuple):
    """One program. `expected` are the (line, code) pairs that must be reported."""

    family: str
    name: str
    outcome: str
    text: str
    expected: frozenset[tuple[int, str]]


def programs() -> list[Program]:
    """All programs, in the order of their files."""
    found = []
    for path in sorted(FOLDER.glob("*.py")):
        parts = _HEADER.split(path.read_text())[1:]
        for name, outcome, text in zip(parts[::3], parts[1::3], parts[2::3], strict=True):
            marks = ((n, _MARK.search(line)) for n, line in enumerate(text.split("\n"), 1))
            expected = frozenset((n, mark[1]) for n, mark in marks if mark)
            found.append(Program(path.stem, name, outcome, text, expected))
    return found


def reported(program: Program) -> frozenset[tuple[int, str]]:
    """The (line, code) pairs that all rules together report, notes left out."""
    source = SourceFile(f"{program.name}.py", f"/{program.name}.py", program.text.encode())
    project = Project([source])
    found = []
    for rule in load_rules():
        if rule.check_project is not None:
            found += list(rule.check_project(project))
        if rule.check_file is not None:
            found += list(rule.check_file(source))
    return frozenset((f.span.line, f.code) for f in found if f.severity != "note")


# -- running them --------------------------------------------------------------------------------------------


def _rank(rank: int, store: str, parent: Connection) -> None:
    import torch
    import torch.distributed as dist

    os.environ.update(RANK=str(rank), LOCAL_RANK=str(rank), WORLD_SIZE=str(RANKS))
    torch.set_num_threads(1)
    sys.stdout = open(os.devnull, "w")  # noqa: SIM115 (for the life of the process)
    dist.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=RANKS)
    while True:
        text = parent.recv()
        try:
            namespace: dict[str, Any] = {"__name__": "program"}
            exec(compile(text, "program", "exec"), namespace)
            namespace["main"]()
            dist.barrier()  # ranks that are out of step meet the wrong collective here
            parent.send("finish")
        except Exception as error:
            parent.send(f"raise: {error}")


class Ranks:
    """Four gloo ranks that run one program after another, and are replaced when one hangs."""

    def __init__(self) -> None:
        self.context = multiprocessing.get_context("forkserver")
        self.context.set_forkserver_preload(["torch", "torch.distributed", "torch.distributed.device_mesh"])
        self.folder = tempfile.TemporaryDirectory()
        self.generation = 0
        self.members: list[tuple[Any, Connection]] = []

    def _start(self) -> None:
        self.generation += 1
        store = os.path.join(self.folder.name, f"store{self.generation}")
        for rank in range(RANKS):
            ours, theirs = self.context.Pipe()
            process = self.context.Process(target=_rank, args=(rank, store, theirs), daemon=True)
            process.start()
            theirs.close()
            self.members.append((process, ours))

    def close(self) -> None:
        """End the ranks, whatever they are waiting for."""
        for process, ours in self.members:
            process.kill()
            process.join()
            ours.close()
        self.members = []

    def run(self, text: str) -> str:
        """`finish`, or `hang` where a rank did not come through in time or raised."""
        fresh = not self.members
        if fresh:
            self._start()
            self._ask("def main():\n    pass\n", 60.0)
        outcome = self._ask(text, PATIENCE)
        if outcome != "finish":
            self.close()
        return outcome

    def _ask(self, text: str, patience: float) -> str:
        waiting = [ours for _, ours in self.members]
        for ours in waiting:
            ours.send(text)
        while waiting:
            ready = wait(waiting, patience)
            if not ready:
                return "hang"
            for ours in ready:
                assert isinstance(ours, Connection)
                if ours.recv() != "finish":
                    return "hang"
                waiting.remove(ours)
        return "finish"


# -- the table -----------------------------------------------------------------------------------------------


def table() -> str:
    """True and false positives and negatives per class; strict: the right line and the right rule."""
    rows: dict[str, Counter[str]] = {}
    for program in programs():
        found = reported(program)
        row = rows.setdefault(program.family, Counter())
        row["programs"] += 1
        row["TP"] += len(found & program.expected)
        row["FP"] += len(found - program.expected)
        row["FN"] += len(program.expected - found)
        row["TN"] += not program.expected and not found
    rows["all"] = sum(rows.values(), Counter())
    names = ("programs", "TP", "FP", "FN", "TN")
    lines = [[family, *(row[n] for n in names), _share(row, "FN"), _share(row, "FP")] for family, row in rows.items()]
    noise = rows["all"]["FP"] / max(1, rows["all"]["TP"])
    body = tabulate(lines, ["class", *names, "recall", "precision"], tablefmt="github")
    return f"{body}\n\nnoise ratio (false to true positives): {noise:.3f}"


def _share(row: Counter[str], other: str) -> str:
    whole = row["TP"] + row[other]
    return f"{row['TP'] / whole:.3f}" if whole else "–"


def main() -> int:
    parser = argparse.ArgumentParser(description="Score the validator on the small programs.")
    parser.add_argument("--run", action="store_true", help="execute the programs on four gloo ranks as well")
    args = parser.parse_args()
    print(table())
    wrong = 0
    if args.run:
        ranks = Ranks()
        for program in programs():
            if program.outcome != "static" and (outcome := ranks.run(program.text)) != program.outcome:
                wrong += 1
                print(f"{program.family}/{program.name}: said to {program.outcome}, but it does {outcome}")
        ranks.close()
        print(f"programs whose run contradicts the expectation: {wrong}")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
