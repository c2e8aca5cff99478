"""Options that the shell does not take for part of the command above.

What it does
    Reports a command that begins with `--`: the line before it lacks its backslash, or is a comment, so that the
    shell ends the command there and takes the rest for a new one. Here-documents, whose lines are words anyway, and
    scripts that `set -e` would stop are no exception. One finding for all such lines of a script.

Why is this bad
    The program starts without these options, and with their defaults trains something else; the only trace is
    "command not found" at the end of the log.

References
    https://www.gnu.org/software/bash/manual/bash.html#Escape-Character
"""

from __future__ import annotations

from collections.abc import Iterator

from validator.analysis.commands.scripts import Run, Scripts
from validator.finding import Finding, Related
from validator.project import Project
from validator.rule import Rule

RULE = Rule(
    "MP709", "options-cut-off", "error", stable_since="0.1.0", tokens=(" --", "\t--", "\n--"), languages=("shell",)
)


def check_project(project: Project) -> Iterator[Finding]:
    scripts: dict[str, list[Run]] = {}
    for run in project.analysis(Scripts).runs:
        first = run.fields[0]
        if not run.broken and first.known and first.text.startswith("--") and len(first.text) > 2:
            scripts.setdefault(run.path, []).append(run)
    for runs in scripts.values():  # who writes one command so writes all lines of it so
        yield _report(*runs)


def _report(run: Run, *others: Run) -> Finding:
    first = run.fields[0]
    line, column, *_ = run.at
    width = first.end - first.place.column if first.place[:3] == (run.path, line, column) else 1
    more = f", and so do {len(others)} more below" if others else ""
    return RULE.finding(
        run.path,
        (line, column, line, column + max(width, 1)),
        f"`{first.text}` begins a command of its own{more}: the command above ends before it",
        help="end the line above with a backslash, and move comments out of the command",
        related=[Related(each.path, each.at[0], f"`{each.fields[0].text}` does so, too") for each in others],
        context=first.text,
    )


INCORRECT = (
    """# file: run.sh
torchrun --nproc_per_node 8 train.py \\
    --zero_stage 3 \\
    # --packing_samples \\
    --bf16  # error: MP709
""",
    """# file: run.sh
deepspeed train.py \\
    --zero_stage 3
    --bf16 \\  # error: MP709
    --packing_samples
""",
)

CORRECT = (
    """# file: run.sh
read -r -d '' commands <<EOF
train.py \\
    --zero_stage 3
    --bf16
EOF
deepspeed $commands
""",
    """# file: run.sh
ARGS=(
    --zero_stage 3
    # --bf16
    --packing_samples
)
CMD="train.py
    --zero_stage 3"
torchrun train.py "${ARGS[@]}" \\
    --bf16
# --more
--() { :; }
""",
)
