"""Two parts of a result that are taken under each other's names.

What it does
    Takes results that are unpacked into names (`it, start_epoch = load(…)`) and compares them with the names of what is
    returned (`return epoch, it`). Reports where two stand in each other's places, at every `return` of all functions
    that may be called; of an object that is not known, of all methods that are called so. Names fit each other if the
    words of one are among those of the other. So with what libraries give: the objects of which the result is made go
    by their classes (`engine, optim, scheduler, _ = deepspeed.initialize(…)` takes the loader of the data for the
    scheduler), and what is given back for each argument by what is passed. Silent where a name says that the exchange
    is meant (`swap`, `reverse`), or a condition around the call, or what else is done under it (`image.transpose(…)`),
    where the call passes the two in each other's places, too, where two name the two ways of one thing, and in tests.

Why is this bad
    Nothing fails where both are of one type: a resumed run takes the number of steps for that of epochs.

References
    https://docs.python.org/3/reference/simple_stmts.html#assignment-statements
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator

from rules.interface.calls.arguments_swapped import MEANT, go_back, is_meant, turned, words
from validator.finding import Finding, Related
from validator.flow.program.unit import Unit
from validator.flow.queries.base import Place, Queries
from validator.flow.queries.outside_program import is_test
from validator.flow.queries.ranks.random_draws import rows_of
from validator.project import Project
from validator.rule import Rule

RULE = Rule("MP149", "results-swapped", "warning", "1.0", solves=True)

_TELLING = 4  # letters of a name that means the same in two functions


def check_project(project: Project) -> Iterator[Finding]:
    queries = project.analysis(Queries)
    for unit in queries.of_program():
        for place in queries.values(unit, "unpack"):
            if place.value.data[0] == 0 and place.value.data[2] < 0 and not is_test(unit.path):
                yield from _checked(queries, place.operand(0).root)


def _checked(queries: Queries, call: Place) -> Iterator[Finding]:
    if call.value.op == "call" and not queries.targets(call):
        yield from _of_library(call)
    names = _taken(call)
    units = list(_called(queries, call)) if call.value.op == "call" else []
    rows = list(_given(queries, units, len(names)))
    passed = {_name(call.unit, number) for number in call.value.args[1:]} if call.value.op == "call" else set()
    found = {_swapped(names, row, passed) for row in rows}
    if len(found) != 1 or (places := found.pop()) is None or MEANT.search(call.unit.qualname.lower() + call.method):
        return
    taken, given = ((row[places[0]], row[places[1]]) for row in (names, rows[0]))
    if not go_back(*taken) and not is_meant(call) and not _is_given_so(call, units[0], taken, given):
        yield _report(call, units[0], taken, given)


def _is_given_so(call: Place, unit: Unit, taken: tuple[str, str], given: tuple[str, str]) -> bool:
    """Whether the call passes the two in each other's places, too: what goes in so comes out so."""
    params = [name for name, *_ in unit.code.params]
    params = params[1:] if unit.method is not None and unit.method.is_method else params
    passed = dict(zip((_name(call.unit, number) for number in call.value.args[1:]), params, strict=False))
    return all(_fit(passed.get(one, ""), other) for one, other in zip(taken, given, strict=True))


def _of_library(call: Place) -> Iterator[Finding]:
    rows = rows_of(call)
    row = rows[0][1] if len(rows) == 1 else None
    names = _taken(call)
    given = _made(call, row.result, len(names)) if row is not None else []
    if row is None or not given or MEANT.search(call.unit.qualname.lower()):
        return
    alone = row.result != "prepared"  # what is passed may go by any name
    for i, j in itertools.permutations(range(len(names)), 2):
        own, other = given[i], given[j]
        fits = {each for each in given if _fit(names[i], each)}
        if own and fits == {other} and not _fit(names[j], other) and (alone or _fit(names[j], own)):
            yield _report(call, None, (names[i], names[j]), (own, other))
            return


def _made(call: Place, result: object, length: int) -> list[str]:
    """What a library gives by the classes of which it is, or by what it is given; nothing where that is not known."""
    if isinstance(result, list | tuple):
        found = [each.rpartition(".")[2] if each.startswith("made:") else "" for each in result]
    elif result == "prepared" and all(name is None for name in call.value.data.names):
        found = [_name(call.unit, number) for number in call.value.args[1:]]
    else:
        found = []
    return found if len(found) == length else []


