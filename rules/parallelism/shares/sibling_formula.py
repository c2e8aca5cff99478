"""A size that two classes standing in for each other compute from different factors.

What it does
    Compares what classes of one name in several modules, and the members of a family of strategies, do to the same
    size: `config.ppo_mini_batch_size *= config.rollout.n` in one and not in the other, or gradient accumulation that
    takes account of ring and tensor parallelism in one and of the ring alone in the other, which knows both.

Why is this bad
    The same options then mean different batches with different backends: one trains on a fraction of the samples, or
    steps more often than the other, and their results cannot be compared.

References
    https://docs.nvidia.com/megatron-core/developer-guide/latest/user-guide/parallelism-guide.html
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from validator.analysis.sizes.dimensions import ONE, Dimensions, Size, product, quotient, tag_of
from validator.analysis.sizes.quotients import Quotients
from validator.domains.axes import MODEL_PARALLEL
from validator.facts.text import path_of
from validator.finding import Finding, Related
from validator.flow.queries.outside_program import is_aside
from validator.project import ClassDef, Method, Project
from validator.rule import Rule

RULE = Rule("MP405", "sibling-formula", "error", "0.1.0", tokens=("batch",), solves=True)

_SIZES = frozenset({"batch", "micro"})


class Formula(NamedTuple):
    """What a class makes of a size, and where it does first."""

    cls: ClassDef
    function: Method
    node: ast.AST
    size: Size


def check_project(project: Project) -> Iterator[Finding]:
    dimensions = project.analysis(Dimensions)
    for members in _groups(project):
        tables = [(cls, _in_place(dimensions, cls)) for cls in members]
        for cls, table in tables:
            poorer = [(p, f, r) for p, f in table.items() if (r := _richer(p, f, tables)) is not None]
            if poorer:
                path, mine, richer = poorer[0]
                again = [Related(cls.path, getattr(f.node, "lineno", 1), f"and of `{p}`") for p, f, _ in poorer[1:]]
                yield _report(path, mine, richer, "samples", again=again)
    yield from _families(project)


def _groups(project: Project) -> Iterator[list[ClassDef]]:
    """Classes of one name, in modules of their own, that change batch sizes in place."""
    found: dict[str, list[ClassDef]] = {}
    for cls in project.classes():
        if not is_aside(cls.path) and any(_touches(method) for method in cls.every_method()):
            found.setdefault(cls.name, []).append(cls)
    yield from (members for members in found.values() if len(members) > 1)


def _touches(method: Method) -> bool:
    return any(row.kind == "aug" and tag_of(row.target) in _SIZES for row in method.facts.assigns)


def _in_place(dimensions: Dimensions, cls: ClassDef) -> dict[str, Formula]:
    """What the methods of a class multiply sizes by and divide them by, as one formula for each."""
    found: dict[str, Formula] = {}
    for method in cls.every_method():
        if not _touches(method) or method.node is None:
            continue
        rows = [n for n in ast.walk(method.node) if isinstance(n, ast.AugAssign)]
        for node in sorted(rows, key=lambda n: n.lineno):
            path = path_of(node.target)
            if tag_of(path) not in _SIZES or not isinstance(node.op, ast.Mult | ast.FloorDiv | ast.Div):
                continue
            old = found.get(path, Formula(cls, method, node, ONE))
            combine = product if isinstance(node.op, ast.Mult) else quotient
            found[path] = old._replace(size=combine(old.size, dimensions.size(method, node.value)))
    return found


def _richer(path: str, mine: Formula, tables: list[tuple[ClassDef, dict[str, Formula]]]) -> Formula | None:
    """The formula of a twin that multiplies by the samples of a prompt where this one does not."""
    others = [table[path] for cls, table in tables if path in table and cls is not mine.cls]
    if "samples" in mine.size.tags:
        return None
    return next((o for o in others if "samples" in o.size.tags and _divided_alike(mine.size, o.size)), None)


def _divided_alike(a: Size, b: Size) -> bool:
    """Whether both divide, by ranks as it seems: otherwise they may do so in different places."""
    return all(size.under and not size.under_tags & {"micro", "batch", "samples"} for size in (a, b))


def _families(project: Project) -> Iterator[Finding]:
    """Attributes of the members of a family whose formulas account for different groups of ranks."""
    dimensions = project.analysis(Dimensions)
    rows = [r for r in project.analysis(Quotients).all if r.target.startswith("self.") and r.function.cls is not None]
    for family in project.families.all if rows else ():
        formulas = [(r, _ranks(r.size)) for r in rows if r.function.cls in family.members and "batch" in r.size.tags]
        for row, mine in formulas:
            known = dimensions.model_parallel(row.function)
            for other, theirs in formulas:
                missing = sorted((theirs - mine) & known.keys())
                same = other.target == row.target and other.function.cls is not row.function.cls
                if same and missing and mine and row.function.cls is not None and other.function.cls is not None:
                    poor = Formula(row.function.cls, row.function, row.node, row.size)
                    rich = Formula(other.function.cls, other.function, other.node, other.size)
                    yield _report(row.target, poor, rich, missing[0], known[missing[0]])
                    break


def _ranks(size: Size) -> frozenset[str]:
    return size.tags & MODEL_PARALLEL if size.below("world") else frozenset()


def _report(
    path: str, poor: Formula, rich: Formula, tag: str, known: str = "", again: Iterable[Related] = ()
) -> Finding:
    factor = known or next(f.text for f in rich.size.over if f.tag == tag)
    name = path.rpartition(".")[2]
    where = f"{rich.cls.name}` of `{rich.cls.module.name}" if rich.cls.name == poor.cls.name else rich.cls.name
    return RULE.finding(
        poor.function.path,
        poor.function.module.source_text.at(poor.node),
        f"`{poor.cls.name}` computes `{name}` without `{factor}`, by which `{where}` multiplies it",
        help=f"multiply by `{factor}` here too, before it is divided, or say why it does not count here",
        related=[Related(rich.function.path, getattr(rich.node, "lineno", 1), "the formula of the sibling"), *again],
        context=f"{poor.cls.name}:{path}:{tag}",
    )


INCORRECT = [
    """
