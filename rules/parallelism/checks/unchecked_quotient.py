"""Ranks or micro-batches counted by a floor division that nothing has checked.

What it does
    Follows sizes through names, attributes and arguments to what they count, and reports two divisions whose remainder
    would be lost: the ranks of the job by the sizes of ring, tensor or pipeline parallelism (constraint
    `world-divisible`), and a batch by micro-batch and ranks (constraint `train-batch-divisible`). A test of the same
    sizes in the function, in its class or in a function that checks the configuration makes it silent, and so does
    rounding up, ranks that are arranged in as many rows (`reshape`), sizes that divide by what they are (of a group
    that stands, of one node, `gcd`), and a batch that is taken anew as what is trained; a test under a condition that
    is about something else does not. So do both batch sizes among the settings that the class gives DeepSpeed, which
    asserts this itself, and a number of micro-batches that only methods read which nobody calls. A note where the
    program writes out all sizes but the number of ranks.

Why is this bad
    Six GPUs with a ring of four give a mesh of four: two ranks are in no group, and the job hangs or trains a model of
    their own. A batch that does not divide is trained smaller than the one that was asked for, without a word.

References
    https://docs.pytorch.org/docs/stable/distributed.html#torch.distributed.device_mesh.init_device_mesh
    https://www.deepspeed.ai/docs/config-json/#batch-size-related-parameters
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from validator.analysis.bindings import own_nodes
from validator.analysis.sizes.batch_counts import is_divided_by_deepspeed, is_read
from validator.analysis.sizes.dimensions import Size, tag_of
from validator.analysis.sizes.meshes import Meshes
from validator.analysis.sizes.quotients import Check, Quotient, Quotients, factors
from validator.domains.axes import MODEL_PARALLEL
from validator.facts.text import path_of
from validator.finding import Edit, Finding, Fix, Span
from validator.project import Project
from validator.rule import Rule

RULE = Rule("MP401", "unchecked-quotient", "warning", "0.1.0", tokens=("//", "int("), fix="unsafe", solves=True)


_ARRANGING = frozenset({"reshape", "view", "unflatten"})
# What gives a size that divides the number of ranks: the same on every node, or a common divisor.
_PARTS = frozenset({"gcd", "device_count", "local_world_size", "get_local_size", "size"})


def check_project(project: Project) -> Iterator[Finding]:
    quotients = project.analysis(Quotients)
    for row in quotients.all:
        if row.size.rounded or quotients.is_trusted(row) or _is_exact(row):
            continue
        if _divides_ranks(project, row):
            if not _covered(quotients.around(row), row.size):
                yield _report(row, "world-divisible", "the ranks of the job", "ranks are left out of every group")
        elif _counts_micro_batches(row.size) and _is_lost(project, row) and not _batch_checked(quotients.around(row)):
            yield _report(row, "train-batch-divisible", "the batch", "the rest of every batch is not trained")


def _divides_ranks(project: Project, row: Quotient) -> bool:
    """World over sizes of the mesh alone, for a data-parallel size that others read, or for the shape of a mesh."""
    size = row.size
    if [f.tag for f in size.over] != ["world"] or not size.under or not size.under_tags <= MODEL_PARALLEL:
        return False
    if isinstance(row.statement, ast.Return):
        # a size that a call gives is read back from groups that stand already
        return tag_of(row.function.name) == "dp" and _is_result(row) and not any("(" in f.text for f in size.under)
    named = tag_of(row.target) == "dp"
    return named and (row.target.startswith("self.") or _numbers_groups(row)) or _shapes_mesh(project, row)


def _is_result(row: Quotient) -> bool:
    """Whether a function returns the quotient itself, or `int(…)` of it."""
    value = row.statement.value if isinstance(row.statement, ast.Return) else None
    return value is row.node or (isinstance(value, ast.Call) and row.node in value.args)


def _numbers_groups(row: Quotient) -> bool:
    """Whether a function makes as many process groups, or groups of as many ranks, as the quotient says."""
    if not any(call.method == "new_group" for call in row.function.facts.calls) or row.function.node is None:
        return False
    ranges = (n for n in own_nodes(row.function.node) if isinstance(n, ast.Call) and path_of(n.func) == "range")
    return any(isinstance(n, ast.Name) and n.id == row.target for each in ranges for n in ast.walk(each))


def _shapes_mesh(project: Project, row: Quotient) -> bool:
    for mesh in project.analysis(Meshes).all:
        parts = mesh.shape if mesh.function is row.function and mesh.shape is not None else ()
        if any(path_of(part) == row.target or part is row.node for part in parts):
            return True
    return False


def _is_exact(row: Quotient) -> bool:
    """Whether nothing can be lost, or goes on without a word: what divides is a part of the ranks by what it is, the
    ranks are arranged in as many rows, which fails otherwise, or the product is taken again, as what is really used."""
    nodes = own_nodes(row.function.node) if row.function.node is not None else []
    below = {factor.text for factor in row.size.under}
    if any(_is_part(value) for path, value in _given(nodes) if path in below):
        return True
    for node in nodes:
        if isinstance(node, ast.Call) and path_of(node.func).rpartition(".")[2] in _ARRANGING:
            given = {path_of(each) for argument in node.args for each in _elements(argument)}
            if row.target in given and given & below:
                return True
        if isinstance(node, ast.BinOp) and row.target and "batch" in row.size.tags:
            taken = set(factors(node))
            if row.target in taken and below <= taken:
                return True
    return False


def _elements(node: ast.expr) -> list[ast.expr]:
    return node.elts if isinstance(node, ast.Tuple | ast.List) else [node]


def _given(nodes: list[ast.AST]) -> Iterator[tuple[str, ast.expr]]:
    """What plain assignments give to paths."""
    for node in (each for each in nodes if isinstance(each, ast.Assign)):
        for target in node.targets:
            both = _elements(target), _elements(node.value) if isinstance(target, ast.Tuple) else [node.value]
            if len(both[0]) == len(both[1]):
                yield from ((path_of(each), value) for each, value in zip(*both, strict=True))


def _is_part(value: ast.expr) -> bool:
    """Whether a size is a part of the ranks by what it is: of a group that stands, of one node, a common divisor."""
    called = [node for node in ast.walk(value) if isinstance(node, ast.Call)]
    for call in called:
        name = path_of(call.func).rpartition(".")[2]
        if name in _PARTS or (name == "get_world_size" and (call.args or call.keywords)):
            return True
    one = isinstance(value, ast.Constant) and value.value == 1
    return one or any(isinstance(node, ast.Constant) and node.value == "LOCAL_WORLD_SIZE" for node in ast.walk(value))


def _is_fixed(row: Quotient) -> bool:
    """Whether the program writes out all sizes but the number of ranks: who changes them has the line before them."""
    names = {factor.text for factor in (*row.size.over, *row.size.under) if factor.tag not in ("world", "dp")}
    written = {path for path, value in _given(_around(row)) if isinstance(value, ast.Constant)}
    return names <= written


def _around(row: Quotient) -> list[ast.AST]:
    """The nodes of the function, and the statements of its file."""
    own = own_nodes(row.function.node) if row.function.node is not None else []
    return [*own, *ast.iter_child_nodes(row.function.module.source.tree)]


def _covered(checks: list[Check], size: Size) -> bool:
    """Whether tests of the world speak of every dimension below the bar."""
    spoken: set[str] = set()
    for check in checks:
        if check.left.has("world"):
            spoken |= check.right.tags
    return size.under_tags <= spoken or any(
        f.text in {c.right.over[0].text for c in checks if c.right.over} for f in size.under
    )


def _counts_micro_batches(size: Size) -> bool:
    return "batch" in size.tags and "micro" in size.under_tags and (size.below("world") or size.below("dp"))


def _is_lost(project: Project, row: Quotient) -> bool:
    """Whether something is trained by a number of micro-batches, and DeepSpeed does not check what it is made of."""
    return is_read(project, row) and not is_divided_by_deepspeed(row)


def _batch_checked(checks: list[Check]) -> bool:
    wholes = {"batch", "micro"}
    return any(c.left.tags & wholes and (c.right.tags & {"micro", "dp"} or c.right.has("world")) for c in checks)


def _report(row: Quotient, constraint: str, what: str, lost: str) -> Finding:
    function, size = row.function, row.size
    above, below = (" * ".join(f.text for f in part) for part in (size.over, size.under))
    target = f"`{row.target}`" if row.target else "a size"
    return RULE.finding(
        function.path,
        function.module.source_text.at(row.node),
        f"`{function.qualname}` divides {what} for {target} and nothing checks that `{above}` is a multiple of"
        f" `{below}`: otherwise {lost}",
        help=f"check it first, and say which sizes would do (constraint `{constraint}`)",
        fix=_fix(row, above, below),
        context=f"{function.qualname}:{row.target}",
        severity="note" if _is_fixed(row) else None,
    )


def _fix(row: Quotient, above: str, below: str) -> Fix | None:
    """An assertion before the statement, where the sizes are plain expressions that stand for the same there."""
    texts = [f.text for f in (*row.size.over, *row.size.under)]
    if not all(_plain(text) for text in texts):
        return None
    above_bar = len(row.size.over)
    left = f"({above})" if len(row.size.over) > 1 else above
    right = f"({below})" if len(row.size.under) > 1 else below
    line, column, _, _ = row.function.module.source_text.at(row.statement)
    indent = " " * (column - 1)
    names, parts = (" * ".join(t.rpartition(".")[2] for t in each) for each in (texts[:above_bar], texts[above_bar:]))
    values = " * ".join(f"{{{text}}}" for text in texts[:above_bar])
    message = f"{names} ({values}) is no multiple of {parts}"
    text = f'assert {left} % {right} == 0, (\n{indent}    f"{message}"\n{indent})\n{indent}'
    return Fix(
        "unsafe", f"check that `{above}` is a multiple of `{below}`", (Edit(Span(line, column, line, column), text),)
    )


def _plain(text: str) -> bool:
    try:
        node = ast.parse(text, mode="eval").body
    except SyntaxError:
        return False
    return all(isinstance(n, ast.Name | ast.Attribute | ast.expr_context) for n in ast.walk(node))


INCORRECT = [
    """
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh

