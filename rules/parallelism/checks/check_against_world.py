"""A batch that is tested against the number of all GPUs where only groups of them take a share of it.

What it does
    Reports a test `batch % ranks` on the number of all ranks or GPUs, in a function or class that knows sizes of ring
    (context, sequence), tensor or pipeline parallelism and leaves them out of the test.

Why is this bad
    A batch is divided among data-parallel groups, each of which takes micro-batches. The test refuses batches that
    would do, and lets others pass that fail later, after the models are loaded.

References
    https://docs.nvidia.com/megatron-core/developer-guide/latest/user-guide/parallelism-guide.html
"""

from __future__ import annotations

from collections.abc import Iterator

from validator.analysis.sizes.dimensions import Dimensions
from validator.analysis.sizes.quotients import Check, Quotients
from validator.domains.axes import MODEL_PARALLEL
from validator.finding import Finding
from validator.project import Project
from validator.rule import Rule

RULE = Rule("MP403", "check-against-world", "warning", "0.1.0", tokens=("%",), solves=True)


def check_project(project: Project) -> Iterator[Finding]:
    dimensions = project.analysis(Dimensions)
    for check in project.analysis(Quotients).tested():
        if "batch" not in check.left.tags or not _all_ranks(check):
            continue
        sizes = sorted(dimensions.model_parallel(check.function).values())
        if sizes:
            yield _report(check, sizes[0])


def _all_ranks(check: Check) -> bool:
    tags = (check.left.tags | check.right.tags | check.right.under_tags) & MODEL_PARALLEL
    return check.right.has("world") and not check.right.tags & {"micro", "dp"} and not tags


def _report(check: Check, shared: str) -> Finding:
    function = check.function
    batch, ranks = (" * ".join(f.text.rpartition(".")[2] for f in side.over) for side in (check.left, check.right))
    return RULE.finding(
        function.path,
        function.module.source_text.at(check.node),
        f"`{function.qualname}` tests `{batch}` against all GPUs (`{ranks}`), although the ranks of `{shared}` share"
        " their samples",
        help="test it against the data-parallel size times the micro-batch size of a rank",
        context=f"{function.qualname}:{batch}",
    )


INCORRECT = [
    """
from strategies import get_strategy

class Trainer:
    def validate(self, config):
        n_gpus = config.trainer.n_gpus_per_node * config.trainer.nnodes
        batch = config.data.train_batch_size * config.rollout.n
        assert batch % n_gpus == 0, f"{batch} is no multiple of {n_gpus}"  # error: MP403
        if config.actor.ulysses_sequence_parallel_size > 1:
            assert config.model.use_remove_padding
""",
]

CORRECT = [
    """
class Trainer:
    def validate(self, config):
        n_gpus = config.trainer.n_gpus_per_node * config.trainer.nnodes
        model_parallel = config.actor.tensor_model_parallel_size * config.actor.pipeline_model_parallel_size
        assert n_gpus % model_parallel == 0
        dp_size = n_gpus // model_parallel
        assert config.data.train_batch_size % (dp_size * config.actor.ppo_micro_batch_size_per_gpu) == 0
""",
    """
class DataParallelTrainer:
    def validate(self, config):
        n_gpus = config.trainer.n_gpus_per_node * config.trainer.nnodes
        assert config.data.train_batch_size % n_gpus == 0
""",
    """
class Trainer:
    def validate(self, args, world_size):
        micro_batches = args.train_batch_size * args.tensor_parallel_size
        assert micro_batches % (args.micro_train_batch_size * world_size) == 0
""",
]
