"""The tables of public names of modules against the installed libraries, and how they are read off releases."""

from __future__ import annotations

import importlib
import textwrap
import warnings
import zipfile
from pathlib import Path

import pytest

from tests.library_names import Release, table
from validator.examples import run
from validator.models.members import public_names
from validator.registry import load_rules


@pytest.mark.parametrize("library", sorted(public_names.LIBRARIES))
def test_every_public_name_of_the_installed_library_is_listed(library: str) -> None:
    pytest.importorskip(library)
    names = public_names.table(library)
    unknown: dict[str, list[str]] = {}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for module in names.modules:
            try:
                held = dir(importlib.import_module(module))
            except Exception:  # whatever an import may do: it needs what is not here, or is of another release
                continue
            if missed := [name for name in held if name.isidentifier() and names.lacks(module, name)]:
                unknown[module] = missed
    assert not unknown


def test_well_known_modules_are_listed() -> None:
    for module in (
        "torch", "torch.nn", "torch.nn.functional", "torch.nn.init", "torch.nn.utils", "torch.nn.parallel",
        "torch.optim", "torch.optim.lr_scheduler", "torch.utils.data", "torch.utils.checkpoint", "torch.distributed",
        "torch.distributed.fsdp", "torch.distributed.tensor", "torch.distributed.tensor.parallel", "torch.cuda",
        "torch.distributed.device_mesh", "torch.distributed.checkpoint", "torch.distributed.checkpoint.state_dict",
        "torch.amp", "torch.cuda.amp", "torch.autograd", "torch.multiprocessing", "torch.profiler", "torch.backends",
        "transformers", "accelerate", "accelerate.utils", "peft", "trl", "datasets", "deepspeed", "deepspeed.comm",
        "pytorch_lightning",
    ):  # fmt: skip
        assert public_names.table(module.partition(".")[0]).of(module), module


def test_a_dotted_name_is_held_against_the_modules_on_its_way() -> None:
    assert public_names.first_lacking("torch.optim.AdamW") is None
    assert public_names.first_lacking("torch.optm.AdamW") == ("torch", "optm")
    assert public_names.first_lacking("torch.optim.AdamWW") == ("torch.optim", "AdamWW")
    assert public_names.first_lacking("torch._C.Anything") is None


def _read(folder: Path, files: dict[str, str]) -> dict[str, set[str]]:
    archive = folder / "peft-1.0.0-py3-none-any.whl"
    with zipfile.ZipFile(archive, "w") as wheel:
        for path, text in files.items():
            wheel.writestr(path, textwrap.dedent(text))
    return table("peft", iter([Release("peft", archive)]))


def test_names_are_what_statements_bind(tmp_path: Path) -> None:
    found = _read(
        tmp_path,
        {
            "peft/__init__.py": """
                import os.path
                from .parts import *
                from .parts import other as another
                if os.name == "nt":
                    windows = 1
                def function():
                    global made
                    inner = made = 2
                import peft.parts
                peft.parts.given = 3
            """,
            "peft/parts.py": '__all__ = ["shown"]\nshown = hidden = other = 1',
        },
    )
    assert found["peft"] >= {"os", "shown", "another", "windows", "function", "made", "parts", "peft"}
    assert not found["peft"] & {"hidden", "inner", "other", "path"}
    assert "given" in found["peft.parts"]


@pytest.mark.parametrize(
    "text",
    [
        "for name in 'ab':\n    globals()[name] = 1",
        "import sys\nsetattr(sys.modules[__name__], 'a' + 'b', 1)",
        "from numpy import *",
        "def __getattr__(name):\n    return name",
        "import sys\nclass M:\n    pass\nsys.modules[__name__] = M()",
        "exec('a = 1')",
    ],
)
def test_modules_that_may_have_any_name_are_left_out(text: str, tmp_path: Path) -> None:
    assert _read(tmp_path, {"peft/__init__.py": text}) == {}


def test_getattr_and_lazy_modules_that_list_their_names(tmp_path: Path) -> None:
    found = _read(
        tmp_path,
        {
            "peft/__init__.py": """
                import sys
                _import_structure = {"config": ["Config"]}
                _import_structure["model"] = ["Model"]
                sys.modules[__name__] = _LazyModule(__name__, globals()["__file__"], _import_structure)
            """,
            "peft/old.py": """
                _moved = {"before": "after"}
                def __getattr__(name):
                    if name in _moved:
                        return _moved[name]
                    raise AttributeError(name)
            """,
        },
    )
    assert found["peft"] >= {"config", "Config", "model", "Model", "old"}
    assert "before" in found["peft.old"]


@pytest.mark.parametrize(
    ("text", "requirements", "severity"),
    [
        ("import torch\nx = torch.arrange(3)", "", "error"),
        ("import torch\nx = torch.arrange(3)", "torch", "error"),
        ("import torch\nx = torch.arrange(3)", "torch>=2.1", "error"),
        ("import torch\nx = torch.arrange(3)", "torch>=9.1", "warning"),
        ("import torch\nx = torch.arrange(3)", "torch>=1.7", "warning"),
        ("from accelerate.utils import gather_objects", "", "warning"),
    ],
)
def test_severity_follows_what_is_known_of_the_admitted_releases(
    text: str, requirements: str, severity: str, tmp_path: Path
) -> None:
    rule = next(each for each in load_rules() if each.rule.code == "MP209")
    example = f"# file: requirements.txt\n{requirements}\n# file: train.py\n{text}\n"
    assert [each.severity for each in run(rule, example, str(tmp_path)).findings] == [severity]
