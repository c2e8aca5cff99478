"""The configuration files of a project, found by the names that scripts use."""

from __future__ import annotations

import posixpath

from rules import models
from validator.analysis.commands.fields import Field
from validator.analysis.commands.scripts import Scripts
from validator.facts.config_files import Settings
from validator.project import Project


class Files:
    """The configuration files of a project, by path."""

    def __init__(self, project: Project) -> None:
        self.project = project
        self.settings: dict[str, Settings] = {
            source.path: source.facts.extra["settings"]
            for source in project.files.values()
            if "settings" in source.facts.extra
        }
        self._by_place = {source.absolute: source.path for source in project.files.values()}

    def find(self, file: Field, script: str) -> tuple[str, Settings] | None:
        tail = file.text if file.known else file.tail.lstrip("/")
        return self.by_path(tail, script) if file.known or "/" in file.tail else None

    def by_path(self, tail: str, script: str, home: str = "") -> tuple[str, Settings] | None:
        """The file that a path means, looked for from the folders around a script, then from the one in which it is
        run, if that is known."""
        near = self.project.analysis(Scripts).find(tail, script, self._by_place)
        path = near or self._by_place.get(posixpath.normpath(f"{home}/{tail}"), "")
        return (path, self.settings[path]) if path in self.settings else None

    def model(self, name: str, script: str) -> models.ModelFacts | None:
        """The shape in a checkpoint's `config.json` among the files."""
        found = self.by_path(f"{name.rstrip('/')}/config.json", script)
        if found is None:
            return None
        flat = {each.path[0]: each.value for each in found[1].settings if len(each.path) == 1 and each.kind == "scalar"}
        try:
            return models.from_config(flat, name)
        except models.ModelError:
            return None
