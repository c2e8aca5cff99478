"""Objects that Accelerate is told to save after it has loaded a state, which has them in it.

What it does
    Looks for `Accelerator.register_for_checkpointing(…)`, also inside of functions, where the function that it stands
    in has called `Accelerator.load_state(…)` before, itself or through what it calls, and nothing was registered before
    that. Only in projects that also call `save_state`: it rests on the state that is loaded being one of those. Silent
    where both are reached by one call, where an error is caught around the loading, and in tests.

Why is this bad
    `load_state` raises RuntimeError where the folder has another number of custom checkpoints than there are registered
    objects. The first run works; none can be resumed.

References
    https://huggingface.co/docs/accelerate/usage_guides/checkpoint
"""

from __future__ import annotations

from collections.abc import Iterator

from validator.finding import Finding, Related
from validator.flow.program.unit import Unit
from validator.flow.queries.base import Place, Queries, ways_back
from validator.flow.queries.outside_program import is_test
from validator.project import Project
from validator.rule import Rule

RULE = Rule("MP161", "registered-after-loading", "warning", "1.0", tokens=("register_for_checkpointing",), solves=True)

_REGISTERING, _LOADING, _SAVING = "register_for_checkpointing", "load_state", "save_state"
_ACCELERATOR = "accelerate.Accelerator"


def check_project(project: Project) -> Iterator[Finding]:
    queries = project.analysis(Queries)
    registering, loading = _calls(queries, _REGISTERING), _calls(queries, _LOADING)
    if not registering or not loading or not _calls(queries, _SAVING) or _are_several(queries):
        return
    registers = queries.reaching({call.unit for call in registering})
    loads = queries.reaching({call.unit for call in loading})
    for unit in sorted(registers & loads, key=lambda each: (each.path, each.place)):
        if not is_test(unit.path):
            yield from _in_wrong_order(queries, unit, registers, loads)


def _are_several(queries: Queries) -> bool:
    """Whether more than one Accelerator is made: which of them loads is not told apart."""
    return len([call for call in queries.calls_anywhere(_ACCELERATOR) if not is_test(call.unit.path)]) > 1


def _calls(queries: Queries, name: str) -> list[Place]:
    """The calls of a method of an Accelerator."""
    return [call for call in queries.named(name) if _is_of_accelerator(call) and not is_test(call.unit.path)]


def _is_of_accelerator(call: Place) -> bool:
    if call.receiver is None:
        return False
    held = call.receiver.closed.each
    made = any(o[0] in ("made", "ext") and str(o[1]).startswith(_ACCELERATOR) for o in held)
    return made or all(o[0] not in ("inst", "self", "made") for o in held) and call.receiver.hint == "accelerator"


def _in_wrong_order(
    queries: Queries, unit: Unit, registers: frozenset[Unit], loads: frozenset[Unit]
) -> Iterator[Finding]:
    calls = list(queries.calls_in(unit))
    registering = [call for call in calls if _does(queries, call, _REGISTERING, registers)]
    loading = [call for call in calls if _does(queries, call, _LOADING, loads) and not call.is_tried]
    apart = [call for call in loading if call not in registering]
    for load in apart:
        later = [call for call in registering if call not in loading and _may_follow(call, load)]
        if later and not any(_may_follow(load, each) for each in registering):
            yield _report(load, later[0])
            return


def _does(queries: Queries, call: Place, name: str, reaching: frozenset[Unit]) -> bool:
    """Whether a call is one of a method of an Accelerator, or comes to one."""
    if call.method == name and _is_of_accelerator(call):
        return True
    return any(target in reaching for target in queries.targets(call))


def _may_follow(call: Place, earlier: Place) -> bool:
    """Whether something has run before a call in its function, in the same round of a loop."""
    if earlier.number >= call.number:
        return False
    return any(each is not None and each.number == earlier.number for each in ways_back(call, lambda _: False))


def _report(load: Place, register: Place) -> Finding:
    return RULE.finding(
        load.unit.path,
        load.at,
        f"`{load.text}`{load.where} loads a state before `{register.text}` registers what such a state has in it:"
        " `load_state` raises RuntimeError",
        help="register all objects before a state is loaded",
        related=[Related(register.unit.path, register.at[0], "registered here")],
        context=f"{load.unit.qualname}:{load.text}",
    )


_TRAINER = """
import os
from accelerate import Accelerator

class Trainer:
    def __init__(self, args, model, progress):
        self.args = args
        self.accelerator = Accelerator()
        self.model = self.accelerator.prepare(model)
        self.progress = progress
{order}

    def resume(self):
        if self.args.resume:
            self.accelerator.load_state(self.args.out)

    def save(self):
        {save}
"""
_LOAD = "        self.resume(){mark}"
_REGISTER = "        self.accelerator.register_for_checkpointing(self.progress)"
_SAVE = "self.accelerator.save_state(self.args.out)"
_MARK = "  # error: MP161"

INCORRECT = (
    _TRAINER.format(order=f"{_LOAD}\n{_REGISTER}".format(mark=_MARK), save=_SAVE),
    """
from accelerate import Accelerator

def main(args, model, ema):
    accelerator = Accelerator()
    if args.resume:
        accelerator.load_state(args.out)  # error: MP161
    accelerator.register_for_checkpointing(ema)
    for step in range(args.steps):
        accelerator.save_state(args.out)
""",
)

CORRECT = (
    _TRAINER.format(order=f"{_REGISTER}\n{_LOAD}".format(mark=""), save=_SAVE),
    # what it loads is another program's
    _TRAINER.format(order=f"{_LOAD}\n{_REGISTER}".format(mark=""), save="self.accelerator.save_model(self.model, '.')"),
    # in one branch or the other; a state of a class of the project
    """
from accelerate import Accelerator

class Store:
    def load_state(self, path):
        return path

def main(args, model, ema):
    accelerator, store = Accelerator(), Store()
    store.load_state(args.out)
    if args.evaluate:
        accelerator.load_state(args.out)
        return
    else:
        accelerator.register_for_checkpointing(ema)
    accelerator.load_state(args.out)
    accelerator.save_state(args.out)
""",
)
