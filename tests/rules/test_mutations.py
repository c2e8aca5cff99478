"""Two sibling strategies without a base class: silent as they are, and every mutation caught on its line."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import NamedTuple

import pytest

from validator.finding import Finding
from validator.registry import load_rules
from validator.run.checker import Check, check_sources
from validator.run.config import Config
from validator.source import SourceFile

PAIR = Path(__file__).parents[1] / "data" / "trainkit"
FSDP = "trainkit/strategies/fsdp.py"
DEEPSPEED = "trainkit/strategies/deepspeed.py"
FACTORY = "trainkit/strategies/factory.py"
TRAINER = "trainkit/trainer.py"
OPTIONS = "trainkit/options.py"


class Edit(NamedTuple):
    """`old`, which stands once in the file, becomes `new`."""

    file: str
    old: str
    new: str


class Mutation(NamedTuple):
    """After the edits, `code` must be reported on the first line of `place` that holds `text`."""

    name: str
    code: str
    place: str
    text: str
    edits: tuple[Edit, ...]


def mutation(name: str, code: str, place: str, text: str, *edits: tuple[str, str], file: str = "") -> Mutation:
    """A mutation of `file`, which is where it is reported if nothing else is said."""
    return Mutation(name, code, place, text, tuple(Edit(file or place, old, new) for old, new in edits))


NORM = """\
    def get_grad_norm(self, model):
        return self.grad_norms.get(id(model), 0.0)

"""
COUNT = """\
        self.micro_steps[name] = self.micro_steps.get(name, 0) + 1
        if self.micro_steps[name] % self.accumulation_steps != 0:
            return
"""
LEGAL = """\
        if op not in ("mean", "max", "sum"):
            raise ValueError(f"op must be mean, max or sum, not {op!r}")
"""
RING = """\
    @property
    def is_ring(self):
        return self.ring_group is not None

