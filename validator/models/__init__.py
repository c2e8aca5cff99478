"""What calls of libraries return and do, as data: one TOML file a library, read once.

Adding an API is adding a row. Sections:

`[calls]`, by full dotted name (`[methods]`: by `Class.method` of what a library makes, or by a bare name on receivers
of unknown class whose own name is in `on`; an empty `on` takes any):

- `group = [parameter, position]`: the call is a collective over that group (position -1: keyword only; none given: all
  ranks). `collective = true`: over all ranks. `world = true`: every rank of the job must come, whatever is passed,
  but where the switch `local = [parameter, position]` is on: then those that are passed alone.
- `equal = [parameter, position]`: that argument holds the same on all ranks of the group afterwards; `apart`: the root
  alone has what it is meant to be.
- `result`: what is returned. `uniform`: the same on all ranks of the group; `rank`: the caller's rank in the group;
  `size`; `several`: False in a job of one process; `same`: a function of the arguments; `first`, `second`: this
  argument; `prepared`: each of them, changed in a way that nobody knows;
  `decorated`: the same, of a call without one (`@remote(num_gpus=1)`) what it is called with next; `own`:
  another value on each rank; `data`: data of each rank's own; `group`, `mesh`; `none`; `made:NAME`: an object of that
  name; a list: a tuple of these.
- `axes = [names]`: the mesh axes of a group, rank or size that the call gives.
- `root = [parameter, position]`: a rank from which or to which data goes; `root_is = "global"` or `"group"`;
  `default_root`: the one that is taken where none is passed.
- `handle = parameter`: with it, the result is a handle that must be waited for; `starts = true`: it always is. Until
  then the tensor in `writes` (or `equal`) is written, that in `reads` (what a rank gives) read. `waits = true`: waits
  for all of them.
  `staged`: the attribute of the result that is done once all that is saved has been copied.
- `state = [parameter, position, step]`: what becomes of the placement of an argument; `result_state = step`: of the
  result's (`validator.domains.placement` has the steps); `wraps = [parameter, position]`: what the result is made from;
  `over = [parameter, position]`: the group among which that works.
- `under = {attribute = [parameter, position]}`: the result keeps these arguments under these attributes. What it keeps
  as `module` is what calling it calls. `otherwise = {attribute = [classes]}`: where None or nothing is passed for one
  of them, the library makes an object of one of these classes.
- `rank_of = [parameter, position]`: the group whose rank is returned; `widened = {flag = [axes]}`: a flag adds axes.
- `when = [parameter]`: only a collective if one of these is passed; `on_state = [tags]`: only on such receivers;
  `arg_state = [parameter, position, tag]`: only where that argument is placed so; `spread = [parameter, position]`: for
  certain only where it is known to be sharded.
- `whole_if = [parameter, position, attribute]`: the result holds the shards of each rank, or, where that attribute of
  the argument is true, whole tensors.
- `groupless = true`: a collective that one process may call, too, where nobody has set up a group.
- `likely = true`: a collective by a name that hardly anything else has, or in most settings of the library: no error.
- `ring = true`: attention goes round a ring of ranks afterwards, each with a part of the sequence.
- `result = "drawn"`: random numbers, from the generator passed as `generator`, the receiver, or the library's own,
  which `draws` names; `mixes = [parameter, position]`: that argument is in a random order afterwards; `orders`: the
  result is elements in a random order, each once. `seed = [parameter, position]`: of a call that makes or seeds a
  generator (its result, its receiver). `seeded = [parameter, position]`: the seed of that one draw, or the generator
  that makes it, where one is passed. `ranked = [parameter, position]`: the switch with which each rank adds its number
  to the seed. `shuffled = [parameter, position]`: the switch without which nothing is drawn.
- `loads = [parameter, position]`, `saves`: the path of a file that the call reads or writes; `mode`: the parameter that
  says which (`open`). `shared = [[parameter, position], …]`: the folder into which all ranks that make the call write
  together, and names in it, which must be the same for them.
- `gathers = [parameter, position]`: of a context manager inside which sharded parameters are whole: which. What is
  written there is kept where the argument `keeps` is not None or False; `kept`: whether it is where none is passed.
- `runs = [parameter, position]`: a function that is called with what follows it (or with the tuple in `gives` and the
  dictionary in `named`), but
  for the keywords `own` and the first `skips` arguments, which the library takes itself; behind `before` arguments that
  are the library's and tell processes apart;
  `result = "ran"`: what that returns; `result = "each"`: a list of the arguments; `result = "fetched"`: what the
  futures in its first argument give; `result = "field"`: what `runs` gives, or the argument `default`;
  `result = "replaced"`: its first argument with the fields that are named.
- `elements = [parameter, position]`: beside what is made stands what it holds: the elements of that argument, or, at
  position -1, the arguments themselves. To call such an object is to call what it holds.
- `classes = [parameter, position]`: one class, or a tuple of them: `result = "reader:NAME"`: a parser that makes
  objects of them; `result = "read"`: an object of one (without `classes`, of the receiver's); `result = "all read"`: a
  tuple with one of each, and something more where an argument of `when` is passed; `result = "receiver"`.
- `result = "parser"`: a parser of a command line; `"command"`: of its receiver that of one command; `"namespace"`: what
  the receiver makes of a command line, `"namespace and rest"`: a pair with what it leaves over.
- `result = "section"`: what the file holds that is read, `"sections"`: several laid over each other.
- `numbers = true`: the rank is the number itself, not a test of it; `counts = true`: the size is the number of ranks.
  `result = "made of:NAME"`: what is made varies as the arguments do.
  Words for results of this kind: `job rank`, `job ranks` (ranks in the job of members of the group), `listing` (file
  names in no order).
- `layout`: how the result, a tensor, is laid out: `sizes` (the arguments are its sizes), `size` (the first one is),
  `like` (as the first argument), `receiver` (sizes as given, type of the receiver), `range`, `contents`; `dtype`: of
  which element type, if none is passed.
- `alike = [parameter, position]`: a tensor that must have one layout on all ranks; `into = [parameter, position]`: the
  list that such tensors are gathered in; `operation = [parameter, position]`: how it reduces.
- `tensor = [parameter, position]`: what must be one tensor; `each = [parameter, position]`: a list with one tensor for
  each rank of the group; `at_root = true`: which only the root passes; `times = [small, large]`: two tensors of which
  the second holds the first once for each rank. `peer = [parameter, position]`: another rank than the one that calls.
  `uneven = [parameters]`: with one of these passed, `alike` need not hold.
- `drops = [parameter, position]`: the share of elements that dropout drops, `default_drop` where none is passed;
  `unless = [parameter, position]`: the switch without which it drops in evaluation too.
- `unwraps = [parameter, position]`: a model of which the result (`result = "unwrapped"`) is what its wrapper holds.
- `rows = true`: the result holds what the ranks of the group pass, one behind another in the order of the ranks, along
  the first dimension.
- `gathered = [axes]`: the result is whole, put together from the parts that the ranks of these axes hold; `sharded =
  [parameter, position]`: an argument of which each rank of `axes` passes its own part.
- `objects = true`: pickles Python objects; `length = [parameter, position]`: a list that has as many elements on all
  ranks.
- `trains = [parameter, position]`: the model, or the parameters, for which the call makes an optimizer.
- `pieces = [[tensor, sizes], …]`: of each of these tensors the sizes, along its first dimension, of the pieces that go
  to the ranks or come from them.

`[seeds]`: a library with a random state of its own -> the calls that seed it, the seed being the first argument.
`[restores]`: such a library -> the calls that set its state to one that was kept; `with`: context managers that give
back, where they are left, the state that they were entered with.
`[objects]`, by name: `iterates = "data"`, `generates = true` (methods draw random numbers), `attributes =
{name = result}` (`as it`: it varies as the object does), `axes`, `bases = [names]`, `forwards = true` (attributes that
it lacks are those of what it keeps as `module`),
`passes = {method = {parameter = [values]}}`: the library passes a method of a class below it one of these values.
`enters = "another"`: `with` gives what it was made of, not the object itself.
`batches = {method = position}`: the library passes a method of a class below it a batch of this rank's data there (its
receiver is 0).
`entrances = {name = {runs = method, before = count, unless = method}}`: calling `name` of a class below it runs this
method, of which it fills so many parameters first, but for classes that have the other one,
`inside = step` (of `NAME()` or `NAME(argument)`, a context manager: how what is made in it is placed).
`[families]`: a package whose classes all have one base, with that: what is said of it is said of each.
`[same] making`: modules whose classes make modules of a network; `placed`: methods whose result is placed as their
receiver is. `[steps]`: methods that place their receiver, with the step, and the one to take where they are called with
False. `[dtypes]`: floating-point types, `half` and `full`.
`[files]`: what asks for files and what makes or removes them, the path being the first argument or the receiver;
`saves_methods`: methods of libraries that write to the path that is their first argument.
`[failures]`: what may fail on one rank while the others go on. `own`: exceptions that by their nature happen to one
rank; `alike`: those below them that all ranks see alike; `computing`: collectives that also compute, and so may run out
of memory before they are issued. `[raises]`, by exception: calls that may raise it on one rank; `[raises_of_data]`:
only where an argument differs between ranks (`[]` for an item). `[exceptions]`: exception of a library -> its base.
`[devices]`: the current device is a thread's own. `chosen`: calls that choose it, for good or as context managers;
`current`: calls that work on it, `current_methods` on tensors; `computing`: packages whose objects compute on it.
`submitting`: methods of executors that run a function in another thread; `loops`: methods that run an event loop.
`[targets]`: keys by which a section of a configuration names what it makes, with the key that holds the arguments
(empty: they stand beside it).
`[hooks]`, by the name of the method: it keeps the function in its argument `hook = [parameter, position]` and calls it
later with so many `arguments`, or with as many as a switch says that is on (`with = {switch = arguments}`).
`[by_name]`, by the name of a method of a library: it has objects of the program run the method that the text in `asks`
names, with the tuple in `gives` and the dictionary in `named`, or with all `rest` that it is passed. The objects are
`workers` of a library: `[workers]` has the `keys` under which texts name their classes, and the `methods` that they
have of it.
`[constructors]`, by the name of a class method that makes an object of the class: `of` the libraries whose bases have
it, and the argument `with` which the object is the first of two things.
`[gradients]`: who makes one gradient of those of all ranks: libraries and functions that surely do not (`leaving`),
that may (`reducing`), methods that keep a function which may (`hooks`); functions that make `models`, or are made to
compute gradients and take steps (`computing`); functions that bound gradients (`bounding`).
`[network]`, by package: functions that give what came over a network, or the path of a file that did.
`[states]`: a variable of a library -> the call that sets it.
`[tensors]`: attributes that give the tensor placed otherwise (`placing`, with the step); methods (and functions of a
tensor) that `keep` its layout, that only `moves` it to a device or type, that
cast it (`casts`: to which type), that take sizes (`shaped`), whose result is as long as a number says (`limited`) or as
what the tensor holds (`counting`); of those that work in place (`add_`) which leave nothing of what was there
(`overwriting`), draw it (`drawing`), or change no number (`marking`); which ask whether numbers overflowed (`testing`);
behind which there is no gradient (`cutting`); modules that have buffers (`buffered`);
`views`: those whose result shares the memory of the receiver; `dtypes`.
`[ranks]`: attributes, methods, names, environment variables that tell a process who it is, and calls that set it up.
`[likely]`: names of parameters that mostly carry data of each rank's own: they rank candidates and are never certain.
"""

