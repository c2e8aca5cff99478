"""Sizes as products of parallel dimensions: what a number of ranks, samples or batches is made of.

A size is a multiset of factors above and below a fraction bar, each with a tag: `world`, `dp`, `cp` (ring, Ulysses,
context and sequence parallelism), `tp`, `pp`, `ep`, `nodes` and `gpus` (whose product is the world), `micro`,
`batch`, `samples`, `length`, `heads`, `width` (of a layer or a vocabulary). Names, attributes, arguments and results
are followed to the formula that gives them their value; what stays is tagged by the name that the field uses for it.
The empty tag says nothing.
"""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Sequence
from functools import cached_property
from typing import NamedTuple

from validator.analysis.bindings import Bindings
from validator.analysis.interfaces.binding import bind
from validator.analysis.sizes.meshes import Meshes
from validator.domains.axes import MODEL_PARALLEL
from validator.facts.text import path_of
from validator.flow.objects import Objects
from validator.project import ClassDef, Method, Project, Value

_DEPTH = 8

# other programs' sizes: the engines that generate, and models served beside the one that is trained
_ELSEWHERE = re.compile(
    r"(^|[_.])(vllm|sglang|gen|generation|infer|inference|rollout|engine|teacher|serve|server|hf_rollout)([_.]|$)"
)
# how many batches there are, which says nothing of how large they are
_COUNT = re.compile(r"(num|n)_\w*batch(es)?$")
_SIZED = re.compile(r"(_size|_degree|_world_size|_parallel|_parallelism|_num|_shards?)$|^(num|n)_")
_DIMENSIONS = (
    ("ep", re.compile(r"(^|_)(ep|expert|etp|moe)(_|$)")),
    ("pp", re.compile(r"(^|_)(pp|pipe|pipeline)(_|$)")),
    ("cp", re.compile(r"(^|_)(cp|ring|context|sp|ulysses|sequence_parallel|seq_parallel)(_|$)")),
    ("dp", re.compile(r"(^|_)(dp|data_parallel|data_replicate|replicate|dp_replicate|dp_shard)(_|$)")),
    ("tp", re.compile(r"(^|_)(tp|tensor|tensor_parallel|model_parallel|mp)(_|$)")),
)
_BARE = {"tp": "tp", "pp": "pp", "cp": "cp", "dp": "dp", "ep": "ep", "sp": "cp", "ring": "cp", "ulysses": "cp"}
_WORDS = (
    (
        "micro",
        re.compile(
            r"(^|_)micro(_\w+)?_(batch|bsz)|(^|_)(batch_size|bsz)_per_(gpu|device|rank|dp)|per_device_\w*batch|(^|_)mbs$"
            r"|microbatch_size$"
        ),
    ),
    (
        "batch",
        re.compile(
            r"(^|_)(train|global|rollout|mini|ppo_mini|minibatch|effective|total)_(batch_size|bsz|batch)$"
            r"|minibatch_size$|train_global_batch_size|^gbs$"
        ),
    ),
    (
        "samples",
        re.compile(
            r"(^|_)n_samples_per_prompt$|(^|_)num_generations(_per_prompt)?$|^rollout_n$|(^|_)n_samples$"
            r"|(^|_)samples_per_prompt$"
        ),
    ),
    ("gpus", re.compile(r"(^|_)(n_?gpus?|num_gpus|gpus|nproc|devices|gpu|ngpu|num_devices)_per_node$")),
    ("nodes", re.compile(r"(^|_)(nnodes|num_nodes|n_nodes|node_count)$")),
    ("heads", re.compile(r"(^|_)(num|n)_(attention_|key_value_|kv_|query_|q_)?heads?(_\w+)?$|(^|_)heads$")),
    (
        "width",
        re.compile(
            r"(^|_)(hidden|intermediate|ffn|ffn_hidden|feed_forward|inner|embed|embedding|mlp|moe_intermediate)_(size|dim)$"
            r"|^(d_model|d_ff|d_inner|n_embd|n_inner)$|(^|_)vocab_size$"
        ),
    ),
    (
        "world",
        re.compile(
            r"^(get_)?world(_size)?$|^WORLD_SIZE$|^(n|num|total)_gpus$|^(num_)?gpus_total$|^num_processes$"
            r"|^total_num_gpus$|^actor_world_size$"
        ),
    ),
)


class Factor(NamedTuple):
    """One factor of a size: what it counts, and how the source writes it."""

    tag: str
    text: str


