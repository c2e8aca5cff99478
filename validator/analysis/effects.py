"""Which collectives a function issues, in which order, on which group, through the calls that it makes.

The answer is a trace (see `validator.analysis.traces`), built statement by statement from the last to the first.
"""

from __future__ import annotations

import ast
import re
from functools import cached_property, partial
from typing import NamedTuple

from validator.analysis.collectives import WORLD, Collective, group_of
from validator.analysis.conditions import Condition, normal
from validator.analysis.engines import Engines
from validator.analysis.implicit import is_managing, runs
from validator.analysis.taint import Taints
from validator.analysis.traces import BREAK, NEXT, RAISE, RETURN, End, Fork, Inlining, Op, Repeat, Step, Trace
from validator.analysis.whole_groups import WholeGroups
from validator.facts.model import At, Call
from validator.facts.text import path_of
from validator.project import ClassDef, Method, Project

_INLINE = 4  # how deep callees are unfolded into their own collectives
_ALONE = re.compile(r"(world_size|num_processes|get_world_size\(\)|nproc|n_gpus|size\(\)) == 1$")

# of `torch.distributed.checkpoint.state_dict`
_STATE_DICTS = frozenset({
    "get_state_dict", "get_model_state_dict", "get_optimizer_state_dict",
    "set_state_dict", "set_model_state_dict", "set_optimizer_state_dict",
})  # fmt: skip
_FSDP1 = "FullyShardedDataParallel"
_WRAPPING = frozenset({"accelerate", "lightning", "pytorch_lightning"})  # libraries that wrap models in it
# methods of a model that gather its shards from all ranks when FSDP holds them
_SHARDED_GATHERS = frozenset({"state_dict", "full_state_dict"})


