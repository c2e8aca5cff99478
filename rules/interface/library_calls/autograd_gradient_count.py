"""An autograd function whose `backward` returns another number of gradients than `forward` takes inputs.

What it does
    Counts the inputs of `forward` (without `ctx`) and the values of each tuple that `backward` returns. Too few are
    reported, and too many unless the surplus is `None`, which torch allows. Silent: `*args`, inputs that have a
    default and that no `apply` passes, results that are not written out as a tuple, and a base that nobody applies:
    the classes below it call its methods with arguments of their own.

Why is this bad
    `RuntimeError: function … returned an incorrect number of gradients`, at the first backward pass: after loading,
    sharding and compiling.

References
    https://docs.pytorch.org/docs/stable/notes/extending.html#how-to-use
"""

from __future__ import annotations

import ast
import textwrap
from collections.abc import Iterator

from validator.facts.model import Param, Return
from validator.finding import Finding, Related
from validator.project import ClassDef, Method, Project
from validator.rule import Rule

RULE = Rule("MP123", "autograd-gradient-count", "error", stable_since="0.1.0", tokens=("autograd",))

_FUNCTIONS = ("torch.autograd.Function", "torch.autograd.function.Function", "torch.autograd.function.InplaceFunction")


def check_project(project: Project) -> Iterator[Finding]:
    found = [cls for cls in project.classes() if cls.bases and any(base in _FUNCTIONS for base in cls.external_bases)]
    passed = _passed(project, {cls.name for cls in found})
    for cls in found:
        if cls in passed or not cls.subclasses:
            yield from _check(cls, passed.get(cls, 0))


def _check(cls: ClassDef, passed: int) -> Iterator[Finding]:
    forward, backward = cls.find("forward"), cls.methods.get("backward")
    if forward is None or backward is None or any(p.kind == "*" for p in forward.facts.params):
        return
    inputs = _inputs(cls, forward)
    least = min(passed, len(inputs)) or sum(p.default is None for p in inputs)
    for row in backward.facts.returns:
        if row.kind != "tuple":
            continue
        if row.arity < least:
            yield _report(cls, forward, backward, row, f"{row.arity} gradients for the {least} inputs of `forward`")
        elif row.arity > len(inputs) and not _only_none(backward, row, len(inputs)):
            text = f"{row.arity} gradients, but `forward` takes only {len(inputs)} inputs"
            yield _report(cls, forward, backward, row, text)


def _inputs(cls: ClassDef, forward: Method) -> tuple[Param, ...]:
    """The parameters of `forward` that `apply` fills: not the class of a class method, nor the context."""
    return forward.facts.params[forward.facts.is_classmethod + (cls.find("setup_context") is None) :]


def _passed(project: Project, names: set[str]) -> dict[ClassDef, int]:
    """How many arguments the calls of each class's `apply` pass at most; without their number where it is not known."""
    found: dict[ClassDef, int] = {}
    for function in project.functions():
        for call in function.facts.calls:
            target, _, method = call.target.rpartition(".")
            if method == "apply" and target.rpartition(".")[2] in names:
                cls = project.lookup(function, target)
                if isinstance(cls, ClassDef):
                    told = all(a.keyword is None for a in call.args)
                    found[cls] = max(found.get(cls, 0), len(call.args) if told else 0)
    return found


def _only_none(backward: Method, row: Return, inputs: int) -> bool:
    """Whether everything after the gradient of the last input is a literal None."""
    line, column, end_line, _ = row.at
    lines = backward.module.source.lines[line - 1 : end_line]
    try:
        node = ast.parse(textwrap.dedent("\n".join([" " * (column - 1) + lines[0][column - 1 :], *lines[1:]]))).body[0]
    except (SyntaxError, IndexError):
        return True
    value = getattr(node, "value", None)
    surplus = value.elts[inputs:] if isinstance(value, ast.Tuple) else []
    return all(isinstance(e, ast.Constant) and e.value is None for e in surplus)


def _report(cls: ClassDef, forward: Method, backward: Method, row: Return, text: str) -> Finding:
    names = ", ".join(p.name for p in _inputs(cls, forward))
    return RULE.finding(
        cls.path,
        row.at,
        f"`{cls.name}.backward` returns {text}",
        help=f"return one value for each of ({names}), None where there is no gradient",
        related=[Related(forward.path, forward.facts.name_at[0], "`forward` is defined here")],
        context=f"{backward.qualname}:{row.arity}",
    )


INCORRECT = (
    """\
import torch


class Scale(torch.autograd.Function):
    @staticmethod
    def forward(ctx, input_, factor, group):
        ctx.factor = factor
        return input_ * factor

    @staticmethod
    def backward(ctx, grad_output):
        return grad_output * ctx.factor, None  # error: MP123
""",
    """\
from torch.autograd import Function


class Gather(Function):
    @staticmethod
    def forward(ctx, input_):
        return input_

    @staticmethod
    def backward(ctx, grad_output, grad_other):
        return grad_output, grad_other  # error: MP123
""",
)

CORRECT = (
    # surplus None is allowed; so is one that a default covers
    """\
import torch


class Gather(torch.autograd.Function):
    @staticmethod
    def forward(ctx, input_, group=None):
        return input_

    @staticmethod
    def backward(ctx, grad_output):
        if ctx.needs_input_grad[0]:
            return grad_output, None, None, None
        return grad_output, None


def gather(input_):
    return Gather.apply(input_)
""",
    # with setup_context, forward has no ctx; a variable number of inputs is not counted
    """\
import torch


class Square(torch.autograd.Function):
    @staticmethod
    def forward(input_):
        return input_ * input_

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx, grad_output):
        (input_,) = ctx.saved_tensors
        return (2 * input_ * grad_output,)


class Stack(torch.autograd.Function):
    @staticmethod
    def forward(ctx, group, *tensors):
        return torch.stack(tensors)

    @staticmethod
    def backward(ctx, grad_output):
        return None, grad_output[0], grad_output[1]
""",
    # a base that nobody applies: what is below it passes and cuts off as many as it needs
    """\
import torch


class Loss(torch.autograd.Function):
    @staticmethod
    def forward(cls, ctx, input_, weight, chunk=1):
        ctx.save_for_backward(input_, weight)
        return cls.reduce(input_ @ weight)

    @staticmethod
    def backward(ctx, grad_output):
        input_, weight = ctx.saved_tensors
        return grad_output @ weight.t(), input_.t() @ grad_output


class MeanLoss(Loss):
    @staticmethod
    def reduce(scores):
        return scores.mean()

    @classmethod
    def forward(cls, ctx, input_, weight):
        return super().forward(cls, ctx, input_, weight)

    @staticmethod
    def backward(ctx, grad_output):
        grads = Loss.backward(ctx, grad_output)[:2]
        return grads


def loss(input_, weight):
    return MeanLoss.apply(input_, weight)
""",
    # a class method
    """\
import torch


class Scale(torch.autograd.Function):
    @classmethod
    def forward(cls, ctx, input_, factor):
        ctx.factor = factor
        return input_ * factor

    @classmethod
    def backward(cls, ctx, grad_output):
        return grad_output * ctx.factor, None
""",
)
