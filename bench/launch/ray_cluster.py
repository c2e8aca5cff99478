"""Ranks as actors on a running Ray cluster, one per GPU, in a placement group that keeps them close."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from bench.configuration import ConfigurationError
from bench.launch.engine import free_port
from bench.launch.exits import VARIABLE, record
from bench.pickles import one_line
from bench.process.heartbeat import SUPERVISOR, die_with_parent
from bench.process.process_exit import end

CONNECT_SECONDS = 10.0
POLL = 0.2
PASSED = ("MESHPROOF_", "PYTHON", "OMP_", "TOKENIZERS_", "TORCH_", "NCCL_", "GLOO_", "HF_", SUPERVISOR)
"""Beginnings of the names of variables that ranks get from the sweep: their hosts keep their own paths."""


class RayError(ConfigurationError):
    """No cluster, or one too small; the message is one line."""


@dataclass(frozen=True)
class Ray:
    """The cluster at `address`; `gpus` gives each rank a GPU, else a core."""

    address: str
    gpus: bool

    def command(self, ranks: int, module: str, arguments: Sequence[str]) -> list[str]:
        kind = "GPU" if self.gpus else "CPU"
        return [sys.executable, "-m", "bench.launch.ray_cluster", self.address, kind, str(ranks), module, *arguments]


def _connect(address: str) -> Any:
    """The `ray` module, connected. Raises `RayError`."""
    try:
        import ray
    except ImportError:
        raise RayError("--launcher ray needs ray, in the cluster's version: pip install 'meshproof[ray]'") from None
    os.environ.setdefault("RAY_DEDUP_LOGS", "0")
    _check(address)
    try:
        ray.init(address=address, log_to_driver=True, logging_level="ERROR", ignore_reinit_error=True)
    except (Exception, SystemExit) as error:  # Ray's own errors share no class
        raise RayError(f"no Ray cluster at {address}: {one_line(error)}; start one with `ray start --head`") from None
    return ray


def _check(address: str) -> None:
    """Ray itself tries for minutes, then ends the process: see first whether anybody listens at `host:port`."""
    host, _, port = address.rpartition(":")
    if "://" in address or not host or not port.isdigit():
        return
    try:
        socket.create_connection((host, int(port)), timeout=CONNECT_SECONDS).close()
    except OSError as error:
        raise RayError(f"no Ray cluster at {address}: {error}; start one with `ray start --head`") from None


def gpus(address: str) -> int:
    """GPUs of the whole cluster. Raises `RayError`."""
    return int(_connect(address).cluster_resources().get("GPU", 0))


def lanes(address: str, kind: str, ranks: int) -> int:
    """How many groups of so many ranks fit the cluster at once; at least 1."""
    return max(int(_connect(address).cluster_resources().get(kind, 0)) // ranks, 1)


class Rank:
    """An actor that runs one rank as a process of its own: its exit code is what the others learn."""

    def __init__(self) -> None:
        self.process: subprocess.Popen[bytes] | None = None

    def address(self) -> tuple[str, int]:
        """This host, as others reach it, and a free port."""
        import ray

        return str(ray.util.get_node_ip_address()), free_port()

    def host(self) -> str:
        """Something that is equal for actors of one host."""
        import ray

        return str(ray.get_runtime_context().get_node_id())

    def start(self, command: Sequence[str], variables: Mapping[str, str]) -> None:
        self.process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, env={**os.environ, **variables}, preexec_fn=die_with_parent
        )

    def poll(self) -> int | None:
        """The exit code, None while the rank runs."""
        assert self.process is not None
        return self.process.poll()


def _place(ray: Any, kind: str, ranks: int) -> list[Any]:
    """One actor per rank, in order of hosts. Waits until the cluster has room."""
    from ray.util.placement_group import placement_group
    from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

    total = ray.cluster_resources().get(kind, 0)
    if total < ranks:
        raise RayError(f"{ranks} ranks need {ranks} {kind}s, the cluster has {total:.0f}")
    group = placement_group([{kind: 1}] * ranks, strategy="PACK")
    ray.get(group.ready())
    resources = {"num_gpus": 1, "num_cpus": 0} if kind == "GPU" else {"num_cpus": 1}
    actors = [
        ray.remote(Rank)
        .options(
            **resources, scheduling_strategy=PlacementGroupSchedulingStrategy(group, placement_group_bundle_index=index)
        )
        .remote()
        for index in range(ranks)
    ]
    hosts = ray.get([actor.host.remote() for actor in actors])
    order = sorted(range(ranks), key=lambda index: (hosts.index(hosts[index]), index))
    return [actors[index] for index in order]


def variables(hosts: Sequence[str], rank: int, meeting: tuple[str, int]) -> dict[str, str]:
    """What a rank's environment says of its place; `hosts` by rank."""
    mine = [other for other, host in enumerate(hosts) if host == hosts[rank]]
    passed = {k: v for k, v in os.environ.items() if k.startswith(PASSED) and k != VARIABLE}
    return {
        **passed, "RANK": str(rank), "WORLD_SIZE": str(len(hosts)), "LOCAL_RANK": str(mine.index(rank)),
        "LOCAL_WORLD_SIZE": str(len(mine)), "MASTER_ADDR": meeting[0], "MASTER_PORT": str(meeting[1]),
    }  # fmt: skip


def _wait(ray: Any, actors: Sequence[Any]) -> dict[int, int]:
    """Until all ranks have ended or one failed; exit codes of those that failed. A lost actor counts as killed."""
    while True:
        codes: dict[int, int | None] = {}
        for rank, reference in enumerate([actor.poll.remote() for actor in actors]):
            try:
                codes[rank] = ray.get(reference)
            except ray.exceptions.RayError as error:
                print(f"rank {rank} lost its host or actor: {error}", file=sys.stderr)
                codes[rank] = -9
        failed = {rank: code for rank, code in codes.items() if code}
        if failed or all(code == 0 for code in codes.values()):
            return failed
        time.sleep(POLL)


def main(arguments: Sequence[str]) -> int:
    """`python -m bench.launch.ray_cluster ADDRESS KIND RANKS MODULE ARGUMENT…`: run the ranks; 1 when one failed."""
    address, kind, count, module, *rest = arguments
    try:
        ray = _connect(address)
        actors = _place(ray, kind, int(count))
    except RayError as error:
        print(f"RayError: {error}", file=sys.stderr)
        return 1
    hosts = ray.get([actor.host.remote() for actor in actors])
    meeting = ray.get(actors[0].address.remote())
    command = [sys.executable, "-m", module, *rest]
    ray.get([actor.start.remote(command, variables(hosts, rank, meeting)) for rank, actor in enumerate(actors)])
    failed = _wait(ray, actors)
    record(failed)
    for actor in actors:
        ray.kill(actor)
    time.sleep(POLL)  # the last lines of the ranks are still on their way
    return 1 if failed else 0


if __name__ == "__main__":
    end(main(sys.argv[1:]))
