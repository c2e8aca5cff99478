"""A launch script gives an option a value that the program refuses.

What it does
    Reports a value that is not of the option's type (`int`, `float`), that is none of its choices, an option that
    takes a value and gets none, and too few values for `nargs=N`; also a text that the program looks up in a table
    which lacks it, or refuses by itself (`OPTIMIZERS[args.optim]`, `if args.optim == "adam": … else: raise`, see
    MP315), the values of `key=value` words for Hydra among them; and such a
    word with a comma that nothing quotes for Hydra (`devices=0,1`), where nothing asks it for several runs
    (`--multirun`); a warning where not all words are known. What the script does not set is not judged.

Why is this bad
    argparse ends the program with "invalid int value" or "invalid choice": on every node, after the queue.

References
    https://docs.python.org/3/library/argparse.html#type
    https://docs.python.org/3/library/argparse.html#choices
"""

from __future__ import annotations

from collections.abc import Iterator

from rules.launch._reading.common import LANGUAGES, TOKENS, set_at
from validator.analysis.commands.command_line import CommandLine, CommandLines, Given, refused
from validator.analysis.commands.launch import Launch, Launches
from validator.analysis.options.accepted import Accepted, Asked
from validator.analysis.recipes.composed import Compositions, is_unsure
from validator.errors import nearest
from validator.finding import Finding, Related
from validator.project import Project
from validator.rule import Rule

RULE = Rule("MP702", "flag-value-refused", "error", stable_since="0.1.0", tokens=TOKENS, languages=LANGUAGES)


def check_project(project: Project) -> Iterator[Finding]:
    yield from _of_words(project)
    yield from _of_runs(project)
    for launch, line in project.analysis(CommandLines).all:
        if launch.parser is None:
            continue
        for given in line.given:
            if given.option is None:
                continue
            if why := _why(given, line):
                yield _report(given, why, launch)
            else:
                yield from _looked_up(project, given, launch)


def _looked_up(project: Project, given: Given, launch: Launch) -> Iterator[Finding]:
    """Of the values of an option the first that the program looks up in vain, or refuses by itself."""
    option = given.option
    if option is None or launch.parser is None or option.type not in ("", "str") or not option.takes_value:
        return
    rows = project.analysis(Accepted).options.get((launch.parser, option.dest), ()) if option.nargs is None else ()
    for value in given.values if rows else ():
        asked = next((each for each in rows if value.known and each.refuses(value.text)), None)
        if asked is not None:
            yield RULE.finding(
                given.flag.place.path,
                given.at,
                f"`{given.flag.text}` of `{launch.name}` is given {value.text!r}: {asked.told(value.text)}",
                help=asked.advice(value.text),
                related=[*set_at(given), asked.related],
                context=f"{launch.name}:{given.flag.text}",
                severity="error" if asked.is_certain else "warning",
            )
            return


def _of_words(project: Project) -> Iterator[Finding]:
    """Values of `key=value` words that a program which Hydra starts looks up in vain, or refuses."""
    compositions = project.analysis(Compositions)
    if not compositions.programs:
        return
    taken: dict[tuple[object, str], list[Asked]] = {}
    for o, key, asked in project.analysis(Accepted).keys:
        unit, number = o[1][-1]
        if number is None:
            taken.setdefault((unit.module, f"{o[2]}.{key}" if o[2] else key), []).append(asked)
    for launch in project.analysis(Launches).all if taken else ():
        composition = compositions.of(launch) if launch.module is not None else None
        for override in composition.overrides if composition is not None else ():
            value = override.value
            known = taken.get((launch.module, override.key), ()) if override.sign != "~" and value.known else ()
            for asked in [each for each in known if each.refuses(value.text)][:1]:
                place = override.word.place
                yield RULE.finding(
                    place.path,
                    (place.line, place.column, place.line, place.column + len(override.key)),
                    f"`{override.key}` of `{launch.name}` is given {value.text!r}: {asked.told(value.text)}",
                    help=asked.advice(value.text),
                    related=[asked.related],
                    context=f"{launch.name}:{override.key}",
                    severity="warning",
                )


