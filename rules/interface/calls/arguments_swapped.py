"""Two arguments of a call that stand in each other's places, as their names tell.

What it does
    Takes calls whose arguments, passed by position, bear the names of two parameters of what is called, each that of
    the other: `create(name, use_w2, use_w1)` for `def create(self, name, use_w1, use_w2)`; or words of them that are
    words of no other parameter, and none of its own: `join(world, offset)` for `def join(rank_offset, world_size)`. A
    word that both parameters have decides nothing, one that only one has does: `build(cfg.warmup, cfg.steps)` for `def
    build(total_steps, warmup_steps)`. Items go by their keys (`batch["old_log_probs"]`), and what is gathered from
    several things by what each is asked for (`pad([row.labels for row in rows])`). Also one argument that bears the
    name of another parameter, behind others that stand at their places: there the signature has got a parameter in
    between; and two, behind one at its place, of which each stands in the place of the one before, up to one without a
    name. Also of actors, of modules that are called, of what processes are given to run, and of methods that a text
    names (`llm.collective_rpc("update", args=(…))`). Where several definitions may be reached, all must have these
    parameters in this order; or one must have them in the other order and all others in that of the call, where the
    function itself chose among them (`cls = KINDS[kind]`) and no condition around the call knows which it is. Silent in
    the function itself, behind a test of the two, where the function passes them to it in the other order too, where a
    statement exchanges the two, where their names are those of the two ways of one thing (`scatter_dim`, `gather_dim`),
    where a name, or a condition around the call, says that the exchange is meant (`swap`, `reverse`, `transpose`),
    where the result is turned round (`-margin(b, a)`, `1 - p(b, a)`, `scores(b, a).T`), where the function is there for
    the exchange alone (it does nothing else, one beside it passes the two straight, `text_to_image` is its name), and
    where what is called gives the same in either order.

Why is this bad
    Nothing fails where both are of one type: the wrong matrix is decomposed, the wrong model is the reference.

References
    https://errorprone.info/bugpattern/ArgumentSelectionDefectChecker
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Sequence
from functools import cache
from typing import NamedTuple

from rules.interface.calls.dispatched_call_refused import methods_asked_for
from validator.analysis.commands.same_names import singular
from validator.analysis.interfaces.chosen import is_chosen_here
from validator.analysis.symmetric import is_symmetric
from validator.facts.model import At, Call, Guard, Param
from validator.finding import Finding, Related
from validator.flow.callgraph.dispatch import Dispatches
from validator.flow.callgraph.indirect_calls import OF_LIBRARY
from validator.flow.objects import Callee, Objects
from validator.flow.program.unit import Unit
from validator.flow.queries.base import Place
from validator.flow.queries.outside_program import is_test
from validator.flow.values import UNKNOWN
from validator.project import ClassDef, Method, Project
from validator.rule import Rule

RULE = Rule("MP145", "arguments-swapped", "warning", stable_since="0.4.0", solves=True)
MEANT = re.compile(r"swap|revers|flip|transpos|invers|mirror|exchang|permut|commut|rotat|backward|symmetr|opposite")
# Words of which each names the way back of the other: who exchanges them goes the other way.
_WAYS = frozenset(
    frozenset(pair)
    for pair in (
        ("gather", "scatter"), ("in", "out"), ("input", "output"), ("src", "dst"), ("src", "tgt"), ("source", "target"),
        ("send", "recv"), ("from", "to"), ("up", "down"), ("encode", "decode"), ("first", "last"), ("start", "end"),
    )
)  # fmt: skip


# What gives a result the other way round.
_TURNED = frozenset({"T", "mT", "H", "mH", "t", "neg", "negative", "adjoint"})
_WORD = re.compile(r"[a-z]+|[A-Z][a-z]*|\d+")
_PATH = re.compile(r"(?:\w+\.)*([^\W\d]\w*)")
_ITEM = "[]"  # at the end of a path: an item of what stands before it
_CALLED = ("forward", "__call__")  # what runs where an object is called, by whatever name


class Swapped(NamedTuple):
    """Two arguments by the names that they bear, and the parameters whose places they take."""

    names: tuple[str, str]
    params: tuple[str, str]


def check_project(project: Project) -> Iterator[Finding]:
    objects = project.analysis(Objects)
    by_name: dict[str, dict[tuple[str, ...], None]] = {}
    for function in project.functions():
        name = function.cls.name if function.cls is not None and function.name == "__init__" else function.name
        by_name.setdefault(name, {})[tuple(_params(function))] = None
    for cls in project.classes():
        if (params := objects.constructors.of(cls)) is not None and cls.find("__init__") is None:
            by_name.setdefault(cls.name, {})[tuple(_positional(params))] = None
    of_objects = {params: None for name in _CALLED for params in by_name.get(name, ())}
    for function in project.functions():
        if is_test(function.path) or MEANT.search(function.qualname.lower()):
            continue
        for call in function.facts.calls:
            if MEANT.search(call.target.lower()):
                continue
            handed = call.method in objects.lending
            name = call.receiver.rpartition(".")[2] if call.method == "remote" else call.method
            if call.target == "cls" and function.cls is not None:
                name = function.cls.name
            rows = by_name.get(name, of_objects)
            named = _with_keys(objects, function, call) if name in by_name else call
            names = _names(named)
            chosen = len(names) > 1 and (call.target in function.facts.bound or call.target.endswith(("[]", "()")))
            if not handed and not chosen and not any(_misplaced(named, params, names) for params in rows):
                continue
            place = objects.call_at(function.module, call.at)
            if place is not None:
                yield from _checked(objects, function, named, place)
    yield from _by_name(project)


def _by_name(project: Project) -> Iterator[Finding]:
    """Calls of a method that a text names: `run("save", step, tag)`."""
    for each in project.analysis(Dispatches).all:
        if each.sent is None or MEANT.search(each.name.lower()) or is_meant(each.call):
            continue
        names, (methods, _) = _names(each.sent), methods_asked_for(project, each)
        rows = {_misplaced(each.sent, _params(method), names) for method in methods}
        found = rows.pop() if len(rows) == 1 else None
        if found is not None and not go_back(*found.names):
            yield _report(each.call.unit, each.call.at, each.name, methods[0], found)


def _with_keys(objects: Objects, function: Method, call: Call) -> Call:
    """A call in which the items of dictionaries go by their keys: `batch["labels"]` as `batch.labels` would; and what
    is gathered from several things by the one name that they are asked for: `pad([each.labels for each in rows])`."""
    items = [i for i, each in enumerate(call.args) if each.keyword is None and each.value.endswith(_ITEM)]
    gathered = [i for i, each in enumerate(call.args) if each.keyword is None and each.kind == "call"]
    gathered = gathered if len(gathered) > 1 else []
    place = objects.call_at(function.module, call.at) if items or gathered else None
    if place is None or place.value.op != "call" or len(place.value.args) != len(call.args) + 1:
        return call
    args = list(call.args)
    for i in items:
        item = place.operand(i + 1).root
        key = item.operand(1).closed.constant() if item.value.op == "item" else None
        if isinstance(key, str) and key.isidentifier():
            args[i] = args[i]._replace(value=f"{args[i].value.removesuffix(_ITEM)}.{key}")
    for i in gathered:
        names = _asked_of_each(place.operand(i + 1))
        if len(names) == 1:
            args[i] = args[i]._replace(kind="path", value=f"each.{names.pop()}")
    return call._replace(args=tuple(args))


def _asked_of_each(place: Place) -> set[str]:
    """The names, or keys, for which an expression asks the elements that it goes through."""
    found: set[str] = set()
    for part in place.parts:
        if part.value.op in ("attr", "item") and part.operand(0).root.value.op == "next":
            key = part.value.data if part.value.op == "attr" else part.operand(1).value.data
            found.add(key if isinstance(key, str) and key.isidentifier() else "")
    return found - {""} if "" not in found else set()


def _checked(objects: Objects, function: Method, call: Call, place: Place) -> Iterator[Finding]:
    callee, seen = objects.run_for(place, call)
    reached = objects.reached_by(callee, place)
    names = _names(seen)
    rows = [_misplaced(seen, _positional(each.params), names) for each in reached.callees]
    if not rows or any(each.given for each in reached.callees):
        return
    if not reached.complete and len(callee.closed.objs - UNKNOWN.objs) > len(reached.callees):
        return  # one of many things that may be called
    target, found = reached.callees[0], rows[0]
    if None in rows or len(set(rows)) != 1:
        target, found = _of_one(place, reached.callees, rows, names) or (target, None)
    if found is None or target.place is function or go_back(*found.names):
        return
    if call.target == "cls" and not _are_passed_to(function, found.names):
        return  # another way to make an object takes what it exchanges from somewhere else
    if _is_both_ways(objects, function, call, found, target) or _is_told(function, found):
        return
    if _is_of_another(objects, place, target) or is_meant(place, call.guards) or _is_turned_back(place):
        return
    if _is_adapter(function, place, call, found) or _is_symmetric(target, found):
        return
    yield _report(function, call.at, target.name, target.place, found)


def _of_one(
    place: Place, callees: Sequence[Callee], rows: list[Swapped | None], names: list[str]
) -> tuple[Callee, Swapped] | None:
    """The one of several that were chosen before which has two parameters of just these names in the other order, while
    all others have them in that of the call."""
    crossed = [(each, row) for each, row in zip(callees, rows, strict=True) if row is not None]
    if len(callees) < 2 or len({row for _, row in crossed}) != 1 or len(crossed) == len(callees):
        return None
    callee, row = crossed[0]
    here = [names.index(name) for name in row.names]
    straight = [_positional(each.params) for each, other in zip(callees, rows, strict=True) if other is None]
    exact = row.names == row.params[::-1]
    if exact and all([params[at] for at in here if at < len(params)] == [*row.names] for params in straight):
        return (callee, row) if is_chosen_here(place) else None
    return None


def _are_passed_to(function: Method, names: tuple[str, str]) -> bool:
    return {param.name for param in function.facts.params}.issuperset(names)


def _is_of_another(objects: Objects, place: Place, target: Callee) -> bool:
    """Whether an object is made of the fields of another one of its class: its sides are exchanged on purpose."""
    given = (place.value_at(number).root for number in place.value.args[1:])
    owners = (each.operand(0) for each in given if each.value.op == "attr")
    return isinstance(target.place, ClassDef) and any(target.place in objects.held(each).classes for each in owners)


def _misplaced(call: Call, params: Sequence[str], names: list[str]) -> Swapped | None:
    """Two of the names that a call passes by position which stand in each other's place, or one in another's."""
    return (_swapped(names, params) or _led_on(names, params) or _shifted(call, params, names)) if any(names) else None


def _report(function: Method | Unit, at: At, name: str, callee: object, found: Swapped) -> Finding:
    related = [Related(callee.path, callee.facts.name_at[0], "what is called")] if isinstance(callee, Method) else []
    (one, other), (first, second) = found
    rest = f"and `{other}` for `{second}`" if other != second else f"which has a parameter `{second}`"
    return RULE.finding(
        function.path,
        at,
        f"`{function.qualname}` passes `{one}` for the parameter `{first}` of `{name}`, {rest}",
        help="exchange them, or pass them by keyword",
        related=related,
        context=f"{function.qualname}:{name}:{one}",
    )


def _names(call: Call) -> list[str]:
    """The last names, or keys, of what is passed by position, up to a `*`; empty texts for other expressions."""
    found = []
    for each in call.args:
        if each.keyword == "*":
            break
        if each.keyword is None:
            named = _PATH.fullmatch(each.value) if each.kind in ("path", "other") else None
            found.append(named[1] if named is not None else "")
    return found


def _params(function: Method) -> list[str]:
    names = _positional(function.facts.params)
    return names[1:] if function.is_method and names else names


def _positional(params: tuple[Param, ...]) -> list[str]:
    return [p.name for p in params if p.kind in ("any", "pos")]


def _swapped(names: list[str], params: Sequence[str]) -> Swapped | None:
    """Two arguments of which each bears the name of the parameter where the other one stands, or words of it that are
    words of no other parameter, and none of its own; or of several that have changed places in turn the first two."""
    given = names[: len(params)]
    own = {name: place for place, name in enumerate(params)}
    if (ring := turned([own.get(name, -1) if given.count(name) == 1 else -1 for name in given])) is not None:
        here, there = ring
        return Swapped((given[here], given[there]), (params[here], params[there]))
    for first, one in enumerate(given):
        for second in range(first + 1, len(given) if one else 0):
            other, places = given[second], (params[first], params[second])
            exact = (other, one) == places and names.count(one) == 1
            if (
                exact
                or other
                and _is_crosswise((one, other), places)
                and _are_alone((one, other), places, given, params)
            ):
                return Swapped((one, other), places)
    return None


def turned(belonging: list[int]) -> tuple[int, int] | None:
    """The first two of several things that stand in turn in each other's places, by the place where each belongs (-1:
    nobody knows): of `(b, c, a)` for `(a, b, c)` those of `b` and `c`."""
    for first in range(len(belonging)):
        ring = [first]
        while 0 <= (there := belonging[ring[-1]]) < len(belonging) and there not in ring:
            ring.append(there)
        if len(ring) > 1 and there == first:
            return first, ring[1]
    return None


def _led_on(names: list[str], params: Sequence[str]) -> Swapped | None:
    """The first two of several arguments that bear the names of parameters further on, each in the place of the one
    before, up to one that bears no name: `(ids, logps, texts, len(ids))` for `(ids, mask, logps, texts)`."""
    own = {name: place for place, name in enumerate(params)}
    given = names[: len(params)]
    for here, name in enumerate(given):
        there = own.get(name, here)
        other = given[there] if there < len(given) and given.count(name) == 1 else ""
        further = own.get(other, there)
        last = given[further] if further < len(given) else ""
        leads_on = there != here and further not in (here, there) and not last and given.count(other) == 1
        leads_on = leads_on and any(given[i] == params[i] for i in range(here))
        if leads_on and not (words(name) & words(params[here]) or words(other) & words(params[there])):
            return Swapped((name, other), (params[here], params[there]))
    return None


def _is_crosswise(names: tuple[str, str], params: tuple[str, str]) -> bool:
    (one, other), (first, second) = map(words, names), map(words, params)
    if _tells(one & second) and _tells(other & first) and not (one & first or other & second):
        return True
    # `gen_loss, weighted_gen_loss` for `weighted_adversarial_gen_loss, adversarial_gen_loss`
    crossed, straight = one <= second and other <= first, one <= first and other <= second
    if not crossed or straight or one == other:
        return False
    if min(len(one), len(other)) > 1:
        return True
    # `warmup, steps` for `total_steps, warmup_steps`: one has nothing to do with its place, both make up the other's
    places = ((one, first, second), (other, second, first))
    return any(not name & own and one | other == there for name, own, there in places)


def _tells(common: frozenset[str]) -> bool:
    """Whether names have a word in common: one letter is none (`g_sql`, `g_str`)."""
    return any(len(word) > 1 for word in common)


def _are_alone(names: tuple[str, str], params: tuple[str, str], given: list[str], all_params: Sequence[str]) -> bool:
    """Whether the words that tell two names apart, and that two parameters have, are those of no others."""
    shared = (words(names[0]) ^ words(names[1])) & (words(params[0]) | words(params[1]))
    others = [name for name in given if name not in names] + [name for name in all_params if name not in params]
    return not any(shared & words(name) for name in others)


def _shifted(call: Call, params: Sequence[str], names: list[str]) -> Swapped | None:
    """An argument that bears the name of one other parameter, which the call does not pass, behind arguments that bear
    the names of their own; or of one that the library fills before what it is given."""
    if len(names) > len(params) or not any(name in params for name in names if name):
        return None
    passed = {argument.keyword for argument in call.args}
    if not passed.isdisjoint(("*", "**")):
        return None
    filled = [argument.kind for argument in call.positional]
    for here, name in enumerate(names):
        if not name or name not in params or name in passed or words(name) & words(params[here]):
            continue
        if "." in call.positional[here].value:
            continue  # what another object has goes by that object's names
        there = params.index(name)
        of_library = there < len(filled) and filled[there] == OF_LIBRARY
        placed = [i for i in range(here) if words(names[i]) & words(params[i])]
        if names.count(name) == 1 and (of_library or placed and there >= len(names)):
            return Swapped((name, name), (params[here], name))
    return None


@cache
def words(name: str) -> frozenset[str]:
    """The words of a name, in small letters, of one and of several alike."""
    return frozenset(singular(word.lower()) for word in _WORD.findall(name))


def go_back(one: str, other: str) -> bool:
    """Whether to exchange two things is to go the other way."""
    words = (frozenset(name.lower().split("_")) for name in (one, other))
    return frozenset(next(words) ^ next(words)) in _WAYS


def _is_both_ways(objects: Objects, function: Method, call: Call, found: Swapped, target: Callee) -> bool:
    """Whether a function passes the two in the other order as well to what it calls. Who means to exchange them does so
    for the counterpart of another call (`down(dim, dim_out)`, `up(dim_out, dim)`)."""
    one, other = found.names
    exact = found.params == (other, one)
    for each in function.facts.calls:
        names = _names(_with_keys(objects, function, each)) if each.at != call.at else []
        if one in names and other in names and names.index(other) < names.index(one):
            if exact:
                return True
            place = objects.call_at(function.module, each.at) if each.method != call.method else None
            reached = objects.reached_by(place.operand(0), place).callees if place is not None else (target,)
            if any(callee.place == target.place for callee in reached):
                return True
    return False


def is_meant(place: Place, guards: tuple[Guard, ...] = ()) -> bool:
    """Whether a condition around a place says that things are exchanged, or what else is done under it: `if rotated:`,
    where an image is transposed."""
    tests = place.tests_inside
    said = [*(word for test in tests for word in test.words), *(each.text for each in guards if each.kind == "if")]
    if any(MEANT.search(word.lower()) for word in said):
        return True
    own = {test.number for test in tests}
    calls = (place.value_at(number) for number, value in enumerate(place.unit.code.values) if value.op == "call")
    beside = (each for each in calls if own and MEANT.search(each.method.lower()))
    return any(own <= {test.number for test in each.tests_inside} for each in beside)


def _is_turned_back(place: Place) -> bool:
    """Whether the result is turned round, or one of the other arguments: `-margin(rejected, chosen)`, `1 - p(b, a)`,
    `scores(text, image).T`, `mix(noise, clean, 1 - share)`."""
    given = [place.value_at(number).root for number in place.value.args[1:]] if place.value.op == "call" else []
    for user in place.users:
        meant = user.value.op == "attr" and (user.value.data in _TURNED or MEANT.search(user.value.data.lower()))
        if meant or user.value.op == "unary" and user.value.data == "USub" or _is_rest(user, place):
            return True
    return any(_is_rest(each, each.operand(1)) for each in given if each.value.op == "binary")


def _is_rest(place: Place, taken: Place) -> bool:
    """Whether a value is what something leaves of one: `1 - x`."""
    if place.value.op != "binary" or place.value.data != "Sub" or place.operand(1).number != taken.number:
        return False
    whole = place.operand(0).val.constant()
    return isinstance(whole, int | float) and whole == 1


def _is_adapter(function: Method, place: Place, call: Call, found: Swapped) -> bool:
    """Whether a function is there for the exchange: it does nothing else with two parameters of its own, as another
    one beside it has them and passes them on straight, or its name has them in the order of the call."""
    one, other = found.names
    if place.unit.code.kind == "lambda":
        own = [name for name, *_ in place.unit.code.params]
        return one in own and other in own and place.number in place.unit.code.returned
    name = [each.lower() for each in _WORD.findall(function.name)]
    first, second = (
        next((i for i, each in enumerate(name) if singular(each) in words(arg)), -1) for arg in (one, other)
    )
    if first >= 0 and second > first or first >= 0 > second and words(call.method) < words(function.name):
        return True
    own = _params(function)
    if one not in own or other not in own or own.index(other) > own.index(one):
        return False
    calls = [each for each in function.facts.calls if each.method != call.method]
    return (
        not calls
        and len(function.facts.returns) == 1
        or any(
            {one, other} <= set(_params(each)) and _passes(each, call.method, (other, one))
            for each in function.module.functions.values()
            if each is not function
        )
    )


def _passes(function: Method, method: str, names: tuple[str, str]) -> bool:
    """Whether a function passes two names to what is called so, in this order."""
    given = [_names(each) for each in function.facts.calls if each.method == method]
    return any(set(names) <= set(row) and row.index(names[0]) < row.index(names[1]) for row in given)


def _is_symmetric(target: Callee, found: Swapped) -> bool:
    """Whether what is called gives the same for the two in either order."""
    method = target.place
    if not isinstance(method, Method):
        return False
    node = method.module.definitions_by_line.get((method.facts.at[0], method.name))
    return isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and is_symmetric(node, *found.params)


def _is_told(function: Method, found: Swapped) -> bool:
    """Whether the function tests the two together, or exchanges them."""
    node = function.module.definitions_by_line.get((function.facts.at[0], function.name))
    both = set(found.names)
    if len(both) < 2:
        return False
    for part in ast.walk(node) if node is not None else ():
        if isinstance(part, ast.If | ast.IfExp | ast.While) and both <= _variables(part.test):
            return True
        exchanged = isinstance(part, ast.Assign) and any(both <= _variables(target) for target in part.targets)
        if isinstance(part, ast.Assign) and exchanged and both <= _variables(part.value):
            return True
    return False


def _variables(node: ast.AST) -> set[str]:
    return {n.id for n in ast.walk(node) if isinstance(n, ast.Name)}


_RPC = """
class Worker:
    def update_weight(self, name, dtype, shape, handles=None, empty_cache=False):
        return name, dtype, shape, handles, empty_cache

