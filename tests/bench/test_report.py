"""`bench report`: every format from the same rows, fits, escaping, and the page in a real browser."""

from __future__ import annotations

import csv
import io
import itertools
import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bench.cli import main as bench
from bench.configuration import Configuration, model_name, seed_folder
from bench.report.columns import as_csv, table
from bench.report.glance import workloads
from bench.report.predicted import predicted
from bench.report.rows import Row, collect, to_row
from bench.report.scaling import fits, line
from bench.report.sections import environment, grid
from bench.report.series import chart_data
from bench.results.results import build_result, write_json

ROOT = Path(__file__).resolve().parents[2]
RESULTS = ROOT / "reports" / "h200" / "results"
EVIL = "</script><script>document.title='owned'</script>\"'><img src=x onerror=alert(1)> $x_{"
CHROMIUM = next(
    (found for name in ("chromium", "chromium-browser", "google-chrome") if (found := shutil.which(name))), None
)


def result(layers: int, backend: str = "ddp", head: float = 0.1, per_layer: float = 0.01) -> dict[str, object]:
    """A result whose forward takes `head + per_layer × layers` seconds for 1000 tokens."""
    configuration = Configuration(backend=backend, num_layers=layers, device="cpu")
    run = {
        "times": [{"forward": head + per_layer * layers, "backward": 1e-9}] * 2, "warmups": [],
        "losses": [3.0, 2.0], "grad_norms": [1.0, 1.0],
        "memory": {kind: {"forward": 10**9 * layers} for kind in ("allocated", "reserved")},
        "tokens": {"real": 2000.0, "positions": 2000.0, "squares": 1e6}, "parameters": 10**6 * layers,
        "effective": {"communication_share": 0.1, "device": "cpu"}, "matmul_flops": 1e12,
    }  # fmt: skip
    return build_result(configuration, [run], status="ok", environment={"command": "python -m bench", "python": "3.11"})


KINDS = ("ok", "slow path", "graph breaks", "compile error", "unsupported", "out of memory", "hang", "wrong loss")


