"""Small edits that take something away from a formula or a call, and that nothing else in the change explains."""

from __future__ import annotations

import ast
from functools import cached_property

from validator.definitions import External
from validator.domains.axes import LOCAL, axes_of, of_parallelism
from validator.drift.change import Change, Pair, Side
from validator.drift.interfaces.calls import annotated, constructor
from validator.drift.statements.differences import Edit, alike_syntax, in_head, node_of
from validator.drift.statements.drops import WHO, Drop, Drops
from validator.drift.statements.intention import Intention, words_of
from validator.drift.statements.named_effects import collective, tables
from validator.drift.statements.surroundings import condition, factors, is_about_rank, last_name
from validator.finding import Severity
from validator.flow.queries.outside_program import is_test
from validator.models import models

_WRAPPING = frozenset({
    "detach", "full_tensor", "to_local", "max", "min", "unwrap_model", "ceil", "wait",
})  # fmt: skip
_OF_RANKS = frozenset({"full_tensor", "to_local", "wait", "sorted", "sort", "unwrap_model"})
# Words for models whose parts each rank has for itself.
_SPREAD = frozenset({
    "zero", "zero3", "fsdp", "shard", "shards", "sharded", "sharding", "partition", "partitions", "partitioned", "dcp",
})  # fmt: skip
DEVICES = frozenset({"cuda", "to", "npu", "xpu", "cpu"})


