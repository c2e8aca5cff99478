"""What a rank has divided by the number of ranks: its share of a mean that is only one once somebody sums the shares.

A share is followed as long as sums of it can be made: where it is only added up, scaled and handed on. What is
computed of it otherwise uses it as it is.
"""

from __future__ import annotations

import builtins
import sys
from typing import NamedTuple

from validator.domains.axes import WORLD
from validator.flow.calls.groups import axes_in
from validator.flow.program.flow import Flow
from validator.flow.queries.base import Place
from validator.flow.queries.escapes import Index
from validator.flow.queries.origins import returned, sources
from validator.flow.queries.training.placements import Derived
from validator.flow.queries.values.sums import KEEPING, is_size

_DATA, _MODULE = "dp", "torch.nn.Module"
_LINEAR = frozenset({"Add", "Sub", "Mult", "Div"})
_ADDING = frozenset({
    "sum", "mean", "nanmean", "nansum", "stack", "cat", "concat", "tensor", "as_tensor", "add", "add_", "sub", "sub_",
    "mul", "mul_", "div", "div_", "round", "FloatTensor", "tolist", "copy_", "contiguous", "unsqueeze", "reshape",
    "data", "double", "half", "mean_", "cumsum", "lerp", "lerp_",
})  # fmt: skip
_CASTS = frozenset({"int", "float", "abs", "round"})
_COMPUTED = frozenset({None, "*", "input", "data", "other", "tensors"})
_ABOUT = frozenset({"len", "isinstance", "type", "hasattr", "callable", "id", "range"})
_SIZES = frozenset({"len", "size", "numel", "dim", "nelement", "ndimension"})
_TELLING = ("reduce", "gather", "sync", "allgather", "average_across", "psum", "pmean")
_STANDARD = frozenset({*dir(builtins), *sys.stdlib_module_names})


def counts_ranks(place: Place) -> bool:
    """Whether a value is the number of all ranks, or of all that share the data; of one process it may be 1."""
    environment = place.flow.models.ranks["sizes"]
    if place.value.op == "call" and len(place.value.args) == 2 and place.operand(0).val.objs == {("ext", "float")}:
        place = place.operand(1)  # `float(world_size)`
    each = [o for o in place.closed.each if o != ("const", "int", 1)]
    return bool(each) and all(
        o[0] == "size" and bool(axes_in(o[1]) & {WORLD, _DATA}) or o[0] == "environment" and o[1] in environment
        for o in each
    )


def tells_of_ranks(name: str) -> bool:
    """Whether something says by its name that it brings together what ranks have."""
    return any(word in name.lower() for word in _TELLING)


class Terms(NamedTuple):
    """Of what a number is made. `data`: of what a model, a loss or a batch gave; `summed`: of what ranks have brought
    together, or others will; `opened`: of what callers give that are not all known."""

    data: bool
    summed: bool
    opened: bool


def terms(number: Place) -> Terms:
    """Of what the sums, products and means are made that a number is."""
    data = opened = False
    queue, seen = [number], {number}
    above = {number.unit}  # the functions that are given the number, not those that make it
    for place in queue:
        if _is_brought_together(place):
            return Terms(data, True, opened)
        before = _before(place)
        put = [user.operand(2) for user in place.users if user.value.op == "store_item" and user.operand(0) == place]
        before = [*before, *put] if before is not None else None
        if before is None:
            op = place.value.op
            given = op == "param" and _is_given_a_batch(place)
            data = (
                data or given or op in ("next", "call", "binary") or op == "attr" and place.value.data in _losses(place)
            )
            opened = opened or op == "param" and not given and place.unit in above
            before = []
        elif place.value.op == "param" and place.unit in above:
            above.update(each.unit for each in before)
        queue += [each for each in dict.fromkeys(before) if each not in seen]
        seen.update(before)
    return Terms(data, False, opened)


def _losses(place: Place) -> frozenset[str]:
    return frozenset(place.flow.models.likely["losses"])


def _is_given_a_batch(parameter: Place) -> bool:
    """Whether a parameter is one of what a module is called with for each batch."""
    unit = parameter.unit
    return unit.name == "forward" and unit.cls is not None and _MODULE in unit.cls.external_bases


