"""A launch script passes an option that the releases of a library which the project admits do not have.

What it does
    Where the options of a program are fields of a class of transformers, trl or another library with a table
    (`HfArgumentParser((ModelArguments, TrainingArguments))`, a data class that inherits from `DPOConfig`, `TrlParser`),
    holds each option of a launch script that none of the project's own fields is against those fields, release by
    release. An error where every release that the requirements admit lacks it; a warning where the newest does, or
    where they admit releases older than the tables know; a note where nothing is required and older releases had it.
    Silent where the parser may have options from elsewhere, and where what it does not know is left to others.

Why is this bad
    `ValueError: Some specified arguments are not used by the HfArgumentParser`: on every node, after the queue, for
    everybody who installs what the requirements say.

References
    https://huggingface.co/docs/transformers/internal/trainer_utils#transformers.HfArgumentParser
    https://github.com/huggingface/transformers/blob/main/MIGRATION_GUIDE_V5.md
"""

from __future__ import annotations

from collections.abc import Iterator

from rules.launch._reading.common import LANGUAGES, TOKENS, span
from validator.analysis.commands.command_line import CommandLines, Given
from validator.analysis.commands.launch import Launch
from validator.analysis.interfaces.binding import Misfit
from validator.analysis.interfaces.library_calls import Refused, advice, refused
from validator.analysis.options.parsers import Parser
from validator.finding import Finding, Related
from validator.models.signatures import Signature, Version
from validator.project import Project
from validator.rule import Rule

RULE = Rule("MP712", "library-option-refused", "error", stable_since="1.0", tokens=TOKENS, languages=LANGUAGES)


def check_project(project: Project) -> Iterator[Finding]:
    """One finding for each option that a file gives a program, with the other places of the file."""
    found: dict[tuple[str, str, str], list[Finding]] = {}
    for each in _refused(project):
        found.setdefault((each.path, each.context, each.message), []).append(each)
    for first, *others in found.values():
        also = [Related(each.path, each.span[0], "given here, too") for each in others]
        yield first._replace(related=(*first.related, *also))


def _refused(project: Project) -> Iterator[Finding]:
    for launch, line in project.analysis(CommandLines).all:
        parser = launch.parser
        if parser is not None and parser.taken and parser.refuses_others:
            for given in line.given:
                if given.is_unknown:
                    yield from _check(project, launch, parser, given)


def _check(project: Project, launch: Launch, parser: Parser, given: Given) -> Iterator[Finding]:
    name = given.flag.text[2:].replace("-", "_")
    kin = sorted(parser.taken, key=lambda each: not any(_has(each, name, release) for release in each.releases))
    taken, *others = kin
    if any(_has(each, name, release) for each in others for release in each.releases):
        return

    def refuses(release: Version) -> Misfit | None:
        return None if _has(taken, name, release) else Misfit("unknown-keyword", name, "", given.at)

    found = refused(project, parser.module, taken.library, taken.releases, refuses)
    if found is not None:
        yield _report(launch, parser, given, taken, found)


def _has(taken: Signature, name: str, release: Version) -> bool:
    """Whether a release makes an option of that name: argparse takes beginnings, and `--no_x` switches `x` off."""
    spelled = (name, name.removeprefix("no_"))
    return any(param.name.startswith(spelled) for param in taken.parameters(release))


def _report(launch: Launch, parser: Parser, given: Given, taken: Signature, found: Refused) -> Finding:
    flag, library = given.flag, taken.library.distribution
    return RULE.finding(
        flag.place.path,
        span(flag),
        f"`{flag.text}` is no option of `{launch.name}` with {library} {found.releases}:"
        f" its `{taken.name.rpartition('.')[2]}` has no such field",
        help=advice(taken, found, dashes="--"),
        related=[Related(parser.function.path, parser.at[0], f"the parser of `{parser.name}`")],
        context=f"{launch.name}:{flag.text}",
        severity=found.severity,
    )


_TRAIN = """# file: demo/__init__.py
# file: demo/train.py
import sys
from dataclasses import dataclass, field

from transformers import HfArgumentParser, TrainingArguments


@dataclass
class ModelArguments:
    model_name_or_path: str = field(default="")
    no_bias: bool = False


@dataclass
class Arguments(TrainingArguments):
    lora_rank: int = 8


def main():
    parser = HfArgumentParser((ModelArguments, Arguments))
    if len(sys.argv) == 2 and sys.argv[1].endswith(".json"):
        model_args, args = parser.parse_json_file(json_file=sys.argv[1])
    else:
        model_args, args = parser.parse_args_into_dataclasses()
    print(model_args.model_name_or_path, model_args.no_bias, args.lora_rank)


if __name__ == "__main__":
    main()
# file: demo/prefer.py
from trl import DPOConfig, ModelConfig
from trl.scripts import TrlParser

if __name__ == "__main__":
    args, model_args = TrlParser((DPOConfig, ModelConfig)).parse_args_and_config()
    print(args, model_args)
"""

INCORRECT = (
    _TRAIN
    + """# file: requirements.txt
transformers>=4.46
# file: run.sh
torchrun --nproc_per_node 8 -m demo.train --model_name_or_path x --output_dir out \\
    --evaluation_strategy no \\  # error: MP712
    --lora-rank 16 --eval_strategy no --per_device_batch_size 4  # error: MP712
""",
    _TRAIN
    + """# file: requirements.txt
trl>=0.20
# file: run.sh
accelerate launch -m demo.prefer --config recipe.yaml --output_dir out --beta 0.1 \\
    --generate_during_evaluation  # error: MP712
""",
)

CORRECT = (
    _TRAIN
    + """# file: requirements.txt
transformers>=4.40,<4.46
# file: run.sh
torchrun --nproc_per_node 8 -m demo.train --model_name_or_path x --output_dir out --evaluation_strategy no \\
    --lora_rank 16 --no_bias --bf16 --per_device_train_batch_size 4 --no_dataloader_pin_memory $MORE
""",
    _TRAIN.replace("parse_args_into_dataclasses()", "parse_args_into_dataclasses(return_remaining_strings=True)[:2]")
    + """# file: requirements.txt
transformers>=4.46
# file: run.sh
torchrun --nproc_per_node 8 -m demo.train --output_dir out --evaluation_strategy no --zero_stage 3
""",
    _TRAIN.replace("def main():\n", "def main():\n    from elsewhere import MoreArguments\n").replace(
        "(ModelArguments, Arguments)", "(ModelArguments, Arguments, MoreArguments)"
    )
    + """# file: requirements.txt
transformers>=4.46
# file: run.sh
torchrun --nproc_per_node 8 -m demo.train --output_dir out --evaluation_strategy no --zero_stage 3
""",
)
