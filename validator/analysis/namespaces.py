"""Where the parsed command line goes: which expressions hold the namespace of which parser, and what is read of it.

A namespace is followed from `parse_args()` through assignments, attributes, arguments and results, and through
functions that only reshape it (`hierarchize(args)` makes `args.ds.x` of the option `--ds.x`). A read is charged
to an entry point only where the calls that start there provably lead to the function that reads.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cached_property
from typing import NamedTuple

from validator.analysis.binding import bind
from validator.analysis.option_calls import UNKNOWN
from validator.analysis.options import Options, Parser
from validator.analysis.places import within
from validator.facts.model import Argument, Assign, At, Call, Guard
from validator.flow.objects import Objects
from validator.project import ClassDef, Method, Project, Value

_DEPTH = 60
_LONGEST = 32  # links of a chain that are followed: generated code holds chains of thousands
_NAMESPACE_MEMBERS = re.compile(r"^(__\w+__|_get_kwargs|_get_args)$")
_SHOWS = re.compile(
    r"(^|\.)(print|log|info|debug|warning|pprint|pformat|dump|dumps|safe_dump|init|update|str|repr|format|set|isinstance|hasattr|"
    r"add_text|add_hparams|print_rank_0|save_config|deepcopy|copy|type|id|login|config)(\(\))?$"
)
_READS_LITTLE = ("deepspeed.initialize", "deepspeed.init_inference")


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
    """

    function: Method
    receiver: str
    name: str
    held: Namespaced
    guards: tuple[Guard, ...]
    at: At
    how: str
    kept: bool = True


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


def _users(parser: Parser, function: Method, caller: Method) -> set[Method]:
    """Whom of its callers a function gives the namespace of a parser: where it gets the parser, those that pass it."""
    parsed_here = any(site.function is function for site in parser.sites)
    return parser.handed.get(function, {caller}) if parsed_here else {caller}