def _is_brought_together(place: Place) -> bool:
    """Whether a value may be what a collective gives or has left, also by another name of its memory; or a gradient,
    which others bring together; or is scaled by the number of ranks."""
    value = place.value
    if value.op == "attr" and value.data == "grad":
        return True
    if value.op == "binary" and value.data == "Mult":
        return is_size(place.operand(0)) or is_size(place.operand(1))
    if value.op == "call" and _meets(place):
        return True
    call = place.operand(1) if value.op == "mut" else place
    if value.op == "mut" and (value.data != -1 or tells_of_ranks(call.method)) and _meets(call):
        return True
    return value.op != "param" and any(_meets(call) for call in _given(place))


def _meets(call: Place) -> bool:
    """Whether a call brings together what ranks have, as far as that is known. What modules exchange in their forward
    pass is no sum of what they give."""
    if call.value.op != "call" or _is_of_tensors(call):
        return False
    rows = [operation.row for operation in call.operations]
    moved = any(row.reads or row.operation or row.equal or row.into or row.result == "uniform" for row in rows)
    if moved or tells_of_ranks(call.method):
        return True
    site = call.result.sites.get(call.number)
    if site is None or any(target.unit.name in ("forward", "__call__") for target in site.targets):
        return False
    return any(o.row.operation is not None and o.row.equal is not None for o, _ in call.reached())


def _is_of_tensors(call: Place) -> bool:
    """Whether a call is one of a function of torch that works on this rank alone."""
    found = call.operand(0).val.of("ext")
    alone = (str(o[1]).startswith("torch.") and not str(o[1]).startswith("torch.distributed") for o in found)
    return bool(found) and all(alone) and not call.operations


def _given(place: Place) -> list[Place]:
    """The collectives of its unit that are given a value, a view of it, or a list in which it lies."""
    found, queue, seen = [], [place], {place.number}
    for each in queue:
        for user in each.users:
            op, name = user.value.op, user.value.data
            views = op == "attr" and name in place.flow.models.tensors["views"]
            of_view = op == "call" and each.value.op == "attr" and user.value.args[0] == each.number
            if op == "call" and not of_view:
                found += [user] if user.operations else []
            elif (views or of_view or op in ("list", "tuple", "mut") and user.value.args[0] == each.number) and (
                user.number not in seen
            ):
                seen.add(user.number)
                queue.append(user)
    return found


def _before(place: Place) -> list[Place] | None:
    """What a number was, one step before; nothing for what is no data; None where that is not known."""
    value = place.value
    if value.op == "mut":
        call = place.operand(1)
        added = call.value.op == "call" and call.method in _ADDING and call.receiver is not None
        return [place.operand(0), *(_arguments(call) if added else ())]
    if value.op == "binary":
        if value.data not in _LINEAR:
            return [] if value.data in ("FloorDiv", "Mod") or _is_plain(place.operand(0)) else None
        return [place.operand(0)] if value.data == "Div" else [place.operand(0), place.operand(1)]
    if value.op in ("unary", "compare", "list", "tuple", "collect", "phi", "dict", "set", "join"):
        return [place.value_at(number) for number in value.args if number >= 0]
    if value.op in ("item", "unpack", "iter", "await", "enter"):
        return [place.operand(0)]
    if value.op == "next":
        through = place.operand(0).gone_through.root
        return [through] if through.value.op in ("list", "tuple", "collect") else None
    if value.op == "param":
        return sources(place)
    if value.op in ("attr", "free", "name"):
        if value.op == "attr" and value.data in _losses(place):
            return None
        return sources(place) or []
    return _before_call(place) if value.op == "call" else []


def _is_plain(place: Place) -> bool:
    """Whether a value is a constant, an option or a setting."""
    return place.root.value.op in ("const", "name", "attr")


def _arguments(call: Place) -> list[Place]:
    """What a call computes with, without its options."""
    given = zip(call.value.data.names, call.value.args[1:], strict=True)
    return [call.value_at(number) for name, number in given if name in _COMPUTED]


