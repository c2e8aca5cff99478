"""Recorded and synthetic batches, packing, and inputs that must be refused."""

from __future__ import annotations

import collections
import itertools
import os
import pickle
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from bench.configuration import Configuration, ConfigurationError
from bench.inputs import CONVERTED, conversion_cache
from bench.inputs.batch import Batch, make_batch, pad_to
from bench.inputs.captured import capture, convert, read_batch, read_batches
from bench.inputs.files import list_inputs
from bench.inputs.packing import pack_inputs, pad_inputs
from bench.inputs.source import InputSource
from bench.inputs.synthetic import synthetic_batches
from bench.problems import InputError


def a_batch(rows: int = 3, positions: int = 20, seed: int = 0) -> Batch:
    return next(synthetic_batches(vocabulary=100, rows=rows, seq_len=positions, seed=seed))


def dump(path: Path, **changes: Any) -> Path:
    """A dictionary as training runs pickle it, with what the caller changes in it."""
    batch = a_batch()
    content = {
        "sequences": batch.sequences, "attention_mask": batch.attention_mask.long(),
        "action_mask": batch.action_mask, "return_output": False, "packed_seq_lens": None, "rank": 0,
        "timestamp": "20250619_052608_430740", **changes,
    }  # fmt: skip
    path.write_bytes(pickle.dumps({k: v for k, v in content.items() if v is not ...}))
    return path


def test_a_sweep_unpickles_recorded_batches_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    recorded = tmp_path / "recorded"
    recorded.mkdir()
    for number in range(3):
        dump(recorded / f"{number}.pkl", sequences=a_batch(seed=number).sequences)
    monkeypatch.delenv(CONVERTED, raising=False)
    plain = conversion_cache.read(recorded, "digest")
    monkeypatch.setenv(CONVERTED, str(tmp_path / "kept"))
    monkeypatch.setenv("RANK", "1")
    conversion_cache.read(recorded, "digest")
    assert not (tmp_path / "kept").exists()  # the others of a group leave that to rank 0
    monkeypatch.setenv("RANK", "0")
    first = conversion_cache.read(recorded, "digest")
    folder = tmp_path / "kept" / "digest-3"
    assert len(list(folder.iterdir())) == 3
    for file in recorded.iterdir():
        file.write_bytes(b"no pickle")
    again = conversion_cache.read(recorded, "digest")
    for batches in (first, again):
        for one, other in zip(plain, batches, strict=True):
            assert torch.equal(one.sequences, other.sequences)
            assert torch.equal(one.token_actions(), other.token_actions())
            assert one.source == other.source
    (folder / "000001.safetensors").write_bytes(b"damaged")
    with pytest.raises(InputError, match=r"0\.pkl: refused"):
        conversion_cache.read(recorded, "digest")
    with pytest.raises(InputError, match=r"0\.pkl: refused"):
        conversion_cache.read(recorded, "another", limit=2)


@given(rows=st.integers(1, 4), positions=st.integers(8, 60), seed=st.integers(0, 99), ring=st.sampled_from([1, 2, 4]))
@settings(deadline=None, max_examples=40)
def test_packing_keeps_every_token_and_label_once(rows: int, positions: int, seed: int, ring: int) -> None:
    batch = a_batch(rows, positions, seed)
    padded = pad_inputs(batch, use_actions=True, seed=1)
    parts = [pack_inputs(batch, use_actions=True, seed=1, ring_rank=r, ring_size=ring) for r in range(ring)]
    kept = sorted(
        (int(i), int(label), float(a))
        for p in parts
        for i, label, a in zip(p.input_ids[p.loss_mask], p.labels[p.loss_mask], p.advantages[p.loss_mask], strict=True)
    )
    mask = padded.loss_mask
    pairs = zip(padded.input_ids[mask], padded.labels[mask], padded.advantages[mask], strict=True)
    assert kept == sorted((int(i), int(label), float(a)) for i, label, a in pairs)
    assert sum(p.input_ids.numel() for p in parts) == parts[0].positions
    assert parts[0].real_tokens == int(batch.attention_mask.sum()) == padded.real_tokens
    assert all(int(p.cu_seq_lens[-1]) == p.input_ids.numel() for p in parts if p.cu_seq_lens is not None)


def test_a_label_is_the_next_token_and_never_one_of_the_next_document() -> None:
    batch = make_batch(
        torch.tensor([[5, 6, 7, 0], [0, 8, 9, 4]]),
        torch.tensor([[1, 1, 1, 0], [0, 1, 1, 1]]),
        torch.tensor([[1, 0], [0, 1]]),
        "test",
    )
    packed = pack_inputs(batch, use_actions=False, seed=0)
    assert packed.input_ids.tolist() == [[5, 6, 7, 8, 9, 4]]
    assert packed.labels[0][packed.loss_mask[0]].tolist() == [6, 7, 9, 4]
    assert packed.position_ids.tolist() == [[0, 1, 2, 0, 1, 2]]
    actions = pack_inputs(batch, use_actions=True, seed=0)
    assert actions.labels[0][actions.loss_mask[0]].tolist() == [7, 4]