class DeepspeedStrategy:
    def setup_distributed(self):
        self.world_size = dist.get_world_size()
        dp_size = self.world_size // self.ring_attn_size // self.tensor_parallel_size  # error: MP401
        self.mesh = init_device_mesh(
            "cuda", (dp_size, self.ring_attn_size, self.tensor_parallel_size), mesh_dim_names=("dp", "sp", "tp")
        )
        self.accumulated_gradient = (
            self.train_batch_size * self.ring_attn_size // self.micro_batch_size // self.world_size  # error: MP401
        )
""",
    """
import torch.distributed as dist

class Strategy:
    def setup_distributed(self):
        world_size = dist.get_world_size()
        if self.verbose:
            assert world_size % self.tp_size == 0
        self.dp_size = world_size // self.tp_size  # error: MP401
""",
    """
import torch.distributed as dist

class ParallelSizes:
    @property
    def dp_size(self):
        return dist.get_world_size() // (self.tp_size * self.cp_size)  # error: MP401

class Trainer:
    def setup(self):
        self.data_parallel_size = int(dist.get_world_size() / self.ring_attn_size)  # error: MP401

def make_groups(tp_size):
    dp_size = dist.get_world_size() // tp_size  # error: MP401
    for index in range(dp_size):
        dist.new_group([index * tp_size + rank for rank in range(tp_size)])
