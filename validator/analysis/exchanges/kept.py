"""What a project keeps in one place and takes up in another: the state of an object, the content of a file.

def state_dict(self): return {"step": self.step}          torch.save({"step": step}, f"{folder}/trainer.pt")
def load_state_dict(self, state): … state["step"]         torch.load(os.path.join(folder, "trainer.pt"))["step"]
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from functools import cache
from typing import Any, NamedTuple

from validator.definitions import ClassDef
from validator.effects.files import Access, Files
from validator.files.tables import load_toml
from validator.flow import Flow
from validator.flow.queries.base import Place
from validator.flow.queries.origins import passed_from
from validator.flow.queries.outside_program import is_aside
from validator.project import Project

_OPEN = "open"
_OPENED = frozenset({"enter", "phi"})
_TEXTS = frozenset({"write", "write_text", "write_bytes"})
_READ = frozenset({"read", "read_text", "read_bytes"})


class Kept(NamedTuple):
    """`what` is kept, in words; all values that are written, and those that are taken."""

    what: str
    written: tuple[Place, ...]
    taken: tuple[Place, ...]


def kept(project: Project) -> Iterator[Kept]:
    """Whatever the program keeps and takes up again, where all that is kept is known."""
    flow = project.analysis(Flow)
    for cls in project.classes():
        if not is_aside(cls.path):
            yield from _of_methods(flow, cls)
    by_name: dict[str, list[Access]] = {}
    for access in project.analysis(Files).everywhere:
        stem = access.name.rpartition(".")[0] or access.name
        if stem.strip("*._-") and not is_aside(access.place.unit.path):
            by_name.setdefault(access.name, []).append(access)
    for name, accesses in by_name.items():
        if {access.kind for access in accesses} == {"write", "read"}:
            written = [_put(access) for access in accesses if access.kind == "write"]
            taken = [place for access in accesses if access.kind == "read" for place in _took(access)]
            yield from _all_known(f"`{name}`", written, taken)


def _all_known(what: str, written: list[Place | None], taken: list[Place]) -> Iterator[Kept]:
    known = tuple(place for place in written if place is not None)
    if known and taken and len(known) == len(written):
        yield Kept(what, known, tuple(taken))


def _of_methods(flow: Flow, cls: ClassDef) -> Iterator[Kept]:
    """What the methods of a class give to be kept, and take up."""
    for giving, taking in _table()["methods"].items():
        methods = cls.methods.get(giving), cls.methods.get(taking)
        gives, takes = (flow.unit_of(method) if method is not None else None for method in methods)
        if gives is None or takes is None or gives.code.is_generator:
            continue
        if any(giving in below.methods or taking in below.methods for below in cls.descendants()):
            continue  # their states have more
        params = [Place(flow, takes, n) for n, v in enumerate(takes.code.values) if v.op == "param" and v.data[0] == 1]
        written = [Place(flow, gives, number) if number >= 0 else None for number in gives.code.returned]
        yield from _all_known(f"`{cls.name}.{giving}`", written, params)


def _put(access: Access) -> Place | None:
    """What a call puts into a file."""
    done = access.done
    content = _argument(done, "puts")
    if content is None and done.method == _OPEN:
        users = [user for file in _files(done) for user in file.users if user.value.op in ("call", "attr")]
        found = [each for user in users for each in _put_by(user)]
        content = found[0] if len(found) == 1 else None
    elif content is None and done.method in _TEXTS and len(done.value.args) > 1:
        content = _argument(done.operand(1).root, "puts")
    if content is None or content.root.value.op != "param" or access.place.unit is content.unit:
        return content
    passed = passed_from(access.place, content)  # in the function that names the file
    return passed if passed.unit is access.place.unit else None


def _put_by(user: Place) -> Iterator[Place | None]:
    """What a user of an open file puts there; None where that is not known."""
    if user.value.op == "call":
        yield _argument(user, "puts")
    elif user.value.data in _TEXTS:
        for call in user.users:
            yield _argument(call.operand(1).root, "puts") if call.value.op == "call" and call.value.args[1:] else None


def _took(access: Access) -> Iterator[Place]:
    """What a call takes out of a file: in its function, or where that gives it back."""
    done = access.done
    found = [done] if _argument(done, "takes") is not None else []
    for file in _files(done) if done.method == _OPEN else ():
        for user in file.users:
            if user.value.op == "attr" and user.value.data in _READ:
                found += [taken for call in user.users for taken in _taken(call)]
        found += _taken(file)
    if done.method in _READ:
        found += _taken(done)
    for place in found:
        yield place
        if access.place.unit is not done.unit and place.number in done.unit.code.returned:
            yield access.place


def _taken(source: Place) -> list[Place]:
    """The calls that read what is kept in a file or a text."""
    return [user for user in source.users if _argument(user, "takes") is not None]


def _argument(call: Place, what: str) -> Place | None:
    """The argument of a call that is kept, or that is read."""
    rows = _table()[what]
    names = [str(o[1]) for o in call.operand(0).val.of("ext")] if call.value.op == "call" else []
    return next((call.argument(*rows[name]) for name in names if name in rows), None)


def _files(opening: Place) -> list[Place]:
    """The values that are a file which a call opens."""
    found = [opening]
    for place in found:
        found += [user for user in place.users if user.value.op in _OPENED and user not in found]
    return found


@cache
def _table() -> dict[str, Any]:
    return load_toml(os.path.join(os.path.dirname(os.path.abspath(__file__)), "contents.toml"))
