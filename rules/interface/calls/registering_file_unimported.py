"""A file that fills a table when it is imported, and that nothing imports.

What it does
    Looks at tables of the project that files fill as they are imported, by decorators or calls (`@register("linear")`,
    `HEADS.register("linear")`, `TABLE["linear"] = Linear`), and that other code asks for what stands under a name.
    Reported is a file with such lines that no import in the project names, where without it the table is empty; or
    where files beside it that fill the same table are imported, and code asks for a name that it alone puts there. It
    rests on nobody outside of the project importing the file, and so is a note in packages that can be installed.
    Silent where anything imports files by names that it computes, loads what a configuration names, or reads entry
    points, where a text or a file of the project names the file by a path, where functions or tests fill the table
    otherwise, where a notebook, a make file or a page beside the code imports it, a package lists the files that
    `import *` runs, and about files that are run by themselves.

Why is this bad
    The decorators never run: what asks for the name raises KeyError, or says that it knows no such thing. An import
    that is there only for what it does looks unused, and is easily taken away.

References
    https://docs.python.org/3/reference/import.html#loading
"""

from __future__ import annotations

from collections.abc import Iterator

from validator.analysis.registrations import Registration, Registrations, Table, registering
from validator.files.naming import is_installed
from validator.finding import Finding, Related
from validator.flow.queries.base import Place
from validator.project import Module, Project
from validator.rule import Rule

RULE = Rule("MP160", "registering-file-unimported", "warning", stable_since="1.0", solves=True)


def check_project(project: Project) -> Iterator[Finding]:
    registrations = project.analysis(Registrations)
    for table, rows in registrations.by_table.items():
        files = list(registering(rows))
        lost = [row for row in files if row[0] is not table.module and registrations.is_unimported(row[0])]
        asked = registrations.asked(table, {module for module, _ in lost}) if lost else None
        if asked is None:
            continue
        empty = len(lost) == len(files) and not registrations.is_written(table)
        for module, own in lost:
            others = [row for each, kept in files if (each, kept) not in lost for row in kept]
            if empty or _is_left_out(registrations, own, others):
                yield _report(table, module, own, asked, empty)


def _is_left_out(registrations: Registrations, own: list[Registration], others: list[Registration]) -> bool:
    """Whether code asks for what a file alone puts into a table that files beside it fill."""
    folder = own[0].module.name.rpartition(".")[0]
    beside = any(row.module.name.rpartition(".")[0] == folder for row in others)
    keys = frozenset().union(*(row.keys for row in own)) - frozenset().union(*(row.keys for row in others))
    return beside and registrations.is_named(keys, own[0].module)


def _report(table: Table, module: Module, own: list[Registration], asked: Place, empty: bool) -> Finding:
    keys = ", ".join(f"`{key}`" for key in sorted(frozenset().union(*(row.keys for row in own)))[:4])
    rest = "which is empty without it" if empty else "as files beside it do that are imported"
    return RULE.finding(
        module.path,
        own[0].at,
        f"nothing imports `{module.name}`, which puts {keys} into `{table.name}`, {rest}",
        help="import the file where the table is, or where it is asked",
        related=[Related(asked.unit.path, asked.at[0], f"`{table.name}` is asked for a name here")],
        context=f"{table.name}:{module.name}",
        severity="note" if is_installed(module.source.absolute) else "warning",
    )


_FILES = """\
# file: registry.py
class Registry:
    def __init__(self, kind):
        self.kind = kind
        self._items = {{}}

    def register(self, name):
        def keep(cls):
            self._items[name] = cls
            return cls

        return keep

    def build(self, name, **options):
        return self._items[name](**options)


HEADS = Registry("head")
LOSSES = Registry("loss")
# file: heads.py
from registry import HEADS


@HEADS.register("cosine"){mark}
class Cosine:
    def __init__(self, dim):
        self.dim = dim
# file: losses.py
from torch import nn

from registry import LOSSES

LOSSES.register("ce")(nn.CrossEntropyLoss)
# file: train.py
import losses
{more}from registry import HEADS, LOSSES


def main(args):
    return HEADS.build(args.head, dim=512), LOSSES.build(args.loss)


if __name__ == "__main__":
    main(None)
"""

_PACKAGE = """\
# file: algos/__init__.py
from algos import plain
from algos.table import find
# file: algos/table.py
ESTIMATORS = {{}}


def register(*names):
    def keep(function):
        for name in names:
            ESTIMATORS[name] = function
        return function

    return keep


def find(name):
    return ESTIMATORS[name]
# file: algos/plain.py
from algos.table import register


@register("gae")
def gae(rewards):
    return rewards
# file: algos/grouped.py
from algos.table import register


@register("grpo", "dr_grpo"){mark}
def grpo(rewards):
    return rewards - rewards.mean()
# file: train.py
import argparse

from algos import find


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--estimator", default="{default}")
    return find(parser.parse_args().estimator)
"""

_NESTED = """\
# file: registry.py
class Registry:
    def __init__(self):
        self.parts = {{}}

    def _keep(self, name, part):
        assert name not in self.parts
        self.parts[name] = part

    def register(self, part=None):
        if part is None:
            def keep(given):
                self._keep(given.__name__, given)
                return given

            return keep
        self._keep(part.__name__, part)

    def get(self, name):
        return self.parts.get(name)


BACKBONES = Registry()
# file: resnet.py
from registry import BACKBONES


@BACKBONES.register(){mark}
def build_resnet(config):
    return config
# file: train.py
from registry import BACKBONES


def build(config):
    return BACKBONES.get(config.name)(config)
"""

INCORRECT = (
    _FILES.format(more="", mark="  # error: MP160"),
    _PACKAGE.format(default="grpo", mark="  # error: MP160"),
    _NESTED.format(mark="  # error: MP160"),
)

CORRECT = (
    _FILES.format(more="import heads\n", mark=""),
    # entry points name it
    _NESTED.format(mark="") + "# file: setup.py\nENTRIES = ['resnet = zoo.resnet:build_resnet']\n",
    # whoever is named is imported; a text names the file
    _FILES.format(more="import importlib, os\nimportlib.import_module(os.environ['PLUGIN'])\n", mark=""),
    _FILES.format(more="PLUGINS = ['extra/heads']\n", mark=""),
    # one that is there, and that nobody chooses
    _PACKAGE.format(default="gae", mark=""),
    _PACKAGE.format(default="grpo", mark="").replace("import plain", "import grouped, plain"),
    # a function fills the table, too
    _FILES.format(more="", mark="").replace("def main(args):", "def main(args):\n    HEADS.register('mine')(args.cls)"),
    # a script, a configuration, or a package that lists its own files imports it
    _FILES.format(more="", mark="") + "# file: run.sh\npython -c 'from heads import Cosine; import train'\n",
    _FILES.format(more="", mark="") + "# file: base.py\ncustom_imports = dict(imports=['heads'])\n",
    _FILES.format(more="", mark="") + "# file: base.yaml\nimports:\n  - losses\n  - heads\n",
    _PACKAGE.format(default="grpo", mark="").replace(
        "from algos import plain\n",
        "import os\n\n"
        "__all__ = [name[:-3] for name in os.listdir(os.path.dirname(__file__)) if name.endswith('.py')]\n"
        "from algos import *\n",
    ),
    _NESTED.format(mark="") + "# file: setup.py\nsetup(entry_points={'zoo': ['resnet = resnet']})\n",
)
