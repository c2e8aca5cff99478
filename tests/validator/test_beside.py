"""Files beside the code that import it: the project does not read them, and a rule asks them before it reports."""

from __future__ import annotations

from pathlib import Path

import pytest

from rules.interface.calls import key_never_put
from rules.interface.calls import registering_file_unimported as rule
from rules.names import missing_module
from validator.project import Project
from validator.source import SourceFile

_FILES = {
    "registry.py": "HEADS = {}\n\n\ndef register(name):\n    def keep(cls):\n        HEADS[name] = cls\n"
    "        return cls\n\n    return keep\n",
    "heads.py": 'from registry import register\n\n\n@register("cosine")\nclass Cosine:\n    pass\n',
    "train.py": "from registry import HEADS\n\n\ndef build(config):\n    return HEADS[config.head]()\n",
}


def _write(folder: Path, files: dict[str, str]) -> None:
    for path, text in files.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text(text)


@pytest.mark.parametrize(
    ("name", "text", "silent"),
    [
        ("explore.ipynb", '{"cells": [{"source": ["import train\\n", "import heads\\n"]}]}', True),
        ("explore.ipynb", '{"cells": [{"source": ["from heads import Cosine\\n"]}]}', True),
        ("Makefile", "train:\n\tpython -c 'import heads, train'\n", True),
        ("docker/Dockerfile", "RUN python -c 'import heads'\n", True),
        ("README.md", "The heads are in another file.\n", False),
        ("explore.ipynb", '{"cells": [{"source": ["import train\\n"]}]}', False),
        (".cache/explore.ipynb", '{"cells": [{"source": ["import heads\\n"]}]}', False),
    ],
)
def test_a_file_beside_the_code_imports_it(tmp_path: Path, name: str, text: str, silent: bool) -> None:
    _write(tmp_path, {**_FILES, name: text})
    project = Project([SourceFile(path, str(tmp_path / path)) for path in _FILES])
    assert (not list(rule.check_project(project))) is silent


@pytest.mark.parametrize("told", [True, False])
def test_a_page_beside_the_code_names_a_key(tmp_path: Path, told: bool) -> None:
    code = 'def sample(texts):\n    return [{"sample_chosen": text} for text in texts]\n\n\n'
    (tmp_path / "train.py").write_text(f'{code}def train(dataset):\n    return dataset["chosen_sample"]\n')
    (tmp_path / "README.md").write_text(f"The column `chosen_sample{'' if told else 's'}` has the texts.\n")
    project = Project([SourceFile("train.py", str(tmp_path / "train.py"))])
    assert (not list(key_never_put.check_project(project))) is told


@pytest.mark.parametrize(
    ("name", "text", "silent"),
    [
        (".gitignore", "*.pyc\n/rl/gone.py\n", True),
        (".gitignore", "gone.txt\n", False),
        (".gitmodules", '[submodule "gone"]\n\tpath = rl/gone\n\turl = https://example.com/gone.git\n', True),
        (".gitmodules", '[submodule "gone"]\n\tpath = third_party/gone\n', False),
        ("README.md", "First: `cd rl && git clone https://example.com/gone.git`\n", True),
        ("README.md", "First: `cp ../llama/gone.py rl/gone.py`\n", True),
        ("README.md", "All of it is in `rl/gone.py`.\n", False),
        ("csrc/gone.cpp", "PYBIND11_MODULE(gone, m) {}\n", True),
        ("CMakeLists.txt", "pybind11_add_module(gone gone.cpp)\n", True),
    ],
)
def test_something_brings_a_module(tmp_path: Path, name: str, text: str, silent: bool) -> None:
    code = {"rl/__init__.py": "", "rl/core.py": "x = 1\n", "train.py": "from rl.core import x\nimport rl.gone\n"}
    _write(tmp_path, {**code, name: text})
    project = Project([SourceFile(path, str(tmp_path / path)) for path in code])
    assert (not list(missing_module.check_project(project))) is silent
