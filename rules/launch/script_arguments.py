"""A script is called with too few arguments, or with two that its positions name the other way round.

What it does
    Reads which variable takes each position of a shell script (`STEP=$2`, `LIMIT=${4:-100}`, `--model "$1"`, also
    behind `shift`), and the commands that run it: in scripts, through `ssh`, `srun` and `sbatch`, and in lists and
    texts that Python code hands to `subprocess` and `os.system`. Reports a call that passes something named as another
    position (`cfg.eval_limit` where the script takes `TASKS`), while that position gets what is named as this one.
    Names are compared by their words. Reports also a number of arguments that the script refuses by a test of `$#`, by
    `${1:?}` or by `set -u`, and, as a warning, a position without a default that is the value of an option there; a
    note, where the position is part of a path or another text. Silent where the arguments may be any number (`"$@"`),
    and where the same file also calls the script the other way round.

Why is this bad
    The script takes whatever stands there: it evaluates with a list of tasks for a limit, or starts every node with
    rank 0. With too few it ends, or passes an option without its value, when the job gets its turn in the queue.

References
    https://www.gnu.org/software/bash/manual/bash.html#Positional-Parameters
"""

from __future__ import annotations

import posixpath
from collections.abc import Iterator

from rules.launch._reading.common import LANGUAGES, span
from validator.analysis.commands.fields import Field
from validator.analysis.commands.same_names import likeness
from validator.analysis.commands.script_calls import ScriptCall, ScriptCalls
from validator.analysis.commands.script_parameters import Position, Signature
from validator.facts.model import At
from validator.finding import Finding, Related, Severity
from validator.project import Project
from validator.rule import Rule

RULE = Rule(
    "MP715", "script-arguments", "error", "1.1", tokens=(".sh", ".slurm", ".sbatch", ".bash"), languages=LANGUAGES
)

_LACKS = {
    "refused": "it ends where it reads `${number}`",
    "unset": "under `set -u` it ends where it reads `${number}`",
    "option": "an option in it is left without its value",
    "text": "a text in it is left with a hole",
}
_GRAVEST = tuple(_LACKS)


def check_project(project: Project) -> Iterator[Finding]:
    scripts = project.analysis(ScriptCalls)
    told: set[tuple[str, At, str]] = set()
    for call in scripts.all:
        takes = scripts.signature(call.script)
        for finding in (_crossed(call, takes, scripts.all), _misfit(call, takes)):
            key = (call.run.path, call.run.at, finding.context) if finding is not None else None
            if finding is not None and key is not None and key not in told:
                told.add(key)
                yield finding


def _crossed(call: ScriptCall, takes: Signature, calls: tuple[ScriptCall, ...]) -> Finding | None:
    """Arguments that are named as each other's positions."""
    numbers = _cycle(_elsewhere(call, takes))
    if not numbers or _also_straight(call, numbers, calls):
        return None
    rows = [(call.arguments[n - 1].name, takes.positions[n]) for n in numbers]
    shown = " and ".join(f"`{name}` for `{position.names[0]}`" for name, position in rows)
    return RULE.finding(
        call.run.path,
        span(call.arguments[numbers[0] - 1]),
        f"`{_name(call)}` takes {shown}: these arguments are in each other's place",
        help=f"give them in the order {', '.join(f'`{position.names[0]}`' for _, position in rows)}",
        related=[Related(call.script.path, p.at[0], f"`{p.names[0]}` is read here") for _, p in rows],
        context=f"{_name(call)}:{':'.join(name for name, _ in rows)}",
        severity="warning",
    )


def _elsewhere(call: ScriptCall, takes: Signature) -> dict[int, int]:
    """By position of an argument the one that alone has its name, where that is another one."""
    found = {}
    for number, given in enumerate(call.arguments, 1):
        alike = {n: _likeness(given.name, position) for n, position in takes.positions.items()}
        most = max(alike.values(), default=0)
        named = [n for n, common in alike.items() if common == most]
        if most and len(named) == 1 and number in alike and not alike[number]:
            found[number] = named[0]
    return found


def _likeness(name: str, position: Position) -> int:
    return max((likeness(name, each) for each in position.names), default=0) if name else 0


def _cycle(elsewhere: dict[int, int]) -> list[int]:
    """Positions of which each has the argument of the next, and the last one that of the first."""
    for start in elsewhere:
        row = [start]
        while (following := elsewhere.get(row[-1])) is not None and following not in row:
            row.append(following)
        if following == start:
            return sorted(row)
    return []


