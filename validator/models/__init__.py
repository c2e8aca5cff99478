"""What calls of libraries return and do, as data: one TOML file a library, read once.

Adding an API is adding a row. Sections:

`[calls]`, by full dotted name (`[methods]`: by `Class.method` of what a library makes, or by a bare name on receivers
of unknown class whose own name is in `on`; an empty `on` takes any):

- `group = [parameter, position]`: the call is a collective over that group (position -1: keyword only; none given: all
  ranks). `collective = true`: over all ranks. `world = true`: every rank of the job must come, whatever is passed.
- `equal = [parameter, position]`: that argument holds the same on all ranks of the group afterwards.
- `result`: what is returned. `uniform`: the same on all ranks of the group; `rank`: the caller's rank in the group;
  `size`; `same`: a function of the arguments; `first`: its first argument; `own`: another value on each rank; `data`:
  data of each rank's own; `group`, `mesh`; `none`; `made:NAME`: an object of that name; a list: a tuple of these.
- `axes = [names]`: the mesh axes of a group, rank or size that the call gives.
- `root = [parameter, position]`: a rank from which or to which data goes; `root_is = "global"` or `"group"`.
- `handle = parameter`: with it, the result is a handle that must be waited for; `waits = true`.
- `state = [parameter, position, tag]`: how an argument is placed afterwards; `result_state = tag`.
- `rank_of = [parameter, position]`: the group whose rank is returned; `widened = {flag = [axes]}`: a flag adds axes.
- `when = [parameter]`: only a collective if one of these is passed; `on_state = [tags]`: only on such receivers;
  `arg_state = [parameter, position, tag]`: only where that argument is placed so.
- `numbers = true`: the rank is the number itself, not a test of it; `counts = true`: the size is the number of ranks.
  Words for results of this kind: `job rank`, `job ranks` (ranks in the job of members of the group), `listing` (file
  names in no order).
- `layout`: how the result, a tensor, is laid out: `sizes` (the arguments are its sizes), `size` (the first one is),
  `like` (as the first argument), `receiver` (sizes as given, type of the receiver), `range`, `contents`; `dtype`: of
  which element type, if none is passed.
- `alike = [parameter, position]`: a tensor that must have one layout on all ranks; `into = [parameter, position]`: the
  list that such tensors are gathered in; `operation = [parameter, position]`: how it reduces.
- `objects = true`: pickles Python objects; `length = "same"`: all ranks must pass as many elements.

`[objects]`, by name: `iterates = "data"`, `attributes = {name = result}`, `axes`, `bases = [names]`.
`[files]`: what asks for files and what makes or removes them, the path being the first argument or the receiver.
`[states]`: a variable of a library -> the call that sets it.
`[tensors]`: methods (and functions of a tensor) that `keep` its layout, that cast it (`casts`: to which type), that
take sizes (`shaped`), whose result is as long as a number says (`limited`) or as what the tensor holds (`counting`);
`dtypes`.
`[ranks]`: attributes, methods, names, environment variables that tell a process who it is. `[likely]`: names of
parameters that mostly carry data of each rank's own: they rank candidates and are never certain.
"""

from __future__ import annotations

import os
from functools import lru_cache
from typing import Any, NamedTuple

_HERE = os.path.dirname(os.path.abspath(__file__))


class Row(NamedTuple):
    """One row of `[calls]` or `[methods]`; see the module for what the fields mean."""

    name: str
    group: tuple[str, int] | None = None
    collective: bool = False
    world: bool = False
    equal: tuple[str, int] | None = None
    result: Any = None
    axes: tuple[str, ...] = ()
    root: tuple[str, int] | None = None
    root_is: str = "global"
    handle: str = ""
    waits: bool = False
    state: tuple[str, int, str] | None = None
    result_state: str = ""
    when: tuple[str, ...] = ()
    on: tuple[str, ...] | None = None
    on_state: tuple[str, ...] = ()
    objects: bool = False
    length: str = ""
    rank_of: tuple[str, int] | None = None  # a rank in the group that this parameter names
    arg_state: tuple[str, int, str] | None = None  # a collective only where this argument is placed so
    widened: dict[str, Any] = {}  # noqa: RUF012  (flag -> axes that it adds to the group)
    numbers: bool = False
    counts: bool = False
    layout: str = ""
    dtype: str = ""
    alike: tuple[str, int] | None = None
    into: tuple[str, int] | None = None
    operation: tuple[str, int] | None = None

    @property
    def is_collective(self) -> bool:
        return self.collective or self.world or self.group is not None


class Library(NamedTuple):
    """An object that a library makes."""

    iterates: str = ""
    attributes: dict[str, Any] = {}  # noqa: RUF012
    bases: tuple[str, ...] = ()
    shards: bool = False


