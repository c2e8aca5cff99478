"""`python -m bench convert IN OUT`: rewrite recorded batches as safetensors, which need no unpickling."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from bench.problems import in_one_line
from bench.terminal.parsing import Parser


@in_one_line
def main(arguments: Sequence[str]) -> int:
    """Exit status 0; 2 for an input that is refused, with one line that names file and field."""
    parser = Parser(prog="bench convert", description=__doc__)
    parser.add_argument("source", type=Path, help="a file or directory of recorded batches")
    parser.add_argument("target", type=Path, help="the directory to write")
    options = parser.parse_args(arguments)
    from bench.inputs.captured import convert

    number = convert(options.source, options.target)
    print(f"{number} batches written to {options.target}")
    return 0
