"""Numbers as sums of products: what a size, an offset or a bound is made of, by the values that the program names.

`(rank + 1) * len(rows)` is `rank * len(rows) + len(rows)`: two numbers that are spelled in different ways are compared
by what they are made of, and one is asked for the factor by which another grows.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable
from typing import NamedTuple

from validator.flow.queries.base import Place

_ROUNDED = frozenset({"int", "round"})  # calls that leave a whole number as it is
_MANY = 32  # terms of a product that nobody writes by hand


class Atom(NamedTuple):
    """A number that is made of no others here; atoms with equal keys are the same number where they stand."""

    key: Hashable
    place: Place

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Atom) and self.key == other.key

    def __hash__(self) -> int:
        return hash(self.key)


Monomial = tuple[Atom, ...]  # the factors of a product, in the order of their keys; () is the constant term


class Polynomial:
    """The products of which a number is the sum, and how often each is added."""

    def __init__(self, terms: dict[Monomial, int]) -> None:
        self.terms = {monomial: times for monomial, times in terms.items() if times}

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Polynomial) and self.terms == other.terms

    def __hash__(self) -> int:
        return hash(frozenset(self.terms.items()))

    def __add__(self, other: Polynomial) -> Polynomial:
        terms = Counter(self.terms)
        for monomial, times in other.terms.items():
            terms[monomial] += times
        return Polynomial(terms)

    def __neg__(self) -> Polynomial:
        return Polynomial({monomial: -times for monomial, times in self.terms.items()})

    def __sub__(self, other: Polynomial) -> Polynomial:
        return self + -other

    def __mul__(self, other: Polynomial) -> Polynomial:
        terms: Counter[Monomial] = Counter()
        for one, times in self.terms.items():
            for another, more in other.terms.items():
                terms[_ordered(one + another)] += times * more
        return Polynomial(terms)

    @property
    def atoms(self) -> frozenset[Atom]:
        return frozenset(atom for monomial in self.terms for atom in monomial)

    @property
    def constant(self) -> int:
        """What is added whatever the atoms are."""
        return self.terms.get((), 0)

    def growth(self, is_meant: Callable[[Place], bool]) -> Polynomial | None:
        """By how much the number grows with each step of the one atom of a kind; None where there is no such atom, or
        the number is no multiple of it plus something else."""
        meant = [atom for atom in self.atoms if is_meant(atom.place)]
        if len(meant) != 1:
            return None
        (atom,) = meant
        terms = {monomial: times for monomial, times in self.terms.items() if atom in monomial}
        if any(monomial.count(atom) > 1 for monomial in terms):
            return None
        return Polynomial(
            {tuple(each for each in monomial if each != atom): times for monomial, times in terms.items()}
        )


def _ordered(atoms: Monomial) -> Monomial:
    return tuple(sorted(atoms, key=lambda atom: repr(atom.key)))


def polynomial(place: Place) -> Polynomial:
    """Of what a number is made, in the function in which it stands."""
    place = place.root
    value = place.value
    number = place.val.constant()
    if isinstance(number, int) and not isinstance(number, bool):
        return Polynomial({(): number})
    if value.op == "unary" and value.data == "USub":
        return -polynomial(place.operand(0))
    if value.op == "call" and len(value.args) == 2 and place.method in _ROUNDED:
        return polynomial(place.operand(1))
    if value.op == "binary" and value.data in ("Add", "Sub", "Mult"):
        left, right = polynomial(place.operand(0)), polynomial(place.operand(1))
        if value.data == "Mult":
            if len(left.terms) * len(right.terms) <= _MANY:
                return left * right
        else:
            return left + right if value.data == "Add" else left - right
    return Polynomial({(Atom(place.key, place),): 1})
