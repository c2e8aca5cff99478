"""Every way to split a model over GPUs: which are legal, what they take, which comes first."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from dataclasses import dataclass

from bench import backends
from bench.configuration import Configuration
from bench.predict import sizes
from bench.predict.flops import TokenFlops, TokenTraffic, per_token, seconds_per_token, traffic
from bench.predict.layout import Layout
from bench.predict.memory import estimate
from bench.predict.moments import CONSTANTS, Constants, Estimate
from rules.constraints import Quantities, Violation, check, explain
from rules.models import ModelFacts

DEEPSPEED = "0.19.8"
"""The version planned for: the newest that the table was read against."""

DENSE_SEARCH = 16
"""Up to this many GPUs every size is looked at; beyond, only those that divide the world."""


@dataclass(frozen=True)
class Request:
    """What to plan for. `gpu_memory` in bytes; `checkpointing` of None switches it on where it is needed."""

    facts: ModelFacts
    gpus: int
    gpus_per_node: int
    gpu_memory: float
    variants: tuple[tuple[str, int | None], ...]
    seq_len: int = 4096
    micro_batch_size: int = 1
    train_batch_size: int | None = None
    dtype: str = "bf16"
    master: str = "fp32"
    attn: str = "flash_attention_2"
    packing: bool = True
    compile: str = "none"
    head: str = "chunked"
    ring_impl: str = "zigzag"
    checkpointing: bool | None = None
    sequence_parallel: bool = False
    reshard: bool = True
    offload_optimizer: bool = False
    offload_param: bool = False
    constants: Constants = CONSTANTS


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
    for backend, stage in request.variants:
        for tp, ring in splits(request.gpus):
            report = check(_quantities(request, backend, stage, tp, ring), propose=False)
            if report.errors:
                refused.append(_refusal(request, backend, stage, tp, ring, report.errors[0], helps))
            else:
                notes = tuple((v.constraint.id, v.message) for v in report.warnings)
                legal.append(_predict(request, layout(request, backend, stage, tp, ring), notes))
    return sorted(legal, key=_rank), refused


def refusal(request: Request, backend: str, stage: int | None, tp: int, ring: int) -> Refusal | None:
    """What rules out this one configuration; None where it is legal."""
    errors = check(_quantities(request, backend, stage, tp, ring), propose=False).errors
    return _refusal(request, backend, stage, tp, ring, errors[0], {}) if errors else None


def _configuration(request: Request, backend: str, stage: int | None, tp: int, ring: int) -> Configuration:
    return Configuration(
        backend=backend, zero_stage=stage or 0, num_gpus=request.gpus, tp=tp, ring=ring, attn=request.attn,
        compile=request.compile, packing=request.packing, dtype=request.dtype, head=request.head,
        gradient_checkpointing=bool(request.checkpointing), reshard_after_forward=request.reshard,
        sequence_parallel=request.sequence_parallel, cpu_offload=request.offload_optimizer,
        micro_batch_size=request.micro_batch_size, train_batch_size=request.train_batch_size, seq_len=request.seq_len,
    )  # fmt: skip


def _quantities(request: Request, backend: str, stage: int | None, tp: int, ring: int) -> Quantities:
    """What a program of somebody's own would be: it need not pad, and its graphs break where hooks are."""
    known = sizes.quantities(
        _configuration(request, backend, stage, tp, ring), "cuda", request.facts.quantities(), {"deepspeed": DEEPSPEED}
    )
    return known.replace(
        gpus_per_node=request.gpus_per_node, procs_per_node=min(request.gpus, request.gpus_per_node),
        num_nodes=-(-request.gpus // request.gpus_per_node), seq_len=request.seq_len, compile=request.compile,
        train_batch_size=request.train_batch_size, pads_sequence=False, dynamic_batch=None, ring_import_shim=True,
        ring_hf_adapter=False, ring_impl=request.ring_impl, offload_param=request.offload_param,
    )  # fmt: skip


def _refusal(
    request: Request, backend: str, stage: int | None, tp: int, ring: int,
    first: Violation, helps: dict[tuple[str, int, int], str],
) -> Refusal:  # fmt: skip
    # What mends a size is mostly the same for every backend, and finding it is the slow part: in a large world,
    # with its thousands of refusals, only the first of each constraint is explained.
    key = (first.constraint.id, tp, ring)
    explained = request.gpus > DENSE_SEARCH and any(known == first.constraint.id for known, _, _ in helps)
    if key not in helps and explained:
        return Refusal(backend, stage, tp, ring, first.constraint.id, first.message, "")
    if key not in helps:
        helps[key] = explain(first, _quantities(request, backend, stage, tp, ring)).help()
    return Refusal(backend, stage, tp, ring, first.constraint.id, first.message, helps[key])


def layout(request: Request, backend: str, stage: int | None, tp: int, ring: int) -> Layout:
    """The model of a request laid out in one way; without checkpointing where that is left open."""
    return dataclasses.replace(
        sizes.layout(_configuration(request, backend, stage, tp, ring)),
        master=request.master, offload_param=request.offload_param,
    )  # fmt: skip


def _predict(request: Request, split: Layout, notes: tuple[tuple[str, str], ...]) -> Plan:
    memory = estimate(request.facts, split, request.constants)
    if request.checkpointing is None and memory.reserved(request.constants) > request.gpu_memory:
        split = dataclasses.replace(split, checkpointing=True)
        memory = estimate(request.facts, split, request.constants)
    reserved = memory.reserved(request.constants)
    flops = per_token(request.facts, request.seq_len, checkpointing=split.checkpointing)
    sent = traffic(request.facts, split)
    seconds = seconds_per_token(flops, sent, split, request.gpus_per_node)
    return Plan(split, memory, reserved, reserved <= request.gpu_memory, flops, sent, seconds, notes)


def _rank(one: Plan) -> tuple[bool, float, float, str]:
    # What does not fit comes last, the nearest to fitting first.
    return (not one.fits, one.seconds if one.fits else one.reserved, one.reserved, one.backend)
