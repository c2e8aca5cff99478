"""A reward function asks for a column that the dataset does not have.

What it does
    Follows `train_dataset=` of the GRPO and RLOO trainers of trl back to
    `data.map(f, remove_columns=data.column_names)`, after which the dataset has the keys that `f` returns and no
    others, and holds against them the parameters without a default of the functions in `reward_funcs=`. Silent where
    not all columns are known. Of functions that a table or a branch chooses it is a warning, and silent where code puts
    something under such a key anywhere.

Why is this bad
    trl passes the columns to each reward function by their names: the first computation of the rewards raises TypeError
    (missing 1 required positional argument), after the models were loaded and the first completions were sampled.

References
    https://huggingface.co/docs/trl/main/en/grpo_trainer#using-a-custom-reward-function
"""

from __future__ import annotations

from collections.abc import Iterator

from validator.analysis.interfaces.binding import keeps_signature
from validator.analysis.options.dictionary_keys import DictionaryKeys
from validator.errors import nearest
from validator.finding import Finding, Related
from validator.flow.program.unit import Unit
from validator.flow.queries.base import Place, Queries
from validator.flow.queries.outside_program import is_aside
from validator.flow.queries.training.dataset_columns import columns_of
from validator.flow.values import Obj, elements
from validator.project import Project
from validator.rule import Rule

RULE = Rule("MP325", "column-missing", "error", "1.0", tokens=("reward_funcs",), solves=True)

_TRAINERS = frozenset({"trl.GRPOTrainer", "trl.RLOOTrainer"})
# what trl passes beside the columns, in any of its releases
_PASSED = frozenset({
    "prompts", "completions", "completion_ids", "completions_ids", "prompt_ids", "trainer_state", "log_extra",
    "log_metric", "environments",
})  # fmt: skip
# what handles the rows before the reward functions get them, and may put more into them
_HANDLING = ("_calculate_rewards", "_generate_and_score_completions", "_prepare_inputs", "training_step")
_NOT_PASSED = frozenset({"prompt", "completion"})


def check_project(project: Project) -> Iterator[Finding]:
    queries = project.analysis(Queries)
    for module in queries.flow.mentions.spelling("reward_funcs"):
        for unit in queries.flow.whole_units(module) if not is_aside(module.path) else ():
            for call in queries.calls_in(unit):
                yield from _check(project, queries, call) if "reward_funcs" in call.value.data.names else ()


def _check(project: Project, queries: Queries, call: Place) -> Iterator[Finding]:
    data, given = call.argument("train_dataset"), call.argument("reward_funcs")
    made = call.operand(0).closed.each
    if data is None or given is None or not made or not all(_is_trainer(queries, o) for o in made):
        return
    functions = _functions(given)
    columns = columns_of(data) if functions else None
    if columns is None:
        return
    for unit, sure in functions.items():
        for name in _needed(unit):
            if name not in columns and (sure or not project.analysis(DictionaryKeys).may_be_put(name)):
                yield _report(call, unit, name, columns)._replace(severity="error" if sure else "warning")


def _is_trainer(queries: Queries, o: Obj) -> bool:
    """Whether a class is one of the trainers, or one below it."""
    named = queries.flow.models.named
    if o[0] == "ext":
        return named(str(o[1])) in _TRAINERS
    below = o[0] == "class" and any(named(base) in _TRAINERS for base in o[1].external_bases)
    return below and not any(name in o[1].methods for name in _HANDLING)


def _functions(given: Place) -> dict[Unit, bool]:
    """The functions of the project that are given, one or a list of them, and whether they surely are: others are only
    some of which a table or a branch chooses."""
    value, written = given.closed, given.root
    listed = written.value.op in ("list", "tuple")
    places = [written.value_at(number) for number in written.value.args] if listed else [written]
    sure = {o[1] for place in places for o in place.closed.each if o[0] == "unit" and len(place.closed.each) == 1}
    inside = elements(value) if value.of("seq") or value.of("tuple") else value
    return {o[1]: o[1] in sure for o in inside.each if o[0] == "unit"}


def _needed(unit: Unit) -> list[str]:
    """The parameters of a reward function that only a column can fill."""
    method = unit.method
    if method is None or not keeps_signature(method) or method.is_method:
        return []
    rows = [param for param in method.facts.params if param.kind in ("any", "kw") and param.default is None]
    return [param.name for param in rows if param.name not in _PASSED]


def _report(call: Place, unit: Unit, name: str, columns: frozenset[str]) -> Finding:
    listed = ", ".join(f"`{each}`" for each in sorted(columns))
    method = unit.method
    line = method.facts.name_at[0] if method is not None else 1
    return RULE.finding(
        call.unit.path,
        call.at,
        f"`{unit.qualname}` needs a column `{name}`, but the dataset has {listed} alone: TypeError",
        help=f"keep a column of that name{nearest(name, sorted(columns - _NOT_PASSED))}",
        related=[Related(unit.path, line, f"`{unit.qualname}` is defined here")],
        context=f"{unit.qualname}:{name}",
    )


_TRAIN = """
from datasets import load_dataset
from trl import GRPOConfig, GRPOTrainer

def build(path):
    raw = load_dataset("json", data_files=path, split="train")

    def convert(row):
        return {{"prompt": row["question"], "{column}": row["response"]}}

    return raw.map(convert{removed}).shuffle(seed=3)

def exact(completions, answer, **kwargs):
    return [float(one == other) for one, other in zip(completions, answer)]

def short(completions, limit=3, **kwargs):
    return [float(len(each) < limit) for each in completions]

def main(model):
    args = GRPOConfig("out")
    GRPOTrainer(model, reward_funcs=[exact, short], args=args, train_dataset=build("x.json")).train(){mark}
"""
_ALL = ", remove_columns=raw.column_names"

INCORRECT = (_TRAIN.format(column="solution", removed=_ALL, mark="  # error: MP325"),)

CORRECT = (
    _TRAIN.format(column="answer", removed=_ALL, mark=""),
    _TRAIN.format(column="solution", removed="", mark=""),
    _TRAIN.format(column="solution", removed=_ALL, mark="").replace(".shuffle(seed=3)", '.add_column("answer", [])'),
)
