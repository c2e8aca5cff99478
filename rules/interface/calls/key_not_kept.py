"""A key that is taken out of what was kept, and under which nothing was put there.

What it does
    Looks at what a program keeps and takes up again: the states that methods give and take (`state_dict` and
    `load_state_dict`, `__getstate__` and `__setstate__`, `to_dict` and `from_dict`), and files that it writes and reads
    under one name (`torch.save`, `json.dump`, `pickle.dump`, `yaml.dump` and what reads them); and at the bodies of
    requests that one of its programs sends to another (`client.post(url, json={…})` to a function under
    `@app.post(route)`).
    Reported is a key that is asked for and that nothing which is kept has, where all of that is spelled out and at
    least one other key that is kept is asked for, too. A key for which the code is ready not to find it
    (`state.get("step", 0)`, `if "step" in state`) only where one that is like it is kept and never taken; in
    the body of a request, also where one alone is missed and one alone is never taken.

Why is this bad
    Saving works, and so does all training until somebody resumes: then it is a KeyError, or a default instead of what
    was saved (the step, the position in the data, the numbers of a controller).

References
    https://docs.pytorch.org/docs/stable/distributed.checkpoint.html#torch.distributed.checkpoint.stateful.Stateful
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from validator.analysis.exchanges.asked_keys import Asked, AskedKeys, Path
from validator.analysis.exchanges.kept import kept
from validator.analysis.exchanges.requests import sent
from validator.analysis.interfaces.unspelled import are_alike
from validator.analysis.options.result_keys import is_changed, keys_of
from validator.errors import nearest
from validator.finding import Finding, Related
from validator.flow.queries.base import Place, Queries
from validator.flow.values import Val, join
from validator.project import Project
from validator.rule import Rule

RULE = Rule("MP163", "key-not-kept", "warning", "1.0", solves=True)


class Exchange(NamedTuple):
    """What is left in one place for another: `what`, in words; the values that are written, and what each reader asks
    for. `at`: where to report, if not where a key is asked for."""

    what: str
    written: tuple[Place, ...]
    readers: tuple[tuple[Asked, ...], ...]
    whole: frozenset[Path]  # others may be asked for there
    put: frozenset[Path] = frozenset()  # keys that readers put there themselves
    at: Place | None = None


def check_project(project: Project) -> Iterator[Finding]:
    for exchange in _exchanges(project):
        yield from _check(exchange)


def _exchanges(project: Project) -> Iterator[Exchange]:
    queries = project.analysis(Queries)
    for row in kept(project):
        looks = [AskedKeys(queries, place) for place in row.taken]
        readers = tuple(tuple(look.asked) for look in looks if not look.changed)
        whole = frozenset(path for look in looks for path in look.whole)
        put = frozenset(path for look in looks for path in look.put)
        yield Exchange(f"what {row.what} keeps", row.written, readers, whole, put)
    for call, body, handler in sent(project):
        what = f"what `{call.operand(0).text}` sends to `{handler.unit.qualname}` ({handler.route})"
        yield Exchange(what, (body,), (handler.asked,), handler.whole, at=body)


def _check(exchange: Exchange) -> Iterator[Finding]:
    whole = join(place.closed for place in exchange.written)
    if any(map(is_changed, exchange.written)) or not keys_of(whole):
        return
    paths = {each.path for asked in exchange.readers for each in asked}
    said: set[Path] = set()
    for asked in exchange.readers:
        own = {each.path for each in asked}
        for each in asked:
            around, key = each.path[:-1], each.path[-1]
            keys = keys_of(_at(whole, around))
            if each.path in said or each.path in exchange.put or key in keys:
                continue
            if not any((*around, name) in own for name in keys):
                continue  # it is of another kind, this reader
            unread = frozenset(name for name in keys if (*around, name) not in paths and _is_like(name, key))
            unread = unread if around not in exchange.whole else frozenset()
            if unread or not _is_ready(each, asked):
                said.add(each.path)
                yield _report(exchange, each, keys, unread)


def _is_like(one: str, other: str) -> bool:
    """Whether two keys, one of which is kept and never taken, the other taken and never kept, may mean the same."""
    words, others = set(one.split("_")), set(other.split("_"))
    return words <= others or others <= words or are_alike(one, other)


def _is_ready(asked: Asked, every: tuple[Asked, ...]) -> bool:
    """Whether the code is ready for what lacks the key: it asks first, of whatever."""
    place = asked.place
    tested = any(each.path == asked.path and each.how != "item" for each in every)
    chosen = any(test.value.op != "more" for test in place.tests_inside)
    return tested or chosen or place.is_tried


def _at(whole: Val, path: Path) -> Val:
    """What is kept under keys, one inside the other."""
    for key in path:
        whole = join(val for o in whole.objs if o[0] == "dict" for name, val in o[1] if name == key)
    return whole


def _report(exchange: Exchange, asked: Asked, keys: frozenset[str], unread: frozenset[str]) -> Finding:
    key, place = asked.path[-1], exchange.at or asked.place
    within = "".join(f"[{each!r}]" for each in asked.path[:-1])
    outcome = "it fails" if exchange.at is not None else "KeyError"
    outcome = outcome if asked.how == "item" else "the default is taken"
    lost = f"; {min(unread)!r}, which is there, is never taken" if unread else ""
    other = asked.place if exchange.at is not None else exchange.written[0]
    return RULE.finding(
        place.unit.path,
        place.at,
        f"{exchange.what}{f' under {within}' if within else ''} has no {key!r}, which is asked for"
        f"{asked.place.where}: {outcome}{lost}",
        help=f"use one name for it on both sides{nearest(key, sorted(keys))}",
        related=[Related(other.unit.path, other.at[0], "asked for here" if exchange.at is not None else "kept here")],
        context=f"{place.unit.qualname}:{'.'.join(asked.path)}",
    )


_CONTROLLER = """\
class Controller:
    def __init__(self):
        self.value, self.step = 0.1, 0

    def state_dict(self):
        state = {{"value": self.value}}
        state["{kept}"] = self.step
        return state

    def load_state_dict(self, state):
        self.value = state["value"]
        self.step = {taken}{mark}