class Actor:
    def __init__(self, llm):
        self.llm = llm

    def update_weight(self, name, dtype, shape, {handles}empty_cache=False):
        return self.llm.collective_rpc("update_weight", args=(name, dtype, shape, {handles}empty_cache)){mark}
"""

INCORRECT = [
    """
class Layer:
    def create(self, name, use_first, use_second):
        self.kinds[name] = (use_first, use_second)

    def update(self, name, rank, shape):
        use_first = rank < shape[0]
        use_second = rank < shape[1]
        self.create(name, use_second, use_first)  # error: MP145
""",
    """
def loss(policy_logits, reference_logits, beta):
    return beta * (policy_logits - reference_logits)

class Trainer:
    def step(self, batch):
        policy_logits = self.policy(batch)
        reference_logits = self.reference(batch)
        return loss(reference_logits, policy_logits, self.beta)  # error: MP145
""",
    # a parameter that was put between others; one that `spawn` fills
    """
import torch.multiprocessing as mp

def collate(rows, tokenizer, labels=None, max_length=512):
    return tokenizer(rows, labels, max_length)

def work(config, rank, port):
    return config.lr * rank, port

def train(config, rows, tokenizer, max_length):
    mp.spawn(work, args=(config, 29500), nprocs=8)  # error: MP145
    return collate(rows, tokenizer, max_length)  # error: MP145
