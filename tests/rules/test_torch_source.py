"""How signatures are read off the source of a release: names, decorators, constructors."""

from __future__ import annotations

import zipfile
from pathlib import Path

import pytest

from tests.torch_releases import names_of
from tests.torch_source import Release

FILES = {
    "torch/__init__.py": "from torch import nn as nn\nfrom torch._C import add\n",
    "torch/nn/__init__.py": "from .modules import *\nfrom .modules import _Hidden as Shown\n",
    "torch/nn/modules.py": """
import enum
import functools
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import overload

__all__ = ["Linear", "Lazy", "Kind", "Options", "logged", "altered", "scope", "either", "spelled"]

class Linear:
    def __init__(self, width, *, bias=True): ...
    @classmethod
    def load(cls, path): ...

class Lazy(Linear): ...
class _Hidden(Lazy):
    def __new__(cls, *sizes): ...
class Kind(enum.Enum):
    ONE = 1

@dataclass
class Options:
    mode: str
    sizes: list = field(default_factory=list)

def passing(function):
    @functools.wraps(function)
    def wrapper(*args, **kwargs):
        print(f"{kwargs}", kwargs.get("group"))
        return function(*args, **kwargs)
    return wrapper

def taking(function):
    @functools.wraps(function)
    def wrapper(*args, **kwargs):
        kwargs.pop("old", None)
        return function(*args, **kwargs)
    return wrapper

@passing
def logged(tensor, group=None): ...
@taking
def altered(tensor): ...
@contextmanager
def scope(name): ...

if enum.something:
    def either(one): ...
else:
    def either(two): ...

@overload
def spelled(x: int): ...
def spelled(x, y=2): ...
""",
}


@pytest.fixture
def known(tmp_path: Path) -> dict[str, list[str] | None]:
    archive = tmp_path / "torch-2.4.1-cp311.whl"
    with zipfile.ZipFile(archive, "w") as wheel:
        for name, text in FILES.items():
            wheel.writestr(name, text)
    return {
        f"{module}.{name}" + f".{method}" * bool(method): None if params is None else [each.name for each in params]
        for module, name, _, rows in names_of(Release(archive))
        for method, params in rows.items()
    }


@pytest.mark.parametrize(
    ("dotted", "params"),
    [
        ("torch.nn.Linear", ["width", "bias"]),
        ("torch.nn.modules.Linear", ["width", "bias"]),
        ("torch.nn.Lazy", ["width", "bias"]),
        ("torch.nn.Lazy.load", ["path"]),
        ("torch.nn.Options", ["mode", "sizes"]),
        ("torch.nn.logged", ["tensor", "group"]),
        ("torch.nn.scope", ["name"]),
        ("torch.nn.spelled", ["x", "y"]),
    ],
)
def test_what_is_written_is_read(known: dict[str, list[str] | None], dotted: str, params: list[str]) -> None:
    assert known[dotted] == params


@pytest.mark.parametrize(
    "dotted", ["torch.nn.Shown", "torch.nn.Kind", "torch.nn.altered", "torch.nn.either", "torch.add"]
)
def test_what_cannot_be_told_is_left_open(known: dict[str, list[str] | None], dotted: str) -> None:
    assert known[dotted] is None
