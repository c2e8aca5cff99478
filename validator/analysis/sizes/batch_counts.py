"""What becomes of a number of micro-batches: who reads it, and whether DeepSpeed divides the same batch itself."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from validator.analysis.bindings import own_nodes
from validator.analysis.sizes.quotients import Quotient, factors
from validator.flow.program.flow import Flow
from validator.project import Method, Project

# The settings of which DeepSpeed asserts that one is a multiple of the other and of the ranks
# (https://www.deepspeed.ai/docs/config-json/#batch-size-related-parameters).
_WHOLE, _PART = "train_batch_size", "train_micro_batch_size_per_gpu"


def is_read(project: Project, row: Quotient) -> bool:
    """Whether a number that a function keeps in an attribute is read by more than methods of its class that nobody
    names. Of what nobody reads here others may."""
    owner, _, name = row.target.rpartition(".")
    cls = row.function.cls
    if not owner or cls is None:
        return True
    readers = [unit for unit in project.analysis(Flow).mentions.naming(name) if unit.method is not row.function]
    return not readers or any(unit.cls is None or _is_named(project, unit.method) for unit in readers)


def _is_named(project: Project, method: Method | None) -> bool:
    """Whether something names a method, or the language calls it."""
    if method is None or method.name.startswith("__"):
        return True
    return bool(project.calls(method.name) or project.analysis(Flow).mentions.naming(method.name))


def is_divided_by_deepspeed(row: Quotient) -> bool:
    """Whether the class hands the batch and the micro-batch that are divided to DeepSpeed as its settings."""
    over, under = ({factor.text for factor in part} for part in (row.size.over, row.size.under))
    methods = row.function.cls.methods.values() if row.function.cls is not None else [row.function]
    for method in methods:
        given = list(_entries(method))
        whole = any(key == _WHOLE and not over.isdisjoint(factors(value)) for key, value in given)
        if whole and any(key == _PART and not under.isdisjoint(factors(value)) for key, value in given):
            return True
    return False


def _entries(method: Method) -> Iterator[tuple[object, ast.expr]]:
    """What a function puts under a key: `config["train_batch_size"] = …`, `{"train_batch_size": …}`."""
    for node in own_nodes(method.node) if method.node is not None else ():
        if isinstance(node, ast.Assign):
            for target in node.targets:
                if isinstance(target, ast.Subscript) and isinstance(target.slice, ast.Constant):
                    yield target.slice.value, node.value
        elif isinstance(node, ast.Dict):
            yield from (
                (k.value, v) for k, v in zip(node.keys, node.values, strict=True) if isinstance(k, ast.Constant)
            )


__all__ = ["is_divided_by_deepspeed", "is_read"]
