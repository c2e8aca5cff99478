"""Which dotted module name a file has, and which file a dotted name means where it is imported.

Python's own search path is unknown to a reader of files, so it is rebuilt from the tree: the folder above the
outermost package of the importing file, the folders above that one, and, when exactly one of them holds the
name, the folders above every other outermost package (`src/` layouts, sibling projects).
"""

from __future__ import annotations

import os
import posixpath
from collections.abc import Iterable, Iterator
from functools import cache
from typing import NamedTuple


class Location(NamedTuple):
    """Where a module lies. `root` is the folder its dotted `name` counts from."""

    root: str
    name: str
    is_package: bool


_OF_PROJECTS = ("license", "requirements", "environment.y", "pyproject.toml", "setup.py", "setup.cfg")
_INSTALLED = ("pyproject.toml", "setup.py", "setup.cfg")  # what lies where something can be installed from


@cache
def _is_package(folder: str) -> bool:
    """Whether modules are imported through a folder: not where a project begins, whatever lies there."""
    begins = (os.path.join(folder, name) for name in (".git", "pyproject.toml"))
    return os.path.isfile(os.path.join(folder, "__init__.py")) and not any(map(os.path.exists, begins))


@cache
def _root_of(folder: str) -> str:
    """The folder above the outermost package that holds `folder` (itself, where it is no package)."""
    while _is_package(folder) and os.path.dirname(folder) != folder:
        folder = os.path.dirname(folder)
    return folder


@cache
def _may_reach(folder: str, root: str) -> bool:
    """Whether what is imported in a folder may be looked up in another one: that lies beside what is above the
    importer (`src/`), or what it holds can be installed. A copy inside of another program is that program's."""
    above = os.path.dirname(root).rstrip("/") + "/"
    return f"{folder}/".startswith(above) or _can_be_installed(root)


@cache
def _is_apart(folder: str, root: str) -> bool:
    """Whether a folder belongs to another project than what a root holds. What lies below a folder that cannot be
    installed is a collection where it has a licence or requirements of its own: what one project there has by the name
    of a library is not what the others import. Beside what can be installed, too, only `src/` is that of all."""
    common = os.path.commonpath([folder, root])
    if common in (folder, root) or _can_be_installed(common):
        return False
    own = os.path.join(common, os.path.relpath(folder, common).split(os.sep)[0])
    beside = common == os.path.dirname(root) and not _can_be_installed(root)  # `src/`
    if beside and not (_can_be_installed(own) and _is_of_project(root)):
        return False
    return _is_of_project(own)


def _is_of_project(folder: str) -> bool:
    """Whether a folder has a licence, requirements or the like of its own."""
    return any(entry.lower().startswith(_OF_PROJECTS) for entry in _listing(folder))


@cache
def _can_be_installed(folder: str) -> bool:
    return any(os.path.isfile(os.path.join(folder, name)) for name in _INSTALLED)


@cache
def is_installed(path: str) -> bool:
    """Whether a file, given by its absolute path, is of a package that can be installed."""
    return _can_be_installed(_root_of(os.path.dirname(path))) or _can_be_installed(
        os.path.dirname(_root_of(os.path.dirname(path)))  # `src/`
    )


def locate(path: str) -> Location:
    """The location of a file given by its absolute path."""
    folder, file = os.path.split(path)
    root = _root_of(folder)
    stem = file.rpartition(".")[0]
    parts = [p for p in os.path.relpath(folder, root).split(os.sep) if p != "."]
    if stem == "__init__" and parts:
        return Location(root, ".".join(parts), True)
    return Location(root, ".".join([*parts, stem]), False)


def paths_around(tail: str, file: str) -> Iterator[str]:
    """What a relative path means from the folder of a file (absolute), and from each around it, nearest first."""
    folder = posixpath.dirname(file)
    while folder:
        yield posixpath.normpath(f"{folder}/{tail}")
        above = posixpath.dirname(folder)
        folder = above if above != folder else ""


