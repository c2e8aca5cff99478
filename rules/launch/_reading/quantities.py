"""What a launch script or a configuration file says of the quantities that the table of constraints relates."""

from __future__ import annotations

import posixpath
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from rules import models
from rules.constraints import CHOICES
from rules.launch._reading import meaning as _meaning
from rules.launch._reading import offers as _offers
from rules.launch._reading import own_options as _own
from rules.launch._reading.common import origin
from rules.launch._reading.configuration import Configuration, Said
from rules.launch._reading.dictionaries import dictionaries
from rules.launch._reading.files import Files
from rules.launch._reading.frameworks import Framework, frameworks, named
from rules.launch._reading.own_values import Values
from validator.analysis.commands.command_line import CommandLine, CommandLines, Given
from validator.analysis.commands.fields import Field
from validator.analysis.commands.launch import Launch
from validator.analysis.commands.programs import Programs
from validator.analysis.options.parsers import Parser
from validator.analysis.recipes.composed import Composition, Compositions, Node
from validator.analysis.sizes.quotients import Quotients
from validator.facts.config_files import Setting, Settings
from validator.flow.literals import UNKNOWN
from validator.project import Module, Project

_TEXTS = frozenset({
    "backend", "dtype", "attn", "optimizer", "advantage", "model", "critic_model", "compile", "config_file",
    "engine_dtype", "engine_logprobs", "ratio_weights", "ratio_rejects",
})  # fmt: skip
_OF_ACCELERATE = ("compute_environment", "parallelism_config")  # keys of its files, at the top
_NUMBERS = frozenset({"kl_coefficient", "top_p", "min_p", "temperature", "ratio_cap", "engine_share"})
_SPELLINGS = {
    "bfloat16": "bf16", "float16": "fp16", "half": "fp16", "float32": "fp32", "fp32": "fp32", "float": "fp32",
    "processed_logprobs": "processed", "processed_logits": "processed", "raw_logprobs": "raw", "raw_logits": "raw",
}  # fmt: skip


def configurations(project: Project) -> Iterator[Configuration]:
    """Every configuration that the files of a project say."""
    files = Files(project)
    for launch, line in project.analysis(CommandLines).all:
        yield from _launched(project, files, launch, line)
    yield from _recipes(project, files)
    for path, settings in (*files.settings.items(), *dictionaries(project)):
        yield from _standing_alone(path, settings)


# -- launches ----------------------------------------------------------------------------------------------


def _launched(project: Project, files: Files, launch: Launch, line: CommandLine) -> Iterator[Configuration]:
    composition = project.analysis(Compositions).of(launch)
    options = {given.name for given in line.given} | {each.text.partition("=")[0] for each in launch.arguments}
    program = launch.module.name if launch.module is not None else launch.program.text
    framework = next((each for each in frameworks() if each.is_of(program, options) or _forked(each, launch)), None)
    place = launch.program.place
    span = (place.line, place.column, place.line, max(launch.program.end, place.column + 1))
    result = Configuration(launch.name, "", place.path, span, {}, open=line.open)
    if framework is not None:
        result.framework = framework.name if framework.name in ("openrlhf", "verl", "trl") else ""
        result.said.update(_by_flags(framework, launch.parser, line))
        result.said.update(_by_keys(framework, launch, composition))
        if framework.backend:
            result.implied["backend"] = framework.backend
        _follow_file(framework, result, files)
    _processes(launch, result, files)
    if framework is None and launch.module is not None:
        _own_program(project, files, result, launch.module, launch, line, composition)
    _model(result, files)
    if framework is not None:
        yield from _meaning.refined(result, framework, launch, line)
    elif result.said or result.offers:
        yield result


def _forked(framework: Framework, launch: Launch) -> bool:
    """Whether a program offers what those of a framework offer, and no sizes beside them."""
    if launch.parser is None or not framework.kin:
        return False
    offered = frozenset(launch.parser.flags)
    known = {flag for flags in framework.flags.values() for flag in flags}
    known |= {flag for switches in framework.switches.values() for flag in switches}
    others = (option for option in launch.parser.options if known.isdisjoint(option.flags))
    return any(each <= offered for each in framework.kin) and not any(
        _own.meaning(tuple(option.dest.split("."))) in ("?", "tp", "pp", "ring", "ulysses") for option in others
    )


