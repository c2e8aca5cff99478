"""What of a model lies on a GPU: its share of the layers and tables, over tensor, pipeline and expert parallelism."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import ceil

from bench import backends
from bench.predict.layout import Layout
from bench.predict.moments import Elements
from rules.models import ModelFacts


@dataclass(frozen=True)
class Stage:
    """A part of the model that one group of tensor-parallel ranks holds. `in_flight` micro-batches have gone forward
    through it and not back, at the most; `ends` where it has the head."""

    name: str
    facts: ModelFacts
    n: Elements
    in_flight: float = 1.0
    ends: bool = True


def stages(facts: ModelFacts, layout: Layout) -> Iterator[Stage]:
    """The whole model, or the first and the last stage of a pipeline: all others hold less.

    Micro-batches in flight are those of Megatron-core's `pipeline_parallel/schedules.py`: one forward, one backward
    behind as many as there are stages; with v model chunks a rank begins 2 (p - 1) + (v - 1) p chunks early.
    """
    n = _elements(facts, layout)
    if layout.pp == 1:
        yield Stage("", facts, n)
        return
    p, v = layout.pp, layout.virtual_pp
    part = facts.with_layers(ceil(facts.layers / p))
    layers = _layers(part, layout)
    first, last = (float(p), 1.0) if v == 1 else (p + (p - 1) / v, ((v - 1) * p + 1) / v)
    yield Stage("first stage, ", part, Elements(layers, n.embedding, 0.0), first, ends=False)
    yield Stage("last stage, ", part, Elements(layers, 0.0, n.last), last)


def routed_elements(facts: ModelFacts) -> float:
    """Weights of all routed experts."""
    if not facts.experts:
        return 0.0
    idle = facts.parameters - facts.active_parameters
    return idle * facts.experts / (facts.experts - facts.experts_per_token)


def _layers(facts: ModelFacts, layout: Layout) -> float:
    """Elements of the layers on one GPU, with the last norm."""
    tables = facts.vocab * facts.hidden * (1 if facts.tied else 2)
    experts = routed_elements(facts) if layout.ep * layout.expert_tp > 1 else 0.0
    return (facts.parameters - tables - experts) / layout.tp + experts / (layout.ep * layout.expert_tp)


def _elements(facts: ModelFacts, layout: Layout) -> Elements:
    """Tensor-parallel plans split the layers. transformers' plan splits the head too, DeepSpeed's AutoTP does not,
    and neither splits the embedding. The plans with sequence parallelism are `bench`'s own and split it as well."""
    backend = backends.find(layout.backend)
    table = float(facts.vocab * facts.hidden)
    head = 0.0 if facts.tied else table
    if backend.splits_head:
        head /= layout.tp
    if backend.splits_embedding or (layout.sequence_parallel and not facts.tied):
        table /= layout.tp
    return Elements(_layers(facts, layout), table, head)
