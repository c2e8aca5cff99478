"""One file of a run: its bytes, text, syntax tree and facts, each made when first asked for."""

from __future__ import annotations

from collections import deque
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from validator.files.programs import ProgramPath
from validator.files.reading import regular
from validator.run.cache import digest

if TYPE_CHECKING:
    import ast
    from collections.abc import Mapping

    import libcst
    from libcst.metadata import MetadataWrapper, ProviderT

    from validator.facts.model import FileFacts
    from validator.ir.model import Code


_KEPT = 4  # files whose trees are kept: rules look at one file after the other
_recent: deque[SourceFile] = deque()


class SourceFile:
    """A file as the rules see it.

    `path` is how it is reported (relative to the working directory, forward slashes), `absolute` where it lies.
    """

    __slots__ = (
        "_concrete",
        "_data",
        "_digest",
        "_facts",
        "_lowered",
        "_text",
        "_tree",
        "absolute",
        "own_names",
        "path",
    )

    def __init__(self, path: str, absolute: str, data: bytes | None = None) -> None:
        self.path = path
        self.absolute = absolute
        self.own_names: dict[str, str] = {}  # with `tree`: names that it does not have any more
        self._data = data
        self._digest: str | None = None
        self._facts: FileFacts | None = None
        self._text: str | None = None
        self._tree: ast.Module | None = None
        self._concrete: MetadataWrapper | None = None
        self._lowered: dict[frozenset[str], tuple[dict[str, Code], int]] = {}

    @property
    def data(self) -> bytes:
        """The bytes of the file. Raises OSError."""
        if self._data is None:
            self._data = regular(self.absolute)
        return self._data

    @property
    def digest(self) -> str:
        """BLAKE2b-128 of the bytes, in hexadecimal."""
        if self._digest is None:
            self._digest = digest(self.data).hex()
        return self._digest

    @property
    def text(self) -> str:
        """The decoded text with line ends folded to a line feed (undecodable bytes replaced)."""
        if self._text is None:
            from validator.facts.decode import decode

            self._text = decode(self.data)[0]
        return self._text

    @property
    def lines(self) -> list[str]:
        return self.text.split("\n")

    @property
    def tree(self) -> ast.Module:
        """The `ast` of the file. Raises SyntaxError, ValueError or RecursionError where `facts.problem` is set."""
        if self._tree is None:
            import ast
            import warnings

            from validator.facts.identities import looked_through, without_empty_ends
            from validator.facts.named_tuples import write_out
            from validator.facts.own_names import under_own_names

            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # invalid escapes in the file read are not ours to print
                tree = ast.parse(self.text)
            self.own_names = under_own_names(tree)
            self._tree = looked_through(write_out(tree))
            if "finally" in self.text:
                without_empty_ends(self._tree)
            _recent.append(self)
            if len(_recent) > _KEPT:  # the trees of a whole project would be half of the memory
                _recent.popleft()._tree = None
        return self._tree

    def mark_as_program(self) -> None:
        """Have its path say that it belongs to the program, though its name or folder says otherwise."""
        self.path = ProgramPath(self.path)

    def lowered(self, elsewhere: frozenset[str] = frozenset()) -> tuple[dict[str, Code], int]:
        """The units of the file as the intermediate representation has them, and how many could not be lowered; two
        projects that hold the file (two revisions of one) share them. `elsewhere`: functions of this file of whose
        names there are others in the project."""
        known = self._lowered.get(elsewhere)
        if known is None:
            from validator.ir.lower import lower

            try:
                known = lower(self.tree, ":=" in self.text, elsewhere)
            except (SyntaxError, ValueError, RecursionError, OSError):
                known = {}, 0
            self._lowered[elsewhere] = known
        return known

    def lower(self) -> None:
        """Lower a Python file while its tree is there."""
        if self.facts.language == "python" and self.facts.problem is None:
            with suppress(Exception):  # who asks for the units will be told
                self.lowered()

    def let_go(self) -> None:
        """Forget what can be read again; the text of a file with units is asked for with its findings."""
        self._data = None
        if not self._lowered:
            self._text = None

    @property
    def module(self) -> libcst.Module:
        """The concrete syntax of the file, for matchers and visitors. LibCST is imported when this is first asked for.

        Raises libcst.ParserSyntaxError where the file cannot be parsed.
        """
        return self._wrapper.module

    def metadata(self, provider: ProviderT) -> Mapping[libcst.CSTNode, object]:
        """What a metadata provider of LibCST says of the nodes of `module`."""
        found: Mapping[libcst.CSTNode, object] = self._wrapper.resolve(provider)
        return found

    def span(self, node: libcst.CSTNode) -> tuple[int, int, int, int]:
        """The place of a node of `module` as findings have it: lines and columns from 1, the end exclusive."""
        from libcst.metadata import PositionProvider

        place = self._wrapper.resolve(PositionProvider)[node]
        return place.start.line, place.start.column + 1, place.end.line, place.end.column + 1

    @property
    def _wrapper(self) -> MetadataWrapper:
        if self._concrete is None:
            import libcst
            from libcst.metadata import MetadataWrapper

            self._concrete = MetadataWrapper(libcst.parse_module(self.text), unsafe_skip_copy=True)
        return self._concrete

    @property
    def facts(self) -> FileFacts:
        """The facts of the file: those set by a cache, or extracted now."""
        if self._facts is None:
            from validator.facts import extract

            self._facts = extract(self)
        return self._facts

    @facts.setter
    def facts(self, facts: FileFacts) -> None:
        self._facts = facts

    def release(self) -> None:
        """Forget what can be made again: trees and text are the bulk of a large run's memory."""
        self._tree = None
        self._lowered = {}
        self._text = None
        self._concrete = None

    def __getstate__(self) -> dict[str, Any]:
        return {
            "path": self.path,
            "absolute": self.absolute,
            "_data": None,
            "_digest": self._digest,
            "_facts": self._facts,
        }

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__init__(state["path"], state["absolute"])  # type: ignore[misc]
        self._digest, self._facts = state["_digest"], state["_facts"]
