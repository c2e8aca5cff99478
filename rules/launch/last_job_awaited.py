"""A script that starts jobs in a loop and waits for the last of them alone.

What it does
    Reports `wait $!` after a loop that starts a job in the background in each round. Silent where the script waits in
    another way, too, or asks for its jobs, where the loop keeps their numbers or is left, and where another job is
    started before the wait.

Why is this bad
    `$!` is the job that was started last. The script goes on while the other processes still run: it merges results
    that are not written yet, starts the next training on GPUs in use, or ends, and the scheduler kills what is left.

References
    https://www.gnu.org/software/bash/manual/html_node/Job-Control-Builtins.html#index-wait
"""

from __future__ import annotations

from collections.abc import Iterator

from validator.facts.script import Assign, Command, For, Function, Group, Loop, Piece, Script, Statement, Word
from validator.finding import Finding, Related
from validator.project import Project
from validator.rule import Rule

RULE = Rule("MP719", "last-job-awaited", "error", stable_since="1.0", tokens=("wait",), languages=("shell",))


_JOB_CONTROL = frozenset({"jobs", "disown", "fg"})
_LEAVING = frozenset({"wait", "break", "exit", "return"})


def check_project(project: Project) -> Iterator[Finding]:
    for source in project.files.values():
        script: Script | None = source.facts.extra.get("script")
        for body in _lists(script) if script is not None else ():
            for loop, wait in _last_alone(body):
                yield RULE.finding(
                    source.path,
                    wait.at,
                    "`wait $!` waits for the job that was started last, not for those of the other rounds of the loop",
                    help="`wait` without an argument waits for all jobs",
                    related=[Related(source.path, loop.at[0], "this loop starts a job in each round")],
                    context=f"wait:{loop.at[0] - wait.at[0]}",
                )


def _lists(script: Script) -> Iterator[tuple[Statement, ...]]:
    """The lists of statements that run one after the other, in a script that waits in no other way."""
    commands = list(_commands(script))
    others = (each for each in commands if _name(each) == "wait" and not _is_for_last(each))
    if any(others) or any(_name(each) in _JOB_CONTROL for each in commands) or any(map(_speaks_of_waiting, commands)):
        return
    yield script.statements
    for statement in script.every():
        if isinstance(statement, For | Loop | Function | Group):
            yield statement.body


def _commands(script: Script) -> Iterator[Command]:
    """The commands of a script, and those of the substitutions in their words."""
    for statement in script.every():
        if isinstance(statement, Command):
            yield statement
            for piece in (piece for word in statement.words for piece in word.pieces):
                if piece.script is not None:
                    yield from _commands(piece.script)


def _speaks_of_waiting(command: Command) -> bool:
    """Whether a text that is passed has a command that waits: `trap "wait" EXIT`."""
    pieces = (piece for word in command.words[1:] for piece in word.pieces)
    return any(piece.kind == "text" and "wait" in piece.value.split() for piece in pieces)


def _last_alone(body: tuple[Statement, ...]) -> Iterator[tuple[For | Loop, Command]]:
    """The loops of a list that start jobs, each with the wait behind it, where no other job is started between them."""
    for place, loop in enumerate(body):
        if not isinstance(loop, For | Loop) or not _starts_jobs(loop):
            continue
        if any(isinstance(each, Loop) for each in body[place + 1 :]):
            continue  # a loop that waits for something: for the end of all jobs, say
        for each in body[place + 1 :]:
            if isinstance(each, Command) and _name(each) == "wait":
                yield loop, each
                break
            inside = Script((each,)).every()
            if any(isinstance(one, Group) and one.background for one in inside):
                break


def _starts_jobs(loop: For | Loop) -> bool:
    """Whether each round starts a job for which the loop neither waits nor keeps its number."""
    inside = Script(loop.body).every()
    started = any(isinstance(each, Group) and each.background for each in loop.body)
    leaves = any(isinstance(each, Command) and _name(each) in _LEAVING for each in inside)
    return started and not leaves and not any(_keeps_number(each) for each in inside)


def _keeps_number(statement: Statement) -> bool:
    words: list[Word | None] = []
    if isinstance(statement, Command):
        words = [*statement.words, *(assign.value for assign in statement.assigns)]
    elif isinstance(statement, Assign):
        words = [statement.value, *(statement.items or ())]
    return any(_is_last_job(piece) for word in words if word is not None for piece in word.pieces)


def _is_for_last(wait: Command) -> bool:
    """Whether a `wait` names the last job and nothing else."""
    pieces = [piece for word in wait.words[1:] for piece in word.pieces if piece.kind != "text" or piece.value]
    return len(wait.words) == 2 and len(pieces) == 1 and _is_last_job(pieces[0])


def _is_last_job(piece: Piece) -> bool:
    return piece.kind == "variable" and piece.value == "!"


def _name(command: Command) -> str:
    first = command.words[0].pieces if command.words else ()
    return first[0].value if len(first) == 1 and first[0].kind == "text" else ""


_EVALUATE = """# file: evaluate.py
print(1)
# file: run.sh
for ((i = 0; i < 8; i++)); do
    CUDA_VISIBLE_DEVICES=$i python evaluate.py > log.$i 2>&1 &{kept}
done
{wait}
cat log.* > all.log
"""

INCORRECT = (
    _EVALUATE.format(kept="", wait="wait $!  # error: MP719"),
    """# file: evaluate.py
print(1)
# file: run.sh
run_all() {
    for gpu in 0 1 2 3; do
        {
            python evaluate.py --gpu "$gpu"
        } &
        sleep 1
    done
    echo "all started"
    wait "$!"  # error: MP719
}
run_all
""",
)

CORRECT = (
    _EVALUATE.format(kept="", wait="wait"),
    _EVALUATE.format(kept="\n    pids+=($!)", wait='wait "${{pids[@]}}"\nwait $!'),
    """# file: serve.py
print(1)
# file: run.sh
for step in 1 2; do
    python serve.py --step $step
done
python serve.py &
python serve.py --client &
wait $!
for step in 1 2; do
    python serve.py --step $step &
done
wait $!
wait
""",
    """# file: serve.py
print(1)
# file: run.sh
for gpu in 0 1 2 3; do
    python serve.py --gpu $gpu &
done
python serve.py --client &
wait $!
kill 0
# file: find.sh
for port in 8000 8001; do
    python serve.py --port $port &
    break
done
wait $!
# file: throttle.sh
for i in 0 1 2 3; do
    python serve.py --i $i &
done
wait $!
while [ -n "$(jobs -rp)" ]; do
    sleep 1
done
""",
)
