"""Functions that give back as many arguments, of the same names, as they are passed.

args, kwargs = loaded(*args, **kwargs)

def loaded(*args, **kwargs):
    found = []
    for arg in args:
        found.append(load(arg) if is_file(arg) else arg)
    for name, value in kwargs.items():
        kwargs[name] = load(value)
    return tuple(found), kwargs
"""

from __future__ import annotations

from validator.project import Method

_LISTS = frozenset({"tuple", "list"})
_ASKING = frozenset({"items", "keys", "values", "get"})


def gives_back_each(function: Method) -> bool:
    """Whether a function of `*args, **kwargs` gives back two: one for each of the first, and the same names."""
    params = function.facts.params
    if [param.kind for param in params] != ["*", "**"]:
        return False
    given, named = (param.name for param in params)
    returned = [row.value.split(", ") if row.kind == "tuple" else [] for row in function.facts.returns]
    return bool(returned) and all(
        len(names) == 2 and _is_each(function, names[0], given) and names[1] == named and _is_kept(function, named)
        for names in returned
    )


def _is_each(function: Method, name: str, given: str) -> bool:
    """Whether a variable has one element for each argument: the arguments themselves, or a list to which each round of
    a loop through them adds one, perhaps made a tuple."""
    facts = function.facts
    stored = [row for row in facts.assigns if row.target == name]
    if name == given:
        return not stored
    if not stored or stored[0].value not in ("[]", "list") or any(row.value not in _LISTS for row in stored[1:]):
        return False
    casts = [call for call in facts.calls if call.method in _LISTS and call.args]
    adding = [call for call in facts.calls if call.receiver == name]
    if any([argument.value for argument in call.args] != [name] for call in casts):
        return False
    if [call.method for call in adding] != ["append"] or [guard.kind for guard in adding[0].guards] != ["loop"]:
        return False
    rounds = [row for row in facts.assigns if row.kind == "for" and row.at[0] == adding[0].guards[0].line]
    return [row.value for row in rounds] == [given]


def _is_kept(function: Method, named: str) -> bool:
    """Whether at most the values of the keywords change: what is stored is stored under a name that they have."""
    facts = function.facts
    names = {row.target for row in facts.assigns if row.value in (f"{named}.items", f"{named}.keys", named)}
    stored = [row for row in facts.assigns if row.target.partition("[")[0] == named]
    inside = {row.at[0] for row in facts.assigns if row.target in names}
    asked = [call.method for call in facts.calls if call.receiver == named]
    return set(asked) <= _ASKING and all(any(guard.line in inside for guard in row.guards) for row in stored)