def _also_straight(call: ScriptCall, numbers: list[int], calls: tuple[ScriptCall, ...]) -> bool:
    """Whether the same file passes the same arguments to the script in another order, too: both are meant."""
    own = [call.arguments[n - 1].name for n in numbers]
    for other in calls:
        if other.script is call.script and other.run.path == call.run.path and len(other.arguments) >= numbers[-1]:
            theirs = [other.arguments[n - 1].name for n in numbers]
            if theirs != own and sorted(theirs) == sorted(own):
                return True
    return False


def _misfit(call: ScriptCall, takes: Signature) -> Finding | None:
    """A number of arguments that the script refuses, or that leaves a position empty."""
    count = len(call.arguments)
    if call.open or not all(_is_one_word(given, takes) for given in call.arguments):
        return None
    if takes.ends(count):
        refusal = takes.refusal(count)
        return _refused(call, refusal) if refusal is not None else None
    lacking = {n: p for n, p in takes.positions.items() if n > count and p.lack}
    return _lacking(call, lacking) if lacking else None


def _is_one_word(given: Field, takes: Signature) -> bool:
    """Whether a word that may be split is one for all that its name says: it is named as one of the positions."""
    return not given.many or any(_likeness(given.name, position) for position in takes.positions.values())


def _refused(call: ScriptCall, refusal: At) -> Finding:
    count = len(call.arguments)
    return RULE.finding(
        call.run.path,
        span(call.path),
        f"`{_name(call)}` is called with {count} argument{'' if count == 1 else 's'} and ends at once: "
        "it tests their number",
        help="pass as many as it asks for",
        related=[Related(call.script.path, refusal[0], "the number is tested here")],
        context=f"{_name(call)}:{count}",
        severity="error" if call.is_certain else "warning",
    )


def _lacking(call: ScriptCall, lacking: dict[int, Position]) -> Finding:
    number, gravest = min(lacking.items(), key=lambda row: (_GRAVEST.index(row[1].lack), row[0]))
    shown = ", ".join(_shown(n, position) for n, position in lacking.items())
    return RULE.finding(
        call.run.path,
        span(call.path),
        f"`{_name(call)}` is called without {shown}: {_LACKS[gravest.lack].replace('{number}', str(number))}",
        help="pass what it takes, or give the position a default there",
        related=[Related(call.script.path, p.at[0], f"{_shown(n, p)} is read here") for n, p in lacking.items()],
        context=f"{_name(call)}:{','.join(map(str, lacking))}",
        severity=_severity(call, gravest),
    )


def _severity(call: ScriptCall, position: Position) -> Severity:
    if position.lack in ("refused", "unset"):
        return "error" if position.sure and call.is_certain else "warning"
    return "warning" if position.lack == "option" else "note"


def _shown(number: int, position: Position) -> str:
    return f"argument {number}" + (f" (`{position.names[0]}`)" if position.names else "")


def _name(call: ScriptCall) -> str:
    return posixpath.basename(call.script.path)


_EVAL = """# file: eval.slurm
#!/bin/bash
#SBATCH --nodes=1
set -euo pipefail
CHECKPOINT=$1
STEP="$2"
LIMIT=${3:-100}
TASKS=${4:-mmlu}
python evaluate.py --checkpoint "$CHECKPOINT" --step "$STEP" --limit "$LIMIT" --tasks "$TASKS"
"""

_NODE = """# file: node.sh
#!/bin/bash
if [ $# -lt 2 ]; then
    echo "usage: node.sh RANK ADDRESS"
    exit 1
fi
RANK=$1
shift
torchrun --node_rank $RANK --master_addr $1 train.py
"""

_TRAIN = """# file: train.sh
model=$1
output=$2
python train.py --model $model > logs/$output.txt
"""