def _before_call(call: Place) -> list[Place] | None:
    name, receiver = call.method, call.receiver
    if name in _SIZES:
        return []
    inner = returned(call)
    if inner is not None:
        return inner
    packages = {str(o[1]).partition(".")[0] for o in call.operand(0).val.each if o[0] == "ext"}
    rows = [call.flow.models.call(o[1]) for o in call.operand(0).val.of("ext")]
    if packages and not rows:
        return []
    if packages == {"torch"}:
        made = any(row is not None and row.layout not in ("", "contents", "like") for row in rows)
        if made or receiver is not None and receiver.text == "torch.cuda":
            return []
        computed = name in _ADDING or all(map(_is_plain, _arguments(call)))
        return _arguments(call) if computed else None
    if packages and packages <= _STANDARD:
        return _arguments(call) if name in _CASTS | {"sum", "max", "min"} or "math" in packages else []
    if receiver is not None and not packages and (name in _ADDING | KEEPING or name in _tensor_methods(call)):
        return [receiver, *(_arguments(call) if name in _ADDING else ())]
    return None


def _tensor_methods(call: Place) -> frozenset[str]:
    table = call.flow.models.tensors
    return frozenset({*table["keep"], *table["shaped"], *table["reducing"], *table["casts"], *table["moves"]})


class Onward(Derived):
    """What becomes of a share: where it is `shown` or computed with, where objects keep it (`kept`), whether gradients
    are computed of it (`trained`), and whether a function gives it back (`given_back`)."""

    def __init__(self, flow: Flow, start: Place) -> None:
        self.index = Index(flow)
        self.kept: list[Place] = []
        self.trained = False
        self.given_back = False
        super().__init__(flow, start)

    def _follow(self, place: Place) -> None:
        for user in place.users:
            self._used(place, user)
        for block in place.unit.code.blocks:
            if block.end[0] == "return" and block.end[1] == place.number:
                self._returned(place)
            elif block.end[0] == "branch" and block.end[1] == place.number:
                self.shown.append(place)

    def _used(self, place: Place, user: Place) -> None:
        op, args = user.value.op, user.value.args
        if op == "call":
            if args[0] != place.number:
                self._call(place, user)
        elif op == "attr":
            self._attribute(user)
        elif op == "store_attr" and args[1] == place.number:
            self._stored(user)
        elif op in ("join", "compare"):
            self.shown.append(user)
        elif op == "binary":
            other = user.value_at(args[0] if args[1] == place.number else args[1])
            if user.value.data == "Mult" and is_size(other):
                self.reduced = True
            is_linear = user.value.data in _LINEAR and not (user.value.data == "Div" and args[1] == place.number)
            (self._stack if is_linear else self.shown).append(user)
        elif op in ("phi", "unary", "list", "tuple", "dict") or op == "mut" and self._is_it(place, user):
            self._stack.append(user)
        elif op in ("item", "unpack") and place.value.op not in ("list", "tuple", "dict", "phi"):
            self._stack += [user] if args[0] == place.number else []
        elif op not in ("mut", "store_attr"):
            self.leaves = True

    @staticmethod
    def _is_it(place: Place, mut: Place) -> bool:
        """Whether a variable behind a call is still what it was, or what a method that works in place gave."""
        return mut.value.args[0] == place.number or mut.value.data == -1 and place.method.endswith("_")

    def _stored(self, store: Place) -> None:
        """On where the attribute is read."""
        self.kept.append(store)
        objs = store.operand(0).closed.each
        owners = {each for o in objs if o[0] in ("inst", "self") for each in o[1].relatives}
        self.leaves = self.leaves or not owners or any(o[0] not in ("inst", "self") for o in objs)
        for unit, number in self.index.loads(store.value.data):
            read = Place(self.flow, unit, number)
            classes = {o[1] for o in read.operand(0).closed.each if o[0] in ("inst", "self")}
            if not classes or not classes.isdisjoint(owners):
                self._stack.append(read)

    def _attribute(self, attribute: Place) -> None:
        name, tensors = attribute.value.data, self.flow.models.tensors
        calls = [user for user in attribute.users if user.value.op == "call" and attribute.is_called]
        if name == "backward":
            self.trained = True
        elif name in KEEPING | _ADDING or name in tensors["views"] or name in tensors["moves"]:
            self._stack += calls or [attribute]
            self.shown += [call for call in calls if name in ("item", "tolist")]
            self.reduced = self.reduced or any(call.operations for call in calls)
        elif name in tensors["cutting"] or name in tensors["reducing"] or name in self.flow.models.same_methods:
            self.shown += calls
        else:
            self.leaves = True

    def _call(self, place: Place, call: Place) -> None:
        site, method = call.result.sites.get(call.number), call.method
        if call.operations or tells_of_ranks(method) or "sync_dist" in call.value.data.names:
            self.reduced = True
        elif "backward" in method:
            self.trained = True
        elif method in _ABOUT:
            return
        elif site is not None and site.targets and not (site.others or site.away):
            self._passed(place, call)
        elif method in self._SHOWING | _CASTS:
            self.shown.append(call)
            self._stack += [call] if method in _CASTS else []
        else:
            self._of_library(call)

    def _of_library(self, call: Place) -> None:
        method = call.method
        packages = {str(o[1]).partition(".")[0] for o in call.operand(0).closed.each if o[0] == "ext"}
        if packages == {"torch"} and "distributed" not in call.operand(0).text:
            (self._stack if method in _ADDING else self.shown).append(call)
        elif packages <= _STANDARD if packages else method in KEEPING | _ADDING and call.receiver is not None:
            self._stack.append(call)
        elif packages and packages <= self._alone or self._is_of_library(call):
            self.shown.append(call)
        else:
            self.leaves = True

    @property
    def _alone(self) -> frozenset[str]:
        """The libraries that leave what they are given to the process."""
        return frozenset(self.flow.models.gradients["leaving"]) - {"torch", "torchmetrics"}

    def _is_of_library(self, call: Place) -> bool:
        """Whether a method is one of an object of such a library."""
        made = call.receiver.origin if call.receiver is not None else None
        if made is None or made.value.op != "call":
            return False
        packages = {str(o[1]).partition(".")[0] for o in made.operand(0).closed.each if o[0] == "ext"}
        return bool(packages) and packages <= self._alone

    def _returned(self, place: Place) -> None:
        """On where the unit is called; of what lies in a tuple with others where it is taken out of that."""
        self.given_back = True
        calls = list(self.flow.calls_of(place.unit))
        known = calls and place.value.op not in ("list", "dict") and not place.unit.code.is_generator
        self.leaves = self.leaves or not known
        for caller, passed in calls if known else ():
            call = Place(self.flow, caller, passed.site)
            if place.value.op != "tuple":
                self._stack.append(call)
                continue
            inside = [number in self._numbers(place) for number in place.value.args]
            taken = [user for user in call.users if user.value.op == "unpack" and user.value.data[2] < 0]
            self.leaves = self.leaves or len(taken) < len(call.users)
            self._stack += [user for user in taken if inside[user.value.data[0]]]

    def _numbers(self, place: Place) -> set[int]:
        return {each.number for each in self.all if each.unit is place.unit}


