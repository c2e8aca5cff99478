"""What each rank reads for itself: batches, what is computed from them, and what tells something of their contents.

Sizes and shapes do not count, nor does what a collective over the ranks has made equal.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

from validator.analysis.bindings import own_nodes
from validator.analysis.conditions import CONTENTS, Taint
from validator.facts.text import path_of
from validator.project import Method

if TYPE_CHECKING:
    from validator.analysis.taint import Taints

# names that public trainers give to what each rank reads for itself, as variables and as keys
BATCH_NAMES = frozenset({
    "batch", "batches", "inputs", "images", "image", "videos", "video", "pixel_values", "pixel_values_videos",
    "input_ids", "attention_mask", "labels", "sequences", "micro_batch", "mini_batch", "experience", "experiences",
    "samples", "multi_modal_inputs", "multimodal_inputs", "unfinished_sequences", "next_tokens", "loss_mask",
    "response_mask", "completion_mask", "token_level_scores", "token_level_rewards",
})  # fmt: skip
# of the names, what a sample may lack altogether: absent on the ranks whose batch holds none
OPTIONAL_DATA = frozenset({
    "images", "image", "videos", "video", "pixel_values", "pixel_values_videos", "image_grid_thw", "video_grid_thw",
    "multi_modal_inputs", "multimodal_inputs", "audio", "audios",
})  # fmt: skip
# methods and functions whose result tells something of the contents of a tensor
REVEALING = frozenset({
    "item", "tolist", "any", "all", "sum", "max", "min", "mean", "isnan", "isinf", "isfinite", "count_nonzero",
})  # fmt: skip
LIBRARIES = ("torch.", "math.", "numpy.")
_LOADER = re.compile(r"data_?loader|\b_?(train_|eval_)?(loader|data_iter(ator)?)\b|\btrain_iter\b", re.IGNORECASE)
_LOSS = re.compile(r"(^|_)loss$")
_ALIKE = re.compile(
    r"norm|grad|found_inf|global|total|reduced|synced|world|avg|mean|step|epoch|num_|count", re.IGNORECASE
)
_REDUCING = re.compile(
    r"reduce|gather|broadcast|synchron|all_to_all|forward_backward|train_batch|schedule|dist_mean|dist_max|dist_sum",
    re.IGNORECASE,
)
# asked of data these say what all ranks agree on: how large they are, of which kind
_OUTER = frozenset({"size", "shape", "dim", "ndim", "dtype", "device", "numel", "stride", "config", "meta_info"})
_ASKING = frozenset({"len", "isinstance", "type", "hasattr", "id", "range", "print"})
# functions that return as many elements as the data have of some kind
_SELECTING = frozenset({"nonzero", "masked_select", "argwhere"})
_BATCH = re.compile(r"(^|_)(batch|rollout_data|experience|sample|inputs)$")
_DEPTH = 6
_CALLEES = 2  # calls into which a reduction is looked for


class _Source(NamedTuple):
    """What a name is bound to; of a loop its iterable."""

    value: ast.expr
    is_loop: bool


class OwnData:
    """Answers for the taints of one project, remembered."""

    def __init__(self, taints: Taints) -> None:
        self.taints = taints
        self._sources: dict[Method, dict[str, list[_Source]]] = {}
        self._known: dict[tuple[Method, str], bool] = {}
        self._reducing: dict[Method, bool] = {}
        self._depth = 0

    def revealed(self, node: ast.Call, dotted: str, function: Method) -> Taint | None:
        """The taint of a call such as `x.sum()` or `torch.isfinite(x)`, which tells of the contents of a tensor."""
        name = path_of(node.func).rpartition(".")[2]
        if name not in REVEALING:
            return None
        if dotted.startswith(LIBRARIES):
            return self.content(node.args[0], function) if node.args else None
        return self.content(node.func.value, function) if isinstance(node.func, ast.Attribute) else None

    def content(self, node: ast.expr, function: Method) -> Taint | None:
        """The taint of the contents of an expression: that of the first name that holds data of this rank."""
        inner: ast.expr = node
        while isinstance(inner, ast.Call) and isinstance(inner.func, ast.Attribute):  # `all_reduce(x).cpu().item()`
            if self.taints.reductions.gives_equal(inner, function):
                return None
            inner = inner.func.value if not inner.args else inner.func
        for name in _names(node):
            if self._named(function, name) or self.holds(function, name):
                return _own(name)
            taint = self.taints.path(function, name)
            if taint is not None:
                return taint
        return None

    def loss(self, node: ast.Compare, function: Method) -> Taint | None:
        """The taint of a comparison of the loss of this rank's batch, such as `loss > 10`."""
        for side in (node.left, *node.comparators):
            if isinstance(side, ast.Name) and _LOSS.search(side.id) and self.holds(function, side.id):
                return _own(side.id)
        return None

    def values(self, function: Method, name: str) -> list[ast.expr]:
        """What a function binds a name to; nothing for what a loop binds."""
        sources = self._bound(function).get(name, [])
        return [] if any(source.is_loop for source in sources) else [source.value for source in sources]

    def _named(self, function: Method, name: str) -> bool:
        return (name in BATCH_NAMES or name.endswith("]")) and not self.taints.reductions.equal(
            function, name.partition("[")[0]
        )

    def holds(self, function: Method, name: str) -> bool:
        """Whether a name holds what this rank read, or computed from it, and nothing reduced over the ranks."""
        key = (function, name)
        if key not in self._known:
            self._known[key] = False  # a cycle adds nothing
            if self._depth < _DEPTH:
                self._depth += 1
                self._known[key] = self._holds(function, name)
                self._depth -= 1
        return self._known[key]

    def _holds(self, function: Method, name: str) -> bool:
        if _ALIKE.search(name) or self.taints.reductions.equal(function, name):
            return False
        sources = self._bound(function).get(name, ())
        if any(self._reduces(function, source.value) for source in sources):
            return False
        if any(self._is_own(function, source) for source in sources):
            return True
        if sources or not any(p.name == name for p in function.facts.params):
            return False
        passed = self.taints.project.types.passed(function, name)
        return any(self._is_own_argument(caller, path) for caller, path in passed)

    def _is_own_argument(self, caller: Method, path: str) -> bool:
        """Whether what a call is given, a path or the result of another call, is this rank's own."""
        if not path.endswith("()"):
            return "(" not in path and self._is_own_path(caller, path)
        target = path.removesuffix("()")
        if _REDUCING.search(target) or target.rpartition(".")[2] in _ASKING | _OUTER:
            return False
        calls = [call for call in caller.facts.calls if call.target == target]
        reached = (each for call in calls for each in self.taints.project.types.targets(caller, call))
        given = any(self._is_own_path(caller, a.value) for call in calls for a in call.args if a.kind == "path")
        return given and not any(self._function_reduces(each, _CALLEES) for each in reached)

    def _is_own_path(self, function: Method, path: str) -> bool:
        parts = re.split(r"[.\[]", path)
        if _OUTER.intersection(parts[1:]):
            return False
        return self._named(function, parts[0]) or self.holds(function, parts[0])

    def _is_own(self, function: Method, source: _Source) -> bool:
        value = source.value
        if source.is_loop and _LOADER.search(ast.unparse(value)):
            return True
        if isinstance(value, ast.Call) and path_of(value.func) == "next" and value.args:
            return bool(_LOADER.search(ast.unparse(value.args[0])))
        return any(self._named(function, name) or self.holds(function, name) for name in _names(value))

    def _reduces(self, function: Method, value: ast.expr) -> bool:
        """Whether a value comes out of something that makes it equal on the ranks."""
        for call in ast.walk(value):
            if isinstance(call, ast.Call):
                if _REDUCING.search(path_of(call.func)):
                    return True
                fact = self.taints.fact(call, function)
                reached = self.taints.project.types.targets(function, fact) if fact is not None else []
                if any(self._function_reduces(each, _CALLEES) for each in reached):
                    return True
        return False

    def _function_reduces(self, function: Method, depth: int) -> bool:
        if function not in self._reducing:
            self._reducing[function] = False
            types = self.taints.project.types
            self._reducing[function] = any(
                _REDUCING.search(call.target)
                or (depth and any(self._function_reduces(each, depth - 1) for each in types.targets(function, call)))
                for call in function.facts.calls
            )
        return self._reducing[function]

    def _bound(self, function: Method) -> dict[str, list[_Source]]:
        if function not in self._sources:
            found: dict[str, list[_Source]] = {}
            node = function.node
            for each in own_nodes(node) if node is not None else ():
                for name, source in _bindings(each):
                    found.setdefault(name, []).append(source)
            self._sources[function] = found
        return self._sources[function]


