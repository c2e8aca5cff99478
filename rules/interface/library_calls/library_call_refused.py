"""A call that the releases of a library which the project admits do not take.

What it does
    Binds calls of what transformers, trl, accelerate, peft, deepspeed and Lightning offer (`TrainingArguments`,
    `DPOTrainer`, `Accelerator`, `LoraConfig`, ...) to their signatures, release by release: unknown keywords, too many
    positional arguments, missing ones. So it does with objects of the project's classes that inherit a constructor, and
    with `super().__init__(...)`. An error where every release that the requirements beside the code admit refuses the
    call; a warning where the newest of them does, or where they admit releases older than the tables know; a note
    where nothing is required. Silent where only older releases refuse it, where TypeError is caught, and where the
    version or the signature is asked for.

Why is this bad
    `TypeError` at start, for everybody who installs what the requirements say: trainers lose a keyword with nearly each
    minor release.

References
    https://github.com/huggingface/transformers/blob/main/MIGRATION_GUIDE_V5.md
    https://github.com/huggingface/trl/blob/main/MIGRATION.md
"""

from __future__ import annotations

from collections.abc import Iterator

from validator.analysis.interfaces.binding import Misfit, misfit_of
from validator.analysis.interfaces.library_calls import Refused, advice, is_asked_for, is_replaced, refused
from validator.facts.model import Call, Param
from validator.finding import Finding
from validator.models.signatures import PACKAGES, Signature, Version, signature
from validator.project import ClassDef, Method, Project
from validator.rule import Rule

RULE = Rule("MP150", "library-call-refused", "error", stable_since="1.0", tokens=PACKAGES)

_PARTIAL = frozenset({"partial", "functools.partial"})
_OWN_CONSTRUCTOR = "super().__init__"


def check_project(project: Project) -> Iterator[Finding]:
    for module in project.modules.values():
        if any(package in module.source.text for package in PACKAGES):
            for function in module.functions.values():
                for call in function.facts.calls:
                    partial = call.target in _PARTIAL and bool(call.args) and call.args[0].kind == "path"
                    made = call._replace(target=call.args[0].value, args=call.args[1:]) if partial else call
                    yield from _check(project, function, made, partial)


def _check(project: Project, function: Method, call: Call, partial: bool) -> Iterator[Finding]:
    known = _callee(project, function, call)
    if known is None or is_asked_for(call):
        return
    taken, own = known
    if own and not any(argument.keyword not in (None, "*", "**") for argument in call.args):
        return

    def refuses(release: Version) -> Misfit | None:
        return misfit_of(_with(taken.parameters(release), own), call, partial=partial or bool(own))

    found = refused(project, function.module, taken.library, taken.releases, refuses)
    if found is not None:
        yield _report(function, call, taken, found)


def _callee(project: Project, function: Method, call: Call) -> tuple[Signature, tuple[str, ...]] | None:
    """What a call makes, with the fields that classes of the project add to it."""
    if call.target == _OWN_CONSTRUCTOR:
        cls = function.cls
        return _above(cls) if cls is not None and function.name == "__init__" and not cls.is_record else None
    if call.target.startswith(("self.", "cls.", "super()")):
        return None
    symbol = project.lookup(function, call.target)
    if isinstance(symbol, ClassDef):
        return None if any("__init__" in each.methods for each in symbol.mro) else _above(symbol)
    taken = signature(project.dotted(function, call.target))
    return (taken, ()) if taken is not None and not is_replaced(function, call.target.partition(".")[0]) else None


def _above(cls: ClassDef) -> tuple[Signature, tuple[str, ...]] | None:
    """The constructor that a class of the project has from a library, with the fields that data classes add."""
    rest = [each for each in cls.mro if each is not cls]
    if any("__init__" in each.methods for each in rest) or any("__new__" in each.methods for each in cls.mro):
        return None
    taken = [signature(base) for base in cls.external_bases]
    if len(taken) != 1 or taken[0] is None or not all(each.has_plain_decorators for each in cls.mro):
        return None
    own = {name for each in cls.mro if each.is_record for name, _ in each.facts.attributes}
    return taken[0], tuple(sorted(own))


