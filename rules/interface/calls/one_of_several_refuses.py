"""A method that one of the objects which come to a call lacks, or whose signature there refuses the call.

What it does
    Follows the receivers of method calls to all classes of which objects come there together: through registries and
    tables of classes, factories, conditional expressions, and what objects of one class keep under an attribute; and to
    the classes below the one of which a parameter is declared to be, where that does not take the call itself.
    Reported is the class that lacks the method, or refuses what is passed, while another one takes it: a warning where
    one function chooses among them, a note where the object is kept under an attribute, or is one of several in a
    container: then it may be of another kind wherever this call is made. Silent where a
    condition around the call may tell the classes apart (`isinstance`, a flag, a text that is compared), for what tests
    make, and where MP101, MP103 (families) or MP129 (overrides) speak.

Why is this bad
    It raises AttributeError or TypeError with this one implementation, which the configuration chooses.

References
    https://docs.python.org/3/reference/expressions.html#calls
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

from validator.analysis.interfaces.binding import keeps_signature, misfit_of, parameters, signature
from validator.analysis.interfaces.members import Members
from validator.definitions import ClassDef, Method
from validator.finding import Finding, Related
from validator.flow.callgraph.spelled_arguments import call_of
from validator.flow.objects import Objects
from validator.flow.program.flow import Flow
from validator.flow.queries.base import Place, Queries
from validator.flow.queries.outside_program import is_test
from validator.project import Project
from validator.rule import Rule

RULE = Rule("MP133", "one-of-several-refuses", "warning", stable_since="0.3.0", solves=True)
_WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+\d*")
_ASKING = frozenset({"isinstance", "issubclass", "hasattr", "getattr", "callable", "type"})


class Refusal(NamedTuple):
    """A class that a call does not fit, why, and those that it fits."""

    cls: ClassDef
    why: str
    fitting: tuple[ClassDef, ...]
    owner: ClassDef | None  # the class of the object that keeps it


def check_project(project: Project) -> Iterator[Finding]:
    found: dict[tuple[str, ClassDef], list[tuple[Place, Refusal]]] = {}
    for place in project.analysis(Queries).called_in_program(_names(project)):
        receiver = place.receiver
        if receiver is None or "remote" in place.operand(0).text:
            continue
        # what several callers pass does not come together
        beyond = receiver.root.value.op == "param"
        for refusal in (_beyond_declared if beyond else _refusals)(project, place, receiver):
            if not _is_asked(place, receiver, refusal) and not _is_left_to_others(project, refusal, place.method):
                found.setdefault((place.unit.path, refusal.cls), []).append((place, refusal))
    alike: dict[object, list[list[tuple[Place, Refusal]]]] = {}
    for (path, _), rows in found.items():
        alike.setdefault((path, frozenset(place.method for place, _ in rows)), []).append(rows)
    for several in alike.values():
        yield _report(several[0], [rows[0][1].cls for rows in several[1:]])


def _names(project: Project) -> frozenset[str]:
    return frozenset(name for cls in project.classes() for name in cls.methods if not name.startswith("__"))


def _refusals(project: Project, place: Place, receiver: Place) -> Iterator[Refusal]:
    for group, owner in project.analysis(Objects).groups(receiver).items():
        reasons = {cls: _why(project, cls, place) for cls in group}
        fitting = [cls for cls, why in reasons.items() if why == ""]
        if fitting and len({cls.name for cls in group}) == len(group):  # else copies of one program, mostly
            taking = tuple(sorted(fitting, key=_place))
            yield from (Refusal(cls, why, taking, owner) for cls, why in sorted(reasons.items(), key=_first) if why)


def _beyond_declared(project: Project, place: Place, receiver: Place) -> Iterator[Refusal]:
    """Of what a parameter is declared to be, and callers may pass: the classes that a call does not fit which its
    declared class does not take either, where another one does."""
    held = project.analysis(Objects).held(receiver)
    declared = [cls for cls in held.below if cls.find(place.method) is not None and _why(project, cls, place)]
    for base in sorted(declared, key=_place):
        concrete = [cls for cls in (base, *base.descendants()) if _is_used(cls, place.method)]
        reasons = {cls: _why(project, cls, place) for cls in concrete}
        taking = tuple(sorted((cls for cls, why in reasons.items() if why == ""), key=_place))
        refusing = [(cls, why) for cls, why in sorted(reasons.items(), key=_first) if why]
        yield from (Refusal(cls, why, taking, None) for cls, why in refusing if taking)


def _is_used(cls: ClassDef, name: str) -> bool:
    """Whether there may be objects of just this class whose method does something, outside of tests."""
    method = cls.find(name)
    written = method is not None and not method.facts.is_abstract and not method.facts.stub
    return written and not cls.is_abstract and not is_test(cls.path)


def _why(project: Project, cls: ClassDef, place: Place) -> str | None:
    """Why an object of a class does not bear a call; empty where it does, None where that is not known."""
    method = cls.find(place.method)
    if method is None:
        lacks = project.analysis(Members).lacks_where_made(cls, place.method)
        return f"`{cls.name}` has no `{place.method}`" if lacks else None
    owner = method.cls
    several = owner is None or len(owner.definitions[method.name]) > 1
    if method.facts.is_property or not keeps_signature(method) or several:
        return None
    problem = misfit_of(parameters(method, bound=method.is_method), call_of(place.unit, place.number))
    return f"`{cls.name}.{signature(method)}` {problem.message}" if problem is not None else ""


def _place(cls: ClassDef) -> tuple[str, str]:
    return (cls.path, cls.qualname)


def _first(row: tuple[ClassDef, str | None]) -> tuple[str, str]:
    return _place(row[0])


def _is_asked(place: Place, receiver: Place, refusal: Refusal) -> bool:
    """Whether a condition around a call may keep an object away from it: one that asks the object itself, a class or a
    member, or speaks of what tells the classes apart; for a method that is not there any flag, or text that is
    compared, too."""
    telling = _telling_words(place.flow, refusal)
    lacks = refusal.cls.find(place.method) is None
    asked = receiver.hint
    return place.is_tried or any(asked in test.words or _tells(test, telling, flags=lacks) for test in place.tests)


def _telling_words(flow: Flow, refusal: Refusal) -> frozenset[str]:
    """The words of names of classes, of their files and of the texts under which they are known, that one has and
    others have not."""
    classes = (refusal.cls, *refusal.fitting)
    words = [frozenset(_words(" ".join((cls.module.name, cls.name, *_texts(flow, cls))))) for cls in classes]
    return frozenset().union(*words) - frozenset.intersection(*words)


def _texts(flow: Flow, cls: ClassDef) -> Iterator[str]:
    """The texts beside a class: its key in a table, what a call passes together with it or to its decorators."""
    body = flow.body_of(cls)
    for unit in flow.mentions.naming(cls.name):
        values = unit.code.values
        numbers = {user for number in unit.named.get(cls.name, ()) for user in unit.users.get(number, ())}
        if body is not None and unit is body.outer:
            numbers |= {values[call].args[0] for call in unit.decorating(body)}
        for number in numbers:
            if values[number].op in ("dict", "store_item", "call"):
                parts = (values[part] for part in values[number].args if part >= 0)
                yield from (part.data for part in parts if part.op == "const" and isinstance(part.data, str))


def _words(text: str) -> Iterator[str]:
    return (word.lower() for word in _WORD.findall(text) if len(word) > 2)


def _tells(test: Place, telling: frozenset[str], flags: bool) -> bool:
    if any(each.method in _ASKING for each in test.sources if each.value.op == "call"):
        return True
    if any(word in telling for text in test.words for word in _words(text)):
        return True
    if not flags:
        return False
    value = test.value
    if value.op in ("attr", "name", "param", "free", "item", "const"):
        return True
    if value.op == "unary" or test.unit.connective(test.number):
        return any(_tells(test.operand(n).root, telling, flags) for n in range(len(value.args)))
    if value.op == "call":
        return test.method == "get" or not value.args[1:]
    return any(isinstance(each.value.data, str) for each in test.sources if each.value.op == "const")


def _is_left_to_others(project: Project, refusal: Refusal, name: str) -> bool:
    if project.families.of(refusal.cls) is not None:
        return True
    method = refusal.cls.find(name)
    above = [c.methods[name] for c in refusal.cls.mro if name in c.methods and c.methods[name] is not method]
    return any(cls.find(name) in above for cls in refusal.fitting if cls in refusal.cls.mro)


def _report(rows: list[tuple[Place, Refusal]], others_refusing: list[ClassDef]) -> Finding:
    (place, refusal), *others = rows
    fitting = " and ".join(f"`{cls.name}`" for cls in refusal.fitting[:3])
    kept = f" in a `{refusal.owner.name}`" if refusal.owner is not None else ""
    more = dict.fromkeys(f"`{each.method}`" for each, _ in others if each.method != place.method)
    rest = f", nor {', '.join(more)}" if more else ""
    rest += f" (so it is with {', '.join(f'`{cls.name}`' for cls in others_refusing)})" if others_refusing else ""
    at: Method | ClassDef = refusal.cls.find(place.method) or refusal.cls
    text = (
        f"`{place.operand(0).text}(…)`{place.where} may be called on a `{refusal.cls.name}`{kept}: {refusal.why}{rest}"
    )
    return RULE.finding(
        place.unit.path,
        place.at,
        f"{text}; it fits {fitting}",
        help=f"give `{refusal.cls.name}` what the others have, or ask for the class before the call",
        related=[
            Related(at.path, at.facts.name_at[0], f"`{at.qualname}` is defined here"),
            *(Related(each.unit.path, each.at[0], f"`{each.method}` is called here") for each, _ in others[:4]),
        ],
        context=f"{place.unit.qualname}:{refusal.cls.name}.{place.method}",
        severity="warning" if refusal.owner is None and not _is_of_container(place) else "note",
    )


def _is_of_container(place: Place) -> bool:
    """Whether the object is an element of something: a key, or an order that is agreed on, may tell the kinds apart."""
    receiver = place.receiver
    return receiver is not None and receiver.root.value.op in ("item", "next", "unpack")


_ENGINES = """\
class EngineRegistry:
    _engines = {{}}

    @classmethod
    def register(cls, name):
        def decorator(engine):
            cls._engines[name] = engine
            return engine

        return decorator

    @classmethod
    def new(cls, name, *args):
        return cls._engines[name](*args)