def _of_runs(project: Project) -> Iterator[Finding]:
    """Words for Hydra with the values of several runs, where one is asked for."""
    compositions = project.analysis(Compositions)
    for launch in project.analysis(Launches).all:
        for override in compositions.of_several(launch):
            place = override.word.place
            yield RULE.finding(
                place.path,
                (place.line, place.column, place.line, max(override.word.end, place.column + 1)),
                f"Hydra takes `{override.value.text}` for the values of several runs, and refuses it without"
                " `--multirun`",
                help=f"quote it for Hydra too (`{override.key}='\"{override.value.text}\"'`), or write a list"
                f" (`{override.key}=[{override.value.text}]`)",
                context=f"{launch.name}:{override.key}:several",
                severity="warning" if is_unsure(launch) else "error",
            )


def _why(given: Given, line: CommandLine) -> str:
    option = given.option
    assert option is not None
    if not option.takes_value:
        return ""
    needed = option.nargs if isinstance(option.nargs, int) else 1 if option.nargs in (None, "+") else 0
    if len(given.values) < needed and not line.open and not any(value.many for value in given.values):
        got = f"only {len(given.values)}" if given.values else "none"
        return f"takes {needed} value{'s' if needed > 1 else ''} and gets {got}"
    for value in given.values:
        if why := refused(value, option):
            return f"is given `{value.text}`, which {why}"
    return ""


def _report(given: Given, why: str, launch: Launch) -> Finding:
    option = given.option
    assert option is not None
    choices = option.choices if isinstance(option.choices, list | tuple) else []
    texts = [str(choice) for choice in choices]
    value = given.values[0].text if given.values else ""
    if texts:
        help = f"choose one of {', '.join(texts)}{nearest(value, texts)}"
    else:
        help = f"give it {_article(option.type)}" if option.type in ("int", "float") else "give it its value"
    return RULE.finding(
        given.flag.place.path,
        given.at,
        f"`{given.flag.text}` of `{launch.name}` {why}",
        help=help,
        related=[*set_at(given), Related(option.path, option.at[0], f"`{given.flag.text}` is defined here")],
        context=f"{launch.name}:{given.flag.text}",
    )


def _article(type: str) -> str:
    return "a whole number" if type == "int" else "a number"


_TRAIN = """# file: train.py
import argparse

parser = argparse.ArgumentParser()
parser.add_argument("--backend", choices=["deepspeed", "fsdp2"], default="deepspeed")
parser.add_argument("--zero_stage", type=int, default=2)
parser.add_argument("--adam_betas", type=float, nargs=2, default=(0.9, 0.95))
parser.add_argument("--learning_rate", type=float)
parser.add_argument("--pretrain")
args = parser.parse_args()
"""

_CLASSES = """# file: rl/__init__.py
# file: rl/train.py
from dataclasses import dataclass
from typing import Literal, Optional

from transformers import HfArgumentParser


class Parser(HfArgumentParser):
    def parse(self):
        return self.parse_args_into_dataclasses()[0]


@dataclass
class Settings:
    priority: Literal["low", "normal"] = "normal"
    steps: Optional[int] = None
    offload: bool = False


if __name__ == "__main__":
    print(Parser((Settings,)).parse())
# file: submit.py
import argparse

parser = argparse.ArgumentParser()
parser.add_argument("--gpus", type=int)
print(parser.parse_known_args())
"""