class Weakened:
    """The small edits of a change that are worth a look."""

    def __init__(self, change: Change) -> None:
        self.change = change
        self.intention: Intention = change.analysis(Intention)

    @cached_property
    def drops(self) -> list[tuple[Drop, Severity]]:
        found: dict[tuple[str, int, str, str], tuple[Drop, Severity]] = {}
        drops: Drops = self.change.analysis(Drops)
        small = {id(pair) for pair, *_ in drops.small}
        for drop in drops.drops:
            counts = id(drop.pair) in small and self._is_alone_in(drop) and self._counts(drop)
            if counts and (severity := self._severity(drop)) is not None:
                found.setdefault((drop.pair.new.path, drop.new.lineno, drop.kind, drop.text), (drop, severity))
        return list(found.values())

    def _severity(self, drop: Drop) -> Severity | None:
        """What a small edit is worth."""
        unit = drop.pair.new
        telling = words_of(drop.part, drop.pair.old)
        if isinstance(drop.part, ast.keyword):
            telling = frozenset({drop.part.arg or "", *words_of(drop.part.value, drop.pair.old)})
        elif drop.kind == "call" and isinstance(drop.part, ast.Call):
            telling = frozenset({_called(drop)})
        came = words_of(drop.new, unit) if drop.kind in ("name", "constant") else frozenset()
        if drop.kind == "name":  # what both say tells nothing of why one stands for the other
            telling, came = telling - came, came - telling
        beside = self._beside(drop) if drop.kind == "call" else [drop.edit]
        made = [each for each in self._edits(drop) if each in beside or _holds(each, drop.part)]
        return self.intention.severity(drop.pair, made, telling, came, self._is_about_ranks(drop))

    def _beside(self, drop: Drop) -> list[Edit]:
        """The edit in which a call went, and those of the statements right before and behind it in which the same call
        went: one place."""
        assert isinstance(drop.part, ast.Call)
        rows = self.change.analysis(Drops).drops
        same = {id(each.edit) for each in rows if each.kind == "call" and _called(each) == _called(drop)}
        edits = self._edits(drop)
        here = next(place for place, each in enumerate(edits) if each is drop.edit)
        first = last = here
        while first and _is_next(edits[first - 1], edits[first]) and id(edits[first - 1]) in same:
            first -= 1
        while last + 1 < len(edits) and _is_next(edits[last], edits[last + 1]) and id(edits[last + 1]) in same:
            last += 1
        return edits[first : last + 1]

    def _is_about_ranks(self, drop: Drop) -> bool:
        if drop.kind in ("factor", "element"):
            about = is_parallel(drop.part) or _counts_ranks(drop)
            return about or self._is_number_of_parts(drop) or _is_among_ranks(drop) or _is_sent(drop)
        if drop.kind == "order":
            return False  # what it was may have been the mistake
        if drop.kind == "keyword":
            about = self._is_who(drop) or self._is_own_option(drop) or self._is_of_ranks(drop)
            return about or _is_kind_of_option(drop)
        if drop.kind == "call" and isinstance(drop.part, ast.Call):
            name = last_name(drop.part.func)
            return name in collective() or name in _OF_RANKS or name in DEVICES
        return True

    def _is_number_of_parts(self, drop: Drop) -> bool:
        """Whether a number went by which the rest of the program still multiplies the same number of ranks: each of
        them has two pieces, say."""
        if not isinstance(drop.part, ast.Constant) or not isinstance(drop.part.value, int):
            return False
        rows = [list(factors(node)) for node in ast.walk(drop.old) if isinstance(node, ast.BinOp)]
        left = [each for row in rows if any(each is drop.part for each in row) for each in row]
        names = {last_name(each) for each in left if isinstance(each, ast.Name | ast.Attribute) and is_parallel(each)}
        sources = (source for name in names for source in self.change.after.mentioning(name))
        modules = self.change.after.project.modules
        trees = (each.tree for each in sources if each.absolute in modules and not is_test(each.path))
        products = (node for tree in trees for node in ast.walk(tree) if isinstance(node, ast.BinOp))
        return any(_multiplies(node, names, drop.part.value) for node in products)

    def _is_own_option(self, drop: Drop) -> bool:
        """Whether a keyword of something that the project defines was given an option of the same name."""
        part, call = drop.part, drop.new
        if not isinstance(part, ast.keyword) or not isinstance(call, ast.Call):
            return False
        return last_name(part.value) == part.arg and bool(self._known(self.change.after, last_name(call.func)))

    def _is_of_ranks(self, drop: Drop) -> bool:
        """Whether a keyword told a library that is about ranks what to do, and not only how long to wait."""
        if not isinstance(drop.part, ast.keyword) or not isinstance(drop.new, ast.Call):
            return False
        unit = drop.pair.new
        found = unit.module.project.lookup(unit.scope, ast.unparse(drop.new.func))
        libraries = tables()["libraries"]
        about = isinstance(found, External) and found.path.startswith(tuple(libraries["of_ranks"]))
        return about and drop.part.arg not in libraries["incidental"]

    def _default_instead(self, drop: Drop) -> str | None:
        """The default that holds since a keyword of a function of the project, a constant, is not passed any more."""
        part, call = drop.part, drop.new
        if (
            not isinstance(part, ast.keyword)
            or not isinstance(part.value, ast.Constant)
            or not isinstance(call, ast.Call)
        ):
            return None
        methods = self.change.after.methods.get(last_name(call.func), ())
        params = [param for method in methods for param in method.facts.params if param.name == part.arg]
        said = {param.default for param in params}
        (default,) = said if len(methods) == len(params) == 1 else (None,)
        return default if default not in (None, "None", ast.unparse(part.value)) else None

    def _is_alone_in(self, drop: Drop) -> bool:
        """Whether the rest of a statement is as it was: where more than one thing goes it says something else now.

        Names may be exchanged together."""
        if drop.kind in ("name", "constant"):
            return True
        edits = (each for each in self.change.analysis(Drops).drops if each.edit is drop.edit)
        return len({(each.kind, each.text) for each in edits}) == 1

    def _counts(self, drop: Drop) -> bool:
        kind, part = drop.kind, drop.part
        if kind == "factor":
            return self._is_size(drop)
        if kind == "keyword" and _is_kind_of_option(drop):
            return True
        if kind in ("keyword", "argument"):
            told = self._is_who(drop) or self._is_own_option(drop) or self._is_of_ranks(drop)
            if (called := _lost_several(drop)) and not self._known(self.change.after, called):
                return False  # a library finds out by itself what it was told in several words
            return (told or self._default_instead(drop) is not None) and self._still_takes(drop)
        if kind == "order":  # two names that are unpacked may be called otherwise now
            return isinstance(drop.new, ast.List) or isinstance(drop.new, ast.Call) and self._still_takes(drop)
        if kind == "guard" and (_counts_others(drop) or _is_asked_beside(drop)):
            return True
        if kind in ("operand", "guard"):
            about = is_parallel(part) or _is_about_shards(part) or _leaves_some_ranks(drop)
            return about and not _asks_the_same(drop)
        if kind == "element":
            return isinstance(part, ast.Name) and _is_read_after(drop.pair, part.id, drop.new)
        if kind == "index":
            return is_parallel(part)
        if kind == "await":
            return self._is_lost_coroutine(drop)
        if kind == "constant":
            return is_parallel(drop.old) and _is_said(drop) in WHO
        if kind == "term":
            return self._is_offset(drop) or _names_rank(drop)
        if kind == "call":
            return isinstance(part, ast.Call) and self._is_needed(drop, last_name(part.func))
        if kind == "name" and _leaves_its_guard(drop):
            return True
        return kind == "name" and _other_axes(drop) and not _is_of_device(drop)

    def _is_lost_coroutine(self, drop: Drop) -> bool:
        """Whether what is not awaited any more is a coroutine of the project, which the function gives back or drops:
        who awaits the function gets it, and does not await it again."""
        method, statement = drop.pair.new.method, drop.edit.new
        if method is None or not method.facts.is_async or not isinstance(drop.new, ast.Call) or statement is None:
            return False
        called = [each for each in self.change.after.methods.get(last_name(drop.new.func), ()) if not each.facts.stub]
        if not called or not all(each.facts.is_async and not each.facts.is_generator for each in called):
            return False
        return isinstance(statement.node, ast.Return | ast.Expr) and statement.node.value is drop.new

    def _edits(self, drop: Drop) -> list[Edit]:
        """All edits of the function in which something went."""
        return next(edits for pair, _, _, edits in self.change.analysis(Drops).edited if pair is drop.pair)

    @staticmethod
    def _is_offset(drop: Drop) -> bool:
        """Whether what is no longer added is a place among ranks: a variable made of ranks and sizes of groups, in the
        ranks of a group."""
        function = node_of(drop.pair.new)
        if not isinstance(drop.part, ast.Name) or function is None or drop.edit.new is None:
            return False
        made = [
            each.value
            for each in ast.walk(function)
            if isinstance(each, ast.Assign)
            and any(isinstance(target, ast.Name) and target.id == drop.part.id for target in each.targets)
        ]
        calls = {last_name(n.func) for n in ast.walk(function) if isinstance(n, ast.Call)}
        return any(map(is_parallel, made)) and not calls.isdisjoint(("new_group", "new_subgroups", "DeviceMesh"))

    def _is_needed(self, drop: Drop, name: str) -> bool:
        """Whether a call around a value does what others rely on: ranks agree by it, or a collective needs the value
        where it puts it."""
        if name in ("sorted", "sort"):  # ranks agree in the order by it
            node = node_of(drop.pair.new)
            calls = (n for n in ast.walk(node) if isinstance(n, ast.Call)) if node is not None else ()
            return any(last_name(call.func) in collective() for call in calls)
        return name in _WRAPPING or name in collective() or name in DEVICES and _is_sent(drop)

    def _is_size(self, drop: Drop) -> bool:
        """Whether a formula is about counts: what went, or what is left, is a number or a name of a size."""
        return not any(isinstance(node, ast.JoinedStr) for node in ast.walk(drop.old)) and not _is_text(drop.part)

    def _is_who(self, drop: Drop) -> bool:
        part = drop.part
        if isinstance(part, ast.keyword):
            name = part.arg or ""
            return (
                name in WHO or bool(of_parallelism(name) or of_parallelism(f"{name}_size")) or is_parallel(part.value)
            )
        return is_parallel(part)

    def _still_takes(self, drop: Drop) -> bool:
        """Whether what is called still takes the argument: nothing in the project says otherwise."""
        if not isinstance(drop.new, ast.Call):
            return False
        name = last_name(drop.new.func)
        keyword = drop.part.arg if isinstance(drop.part, ast.keyword) else None
        before, after = (self._known(side, name) for side in (self.change.before, self.change.after))
        if not after:
            return True
        if keyword is None:
            return before == after
        return any(keyword in names or "**" in names for names in after)

    @staticmethod
    def _known(side: Side, name: str) -> list[frozenset[str]]:
        """The parameters of the functions and classes of a name."""
        rows = [m.facts.params for m in side.methods.get(name, ())]
        made = {cls: constructor(cls) for cls in side.project.classes() if cls.name == name}
        rows += [params for params in made.values() if params is not None]
        found = [frozenset(p.name if p.kind != "**" else "**" for p in params) for params in rows]
        return found + [fields for cls, params in made.items() if params is None and (fields := annotated(cls))]


