"""Whether a project starts programs with models that are sharded, by options that libraries give every program."""

from __future__ import annotations

from functools import cached_property

from validator.analysis.commands.launch import Launch, Launches, arguments_of
from validator.project import Project

_OF_PROGRAMS = frozenset({"--deepspeed", "--fsdp"})  # of `transformers.TrainingArguments`
_OF_LAUNCHER = ("use_deepspeed", "use_fsdp", "deepspeed_config_file", "fsdp_sharding_strategy")  # `accelerate launch`


class ShardedLaunches:
    """An answer for one project, remembered."""

    def __init__(self, project: Project) -> None:
        self.project = project

    @cached_property
    def there_are(self) -> bool:
        """Whether some command starts a program so."""
        return any(_shards(launch) for launch in self.project.analysis(Launches).all)


def _shards(launch: Launch) -> bool:
    options = {each.text.partition("=")[0] for each in arguments_of(launch) if each.known}
    return not _OF_PROGRAMS.isdisjoint(options) or launch.launcher_option(*_OF_LAUNCHER) is not None
