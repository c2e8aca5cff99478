"""Contracts: what their files may say, which one fits a family, and that a binding one is enforced."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from validator.analysis.interfaces.binding import parameters
from validator.cli import main
from validator.contracts import Contracts, builtin, load, standard
from validator.errors import UsageError
from validator.project import Project
from validator.run.config import Config
from validator.source import SourceFile

OPERATIONS = {
    "setup_distributed", "create_optimizer", "prepare", "backward", "optimizer_step", "setup_dataloader",
    "save_model", "load_model", "save_ckpt", "load_ckpt", "all_reduce", "all_gather", "setup_ring_attn",
}  # fmt: skip

GOOD = """\
name = "mine"
applies = "Strategy"
[operation.load_ckpt]
signature = "load_ckpt(model, folder, /, tag='last', *rest, strict=True, **kwargs)"
result = "tuple:2"
[[operation.load_ckpt.step]]
what = "load the model"
calls = ["*.load"]
"""


def write(folder: Path, text: str, name: str = "contract.toml") -> str:
    path = folder / name
    path.write_text(text)
    return str(path)


def project(folder: Path, text: str, **config: object) -> Project:
    path = write(folder, text, "strategy.py")
    return Project([SourceFile("strategy.py", path)], Config(root=str(folder), **config))  # type: ignore[arg-type]


def source(contract: str) -> str:
    """A strategy that has the operations of a shipped contract, with its factory."""
    operations = next(c for c in builtin() if c.name == contract).operations.values()
    lines = ["class BareStrategy:"]
    for operation in operations:
        if operation.optional:
            continue
        if operation.kind == "property":
            lines.append("    @property")
        parts = [p.name + (f"={p.default}" if p.default else "") for p in operation.params if p.kind == "any"]
        parts += ["*" + p.name for p in operation.params if p.kind == "*"]
        named = [p for p in operation.params if p.kind == "kw"]
        parts += ["*"] * (bool(named) and not any(p.kind == "*" for p in operation.params))
        parts += [f"{p.name}={p.default}" for p in named]
        parts += ["**" + p.name for p in operation.params if p.kind == "**"]
        lines.append(f"    def {operation.name}({', '.join(['self', *parts])}): return self.work()")
    return "\n".join([*lines, "", "def get_strategy(args):", "    return BareStrategy()", ""])


def test_the_shipped_contracts_cover_the_operations() -> None:
    contracts = {contract.name: contract for contract in builtin()}
    assert set(contracts) == {"strategy", "openrlhf-0.5", "openrlhf-0.8", "openrlhf-0.9", "openrlhf-0.11"}
    for contract in contracts.values():
        assert set(contract.operations) >= OPERATIONS
    assert contracts["openrlhf-0.9"].operations["load_ckpt"].result == "tuple:2"
    assert "get_grad_norm" not in contracts["openrlhf-0.8"].operations


@pytest.mark.parametrize("name", ["openrlhf-0.5", "openrlhf-0.8", "openrlhf-0.9", "openrlhf-0.11"])
def test_a_family_gets_the_contract_of_its_generation(name: str, tmp_path: Path) -> None:
    linked = project(tmp_path, source(name))
    (family,) = linked.families.all
    known = linked.analysis(Contracts).known(family)
    assert known is not None
    assert known.name == name


def test_signatures_keep_kinds_and_defaults(tmp_path: Path) -> None:
    operation = load(write(tmp_path, GOOD)).operations["load_ckpt"]
    shown = [(p.name, p.kind, p.default) for p in operation.params]
    assert shown == [
        ("model", "any", None),
        ("folder", "any", None),
        ("tag", "any", "'last'"),
        ("rest", "*", None),
        ("strict", "kw", "True"),
        ("kwargs", "**", None),
    ]
    assert operation.steps[0].calls == ("*.load",)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('nme = "x"', "did you mean 'name'"),
        ('applies = "Strategy"', "name is missing"),
        ("name = 3", "name must be a string"),
        ('name = "x"\nextends = "strategies"', "did you mean 'strategy'"),
        ('name = "x"\n[operation.go]\nsignature = "go(a"', "is no signature"),
        ('name = "x"\n[operation.go]\nsignature = "run(a)"', "must be that of 'go'"),
        ('name = "x"\n[operation.go]\nsignature = "go()"\nresult = "tuple"', "result must be"),
        ('name = "x"\n[operation.go]\nsignature = "go()"\nresults = "any"', "did you mean 'result'"),
        ('name = "x"\n[operation.go]\nsignature = "go()"\nkind = "field"', "method or property"),
        ('name = "x"\n[operation.go]\nsignature = "go()"\n[[operation.go.step]]\ncalls = ["a"]', "what is missing"),
        ('name = "x"\noperation = 3', "tables such as"),
        ("name = ", "not valid TOML"),
    ],
)
def test_a_wrong_contract_is_one_clear_line(text: str, said: str, tmp_path: Path) -> None:
    path = write(tmp_path, text)
    with pytest.raises(UsageError) as caught:
        load(path)
    assert said in str(caught.value)
    assert str(caught.value).startswith(path)
    assert "\n" not in str(caught.value)


def test_a_missing_contract_ends_the_run_with_status_2(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "pyproject.toml").write_text('[tool.validator]\ncontracts = ["absent.toml"]\n')
    (tmp_path / "strategy.py").write_text(source("openrlhf-0.9"))
    monkeypatch.chdir(tmp_path)
    assert main(["--no-cache", "."]) == 2
    told = capsys.readouterr().err
    assert "absent.toml" in told
    assert len(told.strip().splitlines()) == 1


def test_a_binding_contract_may_extend_a_shipped_one(tmp_path: Path) -> None:
    path = write(tmp_path, 'name = "mine"\nextends = "openrlhf-0.9"\n[operation.shutdown]\nsignature = "shutdown()"\n')
    linked = project(tmp_path, source("openrlhf-0.9"), contracts=(path,))
    (family,) = linked.families.all
    (contract,) = linked.analysis(Contracts).binding(family)
    assert contract.applies == "Strategy"
    assert {"shutdown", "get_grad_norm", "backward"} <= set(contract.operations)
    assert linked.analysis(Contracts).known(family) == contract


@given(st.lists(st.sampled_from("abc"), min_size=1, max_size=5), st.sampled_from([None, "a", "b"]))
def test_the_standard_is_declared_or_common(shapes: list[str], declared: str | None) -> None:
    classes = "\n".join(
        f"class C{n}Strategy:\n    def go(self, {name}): ...\n" + f"    def m{n}(self): ..."
        for n, name in enumerate(shapes)
    )
    returns = "\n".join(f"    if args.n == {n}:\n        return C{n}Strategy()" for n in range(len(shapes)))
    text = f"{classes}\n\ndef get_strategy(args):\n{returns}\n    raise ValueError\n"
    linked = _in_memory(text)
    (family,) = linked.families.all
    found = {cls: parameters(cls.methods["go"])[0].name for cls in family.members}
    shape = found[standard(linked, family, found, declared)]
    common = [name for name in set(shapes) if shapes.count(name) > len(shapes) / 2]
    if declared in shapes:
        assert shape == declared
    elif common:
        assert shape == common[0]
    else:
        assert shape in shapes


def _in_memory(text: str) -> Project:
    return Project([SourceFile("strategy.py", "/nowhere/strategy.py", text.encode())])
