"""A key that is read of a dictionary, and that nothing in the project puts anywhere.

What it does
    Looks at dictionaries that objects keep as attributes and that the project fills (`batch.meta_info["tokens"] = …`,
    `Batch(meta_info={…})`). Reports a key that is read of them by index where no text, keyword, parameter, attribute or
    configuration file of the project has it but such reads, and no text that is put together could be it, while hardly
    any other key that is read there is like that. Silent where a KeyError is caught, of objects of libraries, and in
    tests.

Why is this bad
    It raises KeyError, on the one path where the key is read: somebody renamed it where it is put, and forgot a reader.

References
    https://docs.python.org/3/library/exceptions.html#KeyError
"""

from __future__ import annotations

from collections.abc import Iterator

from validator.analysis.options.dictionary_keys import DictionaryKeys, Read
from validator.errors import nearest
from validator.finding import Finding, Related
from validator.project import Project
from validator.rule import Rule

RULE = Rule("MP144", "key-never-put", "warning", "0.4.0", solves=True)

_SHARE = 4  # of so many keys that are read of an attribute one may be nobody's


def check_project(project: Project) -> Iterator[Finding]:
    keys = project.analysis(DictionaryKeys)
    read: dict[str, dict[str, list[Read]]] = {}
    for each in keys.reads:
        read.setdefault(each.attribute, {}).setdefault(each.key, []).append(each)
    for attribute, by_key in read.items():
        if attribute not in keys.put:
            continue
        nobodys = [key for key in by_key if not keys.is_told(key)]
        for key in nobodys if len(nobodys) * _SHARE <= len(by_key) else ():
            places = [each for each in by_key[key] if not _is_expected(each)]
            if places:
                yield _report(places, sorted(keys.put[attribute]))


def _is_expected(read: Read) -> bool:
    """Whether the key may be there, or may be missing: a library keeps the dictionary, a handler takes the error."""
    owner = read.place.operand(0).closed.objs
    of_library = bool(owner) and all(o[0] in ("ext", "made") for o in owner)
    return of_library or read.place.catches("KeyError", "LookupError", "Exception")


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

INCORRECT = (_BATCH.replace('["KEY"]', '["global_token_num"]  # error: MP144'),)

CORRECT = (
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
