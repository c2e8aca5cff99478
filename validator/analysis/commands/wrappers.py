"""What stands before the program in a command: shells, and what runs a command elsewhere or otherwise."""

from __future__ import annotations

SHELLS = frozenset({"bash", "sh", "zsh", "dash", "ksh"})
SUBMITS = "sbatch"
RUNS_OTHERS = frozenset({
    "srun", "ray", "nohup", "env", "uv", "coverage", "time", "timeout", "exec", "sudo", "numactl", "taskset", "nsys",
    "apptainer", "singularity", "docker", "podman", "conda", "poetry", "pipenv", "mpirun", "mpiexec", "stdbuf", "nice",
    "ssh", "xvfb-run", "command", "nvprof", "ncu", "unbuffer", "setsid", "anyscale", "kubectl", "enroot", "strace",
    "torchx", "micromamba", "mamba", "pdsh", "run_with_log", "gdb", "hatch", "tox", "rye", "pixi",
})  # fmt: skip
SUFFIXES = (".sh", ".bash", ".slurm", ".sbatch")
OPERATORS = frozenset({"|", "||", "&&", ";", "&", ">", ">>", "2>&1", "2>", "<", "&>", "&>>"})
