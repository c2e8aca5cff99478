"""DeepSpeed's `step()`, called only where DeepSpeed says that an accumulation ends.

What it does
    Reports `engine.step()` under a test of the same engine's `is_gradient_accumulation_boundary()`, where nothing else
    in the function calls `step()` of it. Silent where the program sets the boundary itself
    (`set_gradient_accumulation_boundary`).

Why is this bad
    `step()` is what counts the batches, and it does nothing more but at the end of an accumulation. Behind the test the
    count stays at 0: where more than one batch is accumulated the boundary never comes, and the weights never change.

References
    https://www.deepspeed.ai/training/#gradient-accumulation
    https://deepspeed.readthedocs.io/en/latest/training.html#optimizer-step
"""

from __future__ import annotations

from collections.abc import Iterator

from validator.domains.placement import certainly
from validator.finding import Finding, Related
from validator.flow.queries.base import Place, Queries
from validator.flow.queries.outside_program import is_aside
from validator.project import Project
from validator.rule import Rule

RULE = Rule(
    "MP432", "step-under-boundary", "warning", stable_since="0.6.0", tokens=("is_gradient_accumulation_boundary",)
)

_BOUNDARY = "is_gradient_accumulation_boundary"
_SETTING = "set_gradient_accumulation_boundary"


def check_project(project: Project) -> Iterator[Finding]:
    queries = project.analysis(Queries)
    if any(queries.named_anywhere(_SETTING)):
        return
    for unit in queries.mentioning(_BOUNDARY):
        steps = [call for call in queries.calls_in(unit) if call.method == "step" and call.receiver is not None]
        for call in steps if not is_aside(unit.path) else ():
            boundary = _boundary(call)
            others = [each for each in steps if each is not call and _engine(each) == _engine(call)]
            if boundary is not None and not others:
                yield RULE.finding(
                    unit.path,
                    call.at,
                    f"`{call.text}`{call.where} is called only where `{boundary.text}` holds, and it is `step()` that"
                    " counts the batches up to there",
                    help="call `step()` behind every `backward()`: DeepSpeed skips the optimizer in between",
                    related=[Related(unit.path, boundary.at[0], "the test")],
                    context=f"{unit.qualname}:{call.text}",
                )


def _engine(call: Place) -> str:
    """The engine whose method is called, as it is written."""
    return call.receiver.text if call.receiver is not None else ""


def _boundary(step: Place) -> Place | None:
    """The test by DeepSpeed's own count under which alone a step is taken."""
    for test, holds in (each.asserted(way) for each, way in step.settled_tests):
        asked = test.value.op == "call" and test.method == _BOUNDARY and holds
        if asked and _engine(test) == _engine(step) and _is_engine(step):
            return test
    return None


def _is_engine(step: Place) -> bool:
    """Whether what takes the step may be DeepSpeed's: nothing else has such a count."""
    receiver = step.receiver
    return receiver is not None and not certainly(receiver.closed.state, "prepared")


_LOOP = """
import deepspeed

class Loop:
    def __init__(self, args, model):
        self.engine, *_ = deepspeed.initialize(args=args, model=model)
        self.updates = 0

    def batch(self, rows):
        self.engine.backward(self.engine(rows))
        {body}
"""

INCORRECT = (
    _LOOP.replace(
        "{body}",
        """if self.engine.is_gradient_accumulation_boundary():
            self.engine.step()  # error: MP432
            self.updates += 1""",
    ),
    _LOOP.replace(
        "{body}",
        """last = self.engine.is_gradient_accumulation_boundary()
        if not last:
            return
        self.engine.step()  # error: MP432
        self.updates += 1""",
    ),
)

CORRECT = (
    _LOOP.replace(
        "{body}",
        """last = self.engine.is_gradient_accumulation_boundary()
        self.engine.step()
        if last:
            self.updates += 1""",
    ),
    # the program says itself where the accumulation ends
    _LOOP.replace(
        "{body}",
        """self.engine.set_gradient_accumulation_boundary(rows.last)
        if self.engine.is_gradient_accumulation_boundary():
            self.engine.step()""",
    ),
    # another optimizer
    _LOOP.replace(
        "{body}",
        """self.engine.step()
        if self.engine.is_gradient_accumulation_boundary():
            self.scheduler.step()""",
    ),
)
