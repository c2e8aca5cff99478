"""A value with which a method compares what a library passes, and that the library never passes.

What it does
    Reports comparisons of a parameter with texts, none of which the library passes that calls the method:
    `setup(self, stage)` of modules and data modules of Lightning gets `fit`, `validate`, `test` or `predict`.
    Silent where the project calls the method, too.

Why is this bad
    What stands under the test never happens: the data sets are not built, and the next method that asks for them fails,
    or goes on with what was there.

References
    https://lightning.ai/docs/pytorch/stable/common/lightning_module.html#setup
"""

from __future__ import annotations

from collections.abc import Iterator

from validator.finding import Finding
from validator.flow.program.unit import Unit
from validator.flow.queries.base import Place, Queries
from validator.flow.queries.outside_program import is_test
from validator.project import Project
from validator.rule import Rule

RULE = Rule("MP159", "value-never-passed", "error", stable_since="0.6.0")

_OUTCOMES = {"Eq": "never holds", "In": "never holds", "NotEq": "always holds", "NotIn": "always holds"}


def check_project(project: Project) -> Iterator[Finding]:
    queries = project.analysis(Queries)
    for cls in project.classes():
        for base in cls.external_bases:
            passes = queries.flow.models.library(base).passes
            for name in passes.keys() & cls.methods.keys():
                unit = queries.flow.unit_of(cls.methods[name])
                if (
                    unit is not None
                    and not is_test(unit.path)
                    and not any(_gives_text(e) for e in queries.calls_of(unit))
                ):
                    yield from _check(queries, unit, passes[name])


def _gives_text(call: Place) -> bool:
    """Whether the project itself calls the method with some text."""
    return any(isinstance(call.value_at(number).val.constant(), str) for number in call.value.args[1:])


def _check(queries: Queries, unit: Unit, passed: dict[str, list[str]]) -> Iterator[Finding]:
    for test in queries.values(unit, "compare"):
        asked = test.operand(0).root
        known = passed.get(unit.code.params[asked.value.data[0]][0]) if asked.value.op == "param" else None
        wanted = _texts(test.operand(1)) if known and test.value.data in _OUTCOMES else []
        if known and wanted and not set(wanted) & set(known):
            yield RULE.finding(
                unit.path,
                test.at,
                f"`{test.text}`{test.where} {_OUTCOMES[test.value.data]}: the library passes"
                f" {', '.join(map(repr, known))}",
                help="compare with what is passed",
                context=f"{unit.qualname}:{test.text}",
            )


def _texts(place: Place) -> list[str]:
    """The texts that a value is, or holds; none where there is anything else."""
    root = place.root
    parts = (
        [root.operand(i) for i in range(len(root.value.args))] if root.value.op in ("tuple", "list", "set") else [root]
    )
    found = [part.val.constant() for part in parts]
    return [text for text in found if isinstance(text, str)] if all(isinstance(t, str) for t in found) else []


_MODULE = """
import lightning.pytorch as pl

class Data(pl.LightningDataModule):
    def setup(self, stage):
        if {test}:{mark}
            self.rows = [1, 2]

    def train_dataloader(self):
        return self.rows
"""

INCORRECT = (
    _MODULE.replace("{test}", 'stage == "train"').replace("{mark}", "  # error: MP159"),
    _MODULE.replace("{test}", 'stage in ("train", "val")').replace("{mark}", "  # error: MP159"),
)

CORRECT = (
    _MODULE.replace("{test}", 'stage == "fit"').replace("{mark}", ""),
    _MODULE.replace("{test}", 'stage in (None, "fit")').replace("{mark}", ""),
    _MODULE.replace("{test}", 'stage == "train"').replace("{mark}", "") + "\nData().setup('train')\n",
)
