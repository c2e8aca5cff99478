"""`python -m bench plan`: legal splits of a model over GPUs, with predicted memory and work, best first."""

from __future__ import annotations

import argparse
import json
import math
import re
from collections.abc import Callable, Sequence
from typing import Any

from bench import backends
from bench.configuration import presets
from bench.grouping import grouped
from bench.predict.memory import GIB
from bench.predict.planning import Plan, Refusal, Request, plan, variant_name
from bench.problems import Problem, in_one_line
from bench.rlhf import roles
from bench.sweep.flags import add_old_names, add_one
from bench.terminal.fitting import fitted, terminal
from bench.terminal.parsing import WIDE, Parser, whole
from bench.terminal.text import MARKDOWN, grid
from rules.models import ModelFacts, find, from_config, resolve

_MOST_GPUS = 1_000_000  # beyond any cluster; listing the divisors of a mistyped number would take forever
_UNITS = {"": 1e9, "GB": 1e9, "GIB": float(GIB), "G": 1e9, "MB": 1e6, "MIB": 2.0**20, "TB": 1e12}


def memory_size(text: str) -> float:
    """Bytes in `80GB`, `141 GiB` or a plain number of GB. Raises argparse.ArgumentTypeError."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([a-z]*)", text.strip(), re.IGNORECASE)
    if not match or match[2].upper() not in _UNITS or float(match[1]) <= 0:
        raise argparse.ArgumentTypeError(f"{text!r} is no memory size: write 80GB or 141GiB")
    return float(match[1]) * _UNITS[match[2].upper()]


class _Parser(Parser):
    """The flags of `bench plan`: a model and a number of GPUs, or a recipe that says both."""

    def parse_args(self, args: Sequence[str] | None = None, namespace: Any = None) -> Any:  # type: ignore[override]
        options = super().parse_args(args, namespace)
        of_roles = [said["model"] for _, said in options.role or () if "model" in said]
        if options.recipe is None:
            if len(options.model or ()) > 1:
                self.error(f"--model is given {len(options.model)} times: one model is planned, or a whole --recipe")
            options.model = next(iter(options.model or of_roles), None)
        lacking = [flag for flag, value in (("--model", options.model), ("--gpus", options.num_gpus)) if value is None]
        if lacking and options.recipe is None:
            self.error(f"the following arguments are required: {', '.join(lacking)}; or give --recipe")
        return options


def parser() -> argparse.ArgumentParser:
    """The flags of `bench plan`."""
    p = _Parser(prog="bench plan", description=__doc__)
    p.add_argument("--model", action="append", metavar="NAME", help="a known name, a config.json, a checkpoint "
                   "directory; of a recipe ROLE=NAME,…, also once for each role")  # fmt: skip
    p.add_argument("--recipe", metavar="SCRIPT", help="a whole RLHF job: a launch script of OpenRLHF, verl or TRL, "
                   "or its command as one text")  # fmt: skip
    p.add_argument("--role", type=roles.role, action="append", metavar="ROLE[:KEY=VALUE,…]", help=roles.HELP)
    p.add_argument("--gpus", "--num-gpus", "--num_gpus", dest="num_gpus", type=whole, help="GPUs altogether")
    p.add_argument("--gpus-per-node", type=whole, default=8)
    p.add_argument("--gpu-memory", type=memory_size, default=80e9, metavar="SIZE", help="default 80GB")
    p.add_argument("--seq-len", type=whole, help="tokens per sample; default 4096, or the model's maximum")
    add_one(p, "micro_batch_size", default=1)
    add_one(p, "train_batch_size", help="samples per step; default: no accumulation")
    p.add_argument("--backend", default="deepspeed,fsdp2", help=f"comma-separated, of {', '.join(backends.names())}")
    p.add_argument("--zero-stage", "--zero_stage", default="0,1,2,3", help="comma-separated ZeRO stages of deepspeed")
    add_one(p, "num_layers")
    add_one(p, "tp", "ring", help="only this size")
    add_one(p, "dtype", default="bf16")
    p.add_argument("--master", choices=("fp32", "bf16"), default="fp32", help="type of the optimizer's copy")
    add_one(p, "attn", choices=("flash_attention_2", "sdpa", "eager"), default="flash_attention_2")
    p.add_argument("--ring-impl", choices=("zigzag", "llama3", "ring", "sdpa"), default="zigzag")
    add_one(p, "head", default="chunked")
    add_one(p, "compile", default="none")
    add_one(p, "packing", default=True)
    add_old_names(p)
    p.add_argument("--gradient-checkpointing", choices=("auto", "on", "off"), default="auto",
                   help="auto: where it would not fit without")  # fmt: skip
    add_one(p, "sequence_parallel", default=False)
    p.add_argument("--no-reshard", dest="reshard_after_forward", action="store_false",
                   help="FSDP2 keeps parameters gathered")  # fmt: skip
    p.add_argument("--offload-optimizer", dest="cpu_offload", action="store_true")
    p.add_argument("--offload-param", action="store_true")
    p.add_argument("--format", choices=tuple(FORMATS), default="text")
    p.add_argument("--top", type=whole, help="show only the best rows")
    p.add_argument("--wide", action="store_true", help=WIDE)
    return p


@in_one_line
def main(arguments: Sequence[str]) -> int:
    """Print the plan. Exit status 0; 2 for a model or flag that cannot be used, with one line on stderr."""
    options = parser().parse_args(arguments)
    if options.recipe is not None or options.role:
        return _whole_job(options)
    request = _request(options)
    legal, refused = plan(request)
    legal, refused = _only(legal, refused, options)
    width = None if options.wide or options.format != "text" else terminal()
    more = {} if width is None else {"width": width}
    print(FORMATS[options.format](request, legal[: options.top], refused, **more))
    return 0


def _request(options: argparse.Namespace) -> Request:
    gpus, node = options.num_gpus, options.gpus_per_node
    if gpus > _MOST_GPUS:
        raise Problem(f"--gpus {gpus}: at most {_MOST_GPUS} are planned for")
    if gpus > node and gpus % node:
        raise Problem(
            f"--gpus {gpus} does not fill nodes of --gpus-per-node {node}: take {gpus - gpus % node} GPUs, or say how "
            "many a node has"
        )
    facts = _facts(options.model)
    if options.num_layers:
        facts = facts.with_layers(options.num_layers)
    named = _listed(options.backend, "--backend", backends.names())
    stages = [int(stage) for stage in _listed(options.zero_stage, "--zero-stage", ("0", "1", "2", "3"))]
    variants = [(name, stage) for name in named for stage in (stages if backends.find(name).stages else [None])]
    split = ("backend", "zero_stage", "tp", "ring")  # what plans are about
    said = {n: v for n, v in vars(options).items() if n in Request.__dataclass_fields__ and n not in split}
    return Request(**said | {
        "facts": facts, "variants": tuple(variants),
        "seq_len": options.seq_len or min(4096, facts.max_position_embeddings or 4096),
        "gradient_checkpointing": options.gradient_checkpointing == "on",
        "checkpoint_if_needed": options.gradient_checkpointing == "auto",
    })  # fmt: skip


def _facts(name: str) -> ModelFacts:
    """The sizes of a model: of a published one, or of a shape of our own that is none (`llama-tiny`)."""
    ours = presets().get(name) if find(name) is None else None
    return resolve(name) if ours is None else from_config(ours, name, str(ours.get("source", "")))


def _listed(text: str, flag: str, allowed: tuple[str, ...]) -> list[str]:
    chosen = list(dict.fromkeys(part.strip() for part in text.split(",") if part.strip()))
    wrong = [part for part in chosen if part not in allowed]
    if wrong or not chosen:
        raise Problem(f"{flag} {text!r}: choose from {', '.join(allowed)}")
    return chosen


def _only(legal: list[Plan], refused: list[Refusal], options: argparse.Namespace) -> tuple[list[Plan], list[Refusal]]:
    def wanted(tp: int, ring: int) -> bool:
        return (options.tp or tp) == tp and (options.ring or ring) == ring

    return (
        [one for one in legal if wanted(one.layout.tp, one.layout.ring)],
        [one for one in refused if wanted(one.tp, one.ring)],
    )


HEADINGS = (
    "backend", "dp", "tp", "ring", "ckpt", "fits", "GPU GB", "params", "grads", "optim", "activ", "logits",
    "working", "GFLOP/token", "MB/token", "speed",
)  # fmt: skip
ORDER = ("backend", "tp", "ring", "fits", "GPU GB", "speed", "dp", "ckpt", "activ", "MB/token", "params", "optim")
"""The most important first."""


def _cells(one: Plan, best: float) -> tuple[str, ...]:
    """One row; `best` is the shortest time per token among the rows."""
    m = one.memory
    parts = (m.parameters, m.gradients, m.optimizer, m.activations, m.logits, m.working)
    return (
        one.backend, str(one.layout.dp), str(one.layout.tp), str(one.layout.ring),
        "on" if one.layout.checkpointing else "off", "yes" if one.fits else "NO",
        f"{one.reserved / 1e9:.1f}", *(f"{part / 1e9:.1f}" for part in parts),
        f"{one.flops.hardware / 1e9:.2f}", f"{one.traffic.total / 1e6:.2f}",
        f"{100 * best / one.seconds:.0f}%",
    )  # fmt: skip


def _rows(legal: list[Plan]) -> list[tuple[str, ...]]:
    best = min((one.seconds for one in legal), default=0.0)
    return [_cells(one, best) for one in legal]


def _count(number: int) -> str:
    return f"{number / 1e9:.2f}B" if number >= 1e9 else f"{number / 1e6:.2f}M"


def _title(request: Request) -> str:
    facts = request.facts
    step = f", train batch {request.train_batch_size}" if request.train_batch_size else ""
    return (
        f"{facts.name}: {_count(facts.parameters)} parameters, {facts.layers} layers; {request.num_gpus} GPUs "
        f"of {request.gpu_memory / 1e9:.0f} GB; {request.micro_batch_size} × {request.seq_len} tokens per "
        f"micro-batch{step}"
    )


def _grouped(refused: list[Refusal]) -> list[tuple[str, list[str], Refusal]]:
    """Refusals by constraint: which configurations it rules out, and one of them as the example."""
    groups = grouped(refused, lambda one: one.constraint)
    return [(identifier, _names(group), group[0]) for identifier, group in groups.items()]


def _names(group: list[Refusal]) -> list[str]:
    every = {variant_name(one.backend, one.zero_stage) for one in group}
    found = []
    for (tp, ring), ones in grouped(group, lambda one: (one.tp, one.ring)).items():
        names = [variant_name(one.backend, one.zero_stage) for one in ones]
        found.append(f"tp {tp} ring {ring}" + ("" if set(names) == every else f" ({', '.join(names)})"))
    return found


_NOTES = (
    "GB are 10⁹ bytes per GPU, in the moment of a step that takes most: its end of the forward pass, its backward pass",
    "or the optimizer. GPU GB is the sum of the parts with fragmentation and the CUDA context.",
    "speed is an estimate of tokens per second against the best row; MB are sent per token and GPU.",
)


def _whole_job(options: argparse.Namespace) -> int:
    """The memory of a whole RLHF job. Exit status 0 it fits, 1 it does not, 2 it cannot be read."""
    from bench.rlhf import show
    from bench.rlhf.job import problems

    if options.recipe is not None and options.role:
        raise Problem("--recipe and --role each say a whole job: give one of them")
    if options.role:
        job = roles.job(options.role, _request(options), _facts)
    else:
        job = show.job_of(options.recipe, options.num_gpus, options.model or ())
    if options.format == "json":
        print(json.dumps(show.as_data(job, options.gpu_memory), indent=2))
    else:
        print(show.as_text(job, options.gpu_memory))
    return 1 if problems(job, options.gpu_memory) else 0


def _nothing_fits(request: Request, legal: list[Plan]) -> list[str]:
    """What to change where every row needs more memory than there is."""
    if not legal or any(one.fits for one in legal):
        return []
    least = min(legal, key=lambda one: one.reserved)
    ways = ["more --gpus", f"--gpu-memory from {math.ceil(least.reserved / 1e9)}GB on"]
    ways += ["--offload-optimizer"] * (not request.cpu_offload)
    split = f"{least.backend} tp {least.layout.tp} ring {least.layout.ring}"
    return ["", f"nothing fits: the least is {least.reserved / 1e9:.1f} GB, {split}; try {' or '.join(ways)}"]


def as_text(request: Request, legal: list[Plan], refused: list[Refusal], width: int | None = None) -> str:
    """A table, of at most `width` columns of text, then the refused configurations by constraint."""
    rows = _rows(legal)
    table = grid(rows, HEADINGS) if width is None else fitted(rows, HEADINGS, ORDER, width)
    lines = [_title(request), *_NOTES, "", table]
    lines += ["no legal configuration"] * (not legal) + _nothing_fits(request, legal)
    warnings = dict(warning for one in legal for warning in one.warnings)
    if warnings:
        lines += ["", *(f"warning [{identifier}] {text}" for identifier, text in warnings.items())]
    if refused:
        lines += ["", f"ruled out ({len(refused)}):"]
    for identifier, names, example in _grouped(refused):
        lines.append(f"  [{identifier}] {'; '.join(names)}")
        lines.append(f"      e.g. {example.message}" + (f"; {example.help}" if example.help else ""))
    return "\n".join(lines)


def as_markdown(request: Request, legal: list[Plan], refused: list[Refusal]) -> str:
    """Two tables: legal configurations, and refused ones by constraint."""
    parts = [f"## {_title(request)}", grid(_rows(legal), HEADINGS, MARKDOWN)]
    if refused:
        ruled_out = [
            [identifier, "; ".join(names), example.message] for identifier, names, example in _grouped(refused)
        ]
        parts.append(grid(ruled_out, ["constraint", "ruled out", "example"], MARKDOWN))
    return "\n\n".join(parts)


REQUESTED = (
    "gpus_per_node", "gpu_memory", "seq_len", "micro_batch_size", "train_batch_size", "dtype", "master", "attn",
    "packing", "compile", "head",
)  # fmt: skip


OF_MODEL = ("name", "layers", "parameters", "active_parameters", "source")


def as_json(request: Request, legal: list[Plan], refused: list[Refusal]) -> str:
    """`{"version": 1, "model", "request", "plans": […], "refused": […]}`; sizes in bytes, work per token."""
    document = {
        "version": 1,
        "model": {name: getattr(request.facts, name) for name in OF_MODEL},
        "request": {"gpus": request.num_gpus, **{name: getattr(request, name) for name in REQUESTED}},
        "plans": [_plan(one) for one in legal],
        "refused": [one.__dict__ for one in refused],
    }  # fmt: skip
    return json.dumps(document, indent=2, ensure_ascii=False)


def _plan(one: Plan) -> dict[str, Any]:
    layout = one.layout
    return {
        "backend": layout.backend,
        "zero_stage": layout.zero_stage if backends.find(layout.backend).stages else None,
        "dp": layout.dp, "tp": layout.tp, "ring": layout.ring, "grad_accum": layout.grad_accum,
        "gradient_checkpointing": layout.checkpointing, "fits": one.fits,
        "memory": {**one.memory.__dict__, "allocated": one.memory.allocated, "reserved": one.reserved},
        "flops_per_token": {"model": one.flops.model, "hardware": one.flops.hardware, **one.flops.__dict__},
        "seconds_per_token": one.seconds,
        "bytes_per_token": {**one.traffic.__dict__, "total": one.traffic.total},
        "warnings": [{"constraint": identifier, "message": text} for identifier, text in one.warnings],
    }  # fmt: skip


FORMATS: dict[str, Callable[..., str]] = {"text": as_text, "json": as_json, "markdown": as_markdown}