from __future__ import annotations

import os
from collections.abc import Collection
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any, NamedTuple

_HERE = os.path.dirname(os.path.abspath(__file__))


class Row(NamedTuple):
    """One row of `[calls]` or `[methods]`; see the module for what the fields mean."""

    name: str
    group: tuple[str, int] | None = None
    collective: bool = False
    world: bool = False
    local: tuple[str, int] | None = None
    equal: tuple[str, int] | None = None
    apart: tuple[str, int] | None = None
    result: Any = None
    axes: tuple[str, ...] = ()
    root: tuple[str, int] | None = None
    root_is: str = "global"
    default_root: int | None = None
    handle: str = ""
    starts: bool = False
    staged: str = ""
    ring: bool = False
    writes: tuple[str, int] | None = None
    reads: tuple[str, int] | None = None
    waits: bool = False
    state: tuple[str, int, str] | None = None
    result_state: str = ""
    wraps: tuple[str, int] | None = None
    over: tuple[str, int] | None = None
    when: tuple[str, ...] = ()
    on: tuple[str, ...] | None = None
    on_state: tuple[str, ...] = ()
    tensor: tuple[str, int] | None = None
    each: tuple[str, int] | None = None
    at_root: bool = False
    times: tuple[tuple[str, int], tuple[str, int]] | None = None
    peer: tuple[str, int] | None = None
    objects: bool = False
    length: tuple[str, int] | None = None
    pieces: tuple[tuple[tuple[str, int], tuple[str, int]], ...] = ()
    rank_of: tuple[str, int] | None = None  # a rank in the group that this parameter names
    arg_state: tuple[str, int, str] | None = None  # a collective only where this argument is placed so
    likely: bool = False  # known by its name, or a collective in some of a library's settings: an error asks for more
    groupless: bool = False  # works in one process, too, where nobody has set up a process group
    whole_if: tuple[str, int, str] | None = None  # holds shards, if this argument does not have a true attribute
    spread: tuple[str, int] | None = None  # for certain a collective only where this argument is known to be sharded
    draws: str = ""
    mixes: tuple[str, int] | None = None
    orders: bool = False
    seed: tuple[str, int] | None = None
    ranked: tuple[str, int] | None = None  # the switch with which a seed is another one on each rank
    seeded: tuple[str, int] | None = None  # what seeds that one draw, where it is passed
    shuffled: tuple[str, int] | None = None  # the switch without which nothing is drawn
    loads: tuple[str, int] | None = None
    saves: tuple[str, int] | None = None
    shared: tuple[tuple[str, int], ...] = ()
    mode: tuple[str, int] | None = None
    widened: dict[str, Any] = {}  # noqa: RUF012  (flag -> axes that it adds to the group)
    numbers: bool = False
    counts: bool = False
    layout: str = ""
    dtype: str = ""
    alike: tuple[str, int] | None = None
    into: tuple[str, int] | None = None
    uneven: tuple[str, ...] = ()
    operation: tuple[str, int] | None = None
    gathers: tuple[str, int] | None = None
    keeps: tuple[str, int] | None = None
    kept: bool = False
    runs: tuple[str, int] | None = None
    gives: tuple[str, int] | None = None
    named: tuple[str, int] | None = None
    asks: tuple[str, int] | None = None
    rest: bool = False  # the arguments behind the name are those of the method
    workers: str = ""
    own: tuple[str, ...] = ()
    skips: int = 0
    before: int = 0
    default: tuple[str, int] | None = None
    classes: tuple[str, int] | None = None
    elements: tuple[str, int] | None = None
    drops: tuple[str, int] | None = None
    unwraps: tuple[str, int] | None = None
    unless: tuple[str, int] | None = None
    default_drop: float = 0.0
    under: dict[str, Any] = {}  # noqa: RUF012  (attribute of the result -> the argument that is kept there)
    otherwise: dict[str, list[str]] = {}  # noqa: RUF012  (attribute -> classes of what is made where none is passed)
    gathered: tuple[str, ...] = ()
    rows: bool = False
    sharded: tuple[str, int] | None = None
    shares: tuple[tuple[str, int], tuple[str, int]] | None = None  # the rank whose part is taken, of how many parts
    once: bool = False  # of such calls after each other only the first one is a collective
    trains: tuple[str, int] | None = None  # the model, or parameters, that the optimizer is for which it makes

    @property
    def is_collective(self) -> bool:
        return self.collective or self.world or self.group is not None


