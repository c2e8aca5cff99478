"""The interface that a family must honour: declared in TOML, and read off its members and callers.

A contract file declares operations. `applies` names the suffix of the families it is for; `extends` takes the
operations of another contract; a signature is Python without annotations.

    name = "strategy"
    applies = "Strategy"
    extends = "openrlhf-0.9"            # optional: another contract's name

    [operation.save_ckpt]
    signature = "save_ckpt(model, save_dir, tag=None)"
    result = "nothing"                  # nothing, value, any, tuple:N
    [[operation.save_ckpt.step]]
    what = "store the state of the optimizer"
    mentions = ["optim"]                # one of these words must occur in what the operation runs …
    calls = ["*.save_checkpoint"]       # … or one of these calls be made; a pattern after `!` does not count

Contracts of the distribution describe known generations: the one that fits a family best tells what its
operations mean, but is never held against it. A contract named in the configuration is binding.
"""

from __future__ import annotations

import ast
import os
from collections import Counter
from collections.abc import Hashable, Mapping
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from validator.errors import UsageError, nearest
from validator.facts.model import Param
from validator.files.integers import is_whole
from validator.files.tables import load_toml

if TYPE_CHECKING:
    from validator.analysis.interfaces.families import Family
    from validator.project import ClassDef, Method, Project

T = TypeVar("T", bound=Hashable)

_FIT = 0.6  # share of a contract's operations that a member must have with a fitting signature
_TOP_KEYS = ("name", "about", "applies", "extends", "operation")
_OPERATION_KEYS = ("signature", "result", "kind", "step", "optional")
_STEP_KEYS = ("what", "calls", "mentions")
_RESULTS = ("nothing", "value", "any")
_NOWHERE = (1, 1, 1, 1)


class Step(NamedTuple):
    """Something an operation must do: make one of the calls, or mention one of the words."""

    what: str
    calls: tuple[str, ...]
    mentions: tuple[str, ...]


class Operation(NamedTuple):
    """A declared operation. `params` without `self`; `kind` is `method` or `property`."""

    name: str
    params: tuple[Param, ...]
    result: str
    kind: str
    optional: bool
    steps: tuple[Step, ...]


class Contract(NamedTuple):
    """A declared interface; `binding` where the configuration names it."""

    name: str
    applies: str
    operations: dict[str, Operation]
    extends: str = ""
    binding: bool = False


class Contracts:
    """The contracts that apply to each family of a project."""

    def __init__(self, project: Project) -> None:
        self.project = project

    @cached_property
    def _binding(self) -> tuple[Contract, ...]:
        paths = getattr(self.project.config, "contracts", None) or ()
        return tuple(load(path)._replace(binding=True) for path in paths)

    def binding(self, family: Family) -> list[Contract]:
        """The contracts of the configuration that are for this family."""
        return [c for c in self._binding if c.applies in ("", family.name)]

    def known(self, family: Family) -> Contract | None:
        """The contract that tells what the operations mean: a binding one, else the best fitting one."""
        bound = self.binding(family)
        if bound:
            return bound[0]
        rated = [(_fit(contract, family), contract) for contract in builtin() if contract.applies == family.name]
        best = max(rated, key=lambda pair: pair[0], default=(0.0, None))
        return best[1] if best[0] >= _FIT else None

    def operation(self, family: Family, name: str) -> Operation | None:
        """What is declared about an operation of a family."""
        contract = self._by_family.get(family)
        return contract.operations.get(name) if contract is not None else None

    def steps(self, family: Family, name: str) -> tuple[Step, ...]:
        """What an operation must do: by the contract that fits, else by a general one that fits by names."""
        known = self._by_family.get(family)
        if known is None:
            general = (c for c in builtin() if c.applies == family.name and not c.extends)
            known = next((c for c in general if _named(c, family) >= _FIT), None)
        operation = known.operations.get(name) if known is not None else None
        return operation.steps if operation is not None else ()

    @cached_property
    def _by_family(self) -> dict[Family, Contract | None]:
        return {family: self.known(family) for family in self.project.families.all}


def _fit(contract: Contract, family: Family) -> float:
    """The share of the contract's operations that the best fitting member of the family has, with these parameters."""
    return max(
        sum(_agrees(op, cls.find(op.name)) for op in contract.operations.values()) for cls in family.members
    ) / max(1, len(contract.operations))


def _named(contract: Contract, family: Family) -> float:
    """The share of the contract's operations that some member of the family has by name."""
    names = frozenset().union(*(cls.attributes for cls in family.members))
    return sum(name in names for name in contract.operations) / max(1, len(contract.operations))


def _agrees(operation: Operation, method: Method | None) -> bool:
    from validator.analysis.interfaces.binding import parameters

    if method is None:
        return False
    return [p.name for p in parameters(method)] == [p.name for p in operation.params]


def implementations(family: Family, name: str) -> dict[ClassDef, Method]:
    """The members that define a method, with what the name means on each."""
    found = {cls: cls.find(name) for cls in family.members}
    return {cls: method for cls, method in found.items() if method is not None}


def standard(project: Project, family: Family, shapes: Mapping[ClassDef, T], declared: T | None) -> ClassDef:
    """The member that the others are held against: what is declared, the majority, or what annotations name."""
    from validator.analysis.interfaces.uses import lead

    for cls, shape in shapes.items():
        if declared is not None and shape == declared:
            return cls
    (common, count), *_ = Counter(shapes.values()).most_common(1)
    if count > len(shapes) / 2:
        return next(cls for cls in shapes if shapes[cls] == common)
    first = lead(project, family)
    return first if first in shapes else next(iter(shapes))