def _own_program(
    project: Project, files: Files, result: Configuration, module: Module, launch: Launch, line: CommandLine,
    composition: Composition | None,
) -> None:  # fmt: skip
    """What the options of a program mean that is none of those known by name, but is in the project."""
    programs = project.analysis(Programs)
    if composition is not None:
        offers = _offers.of_composition(launch.arguments, composition)
    else:
        offers = _offers.of_options(launch, line, programs.settings(module))
        for name in _offers.files_named(line, launch.parser):
            found = files.by_path(name, launch.path, launch.home)
            if found is None:
                continue
            if _is_deepspeeds(found[1]):
                for quantity, said in _in_file(named("deepspeed.json"), *found).items():
                    result.said.setdefault(quantity, said)
                result.implied["backend"] = "deepspeed"
            else:
                beside = _offers.of_file(*found, programs.settings(module))
                words = {row.path for row in offers.rows}
                kept = [row for row in beside.rows if row.path not in words]  # the command line wins
                complete = offers.complete or launch.parser is None and _offers.are_all_keys(offers, beside, name)
                offers = _offers.Offers([*offers.rows, *kept], complete and beside.complete)
    _understand(project, result, module, offers)


def _understand(project: Project, result: Configuration, module: Module, offers: _offers.Offers) -> None:
    programs = project.analysis(Programs)
    result.module, result.offers = module, tuple(offers.rows)
    source = _own.Source(
        lambda: programs.text(module), lambda: _divided(project, module), lambda: _batches(project, result, module)
    )
    _own.understood(result, offers.rows, complete=offers.complete, source=source)


def _recipes(project: Project, files: Files) -> Iterator[Configuration]:
    """The files that are laid over the one that a program reads by itself, each as if it were named to it."""
    for module, composition in project.analysis(Compositions).recipes():
        path = composition.root.path
        offers = _offers.of_composition((), composition)
        rows = [
            row._replace(said=row.said.in_file())
            if row.said is not None and row.said.default is not None and row.said.default[0] == path
            else row
            for row in offers.rows
        ]
        result = Configuration(composition.name, "", path, (1, 1, 1, 2), {})
        _understand(project, result, module, _offers.Offers(rows, offers.complete))
        _model(result, files)
        yield result


def _divided(project: Project, module: Module) -> frozenset[str]:
    """The parallel sizes by which a program divides its ranks, by their tags; empty where it does not."""
    own = frozenset(project.analysis(Programs).modules(module))
    rows = (row for row in project.analysis(Quotients).all if row.function.module in own and row.size.has("world"))
    tags = {factor.tag for row in rows if "batch" not in row.size.tags for factor in row.size.under}
    return frozenset(tags - {"gpus", "nodes"})


def _batches(project: Project, result: Configuration, module: Module) -> frozenset[str]:
    """The options whose value the program divides by micro-batches: they are batches of all ranks."""
    values = Values(project, result, module)
    rows = (row for row in project.analysis(Quotients).all if row.function.module in values.own)
    batches = ((row, factor) for row in rows if row.size.below("micro") for factor in row.size.over)
    found = (values.named(row.function, factor) for row, factor in batches if factor.tag == "batch")
    return frozenset(said.flag for said in found if said is not None)


def _by_flags(framework: Framework, parser: Parser | None, line: CommandLine) -> dict[str, Said]:
    said: dict[str, Said] = {}
    for quantity, flags in framework.flags.items():
        if (found := _given(quantity, flags, parser, line, framework.absent)) is not None:
            said[quantity] = found
    for quantity, switches in framework.switches.items():
        found = _switched(quantity, switches, parser, line, framework.absent)
        if found is not None and (found.span is not None or quantity not in said):
            said[quantity] = found
    for quantity, factors in framework.products.items():
        parts = [_given(quantity, flags, parser, line, framework.absent) for flags in factors]
        if all(part is not None for part in parts):
            said[quantity] = _product([part for part in parts if part is not None])
    return said


def _given(
    quantity: str, flags: tuple[str, ...], parser: Parser | None, line: CommandLine, absent: Mapping[str, Any]
) -> Said | None:
    given = line.last(*flags)
    if given is not None:
        return _said(quantity, given, given.values[0] if given.values else None)
    option = next((o for flag in flags if parser is not None and (o := parser.flags.get(flag)) is not None), None)
    if option is not None and not line.open:
        if option.default is UNKNOWN or option.default is None:
            return None
        return Said(_converted(quantity, str(option.default)), option.flags[0])
    if quantity in absent and (option is None if parser is not None else not line.open):
        return Said(absent[quantity], flags[0])
    return None