class Library(NamedTuple):
    """An object that a library makes."""

    iterates: str = ""
    inside: str = ""  # how what is made inside such a context manager is placed
    attributes: dict[str, Any] = {}  # noqa: RUF012
    bases: tuple[str, ...] = ()
    shards: bool = False
    generates: bool = False
    holds: bool = False  # whether programs set attributes on it at will, as on a namespace
    forwards: bool = False  # whether attributes that it lacks are those of the module that it keeps
    entrances: dict[str, dict[str, Any]] = {}  # noqa: RUF012  (name that is called -> what runs; see `[objects]`)
    passes: dict[str, dict[str, list[str]]] = {}  # noqa: RUF012  (method -> parameter -> what it may get)
    batches: dict[str, int] = {}  # noqa: RUF012  (method -> the position of the parameter that gets this rank's data)
    enters: bool = False  # whether `with` gives what it was made of, and not itself


class Hook(NamedTuple):
    """A method of a library that keeps a function and calls it later; see `[hooks]`."""

    hook: tuple[str, int]
    arguments: int
    switches: dict[str, int] = {}  # noqa: RUF012


class Making(NamedTuple):
    """A class method that bases of libraries give, and that makes an object of the class; see `[constructors]`."""

    libraries: frozenset[str]
    beside: str


