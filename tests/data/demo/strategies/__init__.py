"""A small project with the kinds of defect that the validator finds; see the README."""

from .deepspeed import DeepspeedStrategy
from .fsdp2 import FSDP2Strategy


def get_strategy(args):
    if args.backend == "fsdp2":
        return FSDP2Strategy(args)
    return DeepspeedStrategy(args)
