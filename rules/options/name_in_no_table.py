"""A text that the code hands to a place which takes some names only, and this is none of them.

What it does
    Finds where a program looks something up by name (`OPTIMIZERS[name]`, with all names that the table is given where
    it is written, by `OPTIMIZERS[key] = …` and by decorators that register functions and classes), and where it
    refuses names that it does not know (`if name == "adam": … elif name == "sgd": … else: raise`). Follows the name
    back, through variables, attributes, arguments and defaults, to the texts in the code, and reports those that the
    place does not take. Options of the command line are the matter of MP305 and MP702, keys of configuration files that
    of MP308. Also numbers, and what is computed as no text is, that come to conditions which refuse all but some texts:
    an argument before it may be missing. Silent where the table is handed on, or filled with what is not known, where
    conditions on the way test the name otherwise, and where the error is caught. A warning where another condition
    decides whether the text gets there, or functions register names, as code outside of the project may do.

Why is this bad
    It raises KeyError, or what the code raises itself, when the line runs: somebody renamed an entry, or took it away,
    and did not come to those who name it.

References
    https://docs.python.org/3/library/exceptions.html#KeyError
"""

from __future__ import annotations

from collections.abc import Iterator

from validator.analysis.options.accepted import Accepted, Asked
from validator.facts.model import At
from validator.finding import Finding
from validator.flow.program.unit import Unit
from validator.flow.queries.outside_program import is_aside
from validator.project import Project
from validator.rule import Rule

RULE = Rule("MP315", "name-in-no-table", "error", "0.6.0", solves=True)


def check_project(project: Project) -> Iterator[Finding]:
    seen: set[tuple[Unit, object]] = set()
    for asked in project.analysis(Accepted).texts:
        place = asked.origin.place
        text = str(place.value.data)
        if asked.refuses(text) and not is_aside(place.unit.path) and (place.unit, place.number) not in seen:
            seen.add((place.unit, place.number))
            yield _report(asked, text)
    for asked in project.analysis(Accepted).numbers:
        place = asked.origin.place
        at = place.seen_from(asked.origin.call) if asked.origin.call is not None else place.at
        if not is_aside(place.unit.path) and (place.unit, at) not in seen:
            seen.add((place.unit, at))
            yield _of_number(asked, at)


def _of_number(asked: Asked, at: At) -> Finding:
    place, taker = asked.origin.place, asked.taken.place.unit.qualname
    names = ", ".join(sorted(asked.taken.names))
    return RULE.finding(
        place.unit.path,
        at,
        f"`{place.text}`{place.where} is no text, and `{taker}` takes only {names}",
        help="pass one of these; one of the arguments may be missing",
        related=[asked.related],
        context=f"{place.unit.qualname}:{place.text}",
        severity="error" if asked.is_certain else "warning",
    )


def _report(asked: Asked, text: str) -> Finding:
    place = asked.origin.place
    return RULE.finding(
        place.unit.path,
        place.at,
        asked.told(text),
        help=asked.advice(text),
        related=[asked.related],
        context=f"{place.unit.qualname}:{text}",
        severity="error" if asked.is_certain else "warning",
    )


_ROWS = """
class Rows:
    def __init__(self, name):
        self.name = name
        self.rows = self.load()

    def load(self):
        return [self.name]
"""

_TABLE = """# file: rl/__init__.py
# file: rl/optim.py
OPTIMIZERS = {}


def register(name):
    def put(cls):
        OPTIMIZERS[name] = cls
        return cls

    return put


@register("adam")
class Adam:
    pass


@register("sgd")
class Sgd:
    pass


def build(name, lr):
    return OPTIMIZERS[name](lr)
"""

