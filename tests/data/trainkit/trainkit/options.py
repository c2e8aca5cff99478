"""The command line."""

import argparse


def arguments():
    """The parsed options."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--backend", choices=["deepspeed", "fsdp"], default="deepspeed")
    parser.add_argument("--seed", type=int, default=42)
    parser.add_argument("--lr", type=float, default=1e-5)
    parser.add_argument("--max_norm", type=float, default=1.0)
    parser.add_argument("--epochs", type=int, default=1)
    parser.add_argument("--batch_size", type=int, default=128)
    parser.add_argument("--micro_batch_size", type=int, default=1)
    parser.add_argument("--ring_size", type=int, default=1)
    parser.add_argument("--zero_stage", type=int, default=2)
    parser.add_argument("--output", default="out")
    parser.add_argument("--resume", action="store_true")
    return parser.parse_args()
