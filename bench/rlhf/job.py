"""An RLHF job as what its models take of a GPU at each moment. No torch needed.

A job goes round: the engine generates, models score what it has written, actor and critic train. What shares a GPU is
added up at each of these moments: all of the model that works, what the others leave resident, the engine's share or,
while it sleeps, what is left of it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from bench import backends
from bench.predict.activations import splits_vocabulary
from bench.predict.layout import Layout
from bench.predict.memory import estimate, weights
from bench.predict.moments import CONSTANTS
from rules.models import ModelFacts

ASLEEP = 1.5e9
"""Bytes of an engine that sleeps: its context and what it keeps for waking up."""
OVERHEAD = 2e9
"""Bytes within an engine's share that are neither weights nor cache: activations and captured graphs."""
CACHE_ITEM = 2
"""Bytes of an element of the cache of keys and values, 16-bit by default."""
ACCUMULATION = 2
"""Micro-batches of a step where no batch is given: from the second on gradients are there while others are made."""
GENERATE = "generate"
"""The moment in which the engine works."""
ONE_MODEL = "is no RLHF job of several models: plan its model with --model and --gpus"
"""What is said of a program that trains one."""
SCORES_LOGITS = ("actor", "reference")
"""Models whose scores are log-probabilities of tokens, and so need logits."""


@dataclass(frozen=True)
class Part:
    """A model of the job. `layout` is that of its training, or, where `trains` is false, of its forward passes.

    `idle_parameters` and `idle_optimizer`: what stays on the GPU while others work. `score_tokens`: tokens of one
    forward pass of scoring on a GPU.
    """

    role: str
    facts: ModelFacts
    layout: Layout
    trains: bool
    score_tokens: float
    idle_parameters: bool = True
    idle_optimizer: bool = True

    @property
    def gpus(self) -> int:
        return self.layout.dp * self.layout.tp * self.layout.ring * self.layout.pp

    @property
    def weights(self) -> float:
        """Bytes of its parameters on each GPU."""
        if not self.trains:
            return weights(self.facts, self.layout)
        return 0.0 if self.layout.offload_param else estimate(self.facts, self.layout).parameters

    @property
    def optimizer(self) -> float:
        return estimate(self.facts, self.layout).optimizer if self.trains else 0.0

    @property
    def gradients(self) -> float:
        """Bytes of gradients between steps, which are there as long as the parameters."""
        buffered = self.trains and backends.find(self.layout.backend).keeps_gradients
        return estimate(self.facts, self.layout).gradients if buffered else 0.0

    @property
    def idle(self) -> float:
        """Bytes while others work."""
        return (self.weights + self.gradients) * self.idle_parameters + self.optimizer * self.idle_optimizer

    @property
    def training(self) -> float:
        """Bytes at the peak of a training step."""
        return estimate(self.facts, self.layout).allocated

    @property
    def scoring(self) -> float:
        """Bytes of a forward pass without gradients: weights, a layer gathered, activations of one layer, logits."""
        facts, layout = self.facts, self.layout
        gathered = 0.0
        if _sharded(layout) and layout.shards > 1:
            tables = facts.vocab * facts.hidden
            gathered = layout.item * (tables + (facts.parameters - tables) / facts.layers) / layout.tp
        layer = self.score_tokens * layout.item * (4 * facts.hidden + 3 * facts.mlp) / layout.tp
        vocabulary = facts.vocab / (layout.tp if splits_vocabulary(facts, layout) else 1)
        logits = self.score_tokens * vocabulary * (layout.item + 4) if self.role in SCORES_LOGITS else 0.0
        kept = self.optimizer * self.idle_optimizer + self.gradients * self.idle_parameters
        return self.weights + kept + gathered + layer + logits


def _sharded(layout: Layout) -> bool:
    return backends.find(layout.backend).shards_parameters(layout.zero_stage)


@dataclass(frozen=True)
class Engine:
    """What generates: `count` engines of `tp` GPUs each; `share` of a GPU's memory is taken at once, and given back
    while it `sleeps`. `length` is that of the longest sequence, in tokens."""

    facts: ModelFacts
    count: int
    tp: int
    share: float
    sleeps: bool
    length: int

    @property
    def gpus(self) -> int:
        return self.count * self.tp

    @property
    def weights(self) -> float:
        """Bytes on each of its GPUs, in 16 bits."""
        return 2.0 * self.facts.parameters / self.tp

    @property
    def cache_per_token(self) -> float:
        """Bytes of keys and values of one token on each GPU; heads are split as far as there are some."""
        f = self.facts
        return 2.0 * CACHE_ITEM * f.layers * f.head_dim * max(f.kv_heads / self.tp, 1.0)

    def cache_tokens(self, gpu_memory: float) -> int:
        """Tokens that its cache holds; below 0 where the weights alone exceed the share."""
        return int((self.share * gpu_memory - self.weights - OVERHEAD) / self.cache_per_token)