def _called(queries: Queries, call: Place) -> Iterator[Unit]:
    """The functions that a call may run; of an object that is not known, all methods of that name."""
    site = call.result.sites.get(call.number)
    if site is not None and site.targets and not site.others:
        if all(o[0] in ("unit", "bound") for o in call.operand(0).closed.each):
            yield from (target.unit for target in site.targets)
    elif site is None and call.receiver is not None:
        yield from queries.flow.units(iter(queries.flow.guessed.methods(call.method)))


def _taken(call: Place) -> list[str]:
    """The names into which a result is unpacked, in their order; empty texts for what has none."""
    parts = {user.value.data[0]: user for user in call.users if user.value.op == "unpack"}
    wanted = next((user.value.data[1] for user in parts.values()), 0)
    return [_kept_as(parts[i]) if i in parts else "" for i in range(wanted)]


def _kept_as(part: Place) -> str:
    """The variable, or the attribute, that gets a part of a result."""
    stores = [user.value.data for user in part.users if user.value.op == "store_attr"]
    return part.unit.variables.get(part.number) or (str(stores[0]) if len(stores) == 1 else "")


def _given(queries: Queries, units: list[Unit], length: int) -> Iterator[list[str]]:
    """For each `return` of functions the names of what it gives; what it has from another function goes by that."""
    seen = list(units)
    for unit in seen:
        for number in unit.code.returned:
            place = Place(queries.flow, unit, number).root
            further = list(_called(queries, place)) if place.value.op == "call" else []
            seen += [each for each in further if each not in seen]
            parts = place.value.args if place.value.op == "tuple" and len(place.value.args) == length else ()
            if not further:
                yield [_name(unit, part) for part in parts]


def _name(unit: Unit, number: int) -> str:
    """The variable, parameter or attribute that a value is; empty for other expressions."""
    if number < 0:
        return ""
    inner = unit.code.values[number]
    of_param = str(inner.data[1]) if inner.op == "param" else ""
    return unit.variables.get(number) or of_param or (str(inner.data) if inner.op == "attr" else "")


def _swapped(names: list[str], given: list[str], passed: set[str]) -> tuple[int, int] | None:
    """The places of two names of which each fits what stands at the other one's, and not what stands at its own; of
    several that fit one place alone and have changed these in turn the first two."""
    for i in range(len(given)):
        for j in range(i + 1, len(given)):
            crossed = _fit(names[i], given[j]) and _fit(names[j], given[i])
            same = names[i] == given[j] or names[j] == given[i]
            if crossed and same and not _fit(names[i], given[i]) and not _fit(names[j], given[j]):
                return i, j
    fits = [[place for place, each in enumerate(given) if _fit(name, each)] for name in names]
    belonging = [there[0] if len(there) == 1 and fits.count(there) == 1 else -1 for there in fits]
    return turned(belonging) or _strayed(names, given, passed)


def _strayed(names: list[str], given: list[str], passed: set[str]) -> tuple[int, int] | None:
    """The places of a name that is what the function itself calls another part, and of that part, which is taken under
    a name that tells nothing: `entropies, out = f(x)` of `return log_probs, entropies`. A variable that is passed, too,
    takes what is made of it (`loss, raw = scaled(loss)`)."""
    for i, j in itertools.permutations(range(len(given)), 2):
        own = len(names[i]) >= _TELLING and words(names[i]) == words(given[j])
        known = any(_fit(names[j], each) for each in given) or any(_fit(each, given[i]) for each in names)
        if own and names[i] not in passed and given[i] and names[j].strip("_") and not known:
            return i, j
    return None


def _fit(one: str, other: str) -> bool:
    """Whether the words of one name are among those of another one."""
    first, second = words(one), words(other)
    return bool(first and second) and (first <= second or second <= first)


def _report(call: Place, unit: Unit | None, taken: tuple[str, str], given: tuple[str, str]) -> Finding:
    rest = f"`{given[1]}` for `{taken[1]}`" if taken[1].strip("_") else f"`{given[1]}` elsewhere"
    defined = f"`{unit.qualname}` is defined here" if unit is not None else ""
    return RULE.finding(
        call.unit.path,
        call.at,
        f"`{call.text}`{call.where} gives `{given[0]}` where `{taken[0]}` is taken, and {rest}",
        help="exchange the names",
        related=[Related(unit.path, unit.code.at[0], defined)] if unit is not None else [],
        context=f"{call.unit.qualname}:{unit.qualname if unit is not None else call.text}:{taken[0]}",
    )


