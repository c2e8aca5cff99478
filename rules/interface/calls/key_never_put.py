"""A key that is read of a dictionary, and that nothing in the project puts anywhere.

What it does
    Looks for keys that are read by index while no text, keyword, parameter, attribute or configuration file of the
    project has them but such reads, and no text that is put together could be one.
    Reported for dictionaries that objects keep as attributes and that the project fills (`batch.meta_info["tokens"] =
    …`, `Batch(meta_info={…})`), where hardly any other key that is read there is like that;
    for any dictionary, where the project puts a key like it (its words in another order, a word more, less or
    replaced) and nobody reads that, or puts it with other keys that are read of the dictionary.
    Silent where a KeyError is caught, of objects of libraries and of what they pass to functions that they
    are given, where a page or a notebook beside the code has the key, and in tests. What functions return is for MP146.

Why is this bad
    It raises KeyError, on the one path where the key is read: somebody renamed it where it is put, and forgot a reader.

References
    https://docs.python.org/3/library/exceptions.html#KeyError
"""

from __future__ import annotations

from collections.abc import Iterator

from validator.analysis.beside import Beside
from validator.analysis.interfaces.company import path_of
from validator.analysis.options.dictionary_keys import DictionaryKeys, Read, Unput
from validator.analysis.options.result_keys import keys_without
from validator.analysis.usage import Usage
from validator.errors import nearest
from validator.finding import Finding, Related
from validator.flow.foreign import is_unknown
from validator.flow.queries.base import Place, Queries
from validator.flow.queries.origins import sources
from validator.project import Project
from validator.rule import Rule

RULE = Rule("MP144", "key-never-put", "warning", "0.4.0", solves=True)

_SHARE = 4  # of so many keys that are read of an attribute one may be nobody's


def check_project(project: Project) -> Iterator[Finding]:
    keys = project.analysis(DictionaryKeys)
    read: dict[str, dict[str, list[Read]]] = {}
    for each in keys.reads:
        read.setdefault(each.attribute, {}).setdefault(each.key, []).append(each)
    said: set[Place] = set()
    for attribute, by_key in read.items():
        if attribute not in keys.put:
            continue
        nobodys = [key for key in by_key if not keys.is_told(key)]
        for key in nobodys if len(nobodys) * _SHARE <= len(by_key) else ():
            places = [each for each in by_key[key] if not _is_expected(each.place)]
            if places and not project.analysis(Beside).names(key):
                said.update(each.place for each in places)
                yield _report(places, sorted(keys.put[attribute]))
    by_name: dict[str, list[Unput]] = {}
    for found in keys.unput:
        if found.place not in said and not _is_expected(found.place) and not _is_of_result(project, found):
            by_name.setdefault(found.key, []).append(found)
    beside = project.analysis(Beside)
    yield from (_report_unput(rows) for key, rows in by_name.items() if not beside.names(key))


def _is_of_result(project: Project, found: Unput) -> bool:
    """Whether MP146 says it."""
    return bool(keys_without(project.analysis(Queries), found.place, found.key))


def _is_expected(place: Place) -> bool:
    """Whether the key may be there, or may be missing: a library keeps the dictionary, a handler takes the error."""
    return _is_of_library(place.operand(0)) or place.catches("KeyError", "LookupError", "Exception")


def _is_of_library(place: Place | None) -> bool:
    """Whether a library makes a value: it is one of its objects, a part of one (`for _, row in frame.iterrows()`), what
    a method of one gives, or what one passes to a function that it is given (`frame.apply(lambda row: …)`)."""
    queue = [place] if place is not None else []
    seen = set(queue)
    for each in queue:
        closed, root = each.closed, each.root
        if closed.objs and all(o[0] in ("ext", "made") for o in closed.objs) and not is_unknown(closed):
            return True
        before = (*(sources(root) or ()), *_whole(root), *_returned(root))
        fresh = [place for place in before if place not in seen]
        seen.update(fresh)
        queue += fresh
    return False


