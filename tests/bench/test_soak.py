"""Three hundred configurations in one sweep, a third of them with a fault: every row, and nothing that grows.

With `-rP` pytest shows what it found.
"""

from __future__ import annotations

import faulthandler
import os
import random
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import psutil
import pytest

from bench.configuration import Configuration
from bench.matrix.lanes import LanedSweep
from bench.process import supervise
from tests.bench.light_sweep import TINY, job
from tests.bench.light_worker import BEFORE
from tests.bench.test_faults import CASES, DEADLINES, started_by

LIGHT, REAL = 300, 30
SLACK = 40 * 2**20
"""Bytes by which the parent may grow over a third of the rows: each stays in memory with its results."""


class Soak(LanedSweep):
    """Notes, before each row, what this process holds."""

    faults: Mapping[Configuration, str] = {}
    seen: list[tuple[int, int]]

    def _job(self, configuration: Configuration) -> supervise.Job:
        me = psutil.Process()
        self.seen.append((me.memory_info().rss, me.num_fds()))
        if configuration in self.faults:
            return job(self.faults[configuration])
        return supervise.Job(environment={"CUDA_VISIBLE_DEVICES": ""})


def _tell(rows: Sequence[Mapping[str, Any]], seen: Sequence[tuple[int, int]], seconds: float) -> None:
    """What a report wants to know: classes, and what this process held in each third and with the real rows."""
    counted = ", ".join(f"{count} {status}" for status, count in Counter(row["status"] for row in rows).most_common())
    print(f"{len(rows)} rows in {seconds:.0f} s: {counted}")
    third = LIGHT // 3
    for name, start in {"first": 0, "second": third, "last": 2 * third, "real": LIGHT}.items():
        part = seen[start : start + third]
        rss, descriptors = [rss / 2**20 for rss, _ in part], [count for _, count in part]
        print(f"{name}: {min(rss):.0f}-{max(rss):.0f} MiB, {min(descriptors)}-{max(descriptors)} file descriptors")


@pytest.mark.slow
def test_a_night_of_rows_ends_with_all_of_them(tmp_path: Path) -> None:
    faulthandler.cancel_dump_traceback_later()  # minutes are no sign of a hang here
    chance = random.Random(7)
    cases = [
        case
        for case in CASES
        if not case.elastic and case.phase not in ("start", BEFORE) and case.fault != "gigabyte_log"
    ]
    light = [replace(TINY, random_seed=number) for number in range(LIGHT)]
    chosen = {cell: chance.choice(cases) for cell in chance.sample(light, LIGHT // 3)}
    real = [
        replace(TINY, num_gpus=1, seq_len=16, steps=1, warmup=1, num_layers=1, random_seed=number)
        for number in range(REAL)
    ]
    patient = {**dict.fromkeys(DEADLINES, 6.0), "start": 60.0, "lost": 0.5}  # a busy machine is no fault
    faulty = Soak(light, tmp_path, processes=1, quiet=True, lanes=4, skip=False, deadlines=patient)
    faulty.faults = {cell: f"{chosen[cell].phase}:{chosen[cell].fault}" if cell in chosen else "" for cell in light}
    plain = Soak(real, tmp_path, processes=1, quiet=True, lanes=2)
    faulty.seen = plain.seen = seen = []
    started = time.monotonic()
    rows = [*faulty.run(), *plain.run()]
    assert len(rows) == LIGHT + REAL
    for cell, row in zip([*light, *real], rows, strict=True):
        assert row["status"] == (chosen[cell].status if cell in chosen else "ok"), row["message"]
    assert started_by(os.getpid()) == []
    _tell(rows, seen, time.monotonic() - started)
    third = LIGHT // 3
    middle, last = seen[third : 2 * third], seen[2 * third : LIGHT]
    # Peaks: while long logs are copied, each lane holds the end of one.
    assert max(rss for rss, _ in last) - max(rss for rss, _ in middle) < SLACK
    assert abs(last[-1][1] - middle[-1][1]) < 20
    assert psutil.Process().num_fds() < 60
