"""An attribute that objects of a class with a base of a library are asked for, and that nobody gives them.

What it does
    Classes that inherit from `torch.nn.Module`, an optimizer, a `Trainer` and their like have members that their
    source does not show.
    Reported is `self.name` where no class of the family sets or defines the name, no code outside of them stores it
    on an object, no text spells it or is put together to begin so (`register_buffer(f"freqs_{i}", …)`), and it is none
    of the names of these libraries. Silent about names of one word,
    behind `hasattr`, `getattr` and `except AttributeError`, and where another base, `__getattr__` or a computed name
    may give it.

Why is this bad
    Somebody renamed the attribute where it is set and left a subclass behind: AttributeError at the first step.

References
    https://docs.python.org/3/reference/datamodel.html#object.__getattribute__
"""

from __future__ import annotations

from collections.abc import Iterator

from validator.analysis.interfaces.members import Members, excused, method_of
from validator.analysis.options.spelled import Spelled
from validator.definitions import PLAIN_BASES, ClassDef
from validator.errors import nearest
from validator.facts.model import Ref
from validator.finding import Finding, Related
from validator.flow.queries.outside_program import is_test
from validator.models.members import is_known, is_telling
from validator.project import Method, Project
from validator.rule import Rule

RULE = Rule("MP135", "attribute-of-nobody", "warning", stable_since="0.3.0", solves=True)


def check_project(project: Project) -> Iterator[Finding]:
    found: dict[tuple[ClassDef, str], list[tuple[Method, Ref]]] = {}
    for function in project.functions():
        owner = method_of(function)
        if owner.cls is None or is_test(function.path) or not _is_of_known_libraries(project, owner.cls):
            continue
        for row in function.facts.refs:
            own, _, name = row.path.partition(".")
            name = name.partition(".")[0]
            asked = row.context == "load" and own == owner.own_object and not excused(row.guards, own, name)
            if asked and _is_nobodys(project, owner.cls, name):
                found.setdefault((owner.cls, name), []).append((function, row))
    for (cls, name), rows in found.items():
        yield _report(cls, name, rows)


def _is_of_known_libraries(project: Project, cls: ClassDef) -> bool:
    """Whether all that may add members unseen are bases of libraries whose names are known."""
    outer = [base for base in cls.external_bases if base not in PLAIN_BASES]
    if not outer or not all(map(is_known, outer)) or any(map(_becomes, cls.mro)):
        return False
    return project.analysis(Members).closed_but_for_libraries(cls)


def _becomes(cls: ClassDef) -> bool:
    """Whether objects of another class are made ones of this class, with all that they have."""
    refs = (ref for method in cls.every_method() for ref in method.facts.refs)
    return any(ref.path.endswith(".__class__") for ref in refs)


def _is_nobodys(project: Project, cls: ClassDef, name: str) -> bool:
    """Whether no class of the family has an attribute, and no code outside of them may set it on their objects."""
    if not is_telling(name) or not name.isidentifier() or name in project.texts:
        return False
    family = {*cls.mro, *cls.descendants(), *(above for below in cls.descendants() for above in below.mro)}
    if project.analysis(Members).is_given_outside(name) or any(name in c.attributes for c in family):
        return False
    return not project.analysis(Spelled).as_formed(name)


def _report(cls: ClassDef, name: str, rows: list[tuple[Method, Ref]]) -> Finding:
    (function, row), *others = rows
    near = nearest(name, sorted(cls.attributes))
    return RULE.finding(
        function.path,
        row.at,
        f"`{function.qualname}` reads `{row.path.partition('.')[0]}.{name}`, which neither `{cls.name}` nor a "
        "class of its family sets or defines; no library class that it inherits from is known to have it",
        help=f"set it in `{cls.name}`, or use the right name{near}",
        related=[Related(f.path, each.at[0], f"`{name}` is read here too") for f, each in others[:4]],
        context=f"{cls.qualname}.{name}",
    )


_TRAINERS = """\
from transformers import Trainer


class PolicyTrainer(Trainer):
    def __init__(self, strategy, quantile):
        super().__init__()
        self.strategy = strategy
        self.{name} = quantile


class MaskedTrainer(PolicyTrainer):
    def compute_loss(self, model, inputs, return_outputs=False):
        if self.top_entropy_quantile < 1.0:{mark}
            inputs = self.strategy.masked(inputs)
        return self.compute_loss_context_manager(), self.callback_handler
"""

INCORRECT = (_TRAINERS.format(name="entropy_quantile", mark="  # error: MP135"),)

CORRECT = (
    _TRAINERS.format(name="top_entropy_quantile", mark=""),
    # a name that is put together; what `Trainer` had in other releases
    """\
from torch import nn
from transformers import Trainer


class Rotary(nn.Module):
    def __init__(self, strategy, tables):
        super().__init__()
        for index, table in enumerate(tables):
            self.register_buffer(f"freqs_{index}", strategy.place(table))

    def forward(self, x):
        return x * self.freqs_0


class ApexTrainer(Trainer):
    def training_step(self, model, inputs):
        return self.use_apex
""",
    # a base of which nothing is known, a text, a test
    """\
from somewhere import Base
from transformers import Trainer


class PolicyTrainer(Base):
    def step(self, strategy):
        return self.hidden_state_size


class OtherTrainer(Trainer):
    def step(self, strategy):
        strategy.attach(self, "hidden_state_width")
        if hasattr(self, "hidden_state_depth"):
            return self.hidden_state_depth
        return self.hidden_state_width
""",
)