_SCORES = """
def collected(rows):
    mae, mse, fm = rows["mae"].mean(), rows["mse"].mean(), rows["fm"].max()
    return {order}

def evaluated(rows, verbose=False):
    if verbose:
        print(rows)
    return collected(rows)

def main(rows):
    all_mae, all_mse, all_fm = evaluated(rows){mark}
    return {{"MAE": all_mae, "MSE": all_mse, "F": all_fm}}
"""

INCORRECT = (
    _SCORES.format(order="fm, mae, mse", mark="  # error: MP149"),
    """
class Detector:
    def load(self, path):
        state = read(path)
        epoch = state.get("epoch", -1)
        it = state.get("it", 0)
        return epoch, it

def main(path):
    detector = Detector()
    it, start_epoch = detector.load(path)  # error: MP149
    return range(start_epoch, 10), it
""",
    """
import deepspeed
from accelerate import Accelerator

class Strategy:
    def setup(self, model, optimizer, scheduler, config):
        engine, optimizer, lr_scheduler, loader = deepspeed.initialize(  # error: MP149
            model=model, optimizer=optimizer, lr_scheduler=scheduler, config=config
        )
        return engine, optimizer, lr_scheduler, loader

def prepare(model, optimizer, loader):
    accelerator = Accelerator()
    model, loader, optimizer = accelerator.prepare(model, optimizer, loader)  # error: MP149
    return model, loader, optimizer
""",
    # one name that is the same in both
    """\
class Actor:
    def compute_log_prob(self, batch):
        log_probs, entropies = [], []
        for row in batch:
            log_probs.append(row.log_prob)
            entropies.append(row.entropy)
        return log_probs, entropies


class Worker:
    def __init__(self):
        self.actor = Actor()

    def run(self, batch):
        entropies, output = self.actor.compute_log_prob(batch)  # error: MP149
        return output, entropies
""",
)

CORRECT = (
    _SCORES.format(order="mae, mse, fm", mark=""),
    # what a library gives, under other names; things that are prepared in another order
    """
import deepspeed
from accelerate import Accelerator

class Strategy:
    def setup(self, net, optim, config):
        self.engine, self.opt, _, self.schedule = deepspeed.initialize(model=net, optimizer=optim, config=config)
        model, optimizer, train_loader, _ = deepspeed.initialize(model=net, optimizer=optim, config=config)
        return model, optimizer, train_loader

def prepare(net, optim, train, evaluation):
    accelerator = Accelerator()
    train_loader, optimizer, model = accelerator.prepare(train, optim, net)
    model, opt = accelerator.prepare(net, model.optimizer_of_model)
    return model, optimizer, train_loader, accelerator.prepare(evaluation)
""",
    """
class Detector:
    def load(self, path):
        state = read(path)
        epoch = state.get("epoch", -1)
        it = state.get("it", 0)
        return epoch, it

    def both(self, path):
        it, epoch = 0, 1
        return (epoch, it) if path else (0, 1)

def main(path):
    start_epoch, it = Detector().load(path)
    it, start_epoch = Detector().both(path)
    return range(start_epoch, 10), it
""",
    """
def sizes(rows):
    height, width = rows.shape
    return height, width

def ends(rows):
    start, end = rows[0], rows[-1]
    return start, end

def turned(rows):
    end, start = ends(rows)
    h, w = sizes(rows)
    return h, w, start, end
""",
    # what goes in so comes out so; an image that lies on its side
    """
def fit(height, width, limit=64):
    scale = limit / max(height, width)
    height, width = int(height * scale), int(width * scale)
    return height, width

def size_of(image):
    height, width = image.shape[:2]
    return height, width

def load(image, is_rotated):
    width, height = image.size
    width, height = fit(width, height)
    if is_rotated:
        width, height = size_of(image)
    return image.resize((width, height))
""",
    # the rest of the rest; what is made of what is passed
    """\
def split(rows):
    head, rest = rows[:1], rows[1:]
    return head, rest


def scaled(loss, steps):
    less = loss / steps
    return less, loss


def walk(rows, loss):
    first, rest = split(rows)
    one, other = split(rest)
    loss, raw = scaled(loss, 4)
    return first, one, other, loss, raw
""",
)
