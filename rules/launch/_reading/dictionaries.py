"""Dictionaries in Python that are DeepSpeed's configuration: `deepspeed.initialize(config={...})`.

A dictionary counts where it stands in the call, or under a name that is bound once in its file and that nothing else
can change: all that is done with it beside the call is to read a key or print it.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from validator.facts.config_files import MAPPING, Setting, Settings
from validator.facts.text import Text, path_of
from validator.project import Project
from validator.source import SourceFile

_KEYWORDS = ("config", "config_params")
_READERS = ("print", "json.dumps", "len", "pprint", "pprint.pprint", "copy.deepcopy", "dict")


def dictionaries(project: Project) -> Iterator[tuple[str, Settings]]:
    """The path of the file and the settings of each."""
    for source in project.files.values():
        if is_passed(source):
            text = Text(source.text)
            for node in _given(source.tree):
                yield source.path, Settings(tuple(_settings(text, node, ())))


def is_passed(source: SourceFile) -> bool:
    """Whether a file may hold such a call."""
    facts, words = source.facts, (b"deepspeed.initialize", b"deepspeed import initialize")
    return facts.language == "python" and facts.problem is None and any(word in source.data for word in words)


def _given(tree: ast.Module) -> list[ast.Dict]:
    """The dictionaries that calls are given, each once."""
    given = [keyword.value for call in _calls(tree) for keyword in call.keywords if keyword.arg in _KEYWORDS]
    found = [_bound(tree, value) if isinstance(value, ast.Name) else value for value in given]
    return list(dict.fromkeys(each for each in found if isinstance(each, ast.Dict)))


def _calls(tree: ast.Module) -> Iterator[ast.Call]:
    imports = (node for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) and node.module == "deepspeed")
    imported = any(alias.name == "initialize" and not alias.asname for node in imports for alias in node.names)
    names = ("deepspeed.initialize", "initialize") if imported else ("deepspeed.initialize",)
    return (node for node in ast.walk(tree) if isinstance(node, ast.Call) and path_of(node.func) in names)


def _bound(tree: ast.Module, name: ast.Name) -> ast.expr | None:
    """What a name is, if nothing in its file can have changed it."""
    values: list[ast.expr] = []
    reads: set[int] = set()
    uses: list[ast.Name] = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Name) and node.id == name.id:
            uses.append(node)
        elif isinstance(node, ast.arg) and node.arg == name.id:
            return None
        elif isinstance(node, ast.Assign) and len(node.targets) == 1 and isinstance(node.targets[0], ast.Name):
            if node.targets[0].id == name.id:
                values.append(node.value)
                reads.add(id(node.targets[0]))
        elif isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Load):
            reads.add(id(node.value))
        elif isinstance(node, ast.Call) and path_of(node.func) in (*_READERS, f"{name.id}.get"):
            reads |= {id(argument) for argument in node.args}
            reads |= {id(node.func.value)} if isinstance(node.func, ast.Attribute) else set()
        elif isinstance(node, ast.keyword) and node.arg in _KEYWORDS:
            reads.add(id(node.value))
    return values[0] if len(values) == 1 and all(id(use) in reads for use in uses) else None


def _settings(text: Text, node: ast.Dict, path: tuple[str, ...]) -> Iterator[Setting]:
    """What is written out; nothing of a dictionary that another is unpacked into."""
    if None in node.keys:
        return
    for key, value in zip(node.keys, node.values, strict=True):
        if not isinstance(key, ast.Constant) or not isinstance(key.value, str):
            continue
        link = (*path, key.value)
        if isinstance(value, ast.Dict):
            yield Setting(link, MAPPING, None, text.at(key), text.at(value))
            yield from _settings(text, value, link)
        elif isinstance(value, ast.Constant) and isinstance(value.value, str | int | float | bool):
            yield Setting(link, "scalar", value.value, text.at(key), text.at(value))