_LOOKED_UP = """# file: train.py
import argparse

SAMPLERS = {}
LOSSES = {"dpo": sum}
LOSSES["ipo"] = max


def register(cls):
    SAMPLERS[cls.__name__.lower()] = cls
    return cls


@register
class Uniform:
    pass


@register
class Packed:
    pass


def schedule(name, steps):
    if name == "cosine":
        return steps
    elif name in ("linear", "constant"):
        return 2 * steps
    else:
        raise ValueError(f"no schedule {name}")


class Trainer:
    def __init__(self, args):
        self.args = args
        self.sampler = SAMPLERS[args.sampler]()

    def fit(self):
        return LOSSES[self.args.loss]([schedule(self.args.lr_schedule, 3)])


parser = argparse.ArgumentParser()
parser.add_argument("--loss", type=str, default="dpo")
parser.add_argument("--sampler", default="packed")
parser.add_argument("--lr_schedule", default="cosine")
print(Trainer(parser.parse_args()).fit())
"""

_WORDS = """# file: rl/__init__.py
# file: rl/conf/base.yaml
algorithm: {estimator: gae}
# file: rl/main.py
import hydra

ESTIMATORS = {"gae": sum, "grpo": max}


def estimator(name):
    if name not in ESTIMATORS:
        raise ValueError(f"no estimator {name}")
    return ESTIMATORS[name]


@hydra.main(config_path="conf", config_name="base", version_base=None)
def main(config):
    print(estimator(config.algorithm.estimator))


if __name__ == "__main__":
    main()
"""

INCORRECT = (
    _LOOKED_UP
    + """# file: run.sh
python train.py \\
    --loss kto \\  # error: MP702
    --sampler grouped \\  # error: MP702
    --lr_schedule cosin  # error: MP702
""",
    _WORDS
    + """# file: run.sh
python -m rl.main algorithm.estimator=grpo_passk  # error: MP702
""",
    _TRAIN
    + """# file: run.sh
STAGE=two
python train.py \\
    --backend fsdp \\  # error: MP702
    --zero_stage $STAGE \\  # error: MP702
    --adam_betas 0.9 \\  # error: MP702
    --pretrain \\  # error: MP702
    --learning_rate 5e-6x  # error: MP702
""",
    # the fields of a data class are the options, of a program that another one starts
    _CLASSES
    + """# file: run.sh
python submit.py --gpus 8 -- source setup.sh \\&\\& python rl/train.py \\
    --priority urgent \\  # error: MP702
    --steps 1e3 \\  # error: MP702
    --offload
""",
)

CORRECT = (
    _LOOKED_UP
    + """# file: run.sh
python train.py --loss ipo --sampler uniform --lr_schedule linear
python train.py --loss $LOSS
""",
    _WORDS
    + """# file: run.sh
python -m rl.main algorithm.estimator=grpo
""",
    # an action of the project's own says how many values it takes
    """# file: train.py
import argparse


class StoreBoolean(argparse.Action):
    def __init__(self, option_strings, dest, **more):
        super().__init__(option_strings, dest, nargs="?", const=True, **more)

    def __call__(self, parser, namespace, values, option_string=None):
        setattr(namespace, self.dest, str(values).lower() == "true")


parser = argparse.ArgumentParser()
parser.add_argument("--offload", action=StoreBoolean)
parser.add_argument("--steps", type=int)
print(parser.parse_args())
# file: run.sh
python train.py --offload --steps 100
""",
    _CLASSES
    + """# file: run.sh
python submit.py --gpus 8 -- python rl/train.py --priority low --steps 1000 --offload true
""",
    _TRAIN
    + """# file: run.sh
torchrun --nproc_per_node 8 train.py --backend=fsdp2 --zero_stage ${STAGE:-3} --adam_betas 0.9 0.95 \\
    --learning_rate 5e-6 --pretrain $MODEL
python train.py --zero_stage $1 --backend <backend> --learning_rate {rate}
""",
    _TRAIN
    + """# file: run.sh
for stage in 1 2 3; do
    python train.py --zero_stage $stage --adam_betas $BETAS
done
python train.py --zero_stage $((1 + 1)) $OPTIONS --pretrain
""",
)
