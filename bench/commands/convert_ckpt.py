"""`python -m bench convert-ckpt SOURCE TARGET`: weights between training checkpoints and Hugging Face safetensors.

Checkpoints of every backend and size of bench have one form, which each backend reads at each size: they need this
only on their way from and to other programs. A converted checkpoint holds weights, no optimizer.
"""

from __future__ import annotations

import argparse
import sys
import warnings
from collections.abc import Sequence
from pathlib import Path

from bench.cli import OK
from bench.problems import Problem, in_one_line
from bench.terminal.parsing import Parser, whole


def parser() -> argparse.ArgumentParser:
    """The flags of `bench convert-ckpt`."""
    p = Parser(prog="bench convert-ckpt", description=__doc__)
    p.add_argument("source", type=Path, help="a checkpoint of bench or DeepSpeed, or a safetensors directory")
    p.add_argument("target", type=Path, help="the directory to write")
    p.add_argument(
        "--to", choices=("checkpoint", "huggingface"),
        help="default: huggingface for checkpoints, checkpoint for safetensors",
    )  # fmt: skip
    p.add_argument("--tag", help="which checkpoint of SOURCE; default: the latest")
    p.add_argument("--model", help="where SOURCE does not say which model it is of: config.json, directory or preset")
    p.add_argument("--num-layers", type=whole, help="of that model")
    p.add_argument("--dtype", choices=("fp32", "bf16", "fp16"), default="fp32", help="of the safetensors; default fp32")
    p.add_argument("--bare", action="store_true", help="a checkpoint for a model that is in no bench actor")
    p.add_argument("--trust-pickle", action="store_true", help="read DeepSpeed's pickles, which can run any code")
    return p


@in_one_line
def main(arguments: Sequence[str]) -> int:
    """Exit status 0 written; 2 for what cannot be read or is there already, with one line that says why."""
    options = parser().parse_args(arguments)
    if not options.source.is_dir():  # told before torch is imported
        raise Problem(f"{options.source}: no such directory")
    with warnings.catch_warnings():
        # One process on its own is what is meant here.
        warnings.filterwarnings("ignore", message="torch.distributed is disabled")
        return _convert(options)


def _convert(options: argparse.Namespace) -> int:
    from bench.checkpoints import conversion

    _quieten_transformers()
    source = conversion.find_source(options.source, options.tag)
    to = options.to or (conversion.CHECKPOINT if source.kind == conversion.HUGGING_FACE else conversion.HUGGING_FACE)
    network = conversion.read(source, options.model, options.num_layers, options.trust_pickle)
    model, _ = conversion.describing(source, options.model, options.num_layers)
    written = conversion.write(network, options.target, to, dtype=options.dtype, bare=options.bare, beside=Path(model))
    parameters = sum(parameter.numel() for parameter in network.parameters())
    print(f"{parameters:,} parameters from {source.path} ({source.kind}) written to {written} ({to})")
    return OK


def _quieten_transformers() -> None:
    from transformers.utils import logging

    logging.set_verbosity_error()  # a table of what is missing, of which the first is ours to tell
    if not sys.stderr.isatty():
        logging.disable_progress_bar()
