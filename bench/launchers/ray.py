"""A running Ray cluster: an actor per rank, as many rows at a time as it fits."""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from typing import Any

from bench.configuration import Configuration
from bench.launch import ray_cluster
from bench.launchers import Where


class Ray(Where):
    name = "ray"
    text = "a running cluster"

    def add(self, group: Any) -> None:
        group.add_argument("--ray-address", default="auto",
                           help="of the cluster's head; default: the one on this machine")  # fmt: skip

    def check(self, options: argparse.Namespace, settings: Mapping[str, Any]) -> None:
        ray_cluster.gpus(options.ray_address)

    def gpus(self, options: argparse.Namespace) -> int:
        return 0 if options.device == "cpu" else ray_cluster.gpus(options.ray_address)

    def engine(self, options: argparse.Namespace) -> ray_cluster.Ray:
        return ray_cluster.Ray(options.ray_address, gpus=options.device != "cpu")

    def lanes(self, options: argparse.Namespace, configurations: Sequence[Configuration]) -> int:
        """As many of the largest row as the cluster fits."""
        largest = max(configuration.num_gpus for configuration in configurations)
        return ray_cluster.lanes(options.ray_address, "CPU" if options.device == "cpu" else "GPU", largest)


WHERE = Ray()