class Size(NamedTuple):
    """A product of factors over a product of factors. `rounded`: rounded up or padded, so that nothing is lost."""

    over: tuple[Factor, ...]
    under: tuple[Factor, ...] = ()
    rounded: bool = False

    @property
    def tags(self) -> frozenset[str]:
        """The tags above the bar."""
        return frozenset(f.tag for f in self.over)

    @property
    def under_tags(self) -> frozenset[str]:
        """The tags below the bar."""
        return frozenset(f.tag for f in self.under)

    def has(self, tag: str) -> bool:
        """Whether the size grows with a dimension; the world is nodes times GPUs of a node."""
        return tag in self.tags or (tag == "world" and {"nodes", "gpus"} <= self.tags)

    def below(self, tag: str) -> bool:
        """Whether the size shrinks with a dimension."""
        return tag in self.under_tags or (tag == "world" and {"nodes", "gpus"} <= self.under_tags)

    def __str__(self) -> str:
        above = " × ".join(f.text for f in self.over) or "1"
        below = " × ".join(f.text for f in self.under)
        return f"{above} / {below}" if below else above


ONE = Size(())


def product(a: Size, b: Size) -> Size:
    """The product, with equal factors above and below the bar cancelled."""
    over, under = Counter((*a.over, *b.over)), Counter((*a.under, *b.under))
    common = over & under
    return Size(tuple((over - common).elements()), tuple((under - common).elements()), a.rounded or b.rounded)


def quotient(a: Size, b: Size) -> Size:
    """The quotient, with equal factors cancelled."""
    return product(a, Size(b.under, b.over, b.rounded))


def tag_of(path: str) -> str:
    """What a name counts by the words of the field: `args.ring_attn_size` -> `cp`; empty where it does not say."""
    links = [link for link in re.sub(r"\[[^\]]*\]|\(\)", "", path).split(".") if link]
    if not links:
        return ""
    if links[-1] == "batch_size" and len(links) > 1 and links[-2] in ("train", "rollout"):
        return "batch"
    name = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", links[-1]).removeprefix("get_")
    if name == "n" and len(links) > 1 and "rollout" in links[-2]:
        return "samples"
    if _COUNT.match(name):
        return ""
    for tag, pattern in _WORDS:
        if pattern.search(name if tag == "world" and name.isupper() else name.lower()):
            return tag
    name = name.lower()
    if name in _BARE:
        return _BARE[name]
    if not _SIZED.search(name) or _ELSEWHERE.search(".".join(links[-2:]).lower()):
        return ""
    return next((tag for tag, pattern in _DIMENSIONS if pattern.search(name)), "")