@EngineRegistry.register("fsdp")
class Sharded:
    def weights(self, strategy, summon=False):
        return summon

    def offload(self):
        return None


@EngineRegistry.register("megatron")
class Megatron:
{method}


class Worker:
    def __init__(self, config):
        self.config = config
        self.engine = EngineRegistry.new(config.strategy)

    def sync(self, strategy, step):
{calls}
"""


def _engines(method: str, *calls: str) -> str:
    body = "\n".join(f"        {line}" for line in calls)
    return _ENGINES.format(method=f"    def {method}\n        return strategy", calls=body)


INCORRECT = (
    _engines("weights(self, strategy):", "return self.engine.weights(strategy, summon=True)  # error: MP133"),
    _engines("weights(self, strategy):", "if step > 3:", "    self.engine.offload()  # error: MP133"),
    # a keyword that only one of the classes below the declared one takes
    """\
class RewardModel:
    def score(self, prompts, answers):
        raise NotImplementedError


class Local(RewardModel):
    def score(self, prompts, answers):
        return [len(each) for each in answers]


class Batched(RewardModel):
    def score(self, prompts, answers, batch_size=8):
        return [batch_size for each in answers]


def best(model: RewardModel, prompts, answers):
    return model.score(prompts, answers, batch_size=4)  # error: MP133
