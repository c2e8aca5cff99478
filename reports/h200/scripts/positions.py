"""Writes into each recorded row the positions of the one step whose memory was measured.

    python positions.py RESULTS.jsonl... [--inputs FOLDER]

Batches differ in length, and a peak belongs to the longest one that a rank had in that step; the first results
recorded averages only. The batches depend on the seed and their number alone, so they can be drawn again: the
measured steps must add up to the positions that the row recorded, or it is left as it is. `--inputs` holds the
recorded batches of the rows that trained on some (by file name). Newer results hold `memory_positions` already.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from bench.configuration import Configuration, ConfigurationError, model_facts, parse
from bench.inputs.batch import InputError
from bench.inputs.packing import ModelInputs
from bench.inputs.source import InputSource, to_inputs
from bench.losses import find_loss


def positions(configuration: Configuration, steps: int) -> list[list[int]]:
    """Positions per step and data-parallel rank, of the longest micro-batch."""
    c = configuration
    vocabulary = model_facts(c.model, c.num_layers).vocab
    ranks = [_rank(InputSource(c, vocabulary, rank), c) for rank in range(c.dp)]
    return [[next(rank) for rank in ranks] for _ in range(steps)]


def _rank(source: InputSource, c: Configuration) -> Iterator[int]:
    use_actions = find_loss(c.loss).use_actions
    for batches in source.micro_batches(max(c.batch // (c.rows * c.dp), 1)):
        inputs: list[ModelInputs] = [
            to_inputs(batch, c, use_actions=use_actions, ring_rank=0, ring_size=c.ring) for batch in batches
        ]
        yield max(one.positions for one in inputs)


def add(row: dict[str, Any], inputs: Path | None) -> str:
    """What was found for the row, which gets the field if it is sure."""
    run = row["runs"][0]
    if "memory_positions" in run:
        return "has it"
    known = {k: v for k, v in row["configuration"].items() if k in Configuration.__dataclass_fields__}
    try:
        c = parse(known)
    except ConfigurationError:
        c = replace(Configuration(), **known)
    if c.inputs and inputs is None:
        return "needs --inputs"
    if c.inputs and inputs is not None:
        found = sorted(inputs.rglob(Path(c.inputs).name))
        c = replace(c, inputs=str(found[0] if found else inputs))
    warm, timed = len(run["warmups"]), len(run["times"])
    try:
        steps = positions(c, warm + timed + 1)
    except (InputError, OSError) as error:
        return f"not drawn: {error}"
    total = sum(map(sum, steps[warm : warm + timed]))
    if total != run["tokens"]["positions"]:
        return f"drawn {total} positions, recorded {run['tokens']['positions']:.0f}: left as it is"
    run["memory_positions"] = max(steps[-1])
    return f"{max(steps[-1])} positions"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("results", type=Path, nargs="+")
    parser.add_argument("--inputs", type=Path)
    options = parser.parse_args()
    for file in options.results:
        lines = []
        for line in file.read_text(encoding="utf-8").splitlines():
            row = json.loads(line)
            if row.get("status") == "ok" and row.get("runs"):
                print(f"{file.name}: {row['label']}: {add(row, options.inputs)}", flush=True)
                line = json.dumps(row)
            lines.append(line)
        file.write_text("\n".join(lines) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
