"""Which parser reads the command line of a program that is started, and why it may not be known."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property

from validator.analysis.commands.programs import Programs
from validator.analysis.options.parsers import Options, Parser
from validator.facts.model import At
from validator.flow.objects import Objects
from validator.flow.queries.base import Queries
from validator.project import ClassDef, Method, Module, Project

_SHOWN = 3
# what reads a command line and is not followed, the surest first, by its full name or a beginning of it
_READERS = (
    (("hydra.main",), "Hydra reads them, and the configuration that it composes was not found"),
    (("click.",), "`click` reads them"),
    (("typer.",), "`typer` reads them"),
    (("fire.Fire",), "`fire` makes them of whatever it is given"),
    (("tyro.", "simple_parsing.parse", "pyrallis.", "draccus."), "a library makes them of a class"),
    (("transformers.Hf", "transformers.hf_argparser.", "trl.Trl"), "a library makes them of classes not followed"),
    (("jsonargparse.", "lightning.pytorch.cli."), "`jsonargparse` makes them of signatures"),
    (("omegaconf.OmegaConf.from_cli",), "OmegaConf takes whatever keys it is given"),
    (("absl.",), "`absl` reads them"),
    (("argparse.", "?.parse_args", "?.parse_known_args"), "the parser cannot be followed to where it reads them"),
    (("sys.argv",), "the program takes `sys.argv` apart itself"),
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
        named = [(each, name, at) for each in near for name, at in self._named(each)]
        for readers, said in _READERS:
            for each, name, at in named:
                if name.startswith(readers):
                    return f"{said} ({each.path}:{at[0]})"
        return "nothing was found in it that reads them"

    def _named(self, module: Module) -> Iterator[tuple[str, At]]:
        """What a module uses of libraries, by its full name; of methods of what is not known `?` and their name."""
        for function in module.functions.values():
            rows = [(call.target, call.at) for call in function.facts.calls]
            rows += [(ref.path, ref.at) for ref in function.facts.refs]
            rows += [(decorator.removesuffix("()"), function.facts.at) for decorator in function.facts.decorators]
            for path, at in rows:
                symbol = self.project.lookup(function, path)
                if isinstance(symbol, ClassDef):
                    yield from ((base, at) for base in symbol.external_bases)
                else:
                    yield self.project.dotted(function, path) or f"?.{path.rpartition('.')[2]}", at

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
        unit = self.project.analysis(Queries).flow.unit_of(module.top)
        for place in self.project.analysis(Queries).calls_in(unit) if unit is not None else ():
            for function in self.project.analysis(Objects).run_by(place):
                found.update(dict.fromkeys(self._readers.get(function, ())))
        return list(found)

    def _callers(self, function: Method) -> Iterator[Method]:
        if function.qualname != "<module>" and function.cls is None:
            yield from (caller for caller, _ in self.project.analysis(Objects).callers(function))