def _is_among_ranks(drop: Drop) -> bool:
    """Whether one of several variables went that a call takes, which gives them back, and is told of ranks or groups:
    each rank's part of them, say."""
    node = drop.edit.new.node if drop.edit.new is not None else None
    call = node.value if isinstance(node, ast.Assign) and drop.kind == "element" else None
    return isinstance(call, ast.Call) and any(map(is_parallel, call.args))


def _lost_several(drop: Drop) -> str:
    """What a call runs that lost more than one argument; empty for other edits."""
    if not isinstance(drop.old, ast.Call) or not isinstance(drop.new, ast.Call):
        return ""
    return last_name(drop.new.func) if len(drop.old.keywords) - len(drop.new.keywords) > 1 else ""


def _is_about_shards(part: ast.AST) -> bool:
    """Whether an expression compares how a model is spread over the ranks with a text that says it."""
    texts = [n.value for n in ast.walk(part) if isinstance(n, ast.Constant) and isinstance(n.value, str)]
    said = any(not _SPREAD.isdisjoint(each.lower().replace("-", "_").split("_")) for each in texts)
    return said and isinstance(part, ast.Compare)


def _names_rank(drop: Drop) -> bool:
    """Whether a text that is put together told ranks apart by what went."""
    texts = any(isinstance(n, ast.Constant) and isinstance(n.value, str) for n in ast.walk(drop.old))
    node = drop.edit.new.node if drop.edit.new is not None else drop.new
    if any(isinstance(n, ast.keyword) and n.arg == "checkpoint_id" for n in ast.walk(node)):
        return False  # one folder, which all ranks name alike (torch.distributed.checkpoint)
    return texts and isinstance(drop.part, ast.expr) and is_about_rank(drop.part)


