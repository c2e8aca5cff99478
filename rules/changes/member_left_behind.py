"""A member that objects of a class had before a change, and for which they are still asked.

What it does
    Compares the attributes, methods and properties that the objects of each class have before and after a change, those
    of bases included. Reports places that ask an object for one that its class lost, as far as the flow of values knows
    which objects come there: through parameters, fields, containers, wrappers (`DistributedDataParallel`, a
    `DataLoader` that keeps its sampler), registries and factories. An error where nothing else can come there, a
    warning where objects of other classes may, which have the member, or where nothing is known of the object and all
    other classes of one name, or of one base, with the class have it still, two at least. A warning, too, where the
    dictionary of an object is handed on (`control.__dict__`, `vars(control)`) without an attribute that is a property
    since the change, while its key is asked for. Silent where MP901 tells of the place, where a base outside the
    project or code outside the class may give it, and behind `hasattr`, `isinstance` and `except AttributeError`.

Why is this bad
    AttributeError, often only on the way that one option takes: the class that was tested still has the member.

References
    https://docs.python.org/3/reference/expressions.html#attribute-references
"""

from __future__ import annotations

from collections.abc import Iterator

from validator.drift.change import Change
from validator.drift.interfaces.lost_members import Asked, LostMembers, Taken
from validator.drift.names.removed import Names
from validator.finding import Finding, Related
from validator.rule import Rule

RULE = Rule("MP914", "member-left-behind", "error", stable_since="0.5.0", solves=True)


def check_change(change: Change) -> Iterator[Finding]:
    rows: dict[tuple[str, str], list[Asked]] = {}
    names: Names = change.analysis(Names)
    told = {(each.path, each.at) for lost in (*names.lost, *names.members) for each in lost.stale}  # by MP901
    members: LostMembers = change.analysis(LostMembers)
    for row in (*members.asked(), *members.asked_of_kin()):
        if (row.unit.path, row.place.at) in told:
            continue
        rows.setdefault((row.cls.qualname, row.name), []).append(row)
    for several in rows.values():
        yield _report(several)
    yield from map(_report_taken, members.taken())


def _report_taken(row: Taken) -> Finding:
    return RULE.finding(
        row.place.unit.path,
        row.place.at,
        f"since the change `{row.cls.name}` computes `{row.name}`, which is no part of `{row.place.text}` any more; its"
        f" key is asked for in {row.asked[0][0]}",
        help=f"keep `{row.name}` as an attribute, or add it to what is handed on",
        related=[
            Related(row.cls.path, row.cls.methods[row.name].facts.at[0], f"`{row.name}` is a property now"),
            *(Related(path, line, "the key is asked for here") for path, line in row.asked),
        ],
        context=f"{row.cls.qualname}.{row.name}:dict",
        severity="warning",
    )


def _report(rows: list[Asked]) -> Finding:
    row, *others = sorted(rows, key=lambda each: (not each.only, each.unit.path, each.place.at))
    cls = row.cls
    kind = "method" if row.place.is_called else "attribute"
    instead = f"; it has `{row.now}` now" if row.now else ""
    where = "which is asked for it here" if row.only else "of which an object may be asked for it here"
    if row.kin:
        where = f"which {len(row.kin)} others of its kind have, and which an unknown object is asked for here"
    return RULE.finding(
        row.unit.path,
        row.place.at,
        f"since the change `{cls.name}` has no {kind} `{row.name}`, {where}{instead}",
        help=f"ask for `{row.now}`"
        if row.now and row.only
        else f"give `{cls.name}` a `{row.name}`, or ask for what it has",
        related=[
            Related(cls.path, cls.facts.name_at[0], f"`{cls.name}` as it is now"),
            *(Related(each.unit.path, each.place.at[0], "it is asked for here too") for each in others),
            *(Related(each.path, each.facts.name_at[0], f"`{each.qualname}` has it") for each in row.kin[:2]),
        ],
        context=f"{cls.qualname}.{row.name}",
        severity="error" if row.only else "warning",
    )


_SENT_WHOLE = """\
# before: control.py
class Control:
    def __init__(self, low, high):
        self.low, self.high = low, high
        self.enabled_now = low > 0
# file: control.py
class Control:
    def __init__(self, low, high):
        self.low, self.high = low, high

    @property
    def enabled_now(self):
        return self.low > 0
# file: train.py
from actor import update
from control import Control


def fit(batches):
    control = Control(0.1, 0.3)
    for batch in batches:
        batch["control"] = {sent}{mark}
        update(batch)
# file: actor.py
def update(batch):
    return batch["loss"] if batch["control"]["enabled_now"] else 0
"""

