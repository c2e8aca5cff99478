"""What a configuration should take of a GPU's memory, by parts, from the model's shape. No torch needed.

The estimate is of the peak that the allocator hands out on one GPU in a training step with AdamW. Memory is added
up at the moments where it can peak: the end of the forward pass, the start of the backward pass at the head, its
first layer, its end at the embedding, and the optimizer step. The largest sum is the peak.

What a backend adds at each moment is in `bench.backends`. `reports/h200/memory.md` holds the predictions against
measured peaks.
"""

from __future__ import annotations

from dataclasses import replace

from bench import backends
from bench.predict.activations import head_bytes, layer_bytes, norm_bytes
from bench.predict.layout import Layout
from bench.predict.moments import CONSTANTS, Constants, Elements, Estimate
from rules.models import ModelFacts

GIB = 1 << 30


def _elements(facts: ModelFacts, layout: Layout) -> Elements:
    """Tensor-parallel plans split the layers. transformers' plan splits the head too, DeepSpeed's AutoTP does not,
    and neither splits the embedding. The plans with sequence parallelism are `bench`'s own and split it as well."""
    table = float(facts.vocab * facts.hidden)
    whole = facts.vocab * facts.hidden * (1 if facts.tied else 2)
    head = 0.0 if facts.tied else table
    if backends.find(layout.backend).splits_head:
        head /= layout.tp
    if layout.sequence_parallel and not facts.tied:
        table /= layout.tp
    return Elements((facts.parameters - whole) / layout.tp, table, head)


def estimate(facts: ModelFacts, layout: Layout, constants: Constants = CONSTANTS) -> Estimate:
    """The peak of one training step with AdamW. Raises ModelError for an uncountable architecture."""
    return max(by_moment(facts, layout, constants).values(), key=lambda one: one.allocated)


def by_moment(facts: ModelFacts, layout: Layout, constants: Constants = CONSTANTS) -> dict[str, Estimate]:
    """Memory at each moment of a step: `forward`, `head`, `first layer` where it matters, `end 1`, …"""
    n = _elements(facts, layout)
    own = backends.find(layout.backend).moments(facts, layout, n, constants)
    head = head_bytes(facts, layout, layout.item * n.last, constants.chunk_backward)
    kept = layer_bytes(facts, layout) + norm_bytes(facts, layout)
    full = replace(own.resident, gradients=own.early, activations=kept, working=own.gathered)
    found = {
        "forward": replace(full, logits=head.forward),
        "head": replace(full, logits=head.backward, working=own.gathered + head.weight),
    }
    if own.inside is not None:
        found["first layer"] = replace(full, gradients=own.inside[0], working=own.inside[1])
    for number, (gradients, working) in enumerate(own.ends, 1):
        found[f"end {number}"] = replace(own.resident, gradients=gradients, working=working)
    return found