def _own(name: str) -> Taint:
    return Taint("local", "", CONTENTS, name)


def _names(node: ast.AST) -> Iterator[str]:
    """The names of which the contents matter in an expression: not those asked for a size, nor what indexes."""
    if isinstance(node, ast.Name):
        yield node.id
    elif isinstance(node, ast.Attribute):
        if node.attr not in _OUTER:
            yield from _names(node.value)
    elif isinstance(node, ast.Subscript):
        if (
            isinstance(node.slice, ast.Constant)
            and node.slice.value in BATCH_NAMES
            and isinstance(node.value, ast.Name)
        ):
            yield f"{node.value.id}[{node.slice.value!r}]"
        yield from _names(node.value)
    elif isinstance(node, ast.Call):
        if isinstance(node.func, ast.Attribute):
            yield from _names(node.func)
        if path_of(node.func).rpartition(".")[2] not in _ASKING | _OUTER:
            for argument in (*node.args, *(k.value for k in node.keywords)):
                yield from _names(argument)
    elif not isinstance(node, ast.Lambda):
        for child in ast.iter_child_nodes(node):
            yield from _names(child)


def _bindings(node: ast.AST) -> Iterator[tuple[str, _Source]]:
    """The names that a statement, or a part of a comprehension, binds."""
    if isinstance(node, ast.Assign):
        for target in node.targets:
            yield from _pairs(target, node.value, False)
    elif isinstance(node, ast.AnnAssign | ast.AugAssign | ast.NamedExpr) and node.value is not None:
        yield from _pairs(node.target, node.value, False)
    elif isinstance(node, ast.For | ast.AsyncFor | ast.comprehension):
        header, target = node.iter, node.target
        if isinstance(header, ast.Call) and path_of(header.func) == "enumerate" and isinstance(target, ast.Tuple):
            target = target.elts[-1]  # the first is a number that counts alike on all ranks
        yield from _pairs(target, header, True)


