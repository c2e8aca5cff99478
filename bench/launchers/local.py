"""This host."""

from __future__ import annotations

import argparse

from bench.launchers import DEFAULT, Where
from bench.results import environment


class Local(Where):
    name = DEFAULT
    here = True

    def gpus(self, options: argparse.Namespace) -> int:
        return len(environment.gpus())

    def engine(self, options: argparse.Namespace) -> None:
        return None


WHERE = Local()
