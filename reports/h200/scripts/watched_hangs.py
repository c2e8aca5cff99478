"""`bench watch` over NCCL: jobs of two ranks that hang in many ways, and the paragraph that each of them gets.

    python watched_hangs.py OUT.json [--at-once 6] [--only WAY,WAY] [--limit 6]

The jobs are those of `tests/data/hang/many_hangs.py`, on GPUs, under torchrun; `kernel` is `watched.py` with work that
has no end on one GPU. `no_hang` must end by itself and be told of by nobody.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[2]
TREE = ROOT / "tests" / "data" / "hang"
PROGRAM = TREE / "many_hangs.py"
OTHER = ("main", "fork_two", "kernel")


def ways() -> list[str]:
    return [*(way for way in re.findall(r"^def (\w+)", PROGRAM.read_text(), re.M) if way not in OTHER), "kernel"]


def run(way: str, limit: float) -> dict[str, Any]:
    program = (
        [str(HERE / "watched.py"), os.devnull, "--hang-at", "100"] if way == "kernel" else [str(PROGRAM), way, "nccl"]
    )
    source = HERE if way == "kernel" else TREE
    with tempfile.TemporaryDirectory() as folder:
        command = [
            sys.executable, "-m", "bench", "watch", "--limit", str(limit), "--source", str(source), "--output",
            f"{folder}/dumps", "--", sys.executable, "-m", "torch.distributed.run", "--standalone",
            "--nproc-per-node=2", *program,
        ]  # fmt: skip
        started = time.time()
        variables = os.environ | {"PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])}
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False, env=variables)
        left = sorted(path.name for path in Path(folder).glob("dumps/*"))
        stacks = {path.name: path.read_text(errors="replace") for path in Path(folder).glob("dumps/stacks.*.txt")}
    told = [" ".join(text.split()) for text in done.stderr.split("\n\n") if "stood still for" in text]
    return {
        "way": way, "status": done.returncode, "seconds": time.time() - started, "told": told, "left": left,
        "stacks": stacks,
        "stderr": "" if told else done.stderr[-2500:], "stdout": done.stdout[-300:],
    }  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    parser.add_argument("--at-once", type=int, default=6)
    parser.add_argument("--only", default="")
    parser.add_argument("--limit", type=float, default=6.0)
    options = parser.parse_args()
    wanted = options.only.split(",") if options.only else ways()
    with ThreadPoolExecutor(options.at_once) as pool:
        rows = []
        for row in pool.map(lambda way: run(way, options.limit), wanted):
            rows.append(row)
            options.out.write_text(json.dumps(rows, indent=1) + "\n", encoding="utf-8")
            print(
                f"{row['seconds']:5.0f}s {row['status']:4} {row['way']}: {row['told'] or row['stderr'][-300:]}",
                flush=True,
            )


if __name__ == "__main__":
    main()