class Effects:
    """The effects of the functions of one project."""

    def __init__(self, project: Project) -> None:
        self.project = project
        self.taints = project.analysis(Taints)
        self._engines = project.analysis(Engines)
        self._whole = project.analysis(WholeGroups)
        self._traces: dict[Method, Trace] = {}
        self._sharding: dict[ClassDef, bool] = {}

    # -- which calls are collectives -----------------------------------------------------------------------

    def collective(self, function: Method, call: Call) -> Collective | None:
        """The row of the table that a call is, by its full name or by a method's name on a known receiver."""
        table = self.taints.table
        name = call.method
        if name in self._last_links:
            row = table.calls.get(self.project.dotted(function, call.target))
            if row is not None:
                return row if name not in _STATE_DICTS or self._gathers(call) else None
        if name in _SHARDED_GATHERS and self._shards(function) and "model" in call.receiver.lower():
            return Collective(name, None, False, False)
        operation = self._engines.operation(function, call)
        if operation:
            return Collective(operation, None, False, False)
        entry = table.methods.get(name)
        if entry is None or not call.receiver:
            return None
        row, receivers = entry
        if receivers and call.receiver.removesuffix("()").rpartition(".")[2] not in receivers:
            return None
        return None if self.project.types.targets(function, call) else row

    def _gathers(self, call: Call) -> bool:
        """Whether getting or setting a state dict is collective: by its options, or for models in FSDP1.

        Without options plain and FSDP2 models give what each rank holds.
        """
        return any(argument.keyword in ("options", "**") for argument in call.args) or self._wraps

    @cached_property
    def _wraps(self) -> bool:
        """Whether the project may wrap models in `FullyShardedDataParallel`, itself or through accelerate."""
        imports = (each for module in self.project.modules.values() for each in module.facts.imports)
        named = any(each.name == _FSDP1 or each.module.partition(".")[0] in _WRAPPING for each in imports)
        return named or bool(self.project.calls(_FSDP1))

    def _shards(self, function: Method) -> bool:
        """Whether the class of a function wraps models in FSDP, so that its models' `state_dict()` gathers."""
        cls = function.cls
        if cls is None:
            return False
        if cls not in self._sharding:
            calls = (c for m in cls.every_method() for c in m.facts.calls)
            self._sharding[cls] = any(c.method in ("fully_shard", "FSDP", "FullyShardedDataParallel") for c in calls)
        return self._sharding[cls]

    @cached_property
    def _last_links(self) -> frozenset[str]:
        return frozenset(name.rpartition(".")[2] for name in self.taints.table.calls)

    @cached_property
    def direct(self) -> dict[Method, dict[At, tuple[Call, Collective]]]:
        """Per function its calls that are collectives themselves."""
        found: dict[Method, dict[At, tuple[Call, Collective]]] = {}
        for function in self.project.functions():
            for call in function.facts.calls:
                row = self.collective(function, call)
                if row is not None:
                    found.setdefault(function, {})[call.at] = (call, row)
        return found

    @cached_property
    def reaching(self) -> dict[Method, dict[At, tuple[Call, tuple[Method, ...]]]]:
        """Per function its calls to project functions that issue collectives, directly or through others."""
        types = self.project.types
        callers: dict[Method, list[tuple[Method, Call]]] = {}
        for function in self.project.functions():
            for call in function.facts.calls:
                for target in types.targets(function, call):
                    callers.setdefault(target, []).append((function, call))
        for function, place, target in runs(self.project):
            callers.setdefault(target, []).append((function, place))
        found: dict[Method, dict[At, tuple[Call, tuple[Method, ...]]]] = {}
        queue, seen = list(self.direct), set(self.direct)
        while queue:
            target = queue.pop()
            for function, call in callers.get(target, ()):
                rows = found.setdefault(function, {})
                known = rows.get(call.at, (call, ()))[1]
                if target not in known:
                    rows[call.at] = (call, (*known, target))
                if function not in seen:
                    seen.add(function)
                    queue.append(function)
        return found

    def effectful(self) -> list[Method]:
        """Every function that may issue a collective."""
        return list(dict.fromkeys([*self.direct, *self.reaching]))

    # -- traces --------------------------------------------------------------------------------------------

    def trace(self, function: Method, depth: int = 0) -> Trace:
        """What a rank does from the first statement of a function to its end."""
        if function not in self._traces:
            self._traces[function] = RETURN  # recursion adds nothing
            if function.node is not None:
                trace = Tracer(self, function, depth).block(function.node.body, RETURN)
                if (decorated := self.reaching.get(function, {}).get(function.facts.name_at)) is not None:
                    for wrapper in decorated[1]:  # before what the function does itself
                        trace = Inlining(wrapper, decorated[0], trace).copy(self.trace(wrapper, depth + 1))
                self._traces[function] = trace
        return self._traces[function]

    def after_call(self, function: Method, call: Call, after: Trace, depth: int) -> Trace:
        """What a call issues, before `after`: the collective itself, or the callee's trace in the caller's terms."""
        row = self.direct.get(function, {}).get(call.at)
        if row is not None:
            group = group_of(row[1], call)
            whole = group != WORLD and self._whole.holds(function, group)
            return Step(Op(row[1].name, group, function.path, call.at, (), call.at, whole), after)
        entry = self.reaching.get(function, {}).get(call.at)
        if entry is None or depth >= _INLINE:
            return after
        trace: Trace | None = None
        targets = sorted(entry[1], key=lambda m: (m.path, m.qualname))
        for manager in (t for t in reversed(targets) if is_managing(t)):
            after = Inlining(manager, call, after).copy(self.trace(manager, depth + 1))
        for target in (t for t in targets if not is_managing(t)):
            inlined = Inlining(target, call, after, partial(self._whole.holds, function)).copy(
                self.trace(target, depth + 1)
            )
            if trace is None or trace is inlined:
                trace = inlined
            else:
                # which override runs depends on the object, and the object is of one class on all ranks
                trace = Fork(Condition(f"the receiver is a {target.qualname}", True, None, ()), inlined, trace)
        return trace if trace is not None else after

    def possible(self, function: Method, call: Call) -> list[Op]:
        """The collectives that a call may issue, each once, in the order in which a reader meets them."""
        found: dict[tuple[str, At], Op] = {}
        stack: list[Trace] = [self.after_call(function, call, NEXT, 0)]
        seen: set[int] = set()
        while stack:
            trace = stack.pop()
            if isinstance(trace, End) or id(trace) in seen:
                continue
            seen.add(id(trace))
            if isinstance(trace, Step):
                found.setdefault((trace.op.path, trace.op.at), trace.op)
                stack.append(trace.rest)
            elif isinstance(trace, Repeat):
                stack += [trace.rest, trace.body]
            else:
                likely = trace.likely()
                stack += [trace.no, trace.yes] if likely is None else [likely]
        return list(found.values())