_KIN = """# before: models/dense.py
class Transformer:
    def __init__(self, width):
        self.width = width
        self.image_words = 0
# file: models/dense.py
class Transformer:
    def __init__(self, width):
        self.width = width
# file: models/sparse.py
class Transformer:
    def __init__(self, width):
        self.image_words = width
# file: models/{third}.py
class {kind}:
    def __init__(self, width):
        self.image_words = 2 * width
# file: train.py
from importlib import import_module


def main(name, width):
    model = import_module(f"models.{{name}}").Transformer(width)
    return model.image_words{mark}
"""

INCORRECT = (
    # one of two data sets lost what the sampler asks for
    """# before: data.py
class Texts:
    def __init__(self, rows):
        self.rows = rows
        self.lengths = [len(row) for row in rows]


class Speech:
    def __init__(self, rows):
        self.rows = rows
        self.lengths = [len(row) for row in rows]
# file: data.py
class Texts:
    def __init__(self, rows):
        self.rows = rows
        self.lengths = [len(row) for row in rows]


class Speech:
    def __init__(self, rows):
        self.rows = rows
        self.spec_lengths = [len(row) for row in rows]
# file: sampler.py
class BucketSampler:
    def __init__(self, dataset):
        self.order = sorted(range(len(dataset.lengths)))  # error: MP914
# file: train.py
from data import Speech, Texts
from sampler import BucketSampler


def main(rows, spoken):
    return BucketSampler(Speech(rows)) if spoken else BucketSampler(Texts(rows))
""",
    # through the loader that keeps the sampler
    """# before: samplers.py
from torch.utils.data import Sampler


class RepeatedSampler(Sampler):
    def __init__(self, rows):
        self.rows = rows
        self.epoch = 0

    def __iter__(self):
        return iter(self.rows[self.epoch :])

    def set_epoch(self, epoch):
        self.epoch = epoch
# file: samplers.py
from torch.utils.data import Sampler


class RepeatedSampler(Sampler):
    def __init__(self, rows):
        self.rows = rows
        self.epoch = 0

    def __iter__(self):
        return iter(self.rows[self.epoch :])
# file: train.py
from samplers import RepeatedSampler
from torch.utils.data import DataLoader, DistributedSampler


def main(rows, repeated, epochs):
    sampler = RepeatedSampler(rows) if repeated else DistributedSampler(rows)
    loader = DataLoader(rows, batch_size=8, sampler=sampler)
    for epoch in range(epochs):
        loader.sampler.set_epoch(epoch)  # error: MP914
        for batch in loader:
            print(batch)
""",
    # what is computed is no part of the object's dictionary
    _SENT_WHOLE.format(sent="control.__dict__", mark="  # error: MP914"),
    _SENT_WHOLE.format(sent="vars(control)", mark="  # error: MP914"),
    # nobody knows which of the models it is: all of them had it
    _KIN.format(third="ensemble", kind="Transformer", mark="  # error: MP914"),
)

CORRECT = (
    # everybody asks for the new name
    """# before: data.py
class Speech:
    def __init__(self, rows):
        self.lengths = [len(row) for row in rows]


def shortest(rows):
    return min(Speech(rows).lengths)
# file: data.py
class Speech:
    def __init__(self, rows):
        self.spec_lengths = [len(row) for row in rows]


def shortest(rows):
    return min(Speech(rows).spec_lengths)
""",
    # a class of another name has it, and no object of this one comes there
    """# before: data.py
class Texts:
    def __init__(self, rows):
        self.lengths = [len(row) for row in rows]


class Speech:
    def __init__(self, rows):
        self.lengths = [len(row) for row in rows]
# file: data.py
class Texts:
    def __init__(self, rows):
        self.lengths = [len(row) for row in rows]


class Speech:
    def __init__(self, rows):
        self.sizes = [len(row) for row in rows]
# file: train.py
from data import Speech, Texts


def main(rows):
    return Texts(rows).lengths, Speech(rows).sizes
""",
    # the member moved to the base, or may come from a base of a library
    """# before: model.py
class Base:
    def __init__(self, width):
        self.width = width


class Actor(Base):
    def reset(self):
        return self.width
# file: model.py
class Base:
    def __init__(self, width):
        self.width = width

    def reset(self):
        return self.width


class Actor(Base):
    pass
# file: train.py
from model import Actor


def main(width):
    return Actor(width).reset()
""",
    _SENT_WHOLE.format(sent='{**vars(control), "enabled_now": control.enabled_now}', mark=""),
    _SENT_WHOLE.format(sent='{"low": control.low, "same": control.__dict__ == vars(control)}', mark=""),
    # one other class of the kind alone has it
    _KIN.format(third="images", kind="Images", mark=""),
)
