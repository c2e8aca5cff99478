"""Adding a backend, a launcher, an input, a metric or a section of the report is adding a module, and nothing else."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType

import pytest

from bench import backends, launchers, metrics
from bench.cli import main as bench
from bench.configuration import Configuration
from bench.inputs import formats, sources
from bench.report import sections
from bench.results.results import build_result, write_json
from bench.results.table import render

ROOT = Path(__file__).resolve().parents[2] / "bench"
Add = Callable[[ModuleType, str, str], None]


@pytest.fixture
def add(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Iterator[Add]:
    """Puts a module of that name and text into a package, as a file beside its others would be."""
    registries = [backends.every, launchers.every, sources.every, formats.readers, metrics._modules, sections._modules]

    def put(package: ModuleType, name: str, text: str) -> None:
        folder = tmp_path_factory.mktemp("modules")
        (folder / f"{name}.py").write_text(text)
        monkeypatch.setattr(package, "__path__", [*package.__path__, str(folder)])
        for registry in registries:
            registry.cache_clear()

    yield put
    monkeypatch.undo()
    for registry in registries:
        registry.cache_clear()


BACKEND = """
from bench.backends.ddp import DDP

class Mine(DDP):
    name = "mine"
    own = ("lr",)

BACKEND = Mine()
"""


def test_a_backend_is_a_module(add: Add, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from bench.commands import run
    from bench.matrix.cells import configure
    from bench.strategies import get_strategy

    assert bench(["run", "--backend", "mine", "--device", "cpu", "--dry-run"]) == 2
    assert "mine" not in run.parser().format_help()
    add(backends, "mine", BACKEND)
    assert "mine" in run.parser().format_help()
    capsys.readouterr()
    assert bench(["run", "--backend", "mine,ddp", "--device", "cpu", "--dry-run", "--output", str(tmp_path)]) == 0
    assert "mine-2x-sdpa-packed" in capsys.readouterr().out
    assert bench(["plan", "--model", "llama-tiny", "--gpus", "2", "--backend", "mine", "--wide"]) == 0
    assert re.search(r"^mine +2 ", capsys.readouterr().out, re.M)
    assert bench(["plan", "--model", "llama-tiny", "--gpus", "2", "--role", "actor:backend=mine"]) == 0
    assert "mine dp 2" in capsys.readouterr().out
    cell = configure(Configuration(), {"backend": "mine", "attn": "sdpa", "compile": "none", "packing": True,
                                       "num_layers": 2}).configuration  # fmt: skip
    assert cell.backend == "mine"
    assert type(get_strategy(Configuration(backend="mine"))).__name__ == "DDPStrategy"
    write_json(tmp_path / "x" / "result.json", build_result(cell, [], status="oom", message="m"))
    assert bench(["report", str(tmp_path / "x")]) == 0
    assert "mine" in capsys.readouterr().out


LAUNCHER = """
from bench.launchers import Where
from bench.launchers.local import Local

class Elsewhere(Local):
    name = "elsewhere"
    text = "over there"
    here = False

    def add(self, group):
        group.add_argument("--distance", type=int, help="in miles")

WHERE = Elsewhere()
"""


def test_a_launcher_is_a_module(add: Add, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    flags = ["run", "--device", "cpu", "--dry-run", "--output", str(tmp_path)]
    add(launchers, "elsewhere", LAUNCHER)
    for more, told in (
        (["--launcher", "elsewhere", "--num-gpus", "1", "--distance", "2"], ""),
        (["--launcher", "elsewhere"], "--launcher elsewhere needs --num-gpus: how many ranks a row has"),
        (["--distance", "2"], "--distance is for --launcher elsewhere"),
    ):
        assert bench([*flags, *more]) == (2 if told else 0)
        assert told in capsys.readouterr().err


INPUT = """
import torch
from bench.inputs.batch import Batch

PLACE = 0

def takes(inputs):
    return inputs is not None and inputs.startswith("ones:")

def digest(inputs):
    return inputs.partition(":")[2]

class Ones:
    recorded = []

    def __init__(self, configuration, vocabulary, dp_rank):
        self.length = int(configuration.inputs.partition(":")[2])

    def __iter__(self):
        full = torch.ones(1, self.length)
        while True:
            yield Batch(full.long(), full.bool(), full.bool())

