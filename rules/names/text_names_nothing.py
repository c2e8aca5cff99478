"""A text that names something in a module of the project, which the module lacks.

What it does
    Reads dotted paths in texts (`"pkg.rollout.generate"`, also `"pkg.rollout:generate"`): constants of the source,
    values of YAML, JSON and TOML files, words of launch scripts. Reported is a path that leads to a module below a
    package of the project and ends in a name that the module, or a class in it whose members are all known, does not
    define. Silent in tests, about names of
    loggers and of modules that may have been there once (unless most texts beside it name functions or classes),
    about texts in the very module that they name (labels of what it does: for a profiler, a counter), in what Sphinx
    is configured with, and where the module defines names in ways of its own (`__getattr__`, `globals()`).

Why is this bad
    Who imports by the text (a registry, Hydra, a flag such as `--reward-fn pkg.rewards.score`) gets AttributeError or
    ImportError at run time. No search for uses of the old name finds it, and no type checker does.

References
    https://docs.python.org/3/library/importlib.html#importlib.import_module
"""

from __future__ import annotations

import posixpath
from collections.abc import Iterator

from validator.analysis.named import Named, is_path
from validator.definitions import Missing
from validator.errors import nearest
from validator.facts.config_files import Setting
from validator.facts.model import At
from validator.facts.script import Word, parts
from validator.finding import Finding, Related
from validator.flow import Flow
from validator.flow.program.unit import Unit
from validator.flow.queries.outside_program import is_test
from validator.project import ClassDef, Method, Module, Project
from validator.rule import Rule

RULE = Rule(
    "MP207", "text-names-nothing", "warning", stable_since="0.3.0",
    languages=("python", "yaml", "json", "toml", "shell"),
)  # fmt: skip

_NAMING = frozenset({"getLogger", "get_logger", "patch", "logger", "basicConfig", "warn"})
_PARTS = 3  # of a path: a package, a module in it, a name


def check_project(project: Project) -> Iterator[Finding]:
    named = project.analysis(Named)
    seen: set[tuple[str, At]] = set()
    beside = _beside_names(project, named)
    for path, at, text in _texts(project):
        dotted = text.replace(":", ".", 1)
        if dotted.count(".") < _PARTS - 1 or not is_path(dotted) or (path, at) in seen:
            continue
        symbol = named.of(dotted)
        if not isinstance(symbol, Missing) or symbol.owner is None:
            continue
        if "." not in dotted.removesuffix(f".{symbol.name}"):
            continue  # of a module at the top: a folder without `__init__.py` counts, whatever the module is called
        if symbol.owner.path == path:
            continue
        if symbol.owner.is_package and str(symbol.name).islower() and (path, at) not in beside:
            continue  # what a package lacks may be the former name of a module
        if dotted == f"{symbol.owner.name}.{symbol.name}" or dotted.endswith(f"{symbol.module}.{symbol.name}"):
            seen.add((path, at))
            yield _report(path, at, text, symbol)


def _beside_names(project: Project, named: Named) -> frozenset[tuple[str, At]]:
    """The values of configuration files that stand beside others which name functions or classes: so they do, too."""
    found: set[tuple[str, At]] = set()
    for source in project.files.values():
        settings = source.facts.extra.get("settings")
        sections: dict[tuple[str, ...], list[Setting]] = {}
        for each in settings.settings if settings is not None else ():
            if is_path(each.value):
                sections.setdefault(each.path[:-1], []).append(each)
        for rows in sections.values():
            if sum(isinstance(named.of(str(row.value)), Method | ClassDef) for row in rows) * 2 > len(rows) > 1:
                found.update((source.path, row.value_at) for row in rows)
    return frozenset(found)


def _report(path: str, at: At, text: str, symbol: Missing) -> Finding:
    assert symbol.owner is not None
    cls = symbol.owner.classes.get(symbol.module.removeprefix(f"{symbol.owner.name}."))
    names = sorted(name for name in (cls.methods if cls else symbol.owner.facts.names) if not name.startswith("_"))
    return RULE.finding(
        path,
        at,
        f"the text `{text}` names nothing: `{symbol.module if cls else symbol.owner.name}` defines no `{symbol.name}`",
        help=f"name what is there{nearest(str(symbol.name), names)}",
        related=[Related(symbol.owner.path, 1, "the module")],
        context=text,
    )