def _pairs(target: ast.expr, value: ast.expr, is_loop: bool) -> Iterator[tuple[str, _Source]]:
    if isinstance(target, ast.Tuple | ast.List):
        parts = [value] * len(target.elts)
        if isinstance(value, ast.Tuple | ast.List) and len(value.elts) == len(target.elts) and not is_loop:
            parts = value.elts
        for each, part in zip(target.elts, parts, strict=True):
            yield from _pairs(each, part, is_loop)
    elif isinstance(target, ast.Name):
        yield target.id, _Source(value, is_loop)


def absent(node: ast.expr, function: Method) -> Taint | None:
    """The taint of `x is None` where x is a parameter that some ranks' samples lack: `images`."""
    if (
        isinstance(node, ast.Name)
        and node.id in OPTIONAL_DATA
        and any(p.name == node.id for p in function.facts.params)
    ):
        return Taint("local", "", "", node.id)
    return None


def is_optional_entry(node: ast.Call, function: Method) -> bool:
    """`batch.get("log_probs")`, `map(batch.get, …)`: an entry that the batches of some ranks may lack."""
    getter = node.args[0] if isinstance(node.func, ast.Name) and node.args else node.func
    if not (isinstance(getter, ast.Attribute) and getter.attr == "get" and isinstance(getter.value, ast.Name)):
        return False
    owner = getter.value.id
    return bool(_BATCH.search(owner)) and any(p.name == owner for p in function.facts.params)


def selects(value: ast.expr) -> bool:
    """Whether the length of a value depends on what the data of this rank hold: `mask.nonzero()`, `x[x > 0]`."""
    if isinstance(value, ast.Call):
        name = path_of(value.func).rpartition(".")[2]
        return name in _SELECTING or (name == "where" and len(value.args) == 1)
    if isinstance(value, ast.Subscript):
        return isinstance(value.slice, ast.Compare)
    if isinstance(value, ast.ListComp) and len(value.generators) == 1:
        source = path_of(value.generators[0].iter)
        return bool(value.generators[0].ifs) and (source in BATCH_NAMES or bool(_BATCH.search(source)))
    return False
