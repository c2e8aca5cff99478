"""A name imported from a module of the project that does not define it.

What it does
    Follows every import between the files of the project, those inside functions included, and reports a name
    that the module it is imported from neither defines, imports, nor has as a submodule. Silent: imports behind
    a handler for ImportError or under a condition that asks whether something is there, modules with a
    `__getattr__` or a star import from outside, generated and compiled modules (`setup.py` names these). A handler for
    *everything* does not excuse the import: it hides it. One finding per place and module.

Why is this bad
    ImportError. At the top of a file it ends the job at once; inside a function only the configuration that
    takes that branch finds it: with tensor parallelism on, in the worker of another engine, at the first save.

References
    https://docs.python.org/3/reference/simple_stmts.html#the-import-statement
"""

from __future__ import annotations

from collections.abc import Iterator

from validator.analysis.imports import Imports, Lost, scope_of
from validator.errors import nearest
from validator.finding import Finding, Related
from validator.project import Project
from validator.rule import Rule

RULE = Rule("MP201", "missing-name", "error", stable_since="0.1.0", tokens=("import",))


def check_project(project: Project) -> Iterator[Finding]:
    imports = project.analysis(Imports)
    groups: dict[tuple[str, str, str], dict[str, Lost]] = {}
    for lost in imports.lost:
        if lost.missing.name is not None:
            key = (lost.importer.path, lost.missing.module, lost.row.scope)
            groups.setdefault(key, {}).setdefault(lost.missing.name, lost)
    for group in groups.values():
        yield _report(imports, group)


def _report(imports: Imports, group: dict[str, Lost]) -> Finding:
    """One finding for all names that one place misses in one module."""
    name, lost = next(iter(group.items()))
    owner, row = lost.missing.owner, lost.row
    scope = scope_of(lost.importer, row)
    where = f", which `{scope.name}` imports" if scope is not None else ""
    hidden = "; the handler around the import hides the ImportError" if lost.hidden else ""
    names = " nor ".join(f"`{each}`" for each in group)
    related = [Related(owner.path, 1, f"`{owner.name}` has no `{name}`")] if owner is not None else []
    advice = []
    for each in group:
        home = imports.defined_in(each, lost.importer)
        if home is not None:
            place = home.functions.get(each) or home.classes.get(each)
            related.append(Related(home.path, place.facts.at[0] if place else 1, f"`{each}` is defined here"))
            advice.append(f"import `{each}` from `{home.name}`")
    if not advice:
        choices = [n for n in owner.facts.names if not n.startswith("__")] if owner is not None else []
        advice.append(f"define `{name}` there, or import what took its place{nearest(name, choices, 0.7)}")
    lacks = "defines neither" if len(group) > 1 else "does not define"
    return RULE.finding(
        lost.importer.path,
        row.at,
        f"`{lost.missing.module or row.module}` {lacks} {names}{where}{hidden}",
        help="; ".join(advice),
        related=related,
        context=f"{row.scope}:{lost.missing.module}:{','.join(group)}",
    )


INCORRECT = (
    """# file: rl/__init__.py
# file: rl/utils.py
def get_tokenizer(name):
    return name
# file: rl/train.py
from rl.utils import get_tokenizer


def main(tp_size):
    if tp_size > 1:
        from rl.utils import apply_tensor_parallel  # error: MP201

        apply_tensor_parallel()
    return get_tokenizer("x")
""",
    """# file: rl/__init__.py
# file: rl/fsdp/__init__.py
from .strategy import FSDP2Strategy
# file: rl/fsdp/strategy.py
class FSDP2Strategy:
    pass
# file: rl/factory.py
from rl.fsdp.strategy import FSDP2Strategy


def get_strategy():
    try:
        from rl.fsdp import FSDPStrategy  # error: MP201
    except Exception as error:
        raise RuntimeError("FSDP is not available") from error
    return FSDPStrategy()
""",
)

CORRECT = (
    # folders without an `__init__.py` beside the program, and another project's package of the same name
    """# file: chat/utils/data/__init__.py
# file: chat/utils/data/rows.py
from utils.utils import get_rank
# file: chat/utils/utils.py
def get_rank():
    return 0
# file: vision/training/utils/__init__.py
# file: vision/training/utils/utils.py
def get_model():
    return None
# file: vision/training/main.py
from utils.utils import get_model
# file: robots/planner.py
from utils.utils import plan
""",
    # beside a project that can be installed, another one with a package of the name of a library
    """# file: eval/kit/setup.py
from setuptools import setup

setup(name="kit")
# file: eval/kit/kit/__init__.py
# file: eval/kit/kit/rows.py
from datasets import load_dataset
# file: eval/questions/requirements.txt
torch
# file: eval/questions/datasets/__init__.py
def answers():
    return []
# file: eval/questions/main.py
from datasets import answers
""",
    """# file: tools/__init__.py
# file: tools/libraries.py
import importlib

for name in ("faiss", "h5py"):
    globals()[name] = importlib.import_module(name)
# file: tools/index.py
from tools.libraries import faiss
""",
    """# file: rl/__init__.py
# file: rl/kernels.py
import torch
# file: rl/model.py
try:
    from rl.kernels import fused_attention
except ImportError:
    fused_attention = None
""",
    """# file: rl/__init__.py
# file: rl/lazy.py
def __getattr__(name):
    return name
# file: rl/sub/__init__.py
# file: rl/sub/part.py
# file: rl/train.py
from rl.lazy import Anything
from rl.sub import part
from rl import sub
""",
    # a script of a package finds what lies beside it
    """# file: examples/__init__.py
# file: examples/other/utils/__init__.py
def scale(strategy):
    return strategy
# file: examples/other/train.py
from utils import scale
# file: examples/mine/__init__.py
# file: examples/mine/utils.py
def get_rank(strategy):
    return strategy.rank
# file: examples/mine/train.py
from utils import get_rank

if __name__ == "__main__":
    get_rank(None)
""",
)