def _multiplies(node: ast.BinOp, names: set[str], number: int) -> bool:
    """Whether a product is of one of some numbers of ranks, by their names, and a constant."""
    parts = list(factors(node)) if isinstance(node.op, ast.Mult) else []
    constant = any(isinstance(each, ast.Constant) and each.value == number for each in parts)
    return constant and any(isinstance(each, ast.Name | ast.Attribute) and last_name(each) in names for each in parts)


def _called(drop: Drop) -> str:
    """The name of the call that went."""
    return last_name(drop.part.func) if isinstance(drop.part, ast.Call) else ""


def _is_next(edit: Edit, other: Edit) -> bool:
    """Whether a statement that was edited stood right before another one."""
    if edit.old is None or other.old is None:
        return False
    last = edit.old.node.end_lineno or edit.old.node.lineno
    return edit.old.inside == other.old.inside and last + 1 == other.old.node.lineno


def _holds(edit: Edit, part: ast.AST) -> bool:
    """Whether a piece of syntax stood in the statement that an edit took away."""
    return edit.old is not None and any(node is part for node in in_head(edit.old.node))


def _asks_the_same(drop: Drop) -> bool:
    """Whether another operand asks the same of the same axes in place of the one that went: `cp_group.size() > 1`."""
    if not isinstance(drop.old, ast.BoolOp) or not isinstance(drop.new, ast.BoolOp):
        return False
    known = {ast.dump(each) for each in drop.old.values}
    came = [each for each in drop.new.values if ast.dump(each) not in known]
    old, new = drop.part, came[0] if len(came) == 1 else None
    if not isinstance(old, ast.Compare) or not isinstance(new, ast.Compare):
        return False
    if [type(op) for op in old.ops] != [type(op) for op in new.ops]:
        return False
    if list(map(ast.dump, old.comparators)) != list(map(ast.dump, new.comparators)):
        return False
    before, after = (_axes_named(each.left) for each in (old, new))
    return bool(before) and before == after


