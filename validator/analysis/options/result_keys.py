"""Which keys the dictionaries have that the project makes, and loaders make of samples."""

from __future__ import annotations

from validator.analysis.interfaces.chosen import is_chosen_here
from validator.analysis.options.dictionary_keys import DictionaryKeys
from validator.flow.queries.base import Place, Queries
from validator.flow.queries.ranks.rank_shares import within
from validator.flow.values import NONE_OBJ, Val

_LOADER = "torch.utils.data.DataLoader"
_FOLLOWED = frozenset({"get", "keys", "values", "items", "copy", "pop", "popitem", "clear", "update", "setdefault"})


def keys_without(queries: Queries, place: Place, key: str) -> frozenset[str]:
    """The keys of all dictionaries that are asked at a place for one that none of them has; empty where one may have
    it."""
    owner = place.operand(0)
    if _is_expected(place, key) or is_changed(owner):
        return frozenset()
    keys = _keys(owner)
    return keys if key not in keys and (is_made_here(queries, owner) or not _is_put(queries, key)) else frozenset()


def keys_of_one(queries: Queries, place: Place, key: str) -> frozenset[str]:
    """The keys of what one of several functions always gives which lacks the one that is asked for, where all others
    always give it, and the function of the call has chosen among them, or among the objects whose methods they are."""
    owner, call = place.operand(0), place.operand(0).root
    if call.value.op != "call" or _is_expected(place, key) or is_changed(owner):
        return frozenset()
    targets = queries.targets(call) if is_chosen_here(call, objects=True, user=place) else []
    lacking: set[str] = set()
    for unit in targets:
        given = [Place(place.flow, unit, number) for number in unit.code.returned]
        keys = [keys_of(each.closed) if not is_changed(each) else frozenset[str]() for each in given]
        has = [key in each for each in keys]
        if not given or not all(keys) or any(has) and not all(has):
            return frozenset()
        if not any(has):
            lacking |= frozenset().union(*keys)
    return frozenset(lacking) if lacking and len(targets) > 1 else frozenset()


def _is_put(queries: Queries, key: str) -> bool:
    """Whether somebody who has the dictionary under another name may put the key into it."""
    return queries.project.analysis(DictionaryKeys).may_be_put(key)


def is_made_here(queries: Queries, owner: Place) -> bool:
    """Whether a value is just what a call gave, or a batch of a loader: nobody else has it, who may have added keys."""
    owner = owner.root
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


def is_changed(owner: Place) -> bool:
    """Whether a method that may add keys, and is not followed, was called on a dictionary on its way here."""
    place = owner
    while place.value.op == "mut":
        call = place.operand(1)
        if call.value.op == "call" and place.value.data == -1 and call.method not in _FOLLOWED:
            return True
        place = place.operand(0)
    return False


def _keys(owner: Place) -> frozenset[str]:
    """The keys of all dictionaries that a value may be; none where one is empty so far."""
    whole = owner.closed
    return keys_of(whole) if all(o[1] for o in whole.of("dict")) else frozenset()


def keys_of(whole: Val) -> frozenset[str]:
    """The keys of dictionaries that are spelled out; none where one may be something else, or have others."""
    objs = whole.objs - {NONE_OBJ}
    if not objs or any(o[0] != "dict" or o[2] is not None for o in objs):
        return frozenset()
    return frozenset(str(key) for o in objs for key, _ in o[1])
