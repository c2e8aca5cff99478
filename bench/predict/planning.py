"""Every way to split a model over GPUs: which are legal, what they take, which comes first."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from bench import backends
from bench.configuration import Configuration
from bench.predict import sizes
from bench.predict.flops import TokenFlops, TokenTraffic, per_token, seconds_per_token, traffic
from bench.predict.layout import Layout
from bench.predict.memory import estimate
from bench.predict.moments import CONSTANTS, Constants, Estimate
from rules.constraints import Quantities, Violation, check, explain
from rules.models import ModelFacts

DENSE_SEARCH = 16
"""Up to this many GPUs every size is looked at; beyond, only those that divide the world."""


@dataclass(frozen=True, kw_only=True)
class Request(Configuration):
    """What to plan for: a configuration of a model on `num_gpus` GPUs, each `variants` of backend and ZeRO stage split
    in every way. `gpu_memory` in bytes; `checkpoint_if_needed` switches checkpointing on where a row would not fit."""

    facts: ModelFacts
    gpus_per_node: int
    gpu_memory: float
    variants: tuple[tuple[str, int | None], ...]
    seq_len: int = 4096
    micro_batch_size: int | None = 1
    attn: str = "flash_attention_2"
    master: str = "fp32"
    ring_impl: str = "zigzag"
    offload_param: bool = False
    checkpoint_if_needed: bool = True
    constants: Constants = CONSTANTS

    def split(self, variant: tuple[str, int | None], tp: int, ring: int) -> Request:
        """The same with one backend and one split."""
        return replace(self, backend=variant[0], zero_stage=variant[1] or 0, tp=tp, ring=ring)


@dataclass(frozen=True)
class Plan:
    """One legal configuration. `reserved` is what the GPU must have, in bytes; `seconds` is per token."""

    layout: Layout
    memory: Estimate
    reserved: float
    fits: bool
    flops: TokenFlops
    traffic: TokenTraffic
    seconds: float
    warnings: tuple[tuple[str, str], ...] = ()

    @property
    def backend(self) -> str:
        """The backend with its ZeRO stage, as rows name it."""
        return variant_name(self.layout.backend, self.layout.zero_stage)


@dataclass(frozen=True)
class Refusal:
    """One configuration that the table rules out, with the first constraint in its way."""

    backend: str
    zero_stage: int | None
    tp: int
    ring: int
    constraint: str
    message: str
    help: str


FLAGS = {
    **{quantity: flag for quantity, flag in sizes.FLAGS.items() if quantity not in ("device", "optimizer")},
    "world_size": "--gpus", "offload_optimizer": "--offload-optimizer", "offload_param": "--offload-param",
    "gpus_per_node": "--gpus-per-node", "ring_impl": "--ring-impl",
}  # fmt: skip
"""The flag of `bench plan` that sets a quantity."""


def variant_name(backend: str, zero_stage: int | None) -> str:
    """`deepspeed` at stage 3 is `zero-3`; other backends have no stage."""
    return f"zero-{zero_stage}" if backends.find(backend).stages else backend


def splits(gpus: int) -> Iterator[tuple[int, int]]:
    """The (tp, ring) pairs to look at: all whose product fits, or only those that divide a large world."""
    dense = gpus <= DENSE_SEARCH
    candidates = [n for n in range(1, gpus + 1) if dense or gpus % n == 0]
    for tp in candidates:
        for ring in candidates:
            if tp * ring <= gpus and (dense or gpus % (tp * ring) == 0):
                yield tp, ring


def plan(request: Request) -> tuple[list[Plan], list[Refusal]]:
    """Legal configurations, best first, and refused ones. Raises ModelError for an uncountable model.

    Best: fits, then the shortest estimated time per token, then the least memory.
    """
    legal: list[Plan] = []
    refused: list[Refusal] = []
    helps: dict[tuple[str, int, int], str] = {}  # by constraint, tp and ring
    for variant in request.variants:
        for tp, ring in splits(request.num_gpus):
            one = request.split(variant, tp, ring)
            report = check(_quantities(one), propose=False)
            if report.errors:
                refused.append(_refusal(one, report.errors[0], helps))
            else:
                legal.append(_predict(one, tuple((v.constraint.id, v.message) for v in report.warnings)))
    return sorted(legal, key=_rank), refused


def refusal(one: Request) -> Refusal | None:
    """What rules out this one configuration; None where it is legal."""
    errors = check(_quantities(one), propose=False).errors
    return _refusal(one, errors[0], {}) if errors else None


def _quantities(one: Request) -> Quantities:
    """What a program of somebody's own would be: it need not pad, and its graphs break where hooks are."""
    versions = {package: said for each in backends.every().values() for package, said in each.planned_for.items()}
    known = sizes.quantities(one, "cuda", one.facts.quantities(), versions)
    return known.replace(
        gpus_per_node=one.gpus_per_node, procs_per_node=min(one.num_gpus, one.gpus_per_node),
        num_nodes=-(-one.num_gpus // one.gpus_per_node), seq_len=one.seq_len, compile=one.compile,
        train_batch_size=one.train_batch_size, pads_sequence=False, dynamic_batch=None, ring_import_shim=True,
        ring_hf_adapter=False, ring_impl=one.ring_impl, offload_param=one.offload_param,
    )  # fmt: skip


def _refusal(one: Request, first: Violation, helps: dict[tuple[str, int, int], str]) -> Refusal:
    # What mends a size is mostly the same for every backend, and finding it is the slow part: in a large world,
    # with its thousands of refusals, only the first of each constraint is explained.
    key = (first.constraint.id, one.tp, one.ring)
    explained = one.num_gpus > DENSE_SEARCH and any(known == first.constraint.id for known, _, _ in helps)
    if key not in helps and not explained:
        helps[key] = sizes.advice(explain(first, _quantities(one)), FLAGS)
    stage = one.zero_stage if backends.find(one.backend).stages else None
    return Refusal(one.backend, stage, one.tp, one.ring, first.constraint.id, first.message, helps.get(key, ""))


def layout(one: Request) -> Layout:
    """The model of a request laid out in one way; without checkpointing where that is left open."""
    return replace(sizes.layout(one), master=one.master, offload_param=one.offload_param)


def _predict(one: Request, notes: tuple[tuple[str, str], ...]) -> Plan:
    split = layout(one)
    memory = estimate(one.facts, split, one.constants)
    if one.checkpoint_if_needed and memory.reserved(one.constants) > one.gpu_memory:
        split = replace(split, checkpointing=True)
        memory = estimate(one.facts, split, one.constants)
    reserved = memory.reserved(one.constants)
    flops = per_token(one.facts, one.seq_len, checkpointing=split.checkpointing)
    sent = traffic(one.facts, split)
    seconds = seconds_per_token(flops, sent, split, one.gpus_per_node)
    return Plan(split, memory, reserved, reserved <= one.gpu_memory, flops, sent, seconds, notes)


def _rank(one: Plan) -> tuple[bool, float, float, str]:
    # What does not fit comes last, the nearest to fitting first.
    return (not one.fits, one.seconds if one.fits else one.reserved, one.reserved, one.backend)
