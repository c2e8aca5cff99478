"""Methods of actors that a program runs on one of a group alone: `self.actors[0].save.remote(path)`, where it has
others run on all of them: `[actor.fit.remote(batch) for actor in self.actors]`."""

from __future__ import annotations

from collections.abc import Iterator

from validator.definitions import ClassDef
from validator.flow.callgraph.dispatch import SENDING
from validator.flow.program.unit import Unit
from validator.flow.queries.base import Place, Queries
from validator.flow.queries.outside_program import is_test

_MAKING = ("ext", "ray.remote")


def sent_to_one(queries: Queries, unit: Unit) -> Place | None:
    """The one of several actors on which alone a method runs, as a call has it that is sent to it; None where others
    may be sent the same, or nobody knows."""
    cls = unit.cls
    if cls is None or unit.method is None or not any(_is_made_remote(queries, each) for each in cls.relatives):
        return None
    owners = [sent.operand(0).root for sent in _sent(queries, unit.name)]
    for owner in owners:
        if owner.value.op != "item" or type(owner.operand(1).val.constant()) is not int:
            return None
    groups = {owner.operand(0).hint for owner in owners}
    return owners[0] if owners and all(_goes_to_all(queries, group) for group in groups) else None


def _sent(queries: Queries, name: str) -> Iterator[Place]:
    """Where a method of that name is asked of an actor, and sent to it."""
    for place in queries.attributes(name):
        if not is_test(place.unit.path) and any(u.value.op == "attr" and u.value.data in SENDING for u in place.users):
            yield place


def _goes_to_all(queries: Queries, group: str) -> bool:
    """Whether something is sent to each of the actors that are kept under a name."""
    for sending in queries.attributes("remote"):
        method = sending.operand(0)
        each = method.operand(0).root if method.value.op == "attr" else None
        if each is not None and each.value.op == "unpack":  # `for actor, batch in zip(self.actors, batches)`
            each = each.operand(0).root
        iterable = each.iterable if each is not None else None
        if group and iterable is not None and group in iterable.words:
            return True
    return False


def _is_made_remote(queries: Queries, cls: ClassDef) -> bool:
    """Whether objects of a class are actors: `@ray.remote`, `ray.remote(num_gpus=1)(Worker)`."""
    if any(decorator.removesuffix("()") == _MAKING[1] for decorator in cls.facts.decorators):
        return True
    for unit in queries.mentioning(cls.name):
        for number in unit.named.get(cls.name, ()):
            for user in Place(queries.flow, unit, number).users:
                callee = user.operand(0) if user.value.op == "call" else None
                if callee is not None and callee.value.op == "call":
                    callee = callee.operand(0)
                if callee is not None and callee.number != number and _MAKING in callee.val.objs:
                    return True
    return False
