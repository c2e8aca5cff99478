"""A method of the DeepSpeed engine that works with some ZeRO stages only, called without asking for the stage.

What it does
    Reports `_consolidated_16bit_state_dict()` and `_zero3_consolidated_16bit_state_dict()` where no condition around
    the call mentions the ZeRO stage, the partitioning of weights, or tensor parallelism.

Why is this bad
    They gather partitioned weights, which exist with ZeRO-3 (or tensor parallelism) only: with the other stages they
    raise ValueError, at the end of the training that was to be saved.

References
    https://github.com/deepspeedai/DeepSpeed/blob/master/deepspeed/runtime/engine.py
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from validator.finding import Finding
from validator.project import Method, Project
from validator.rule import Rule

RULE = Rule("MP128", "deepspeed-stage-precondition", "error", stable_since="0.1.0", tokens=("consolidated_16bit",))

_METHODS = {
    "_consolidated_16bit_state_dict": "ZeRO-3 or tensor parallelism",
    "_zero3_consolidated_16bit_state_dict": "ZeRO-3",
}
_ASKED = re.compile(r"zero|stage|partition|tensor_parallel|tp_size|auto_?tp", re.IGNORECASE)


def check_project(project: Project) -> Iterator[Finding]:
    reported: set[Method] = set()
    for function, call in project.calls(*_METHODS):
        if function.name in _METHODS or function in reported:
            continue  # the library itself; or told once already
        asked = any(
            _ASKED.search(guard.text) or guard.kind == "try" and "ValueError" in guard.text for guard in call.guards
        )
        if asked or not call.receiver or call.receiver == "self":
            continue
        reported.add(function)
        yield RULE.finding(
            function.path,
            call.at,
            f"`{call.method}` in `{function.qualname}` works with {_METHODS[call.method]} only, and nothing here asks"
            " for that",
            help="test the ZeRO stage, and take `state_dict()` of the module with the stages below 3",
            context=f"{function.qualname}:{call.method}",
        )


INCORRECT = (
    """\
class DeepspeedStrategy:
    def save_model(self, model, output_dir):
        state = model._consolidated_16bit_state_dict()  # error: MP128
        return state, output_dir
""",
)

CORRECT = (
    """\
class DeepspeedStrategy:
    def save_model(self, model, output_dir):
        if self.args.zero_stage > 2:
            return model._consolidated_16bit_state_dict()
        return model.module.state_dict()
""",
    """\
class DeepspeedStrategy:
    def save_model(self, model, output_dir):
        if not model.zero_optimization_partition_weights():
            return model.module.state_dict()
        return model._zero3_consolidated_16bit_state_dict()
""",
)