class Workers(NamedTuple):
    """Objects that a library makes of classes which a program names in texts; see `[workers]`."""

    keys: tuple[str, ...]
    methods: frozenset[str]


# Results that are arguments of the call, or hold them.
_HANDED_BACK = ("each", "prepared", "receiver", "first", "second", "decorated", "same", "fetched")


@dataclass(frozen=True, eq=False)
class Models:
    """All tables, ready for look-up."""

    calls: dict[str, Row]
    methods: dict[str, Row]
    objects: dict[str, Library]
    same: frozenset[str]  # functions whose result is one of their arguments' alone
    same_modules: tuple[str, ...]
    making: tuple[str, ...]  # modules whose classes make modules of a network
    same_methods: frozenset[str]  # methods whose result is a function of receiver and arguments
    ranks: dict[str, frozenset[str]]
    likely: dict[str, frozenset[str]]
    aliases: dict[str, str]
    files: dict[str, frozenset[str]]
    failures: dict[str, frozenset[str]]
    devices: dict[str, frozenset[str]]
    gradients: dict[str, frozenset[str]]  # who makes one gradient of those of all ranks: see `[gradients]`
    network: dict[str, frozenset[str]]  # package -> functions that give what came over a network
    raises: dict[str, frozenset[str]]
    raises_of_data: dict[str, frozenset[str]]
    exceptions: dict[str, str]
    seeds: dict[str, frozenset[str]]
    restores: dict[str, frozenset[str]]  # what sets a random state that was kept: see `[restores]`
    placed: frozenset[str]  # methods whose result is placed as the receiver is
    steps: dict[str, list[str]]  # methods that place their receiver: [step, step where called with False]
    dtypes: dict[str, frozenset[str]]
    states: dict[str, str]  # what is set once a library was set up -> the call that does so
    tensors: dict[str, dict[str, str]]  # words about methods of tensors: see `[tensors]` in torch.toml
    families: dict[str, str]  # package -> the base of all its classes
    hooks: dict[str, Hook]  # names of methods that keep a function -> how they call it
    by_name: dict[str, Row]  # method that runs methods of the program by name -> where name and arguments stand
    constructors: dict[str, Making]  # class methods of libraries that make an object of the class that is asked
    workers: dict[str, Workers]  # library -> the objects whose methods it runs so
    targets: dict[str, str]  # keys of a section that name what it makes -> the key of its arguments (empty: beside it)

    @cached_property
    def starting(self) -> frozenset[str]:
        """The names of the calls whose result must be waited for."""
        return frozenset(row.name for row in self.calls.values() if row.starts)

    @cached_property
    def given_batches(self) -> frozenset[str]:
        """The names of the methods that some library passes batches of this rank's data."""
        return frozenset(name for library in self.objects.values() for name in library.batches)

    @cached_property
    def running(self) -> frozenset[str]:
        """The names of the calls that run a function which they are passed."""
        return frozenset(row.name for row in self.calls.values() if row.runs is not None)

    @cached_property
    def handing(self) -> frozenset[str]:
        """The last names of the calls that give back, or keep in what they give, what they are passed."""
        rows = (*self.calls.values(), *self.methods.values())
        names = (row.name for row in rows if row.wraps or row.under or row.elements or row.result in _HANDED_BACK)
        return frozenset(name.rpartition(".")[2] for name in names)

    @cached_property
    def sets(self) -> dict[str, list[str]]:
        found: dict[str, list[str]] = {}
        for state, call in self.states.items():
            found.setdefault(call, []).append(state)
        return found

    def call(self, dotted: str) -> Row | None:
        return self.calls.get(self.named(dotted))

    def computes(self, dotted: str) -> bool:
        """Whether the tables say that a function computes what it gives of its arguments, and reads no file."""
        named, row = self.named(dotted), self.call(dotted)
        if row is not None:
            return bool(row.result) and row.loads is None
        return named in self.same or any(named.startswith(f"{module}.") for module in self.same_modules)

    def wrapping(self, dotted: str) -> str:
        """The step that a class takes with what its objects are made around; empty for other classes."""
        row = self.call(dotted)
        return row.result_state if row is not None and row.wraps is not None else ""

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
            stack += self.library(owner).bases
        return None

    @cached_property
    def collectives(self) -> dict[str, frozenset[str]]:
        """The names of the calls that are collectives -> the packages that have them; none: objects of any."""
        found: dict[str, set[str]] = {}
        for dotted, row in (*self.calls.items(), *self.methods.items()):
            if row.is_collective:
                package = dotted.partition(".")[0] if "." in dotted else ""
                found.setdefault(row.name, set()).update({package, *self._packages.get(package, ())})
        return {name: frozenset() if "" in packages else frozenset(packages) for name, packages in found.items()}

    @cached_property
    def _packages(self) -> dict[str, set[str]]:
        """Package -> those that export its things under names of their own."""
        found: dict[str, set[str]] = {}
        for alias, dotted in self.aliases.items():
            found.setdefault(dotted.partition(".")[0], set()).add(alias.partition(".")[0])
        return found

    @cached_property
    def rows(self) -> tuple[Row, ...]:
        """All rows, of calls and of methods."""
        return (*self.calls.values(), *self.methods.values())

    def placing(self, steps: Collection[str]) -> frozenset[str]:
        """The names of the calls by which something takes one of the steps."""
        return frozenset(
            row.name
            for row in self.rows
            if row.result_state in steps or row.state is not None and row.state[2] in steps
        )

    @cached_property
    def _prefixes(self) -> frozenset[str]:
        """Everything that a table says something about: what it names, and what names begin with."""
        names = {*self.calls, *self.methods, *self.objects, *self.raises, *self.raises_of_data, *self.exceptions}
        names |= {*self.states, *self.same, *self.aliases}
        names |= {name for known in (*self.seeds.values(), *self.restores.values()) for name in known}
        names |= {name for known in self.files.values() for name in known}
        return frozenset(name[:i] for name in names for i, c in enumerate(f"{name}.") if c == ".")

    def tells_of(self, made: str) -> bool:
        """Whether any table says something about what a library makes, or about its methods."""
        return made in self._prefixes or self.named(made) in self._prefixes or bool(self.library(made).bases)

    def attribute(self, made: str, name: str) -> Any:
        """What the tables say that an attribute of a library's object is, found on its bases too; None: nothing."""
        library = self.library(made)
        given = (each.attributes.get(name) for each in (library, *(self.library(base) for base in library.bases)))
        return next((each for each in given if each is not None), None)

    def library(self, made: str) -> Library:
        known = self.objects.get(self.named(made))
        if known is not None:
            return known
        base = self.families.get(made.partition(".")[0], "")
        return Library(bases=(base,)) if base and base != made and _is_class(made) else _NO_LIBRARY