""",
    # one word more in one of two, as in the other's parameter
    """
def report(recon_loss, weighted_adversarial_gen_loss, adversarial_gen_loss):
    return recon_loss + weighted_adversarial_gen_loss, adversarial_gen_loss

def train(recon_loss, gen_loss, weight):
    weighted_gen_loss = gen_loss * weight
    return report(recon_loss, gen_loss, weighted_gen_loss)  # error: MP145
""",
    # items by their keys; a word that both parameters have, and one that only the other has
    """
def ratio(old_log_prob, log_prob):
    return log_prob - old_log_prob

def schedule(optimizer, total_steps, warmup_steps):
    return optimizer, total_steps / warmup_steps

def train(optimizer, log_prob, batch, cfg):
    loss = ratio(log_prob, batch["old_log_probs"])  # error: MP145
    return loss, schedule(optimizer, cfg.warmup, cfg.steps)  # error: MP145
""",
    # by words, to an actor and to a module
    """
import ray
import torch.nn as nn


@ray.remote
class Engine:
    def join(self, host, rank_offset, world_size):
        return host, rank_offset, world_size


class Actor(nn.Module):
    def forward(self, sequences, num_actions=None, attention_mask=None):
        return sequences[:, -num_actions:] * attention_mask


class Trainer:
    def __init__(self, host):
        self.engine = Engine.remote()
        self.reference = Actor()
        self.host = host

    def connect(self, world):
        for offset in range(world):
            self.engine.join.remote(self.host, world, offset)  # error: MP145

    def step(self, actor, sequences, mask, n_actions):
        log_probs = actor(sequences, n_actions, mask)
        return log_probs - self.reference(sequences, mask, n_actions)  # error: MP145
