"""What the analysis knows of one line of a script or a configuration file: what it starts, and with which options."""

from __future__ import annotations

from collections.abc import Iterator

from validator.analysis.commands.command_line import CommandLines, Given
from validator.analysis.commands.fields import Field
from validator.analysis.commands.launch import Launch
from validator.analysis.commands.program_parsers import ProgramParsers
from validator.analysis.recipes.composed import Composition, Compositions, Override
from validator.facts.config_files import Setting
from validator.project import Project

_SHOWN = 4  # launches of one line


def why_launch(project: Project, path: str, line: int) -> list[str]:
    """Lines of plain text about a line of a file that is no Python. Raises LookupError where there is no such line."""
    source = project.files[path]
    lines = source.text.count("\n") + (not source.text.endswith("\n"))
    if line > lines:
        raise LookupError(f"{path} has {lines} line{'s' if lines != 1 else ''}")
    told = [*_settings(project, path, line), *_launches(project, path, line)]
    return [f"{path}:{line}", *(told or ["  no program is started here, and no launch takes a value from here"])]


def _settings(project: Project, path: str, line: int) -> Iterator[str]:
    """The keys of a configuration file on its line."""
    settings = project.files[path].facts.extra.get("settings")
    for each in settings.settings if settings is not None else ():
        if each.at[0] == line:
            yield f"  key `{'.'.join(each.path)}`{_value(each)}"
            yield from _named_by(project, path)


def _named_by(project: Project, path: str) -> Iterator[str]:
    """The launches whose words name a file."""
    for launch in list(dict.fromkeys(launch for launch, _ in project.analysis(CommandLines).all)):
        words = (each.text.rpartition("=")[2].removeprefix("./") for each in launch.arguments if each.known)
        if any(word and f"/{path}".endswith(f"/{word}") for word in words):
            yield f"    the file is given to `{launch.name}`, started at {launch.path}:{launch.at[0]}"


def _value(setting: Setting) -> str:
    return f": {setting.value!r}" if setting.kind == "scalar" else ", a section"


def _launches(project: Project, path: str, line: int) -> Iterator[str]:
    near = [row for row in project.analysis(CommandLines).all if _concerns(row[0], path, line)]
    for launch, words in near[:_SHOWN]:
        yield f"  {_started(launch)}"
        composition = project.analysis(Compositions).of(launch)
        yield f"  {_read_by(project, launch, composition)}"
        for given in words.given:
            if any(_stands_at(each, path, line) for each in (given.flag, *given.values)):
                yield f"    {_given(given, launch)}"
        for override in composition.overrides if composition is not None else ():
            if _stands_at(override.word, path, line) and composition is not None:
                yield f"    {_overridden(override, composition)}"
        yield from (f"    {each}" for each in _of_launcher(launch, path, line))
        if words.open:
            yield "    words that are not known when it is read (`$@`, unset variables) may add options"
    if len(near) > _SHOWN:
        yield f"  … and {len(near) - _SHOWN} more launches"


def _concerns(launch: Launch, path: str, line: int) -> bool:
    within = launch.path == path and launch.at[0] <= line <= launch.at[2]
    within = within or any(launch.path == path and at[0] == line for _, _, at in launch.directives)
    return within or any(_stands_at(each, path, line) for each in (*launch.arguments, *launch.options.values()))


def _stands_at(word: Field, path: str, line: int) -> bool:
    """Whether a word, or a value in it, is written on a line."""
    places = [place for bit in word.bits for place in (bit.place, bit.origin) if place is not None]
    return any(place.path == path and place.line == line for place in places)


def _started(launch: Launch) -> str:
    where = f" ({launch.module.path})" if launch.module is not None else ", which is not among the files that were read"
    processes, nodes = launch.processes_per_node(), launch.node_count()
    if launch.engine == "python":
        return f"starts `{launch.name}`{where} with Python"
    counts = [f"{_count(processes)} processes per node", f"{_count(nodes)} node{'' if nodes == 1 else 's'}"]
    return f"starts `{launch.name}`{where} with {launch.engine}: {' on '.join(counts)}"


def _count(number: int | None) -> str:
    return str(number) if number is not None else "an unknown number of"


def _read_by(project: Project, launch: Launch, composition: Composition | None) -> str:
    parser = launch.parser
    if composition is not None and parser is not None:
        return f"its options are read by the parser at {parser.function.path}:{parser.at[0]}, the words beside them" + (
            f" are laid over its configuration `{composition.name}`"
        )
    if parser is not None:
        more = f"; it may accept more: {parser.reason}" if parser.open else ""
        return f"its options are read by the parser at {parser.function.path}:{parser.at[0]}{more}"
    if composition is not None:
        return f"Hydra composes its configuration `{composition.name}`"
    if launch.module is None:
        return "its options are not known"
    return f"its options cannot be checked: {project.analysis(ProgramParsers).why_unknown(launch.module)}"


def _given(given: Given, launch: Launch) -> str:
    values = " ".join(each.text if each.known else f"{each.text} ({each.why})" for each in given.values)
    option = given.option
    if option is None:
        meant = "an option that its parser does not define" if launch.parser is not None else "not checked"
    else:
        kind = f", {option.type}" if option.type else ""
        meant = f"option `{option.dest}`{kind} ({option.path}:{option.at[0]})"
    return f"{given.name}{f' = {values}' if values else ''}: {meant}"


def _overridden(override: Override, composition: Composition) -> str:
    node = composition.root.find(override.key.split("."))
    value = override.value.text if override.value.known else f"{override.value.text} ({override.value.why})"
    if node is None:
        return f"{override.sign}{override.key} = {value}: the configuration has no such key"
    return f"{override.key} = {value}: {node.value!r} in {node.path}:{node.at[0]}"


def _of_launcher(launch: Launch, path: str, line: int) -> Iterator[str]:
    for option, said, at in launch.directives:
        if launch.path == path and at[0] == line:
            yield f"{option} = {said}: of the job that the script asks Slurm for"
    for name, value in launch.options.items():
        if name != "*" and _stands_at(value, path, line):
            yield f"--{name} = {value.text}{'' if value.known else f' ({value.why})'}: option of {launch.engine}"


__all__ = ["why_launch"]