_NO_LIBRARY = Library()


def _is_class(dotted: str) -> bool:
    return dotted.rpartition(".")[2][:1].isupper()


@lru_cache(maxsize=8)
def models(extra: tuple[str, ...] = ()) -> Models:
    """The built-in tables, extended by TOML files of the same shape. Raises OSError and ValueError for those."""
    from validator.files.tables import load_toml

    calls: dict[str, Row] = {}
    methods: dict[str, Row] = {}
    objects: dict[str, Library] = {}
    same: set[str] = set()
    modules: list[str] = []
    making: list[str] = []
    same_methods: set[str] = set()
    ranks: dict[str, set[str]] = {}
    likely: dict[str, set[str]] = {}
    aliases: dict[str, str] = {}
    states: dict[str, str] = {}
    hooks: dict[str, Hook] = {}
    by_name: dict[str, Row] = {}
    constructors: dict[str, Making] = {}
    workers: dict[str, Workers] = {}
    targets: dict[str, str] = {}
    families: dict[str, str] = {}
    placed: set[str] = set()
    steps: dict[str, list[str]] = {}
    dtypes: dict[str, set[str]] = {}
    files: dict[str, set[str]] = {}
    words: dict[str, dict[str, str]] = {}
    failures: dict[str, set[str]] = {}
    devices: dict[str, set[str]] = {}
    gradients: dict[str, set[str]] = {}
    network: dict[str, set[str]] = {}
    raises: dict[str, set[str]] = {}
    raises_of_data: dict[str, set[str]] = {}
    exceptions: dict[str, str] = {}
    seeds: dict[str, set[str]] = {}
    restores: dict[str, set[str]] = {}
    raw: dict[str, dict[str, Any]] = {}
    own = sorted(name for name in os.listdir(_HERE) if name.endswith(".toml"))
    for path in (*(os.path.join(_HERE, name) for name in own), *extra):
        data = load_toml(path)
        for name, row in data.get("calls", {}).items():
            known = raw.setdefault(name, {})  # several files may each know something of one call
            known.update(row)
            calls[name] = _row(name.rpartition(".")[2], known)
        for name, row in data.get("methods", {}).items():
            methods[name] = _row(name.rpartition(".")[2], row)
        for name, row in data.get("objects", {}).items():
            objects[name] = Library(
                row.get("iterates", ""), row.get("inside", ""), row.get("attributes", {}), tuple(row.get("bases", ())),
                row.get("shards", False), row.get("generates", False), row.get("holds", False),
                row.get("forwards", False), row.get("entrances", {}),
                row.get("passes", {}), row.get("batches", {}), row.get("enters") == "another",
            )  # fmt: skip
        pure = data.get("same", {})
        same.update(pure.get("calls", ()))
        modules += pure.get("modules", ())
        making += pure.get("making", ())
        same_methods.update(pure.get("methods", ()))
        exceptions.update(data.get("exceptions", {}))
        placed.update(pure.get("placed", ()))
        steps.update(data.get("steps", {}))
        for section, target in (
            ("ranks", ranks), ("likely", likely), ("files", files), ("failures", failures), ("raises", raises),
            ("raises_of_data", raises_of_data), ("seeds", seeds), ("dtypes", dtypes), ("devices", devices),
            ("network", network), ("gradients", gradients), ("restores", restores),
        ):  # fmt: skip
            for key, values in data.get(section, {}).items():
                target.setdefault(key, set()).update(values)
        for key, values in data.get("tensors", {}).items():
            words.setdefault(key, {}).update(values if isinstance(values, dict) else {v: v for v in values})
        aliases.update(data.get("aliases", {}))
        states.update(data.get("states", {}))
        for name, row in data.get("hooks", {}).items():
            hooks[name] = Hook(tuple(row["hook"]), row["arguments"], row.get("with", {}))
        by_name.update((name, _row(name, row)) for name, row in data.get("by_name", {}).items())
        for name, row in data.get("constructors", {}).items():
            constructors[name] = Making(frozenset(row["of"]), row.get("with", ""))
        for name, row in data.get("workers", {}).items():
            workers[name] = Workers(tuple(row["keys"]), frozenset(row["methods"]))
        targets.update(data.get("targets", {}))
        families.update(data.get("families", {}))
    sections = (
        ranks, likely, files, failures, raises, raises_of_data, seeds, dtypes, devices, network, gradients, restores,
    )  # fmt: skip
    frozen = [{k: frozenset(v) for k, v in section.items()} for section in sections]
    return Models(
        calls,
        methods,
        objects,
        frozenset(same),
        tuple(modules),
        tuple(making),
        frozenset(same_methods),
        frozen[0],
        frozen[1],
        aliases,
        frozen[2],
        frozen[3],
        frozen[8],
        frozen[10],
        frozen[9],
        frozen[4],
        frozen[5],
        exceptions,
        frozen[6],
        frozen[11],
        frozenset(placed),
        steps,
        frozen[7],
        states,
        words,
        families,
        hooks,
        by_name,
        constructors,
        workers,
        targets,
    )


def _row(name: str, row: dict[str, Any]) -> Row:
    fields: dict[str, Any] = {
        key: tuple(value) if isinstance(value, list) and key != "result" else value for key, value in row.items()
    }
    if isinstance(fields.get("result"), list):
        fields["result"] = tuple(fields["result"])
    known = {key: value for key, value in fields.items() if key in Row._fields}
    if not known:  # a row without fields is a collective over all ranks, as the format of user files has it
        known = {"collective": True}
    if set(known) <= {"result", "on"} and known.get("result") == "uniform":
        known["collective"] = True
    if set(known) == {"on"}:
        known["collective"] = True
    return Row(name)._replace(**{key: value for key, value in known.items() if key != "name"})