def write_matrix(folder: Path) -> None:
    """A cell of each class as `bench matrix` writes it, with its log; the log of the last lies elsewhere."""
    names = [kind.replace(" ", "-") for kind in KINDS]
    rows: list[dict[str, object]] = [
        {
            "cell": name, "class": kind, "detail": "" if kind == "ok" else f"first line of {kind} {EVIL}",
            "hash": name, "label": name, "real_tokens_per_second": 1000.0 if kind in KINDS[:3] else None,
            "relative_speed": None, "loss_difference": 1e-4, "peak_memory": None,
            "graphs": {"graph_breaks": 3} if kind == "graph breaks" else None, "attention_kernels": [],
            "settings": {}, "log": f"logs/{name}.log" if kind != "wrong loss" else "../bad/log.0.txt",
        }
        for kind, name in zip(KINDS, names, strict=True)
    ]  # fmt: skip
    document = {"schema": 1, "kind": "eight rows", "stack": {"torch": "2.13"}, "command": "bench matrix", "rows": rows}
    write_json(folder / "matrix.json", document | {"never": []})
    (folder / "logs").mkdir()
    for name in names:
        (folder / "logs" / f"{name}.log").write_text(f"the log behind {name} {EVIL}\n")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three depths of one backend, one failed row with a hostile message and log, and a training log."""
    path = tmp_path_factory.mktemp("results")
    for layers in (2, 4, 8):
        write_json(path / f"ddp-{layers}" / "result.json", result(layers))
    bad = build_result(
        Configuration(backend="fsdp2", num_layers=2), [], status="crash", message=EVIL, log="/gone/log.0.txt"
    )
    write_json(path / "bad" / "result.json", bad | {"label": EVIL})
    (path / "bad" / "log.0.txt").write_text(f"Traceback\n{EVIL}\n")
    (path / "sft_test.log").write_text("\n".join(json.dumps({"step": n, "loss": 3.0 - n}) for n in range(3)))
    (path / f"{'$evil_{'}_test.log").write_text("\n".join(json.dumps({"step": n, "loss": 3.1 - n}) for n in range(3)))
    write_matrix(path / "matrix")
    (path / "broken").mkdir()
    (path / "broken" / "result.json").write_text('{"schema": 1, "configuration"')
    return path


@given(st.floats(-10, 10), st.floats(0.01, 10), st.sets(st.integers(1, 80), min_size=2, max_size=6))
def test_a_line_is_found_again(head: float, per_layer: float, depths: set[int]) -> None:
    found = line({depth: head + per_layer * depth for depth in depths})
    assert found == pytest.approx((head, per_layer), abs=1e-6)


def test_deeper_rows_check_the_fit(folder: Path) -> None:
    time, memory = fits(collect([folder]).rows)
    assert (time.layers, memory.quantity.name) == ((2, 4, 8), "peak memory")
    assert (time.head * 1000, time.per_layer * 1000) == pytest.approx((0.1, 0.01), rel=1e-3)
    assert memory.at(32) == pytest.approx(32e9)
    assert [(check.fitted, check.layers) for check in time.checks] == [((2, 4), 8)]
    assert time.checks[0].error == pytest.approx(0.0, abs=1e-6)


def test_an_error_of_the_fit_is_told(tmp_path: Path) -> None:
    for layers, per_layer in ((2, 0.01), (4, 0.01), (8, 0.02)):
        write_json(tmp_path / str(layers) / "result.json", result(layers, head=0.0, per_layer=per_layer))
    assert fits(collect([tmp_path]).rows)[0].checks[0].error == pytest.approx(-0.5, abs=1e-3)


def test_a_fit_of_noise_predicts_nothing(tmp_path: Path) -> None:
    """From which a layer, or all that is no layer, would come out as cheaper than nothing."""
    for head, sensible in ((0.02, True), (-0.009, False)):
        for layers in (1, 2):
            write_json(tmp_path / f"{head}" / str(layers) / "result.json", result(layers, head=head, per_layer=0.01))
        assert fits(collect([tmp_path / f"{head}"]).rows)[0].sensible == sensible


def test_memory_of_earlier_rows_is_taken_off() -> None:
    row = to_row(result(4) | {"left_allocated": 10**9}, Path("x.jsonl"))
    assert row.memory == 3e9


def test_memory_is_predicted_for_gpus_alone(folder: Path) -> None:
    on_cpus = [row for row in collect([folder]).rows if row.label.startswith("ddp")]
    assert [predicted(row) for row in on_cpus] == [None] * 3
    assert any(predicted(row) for row in collect([RESULTS]).rows)


def test_every_format_holds_every_row(folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = collect([folder]).rows
    read = list(csv.DictReader(io.StringIO(as_csv(rows))))
    assert sorted(entry["status"] for entry in read) == ["crash", "ok", "ok", "ok"]
    assert {entry["layers"]: float(entry["memory"]) for entry in read if entry["status"] == "ok"}["8"] == 8e9
    assert "<script>" not in table(rows, "github").replace("\\<script>", "")
    for name in ("out.md", "out.json", "out.txt"):
        assert bench(["report", str(folder), "--output", str(tmp_path / name)]) == 0
    assert "broken" in capsys.readouterr().err
    document = json.loads((tmp_path / "out.json").read_text())
    assert len(document["rows"]) == 4
    assert document["scaling"][0]["checks"][0]["layers"] == 8
    training = {one["run"]: one["losses"] for one in document["training"]}
    assert training["sft_test"] == {"0": 3.0, "1": 2.0, "2": 1.0}
    assert [cell["kind"] for matrix in document["matrices"] for cell in matrix["cells"]] == list(KINDS)
    assert "sft_test" in (tmp_path / "out.txt").read_text()


def test_rows_tell_their_model_and_how_long_they_trained(folder: Path) -> None:
    read = list(csv.DictReader(io.StringIO(as_csv(collect([folder]).rows))))
    assert {(entry["model"], entry["loss_steps"]) for entry in read} == {("llama-tiny", "2"), ("llama-tiny", "")}


def test_a_row_of_all_layers_says_how_many_these_are() -> None:
    cut, whole, named = (
        Row(Path(), "", Configuration(model=model, num_layers=layers), "ok").layers
        for model, layers in (("llama-tiny", 5), ("llama-tiny", None), ("Qwen/Qwen2.5-7B", None))
    )
    assert (cut, whole, named) == (5, 2, 28)
    assert Row(Path(), "", Configuration(model="some/body", num_layers=None), "ok").layers is None  # nobody is asked


@pytest.mark.parametrize(
    ("model", "name"),
    [
        ("llama-tiny", "llama-tiny"), ("meta-llama/Llama-3.1-8B", "Llama-3.1-8B"), ("/m/qwen/config.json", "qwen"),
        ("/m/qwen/", "qwen"), ("/out/seed-llama-tiny-0123456789ab", "llama-tiny"), ("config.json", "config.json"),
        ("/out/" + seed_folder("/m/qwen/config.json", "0123456789ab"), "qwen"),
    ],
)  # fmt: skip
def test_a_model_is_called_by_its_last_part(model: str, name: str) -> None:
    assert model_name(model) == name


def test_many_files_that_are_no_training_log_are_one_line(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shutil.copytree(folder / "matrix", tmp_path / "matrix")  # its cells' logs are no training logs, and not told
    write_json(tmp_path / "ddp" / "result.json", result(2))
    for number in range(5):
        (tmp_path / f"other{number}.log").write_text("hello\n")
    (tmp_path / "empty.log").write_text("")
    assert bench(["report", str(tmp_path)]) == 0
    told = sorted(capsys.readouterr().err.splitlines())
    assert len(told) == 2
    assert told[0].endswith("empty.log: the file is empty")
    assert f"passed over: 5 files, the first is {tmp_path / 'other0.log'}: no loss" in told[1]


def test_a_reader_that_goes_is_no_error(folder: Path) -> None:
    command = [sys.executable, "-m", "bench", "report", str(folder)]
    process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stderr is not None
    process.stdout.close()
    assert process.stderr.read() == ""
    assert process.wait(60) == 141


@pytest.mark.parametrize(
    "arguments", [["absent"], ["empty"], ["full", "--output", "taken/x.html"], ["full", "--output", "x.pdf"]]
)
def test_bad_paths_are_one_line(
    arguments: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "empty").mkdir()
    (tmp_path / "taken").write_text("a file")
    write_json(tmp_path / "full" / "result.json", result(2))
    assert bench(["report", *arguments]) == 2
    error = capsys.readouterr().err
    assert error.startswith("bench report: ")
    assert error.count("\n") == 1
    assert not (tmp_path / "x.pdf").exists()


@pytest.fixture(scope="module")
def page_file(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("page")
    assert bench(["report", str(folder), "--output", str(out / "index.html")]) == 0
    return out / "index.html"


def test_every_class_of_a_matrix_leads_to_its_log(page_file: Path, folder: Path) -> None:
    text = page_file.read_text(encoding="utf-8")
    for number, kind in enumerate(KINDS):
        assert f'href="#cell-0-{number}">{kind}</a>' in text
        details = text.split(f'<details id="cell-0-{number}">')[1].split("</details>")[0]
        log = f"the log behind {kind.replace(' ', '-')} &lt;/script&gt;"
        # A log outside the matrix's folder is not shown: the file may name any path.
        assert (log in details) == (kind != "wrong loss")
        assert "Traceback" not in details


def test_a_matrix_in_text(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert bench(["report", str(folder / "matrix" / "matrix.json"), "--format", "markdown"]) == 0
    text = capsys.readouterr().out
    assert "## Compatibility: eight rows" in text
    assert all(f"| {kind}" in text for kind in KINDS)


def test_deep_models_are_predicted_from_shallow_ones() -> None:
    """As measured on H200s. 8 layers from 2 and 4: memory within a tenth; steps of these small batches within 21%,
    where the host does not set the pace, as it does with tensor parallelism and with ZeRO-3 over a ring. 32 layers from
    2, 4 and 8, at batches that fill a GPU: steps within 4%, memory within 5%."""
    checked = [(fit, check) for fit in fits(collect([RESULTS]).rows) for check in fit.checks]

    def errors(layers: int, memory: bool) -> list[float]:
        return [
            abs(check.error)
            for fit, check in checked
            if check.layers == layers and (fit.quantity.name == "peak memory") == memory
            if memory or not (" tp" in fit.name or fit.name.startswith("zero3 ring"))
        ]

    assert {check.fitted for _, check in checked} == {(2, 4), (2, 4, 8)}
    assert [(len(errors(layers, True)), len(errors(layers, False))) for layers in (8, 32)] == [(14, 10), (2, 2)]
    assert max(errors(8, True)) < 0.10
    assert max(errors(8, False)) < 0.21
    assert max(errors(32, True)) < 0.05
    assert max(errors(32, False)) < 0.04


def test_what_was_not_measured_stands_under_the_numbers(page_file: Path) -> None:
    text = page_file.read_text(encoding="utf-8")
    assert '<td data-value="" class="number">-</td>' in text
    assert '<td data-value="" class="">' not in text


def test_the_page_is_one_file_and_escaped(page_file: Path) -> None:
    text = page_file.read_text(encoding="utf-8")
    assert "<script>document.title" not in text
    assert "<img src=x" not in text
    assert "&lt;script&gt;document.title" in text
    assert 'src="' not in text
    assert "1 of 4 rows do not say by which command" in text
    assert "Traceback" in text  # the log that lies beside the result, whatever folder the result names


def test_the_page_in_a_browser(page_file: Path) -> None:
    """It sorts, switches its theme, says nothing on the console and asks for nothing but itself."""
    if CHROMIUM is None:
        pytest.skip("no Chromium on this machine")
    from playwright.sync_api import sync_playwright

    said: list[str] = []
    asked: list[str] = []
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        page = browser.new_page(viewport={"width": 390, "height": 800}, color_scheme="light")
        page.on("console", lambda message: said.append(message.text))
        page.on("pageerror", lambda error: said.append(str(error)))
        page.on("request", lambda request: asked.append(request.url))
        page.goto(page_file.as_uri())
        at = page.evaluate(
            "[...document.querySelectorAll('#rows th[scope=col]')].findIndex(h => h.innerText == 'layers')"
        )
        layers = f"[...document.querySelectorAll('#rows tbody tr')].map(row => row.cells[{at}].textContent)"
        heading = page.locator("#rows th button", has_text="layers")
        heading.click()
        assert page.evaluate(layers) == ["2", "2", "4", "8"]
        heading.click()
        assert page.evaluate(layers) == ["8", "4", "2", "2"]
        page.locator("#rows th button", has_text="forward ms").click()
        assert page.evaluate(layers)[-1] == "2"  # what was not measured stands last
        colour = "getComputedStyle(document.body).backgroundColor"
        before = page.evaluate(colour)
        page.locator("#theme").click()
        assert page.evaluate(colour) != before
        shown = "[...document.querySelectorAll('#rows tbody tr')].filter(row => !row.hidden).length"
        page.locator("select[data-column=layers]").select_option("4")
        assert page.evaluate(shown) == 1
        page.locator("select[data-column=layers]").select_option("")
        page.locator("#search").fill("crash fsdp2")
        assert (page.evaluate(shown), page.locator("#count").inner_text()) == (1, "1 of 4 rows")
        page.locator("#search").fill("")
        page.locator("#grid ~ .wide a.failed").first.click()
        # A log opens once the address has changed, which is not done when the click returns.
        page.locator("details[open] pre").wait_for(timeout=10_000)
        assert page.locator("details[open] pre").count() == 1
        page.locator("table.matrix a", has_text="hang").click()
        log = page.locator("#cell-0-6[open] pre", has_text="the log behind hang")
        log.wait_for(timeout=10_000)
        assert log.is_visible()
        assert page.evaluate("document.documentElement.scrollWidth") <= 390
        assert page.evaluate("document.documentElement.scrollHeight") < 12 * 800  # long lists scroll by themselves
        assert page.title() == "Results of bench"
        browser.close()
    assert said == []
    assert asked == [page_file.as_uri()]


@pytest.mark.parametrize(("width", "scheme"), list(itertools.product((1400, 400), ("light", "dark"))))
def test_the_page_draws_its_charts_at_any_width(page_file: Path, width: int, scheme: str, tmp_path: Path) -> None:
    """Every canvas has drawn something in the colours of the page, nothing is wider than the window."""
    if CHROMIUM is None:
        pytest.skip("no Chromium on this machine")
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        page = browser.new_page(viewport={"width": width, "height": 900}, color_scheme=scheme)
        page.goto(page_file.as_uri())
        for key in ("throughput", "memory", "phases", "losses"):
            image = page.locator(f"#chart-{key}").screenshot(path=tmp_path / f"{key}.png")
            assert len(set(image)) > 100, key
            painted = (
                f"(() => {{ const c = document.getElementById('chart-{key}'); const d = c.getContext('2d')"
                ".getImageData(0, 0, c.width, c.height).data; let n = 0;"
                "for (let i = 3; i < d.length; i += 4) n += d[i] > 0; return n; })()"
            )
            assert page.evaluate(painted) > 500, key
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        points = "Chart.getChart('chart-throughput').data.datasets[0].data.map(p => [p.x, Math.round(p.y)])"
        assert page.evaluate(points) == [[2, 8333], [4, 7143], [8, 5556]]
        dark = page.evaluate("getComputedStyle(document.body).backgroundColor") != "rgb(255, 255, 255)"
        assert dark == (scheme == "dark")
        page.locator("#chart-throughput").click(position=page.evaluate(
            "(() => { const p = Chart.getChart('chart-throughput').getDatasetMeta(0).data[1];"
            "return { x: p.x, y: p.y }; })()"))  # fmt: skip
        # The chart draws and the address changes before the log opens: neither is done when the click returns.
        page.locator("details[open] summary", has_text="L4").wait_for(state="visible", timeout=10_000)
        browser.close()


def test_what_is_fastest_fits_and_trains_right_stands_first(tmp_path: Path) -> None:
    def row(backend: str, seconds: float, memory: int, losses: list[float], **settings: object) -> dict[str, object]:
        found = result(4, backend, head=seconds, per_layer=0.0)
        configuration = Configuration(backend=backend, num_layers=4, device="cpu", **settings)  # type: ignore[arg-type]
        run = found["runs"][0] | {"losses": losses}  # type: ignore[index]
        run["memory"] = {kind: {"forward": memory} for kind in ("allocated", "reserved")}
        return build_result(configuration, [run], status="ok", environment={})

    for name, value in {
        "a": row("ddp", 0.1, 4 * 10**9, [3.0, 2.0]), "b": row("fsdp2", 0.2, 10**9, [3.0, 2.02]),
        "c": row("deepspeed", 0.4, 2 * 10**9, [3.0, 2.5]), "longer": row("ddp", 0.05, 10**9, [9.0, 8.0], seq_len=4096),
    }.items():  # fmt: skip
        write_json(tmp_path / name / "result.json", value)
    failed = build_result(Configuration(num_layers=4, device="cpu", attn="eager"), [], status="oom", message="m")
    write_json(tmp_path / "d" / "result.json", failed)
    most, other = workloads(collect([tmp_path]).rows)
    assert (most.fastest and most.way(most.fastest), most.leanest and most.way(most.leanest)) == (
        "ddp sdpa",
        "fsdp2 sdpa",
    )
    assert (most.ahead, most.of_slowest, most.saves) == pytest.approx((1.0, 4.0, 0.75), rel=1e-6)
    assert (most.alike, most.compared, most.worst) == (2, 3, pytest.approx(0.25))
    assert dict(most.failed) == {"oom": 1}
    assert "4096 tokens" in other.name
    assert len(other.rows) == 1
    page = tmp_path / "page.html"
    assert bench(["report", str(tmp_path), "--output", str(page)]) == 0
    text = page.read_text()
    assert text.index("100.0% ahead of the next and 4.0 times the slowest") < text.index('<table id="rows">')
    (tmp_path / "c" / "result.json").unlink()
    assert workloads(collect([tmp_path]).rows)[0].worst == pytest.approx(0.01)  # small differences are told as they are


def test_what_was_measured_wins_over_refusals_of_other_machines(tmp_path: Path) -> None:
    here, there = {"cpu": "laptop", "gpus": []}, {"gpus": [{"name": "NVIDIA H200"}]}
    measured = result(2)
    measured["environment"] = {**measured["environment"], **there}  # type: ignore[dict-item]
    configuration = Configuration(backend="ddp", num_layers=2, device="cuda")
    measured["configuration"] |= {"device": "cuda"}  # type: ignore[operator]
    refused = build_result(configuration, [], status="unsupported", message="no GPU is visible", environment=here)
    write_json(tmp_path / "gpu" / "result.json", measured)
    write_json(tmp_path / "laptop" / "result.json", refused)

    def status() -> str:
        content = grid.content(collect([tmp_path]))
        assert content is not None
        (cell,) = content["cells"].values()
        return str(cell.status)

    assert status() == "ok"
    write_json(tmp_path / "laptop" / "result.json", {**refused, "environment": there})
    assert status() == "unsupported"  # of the same machine it says something
    write_json(tmp_path / "laptop" / "result.json", {**refused, "status": "crash", "environment": here})
    assert status() == "crash"


def test_an_order_of_rows_that_took_no_turns_is_undecided(tmp_path: Path) -> None:
    def told(ended: dict[str, list[float]], commands: tuple[str, str] = ("x", "x")) -> str:
        for (backend, moments), seconds, command in zip(ended.items(), (0.1, 0.2), commands, strict=True):
            found = result(4, backend, head=seconds, per_layer=0.0)
            runs = [{**found["runs"][0], "ended": moment} for moment in moments]  # type: ignore[index]
            for number, run in enumerate(runs):  # processes are never quite alike
                run["times"] = [{"forward": seconds * (1 + number / 1000), "backward": 1e-9}] * 2
                if not run["ended"]:
                    del run["ended"]
            configuration = Configuration(backend=backend, num_layers=4, device="cpu")
            made = build_result(configuration, runs, status="ok", environment={"command": command})
            write_json(tmp_path / backend / "result.json", made)
        (work,) = workloads(collect([tmp_path]).rows)
        return work.told()

    assert told({"ddp": [100.0, 300.0], "fsdp2": [200.0, 400.0]}).endswith(" ahead of fsdp2")
    assert told({"ddp": [100.0, 200.0], "fsdp2": [800.0, 900.0]}).endswith(
        "undecided: measured one after the other, 10 minutes apart; one command with --force measures both in turn"
    )
    assert told({"ddp": [0.0, 0.0], "fsdp2": [0.0, 0.0]}).endswith(" ahead of fsdp2")  # older results, one command
    assert "undecided: measured by different" in told({"ddp": [0.0, 0.0], "fsdp2": [0.0, 0.0]}, ("x", "y"))


def test_charts_never_join_unlike_rows_and_show_outliers(tmp_path: Path) -> None:
    for layers in (2, 4, 8, 16):
        for length in (1024, 2048):
            slow = 5.0 if (layers, length) == (8, 1024) else 1.0
            value = result(layers, head=0.1 * slow, per_layer=0.01 * slow)
            configuration = {**value["configuration"], "seq_len": length, "num_gpus": 1}  # type: ignore[dict-item]
            write_json(tmp_path / f"{layers}-{length}" / "result.json", {**value, "configuration": configuration})
    found = collect([tmp_path])
    groups = chart_data(found, workloads(found.rows))["layers"]
    assert sorted(len(line["points"]) for group in groups for line in group["lines"]) == [4, 4]
    assert {group["name"].split(", ")[3] for group in groups} == {"1024 tokens", "2048 tokens"}
    outliers = {
        (group["name"].split(", ")[3], point["layers"]): point["outlier"]
        for group in groups for line in group["lines"] for point in line["points"] if point["outlier"]
    }  # fmt: skip
    assert outliers == {("1024 tokens", 8): "outlier: +400% time against the line through the other depths"}


def test_a_machine_is_shown_once_and_rows_are_told_apart_where_they_need_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for number, gpu in enumerate(("NVIDIA H100", "NVIDIA H100", "NVIDIA H200")):
        made = result(2 + number % 2)
        moment = {"time": f"2026-11-25T10:0{number}", "gpus": [{"name": gpu, "clocks.sm": str(1980 - number)}]}
        versions = {"torch": "2.11.0"} | ({"flash-attn-4": "4.0"} if number == 2 else {})  # which no row uses
        made["environment"] = {"command": f"bench run {number // 2}", "versions": versions, **moment}
        made["configuration"] |= {"device": "cuda"}  # type: ignore[operator]
        write_json(tmp_path / str(number) / "result.json", made)
    found = collect([tmp_path])
    told = environment.content(found)
    assert told is not None
    assert [(processor, commands) for processor, _, commands in told.environments] == [
        ("NVIDIA H100", ["bench run 0"]),
        ("NVIDIA H200", ["bench run 1"]),
    ]
    assert [row.apart for row in found.rows] == ["(on NVIDIA H100)", "", "(on NVIDIA H200)"]
    assert all("NVIDIA" not in work.way(row) for work in workloads(found.rows) for row in work.rows)
    page = tmp_path / "page.html"
    assert bench(["report", str(tmp_path), "--output", str(page)]) == 0
    assert capsys.readouterr().err == f"bench report: wrote 3 rows to {page}\n"
    assert '<th>setting</th><th>quantity</th><th>depths</th><th class="number">head</th>' in page.read_text()
