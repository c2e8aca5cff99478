"""The Trainer of transformers and the classes of a project below it."""

from __future__ import annotations

from collections.abc import Collection

from validator.definitions import ClassDef
from validator.flow.values import Obj
from validator.models import Models
from validator.project import Project

_TRAINERS = frozenset({"transformers.Trainer", "transformers.Seq2SeqTrainer"})


def is_trainer(models: Models, o: Obj, without: Collection[str]) -> bool:
    """Whether a class is a Trainer of transformers, or one below it that has none of some methods of its own."""
    if o[0] == "ext":
        return models.named(str(o[1])) in _TRAINERS
    if o[0] != "class" or any(o[1].find(name) is not None for name in without):
        return False
    return _is_below(models, o[1])


def _is_below(models: Models, cls: ClassDef) -> bool:
    return any(models.named(base) in _TRAINERS for base in cls.external_bases)


def trainers(models: Models, project: Project) -> list[str]:
    """The names of the Trainers of transformers, and of the classes of a project below them."""
    below = (cls.name for cls in project.classes() if _is_below(models, cls))
    return list(dict.fromkeys([*(name.rpartition(".")[2] for name in sorted(_TRAINERS)), *below]))
