"""What calls give that a row of a table describes, by the word of its `result`."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

from validator.domains.axes import LOCAL, SOME, WHOLE
from validator.domains.placement import PLAIN, UNPLACED, after
from validator.domains.spmd import combined, data, held, only, rank, unsure
from validator.flow import texts
from validator.flow.callgraph import dataclass_readers as readers
from validator.flow.callgraph import sections
from validator.flow.calls.arguments import Arguments, argument
from validator.flow.calls.construction import holder, holder_of, is_parser, replaced
from validator.flow.calls.elements import element
from validator.flow.calls.groups import axes_in, axes_named, job_rank, made_equal, made_group, spanned_by
from validator.flow.calls.hints import told_by_name
from validator.flow.calls.libraries.computed import PLACING, same
from validator.flow.calls.libraries.randomness import drawn_as
from validator.flow.calls.meshes import made_mesh
from validator.flow.foreign import described
from validator.flow.queries.values import tensors
from validator.flow.values import (
    BOTTOM,
    NONE_OBJ,
    STRING,
    UNKNOWN,
    Val,
    bare,
    elements,
    fetched,
    group_of,
    join,
    join2,
    obj,
    picked,
    sequence,
    tuple_of,
    unordered,
)
from validator.models import Row

if TYPE_CHECKING:
    from validator.flow.calls.in_hand import Call
    from validator.flow.evaluation import Evaluation

_PREPARED = "accelerate.PreparedModel"


class _Described(NamedTuple):
    """A call with the row that describes it."""

    call: Call
    row: Row
    arguments: Arguments
    receiver: Val
    group: Val

    @property
    def at(self) -> Evaluation:
        return self.call.at

    @property
    def number(self) -> int:
        return self.call.number

    def given(self, which: tuple[str, int] | None) -> Val | None:
        """The argument that a field of the row means; None where there is none."""
        return argument(which, self.arguments) if which is not None else None

    def first(self, otherwise: Val) -> Val:
        """The first argument, or what stands for it where none is passed."""
        return self.arguments[0][1] if self.arguments else otherwise


def result_of(call: Call, row: Row, arguments: Arguments, receiver: Val, group: Val) -> Val:
    """What a call gives. `group`: the one on which it works; `receiver`: BOTTOM where a function is called."""
    word = row.result
    if row.layout:
        made = tensors.made(row, arguments, receiver, call.at.models, call.at.flow.default_dtype)
        drawn = combined(drawn_as(call, row, arguments), made.v) if word == "drawn" else made.v
        return Val(made.objs, drawn, made.n, made.p, made.state)
    it = _Described(call, row, arguments, receiver, group)
    if isinstance(word, tuple | list):
        return _several_things(it)
    if (of_word := _BY_WORD.get(word)) is not None:
        return of_word(it)
    kind, colon, name = str(word).partition(":")
    if colon and (of_kind := _BY_KIND.get(kind)) is not None:
        return of_kind(it, name)
    if row.handle and any(n == row.handle and not v.is_const(False) for n, v in arguments):
        return Val(frozenset({("made", "torch.distributed.Work"), NONE_OBJ}))
    return Val()


def _several_things(it: _Described) -> Val:
    """Several things; of `deepspeed.initialize` the first is the model, wrapped."""
    made = described(it.row.result)
    if not it.row.result_state or not made.objs:
        return made
    (o,) = made.objs
    first, *rest = o[1]
    wrapped = it.given(it.row.wraps)
    state = after(wrapped.state if wrapped is not None else UNPLACED, it.row.result_state)
    if _asks_for_stage_3(it.given(("config", 6))):
        state = after(state, "zero3")
    return tuple_of([join2(first, _keeping(it)).placed(state), *rest])


def _asks_for_stage_3(config: Val | None) -> bool:
    """Whether a configuration of DeepSpeed that is written out says that parameters are spread over ranks."""
    rows = [dict(o[1]).get("zero_optimization") for o in config.of("dict")] if config is not None else []
    stages = [dict(o[1]).get("stage") for row in rows if row is not None for o in row.of("dict")]
    return bool(stages) and all(stage is not None and stage.is_const(3) for stage in stages)


# -- ranks and groups --------------------------------------------------------------------------------------


def _rank(it: _Described) -> Val:
    axes = axes_named(it.row, it.arguments)
    if not axes:
        axes = spanned_by(it.at, it.group) if it.row.group or it.row.rank_of else WHOLE
    among = "node" if axes == {LOCAL} else "job" if axes == WHOLE else "group"
    counted = frozenset({("ordinal", among, axes)}) if it.row.numbers else frozenset()
    told = told_by_name(it.at, it.number, it.row, it.arguments) if axes == SOME else axes
    return Val(counted, rank(told or WHOLE, sure=axes != SOME))


def _job_rank(it: _Described) -> Val:
    return job_rank(it.at, it.row.result, it.row, it.arguments)


def _size(it: _Described) -> Val:
    if not it.row.counts:
        return Val()
    return obj("size", group_of(axes_named(it.row, it.arguments)) if it.row.axes else it.group)


def _several(it: _Described) -> Val:
    return obj("several", True)


def _group(it: _Described) -> Val:
    return made_group(it.at, it.number, it.row, it.arguments)


def _subgroups(it: _Described) -> Val:
    """The group of this rank, of several that cover the job, and all of them."""
    own = group_of(SOME, "every")
    return tuple_of([own, sequence(own)])


def _mesh(it: _Described) -> Val:
    return made_mesh(it.arguments)


# -- what differs between ranks, and what does not ---------------------------------------------------------


def _uniform(it: _Described) -> Val:
    equal = made_equal(join(v for _, v in it.arguments), axes_in(it.group))
    return Val(frozenset(o for o in equal.each if o[0] == "seq"), equal.v, equal.n)


def _own(it: _Described) -> Val:
    return Val(v=data(sure=False))


def _listing(it: _Described) -> Val:
    return Val(sequence(STRING).objs | {unordered("listing")})


def _drawn(it: _Described) -> Val:
    given = (v.v for name, v in it.arguments if name != "generator" and name not in PLACING)
    return Val(v=combined(drawn_as(it.call, it.row, it.arguments), *given))


def _content(it: _Described) -> Val:
    """Of a file of its own: what each rank has for itself."""
    path = join(v for _, v in it.arguments[:1])
    return Val(UNKNOWN.objs, unsure(held(path.v)), unsure(held(path.v)), state=UNKNOWN.state)


def _state(it: _Described) -> Val:
    """Of a checkpoint: each rank has its part of it, with the same counters; or of what came over the network."""
    return Val(UNKNOWN.objs, only(it.first(BOTTOM).v, "uniform"), state=UNKNOWN.state)


# -- command lines and configurations ----------------------------------------------------------------------


def _read(it: _Described) -> Val:
    return readers.read(it.at, it.number, it.given(it.row.classes) or readers.given_to(it.call.receiver))


def _all_read(it: _Described) -> Val:
    more = any(n in it.row.when and not v.is_const(False) for n, v in it.arguments)
    if it.at.code.values[it.number].op != "call" or readers.grows(it.at, it.number):
        return UNKNOWN
    return readers.read_all(it.at, it.number, it.call.receiver, int(more))


def _section(it: _Described) -> Val:
    return sections.loaded(it.at.unit, it.number)


def _sections(it: _Described) -> Val:
    return join([*(v for _, v in it.arguments), UNKNOWN])


def _parser(it: _Described) -> Val:
    return readers.parser(it.at.unit, it.number)


def _command(it: _Described) -> Val:
    return readers.command(it.call.receiver)


def _namespace(it: _Described) -> Val:
    return readers.namespace(it.call.receiver, holder(it.at, "argparse.Namespace"))


def _namespace_and_rest(it: _Described) -> Val:
    return tuple_of([_namespace(it), readers.OF_NOBODY])


def _reader(it: _Described, library: str) -> Val:
    parser = readers.parser(it.at.unit, it.number, beside=False) if is_parser(it.at, library) else BOTTOM
    return join2(readers.reader(library, it.given(it.row.classes) or UNKNOWN), parser)


# -- what is made of the arguments -------------------------------------------------------------------------


def _each(it: _Described) -> Val:
    values = [v for name, v in it.arguments if name is None]
    spread = [elements(v) for name, v in it.arguments if name == "*"]
    return sequence(join([*values, *spread])) if spread else tuple_of(values)


def _prepared(it: _Described) -> Val:
    """What a library makes of each thing that it is given; of one thing no tuple."""
    if not it.arguments or any(name == "*" for name, _ in it.arguments):
        return UNKNOWN
    made = [_as_prepared(v).placed(after(v.state, "prepared")) for name, v in it.arguments if name is None]
    return made[0] if len(made) == 1 else tuple_of(made) if made else UNKNOWN


def _as_prepared(given: Val) -> Val:
    """A model of the project in some wrapper; of anything else nobody knows the class."""
    models = all(o[0] in ("inst", "self") and o[1].find("forward") is not None for o in given.each)
    if not given.objs or not models:
        return UNKNOWN
    return Val(obj("made", _PREPARED).objs | obj("keeping", obj("dict", (("module", bare(given)),), None)).objs)


def _unwrapped(it: _Described) -> Val:
    """The model inside of a wrapper, or a model that is in none."""
    model = it.given(it.row.unwraps) or UNKNOWN
    inside = [picked(o[1], "module") for o in model.of("keeping")]
    return join(inside) if inside else Val(model.objs, model.v, model.n, model.p)


def _receiver(it: _Described) -> Val:
    return it.call.receiver


def _replaced(it: _Described) -> Val:
    return replaced(it.at, it.number, it.arguments)


def _fetched(it: _Described) -> Val:
    got = fetched(it.arguments[0][1]) if it.arguments else UNKNOWN
    return got if got.objs else UNKNOWN


def _first(it: _Described) -> Val:
    first = it.first(UNKNOWN)
    if not it.row.draws:
        return first
    return first.with_causes(v=combined(first.v, drawn_as(it.call, it.row, it.arguments)))  # a part drawn of it


def _second(it: _Described) -> Val:
    return it.arguments[1][1] if len(it.arguments) > 1 else UNKNOWN


def _decorated(it: _Described) -> Val:
    factory: Val = it.at.vals[it.at.code.values[it.number].args[0]]
    return next((v for name, v in it.arguments if name is None or name == "@"), factory)


def _same(it: _Described) -> Val:
    return same(it.at, it.number, it.row.name, it.arguments, it.receiver)


def _module(it: _Described) -> Val:
    return texts.module(it.at, it.first(BOTTOM))


def _member(it: _Described) -> Val:
    return texts.member(it.at, it.number, it.first(BOTTOM))


def _made(it: _Described, name: str) -> Val:
    made = join2(described(it.row.result), _keeping(it))
    return Val(made.objs | _holding(it).objs, state=PLAIN) if it.row.elements else made


def _made_of(it: _Described, name: str) -> Val:
    of = same(it.at, it.number, it.row.name, it.arguments, BOTTOM)
    return Val(frozenset({("made", name)}), of.v, state=of.state)


def _holder(it: _Described, name: str) -> Val:
    return holder_of(it.at, it.number, name, it.arguments)


def _keeping(it: _Described) -> Val:
    """What a library makes of arguments that it keeps as attributes; where none is passed, it makes one itself."""
    if not it.row.under:
        return BOTTOM
    spread = any(name in ("*", "**") for name, _ in it.arguments)
    kept = ((name, _kept(it, name, it.given(which), spread)) for name, which in sorted(it.row.under.items()))
    return obj("keeping", obj("dict", tuple((name, bare(v)) for name, v in kept), None))


def _kept(it: _Described, name: str, given: Val | None, spread: bool) -> Val:
    """What stands under an attribute for which an argument is passed, or what the library makes instead of None."""
    if given is None and spread:
        return UNKNOWN
    classes = it.row.otherwise.get(name, ())
    made = join(Val(frozenset({("made", each)})) for each in classes) if classes else readers.OF_NOBODY
    if given is None or given.is_const(None):
        return made
    if classes and NONE_OBJ in given.objs:
        return join2(Val(given.objs - {NONE_OBJ}, given.v, given.n, given.p, given.state), made)
    return given


def _holding(it: _Described) -> Val:
    """The container that stands beside an object for what it holds."""
    assert it.row.elements is not None
    if it.row.elements[1] < 0:
        given = [elements(v) if name == "*" else v for name, v in it.arguments if name in (None, "*")]
        return sequence(join(given)) if given else BOTTOM
    held = it.given(it.row.elements) or BOTTOM
    return held if held.of("dict") else sequence(element(it.at, held)) if held.objs else BOTTOM


_BY_WORD: dict[object, Callable[[_Described], Val]] = {
    "rank": _rank, "job rank": _job_rank, "job ranks": _job_rank, "size": _size, "several": _several, "group": _group,
    "subgroups": _subgroups,
    "mesh": _mesh, "uniform": _uniform, "own": _own, "listing": _listing, "drawn": _drawn, "content": _content,
    "state": _state, "read": _read, "all read": _all_read, "section": _section, "sections": _sections,
    "parser": _parser, "command": _command, "namespace": _namespace, "namespace and rest": _namespace_and_rest,
    "each": _each, "prepared": _prepared, "receiver": _receiver, "replaced": _replaced, "fetched": _fetched,
    "first": _first, "second": _second, "decorated": _decorated, "same": _same, "module": _module, "member": _member,
    "unwrapped": _unwrapped,
}  # fmt: skip
# Words before a colon, behind which a class is named.
_BY_KIND: dict[str, Callable[[_Described, str], Val]] = {
    "reader": _reader, "made": _made, "made of": _made_of, "holder": _holder,
}  # fmt: skip