INCORRECT = (
    # a list in Python, and the names of attributes
    _EVAL
    + """# file: train.py
import subprocess


def submit(cfg, path, step):
    command = [
        "sbatch", "--parsable", "eval.slurm", path, str(step),
        cfg.eval_tasks,  # error: MP715
        str(cfg.eval_limit),
    ]
    subprocess.run(command, check=True)
""",
    # a text; what stands at each place is one word, as its name says
    _EVAL
    + """# file: train.py
import os


def submit(step, checkpoint):
    os.system(f"sbatch eval.slurm {step} {checkpoint} 50")  # error: MP715
""",
    _NODE
    + """# file: start.py
import subprocess


def start(rank):
    command = f"bash node.sh {rank}"
    subprocess.run(command, shell=True)
""".replace('{rank}"', '{rank}"  # error: MP715'),
    _EVAL
    + """# file: run.sh
for STEP in 100 200; do
    sbatch --time 1:00:00 eval.slurm $STEP "out/checkpoint"
    sbatch eval.slurm "out/checkpoint"  # error: MP715
done
""",
    # in the text that ssh hands to a shell, and behind `shift`
    _NODE
    + """# file: all.sh
addr=$(head -n 1 hosts)
rank=0
while read -r host; do
    ssh "$host" "cd work; bash node.sh $addr $rank" < /dev/null  # error: MP715
    rank=$((rank + 1))
done < hosts
""",
    _NODE + "# file: one.sh\nbash node.sh 0  # error: MP715\n",
    # the other way to write the test
    _NODE.replace("if [ $# -lt 2 ]; then", "if (( $# != 2 )); then")
    + "# file: one.sh\n./node.sh 0 a b  # error: MP715\n",
    _TRAIN + "# file: all.sh\nnohup bash train.sh > log 2>&1 &  # error: MP715\n",
    _TRAIN.replace("$1", "${1:?which model}") + "# file: all.sh\nbash -x train.sh  # error: MP715\n",
)

CORRECT = (
    # defaults, options of sbatch, and any number of words
    _EVAL
    + """# file: run.sh
sbatch eval.slurm out/checkpoint 100
sbatch -N 2 eval.slurm "$CHECKPOINT" "$STEP" "$LIMIT" "$TASKS"
sbatch eval.slurm "$@"
sbatch eval.slurm ${ARGUMENTS[@]}
sbatch eval.slurm $ARGUMENTS
# file: train.py
import subprocess


def submit(cfg, path, step, arguments):
    subprocess.run(["sbatch", "eval.slurm", path, str(step), str(cfg.eval_limit), cfg.eval_tasks], check=True)
    subprocess.run(["sbatch", "eval.slurm", *arguments], check=True)
    subprocess.run(f"sbatch eval.slurm {arguments}", shell=True)
""",
    # both directions are meant; a name that fits two positions says nothing
    """# file: compare.sh
set -u
LEFT_MODEL=$1
RIGHT_MODEL=$2
python compare.py $LEFT_MODEL $RIGHT_MODEL
# file: all.sh
left_model=a
right_model=b
bash compare.sh $left_model $right_model
bash compare.sh $right_model $left_model
# file: other.sh
bash compare.sh $model $left_model
""",
    # one of two that are swapped has another name: it may be what is meant there
    _EVAL + "# file: run.sh\nsbatch eval.slurm $LATEST $STEP $TASKS_AT_MOST $NAME\n",
    # the script asks for itself, reads options, or hands everything on
    """# file: asks.sh
set -u
MODEL=${1:-}
if [ -z "$MODEL" ]; then
    MODEL=default
fi
python train.py --model $MODEL --seed ${2:-0}
# file: options.sh
while [ $# -gt 0 ]; do
    case $1 in
        --model) MODEL=$2; shift 2 ;;
        *) shift ;;
    esac
done
python train.py --model $MODEL
# file: wrapper.sh
main() {
    python train.py "$@"
}
main "$@"
# file: optional.sh
python train.py --steps 5 $1
# file: functions.sh
train() {
    python train.py --model $1
}
train small
# file: helped.sh
if [ $# -eq 0 ]; then
    python list_models.py
    exit 0
fi
python train.py --model $1
# file: late.sh
MODEL=$1
: ${MODEL:=small}
python train.py --model $MODEL
# file: all.sh
bash asks.sh
bash options.sh
bash wrapper.sh
bash optional.sh
bash functions.sh
bash helped.sh
bash late.sh
echo bash node.sh
sudo cp helped.sh late.sh /usr/bin
""",
    # another folder's script of the same name is not the one that is started
    _NODE.replace("node.sh\n#!", "a/node.sh\n#!", 1)
    + """# file: b/node.sh
python train.py
# file: b/all.sh
bash node.sh
""",
    # lists that run no script, and a script that is not here
    _NODE
    + """# file: run.py
import subprocess


def start(rank, address):
    subprocess.run(["bash", "-c", "echo node.sh"], check=True)
    subprocess.run(["bash", "elsewhere.sh", address, rank], check=True)
    subprocess.run(["srun", "bash", "node.sh", str(rank), address], check=True)
    subprocess.run(["bash", "node.sh"] + rank.arguments(), check=True)
""",
)
