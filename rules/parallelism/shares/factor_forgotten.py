"""Ranks divided by some of the sizes that another formula of the program multiplies.

What it does
    Compares the formulas of a program that divide ranks or GPUs by parallel sizes of one namespace (`fsdp.cp_size`,
    `fsdp.tp_size`) with its products of sizes of the same namespace, and reports one that leaves out a size which a
    product has besides all of its own.

Why is this bad
    As long as the forgotten size is 1 both agree. Then one part of the program reckons with more data-parallel groups
    than the other: chunks do not fit the ranks that get them.

References
    https://docs.pytorch.org/docs/stable/distributed.html#devicemesh
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from validator.analysis.sizes.dimensions import Dimensions, Factor, tag_of
from validator.analysis.sizes.quotients import Quotient, Quotients
from validator.domains.axes import MODEL_PARALLEL
from validator.facts.model import Return
from validator.finding import Finding, Related
from validator.flow.queries.outside_program import is_aside
from validator.project import Method, Project
from validator.rule import Rule

RULE = Rule("MP407", "factor-forgotten", "error", "0.1.0", tokens=("//",), solves=True)

_PARALLEL = MODEL_PARALLEL | {"ep"}


class Whole(NamedTuple):
    """A product of parallel sizes of one namespace: their names by tag."""

    namespace: str
    names: dict[str, str]
    function: Method
    line: int


def check_project(project: Project) -> Iterator[Finding]:
    wholes: list[Whole] | None = None
    for row in project.analysis(Quotients).all:
        if not row.size.has("world") or row.size.tags & _PARALLEL or "batch" in row.size.tags:
            continue
        own = {f.tag: f for f in row.size.under}
        namespace = _namespace(own.values())
        if len(own) < 2 or not own.keys() <= _PARALLEL or not namespace:
            continue
        if wholes is None:
            wholes = [*_products(project)]
        for whole in wholes:
            missing = sorted(whole.names.keys() - own.keys())
            names = {f.text.rpartition(".")[2] for f in own.values()}
            if whole.namespace == namespace and len(missing) == 1 and names < set(whole.names.values()):
                yield _report(row, whole, whole.names[missing[0]])
                break


def _namespace(factors: Iterable[Factor]) -> str:
    """The last link before the names of all factors, where it is one and the same: `fsdp` of `args.fsdp.tp_size`."""
    found = {f.text.rpartition(".")[0].rpartition(".")[2] for f in factors}
    return found.pop() if len(found) == 1 else ""


def _products(project: Project) -> Iterator[Whole]:
    """Products of three parallel sizes or more that a function returns."""
    dimensions = project.analysis(Dimensions)
    for function in project.functions():
        if is_aside(function.path):
            continue
        for row in function.facts.returns:
            if row.kind == "other" and row.value.count("*") > 1 and _speaks(row):
                try:
                    size = dimensions.size(function, ast.parse(row.value, mode="eval").body)
                except SyntaxError:  # the text of a long expression is cut
                    continue
                names = {f.tag: f.text.rpartition(".")[2] for f in size.over}
                namespace = _namespace(size.over)
                if len(names) > 2 and names.keys() <= _PARALLEL and not size.under and namespace:
                    yield Whole(namespace, names, function, row.at[0])


def _speaks(row: Return) -> bool:
    return all(tag_of(word) in _PARALLEL for word in re.findall(r"[\w.]+_\w+", row.value))


def _report(row: Quotient, whole: Whole, forgotten: str) -> Finding:
    function = row.function
    sizes = " and ".join(f"`{f.text}`" for f in row.size.under)
    return RULE.finding(
        function.path,
        function.module.source_text.at(row.node),
        f"`{function.qualname}` divides the ranks by {sizes} alone; `{whole.function.name}` of"
        f" `{whole.function.module.name}` multiplies them by `{forgotten}` too",
        help=f"divide by `{forgotten}` as well: let both use one function",
        related=[Related(whole.function.path, whole.line, "the product of all sizes")],
        context=f"{function.qualname}:{forgotten}",
    )


INCORRECT = [
    """
# file: pkg/__init__.py
# file: pkg/cli.py
import argparse

def model_parallel_size(args):
    return args.fsdp.cp_size * args.fsdp.tp_size * args.fsdp.ep_size
# file: pkg/balance.py
import torch.distributed as dist

def balance(items, args):
    parts = args.num_nodes * args.num_gpus_per_node // args.fsdp.cp_size // args.fsdp.tp_size  # error: MP407
    return [items[i : i + parts] for i in range(0, len(items), parts)]
""",
]

CORRECT = [
    """
# file: pkg/__init__.py
# file: pkg/cli.py
import argparse

def model_parallel_size(args):
    return args.fsdp.cp_size * args.fsdp.tp_size * args.fsdp.ep_size
# file: pkg/balance.py
from pkg.cli import model_parallel_size

def balance(items, args):
    parts = args.actor.num_nodes * args.actor.num_gpus_per_node // model_parallel_size(args)
    return [items[i : i + parts] for i in range(0, len(items), parts)]
""",
    """
# file: pkg/__init__.py
# file: pkg/cli.py
import argparse

def expert_ranks(args):
    return args.moe.etp_size * args.moe.pp_size * args.moe.cp_size
# file: pkg/balance.py
import torch.distributed as dist

def balance(items, args):
    parts = dist.get_world_size() // args.fsdp.cp_size // args.fsdp.tp_size
    return [items[i : i + parts] for i in range(0, len(items), parts)]
""",
]
