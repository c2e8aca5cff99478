"""Configurations put together from several YAML files, as Hydra (and loaders in its manner) do it.

A configuration names others in its `defaults` list; they are merged in order, each below its package. What cannot
be found or followed makes the part below it *open*: it may hold more keys than are known here.
"""

from __future__ import annotations

import ast
import posixpath
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property

from validator.analysis.commands.fields import Field
from validator.analysis.commands.launch import Launch, Launches, arguments_of
from validator.analysis.recipes.loaded import LoadedFiles
from validator.facts.config_files import MAPPING, Scalar, Setting, Settings, settings_of
from validator.facts.model import At
from validator.files.naming import paths_around
from validator.project import Method, Module, Project
from validator.source import SourceFile

_PACKAGE = re.compile(r"^#\s*@package\s+(\S+)", re.MULTILINE)
_HOLE = re.compile(r"\$\{([^}]*)\}")
_QUOTED = re.compile(r"""\\.|"(?:\\.|[^"\\])*"|'(?:\\.|[^'\\])*'""")
_KEY = re.compile(r"(\+{0,2}|~)([A-Za-z_][\w-]*(?:\.[\w-]+)*)$")
_DEPTH = 12
_NOTHING = ("null", "None", "")  # chosen out of a group


@dataclass(eq=False)
class Node:
    """A key with what lies below it. `open`: keys below it may exist that are not known here."""

    kind: str = MAPPING
    value: Scalar = None
    path: str = ""
    at: At = (1, 1, 1, 1)
    open: bool = False
    children: dict[str, Node] = field(default_factory=dict)

    def find(self, links: Iterable[str]) -> Node | None:
        node: Node | None = self
        for link in links:
            node = node.children.get(link) if node is not None else None
        return node

    def get(self, dotted: str) -> Scalar:
        """The value of a key; None where there is none, or where it is computed."""
        node = self.find(dotted.split("."))
        value = node.value if node is not None else None
        return None if isinstance(value, str) and "${" in value else value

    def below(self, links: Iterable[str]) -> Node:
        """The node at a path, made where it does not exist."""
        node = self
        for link in links:
            node = node.children.setdefault(link, Node())
        return node

    def merge(self, other: Node) -> None:
        """Lay another configuration over this one."""
        self.open = self.open or other.open
        if other.path:
            self.path, self.at = other.path, other.at
        if other.kind != MAPPING or not other.children:
            self.kind, self.value = other.kind, other.value
        for name, child in other.children.items():
            if name in self.children:
                self.children[name].merge(child)
            else:
                self.children[name] = child.copy()

    def copy(self) -> Node:
        children = {name: child.copy() for name, child in self.children.items()}
        return Node(self.kind, self.value, self.path, self.at, self.open, children)


@dataclass(frozen=True)
class Override:
    """`key=value` on a command line. `sign`: empty, `+` (add a key), `++` (either) or `~` (remove)."""

    sign: str
    key: str
    word: Field
    value: Field


@dataclass(eq=False)
class Composition:
    """What a program is given that Hydra starts, or its like: its configuration before the overrides, and these."""

    name: str
    root: Node
    overrides: tuple[Override, ...]
    groups: frozenset[str]  # keys that choose a file
    open: bool

    def overridden(self, key: str) -> Override | None:
        return next((o for o in reversed(self.overrides) if o.key == key and o.sign != "~"), None)


@dataclass(frozen=True)
class _Default:
    """An item of a defaults list."""

    group: str
    option: str
    package: str | None
    same_group: bool
    overrides: bool