def test_padding_keeps_what_is_learned() -> None:
    batch = a_batch()
    longer = pad_to(batch, 40)
    assert longer.sequences.shape == (3, 40)
    assert int(longer.token_actions().sum()) == int(batch.token_actions().sum())


def test_recorded_batches_survive_conversion_and_capture(tmp_path: Path) -> None:
    old = read_batch(dump(tmp_path / "a.pkl"))
    assert convert(tmp_path / "a.pkl", tmp_path / "new") == 1
    new = read_batch(tmp_path / "new" / "a.safetensors")
    for field in ("sequences", "attention_mask", "action_mask"):
        assert torch.equal(getattr(old, field), getattr(new, field))
    path = capture(tmp_path / "mine", old.sequences, old.attention_mask, old.action_mask, rank=3)
    assert torch.equal(read_batch(path).sequences, old.sequences)
    assert "rank3" in path.name


def test_a_mask_of_zeros_and_ones_may_be_a_float(tmp_path: Path) -> None:
    mask = a_batch().attention_mask
    assert torch.equal(read_batch(dump(tmp_path / "a.pkl", attention_mask=mask.float())).attention_mask, mask)


BAD = {
    "sequences": [torch.zeros(3), torch.zeros(3, 20), torch.zeros(0, 4, dtype=torch.long), [1, 2], None, ...],
    "attention_mask": [torch.zeros(3, 20).long(), torch.ones(3, 4), torch.full((3, 20), 2), torch.tensor(1), ...],
    "action_mask": [torch.ones(3, 21), torch.ones(2, 4), torch.ones(3, 0), torch.full((3, 4), 0.5), ...],
}


@pytest.mark.parametrize(("field", "value"), [(f, v) for f, values in BAD.items() for v in values])
def test_a_wrong_field_is_one_line_that_names_it(field: str, value: Any, tmp_path: Path) -> None:
    with pytest.raises(InputError) as caught:
        read_batch(dump(tmp_path / "bad.pkl", **{field: value}))
    assert "bad.pkl" in str(caught.value)
    assert field in str(caught.value)
    assert "\n" not in str(caught.value)


class Payload:
    """Runs a function of the caller's choice when it is unpickled."""

    def __init__(self, function: Any, *arguments: Any) -> None:
        self.function, self.arguments = function, arguments

    def __reduce__(self) -> tuple[Any, ...]:
        return self.function, self.arguments


def payloads(marker: Path) -> dict[str, bytes]:
    """Streams that would leave `marker` behind, or take the process down, if anything of them ran."""
    touch = f"touch {marker}"
    made = {
        "system": Payload(os.system, touch),
        "popen": Payload(os.popen, touch),
        "eval": Payload(eval, f"open({str(marker)!r}, 'w')"),
        "exec": Payload(exec, f"open({str(marker)!r}, 'w')"),
        "open": Payload(open, str(marker), "w"),
        "getattr": Payload(getattr, "text", "upper"),
        "import": Payload(__import__, "os"),
        "torch load": Payload(torch.load, str(marker)),
        "torch save": Payload(torch.save, {}, str(marker)),
        "exit": Payload(os._exit, 3),
        "nested loads": Payload(pickle.loads, pickle.dumps(Payload(os.system, touch))),
        "storage holding a pickle": Payload(torch.storage._load_from_bytes, pickle.dumps(Payload(os.system, touch))),
        "storage holding torch's": Payload(torch.storage._load_from_bytes, b"\x80\x02cos\nsystem\n."),
        "storage not bytes": Payload(torch.storage._load_from_bytes, "text"),
        "tensor without storage": Payload(torch._utils._rebuild_tensor_v2, "x", 0, (1,), (1,), False, {}),
        "ordered dictionary subclass": Payload(collections.Counter, "abc"),
        "mkdir": Payload(os.mkdir, str(marker)),
        "path": Payload(Path, "x"),
        "print": Payload(print, "x"),
    }
    streams = {name: pickle.dumps({"sequences": payload}) for name, payload in made.items()}
    streams["alone"] = pickle.dumps(made["system"])
    streams["protocol 0"] = pickle.dumps(made["system"], protocol=0)
    streams["instance opcode"] = b"(S'touch %s'\nios\nsystem\n." % str(marker).encode()
    streams["object opcode"] = b"(cos\nsystem\nS'touch %s'\no." % str(marker).encode()
    streams["extension"] = b"\x80\x02\x82\x01."
    streams["persistent"] = b"\x80\x02X\x01\x00\x00\x00xQ."
    streams["dotted name"] = pickle.dumps(a_batch().sequences).replace(b"_rebuild_tensor_v2", b"os.system_v2______")
    streams["a place far away"] = b"\x80\x02]r\xff\xff\xff\xff."  # no room is made for the objects before it
    streams["a name of lines"] = b"\x80\x04\x8c\x06os\n\n\nx\x8c\x06system\x93."
    streams["a long name"] = b"\x80\x04X\x40\x42\x0f\x00" + b"A" * 1_000_000 + b"\x8c\x01x\x93."
    streams["not a pickle"] = b"hello"
    streams["empty"] = b""
    streams["truncated"] = pickle.dumps({"sequences": a_batch().sequences})[:-40]
    streams["a list"] = pickle.dumps([1, 2, 3])
    return streams


