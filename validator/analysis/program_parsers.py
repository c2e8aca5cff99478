"""Which parser reads the command line of a program that is started, and why it may not be known."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cached_property

from validator.analysis.options import Options, Parser
from validator.analysis.programs import Programs
from validator.facts.text import path_of
from validator.flow.objects import Objects
from validator.project import Method, Module, Project

_SHOWN = 3
# what reads a command line and is not followed, the surest first: all of them make parsers, or read the words
_READERS = tuple(
    (re.compile(pattern, re.MULTILINE), said)
    for pattern, said in (
        (r"^\s*@hydra\.main\b", "Hydra reads them, and the configuration that it composes was not found"),
        (r"^\s*@\w*\.?(click|command|option)\b.*\(|\bimport click\b", "`click` reads them"),
        (r"\btyper\.(run|Typer)\(", "`typer` reads them"),
        (r"\bfire\.Fire\(", "`fire` makes them of whatever it is given"),
        (r"\b(tyro\.cli|simple_parsing\.parse|pyrallis\.parse|draccus\.\w+)\b", "a library makes them of a class"),
        (r"\b(HfArgumentParser|TrlParser)\(", "a library makes them of classes that are not followed"),
        (r"\bjsonargparse\b|\bLightningCLI\(", "`jsonargparse` makes them of signatures"),
        (r"\bOmegaConf\.from_cli\(", "OmegaConf takes whatever keys it is given"),
        (r"\babsl\b.*\bflags\b|\bflags\.DEFINE_", "`absl` reads them"),
        (r"\bArgumentParser\(|\.parse(_known)?_args\(", "the parser cannot be followed to where it reads them"),
        (r"\bsys\.argv\b", "the program takes `sys.argv` apart itself"),
    )
)


class ProgramParsers:
    """Answers for one project, remembered."""

    def __init__(self, project: Project) -> None:
        self.project = project

    def of(self, module: Module) -> Parser | None:
        """The parser that reads the command line of a program; None where that is not certain."""
        parsers = self._candidates(module)
        return parsers[0] if len(parsers) == 1 else None

    def why_unknown(self, module: Module) -> str:
        """Why `of` knows no parser of a program."""
        parsers = self._candidates(module)
        if len(parsers) > 1:
            places = ", ".join(sorted(f"{p.module.path}:{p.at[0]}" for p in parsers)[:_SHOWN])
            return f"{len(parsers)} parsers may read them ({places})"
        near = list(dict.fromkeys([module, *self.project.analysis(Programs).imported(module)]))
        for reader, said in _READERS:
            for each in near:
                if (match := reader.search(each.source.text)) is not None:
                    line = each.source.text.count("\n", 0, match.start()) + 1
                    return f"{said} ({each.path}:{line})"
        return "nothing was found in it that reads them"

    def _candidates(self, module: Module) -> list[Parser]:
        """What is nearer to the program wins, even where it is ambiguous."""
        return self._own.get(module) or self._helped.get(module) or self._started(module)

    @cached_property
    def _readers(self) -> dict[Method, list[Parser]]:
        """The functions that read a command line, and those that call them: `args = parse_args()` in the program."""
        found: dict[Method, dict[Parser, None]] = {}
        for parser in self.project.analysis(Options).parsers:
            for function in {site.function for site in parser.sites}:
                for reader in (function, *self._callers(function)):
                    found.setdefault(reader, {})[parser] = None
        return {function: list(parsers) for function, parsers in found.items()}

    @cached_property
    def _own(self) -> dict[Module, list[Parser]]:
        """The parsers that are made or read in a module."""
        found: dict[Module, list[Parser]] = {}
        for parser in self.project.analysis(Options).parsers:
            for module in {parser.module, *(site.function.module for site in parser.sites)}:
                found.setdefault(module, []).append(parser)
        return found

    @cached_property
    def _helped(self) -> dict[Module, list[Parser]]:
        """The parsers that helpers of a module read for it."""
        found: dict[Module, list[Parser]] = {}
        for function, parsers in self._readers.items():
            known = found.setdefault(function.module, [])
            known += [parser for parser in parsers if parser not in known]
        return found

    def _started(self, module: Module) -> list[Parser]:
        """The parser of the program that a script of few lines starts: `from package.cli import main; main()`."""
        found: dict[Parser, None] = {}
        for call in _calls_at_top(module.source.tree):
            symbol = self.project.lookup(module.top, path_of(call.func))
            if isinstance(symbol, Method):
                found.update(dict.fromkeys(self._readers.get(symbol, ())))
        return list(found)

    def _callers(self, function: Method) -> Iterator[Method]:
        if function.qualname != "<module>" and function.cls is None:
            yield from (caller for caller, _ in self.project.analysis(Objects).callers(function))


def _calls_at_top(node: ast.AST) -> Iterator[ast.Call]:
    """The calls that run when a file does, in the order of the file."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.Call):
            yield child
        if not isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef | ast.Lambda):
            yield from _calls_at_top(child)
