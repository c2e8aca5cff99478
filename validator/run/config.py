"""The configuration: `[tool.validator]` of the nearest pyproject.toml upwards, checked key by key.

Rules that a user wrote are code, and nothing of a tree that is only *read* may ever run. So the key `rules`
counts only in the pyproject.toml that the working directory itself belongs to, and only when that file, the
folders it names and the files in them belong to the user who runs the validator and nobody else may write
them. Folders given on the command line (`--rules`) are the user's word and are taken as they are;
`--isolated` reads no configuration at all.
"""

from __future__ import annotations

import os
from typing import Any, NamedTuple

from validator.errors import UsageError, nearest
from validator.files.integers import is_whole
from validator.files.reading import NotRegular, regular

FORMATS = ("full", "concise", "json", "sarif", "github", "gitlab", "junit")


class Config(NamedTuple):
    """What a run was told. Folders and files are absolute; `source` is the pyproject.toml, or empty."""

    root: str
    source: str = ""
    select: tuple[str, ...] = ()
    ignore: tuple[str, ...] = ()
    extend_select: tuple[str, ...] = ()
    exclude: tuple[str, ...] | None = None
    extend_exclude: tuple[str, ...] = ()
    per_file_ignores: tuple[tuple[str, tuple[str, ...]], ...] = ()
    rules: tuple[str, ...] = ()
    contracts: tuple[str, ...] = ()
    collectives: tuple[str, ...] = ()
    families: tuple[tuple[str, tuple[str, ...]], ...] = ()
    output_format: str = "full"
    baseline: str = ""
    notes: bool = False
    jobs: int = 0
    target_python: str = ""
    rules_refused: str = ""
    given: tuple[tuple[str, int], ...] = ()  # options of the command line, and how many selectors at the end are theirs

    @property
    def target_version(self) -> tuple[int, int] | None:
        """The oldest Python that the code read must run on: `target-python`, else None."""
        if not self.target_python:
            return None
        major, minor = self.target_python.split(".")[:2]
        return int(major), int(minor)


_KINDS = {
    "select": "strings",
    "ignore": "strings",
    "extend-select": "strings",
    "exclude": "strings",
    "extend-exclude": "strings",
    "per-file-ignores": "table",
    "rules": "folders",
    "contracts": "files",
    "collectives": "files",
    "families": "table",
    "output-format": "format",
    "baseline": "file",
    "notes": "boolean",
    "jobs": "count",
    "target-python": "version",
}

_MISNAMED = b"tool.meshproof"  # what people may take our table to be called


def load(start: str, isolated: bool = False) -> Config:
    """The configuration that holds for `start` (a folder). Raises UsageError."""
    start = os.path.abspath(start)
    if isolated:
        return Config(root=start)
    source, table, oldest = _nearest_table(start)
    if not source:
        return Config(root=start, target_python=oldest)
    config = _read(source, table)
    if not config.target_python:
        config = config._replace(target_python=oldest)
    if config.rules and (reason := _why_not_ours(source, config.rules)):
        config = config._replace(rules=(), rules_refused=reason)
    return config


def _nearest_table(start: str) -> tuple[str, dict[str, Any], str]:
    """The nearest pyproject.toml with our table, the table, and the nearest project's oldest Python."""
    folder, oldest, asked = start, "", False
    while True:
        path = os.path.join(folder, "pyproject.toml")
        try:
            data = read_regular(path)
        except OSError:
            data = b""
        ours = b"validator" in data or _MISNAMED in data
        # The parser costs more than the rest of a warm run: only where there is something for it.
        if ours or (not asked and b"requires-python" in data):
            document = _parse(path, data, strict=ours)
            oldest = oldest or _oldest_python(document)
            tool = document.get("tool")
            if isinstance(tool, dict) and "meshproof" in tool:
                raise UsageError(f"{path}: nothing reads [tool.meshproof]; the table is called [tool.validator]")
            table = tool.get("validator") if isinstance(tool, dict) else None
            if table is not None and not isinstance(table, dict):
                raise UsageError(f"{path}: tool.validator must be one table, [tool.validator]")
            if isinstance(table, dict):
                return path, table, oldest
        asked = asked or bool(data)
        parent = os.path.dirname(folder)
        if parent == folder:
            return "", {}, oldest
        folder = parent


def read_regular(path: str) -> bytes:
    """The bytes of a file. Raises OSError, and UsageError for a pipe or a device, which might never end."""
    try:
        return regular(path)
    except NotRegular as error:
        raise UsageError(f"{path}: not a regular file") from error


def decisive(settings: Config, notes: bool = False) -> list[bytes]:
    """What of the settings findings depend on: not how they are shown, and what stands in the tables that are named; of
    one that is missing that it is. `notes`: whether it matters that these are shown."""
    contents = [repr(settings._replace(output_format="", baseline="", notes=notes, jobs=0, given=())).encode()]
    for table in (*settings.contracts, *settings.collectives):
        try:
            contents.append(read_regular(table))
        except OSError:
            contents.append(b"missing")
    return contents


def _parse(path: str, data: bytes, strict: bool) -> dict[str, Any]:
    if not strict:
        return _requires_python_only(data)
    from validator.files.tables import parse_toml

    try:
        return parse_toml(path, data)
    except ValueError as error:
        raise UsageError(str(error)) from error


def _requires_python_only(data: bytes) -> dict[str, Any]:
    """The one line we need of a file that does not mention us, without the cost of a TOML parser."""
    section = b""
    for line in data.splitlines():
        line = line.strip()
        if line.startswith(b"["):
            section = line.strip(b"[] \t")
        elif section == b"project" and line.startswith(b"requires-python"):
            value = line.partition(b"=")[2].strip().strip(b"\"'")
            return {"project": {"requires-python": value.decode("utf-8", "replace")}}
    return {}


