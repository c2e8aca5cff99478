"""`python -m bench submit`: refused for its sizes or options, else given to sbatch or bash as it is."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from bench import validation
from bench.commands.submit import main
from bench.launch.script import Script

JOB = """#!/bin/bash
#SBATCH --job-name=sft
#SBATCH -N 2
#SBATCH --gpus-per-node=8
#SBATCH --ntasks-per-node=1

srun torchrun --nnodes $SLURM_NNODES --nproc_per_node 8 --rdzv_backend c10d --rdzv_endpoint "$HEAD:29500" \\
    -m openrlhf.cli.train_sft --ring_attn_size {ring} --packing_samples --train_batch_size 128 \\
    --micro_train_batch_size 1
"""
PROGRAM = """import argparse
parser = argparse.ArgumentParser()
parser.add_argument("--lr", type=float)
print("trained with", parser.parse_args().lr)
"""


@pytest.fixture
def cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder to submit from, with an `sbatch` that notes what it is given; returns the note's path."""
    programs, work, note = tmp_path / "bin", tmp_path / "work", tmp_path / "note.json"
    programs.mkdir()
    work.mkdir()
    sbatch = programs / "sbatch"
    sbatch.write_text(
        "#!/usr/bin/env python3\nimport json, sys\n"
        f"json.dump(sys.argv[1:], open({str(note)!r}, 'w'))\n"
        "if any('closed' in word for word in sys.argv):\n"
        "    sys.exit('sbatch: error: invalid partition specified: closed\\nsbatch: error: Submission failed')\n"
        "print('4711;main')\n"
    )
    sbatch.chmod(0o755)
    monkeypatch.setenv("PATH", str(programs), prepend=os.pathsep)
    monkeypatch.chdir(work)
    return note


