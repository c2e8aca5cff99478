"""What a statement calls, and the conditions and contexts that stand around it."""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterator

from validator.domains.axes import of_parallelism
from validator.drift.change import Pair
from validator.drift.statements.differences import Edit, Statement, header, in_head
from validator.flow.program.unit import Unit

CONTEXTS = (ast.With, ast.AsyncWith)
BRANCHES = ("if ", "orelse of if ", "except ", "case ")
_MODES = frozenset({"fsdp", "fsdp1", "fsdp2", "ddp", "deepspeed", "zero", "zero3", "tp", "cp", "sp", "pp", "ep"})
_SEVERAL = frozenset({"initialized", "distributed"})
_REPORTS = frozenset({"print", "logger", "logging", "warnings", "log", "info", "warning", "debug"})
RANKS = frozenset({"rank", "initialized", "process", "main", "primary", "master", "distributed", "leader"})


def called(node: ast.stmt) -> ast.Call | None:
    """The call that a statement is: its result is dropped, or it is a context."""
    if isinstance(node, CONTEXTS):
        value: ast.expr = node.items[0].context_expr
    elif isinstance(node, ast.Expr):
        value = node.value
    else:
        return None
    if isinstance(value, ast.Await):
        value = value.value
    return value if isinstance(value, ast.Call) else None


def last_name(node: ast.expr) -> str:
    """The last name of what is called; of `f.remote` and `f.options(…)` that of f."""
    if isinstance(node, ast.Attribute):
        if node.attr in ("remote", "options"):
            return last_name(node.value)
        return node.attr
    if isinstance(node, ast.Call):
        return last_name(node.func)
    return node.id if isinstance(node, ast.Name) else ""


def name_of_call(statement: Statement) -> str:
    call = called(statement.node)
    return last_name(call.func) if call is not None else ""


def called_names(unit: Unit, *ops: str) -> Counter[str]:
    """How often a unit calls something by each name; `ops`: of values (`attr`) or by itself (`name`), else both."""
    code = unit.code
    callees = (code.values[v.args[0]] for v in code.values if v.op == "call")
    rows = (callee for callee in callees if callee.op in (ops or ("attr", "name", "closure")))
    return Counter(str(row.data).rpartition(".")[2] for row in rows)


def taken(node: ast.stmt) -> set[str]:
    """The last names of what a statement calls on its own lines, for their results."""
    return set() if isinstance(node, CONTEXTS) else names_called(node)


def names_called(node: ast.stmt) -> set[str]:
    """The last names of all that a statement calls on its own lines."""
    return {last_name(n.func) for n in in_head(node) if isinstance(n, ast.Call)}


def factors(node: ast.expr) -> Iterator[ast.expr]:
    """The factors of a product, as they are written."""
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mult):
        yield from factors(node.left)
        yield from factors(node.right)
    else:
        yield node


def is_about_sizes(test: ast.expr) -> bool:
    """Whether a check is of a remainder, or of sizes and ranks of groups."""
    for node in ast.walk(test):
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mod):
            return True
        if isinstance(node, ast.Name | ast.Attribute) and of_parallelism(last_name(node)):
            return True
    return False


def is_about_ranks(test: ast.expr) -> bool:
    """Whether a condition asks which process this is, or whether there are others."""
    names = (last_name(node) for node in ast.walk(test) if isinstance(node, ast.Name | ast.Attribute))
    return any(not RANKS.isdisjoint(name.strip("_").lower().split("_")) for name in names)


def is_about_rank(value: ast.expr) -> bool:
    """Whether an expression has the number of this process in it, by its name."""
    names = (last_name(node) for node in ast.walk(value) if isinstance(node, ast.Name | ast.Attribute))
    return any("rank" in name.strip("_").lower().split("_") for name in names)


def is_alone(test: ast.expr) -> bool:
    """Whether a condition asks whether there are other processes at all, which is the same on all of them; the module
    in `torch.distributed.get_rank()` asks nothing."""
    owners = {id(node.value) for node in ast.walk(test) if isinstance(node, ast.Attribute)}
    nodes = (n for n in ast.walk(test) if isinstance(n, ast.Name | ast.Attribute) and id(n) not in owners)
    return any(not _SEVERAL.isdisjoint(last_name(node).strip("_").lower().split("_")) for node in nodes)


