"""An attribute or a method that objects are asked for, and that nobody gives them.

What it does
    Names of several words that no known library has are looked for in the whole project: as definitions, parameters,
    keywords, fields, in what is stored, as words of texts and of configuration files, and as what a text may be that is
    put together (`f"freqs_{i}"`). Reported is a name that is nowhere but asked for,
    of `self` in classes whose bases are all of the project or of known libraries (no private name, if of libraries);
    of objects that are, as far as is known, of such a class;
    of objects of which nothing is known, nor that something outside of the project gives them, but that are asked for
    other such names too, which one class has that has a similar one (a note where that is one name); of configurations
    of models, which a file may fill, only such;
    of `self` in other classes, if they have a member of a similar name for which no code asks.
    Silent behind tests of what the object is, under `except AttributeError`, in tests, in mixins of unknown
    classes, and where a base, a decorator of a library, `__getattr__` or another `__class__` may give it. A
    `__getattr__` that only looks the name up in containers gives no method that nobody has put there under its name.
    Where all members of an object are known, MP120 says it.

Why is this bad
    Somebody renamed the member where it is defined and left a caller behind: AttributeError at the first step.

References
    https://docs.python.org/3/reference/datamodel.html#object.__getattribute__
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from validator.analysis.interfaces.company import Company
from validator.analysis.interfaces.members import Members
from validator.analysis.interfaces.missing_members import missing
from validator.analysis.interfaces.outsiders import is_from_outside
from validator.analysis.interfaces.unspelled import Unspelled, are_alike, is_method
from validator.definitions import ClassDef
from validator.errors import nearest
from validator.finding import Finding, Related, Severity
from validator.flow import Flow
from validator.flow.annotations import foreign_classes
from validator.flow.foreign import is_unknown
from validator.flow.objects import Objects
from validator.flow.queries.base import Place
from validator.flow.queries.outside_program import is_aside
from validator.flow.values import NONE_OBJ
from validator.models.members.classes import members_of
from validator.project import Project
from validator.rule import Rule

RULE = Rule("MP135", "attribute-of-nobody", "warning", stable_since="0.3.0", solves=True)

_SHARE = 4  # a class that lacks more than one for so many members is made for objects of somebody else
_CONFIGURATIONS = frozenset({"PretrainedConfig", "PreTrainedConfig"})  # of transformers: they keep every keyword
_ASKING = frozenset({"hasattr", "isinstance", "issubclass", "type", "__class__"})


class Use(NamedTuple):
    """A place that asks an object for what nobody has; of which class it is, as far as is known; what tells that."""

    place: Place
    cls: ClassDef
    why: str = ""
    severity: Severity = "warning"

    @property
    def name(self) -> str:
        return str(self.place.value.data)


def check_project(project: Project) -> Iterator[Finding]:
    found: dict[ClassDef, dict[str, list[Use]]] = {}
    for use in _uses(project):
        found.setdefault(use.cls, {}).setdefault(use.name, []).append(use)
    for cls, names in found.items():
        if len(names) <= max(1, len(cls.attributes) // _SHARE):
            yield from map(_report, names.values())


def _uses(project: Project) -> Iterator[Use]:
    flow, unspelled, members = project.analysis(Flow), project.analysis(Unspelled), project.analysis(Members)
    for module in project.modules.values():
        if is_aside(module.path):
            continue
        for unit in flow.whole_units(module):
            for number, value in enumerate(unit.code.values):
                asked = value.op == "attr" and not members.is_given_outside(value.data)
                if asked and unspelled.is_nobodys(value.data):
                    place = Place(flow, unit, number)
                    if not _is_expected(place) and (use := _use(project, place)) is not None:
                        yield use


def _is_expected(place: Place) -> bool:
    """Whether the code asks first what the object is, or takes the error."""
    if place.catches("AttributeError"):
        return True
    receiver = set(place.operand(0).words)
    tests = (set(test.words) for test in place.tests_inside)
    return any(not words.isdisjoint(_ASKING) and not words.isdisjoint(receiver) for words in tests)


def _use(project: Project, place: Place) -> Use | None:
    """What is known of the object that is asked, if that is enough to say that it lacks the name."""
    if missing(project, place) is not None and not place.may_lack(place.value.data):
        return None  # MP120
    owner, receiver = place.owner, place.operand(0)
    if owner is not None and owner.cls is not None:
        return _of_own(project, place, owner.cls)
    held, objs = project.analysis(Objects).held(receiver, place), receiver.closed.objs - {NONE_OBJ}
    asked = {o[1] for o in objs} if all(o[0] == "class" for o in objs) else set()
    classes = sorted(asked or held.classes, key=lambda c: (c.module.name, c.qualname))
    if classes:
        members = project.analysis(Members)
        known = all(
            (members.is_known_below if cls in held.below else members.is_known)(cls, called=place.is_called)
            for cls in classes
        )
        sure = (bool(asked) or held.complete) and not any(map(_is_filled_from_file, classes))
        return _of_known(place, classes, sure=sure) if known else None
    return _of_unknown(project, place) if not objs or is_unknown(receiver.closed) else None


def _of_own(project: Project, place: Place, cls: ClassDef) -> Use | None:
    if any(place.value.data in (members_of(base) or ()) for base in cls.external_bases):
        return None  # of an earlier release
    # what libraries call private comes and goes between their releases, of which one is known
    another_release = place.value.data.startswith("_") and cls.external_bases
    if project.analysis(Members).runs_known(cls, called=place.is_called) and not another_release:
        return Use(place, cls)
    now = project.analysis(Unspelled).unasked_like(place.value.data, cls, called=place.is_called)
    return Use(place, cls, f"; `{cls.name}.{now}`, which is like it, nobody asks for") if now else None


def _is_filled_from_file(cls: ClassDef) -> bool:
    """Whether `from_pretrained` gives objects of a class whatever the file of a model holds, as attributes."""
    made = cls.find("__init__")
    passes = made is None or any(param.kind == "**" for param in made.facts.params)
    return passes and any(base.rpartition(".")[2] in _CONFIGURATIONS for base in cls.external_bases)


def _of_known(place: Place, classes: list[ClassDef], *, sure: bool) -> Use | None:
    alike = [cls for cls in classes if _alike(place, cls)]
    return Use(place, (alike or classes)[0]) if sure or alike else None


def _of_unknown(project: Project, place: Place) -> Use | None:
    """An object that is known by what else it is asked for."""
    if is_from_outside(place.operand(0)):
        return None
    known = project.analysis(Company).of(place)
    if known is None or not project.analysis(Members).is_known_below(known.cls, called=place.is_called):
        return None
    if not _foreign_classes_of(place.operand(0)).issubset(known.cls.external_bases):
        return None
    if not _alike(place, known.cls):
        return None  # what else it is asked for, objects of libraries have as well
    names = " and ".join(f"`{each}`" for each in sorted(known.names)[:2])
    severity: Severity = "warning" if len(known.names) > 1 else "note"  # one name may be another object's as well
    return Use(place, known.cls, f", as the use of {names} tells", severity)


def _foreign_classes_of(asked: Place) -> frozenset[str]:
    """The classes of libraries of which annotations say that an object is: of a parameter, or of one that methods
    store in the attribute. A class of the project has the same name sometimes."""
    root = asked.root
    found: set[str] = set()
    params = [root] if root.value.op == "param" else []
    if root.value.op == "attr" and (own := root.owner) is not None and own.cls is not None:
        for unit in root.flow.units(iter(own.cls.every_method())):
            stores = (value for value in unit.code.values if value.op == "store_attr")
            kept = (value.args[1] for value in stores if value.data == root.value.data)
            params += [each for n in kept if (each := Place(root.flow, unit, n).root).value.op == "param"]
    for each in params:
        method = each.unit.method
        for param in method.facts.params if method is not None else ():
            if method is not None and param.name == each.value.data[1] and param.annotation:
                found |= foreign_classes(each.flow.project, method, param.annotation)
    return frozenset(found)


def _alike(place: Place, cls: ClassDef) -> bool:
    """Whether a class has something of a similar name: a method where one is called."""
    names = (each for each in cls.attributes if is_method(cls, each) == place.is_called)
    return any(are_alike(each, place.value.data) for each in names)


def _report(uses: list[Use]) -> Finding:
    (place, cls, why, severity), *others = sorted(uses, key=lambda use: use.severity == "note")
    name = uses[0].name
    asks = "calls" if place.is_called else "reads"
    of = "" if place.owner is not None else f" of an object of `{cls.name}`{why}"
    where = place.unit.scope.qualname if place.unit.code.kind != "module" else place.unit.path
    return RULE.finding(
        place.unit.path,
        place.at,
        f"`{where}` {asks} `{place.operand(0).text}.{name}`{of}: neither `{cls.name}` nor a class of its family has "
        f"it, and nothing in the project or its known libraries bears that name{'' if of else why}",
        help=f"define it in `{cls.name}`, or use the right name{nearest(name, sorted(cls.attributes))}",
        related=[Related(f.place.unit.path, f.place.at[0], f"`{name}` is asked for here too") for f in others[:4]],
        context=f"{cls.qualname}.{name}",
        severity=severity,
    )


_TRAINERS = """\
from transformers import PreTrainedTokenizer