class Compositions:
    """The configurations of a project."""

    def __init__(self, project: Project) -> None:
        self.project = project
        self.files: dict[str, tuple[SourceFile, Settings]] = {
            source.absolute: (source, source.facts.extra["settings"])
            for source in project.files.values()
            if "settings" in source.facts.extra
        }
        self._composed: dict[tuple[object, ...], tuple[Node, frozenset[str]]] = {}
        self._loaded_files = LoadedFiles(project, self)

    @cached_property
    def _folders(self) -> frozenset[str]:
        return frozenset(posixpath.dirname(path) for path in self.files)

    # -- programs ------------------------------------------------------------------------------------------

    def of(self, launch: Launch) -> Composition | None:
        """The configuration of a launch; None if its program neither is started by Hydra nor reads a file in its
        manner, or has none in the project."""
        if launch.module is None or (main := self._main(launch.module)) is None:
            return self._loaded(launch)
        folder, name = main
        overrides = tuple(_overrides(launch))
        for each in arguments_of(launch):
            if each.text.startswith("--config-") and (parts := each.split("=")) is not None:
                if parts[0].text == "--config-name" and parts[1].known:
                    name = parts[1].text.removesuffix(".yaml")
                elif parts[0].text == "--config-path":
                    folder = self._folder(parts[1], launch) or ""
                elif parts[1].why:
                    return None
        path = f"{folder}/{name}.yaml"
        if path not in self.files:
            return None
        choices = tuple((o.key, o.value.text) for o in overrides if o.value.known and "." not in o.key)
        root, groups = self.compose(path, choices)
        return Composition(name, root, overrides, groups, is_unsure(launch))

    def of_several(self, launch: Launch) -> list[Override]:
        """The overrides of a program that Hydra starts which list several values, one for each of several runs, where
        nothing asks for more than one run."""
        main = self._main(launch.module) if launch.module is not None else None
        words = {each.text for each in arguments_of(launch)}
        if main is None or not words.isdisjoint(("-m", "--multirun")) or any("hydra" in word for word in words):
            return []
        if launch.module is None or b"multirun" in launch.module.source.data or self._asks_for_runs:
            return []
        return [o for o in _overrides(launch) if o.sign != "~" and o.value.known and _lists_runs(o.value.text)]

    @cached_property
    def _asks_for_runs(self) -> bool:
        """Whether some file of the project tells Hydra to make several runs: it may be chosen by any word."""
        return any(
            each.path[:2] in (("hydra", "mode"), ("hydra", "sweeper"))
            for source in self.project.files.values()
            if source.facts.language == "yaml"
            for each in settings_of(source).settings
        )

    def _loaded(self, launch: Launch) -> Composition | None:
        path = self._loaded_files.path(launch)
        if path is None:
            return None
        name = posixpath.basename(path).rpartition(".")[0]
        return Composition(name, self.inherited(path), tuple(_overrides(launch)), frozenset(), is_unsure(launch))

    def recipes(self) -> Iterator[tuple[Module, Composition]]:
        """The files whose `defaults` lead to the one that a program reads where none is named."""
        readers = self._loaded_files.readers
        for path in sorted(self.files) if readers else ():
            module = next((readers[above] for above in self._above(path) if above in readers), None)
            if module is not None and path not in readers:
                name = posixpath.basename(path).rpartition(".")[0]
                yield module, Composition(name, self.inherited(path), (), frozenset(), open=False)

    def _above(self, path: str, depth: int = 0) -> Iterator[str]:
        """The files that the `defaults` of one name, and those that these name."""
        for other in self._named(path):
            if other in self.files and other != path and depth < _DEPTH:
                yield other
                yield from self._above(other, depth + 1)

    def _named(self, path: str) -> list[str]:
        """The files that the `defaults` of one name by their file names, whether they are there or not."""
        _, settings = self.files[path]
        defaults = settings.get("defaults")
        named = [] if defaults is None else [defaults] if defaults.kind == "scalar" else settings.below("defaults")
        return [posixpath.normpath(f"{posixpath.dirname(path)}/{each.value}") for each in named]

    @cached_property
    def programs(self) -> dict[Module, Node]:
        """The programs that Hydra starts, with the configuration that each has when nothing is overridden."""
        found = {}
        for module in self._mains:
            main = self._main(module)
            path = f"{main[0]}/{main[1]}.yaml" if main is not None else ""
            if path in self.files:
                found[module] = self.compose(path)[0]
        return found

    def beside(self, module: Module) -> Iterator[Node]:
        """The configuration of a program with each other file of the folders out of which its `defaults` choose one."""
        main = self._main(module)
        path = f"{main[0]}/{main[1]}.yaml" if main is not None else ""
        if main is None or path not in self.files:
            return
        _, groups = self.compose(path)
        for group in sorted(groups):
            folder = posixpath.normpath(f"{main[0]}/{group.strip('/')}")
            for other in sorted(self.files):
                if posixpath.dirname(other) == folder and other.endswith(".yaml"):
                    yield self.compose(path, ((group, posixpath.basename(other).removesuffix(".yaml")),))[0]

    def _folder(self, given: Field, launch: Launch) -> str | None:
        tail = (given.text if given.known else given.tail).strip("/").removeprefix("./")
        source = self.project.files.get(launch.path)
        bases = [launch.module.source.absolute if launch.module else "", source.absolute if source else ""]
        return next((found for base in bases if tail and (found := self._folder_near(tail, base))), None)

    def _folder_near(self, tail: str, file: str) -> str | None:
        return next((each for each in paths_around(tail, file) if each in self._folders), None)

    @cached_property
    def _mains(self) -> dict[Module, Method]:
        found: dict[Module, Method] = {}
        for function in self.project.functions():
            if any(d.removesuffix("()") in ("hydra.main", "main") for d in function.facts.decorators):
                found.setdefault(function.module, function)
        return found

    def _main(self, module: Module) -> tuple[str, str] | None:
        """Folder and name of the configuration of `@hydra.main(config_path=…, config_name=…)`."""
        function = self._mains.get(module)
        if function is None:
            return None
        nodes = (n for n in ast.walk(module.source.tree) if isinstance(n, ast.FunctionDef) and n.name == function.name)
        for decorator in (d for node in nodes for d in node.decorator_list):
            if isinstance(decorator, ast.Call) and ast.unparse(decorator.func).rpartition(".")[2] == "main":
                said = {k.arg: k.value.value for k in decorator.keywords if isinstance(k.value, ast.Constant)}
                path, name = said.get("config_path"), said.get("config_name")
                if isinstance(path, str) and isinstance(name, str):
                    folder = posixpath.dirname(module.source.absolute)
                    return posixpath.normpath(f"{folder}/{path}"), name.removesuffix(".yaml")
        return None

    # -- composing -----------------------------------------------------------------------------------------

    def compose(self, path: str, choices: tuple[tuple[str, str], ...] = ()) -> tuple[Node, frozenset[str]]:
        """The whole configuration of a file, and the keys that choose files."""
        key = (path, choices)
        if key not in self._composed:
            composer = _Composer(self, path, dict(choices))
            root = composer.file(path, "", 0)
            self._composed[key] = root, frozenset(composer.groups)
        return self._composed[key]

    def bases(self, path: str) -> Node | None:
        """What a file's `defaults` bring before its own keys; None where it names none or one cannot be found."""
        _, settings = self.files[path]
        defaults = settings.get("defaults")
        if defaults is None:
            return None
        composer = _Composer(self, path, {})
        root = Node()
        named = [defaults] if defaults.kind == "scalar" else list(settings.below("defaults"))
        for each in named:
            if each.kind == "scalar" and isinstance(each.value, str) and each.value.endswith((".yaml", ".yml")):
                other = posixpath.normpath(f"{posixpath.dirname(path)}/{each.value}")
                if other not in self.files or other == path:
                    return None
                root.merge(self.inherited(other))
        if not root.children:
            root = composer.file(path, "", 0, own=False)
        return None if root.open or not root.children else root

    def laid_after(self, path: str) -> Iterator[list[Node]]:
        """What a file's `defaults` lay over the file itself, behind `_self_`: for each of them the configuration that
        every file gives which may be chosen; nothing of one that cannot be found or followed, out of whose group
        somebody chooses none, or into whose group code puts more."""
        defaults = list(_Composer._defaults(self.files[path][1]))
        own = next((index for index, each in enumerate(defaults) if each.option == "_self_"), len(defaults))
        for each in defaults[own + 1 :]:
            nodes = [self._alone(path, each, option) for option in self._options(path, each)]
            followed = nodes and not each.overrides and not any(_is_open(node) for node in nodes)
            if followed and each.group.strip("/") not in self._left_out and not self._is_stored(each.group.strip("/")):
                yield nodes

    @cached_property
    def _left_out(self) -> frozenset[str]:
        """The groups out of which some file, command line or text of the code chooses nothing: `override /optim: null`,
        `optim=null`, `~optim`."""
        defaults = (each for _, settings in self.files.values() for each in _Composer._defaults(settings))
        groups = {each.group for each in defaults if not each.same_group and each.option in _NOTHING}
        words = {each.text for launch in self.project.analysis(Launches).all for each in arguments_of(launch)}
        for word in words.union(*(module.facts.texts for module in self.project.modules.values())):
            group, sign, option = word.partition("=")
            if word.startswith("~") or sign and option in _NOTHING:
                groups.add(group.lstrip("~+").partition("@")[0])
        return frozenset(group.strip("/") for group in groups)

    def _is_stored(self, group: str) -> bool:
        """Whether code may put more into a group, for `ConfigStore`: `store(group="optim", name=…)`."""
        given = (call.keyword("group") for _, call in self.project.calls("store"))
        return any(each is not None and (each.kind != "const" or each.value.strip("'\"") == group) for each in given)

    def _alone(self, path: str, each: _Default, option: str) -> Node:
        root = Node()
        _Composer(self, path, {})._lay(root, replace(each, option=option), "", 0)
        return root

    def _options(self, path: str, each: _Default) -> list[str]:
        """The files of the folder out of which an item of a defaults list chooses one; none where it chooses none."""
        if each.same_group or each.option in _NOTHING:
            return [each.option] if each.same_group else []
        folder = posixpath.normpath(f"{posixpath.dirname(path)}/{each.group.strip('/')}")
        inside = (posixpath.split(other) for other in sorted(self.files))
        return [name.removesuffix(".yaml") for above, name in inside if above == folder and name.endswith(".yaml")]

    def inherited(self, path: str, depth: int = 0) -> Node:
        """A file laid over the files that its `defaults` name by their file names."""
        root = Node()
        for other in self._named(path):
            if other in self.files and depth < _DEPTH and other != path:
                root.merge(self.inherited(other, depth + 1))
            else:
                root.open = True
        root.merge(self.tree(path))
        return root

    def tree(self, path: str) -> Node:
        """The keys of one file, without its defaults list."""
        source, settings = self.files[path]
        root = Node(path=source.path)
        for each in settings.settings:
            if each.path[0] not in ("defaults", "hydra"):
                *above, name = each.path
                node = Node(each.kind, each.value, source.path, each.at)
                root.below(above).children.setdefault(name, node)
        return root


