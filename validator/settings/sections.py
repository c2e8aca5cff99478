"""A configuration file as a tree of sections."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from validator.facts.config_files import LIST, MAPPING, Setting, Settings


@dataclass(eq=False)
class Section:
    """A mapping of a file, or a list of them: its keys in order, each with what it holds.

    `setting` is the key that it stands under; None for the whole file.
    """

    path: str
    setting: Setting | None = None
    keys: dict[str, Setting] = field(default_factory=dict)
    inside: dict[str, Section] = field(default_factory=dict)

    @property
    def is_list(self) -> bool:
        return self.setting is not None and self.setting.kind == LIST

    @property
    def name(self) -> str:
        """The key that it stands under; empty for the whole file."""
        return self.setting.path[-1] if self.setting is not None else ""

    @property
    def dotted(self) -> str:
        return ".".join(self.setting.path) if self.setting is not None else ""


def field_name(key: str) -> str:
    """A key as fields are spelled: with `_` for `-`."""
    return key.replace("-", "_")


# Keys of a whole file that say how Hydra puts it together.
_OF_HYDRA = frozenset({"defaults", "hydra"})


def tree(path: str, settings: Settings) -> Section:
    """The sections of a file, their keys spelled as fields are.

    What stands there only to be repeated elsewhere (`&anchor`, `*anchor`) belongs where it is repeated.
    """
    root = Section(path)
    known: dict[tuple[str, ...], Section] = {(): root}
    written = Counter(each.value_at for each in settings.settings)
    for setting in settings.settings:
        above = known.get(setting.path[:-1])
        if above is None or len(setting.path) == 1 and (setting.path[0] in _OF_HYDRA or written[setting.value_at] > 1):
            continue
        name = field_name(setting.path[-1])
        above.keys[name] = setting
        if setting.kind in (MAPPING, LIST):
            known[setting.path] = above.inside[name] = Section(path, setting)
    return root