""",
]

CORRECT = [
    """
import torch.distributed as dist

class FSDP2Strategy:
    def setup_distributed(self):
        self.world_size = dist.get_world_size()
        factor = self.ring_attn_size * self.tp_size
        assert self.world_size % factor == 0, f"{self.world_size} ranks are no multiple of {factor}"
        self.dp_size = self.world_size // factor
        effective_batch = self.micro_train_batch_size * self.dp_size
        if self.train_batch_size % effective_batch:
            raise ValueError("train_batch_size")
        self.accumulated_gradient = self.train_batch_size // effective_batch
""",
    """
# file: pkg/__init__.py
# file: pkg/sizes.py
def whole(a, b):
    if a % b != 0:
        raise ValueError(f"{a} is no multiple of {b}")
    return a // b
# file: pkg/strategy.py
import math
import torch.distributed as dist
from pkg.sizes import whole

class Strategy:
    def setup(self):
        world_size = dist.get_world_size()
        self.dp_size = whole(world_size, self.tp_size)
        self.steps = -(-self.train_batch_size // (self.micro_batch_size * self.dp_size))
""",
    """
import torch.distributed as dist

class Strategy:
    def __init__(self, tp_size):
        self.tp_size = tp_size
        self.validate()

    def validate(self):
        if dist.get_world_size() % self.tp_size != 0:
            raise ValueError("tp_size")

    def setup(self):
        self.dp_size = dist.get_world_size() // self.tp_size
""",
    """
import torch.distributed as dist
from states import parallel_state

class Engine:
    def dp_size(self):
        return dist.get_world_size() // parallel_state().tp_size

    def ranks_per_ring(self):
        return dist.get_world_size() // self.ring_attn_size

    def logged(self, tp_size):
        dp_size = dist.get_world_size() // tp_size
        print(f"{dp_size} replicas")
        dist.new_group(list(range(tp_size)))
""",
    # multiplied back, and compared; arranged, which fails; what divides by what it is; the batch that is trained
    """
import math

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh

def setup(tp_size):
    world_size = dist.get_world_size()
    dp_size = world_size // tp_size
    assert dp_size * tp_size == world_size
    return init_device_mesh("cuda", (dp_size, tp_size), mesh_dim_names=("dp", "tp"))

def in_nodes():
    world_size = dist.get_world_size()
    tp_size = torch.cuda.device_count()
    dp_size = world_size // tp_size
    return init_device_mesh("cuda", (dp_size, tp_size), mesh_dim_names=("dp", "tp"))

def at_most(wanted):
    world_size = dist.get_world_size()
    tp_size = math.gcd(wanted, world_size)
    dp_size = world_size // tp_size
    return init_device_mesh("cuda", (dp_size, tp_size), mesh_dim_names=("dp", "tp"))

class Groups:
    def __init__(self, tp_size, train_batch_size, micro_batch_size):
        world_size = dist.get_world_size()
        self.dp_size = world_size // tp_size
        for row in torch.arange(world_size).reshape(self.dp_size, tp_size).tolist():
            dist.new_group(row)
        self.steps = train_batch_size // (micro_batch_size * world_size)
        self.train_batch_size = self.steps * micro_batch_size * world_size
        print(f"training {self.train_batch_size} of {train_batch_size}")
""",
    # DeepSpeed is given both numbers, and asserts the rest itself
    """
import deepspeed
import torch.distributed as dist

class Strategy:
    def __init__(self, train_batch_size, micro_train_batch_size):
        self.train_batch_size, self.micro_train_batch_size = train_batch_size, micro_train_batch_size

    def setup(self):
        self.world_size = dist.get_world_size()
        self.accumulated_gradient = self.train_batch_size // self.micro_train_batch_size // self.world_size

    def prepare(self, model, config):
        config["train_micro_batch_size_per_gpu"] = self.micro_train_batch_size
        config["train_batch_size"] = self.train_batch_size
        return deepspeed.initialize(model=model, config=config)[0]

    def is_step(self, number):
        return number % self.accumulated_gradient == 0

def train(strategy, batches):
    return [strategy.is_step(number) for number, _ in enumerate(batches)]
""",
    # only what nobody calls reads the number
    """
import torch.distributed as dist

class Strategy:
    def __init__(self, train_batch_size, micro_train_batch_size):
        self.train_batch_size, self.micro_train_batch_size = train_batch_size, micro_train_batch_size

    def setup(self):
        self.world_size = dist.get_world_size()
        self.accumulated_gradient = self.train_batch_size // self.micro_train_batch_size // self.world_size

    def average(self, number, values):
        if number % self.accumulated_gradient == 0:
            values.clear()
""",
]