def _oldest_python(document: dict[str, Any]) -> str:
    """`3.10` out of `requires-python = ">=3.10,<3.14"`; empty where no lower bound is given."""
    project = document.get("project")
    bound = project.get("requires-python") if isinstance(project, dict) else None
    if not isinstance(bound, str):
        return ""
    for part in bound.split(","):
        part = part.strip()
        for sign in (">=", "~=", "=="):
            if part.startswith(sign):
                numbers = part[len(sign) :].strip().rstrip(".*").split(".")
                if len(numbers) >= 2 and all(map(_is_number, numbers[:2])):
                    return ".".join(numbers[:2])
    return ""


def _read(source: str, table: dict[str, Any]) -> Config:
    root = os.path.dirname(source)
    values: dict[str, Any] = {}
    for key, value in table.items():
        kind = _KINDS.get(key)
        if kind is None:
            raise UsageError(f"{source}: [tool.validator] has no key {key!r}{nearest(key, list(_KINDS))}")
        values[key.replace("-", "_")] = _convert(kind, value, root, f"{source}: {key}")
    return Config(root=root, source=source, **values)


def _convert(kind: str, value: Any, root: str, where: str) -> Any:
    """A value of the TOML as `Config` holds it. Raises UsageError naming the key."""
    if kind in ("strings", "folders", "files"):
        texts = _strings(value, where)
        if kind == "strings":
            return texts
        paths = tuple(os.path.normpath(os.path.join(root, text)) for text in texts)
        missing = next((path for path in paths if not os.path.lexists(path)), None)
        if missing is not None:
            raise UsageError(f"{where}: {missing} does not exist")
        return paths
    if kind == "table":
        if not isinstance(value, dict):
            raise UsageError(f"{where} must be a table of lists of strings")
        return tuple(sorted((name, _strings(texts, f"{where}.{name}")) for name, texts in value.items()))
    if kind == "boolean":
        if not isinstance(value, bool):
            raise UsageError(f"{where} must be true or false")
        return value
    if kind == "count":
        if not isinstance(value, int) or isinstance(value, bool) or value < 0:
            raise UsageError(f"{where} must be a whole number, 0 for one per core")
        return value
    if not isinstance(value, str):
        raise UsageError(f"{where} must be a string")
    if "\0" in value:
        raise UsageError(f"{where} holds a NUL character")
    if kind == "file":
        return os.path.normpath(os.path.join(root, value)) if value else ""
    if kind == "format" and value not in FORMATS:
        raise UsageError(f"{where}: unknown format {value!r}{nearest(value, list(FORMATS))}")
    if kind == "version":
        return version(value, where)
    return value


def _is_number(text: str) -> bool:
    return len(text) < 4 and is_whole(text)


def version(text: str, where: str) -> str:
    """Check a `major.minor`. Raises UsageError."""
    parts = text.split(".")
    if len(parts) != 2 or not all(_is_number(part) for part in parts):
        raise UsageError(f'{where} must be a version such as "3.10", not {text!r}')
    return text


def _strings(value: Any, where: str) -> tuple[str, ...]:
    if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
        raise UsageError(f"{where} must be a list of strings")
    if any("\0" in item for item in value):
        raise UsageError(f"{where} holds a NUL character")
    return tuple(value)


def _why_not_ours(source: str, folders: tuple[str, ...]) -> str:
    """Why the rules that a configuration names are not loaded; empty where they may be."""
    root = os.path.realpath(os.path.dirname(source))
    here = os.path.realpath(os.getcwd())
    if here != root and not here.startswith(root.rstrip(os.sep) + os.sep):
        return f"{source} is not the configuration of the working directory"
    for path in (source, *_paths_of(folders)):
        if reason := _not_private(path):
            return reason
    return ""


def _paths_of(folders: tuple[str, ...]) -> list[str]:
    paths = list(folders)
    for folder in folders:
        if os.path.isdir(folder):
            paths += [os.path.join(folder, name) for name in sorted(os.listdir(folder)) if name.endswith(".py")]
    return paths


def _not_private(path: str) -> str:
    """Why somebody else may have written a file; empty where only this user can have."""
    try:
        status = os.stat(path)
    except OSError:
        return ""  # the registry says that it does not exist
    if hasattr(os, "getuid"):
        if status.st_uid != os.getuid():
            return f"{path} belongs to another user"
        if status.st_mode & 0o002:
            return f"{path} can be written by everybody"
    return ""


def shown(config: Config) -> str:
    """The configuration as `--show-config` prints it."""
    lines = [f"# {config.source or 'no [tool.validator] found; these are the defaults'}", "[tool.validator]"]
    for key, kind in _KINDS.items():
        value = getattr(config, key.replace("-", "_"))
        if kind == "table":
            lines += [f"{key}.{_quoted(name)} = {_list(texts)}" for name, texts in value]
        elif isinstance(value, bool):
            lines.append(f"{key} = {str(value).lower()}")
        elif isinstance(value, tuple):
            lines.append(f"{key} = {_list(value)}")
        elif value is None or (kind == "version" and not value):
            lines.append(f"# {key} is not set")
        else:
            lines.append(f"{key} = {value if isinstance(value, int) else _quoted(value)}")
    if config.rules_refused:
        lines.append(f"# rules are not loaded: {config.rules_refused}")
    from validator.output import clean

    return "".join(clean(line) + "\n" for line in lines)


def _quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return '"' + "".join(char if char.isprintable() else f"\\U{ord(char):08X}" for char in escaped) + '"'


def _list(texts: tuple[str, ...]) -> str:
    return "[" + ", ".join(_quoted(text) for text in texts) + "]"
