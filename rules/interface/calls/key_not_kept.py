"""A key that is taken out of what was kept, and under which nothing was put there.

What it does
    Looks at what a program keeps and takes up again: the states that methods give and take (`state_dict` and
    `load_state_dict`, `__getstate__` and `__setstate__`, `to_dict` and `from_dict`), and files that it writes and reads
    under one name (`torch.save`, `json.dump`, `pickle.dump`, `yaml.dump` and what reads them).
    Reported is a key that is asked for and that nothing which is kept has, where all of that is spelled out and at
    least one other key that is kept is asked for, too. A key for which the code is ready not to find it
    (`state.get("step", 0)`, `if "step" in state`) only where one that is like it is kept and never taken.

Why is this bad
    Saving works, and so does all training until somebody resumes: then it is a KeyError, or a default instead of what
    was saved (the step, the position in the data, the numbers of a controller).

References
    https://docs.pytorch.org/docs/stable/distributed.checkpoint.html#torch.distributed.checkpoint.stateful.Stateful
"""

from __future__ import annotations

from collections.abc import Iterator

from validator.analysis.exchanges.asked_keys import Asked, AskedKeys, Path
from validator.analysis.exchanges.kept import Exchange, exchanges
from validator.analysis.interfaces.unspelled import are_alike
from validator.analysis.options.result_keys import is_changed
from validator.errors import nearest
from validator.finding import Finding, Related
from validator.flow.queries.base import Place, Queries
from validator.flow.queries.outside_program import is_aside
from validator.flow.values import NONE_OBJ, Val, join
from validator.project import Project
from validator.rule import Rule

RULE = Rule("MP163", "key-not-kept", "warning", "1.0", solves=True)


def check_project(project: Project) -> Iterator[Finding]:
    queries = project.analysis(Queries)
    for exchange in exchanges(project):
        if exchange.taken and exchange.written:
            yield from _check(queries, exchange)


def _check(queries: Queries, exchange: Exchange) -> Iterator[Finding]:
    written = [place.closed if place is not None and not is_changed(place) else None for place in exchange.written]
    known = [val for val in written if val is not None]
    if len(known) < len(written) or not keys_of(join(known)):
        return
    kept = join(known)
    looks = [AskedKeys(queries, place) for place in exchange.taken if not is_aside(place.unit.path)]
    asked = [each for look in looks for each in look.asked]
    whole = {path for look in looks for path in look.whole}
    paths = {each.path for each in asked}
    said: set[Path] = set()
    for each in asked:
        keys = keys_of(_at(kept, each.path[:-1]))
        beside = {key for key in keys if (*each.path[:-1], key) in paths}
        if each.path in said or not beside or each.path[-1] in keys:
            continue
        unread = {k for k in keys - beside if _is_like(k, each.path[-1])} if each.path[:-1] not in whole else set()
        if _is_ready(each, asked) and not unread:
            continue
        said.add(each.path)
        yield _report(exchange, each, keys, unread)


def _is_like(one: str, other: str) -> bool:
    """Whether two keys, one of which is kept and never taken, the other taken and never kept, may mean the same."""
    return not set(one.split("_")).isdisjoint(other.split("_")) or are_alike(one, other)


def _is_ready(asked: Asked, every: list[Asked]) -> bool:
    """Whether the code is ready for what lacks the key."""
    place = asked.place
    tested = any(each.path == asked.path and each.how != "item" for each in every)
    return tested or place.catches("KeyError", "LookupError", "Exception")


def _at(kept: Val, path: Path) -> Val:
    """What is kept under keys, one inside the other."""
    for key in path:
        kept = join(val for o in kept.objs if o[0] == "dict" for name, val in o[1] if name == key)
    return kept


def keys_of(kept: Val) -> frozenset[str]:
    """The keys of dictionaries that are spelled out; none where one may be something else, or have others."""
    objs = kept.objs - {NONE_OBJ}
    if not objs or any(o[0] != "dict" or o[2] is not None for o in objs):
        return frozenset()
    return frozenset(str(key) for o in objs for key, _ in o[1])


def _report(exchange: Exchange, asked: Asked, keys: frozenset[str], unread: set[str]) -> Finding:
    place, key = asked.place, asked.path[-1]
    within = "".join(f"[{each!r}]" for each in asked.path[:-1])
    outcome = "KeyError" if asked.how == "item" else "the default is taken"
    lost = f"; {min(unread)!r}, which is kept there, is never taken" if unread else ""
    origin = next(each for each in exchange.written if each is not None)
    return RULE.finding(
        place.unit.path,
        place.at,
        f"what {exchange.what} keeps{f' under {within}' if within else ''} has no {key!r}, which is asked for"
        f"{place.where}: {outcome}{lost}",
        help=f"take it by the key under which it is kept{nearest(key, sorted(keys))}",
        related=[Related(origin.unit.path, origin.at[0], "kept here")],
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
)
