"""By which keys code asks what it is given: a dictionary that it took up, and the dictionaries in it."""

from __future__ import annotations

from typing import NamedTuple

from validator.flow.queries.base import Place, Queries
from validator.flow.queries.escapes import parameters_given

Path = tuple[str, ...]
_SAME = frozenset({"phi", "mut"})  # the same object under another number


class Asked(NamedTuple):
    """A key, with those of the dictionaries around it; `how`: `item` (it must be there), `get`, or `in`."""

    path: Path
    place: Place
    how: str


class AskedKeys:
    """The keys that are asked of a value, in its function and in those that it is passed to. `whole`: somebody takes
    all of it, whatever the keys: who asks for one is not known then. `put`: keys that the code puts there itself;
    `changed`: what else it puts there is not known."""

    def __init__(self, queries: Queries, value: Place) -> None:
        self.queries = queries
        self.asked: list[Asked] = []
        self.whole: set[Path] = set()
        self.put: set[Path] = set()
        self.changed: set[Path] = set()
        self._seen: dict[Place, Path] = {value: ()}
        self._queue: list[tuple[Place, Path]] = [(value, ())]
        while self._queue:
            self._look(*self._queue.pop())

    def _follow(self, value: Place, path: Path) -> None:
        """Look at a value later. Of what two ways lead to, or a part of it, as in a tree, one way is looked at."""
        known = self._seen.get(value)
        if known is None:
            self._seen[value] = path
            self._queue.append((value, path))
        elif known != path:
            self.whole.add(path)

    def _look(self, value: Place, path: Path) -> None:
        for user in value.taken_by:
            op = user.value.op
            if op == "item" and user.value.args[0] == value.number:
                self._by_key(user, user.operand(1), path, "item")
            elif op == "attr":
                self._of_method(user, path)
            elif op == "compare":
                key = user.operand(0).val.constant()
                if isinstance(key, str) and user.value.args[-1] == value.number:
                    self.asked.append(Asked((*path, key), user, "in"))
            elif op == "store_item" and user.value.args[0] == value.number:
                self._put(user.operand(1), path)
            elif op in _SAME:
                self._follow(user, path)
            elif op == "call":
                self._passed(user, value, path)
            else:
                self.whole.add(path)
        if value.number in value.unit.code.returned:
            self.whole.add(path)

    def _by_key(self, user: Place, key: Place, path: Path, how: str) -> None:
        name = key.val.constant()
        if isinstance(name, str):
            self.asked.append(Asked((*path, name), user, how))
            self._follow(user, (*path, name))
        else:
            self.whole.add(path)

    def _of_method(self, attr: Place, path: Path) -> None:
        """What a method of a dictionary asks for (`state.get("step")`); any other may take all of it."""
        for call in attr.users:
            if call.value.op != "call" or call.value.args[0] != attr.number:
                self.whole.add(path)
            elif attr.value.data in ("get", "pop") and len(call.value.args) > 1:
                must = attr.value.data == "pop" and len(call.value.args) == 2
                self._by_key(call, call.operand(1), path, "item" if must else "get")
            elif attr.value.data == "setdefault" and len(call.value.args) > 1:
                self._put(call.operand(1), path)
                self.whole.add(path)
            else:
                self.whole.add(path)
                if attr.value.data == "update":
                    self.changed.add(path)

    def _put(self, key: Place, path: Path) -> None:
        name = key.val.constant()
        if isinstance(name, str):
            self.put.add((*path, name))
        else:
            self.changed.add(path)

    def _passed(self, call: Place, value: Place, path: Path) -> None:
        inside = list(parameters_given(self.queries, call, value))
        if not inside:
            self.whole.add(path)
        for param in inside:
            self._follow(param, path)
