"""What a helper sets on a namespace that programs pass: told whatever the number of programs, and through folders."""

import pytest

from validator.domains.spmd import only
from validator.flow.queries.base import Queries
from validator.project import Project
from validator.source import SourceFile

HELPER = """
import os

import torch.distributed as dist

def set_up(args):
    args.rank = int(os.environ["RANK"])
    dist.init_process_group("nccl")
"""

PROGRAM = """
import argparse

from tools.utils import ranks

def main(args):
    ranks.set_up(args)
    return is_first(args.rank)

if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--rank", type=int, default=0)
    main(parser.parse_args())
"""


@pytest.mark.parametrize("programs", [1, 12])
def test_a_rank_that_a_helper_sets_is_the_callers_too(tmp_path, programs):
    files = {f"train_{n}.py": PROGRAM for n in range(programs)} | {"tools/utils/ranks.py": HELPER}
    sources = []
    for name, text in files.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        sources.append(SourceFile(name, str(path)))
    asked = [call.argument("rank", 0) for call in Project(sources).analysis(Queries).named("is_first")]
    assert len(asked) == programs
    for rank in asked:
        assert rank is not None
        assert only(rank.closed.v, "rank")
