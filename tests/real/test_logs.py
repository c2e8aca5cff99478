"""The parsers on the eight logs of a public replay, one per combination of flash attention, compilation and packing.

MESHPROOF_MIRRORS names the folder of the clones, as in `test_clones`; nothing of the logs is kept here.
"""

from __future__ import annotations

import subprocess
from pathlib import Path

from bench.compare.logs import read_log
from tests.real.test_clones import clone

FAILED = "flash-attn-compile-packing"


def test_every_log_tells_its_forward_time_or_its_first_error() -> None:
    repository = clone("tohtana", "actor_debug_compile")

    def git(*arguments: str) -> str:
        return subprocess.run(
            ["git", "-C", str(repository), *arguments], check=True, capture_output=True, text=True
        ).stdout

    paths = git("ls-tree", "--name-only", "HEAD", "logs/").split()
    runs = {Path(path).stem: read_log(git("show", f"HEAD:{path}").splitlines(), path) for path in paths}
    assert len(runs) == 8
    assert {name for name, run in runs.items() if run.status != "ok"} == {FAILED}
    assert runs[FAILED].message.startswith("torch._dynamo.exc.TorchRuntimeError: Dynamo failed to run FX node")
    assert not runs[FAILED].metrics
    seconds = {name: run.metrics["forward"].means[0] for name, run in runs.items() if name != FAILED}
    assert all(2 < time < 10 if "compile" in name else 0.4 < time < 0.6 for name, time in seconds.items())
    assert all(run.loss is None and run.grad_norm is None for run in runs.values())
