"""Two methods of a class compute the same size, and one leaves a parallel size out.

What it does
    Takes what methods of one class, or functions of one file, store under the same key or attribute
    (`config["train_batch_size"] = …`), and multiplies out what it is made of. Reports one that has all factors of
    another but the size of a parallel group (`ring_attn_size`, `tensor_parallel_size`). Silent where the size is asked
    for before, and in tests.

Why is this bad
    The batch of one configuration counts the ranks of a ring or of a tensor-parallel group, that of the other does not:
    DeepSpeed derives another number of accumulated batches, or refuses the configuration. While the size is 1 nothing
    shows.

References
    https://www.deepspeed.ai/docs/config-json/#batch-size-related-parameters
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from validator.domains.axes import MODEL_PARALLEL, axes_of
from validator.finding import Finding, Related
from validator.flow.program.unit import Unit
from validator.flow.queries.base import Place, Queries
from validator.flow.queries.outside_program import is_test
from validator.flow.queries.values.polynomials import polynomial
from validator.project import Project
from validator.rule import Rule

RULE = Rule(
    "MP445", "factor-of-one-twin", "warning", "1.1", tokens=("parallel", "ring", "ulysses", "_size"), solves=True
)


class _Stored(NamedTuple):
    """What a function stores as a product of factors, by what these are for every function of the class."""

    place: Place
    factors: dict[Any, Place]


def check_project(project: Project) -> Iterator[Finding]:
    queries = project.analysis(Queries)
    rows: dict[Any, list[_Stored]] = {}
    for unit in queries.of_program():
        for key, stored in _stored(queries, unit) if not is_test(unit.path) else ():
            rows.setdefault((unit.module.path, unit.cls, key), []).append(stored)
    for twins in rows.values():
        for one in twins:
            found = next(((other, name) for other in twins if (name := _left_out(one, other)) is not None), None)
            if found is not None:
                yield _report(one, *found)


def _stored(queries: Queries, unit: Unit) -> Iterator[tuple[str, _Stored]]:
    for place in queries.values(unit, "store_item", "store_attr"):
        of_item = place.value.op == "store_item"
        key = place.operand(1).val.constant() if of_item else place.value.data
        product = place.operand(2 if of_item else 1).root
        if isinstance(key, str) and product.value.op == "binary" and product.value.data == "Mult":
            terms = polynomial(product).terms
            if len(terms) == 1 and set(terms.values()) == {1}:
                (monomial,) = terms
                factors = {_of_class(atom.key, unit): atom.place for atom in monomial}
                if len(factors) == len(monomial) and not any(each.value.op == "const" for each in factors.values()):
                    yield key, _Stored(product, factors)


def _of_class(key: Any, unit: Unit) -> Any:
    """A key in which the object itself is the same for all methods, and parameters go by their names."""
    if isinstance(key, tuple) and key[:1] == ("param",) and len(key) == 3:
        return ("self",) if unit.has_receiver and key[2] == 0 else ("param", unit.code.params[key[2]][0])
    return tuple(_of_class(each, unit) for each in key) if isinstance(key, tuple) else key


def _left_out(one: _Stored, other: _Stored) -> Place | None:
    """The parallel size by which alone two products differ, if the second has it."""
    if one.place.unit is other.place.unit or not one.factors.keys() < other.factors.keys():
        return None
    more = [other.factors[key] for key in other.factors.keys() - one.factors.keys()]
    known = len(more) == 1 and len(one.factors) > 0 and bool(axes_of(more[0].hint) & MODEL_PARALLEL)
    asked = known and any(more[0].hint in test.words for test in one.place.tests_inside)
    return more[0] if known and not asked else None


def _report(one: _Stored, other: _Stored, size: Place) -> Finding:
    place, unit = one.place, other.place.unit
    return RULE.finding(
        place.unit.path,
        place.at,
        f"`{place.text}`{place.where} leaves out `{size.text}`, by which `{unit.qualname}` multiplies the same size",
        help=f"multiply by `{size.text}` as well, or say why not",
        related=[Related(unit.path, other.place.at[0], "all factors")],
        context=f"{place.unit.qualname}:{size.text}",
    )


_CONFIGS = """\
class Strategy:
    def __init__(self, args):
        self.batch_size = args.batch_size
        self.ring_attn_size = args.ring_attn_size
        self.tensor_parallel_size = args.tensor_parallel_size

    def training(self):
        config = {{"bf16": {{"enabled": True}}}}
        config["train_batch_size"] = {first}
        return config

    def evaluation(self):
        config = {{}}
        config["train_batch_size"] = self.batch_size * self.ring_attn_size * self.tensor_parallel_size
        return config
"""

INCORRECT = (_CONFIGS.format(first="self.tensor_parallel_size * self.batch_size  # error: MP445"),)

CORRECT = (
    _CONFIGS.format(first="self.tensor_parallel_size * (self.batch_size * self.ring_attn_size)"),
    _CONFIGS.format(first="self.batch_size * 2"),
)
