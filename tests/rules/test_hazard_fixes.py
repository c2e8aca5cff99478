"""The safe fixes of the hazards: applied once, nothing of the kind is left, and the rest of the file is untouched."""

from __future__ import annotations

from pathlib import Path

import pytest

from validator.cli import main

CASES = [
    (
        "MP520",
        "import torch.distributed as dist\n\n\ndef step(model, batch):\n    if dist.get_rank() == 0:\n"
        "        breakpoint()  # look\n    dist.barrier()\n    return model(batch)\n",
        "import torch.distributed as dist\n\n\ndef step(model, batch):\n    if dist.get_rank() == 0:\n"
        "        pass  # look\n    dist.barrier()\n    return model(batch)\n",
    ),
    (
        "MP802",
        "import torch\n\n\ndef load(path):\n    return torch.load(\n        path,\n        mmap=True,\n    )\n",
        "weights_only=True",
    ),
    (
        "MP803",
        "import yaml\n\n\ndef read(file):\n    return yaml.load(file)  # trusted\n",
        "import yaml\n\n\ndef read(file):\n    return yaml.safe_load(file)  # trusted\n",
    ),
]


@pytest.mark.parametrize(("code", "before", "after"), CASES, ids=[code for code, _, _ in CASES])
def test_a_fix_leaves_nothing_to_report(code: str, before: str, after: str, tmp_path: Path) -> None:
    file = tmp_path / "module.py"
    file.write_text(before)
    arguments = ["--isolated", "--no-cache", "--select", code, str(tmp_path)]

    assert main(arguments) == 1
    main([*arguments, "--fix"])

    assert main(arguments) == 0
    assert after in file.read_text()


def test_an_answer_that_is_used_is_not_removed(tmp_path: Path) -> None:
    text = (
        "import torch.distributed as dist\n\n\ndef choose(prompt):\n"
        "    answer = input(prompt)\n    dist.barrier()\n    return answer\n"
    )
    (tmp_path / "module.py").write_text(text)

    assert main(["--isolated", "--no-cache", "--select", "MP520", "--fix", str(tmp_path)]) == 1

    assert (tmp_path / "module.py").read_text() == text