def test_sizes_that_do_not_fit_are_refused_with_the_constraint(
    cluster: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("job.sh").write_text(JOB.format(ring=3))
    assert main(["job.sh"]) == 1
    told = capsys.readouterr().out
    assert "job.sh:8: error MP705" in told
    assert "(world-divisible)" in told
    assert "not submitted: 1 error in job.sh" in told
    assert not cluster.exists()


def test_sizes_that_fit_are_submitted(cluster: Path, capsys: pytest.CaptureFixture[str]) -> None:
    Path("job.sh").write_text(JOB.format(ring=2))
    assert main(["job.sh", "--partition", "main", "--", "--resume", "a b; rm"]) == 0
    assert capsys.readouterr().out.splitlines()[-1] == "submitted as job 4711"
    assert json.loads(cluster.read_text()) == ["--parsable", "--partition=main", "job.sh", "--resume", "a b; rm"]


def test_sizes_given_by_hand_win_over_the_script(cluster: Path, capsys: pytest.CaptureFixture[str]) -> None:
    Path("job.sh").write_text(JOB.format(ring=16))
    assert main(["job.sh", "--nodes", "1"]) == 1
    told = capsys.readouterr().out
    assert "job.sh:8: error MP705" in told
    assert "not submitted" in told
    assert main(["job.sh", "--gpus-per-node", "4"]) == 1
    assert "MP706 `torchrun` starts 8 processes on each node" in capsys.readouterr().out
    assert main(["job.sh", "--nodes", "4"]) == 0
    assert json.loads(cluster.read_text())[:2] == ["--parsable", "--nodes=4"]
    assert sorted(os.listdir()) == ["job.sh"]


def test_options_are_held_against_the_program(cluster: Path, capsys: pytest.CaptureFixture[str]) -> None:
    Path("train.py").write_text(PROGRAM)
    Path("job.sh").write_text("#!/bin/bash\n#SBATCH --nodes=1\nsrun python train.py --lrr 0.1\n")
    assert main(["job.sh"]) == 1
    assert "MP701 `--lrr` is no option of `train`" in capsys.readouterr().out
    assert main(["job.sh", "--force"]) == 0
    assert cluster.exists()


@pytest.mark.parametrize(
    ("command", "told"),
    [
        ("srun py -m bench --num-layer 2", "`--num-layer` is no option of `bench run`; did you mean --num-layers"),
        ("python -m bench sft --backend fsdp2 --ringsize=2", "`--ringsize` is no option of `bench sft`"),
        ("python -m bench compre a b", "bench has no command `compre`; did you mean compare?"),
        ("cd x && py -m bench sft --dtype fp16 > log", "`bench sft`: argument --dtype/--param_dtype: invalid choice"),
        ("torchrun -m bench run \\\n --tp 0", "`bench run`: argument --tp"),
        ("python -m bench plan --model m | tee log", "`bench plan`: the following arguments are required: --gpus"),
        ("python -m bench compare a b --treshold $T", "`--treshold` is no option of `bench compare`"),
        ("python -m bench sft --num-gpus $N --tp=${TP} >log 2>&1", ""),
        ("# python -m bench nothing", ""),
        ("echo ready; python -m bench run --help; python -m bench sft --max-samples 8 && echo done", ""),
        ("python -m bench $COMMAND --flag", ""),
    ],
)  # fmt: skip
def test_the_commands_of_bench_are_held_against_their_own_flags(
    command: str, told: str, cluster: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("job.sh").write_text(f"#!/bin/bash\n#SBATCH --nodes=1\n\n{command}\n")
    assert main(["job.sh", "--dry-run"]) == (1 if told else 0)
    first = capsys.readouterr().out.splitlines()[0]
    assert first.startswith(f"job.sh:4: error bench-flags {told}" if told else "sbatch")


def test_a_program_out_of_sight_is_told(cluster: Path, capsys: pytest.CaptureFixture[str]) -> None:
    Path("job.sh").write_text(
        "#!/bin/bash\n#SBATCH --nodes=1\nsrun python -m torch.distributed.run \\\n  -m a.train --lr 1\n"
    )
    assert main(["job.sh", "--dry-run"]) == 0
    assert "note: a.train does not lie in .: its options were not checked; give --source" in capsys.readouterr().out
    Path("src/a").mkdir(parents=True)
    Path("src/a/train.py").write_text(PROGRAM)
    assert main(["job.sh", "--dry-run"]) == 0
    assert capsys.readouterr().out == "sbatch --parsable job.sh\n"


def test_a_script_without_slurm_runs_in_bash(
    cluster: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    Path("train.py").write_text(PROGRAM)
    Path("run.sh").write_text('echo "given: $1"\npython3 train.py --lr 0.5\n')
    assert main(["run.sh", "$(touch x)"]) == 0
    assert capfd.readouterr().out.splitlines() == ["given: $(touch x)", "trained with 0.5"]
    assert not Path("x").exists()
    assert main(["run.sh", "--dry-run"]) == 0
    assert capfd.readouterr().out == "bash -- run.sh\n"
    Path("run.sh").write_text("exit 3\n")
    assert main(["run.sh"]) == 1


def test_a_refusal_of_the_cluster_is_one_line(
    cluster: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(validation, "PATIENCE", 600.0)  # what is said of a slow machine is another line
    Path("job.sh").write_text(JOB.format(ring=1))
    assert main(["job.sh", "--partition", "closed"]) == 1
    assert capsys.readouterr().err == (
        "bench submit: sbatch refused it: sbatch: error: invalid partition specified: closed\n"
    )


def test_wrong_usage_is_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PATH", "")
    Path("job.sh").write_text(JOB.format(ring=1))
    Path("run.sh").write_text("true\n")
    Path("binary.sh").write_bytes(b"\xff\xfe\x00")
    for arguments, words in (
        (["none.sh"], "none.sh: cannot be read"),
        (["binary.sh"], "no UTF-8 text"),
        (["job.sh"], "sbatch is not on this machine"),
        (["job.sh", "--nodes", "two"], "--nodes two: give a whole number"),
        (["run.sh", "--nodes", "2"], "run.sh has no #SBATCH line"),
        (["run.sh", "--source", "none"], "--source none: no such directory"),
    ):
        assert main(arguments) == 2
        error = capsys.readouterr().err
        assert words in error
        assert error.count("\n") == 1


def test_directives_end_at_the_first_command() -> None:
    script = Script("#!/bin/sh\n#SBATCH -N 2\n# note\n#SBATCH --gpus-per-node 8\necho\n#SBATCH --nodes=9\n")
    assert script.sizes() == {"--nodes": "2", "--gpus-per-node": "8"}
    changed = script.with_sizes({"--nodes": "4", "--gres": "gpu:2"})
    assert changed.sizes() == {"--nodes": "4", "--gpus-per-node": "8", "--gres": "gpu:2"}
    assert changed.text.count("\n") == script.text.count("\n") + script.added_lines({"--nodes": "4", "--gres": "x"})
