"""A process group in a variable that is kept and put back, and the rank in a group that callers pass."""

from validator.flow.queries.base import Queries
from validator.project import Project
from validator.source import SourceFile

PROGRAM = """
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh

_GROUP = None

def set_group(group):
    global _GROUP
    _GROUP = group

def get_group():
    return _GROUP

class Ring:
    def __init__(self, mesh):
        self.mesh = mesh

    def __enter__(self):
        self.before = get_group()
        set_group(self.mesh["sp"].get_group())

    def __exit__(self, *failure):
        set_group(self.before)

def rank_in(group=None):
    group = get_group() if group is None else group
    return dist.get_rank(group)

def main():
    with Ring(init_device_mesh("cuda", (2, 2), mesh_dim_names=("dp", "sp"))):
        return rank_in()
"""


def test_a_group_that_is_put_back_keeps_its_axis(tmp_path):
    path = tmp_path / "ring.py"
    path.write_text(PROGRAM)
    queries = Project([SourceFile("ring.py", str(path))]).analysis(Queries)
    kept = [call.val for call in queries.named("get_group") if call.receiver is None]
    assert kept
    assert not any(o[0] == "top" for val in kept for o in val.objs)
    (rank,) = queries.named("rank_in")
    assert {(c.kind, c.axis, c.sure) for c in rank.val.v} == {("rank", "cp", True)}