class PolicyTokenizer(PreTrainedTokenizer):
    def __init__(self, strategy, quantile):
        super().__init__()
        self.strategy = strategy
        self.{name} = quantile


class MaskedTokenizer(PolicyTokenizer):
    def prepare(self, inputs):
        if self.top_entropy_quantile < 1.0:{mark}
            inputs = self.strategy.masked(inputs)
        return self.convert_tokens_to_ids(inputs), self.padding_side
"""

_STRATEGY = """\
class Strategy:
    def __init__(self, stage):
        self.zero_stage = stage

    def unwrapped_model(self, model):
        return model

    def train_config(self):
        return {"stage": self.zero_stage}


class Learner:
    def __init__(self, strategy):
        self.strategy = strategy

    def config(self):
        return self.strategy.train_config() if self.strategy.zero_stage else {}

    def run(self, model):
        CODE
"""

_REGISTERED = """\
LEARNERS = {{}}


def register(cls):
    LEARNERS[cls.__name__] = cls
    return cls


@register
class Learner:
    def __init__(self, strategy, **options):
        self.strategy = strategy
        for name, value in options.items():
            setattr(self, name, value)

    def {name}(self):
        return self.strategy

    def learn(self):
        self.prepare_learning(){mark}


learner = Learner(None, warmup_steps=3)
"""

_NAMESAKE = """\
# file: optim.py
class Adam:
    def __init__(self, params, rate):
        self.params, self.learning_rate_now = params, rate

    def clipped_step_now(self):
        return self.params

    def state_of_all(self):
        return self.params

    def steps_of_all(self):
        return self.learning_rate_now
