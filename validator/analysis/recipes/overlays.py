"""Which configuration files are laid over which others: by their `defaults`, by a key that names the file below, or by
code that merges two (`OmegaConf.merge(OmegaConf.load(base), OmegaConf.load(path))`).
"""

from __future__ import annotations

import posixpath
from collections.abc import Iterator
from functools import cached_property
from typing import NamedTuple

from validator.analysis.recipes.composed import Compositions, Node
from validator.analysis.recipes.sections import Sections
from validator.facts.config_files import MAPPING
from validator.files.languages import language
from validator.flow.queries.base import Place, Queries
from validator.flow.queries.outside_program import is_test
from validator.project import Project

_MERGES = ("omegaconf.OmegaConf.merge", "omegaconf.OmegaConf.unsafe_merge")
_LIKE = 2  # sections that a file has in common with the one that it is laid over, where only its keys tell that it is


class Overlay(NamedTuple):
    """A file, and what it is laid over. `packed`: it may come to stand below keys that are not its own, as Hydra puts
    groups. `known`: whether something names the file, or it the one below."""

    path: str
    own: Node
    base: Node
    packed: bool = False
    known: bool = True


class Overlays:
    """Answers for one project, remembered."""

    def __init__(self, project: Project) -> None:
        self.project = project
        self.compositions = project.analysis(Compositions)
        self.sections = project.analysis(Sections)

    @cached_property
    def all(self) -> tuple[Overlay, ...]:
        """Each file once: by what it says itself before what code says."""
        found: dict[str, Overlay] = {}
        for overlay in (*self._by_defaults(), *self._by_key(), *self._by_code()):
            found.setdefault(overlay.path, overlay)
        return tuple(found.values())

    def is_aliased(self, overlay: Overlay, links: tuple[str, ...]) -> bool:
        """Whether what a file sets under a key stands under another key, too, by an alias (`<<: *common`)."""
        _, settings = self.compositions.files[overlay.path]
        setting = settings.get(*links)
        return setting is None or sum(each.value_at == setting.value_at for each in settings.settings) > 1

    def _by_defaults(self) -> Iterator[Overlay]:
        for path in self.compositions.files:
            if (base := self.compositions.bases(path)) is not None:
                yield Overlay(path, self.compositions.tree(path), base, packed=True)

    def _by_key(self) -> Iterator[Overlay]:
        """Files that name the one below under a key that the program asks its file for."""
        for path in self.compositions.files:
            own, base = self.compositions.tree(path), self._below(path)
            if base is not None and _is_like(own, base):
                yield Overlay(path, own, base)

    def _below(self, path: str, above: frozenset[str] = frozenset()) -> Node | None:
        """What lies below a file that names another one, with all that is below that. `above`: the files that lie over
        it, which it cannot name."""
        above |= {path}
        for name, child in self.compositions.tree(path).children.items():
            other = self._named(path, child)
            if other and other not in above and name in self._asked:
                base = self._below(other, above) or Node()
                base.merge(self.compositions.tree(other))
                return base
        return None

    def _named(self, path: str, child: Node) -> str:
        text = child.value if child.kind == "scalar" else None
        if not isinstance(text, str) or not text.endswith((".yaml", ".yml")):
            return ""
        found = posixpath.normpath(f"{posixpath.dirname(path)}/{text}")
        return found if found in self.compositions.files else ""

    @cached_property
    def _asked(self) -> frozenset[str]:
        """The keys that code asks the whole of a file for."""
        queries = self.project.analysis(Queries)
        found = set()
        for unit in queries.of_program():
            for read in queries.values(unit, "item", "call"):
                asks = read.value.op == "item" or read.method in ("get", "pop") and len(read.value.args) > 1
                key = read.operand(1).val.constant() if asks else None
                owner = read.receiver if read.value.op == "call" else read.operand(0)
                if isinstance(key, str) and owner is not None and any(not o[2] for o in owner.closed.of("section")):
                    found.add(key)
        return frozenset(found)

    def _by_code(self) -> Iterator[Overlay]:
        for call in self.project.analysis(Queries).calls_anywhere(*_MERGES):
            given = [call.value_at(number) for number in call.value.args[1:]]
            base = self._whole(given[0]) if given else None
            for other in given[1:] if base is not None else ():
                path = self._whole(other)
                if path is not None and base is not None:
                    yield Overlay(path, self.compositions.tree(path), self.compositions.inherited(base))
                elif base is not None and any(not o[2] for o in other.closed.of("section")):
                    yield from self._alike(base)

    def _whole(self, place: Place) -> str | None:
        """The one file that a value is the whole of; None where that is not known."""
        roots = [root for o in place.closed.of("section") if not o[2] for root in self.sections.roots(o[1])]
        paths = {child.path for root in roots for child in root.node.children.values()}
        files = [path for path, (source, _) in self.compositions.files.items() if {source.path} == paths]
        return files[0] if len(roots) == len(files) == 1 else None

    def _alike(self, base: str) -> Iterator[Overlay]:
        """The files beside one, or below its folder, that set hardly anything but what it has."""
        below = self.compositions.inherited(base)
        for path, (source, settings) in self.compositions.files.items():
            inside = path.startswith(f"{posixpath.dirname(base)}/") and path != base
            own = self.compositions.tree(path)
            if inside and language(source.path) == "yaml" and not is_test(source.path) and _is_like(own, below):
                yield Overlay(path, own, below, known=settings.get("defaults") is not None)


def _is_like(own: Node, base: Node) -> bool:
    """Whether most sections of a file are sections of another one."""
    sections = [name for name, child in own.children.items() if child.kind == MAPPING and child.children]
    shared = [name for name in sections if name in base.children and base.children[name].kind == MAPPING]
    return len(shared) >= _LIKE and 2 * len(shared) > len(sections)