class _Composer:
    """One composition."""

    def __init__(self, compositions: Compositions, primary: str, choices: dict[str, str]) -> None:
        self.all = compositions
        self.choices = choices
        self.groups: set[str] = set()
        self.folders = [posixpath.dirname(primary)]
        self.lost = False
        _, settings = compositions.files[primary]
        for each in settings.below("hydra", "searchpath"):
            tail = str(each.value)
            scheme, _, rest = tail.partition("://")
            rest = rest.replace(".", "/") if scheme == "pkg" else rest
            folder = compositions._folder_near(rest.lstrip("./"), primary)
            if folder is None:
                self.lost = True
            else:
                self.folders.append(folder)

    def file(self, path: str, group: str, depth: int, own: bool = True) -> Node:
        """The configuration of a file with its defaults, not yet below its package."""
        root = Node()
        root.open = self.lost
        itself = self.all.tree(path) if own else Node()
        defaults = list(self._defaults(self.all.files[path][1]))
        for each in defaults:
            if each.overrides:
                self.choices.setdefault(each.group, each.option)
        placed = False
        for each in defaults:
            if each.option == "_self_":
                root.merge(itself)
                placed = True
            elif not each.overrides and depth < _DEPTH:
                self._lay(root, each, group, depth)
        if not placed:
            root.merge(itself)
        return root

    def _lay(self, root: Node, each: _Default, group: str, depth: int) -> None:
        option = each.option
        if not each.same_group:
            self.groups.add(each.group)
            key = f"{each.group}@{each.package}" if each.package else each.group
            option = self.choices.get(key) or self.choices.get(each.group) or option
        option = _HOLE.sub(lambda match: self.choices.get(match[1], match[0]), option)
        if not each.same_group and option not in _NOTHING:
            self.choices.setdefault(each.group, option)
        if option in _NOTHING:
            return
        inside = group if each.same_group else posixpath.normpath(posixpath.join("/" + group, each.group)).strip("/")
        package = each.package
        if package is None and not each.same_group:
            package = each.group.strip("/").replace("../", "").replace("/", ".")
        links = package.split(".") if package and package not in ("_here_", "_global_", "_group_") else []
        found = next((p for f in self.folders if (p := _file(f, inside, option)) in self.all.files), None)
        if found is None:
            root.below(links).open = True
            return
        header = _PACKAGE.search(self.all.files[found][1].comment)
        if header and each.package is None:
            links = [] if header[1] in ("_global_", "_here_") else header[1].replace("_group_", each.group).split(".")
        root.below(links).merge(self.file(found, posixpath.dirname(f"{inside}/{option}").strip("/"), depth + 1))

    @staticmethod
    def _defaults(settings: Settings) -> Iterator[_Default]:
        for item in settings.below("defaults"):
            if item.kind == "scalar":
                words = str(item.value).split()
                if words:
                    name, _, package = words[-1].partition("@")
                    yield _Default("", name.removesuffix(".yaml"), package or None, True, "override" in words[:-1])
            for inner in settings.below("defaults", item.path[-1]):
                yield _default(inner)


