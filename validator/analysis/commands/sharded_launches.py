"""Whether a project starts programs with models that are sharded, by options that libraries give every program."""

from __future__ import annotations

from functools import cached_property

from validator.analysis.commands.command_line import CommandLine, CommandLines
from validator.analysis.commands.launch import Launch, Launches, arguments_of
from validator.facts.config_files import settings_of
from validator.project import Project

_OF_PROGRAMS = frozenset({"--deepspeed", "--fsdp"})  # of `transformers.TrainingArguments`
_OF_LAUNCHER = ("use_deepspeed", "use_fsdp", "deepspeed_config_file", "fsdp_sharding_strategy")  # `accelerate launch`
_WHOLE = 3  # the stage of ZeRO that cuts the parameters up, too


class ShardedLaunches:
    """An answer for one project, remembered."""

    def __init__(self, project: Project) -> None:
        self.project = project

    @cached_property
    def there_are(self) -> bool:
        """Whether some command starts a program so."""
        return any(_shards(launch) for launch in self.project.analysis(Launches).all)

    @cached_property
    def of_parameters(self) -> bool:
        """Whether some command asks for a model of which each rank has a part: by FSDP, or by a file with ZeRO-3."""
        return any(self._cuts(launch, line) for launch, line in self.project.analysis(CommandLines).all)

    def _cuts(self, launch: Launch, line: CommandLine) -> bool:
        given = line.last("--deepspeed")
        named = given.values[0] if given is not None and given.values else launch.launcher_option(_OF_LAUNCHER[2])
        if named is None or not named.known:
            return line.last("--fsdp") is not None or launch.launcher_option("use_fsdp") is not None
        source = self.project.analysis(Launches).file_named(named, launch)
        stage = settings_of(source).get("zero_optimization", "stage") if source is not None else None
        return stage is not None and stage.value == _WHOLE


def _shards(launch: Launch) -> bool:
    options = {each.text.partition("=")[0] for each in arguments_of(launch) if each.known}
    return not _OF_PROGRAMS.isdisjoint(options) or launch.launcher_option(*_OF_LAUNCHER) is not None
