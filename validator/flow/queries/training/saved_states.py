"""States of models that are saved to files and loaded from them, and under which names their parameters stand there."""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from typing import NamedTuple

from validator.definitions import ClassDef
from validator.domains.placement import certainly, steps_of
from validator.flow.queries.base import Place, Queries
from validator.flow.queries.origins import calls_behind, passed_from, sources
from validator.flow.values import picked

DDP = "module."
COMPILED = "_orig_mod."
WRAPPERS = {"module": DDP, "_orig_mod": COMPILED}
_AROUND = frozenset({"torch.nn.parallel.DistributedDataParallel", "torch.nn.DataParallel"})
_HARMLESS = frozenset({"plain", "eval", "half"})
_SAME = frozenset({"str", "Path", "PurePath", "fspath", "abspath", "expanduser"})
_READING = frozenset({"load_state_dict", "keys", "values", "items", "get", "print", "len"})


class State(NamedTuple):
    """`call` saves the state of a model, or loads it: in the file `path`, under `key` of a dictionary ("": alone)."""

    call: Place
    model: Place
    key: str
    path: Hashable
    prefix: str
    strict: bool = True  # whether names that do not fit raise

    @property
    def classes(self) -> frozenset[ClassDef]:
        """The classes that the model inside of its wrappers may have."""
        value = self.model.closed
        inner = [picked(o[1], "module") for o in value.of("keeping")] or [value]
        return frozenset(o[1] for each in inner for o in each.each if o[0] == "inst")


def saved(queries: Queries) -> Iterator[State]:
    """What is saved of models of which it is known how they are wrapped."""
    for call in queries.calls("torch.save"):
        given, file = call.argument("obj", 0), call.argument("f", 1)
        for key, state in _states(given) if given is not None and file is not None else ():
            made = calls_behind(state, lambda each: each.method == "state_dict" and each.receiver is not None) or []
            models = [each.receiver for each in made if len(each.value.args) == 1 and each.receiver is not None]
            if len(models) == len(made) == 1 and file is not None:
                yield from (State(call, *row) for row in _seen_by_callers(queries, models[0], key, file))
            elif len(models) == len(made) and file is not None:
                prefixes, path = {prefix_of(model) for model in models}, path_of(file)
                prefix = prefixes.pop() if len(prefixes) == 1 else None
                if prefix is not None and path is not None:
                    yield State(call, models[0], key, path, prefix)


def _seen_by_callers(
    queries: Queries, model: Place, key: str, file: Place
) -> Iterator[tuple[Place, str, Hashable, str]]:
    """A model, the key of its state, its file and the prefix of its names: of what a function is passed, for each call
    of it what that call passes."""
    queue, seen = [(model, file)], {(model, file)}
    for row in queue:
        inner = [each for each in row if each.root.value.op == "param"]
        calls = queries.calls_of(inner[0].unit) if inner else []
        if calls and all(each.unit is inner[0].unit for each in row):
            passed = [(passed_from(call, row[0]), passed_from(call, row[1])) for call in calls]
            fresh = [each for each in passed if each not in seen and each != row]
            seen.update(fresh)
            queue += fresh
            if passed != [row]:
                continue
        prefix, path = prefix_of(row[0]), path_of(row[1])
        if prefix is not None and path is not None:
            yield row[0], key, path, prefix


def loaded(queries: Queries) -> Iterator[State]:
    """What is loaded into models of which it is known how they are wrapped, under the very names of the file."""
    for call in queries.named("load_state_dict"):
        state, model = call.argument("state_dict", 0), call.receiver
        strict = call.argument("strict", 1)
        strictly = True if strict is None else strict.closed.constant()
        if state is None or model is None or not isinstance(strictly, bool) or call.is_tried:
            continue
        key, whole = _taken_from(state)
        made = calls_behind(whole, lambda each: any(o[:2] == ("ext", "torch.load") for o in each.operand(0).val.each))
        files = [each.argument("f", 0) for each in made or ()]
        if not _is_left_alone(state) or not _is_left_alone(whole):
            continue
        if len(files) == 1 and files[0] is not None:
            yield from (State(call, *row, strictly) for row in _seen_by_callers(queries, model, key, files[0]))
            continue
        paths = {path_of(file) if file is not None else None for file in files}
        path, prefix = paths.pop() if len(paths) == 1 else None, prefix_of(model)
        if path is not None and prefix is not None:
            yield State(call, model, key, path, prefix, strictly)


def _states(given: Place) -> Iterator[tuple[str, Place]]:
    """What may be the state of a model in something that is saved, by its key there."""
    queue, seen = [given.root], {(given.unit, given.root.number)}
    for each in queue:
        value = each.value
        if value.op == "dict":
            yield from ((name, _names_of(held.root) or held) for name, held in each.entries.items())
        elif value.op == "call" and each.method == "state_dict":
            yield "", each
        elif value.op == "call" and each.method == "dict":
            yield from ((n, each.value_at(a)) for n, a in zip(value.data.names, value.args[1:], strict=True) if n)
        else:
            kept = _names_of(each)
            before = [kept] if kept is not None else sources(each) or ()
            fresh = [root for s in before if ((root := s.root).unit, root.number) not in seen]
            seen.update((root.unit, root.number) for root in fresh)
            queue += fresh


