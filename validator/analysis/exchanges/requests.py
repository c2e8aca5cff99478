"""What programs of a project send each other as bodies of requests.

client.post(f"{url}/weights", json={"names": names})        @app.post("/weights")
                                                            async def update(request): (await request.json())["names"]
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from validator.analysis.exchanges.asked_keys import Asked, AskedKeys, Path
from validator.effects.files import Files
from validator.flow.constructors import PYDANTIC, Constructors
from validator.flow.program.unit import Unit
from validator.flow.queries.base import Place, Queries
from validator.flow.queries.origins import passed_from
from validator.flow.queries.outside_program import is_aside
from validator.project import Project

_SENDING = frozenset({"post", "put", "patch"})
_ADDING = frozenset({"add_post", "add_put", "add_patch", "add_api_route", "add_url_rule"})
_BODY = frozenset({"json", "get_json"})
_NAMED = frozenset({"any", "kw"})
_TOLD = 2  # keys that a sender and a handler have in common, by which they belong together where no address tells


class Handler(NamedTuple):
    """A function that answers requests to a route, the keys that it asks of their bodies, and the dictionaries in them
    of which it takes all."""

    route: str
    unit: Unit
    asked: tuple[Asked, ...]
    whole: frozenset[Path]


class Sent(NamedTuple):
    """A call that sends a body, and the only handler of the project that can be meant."""

    call: Place
    body: Place
    handler: Handler


def sent(project: Project) -> Iterator[Sent]:
    """What the program sends to itself."""
    queries = project.analysis(Queries)
    handlers = list(_handlers(queries))
    for call, url, body in _sending(queries) if handlers else ():
        address = _address(project, url)
        fitting = [each for each in handlers if _path(address) == each.route and each.unit is not call.unit]
        if address.endswith("*"):
            fitting = [each for each in handlers if len(_keys(body) & {a.path[0] for a in each.asked}) >= _TOLD]
        if len(fitting) == 1:
            yield Sent(call, body, fitting[0])


def _path(address: str) -> str:
    """What stands behind the host in an address."""
    rest = address.partition("://")[2] or address
    return rest[rest.find("/") :] if "/" in rest else ""


def _keys(body: Place) -> set[str]:
    return {str(key) for o in body.closed.of("dict") for key, _ in o[1]}


def _handlers(queries: Queries) -> Iterator[Handler]:
    for call in queries.named_anywhere(*_SENDING, *_ADDING):
        route = call.operand(1).val.constant() if len(call.value.args) > 1 else None
        if not isinstance(route, str) or not route.startswith("/") or len(route) < 2:
            continue
        for unit in _answering(queries, call):
            looks = [AskedKeys(queries, body) for body in _bodies(queries, unit)]
            asked = [each for look in looks for each in look.asked]
            asked += _fields(queries, unit, call)
            if asked:
                yield Handler(route, unit, tuple(asked), frozenset(path for look in looks for path in look.whole))


def _answering(queries: Queries, call: Place) -> Iterator[Unit]:
    """The functions that a call makes answer: what it decorates, or is given."""
    using = [user for user in call.users if user.value.op == "call" and user.value.args[0] == call.number]
    given = [user.operand(1) for user in using if len(user.value.args) > 1]
    if call.method in _ADDING:
        given += [call.value_at(number) for number in call.value.args[2:]]
    for place in given:
        yield from (o[1] for o in place.root.val.each if o[0] in ("unit", "bound"))


def _bodies(queries: Queries, unit: Unit) -> Iterator[Place]:
    """The bodies of requests that a handler reads: `await request.json()`."""
    for number, value in enumerate(unit.code.values):
        place = Place(queries.flow, unit, number)
        asked = place.receiver if value.op == "call" and place.method in _BODY else None
        if asked is not None and asked.root.value.op == "param":
            waited = [user for user in place.users if user.value.op == "await"]
            yield waited[0] if waited else place


def _fields(queries: Queries, unit: Unit, call: Place) -> Iterator[Asked]:
    """The fields of the only pydantic class of which a body is made."""
    made = [
        o[1]
        for number, value in enumerate(unit.code.values)
        if value.op == "param"
        for o in Place(queries.flow, unit, number).closed.each
        if o[0] in ("inst", "self") and not PYDANTIC.isdisjoint(o[1].external_bases)
    ]
    if len(made) == 1:
        params = queries.project.analysis(Constructors).of(made[0]) or ()
        named = (param for param in params if param.kind in _NAMED)
        yield from (Asked((p.name,), call, "item" if p.default is None else "get") for p in named)


def _sending(queries: Queries) -> Iterator[tuple[Place, Place, Place]]:
    """The calls that send a body, with the address and the body: in the terms of callers, where they pass both."""
    queue = []
    for call in queries.named_anywhere(*_SENDING):
        url, body = call.argument("url", 0), call.argument("json")
        if url is not None and body is not None:
            queue.append((call, url, body))
    for call, url, body in queue:
        if is_aside(call.unit.path):
            continue
        roots = url.root, body.root
        if any(root.value.op != "param" for root in roots):
            yield call, url, body
            continue
        for caller in queries.calls_of(call.unit):
            outer_url, outer_body = (passed_from(caller, root) for root in roots)
            passed = outer_url.unit is caller.unit and outer_body.unit is caller.unit
            if passed and all(caller != row[0] for row in queue):
                queue.append((caller, outer_url, outer_body))


def _address(project: Project, url: Place) -> str:
    """An address, with `*` for what is not known of it."""
    pieces = project.analysis(Files).pieces(url)
    return "".join(piece.text if piece.kind == "text" else "*" for piece in pieces).partition("?")[0]
