"""A Slurm cluster of two nodes on this machine, from the distribution's packages (Debian: slurmctld, slurmd,
slurm-client, munge), for tests that run where these are installed and may be started."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import time
from pathlib import Path

PROGRAMS = ("slurmctld", "slurmd", "munged", "srun", "sbatch", "squeue", "sinfo", "scancel")
PATHS = ("/usr/sbin", "/usr/bin", "/usr/local/sbin", "/usr/local/bin")
SECONDS = 20.0

CONFIGURATION = """ClusterName=test
SlurmctldHost={host}(127.0.0.1)
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
CredType=cred/munge
AuthInfo=socket={folder}/munge.socket
SlurmctldPort={ports[0]}
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool-%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd-%n.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd-%n.log
SlurmdParameters=config_overrides
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
MpiDefault=none
ReturnToService=2
SwitchType=switch/none
AccountingStorageType=accounting_storage/none
JobAcctGatherType=jobacct_gather/none
NodeName=n1 NodeHostname={host} NodeAddr=127.0.0.1 Port={ports[1]} CPUs=4 State=UNKNOWN
NodeName=n2 NodeHostname={host} NodeAddr=127.0.0.1 Port={ports[2]} CPUs=4 State=UNKNOWN
PartitionName=main Nodes=ALL Default=YES MaxTime=INFINITE State=UP OverSubscribe=YES
"""


class NoSlurm(Exception):
    """Why there is none here, in one line."""


def find(program: str) -> str | None:
    return shutil.which(program, path=os.pathsep.join([*PATHS, os.environ.get("PATH", "")]))


def _ports(count: int) -> list[int]:
    probes = [socket.socket() for _ in range(count)]
    for probe in probes:
        probe.bind(("127.0.0.1", 0))
    found = [probe.getsockname()[1] for probe in probes]
    for probe in probes:
        probe.close()
    return found


class Cluster:
    """Started in `folder`, whose path must be short (a socket lies in it). `environment` makes programs use it."""

    def __init__(self, folder: Path) -> None:
        missing = [program for program in PROGRAMS if find(program) is None]
        if missing:
            raise NoSlurm(f"not installed: {', '.join(missing)}")
        if os.geteuid() != 0:
            raise NoSlurm("slurmd starts tasks as root only")
        self.folder = folder
        self.processes: list[subprocess.Popen[bytes]] = []
        self.environment = {
            "SLURM_CONF": str(folder / "slurm.conf"), "PATH": os.pathsep.join([*PATHS, os.environ.get("PATH", "")]),
        }  # fmt: skip
        try:
            self._start()
        except BaseException:
            self.stop()
            raise

    def _start(self) -> None:
        folder, host = self.folder, socket.gethostname().partition(".")[0]
        for name in ("state", "spool-n1", "spool-n2"):
            (folder / name).mkdir()
        (folder / "slurm.conf").write_text(CONFIGURATION.format(folder=folder, host=host, ports=_ports(3)))
        key = folder / "munge.key"
        key.write_bytes(os.urandom(1024))
        key.chmod(0o600)
        self._run(
            "munged", "--foreground", "--force", f"--key-file={key}", f"--socket={folder}/munge.socket",
            f"--pid-file={folder}/munged.pid", f"--log-file={folder}/munged.log", f"--seed-file={folder}/munge.seed",
        )  # fmt: skip
        self._await((folder / "munge.socket").exists, "munged")
        self._run("slurmctld", "-D", "-c")
        for node in ("n1", "n2"):
            self._run("slurmd", "-D", "-N", node)
        self._await(lambda: self.told("sinfo", "-h", "-t", "idle", "-o", "%D").strip() == "2", "slurmd")

    def _run(self, program: str, *arguments: str) -> None:
        with (self.folder / f"{program}.out").open("ab") as output:
            command = [find(program) or program, *arguments]
            self.processes.append(
                subprocess.Popen(command, stdout=output, stderr=output, env={**os.environ, **self.environment})
            )

    def _await(self, ready, what: str) -> None:  # type: ignore[no-untyped-def]
        deadline = time.monotonic() + SECONDS
        while not ready():
            if time.monotonic() > deadline:
                raise NoSlurm(f"{what} does not start here: {self.folder}")
            time.sleep(0.1)

    def told(self, *command: str) -> str:
        """What a program of Slurm prints; its errors are no output."""
        environment = {**os.environ, **self.environment}
        done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=60, check=False)
        return done.stdout

    def stop(self) -> None:
        """End the jobs, then the daemons, the last one first."""
        if len(self.processes) > 1:
            self.told("scancel", "--user=root")
            deadline = time.monotonic() + SECONDS
            while self.told("squeue", "-h").strip() and time.monotonic() < deadline:
                time.sleep(0.1)
        for process in reversed(self.processes):
            process.send_signal(signal.SIGTERM)
            try:
                process.wait(5)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