INCORRECT = [
    _TABLE
    + """# file: train.py
from rl.optim import build

build("adam", 0.1)
build("adamw", 0.1)  # error: MP315
""",
    """
LOSSES = {"pg": sum, "kl": max}
LOSSES["entropy"] = min

class Loss:
    def __init__(self, kind):
        self.kind = kind

    def value(self, rows):
        return LOSSES[self.kind](rows)

print(Loss("entropy").value([1]), Loss("entropies").value([2]))  # error: MP315
""",
    """
def schedule(kind="cosin"):  # error: MP315
    if kind == "cosine":
        return 1
    elif kind in ("linear", "constant"):
        return 2
    else:
        raise ValueError(kind)

schedule()
schedule("linear")
""",
    # a constructor hands on what it is given
    _ROWS
    + """
class Screens(Rows):
    TABLE = {"mobile": "m.json", "web": "w.json"}

    def __init__(self, name="mobile"):
        super().__init__(name)

    def load(self):
        return self.TABLE[self.name]

class Phones(Screens):
    pass

print(Screens("web").rows, Phones("screen").rows)  # error: MP315
""",
    # what a function gives back is used
    """
def kind_of(path):
    return "jsonl" if path.endswith(".jsonl") else "parquets"  # error: MP315

def load(path):
    kind = kind_of(path)
    if kind not in ("jsonl", "parquet"):
        raise ValueError(kind)
    return kind, open(path)

load("rows.parquet")
""",
    # the mode is left out, and the step stands in its place; through a class that a function gives back
    """
class Writer:
    def choose(self, mode):
        if mode == "train":
            return 1
        elif mode == "valid":
            return 2
        else:
            raise ValueError(mode)

    def add(self, tag, value, mode, epoch=0):
        return self.choose(mode), tag, value, epoch

class Template:
    def __init__(self, model, writer):
        self.model, self.writer = model, writer

class Trainer(Template):
    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)

    def run(self, loader, epoch):
        for index, batch in enumerate(loader):
            step = epoch * len(loader) + index
            if step % 10 == 0:
                self.writer.add("loss", batch, "train", step)
                self.writer.add("memory", batch, step)  # error: MP315

def create(config):
    if config.kind == "plain":
        return Trainer
    raise ValueError(config.kind)

def main(config, model, loader):
    trainer = create(config)
    trainer = trainer(model, Writer())
    for epoch in range(3):
        trainer.run(loader, epoch)
""",
]

