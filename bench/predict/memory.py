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
from bench.predict.activations import HeadBytes, head_bytes, layer_bytes, norm_bytes
from bench.predict.adapters import elements, largest, linear_elements
from bench.predict.layout import Layout
from bench.predict.moments import CONSTANTS, Constants, Elements, Estimate, Moments
from bench.predict.stages import Stage, stages
from rules.models import ModelFacts

GIB = 1 << 30


def estimate(facts: ModelFacts, layout: Layout, constants: Constants = CONSTANTS) -> Estimate:
    """The peak of one training step with AdamW. Raises ModelError for an uncountable architecture."""
    return max(by_moment(facts, layout, constants).values(), key=lambda one: one.allocated)


def by_moment(facts: ModelFacts, layout: Layout, constants: Constants = CONSTANTS) -> dict[str, Estimate]:
    """Memory at each moment of a step: `forward`, `head`, `first layer` where it matters, `end 1`, …; in a pipeline
    those of its first and last stage."""
    found = {}
    for stage in stages(facts, layout):
        for name, one in _of_stage(stage, layout, constants).items():
            found[stage.name + name] = one
    return found


def weights(facts: ModelFacts, layout: Layout) -> float:
    """Bytes of the parameters on the fullest GPU where nothing is trained. Raises ModelError."""
    shards = layout.shards if backends.find(layout.backend).shards_parameters(layout.zero_stage) else 1
    if layout.pp > 1 or layout.ep * layout.expert_tp > 1:
        return layout.item * max(stage.n.all for stage in stages(facts, layout)) / shards
    return (layout.item * facts.parameters - _saved(facts, layout)) / (layout.tp * shards)


def _of_stage(stage: Stage, layout: Layout, constants: Constants) -> dict[str, Estimate]:
    facts, n = stage.facts, stage.n
    own = _moments(stage, layout, constants)
    head, kept = HeadBytes(0.0, 0.0), layer_bytes(facts, layout, stage.in_flight)
    if stage.ends:
        made = 0.0 if layout.adapters else layout.item * n.last
        head, kept = head_bytes(facts, layout, made, constants.chunk_backward), kept + norm_bytes(facts, layout)
    if layout.quantized:
        kept += layout.item * largest(facts)
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


def _moments(stage: Stage, layout: Layout, constants: Constants) -> Moments:
    """What the backend adds. Where adapters alone are trained they are to it what the whole model is elsewhere; the
    frozen weights are kept and gathered as those that are trained, and nothing more."""
    backend, facts = backends.find(layout.backend), stage.facts
    own = backend.moments(facts, layout, stage.n, constants)
    if layout.adapters is None:
        return own
    count = Elements(elements(facts, layout.adapters) / layout.tp, 0.0, 0.0)
    trained = backend.moments(facts, layout, count, constants)
    frozen = max(own.resident.parameters - _saved(facts, layout) / layout.tp, 0.0)
    return replace(
        trained, resident=replace(trained.resident, parameters=trained.resident.parameters + frozen),
        gathered=own.gathered + trained.gathered,
    )  # fmt: skip


def _saved(facts: ModelFacts, layout: Layout) -> float:
    """Bytes by which linear layers are smaller in 4 bits. Raises ModelError."""
    return (layout.item - layout.quantized) * linear_elements(facts) if layout.quantized else 0.0