""",
    # gathered from the rows of a batch
    """
from dataclasses import dataclass

import torch
from torch.nn.utils.rnn import pad_sequence

@dataclass
class Batch:
    rewards: torch.Tensor
    weights: torch.Tensor
    divergences: torch.Tensor

def collate(rows):
    return Batch(  # error: MP145
        pad_sequence([row.rewards for row in rows], batch_first=True),
        pad_sequence([row.divergences.flip(0) for row in rows], batch_first=True).flip(1),
        torch.tensor([row["weights"] for row in rows]),
    )
""",
    # a method that a library has workers of the project run by its name
    _RPC.format(handles="", mark="  # error: MP145"),
    # a field was put in between: each argument stands one place too early
    """\
from typing import NamedTuple


class Rollout(NamedTuple):
    ids: list
    mask: list
    logps: list
    lengths: list
    texts: list


def rollout(engine, prompts):
    ids, logps, texts = engine(prompts)
    lengths = [len(row) for row in ids]
    if not lengths:
        raise ValueError("no prompts")
    return Rollout(ids, logps, texts, [*lengths], [[1] * length for length in lengths])  # error: MP145
""",
    # of another way to make an object
    """\
class Draft:
    def __init__(self, base, depth, top_k):
        self.base, self.depth, self.top_k = base, depth, top_k

    @classmethod
    def from_pretrained(cls, path, top_k=10, depth=5):
        return cls(path, top_k, depth)  # error: MP145