# file: pkg/__init__.py
# file: pkg/fsdp.py
import torch.distributed as dist

class ActorWorker:
    def __init__(self, config):
        self.config = config
        self.config.ppo_mini_batch_size *= self.config.rollout.n
        self.config.ppo_mini_batch_size //= dist.get_world_size() // self.config.ulysses_size
# file: pkg/megatron.py
from megatron.core import mpu

class ActorWorker:
    def __init__(self, config):
        self.config = config
        self.config.ppo_mini_batch_size //= mpu.get_data_parallel_world_size()  # error: MP405
""",
    """
import torch.distributed as dist

class DeepspeedStrategy:
    def setup_distributed(self):
        self.world_size = dist.get_world_size()
        assert self.train_batch_size * self.ring_size * self.tp_size % (self.micro_batch_size * self.world_size) == 0
        self.accumulated_gradient = (
            self.train_batch_size * self.ring_size * self.tp_size // self.micro_batch_size // self.world_size
        )

    def backward(self, loss): ...
    def optimizer_step(self, model): ...
    def prepare(self, model): ...

class FSDP2Strategy:
    def setup_distributed(self):
        self.world_size = dist.get_world_size()
        self.tp_mesh = self.mesh["tp"] if self.tp_size > 1 else None
        self.accumulated_gradient = (
            self.train_batch_size * self.ring_size // self.micro_batch_size // self.world_size  # error: MP405
        )

    def backward(self, loss): ...
    def optimizer_step(self, model): ...
    def prepare(self, model): ...

def get_strategy(args):
    return FSDP2Strategy(args) if args.fsdp else DeepspeedStrategy(args)
""",
]

CORRECT = [
    """
# file: pkg/__init__.py
# file: pkg/fsdp.py
import torch.distributed as dist

class ActorWorker:
    def __init__(self, config):
        self.config = config
        self.config.ppo_mini_batch_size *= self.config.rollout.n
        self.config.ppo_mini_batch_size //= dist.get_world_size() // self.config.ulysses_size
# file: pkg/megatron.py
from megatron.core import mpu

class ActorWorker:
    def __init__(self, config):
        self.config = config
        self.config.ppo_mini_batch_size *= self.config.rollout.n
        self.config.ppo_mini_batch_size //= mpu.get_data_parallel_world_size()
""",
    """
# file: pkg/__init__.py
# file: pkg/fsdp.py
import torch.distributed as dist

class ActorWorker:
    def __init__(self, config):
        config.ppo_mini_batch_size *= config.rollout.n
        config.ppo_mini_batch_size //= dist.get_world_size()
# file: pkg/megatron.py
from megatron.core import mpu

class CriticWorker:
    def __init__(self, config):
        config.ppo_mini_batch_size //= mpu.get_data_parallel_world_size()
""",
]