def depth(statement: Statement) -> int:
    """How many branches a statement stands in."""
    return sum(head.startswith(BRANCHES) for head in statement.inside)


def condition(head: str) -> ast.expr | None:
    """The condition of an `if` around a statement, by its first line; None for what is no `if`."""
    return ast.parse(head[3:], mode="eval").body if head.startswith("if ") else None


def conditions(statement: Statement) -> frozenset[str]:
    """What holds where a statement stands; of `if a and b` both parts."""
    found: set[str] = set()
    for head in statement.inside:
        if (test := condition(head)) is not None:
            found.update(ast.unparse(each) for each in conjuncts(test))
        elif head.startswith(BRANCHES):
            found.add(head)
    return frozenset(found)


def names_asked(statement: Statement) -> set[str]:
    """The variables that the conditions around a statement ask."""
    found: set[str] = set()
    for head in statement.inside:
        if (test := condition(head.removeprefix("orelse of "))) is not None:
            found.update(node.id for node in ast.walk(test) if isinstance(node, ast.Name))
    return found


def conjuncts(test: ast.expr) -> Iterator[ast.expr]:
    """The parts of a test all of which must hold."""
    if isinstance(test, ast.BoolOp) and isinstance(test.op, ast.And):
        for each in test.values:
            yield from conjuncts(each)
    else:
        yield test


def is_needed(test: ast.expr, node: ast.stmt) -> bool:
    """Whether a condition only asks whether there is what a statement uses, without which it would raise: `if key in d`
    before `d[key]`, `if x is not None` before `x.step()`."""
    return all(_is_needed(each, node) for each in conjuncts(test))


def _is_needed(test: ast.expr, node: ast.stmt) -> bool:
    parts = list(in_head(node))
    if isinstance(test, ast.Compare) and isinstance(test.ops[0], ast.In):
        items = (n for n in parts if isinstance(n, ast.Subscript))
        wanted = ast.unparse(test.comparators[0]), ast.unparse(test.left)
        return any((ast.unparse(n.value), ast.unparse(n.slice)) == wanted for n in items)
    if isinstance(test, ast.Compare) and ast.unparse(test).endswith(" is not None"):
        test = test.left
    elif isinstance(test, ast.Call) and ast.unparse(test.func) == "hasattr" and len(test.args) == 2:
        owner, name = (ast.unparse(each) for each in test.args)
        return any(
            isinstance(n, ast.Attribute) and (ast.unparse(n.value), repr(n.attr)) == (owner, name) for n in parts
        )
    if not isinstance(test, ast.Name | ast.Attribute | ast.Subscript):
        return False
    owners = [n.value for n in parts if isinstance(n, ast.Attribute | ast.Subscript)]
    owners += [n.func for n in parts if isinstance(n, ast.Call)]
    return ast.unparse(test) in {ast.unparse(each) for each in owners}


def is_less_guarded(old: list[Statement], new: list[Statement], texts: list[str], test: ast.expr) -> bool:
    """Whether some of the statements stand under fewer conditions than before, and not under all of a test: none took
    its place."""
    before, after = (sum(depth(each) for each in rows if each.text in texts) for rows in (old, new))
    parts = {ast.unparse(each) for each in conjuncts(test)}
    still = sum(parts <= conditions(each) for each in new if each.text in texts)
    return after < before and still < len(texts)


def is_guard(node: ast.stmt, old: list[Statement], new: list[Statement], inside: list[str]) -> bool:
    """Whether a statement let only some processes in to what stands in it, which now all of them reach."""
    if not isinstance(node, ast.If) or node.orelse or not is_about_ranks(node.test):
        return False
    return is_less_guarded(old, new, inside, node.test)