def _whole(place: Place) -> list[Place]:
    """What a value is a part of, or what gives it, where that is not of the project: of a call the object whose method
    it is, or what is called; of a parameter what a library was given together with the function."""
    if place.value.op in ("attr", "item", "next", "iter", "unpack", "mut"):
        return [place.operand(0)]
    if place.value.op == "call":
        site = place.result.sites.get(place.number)
        return [place.receiver or place.operand(0)] if site is None or not site.targets else []
    if place.value.op == "param" and not place.unit.is_receiver(place.number):
        found = []
        for user in _handed_over(place):
            given = user.value.args[1:] if user.receiver is None else (user.receiver.number,)
            found += [user.value_at(number) for number in given]
        return found
    return []


def _handed_over(param: Place) -> Iterator[Place]:
    """The calls of libraries to which the function of a parameter is passed: `rows.map(encode)`."""
    made, unit = param.outside, param.unit
    if made is not None and made.value.op == "closure":
        yield from (user for user in made.users if user.value.op == "call")
        return
    for user, number in param.flow.project.analysis(Usage).mentions(unit) if unit.code.kind == "function" else ():
        for call in Place(param.flow, user, number).users if number >= 0 else ():
            site = call.result.sites.get(call.number) if call.value.op == "call" else None
            if call.value.op == "call" and number in call.value.args[1:] and (site is None or not site.targets):
                yield call


def _returned(place: Place) -> list[Place]:
    """What a list is made of that a function of the project gives back: `[json.loads(line) for line in file]`."""
    value = place.value
    return [place.operand(0)] if value.op == "collect" and value.data[:2] in (("list", 1), ("set", 1)) else []


def _report(places: list[Read], put: list[str]) -> Finding:
    place, attribute, key = places[0]
    return RULE.finding(
        place.unit.path,
        place.at,
        f"nothing in the project puts the key {key!r}{place.where}: `{place.operand(0).text}` is given "
        f"{_number(len(put))}, and no text names this one",
        help=f"read a key that is put there{nearest(key, put)}",
        related=[Related(each.place.unit.path, each.place.at[0], "read here, too") for each in places[1:4]],
        context=f"{place.unit.qualname}:{attribute}:{key}",
    )


def _report_unput(rows: list[Unput]) -> Finding:
    place, key, alike = rows[0]
    path = path_of(place.unit, place.operand(0).number)
    owner = ".".join(name.partition("@")[0] for name in path) or place.operand(0).text
    return RULE.finding(
        place.unit.path,
        place.at,
        f"nothing in the project puts the key {key!r}, which `{owner}` is asked for{place.where}, into "
        f"any dictionary, and no text names it; {alike[0]!r} is put",
        help=f"read a key that is put there{nearest(key, list(alike))}",
        related=[Related(each.place.unit.path, each.place.at[0], "read here, too") for each in rows[1:4]],
        context=f"{place.unit.qualname}:{key}",
    )


def _number(count: int) -> str:
    return "one key" if count == 1 else f"{count} other keys"


_BATCH = """\
class Batch:
    def __init__(self, tensors, meta_info=None):
        self.tensors = tensors
        self.meta_info = meta_info or {}


class Trainer:
    def __init__(self, strategy, actor, critic):
        self.strategy, self.actor, self.critic = strategy, actor, critic

    def fit(self, tensors):
        batch = Batch(tensors, meta_info={"temperature": 1.0, "steps": 3, "eos": 2})
        batch.meta_info["global_num_tokens"] = tensors["mask"].sum()
        self.actor.update(batch)
        self.critic.update(batch)


class Actor:
    def update(self, batch):
        print(batch.meta_info["temperature"], batch.meta_info["steps"], batch.meta_info["eos"])
        return batch.meta_info["global_num_tokens"]


class Critic:
    def update(self, batch):
        return batch.meta_info["KEY"]
"""

_METRICS = """\
def metrics(loss, grads):
    stats = {"policy_loss": loss}
    stats["gradient_norm_max"] = grads.max()
    return [stats]


def report(rows):
    for stats in rows:
        print(stats["policy_loss"], stats["gradient_norm_max"])
        CODE
"""

