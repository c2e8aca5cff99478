"""One configuration of a launch: what is said of its quantities, where, and what follows from that."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, NamedTuple

from rules.constraints import NAMES, Quantities
from validator.facts.model import At
from validator.finding import Related
from validator.project import Module

NOT_GIVEN = -1  # stands for "as many as there are", or for what something else fills in: a checkpoint, the model


class Said(NamedTuple):
    """What is said of one quantity, and where.

    `value` is None where it is not known; then `why` may say why. `flag` is what a person would change. `span` is
    None for a default: nothing in the file says it, but a file of defaults may, which `default` names. `switch`: its
    presence says it.
    """

    value: Any
    flag: str
    path: str = ""
    span: At | None = None
    why: str = ""
    switch: bool = False
    related: tuple[Related, ...] = ()
    default: tuple[str, At] | None = None

    def in_file(self) -> Said:
        """The same, standing in the file of defaults."""
        return self if self.default is None else self._replace(path=self.default[0], span=self.default[1])


class Offer(NamedTuple):
    """An option or key of a program: its path (`rollout.n` is two links) and what it is given, as text.

    `said.value` is the text; None where it is not known, with the reason in `why`. `said` is None where even the
    default is not known.
    """

    path: tuple[str, ...]
    said: Said | None


@dataclass
class Configuration:
    """One configuration, as far as a file says it.

    `module` and `offers` are the program and all that it is given, where it is one of the project.
    """

    name: str
    framework: str
    path: str
    span: At
    said: dict[str, Said]
    implied: dict[str, Any] = field(default_factory=dict)
    open: bool = False
    module: Module | None = None
    offers: tuple[Offer, ...] = ()

    def value(self, quantity: str) -> Any:
        known = self.said.get(quantity)
        return known.value if known is not None else self.implied.get(quantity)

    def drop(self, *quantities: str) -> None:
        for quantity in quantities:
            self.said.pop(quantity, None)
            self.implied.pop(quantity, None)

    def move(self, old: str, new: str) -> None:
        """Take what is said of one quantity for another."""
        if old in self.said:
            self.said[new] = self.said.pop(old)

    def quantities(self) -> Quantities:
        """What the table is asked about."""
        missing = {name for name, said in self.said.items() if said.value in (None, NOT_GIVEN)}
        known = {name: said.value for name, said in self.said.items() if name in NAMES and name not in missing}
        implied = {name: value for name, value in self.implied.items() if name not in missing}
        given = {**implied, **known}
        return Quantities.of(framework=self.framework or None, **given)