class Finder:
    """Finds modules by name for the files of one run."""

    def __init__(self, files: Iterable[str]) -> None:
        self.by_path: dict[str, str] = {}  # module file or package folder -> file of the run
        self.folders: set[str] = set()
        self.roots: dict[str, None] = {}
        for path in files:
            folder, file = os.path.split(path)
            self.by_path[path.rpartition(".")[0] if file != "__init__.py" else folder] = path
            if (root := _root_of(folder)) != folder:
                self.roots[root] = None
            while folder not in self.folders and os.path.dirname(folder) != folder:
                self.folders.add(folder)
                folder = os.path.dirname(folder)
        # the names of folders of modules that are no packages
        self.spaces = frozenset(os.path.basename(folder) for folder in self.folders if not _is_package(folder))
        self._tops: dict[tuple[str, str], tuple[str, ...]] = {}
        self._targets: dict[str, str] = {}  # where what is no file of the run leads: a link to one
        self._spaces: dict[str, dict[str, None]] = {}  # name -> folders above packages that bear it
        for root in self.roots:
            while os.path.dirname(root) != root:
                self._spaces.setdefault(os.path.basename(root), {})[root] = None
                root = os.path.dirname(root)

    def top(self, name: str, importer: str) -> str | None:
        """The path (without suffix) of the top-level module `name` as `importer`, a file, would find it."""
        found = self.tops(name, importer)
        return found[0] if found else None

    def tops(self, name: str, importer: str) -> tuple[str, ...]:
        """Every path that `name` may mean there, the likeliest first: the true search path is not known."""
        folder = os.path.dirname(importer)
        key = (name, folder)
        if key not in self._tops:
            self._tops[key] = self._find_tops(name, folder)
        return self._tops[key]

    def _find_tops(self, name: str, folder: str) -> tuple[str, ...]:
        found: dict[str, None] = {}
        root = _root_of(folder)
        while True:
            candidate = os.path.join(root, name)
            if _is_package(root):
                pass  # a package is no place that names are looked up in
            elif (
                self.file(candidate) is not None
                or candidate in self.folders
                and candidate != folder
                and _is_package(candidate)
            ):
                found[candidate] = None
            if root not in self.folders or os.path.dirname(root) == root:
                break
            root = os.path.dirname(root)
        elsewhere = [
            path
            for other in self.roots
            if (path := os.path.join(other, name)) in self.by_path
            and _may_reach(folder, other)
            and not _is_apart(folder, other)
        ]
        if found or len(elsewhere) == 1:
            found.update(dict.fromkeys(elsewhere))
        return tuple(found)

    def beside(self, parts: list[str], importer: str) -> str | None:
        """The module that a dotted name means if its first parts are folders without an `__init__.py` above the
        importer, or beside what is above it: `utils/data` in `utils.data.rows`, imported by what is run beside it."""
        folder = _root_of(os.path.dirname(importer))
        while len(parts) > 1 and folder in self.folders:
            if (path := "/".join([folder, *parts])) in self.by_path and not _is_package(folder):
                return path
            folder = os.path.dirname(folder)
        return None

    def towards(self, importer: str) -> Iterator[str]:
        """The packages above a file, nearest first: what a script finds beside itself, in a package too."""
        folder = os.path.dirname(importer)
        while folder in self.folders and _is_package(folder):
            yield folder
            folder = os.path.dirname(folder)

    @staticmethod
    def is_below_package(folder: str) -> bool:
        """Whether a folder that is no package lies in one: what it holds may be parts of that, or stand for itself."""
        while os.path.dirname(folder) != folder:
            folder = os.path.dirname(folder)
            if _is_package(folder):
                return True
        return False

    @staticmethod
    def is_above(path: str, importer: str) -> bool:
        """Whether the folder in which a name was found is above the importer."""
        return importer.startswith(os.path.dirname(path).rstrip("/") + "/")

    def is_far(self, name: str, importer: str, found: str | None) -> bool:
        """Whether a name is only found (in the file `found`, if any) where neither the folder nor the one around it
        (`src/`) is above the importer: in another project of the tree, which is not on the importer's search path."""
        paths = self.tops(name, importer) or ((os.path.join(locate(found).root, name),) if found else ())
        return bool(paths) and not any(self.is_above(os.path.dirname(path), importer) for path in paths)

    def in_namespace(self, parts: list[str]) -> str | None:
        """The one module of this run that a dotted name means if its first parts are namespace packages: folders of
        which nothing but their name is told (`megatron` in `megatron/core/__init__.py`)."""
        paths = ("/".join([space, *parts[1:]]) for space in self._spaces.get(parts[0], ())) if len(parts) > 1 else ()
        found = [path for path in paths if path in self.by_path]
        return found[0] if len(found) == 1 else None

    def is_module_file(self, path: str) -> bool:
        """Whether the run's file at `path` is a plain module, which has no submodules."""
        file = self.by_path.get(path)
        return file is not None and not file.endswith("/__init__.py")

    def file(self, path: str) -> str | None:
        """The file of the run that is the module or package at `path` (without suffix)."""
        found = self.by_path.get(path)
        if found is None and path not in self._targets:
            self._targets[path] = _target(path)
        return found if found is not None else self.by_path.get(self._targets[path])

    def on_disk(self, path: str) -> bool:
        """Whether something that may be a module lies at `path`: not read in this run, compiled, a namespace."""
        if path in self.folders or os.path.isdir(path):
            return True
        folder, stem = os.path.split(path)
        return any(
            entry.partition(".")[0] == stem and not entry.endswith((".md", ".txt", ".sh", ".yaml", ".json"))
            for entry in _listing(folder)
        )


def _target(path: str) -> str:
    """The path (without suffix) of the module or package to which a symbolic link at a path leads; else the path."""
    folder, stem = os.path.split(path)
    for name in (f"{stem}.py", stem):
        if name in _listing(folder):
            return os.path.realpath(os.path.join(folder, name)).removesuffix(".py")
    return path


@cache
def _listing(folder: str) -> tuple[str, ...]:
    try:
        return tuple(os.listdir(folder))
    except OSError:
        return ()


def forget() -> None:
    """Drop what was remembered of the file system (a later run in the same process may see another tree)."""
    _is_package.cache_clear()
    _root_of.cache_clear()
    _may_reach.cache_clear()
    _can_be_installed.cache_clear()
    _is_apart.cache_clear()
    _listing.cache_clear()
