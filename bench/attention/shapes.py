"""What attention is measured on: lengths, heads, type. No torch needed."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from bench.problems import Problem

HEADS = re.compile(r"(\d{1,5})x(\d{1,5})x(\d{1,5})")
DOCUMENTS = re.compile(r"(?:(\d{1,6})x)?(\d{1,9})")


@dataclass(frozen=True)
class Heads:
    """`heads` query heads over `key_heads` key and value heads, each of `size` elements."""

    heads: int
    key_heads: int
    size: int

    def __str__(self) -> str:
        return f"{self.heads}x{self.key_heads}x{self.size}"

    @classmethod
    def parse(cls, text: str) -> Heads:
        """From `32x8x128`; raises `Problem` for anything else, and for heads that do not share key heads evenly."""
        found = HEADS.fullmatch(text)
        if found is None:
            raise Problem(f"{text!r}: heads are HEADSxKEYHEADSxSIZE, such as 32x8x128")
        made = cls(*map(int, found.groups()))
        if min(made.heads, made.key_heads, made.size) < 1 or made.heads % made.key_heads:
            raise Problem(f"{text!r}: {made.heads} heads do not share {made.key_heads} key heads evenly")
        return made


@dataclass(frozen=True)
class Shape:
    """`documents` of `length` positions each, one after the other in one row: causal attention within each."""

    documents: int
    length: int
    heads: Heads

    @classmethod
    def parse(cls, text: str, heads: Heads) -> Shape:
        """From `8192`, or `10x868` for ten documents; raises `Problem` for anything else."""
        found = DOCUMENTS.fullmatch(text)
        made = cls(int(found[1] or 1), int(found[2]), heads) if found else None
        if made is None or made.documents < 1 or made.length < 1:
            raise Problem(f"{text!r}: lengths are LENGTH or DOCUMENTSxLENGTH, such as 8192 or 10x868")
        return made

    @classmethod
    def of(cls, values: Mapping[str, Any]) -> Shape:
        return cls(values["documents"], values["length"], Heads(**values["heads"]))

    @property
    def positions(self) -> int:
        return self.documents * self.length

    @property
    def flops(self) -> int:
        """Of the forward pass: two products of half a square per document. The backward pass counts 2.5 times that:
        five products, with the scores computed again."""
        return 2 * self.documents * self.heads.heads * self.heads.size * self.length**2

    def label(self) -> str:
        return f"{self.documents}x{self.length}" if self.documents > 1 else str(self.length)

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)
