"""A step of an operation that its siblings or its contract perform, and this class never does.

What it does
    Looks at everything that an operation of a family member may run: itself, the methods of its object that it
    calls, and the functions of the project below. Reports a member whose `optimizer_step` steps no optimizer, whose
    `save_ckpt` stores no state of optimizer or scheduler, or whatever the contract that fits the family declares;
    and a method that siblings call from an operation, that this class defines too, and that nothing ever calls here
    (unless it does nothing here: `unwrap` that returns the model as it is). The same holds of a function that keeps
    what it is given in its module (`setup_ring(group)`), where code outside the family reads that back
    (`ring_group()`): the siblings call it from an operation, and neither this class nor anybody else does. A warning
    where only the siblings say that the step is needed: this class may take it in another way.

Why is this bad
    Training goes on and learns nothing, or resumes from a checkpoint with a fresh optimizer. Nothing raises.

References
    https://pytorch.org/docs/stable/optim.html
    https://pytorch.org/tutorials/beginner/saving_loading_models.html
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from fnmatch import fnmatchcase

from rules.interface.siblings._examples import pair
from validator.analysis.interfaces.families import Family, hands_on
from validator.analysis.interfaces.reach import Reach, self_name, words
from validator.analysis.interfaces.set_ups import SetUp, SetUps
from validator.analysis.interfaces.uses import Uses, called_in, open_uses
from validator.contracts import Contracts, Step, implementations
from validator.finding import Finding, Related
from validator.project import ClassDef, Method, Project
from validator.rule import Rule

RULE = Rule("MP109", "step-missing", "error", stable_since="0.1.0", solves=True)


def check_project(project: Project) -> Iterator[Finding]:
    for family in project.families.all:
        yield from _declared(project, family)
        if len(family.members) > 1:
            yield from _inferred(project, family)
            yield from _set_up(project, family)


def _declared(project: Project, family: Family) -> Iterator[Finding]:
    for name in project.analysis(Uses).names(family):
        steps = project.analysis(Contracts).steps(family, name)
        methods = implementations(family, name) if steps else {}
        for cls, method in methods.items():
            if method.facts.stub or method.cls is not cls or hands_on(method):
                continue
            felt = [use for use in open_uses(project, family, name) if cls in use.classes]
            below = project.analysis(Reach).below(cls, method)
            missing = [step.what for step in steps if not _performed(below, step)]
            if felt and missing:
                yield RULE.finding(
                    method.path,
                    method.facts.name_at,
                    f"`{cls.name}.{name}` and all that it calls {_denied(missing)}",
                    help=f"do it here: callers use `{name}` of whichever class they were given and rely on it",
                    related=[*_siblings(methods, cls), *called_in(felt)],
                    context=f"{cls.qualname}.{name}",
                )


def _denied(steps: list[str]) -> str:
    return " and ".join(f"never {step}" for step in steps)


def _performed(functions: Iterable[Method], step: Step) -> bool:
    for function in functions:
        if any(_is_step(function, call.target, step.calls) for call in function.facts.calls):
            return True
        if step.mentions and any(word in text.lower() for text in words(function) for word in step.mentions):
            return True
    return False


def _is_step(function: Method, target: str, patterns: tuple[str, ...]) -> bool:
    own = self_name(function)
    path = f"self.{target[len(own) + 1 :]}" if own and target.startswith(own + ".") else target
    if any(p.startswith("!") and fnmatchcase(path, p[1:]) for p in patterns):
        return False
    return any(fnmatchcase(path, p) for p in patterns)


def _siblings(methods: dict[ClassDef, Method], cls: ClassDef) -> list[Related]:
    others = [(c, m) for c, m in methods.items() if c is not cls]
    return [Related(m.path, m.facts.name_at[0], f"`{c.name}.{m.name}`, for comparison") for c, m in others[:1]]


# -- steps that siblings perform -------------------------------------------------------------------------------


def _inferred(project: Project, family: Family) -> Iterator[Finding]:
    for cls in family.members:
        idle = [m for m in cls.methods.values() if _is_idle(project, family, cls, m)]
        for step in idle:
            found = _taken_elsewhere(project, family, cls, step.name)
            if found is not None:
                sibling, operation = found
                own = cls.methods[operation.name]
                yield RULE.finding(
                    own.path,
                    own.facts.name_at,
                    f"`{cls.name}.{own.name}` never calls `self.{step.name}()`, as `{sibling.name}.{own.name}` does; "
                    f"nothing else calls it on `{cls.name}`",
                    help=f"call `self.{step.name}()` where the sibling does",
                    related=[
                        Related(step.path, step.facts.name_at[0], "defined here and never called"),
                        Related(operation.path, operation.facts.name_at[0], f"`{sibling.name}` calls it from here"),
                    ],
                    context=f"{cls.qualname}.{own.name}:{step.name}",
                    severity="warning",
                )


def _is_idle(project: Project, family: Family, cls: ClassDef, method: Method) -> bool:
    """Whether nothing in the project calls or reads the method on this class."""
    facts = method.facts
    if facts.is_property or facts.stub or facts.decorators or method.name.startswith("__") or _gives_back(method):
        return False
    uses = project.analysis(Uses)
    if uses.of(family, method.name) or uses.reads(family, method.name):
        return False
    paths = (f".{method.name}", f"'{method.name}'", f'"{method.name}"')
    for owner in {*cls.mro, *cls.descendants()}:
        for function in owner.every_method():
            if function is not method and any(text.endswith(paths) for text in words(function)):
                return False
    return not any(method.name in c.methods for c in cls.descendants())


def _gives_back(method: Method) -> bool:
    """Whether a method returns an argument as it is, and does nothing else: then nobody misses its call."""
    facts = method.facts
    given = {param.name for param in facts.params}
    back = bool(facts.returns) and all(row.kind == "path" and row.value in given for row in facts.returns)
    return back and not facts.calls and not facts.assigns


def _taken_elsewhere(project: Project, family: Family, cls: ClassDef, step: str) -> tuple[ClassDef, Method] | None:
    """The sibling, and its operation, from which every sibling with the step calls it."""
    siblings = [c for c in family.members if c is not cls and step in c.methods]
    operations: set[str] | None = None
    for sibling in siblings:
        calling = {m.name for m in sibling.methods.values() if any(_calls_own(m, step))}
        operations = calling if operations is None else operations & calling
    for name in sorted(operations or ()):
        if name in cls.methods and not cls.methods[name].facts.stub and open_uses(project, family, name):
            return siblings[0], siblings[0].methods[name]
    return None


def _calls_own(method: Method, step: str) -> Iterator[bool]:
    own = self_name(method)
    return (call.target == f"{own}.{step}" for call in method.facts.calls if own)


# -- state of modules that siblings set up ---------------------------------------------------------------------


def _set_up(project: Project, family: Family) -> Iterator[Finding]:
    """Members that never set up what code outside the family reads, as every sibling does from the same operation."""
    analysis, reach = project.analysis(SetUps), project.analysis(Reach)
    for name in project.analysis(Uses).names(family):
        methods = {c: m for c, m in implementations(family, name).items() if m.cls is c and not m.facts.stub}
        steps = analysis.steps(family, methods) if len(methods) > 1 and open_uses(project, family, name) else []
        for step in steps:
            lacking = [cls for cls in methods if not analysis.is_taken(cls, step)]
            taking = [cls for cls in methods if step.function in reach.below(cls, methods[cls])]
            if len(lacking) == 1 and len(taking) == len(methods) - 1 and analysis.could_take(lacking[0], step):
                yield _set_up_missing(methods[lacking[0]], taking[0], methods[taking[0]], step)


def _set_up_missing(method: Method, sibling: ClassDef, operation: Method, step: SetUp) -> Finding:
    assert method.cls is not None
    function, reader, user = step.function, step.reader, step.user
    return RULE.finding(
        method.path,
        method.facts.name_at,
        f"`{method.cls.name}.{method.name}` and all that it calls never call `{function.name}`, as "
        f"`{sibling.name}.{method.name}` does; `{user.qualname}` relies on it through `{reader.name}`",
        help=f"call `{function.name}` where the sibling does",
        related=[
            Related(operation.path, operation.facts.name_at[0], f"`{sibling.name}` calls it from here"),
            Related(function.path, function.facts.name_at[0], f"keeps `{step.name}` for the whole process"),
            Related(reader.path, reader.facts.name_at[0], f"reads `{step.name}`"),
        ],
        context=f"{method.cls.qualname}.{method.name}:{function.name}",
    )


_RING = "def setup_ring_attn(self, mesh): self.group = mesh.group()\n"
_BASE = _RING + "def setup_distributed(self, mesh):\n    self.mesh = mesh\n    self.setup_ring_attn(mesh)"
_USE = "strategy.setup_distributed(args.mesh)"
_UNWRAP = "def unwrap(self, model):\n    {}return model\n"
_SAVE = "def save_model(self, model, path):\n    {}.save_pretrained(path)"
_SAVING = "strategy.save_model(args.model, args.path)"
_BARE = "model = getattr(model, 'module', model)\n    "
_STATE = """\
# file: ring.py
_GROUP = None