""",
    # a choice between two classes
    """\
class Local:
    def generate(self, strategy, prompts):
        return prompts


class Served:
    def generate_all(self, strategy, prompts):
        return prompts


def run(args, strategy, prompts):
    engine = Served() if args.served else Local()
    return engine.generate(strategy, prompts)  # error: MP133
""",
)

CORRECT = (
    # which of them an object is given suits what it does with it, be it kept under one name or another
    """\
class Encoder:
    def encode(self, x):
        return x


class Generator:
    def generate(self, x):
        return x


class Base:
    def __init__(self, model, average):
        self.model, self.average = model, average


class Encoding(Base):
    def run(self, x, averaged):
        model = self.average if averaged else self.model
        model.strategy = None
        inner = model if not hasattr(model, "module") else model.module
        return inner.encode(x)


class Generating(Base):
    def run(self, x, averaged):
        return self.model.generate(x)


def make(config):
    return Encoder() if config.encodes else Generator()


def kind(config):
    return Encoding if config.encodes else Generating


def main(config, x):
    kind(config)(make(config), make(config)).run(x, averaged=True)
""",
    # what the declared class takes, or what is asked about first
    """\
class RewardModel:
    def score(self, prompts, answers):
        raise NotImplementedError


class Local(RewardModel):
    def score(self, prompts, answers):
        return [len(each) for each in answers]


class Batched(RewardModel):
    def score(self, prompts, answers, batch_size=8):
        return [batch_size for each in answers]


def best(model: RewardModel, prompts, answers):
    if isinstance(model, Batched):
        return model.score(prompts, answers, batch_size=4)
    return model.score(prompts, answers)
""",
    _engines("weights(self, strategy, **kwargs):", "return self.engine.weights(strategy, summon=True)"),
    # something tells them apart first
    _engines(
        "weights(self, strategy):",
        'if self.config.strategy == "fsdp":',
        "    self.engine.weights(strategy, summon=True)",
        "if isinstance(self.engine, Sharded):",
        "    self.engine.offload()",
    ),
    # each subclass keeps an object of its own kind, and only one of them runs the method
    """\
class Loop:
    def generate(self, batch):
        return batch


class EnvLoop:
    def generate(self, batch, future):
        return batch


class Trainer:
    def init(self, strategy):
        self.manager = Loop()

    def fit(self, batch):
        return self.manager.generate(batch)


class EnvTrainer(Trainer):
    def init(self, strategy):
        self.manager = EnvLoop()

    def fit(self, batch):
        return self.manager.generate(batch, None)


def main(strategy, batch, env):
    trainer = EnvTrainer() if env else Trainer()
    trainer.init(strategy)
    return trainer.fit(batch)
""",
    # a factory looks the class up by the name that its caller spells out
    """\
class Aligner:
    def align(self, model, reward):
        return model, reward


class Tuner:
    def tune(self, model):
        return model

    def align(self, model):
        return model


TABLE = {"aligner": Aligner, "tuner": Tuner}


class Auto:
    @classmethod
    def make(cls, name, *args):
        if name not in TABLE:
            raise ValueError(name)
        made = TABLE[name](*args)
        return made


def main(model, reward):
    name = "aligner"
    Auto.make("tuner").align(model)
    return Auto.make(name=name).align(model, reward), Auto.make("tuner").tune(model)
""",
)
