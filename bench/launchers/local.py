"""This host."""

from __future__ import annotations

import argparse

from bench.launchers import Where
from bench.results import environment


class Local(Where):
    name = "local"
    here = True

    def gpus(self, options: argparse.Namespace) -> int:
        return len(environment.gpus())

    def engine(self, options: argparse.Namespace) -> None:
        return None


WHERE = Local()