@dataclass(frozen=True)
class Job:
    """Models, the engine, and which of them share GPUs: groups of roles, `rollout` being the engine.

    `processes` says whether each model has a process of its own, with a CUDA context, as under Ray; else they share
    one and the engine.
    """

    framework: str
    parts: tuple[Part, ...]
    engine: Engine | None
    groups: tuple[tuple[str, ...], ...]
    processes: bool = True
    notes: tuple[str, ...] = ()

    @property
    def gpus(self) -> int:
        """Of all groups together."""
        sizes = {part.role: part.gpus for part in self.parts} | ({"rollout": self.engine.gpus} if self.engine else {})
        return sum(max(sizes[role] for role in group) for group in self.groups)


@dataclass(frozen=True)
class Moment:
    """What a GPU of one group must have at a moment, in bytes."""

    group: tuple[str, ...]
    name: str
    working: float
    resident: float
    engine: float
    overhead: float

    @property
    def needed(self) -> float:
        return self.working + self.resident + self.engine + self.overhead


def worst_case(length: int) -> str:
    """The note of a job whose micro-batches have a number of samples and not of tokens."""
    return f"every sample is counted at its full length, {length:,} tokens: this is the worst case"


def moments(job: Job, gpu_memory: float) -> list[Moment]:
    """Every group at every moment in which something of it works, the fullest first."""
    found = [moment for group in job.groups for moment in _of_group(job, group, gpu_memory)]
    return sorted(found, key=lambda moment: -moment.needed)


def _of_group(job: Job, group: Sequence[str], gpu_memory: float) -> list[Moment]:
    parts = [part for part in job.parts if part.role in group]
    engine = job.engine if "rollout" in group else None
    contexts = (len(parts) if job.processes else min(len(parts), 1)) * CONSTANTS.context
    awake = engine.share * gpu_memory if engine else 0.0
    asleep = (ASLEEP if engine.sleeps else awake) if engine else 0.0

    def moment(name: str, working: float, others: Sequence[Part], engine_bytes: float) -> Moment:
        resident = sum(part.idle for part in others)
        loose = (working + resident) * (CONSTANTS.fragmentation - 1.0)
        return Moment(tuple(group), name, working, resident, engine_bytes, contexts + loose)

    found = [moment(GENERATE, 0.0, parts, awake)] if engine else []
    for part in parts:
        others = [other for other in parts if other is not part]
        found.append(moment(f"score: {part.role}", part.scoring, others, asleep))
        if part.trains:
            found.append(moment(f"train: {part.role}", part.training, others, asleep))
    return found


def problems(job: Job, gpu_memory: float) -> list[str]:
    """Why the job cannot run, in lines; empty where nothing is known against it."""
    found = []
    for group in job.groups:
        worst = max(_of_group(job, group, gpu_memory), key=lambda moment: moment.needed, default=None)
        if worst is not None and worst.needed > gpu_memory:
            who = " + ".join(group)
            found.append(
                f"{who}: {worst.name} needs {worst.needed / 1e9:.1f} GB of each GPU, which has {gpu_memory / 1e9:.1f}"
                f"{_advice(job, worst)}"
            )
    engine = job.engine
    if engine is not None:
        tokens = engine.cache_tokens(gpu_memory)
        if tokens < 0:
            found.append(
                f"rollout: weights of {engine.weights / 1e9:.1f} GB leave no cache in {engine.share:.0%} of "
                f"{gpu_memory / 1e9:.1f} GB: a larger share, or more tensor parallelism"
            )
        elif tokens < engine.length:
            found.append(f"rollout: the cache holds {tokens:,} tokens, one sequence may have {engine.length:,}")
    return found


def _advice(job: Job, worst: Moment) -> str:
    """What would take memory from the fullest moment, the most first."""
    role = worst.name.partition(": ")[2]
    part = next((one for one in job.parts if one.role == role), None)
    ways = [(worst.engine - ASLEEP, "let the engine sleep while others work")] if worst.name != GENERATE else []
    ways.append((worst.resident, "offload the models that do not work"))
    if part is not None and part.trains and worst.name.startswith("train"):
        layout = part.layout
        ways += [
            (part.training - estimate(part.facts, replace(layout, **change)).allocated, words)
            for change, words in (
                ({"zero_stage": 3}, "ZeRO-3"), ({"offload_optimizer": True}, "offload the optimizer"),
                ({"checkpointing": True}, "gradient checkpointing"), ({"head": "chunked"}, "logits in chunks"),
                ({"micro_batch_size": max(layout.micro_batch_size // 2, 1)}, "half the micro-batch"),
            )
            if not (change.get("zero_stage") and not backends.find(layout.backend).stages)
        ]  # fmt: skip
    useful = [
        f"{words} (-{saved / 1e9:.0f} GB)" for saved, words in sorted(ways, key=lambda way: -way[0]) if saved > 1e9
    ]
    return f": {', '.join(useful[:3])}" if useful else ""