class OfLoss(Onward):
    """What becomes of a part of a loss on its way to the gradients: whether they are computed of it (`trained`, at
    `backward`) while nothing has multiplied it with a number of ranks (`scaled`). What collectives are given of it
    besides is for others to read."""

    def __init__(self, flow: Flow, start: Place) -> None:
        self.scaled = False
        self.backward: list[Place] = []
        super().__init__(flow, start)

    def _used(self, place: Place, user: Place) -> None:
        if user.value.op == "binary" and any(_may_be_size(user.value_at(number)) for number in user.value.args):
            self.scaled = True
        else:
            super()._used(place, user)

    def _attribute(self, attribute: Place) -> None:
        super()._attribute(attribute)
        if attribute.value.data == "backward":
            self.backward += [user for user in attribute.users if user.value.op == "call"]

    def _call(self, place: Place, call: Place) -> None:
        if "backward" in call.method:
            self.trained = True
            self.backward.append(call)
        elif not call.operations and not tells_of_ranks(call.method):
            super()._call(place, call)


def _may_be_size(place: Place) -> bool:
    """Whether a value is a number of ranks on one way that it may come: `size = get_world_size() if many else 1`."""
    root = place.root
    ways = [root.value_at(number) for number in root.value.args] if root.value.op == "phi" else [root]
    return any(map(is_size, ways))