def _said(quantity: str, given: Given, value: Field | None) -> Said | None:
    if value is None:
        return None
    path = given.flag.place.path
    related = tuple(origin(value))
    if not value.known:
        return Said(None, given.flag.text, path, given.at, value.why, related=related)
    return Said(_converted(quantity, value.text), given.flag.text, path, given.at, related=related)


def _switched(
    quantity: str, switches: Mapping[str, Any], parser: Parser | None, line: CommandLine, absent: Mapping[str, Any]
) -> Said | None:
    given = line.last(*switches)
    if given is not None:
        value = switches.get(given.name, True)
        return Said(value, given.flag.text, given.flag.place.path, given.at, switch=True)
    if line.open:
        return None
    flag = next(iter(switches))
    if parser is not None:
        flag = next((each for each in switches if each in parser.flags), "")
        if not flag:
            return Said(absent[quantity], next(iter(switches)), switch=True) if quantity in absent else None
        off = {True: False, "deepcompile": "none"}.get(switches[flag])
        return Said(off, flag, switch=True) if off is not None else None
    return Said(absent[quantity], flag, switch=True) if quantity in absent else None


def _product(parts: list[Said]) -> Said:
    shown = next((part for part in parts if part.span is not None), parts[0])
    flags = " × ".join(part.flag for part in parts if part.value != 1 or part is shown)
    unknown = next((part for part in parts if part.value is None), None)
    if unknown is not None:
        return unknown
    value = 1
    for part in parts:
        value *= part.value
    return shown._replace(value=value, flag=flags)


def _converted(quantity: str, text: str) -> Any:
    """The value of a quantity in the words of the table; None where it has none."""
    text = text.strip().strip("\"'")
    if quantity in _TEXTS:
        return _SPELLINGS.get(text, text) if text not in ("None", "null", "") else None
    if quantity in _NUMBERS:
        return _number(text, float)
    if text.lower() in ("true", "false"):
        return text.lower() == "true"
    return _number(text, int)


def _number(text: str, kind: Callable[[str], Any]) -> Any:
    try:
        return kind(text)
    except ValueError:
        return None


def _by_keys(framework: Framework, launch: Launch, composition: Composition | None) -> dict[str, Said]:
    """What `key=value` words say, over what the composed configuration says."""
    words = {}
    for each in launch.arguments:
        parts = each.split("=")
        if parts is not None and parts[0].known and not each.text.startswith("-"):
            words[parts[0].text.lstrip("+")] = (each, parts[1])
    said: dict[str, Said] = {}
    for quantity, keys in framework.keys.items():
        for key in keys:
            if key in words:
                said[quantity] = _by_word(quantity, key, *words[key])
            elif composition is not None and quantity not in said:
                found = composition.root.find(key.split("."))
                if found is not None and (made := _by_node(quantity, key, found)) is not None:
                    said[quantity] = made
    return said


def _by_word(quantity: str, key: str, word: Field, value: Field) -> Said:
    place = word.place
    at = (place.line, place.column, place.line, max(word.end, place.column + 1))
    known = _converted(quantity, value.text) if value.known else None
    return Said(known, key, place.path, at, value.why, related=tuple(origin(value)))


def _by_node(quantity: str, key: str, node: Node) -> Said | None:
    if node.value is None or (isinstance(node.value, str) and "${" in node.value):
        return None
    return Said(_converted(quantity, str(node.value)), key)


# -- processes, models, files ------------------------------------------------------------------------------


def _processes(launch: Launch, result: Configuration, files: Files) -> None:
    if launch.engine == "accelerate":
        _accelerate(launch, result, files)
        return
    if launch.engine == "python" or launch.under_ray:
        return
    processes, nodes = launch.processes_per_node(), launch.node_count()
    given = [(launch.processes, "procs_per_node", processes), (launch.nodes, "num_nodes", nodes)]
    for each, quantity, value in given:
        if each is not None:
            result.said[quantity] = _launcher_said(launch, each, value)
        elif value is not None:
            result.said[quantity] = Said(value, "")
    unknown = next((said for _, name, _ in given if (said := result.said.get(name)) is not None and said.why), None)
    if unknown is not None:
        result.said["world_size"] = unknown
    elif processes is not None and nodes is not None:
        shown = result.said["procs_per_node"]
        flag = shown.flag if nodes == 1 else f"{shown.flag} × {result.said['num_nodes'].flag}"
        result.said["world_size"] = shown._replace(value=processes * nodes, flag=flag)
        if nodes == 1:
            result.drop("procs_per_node", "num_nodes")  # one number, to be changed in one place


