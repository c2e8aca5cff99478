"""The table against brute force: build the mesh, split the heads, cut the batch; and its proposals."""

from __future__ import annotations

import itertools
import random
import string
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from rules import constraints
from rules.constraints import CHOICES, NAMES, TABLE, Constraint, Quantities, check, constraint, nearest
from rules.constraints.page import PAGE, main, page

ROOT = Path(__file__).resolve().parents[2]

SEEDS = {
    "deepspeed": {"backend": "deepspeed", "zero_stage": 2, "deepspeed_version": "0.18.2"},
    "fsdp2": {"backend": "fsdp2"},
    "fsdp2-tp": {"backend": "fsdp2", "tp": 2},
    "fsdp2-ring": {"backend": "fsdp2", "ring": 2, "packing": True},
    "fsdp2-tp-ring": {"backend": "fsdp2", "tp": 2, "ring": 2, "packing": True},
}
"""The five configurations that OpenRLHF's backend tests train, on eight GPUs with Llama 3 8B."""

LLAMA_3_8B = {
    "heads": 32, "kv_heads": 8, "head_dim": 128, "hidden": 4096, "mlp": 14336, "layers": 32, "vocab": 128256,
    "experts": 0, "max_position_embeddings": 8192, "attn_softcap": False,
}  # fmt: skip


def seed(name: str, **changes: object) -> Quantities:
    known: dict[str, object] = {
        "framework": "openrlhf", "world_size": 8, "num_nodes": 1, "procs_per_node": 8, "gpus_per_node": 8,
        "device": "cuda", "tp": 1, "ring": 1, "train_batch_size": 128, "micro_batch_size": 2, "seq_len": 2048,
        "dtype": "bf16", "attn": "flash_attention_2", "packing": False, "compile": "none",
        "ring_head_stride": 1, "torch_version": "2.9.0", "transformers_version": "4.57.1",
        "ring_flash_attn_version": "0.1.8", "ring_import_shim": False,
    }  # fmt: skip
    return Quantities.of(**{**known, **LLAMA_3_8B, **SEEDS[name], **changes})


def violated(q: Quantities) -> set[str]:
    return {violation.constraint.id for violation in check(q, propose=False).violations}


# --- the mesh, by building it


def mesh(world: int, *sizes: int) -> bool:
    """Whether the ranks can be laid out as whole replicas of the given sizes, by dealing them out."""
    replica = list(itertools.product(*(range(size) for size in sizes)))
    ranks = list(range(world))
    while ranks:
        if len(ranks) < len(replica):
            return False
        del ranks[: len(replica)]
    return world > 0


@given(st.integers(1, 64), *(st.integers(1, 6) for _ in range(4)))
def test_mesh_agrees_with_dealing_out_ranks(world: int, tp: int, ring: int, ulysses: int, pp: int) -> None:
    q = Quantities(world_size=world, tp=tp, ring=ring, ulysses=ulysses, pp=pp)
    broken = violated(q) & {"world-divisible", "dp-at-least-one"}
    assert (not broken) == mesh(world, tp, ring, ulysses, pp)
    assert len(broken) <= 1  # one mistake, one finding


def holders(heads: int, ranks: int, *, repeat: bool) -> bool:
    """Whether every rank can hold the same number of whole heads, each head held equally often."""
    for per_rank in range(1, heads + 1):
        copies, rest = divmod(per_rank * ranks, heads)
        if rest == 0 and copies >= 1 and (copies == 1 or (repeat and per_rank == 1)):
            return True
    return False


@given(st.integers(1, 48), st.integers(2, 16), st.sampled_from(["fsdp2", "megatron", "torchtitan"]))
def test_key_value_heads_agree_with_dealing_them_out(kv_heads: int, tp: int, backend: str) -> None:
    q = Quantities.of(backend=backend, kv_heads=kv_heads, tp=tp)
    broken = violated(q) & {"tp-kv-heads", "tp-kv-heads-repeated"}
    assert (not broken) == holders(kv_heads, tp, repeat=backend == "megatron")