class Models(NamedTuple):
    """All tables, ready for look-up."""

    calls: dict[str, Row]
    methods: dict[str, Row]
    objects: dict[str, Library]
    same: frozenset[str]  # functions whose result is one of their arguments' alone
    same_modules: tuple[str, ...]
    same_methods: frozenset[str]  # methods whose result is a function of receiver and arguments
    ranks: dict[str, frozenset[str]]
    likely: dict[str, frozenset[str]]
    aliases: dict[str, str]
    files: dict[str, frozenset[str]]
    states: dict[str, str]  # what is set once a library was set up -> the call that does so
    tensors: dict[str, dict[str, str]]  # words about methods of tensors: see `[tensors]` in torch.toml

    @property
    def sets(self) -> dict[str, list[str]]:
        found: dict[str, list[str]] = {}
        for state, call in self.states.items():
            found.setdefault(call, []).append(state)
        return found

    def call(self, dotted: str) -> Row | None:
        return self.calls.get(self.named(dotted))

    def named(self, dotted: str) -> str:
        """The name under which a function or class is in the tables; libraries export one thing under many names."""
        known = self.aliases.get(dotted)
        if known is not None:
            return known
        head, _, tail = dotted.rpartition(".")
        if head in self.aliases:
            return f"{self.aliases[head]}.{tail}"
        return dotted

    def method(self, made: str, name: str) -> Row | None:
        """The row of a method on an object that a library makes, found on its bases too."""
        stack, seen = [self.named(made)], set()
        while stack:
            owner = stack.pop()
            if owner in seen:
                continue
            seen.add(owner)
            row = self.methods.get(f"{owner}.{name}") or self.calls.get(f"{owner}.{name}")
            if row is not None:
                return row
            library = self.objects.get(owner)
            stack += library.bases if library is not None else ()
        return None

    def library(self, made: str) -> Library:
        return self.objects.get(self.named(made), _NO_LIBRARY)


_NO_LIBRARY = Library()


@lru_cache(maxsize=8)
def models(extra: tuple[str, ...] = ()) -> Models:
    """The built-in tables, extended by TOML files of the same shape. Raises OSError and ValueError for those."""
    from validator.tables import load_toml

    calls: dict[str, Row] = {}
    methods: dict[str, Row] = {}
    objects: dict[str, Library] = {}
    same: set[str] = set()
    modules: list[str] = []
    same_methods: set[str] = set()
    ranks: dict[str, set[str]] = {}
    likely: dict[str, set[str]] = {}
    aliases: dict[str, str] = {}
    states: dict[str, str] = {}
    files: dict[str, set[str]] = {}
    words: dict[str, dict[str, str]] = {}
    own = sorted(name for name in os.listdir(_HERE) if name.endswith(".toml"))
    for path in (*(os.path.join(_HERE, name) for name in own), *extra):
        data = load_toml(path)
        for name, row in data.get("calls", {}).items():
            calls[name] = _row(name.rpartition(".")[2], row)
        for name, row in data.get("methods", {}).items():
            methods[name] = _row(name.rpartition(".")[2], row)
        for name, row in data.get("objects", {}).items():
            objects[name] = Library(
                row.get("iterates", ""),
                row.get("attributes", {}),
                tuple(row.get("bases", ())),
                row.get("shards", False),
            )
        pure = data.get("same", {})
        same.update(pure.get("calls", ()))
        modules += pure.get("modules", ())
        same_methods.update(pure.get("methods", ()))
        for section, target in (("ranks", ranks), ("likely", likely), ("files", files)):
            for key, values in data.get(section, {}).items():
                target.setdefault(key, set()).update(values)
        for key, values in data.get("tensors", {}).items():
            words.setdefault(key, {}).update(values if isinstance(values, dict) else {v: v for v in values})
        aliases.update(data.get("aliases", {}))
        states.update(data.get("states", {}))
    frozen = [{k: frozenset(v) for k, v in section.items()} for section in (ranks, likely, files)]
    return Models(
        calls,
        methods,
        objects,
        frozenset(same),
        tuple(modules),
        frozenset(same_methods),
        frozen[0],
        frozen[1],
        aliases,
        frozen[2],
        states,
        words,
    )


def _row(name: str, row: dict[str, Any]) -> Row:
    fields = {key: tuple(value) if isinstance(value, list) and key != "result" else value for key, value in row.items()}
    if isinstance(fields.get("result"), list):
        fields["result"] = tuple(fields["result"])
    known = {key: value for key, value in fields.items() if key in Row._fields}
    if not known:  # a row without fields is a collective over all ranks, as the format of user files has it
        known = {"collective": True}
    if set(known) <= {"result", "on"} and known.get("result") == "uniform":
        known["collective"] = True
    if set(known) == {"on"}:
        known["collective"] = True
    return Row(name, **{key: value for key, value in known.items() if key != "name"})
