"""A method that is asked for by a text, through a function that passes calls on, and that is nowhere.

What it does
    Finds functions that call a method by the name that they are given (`getattr(engine, method_name)(…)`, of actors
    too), and looks at the texts which their callers pass, also those who call a method by a name that no other class
    and no library has on an object of which nothing is known (then a warning at most). Reported is a name that none of
    the objects which come there can have; where the objects are not all known, one that nothing in the project has and
    that is no name of a known library, as a warning where they are actors, or some are known, else as a note. Also a
    name that is put together (`getattr(self, f"_reward_{name}")`), where no object that may be there has a method, or
    anything else, whose name begins and ends so; and one that a library is to run on its workers
    (`llm.collective_rpc("save")`), where all texts that name classes for these (`worker_extension_cls="rl.Worker"`)
    name classes of the project without it (a warning: what the library's own workers have is a table). Silent where
    `getattr` has a default, or `hasattr` or an `except` is around it.

Why is this bad
    It raises AttributeError in another process, long after the start; no search for calls finds the text.

References
    https://docs.python.org/3/library/functions.html#getattr
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from validator.analysis.interfaces.members import Members
from validator.analysis.named_workers import NamedWorkers
from validator.definitions import ClassDef
from validator.errors import nearest
from validator.finding import Finding, Related, Severity
from validator.flow.callgraph.dispatch import Dispatched, Dispatches
from validator.flow.objects import Held, Objects
from validator.flow.queries.base import Place, Queries
from validator.models.members import is_telling
from validator.project import Project
from validator.rule import Rule

RULE = Rule("MP134", "dispatched-name-missing", "error", stable_since="0.3.0", solves=True)

_SHOWN = 3  # of the classes that lack a name
_LETTERS = 3  # so many letters of a name that is put together tell it from others


def check_project(project: Project) -> Iterator[Finding]:
    yield from _put_together(project)
    yield from _on_workers(project)
    objects = project.analysis(Objects)
    for each in project.analysis(Dispatches).by_program:
        if any(o[0] in ("ext", "made") for o in each.asking.operand(1).closed.objs):
            continue  # a library's
        held = objects.held(each.asking.operand(1))
        if (severity := _is_missing(project, held, each.name)) is not None:
            if severity == "warning" and not held.classes and not _is_of_actor(each.asking):
                severity = "note"  # an object of whom nothing is known: only the name speaks
            if severity == "error" and each.guessed:
                severity = "warning"
            yield _report(project, held, each.asking, each.text, severity)


def _on_workers(project: Project) -> Iterator[Finding]:
    """What a library is to run on workers that do not have it."""
    workers = project.analysis(NamedWorkers)
    for each in project.analysis(Dispatches).all:
        if classes := workers.lacks(each.workers, each.name):
            yield _report_worker(each, classes)


def _report_worker(each: Dispatched, classes: frozenset[ClassDef]) -> Finding:
    names = sorted({method for cls in classes for method in cls.methods})
    return RULE.finding(
        each.text.unit.path,
        each.text.at,
        f"{_listed(classes)} has no method `{each.name}`, which `{each.text.unit.qualname}` has run on the workers"
        f" through `{each.asking.method}`",
        help=f"use the name of a method that is there{nearest(each.name, names)}",
        related=[Related(cls.path, cls.facts.at[0], "the class of the workers") for cls in _first(classes)],
        context=f"{each.text.unit.qualname}:{each.name}",
        severity="warning",
    )


def _first(classes: Iterable[ClassDef]) -> list[ClassDef]:
    return sorted(classes, key=lambda cls: cls.name)[:_SHOWN]


def _listed(classes: Iterable[ClassDef]) -> str:
    return " nor ".join(f"`{cls.name}`" for cls in _first(classes))


def _put_together(project: Project) -> Iterator[Finding]:
    """Names of which a part is known that no member has: whatever the rest is, nothing is there."""
    objects, members, queries = project.analysis(Objects), project.analysis(Members), project.analysis(Queries)
    stored = [_known_ends(each.operand(2)) for each in queries.named_anywhere("setattr") if len(each.value.args) > 2]
    for asking in queries.called_in_program(frozenset({"getattr"})):
        if len(asking.value.args) != 3 or asking.operand(0).val.objs != {("ext", "getattr")}:
            continue
        start, end = _known_ends(asking.operand(2))
        if len((start + end).strip("_")) < _LETTERS or asking.may_lack("hasattr"):
            continue
        if any((start.startswith(first) or first.startswith(start)) and last in ("", end) for first, last in stored):
            continue
        held = objects.held(asking.operand(1))
        classes = {each for cls in held.classes for each in (cls, *cls.descendants())}
        if classes.isdisjoint(members.made):
            continue  # what is below it is not shown
        names = {name for cls in classes for name in cls.attributes}
        formed = any(name.startswith(start) and name.endswith(end) for name in names)
        if held.complete and not formed and all(members.lacks(cls, f"{start}x{end}") for cls in held.classes):
            yield _report_put_together(asking, held, start, end)


def _known_ends(text: Place) -> tuple[str, str]:
    """How a text begins and ends that is put together of known parts and others; empty where all, or none, is known."""
    root = text.root
    if root.value.op != "join" and (root.value.op, root.value.data) != ("binary", "Add"):
        return "", ""
    parts = [root.operand(n).closed.constant() for n in range(len(root.value.args))]
    if all(isinstance(part, str) for part in parts):
        return "", ""
    first, last = parts[0], parts[-1]
    return first if isinstance(first, str) else "", last if isinstance(last, str) else ""


def _report_put_together(asking: Place, held: Held, start: str, end: str) -> Finding:
    form = f"{start}…{end}"
    return RULE.finding(
        asking.unit.path,
        asking.at,
        f"{_listed(held.classes)} has nothing of the name `{form}`, which `{asking.unit.qualname}` asks for",
        help="use the beginning that the names of the methods have",
        context=f"{asking.unit.qualname}:{form}",
    )


def _is_of_actor(asking: Place) -> bool:
    """Whether the method is called in another process: on an actor, whose class the project has."""
    return any(user.value.op == "attr" and user.value.data == "remote" for user in asking.users)


def _is_missing(project: Project, held: Held, name: str) -> Severity | None:
    """How sure it is that nothing there has a name."""
    members = project.analysis(Members)
    if held.complete:
        return RULE.severity if all(members.lacks(cls, name) for cls in held.classes) else None
    if any(name in cls.attributes for cls in held.classes) or members.is_given_outside(name):
        return None
    return "warning" if is_telling(name) and name not in project.given else None


def _report(project: Project, held: Held, asking: Place, text: Place, severity: Severity) -> Finding:
    name = str(text.root.value.data)
    names = sorted({method for cls in held.classes or project.classes() for method in cls.methods})
    subject = f"{_listed(held.classes)} has no method" if held.complete else "nothing in the project has a method"
    return RULE.finding(
        text.unit.path,
        text.at,
        f"{subject} `{name}`, which `{text.unit.qualname}` asks for through `{asking.unit.name}`",
        help=f"use the name of a method that is there{nearest(name, names)}",
        related=[Related(asking.unit.path, asking.at[0], "the method is asked for by its name here")],
        context=f"{text.unit.qualname}:{name}",
        severity=severity,
    )


_ENGINES = """\
import ray


