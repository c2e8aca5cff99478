"""Two revisions of a project compared: what a change takes away that the rest of the project still asks for."""

from validator.drift.change import Change, Pair, Side

__all__ = ["Change", "Pair", "Side"]