def _default(inner: Setting) -> _Default:
    words = inner.path[-1].split()
    group, _, package = words[-1].partition("@")
    option = "" if inner.value is None or inner.kind != "scalar" else str(inner.value).removesuffix(".yaml")
    return _Default(group, option, package or None, False, "override" in words[:-1])


def _is_open(node: Node) -> bool:
    return node.open or any(map(_is_open, node.children.values()))


def _file(folder: str, group: str, option: str) -> str:
    return posixpath.normpath("/".join(part for part in (folder, group, option) if part) + ".yaml")


def _overrides(launch: Launch) -> Iterator[Override]:
    for each in arguments_of(launch):
        if each.text.startswith("--") or (parts := each.split("=")) is None or not parts[0].known:
            continue
        if match := _KEY.match(parts[0].text):
            yield Override(match[1], match[2], each, parts[1])


def _lists_runs(value: str) -> bool:
    """Whether Hydra takes a value for a list of the values of several runs: it has a comma by itself.
    Source: https://hydra.cc/docs/advanced/override_grammar/basic/"""
    plain = _QUOTED.sub("", value)
    depth = 0
    for letter in plain:
        depth += (letter in "([{") - (letter in ")]}")
        if letter == "," and not depth:
            return True
    return False


def is_unsure(launch: Launch) -> bool:
    """Whether a launch may give words that are not known."""
    return any(each.many or (not each.known and not each.lead) for each in arguments_of(launch))