def _is_kind_of_option(drop: Drop) -> bool:
    """Whether an option of a program is no longer said to be a number: its value is a text since, and `nargs` or a
    default that is no text say that code expects none."""
    part, call = drop.part, drop.new
    if not isinstance(part, ast.keyword) or part.arg != "type" or not isinstance(call, ast.Call):
        return False
    number = isinstance(part.value, ast.Name) and part.value.id in ("int", "float")
    return number and last_name(call.func) == "add_argument" and all(k.arg != "action" for k in call.keywords)


def _leaves_some_ranks(drop: Drop) -> bool:
    """Whether a condition let in one rank, and all of them in a case that went: `rank == 0 or engine.is_sharded()`."""
    if not isinstance(drop.old, ast.BoolOp) or not isinstance(drop.old.op, ast.Or) or isinstance(drop.new, ast.BoolOp):
        return False
    spread = any(_SPREAD & set(name.lower().split("_")) for name in words_of(drop.part, drop.pair.old))
    return spread and isinstance(drop.new, ast.Compare) and is_about_rank(drop.new)


def _counts_others(drop: Drop) -> bool:
    """Whether of two values one went that speaks of other ranks than the one that is left."""
    gone = _alternative(drop)
    return gone is not None and is_parallel(gone) and _axes_named(gone) != _axes_named(drop.new)


def _alternative(drop: Drop) -> ast.expr | None:
    """What stood for the value that is left where the condition went that chose between both."""
    if not isinstance(drop.old, ast.IfExp):
        return None
    return drop.old.orelse if alike_syntax(drop.old.body, drop.new) else drop.old.body


def _is_asked_beside(drop: Drop) -> bool:
    """Whether the same option is still asked, as the whole of a condition, elsewhere in the class or file: what is made
    or read there goes with what was chosen here."""
    if not isinstance(drop.part, ast.Attribute) or not isinstance(drop.old, ast.IfExp):
        return False
    source = drop.pair.new.module.source
    asked = (each.test for each in ast.walk(source.tree) if isinstance(each, ast.If | ast.IfExp))
    rows = (ast.unparse(each).removeprefix("self.") for each in asked)
    return ast.unparse(drop.part).removeprefix("self.") in rows


def _axes_named(node: ast.expr) -> frozenset[str]:
    """The axes of parallelism of which the names in an expression speak."""
    names = (last_name(each) for each in ast.walk(node) if isinstance(each, ast.Name | ast.Attribute))
    return frozenset(axis for name in names for axis in of_parallelism(name))


def _is_of_device(drop: Drop) -> bool:
    """Whether what changed says which device is meant: there the number within a host is right."""
    node = drop.edit.new.node if drop.edit.new is not None else None
    for call in (n for n in ast.walk(node) if isinstance(n, ast.Call)) if node is not None else ():
        given = [*call.args, *(keyword.value for keyword in call.keywords)]
        inside = any(drop.new is part for each in given for part in ast.walk(each))
        said = {last_name(call.func), *(keyword.arg or "" for keyword in call.keywords)}
        if inside and any("device" in name or name == "cuda" for name in said):
            return axes_of(last_name(drop.new)) >= {LOCAL}
    return False


def _is_said(drop: Drop) -> str:
    """The keyword by which a call is given what changed; empty where it is not by keyword."""
    node = drop.edit.new.node if drop.edit.new is not None else None
    calls = (n for n in ast.walk(node) if isinstance(n, ast.Call)) if node is not None else ()
    return next((k.arg or "" for call in calls for k in call.keywords if k.value is drop.new), "")


def _is_sent(drop: Drop) -> bool:
    """Whether the statement gives its value to a variable that a collective is handed."""
    node, function = drop.edit.new.node if drop.edit.new is not None else None, node_of(drop.pair.new)
    if not isinstance(node, ast.Assign) or function is None:
        return False
    names = {target.id for target in node.targets if isinstance(target, ast.Name)}
    for call in (n for n in ast.walk(function) if isinstance(n, ast.Call) and last_name(n.func) in collective()):
        given = [*call.args, *(keyword.value for keyword in call.keywords)]
        if any(isinstance(each, ast.Name) and each.id in names for each in given):
            return True
    return False


