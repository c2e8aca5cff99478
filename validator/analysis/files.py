"""Tests for files that ranks answer differently: what one rank makes or removes, another has not seen yet.

Storage counts as shared: a checkpoint that lies there is there for every rank. But where ranks also create or
remove what they ask for, the quick ones change the answer of the slow ones.
"""

from __future__ import annotations

import re
from functools import cached_property

from validator.analysis.effects import Effects
from validator.analysis.rank_guards import RankGuards
from validator.facts.model import At, Call
from validator.project import Method, Project

# what a test asks for, and what changes its answer
_ASKS = {
    "os.path.exists": ("folder", "file", "gone"),
    "os.path.lexists": ("folder", "file", "gone"),
    "os.path.isfile": ("file", "gone"),
    "os.path.isdir": ("folder", "gone"),
    "os.listdir": ("file", "gone"),
    "os.scandir": ("file", "gone"),
}
_ASKS_OF_PATH = {"exists": "os.path.exists", "is_file": "os.path.isfile", "is_dir": "os.path.isdir"}
_FOLDER = frozenset({"os.mkdir", "os.makedirs"})
_GONE = frozenset({"os.remove", "os.unlink", "os.rmdir", "os.removedirs", "shutil.rmtree"})
_OF_PATH = {
    "mkdir": "folder", "touch": "file", "write_text": "file", "write_bytes": "file", "unlink": "gone", "rmdir": "gone",
}  # fmt: skip
_FILE = re.compile(r"(save|dump|to_json|to_csv|to_parquet|save_pretrained|save_to_disk|save_file|urlretrieve)$")
_TARGETS = frozenset({"shutil.copy", "shutil.copy2", "shutil.copyfile", "shutil.copytree", "shutil.move", "os.rename"})
_WRITING = re.compile(r"['\"][rbt]*[wax][bt+]*['\"]$")


def asked(project: Project, function: Method, target: str, first: str) -> tuple[str, str]:
    """What a call asks of the storage, as a name of `os`, and the path that it asks for; empty where it does not.

    `first`: its first argument, where that is a plain path of names.
    """
    receiver, _, name = target.rpartition(".")
    dotted = project.dotted(function, target)
    if dotted in _ASKS:
        return (dotted, first) if first else ("", "")
    if name in _ASKS_OF_PATH and receiver and "(" not in receiver and not first:
        return _ASKS_OF_PATH[name], receiver
    return "", ""


class FileRaces:
    """Answers for one project, remembered."""

    def __init__(self, project: Project) -> None:
        self.project = project
        self._collectives: dict[Method, list[At]] = {}

    @cached_property
    def _effects(self) -> Effects:
        return self.project.analysis(Effects)

    @cached_property
    def _guards(self) -> RankGuards:
        return self.project.analysis(RankGuards)

    def raced(self, function: Method, asking: str, path: str, at: At) -> bool:
        """Whether ranks change the answer while others still ask: a collective would have held them together."""
        meetings = self._meetings(function)
        for call in function.facts.calls:
            if self._change(function, call, path) not in _ASKS[asking] or call.at in meetings:
                continue
            first, last = sorted((at, call.at))
            if any(first < place < last for place in meetings):
                continue
            # who asks later than all have written sees what is there; who comes first may write before others ask
            if call.at > at and any(place > call.at for place in meetings):
                return True
            if call.at < at and self._guards.of(function, call.guards) is not None:
                return True
        return False

    def _meetings(self, function: Method) -> list[At]:
        if function not in self._collectives:
            effects = self._effects
            self._collectives[function] = [*effects.direct.get(function, ()), *effects.reaching.get(function, ())]
        return self._collectives[function]

    def _change(self, function: Method, call: Call, path: str) -> str:
        """`folder`, `file` or `gone`: what a call makes of a path; empty where it leaves it as it is."""
        if call.receiver == path:
            if call.method == "open" and any(_WRITING.search(a.value) for a in call.args):
                return "file"
            return _OF_PATH.get(call.method, "")
        places = [n for n, a in enumerate(call.args) if a.kind == "path" and a.value == path]
        if not places:
            return ""
        dotted = self.project.dotted(function, call.target)
        if dotted in _FOLDER or dotted in _GONE:
            return "folder" if dotted in _FOLDER else "gone"
        if dotted in _TARGETS:
            return "file" if places[-1] == 1 else ""
        if call.target == "open":
            return "file" if len(call.args) > 1 and _WRITING.search(call.args[1].value) else ""
        return "file" if _FILE.search(call.method) else ""
