"""A member of a family that no factory returns and nothing makes.

What it does
    Reports a class with the suffix and the methods of a family whose factory returns only its siblings, if
    nothing in the project constructs it, inherits from it, registers it or mentions it outside imports and annotations.

Why is this bad
    The backend was written and tested by nobody: no option leads to it.

References
    https://en.wikipedia.org/wiki/Factory_method_pattern
"""

from __future__ import annotations

from collections.abc import Iterator

from validator.analysis.interfaces.families import Family
from validator.analysis.interfaces.reach import words
from validator.finding import Finding, Related
from validator.flow.objects import Objects
from validator.flow.queries.outside_program import is_test
from validator.project import ClassDef, Project
from validator.rule import Rule

RULE = Rule("MP114", "class-without-factory", "note", stable_since="0.1.0", solves=True)


def check_project(project: Project) -> Iterator[Finding]:
    for family in project.families.all:
        if family.factory is None:
            continue
        returned = project.analysis(Objects).results(family.factory)
        for cls in family.members:
            if cls in returned or cls.facts.decorators or cls.subclasses or cls.is_abstract or is_test(cls.path):
                continue
            if returned and not _mentioned(project, cls):
                yield _report(cls, family, sorted(c.name for c in returned))


def _mentioned(project: Project, cls: ClassDef) -> bool:
    """Whether anything but imports and annotations names the class."""
    return any(
        cls.name in text
        for function in project.functions()
        if function.cls is not cls and not is_test(function.path)
        for text in words(function)
    )


def _report(cls: ClassDef, family: Family, returned: list[str]) -> Finding:
    factory = family.factory
    assert factory is not None
    listed = " and ".join(f"`{name}`" for name in returned)
    return RULE.finding(
        cls.path,
        cls.facts.name_at,
        f"nothing makes a `{cls.name}`: `{factory.name}` returns only {listed}",
        help=f"return it from `{factory.name}` where its backend is asked for, or remove the class",
        related=[Related(factory.path, factory.facts.name_at[0], "the factory")],
        context=cls.qualname,
    )


_EXAMPLE = """
class DeepspeedStrategy:
    def prepare(self, model): return model
    def backward(self, loss, model): model.backward(loss)
    def optimizer_step(self, model): model.step()
    def save_model(self, model, path): model.save(path)

class FsdpStrategy:{mark}
    def prepare(self, model): return model
    def backward(self, loss, model): loss.backward()
    def optimizer_step(self, model): model.optimizer.step()
    def save_model(self, model, path): model.write(path)

def get_strategy(args):
    {choice}return DeepspeedStrategy()
"""
_CHOICE = 'if args.backend == "fsdp":\n        return FsdpStrategy()\n    '

INCORRECT = [_EXAMPLE.format(mark="  # error: MP114", choice="")]
CORRECT = [
    _EXAMPLE.format(mark="", choice=_CHOICE),
    _EXAMPLE.format(mark="", choice="") + "\nBACKENDS = {'fsdp': FsdpStrategy}\n",
    _EXAMPLE.format(mark="", choice="") + "\nclass Tuned(FsdpStrategy):\n    pass\n",
]
