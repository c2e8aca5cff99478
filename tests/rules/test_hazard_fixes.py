"""Fixes of rules: applied once, nothing of the kind is left, and the rest of the file is untouched."""

from __future__ import annotations

from pathlib import Path

import pytest

from validator.cli import main

HEAD = "import torch.distributed as dist\n\n\ndef save(model, path, write):\n"
TAIL = "    return path\n"

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
        "import torch\nfrom huggingface_hub import hf_hub_download\n\n\ndef load(name):\n    return torch.load(\n"
        "        hf_hub_download(name, 'a.pt'),\n        mmap=True,\n    )\n",
        "weights_only=True",
    ),
    (
        "MP803",
        "import yaml\n\n\ndef read(file):\n    return yaml.load(file)  # trusted\n",
        "import yaml\n\n\ndef read(file):\n    return yaml.safe_load(file)  # trusted\n",
    ),
]


BARRIERS_THAT_STAY = {
    "in the middle": "    if dist.get_rank() == 0:\n        write()\n        dist.barrier()\n        write(1)\n",
    "under more than the rank": "    if model and dist.get_rank() == 0:\n        dist.barrier()\n",
    "behind an elif": "    if not model:\n        pass\n    elif dist.get_rank() == 0:\n        dist.barrier()\n",
    "of a group": "    tp = model.tp_group\n    if dist.get_rank(tp) == 0:\n        dist.barrier(tp)\n",
    "in a line with others": "    if dist.get_rank() == 0:\n        write(model); dist.barrier()\n",
    "after a return": "    if dist.get_rank() == 0:\n        if path:\n            return\n        dist.barrier()\n",
}


@pytest.mark.parametrize("body", BARRIERS_THAT_STAY.values(), ids=BARRIERS_THAT_STAY)
def test_a_barrier_stays_where_lifting_it_could_mean_something_else(body: str, tmp_path: Path) -> None:
    (tmp_path / "module.py").write_text(HEAD + body + TAIL)
    arguments = ["--isolated", "--no-cache", "--select", "MP501", str(tmp_path)]

    assert main(arguments) == 1
    assert main([*arguments, "--fix"]) == 1

    assert (tmp_path / "module.py").read_text() == HEAD + body + TAIL


@pytest.mark.parametrize(
    ("code", "before", "after"), CASES, ids=[f"{code}-{n}" for n, (code, _, _) in enumerate(CASES)]
)
def test_a_fix_leaves_nothing_to_report(code: str, before: str, after: str, tmp_path: Path) -> None:
    file = tmp_path / "module.py"
    file.write_text(before)
    arguments = ["--isolated", "--no-cache", "--select", code, str(tmp_path)]

    assert main(arguments) == 1
    main([*arguments, "--fix", "--unsafe-fixes"])

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


FAMILY = """\
class DDP:
    def save(self, model, label=None, path="x"):
        return model, label, path


class FSDP:
    def save(self, model, label=None, {parameter}=1):
        return model, label


def get_strategy(args):
    return DDP() if args.ddp else FSDP()


def main(args):
    return get_strategy(args).save(None, {keyword}="last")
"""


@pytest.mark.parametrize(
    ("parameter", "keyword", "says", "written"),
    [
        ("other", "labels", "write `label=` for `labels=`", "label"),  # both siblings have it, and it is not passed
        ("other", "paths", "drop `paths`, or add the parameter", "paths"),  # one of them has what is spelled like it
        ("labelled", "path", "give `FSDP.save` the parameters of `DDP.save`", "path"),  # the siblings are what differs
    ],
)
def test_a_keyword_that_no_sibling_takes_gets_the_name_that_all_have(
    parameter: str, keyword: str, says: str, written: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "module.py"
    file.write_text(FAMILY.format(parameter=parameter, keyword=keyword))
    arguments = ["--isolated", "--no-cache", "--select", "MP103", str(tmp_path)]

    assert main(arguments) == 1
    assert says in capsys.readouterr().out
    assert main([*arguments, "--fix", "--unsafe-fixes"]) == (written == keyword)

    assert file.read_text() == FAMILY.format(parameter=parameter, keyword=written)