def _with(params: tuple[Param, ...], own: tuple[str, ...]) -> tuple[Param, ...]:
    """Parameters with the fields of data classes below, which have defaults of any kind."""
    if not own:
        return params
    return (*params, *(Param(name, "kw", "…", "", (0, 0, 0, 0)) for name in own))


def _report(function: Method, call: Call, taken: Signature, found: Refused) -> Finding:
    misfit, library = found.misfit, taken.library
    name = call.target if call.target != _OWN_CONSTRUCTOR else f"{_OWN_CONSTRUCTOR}(…)` of `{taken.name}"
    shown = f"`{name}(…)`" if call.target != _OWN_CONSTRUCTOR else f"`{name}`"
    where = "" if function.qualname == "<module>" else f" in `{function.qualname}`"
    return RULE.finding(
        function.module.path,
        misfit.at if misfit.kind != "missing" else call.name_at,
        f"{shown}{where} raises TypeError with {library.distribution} {found.releases}: it {misfit.message}",
        help=(
            advice(taken, found)
            if misfit.kind == "unknown-keyword"
            else "pass what the signature of the installed release asks for"
        ),
        context=f"{function.qualname}:{taken.name}:{misfit.kind}:{misfit.name}",
        severity=found.severity,
    )


INCORRECT = (
    """\
# file: requirements.txt
transformers>=4.51
# file: train.py
from transformers import Trainer, TrainingArguments


def main(model, tokenizer, data):
    args = TrainingArguments("out", evaluation_strategy="steps", learning_rate=1e-5)  # error: MP150
    warm = TrainingArguments("out", warm_up_steps=10)  # error: MP150
    return Trainer(model, args, train_dataset=data, processing_class=tokenizer), warm
""",
    """\
# file: pyproject.toml
[project]
name = "tuning"
dependencies = ["trl>=0.12", "transformers>=4.46,<5", "peft==0.15.2"]
# file: tuning/train.py
from dataclasses import dataclass
from functools import partial

from peft import LoraConfig
from transformers import Trainer, TrainingArguments
from trl import DPOConfig, DPOTrainer


@dataclass
class Arguments(TrainingArguments):
    rank: int = 8


class LoraTrainer(Trainer):
    def __init__(self, model, args, tokenizer):
        super().__init__(model, args, tokeniser=tokenizer)  # error: MP150


def main(model, reference, data, tokenizer):
    args = Arguments("out", rank=16, evaluate_every=10)  # error: MP150
    make = partial(LoraConfig, target_module=["q_proj"])  # error: MP150
    config = DPOConfig("out", beta=0.1, generate_during_evaluation=True)  # error: MP150
    DPOTrainer(model, reference, args=config, train_dataset=data, tokenizer=tokenizer)  # error: MP150
    return LoraTrainer(model, args, tokenizer), make
""",
)

CORRECT = (
    """\
# file: requirements.txt
transformers>=4.40,<4.46
# file: train.py
import transformers
from transformers import Trainer, TrainingArguments


def main(model, tokenizer, data, **more):
    args = TrainingArguments("out", evaluation_strategy="steps", learning_rate=1e-5, **more)
    return Trainer(model, args, train_dataset=data, tokenizer=tokenizer)
""",
    """\
# file: requirements.txt
transformers>=4.51
# file: train.py
import transformers
from dataclasses import dataclass
from transformers import Trainer, TrainingArguments


@dataclass
class Arguments(TrainingArguments):
    rank: int = 8


class Short(Trainer):
    def __init__(self, model, rank, **more):
        super().__init__(model, **more)
        self.rank = rank


def main(model, tokenizer):
    if transformers.__version__ < "4.46":
        return Trainer(model, tokenizer=tokenizer)
    try:
        args = TrainingArguments("out", evaluation_strategy="steps")
    except TypeError:
        args = Arguments("out", rank=4, eval_strategy="steps")
    return Short(model, rank=3, args=args)
""",
)
