"""Shell scripts: which commands they run with which words, where these stand, and what is not known."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from validator.analysis.commands.launch import Launch, Launches
from validator.analysis.commands.scripts import Run, Scripts
from validator.facts.shell import parse
from validator.project import Project
from validator.run.config import Config
from validator.source import SourceFile

ROOT = Path(__file__).resolve().parents[2]


def project(**files: str) -> Project:
    sources = [
        SourceFile(name.replace("__", "/") + ".sh", f"/tree/{name.replace('__', '/')}.sh", text.encode())
        for name, text in files.items()
    ]
    return Project(sources, Config(root="/tree"))


def runs(**files: str) -> list[Run]:
    return list(Scripts(project(**files)).runs)


def words(text: str) -> list[list[str]]:
    """The commands of a script, `?` behind each word that is not known."""
    return [[field.text + ("" if field.known else "?") for field in run.fields] for run in runs(run=text)]


@pytest.mark.parametrize(
    ("script", "expected"),
    [
        ("GPUS=${GPUS:-8}\nrun --n $GPUS", ["--n", "8"]),
        ('MODEL=${MODEL:-"a/b c"}\nrun "$MODEL" x$MODEL', ["a/b c", "xa/b", "c"]),
        ("run $NOT_SET \"$1\" ${2:-two} $(nproc)", ["$NOT_SET?", "$1?", "two", "$(nproc)?"]),
        ("A=6 B=2\nrun $((A / B * 2 - 1)) $((A % 4)) $((2 ** 5)) $((A * C))", ["5", "2", "32", "$((A * C))?"]),
        ("A=(1 'b c')\nA+=(--d)\nrun \"${A[@]}\" ${#A[@]} ${A[1]}", ["1", "b c", "--d", "3", "b", "c"]),
        ('A="--x 1"\nA="$A --y 2"\nA+=" --z"\nrun $A', ["--x", "1", "--y", "2", "--z"]),
        ("read -r -d '' C <<EOF\np \\\n  --a ${X:-1} \\\n  --b\n  --c\nEOF\nrun $C", ["p", "--a", "1", "--b", "--c"]),
        ("C=$(cat <<'EOF'\n--a $X\nEOF\n)\nrun $C", ["--a", "$X"]),
        ("F=a/b.tar.gz\nrun ${F%.gz} ${F%%.*} ${F##*/} ${F#a/} ${F/b/c}", ["a/b.tar", "a/b", "b.tar.gz", "b.tar.gz"]),
        ('[[ "$M" == big ]] && N=2\nrun ${N:-1}', ["1"]),
        ("N=1\nif [ \"$A\" = x ]; then N=2; fi\nrun $N", ["1"]),
        ("A=x\nif [ \"$A\" = x ]; then N=2; else N=3; fi\nrun $N", ["2"]),
        ("if grep -q x f; then N=2; else N=3; fi\nrun $N", ["$N?"]),
        ("case ${S:-7b} in 7b) T=2;; 70b) T=8;; *) exit 1;; esac\nrun $T", ["2"]),
        ("f() { local n=$1; N=$((n * 2)); }\nf 4\nrun $N", ["8"]),
        ("A=3\nif (( A > 2 )); then N=2; else N=3; fi\nrun $N", ["2"]),
        ("if (( $# < 2 )); then N=2; fi\nif ((A)); then M=2; fi\nrun $N ${M:-1} ${#}", ["$N?", "$M?", "$#?"]),
        ("N=1\nM=1\n((N++))\n(( M > 0 ))\n((M == N)) && :\nrun $N $M", ["$N?", "1"]),
        ("A=a\nB=b\nrun ${A}/x/$B/y ${A}/x/$B $A/$B-c", ["a/x/b/y", "a/x/b", "a/b-c"]),
        ("A=a\nB=b\nC=${A}/x/$B/y\nrun $C", ["a/x/b/y"]),
        ("while [ $# -gt 0 ]; do case $1 in -n) N=$2; shift 2;; esac; done\nrun ${N:-4}", ["4"]),
        ("M=a\nL=\nwhile [ $# -gt 0 ]; do case $1 in -l) L=$2;; -m) M=$2;; esac; done\nrun $M $L", ["a", "$L?"]),
        ('A=--x\nB=--y\nC="--z 1 \\\n  ${A} \\\n  ${B} \\\n  $(f)"\nrun $C', ["--z", "1", "--x", "--y", "$(f)?"]),
        ("export A=1\nreadonly B=2\nunset A\nrun ${A:-0} $B", ["0", "2"]),
        ("#SBATCH --nodes=4\n#SBATCH --gpus-per-node=8\nrun $SLURM_NNODES $SLURM_GPUS_PER_NODE", ["4", "8"]),
        ("run --x=\"a $B\"'c' d\\ e", ["--x=a $Bc?", "d e"]),
        ("run --model <path to it> --token {your_token}", ["--model", "@path_to_it@?", "--token", "{your_token}?"]),
        ("run \"$@\" ${EXTRA:+--more $EXTRA}", ["$@?", "?"]),
        ("A=(a b c d)\nrun \"${A[@]:1:2}\" \"${A[@]:3}\" \"${A[@]:9}\" end", ["b", "c", "d", "end"]),
        ("A=()\nrun \"${A[@]}\" \"\" x\"${A[@]}\"", ["", "x"]),
        ("f() { run \"${@:2}\" ${@:1:1}; }\nf a b c", ["b", "c", "a"]),
    ],
)  # fmt: skip
def test_words_as_the_shell_would_make_them(script: str, expected: list[str]) -> None:
    found = [row for row in words(script) if row[0] == "run"][-1]
    assert found[1 : 1 + len(expected)] == expected


def test_what_is_known_agrees_with_bash(tmp_path: Path) -> None:
    script = """
