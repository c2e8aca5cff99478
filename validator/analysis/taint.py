"""Which conditions differ from rank to rank.

A condition is *rank* tainted when it tests who the process is (`get_rank()`, `is_rank_0()`, `LOCAL_RANK`, a mesh
coordinate), *local* when it tests data that each rank holds for itself (batch contents, the clock, a file). All
else counts as uniform: configuration, step counters, sizes, and whatever a collective over the group has made equal.
Values are followed through assignments, attributes, returns and arguments; `self.rank` taints, `self.world_size`
does not.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cached_property

from validator.analysis.binding import bind
from validator.analysis.collectives import Table, dimension, table
from validator.analysis.conditions import CONTENTS, MEMBERS, Condition, Taint, normal
from validator.analysis.lengths import Lengths
from validator.analysis.object_fields import ObjectFields
from validator.analysis.own_data import LIBRARIES, REVEALING, OwnData, absent, is_optional_entry, selects
from validator.analysis.presence import Presence
from validator.analysis.reductions import Reductions
from validator.errors import UsageError
from validator.facts.model import Assign, At, Call
from validator.facts.text import path_of
from validator.project import Method, Project, Value

_DEPTH = 8
_FOLLOWED = ("path", "call", "other")  # kinds of arguments that are no constants
_SIZES = ("size", "shape", "dim", "ndim", "world_size", "dtype", "device")
_CLOCK = frozenset({"time.time", "time.perf_counter", "time.monotonic"})
_RANDOM = frozenset({
    "random.random", "random.randint", "random.choice", "random.uniform", "numpy.random.rand", "numpy.random.random",
})  # fmt: skip
_SEEDING = frozenset({
    "seed", "set_seed", "manual_seed", "manual_seed_all", "seed_everything", "enable_full_determinism",
})  # fmt: skip
# builtins whose result differs where their arguments do
_PLAIN = frozenset({"int", "bool", "str", "float", "len", "min", "max", "abs", "sum", "any", "all", "range"})


class Taints:
    """Taints in one project, remembered."""

    def __init__(self, project: Project) -> None:
        self.project = project
        self.table = _table(tuple(getattr(project.config, "collectives", None) or ()))
        self._paths: dict[tuple[Method, str], Taint | None] = {}
        self._returns: dict[Method, Taint | None] = {}
        self._values: dict[tuple[str, At], ast.expr | None] = {}
        self._depth = 0
        self.own_data = OwnData(self)
        self.lengths = Lengths(self)
        self.reductions = Reductions(self)
        self.object_fields = ObjectFields(self)
        self._presence = Presence(self)

    # -- conditions ----------------------------------------------------------------------------------------

    def condition(self, test: ast.expr, function: Method) -> Condition:
        """The taint of a test and what its uniform parts must be for it to matter."""
        text, holds = normal(test)
        taint: Taint | None = None
        assume: list[tuple[str, bool]] = []
        operands, value = [test], True
        if isinstance(test, ast.BoolOp):
            operands, value = test.values, isinstance(test.op, ast.And)
        for operand in operands:
            inner = self.expression(operand, function) or self.reductions.later(operand, function)
            if inner is None and len(operands) > 1:
                name, positive = normal(operand)
                assume.append((name, positive is value))
            elif taint is None or (inner is not None and inner.kind == "rank" and taint.kind == "local"):
                taint = inner or taint
        member = taint is not None and taint.group == MEMBERS
        return Condition(text, holds, taint, tuple(assume), member)

    def expression(self, node: ast.expr, function: Method) -> Taint | None:
        """The taint of an expression: that of the first part of it that differs between ranks."""
        if isinstance(node, ast.Constant | ast.Lambda):
            return None
        if isinstance(node, ast.Call):
            return self._call(node, function)
        if isinstance(node, ast.Name | ast.Attribute):
            return self.path(function, path_of(node)) or self._inner(node, function)
        if isinstance(node, ast.Subscript):
            return self._subscript(node, function)
        if isinstance(node, ast.Compare):
            return self._compare(node, function)
        return self._children(node, function)

    def _children(self, node: ast.AST, function: Method) -> Taint | None:
        found = (self.expression(child, function) for child in _expressions(node))
        return _strongest(found)

    def _inner(self, node: ast.expr, function: Method) -> Taint | None:
        """The object under an attribute matters only where it is computed: `f(x).y`."""
        while isinstance(node, ast.Attribute):
            node = node.value
        return self._call(node, function) if isinstance(node, ast.Call) else None

    def _compare(self, node: ast.Compare, function: Method) -> Taint | None:
        if len(node.ops) == 1 and isinstance(node.ops[0], ast.In | ast.NotIn):
            if isinstance(node.left, ast.Constant):
                return None  # `"kl" in status`: which keys there are is written in the code, whatever their values
            # `rank in ranks_of_group`: a test of membership, decided for the group when it is used
            taint = self._children(node, function)
            return taint._replace(group=MEMBERS) if taint is not None and taint.kind == "rank" else taint
        if len(node.ops) == 1 and isinstance(node.ops[0], ast.Is | ast.IsNot):
            return self._present(node.left, function)
        return self._children(node, function) or self.own_data.loss(node, function)

    def _present(self, node: ast.expr, function: Method) -> Taint | None:
        """`x is None` differs between ranks where x is a parameter that carries each rank's own data."""
        if path_of(node).lower().endswith("rank"):
            return None  # whether there are ranks at all
        taint = self.expression(node, function)
        return taint if taint is not None and taint.group != CONTENTS else absent(node, function)

    def _subscript(self, node: ast.Subscript, function: Method) -> Taint | None:
        key = node.slice.value if isinstance(node.slice, ast.Constant) else None
        if path_of(node.value) in ("os.environ", "environ"):
            return Taint("rank", "", "", f'os.environ["{key}"]') if key in self.table.environment else None
        return self._children(node, function)

    def _call(self, node: ast.Call, function: Method) -> Taint | None:
        target = path_of(node.func)
        fact = self.fact(node, function)
        dotted = self.project.dotted(function, target)
        name = target.rpartition(".")[2]
        if self.reductions.gives_equal(node, function):
            return None
        if dotted in self.table.rank_calls or (name == "get_rank" and not dotted.startswith("os.")):
            return self._rank_call(node, target)
        if name in self.table.stages:
            return Taint("rank", dimension(name) or "pp", "", f"{target}()")
        if (
            name in ("get", "getenv")
            and node.args
            and isinstance(node.args[0], ast.Constant)
            and node.args[0].value in self.table.environment
        ):
            return Taint("rank", "", "", str(node.args[0].value))
        if dotted in _CLOCK or (dotted in _RANDOM and not self._seeds):
            return Taint("local", "", "", f"{target}()")
        if target == "hasattr":
            return self._presence.asked(node, function)
        if (raced := self._raced_file(node, function, target)) is not None:
            return raced
        if name in ("get", "map") and is_optional_entry(node, function):
            # what a batch holds differs between the stages of a pipeline, if between any ranks
            return Taint("local", "pp", "", ast.unparse(node))
        reached = self.project.types.targets(function, fact) if fact is not None else []
        if reached:
            taint = _strongest(self.returned(m) for m in reached)
            return taint and taint._replace(why=f"{target}()")
        if name in self.table.rank_methods:
            return Taint("rank", _dimension_asked(node, target), "", f"{target}()")
        if isinstance(node.func, ast.Attribute) and (name == "numel" or ast.unparse(node).endswith(".size(0)")):
            return self.expression(node.func.value, function)
        if name in REVEALING and (isinstance(node.func, ast.Attribute) or dotted.startswith(LIBRARIES)):
            return self.own_data.revealed(node, dotted, function)
        arguments = [*node.args, *(k.value for k in node.keywords)]
        if dotted and name not in _PLAIN:
            return None  # an unknown library function may do anything; being silent is the honest answer
        taint = _strongest(self.expression(a, function) for a in arguments)
        return None if taint is not None and taint.group == CONTENTS and name == "len" else taint

    def _raced_file(self, node: ast.Call, function: Method, target: str) -> Taint | None:
        """`os.path.exists(path)` where ranks make or remove the file around the test."""
        from validator.analysis.files import FileRaces, asked

        asking, path = asked(self.project, function, target, path_of(node.args[0]) if node.args else "")
        fact = self.fact(node, function) if asking else None
        if fact is None or not self.project.analysis(FileRaces).raced(function, asking, path, fact.at):
            return None
        return Taint("local", "", "", ast.unparse(node))

    def _rank_call(self, node: ast.Call, target: str) -> Taint:
        argument = next((k.value for k in node.keywords if k.arg == "group"), node.args[0] if node.args else None)
        group = path_of(argument) if argument is not None and not isinstance(argument, ast.Constant) else ""
        owner = target.rpartition(".")[0]
        return Taint("rank", dimension(group) or dimension(owner), group, f"{target}({group})")

    # -- paths ---------------------------------------------------------------------------------------------

    def path(self, function: Method, path: str) -> Taint | None:
        """The taint of a name or an attribute chain read in a function."""
        key = (function, path)
        if key not in self._paths:
            self._paths[key] = None
            if self._depth < _DEPTH:
                self._depth += 1
                self._paths[key] = self._path(function, path)
                self._depth -= 1
        return self._paths[key]

    def _path(self, function: Method, path: str) -> Taint | None:
        while path.endswith("[]"):
            path = path[:-2]
        head, _, name = path.rpartition(".")
        if name in _SIZES or self.reductions.equal(function, path.partition(".")[0]):
            return None
        if head:
            return self._attribute(function, head, name, path)
        return self._variable(function, name)

    def _attribute(self, function: Method, head: str, name: str, path: str) -> Taint | None:
        owners = self.project.types.of(function, head)
        for cls in owners:
            method = cls.find(name)
            if method is not None:
                taint = self.returned(method) if method.facts.is_property else None
                return taint and taint._replace(why=path)
            rows = self.project.types.set_on(cls, name)
            if taint := _strongest(self.assigned(definition, r) for definition, r in rows):
                return taint._replace(why=path, dim=taint.dim or (dimension(name) if taint.kind == "rank" else ""))
            if taint := self._presence.of(rows):
                return taint._replace(why=path)
            if not rows and (taint := self.object_fields.of(cls, name)):
                return taint._replace(why=path, dim=taint.dim or dimension(name))
        if name in self.table.rank_attributes or (name in self.table.rank_names and not owners):
            return Taint("rank", dimension(name), "", path)
        return self._presence.of_library(self.project.dotted(function, path)) if not owners else None

    def _variable(self, function: Method, name: str) -> Taint | None:
        scope: Method | None = function
        while scope is not None and scope.qualname != "<module>":
            if name in scope.facts.bound:
                return self._local(scope, name)
            scope = scope.enclosing
        symbol = self.project.lookup(function, name)
        if isinstance(symbol, Value):
            top = symbol.module.top
            taint = _strongest(self.assigned(top, r) for r in top.facts.assigns if r.target == name)
            return taint or self._presence.of_module(symbol)
        return None

    def _local(self, function: Method, name: str) -> Taint | None:
        if self.reductions.equal(function, name):
            return None
        rows = [r for r in function.facts.assigns if r.target == name]
        if any(r.kind == "path" and self.reductions.equal(function, r.value.partition("[")[0]) for r in rows):
            return None
        taint = _strongest(self.assigned(function, r) for r in rows)
        if taint is not None and taint.kind == "rank" and not taint.dim:
            taint = taint._replace(dim=dimension(name))
        if not any(p.name == name for p in function.facts.params):
            return taint or self._presence.of([(function, row) for row in rows])
        if taint is not None:
            return taint
        calls = (
            (caller, bind(function, call).get(name)) for caller, call in self.project.types.callers.get(function, ())
        )
        passed = [(caller, given) for caller, given in calls if given is not None and given.kind in _FOLLOWED]
        taint = _strongest(self.object_fields.argument(caller, given) for caller, given in passed)
        alone = not passed or self._per_actor(function, name)
        if taint is None and name in self.table.rank_names and alone and _speaks_of_ranks(function):
            return Taint("rank", dimension(name), "", name)
        return taint

    def _per_actor(self, function: Method, name: str) -> bool:
        """Whether each process is given another value: the variable of a loop that starts Ray actors."""
        calls = [row for row in self.project.types.callers.get(function, ()) if row[1].method == "remote"]
        given = [(caller, argument.value) for caller, call in calls if (argument := bind(function, call).get(name))]
        return bool(given) and any(
            row.target == value and (row.kind in ("for", "unpack:0/2"))
            for caller, value in given
            for row in caller.facts.assigns
        )

    def assigned(self, function: Method, row: Assign) -> Taint | None:
        """The taint of what an assignment binds."""
        if row.kind == "path" and not row.value.endswith("]"):
            return self.path(function, row.value) if row.value != row.target else None
        if row.kind in ("call", "other", "path") or row.kind.startswith("unpack"):
            value = self._value(function, row)
            if value is not None and selects(value):
                return Taint("local", "", "", row.target)
            if row.kind == "path":
                return self.path(function, row.value) if row.value != row.target else None
            return self.expression(value, function) if value is not None else None
        return None

    def _value(self, function: Method, row: Assign) -> ast.expr | None:
        """The expression that an assignment binds, read from the source again: facts hold only its outline."""
        key = (function.path, row.at)
        if key not in self._values:
            self._values[key] = _bound_value(function.module.source_text.between(row.at))
        return self._values[key]

    def _text(self, function: Method, text: str) -> Taint | None:
        try:
            node = ast.parse(text, mode="eval").body
        except (SyntaxError, ValueError, RecursionError):
            return None
        return self.expression(node, function)

    # -- functions -----------------------------------------------------------------------------------------

    def returned(self, function: Method) -> Taint | None:
        """The taint of what a function returns."""
        if function not in self._returns:
            self._returns[function] = None
            rows = function.facts.returns
            texts = (
                row.value + "()" if row.kind == "call" else row.value
                for row in rows
                if row.kind in ("call", "path", "other")
            )
            if self._depth < _DEPTH:
                self._depth += 1
                taint = _strongest(self._text(function, t) for t in texts)
                self._depth -= 1
                self._returns[function] = taint
        return self._returns[function]

    @cached_property
    def _seeds(self) -> bool:
        """Whether the project seeds its generators, so that ranks may well draw the same numbers."""
        return bool(self.project.calls(*_SEEDING))

    def fact(self, node: ast.Call, function: Method) -> Call | None:
        """The fact of a call in the syntax of a function."""
        if not hasattr(node, "lineno"):
            return None
        line, column = node.lineno, node.col_offset + 1
        target = path_of(node.func)
        near = (c for c in function.facts.calls if c.target == target)
        exact = [c for c in near if c.at[0] == line and c.at[1] == column]
        return exact[0] if exact else next((c for c in function.facts.calls if c.target == target), None)