def setup_ring(mesh):
    global _GROUP
    _GROUP = mesh.get_group()


def ring_group():
    return _GROUP
# file: strategies.py
from ring import setup_ring


"""
_MESH = "def setup_distributed(self, mesh):\n    self.mesh = mesh"
_SETS = _MESH + "\n    setup_ring(self.mesh)"
_READS = _USE + "\nmodel.fit(args)"
_USER = """
# file: model.py
import torch.distributed as dist
from ring import ring_group


class Model:
    def fit(self, args):
        return dist.get_world_size(ring_group())
"""

INCORRECT = [
    pair(_BASE, _RING + "def setup_distributed(self, mesh):  # error: MP109\n    self.mesh = mesh", _USE),
    pair(
        _UNWRAP.format(_BARE) + _SAVE.format("self.unwrap(model)"),
        _UNWRAP.format(_BARE) + _SAVE.format("model").replace("path):", "path):  # error: MP109"),
        _SAVING,
    ),
    _STATE + pair(_SETS, _MESH.replace("mesh):", "mesh):  # error: MP109"), _READS) + _USER,
]
CORRECT = [
    _STATE + pair(_SETS, _SETS, _READS) + _USER,
    # the second one does it in a method of its own
    _STATE + pair(_SETS, _MESH + "\n    self.patch()\ndef patch(self): setup_ring(self.mesh)", _READS) + _USER,
    # nobody outside reads it; or the caller sets it up; or only one of them can have it
    _STATE + pair(_SETS, _MESH, _USE),
    _STATE + pair(_SETS, _MESH, _READS + "\nsetup_ring(args.mesh)") + _USER,
    _STATE + pair(_SETS, "def setup_distributed(self, mesh): mesh.start()", _READS) + _USER,
    pair(_BASE, _BASE, _USE),
    pair(
        _UNWRAP.format(_BARE) + _SAVE.format("self.unwrap(model)"),
        _UNWRAP.format("") + _SAVE.format("model"),
        _SAVING,
    ),
    pair(_BASE, "def setup_distributed(self, mesh):\n    self.mesh = mesh", _USE),
    pair(
        _BASE,
        _RING + "def setup_distributed(self, mesh):\n    self.mesh = mesh",
        "strategy.setup_distributed(args.mesh)\nstrategy.setup_ring_attn(args.mesh)",
    ),
]
