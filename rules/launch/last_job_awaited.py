"""A script that starts jobs in a loop and waits for the last of them alone.

What it does
    Reports `wait $!` after a loop that starts a job in the background in each round, where no `wait` for all of them
    follows and nothing in the loop keeps the numbers of the jobs or waits for them.

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
    """The lists of statements that run one after the other."""
    yield script.statements
    for statement in script.every():
        if isinstance(statement, For | Loop | Function | Group):
            yield statement.body


def _last_alone(body: tuple[Statement, ...]) -> Iterator[tuple[For | Loop, Command]]:
    """The loops of a list that start jobs, each with the wait behind it that is for one job alone."""
    for place, loop in enumerate(body):
        if not isinstance(loop, For | Loop) or not _starts_jobs(loop):
            continue
        waits = [each for each in body[place + 1 :] if isinstance(each, Command) and _name(each) == "wait"]
        if waits and all(_is_for_last(each) for each in waits):
            yield loop, waits[0]


def _starts_jobs(loop: For | Loop) -> bool:
    """Whether each round starts a job for which the loop neither waits nor keeps its number."""
    inside = Script(loop.body).every()
    started = any(isinstance(each, Group) and each.background for each in loop.body)
    waits = any(isinstance(each, Command) and _name(each) in ("wait", "jobs") for each in inside)
    return started and not waits and not any(_keeps_number(each) for each in inside)


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
)