def _launcher_said(launch: Launch, value: Field, number: int | None) -> Said:
    flag = next((f"--{name}" for name, each in launch.options.items() if each is value), "")
    place = value.place
    at = (place.line, place.column, place.line, max(value.end, place.column + 1))
    why = value.why if number is None else ""
    return Said(number, flag, place.path, at, why, related=tuple(origin(value)))


def _accelerate(launch: Launch, result: Configuration, files: Files) -> None:
    if (file := launch.launcher_option("config_file")) is not None:
        settings = files.find(file, launch.path)
        if settings is not None:
            result.said.update(_in_file(named("accelerate.yaml"), *settings))
    for quantity, names in (("world_size", ("num_processes",)), ("num_nodes", ("num_machines",))):
        if (given := launch.launcher_option(*names)) is not None:
            result.said[quantity] = _launcher_said(launch, given, given.integer())


def _model(result: Configuration, files: Files) -> None:
    """The shape of the model that is named."""
    said = result.said.pop("model", None)
    if said is None:
        return
    if said.value is None:
        for quantity in ("heads", "kv_heads", "mlp", "max_position_embeddings"):
            result.said.setdefault(quantity, said._replace(value=None))
        return
    facts = models.find(str(said.value)) or files.model(str(said.value), result.path)
    if facts is not None:
        result.implied.update(facts.quantities())
    elif said.span is not None:
        why = f"the shape of `{said.value}` is not known"
        for quantity in ("heads", "kv_heads", "mlp"):
            result.said.setdefault(quantity, said._replace(value=None, why=why))


def _follow_file(framework: Framework, result: Configuration, files: Files) -> None:
    """What a configuration file that the command names says; options win."""
    named_file = result.said.pop("config_file", None)
    if named_file is None or not isinstance(named_file.value, str):
        return
    found = files.by_path(named_file.value, result.path)
    if found is None:
        return
    path, _ = found
    kind = framework if path.endswith(".toml") else named("deepspeed.json")
    inside = _in_file(kind, *found)
    for quantity, said in inside.items():
        known = result.said.get(quantity)
        if known is None or (kind is framework and known.span is None):  # the program's own file beats a default
            result.said[quantity] = said
    if kind is not framework and inside:
        result.implied["backend"] = "deepspeed"


def _in_file(framework: Framework, path: str, settings: Settings) -> dict[str, Said]:
    """What the settings of a file say; `auto` and -1 say nothing."""
    by_key: dict[str, Setting] = {".".join(each.path): each for each in settings.settings}
    said = {}
    for quantity, keys in framework.keys.items():
        each = next((by_key[key] for key in keys if key in by_key), None)
        if each is None or each.kind != "scalar" or each.value in ("auto", -1, None):
            continue
        value = each.value if isinstance(each.value, bool) else _converted(quantity, str(each.value))
        line, column, _, _ = each.at
        said[quantity] = Said(value, ".".join(each.path), path, (line, column, line, max(each.at[3], column + 1)))
    return said


def _is_deepspeeds(settings: Settings) -> bool:
    """Whether a file is a configuration of DeepSpeed, by a key that nothing else has at its top."""
    marks = ("zero_optimization", "train_micro_batch_size_per_gpu")
    return any(settings.get(mark) is not None for mark in marks) and settings.get("compute_environment") is None


def _standing_alone(path: str, settings: Settings) -> Iterator[Configuration]:
    """A configuration file by itself, whoever uses it."""
    if _is_deepspeeds(settings):
        framework = named("deepspeed.json")
        implied = {"backend": "deepspeed"}
    elif settings.get("num_processes") is not None and any(settings.get(mark) is not None for mark in _OF_ACCELERATE):
        framework, implied = named("accelerate.yaml"), {}
    elif path.endswith(".toml") and settings.get("parallelism") is not None:
        framework = next(each for each in frameworks() if each.backend == "torchtitan")
        implied = {"backend": "torchtitan"}
    else:
        return
    said = _in_file(framework, path, settings)
    result = Configuration(posixpath.basename(path), "", path, (1, 1, 1, 2), said, dict(implied))
    yield from _meaning.refined_file(result, framework)


__all__ = ["CHOICES", "Configuration", "Said", "configurations"]
