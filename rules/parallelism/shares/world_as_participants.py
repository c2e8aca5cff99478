"""The number of all ranks given where the number of data-parallel groups is meant.

What it does
    Reports an argument that counts who takes part in the exchange of samples (`k_partitions`, `num_actors`, `dp_size`,
    …) and is the number of all ranks or GPUs, in a program that divides its ranks by sizes of ring (context, sequence),
    tensor or pipeline parallelism.

Why is this bad
    The ranks of one such group send and receive samples once, not each for itself. Whoever waits for as many as there
    are GPUs waits for ever; whoever makes as many parts balances parts that nobody trains.

References
    https://docs.nvidia.com/megatron-core/developer-guide/latest/user-guide/parallelism-guide.html
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache

from validator.analysis.interfaces.binding import bind
from validator.analysis.sizes.dimensions import Dimensions, Size, tag_of
from validator.analysis.sizes.quotients import Quotient, Quotients
from validator.facts.model import Argument, At, Call
from validator.finding import Finding, Related
from validator.flow.objects import Objects
from validator.flow.queries.outside_program import is_aside
from validator.project import Method, Project
from validator.rule import Rule

RULE = Rule(
    "MP404", "world-as-participants", "note", "0.1.0", tokens=("world_size", "gpus_per_node", "num_gpus"), solves=True
)

_COUNTS = re.compile(r"^(k|n|num)_(\w+_)?(partitions|actors|clients|senders|producers)$|^(dp|data_parallel)_size$")
_RANKS = re.compile(r"world_size|gpus|num_processes|WORLD_SIZE")


def check_project(project: Project) -> Iterator[Finding]:
    groups = project.analysis(Quotients).groups
    if not groups:
        return
    for function in project.functions():
        if is_aside(function.path):
            continue
        seen: set[At] = set()
        for call in function.facts.calls:
            for name, argument in _counting(project, function, call):
                size = _size(project, function, argument)
                if size is None or not _all_ranks(size) or any(tag_of(w) in groups for w in _words(call)):
                    continue
                at = _bound_at(function, argument)
                if at not in seen:
                    seen.add(at)
                    yield _report(function, call, name, at, size, groups)


def _counting(project: Project, function: Method, call: Call) -> Iterator[tuple[str, Argument]]:
    """The arguments of a call that count participants: by keyword, or by the parameter they go to."""
    by_keyword = {a.keyword: a for a in call.args if a.keyword}
    yield from ((name, a) for name, a in by_keyword.items() if _counts(name))
    if any(a.keyword is None and _RANKS.search(a.value) for a in call.args):
        for target in project.analysis(Objects).targets(function, call):
            for name, argument in bind(target, call).items():
                if _counts(name) and name not in by_keyword:
                    yield name, argument


@cache
def _counts(name: str) -> bool:
    return _COUNTS.search(name) is not None


def _size(project: Project, function: Method, argument: Argument) -> Size | None:
    dimensions = project.analysis(Dimensions)
    if argument.kind == "path":
        return dimensions.path(function, argument.value)
    if argument.kind != "other" or not _RANKS.search(argument.value):
        return None
    try:
        return dimensions.size(function, ast.parse(argument.value, mode="eval").body)
    except SyntaxError:  # the text of a long expression is cut
        return None


def _all_ranks(size: Size) -> bool:
    return size.has("world") and len(size.over) == (1 if "world" in size.tags else 2) and not size.under


def _words(call: Call) -> Iterator[str]:
    for guard in call.guards:
        yield from re.findall(r"[\w.]+", guard.text)


def _bound_at(function: Method, argument: Argument) -> At:
    """Where a local name gets the value, which is where it is to be mended; otherwise the argument."""
    rows = [row for row in function.facts.assigns if row.target == argument.value]
    return rows[0].at if len(rows) == 1 and "." not in argument.value else argument.at


def _report(function: Method, call: Call, name: str, at: At, size: Size, groups: dict[str, Quotient]) -> Finding:
    ranks = " * ".join(f.text for f in size.over)
    place = groups[sorted(groups)[0]]
    shared = " and ".join(sorted({f.text for row in groups.values() for f in row.size.under})[:3])
    return RULE.finding(
        function.path,
        at,
        f"`{function.qualname}` gives `{call.method}` all ranks (`{ranks}`) for `{name}`, but ranks that share samples"
        f" count once",
        help=f"divide by the sizes of the groups, as elsewhere by `{shared}`, or ask for the data-parallel size",
        related=[Related(place.function.path, place.node.lineno, "the ranks are divided into groups here")],
        context=f"{function.qualname}:{call.method}:{name}",
    )


INCORRECT = [
    """
# file: pkg/__init__.py
# file: pkg/engines.py
def create_engines(num_engines, num_total_actors, group):
    return [num_total_actors // num_engines for _ in range(num_engines)], group
# file: pkg/strategy.py
import torch.distributed as dist

class Strategy:
    def setup(self):
        self.dp_size = dist.get_world_size() // self.args.ring_attn_size
# file: pkg/train.py
from pkg.engines import create_engines

def train(args):
    return create_engines(
        args.num_engines,
        args.actor_num_nodes * args.actor_num_gpus_per_node,  # error: MP404
        None,
    )
""",
    """
import torch.distributed as dist
from partitions import balanced

def data_parallel_size(config):
    return dist.get_world_size() // config.tensor_parallel_size

class Trainer:
    def balance(self, lengths):
        world_size = self.workers.world_size  # error: MP404
        if self.keep:
            return balanced(lengths[:8], k_partitions=world_size)
        return balanced(lengths, k_partitions=world_size)
""",
]

CORRECT = [
    """
import torch.distributed as dist
from partitions import balanced

def data_parallel_size(config):
    return dist.get_world_size() // config.tensor_parallel_size

class Trainer:
    def balance(self, lengths, config):
        dp_size = data_parallel_size(config)
        return balanced(lengths, k_partitions=dp_size)
""",
    """
from partitions import balanced

class DataParallelTrainer:
    def balance(self, lengths):
        return balanced(lengths, k_partitions=self.workers.world_size)
""",
    """
import torch.distributed as dist
from partitions import balanced

class Trainer:
    def balance(self, lengths, ring_attn_size):
        parts = dist.get_world_size() // ring_attn_size
        if ring_attn_size == 1:
            return balanced(lengths, k_partitions=dist.get_world_size())
        return balanced(lengths, k_partitions=parts)
""",
]
