"""What a launch gives the names in the source of a program of the project.

A name is followed to the option or key that it means: through locals (`section = config[name]`), parameters where
all callers agree, and attributes that the constructor fills.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping
from math import prod

from rules.launch._reading.configuration import Configuration, Offer, Said
from validator.analysis.bindings import Bindings, first_name
from validator.analysis.commands.programs import Programs
from validator.analysis.interfaces.binding import bind
from validator.analysis.sizes.dimensions import Factor, Size
from validator.facts.model import Argument, Call
from validator.flow.objects import Objects
from validator.project import ClassDef, Method, Module, Project

_HOLDERS = re.compile(r"^(self|cls|args|cfg|config|conf|opts?|hparams|params|\w+_(args|cfg|config))$")
_HEADS = {"num_attention_heads": "heads", "num_key_value_heads": "kv_heads"}
_DEPTH = 6

Pass = Mapping[str, str]
"""The value of the variable of a loop over literal texts."""


class Values:
    """What one launch gives."""

    def __init__(self, project: Project, configuration: Configuration, module: Module) -> None:
        self.project = project
        self.configuration = configuration
        self.own = frozenset(project.analysis(Programs).modules(module))
        self.module = module
        self.rebound = project.analysis(_Rebound)
        self.offers: dict[str, list[Offer]] = {}
        for offer in configuration.offers:
            self.offers.setdefault(offer.path[-1], []).append(offer)

    def of(self, function: Method, size: Size, loop: Pass) -> tuple[int, list[Said]] | None:
        """The number that a size is, and where its factors are said; None where one is not known."""
        over = [self._factor(function, each, loop) for each in size.over]
        under = [self._factor(function, each, loop) for each in size.under]
        known = [each for each in (*over, *under) if each is not None]
        if size.rounded or len(known) != len(over) + len(under) or not known:
            return None
        top, bottom = (prod(each.value for each in side if each is not None) for side in (over, under))
        return (top // bottom, known) if bottom > 0 and top % bottom == 0 else None

    def named(self, function: Method, factor: Factor) -> Said | None:
        """What is said of one factor that is a name."""
        return self._named(function, factor.text, {}, 0)

    def _factor(self, function: Method, factor: Factor, loop: Pass) -> Said | None:
        if factor.text.isdigit():
            return Said(int(factor.text), "")
        if factor.tag == "world":
            return self._world()
        if factor.tag == "heads" and (quantity := _HEADS.get(factor.text.rpartition(".")[2])) is not None:
            value = self.configuration.value(quantity)
            return Said(value, "") if isinstance(value, int) else None
        return self._named(function, factor.text, loop, 0)

    def _world(self) -> Said | None:
        said = self.configuration.said.get("world_size")
        if said is not None:
            return said if isinstance(said.value, int) else None
        parts = [self._only(re.compile(rf"^(n|num)?_?{each}$")) for each in ("gpus_per_node", "(nnodes|nodes)")]
        if any(part is None for part in parts):
            return None
        return Said(prod(part.value for part in parts if part is not None), "")

    def _only(self, name: re.Pattern[str]) -> Said | None:
        found = [offer for leaf, rows in self.offers.items() if name.search(leaf) for offer in rows]
        return number(found[0]) if len(found) == 1 else None

    def _named(self, function: Method, text: str, loop: Pass, depth: int) -> Said | None:
        """The option that a path means: by all of its links, or by the last where only one option has it."""
        head, _, rest = text.partition(".")
        if depth > _DEPTH or not head.isidentifier():
            return None
        bound = self.project.analysis(Bindings).of(function).get(head, [])
        path = _path(bound[0], loop) if len(bound) == 1 and bound[0] is not None else ""
        if path and path != head:
            return self._named(function, f"{path}.{rest}" if rest else path, loop, depth + 1)
        if bound and not rest:
            return None
        if not rest:
            return self._parameter(function, head, depth)
        found = self._option(function, text)
        if found is None and head == first_name(function) and function.cls is not None and "." not in rest:
            return self._attribute(function.cls, rest, depth)
        return found

    def _option(self, function: Method, text: str) -> Said | None:
        holder, _, leaf = text.rpartition(".")
        if not _HOLDERS.match(holder.split(".")[0]) or self.rebound.before(self.module, function, leaf):
            return None
        rows = self.offers.get(leaf, [])
        exact = [offer for offer in rows if f".{text}".endswith("." + ".".join(offer.path)) and len(offer.path) > 1]
        chosen = exact if len(exact) == 1 else rows
        return number(chosen[0]) if len(chosen) == 1 else None

    def _parameter(self, function: Method, name: str, depth: int) -> Said | None:
        """What all callers give for a parameter, if that is one thing."""
        if function.name == "__init__" and function.cls is not None:
            callers = self._made(function.cls)
        else:
            callers = list(self.project.analysis(Objects).callers(function))
        return self._same([(caller, bind(function, call).get(name)) for caller, call in callers], depth)

    def _attribute(self, cls: ClassDef, name: str, depth: int) -> Said | None:
        """What fills an attribute of an object: one assignment, or a field of the dataclass where it is made."""
        rows = self.project.analysis(Bindings).attribute(cls, name)
        if rows:
            method, value = rows[0]
            path = _path(value, {}) if len(rows) == 1 and value is not None else ""
            return self._named(method, path, {}, depth + 1) if path else None
        fields = _fields(cls)
        if name not in fields or len(cls.mro) > 1 or not any("dataclass" in each for each in cls.facts.decorators):
            return None
        return self._same([(caller, _field(call.args, fields, name)) for caller, call in self._made(cls)], depth)

    def _made(self, cls: ClassDef) -> list[tuple[Method, Call]]:
        """The calls that make objects of a class."""
        return [row for row in self.project.calls(cls.name) if self.project.lookup(row[0], row[1].target) is cls]

    def _same(self, given: list[tuple[Method, Argument | None]], depth: int) -> Said | None:
        own = [(caller, argument) for caller, argument in given if caller.module in self.own]
        found = [self._argument(caller, argument, depth) for caller, argument in own]
        known = [each for each in found if each is not None]
        agreed = len(known) == len(found) and len({each.value for each in known}) == 1
        return known[0] if agreed else None

    def _argument(self, caller: Method, argument: Argument | None, depth: int) -> Said | None:
        if argument is None:
            return None
        if argument.kind == "const":
            return Said(int(argument.value), "") if argument.value.isdigit() else None
        return self._named(caller, argument.value, {}, depth + 1) if argument.kind == "path" else None


class _Rebound:
    """Whether programs may give options other values than their launches do; the same for all launches of one."""

    def __init__(self, project: Project) -> None:
        self.programs = project.analysis(Programs)
        self._known: dict[tuple[Module, Method, str], bool] = {}

    def before(self, program: Module, function: Method, leaf: str) -> bool:
        """Whether the program may give an option another value before a test in a function."""
        key = (program, function, leaf)
        if key not in self._known:
            self._known[key] = self._is_bound(self.programs.text(program), function, leaf)
        return self._known[key]

    @staticmethod
    def _is_bound(text: str, function: Method, leaf: str) -> bool:
        own = "\n".join(function.module.source_text.lines[function.facts.at[0] - 1 : function.facts.at[2]])
        text = text.replace(own, own.split("%", 1)[0])
        name = re.escape(leaf)
        for match in re.finditer(rf"\.{name}\s*([-+*/%]|//)?=(?!=)([^\n]*)", text):
            if match[1] or not re.search(rf"\b{name}\b", match[2]) or re.search(r"[-+*/%]|max\(|min\(", match[2]):
                return True
        return False


def _path(node: ast.expr, loop: Pass) -> str:
    """`config[name].sizes` as a path, with the keys that the loop gives; empty for anything else."""
    match node:
        case ast.Name():
            return node.id
        case ast.Attribute():
            return _joined(_path(node.value, loop), node.attr)
        case ast.Subscript():
            return _joined(_path(node.value, loop), _key(node.slice, loop))
        case ast.Call(func=ast.Name(id="getattr"), args=[holder, key]):
            return _joined(_path(holder, loop), _key(key, loop))
    return ""


def _key(node: ast.expr, loop: Pass) -> str:
    if isinstance(node, ast.Name):
        return loop.get(node.id, "")
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else ""


def _joined(holder: str, key: str) -> str:
    return f"{holder}.{key}" if holder and key else ""


def _fields(cls: ClassDef) -> list[str]:
    """The fields of a class in the order in which they are given."""
    nodes = (n for n in ast.walk(cls.module.source.tree) if isinstance(n, ast.ClassDef) and n.name == cls.facts.name)
    node = next(nodes, None)
    rows = (row.target for row in node.body if isinstance(row, ast.AnnAssign)) if node is not None else ()
    return [target.id for target in rows if isinstance(target, ast.Name)]


def _field(arguments: tuple[Argument, ...], fields: list[str], name: str) -> Argument | None:
    """What a call that makes an object of a dataclass gives a field."""
    if any(argument.keyword in ("*", "**") for argument in arguments):
        return None
    plain = [argument for argument in arguments if argument.keyword is None]
    index = fields.index(name)
    by_name = next((argument for argument in arguments if argument.keyword == name), None)
    return by_name or (plain[index] if index < len(plain) else None)


def number(offer: Offer) -> Said | None:
    """What an option is given, if it is a whole number."""
    said = offer.said
    if said is None or said.value is None or not re.fullmatch(r"[0-9]{1,12}", str(said.value)):
        return None
    return said._replace(value=int(said.value))


__all__ = ["Pass", "Values", "number"]
