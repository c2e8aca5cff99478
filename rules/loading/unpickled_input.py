"""Unpickling, which runs the code that the data holds.

What it does
    Reports `pickle.load` and `pickle.loads` (also cloudpickle, dill, joblib, `pandas.read_pickle`,
    `numpy.load(allow_pickle=True)`) in package code: a warning where the bytes come from the network or from a request,
    otherwise a note. Tests, examples and scripts are silent.

Why is this bad
    Whoever can write the bytes runs code on the training machine. As an exchange format for captured batches a pickle
    also ties the reader to the writer's classes and versions.

References
    https://docs.python.org/3/library/pickle.html
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from validator.facts.model import Call
from validator.finding import Finding
from validator.flow.queries.outside_program import is_by_hand
from validator.project import Method, Project
from validator.rule import Rule

RULE = Rule("MP801", "unpickled-input", "warning", "0.1.0", tokens=("pickle", "dill", "joblib"))

_LOADERS = frozenset({
    "pickle.load", "pickle.loads", "pickle.Unpickler", "cloudpickle.load", "cloudpickle.loads", "dill.load",
    "dill.loads",
    "joblib.load", "pandas.read_pickle",
})  # fmt: skip
_NETWORK = re.compile(
    r"\b(recv\w*|request(s|\.\w+)?|response|\.content|urlopen|urlretrieve|b64decode|unquote\w*|payload|read_body|sock(et)?|zmq)\b"
)
HELP = "exchange tensors as safetensors and the rest as JSON or Arrow"


def check_project(project: Project) -> Iterator[Finding]:
    for function, call in project.calls(*_LAST):
        if is_by_hand(function.path) or project.dotted(function, call.target) not in _LOADERS:
            continue
        source = _source(function, call)
        remote = bool(_NETWORK.search(source))
        what = (
            f"bytes that come from outside (`{source[:60]}`)" if remote else "what a file or another process gives it"
        )
        yield RULE.finding(
            function.path,
            call.at,
            f"`{call.target}` in `{function.qualname}` runs the code in {what}",
            help=HELP,
            context=f"{function.qualname}:{call.target}",
            severity="warning" if remote else "note",
        )


_LAST = frozenset(name.rpartition(".")[2] for name in _LOADERS)


def _source(function: Method, call: Call) -> str:
    """What is unpickled, with the assignment that gives it its value."""
    first = call.args[0].value if call.args else ""
    made = [row.value for row in function.facts.assigns if row.target == first]
    return " ".join([*made, first])


INCORRECT = [
    """
import base64
import pickle

def update_weights(request):
    return pickle.loads(base64.b64decode(request.body))  # error: MP801
""",
    """
import pickle

def load_batch(path):
    with open(path, "rb") as file:
        return pickle.load(file)  # error: MP801
""",
]

CORRECT = [
    """
import json
import pickle

def load_batch(path):
    with open(path) as file:
        return json.load(file)
""",
    """
import pickle

def save_batch(path, batch):
    with open(path, "wb") as file:
        pickle.dump(batch, file)
""",
]