""",
    # one of several classes has them in another order
    """\
class Dataset:
    def __init__(self, rows, tokenizer, strategy):
        self.rows, self.tokenizer, self.strategy = rows, tokenizer, strategy


class Paired:
    def __init__(self, rows, strategy, tokenizer):
        self.rows, self.tokenizer, self.strategy = rows, tokenizer, strategy


KINDS = {"plain": Dataset, "paired": Paired}


def build(kind, rows, tokenizer, strategy):
    cls = KINDS[kind]
    return cls(rows, tokenizer, strategy)  # error: MP145
""",
]

CORRECT = [
    # words that both parameters have, at their places; other items; a letter
    """
def match(path, p_str, g_str, pred, gold):
    return path, p_str == g_str, pred == gold

def evaluate(path, predicted, gold, p_sql, g_sql):
    return match(path, predicted, gold, p_sql, g_sql)

def ratio(old_log_prob, log_prob):
    return log_prob - old_log_prob

def schedule(optimizer, total_steps, warmup_steps, size=1, patch_size=2):
    return optimizer, total_steps / warmup_steps, size // patch_size

def train(optimizer, log_prob, batch, cfg):
    loss = ratio(batch["log_probs"], log_prob) + ratio(batch["old"], batch["new"])
    made = schedule(optimizer, cfg.steps, cfg.warmup), schedule(optimizer, cfg.max_steps, cfg.epoch_steps)
    return loss, made, schedule(optimizer, cfg.steps, cfg.steps, cfg.image_size, cfg.size)
