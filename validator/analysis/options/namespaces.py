"""Where the parsed command line goes: which values are the namespace of which parser, and what is read of it.

The flow follows a namespace from `parse_args()`, and through functions that only reshape it (`hierarchize(args)` makes
`args.ds.x` of the option `--ds.x`). A read is charged to an entry point only where the calls that start there provably
lead to the function that reads.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cached_property
from typing import NamedTuple

from validator.analysis.options.parsers import Options, Parser, Site
from validator.analysis.places import within
from validator.facts.model import At, Call, Guard, Ref
from validator.flow.callgraph.dataclass_readers import rebuilt
from validator.flow.callgraph.receivers import meeting
from validator.flow.literals import UNKNOWN
from validator.flow.objects import Objects
from validator.flow.program.unit import Unit
from validator.flow.queries.base import Place, Queries
from validator.flow.values import TOP
from validator.ir.expressions import MADE_UP
from validator.project import ClassDef, Method, Project

_NAMESPACE_MEMBERS = re.compile(r"^(__\w+__|_get_kwargs|_get_args)$")
_SHOWS = frozenset({
    "print", "log", "info", "debug", "warning", "pprint", "pformat", "dump", "dumps", "safe_dump", "init", "update",
    "str", "repr", "format", "set", "isinstance", "hasattr", "add_text", "add_hparams", "print_rank_0", "save_config",
    "deepcopy", "copy", "type", "id", "login", "config",
})  # fmt: skip
_READS_LITTLE = frozenset({"deepspeed.initialize", "deepspeed.init_inference", "deepspeed.add_config_arguments"})
_ASKING = frozenset({"getattr", "hasattr"})
_KEEPING = ("store_attr", "store_item", "store_global", "store_free", "tuple", "list", "dict", "yield")


class Held(NamedTuple):
    """The namespace of a parser, or the part of it below `prefix` (`ds.lora`)."""

    parser: Parser
    prefix: str

    def below(self, name: str) -> str:
        return f"{self.prefix}.{name}" if self.prefix else name


Namespaced = frozenset[Held]
NOTHING: Namespaced = frozenset()


class Read(NamedTuple):
    """A read of `name` from `receiver`, which is `held`.

    `how`: `attribute`, `default` (getattr with a default) or `test` (hasattr). `kept`: its value is followed.
    `place`: the value that is read.
    """

    function: Method
    receiver: str
    name: str
    held: Namespaced
    guards: tuple[Guard, ...]
    how: str
    place: Place
    kept: bool = True

    @property
    def at(self) -> At:
        return self.place.at


def _exists(function: Method, made: set[ClassDef]) -> bool:
    """Whether one of the classes has the function as its method (plain functions need none)."""
    if function.cls is None or function.facts.is_static or function.facts.is_classmethod or function.name == "<class>":
        return True
    return any(function.cls in cls.mro and cls.find(function.name) is function for cls in made) or any(
        function.cls in cls.mro
        and f"super().{function.name}" in {c.target for m in cls.every_method() for c in m.facts.calls}
        for cls in made
    )


def _is_foreign(parser: Parser, call: Call) -> bool:
    """Whether a call asks for an option that its parser lacks, or for a value that the parser does not name:
    `hasattr(args, "init")`, `args.dataset == "t2i"`."""
    for guard in call.guards:
        if guard.kind == "if" and not guard.negated and ("==" in guard.text or "hasattr" in guard.text):
            try:
                test = ast.parse(guard.text, mode="eval").body
            except SyntaxError:
                continue
            parts = test.values if isinstance(test, ast.BoolOp) and isinstance(test.op, ast.And) else [test]
            if any(_is_strange(parser, part) for part in parts):
                return True
    return False


def _is_strange(parser: Parser, test: ast.expr) -> bool:
    """Whether a test cannot hold of what a parser gives."""
    match test:
        case ast.Call(func=ast.Name(id="hasattr"), args=[_, ast.Constant(value=str(name))]):
            return parser.option(name) is None
        case ast.Compare(left=ast.Attribute(attr=name), ops=[ast.Eq()], comparators=[ast.Constant(value=str(wanted))]):
            option = parser.option(name)
            if option is None or option.choices is UNKNOWN:
                return False
            named = option.choices if isinstance(option.choices, list | tuple | set) else ()
            return wanted not in (*named, option.default)
    return False


def _is_there(place: Place) -> bool:
    """Whether `setattr` gives a new value to what an object has: the same is asked for it without a default, or it is
    the option of an action of argparse."""
    name, unit = place.operand(2).root, place.unit
    if name.value.op == "attr" and name.value.data == "dest" and unit.cls is not None:
        return any(base.rpartition(".")[2].endswith("Action") for base in unit.cls.external_bases)
    asking = (place.value_at(number) for number, value in enumerate(unit.code.values) if value.op == "call")
    return any(
        each.method in _ASKING
        and len(each.value.args) == 3
        and all(map(unit.is_same, each.value.args[1:], place.value.args[1:3]))
        for each in asking
    )


class Namespaces:
    """Answers for one project, remembered."""

    def __init__(self, project: Project) -> None:
        self.project = project
        self.options = project.analysis(Options)
        self.objects = project.analysis(Objects)
        self.queries = project.analysis(Queries)
        self.flow = self.queries.flow
        self._reached: dict[Parser, frozenset[Method]] = {}
        self._guards: dict[Method, dict[tuple[int, int], tuple[Guard, ...]]] = {}

    def held(self, place: Place) -> Namespaced:
        """The namespaces that a value may be."""
        value = place.val
        if not value.holes and not any(o[0] == "namespace" for o in value.objs):
            return NOTHING
        found = (
            Held(parser, o[2] or "")
            for o in (place.closed.of("namespace") if self.options.parsers else ())
            for made in o[1].of("parser")
            if (parser := self.options.made.get(made[1])) is not None
            if not o[2] or o[2] in parser.inner
        )
        return frozenset(found) or self._part(place.root)

    def _part(self, place: Place) -> Namespaced:
        """The parts of namespaces that an attribute of a parameter may be, which has no value of its own."""
        if place.value.op != "attr":
            return NOTHING
        parts = (Held(held.parser, held.below(place.value.data)) for held in self.held(place.operand(0)))
        return frozenset(part for part in parts if part.prefix in part.parser.inner)

    @cached_property
    def _units(self) -> list[Unit]:
        """The units that meet a namespace."""
        return meeting(self.flow, "namespace") if self.options.parsers else []

    # -- the call graph ------------------------------------------------------------------------------------

    def _edges(self, function: Method) -> list[tuple[Method, Call]]:
        """What a function calls, and what it hands on to be called: `partial(f, …)`, `Thread(target=f)`."""
        edges = [(t, c) for c in function.facts.calls for t in self.objects.targets(function, c)]
        for call in function.facts.calls:
            for argument in call.args:
                plain = argument.kind == "path" and "." not in argument.value
                symbol = self.project.lookup(function, argument.value) if plain else None
                if isinstance(symbol, Method):
                    edges.append((symbol, call._replace(args=())))
        return edges

    def reached(self, parser: Parser) -> frozenset[Method]:
        """The functions that the entry points of a parser lead to.

        A method counts only where the way there makes, or hands on, a class whose objects have that method; a call only
        where, in code that programs share, no option must have a value that the parser does not know: others are meant.
        """
        if parser not in self._reached:
            waiting = [site.function for site in parser.sites] + [parser.function]
            for site in parser.sites:  # whoever calls the function that parses goes on with the result
                callers = self.objects.callers(site.function)
                waiting += [caller for caller, call in callers if self._passes(parser, site, caller, call)]
            seen: set[Method] = set()
            made: set[ClassDef] = set()
            postponed: list[Method] = []
            while waiting:
                function = waiting.pop()
                if function in seen:
                    continue
                if not _exists(function, made):
                    postponed.append(function)
                    continue
                seen.add(function)
                own = function.module in (parser.module, *(site.function.module for site in parser.sites))
                waiting += [t for t, call in self._edges(function) if own or not _is_foreign(parser, call)]
                if new := self._classes_named(function) - made:
                    made |= new
                    waiting += postponed
                    postponed = []
            self._reached[parser] = frozenset(seen)
        return self._reached[parser]

    def _passes(self, parser: Parser, site: Site, caller: Method, call: Call) -> bool:
        """Whether a caller of the function that parses gets the namespace of a parser: where it passes the parser, its
        own alone."""
        place, receiver = self.objects.call_at(caller.module, call.at), site.place.receiver if site.place else None
        if place is None or receiver is None or not receiver.val.symbolic:
            return True
        passed = (place.value_at(number).closed for number in place.value.args)
        return any(o[1] == parser.made for value in passed for o in value.of("parser"))

    def _classes_named(self, function: Method) -> set[ClassDef]:
        """The classes that a function makes objects of, or hands on to something that may."""
        found: set[ClassDef] = set()
        for call in function.facts.calls:
            paths = [call.target.removesuffix(".remote").removesuffix(".options()")]
            paths += [a.value for a in call.args if a.kind == "path"]
            found.update(c for path in paths if isinstance(c := self.project.lookup(function, path), ClassDef))
        return found

    # -- what is read --------------------------------------------------------------------------------------

    @cached_property
    def reads(self) -> tuple[Read, ...]:
        """Every read of something in a namespace."""
        return tuple(read for unit in self._units for read in self._reads(unit))

    def _reads(self, unit: Unit) -> Iterator[Read]:
        for place in self.queries.values(unit, "attr", "call"):
            if place.value.op == "attr":
                name, owner, how = place.value.data, place.operand(0), "attribute"
            elif place.method in _ASKING and len(place.value.args) > 2:
                constant, owner = place.operand(2).closed.constant(), place.operand(1)
                name, plain = constant if isinstance(constant, str) else "", len(place.value.args) == 3
                how = "test" if place.method == "hasattr" else "attribute" if plain else "default"
            else:
                continue
            held = self.held(owner) if name and not _NAMESPACE_MEMBERS.match(name) else NOTHING
            if held:
                kept = how == "test" or bool(place.closed.of("namespace"))
                guards = self._around(unit.scope).get(place.at[:2], ())
                text = unit.text(place.value.at).rpartition(".")[0] if place.value.op == "attr" else owner.text
                yield Read(unit.scope, text, name, held, guards, how, place, kept)

    def may_be_another(self, read: Read) -> bool:
        """Whether what is asked may be a namespace that no parser gave: `Namespace(**vars(args), **vars(known))`."""
        asked = read.place.operand(0 if read.place.value.op == "attr" else 1)
        sites = (site.place for held in read.held for site in held.parser.sites)
        parsed = {site.unit for site in sites if site is not None}
        made = (o for o in asked.closed.of("made") if str(o[1]).endswith("Namespace"))
        return any(o[2:] and o[2] not in parsed and rebuilt(self.flow, o[2]) is None for o in made)

    def _around(self, function: Method) -> dict[tuple[int, int], tuple[Guard, ...]]:
        """The conditions around the reads and calls of a function, by where these begin."""
        known = self._guards.get(function)
        if known is None:
            rows: tuple[Call | Ref, ...] = (*function.facts.calls, *function.facts.refs)
            known = self._guards[function] = {row.at[:2]: row.guards for row in rows}
        return known

    @cached_property
    def written(self) -> frozenset[str]:
        """Names that code adds to namespaces: `args.x = …`, `setattr(args, "x", …)`. `*` where the name is computed."""
        return frozenset(name for name, _ in self._writes)

    def is_written(self, held: Namespaced, name: str) -> bool:
        """Whether code adds a name, or one that it computes, to one of some namespaces, or to what may be one of those
        that are kept somewhere or given to what is not followed."""
        parsers: set[Parser | None] = {h.parser for h in held}
        if not self._kept.isdisjoint(parsers):
            parsers.add(None)
        return any((each, parser) in self._writes for each in (name, "*") for parser in parsers)

    @cached_property
    def _kept(self) -> frozenset[Parser]:
        """The parsers whose namespaces may come to places to which they are not followed."""
        held = set(self.handed_on)
        for unit in self._units:
            for place in self.queries.values(unit, *_KEEPING):
                held.update(*(self.held(place.value_at(number)) for number in place.value.args if number >= 0))
        return frozenset(each.parser for each in held)

    @cached_property
    def _writes(self) -> frozenset[tuple[str, Parser | None]]:
        """Each name that is added, with the parser to whose namespace; none where it may be that of any."""
        found: set[tuple[str, Parser | None]] = set()
        for name, owner in self._stores():
            held = self.held(owner)
            objs = owner.closed.objs
            if held or not objs or TOP in objs:
                found.update((name, h.parser) for h in held)
                found.update([] if held else [(name, None)])
        return frozenset(found)

    def _stores(self) -> Iterator[tuple[str, Place]]:
        """What may be added to a namespace, with what it is added to: something that is one, or is called as one."""
        for unit in dict.fromkeys((*self._units, *self.flow.mentions.units(*self._holders))):
            for place in self.queries.values(unit, "store_attr"):
                kept = place.operand(0)
                if place.value.data != MADE_UP and (kept.called in self._holders or self.held(kept)):
                    yield str(place.value.data), kept
        for place in self.queries.named_anywhere("setattr", "update"):
            given = place.operand(1) if len(place.value.args) == 4 else None
            owner = self.shown(place) if place.method == "update" else given
            if owner is None or not (owner.called in self._holders or self.held(owner)):
                continue
            name = place.operand(2).val.constant() if place.method == "setattr" else None
            if isinstance(name, str):
                yield name, owner
            elif place.method == "update" or not _is_there(place):
                yield "*", owner

    @cached_property
    def filled(self) -> frozenset[Parser]:
        """The parsers to whose namespaces code adds whatever it finds, in a configuration file say:
        `args.__setattr__(key, value)`, `vars(args).update(found)`."""
        found: set[Parser] = set()
        for unit in self._units:
            for place in self.queries.calls_in(unit):
                owner = self.shown(place) if place.method == "update" else None
                if place.method == "__setattr__" and len(place.value.args) == 3:
                    owner = place.receiver if place.operand(1).val.constant() is None else None
                found.update(held.parser for held in (self.held(owner) if owner is not None else ()))
        return frozenset(found)

    @cached_property
    def filled_outside(self) -> frozenset[Parser]:
        """The parsers whose namespaces a function of a library that is not at hand gets for what it does with them, for
        nobody takes its result: it may set anything (`misc.init_distributed_mode(args)`)."""
        calls = (place for unit in self._units for place in self.queries.calls_in(unit))
        given = (
            place.value_at(number)
            for place in calls
            if all(user.value.op == "mut" for user in place.users) and place.calls_unknown_library
            for number in place.value.args[1:]
        )
        return frozenset(held.parser for each in given for held in self.held(each))

    @staticmethod
    def shown(place: Place) -> Place | None:
        """The object on whose dictionary a method is called: `vars(args).update(…)`, `args.__dict__.update(…)`."""
        of_method = place.receiver if place.value.op == "call" else None
        receiver = of_method.root if of_method is not None else place
        if receiver.value.op == "attr" and receiver.value.data == "__dict__":
            return receiver.operand(0)
        shown = receiver.value.op == "call" and receiver.method == "vars" and len(receiver.value.args) == 2
        return receiver.operand(1) if shown else None

    @cached_property
    def _holders(self) -> frozenset[str]:
        """The last links of the paths that hold namespaces."""
        return frozenset(read.receiver.rpartition(".")[2] for read in self.reads) | {"args"}

    @cached_property
    def handed_on(self) -> frozenset[Held]:
        """Namespaces given as a whole to something that may read any of their options."""
        found: set[Held] = set()
        for unit in self._units:
            for place in self.queries.values(unit, "attr", "call"):
                if place.value.op == "call":
                    found |= self._taken(place)
                elif place.value.data == "__dict__" and not self._only_shown(unit.scope, place.at):
                    found |= self.held(place.operand(0))
        return frozenset(found)

    def _taken(self, place: Place) -> Namespaced:
        given = (self.held(place.value_at(number)) for number in place.value.args[1:])
        held, method = NOTHING.union(*given), place.method
        if not held:
            return NOTHING
        if method == "vars":
            shown = rebuilt(self.flow, place.unit) is not None or self._only_shown(place.unit.scope, place.at)
            return NOTHING if shown else held
        if method in _ASKING:
            return held if len(place.value.args) > 2 and place.operand(2).closed.constant() is None else NOTHING
        if method in _SHOWS or "setattr" in method or self.objects.run_by(place):
            return NOTHING
        callee = place.operand(0).closed
        return NOTHING if any(o[0] == "ext" and o[1] in _READS_LITTLE for o in callee.each) else held

    def _only_shown(self, function: Method, at: At) -> bool:
        """Whether the place lies inside a call that logs, prints or stores what it gets."""
        for call in function.facts.calls:
            inside = within(at, call.at) and call.at != at
            if inside and call.method in _SHOWS and call.target not in ("set", "type", "id"):
                return True
        return False
