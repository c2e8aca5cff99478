"""A name that no release of a library has in the module that is asked for it.

What it does
    Holds imports from modules of libraries (`from torch.optim import AdamWW`), and what is asked of them
    (`torch.arrange(3)`), against the public names that these modules have in any release: of torch from 1.13 on, and of
    several releases of transformers, trl, accelerate, peft, datasets, deepspeed and pytorch_lightning. An error where
    all releases between the first and the last were read, and those that the requirements beside the code admit are
    among them; else a warning. Silent where the error is caught or was before
    (`except AttributeError:`), the name or the release asked for first, or where some code sets the name; for private
    names, what packages for devices add (`torch.npu`), and modules that may have any name.

Why is this bad
    ImportError or AttributeError, when the line runs: after hours where it is behind the first checkpoint.

References
    https://docs.pytorch.org/docs/stable/pytorch-api.html
"""

from __future__ import annotations

from collections.abc import Iterator

from validator.analysis.library_names import Lacking, LibraryNames
from validator.errors import nearest
from validator.finding import Finding, Related
from validator.project import Project
from validator.rule import Rule

RULE = Rule("MP209", "library-lacks-name", "error", "1.0", tokens=("import",), solves=True)


def check_project(project: Project) -> Iterator[Finding]:
    groups: dict[tuple[str, str, str], list[Lacking]] = {}
    for each in LibraryNames(project).lacking():
        groups.setdefault((each.importer.path, each.module, each.name), []).append(each)
    yield from map(_report, groups.values())


def _report(group: list[Lacking]) -> Finding:
    """One finding for all places of a file."""
    lost, *others = group
    releases = [".".join(map(str, each)) for each in lost.names.releases]
    span = f"{releases[0]} to {releases[-1]}" if lost.names.is_gapless else ", ".join(releases)
    choices = lost.names.like(lost.module, lost.name)
    return RULE.finding(
        lost.importer.path,
        lost.at,
        f"`{lost.module}` has no `{lost.name}`, which is asked for as `{lost.text}`{lost.where}: none of its releases "
        f"{span} has it",
        severity=lost.severity,
        help=f"ask for what is there{nearest(lost.name, choices, 0.8)}",
        related=[Related(each.importer.path, each.at[0], "asked for here, too") for each in others[:3]],
        context=f"{lost.module}:{lost.name}",
    )


INCORRECT = (
    """import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.optim import AdamWW  # error: MP209


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = nn.LayerNorms(8)  # error: MP209

    def forward(self, x, y):
        return F.cross_entropie(self.norm(x), y)  # error: MP209


def main():
    rank = dist.get_rank() % dist.get_worldsize()  # error: MP209
    return torch.arrange(rank)  # error: MP209
""",
    # modules that are not there; of other libraries not every release was read
    """import torch.distributed.fsdq  # error: MP209
from accelerate.utils import gather_objects  # error: MP209
from torch.nn.functionals import relu  # error: MP209
from transformers import AutoModelForCasualLM  # error: MP209
""",
    # a release that is not read may have it
    """# file: requirements.txt
torch>=9.1
# file: train.py
import torch

x = torch.arrange(3)  # error: MP209
""",
)

CORRECT = (
    """import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
from transformers import AutoModelForCausalLM, LlamaForCausalLM

x = torch.arange(3, dtype=torch.bfloat16)
y = torch.ops.project.scale(x)
z = torch.classes.project.Scaler()
""",
    # asked for first, or the error is caught
    """import torch
import torch.distributed as dist
from packaging import version

try:
    from torch.optim import Lion
except ImportError:
    Lion = None

try:
    world = dist.get_worldsize()
except AttributeError:
    world = 1

try:
    check = torch._assert
except AttributeError:
    check = torch.Assert

if hasattr(torch, "arrange"):
    x = torch.arrange(3)
if version.parse(torch.__version__) >= version.parse("9.0"):
    from torch.optim import Muons

    y = torch.sorting(x)
""",
    # what the project sets, and what packages for devices add
    """import torch


def arrange(number):
    return torch.arange(number)


torch.arrange = arrange
setattr(torch, "ranges", arrange)
x = torch.arrange(3), torch.ranges(3)
if torch.npu.is_available():
    y = torch.npu_format_cast(x, 2)
""",
    # another object of the same name, and a folder of the library's name
    """# file: trl/__init__.py
# file: trl/extra.py
def tune():
    return 1
# file: train.py
import torch
from trl import extra


def train(torch):
    return torch.arrange(3), extra.tune()
""",
    # only releases that were not read
    """# file: requirements.txt
torch==1.7.1
# file: train.py
import torch

x = torch.rfft(torch.zeros(3), 1)
""",
)