""",
    # the object turned round; what another object calls so
    """
from typing import NamedTuple

class Case:
    def __init__(self, phase, status):
        self.phase, self.status = phase, status

class Outcome(NamedTuple):
    name: str
    phase: str
    expected: str
    status: str = ""

class Edit(NamedTuple):
    old: str
    new: str

def undone(edit: Edit, case: Case):
    return Edit(edit.new, edit.old), Outcome("first", case.phase, case.status)
""",
    # there and back
    """
import torch.nn as nn

class Down(nn.Module):
    def __init__(self, dim, dim_out):
        super().__init__()
        self.net = nn.Linear(dim, dim_out)

class Up(nn.Module):
    def __init__(self, dim, dim_out):
        super().__init__()
        self.net = nn.Linear(dim, dim_out)

def layers(dim, dim_out):
    return Down(dim, dim_out), Up(dim_out, dim)
""",
    # one word more, at its place; the same words in both
    """
def report(recon_loss, adversarial_gen_loss, weighted_adversarial_gen_loss, loss_weight, gen_weight):
    return recon_loss + weighted_adversarial_gen_loss, adversarial_gen_loss * loss_weight * gen_weight

def train(recon_loss, gen_loss, weight):
    weighted_gen_loss = gen_loss * weight
    return report(recon_loss, gen_loss, weighted_gen_loss, weight, weight)