"""

_FILES = """\
# file: saving.py
import json
import os


def save(folder, context):
    sizes = {{"parallelism": {{"tp_size": context.tp, "{kept}": context.ep}}, "kind": "zero"}}
    with open(os.path.join(folder, "optimizer_config.json"), "w") as file:
        json.dump(sizes, file)
# file: loading.py
import json
from pathlib import Path


def read(path):
    with open(path) as file:
        return json.load(file)


def load(folder):
    config = read(Path(folder) / "optimizer_config.json")
    sizes = config["parallelism"]
    return config["kind"], sizes["tp_size"], {taken}{mark}
"""

_REQUESTS = """\
# file: server.py
from fastapi import FastAPI, Request

app = FastAPI()


@app.post("/update_weights")
async def update_weights(request: Request):
    data = await request.json()
    return load(data["names"], data.get("{read}", False))
# file: client.py
import requests


def push(url, names):
    body = {{"names": names, "quantize_in_transfer": True}}{mark}
    return requests.post(f"{{url}}/update_weights", json=body)
"""

_FIELDS = """\
# file: server.py
from fastapi import FastAPI
from pydantic import BaseModel

app = FastAPI()


class Query(BaseModel):
    texts: list[str]
    {field}: int


@app.post("/score")
def score(query: Query):
    return len(query.texts)
# file: client.py
async def _send(session, route, body):
    return await session.post(route, json=body)


async def score(session, texts):
    return await _send(session, "/score", {{"texts": texts, "max_length": 8}}){mark}
"""

INCORRECT = (
    _CONTROLLER.format(kept="steps", taken='state["step"]', mark="  # error: MP163"),
    # a default instead of what is kept
    _CONTROLLER.format(kept="current_step", taken='state.get("step", 0)', mark="  # error: MP163"),
    # files, and dictionaries in them
    _FILES.format(kept="ep_size", taken='sizes["expert_parallel_size"]', mark="  # error: MP163"),
    """\
import torch


def save(model, sampler, step):
    state = dict(model=model.state_dict(), steps_done=step, sampler=sampler.state_dict())
    torch.save(state, f"checkpoints/{step}/trainer.pt")


def resume(model, sampler, folder):
    state = torch.load(folder + "/trainer.pt", map_location="cpu")
    model.load_state_dict(state["model"])
    sampler.load_state_dict(state["sampler"])
    return state["step"]  # error: MP163
""",
    # bodies of requests
    _REQUESTS.format(read="quantize_transfer", mark="  # error: MP163"),
    _FIELDS.format(field="limit", mark="  # error: MP163"),
)

CORRECT = (
    _CONTROLLER.format(kept="step", taken='state["step"]', mark=""),
    # an older form that is read as well; nothing like it is kept
    _CONTROLLER.format(kept="step", taken='state["step"] if "step" in state else state.get("iteration", 0)', mark=""),
    _CONTROLLER.format(kept="step", taken='state["step"] + state.get("offset", 0)', mark=""),
    # what else is kept is not known
    _CONTROLLER.format(kept="step", taken='state["rank"]', mark="").replace("return state", "return add_rank(state)"),
    _CONTROLLER.format(kept="step", taken='state["rank"]', mark="").replace('{"value"', '{**vars(self), "value"'),
    _FILES.format(kept="ep_size", taken='sizes["ep_size"]', mark=""),
    # a file that has only the name in common with the one that is written
    """\
import json


def save(folder, hidden):
    with open(f"{folder}/config.json", "w") as file:
        json.dump({"hidden_size": hidden}, file)


def kind_of_model(path):
    with open(f"{path}/config.json") as file:
        return json.load(file)["model_type"]
""",
    _REQUESTS.format(read="quantize_in_transfer", mark=""),
    # what a server is ready to do without; one that is not of the project
    _REQUESTS.format(read="timeout", mark="").replace(', "quantize_in_transfer": True', ""),
    _REQUESTS.format(read="timeout", mark="").replace("{url}/update_weights", "{url}/generate"),
    _FIELDS.format(field="max_length", mark=""),
    _FIELDS.format(field="limit", mark="").replace("limit: int", "limit: int = 8").replace(', "max_length": 8', ""),
    # an older version; what the reader puts there itself; states of heirs
    _CONTROLLER.format(kept="step", taken='state["step"]', mark="")
    + '        if state["value"] < 0:\n            self.old = state["iteration"]\n',
    _CONTROLLER.format(kept="step", taken='state["step"]', mark="")
    + '        state.setdefault("cache", {})\n        self.cache = state["cache"]\n',
    _CONTROLLER.format(kept="step", taken='state["step"] + state["rank"]', mark="")
    + """

class Ranked(Controller):
    def state_dict(self):
        return {**super().state_dict(), "rank": 3}
""",
    # a file of which only the ending is known; a handler behind another prefix
    """\
import json


def save(folder, name, loss):
    with open(f"{folder}/{name}.json", "w") as file:
        json.dump({"name": name, "loss": loss}, file)


def prompt(folder, name):
    with open(f"{folder}/{name}.json") as file:
        row = json.load(file)
    return row["name"], row["template"]
""",
    _REQUESTS.format(read="quantize_transfer", mark="").replace("{url}/update_weights", "{url}/env/update_weights"),
)