def _is_text(part: ast.AST) -> bool:
    return isinstance(part, ast.Constant) and isinstance(part.value, str)


def is_parallel(part: ast.AST) -> bool:
    """Whether an expression speaks of ranks, groups or sizes of the axes of parallelism."""
    for node in ast.walk(part):
        name = last_name(node) if isinstance(node, ast.Name | ast.Attribute) else ""
        if name and (of_parallelism(name) or name in WHO - {"op"} or _is_rank(name) or _is_number_of_ranks(name)):
            return True
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and of_parallelism(f"{node.value}_size"):
            return True
    return False


def _counts_ranks(drop: Drop) -> bool:
    """Whether what went is a library's count of processes or devices: `torch.cuda.device_count()`."""
    unit, rows = drop.pair.old, models().calls
    calls = (node for node in ast.walk(drop.part) if isinstance(node, ast.Call))
    found = (unit.module.project.lookup(unit.scope, ast.unparse(call.func)) for call in calls)
    return any(isinstance(each, External) and each.path in rows and rows[each.path].counts for each in found)


def _leaves_its_guard(drop: Drop) -> bool:
    """Whether a member of an enumeration stands in place of the one that the condition right around still asks for."""
    new, old = drop.edit.new, drop.old
    if new is None or not isinstance(old, ast.Attribute) or not isinstance(drop.new, ast.Attribute) or not new.inside:
        return False
    if not (old.attr.isupper() and drop.new.attr.isupper()) or ast.dump(old.value) != ast.dump(drop.new.value):
        return False
    head = new.inside[-1]
    test = condition(head)
    asked = {ast.unparse(n) for n in ast.walk(test)} if test is not None else set()
    return ast.unparse(old) in asked and ast.unparse(drop.new) not in asked


def _is_number_of_ranks(name: str) -> bool:
    return bool(axes_of(name)) and _is_count(name)


def _is_rank(name: str) -> bool:
    """Whether a name is that of a process's number, and not of the rank of a matrix."""
    words = name.strip("_").lower().split("_")
    return "rank" in words and _OF_MATRICES.isdisjoint(words) or bool(axes_of(name)) and "rank" in name


def _other_axes(drop: Drop) -> bool:
    """Whether a size, rank or group of some axes stands in place of that of others."""
    old, new = last_name(drop.old), last_name(drop.new)
    if old == new:
        return _is_of_other_group(drop)
    before, after = axes_of(old), axes_of(new)
    if before == after or not (_is_count(old) and _is_count(new)):
        return False
    # an axis more is mostly one that was forgotten; the number within a host in place of that of all is not
    return bool(before - after) or LOCAL in after - before


def _is_of_other_group(drop: Drop) -> bool:
    """Whether the rank or size of one group of an object stands in place of that of another: `meshes.dp.rank` for
    `meshes.replicas.rank`."""
    if not isinstance(drop.old, ast.Attribute) or not isinstance(drop.new, ast.Attribute):
        return False
    one, other = drop.old.value, drop.new.value
    if not isinstance(one, ast.Attribute) or not isinstance(other, ast.Attribute) or not _is_count(drop.new.attr):
        return False
    known = any(axes_of(f"{each.attr}_{drop.new.attr}") for each in (one, other))
    return known and one.attr != other.attr and ast.dump(one.value) == ast.dump(other.value)


_OF_MATRICES = frozenset({"lora", "low", "adapter", "kv", "q", "tucker"})
_COUNTS = frozenset({"rank", "size", "group", "world", "degree", "index", "mesh", "replicas", "pg"})


def _is_count(name: str) -> bool:
    return not _COUNTS.isdisjoint(name.strip("_").lower().split("_"))


def _is_read_after(pair: Pair, name: str, place: ast.expr) -> bool:
    """Whether a name is read further down in the new function."""
    node = node_of(pair.new)
    if node is None:
        return False
    last = place.end_lineno or place.lineno
    names = (n for n in ast.walk(node) if isinstance(n, ast.Name) and n.id == name and isinstance(n.ctx, ast.Load))
    return any(n.lineno > last for n in names)
