"""An import of a module that the project's package does not have.

What it does
    Reports an import, at any depth, of a module below a package of the project where no file, folder or
    compiled module of that name lies. One finding per module and function, and one
    for all that the top level of a file imports. The same guards as for `missing-name`
    silence it, and so do modules that builds generate (`_version`, `*_pb2`, extension modules of `setup.py`), that
    scripts or pages beside the code bring (`git clone`, `cp`), that code puts into `sys.modules`, that git ignores or
    has in a submodule, and relative imports in a folder that is no package where none of them finds anything: its files
    are for another one.
    A warning where the file may be meant for another place: a relative import leaves the outermost package, fails at
    the top of a package's `__init__`, which nobody could then import, or would find the module one folder higher.

Why is this bad
    ModuleNotFoundError, often only on the branch of one option: the module was moved or deleted, and an import
    inside a function went unnoticed.

References
    https://docs.python.org/3/reference/import.html
"""

from __future__ import annotations

from collections.abc import Iterator

from validator.analysis.imports import Imports, Lost, scope_of
from validator.finding import Finding
from validator.project import Project
from validator.rule import Rule

RULE = Rule("MP202", "missing-module", "error", stable_since="0.1.0", tokens=("import",))


def check_project(project: Project) -> Iterator[Finding]:
    imports = project.analysis(Imports)
    groups: dict[tuple[str, str], dict[str, list[Lost]]] = {}
    for lost in imports.lost:
        if lost.missing.name is None:
            # at the top level the first import that fails ends it; inside functions each module counts
            place = "<module>" if lost.row.scope == "<module>" and not lost.hidden else lost.missing.module
            groups.setdefault((lost.importer.path, place), {}).setdefault(lost.missing.module, []).append(lost)
    for group in groups.values():
        yield _report(imports, group)


def _report(imports: Imports, group: dict[str, list[Lost]]) -> Finding:
    module, rows = next(iter(group.items()))
    first = rows[0]
    names = list(dict.fromkeys(lost.row.name for lost in rows if lost.row.name))
    wanted = (
        f" (for {', '.join(f'`{n}`' for n in names[:3])}{' and others' if len(names) > 3 else ''})" if names else ""
    )
    others = [f"`{name}`" for name in group if name != module]
    more = f"; nor {', '.join(others)}" if others else ""
    scope = scope_of(first.importer, first.row)
    where = f", which `{scope.name}` imports" if scope is not None else ""
    hidden = "; the handler around the import hides the error" if first.hidden else ""
    home = imports.defined_in(names[0], first.importer) if names else None
    misplaced = imports.may_be_elsewhere(first)
    advice = (
        f"`{names[0]}` is defined in `{home.name}`"
        if home is not None
        else f"import a module that exists{imports.near_module(module)}"
    )
    return RULE.finding(
        first.importer.path,
        first.row.at,
        f"the project has no module `{module}`{wanted}{where}{hidden}{more}",
        help=advice,
        context=f"{first.row.scope}:{','.join(group)}",
        severity="warning" if misplaced else RULE.severity,
    )


INCORRECT = (
    """# file: rl/__init__.py
# file: rl/trainer/__init__.py
# file: rl/trainer/sampling.py
class SamplesGenerator:
    pass
# file: rl/trainer/ppo.py
from rl.trainer.sampling import SamplesGenerator


def make(agent):
    if agent:
        from rl.trainer.sampling_async import SamplesGeneratorAsync, Queue  # error: MP202

        return SamplesGeneratorAsync()
    from .samplers import SamplesGenerator  # error: MP202

    return SamplesGenerator()
""",
)

CORRECT = (
    # a folder beside the program bears the name of a package further up
    """# file: utils/__init__.py
# file: utils/rouge.py
# file: examples/scripts/utils/dedup.py
def deduplicate(rows):
    return set(rows)
# file: examples/scripts/dedup_all.py
from utils.dedup import deduplicate

print(deduplicate([1, 1]))
""",
    # files for the package of another project; a compiled module
    """# file: rl/__init__.py
# file: rl/nccl.py
from . import C
# file: windows/main.py
from .paths import library
from ..logger import logger
# file: rl/softmax.py
from rl.kernels import softmax_cuda
# file: setup.py
from setuptools import Extension, setup

modules = [Extension("rl.C", sources=["rl/c.cpp"]), Extension("rl.kernels.softmax_cuda", sources=["rl/kernels/s.cpp"])]
setup(name="rl", ext_modules=modules)
""",
    """# file: rl/__init__.py
from ._version import __version__
# file: rl/model.py
try:
    import rl.fast
except ModuleNotFoundError:
    pass
import torch.missing_thing
""",
    """# file: rl/__init__.py
# file: rl/sglang.py
from sglang.srt.utils import kill
""",
    """# file: rl/__init__.py
# file: examples/train.py
import rl
from packaging import version

def main():
    if version.parse(rl.__version__) < version.parse("0.2"):
        from rl.chunks import Manager

        return Manager()
    return None
""",
    # a test asks for the file; a package has a way of its own to find what is in it
    """# file: rl/__init__.py
import os.path

if os.path.isfile(os.path.join(os.path.dirname(__file__), "release.py")):
    from rl.release import release
from rl.core import strategy
# file: rl/core.py
strategy = 1
# file: rl/projects/__init__.py
import sys
from importlib.abc import MetaPathFinder


class Finder(MetaPathFinder): ...


sys.meta_path.append(Finder())
# file: rl/train.py
from rl.projects.deeplab import add_config
""",
    # brought before it is imported: by a script, by what builds the project, by code; looked up along several paths
    """# file: rl/__init__.py
# file: rl/core.py
strategy = 1
# file: rl/train.py
import json
import sys

from rl.build_info import version
from rl.core import strategy
from rl.mamba.model import Mamba
from rl.softmax_cuda import softmax

sys.modules["rl.fast"] = json
import rl.fast
# file: rl/plugins/__init__.py
from pkgutil import extend_path

__path__ = extend_path(__path__, __name__)
# file: eval.py
from rl.plugins.scores import score
# file: install.sh
git clone https://example.com/mamba.git rl/mamba
# file: pyproject.toml
[tool.setuptools_scm]
write_to = "rl/build_info.py"
# file: setup.py
from setuptools import setup
from torch.utils.cpp_extension import CUDAExtension


def extension(name, module, sources):
    return CUDAExtension(name=f"{module}.{name}", sources=sources)


setup(name="rl", ext_modules=[extension("softmax_cuda", "rl", ["csrc/softmax.cu"])])
""",
)
