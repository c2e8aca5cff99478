"""Prints which fault in which phase ends as which row: `python -m tests.bench.fault_table`, from the tests' cases."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterable, Sequence

from tabulate import tabulate

from tests.bench.light_worker import BEFORE
from tests.bench.test_faults import CASES, RUNNING, Case

PHASES = (BEFORE, *RUNNING)
WORDS = {"exit_0": "exit 0 without result", "killed": "SIGKILL", "stopped": "SIGSTOP", "hang": "hang of one rank",
         "exception": "exception on one rank", "nan": "NaN loss", "gigabyte_log": "1 GiB log", "long_log": "40 MiB log",
         "segmentation_fault": "SIGSEGV", "not_installed": "package missing"}  # fmt: skip


def table(cases: Iterable[Case]) -> str:
    """Markdown: a line per fault, a column per phase."""
    found = {(case.fault, case.phase): case.status for case in cases}
    faults = dict.fromkeys(fault for fault, _ in found)
    lines = [[WORDS.get(f, f.replace("_", " ")), *(found.get((f, phase), "") for phase in PHASES)] for f in faults]
    return str(tabulate(lines, headers=["", *PHASES], tablefmt="github"))


def text(cases: Sequence[Case] = CASES) -> str:
    """The table, the cases under torchrun, and how many there are."""
    torchrun = [f"{WORDS.get(c.fault, c.fault)} in {c.phase}: `{c.status}`" for c in cases if c.elastic]
    counted = ", ".join(f"{count} `{status}`" for status, count in Counter(c.status for c in cases).most_common())
    return (
        f"{table(case for case in cases if not case.elastic)}\n\n"
        f"Under torchrun's agent: {'; '.join(torchrun)}.\n\n"
        f"{len(cases)} cases: {counted}.\n"
    )


if __name__ == "__main__":
    sys.stdout.write(text())
