"""A key that is read of a dictionary, and that no dictionary which may be there has.

What it does
    Follows what is asked by a literal key (`result["loss"]`, `batch["labels"]`) to the dictionaries that it may be:
    what functions of the project return, the batches that a data loader puts together of the samples of a data set or
    with its `collate_fn`, and whatever dictionary of the project else: in variables, attributes, lists, arguments.
    Reported where none of them has the key; of those that somebody else may have under another name, and add keys to, a
    warning, and only where nothing in the project puts that key anywhere, nor has a text that could be one. Also a
    warning where one of several functions lacks it in whatever it gives, and all others have it, where the function
    itself chose among them (`STEPS[kind](batch)`), or among objects whose methods they are. Silent where one may have
    it or is not known, where keys may be added on the way, behind a test of the key, and where a KeyError is caught.

Why is this bad
    It raises KeyError, when the line runs: somebody renamed a key, or dropped it, and did not come to this reader.

References
    https://docs.python.org/3/library/exceptions.html#KeyError
"""

from __future__ import annotations

from collections.abc import Iterator

from validator.analysis.options.result_keys import is_made_here, keys_of_one, keys_without
from validator.errors import nearest
from validator.finding import Finding
from validator.flow.objects import is_passed
from validator.flow.queries.base import Place, Queries
from validator.flow.queries.outside_program import is_aside
from validator.project import Project
from validator.rule import Rule

RULE = Rule("MP146", "key-of-no-result", "error", "1.0", solves=True)


def check_project(project: Project) -> Iterator[Finding]:
    queries = project.analysis(Queries)
    for unit in queries.of_program():
        for place in queries.values(unit, "item") if not is_aside(unit.path) else ():
            key = place.operand(1).val.constant()
            if isinstance(key, str) and (keys := keys_without(queries, place, key)):
                yield _report(place, place.operand(0), key, keys, is_made_here(queries, place.operand(0)))
            elif isinstance(key, str) and (keys := keys_of_one(queries, place, key)):
                yield _report(place, place.operand(0), key, keys, is_alone=False)


def _report(place: Place, owner: Place, key: str, keys: frozenset[str], is_alone: bool) -> Finding:
    listed = ", ".join(f"{each!r}" for each in sorted(keys)[:6]) + (", …" if len(keys) > 6 else "")
    return RULE.finding(
        place.unit.path,
        place.at,
        f"`{owner.text}`{place.where} has no key {key!r}: KeyError. It has {listed}",
        help=f"read a key that is there{nearest(key, sorted(keys))}",
        context=f"{place.unit.qualname}:{owner.text}:{key}",
        severity="error" if is_alone and not is_passed(owner) else "warning",
    )


