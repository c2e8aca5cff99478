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
from validator.flow.queries.base import Place, Queries
from validator.flow.queries.escapes import argument_of
from validator.flow.queries.outside_program import is_aside
from validator.project import Project

_OPEN = "open"
_OPENED = frozenset({"enter", "phi"})
_TEXTS = {"write", "write_text", "write_bytes"}
_READ = {"read", "read_text", "read_bytes"}


class Kept(NamedTuple):
    """`what` is kept, in words; the values that are written (None: one that is not known), and those that are taken."""

    what: str
    written: tuple[Place | None, ...]
    taken: tuple[Place, ...]


def kept(project: Project) -> Iterator[Kept]:
    """Whatever the program keeps and takes up again, if both are seen."""
    queries = project.analysis(Queries)
    for cls in project.classes():
        if not is_aside(cls.path):
            yield from _of_methods(queries, cls)
    by_name: dict[str, list[Access]] = {}
    for access in project.analysis(Files).accesses:
        stem = access.name.rpartition(".")[0] or access.name
        if stem.strip("*._-") and not is_aside(access.place.unit.path):
            by_name.setdefault(access.name, []).append(access)
    for name, accesses in by_name.items():
        kinds = {access.kind for access in accesses}
        if kinds == {"write", "read"}:
            written = tuple(_put(queries, access) for access in accesses if access.kind == "write")
            taken = tuple(place for access in accesses if access.kind == "read" for place in _took(queries, access))
            yield Kept(f"`{name}`", written, taken)


def _of_methods(queries: Queries, cls: ClassDef) -> Iterator[Kept]:
    """What the methods of a class give to be kept, and take up."""
    flow = queries.flow
    for giving, taking in _table()["methods"].items():
        methods = cls.methods.get(giving), cls.methods.get(taking)
        units = [flow.unit_of(method) if method is not None else None for method in methods]
        if units[0] is None or units[1] is None or units[0].code.is_generator:
            continue
        if any(giving in below.methods or taking in below.methods for below in cls.descendants()):
            continue  # their states have more
        gives, takes = units[0], units[1]
        params = [Place(flow, takes, n) for n, v in enumerate(takes.code.values) if v.op == "param" and v.data[0] == 1]
        written = tuple(Place(flow, gives, number) if number >= 0 else None for number in gives.code.returned)
        yield Kept(f"`{cls.name}.{giving}`", written, tuple(params))


def _put(queries: Queries, access: Access) -> Place | None:
    """What a call puts into a file."""
    done = access.done
    direct = _argument(done, _table()["puts"], "content")
    if direct is None and done.method == _OPEN:
        users = [user for file in _files(done) for user in file.users if user.value.op in ("call", "attr")]
        found = [content for user in users for content in _put_by(user)]
        direct = found[0] if len(found) == 1 else None
    elif direct is None and done.method in _TEXTS and len(done.value.args) > 1:
        direct = _of_text(done.operand(1), "puts")
    return _from(direct, access) if direct is not None else None


def _put_by(user: Place) -> Iterator[Place | None]:
    """What a user of an open file puts there; None where that is not known."""
    if user.value.op == "call":
        yield _argument(user, _table()["puts"], "content")
    elif user.value.data in _TEXTS:
        for call in user.users:
            yield _of_text(call.operand(1), "puts") if call.value.op == "call" and len(call.value.args) > 1 else None


def _took(queries: Queries, access: Access) -> Iterator[Place]:
    """What a call takes out of a file: in its function, or where that gives it back."""
    done = access.done
    found = [done] if _argument(done, _table()["takes"], "file") is not None else []
    for file in _files(done) if done.method == _OPEN else ():
        for user in file.users:
            if user.value.op == "call" and _argument(user, _table()["takes"], "file") is not None:
                found.append(user)
            elif user.value.op == "attr" and user.value.data in _READ:
                found += [taken for call in user.users for taken in _parsed(call)]
    if done.method in _READ:
        found += list(_parsed(done))
    for place in found:
        yield place
        if access.place.unit is not done.unit and place.number in done.unit.code.returned:
            yield access.place


def _parsed(text: Place) -> Iterator[Place]:
    """The calls that read what is kept in a text."""
    rows = _table()["texts"]["takes"]
    return (user for user in text.users if user.value.op == "call" and rows.keys() & _names(user))


def _of_text(text: Place, what: str) -> Place | None:
    """What a text is made of."""
    text = text.root
    if text.value.op != "call":
        return None
    rows = _table()["texts"][what]
    return next((text.argument(*rows[name]) for name in _names(text) if name in rows), None)


def _argument(call: Place, rows: dict[str, Any], which: str) -> Place | None:
    found = (call.argument(*rows[name][which]) for name in _names(call) if name in rows)
    return next(found, None)


def _names(call: Place) -> set[str]:
    return {str(o[1]) for o in call.operand(0).val.of("ext")}


def _files(opening: Place) -> list[Place]:
    """The values that are a file which a call opens."""
    found = [opening]
    for place in found:
        found += [user for user in place.users if user.value.op in _OPENED and user not in found]
    return found


def _from(content: Place, access: Access) -> Place | None:
    """A value in the function that names the file: what is passed there, where it is a parameter."""
    root = content.root
    if root.value.op != "param":
        return content
    if access.place.unit is content.unit:
        return content
    given = argument_of(access.place.unit, access.place.number, content.unit, root.value.data[0])
    return access.place.value_at(given) if given is not None else None


@cache
def _table() -> dict[str, Any]:
    return load_toml(os.path.join(os.path.dirname(os.path.abspath(__file__)), "contents.toml"))
