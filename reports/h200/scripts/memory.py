"""Measured peaks against the memory model of `bench plan`: the table of `reports/h200/memory.md`.

    python reports/h200/scripts/memory.py [--fit] > reports/h200/memory.md

`--fit` fits the constants again, from the values that stand in `bench.predict.memory.Constants`, and says where they
differ.
"""

from __future__ import annotations

import argparse
from dataclasses import asdict, replace
from pathlib import Path

from memory_fit import CHOICES, Peak, fit, peaks, spread
from tabulate import tabulate

from bench.predict.moments import CONSTANTS

RESULTS = Path(__file__).resolve().parent.parent / "results"
HEADER = """# Peak memory: measured and predicted

Made by `python reports/h200/scripts/memory.py --fit > reports/h200/memory.md`, from `results/*.jsonl`: the peak that
torch's allocator handed out on the fullest GPU of a step (`max_memory_allocated`), less what earlier rows of the same
process had left, against `bench.predict.memory.estimate`, which `bench plan` prints.
All rows have Llama 3.1 8B's shape but one, which has Gemma 3's.

The terms are read off the code of torch, DeepSpeed, transformers and `bench` (`memory.py` and `activations.py` of
`bench/predict` name it). Three constants are fitted, to {fitted} rows: 2, 4 and 8 layers on four GPUs, no tensor
parallelism, no ring (`matrix.jsonl`), with the least mean absolute error: {constants}
Least squares would choose 18, 3 and 0; the held-out errors would then be
{squares}.
The other {held} rows are held out: no constant was fitted to them. They are not unseen: which tensors exist at which
moment was checked against the peaks of single phases (forward, backward, optimizer) of rows in both groups.

Positions are those of the longest micro-batch in the step whose memory was measured (`memory_positions` in the results;
for rows of runs 1 to 6 drawn again from their seeds by `scripts/positions.py`, which checks their sum against the
recorded one; of the recorded inputs every 24th file by name was used). Rows measured before FSDP2 sharded the embedding
apart are predicted with both tables in one group. Two things of older code are not predicted: in runs 17 to 19 FSDP2 on
one rank gathered parameters while the gradients were still there, and with tp until run 10 each rank had whole logits.
Left out: one ZeRO-3 row, whose peak is below its own states: memory of the rows before it was freed while it ran.

Not predicted: what the allocator *reserves*. It takes new memory from a GPU that has room rather than wait for old
blocks: in the 47 rows with less than 0.2 GB left by earlier ones it held 1.02 to 2.1 times the peak, 1.02 to 1.24 times
with 32 layers. `bench plan` adds 5% and 1.5 GB, which may suit a GPU that is nearly full, but was not measured on one.

"""


def rows(found: list[Peak]) -> str:
    lines = []
    for peak in sorted(found, key=lambda one: -abs(one.error())):
        expected, moment = peak.estimate()
        tokens = peak.layout.micro_batch_size * peak.layout.seq_len
        lines.append(
            [peak.name, f"{tokens:,}", f"{peak.measured / 1e9:.2f}", f"{expected / 1e9:.2f}",
             f"{100 * peak.error():+.1f}%", moment]
        )  # fmt: skip
    headings = ["row", "positions", "measured GB", "predicted GB", "error", "peak at"]
    return tabulate(lines, headings, tablefmt="pipe", disable_numparse=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--fit", action="store_true")
    options = parser.parse_args()
    found = peaks(RESULTS)
    fitted, held = [p for p in found if p.fitted], [p for p in found if not p.fitted]
    best = fit(fitted) if options.fit else CONSTANTS
    texts = [f"`{name}` = {asdict(best)[name]:g}" for name in CHOICES]
    if best != CONSTANTS:
        texts.append("**other than what bench/predict/memory.py holds**")
    middle, worst = spread(held, replace(CONSTANTS, chunk_backward=18, zero_table_copies=3, fsdp_layers=0))
    squares = f"{100 * middle:.1f}% and {100 * worst:.1f}% (median, largest)"
    constants = "; ".join(texts) + "."
    print(HEADER.format(fitted=len(fitted), held=len(held), constants=constants, squares=squares), end="")
    summary = []
    for name, group in (("fitted", fitted), ("held out", held)):
        middle, worst = spread(group)
        summary.append([name, len(group), f"{100 * middle:.1f}%", f"{100 * worst:.1f}%"])
    print(
        tabulate(summary, ["rows", "number", "median error", "largest error"], tablefmt="pipe", disable_numparse=True)
    )
    print(f"\n## Held out\n\n{rows(held)}\n\n## Fitted\n\n{rows(fitted)}")


if __name__ == "__main__":
    main()