class Loop(NamedTuple):
    """The loop around a statement: what follows it, and whether another iteration would issue collectives."""

    after: Trace
    repeats: tuple[Op, ...]


class Tracer:
    """Builds the trace of one function, statement by statement from the last to the first."""

    def __init__(self, effects: Effects, function: Method, depth: int = 0) -> None:
        self.effects = effects
        self.function = function
        self.depth = depth
        rows = {**effects.direct.get(function, {}), **effects.reaching.get(function, {})}
        self.calls = {(at[0], at[1], at[2], at[3]): row[0] for at, row in rows.items()}
        self.places = {(at[0], at[2]) for at in self.calls}
        self.forks: list[tuple[ast.AST, Fork, Loop | None]] = []
        self.loops: list[tuple[ast.AST, Repeat]] = []

    def block(self, body: list[ast.stmt], after: Trace, loop: Loop | None = None) -> Trace:
        trace = after
        for node in reversed(body):
            trace = self.statement(node, trace, loop)
        return trace

    def statement(self, node: ast.stmt, after: Trace, loop: Loop | None) -> Trace:
        if isinstance(node, ast.If):
            return self.expression(
                node.test,
                self.fork(
                    node,
                    node.test,
                    self.block(node.body, after, loop),
                    self.block(node.orelse, after, loop),
                    loop,
                ),
            )
        if isinstance(node, ast.For | ast.AsyncFor):
            return self.expression(node.iter, self.repeat(node, node.body, self.block(node.orelse, after, loop)))
        if isinstance(node, ast.While):
            return self.repeat(node, node.body, self.block(node.orelse, after, loop), node.test)
        if isinstance(node, ast.With | ast.AsyncWith):
            trace = self.block(node.body, after, loop)
            for item in reversed(node.items):
                trace = self.expression(item.context_expr, trace)
            return trace
        if isinstance(node, ast.Try) or type(node).__name__ == "TryStar":
            after = self.block(node.finalbody, after, loop)  # type: ignore[attr-defined]
            return self.block(node.body, self.block(node.orelse, after, loop), loop)  # type: ignore[attr-defined]
        if isinstance(node, ast.Return):
            return self.expression(node.value, RETURN) if node.value is not None else RETURN
        if isinstance(node, ast.Raise):
            return RAISE
        if isinstance(node, ast.Break):
            return BREAK
        if isinstance(node, ast.Continue):
            return NEXT
        if isinstance(node, ast.Match):
            trace = after
            for case in reversed(node.cases):
                trace = self.fork(case.pattern, node.subject, self.block(case.body, after, loop), trace, loop)
            return trace
        if isinstance(
            node,
            ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef | ast.Import | ast.ImportFrom | ast.Pass,
        ):
            return after
        if _exits(node):
            return RAISE
        return self.expression(node, after)

    def fork(self, node: ast.AST, test: ast.expr, yes: Trace, no: Trace, loop: Loop | None) -> Trace:
        if yes is no:
            return yes
        alone = _alone(test)
        if alone is not None:
            # one process alone waits for nobody: what it does there is compared with nothing
            return no if alone else yes
        condition = self.effects.taints.condition(test, self.function)
        if condition.taint is None and isinstance(test, ast.BoolOp):
            return self._parts(test.values, isinstance(test.op, ast.And), yes, no)
        fork = Fork(condition, yes, no)
        self.forks.append((node, fork, loop))
        return fork

    def _parts(self, values: list[ast.expr], conjunction: bool, yes: Trace, no: Trace) -> Trace:
        """A test that all ranks share, part by part: a caller may know one of them."""
        trace = yes if conjunction else no
        for value in reversed(values):
            condition = self.effects.taints.condition(value, self.function)
            trace = Fork(condition, trace, no) if conjunction else Fork(condition, yes, trace)
        return trace

    def repeat(self, node: ast.AST, body: list[ast.stmt], after: Trace, test: ast.expr | None = None) -> Trace:
        if not self._has_calls(node):
            # no collective inside: the loop matters only where it leaves the function, which forks inside show
            self.block(body, NEXT, Loop(after, ()))
            return after
        ops = self._ops_in(node)
        trace = self.block(body, NEXT, Loop(after, tuple(ops)))
        repeat = Repeat(self.expression(test, trace) if test is not None else trace, after)
        self.loops.append((node, repeat))
        return repeat

    def _has_calls(self, node: ast.AST) -> bool:
        first, last = node.lineno, node.end_lineno  # type: ignore[attr-defined]
        return any(first <= line and end <= last for line, end in self.places)

    def _ops_in(self, node: ast.AST) -> list[Op]:
        first, last = node.lineno, node.end_lineno  # type: ignore[attr-defined]
        inside = [c for at, c in sorted(self.calls.items()) if first <= at[0] and at[2] <= last]
        return [op for call in inside for op in self.effects.possible(self.function, call)]

    def expression(self, node: ast.AST, after: Trace) -> Trace:
        """The collectives of an expression in the order of evaluation, before `after`."""
        if not self._has_calls_near(node):
            return after
        if isinstance(node, ast.Lambda | ast.FunctionDef):
            return after
        if isinstance(node, ast.IfExp):
            fork = self.fork(
                node, node.test, self.expression(node.body, after), self.expression(node.orelse, after), None
            )
            return self.expression(node.test, fork)
        if isinstance(node, ast.BoolOp):
            return self._bool_op(node.values, isinstance(node.op, ast.And), after)
        if isinstance(node, ast.ListComp | ast.SetComp | ast.GeneratorExp | ast.DictComp):
            element = node.value if isinstance(node, ast.DictComp) else node.elt
            body = self.expression(element, NEXT)
            trace = Repeat(body, after) if body is not NEXT else after
            if isinstance(trace, Repeat) and trace is not after:
                self.loops.append((node, trace))
            return self.expression(node.generators[0].iter, trace)
        trace = after
        if isinstance(node, ast.Call | ast.Attribute):
            trace = self._call(node, trace)
        for child in reversed(list(ast.iter_child_nodes(node))):
            trace = self.expression(child, trace)
        return trace

    def _bool_op(self, values: list[ast.expr], conjunction: bool, after: Trace) -> Trace:
        first, *rest = values
        if not rest:
            return self.expression(first, after)
        more = self._bool_op(rest, conjunction, after)
        if more is after:
            return self.expression(first, after)
        fork = self.fork(first, first, more if conjunction else after, after if conjunction else more, None)
        return self.expression(first, fork)

    def _has_calls_near(self, node: ast.AST) -> bool:
        if not hasattr(node, "lineno"):
            return any(self._has_calls_near(child) for child in ast.iter_child_nodes(node))
        return self._has_calls(node)

    def _call(self, node: ast.Call | ast.Attribute, after: Trace) -> Trace:
        key = self._at(node)
        call = self.calls.get(key)
        return after if call is None else self.effects.after_call(self.function, call, after, self.depth)

    def _at(self, node: ast.expr) -> At:
        text = self.function.module.source_text
        return text.at(node)


def _alone(test: ast.expr) -> bool | None:
    """Whether a test holds (True) or fails (False) only in a job of one process; None where it says nothing of it."""
    parts = test.values if isinstance(test, ast.BoolOp) else [test]
    for part in parts:
        text, positive = normal(part)
        if _ALONE.search(text) and (len(parts) == 1 or positive is isinstance(getattr(test, "op", None), ast.And)):
            return positive
    return None


def _exits(node: ast.stmt) -> bool:
    """`sys.exit(…)` and its like."""
    return (
        isinstance(node, ast.Expr)
        and isinstance(node.value, ast.Call)
        and path_of(node.value.func) in ("sys.exit", "exit", "quit", "os._exit", "os.abort")
    )
