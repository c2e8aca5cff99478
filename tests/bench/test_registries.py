"""Adding a backend, a launcher, an input, a metric or a section of the report is adding a module, and nothing else."""

from __future__ import annotations

import ast
import pkgutil
import re
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from bench import backends, launchers, metrics, registry, trackers
from bench.cli import main as bench
from bench.configuration import Configuration
from bench.inputs import formats, sources
from bench.report import sections
from bench.results.results import build_result, write_json, write_suite
from bench.results.table import render
from bench.rlhf import frameworks

ROOT = Path(__file__).resolve().parents[2] / "bench"
REGISTRIES = [
    backends.every, backends.planned, launchers.every, sources.every, formats.readers, metrics._modules,
    sections._modules,
]  # fmt: skip
Add = Callable[[ModuleType, str, str], None]


@pytest.fixture
def add(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Iterator[Add]:
    """Puts a module of that name and text into a package, as a file beside its others would be."""

    def put(package: ModuleType, name: str, text: str) -> None:
        folder = tmp_path_factory.mktemp("modules")
        (folder / f"{name}.py").write_text(text)
        monkeypatch.setattr(package, "__path__", [*package.__path__, str(folder)])
        for cached in REGISTRIES:
            cached.cache_clear()

    yield put
    monkeypatch.undo()
    for cached in REGISTRIES:
        cached.cache_clear()


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


RUN: dict[str, Any] = {
    "times": [{"forward": 1.0}], "warmups": [], "losses": [1.0],
    "memory": {"allocated": {"forward": 9}, "reserved": {"forward": 9}},
    "tokens": {"real": 8.0, "positions": 8.0, "squares": 64.0}, "parameters": 3, "matmul_flops": 1e12,
    "effective": {"communication_share": 0.0, "device": "cpu"},
}  # fmt: skip
"""What a process writes."""

METRIC = re.search(
    r"<!-- tested: cost_of_loss.py -->\n```python\n(.*?)^```$",
    (ROOT.parent / "CONTRIBUTING.md").read_text(),
    re.M | re.S,
)
"""As the guide has it."""


def test_a_metric_is_a_module(add: Add, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert METRIC is not None
    add(metrics, "cost_of_loss", METRIC[1])
    result = build_result(Configuration(backend="ddp", num_layers=1), [RUN, RUN], status="ok")
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


AXES: dict[str, ModuleType] = {
    "backend": backends, "launcher": launchers, "input": sources, "format": formats, "metric": metrics,
    "section": sections, "tracker": trackers, "framework": frameworks,
}  # fmt: skip
MODULES = [(axis, one.name) for axis, package in AXES.items() for one in pkgutil.iter_modules(package.__path__)]


def _imported(tree: ast.Module) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def test_no_other_module_imports_one_of_a_registry() -> None:
    """Each is found by itself. Those of one folder may build on each other, as a launcher may on `Local`."""
    own = {f"{AXES[axis].__name__}.{name}" for axis, name in MODULES}
    found = []
    for path in ROOT.rglob("*.py"):
        package = ".".join(path.relative_to(ROOT.parent).parts[:-1])
        names = _imported(ast.parse(path.read_text(encoding="utf-8")))
        found += [f"{path.relative_to(ROOT)}: {n}" for n in names for m in own
                  if f"{n}.".startswith(f"{m}.") and not m.startswith(f"{package}.")]  # fmt: skip
    assert found == []


NAMED = {
    "configuration.py": "ddp",  # the default of a setting, which no registry can give: its hash names results
    "checkpoints/conversion.py": "deepspeed",  # a format of checkpoints
    "launch/script.py": "deepspeed",  # a program that starts others, in scripts of others
    "commands/replay.py": "deepspeed",  # its default, from before there were others
    "commands/suite.py": "deepspeed fsdp2",  # the suite is the comparison of these two, and has a flag for each
    "suite/settings.py": "deepspeed fsdp2",
    "rlhf/frameworks/openrlhf.py": "deepspeed ray",  # what that framework trains with
    "rlhf/frameworks/trl.py": "deepspeed", "rlhf/frameworks/verl.py": "fsdp2 megatron",
    "strategies/external.py": "ray",  # a package
    "launch/array.py": "slurm",  # a folder
}  # fmt: skip
"""Where a name of a backend or launcher stands outside of its module, and why."""


def _texts(tree: ast.Module) -> set[str]:
    return {node.value for node in ast.walk(tree) if isinstance(node, ast.Constant) and isinstance(node.value, str)}


def test_backends_and_launchers_are_named_in_their_modules() -> None:
    names = {*backends.every(), *backends.planned(), *launchers.every()}
    found = {}
    for path in ROOT.rglob("*.py"):
        here = names & _texts(ast.parse(path.read_text(encoding="utf-8")))
        if here and path.parent.name not in ("backends", "launchers"):
            found[str(path.relative_to(ROOT))] = " ".join(sorted(here))
    assert found == NAMED


@pytest.mark.parametrize(("axis", "name"), MODULES, ids=lambda value: str(value))
def test_without_a_module_all_the_rest_is_there(
    axis: str, name: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """What nothing else names may be taken away: flags, rows, results and reports of the others are as they were."""
    package, all_of_them = AXES[axis].__name__, registry.modules

    def others(asked: str, path: Iterable[str]) -> dict[str, Any]:
        return {n: module for n, module in all_of_them(asked, path).items() if (asked, n) != (package, name)}

    monkeypatch.setattr(registry, "modules", others)
    for cached in REGISTRIES:
        cached.cache_clear()
    try:
        one = next(one for one in backends.names() if one != Configuration.backend)
        assert axis != "backend" or one != name
        for command in (["run", "--backend", one, "--device", "cpu", "--num-gpus", "1", "--dry-run"],
                        ["plan", "--model", "llama-tiny", "--gpus", "2", "--backend", one]):  # fmt: skip
            assert (bench(command), capsys.readouterr().err) == (0, "")
        run = {**RUN, "times": [{"forward": 1.0, "backward": 2.0}], "effective": {**RUN["effective"], "graphs": {}}}
        result = build_result(Configuration(backend=one, num_layers=1), [run, run], status="ok")
        write_json(tmp_path / "result.json", result)
        write_suite(tmp_path / "benchmarks.json", result)
        for form in ("text", "markdown", "csv", "json", "html", "bmf"):
            assert bench(["report", str(tmp_path), "--format", form]) == 0, form
        assert bench(["report", str(tmp_path), "--format", "csv"]) == 0
        assert one in capsys.readouterr().out or name == "logs"
    finally:
        monkeypatch.undo()
        for cached in REGISTRIES:
            cached.cache_clear()


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