# file: train.py
from {module} import Adam


class Learner:
    def __init__(self, adam: Adam):
        self.adam = adam

    def learn(self):
        return self.adam.learning_rate_now, self.adam.state_of_all(), self.adam.clipped_the_step(){mark}
"""

_METERS = """\
from collections import defaultdict


class Meter:
    def __init__(self):
        self.total = 0

    def update(self, value):
        self.total += value


class Meters:
    def __init__(self):
        self.meters = defaultdict(Meter)

    def update(self, **values):
        for name, value in values.items():
            self.meters[name].update(value)

    def __getattr__(self, name):
        GIVES
        raise AttributeError("{{!r}} has no {{!r}}".format(type(self).__name__, name))

    def {name}(self, loader):
        yield from loader


def train(loader):
    meters = Meters()
    for batch in meters.log_each_batch(loader):{mark}
        meters.update(loss=batch.sum())
"""
_LOOKED_UP = """\
if name in self.meters:
            return self.meters[name]
        if name in self.__dict__:
            return self.__dict__[name]"""

_UNKNOWN = """\
from somewhere import Base


class Learner(Base):
    def {name}(self, strategy):
        return strategy

    def learn(self, strategy):
        return self.prepare_for_learning(strategy){mark}
"""

INCORRECT = (
    _NAMESAKE.replace(": Adam", "")
    .replace("import Adam", "import Any")
    .format(module="typing", mark="  # error: MP135"),
    _TRAINERS.format(name="entropy_quantile", mark="  # error: MP135"),
    # a decorator and computed names, of the project
    _REGISTERED.format(name="prepare_for_learning", mark="  # error: MP135"),
    # known by what else it is asked for
    _STRATEGY.replace("CODE", "self.strategy.unwrapped_models(model)  # error: MP135"),
    # one of two things, which has something of a similar name
    """\
class Ensemble:
    def __init__(self, strategy):
        self.ensemble_size = strategy.size


def learn(strategy, other):
    model = Ensemble(strategy) if strategy else other
    return model.ensemble_model_size  # error: MP135
""",
    # a class itself; a class below of which not all is known
    """\
from somewhere import Base


class Numbers:
    @staticmethod
    def steps_of_tokens(tokens):
        return tokens


class Learner:
    def __init__(self, strategy):
        self.strategy = strategy

    def learn(self, strategy):
        return self.prepare_learning(strategy)  # error: MP135


class OtherLearner(Base, Learner):
    pass


def learn(strategy):
    Learner(strategy).learn(strategy)
    return Numbers.steps_from_tokens(strategy)  # error: MP135
""",
    # `__getattr__` looks only for what somebody has put there
    _METERS.replace("GIVES", _LOOKED_UP).format(name="log_every_batch", mark="  # error: MP135"),
    # of a base nothing is known, and nobody asks for the method that is there
    _UNKNOWN.format(name="prepare_learning", mark="  # error: MP135"),
)

CORRECT = (
    # what a base of a library had in earlier releases
    """
from transformers import Trainer


class Distiller(Trainer):
    def training_step(self, model, inputs):
        loss = self.compute_loss(model, inputs)
        return self.scaler.scale(loss) if self.do_grad_scaling else loss


