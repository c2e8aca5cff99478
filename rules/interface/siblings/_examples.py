"""The frame of the examples of the family rules: two sibling strategies, their factory and a caller."""

from __future__ import annotations

from textwrap import dedent, indent

_FRAME = """\
class DeepspeedStrategy:
{first}

class FsdpStrategy:
{second}

def get_strategy(args):
    if args.backend == "fsdp":
        return FsdpStrategy()
    return DeepspeedStrategy()

def train(args, model):
    strategy = get_strategy(args)
{use}
"""


def pair(first: str, second: str, use: str) -> str:
    """Source with `first` as the body of DeepspeedStrategy, `second` of FsdpStrategy, `use` in a caller."""
    texts = {"first": first, "second": second, "use": use}
    return _FRAME.format(**{name: indent(dedent(text).strip(), "    ") for name, text in texts.items()})