def _names_of(made: Place) -> Place | None:
    """The dictionary of which another one has the names: `{name: value.cpu() for name, value in state.items()}`."""
    if made.value.op != "collect" or made.value.data[0] != "dict":
        return None
    name = made.operand(0).root
    is_first = name.value.op == "unpack" and name.value.data[:2] == (0, 2)
    pairs = name.operand(0).iterable if is_first else None
    is_whole = pairs is not None and pairs.value.op == "call" and pairs.method == "items"
    return pairs.receiver if pairs is not None and is_whole else None


def _taken_from(state: Place) -> tuple[str, Place]:
    """The key under which a state lies in something, and that; "" of one that is a value by itself."""
    root = state.root
    if root.value.op == "item" and isinstance(key := root.operand(1).val.constant(), str):
        return key, root.operand(0)
    if root.value.op == "call" and root.method == "get" and root.receiver is not None and len(root.value.args) == 2:
        return str(root.operand(1).val.constant() or ""), root.receiver
    return "", state


def _is_left_alone(state: Place) -> bool:
    """Whether nothing may have changed the names in a state before it is used: no other call got it, nothing is stored
    in it or deleted from it."""
    unit, root = state.unit, state.root.number
    for user in (each for each in unit.code.values if each.args and each.args[0] >= 0):
        changed = user.op in ("store_item", "delete") and unit.root(user.args[0]) == root
        handed = user.op == "mut" and unit.root(user.args[0]) == root
        if changed or handed and state.value_at(user.args[1]).method not in _READING:
            return False
    return True


def prefix_of(model: Place, asked: frozenset[Place] = frozenset()) -> str | None:
    """What stands before the names of the parameters in a model's state; None where that is not known. `asked`: the
    models of which it is asked already."""
    if model in asked:
        return None
    prefixes: set[str | None] = set()
    seen, queue = {(model.unit, model.root.number)}, [model]
    for place in queue:  # what lies inside a wrapper is known as such only where it is taken out
        root = place.root
        inside = root.value.op == "attr" and root.value.data in WRAPPERS
        before = sources(root) if root.value.op == "param" and not inside else None
        if inside:
            around = prefix_of(root.operand(0), asked | {model})
            prefixes.add("" if around == WRAPPERS[str(root.value.data)] else None)
        elif before is None:
            prefixes.add(_prefix_as_held(place))
        fresh = [each for each in before or () if (each.unit, each.root.number) not in seen]
        seen.update((each.unit, each.root.number) for each in fresh)
        queue += fresh
    return prefixes.pop() if len(prefixes) == 1 else None


def _prefix_as_held(model: Place) -> str | None:
    """The same by what a value is, and how it is placed."""
    value = model.closed
    objs = [o for o in value.each if o[0] != "keeping"]
    if objs and all(o[0] == "made" and model.flow.models.named(o[1]) in _AROUND for o in objs):
        return DDP if all(steps_of(each) <= _HARMLESS | {"?", "ddp"} for each in value.state) else None
    if not objs or any(o[0] != "inst" for o in objs):
        return None
    if certainly(value.state, "compiled"):
        return COMPILED if all(steps_of(each) <= _HARMLESS | {"compiled"} for each in value.state) else None
    return "" if value.state and all(steps_of(each) <= _HARMLESS for each in value.state) else None


def path_of(file: Place, above: frozenset[Place] = frozenset()) -> Hashable | None:
    """What tells a file from others: its text, or the names of which it is made; None where nothing does. `above`: of
    which it is a part: a path that is put together of itself (`self.path = join(self.path, name)`) tells nothing."""
    found, place = file.root, file.root
    seen = {(place.unit, place.number)}
    while (before := _one_before(place)) is not None and (before.unit, before.number) not in seen:
        seen.add((before.unit, before.number))
        found = place = before
    if found in above:
        return None
    value, above = found.value, above | {found}
    if value.op == "const":
        return ("text", value.data) if isinstance(value.data, str) else None
    if value.op == "join":
        parts = [path_of(found.value_at(number), above) for number in value.args]
        return ("join", *parts) if any(part is not None for part in parts) else None
    if value.op == "binary" and value.data in ("Div", "Add"):
        left, right = path_of(found.operand(0), above), path_of(found.operand(1), above)
        return ("join", left, right) if right is not None else None
    if value.op == "call" and found.method == "join" and len(value.args) > 2:
        return ("join", *(path_of(found.value_at(number), above) for number in value.args[1:]))
    if value.op == "param":
        return ("param", found.unit.module.name, found.hint)
    return ("named", found.hint) if value.op in ("attr", "name", "free") and found.hint else None


def _one_before(place: Place) -> Place | None:
    """What a path was before, if that is one value."""
    if place.value.op == "call" and place.method in _SAME and len(place.value.args) == 2:
        return place.operand(1).root
    if place.value.op == "attr" and not any(o[0] in ("inst", "self") for o in place.operand(0).closed.each):
        return None
    before = {(each.unit, each.root.number): each.root for each in sources(place) or ()}
    return next(iter(before.values())) if len(before) == 1 else None