@ray.remote
class Rollout:
    def {name}(self):
        return None

    def wake_up(self, tags=None):
        return tags


def call_all(engines, method_name, *args, **kwargs):
    return [getattr(engine, method_name).remote(*args, **kwargs) for engine in engines]


def train(strategy, engines{given}):
    call_all(engines, "wake_up", tags=["weights"])
    call_all(engines, "pause_generation"){mark}
"""

_SCORER = """\
class Scorer:
    PREFIX = "{prefix}"

    def __init__(self, weights, tokenizer):
        self.tokenizer = tokenizer
        self.terms = [(getattr(self, self.PREFIX + name{default}), w) for name, w in weights.items()]{mark}
        self.names = [getattr(self, f"_score_{{name}}") for name in weights]

    def _score_format(self, text):
        return float(text.endswith("</answer>"))


def build(strategy, tokenizer):
    return Scorer(strategy.weights, tokenizer)
"""

_GIVEN = """\
import ray


@ray.remote
class Worker:
    def gather_all_rewards(self, batch):
        return batch


class Group:
    def __init__(self, worker_cls, count):
        self.workers = [worker_cls.remote() for _ in range(count)]

    def run_on_workers(self, name, *args):
        return ray.get([getattr(worker, name).remote(*args) for worker in self.workers])


