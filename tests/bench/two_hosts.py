"""Two hosts on one machine: network namespaces with names and addresses of their own, joined by a cable.

    unshare --net --uts python -m tests.bench.two_hosts sweep OUTPUT

makes its own namespace `host-a`, where the sweep runs, and starts `host-b` beside it, whose processes all end when it
does. The ranks of a row are started by one agent of torchrun on each host.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from bench.configuration import Configuration
from bench.launch.exits import record
from bench.process import supervise
from bench.process.heartbeat import die_with_parent, read_all
from bench.sweep.sweep import Sweep

PROGRAMS = ("unshare", "nsenter", "ip")
CABLE, ADDRESSES = "cable", ("10.77.0.1", "10.77.0.2")
PORT = 29400
"""Free, because the namespace is new."""

FOUR = Configuration(
    backend="ddp", num_gpus=4, device="cpu", dtype="fp32", seq_len=32, warmup=1, steps=2, micro_batch_size=1
)
POLL, GRACE = 0.1, 10.0
LONG = replace(FOUR, steps=5000)
"""What runs when its second host goes."""


def namespaces() -> list[str]:
    """The beginning of a command that runs on a host of its own. Raises `OSError` where that is not allowed."""
    missing = [program for program in PROGRAMS if shutil.which(program) is None]
    if missing:
        raise OSError(f"not installed: {', '.join(missing)}")
    command = ["unshare", "--net", "--uts", *([] if os.geteuid() == 0 else ["--user", "--map-root-user"])]
    tried = subprocess.run([*command, "ip", "link", "add", "x", "type", "veth"], capture_output=True, check=False)
    if tried.returncode:
        raise OSError(f"no network namespaces here: {tried.stderr.decode(errors='replace').strip()}")
    return command


def _ip(*words: str, inside: Sequence[str] = ()) -> None:
    subprocess.run([*inside, "ip", *words], check=True)


def become_host_a() -> None:
    socket.sethostname("host-a")
    _ip("link", "set", "lo", "up")


class HostB:
    """The other host. `pid` is its first process; when that ends, the kernel ends all others there."""

    def __init__(self) -> None:
        # The first process of a namespace takes no signal that it has no handler for but SIGKILL from outside.
        command = ["unshare", "--net", "--uts", "--pid", "--fork", "--kill-child", "--mount-proc", "sleep", "600"]
        self.process = subprocess.Popen(command, stderr=subprocess.DEVNULL, preexec_fn=die_with_parent)
        children = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children")
        deadline = time.monotonic() + 10
        while not children.read_text().split() and time.monotonic() < deadline:
            time.sleep(0.01)
        self.pid = int(children.read_text().split()[0])
        while self._namespace("net") == os.readlink("/proc/self/ns/net") and time.monotonic() < deadline:
            time.sleep(0.01)
        self._connect()

    def _namespace(self, kind: str) -> str:
        return os.readlink(f"/proc/{self.pid}/ns/{kind}")

    def command(self) -> list[str]:
        """The beginning of a command that runs there."""
        return ["nsenter", "--target", str(self.pid), "--net", "--uts", "--pid", "--mount"]

    def _connect(self) -> None:
        """Both ends have the same name: `GLOO_SOCKET_IFNAME` is the same on all hosts."""
        inside = self.command()
        _ip("link", "add", CABLE, "type", "veth", "peer", "name", CABLE, "netns", str(self.pid))
        for address, where in zip(ADDRESSES, ((), inside), strict=True):
            _ip("address", "add", f"{address}/30", "dev", CABLE, inside=where)
            _ip("link", "set", CABLE, "up", inside=where)
        _ip("link", "set", "lo", "up", inside=inside)
        subprocess.run([*inside, "hostname", "host-b"], check=True)

    def die(self) -> None:
        """As by a failure of its power: nobody there says good-bye."""
        os.kill(self.pid, signal.SIGKILL)
        self.process.wait()


@dataclass
class TwoHosts:
    """Starts half of a row's ranks on each host; `host_b` is started anew where it is gone."""

    host_b: HostB = field(default_factory=HostB)

    def command(self, ranks: int, module: str, arguments: Sequence[str]) -> list[str]:
        if self.host_b.process.poll() is not None:
            self.host_b = HostB()
        there = json.dumps(self.host_b.command())
        return [sys.executable, "-m", "tests.bench.two_hosts", "ranks", there, str(ranks), module, *arguments]


def _agent(number: int, ranks: int, module: str, arguments: Sequence[str]) -> list[str]:
    rendezvous = [
        "--rdzv-backend=c10d", f"--rdzv-endpoint={ADDRESSES[0]}:{PORT}", "--rdzv-id=row",
        f"--rdzv-conf=is_host={int(number == 0)}", f"--local-addr={ADDRESSES[number]}",
    ]  # fmt: skip
    flags = ["--nnodes=2", f"--nproc-per-node={ranks // 2}", *rendezvous]
    return [sys.executable, "-m", "torch.distributed.run", *flags, "-m", module, *arguments]


def start_ranks(there: Sequence[str], ranks: int, module: str, arguments: Sequence[str]) -> int:
    """Run an agent on each host until both have ended. One that fails ends the other a while later."""
    os.environ["GLOO_SOCKET_IFNAME"] = CABLE
    agents = [
        subprocess.Popen([*where, *_agent(number, ranks, module, arguments)], preexec_fn=die_with_parent)
        for number, where in enumerate(((), there))
    ]
    signal.signal(signal.SIGTERM, lambda *_: [agent.terminate() for agent in agents])
    while any(agent.poll() is None for agent in agents) and not any(agent.poll() for agent in agents):
        time.sleep(POLL)
    deadline = time.monotonic() + GRACE  # the other host learns of it by itself, as where nobody stands beside them
    while any(agent.poll() is None for agent in agents) and time.monotonic() < deadline:
        time.sleep(POLL)
    for agent in agents:
        if agent.poll() is None:
            agent.terminate()
    codes = [agent.wait() for agent in agents]
    if codes[1] == -signal.SIGKILL:  # with its host
        record(dict.fromkeys(range(ranks // 2, ranks), codes[1]))
    return max(map(abs, codes))


def _end_when_training(launcher: TwoHosts, folder: Path) -> None:
    """Take host-b away once all ranks have done a measured step."""
    deadline = time.monotonic() + 100
    while time.monotonic() < deadline:
        beats = read_all(folder, "heartbeat")
        if sum(beat["phase"] == "measure" for beat in beats) == LONG.num_gpus:
            launcher.host_b.die()
            return
        time.sleep(0.05)


def sweep(output: Path) -> None:
    """Two rows on two hosts, of which one dies in the first; then the second row on a single one."""
    become_host_a()
    launcher = TwoHosts()
    threading.Thread(target=_end_when_training, args=(launcher, LONG.directory(output / "two")), daemon=True).start()
    deadlines = {"lost": 2.0, "end": 5.0}
    Sweep([LONG, FOUR], output / "two", processes=1, quiet=True, launcher=launcher, deadlines=deadlines).run()
    launcher.host_b.die()
    OneHost([FOUR], output / "one", processes=1, quiet=True).run()


class OneHost(Sweep):
    """All ranks here, from one process."""

    def _job(self, configuration: Configuration) -> supervise.Job:
        return supervise.Job(fork=True)


def main(arguments: Sequence[str]) -> int:
    what, *rest = arguments
    if what == "ranks":
        there, ranks, module, *own = rest
        return start_ranks(json.loads(there), int(ranks), module, own)
    sweep(Path(rest[0]))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