def _texts(project: Project) -> Iterator[tuple[str, At, str]]:
    """The texts of a project that may be dotted paths, with their places."""
    targets = project.analysis(Flow).models.targets
    tops = {module.name.partition(".")[0] for module in project.modules.values() if "." in module.name}
    for source in project.files.values():
        if is_test(source.path):
            continue
        settings, script = source.facts.extra.get("settings"), source.facts.extra.get("script")
        for each in settings.settings if settings is not None else ():
            if isinstance(each.value, str) and each.path[-1] not in targets:  # MP306 reads those
                yield source.path, each.value_at, each.value
        for word in (part for part in parts(script) if isinstance(part, Word)):
            text = word.pieces[0].value if len(word.pieces) == 1 and word.pieces[0].kind == "text" else ""
            yield source.path, word.at, text.rpartition("=")[2].strip("'\"")
    for module in project.modules.values():
        spelled = (f"{quote}{top}." in module.source.text for top in tops for quote in "'\"")
        if not is_test(module.path) and any(spelled) and not _is_of_sphinx(module):
            for unit in project.analysis(Flow).whole_units(module):
                for number, value in enumerate(unit.code.values):
                    said = value.data if value.op == "const" else None
                    if isinstance(said, str) and said.partition(".")[0] in tops and not _is_name_only(unit, number):
                        yield unit.path, unit.at(value.at), said


def _is_of_sphinx(module: Module) -> bool:
    """Whether a module is the configuration of Sphinx: its texts name what it is to leave out, or to pretend."""
    return posixpath.basename(module.path) == "conf.py" and "extensions" in module.facts.names


def _is_name_only(unit: Unit, number: int) -> bool:
    """Whether a text names a logger or the like, or is compared with: nothing is looked up by it."""
    values = unit.code.values
    for user in unit.users.get(number, ()):
        value = values[user]
        callee = values[value.args[0]] if value.op == "call" else value
        if value.op == "call" and callee.data in _NAMING or value.op == "compare":
            return True
    return False


_PACKAGE = """\
# file: rl/__init__.py
# file: rl/rollout.py
def generate(args):
    return args


class Worker:
    def start(self):
        return None
"""

INCORRECT = (
    _PACKAGE
    + """# file: train.py
WORKER = "rl.rollout.RolloutWorker"  # error: MP207
WORKERS = {"sft": "rl.rollout:SftWorker", "rl": "rl.rollout.Worker"}  # error: MP207
HANDLER = "rl.rollout:Worker.begin"  # error: MP207
# file: conf.yaml
rollout_function: rl.rollout.generate_rollout  # error: MP207
# file: run.sh
python train.py --rollout-function-path rl.rollout.rollout  # error: MP207
python train.py --rollout-function-path=rl.rollout.generate
""",
    """# file: losses/__init__.py
# file: losses/parts/__init__.py
from losses.parts.plain import LossOfParts as Loss
# file: losses/parts/plain.py
class LossOfParts:
    def __init__(self, weight):
        self.weight = weight
# file: conf/model.yaml
lossconfig:
  target: losses.parts.LossWithParts  # error: MP207
  params:
    weight: 0.5
""",
)

CORRECT = (
    _PACKAGE
    + """# file: train.py
import logging

LOGGER = logging.getLogger("rl.rollout.requests")
WORKER = "rl.rollout.Worker"
METHOD = "rl.rollout.Worker.start"
OTHER = "torch.nn.Linear"
FILE = "rl.rollout"
# file: docs/conf.py
extensions = ["sphinx.ext.autodoc"]
nitpick_ignore = [("py:class", "rl.rollout.RolloutBase")]
# file: rl/spans.py
from torch.profiler import record_function


def step(strategy):
    with record_function("rl.spans:forward_pass"):
        return strategy.step()
""",
    """# file: rl/__init__.py
# file: rl/lazy.py
def __getattr__(name):
    return name
# file: train.py
THING = "rl.lazy.Anything"
KEY = "model.layers.weight"
""",
)