""",
    # what is asked for is what the other parameter is for another call
    """
import torch.multiprocessing as mp

def quantize(x, scale=None, bits=8):
    return x / scale, bits

def work(rank, config, port):
    return config.lr * rank, port

def train(config, scale, weights, bits):
    mp.spawn(work, args=(config, 29500), nprocs=8)
    return quantize(scale), quantize(weights, bits=bits), quantize(bits, scale)
""",
    # words that two parameters share, or that an argument shares with its own
    """
def split(in_size, out_size, size, dim_in):
    return in_size, out_size, size, dim_in

def pad(max_len, pad_id, left):
    return max_len, pad_id, left

def build(size_in, in_dim, out_dim, id_max, len_pad, len_left):
    split(out_dim, in_dim, size_in, out_dim)
    return pad(id_max, len_pad, len_left)
""",
    """
class Layer:
    def create(self, name, use_first, use_second):
        self.kinds[name] = (use_first, use_second)

    def update(self, name, use_first, use_second):
        self.create(name, use_first, use_second)
        self.create(name, use_second=use_first, use_first=use_second)
""",
    """
def distance(left, right):
    return left - right

def both(left, right):
    return distance(left, right) + distance(right, left)

def ordered(left, right):
    if left < right:
        return distance(right, left)
    return distance(left, right)

