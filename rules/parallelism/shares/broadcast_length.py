"""A list for a broadcast that is made shorter than the list it is to receive.

What it does
    Looks at `broadcast_object_list` of one name in both branches of a condition: the sender's list comes from a project
    function that repeats its work by the number of samples per prompt, and the receiver makes `[None] * n` with an `n`
    in which that number does not occur.

Why is this bad
    `broadcast_object_list` needs lists of the same length on all ranks. With two samples per prompt the receiver's is
    half as long: an error on some ranks, and a hang on the rest.

References
    https://docs.pytorch.org/docs/stable/distributed.html#torch.distributed.broadcast_object_list
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from validator.analysis.sizes.dimensions import Dimensions, Size, tag_of
from validator.facts.model import Assign, Call
from validator.facts.text import path_of
from validator.finding import Finding, Related
from validator.flow.objects import Objects
from validator.flow.queries.outside_program import is_aside
from validator.project import Method, Project
from validator.rule import Rule

RULE = Rule("MP406", "broadcast-length", "error", "0.1.0", tokens=("broadcast_object_list",))


def check_project(project: Project) -> Iterator[Finding]:
    for function in project.functions():
        lists = [c.args[0].value for c in function.facts.calls if c.method == "broadcast_object_list" and c.args]
        if is_aside(function.path) or len(lists) < 2:
            continue
        for name in {n for n in lists if lists.count(n) > 1}:
            rows = [row for row in function.facts.assigns if row.target == name]
            for made in (row for row in rows if row.value.startswith("[None] *")):
                size = _length(project, function, made)
                if size is None or "micro" not in size.under_tags or "samples" in size.tags:
                    continue
                sender = _repeating(project, function, [row for row in rows if row.kind == "call"])
                if sender is not None:
                    yield _report(function, made, size, *sender)


def _length(project: Project, function: Method, row: Assign) -> Size | None:
    """How long the list that an assignment makes is."""
    try:
        node = ast.parse(row.value, mode="eval").body
    except SyntaxError:  # the text of a long expression is cut
        return None
    if not isinstance(node, ast.BinOp) or not isinstance(node.op, ast.Mult):
        return None
    return project.analysis(Dimensions).size(function, node.right)


def _repeating(project: Project, function: Method, rows: list[Assign]) -> tuple[Method, str] | None:
    """The function that makes the sender's list, with the factor by which it repeats its work."""
    for row in rows:
        call = next((c for c in function.facts.calls if c.target == row.value), None)
        for target in project.analysis(Objects).targets(function, call) if isinstance(call, Call) else ():
            for node in ast.walk(target.node) if target.node is not None else ():
                if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mult):
                    factors = [path_of(n) for n in (node.left, node.right) if isinstance(n, ast.Attribute | ast.Name)]
                    repeated = next((f for f in factors if tag_of(f) == "samples"), None)
                    if repeated is not None:
                        return target, repeated
    return None


def _report(function: Method, row: Assign, size: Size, sender: Method, factor: str) -> Finding:
    return RULE.finding(
        function.path,
        row.at,
        f"`{function.qualname}` receives into a list `{row.target}` whose length leaves out `{factor}`, by which"
        f" `{sender.name}` multiplies what is sent",
        help=f"multiply the length by `{factor}`, or broadcast the length first",
        related=[Related(sender.path, sender.facts.name_at[0], f"`{sender.name}` makes the list that is sent")],
        context=f"{function.qualname}:{row.target}",
    )


INCORRECT = [
    """
import torch.distributed as dist

class Maker:
    def samples(self, prompts):
        args = self.strategy.args
        prompts = sum([[p] * args.n_samples_per_prompt for p in prompts], [])
        return [prompts[i : i + args.micro_rollout_batch_size] for i in range(0, len(prompts), 4)]

    def make(self, prompts, args):
        if self.strategy.ring_attn_rank == 0:
            made = self.samples(prompts)
            dist.broadcast_object_list(made, src=dist.get_rank(), group=self.group)
        else:
            world_size = dist.get_world_size() // args.ring_attn_size
            made = [None] * (args.rollout_batch_size // world_size // args.micro_rollout_batch_size)  # error: MP406
            dist.broadcast_object_list(made, src=0, group=self.group)
        return made
""",
]

CORRECT = [
    INCORRECT[0]
    .replace("(args.rollout_batch_size //", "(args.rollout_batch_size * args.n_samples_per_prompt //")
    .replace("  # error: MP406", ""),
    INCORRECT[0]
    .replace("[[p] * args.n_samples_per_prompt for p in prompts]", "[[p] for p in prompts]")
    .replace("  # error: MP406", ""),
]