CORRECT = [
    # numbers that are made texts, or looked up, or asked for
    """
NAMES = ["train", "valid"]

def choose(mode):
    if isinstance(mode, int):
        mode = NAMES[mode]
    if mode == "train":
        return 1
    elif mode == "valid":
        return 2
    else:
        raise ValueError(mode)

def split(mode):
    if mode == 1:
        return "train"
    elif mode == "train" or mode == "valid":
        return mode
    else:
        raise ValueError(mode)

def level(mode, names):
    mode = str(mode)
    if mode not in ("0", "1", "2"):
        raise ValueError(mode)
    return mode * 2

for index in range(2):
    choose(index)
    level(index, NAMES)
split(1)
choose("tra" + "in")
""",
    # other names that stand for those of the table
    """
ALIASES = {"momentum": "sgd"}
TABLE = {"adam": 1, "sgd": 2}

def build(name):
    if name in ALIASES:
        name = ALIASES[name]
    return TABLE[name]

def chained(name):
    while name in ALIASES:
        name = ALIASES[name]
    return TABLE[name]

def again(name):
    if name in ALIASES:
        return again(ALIASES[name])
    return TABLE[name]

class Built:
    def __init__(self, name):
        self.name = name
        if self.name in ALIASES:
            self.name = ALIASES[self.name]

    def get(self):
        return TABLE[self.name]

build("momentum")
chained("momentum")
again("momentum")
Built("momentum").get()
""",
    """
class Base:
    LOSSES = {"pg": sum, "kl": max}

    def value(self, kind, rows):
        return self.LOSSES[kind](rows)

class More(Base):
    LOSSES = {"pg": sum, "kl": max, "entropy": min}

print(More().value("entropy", [1]), Base().value("pg", [1]))
""",
    _TABLE
    + """# file: train.py
from rl.optim import OPTIMIZERS, build

OPTIMIZERS["adamw"] = dict
build("adamw", 0.1)
""",
    """
import plugins

LOSSES = {"pg": sum, "kl": max}
plugins.load(LOSSES)

def value(kind, rows):
    return LOSSES[kind](rows)

value("entropy", [1])
""",
    """
LOSSES = {"pg": sum, "kl": max}

def value(kind, rows):
    if kind == "none":
        return 0
    if kind.startswith("mean_"):
        return value(kind[5:], rows) / len(rows)
    return LOSSES[kind.lower()](rows)

def either(kind, rows):
    try:
        return LOSSES[kind](rows)
    except KeyError:
        return 0

value("none", [1])
value("mean_kl", [1])
value("PG", [1])
either("entropy", [1])
""",
    # what an object of another class is given, by a constructor and a method that all of them share
    """
class Rows:
    FILES = {"math": "math.tsv"}

    def __init__(self, name="math"):
        self.set_name(name)
        self.rows = self.load()

    def set_name(self, name):
        self.name = name

    def load(self):
        return open(self.FILES.get(self.name, self.name))

class Screens(Rows):
    FOLDERS = {"phone": "phone/", "desktop": "desktop/"}

    def load(self):
        return open(self.FOLDERS[self.name])

class Code(Rows):
    def __init__(self):
        super().__init__("code")

Rows("letters"), Code(), Screens("phone")
""",
    # an answer that others ask for: they see to it that it does not come here
    """
def kind_of(name):
    for kind in KINDS:
        if name in KINDS[kind]:
            return kind
    if "open" in name:
        return "text"
    return None

KINDS = {"choice": ["a"], "yes": ["b"]}

class Model:
    def wants(self, name):
        return kind_of(name) in ("choice", "yes")

    def prompt(self, name):
        kind = kind_of(name)
        if kind == "choice":
            return "Choose."
        if kind == "yes":
            return "Yes or no?"
        raise ValueError(name)

def run(model, name):
    if kind_of(name) == "text":
        return "Tell."
    return model.prompt(name) if model.wants(name) else name

run(Model(), "a")
""",
    # an answer that is there to be refused
    """
class Model:
    def kind_of(self, rows):
        if isinstance(rows, str):
            return "text"
        if isinstance(rows, list) and all(self.kind_of(row) == "text" for row in rows):
            return "texts"
        return "unknown"

    def generate(self, rows):
        assert self.kind_of(rows) in ["text", "texts"], rows
        return [rows] if self.kind_of(rows) == "text" else rows

print(Model().generate("a"), Model().generate(["a", "b"]))
""",
    # a constructor that does not call the one above it keeps nothing that others pass to that
    _ROWS
    + """
class Questions(Rows):
    pass

class Screens(Rows):
    TABLE = {"mobile": "m.json", "web": "w.json"}

    def __init__(self, name="mobile"):
        self.name = name
        self.rows = self.load()

    def load(self):
        return self.TABLE[self.name]

class Videos(Rows):
    SIZES = {"short": 1, "long": 2}

    def size(self):
        return self.SIZES[self.name]

print(Questions("questions").rows, Screens("web").rows, Videos("long").size())
""",
    # what a function gives back of its arguments: those of this call, not of others
    """
LOSSES = {"vanilla": sum, "clip": max}

class Settings:
    def get(self, key, default=None):
        try:
            return getattr(self, key)
        except AttributeError:
            return default

def loss_of(name):
    if name not in LOSSES:
        raise ValueError(name)
    return LOSSES[name]

def build(settings: Settings, rows):
    if settings.get("offload", False):
        rows = list(rows)
    return loss_of(settings.get("loss", "vanilla"))(rows)

print(build(Settings(), [1, 2]))
""",
]
