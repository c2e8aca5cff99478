"""A key that is read of a dictionary, and that no dictionary which may be there has.

What it does
    Follows what is asked by a literal key (`result["loss"]`, `batch["labels"]`) to the dictionaries that it may be:
    what functions of the project return, and the batches that a data loader puts together of the samples of a data set
    or with its `collate_fn`. Reported where none of them has the key. Silent where one may have it or is not known,
    where keys may be added on the way, behind a test of the key, and where a KeyError is caught.

Why is this bad
    It raises KeyError, when the line runs: somebody renamed a key, or dropped it, and did not come to this reader.

References
    https://docs.python.org/3/library/exceptions.html#KeyError
"""

from __future__ import annotations

from collections.abc import Iterator

from validator.errors import nearest
from validator.finding import Finding
from validator.flow.objects import is_passed
from validator.flow.queries.base import Place, Queries
from validator.flow.queries.outside_program import is_aside
from validator.flow.queries.rank_shares import within
from validator.flow.values import NONE_OBJ
from validator.project import Project
from validator.rule import Rule

RULE = Rule("MP146", "key-of-no-result", "error", "1.0", solves=True)

_LOADER = "torch.utils.data.DataLoader"
_READING = frozenset({"get", "keys", "values", "items", "copy", "pop"})


def check_project(project: Project) -> Iterator[Finding]:
    queries = project.analysis(Queries)
    for unit in queries.of_program():
        for place in queries.values(unit, "item") if not is_aside(unit.path) else ():
            key, owner = place.operand(1).val.constant(), place.operand(0)
            direct = isinstance(key, str) and _is_made_here(queries, owner.root)
            if not direct or _is_expected(place, key) or _is_changed(owner):
                continue
            keys = _keys(owner)
            if keys and key not in keys:
                yield _report(place, owner, key, keys)


def _is_made_here(queries: Queries, owner: Place) -> bool:
    """Whether a value is just what a call gave, or a batch of a loader: nobody else has it, who may have added keys."""
    if owner.value.op == "call":
        return bool(queries.targets(owner)) and not any(o[0] == "class" for o in owner.operand(0).closed.each)
    if owner.value.op == "unpack" and owner.value.data[0] == 1:
        owner = owner.operand(0).root
    iterable = owner.iterable
    return iterable is not None and any(o[:2] == ("made", _LOADER) for o in within(iterable.root).closed.each)


def _is_expected(place: Place, key: str) -> bool:
    """Whether the code is ready for a dictionary without the key."""
    if place.catches("KeyError", "LookupError", "Exception"):
        return True
    asked = (part.val.constant() for test in place.tests_inside for part in test.parts)
    return key in asked


def _is_changed(owner: Place) -> bool:
    """Whether a method that may add keys was called on a dictionary on its way here."""
    place = owner
    while place.value.op == "mut":
        call = place.operand(1)
        if call.value.op == "call" and place.value.data == -1 and call.method not in _READING:
            return True
        place = place.operand(0)
    return False


def _keys(owner: Place) -> set[str]:
    """The keys of all dictionaries that a value may be; none where it may be something else, or have others."""
    objs = owner.closed.objs - {NONE_OBJ}
    if not objs or any(o[0] != "dict" or o[2] is not None or not o[1] for o in objs):
        return set()
    return {str(key) for o in objs for key, _ in o[1]}


def _report(place: Place, owner: Place, key: str, keys: set[str]) -> Finding:
    listed = ", ".join(f"{each!r}" for each in sorted(keys)[:6]) + (", …" if len(keys) > 6 else "")
    return RULE.finding(
        place.unit.path,
        place.at,
        f"`{owner.text}`{place.where} has no key {key!r}: KeyError. It has {listed}",
        help=f"read a key that is there{nearest(key, sorted(keys))}",
        context=f"{place.unit.qualname}:{owner.text}:{key}",
        severity="warning" if is_passed(owner) else "error",
    )


INCORRECT = [
    """
def metrics(loss):
    return {"loss": loss, "steps": 1}

def train(loss):
    result = metrics(loss)
    print(result["loss"], result["step"])  # error: MP146

train(1.0)
""",
    """
import torch
from torch.utils.data import DataLoader, Dataset

class Rows(Dataset):
    def __getitem__(self, i):
        return {"input_ids": torch.zeros(3), "labels": torch.ones(3)}

def main():
    for batch in DataLoader(Rows(), batch_size=4):
        print(batch["input_ids"], batch["attention_mask"])  # error: MP146

main()
""",
    """
import torch
from torch.utils.data import DataLoader, Dataset

class Rows(Dataset):
    def __getitem__(self, i):
        return torch.zeros(3)

def collate(samples):
    return {"ids": torch.stack(samples)}

def main():
    loader = DataLoader(Rows(), collate_fn=collate)
    for step, batch in enumerate(loader):
        print(batch["input_ids"])  # error: MP146

main()
""",
]

CORRECT = [
    """
def metrics(loss):
    return {"loss": loss}

def train(loss, more):
    result = metrics(loss)
    result.update(more)
    result["steps"] = 2
    print(result["loss"], result["steps"], result["tokens"])

def asked(loss):
    result = metrics(loss)
    if "tokens" in result:
        print(result["tokens"])
    try:
        return result["seconds"]
    except KeyError:
        return 0

train(1.0, {})
asked(1.0)
""",
    """
def either(loss, whole):
    if whole:
        return {"loss": loss, "tokens": 3}
    return {"loss": loss}

def train(loss, whole):
    result = either(loss, whole)
    if whole:
        print(result["tokens"])

train(1.0, True)
""",
    """
class Scores:
    def __call__(self, inputs):
        inputs.update({f"score_{key}": 0 for key in inputs})
        return inputs

def loss(scores):
    inputs = scores({"reals": 1, "fakes": 2})
    return inputs["score_reals"]

loss(Scores())
""",
]