INCORRECT = [
    # through parameters: batches of a loader that a generator gives on, what a dictionary of models gives
    """
from functools import partial

from torch import nn
from torch.utils.data import DataLoader

class Boxes(nn.Module):
    def forward(self, outputs, sizes):
        return [{"scores": out, "boxes": size} for out, size in zip(outputs, sizes)]

class Evaluator:
    def update(self, predictions):
        for name, prediction in predictions.items():
            print(name, prediction["score"])  # error: MP146

def every(loader, steps):
    for batch in loader:
        yield batch

def collate(rows, scale):
    return {"image": rows[0], "label": scale}

def run(post, evaluator, loader):
    for batch in every(loader, 10):
        results = post["bbox"](batch["images"], batch["label"])  # error: MP146
        evaluator.update({name: out for name, out in zip(batch["label"], results)})

if __name__ == "__main__":
    loader = DataLoader([1], collate_fn=partial(collate, scale=2))
    run({"bbox": Boxes()}, Evaluator(), loader)
""",
    # what a model gives that callers pass
    """
from torch import nn

class Criterion(nn.Module):
    def forward(self, outputs, targets):
        return {"loss_labels": outputs - targets, "loss_boxes": outputs * targets}

def step(model, criterion, samples, targets):
    losses = criterion(model(samples), targets)
    return losses["loss_labels"] + losses["loss_box"]  # error: MP146

if __name__ == "__main__":
    step(nn.Linear(2, 2), Criterion(), 1, 2)
""",
    # dictionaries that are kept, gathered, grown and passed on
    """
import copy

class Metrics:
    def __init__(self):
        self.sums = {"loss": 0.0, "tokens": 0}

    def add(self, loss):
        self.sums["losses"] += loss  # error: MP146
        return copy.deepcopy(self.sums)["token"]  # error: MP146

def rows(texts):
    found = []
    for text in texts:
        found.append({"text": text, "length": len(text)})
    return [row["len"] for row in found]  # error: MP146

def train(steps):
    logs = dict(loss=0.0)
    logs.update(step=steps)
    logs.setdefault("lr", 1e-3)
    report(logs)

def report(logs):
    print(logs["loss"], logs["lr"], logs["learning_rate"])  # error: MP146

if __name__ == "__main__":
    Metrics().add(1.0)
    rows(["a"])
    train(3)
""",
    """
def metrics(loss):
    return {"loss": loss, "steps": 1}

def train(loss):
    result = metrics(loss)
    print(result["loss"], result["step"])  # error: MP146

train(1.0)
""",
    """
import torch
from torch.utils.data import DataLoader, Dataset

class Rows(Dataset):
    def __getitem__(self, i):
        return {"input_ids": torch.zeros(3), "labels": torch.ones(3)}

def main():
    for batch in DataLoader(Rows(), batch_size=4):
        print(batch["input_ids"], batch["attention_mask"])  # error: MP146

main()
""",
    """
import torch
from torch.utils.data import DataLoader, Dataset

class Rows(Dataset):
    def __getitem__(self, i):
        return torch.zeros(3)

def collate(samples):
    return {"ids": torch.stack(samples)}

def main():
    loader = DataLoader(Rows(), collate_fn=collate)
    for step, batch in enumerate(loader):
        print(batch["input_ids"])  # error: MP146

main()
""",
    # one of several functions gives it another name
    """\
def actor_step(batch):
    return {"loss": batch.sum(), "kl": batch.mean()}


def critic_step(batch):
    return {"value_loss": batch.sum(), "kl": batch.mean()}


STEPS = {"actor": actor_step, "critic": critic_step}


def train(kind, batches):
    for batch in batches:
        result = STEPS[kind](batch)
        print(result["kl"])
        result["loss"].backward()  # error: MP146
""",
]

CORRECT = [
    # who has the dictionary under another name puts the key, or one that is computed
    """
class Metrics:
    def __init__(self, names):
        self.sums = {"loss": 0.0}
        for name in names:
            self.sums.setdefault(name, 0.0)
        self.last = {"loss": 0.0}
        begin(self)

    def add(self):
        return self.sums["tokens"] + self.last["steps"]

def begin(metrics):
    kept = [metrics.last]
    for each in kept:
        each["steps"] = 0

if __name__ == "__main__":
    Metrics(["tokens"]).add()
""",
    """
def metrics(loss):
    return {"loss": loss}

def train(loss, more):
    result = metrics(loss)
    result.update(more)
    result["steps"] = 2
    print(result["loss"], result["steps"], result["tokens"])

def asked(loss):
    result = metrics(loss)
    if "tokens" in result:
        print(result["tokens"])
    try:
        return result["seconds"]
    except KeyError:
        return 0

train(1.0, {})
asked(1.0)
""",
    """
def either(loss, whole):
    if whole:
        return {"loss": loss, "tokens": 3}
    return {"loss": loss}

def train(loss, whole):
    result = either(loss, whole)
    if whole:
        print(result["tokens"])

train(1.0, True)
""",
    """
class Scores:
    def __call__(self, inputs):
        inputs.update({f"score_{key}": 0 for key in inputs})
        return inputs

def loss(scores):
    inputs = scores({"reals": 1, "fakes": 2})
    return inputs["score_reals"]

loss(Scores())
""",
    # which of them it is is known, or the key is asked for first
    """\
def actor_step(batch):
    return {"loss": batch.sum(), "kl": batch.mean()}


def critic_step(batch):
    return {"value_loss": batch.sum(), "kl": batch.mean()}


STEPS = {"actor": actor_step, "critic": critic_step}


def train(kind, batches):
    for batch in batches:
        result = STEPS[kind](batch)
        loss = result["loss"] if kind == "actor" else result["value_loss"]
        loss.backward()


def first(args, batch):
    step = actor_step if args.actor else critic_step
    result = step(batch)
    return result["loss"] if "loss" in result else result["value_loss"]
""",
    # keys that are read out of a file, and more of them
    """\
def load(path):
    words = {}
    for word in open(path).readlines():
        if word[-1] == "\\n":
            word = word[:-1]
        if len(word) == 0:
            continue
        words[word] = len(words)
    return words


class Tokenizer:
    def __init__(self, path):
        self.line, self.space = "\\n", " "
        self.encoder = load(path)
        self.encoder[self.line] = self.encoder["</n>"]
        self.encoder[self.space] = self.encoder["</_>"]
""",
]