def _dimension_asked(node: ast.Call, target: str) -> str:
    """Of `mesh.get_local_rank("dp")`."""
    first = next(iter([*node.args, *(k.value for k in node.keywords)]), None)
    word = str(first.value) if isinstance(first, ast.Constant) else path_of(first) if first is not None else ""
    return dimension(word) or dimension(target)


def _strongest(taints: Iterator[Taint | None] | list[Taint | None]) -> Taint | None:
    best: Taint | None = None
    for taint in taints:
        if taint is not None and (best is None or (taint.kind == "rank" and best.kind == "local")):
            best = taint
            if taint.kind == "rank":
                break
    return best


def _bound_value(statement: str) -> ast.expr | None:
    """The right side of an assignment given as text."""
    try:
        node = ast.parse(statement).body[0]
    except (SyntaxError, ValueError, RecursionError, IndexError):
        return None
    if isinstance(node, ast.Expr) and isinstance(node.value, ast.NamedExpr):
        return node.value.value
    return node.value if isinstance(node, ast.Assign | ast.AnnAssign | ast.AugAssign) else None


def _table(extra: tuple[str, ...]) -> Table:
    """The table of collectives with the user's own. Raises UsageError for a file that cannot be read."""
    try:
        return table(extra)
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise UsageError(f"the collectives of the configuration cannot be read: {error}") from error


def _expressions(node: ast.AST) -> Iterator[ast.expr]:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.expr):
            yield child
        elif isinstance(child, ast.comprehension):
            yield child.iter
            yield from child.ifs
        elif isinstance(child, ast.keyword):
            yield child.value


def _speaks_of_ranks(function: Method) -> bool:
    """A parameter called `rank` is one where the module is about processes (not a LoRA or a matrix rank)."""
    return any(
        i.module.startswith(("torch.distributed", "deepspeed", "megatron", "accelerate")) or i.name == "distributed"
        for i in function.module.facts.imports
    )