Distiller().train()
""",
    # `__getattr__` makes something up, or asks another object; what it looks up is data, or put there by its name
    _METERS.replace("GIVES", "return lambda *given: (name, given)").format(name="log_every_batch", mark=""),
    _METERS.replace("GIVES", "return getattr(self.total, name)").format(name="log_every_batch", mark=""),
    _METERS.replace("GIVES", "return open_meter(name)").format(name="log_every_batch", mark=""),
    _METERS.replace("GIVES", _LOOKED_UP).format(name="log_every_batch", mark="").replace("loss=", "log_each_batch="),
    """\
import json


class Options:
    def __init__(self, path):
        self.values = json.load(open(path))

    def __getattr__(self, name):
        return self.values[name]


def width(path):
    return Options(path).hidden_state_size
""",
    # a class of a library that has the name of one of the project's
    _NAMESAKE.format(module="somewhere.optim", mark=""),
    _TRAINERS.format(name="top_entropy_quantile", mark=""),
    _REGISTERED.format(name="prepare_learning", mark=""),
    # a computed name: it is spelled where it comes from, or put together
    _REGISTERED.format(name="prepare_for_learning", mark="").replace("warmup_steps", "prepare_learning"),
    _REGISTERED.format(name="prepare_for_learning", mark="") + "\nSTEPS = [f'prepare_{kind}' for kind in LEARNERS]\n",
    # the object is asked for what other classes have, too; or asked what it is
    _STRATEGY.replace("CODE", "self.strategy.unwrapped_models(self.strategy.some_other_model)"),
    _STRATEGY.replace("CODE", "return isinstance(self.strategy, list) or self.strategy.unwrapped_models(model)"),
    # what Python gives; a mixin of unknown classes
    """\
from dataclasses import dataclass
from somewhere import Base


@dataclass
class Colors:
    red: str = ""


class Preparing:
    def prepare(self):
        return self.prepare_learning(Colors.__dataclass_fields__)


class Learner(Preparing, Base):
    pass
""",
    # nothing similar; what a library gives
    _STRATEGY.replace("CODE", "self.strategy.merge_the_adapter(model)"),
    _STRATEGY.replace("CODE", "return connect(model).unwrapped_models(connect(model).zero_stage)").replace(
        "class Learner", "from somewhere import connect\n\n\nclass Learner"
    ),
    """\
class Ensemble:
    def __init__(self, strategy):
        self.ensemble_size = strategy.size


def learn(strategy, other):
    model = Ensemble(strategy) if strategy else other
    return model.merge_adapter()
""",
    _UNKNOWN.format(name="prepare_all", mark=""),
    _UNKNOWN.format(name="prepare_learning", mark="") + "        return self.prepare_learning(strategy)\n",
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
    # private of a base: another release may have it
    _TRAINERS.format(name="top_entropy_quantile", mark="")
    + "\n    def train(self):\n        return self._inner_loop_of_all()\n",
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
    # the file of a model may give it
    """\
from transformers import PretrainedConfig


class PolicyConfig(PretrainedConfig):
    def __init__(self, hidden_width=64, **kwargs):
        self.hidden_width = hidden_width
        super().__init__(**kwargs)


def build(path):
    config = PolicyConfig.from_pretrained(path)
    return config.hidden_width, config.original_rope_base
""",
    # what a library gives that has the name of a package of the project; the use of one name tells no more
    """\
# file: envs/__init__.py
# file: envs/prepare.py
from envs import load_environment


class Preparing:
    def __init__(self, name):
        self.environment = load_environment(name)

    def rows(self):
        return self.environment.get_rollout_rows(3), self.environment.get_evaluation_rows(3)


print(Preparing("words").rows())
# file: entry.py
class Entrypoint:
    def get_training_rows(self):
        return 1

    def get_evaluation_rows(self):
        return 2


print(Entrypoint().get_training_rows(), Entrypoint().get_evaluation_rows())
""",
    # objects of a library that may not be there
    """\
try:
    from agents.tools import Search, Snippets

    TOOLS: dict[str, type] = {"snippets": Snippets, "search": Search}
except ImportError:
    TOOLS: dict[str, type] = {}


class Parser:
    def __init__(self, tool_parser):
        self.tool_parser = tool_parser

    def format_outputs(self, outputs):
        return self.tool_parser, outputs


class Tools:
    def __init__(self, names):
        self.tools = []
        for name in names:
            cls = TOOLS[name]
            self.tools.append(cls(name=name))

    def step(self, text):
        return [tool.tool_parser(tool.format_output(text)) for tool in self.tools]


print(Tools(["snippets"]).step("x"), Parser(1).format_outputs([]))
""",
)