class Trainer:
    def __init__(self, group):
        self.group = group

    def step(self, batch):
        return self.group.run_on_workers("{method}", batch){mark}
"""

_WORKERS = """\
# file: rl/__init__.py
# file: rl/worker.py
class WorkerExtension:
    def update_weight(self, name, dtype):
        return name, dtype
# file: rl/engine.py
import ray
import torch.distributed as dist
import vllm


@ray.remote
class Engine:
    def __init__(self, worker_cls, **options):
        options["worker_extension_cls"] = {cls}
        self.llm = vllm.LLM(**options)
        self.rank = dist.get_rank()

    async def update_weights(self, name, dtype):
        await self.llm.collective_rpc("sleep")
        return await self.llm.collective_rpc("{name}", args=(name, dtype)){mark}

    async def {own}(self):
        return await self.llm.collective_rpc(lambda worker: worker.rank)
"""
_NAMED_WORKER = '"rl.worker.WorkerExtension"'

INCORRECT = (
    _SCORER.format(prefix="_reward_", default="", mark="  # error: MP134"),
    _ENGINES.format(name="pause_requests", given="", mark="  # error: MP134"),
    """\
class Worker:
    def update(self, strategy, batch):
        return batch


class Group:
    def __init__(self, strategy, count):
        self.workers = [Worker() for _ in range(count)]

    def run(self, name, *args):
        return [getattr(worker, name)(*args) for worker in self.workers]


def main(strategy, batch):
    group = Group(strategy, 2)
    group.run("update", strategy, batch)
    return group.run("offload")  # error: MP134
""",
    # through an object that the trainer is given, by a name that only one class has
    _GIVEN.format(method="gather_rewards", mark="  # error: MP134"),
    # a method of the engine, which the workers do not have
    _WORKERS.format(cls=_NAMED_WORKER, name="update_layer", own="update_layer", mark="  # error: MP134"),
)

CORRECT = (
    _SCORER.format(prefix="_score_", default="", mark=""),
    _SCORER.format(prefix="_reward_", default=", None", mark=""),
    # somebody sets what has no name here
    _SCORER.format(prefix="_reward_", default="", mark="")
    + """

def extend(scorer, name, function):
    setattr(scorer, f"_reward_{name}", function)
""",
    _ENGINES.format(name="pause_generation", given="", mark=""),
    _GIVEN.format(method="gather_all_rewards", mark=""),
    # a default, a test; nobody's name
    """\
class Worker:
    def update(self, strategy, batch):
        return batch


def run(worker, name, *args):
    method = getattr(worker, name, None)
    return method(*args) if method is not None else None


def run_if_there(worker, name):
    if hasattr(worker, name):
        return getattr(worker, name)()
    return None


def read(module, name):
    return getattr(module, name)


def main(strategy, batch, model):
    run(Worker(), "finish_all", strategy)
    run_if_there(Worker(), "offload_all")
    return read(model, "hidden_sizes")
""",
    # what a library has
    """\
from optimum.onnxruntime import AutoQuantizationConfig


def quantize(model, name):
    return getattr(AutoQuantizationConfig, name)(is_static=False)


def main(strategy, model):
    return quantize(model, "avx512_vnni_static")
""",
    # a class that a call makes, with a method more
    """\
class Worker:
    def wake_up(self):
        return 1


def measured():
    return type(f"Measured{Worker.__name__}", (Worker,), {"measure_updates": lambda self: 2})


def run(worker: Worker, name):
    return getattr(worker, name)()


def main(strategy):
    run(Worker(), "wake_up")
    run(measured()(), "measure_updates")
""",
    # a method of the workers; those of workers that are not known
    _WORKERS.format(cls=_NAMED_WORKER, name="update_weight", own="update_layer", mark=""),
    _WORKERS.format(cls="worker_cls", name="update_layer", own="update_layer", mark=""),
)
