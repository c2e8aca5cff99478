"""How certain a divergence is: what a condition itself asks for counts more than what may come there from elsewhere."""

import pytest

from validator.effects.divergence import Divergences
from validator.project import Project
from validator.source import SourceFile

PROGRAM = """
import numpy
import torch.distributed as dist

class Rewriter:
    def __init__(self, path):
        self.path = path

    def rewrite(self):
        return numpy.load(f"{self.path}/{dist.get_rank()}.npy")

class Pipeline:
    def __init__(self, path):
        self.path, self.rewriter = path, Rewriter(path)

    def generate(self, out):
        text = MADE
        if text[0] == 0:
            return
        dist.all_reduce(out)

def main(out):
    Pipeline("parts").generate(out)
"""


@pytest.mark.parametrize(
    ("made", "severity"),
    [
        ("self.rewriter.rewrite()", "note"),
        ('numpy.load(f"{self.path}/{dist.get_rank()}.npy")', "warning"),
    ],
)
def test_what_an_object_of_the_project_gives_is_less_certain_than_what_a_library_does(tmp_path, made, severity):
    path = tmp_path / "pipeline.py"
    path.write_text(PROGRAM.replace("MADE", made))
    divergences = Project([SourceFile("pipeline.py", str(path))]).analysis(Divergences)
    assert [report.severity for report in divergences.reports("local")] == [severity]


GATHERING = """
import torch.distributed as dist
from deepspeed.zero import GatheredParameters
from transfer import make_group

class Sender:
    def __init__(self, model, args):
        self.model, self.args, self.group = model, args, None

    def setup(self):
        if dist.get_rank() == 0 and not self.args.single_process:
            self.group = make_group()
        dist.barrier()

    def send(self, whole):
        if TESTED:
            with GatheredParameters(self.model.parameters()):
                print(self.model)
            return
        if whole:
            with GatheredParameters(self.model.parameters()):
                print(self.group)
            return
        for parameter in self.model.parameters():
            with GatheredParameters([parameter]):
                print(self.group)
"""


@pytest.mark.parametrize(
    ("tested", "severity"),
    [("dist.get_rank() == 0", "warning"), ("self.group is None and dist.get_rank() == 0", "note")],
)
def test_that_ranks_lack_what_they_alone_have_is_less_certain(tmp_path, tested, severity):
    path = tmp_path / "sender.py"
    path.write_text(GATHERING.replace("TESTED", tested))
    divergences = Project([SourceFile("sender.py", str(path))]).analysis(Divergences)
    assert [report.severity for report in divergences.reports("rank")] == [severity]
