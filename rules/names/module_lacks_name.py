"""A name that is asked of a module of the project which does not define it.

What it does
    Follows modules that come by an import (`import util.misc as utils`, `from . import misc`) to where something of
    them is used, and reports a name that the module neither defines, imports, nor has as a submodule:
    `utils.reduce_dict(loss)`. Silent where the error is caught or the name asked for first, where some code sets that
    name on a module, and for modules with a `__getattr__`, a star import from outside, and generated ones.

Why is this bad
    AttributeError, when the line runs: somebody renamed or moved a function and looked for it by its imports alone.

References
    https://docs.python.org/3/reference/datamodel.html#modules
"""

from __future__ import annotations

from collections.abc import Iterator

from validator.analysis.imports import Imports
from validator.analysis.module_attributes import Asked, lacking
from validator.errors import nearest
from validator.finding import Finding, Related
from validator.project import Project
from validator.rule import Rule

RULE = Rule("MP208", "module-lacks-name", "error", "1.0", tokens=("import",), solves=True)


def check_project(project: Project) -> Iterator[Finding]:
    groups: dict[tuple[str, str, str | None], list[Asked]] = {}
    for asked in lacking(project):
        key = (asked.place.unit.path, asked.missing.module, asked.missing.name)
        groups.setdefault(key, []).append(asked)
    for group in groups.values():
        yield _report(project.analysis(Imports), group)


def _report(imports: Imports, group: list[Asked]) -> Finding:
    """One finding for all places of a file."""
    (place, missing), *others = group
    owner, name = missing.owner, missing.name or ""
    home = imports.defined_in(name, place.unit.module)
    choices = [each for each in owner.facts.names if not each.startswith("__")] if owner is not None else []
    related = [Related(owner.path, 1, f"`{owner.name}` has no `{name}`")] if owner is not None else []
    related += [Related(each.place.unit.path, each.place.at[0], "asked for here, too") for each in others[:3]]
    return RULE.finding(
        place.unit.path,
        place.at,
        f"`{missing.module}` has no `{name}`, which is asked for as `{place.text}`{place.where}",
        help=f"take it from `{home.name}`" if home is not None else f"ask for what is there{nearest(name, choices)}",
        related=related,
        context=f"{place.unit.qualname}:{missing.module}:{name}",
    )


INCORRECT = (
    """# file: util/__init__.py
# file: util/misc.py
import torch.distributed as dist


def reduce_all(losses):
    for loss in losses.values():
        dist.all_reduce(loss)
# file: engine.py
import util.misc as utils
from util import misc


def train(losses):
    utils.reduce_dict(losses)  # error: MP208


def test(losses):
    misc.reduce_all(losses)
    return misc.average  # error: MP208


class Trainer:
    def __init__(self):
        self.tools = misc

    def step(self, losses):
        self.tools.reduce(losses)  # error: MP208


if __name__ == "__main__":
    train({})
    test({})
    Trainer().step({})
""",
)

CORRECT = (
    # a submodule, a name that is set from outside, one that is asked for first, a module that gives any
    """# file: util/__init__.py
# file: util/misc.py
import torch.distributed as dist
# file: util/logs.py
def write(text):
    print(text)
# file: util/lazy.py
def __getattr__(name):
    return name
# file: engine.py
import util
import util.logs
from util import lazy, misc

misc.step = 0


def train(losses):
    util.logs.write(misc.step)
    print(util.misc.dist, lazy.anything)
    if hasattr(misc, "reduce"):
        misc.reduce(losses)
    try:
        misc.flush()
    except AttributeError:
        pass


if __name__ == "__main__":
    train({})
""",
    # a file of the name of a library's module, which it uses itself
    """# file: tools/logging.py
import logging


def level():
    return logging.getLogger().level
# file: tools/train.py
if __name__ == "__main__":
    print(1)
""",
    # a file of the name of a module of Python, in a folder in which nothing is started
    """# file: util/logging.py
def master_print(text):
    print(text)
# file: util/decoder/loader.py
import logging

logger = logging.getLogger(__name__)
# file: main.py
if __name__ == "__main__":
    import util.decoder.loader
""",
    # the same beside a file that runs where it is, but only as a part of its package
    """# file: models/__init__.py
# file: models/logging.py
def master_print(text):
    print(text)
# file: models/parts.py
SIZE = 1
# file: models/decoder.py
import logging

logger = logging.getLogger(__name__)
# file: models/encoder.py
from .parts import SIZE

if __name__ == "__main__":
    print(SIZE)
# file: main.py
if __name__ == "__main__":
    import models.decoder
""",
    # a file of a package, of the name of a library that a test imports
    """# file: tools/__init__.py
# file: tools/pytest.py
def run():
    return 0
# file: tests/conftest.py
import sys

import pytest

sys.path.append("..")


@pytest.fixture
def seed():
    return 0
""",
    # a package of the name of a library that its own files import, beside a program that does not reach them
    """# file: datasets/__init__.py
# file: datasets/simulator/__init__.py
# file: datasets/simulator/views.py
import simulator

UP = simulator.geo.UP
# file: datasets/pairs.py
if __name__ == "__main__":
    print(1)
# file: main.py
from datasets.simulator.views import UP

if __name__ == "__main__":
    print(UP)
""",
    # another object of the same name
    """# file: utils.py
def write(text):
    print(text)
# file: engine.py
import utils


def train(utils):
    utils.reduce(1)


class Tools:
    def reduce(self, value):
        return value


if __name__ == "__main__":
    utils.write("begin")
    train(Tools())
""",
    # which module was imported is told by what was set beside the import
    """# file: infer/__init__.py
import sys

if sys.argv[1] == "old":
    mode = "old"
    from . import old as state
else:
    mode = "new"
    from . import new as state
# file: infer/old.py
def reset():
    return 0
# file: infer/new.py
def reset(size):
    return size


def begin(size):
    return size
# file: train.py
from infer import mode, state

if __name__ == "__main__":
    if mode == "new":
        print(state.begin(1))
""",
    # a folder of a package, without an `__init__.py` of its own, that has a program beside the file
    """# file: rl/__init__.py
# file: rl/utils/logging.py
import sys

logger = sys.stderr
# file: rl/utils/merging.py
def main():
    print("merged")


if __name__ == "__main__":
    main()
# file: rl/utils/names.py
import logging


def clean(name):
    logging.getLogger("rl").info(name)
    return name
# file: rl/train.py
from rl.utils.logging import logger
from rl.utils.names import clean

logger.write(clean("run"))
""",
    # a folder that shares its name with an installed package, whose modules are imported by their full names
    """# file: examples/airline/train.py
from examples.airline.tools import cost

print(cost("a"))
# file: examples/airline/tools.py
import airline.tools.models
from airline.data import tasks


def cost(name):
    return airline.tools.models.parse(name), tasks
""",
)
