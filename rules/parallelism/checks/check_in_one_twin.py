"""A check of model sizes that one of two functions makes before it splits a model, and the other does not.

What it does
    Compares the functions of a class, or of a module, that split a model over ranks (`parallelize_module`, …): if one
    tests attention heads or other sizes against the number of ranks before it does, reports those that do not, neither
    themselves nor in a function that they call.

Why is this bad
    A model that training refuses with a clear message goes through for evaluation, and as a reference model, and fails
    there in the middle of a layer, or computes with heads cut in half.

References
    https://docs.pytorch.org/docs/stable/distributed.tensor.parallel.html
"""

from __future__ import annotations

from collections.abc import Iterator

from validator.analysis.sizes.quotients import Check, Quotients
from validator.domains.axes import MODEL_PARALLEL
from validator.facts.model import Call
from validator.finding import Finding, Related
from validator.flow.objects import Objects
from validator.flow.queries.outside_program import is_aside
from validator.project import Method, Project
from validator.rule import Rule

RULE = Rule("MP419", "check-in-one-twin", "note", "0.1.0", tokens=("parallelize_module",))

_SPLITTING = frozenset({"parallelize_module", "apply_tensor_parallelism", "tensor_parallel", "tp_model_init"})


def check_project(project: Project) -> Iterator[Finding]:
    quotients = project.analysis(Quotients)
    groups: dict[tuple[str, str], list[tuple[Method, Call]]] = {}
    for function in project.functions():
        call = next((c for c in function.facts.calls if c.method in _SPLITTING), None)
        if call is not None and not is_aside(function.path):
            owner = function.cls.qualname if function.cls is not None else ""
            groups.setdefault((function.path, owner), []).append((function, call))
    for members in groups.values():
        checked = {f: c for f, call in members if (c := _check(quotients, f, call)) is not None}
        for function, call in members:
            if checked and function not in checked and not _prepared(project, function, checked):
                twin = next(iter(checked))
                yield _report(function, call, twin, checked[twin])


def _check(quotients: Quotients, function: Method, call: Call) -> Check | None:
    """The test of heads that a function makes before it splits a model."""
    for check in quotients.reached(function):
        before = check.function is not function or check.node.lineno < call.at[0]
        if before and "heads" in check.left.tags and check.right.tags & MODEL_PARALLEL:
            return check
    return None


def _prepared(project: Project, function: Method, checked: dict[Method, Check]) -> bool:
    """Whether a function is called by one that checks, or calls one."""
    objects = project.analysis(Objects)
    callers = {caller for caller, _ in objects.callers(function)}
    called = {m for c in function.facts.calls for m in objects.targets(function, c)}
    return not checked.keys().isdisjoint(callers | called)


def _report(function: Method, call: Call, twin: Method, check: Check) -> Finding:
    heads, size = (side.over[0].text if side.over else "heads" for side in (check.left, check.right))
    return RULE.finding(
        function.path,
        call.at,
        f"`{function.qualname}` splits a model without testing `{heads}` against `{size}`, as `{twin.name}` does",
        help="move the test into a function of its own and call it in both",
        related=[Related(twin.path, check.node.lineno, f"`{twin.name}` tests it here")],
        context=f"{function.qualname}:{call.method}",
    )


INCORRECT = [
    """
from torch.distributed.tensor.parallel import parallelize_module

class Strategy:
    def prepare_train(self, model):
        heads = model.config.num_attention_heads
        assert heads % self.tensor_parallel_size == 0, f"{heads} heads"
        return parallelize_module(model, self.tp_mesh, self.plan)

    def prepare_eval(self, model):
        return parallelize_module(model, self.tp_mesh, self.plan)  # error: MP419
""",
]

CORRECT = [
    """
from torch.distributed.tensor.parallel import parallelize_module

class Strategy:
    def check(self, config):
        assert config.num_attention_heads % self.tensor_parallel_size == 0

    def prepare_train(self, model):
        self.check(model.config)
        return parallelize_module(model, self.tp_mesh, self.plan)

    def prepare_eval(self, model):
        self.check(model.config)
        return parallelize_module(model, self.tp_mesh, self.plan)
""",
    """
from torch.distributed.tensor.parallel import parallelize_module

class Strategy:
    def prepare(self, model):
        assert model.config.num_attention_heads % self.tensor_parallel_size == 0
        return self.split(model)

    def split(self, model):
        return parallelize_module(model, self.tp_mesh, self.plan)

class Other:
    def split(self, model):
        return parallelize_module(model, self.tp_mesh, self.plan)
""",
]
