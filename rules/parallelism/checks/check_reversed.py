"""A test of divisibility with its two sides exchanged.

What it does
    Reports a test that something is a multiple of the heads, the batch or the world it is meant to divide:
    `tp_size % num_attention_heads == 0`, `micro_batch_size % train_batch_size == 0`, `tp_size % world_size == 0`, where
    the function does not test the other direction as well.

Why is this bad
    It holds where the small size happens to be a multiple of the large one, which is hardly ever, or equal to it: the
    sizes that would do are refused, or, where the test is negated, those that would not do pass.

References
    https://docs.pytorch.org/docs/stable/distributed.tensor.parallel.html
"""

from __future__ import annotations

from collections.abc import Iterator

from validator.analysis.sizes.dimensions import Size
from validator.analysis.sizes.quotients import Check, Quotients
from validator.domains.axes import MODEL_PARALLEL
from validator.finding import Finding
from validator.project import Project
from validator.rule import Rule

RULE = Rule("MP420", "check-reversed", "note", "0.1.0", tokens=("%",), solves=True)

_RANKS = MODEL_PARALLEL | {"dp"}


def check_project(project: Project) -> Iterator[Finding]:
    quotients = project.analysis(Quotients)
    for check in quotients.tested():
        if _reversed(check.left, check.right) and not _both_ways(quotients, check):
            yield _report(check)


def _reversed(left: Size, right: Size) -> bool:
    """Whether the whole stands where the part should."""
    if left.under or right.under or len(left.over) != 1 or len(right.over) != 1:
        return False
    part, whole = left.over[0].tag, right.over[0].tag
    pairs = (part in _RANKS and whole in ("heads", "world")) or (part == "micro" and whole == "batch")
    return pairs and left.over[0].text != right.over[0].text


def _both_ways(quotients: Quotients, check: Check) -> bool:
    """Key/value heads may divide the ranks or be divided by them: then a function tests both."""
    names = {check.left.over[0].tag}
    whole = check.right.over[0].tag
    return any(whole in other.left.tags and names & other.right.tags for other in quotients.checks(check.function))


def _report(check: Check) -> Finding:
    function = check.function
    part, whole = check.left.over[0].text, check.right.over[0].text
    return RULE.finding(
        function.path,
        function.module.source_text.at(check.node),
        f"`{function.qualname}` tests whether `{part}` is a multiple of `{whole}`, which is the wrong way round",
        help=f"test `{whole} % {part}`",
        context=f"{function.qualname}:{part}:{whole}",
    )


INCORRECT = [
    """
import torch.distributed as dist

def validate(args, config):
    assert args.tp_size % config.num_attention_heads == 0  # error: MP420
    if args.micro_train_batch_size % args.train_batch_size != 0:  # error: MP420
        raise ValueError("batch sizes")
    assert args.tensor_parallel_size % dist.get_world_size() == 0  # error: MP420
""",
]

CORRECT = [
    """
import torch.distributed as dist

def validate(args, config):
    assert config.num_attention_heads % args.tp_size == 0
    assert args.train_batch_size % args.micro_train_batch_size == 0
    assert dist.get_world_size() % args.tensor_parallel_size == 0
""",
    """
import torch.distributed as dist

def validate(config, sp_size):
    kv_heads = config.num_key_value_heads
    assert kv_heads % sp_size == 0 or sp_size % kv_heads == 0, f"{kv_heads} key/value heads and {sp_size} ranks"
""",
]