GPUS=${GPUS:-8}; TP=2
DP=$((GPUS / TP))
NAME="run_tp${TP}"
ARGS=(--a "${NAME} x" --b $DP)
for size in 1 "2 3"; do ARGS+=("--s=$size"); done
if [[ $DP -eq 4 ]]; then ARGS+=(--four); fi
read -r -d '' REST <<EOF
--c ${NAME#run_} \\
--d $((DP * 3 + 1)) "q"
EOF
show "${ARGS[@]}" $REST ${#ARGS[@]} 'single $X' "tail\\"s"
"""
    (tmp_path / "run.sh").write_text("show() { printf '%s\\n' \"$@\"; }\n" + script)
    done = subprocess.run(["bash", str(tmp_path / "run.sh")], capture_output=True, text=True, check=True, env={})
    (found,) = [row for row in words(script) if row[0] == "show"]
    assert found[1:] == done.stdout.splitlines()


def test_loops_over_words_are_unrolled() -> None:
    found = words("for tp in 1 2; do\n  [ $tp = 1 ] && continue\n  run --tp $tp\ndone\nfor x in $(ls); do run $x; done")
    assert [row for row in found if row[0] == "run"] == [["run", "--tp", "2"], ["run", "$x?"]]


def test_both_branches_are_followed_and_what_decides_is_as_the_branch_says() -> None:
    found = words('B=${B:-ds}\nif [ "$B" = fsdp ]; then run --b $B; else other $B; fi')
    assert found == [["run", "--b", "fsdp"], ["other", "ds"]]


def test_scripts_read_others() -> None:
    found = runs(
        scripts__run='DIR="$(cd "$(dirname "$0")" && pwd)"\nsource "${DIR}/models/small.sh"\nrun ${ARGS[@]}',
        scripts__models__small="ARGS=(\n  --layers 2\n)",
    )
    (run,) = [run for run in found if run.fields[0].text == "run"]
    assert [field.text for field in run.fields] == ["run", "--layers", "2"]
    assert run.fields[1].place == ("scripts/models/small.sh", 2, 3)


def test_a_word_stands_where_it_is_written_and_comes_from_where_it_is_set() -> None:
    text = "SIZE=${SIZE:-3}\nread -r -d '' C <<EOF\nprogram \\\n   --ring $SIZE\nEOF\nrun $C\n"
    (run,) = [run for run in runs(run=text) if run.fields[0].text == "run"]
    flag, size = run.fields[-2:]
    assert flag.place == ("run.sh", 4, 4)
    assert (size.place.line, size.place.column, size.end) == (4, 11, 16)
    assert size.origin is not None
    assert size.origin.line == 1


LINES = st.lists(st.text("abc-= ", min_size=1, max_size=12).map(str.strip).filter(bool), min_size=1, max_size=6)


@given(LINES)
def test_a_literal_word_is_found_at_its_place(lines: list[str]) -> None:
    text = "\n".join(f"run {line}" for line in lines)
    for run in runs(run=text):
        for field in run.fields:
            line = text.split("\n")[field.place.line - 1]
            assert line[field.place.column - 1 : field.end - 1] == field.text


SCRIPT = (
    'A=(1 2)\nread x <<EOF\n$((1+${A[0]})) `y`\nEOF\nif [ $1 ]; then f "${A[@]:1}" | g; else case x in y) ;; esac; fi\n'
)


@settings(max_examples=150)
@given(st.data())
def test_no_text_is_too_broken(data: st.DataObject) -> None:
    cut = data.draw(st.integers(0, len(SCRIPT)))
    noise = data.draw(st.text("${}()[]\"'`\\\n;|&<>#=a1 é", max_size=12))
    text = SCRIPT[:cut] + noise + SCRIPT[cut + data.draw(st.integers(0, 4)) :]
    parse(text.encode())
    runs(run=text)


@given(st.binary(max_size=80))
def test_no_bytes_are_too_broken(data: bytes) -> None:
    source = SourceFile("run.sh", "/tree/run.sh", data)
    Scripts(Project([source], Config(root="/tree"))).runs  # noqa: B018


@pytest.mark.parametrize(
    ("command", "engine", "program", "processes", "nodes"),
    [
        ("torchrun --nproc_per_node=8 --nnodes 2 --standalone train.py --x", "torchrun", "train.py", 8, 2),
        ("torchrun --nproc-per-node 4 -m pkg.train --x", "torchrun", "pkg.train", 4, 1),
        ("torchrun --nproc_per_node gpu train.py", "torchrun", "train.py", None, 1),
        ("python3 -m torch.distributed.run --nproc_per_node 2 train.py", "torchrun", "train.py", 2, 1),
        ("python -u -m torch.distributed.launch --nproc_per_node 2 --use_env train.py", "torchrun", "train.py", 2, 1),
        ("deepspeed --num_gpus 4 --num_nodes 2 --module pkg.train", "deepspeed", "pkg.train", 4, 2),
        ("deepspeed --include localhost:0,1,2 train.py", "deepspeed", "train.py", 3, 1),
        ("deepspeed --include=a:0,1@b:0,1 train.py", "deepspeed", "train.py", 2, 2),
        ("deepspeed --hostfile hosts train.py", "deepspeed", "train.py", None, None),
        ("accelerate launch --num_processes 8 --multi_gpu train.py", "accelerate", "train.py", 8, 1),
        ("colossalai run --nproc_per_node 4 train.py", "colossalai", "train.py", 4, 1),
        ("srun -N 2 --ntasks-per-node=1 torchrun --nproc_per_node 8 train.py", "torchrun", "train.py", 8, 1),
        ('ray job submit --address="x" --no-wait -- python3 -m pkg.train', "python", "pkg.train", None, None),
        ("OMP_NUM_THREADS=1 nohup uv run --locked examples/train.py --x", "python", "examples/train.py", None, None),
        ("uv run coverage run -a --source=x examples/train.py", "python", "examples/train.py", None, None),
        ("singularity exec --nv image.sif torchrun --nproc_per_node 2 train.py", "torchrun", "train.py", 2, 1),
        ("env A=b timeout 10 ./train.py --x", "python", "./train.py", None, None),
    ],
)
def test_launchers(command: str, engine: str, program: str, processes: int | None, nodes: int | None) -> None:
    (launch,) = Launches(project(run=command)).all
    assert (launch.engine, launch.program.text) == (engine, program)
    assert (launch.processes_per_node(), launch.node_count()) == (processes, nodes)


@pytest.mark.parametrize("command", ["python -c 'print(1)'", "pip install torch", "echo torchrun x.py", "ray start"])
def test_what_launches_nothing(command: str) -> None:
    assert Launches(project(run=command)).all == ()


def test_commands_handed_to_a_shell_are_read() -> None:
    text = """#SBATCH -N 2
srun --nodes=1 bash -c "pip install . && ray job submit \\
   --runtime-env-json='{\\"a\\": \\"b\\"}' -- python3 -m pkg.train \\
   --size ${SIZE:-3}"
sbatch <<EOT
#!/bin/bash
#SBATCH --nodes=$NODES
torchrun --nproc_per_node 8 other.py
EOT
ssh -p 22 "$HOST" "cd work; torchrun --nproc_per_node 4 third.py --size $SIZE" < /dev/null
ssh host hostname
"""
    found: tuple[Launch, ...] = Launches(project(run=text)).all
    assert [launch.program.text for launch in found] == ["pkg.train", "other.py", "third.py"]
    assert found[0].under_ray
    assert [(f.text, f.place.line) for f in found[0].arguments] == [("--size", 4), ("3", 4)]


def test_a_python_tree_does_not_pay_for_scripts(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("import subprocess\nsubprocess.run(['torchrun', 'x.py'])\nargs.x\n")
    code = (
        "import sys; sys.path.insert(0, sys.argv[1]); from validator import cli; cli.main(['--no-cache', '.']);"
        "print(sorted({'tree_sitter', 'tree_sitter_bash', 'yaml'} & set(sys.modules)), file=sys.stderr)"
    )
    command = [sys.executable, "-c", code, str(ROOT)]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.stderr.splitlines()[-1] == "[]"