NAMES = list(payloads(Path("marker")))


def test_there_are_enough_payloads() -> None:
    assert len(NAMES) >= 20


@pytest.mark.parametrize("name", NAMES)
def test_a_hostile_pickle_is_refused_before_anything_runs(name: str, tmp_path: Path) -> None:
    marker = tmp_path / "ran"
    path = tmp_path / "hostile.pkl"
    path.write_bytes(payloads(marker)[name])
    with pytest.raises(InputError) as caught:
        read_batch(path)
    assert not marker.exists()
    assert "hostile.pkl" in str(caught.value)
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 500


def test_a_tensor_beyond_its_storage_is_refused(tmp_path: Path) -> None:
    storage = torch.arange(4).untyped_storage()
    typed = torch.storage.TypedStorage(wrap_storage=storage, dtype=torch.int64, _internal=True)
    for name, size, stride in (("far", (100,), (1,)), ("wide", (1 << 40,), (0,)), ("negative", (2,), (-1,))):
        path = tmp_path / f"{name}.pkl"
        arguments = (typed, 0, size, stride, False, collections.OrderedDict())
        path.write_bytes(pickle.dumps({"sequences": Payload(torch._utils._rebuild_tensor_v2, *arguments)}))
        with pytest.raises(InputError, match="tensor"):
            read_batch(path)


def test_places_without_inputs_are_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="no such file"):
        list_inputs(tmp_path / "absent")
    with pytest.raises(ConfigurationError, match="holds no"):
        list_inputs(tmp_path)
    dump(tmp_path / "a.pkl")
    dump(tmp_path / "b.pkl")
    assert len(list(read_batches(tmp_path, 1))) == 1


def test_token_ids_beyond_the_vocabulary_name_the_file(tmp_path: Path) -> None:
    dump(tmp_path / "a.pkl")
    with pytest.raises(InputError, match=r"a\.pkl: sequences holds the token id"):
        InputSource(Configuration(inputs=str(tmp_path)), vocabulary=10, dp_rank=0)


def test_simulated_ranks_pad_to_the_longest_of_their_orders(tmp_path: Path) -> None:
    for number, positions in enumerate((16, 24, 40)):
        batch = a_batch(2, positions)
        capture(tmp_path, batch.sequences, batch.attention_mask, batch.action_mask, rank=number)
    one = Configuration(inputs=str(tmp_path), shuffle_inputs=True, random_seed=1)
    many = Configuration(inputs=str(tmp_path), shuffle_inputs=True, random_seed=1, simulate_ranks=8)
    alone = InputSource(one, 100, 0).micro_batches(1)
    padded = InputSource(many, 100, 0).micro_batches(1)
    lengths = [(next(alone)[0].sequences.shape[1], next(padded)[0].sequences.shape[1]) for _ in range(3)]
    assert sorted(own for own, _ in lengths) == [16, 24, 40]
    assert all(own <= simulated for own, simulated in lengths)
    assert any(own < simulated for own, simulated in lengths)


def test_the_synthetic_source_can_be_learned_and_repeats_itself() -> None:
    first, again = (a_batch(2, 64, 5) for _ in range(2))
    assert torch.equal(first.sequences, again.sequences)
    pairs = collections.Counter()
    for batch, _ in zip(synthetic_batches(vocabulary=50, rows=4, seq_len=64, seed=5), range(20), strict=False):
        for row, mask in zip(batch.sequences, batch.attention_mask, strict=True):
            tokens = row[mask].tolist()
            pairs.update(itertools.pairwise(tokens))
    by_first: dict[int, collections.Counter[int]] = collections.defaultdict(collections.Counter)
    for (token, follower), count in pairs.items():
        by_first[token][follower] += count
    top = sum(max(c.values()) for c in by_first.values()) / sum(pairs.values())
    assert top > 0.6  # the likeliest follower is drawn with probability 0.7


def test_files_of_torch_save_are_read_and_run_nothing(tmp_path: Path) -> None:
    content = {
        "sequences": torch.arange(8).reshape(2, 4), "attention_mask": torch.ones(2, 4), "action_mask": torch.ones(2, 2)
    }  # fmt: skip
    for name, zipped in (("new.pt", True), ("old.pth", False), ("zipped.pkl", True)):
        torch.save(content, tmp_path / name, _use_new_zipfile_serialization=zipped)
    batches = list(read_batches(tmp_path))
    assert [batch.sequences.tolist() for batch in batches] == [content["sequences"].tolist()] * 3

    class Evil:
        def __reduce__(self) -> tuple[object, ...]:
            return (Path.touch, (tmp_path / "ran",))

    torch.save({"sequences": Evil()}, tmp_path / "evil.pt")
    with pytest.raises(InputError, match=r"evil\.pt: refused: ") as refused:
        read_batch(tmp_path / "evil.pt")
    assert "\n" not in str(refused.value)
    assert not (tmp_path / "ran").exists()