"""
NO_MAXIMUM = (
    'dist.all_reduce(data, op=dist.ReduceOp.MAX if op == "max" else dist.ReduceOp.SUM)',
    "dist.all_reduce(data, op=dist.ReduceOp.SUM)",
)
NO_MOMENTS = (
    """\
        weights, moments = get_state_dict(model, optimizer)
        state = {"model": weights, "optimizer": moments, "scheduler": scheduler.state_dict(), """,
    """\
        weights = get_model_state_dict(model)
        state = {"model": weights, "scheduler": scheduler.state_dict(), """,
)
ONE_COUNT = """\
        self.count += 1
        if self.count % self.accumulation_steps != 0:
            return
"""


MEMBERS = [
    mutation("method-dropped", "MP101", FSDP, "class FsdpStrategy", (NORM, "")),
    mutation("method-renamed", "MP101", FSDP, "class FsdpStrategy", ("def save_model(", "def save_weights(")),
    mutation("sibling-method-misspelt", "MP101", DEEPSPEED, "class DeepspeedStrategy", ("def log(", "def logs(")),
    mutation("property-dropped", "MP101", FSDP, "class FsdpStrategy", (RING, "")),
    mutation(
        "caller-misspells-method",
        "MP120",
        TRAINER,
        "strategy.grad_norm(",
        ("strategy.get_grad_norm(", "strategy.grad_norm("),
    ),
    mutation("self-call-misspelt", "MP120", FSDP, "self.setup_ring(", ("self.setup_ring_attn(", "self.setup_ring(")),
    mutation(
        "attribute-misspelt",
        "MP120",
        FSDP,
        "self.acc_steps",
        ("loss / self.accumulation_steps", "loss / self.acc_steps"),
    ),
]
CALLS = [
    mutation(
        "parameter-dropped",
        "MP103",
        TRAINER,
        "strategy.save_ckpt(",
        ("folder, tag=None, client_state=None, save_latest", "folder, tag=None, save_latest"),
        ('"client": client_state or {}', '"client": {}'),
        ("save_latest=True):", "*, save_latest=True):"),
        file=FSDP,
    ),
    mutation(
        "parameter-added",
        "MP103",
        TRAINER,
        "strategy.save_model(",
        ("def save_model(self, model, folder, ", "def save_model(self, model, folder, shards, "),
        file=FSDP,
    ),
    mutation(
        "default-removed",
        "MP103",
        TRAINER,
        "all_reduce(actor_loss)",
        ('def all_reduce(self, data, op="mean")', "def all_reduce(self, data, op)"),
        file=FSDP,
    ),
    mutation(
        "kwargs-dropped",
        "MP103",
        TRAINER,
        "strategy.backward(critic_loss",
        ("def backward(self, loss, model, optimizer, **kwargs)", "def backward(self, loss, model, optimizer)"),
        file=FSDP,
    ),
    mutation(
        "keyword-renamed",
        "MP103",
        TRAINER,
        'op="max"',
        ('def all_reduce(self, data, op="mean"):\n', 'def all_reduce(self, data, how="mean"):\n        op = how\n'),
        file=FSDP,
    ),
    mutation(
        "made-keyword-only",
        "MP103",
        TRAINER,
        "strategy.setup_dataloader(",
        ("def setup_dataloader(self, dataset, batch_size", "def setup_dataloader(self, dataset, *, batch_size"),
        file=FSDP,
    ),
    mutation(
        "caller-passes-too-much",
        "MP103",
        TRAINER,
        "strategy.prepare(",
        ("schedule(optimizer))", "schedule(optimizer), True)"),
    ),
    mutation("constructor-misspelt", "MP121", FACTORY, "sed=args.seed", ("seed=args.seed", "sed=args.seed")),
    mutation(
        "self-call-misfits",
        "MP121",
        FSDP,
        "self.setup_ring_attn()",
        ("setup_ring_attn(self.mesh)", "setup_ring_attn()"),
    ),
    mutation("caller-misspells-keyword", "MP103", TRAINER, " decay=0.1", ("weight_decay=0.1", "decay=0.1")),
]
SHAPES = [
    mutation(
        "parameter-renamed",
        "MP102",
        FSDP,
        "def get_grad_norm(",
        (NORM, NORM.replace("model", "module")),
    ),
    mutation(
        "parameters-reordered",
        "MP102",
        FSDP,
        "def load_ckpt(",
        ("def load_ckpt(self, model, optimizer, scheduler,", "def load_ckpt(self, model, scheduler, optimizer,"),
    ),
    mutation(
        "default-changed",
        "MP104",
        FSDP,
        'op="sum"',
        ('all_reduce(self, data, op="mean"', 'all_reduce(self, data, op="sum"'),
    ),
    mutation("flag-turned", "MP104", FSDP, "drop_last=False", ("drop_last=True", "drop_last=False")),
    mutation(
        "made-property", "MP105", FSDP, "def is_rank_0", ("    def is_rank_0", "    @property\n    def is_rank_0")
    ),
    mutation("made-method", "MP105", FSDP, "def is_ring", (RING, RING.replace("    @property\n", ""))),
    mutation("made-async", "MP105", FSDP, "async def save_model", ("    def save_model", "    async def save_model")),
    mutation(
        "made-static",
        "MP105",
        FSDP,
        "def get_grad_norm",
        (NORM, "    @staticmethod\n    def get_grad_norm(model):\n        return model.norm\n\n"),
    ),
    mutation("made-generator", "MP105", FSDP, "def log(", ("print(*message)", "yield print(*message)")),
    mutation(
        "result-longer",
        "MP106",
        FSDP,
        "return path, state",
        ('return path, state["client"]', 'return path, state["client"], 0'),
    ),
    mutation("result-dropped", "MP106", FSDP, "def prepare(", ("        return model, optimizer, scheduler\n", "")),
    mutation("value-not-returned", "MP106", FSDP, "def all_reduce(", ("return data.item()", "data.item()")),
]
BODIES = [
    mutation(
        "stub-raises",
        "MP107",
        FSDP,
        "def get_grad_norm",
        (NORM, "    def get_grad_norm(self, model):\n        raise NotImplementedError\n\n"),
    ),
    mutation("stub-passes", "MP107", FSDP, "def backward(", ("(loss / self.accumulation_steps).backward()", "pass")),
    mutation(
        "stub-constant",
        "MP107",
        FSDP,
        "def get_grad_norm",
        ("return self.grad_norms.get(id(model), 0.0)", "return 0.0"),
    ),
    mutation(
        "option-ignored", "MP108", FSDP, "def save_ckpt", ("if save_latest and self.is_rank_0()", "if self.is_rank_0()")
    ),
    mutation("optimizer-not-stepped", "MP109", FSDP, "def optimizer_step", ("        optimizer.step()\n", "")),
    mutation(
        "ring-not-set-up", "MP109", FSDP, "def setup_distributed", ("        self.setup_ring_attn(self.mesh)\n", "")
    ),
    mutation("moments-not-stored", "MP109", FSDP, "def save_ckpt", NO_MOMENTS),
    mutation(
        "one-counter", "MP110", FSDP, "self.count += 1", (COUNT, ONE_COUNT), ("self.micro_steps = {}", "self.count = 0")
    ),
    mutation(
        "accumulation-ignored",
        "MP111",
        FSDP,
        "optimizer.step()",
        (COUNT, ""),
        ("(loss / self.accumulation_steps).backward()", "loss.backward()"),
    ),
    mutation("maximum-forgotten", "MP112", FSDP, "def all_reduce", (LEGAL, ""), NO_MAXIMUM),
]
FACTORIES = [
    mutation(
        "choice-without-class",
        "MP113",
        OPTIONS,
        '"--backend"',
        ('"deepspeed", "fsdp"]', '"deepspeed", "fsdp", "megatron"]'),
    ),
    mutation("branch-never-offered", "MP113", FACTORY, "args.backend ==", ('backend == "fsdp"', 'backend == "fsdp2"')),
]
NAMES = [
    mutation(
        "import-misspelt", "MP201", TRAINER, "import get_strategies", ("import get_strategy", "import get_strategies")
    ),
    mutation(
        "module-misspelt", "MP202", FACTORY, "strategies.fsdp2", ("strategies.fsdp import", "strategies.fsdp2 import")
    ),
    mutation("name-undefined", "MP204", FSDP, "= init_device_mesh(", ("import init_device_mesh", "import DeviceMesh")),
    mutation("option-misspelt", "MP301", TRAINER, "if args.resumed", ("if args.resume:", "if args.resumed:")),
]
MUTATIONS = [*MEMBERS, *CALLS, *SHAPES, *BODIES, *FACTORIES, *NAMES]


@cache
def pair() -> dict[str, str]:
    """The files of the pair: path to text."""
    return {path.relative_to(PAIR).as_posix(): path.read_text() for path in sorted(PAIR.rglob("*.py"))}


def findings(files: dict[str, str], folder: Path) -> list[Finding]:
    """What all rules say about files written below a folder; notes left out."""
    sources = []
    for path, text in files.items():
        target = folder / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text)
        sources.append(SourceFile(path, str(target)))
    rules = load_rules()
    result = check_sources(sources, Check(Config(root=str(folder)), rules, rules, 1))
    assert result.errors == []
    return [finding for finding in result.findings if finding.severity != "note"]


def mutated(files: dict[str, str], edits: tuple[Edit, ...]) -> dict[str, str]:
    """The files after the edits, each of which must find its place."""
    files = dict(files)
    for edit in edits:
        assert edit.old in files[edit.file], f"{edit.old!r} is not in {edit.file}"
        files[edit.file] = files[edit.file].replace(edit.old, edit.new, 1)
    return files


def test_the_pair_is_silent_under_all_rules(tmp_path: Path) -> None:
    assert [f"{f.path}:{f.span.line}: {f.code} {f.message}" for f in findings(pair(), tmp_path)] == []


@pytest.mark.parametrize("mutation", MUTATIONS, ids=lambda mutation: mutation.name)
def test_mutation_is_caught_on_its_line(mutation: Mutation, tmp_path: Path) -> None:
    files = mutated(pair(), mutation.edits)
    lines = files[mutation.place].splitlines()
    line = next(number for number, text in enumerate(lines, 1) if mutation.text in text)
    found = findings(files, tmp_path)
    told = "\n".join(f"{f.path}:{f.span.line}: {f.code} {f.message}" for f in found)
    assert (mutation.code, mutation.place, line) in [(f.code, f.path, f.span.line) for f in found], told


def test_there_are_enough_kinds() -> None:
    assert len(MUTATIONS) >= 25
    assert len({mutation.name for mutation in MUTATIONS}) == len(MUTATIONS)