class Namespaces:
    """Answers for one project, remembered."""

    def __init__(self, project: Project) -> None:
        self.project = project
        self.options = project.analysis(Options)
        self.objects = project.analysis(Objects)
        self._known: dict[tuple[Method, str], Namespaced] = {}
        self._final: set[tuple[Method, str]] = set()
        self._round: set[tuple[Method, str]] = set()
        self._grew = False
        self._depth = 0
        self._bound: dict[tuple[Method, int], dict[str, Argument]] = {}  # calls live as long as the project
        self._reached: dict[Parser, frozenset[Method]] = {}

    # -- what an expression holds --------------------------------------------------------------------------

    def of(self, function: Method, path: str) -> Namespaced:
        """The namespaces that the value of `path`, read inside `function`, may be."""
        key = (function, path)
        if key in self._final:
            return self._known.get(key, NOTHING)
        if self._depth:
            return self._again(key)
        while True:  # what flows in a circle needs several rounds
            self._round, self._grew = set(), False
            found = self._again(key)
            if not self._grew:
                self._final |= self._round
                return found

    def _again(self, key: tuple[Method, str]) -> Namespaced:
        """The value of a path by what was known in the round before; within one round each is computed once."""
        known = self._known.get(key, NOTHING)
        if key in self._round or self._depth > _DEPTH or "(" in key[1] and not key[1].endswith("()"):
            return known
        self._round.add(key)
        self._depth += 1
        found = self._of(*key) | known
        self._depth -= 1
        if found != known:
            self._grew = True
        self._known[key] = found
        return found

    def _of(self, function: Method, path: str) -> Namespaced:
        if path.endswith("()"):
            return self._result(function, path[:-2])
        head, _, name = path.rpartition(".")
        if not head:
            return self._name(function, name)
        held = self.of(function, head)
        if held:
            return frozenset(Held(h.parser, h.below(name)) for h in held if h.below(name) in h.parser.inner)
        return frozenset(h for cls in self.objects.named(function, head) for h in self._attribute(cls, name))

    def _result(self, function: Method, target: str) -> Namespaced:
        if (function, target) in self._sites:
            return frozenset(Held(parser, "") for parser in self._sites[function, target])
        found: set[Held] = set()
        calls = (call for call in function.facts.calls if call.target == target)
        for callee in dict.fromkeys(each for call in calls for each in self.objects.targets(function, call)):
            for row in callee.facts.returns:
                if row.kind in ("path", "call"):
                    held = self._given_back(function, target, callee, row.value + "()" * (row.kind == "call"))
                    found |= {h for h in held if function in _users(h.parser, callee, function)}
            if not found and callee in self._reshapers:
                found |= self._reshaped(function, target)
        return frozenset(found)

    def _given_back(self, function: Method, target: str, callee: Method, path: str) -> Namespaced:
        """What one call gets from a function that returns a variable: of a parameter, what this call passes."""
        if all(p.name != path for p in callee.facts.params):
            return self.of(callee, path)
        found: set[Held] = set()
        for call in function.facts.calls:
            passed = bind(callee, call).get(path) if call.target == target else None
            found |= self._value(function, passed.kind, passed.value) if passed is not None else NOTHING
        return frozenset(found.union(*(self._assigned(callee, r) for r in callee.facts.assigns if r.target == path)))

    def _reshaped(self, function: Method, target: str) -> Namespaced:
        for call in function.facts.calls:
            if call.target == target and call.args:
                return self._value(function, call.args[0].kind, call.args[0].value)
        return NOTHING

    @cached_property
    def _sites(self) -> dict[tuple[Method, str], list[Parser]]:
        found: dict[tuple[Method, str], list[Parser]] = {}
        for parser in self.options.parsers:
            for site in parser.sites:
                if not parser.from_dataclasses:
                    found.setdefault((site.function, site.call.target), []).append(parser)
        return found

    @cached_property
    def _reshapers(self) -> frozenset[Method]:
        """Functions that rebuild a namespace from `vars(parameter)`."""
        found = set()
        for function in self.project.functions():
            params = {p.name for p in function.facts.params}
            if any(c.target == "vars" and c.args and c.args[0].value in params for c in function.facts.calls):
                inside = [function, *self.project.nested(function)]
                if any(
                    c.target.rpartition(".")[2].endswith(("Namespace", "DotDict", "Munch"))
                    for f in inside
                    for c in f.facts.calls
                ):
                    found.add(function)
        return frozenset(found)

    def _name(self, function: Method, name: str) -> Namespaced:
        scope: Method | None = function
        while scope is not None and scope.qualname != "<module>":
            if name in scope.facts.bound:
                return self._local(scope, name)
            scope = scope.enclosing
        symbol = self.project.lookup(function, name)
        top = function.module.top
        if isinstance(symbol, Value):
            return self._local(symbol.module.top, symbol.name)
        return self._local(top, name) if function is top else NOTHING

    def _local(self, function: Method, name: str) -> Namespaced:
        found: set[Held] = set()
        if any(p.name == name and p.kind in ("any", "kw", "pos") for p in function.facts.params):
            for caller, kind, value in self._passed(function, name):
                found |= self._value(caller, kind, value)
        for row in function.facts.assigns:
            if row.target == name:
                found |= self._assigned(function, row)
        return frozenset(found)

    def _assigned(self, function: Method, row: Assign) -> Namespaced:
        if row.kind == "call" and row.value == "getattr":
            return self._part(function, row)
        if row.kind == "unpack:0/2":
            return self.of(function, row.value + "()")
        return self._value(function, row.kind, row.value) if row.value != row.target else NOTHING

    def _part(self, function: Method, row: Assign) -> Namespaced:
        """`ds = getattr(args, "ds", None)`."""
        for call in function.facts.calls:
            inside = within(call.at, row.at)
            if inside and call.target == "getattr" and len(call.args) > 1 and call.args[0].kind == "path":
                name = call.args[1].value.strip("'\"")
                held = self.of(function, call.args[0].value)
                return frozenset(Held(h.parser, h.below(name)) for h in held if h.below(name) in h.parser.inner)
        return NOTHING

    def _value(self, function: Method, kind: str, value: str) -> Namespaced:
        if kind == "call":
            return self.of(function, value + "()")
        return self.of(function, value) if kind == "path" else NOTHING

    def _attribute(self, cls: ClassDef, name: str) -> Namespaced:
        found: set[Held] = set()
        for owner in cls.mro:
            for method in owner.every_method():
                first = method.facts.params[0].name if method.facts.params else "self"
                for row in method.facts.assigns:
                    if row.target == f"{first}.{name}":
                        found |= self._assigned(method, row)
        return frozenset(found)

    def _passed(self, function: Method, name: str) -> Iterator[tuple[Method, str, str]]:
        for caller, call in self._callers.get(function, ()):
            key = (function, id(call))
            if key not in self._bound:
                self._bound[key] = bind(function, call)
            argument = self._bound[key].get(name)
            if argument is not None:
                yield caller, argument.kind, argument.value

    # -- the call graph ------------------------------------------------------------------------------------

    @cached_property
    def _graph(self) -> dict[Method, list[tuple[Method, Call]]]:
        """For every function what it calls, by name or by the receiver's type."""
        found: dict[Method, list[tuple[Method, Call]]] = {}
        for function in self.project.functions():
            edges = [(t, c) for c in function.facts.calls for t in self.objects.targets(function, c)]
            for call in function.facts.calls:  # functions handed on: partial(f, …), Thread(target=f), map(f, …)
                for argument in call.args:
                    if argument.kind == "path" and "." not in argument.value:
                        symbol = self.project.lookup(function, argument.value)
                        if isinstance(symbol, Method):
                            edges.append((symbol, call._replace(args=())))
            found[function] = edges
        return found

    @cached_property
    def _callers(self) -> dict[Method, list[tuple[Method, Call]]]:
        found: dict[Method, list[tuple[Method, Call]]] = {}
        for function, edges in self._graph.items():
            for target, call in edges:
                found.setdefault(target, []).append((function, call))
        return found

    def reached(self, parser: Parser) -> frozenset[Method]:
        """The functions that the entry points of a parser lead to.

        A method counts only where the way there makes, or hands on, a class whose objects have that method; a call only
        where, in code that programs share, no option must have a value that the parser does not know: others are meant.
        """
        if parser not in self._reached:
            waiting = [site.function for site in parser.sites] + [parser.function]
            for site in parser.sites:  # whoever calls the function that parses goes on with the result
                callers = [caller for caller, _ in self._callers.get(site.function, ())]
                waiting += [each for each in callers if each in _users(parser, site.function, each)]
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
                edges = self._graph.get(function, ())
                waiting += [target for target, call in edges if own or not _is_foreign(parser, call)]
                if new := self._classes_named(function) - made:
                    made |= new
                    waiting += postponed
                    postponed = []
            self._reached[parser] = frozenset(seen)
        return self._reached[parser]

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
        return tuple(read for function in self.project.functions() for read in self._reads(function))

    def _reads(self, function: Method) -> Iterator[Read]:
        for ref in function.facts.refs:
            if ref.context == "load":
                yield from self._chain(function, ref.path, ref.guards, ref.at)
            elif "." in (receiver := ref.path.rpartition(".")[0]):
                yield from self._chain(function, receiver, ref.guards, ref.at)
        for call in function.facts.calls:
            if "." in call.receiver:
                yield from self._chain(function, call.receiver, call.guards, call.at)
            if call.target in ("getattr", "hasattr") and len(call.args) >= 2:
                owner, name = call.args[0], call.args[1]
                held = self.of(function, owner.value) if owner.kind == "path" else NOTHING
                if held and name.kind == "const" and name.value[:1] in "'\"":
                    how = "test" if call.target == "hasattr" else "default" if len(call.args) > 2 else "attribute"
                    kept = how == "test" or any(
                        row.kind == "call" and row.value == "getattr" and within(call.at, row.at)
                        for row in function.facts.assigns
                    )
                    yield Read(function, owner.value, name.value.strip("'\""), held, call.guards, call.at, how, kept)

    def _chain(self, function: Method, path: str, guards: tuple[Guard, ...], at: At) -> Iterator[Read]:
        """The link of a chain that leaves the namespace: the option, or what is none."""
        links = path.split(".")
        for index in range(1, min(len(links), _LONGEST)):
            receiver, name = ".".join(links[:index]), links[index].partition("[")[0].partition("(")[0]
            held = self.of(function, receiver)
            if not held:
                continue
            if (
                name != links[index]
                or index == len(links) - 1
                or not any(h.below(name) in h.parser.inner for h in held)
            ):
                if not _NAMESPACE_MEMBERS.match(name):
                    yield Read(function, receiver, name, held, guards, at, "attribute")
                return

    @cached_property
    def written(self) -> frozenset[str]:
        """Names that code adds to namespaces: `args.x = …`, `setattr(args, "x", …)`. `*` where the name is computed."""
        found: set[str] = set()
        for function in self.project.functions():
            for ref in function.facts.refs:
                receiver, _, name = ref.path.rpartition(".")
                if ref.context == "store" and self._looks_like_one(function, receiver):
                    found.add(name)
        for function, call in self.project.calls("setattr"):
            if not call.receiver and len(call.args) == 3 and self._looks_like_one(function, call.args[0].value):
                literal = call.args[1].kind == "const"
                found.add(call.args[1].value.strip("'\"") if literal else "*")
        for function, call in self.project.calls("update"):
            owner = call.receiver.removesuffix(".__dict__")
            if call.receiver.endswith((".__dict__", "vars()")) and self._looks_like_one(function, owner):
                found.add("*")
        return frozenset(found)

    @cached_property
    def filled(self) -> frozenset[Parser]:
        """The parsers to whose namespaces code adds whatever it finds, in a configuration file say:
        `args.__setattr__(key, value)`, `vars(args).update(found)`."""
        found: set[Parser] = set()
        for function, call in self.project.calls("__setattr__", "update"):
            if call.method == "update":
                found.update(h.parser for h in self.of(function, self._shown_by(function, call.receiver)))
            elif len(call.args) == 2 and call.args[0].kind != "const":
                found.update(h.parser for h in self.of(function, call.receiver))
        return frozenset(found)

    def _shown_by(self, function: Method, path: str) -> str:
        """The namespace of which a variable is the dictionary: `values = vars(args)`."""
        rows = [
            row for row in function.facts.assigns if row.target == path and (row.kind, row.value) == ("call", "vars")
        ]
        calls = (
            call for row in rows for call in function.facts.calls if call.target == "vars" and within(call.at, row.at)
        )
        return next((call.args[0].value for call in calls if call.args and call.args[0].kind == "path"), "")

    @cached_property
    def _holders(self) -> frozenset[str]:
        """The last links of the paths that hold namespaces."""
        return frozenset(read.receiver.rpartition(".")[2] for read in self.reads) | {"args"}

    def _looks_like_one(self, function: Method, path: str) -> bool:
        return path.rpartition(".")[2] in self._holders or bool(self.of(function, path))

    @cached_property
    def handed_on(self) -> frozenset[Held]:
        """Namespaces given as a whole to something that may read any of their options."""
        found: set[Held] = set()
        for function in self.project.functions():
            for call in function.facts.calls:
                for argument in call.args:
                    found |= self._taken(function, call, argument)
            for ref in function.facts.refs:
                if ref.path.endswith(".__dict__") and ref.context == "load":
                    found |= {
                        h
                        for h in self.of(function, ref.path.removesuffix(".__dict__"))
                        if not self._only_shown(function, ref.at)
                    }
        return frozenset(found)

    def _taken(self, function: Method, call: Call, argument: Argument) -> Namespaced:
        if argument.kind != "path" or not (held := self.of(function, argument.value)):
            return NOTHING
        if call.target == "vars":
            return NOTHING if function in self._reshapers or self._only_shown(function, call.at) else held
        if call.target in ("getattr", "hasattr"):
            return held if len(call.args) > 1 and call.args[1].kind != "const" else NOTHING
        if _SHOWS.search(call.target) or self.objects.targets(function, call) or "setattr" in call.target:
            return NOTHING
        dotted = self.project.dotted(function, call.target)
        return NOTHING if dotted in _READS_LITTLE else held

    def _only_shown(self, function: Method, at: At) -> bool:
        """Whether the place lies inside a call that logs, prints or stores what it gets."""
        for call in function.facts.calls:
            inside = within(at, call.at) and call.at != at
            if inside and _SHOWS.search(call.target) and call.target not in ("set", "type", "id"):
                return True
        return False