def reversed_distance(left, right):
    return distance(right, left)
""",
    """
class Grid:
    def resize(self, height, width):
        self.size = height, width

class Other:
    def resize(self, width, height):
        self.size = height, width

def fit(grid, width, height):
    grid.resize(width, height)
""",
    # the other way round on purpose: both by a function of their own, or what is done to the result, or a condition
    """
def kl(student, teacher):
    return (teacher.exp() * (teacher - student)).sum()

def forward_kl(student, teacher):
    return kl(student, teacher)

def mode_seeking(student, teacher):
    return kl(teacher, student)

def distill(batch, kind):
    student, teacher = batch
    if kind == "reverse":
        return kl(teacher, student).mean()
    raise ValueError(kind)

KINDS = {"reverse": lambda student, teacher: kl(teacher, student)}

def relativistic(real, fake):
    return (real - fake.mean()).sigmoid().log().mean()

def loss_of_critic(real, fake):
    loss = relativistic(real, fake)
    return -loss

def loss_of_generator(real, fake):
    loss = relativistic(fake, real)
    return -loss
""",
    """
def nce(image, text):
    return (image @ text.T).log_softmax(-1)

def mix(clean, noise, share):
    return clean * share + noise * (1 - share)

def canvas(height, width):
    return [[0] * width for _ in range(height)]

class Loss:
    def image_to_text(self, image, text, scale):
        return nce(image, text) * scale

    def text_to_image(self, image, text, scale):
        return nce(text, image) * scale

    def forward(self, batch, share):
        image, text = batch.image, batch.text
        scores = nce(text, image).T
        clean, noise = batch.clean, batch.noise
        return scores, -nce(text, image), mix(noise, clean, 1 - share)

def load(image, height, width):
    if image.orientation in (6, 8):
        image = image.transpose(2)
        return canvas(width, height), image
    return image
""",
    # the same in either order
    """
import torch.nn.functional as F

def l1_loss(output, target):
    return (output - target).abs().mean()

def mse(output, target):
    \"\"\"The mean of the squares.\"\"\"
    return F.mse_loss(output, target, reduction="mean")

def step(net, batch):
    output = net(batch)
    target = batch.target
    return l1_loss(target, output) + mse(target, output)
""",
    _RPC.format(handles="handles, ", mark=""),
    # the order of the fields
    """\
from typing import NamedTuple


class Rollout(NamedTuple):
    ids: list
    logps: list
    texts: list
    lengths: list
    mask: list


def rollout(engine, prompts):
    ids, logps, texts = engine(prompts)
    lengths = [len(row) for row in ids]
    if not lengths:
        raise ValueError("no prompts")
    return Rollout(ids, logps, texts, [*lengths], [[1] * length for length in lengths])
""",
    # the other side's turn
    """\
class View:
    def __init__(self, player, opponent, turn):
        self.player, self.opponent, self.turn = player, opponent, turn

    @classmethod
    def after_move(cls, view):
        player, opponent = view.player, view.opponent
        return cls(opponent, player, view.turn + 1)
""",
    # the one that has them in another order is not meant here
    """\
class Dataset:
    def __init__(self, rows, tokenizer, strategy):
        self.rows, self.tokenizer, self.strategy = rows, tokenizer, strategy


class Paired:
    def __init__(self, rows, strategy, tokenizer):
        self.rows, self.tokenizer, self.strategy = rows, tokenizer, strategy


KINDS = {"plain": Dataset, "paired": Paired}


def build(kind, rows, tokenizer, strategy):
    cls = KINDS[kind]
    if kind == "paired":
        return cls(rows, strategy, tokenizer)
    return cls(rows, tokenizer, strategy)
""",
]