class Dimensions:
    """Answers for one project, remembered."""

    def __init__(self, project: Project) -> None:
        self.project = project
        self._paths: dict[tuple[Method, str], Size] = {}
        self.bindings = project.analysis(Bindings)
        self._depth = 0

    @cached_property
    def _meshes(self) -> Meshes:
        return self.project.analysis(Meshes)

    # -- sizes ---------------------------------------------------------------------------------------------

    def size(self, function: Method, node: ast.expr) -> Size:
        """What an expression of a function is made of."""
        if isinstance(node, ast.Constant):
            return ONE if node.value == 1 else Size((Factor("", repr(node.value)),))
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mult):
            return product(self.size(function, node.left), self.size(function, node.right))
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.FloorDiv | ast.Div):
            return self._divided(function, node)
        if isinstance(node, ast.Call):
            return self._call(function, node)
        if isinstance(node, ast.IfExp):
            body, other = self.size(function, node.body), self.size(function, node.orelse)
            return other if body == ONE else body
        if isinstance(node, ast.BoolOp) and isinstance(node.op, ast.Or):
            return self.size(function, node.values[0])
        if isinstance(node, ast.Name | ast.Attribute):
            return self.path(function, path_of(node))
        if isinstance(node, ast.Subscript):
            return self._subscript(function, node)
        return Size((Factor("", _text(node)),))

    def _divided(self, function: Method, node: ast.BinOp) -> Size:
        left, right = node.left, node.right
        if isinstance(left, ast.BinOp) and isinstance(left.op, ast.Add | ast.Sub):
            # (a + b - 1) // b rounds up
            rounded = self.size(function, _first(left))
            return quotient(rounded, self.size(function, right))._replace(rounded=True)
        if isinstance(left, ast.UnaryOp):
            return quotient(self.size(function, left.operand), self.size(function, right))._replace(rounded=True)
        return quotient(self.size(function, left), self.size(function, right))

    def _call(self, function: Method, node: ast.Call) -> Size:
        target = path_of(node.func)
        name = target.rpartition(".")[2]
        if name in ("int", "float", "round", "abs") and len(node.args) == 1:
            return self.size(function, node.args[0])
        if name in ("ceil",) and len(node.args) == 1:
            return self.size(function, node.args[0])._replace(rounded=True)
        if name in ("max", "min") and len(node.args) == 2:
            a, b = (self.size(function, each) for each in node.args)
            return b if not any(a.tags) and not any(a.under_tags) else a
        if name in ("getattr", "get") and (named := _named(node)) is not None:
            return Size((Factor(tag_of(named), named),))
        if name == "get_world_size":
            return self._world(function, node, target)
        if name in ("size", "shape") and isinstance(node.func, ast.Attribute):
            return self._mesh_size(function, node.func.value, node.args[0] if node.args else None)
        if name == "len" and len(node.args) == 1:
            return Size((Factor("length", _text(node)),))
        tag = tag_of(target)
        text = function.module.source_text
        returned = self._returned(self.project.analysis(Objects).run_at(function.module, text.at(node)))
        if returned is not None and any(returned.tags | returned.under_tags):
            return returned
        return Size((Factor(tag, f"{target}()"),))

    def _world(self, function: Method, node: ast.Call, target: str) -> Size:
        group = next((k.value for k in node.keywords if k.arg == "group"), node.args[0] if node.args else None)
        if group is None or (isinstance(group, ast.Constant) and group.value is None):
            owner = target.rpartition(".")[0]
            tag = tag_of(owner + "_size") if owner and "group" in owner else "world"
            return Size((Factor(tag, f"{target}()"),))
        text = _text(group)
        words = re.sub(r"\W+", "_", text).strip("_")
        return Size((Factor(tag_of(f"{words}_size"), f"{target}({text})"),))

    def _returned(self, reached: Sequence[Method]) -> Size | None:
        """What a project function with one plain return gives, in its own words."""
        if self._depth >= _DEPTH or len(reached) != 1 or reached[0].name == "__init__" or reached[0].node is None:
            return None
        returns = [n.value for n in ast.walk(reached[0].node) if isinstance(n, ast.Return) and n.value is not None]
        if len(returns) != 1:
            return None
        self._depth += 1
        try:
            return self.size(reached[0], returns[0])
        finally:
            self._depth -= 1

    def _subscript(self, function: Method, node: ast.Subscript) -> Size:
        if path_of(node.value) in ("os.environ", "environ"):
            world = isinstance(node.slice, ast.Constant) and node.slice.value == "WORLD_SIZE"
            return Size((Factor("world" if world else "", _text(node)),))
        if isinstance(node.value, ast.Attribute) and node.value.attr == "shape":
            return self._mesh_size(function, node.value.value, node.slice)
        named = node.slice.value if isinstance(node.slice, ast.Constant) else None
        return Size((Factor(tag_of(named) if isinstance(named, str) else "", _text(node)),))

    def _mesh_size(self, function: Method, owner: ast.expr, dim: ast.expr | None) -> Size:
        """`mesh.shape[0]`, `mesh.size("dp")`, `mesh["dp"].size()`: the size as the mesh was made with it."""
        text = f"{_text(owner)}.size({_text(dim) if dim is not None else ''})"
        key = dim.value if isinstance(dim, ast.Constant) else None
        if isinstance(owner, ast.Subscript) and isinstance(owner.slice, ast.Constant):
            key, owner = owner.slice.value, owner.value
        mesh = self._meshes.mesh(function, path_of(owner)) if isinstance(owner, ast.Name | ast.Attribute) else None
        if mesh is not None and mesh.shape is not None and self._depth < _DEPTH:
            index = key if isinstance(key, int) else None
            if mesh.names is not None and key in mesh.names:
                index = mesh.names.index(str(key))
            if index is not None and index < len(mesh.shape):
                self._depth += 1
                try:
                    return self.size(mesh.function, mesh.shape[index])
                finally:
                    self._depth -= 1
        key = _dimension_of(owner) if key is None and dim is None else key
        return Size((Factor(tag_of(f"{key}_size") if isinstance(key, str) else "", text),))

    # -- names ---------------------------------------------------------------------------------------------

    def path(self, function: Method, path: str) -> Size:
        """What a name or an attribute chain read in a function is made of."""
        key = (function, path)
        if key not in self._paths:
            self._paths[key] = Size((Factor(tag_of(path), path),))  # a cycle finds the name itself
            if self._depth < _DEPTH:
                self._depth += 1
                try:
                    self._paths[key] = self._path(function, path)
                finally:
                    self._depth -= 1
        return self._paths[key]

    def _path(self, function: Method, path: str) -> Size:
        own = Size((Factor(tag_of(path), path),))
        found = self._found(function, path)
        if found is None or not any(found.tags | found.under_tags):
            return own
        if len(found.over) == 1 and not found.under and not found.rounded and found.over[0].tag == own.over[0].tag:
            return own  # another name of the same thing: the reader knows the one written here
        return found

    def _found(self, function: Method, path: str) -> Size | None:
        head, _, name = path.partition(".")
        if not name:
            return self._local(function, path)
        first = function.facts.params[0].name if function.is_method and function.facts.params else "self"
        if head == first and "." not in name and function.cls is not None:
            return self._attribute(function.cls, name)
        return None

    def _local(self, function: Method, name: str) -> Size | None:
        scope: Method | None = function
        while scope is not None and scope.qualname != "<module>":
            values = self.bindings.of(scope).get(name)
            param = any(p.name == name for p in scope.facts.params)
            if values and not param:
                return self._one(scope, values)
            if param:
                return None if values else self._argument(scope, name)
            scope = scope.enclosing
        symbol = self.project.lookup(function, name)
        if isinstance(symbol, Value):
            return self._one(symbol.module.top, self.bindings.of(symbol.module.top).get(symbol.name, []))
        return None

    def _one(self, scope: Method, values: list[ast.expr | None]) -> Size | None:
        """The formula where a name has one besides plain constants."""
        known = [v for v in values if v is not None and not isinstance(v, ast.Constant)]
        if len(known) != 1 or None in values:
            return None
        return self.size(scope, known[0])

    def _argument(self, function: Method, name: str) -> Size | None:
        """What all callers pass for a parameter, where its name says nothing and they agree."""
        if tag_of(name):
            return None
        sizes: set[Size] = set()
        for caller, call in self.project.analysis(Objects).callers(function):
            argument = bind(function, call).get(name)
            if argument is None or argument.kind != "path":
                return None
            sizes.add(self.path(caller, argument.value))
        return sizes.pop() if len(sizes) == 1 else None

    def _attribute(self, cls: ClassDef, name: str) -> Size | None:
        found: list[Size] = []
        for method, value in self.bindings.attribute(cls, name):
            if value is None:
                return None
            if not isinstance(value, ast.Constant):
                found.append(self.size(method, value))
        getter = cls.find(name)
        if not found and getter is not None and getter.facts.is_property:
            size = self._returned([getter])
            found += [size] if size is not None else []
        return found[0] if found and all(size == found[0] for size in found) else None

    # -- scopes --------------------------------------------------------------------------------------------

    def model_parallel(self, function: Method) -> dict[str, str]:
        """The sizes of model parallelism that are in scope of a function: tag to the name that says so.

        In scope is what the function names itself and what the objects of its class keep.
        """
        paths = [p.name for p in function.facts.params]
        paths += [row.target for row in function.facts.assigns]
        paths += [ref.path for ref in function.facts.refs]
        if function.cls is not None:
            for owner in function.cls.mro:
                fields = [name for name, _ in owner.facts.attributes]
                paths += [f"self.{name}" for name in [*fields, *sorted(owner.instance_attributes)]]
        found: dict[str, str] = {}
        for path in paths:
            if (tag := tag_of(path)) in MODEL_PARALLEL:
                found.setdefault(tag, path)
        return found


def _named(node: ast.Call) -> str | None:
    """`getattr(args, "tp_size", 1)` and `config.get("tp_size", 1)` as `args.tp_size`."""
    if isinstance(node.func, ast.Name):
        owner, key = (node.args[0], node.args[1]) if len(node.args) > 1 else (None, None)
    else:
        owner, key = getattr(node.func, "value", None), node.args[0] if node.args else None
    if owner is None or not isinstance(key, ast.Constant) or not isinstance(key.value, str):
        return None
    return f"{path_of(owner)}.{key.value}"


def _dimension_of(owner: ast.expr) -> str | None:
    """The dimension that the name of a mesh, or of a group, says: `tp` of `self.tp_mesh`; None for several."""
    found = re.fullmatch(
        r"([a-z]+|[a-z]+_parallel)_((device_)?mesh|(process_)?group|pg)", path_of(owner).rpartition(".")[2]
    )
    return found[1] if found else None


def _first(node: ast.expr) -> ast.expr:
    while isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add | ast.Sub):
        node = node.left
    return node


def _text(node: ast.expr) -> str:
    return ast.unparse(node)[:80]