@given(st.integers(1, 64), st.integers(1, 16))
def test_query_heads_agree_with_dealing_them_out(heads: int, tp: int) -> None:
    broken = "tp-heads" in violated(Quantities.of(backend="fsdp2", heads=heads, tp=tp))
    assert broken == (tp > 1 and not holders(heads, tp, repeat=False))


@given(st.integers(1, 200), st.integers(1, 8), st.integers(1, 32), st.integers(1, 4), st.integers(1, 4))
def test_batches_agree_with_cutting_them(train: int, micro: int, world: int, tp: int, ring: int) -> None:
    assume(world % (tp * ring) == 0)
    samples, steps = list(range(train)), 0
    while len(samples) >= micro * (world // (tp * ring)):
        del samples[: micro * (world // (tp * ring))]
        steps += 1
    q = Quantities(world_size=world, tp=tp, ring=ring, train_batch_size=train, micro_batch_size=micro)
    broken = violated(q.with_unit_sizes())
    assert ("grad-accum-at-least-one" in broken) == (steps == 0)
    assert ("train-batch-divisible" in broken) == (steps > 0 and bool(samples))


@given(st.integers(1, 512), st.integers(2, 8))
def test_zigzag_agrees_with_cutting_the_sequence(length: int, ring: int) -> None:
    # Rank r holds chunks r and 2·ring - 1 - r: all chunks must have one size.
    bounds = [round(length * i / (2 * ring)) for i in range(2 * ring + 1)]
    even = len({b - a for a, b in itertools.pairwise(bounds)}) == 1
    q = Quantities(seq_len=length, ring=ring, ring_impl="zigzag", pads_sequence=False)
    assert ("zigzag-sequence" in violated(q)) == (not even)


@given(st.integers(1, 8), st.integers(1, 8), st.integers(2, 16))
def test_expert_groups_agree_with_dealing_out_ranks(dp_shard: int, tp: int, ep: int) -> None:
    # Whole tensor-parallel groups side by side make one expert group; all ranks of a replica must be in one.
    ranks = [(shard, rank) for shard in range(dp_shard) for rank in range(tp)]
    groups = [ranks[i : i + ep] for i in range(0, len(ranks), ep)]
    whole = all(
        len(group) == ep and {r for _, r in group} == set(range(tp)) and len(group) % tp == 0 for group in groups
    )
    q = Quantities.of(framework="transformers", dp_shard=dp_shard, tp=tp, ep=ep)
    assert (not violated(q) & {"expert-ranks-of-tp", "expert-ranks-of-shards"}) == whole


@given(st.integers(1, 48), st.integers(1, 4), st.integers(1, 4), st.integers(2, 5))
def test_interleaved_stages_agree_with_filling_groups(batch: int, micro: int, dp: int, pp: int) -> None:
    assume(batch % (micro * dp) == 0)
    left = batch // (micro * dp)  # micro-batches of a replica; the schedule takes as many at a time as there are stages
    while left >= pp:
        left -= pp
    q = Quantities.of(backend="megatron", world_size=dp * pp, pp=pp, virtual_pp=2, train_batch_size=batch,
                      micro_batch_size=micro).with_unit_sizes()  # fmt: skip
    assert ("virtual-pipeline-microbatches" in violated(q)) == (left > 0)


@given(st.integers(1, 4096), st.integers(2, 5))
def test_flex_blocks_agree_with_laying_them_out(length: int, ring: int) -> None:
    share, rest = divmod(length, ring)
    whole = rest == 0 and share == sum(128 for _ in range(0, share - 127, 128))
    q = Quantities(seq_len=length, ring=ring, ring_impl="torch", attn="flex", pads_sequence=False)
    assert ("flex-ring-sequence" in violated(q)) == (not whole)


# --- proposals


SIZES = {
    "world_size": st.integers(1, 48), "tp": st.integers(1, 9), "ring": st.integers(1, 5),
    "train_batch_size": st.integers(1, 96), "micro_batch_size": st.integers(1, 6),
}  # fmt: skip


LIMIT = 130
"""Brute force looks at every value below this; the sizes drawn stay well under it."""


@settings(max_examples=25, deadline=None)
@given(
    sizes=st.fixed_dictionaries(SIZES),
    backend=st.sampled_from(["fsdp2", "megatron"]),
    heads=st.sampled_from([(32, 8), (28, 4)]),
)
def test_every_proposal_is_valid_and_nearest(sizes: dict[str, int], backend: str, heads: tuple[int, int]) -> None:
    q = Quantities.of(backend=backend, heads=heads[0], kv_heads=heads[1], **sizes).with_unit_sizes()
    before = violated(q)
    for rule in map(constraint, before):
        for quantity in rule.adjust:
            present = getattr(q, quantity)
            good = [
                value for value in range(1, LIMIT)
                if value != present and rule.id not in (after := violated(q.replace(**{quantity: value})))
                and after <= before
            ]  # fmt: skip
            sides = ([v for v in good if v < present][-1:], [v for v in good if v > present][:1])
            expected = sorted((v for side in sides for v in side), key=lambda v: (abs(v - present), v))
            found = nearest(rule.id, q, quantity)
            assert [value for value in found if isinstance(value, int) and value < LIMIT] == expected


@pytest.mark.parametrize("name", SEEDS)
def test_the_five_seed_configurations_pass(name: str) -> None:
    report = check(seed(name))
    assert report.violations == ()
    assert report.unchecked == ()


CORRUPTIONS = [
    ("fsdp2-tp", {"tp": 3}, "world-divisible", "tp"),
    ("fsdp2-tp", {"tp": 16}, "dp-at-least-one", "tp"),
    ("fsdp2-tp", {"heads": 33, "kv_heads": 11}, "tp-heads", ""),
    ("fsdp2-tp", {"tp": 8, "kv_heads": 4}, "tp-kv-heads", "tp"),
    ("fsdp2-tp", {"tp": 0}, "positive-tp", "tp"),
    ("fsdp2-tp", {"torch_version": "2.4.1"}, "tp-torch-version", "torch_version"),
    ("fsdp2-tp", {"procs_per_node": 4}, "processes-product", "procs_per_node"),
    ("fsdp2-ring", {"ring": 3}, "world-divisible", "ring"),
    ("fsdp2-ring", {"packing": False}, "ring-needs-packing", "packing"),
    ("fsdp2-ring", {"attn": "sdpa"}, "ring-needs-flash-attention", "attn"),
    ("fsdp2-ring", {"ring_head_stride": 3}, "ring-head-stride", "ring_head_stride"),
    ("fsdp2-ring", {"dtype": "fp32"}, "ring-dtype", "dtype"),
    ("fsdp2-ring", {"attn_softcap": True}, "ring-softcap", "ring"),
    ("fsdp2-ring", {"transformers_version": "5.17.0"}, "ring-import", "transformers_version"),
    ("fsdp2-ring", {"transformers_version": "5.23.0"}, "ring-hf-adapter", "transformers_version"),
    ("fsdp2-tp-ring", {"world_size": 6, "procs_per_node": 6}, "world-divisible", "ring"),
    ("fsdp2-tp-ring", {"ring": 8}, "dp-at-least-one", "ring"),
    ("fsdp2-tp-ring", {"train_batch_size": 127}, "train-batch-divisible", "train_batch_size"),
    ("fsdp2", {"train_batch_size": 8}, "grad-accum-at-least-one", "train_batch_size"),
    ("fsdp2", {"micro_batch_size": 3}, "train-batch-divisible", "micro_batch_size"),
    ("fsdp2", {"micro_batch_size": 32}, "grad-accum-at-least-one", "micro_batch_size"),
    ("fsdp2", {"micro_batch_size": 0}, "positive-micro-batch-size", "micro_batch_size"),
    ("fsdp2", {"procs_per_node": 16, "num_nodes": 1}, "processes-fit-node", "procs_per_node"),
    ("fsdp2", {"seq_len": 16384}, "position-range", "seq_len"),
    ("fsdp2", {"compile": "deepcompile"}, "deepcompile-backend", "compile"),
    ("fsdp2", {"torch_version": "2.5.1"}, "fsdp2-torch-version", "torch_version"),
    ("fsdp2", {"attn": "flash_attention_2", "dtype": "fp32"}, "flash-attention-dtype", "dtype"),
    ("fsdp2", {"device": "cpu"}, "flash-attention-device", "attn"),
    ("fsdp2", {"pp": 2}, "backend-pp", "pp"),
    ("deepspeed", {"zero_stage": 4}, "zero-stage-range", "zero_stage"),
    ("deepspeed", {"tp": 2, "dtype": "fp16"}, "deepspeed-tp-dtype", "dtype"),
    ("deepspeed", {"tp": 2, "deepspeed_version": "0.15.0"}, "deepspeed-tp-version", "deepspeed_version"),
    ("deepspeed", {"tp": 2, "zero_stage": 3}, "deepspeed-tp-zero-3", "zero_stage"),
    ("deepspeed", {"tp": 8, "kv_heads": 4}, "tp-heads-autotp", "tp"),
    ("deepspeed", {"tp": 8, "kv_heads": 4, "deepspeed_version": None}, "tp-heads-balance", "tp"),
    ("deepspeed", {"tp": 8, "kv_heads": 4, "deepspeed_version": "0.19.8"}, "tp-heads-balance", "tp"),
    ("deepspeed", {"zero_stage": 0, "compile": "deepcompile"}, "deepcompile-zero", "zero_stage"),
    ("deepspeed", {"zero_stage": 3, "compile": "deepcompile"}, "deepcompile-flash-attention", "attn"),
    ("deepspeed", {"compile": "deepcompile", "deepspeed_version": "0.16"}, "deepcompile-version", "compile"),
    ("deepspeed", {"compile": "deepcompile", "tp": 2}, "deepcompile-autotp", "tp"),
    ("deepspeed", {"zero_stage": 3, "compile": "blocks"}, "compile-zero-3-blocks", "compile"),
    ("deepspeed", {"offload_param": True}, "offload-parameters", "zero_stage"),
    ("deepspeed", {"zero_stage": 0, "offload_optimizer": True}, "offload-optimizer", "zero_stage"),
    ("fsdp2", {"backend": "ddp", "offload_optimizer": True}, "offload-backend", "offload_optimizer"),
    ("deepspeed", {"hpz": 3}, "hpz-divides-world", "hpz"),
    ("deepspeed", {"hpz": 2}, "hpz-needs-zero-3", "zero_stage"),
    ("deepspeed", {"optimizer": "muon"}, "muon-version", "deepspeed_version"),
    ("deepspeed", {"grad_accum": 3}, "grad-accum-product", "grad_accum"),
    ("deepspeed", {"ep": 2}, "experts-needed", "ep"),
    ("deepspeed", {"packing": True, "attn": "sdpa"}, "packing-attention", "attn"),
    ("fsdp2", {"attn": "sdpa", "attn_softcap": True}, "sdpa-softcap", "attn"),
    ("fsdp2", {"flash_attn_version": "2.5.8", "attn_softcap": True}, "flash-attention-softcap", "flash_attn_version"),
    ("fsdp2", {"flash_attn_version": "2.0.9"}, "flash-attention-version", "flash_attn_version"),
    (
        "fsdp2", {"flash_attn_version": "2.3.2", "transformers_version": "5.23.0"}, "flash-attention-version",
        "flash_attn_version",
    ),
    ("fsdp2", {"framework": "verl", "ulysses": 2}, "ulysses-needs-packing", "packing"),
    ("fsdp2", {"framework": "accelerate", "ulysses": 2}, "ulysses-engine", "backend"),
    ("fsdp2", {"ring": 2, "ring_impl": "torch", "framework": "trl"}, "context-parallel-sdpa", "attn"),
    ("fsdp2", {"hidden": 4100, "head_dim": None}, "hidden-heads", "hidden"),
    ("deepspeed", {"engine_sleep": True, "asynchronous": False, "colocate_all": False}, "engine-sleep-colocated",
     "colocate_all"),
    ("deepspeed", {"ep": 2, "experts": 8, "zero_stage": 3, "ulysses": 2}, "zero-3-experts-ulysses", "ulysses"),
    ("deepspeed", {"ep": 2, "experts": 8, "zero_stage": 3}, "zero-3-experts", "zero_stage"),
    ("deepspeed", {"ep": 2, "experts": 8, "zero_stage": 3, "hpz": 2}, "zero-3-experts-hpz", "hpz"),
    ("fsdp2", {"framework": "transformers", "ep": 2, "tp": 4, "experts": 8}, "expert-ranks-of-tp", "ep"),
    (
        "fsdp2", {"framework": "transformers", "ep": 8, "tp": 2, "dp_shard": 2, "dp_replicate": 2, "experts": 8},
        "expert-ranks-of-shards", "ep",
    ),
    (
        "deepspeed", {"packing": True, "compile": "full", "max_length_type": "tensor"},
        "compile-packed-lengths", "max_length_type",
    ),
]  # fmt: skip


@pytest.mark.parametrize(("name", "changes", "identifier", "mend"), CORRUPTIONS)
def test_a_corruption_is_reported_and_mended(name: str, changes: dict[str, object], identifier: str, mend: str) -> None:
    q = seed(name, **changes)
    report = check(q)
    found = {violation.constraint.id: violation for violation in report.violations}
    assert identifier in found
    assert "{" not in found[identifier].message
    if not mend:
        return
    proposed = {proposal.quantity: proposal.values for proposal in found[identifier].proposals}
    assert mend in proposed
    for value in proposed[mend]:
        assert identifier not in violated(q.replace(**{mend: value}))
        assert violated(q.replace(**{mend: value})) <= set(found)


def test_single_mistakes_are_mended_by_the_first_value_proposed() -> None:
    mended = 0
    for name, changes, identifier, mend in CORRUPTIONS:
        q = seed(name, **changes)
        report = check(q)
        if mend and len(report.violations) == 1:
            values = dict(report.violations[0].proposals)[mend]
            assert violated(q.replace(**{mend: values[0]})) == set(), identifier
            mended += 1
    assert mended >= 25


# --- what is unknown stays unknown


def test_unknown_quantities_are_notes_never_guesses() -> None:
    report = check(Quantities.of(backend="fsdp2", world_size=8, tp=2, ring=1).with_unit_sizes())
    assert report.violations == ()
    notes = {u.constraint.id: u.message({"heads": "$MODEL is not set"}) for u in report.unchecked}
    assert notes["tp-heads"] == "cannot be checked: $MODEL is not set"
    assert "tp-kv-heads" in notes


def test_an_undecided_condition_is_neither_violation_nor_note() -> None:
    report = check(Quantities(heads=32, kv_heads=8, tp=3))  # which backend?
    assert "tp-kv-heads" in {u.constraint.id for u in report.undecided}
    assert report.violations == ()


def test_what_nobody_asked_about_is_silent() -> None:
    report = check(Quantities())
    assert report.violations == report.unchecked == ()


def test_misspelt_quantity_is_refused() -> None:
    with pytest.raises(TypeError, match="no such quantity: tpp"):
        Quantities.of(tpp=2)


@settings(max_examples=40, deadline=None)
@given(st.data())
def test_no_combination_of_values_crashes(data: st.DataObject) -> None:
    values: dict[str, object] = {}
    for name in sorted(NAMES):
        if name in CHOICES:
            values[name] = data.draw(st.sampled_from([None, *CHOICES[name]]))
        elif name.endswith("_version"):
            values[name] = data.draw(st.sampled_from([None, "2.13.0+cpu", "0.16", "5.4rc1", ""]))
        elif name in ("backend", "framework", "kv_heads_policy", "optimizer", "advantage"):
            words = [None, "deepspeed", "openrlhf", "shard", "grpo", "verl"]
            values[name] = data.draw(st.sampled_from(words))
        elif name.startswith("colocate") or name in ("attn_softcap",):
            values[name] = data.draw(st.sampled_from([None, True, False]))
        else:
            values[name] = data.draw(st.sampled_from([None, 0, 1, 2, 3, 8, 31]))
    for violation in check(Quantities.of(**values), propose=False).violations:
        assert "{" not in violation.message


# --- the table itself


def test_ids_are_unique_and_lower_case() -> None:
    identifiers = [c.id for c in TABLE]
    assert len(set(identifiers)) == len(identifiers)
    assert all(set(i) <= set(string.ascii_lowercase + string.digits + "-") for i in identifiers)


@pytest.mark.parametrize("rule", TABLE, ids=lambda rule: rule.id)
def test_an_entry_is_whole(rule: Constraint) -> None:
    named = {*rule.needs, *rule.given, *(condition.quantity for condition in rule.when)}
    assert named <= NAMES
    assert rule.sources
    assert rule.adjust
    assert set(rule.adjust) <= named
    fields = {field for _, field, _, _ in string.Formatter().parse(rule.message) if field}
    assert fields <= named | {"data_parallel", "model_parallel", "replica"}  # so that no message prints None
    assert constraint(rule.id) is rule


EXTREMES = {
    "version<": lambda value: ("0.0.1",),
    "version>=": lambda value: (value,),
    "in": lambda value: value,
    "not in": lambda value: ("something else",),
    "==": lambda value: (value,),
    "!=": lambda value: ("fsdp2", "something else"),
    ">": lambda value: (value + 1, value + 2),
    ">=": lambda value: (value,),
    "<": lambda value: (value - 1,),
}


def candidates(rule: Constraint, name: str) -> list[object]:
    """Values with which a constraint can be tried: those its conditions ask for, else small ones."""
    asked = [v for c in rule.when if c.quantity == name for v in EXTREMES[c.operator](c.value)]
    if asked:
        return asked
    if name.endswith("_version"):
        return ["0.1", "2.4", "4.0", "5.30", "99.0"]
    if name in CHOICES:
        return [*CHOICES[name], *((4, -1) if name == "zero_stage" else ())]
    if name in ("backend", "framework"):
        return ["deepspeed", "fsdp2"]
    if name.startswith("colocate") or name == "attn_softcap":
        return [True, False]
    return [0, 1, 2, 3, 4, 6, 8, 12, 257]


@pytest.mark.parametrize("rule", TABLE, ids=lambda rule: rule.id)
def test_an_entry_can_hold_and_can_be_violated(rule: Constraint) -> None:
    names = sorted({*rule.needs, *rule.given, *(condition.quantity for condition in rule.when)})
    draw = random.Random(0)
    pools = {name: candidates(rule, name) for name in names}
    kinds = set()
    for _ in range(5000):
        q = Quantities(**{name: draw.choice(pool) for name, pool in pools.items()})  # type: ignore[arg-type]
        kinds.add(rule.outcome(q).kind)
        if {"holds", "violated"} <= kinds:
            return
    pytest.fail(f"only {sorted(kinds)} in 5000 tries")


def test_importing_the_table_needs_only_the_standard_library() -> None:
    code = (
        "import sys; before = set(sys.modules); import rules.constraints; "
        "new = {m.split('.')[0] for m in set(sys.modules) - before} - {'rules'}; "
        "print(sorted(new - set(sys.stdlib_module_names)))"
    )
    result = subprocess.run(
        [sys.executable, "-S", "-c", code], cwd=ROOT, capture_output=True, text=True, check=True, timeout=60
    )
    assert result.stdout.strip() == "[]"


def test_the_reference_page_is_current(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--check"]) == 0
    assert PAGE.read_text(encoding="utf-8") == page()
    assert all(f"### {rule.id}\n" in page() for rule in constraints.TABLE)
    assert main(["--wrong"]) == 2
    assert "usage" in capsys.readouterr().err
