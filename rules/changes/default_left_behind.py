"""A default that a change altered in one of several places that state it.

What it does
    Compares the defaults of options, fields, parameters and `getattr(config, "name", default)` before and after a
    change. Reports one that differs now from the others of its name, all of which are as it was.

Why is this bad
    Which of them wins depends on the way that the program takes: the launcher, the config class and the function then
    work with different values.
"""

from __future__ import annotations

from collections.abc import Iterator

from validator.drift.change import Change
from validator.drift.names.defaults import Defaults
from validator.finding import Finding, Related
from validator.rule import Rule

RULE = Rule("MP909", "default-left-behind", "warning", stable_since="0.2.0")


def check_change(change: Change) -> Iterator[Finding]:
    for row in change.analysis(Defaults).rows:
        new = row.new
        yield RULE.finding(
            new.path,
            new.at,
            f"the default of `{new.name}` is {new.value!r} here since the change, and {row.old!r} elsewhere",
            help="change all of them, or none",
            related=[Related(d.path, d.at[0], f"{row.old!r}") for d in row.others[:4]],
            context=f"{new.name}:{new.value!r}",
        )


INCORRECT = (
    """# before: rl/config.py
from dataclasses import dataclass


@dataclass
class Algorithm:
    clip_range: float = 0.2
# file: rl/config.py
from dataclasses import dataclass


@dataclass
class Algorithm:
    clip_range: float = 0.28  # error: MP909
# file: rl/loss.py
def clipped(ratio, clip_range=0.2):
    return ratio.clamp(1 - clip_range, 1 + clip_range)


def from_config(ratio, config):
    return clipped(ratio, getattr(config, "clip_range", 0.2))
""",
)
CORRECT = (
    # the change wrote the other one too
    """# before: serve.py
import argparse


def build(folder=None):
    return folder


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--concurrency-count", type=int, default=10)
    return build(), parser.parse_args().concurrency_count
# file: serve.py
import argparse


def build(folder=None, concurrency_count=10):
    return folder, concurrency_count


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--concurrency-count", type=int, default=16)
    return build(concurrency_count=parser.parse_args().concurrency_count)
""",
    """# before: rl/config.py
class Algorithm:
    clip_range: float = 0.2
# file: rl/config.py
class Algorithm:
    clip_range: float = 0.28
# before: rl/loss.py
def clipped(ratio, clip_range=0.2):
    return ratio.clamp(1 - clip_range, 1 + clip_range)
# file: rl/loss.py
def clipped(ratio, clip_range=0.28):
    return ratio.clamp(1 - clip_range, 1 + clip_range)
""",
    """# before: rl/config.py
class Algorithm:
    clip_range: float = 0.2
# file: rl/config.py
class Algorithm:
    clip_range: float = 0.28
# file: rl/loss.py
def clipped(ratio, clip_range=0.1):
    return ratio.clamp(1 - clip_range, 1 + clip_range)
""",
)