INCORRECT = (
    _BATCH.replace('["KEY"]', '["global_token_num"]  # error: MP144'),
    # a key like one that is put, beside others that are put
    _METRICS.replace("CODE", 'print(stats["gradient_max_norm"])  # error: MP144'),
    # what is put nobody reads
    """\
def sample(texts):
    return [{"sample_chosen": text} for text in texts]


def train(dataset):
    return dataset["chosen_sample"]  # error: MP144
""",
)

CORRECT = (
    # columns of a table that a library reads
    _METRICS.replace("CODE", 'print(stats["gradient_norm_max"])')
    + """

import pandas as pd


def table(path):
    frame = pd.read_parquet(path)
    for _, row in frame.iterrows():
        print(row["policy_max_loss"])
    print(frame.groupby("step").agg("sum")["loss_policy_max"])
    return frame.apply(lambda row: row["loss_of_policy"], axis=1)
""",
    _METRICS.replace("CODE", 'print(stats["gradient_norm_max"])'),
    # a dictionary that makes what it lacks
    """\
from collections import defaultdict


def report(rows):
    stats = defaultdict(list)
    for row in rows:
        stats["policy_loss_max"].append(row)
    return {"max_policy_loss": max(stats["policy_loss_max"])}
""",
    # a function that a library calls for each element hands it on, perhaps changed
    _METRICS.replace("CODE", 'print(stats["gradient_norm_max"])')
    + """

import tensorflow as tf


def standard(row):
    return row["policy_max_loss"], row["loss_of_policy"]


def read(paths, adapt=None):
    def restructure(row):
        if adapt is not None:
            row = adapt(row)
        return standard(row), row["loss_policy_max"]

    return tf.data.TFRecordDataset(paths).map(restructure)
""",
    # a library gives each row to a function; a function of the project reads them; what is called is a library's
    _METRICS.replace("CODE", 'print(stats["gradient_norm_max"])')
    + """

import json

from datasets import load_dataset
from transformers import AutoProcessor


def encode(row):
    return {"ids": row["policy_max_loss"]}


def load(path):
    with open(path) as file:
        return [json.loads(line) for line in file]


def table(path):
    return [(row["policy_max_loss"], row["policy_loss"]) for row in load(path)]


def inputs(processor, rows):
    made = processor(rows, return_tensors="pt")
    return made["policy_max_loss"], made["policy_loss"]


data = load_dataset("rows")["train"].map(encode)
print(table("rows.jsonl"), inputs(AutoProcessor.from_pretrained("small"), data))
""",
    # nothing like it is put; most of what is read there is put by somebody else; two of a row
    _METRICS.replace("CODE", 'print(stats["tokens_per_second"])'),
    """\
def answer(text):
    return {"best_response_text": text}


def train(row):
    print(answer(row)["best_response_text"])
    return row["best_response_words"], row["human_ratings"], row["sources"]
""",
    _METRICS.replace("gradient_norm_max", "gradient_norm_1").replace("CODE", 'print(stats["gradient_norm_2"])'),
    # the key like it is put with others than are read here
    """\
def answer(text):
    return {"output_image": text, "words": 3}


def question(text):
    return {"question": text, "image": None}


def train(row, text):
    print(answer(text)["output_image"], answer(text)["words"])
    return row["output_image_url"], row["question"], row["image"]
""",
    # a test asks for it first; the error is caught
    _METRICS.replace("CODE", 'print("gradient_max_norm" in stats and stats["gradient_max_norm"])'),
    """\
def sample(texts):
    return [{"sample_chosen": text} for text in texts]


def train(dataset):
    try:
        return dataset["chosen_sample"]
    except KeyError:
        return None
""",
    _BATCH.replace("KEY", "global_num_tokens"),
    # a text that is put together may be the key
    _BATCH.replace("KEY", "global_token_num")
    + """

def put(batch, what):
    batch.meta_info[f"global_{what}"] = 1
""",
    # a default
    _BATCH.replace('["KEY"]', '.get("global_token_num", 0)'),
    # a configuration file has it
    "# file: rl.py\n" + _BATCH.replace("KEY", "global_token_num") + "# file: conf.yaml\nmeta: {global_token_num: 4}\n",
)