open_ = Ones
"""


def test_an_input_is_a_module(add: Add, tmp_path: Path) -> None:
    from bench.inputs.source import InputSource
    from bench.sweep.expansion import expand

    add(sources, "ones", INPUT)
    (found,) = expand({"inputs": "ones:7", "backend": "ddp"}, 0)
    assert (found.inputs, found.input_hash) == ("ones:7", "7")
    (batch,) = next(InputSource(found, 100, 0).micro_batches(1))
    assert batch.sequences.tolist() == [[1] * 7]


FORMAT = """
SUFFIXES = (".upper",)

def rows(path):
    return iter([{"prompt": "a", "answer": path.read_text().upper()}])
"""


def test_a_format_of_data_sets_is_a_module(add: Add, tmp_path: Path) -> None:
    from bench.inputs.dataset import read_samples

    add(formats, "upper", FORMAT)
    (tmp_path / "x.upper").write_text("word")
    assert [tuple(one) for one in read_samples(str(tmp_path / "x.upper"), max_len=64, seed=0)] == [("a", "WORD")]


METRIC = re.search(
    r"<!-- tested: cost_of_loss.py -->\n```python\n(.*?)^```$",
    (ROOT.parent / "CONTRIBUTING.md").read_text(),
    re.M | re.S,
)
"""As the guide has it."""


def test_a_metric_is_a_module(add: Add, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert METRIC is not None
    add(metrics, "cost_of_loss", METRIC[1])
    run = {
        "times": [{"forward": 1.0}], "losses": [1.0],
        "memory": {"allocated": {"forward": 9}, "reserved": {"forward": 9}},
        "tokens": {"real": 8.0, "positions": 8.0, "squares": 64.0}, "parameters": 3, "matmul_flops": 1e12,
        "effective": {"communication_share": 0.0, "device": "cpu"},
    }  # fmt: skip
    result = build_result(Configuration(backend="ddp", num_layers=1), [run, run], status="ok")
    assert result["summary"]["seconds_per_loss"] == 1.0
    write_json(tmp_path / "result.json", result)
    for form, told in (("text", "1.000"), ("markdown", "| s/loss"), ("csv", ",seconds_per_loss,"),
                       ("json", '"seconds_per_loss": 1.0'), ("html", '<td data-value="1.0"')):  # fmt: skip
        assert bench(["report", str(tmp_path), "--format", form, "--wide"]) == 0
        assert told in capsys.readouterr().out, form
    assert "s/loss" in render([result], wide=True)


SECTION = """
from bench.report.sections import Table

PLACE, TITLE, KEY = 15, "Who ran it", "hosts"

def content(found):
    return sorted({row.environment.get("host", "") for row in found.rows})

def table(hosts):
    return Table(("host",), [[host] for host in hosts], "By name.")

def data(hosts):
    return hosts
"""


def test_a_section_of_the_report_is_a_module(add: Add, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    add(sections, "hosts", SECTION)
    result = build_result(Configuration(), [], status="oom", message="m", environment={"host": "node7"})
    write_json(tmp_path / "result.json", result)
    for form, told in (("text", "Who ran it\n\nhost"), ("markdown", "## Who ran it"), ("json", '"hosts": [\n  "node7"'),
                       ("html", '<h2 id="hosts">Who ran it</h2>')):  # fmt: skip
        assert bench(["report", str(tmp_path), "--format", form]) == 0
        assert told in capsys.readouterr().out, form


def test_no_module_decides_by_the_name_of_a_backend() -> None:
    """Names occur as defaults, never in a comparison."""
    names = "|".join(backends.names())
    compared = re.compile(rf"""(?:[!=]=|\bin\b) *\(?["'](?:{names})["']|["'](?:{names})["'] *(?:[!=]=|in\b)""")
    found = [
        f"{path.relative_to(ROOT)}: {line.strip()}"
        for path in ROOT.rglob("*.py") if path.parent.name not in ("backends", "launchers")
        for line in path.read_text(encoding="utf-8").splitlines() if compared.search(line)
    ]  # fmt: skip
    assert [line for line in found if "for name in (" not in line] == []