# -- reading ---------------------------------------------------------------------------------------------------


@lru_cache(maxsize=1)
def builtin() -> tuple[Contract, ...]:
    """The contracts of the distribution."""
    folder = _folder()
    names = sorted(n for n in os.listdir(folder) if n.endswith(".toml")) if os.path.isdir(folder) else []
    return tuple(_shipped(os.path.join(folder, name)) for name in names)


@lru_cache(maxsize=64)
def _shipped(path: str) -> Contract:
    return load(path)


def _folder() -> str:
    import rules

    return os.path.join(os.path.dirname(os.path.abspath(rules.__file__ or "")), "contracts")


def load(path: str) -> Contract:
    """The contract of a TOML file. Raises UsageError naming the file and the key."""
    table = _table(path)
    _known_keys(table, _TOP_KEYS, path)
    name = _text(table, "name", path)
    operations: dict[str, Operation] = {}
    applies = _text(table, "applies", path, "")
    base = _text(table, "extends", path, "")
    if base:
        parent = _base(base, path)
        operations.update(parent.operations)
        applies = applies or parent.applies
    rows = table.get("operation", {})
    if not isinstance(rows, dict) or not all(isinstance(row, dict) for row in rows.values()):
        raise UsageError(f"{path}: operation must hold tables such as [operation.backward]")
    for key, row in rows.items():
        operations[key] = _operation(key, row, f"{path}: operation.{key}")
    return Contract(name, applies, operations, base)


def _base(name: str, path: str) -> Contract:
    choices = {os.path.splitext(n)[0]: n for n in sorted(os.listdir(_folder())) if n.endswith(".toml")}
    if name not in choices:
        raise UsageError(f"{path}: extends: no contract is called {name!r}{nearest(name, list(choices))}")
    base = os.path.join(_folder(), choices[name])
    if os.path.samefile(base, path):
        raise UsageError(f"{path}: extends itself")
    return _shipped(base)


def _table(path: str) -> dict[str, Any]:
    try:
        return load_toml(path)
    except OSError as error:
        raise UsageError(f"{path}: the contract cannot be read: {error.strerror}") from error
    except ValueError as error:
        raise UsageError(str(error)) from error


def _known_keys(table: dict[str, Any], known: tuple[str, ...], where: str) -> None:
    for key in table:
        if key not in known:
            raise UsageError(f"{where}: unknown key {key!r}{nearest(key, list(known))}")


def _text(table: dict[str, Any], key: str, where: str, default: str | None = None) -> str:
    value = table.get(key, default)
    if not isinstance(value, str):
        raise UsageError(f"{where}: {key} must be a string" if key in table else f"{where}: {key} is missing")
    return value


def _texts(table: dict[str, Any], key: str, where: str) -> tuple[str, ...]:
    value = table.get(key, [])
    if not isinstance(value, list) or not all(isinstance(text, str) for text in value):
        raise UsageError(f"{where}: {key} must be a list of strings")
    return tuple(value)


def _operation(name: str, row: dict[str, Any], where: str) -> Operation:
    _known_keys(row, _OPERATION_KEYS, where)
    kind = _text(row, "kind", where, "method")
    result = _text(row, "result", where, "any")
    if kind not in ("method", "property"):
        raise UsageError(f"{where}: kind must be method or property")
    if result not in _RESULTS and not (result.startswith("tuple:") and is_whole(result[6:])):
        raise UsageError(f"{where}: result must be nothing, value, any or tuple:N")
    default = f"{name}()" if kind == "property" else None
    params = _signature(name, _text(row, "signature", where, default), where)
    steps = row.get("step", [])
    if not isinstance(steps, list) or not all(isinstance(step, dict) for step in steps):
        raise UsageError(f"{where}: step must hold tables such as [[operation.{name}.step]]")
    return Operation(
        name, params, result, kind, bool(row.get("optional", False)), tuple(_step(s, where) for s in steps)
    )


def _step(row: dict[str, Any], where: str) -> Step:
    _known_keys(row, _STEP_KEYS, f"{where}.step")
    return Step(
        _text(row, "what", f"{where}.step"),
        _texts(row, "calls", where),
        _texts(row, "mentions", where),
    )


def _signature(name: str, text: str, where: str) -> tuple[Param, ...]:
    try:
        node = ast.parse(f"def {text}: ...").body[0]
    except SyntaxError as error:
        raise UsageError(
            f"{where}: {text!r} is no signature such as 'backward(loss, model, name=\"model\")'"
        ) from error
    if not isinstance(node, ast.FunctionDef) or node.name != name:
        raise UsageError(f"{where}: the signature must be that of {name!r}")
    a = node.args
    plain = [*a.posonlyargs, *a.args]
    defaults = [None] * (len(plain) - len(a.defaults)) + [ast.unparse(d) for d in a.defaults]
    found = [_param(p.arg, "any", d) for p, d in zip(plain, defaults, strict=True)]
    if a.vararg:
        found.append(_param(a.vararg.arg, "*", None))
    found += [
        _param(p.arg, "kw", ast.unparse(d) if d else None) for p, d in zip(a.kwonlyargs, a.kw_defaults, strict=True)
    ]
    if a.kwarg:
        found.append(_param(a.kwarg.arg, "**", None))
    return tuple(found)


def _param(name: str, kind: str, default: str | None) -> Param:
    return Param(name, kind, default, "", _NOWHERE)
