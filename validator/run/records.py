"""What is known of one file by itself, and how it comes back out of a cache that may hold anything."""

from __future__ import annotations

import io
import pickle
from typing import Any, NamedTuple

from validator.facts.model import Class, FileFacts, Function, Import, Problem, Unresolved
from validator.finding import Finding, is_finding
from validator.run.suppressions import Suppression

_MODULES = frozenset({"validator.run.records", "validator.finding", "validator.run.suppressions"})
_HELD: dict[str, tuple[type, ...]] = {
    "problem": (Problem, type(None)), "full": (bool,), "imports": (tuple,), "functions": (tuple,), "classes": (tuple,),
    "names": (dict,), "exports": (tuple, type(None)), "star_imports": (tuple,), "unresolved": (tuple,),
    "dynamic": (bool,), "lines": (int,), "texts": (tuple,), "extra": (dict,), "language": (str,),
}  # fmt: skip
_LISTED = {"imports": Import, "functions": Function, "classes": Class, "unresolved": Unresolved, "texts": str}


class Record(NamedTuple):
    """What is known of one file by itself. `tokens`: the prefilter tokens that it contains."""

    facts: FileFacts
    findings: tuple[Finding, ...]
    comments: tuple[Suppression, ...]
    tokens: frozenset[str]
    errors: tuple[str, ...]


def unpickled(data: bytes) -> Record | None:
    """The record that a cache holds as these bytes; None where they are no record."""
    try:
        record = _Unpickler(io.BytesIO(data)).load()
    except Exception:  # a damaged pickle may raise anything
        return None
    return record if _is_record(record) else None


class _Unpickler(pickle.Unpickler):
    """Makes only what a record is made of: a pickle may name any function there is, and have it called."""

    def find_class(self, module: str, name: str) -> Any:
        if module in _MODULES or module.startswith("validator.facts."):
            found = super().find_class(module, name)
            if isinstance(found, type) and (found.__module__, found.__qualname__) == (module, name):
                return found
        raise pickle.UnpicklingError(f"{module}.{name} is no part of a record")


def _is_record(value: object) -> bool:
    """Whether a value is a record, as far as can be told in no time."""
    return (
        isinstance(value, Record)
        and _is_facts(value.facts)
        and isinstance(value.findings, tuple)
        and all(map(is_finding, value.findings))
        and isinstance(value.comments, tuple)
        and all(isinstance(each, Suppression) for each in value.comments)
        and isinstance(value.tokens, frozenset)
        and all(isinstance(each, str) for each in value.tokens)
        and value.errors == ()
    )


def _is_facts(value: object) -> bool:
    """Whether a value has the shape of facts: the kinds of its fields and of what they list, and no deeper."""
    return (
        isinstance(value, FileFacts)
        and all(isinstance(each, _HELD[name]) for name, each in zip(FileFacts._fields, value, strict=True))
        and all(isinstance(each, kind) for name, kind in _LISTED.items() for each in getattr(value, name))
    )