def is_mode(statement: Statement, here: set[str]) -> bool:
    """Whether a condition told apart how the model is spread, and only what stood in its other branch is left."""
    node = statement.node
    if not isinstance(node, ast.If) or not node.orelse:
        return False
    names = {last_name(n) for n in ast.walk(node.test) if isinstance(n, ast.Name | ast.Attribute)}
    if not any(not _MODES.isdisjoint(name.lower().split("_")) for name in names):
        return False
    first, other = ([header(each) for each in body] for body in (node.body, node.orelse))
    return here.issuperset(other) and here.isdisjoint(first)


def lets_all_in(statement: Statement, old: list[Statement], new: list[Statement]) -> bool:
    """Whether a condition gave some ranks a constant in place of what the others work out, and all work it out now."""
    node = statement.node
    if not isinstance(node, ast.If) or not node.orelse or not is_about_rank(node.test):
        return False
    if not all(isinstance(each, ast.Assign) and isinstance(each.value, ast.Constant) for each in node.body):
        return False
    other = f"orelse of {statement.text}"
    free = {each.text for each in new if other not in each.inside}
    before, after = (sum(other in each.inside for each in rows) for rows in (old, new))
    return free.issuperset(map(header, node.orelse)) and after < before


def has_other_way(rows: list[Statement], head: str) -> bool:
    """Whether something else happens where a condition does not hold: then there are two ways to do it."""
    return head.startswith("orelse of ") or any(f"orelse of {head}" in each.inside for each in rows)


def exclude(one: Statement, other: Statement) -> bool:
    """Whether two statements stand in the two branches of one condition."""
    pairs = ((one.inside, other.inside), (other.inside, one.inside))
    return any(head.startswith("if ") and f"orelse of {head}" in there for here, there in pairs for head in here)


def goes_with_its_case(statement: Statement, edits: list[Edit]) -> bool:
    """Whether a statement went with the condition under which it stood: a case that is gone. Not one about ranks, nor
    one that only asks whether there is what the statement calls."""
    heads = (edit.old for edit in edits if edit.old is not None and edit.new is None)
    around = [each.node for each in heads if each.text in statement.inside[-1:]]
    tests = (node.test for node in around if isinstance(node, ast.If))
    return any(not is_about_ranks(test) and not _asks_for_callee(test, statement.node) for test in tests)


def _asks_for_callee(test: ast.expr, node: ast.stmt) -> bool:
    """Whether all that a condition asks is whether there is the object whose method a statement calls, whether it has
    the method, and of which class it is."""
    call = called(node)
    if call is None or not isinstance(call.func, ast.Attribute):
        return False
    owner = ast.unparse(call.func.value)
    return all(
        ast.unparse(each).startswith(f"isinstance({owner}, ") or _is_needed(each, node) for each in conjuncts(test)
    )


def knows(old: list[Statement], pair: Pair, test: ast.expr) -> bool:
    """Whether a function had all that a condition asks before: one that it is given since the change says when, on
    purpose."""
    names = {node.id for node in ast.walk(test) if isinstance(node, ast.Name)}
    params = {name for name, _ in pair.old.code.params}
    here = {node.id for each in old for node in ast.walk(each.node) if isinstance(node, ast.Name)}
    return names <= params | here | pair.new.module.facts.names.keys()


def is_report(node: ast.stmt) -> bool:
    """Whether a statement tells people something."""
    return is_told(node) or any(isinstance(n, ast.JoinedStr) for n in ast.walk(own_head(node)))


def is_told(node: ast.stmt) -> bool:
    """Whether a statement calls what tells people something."""
    parts = list(ast.walk(own_head(node)))
    names = {n.attr for n in parts if isinstance(n, ast.Attribute)} | {n.id for n in parts if isinstance(n, ast.Name)}
    return not _REPORTS.isdisjoint(names)


def reports(name: str) -> bool:
    """Whether a function tells people something, by its name."""
    return not _REPORTS.isdisjoint(name.split("_"))


def own_head(node: ast.stmt) -> ast.AST:
    """What a statement computes on its own lines."""
    for name in ("test", "iter"):
        if isinstance(part := getattr(node, name, None), ast.AST):
            return part
    if isinstance(node, ast.With | ast.AsyncWith):
        return ast.Tuple([item.context_expr for item in node.items], ast.Load())
    return node if not hasattr(node, "body") else ast.Pass()
