"""A call that fitted a function before its parameters changed, and does not now.

What it does
    Compares the parameters of functions, methods and constructors before and after a change, and binds every call
    of them in the project, by Python's rules, to both. Reports calls that fitted and are refused now, keywords that
    now fall into `**kwargs`, are read out of it no longer, or are handed on to a function that has no `**` any more
    (by one that is chosen by its name, too: `getattr(models, args.model)(…)`), or vanish in the `**` of a function to
    which others hand them on and which had a parameter of the name; and arguments by position that now go to another
    parameter; and calls that stand as they were where the change gave the function other parameters
    or results and wrote the same call otherwise elsewhere, or where another caller does since the change what the
    function did itself. Follows Ray handles, `functools.partial` and dispatchers that are given the method's name
    as a text. Where several definitions may be reached, the call must fit none of them any more, or those that take
    it must stand in for the one that does not. A command that runs a shell script counts as a call, too: it is a
    warning where another variable takes an argument's position since the change, and one of the two variables had,
    or has now, a position of its own; and where a command that another one was handed (`\\&\\&`) runs by itself now;
    and where a function without a name that is stored as a method calls the parameter otherwise.

Why is this bad
    TypeError when the line runs, on every path that nobody ran after the change; or a wrong argument in silence.
"""

from __future__ import annotations

import posixpath
from collections.abc import Iterator

from validator.analysis.interfaces.binding import signature, written
from validator.analysis.interfaces.keywords import renamed_keyword
from validator.definitions import ClassDef
from validator.drift.change import Change
from validator.drift.interfaces.calls import constructor
from validator.drift.interfaces.script_positions import Moved, ScriptPositions
from validator.drift.interfaces.signatures import Broken, Signatures
from validator.drift.interfaces.spread_keywords import SpreadKeywords
from validator.drift.interfaces.stored_lambdas import Renamed, StoredLambdas
from validator.drift.statements.split_commands import Split, SplitCommands
from validator.finding import Finding, Related, Severity
from validator.rule import Rule

RULE = Rule("MP902", "call-left-behind", "error", stable_since="0.2.0", languages=("python", "shell"), fix="unsafe")


def check_change(change: Change) -> Iterator[Finding]:
    signatures = change.analysis(Signatures)
    unread = change.analysis(SpreadKeywords).unread
    for broken in (*signatures.broken, *signatures.unadapted, *signatures.handed_over, *unread):
        yield _report(broken)
    for moved in change.analysis(ScriptPositions).moved:
        yield _moved(moved)
    for split in change.analysis(SplitCommands).rows:
        yield _split(split)
    for stored in change.analysis(StoredLambdas).rows:
        yield _stored(stored)


def _stored(row: Renamed) -> Finding:
    """A call of a function without a name."""
    name, unit = row.call.name, row.pair.new
    return RULE.finding(
        row.call.path,
        row.at,
        f"the function that is stored as `{row.method}` takes `{row.now}` since the change, and took `{name}`, which "
        "this passes",
        help=f"write `{row.now}=` for `{name}=`, or call the parameter `{name}` again",
        related=[Related(unit.path, row.function.lineno, "the function as it is now")],
        context=f"{row.method}:{name}:{row.now}",
        severity="warning",
    )


def _split(row: Split) -> Finding:
    return RULE.finding(
        row.path,
        row.at,
        f"`{row.command}` is a command of its own since the change, and was handed to `{row.given_to}` before: it runs"
        " where the script runs",
        help="write the backslashes again",
        context=f"{row.given_to}:{row.command}",
        severity="warning",
    )


def _moved(row: Moved) -> Finding:
    """An argument of a script that another variable takes now."""
    place, script = row.call.arguments[row.number - 1].place, row.call.script.path
    name, was, now = posixpath.basename(script), row.old.names[0], row.new.names[0]
    return RULE.finding(
        row.call.run.path,
        (place.line, place.column, place.line, max(row.call.arguments[row.number - 1].end, place.column + 1)),
        f"`{name}` takes argument {row.number} as `{now}` since the change, and took it as `{was}`: "
        "this call passes what it did before",
        help=f"pass the arguments in the order that `{name}` reads them in now",
        related=[Related(script, row.new.at[0], f"`{now}` is read here")],
        context=f"{name}:{row.number}:{was}:{now}",
        severity="warning",
    )


def _report(broken: Broken) -> Finding:
    site, new = broken.site, broken.new
    shown = f"{new.cls.name}.{new.name}" if not isinstance(new, ClassDef) and new.cls is not None else new.name
    text = (
        f"`{shown}` {broken.text}" if broken.kind in ("refused", "unread") else f"the call of `{shown}` {broken.text}"
    )
    if broken.kind == "adapted":
        text = f"`{shown}` {broken.text} here, while the change wrote the same call otherwise elsewhere"
    elif broken.kind == "handed":
        text = f"`{shown}` {broken.text}; `{site.unit.qualname}` does not"
    now = written(new.name, constructor(new) or ()) if isinstance(new, ClassDef) else signature(new)
    return RULE.finding(
        site.unit.path,
        site.call.at,
        text if broken.kind in ("adapted", "handed", "unread") else f"{text}; before the change the call fitted",
        help=_advice(broken, now),
        related=[Related(new.path, new.facts.name_at[0], f"`{shown}` as it is now")],
        context=f"{site.unit.qualname}:{shown}:{'>'.join(broken.renamed or ())}",
        severity=_severity(broken),
    )


def _advice(broken: Broken, now: str) -> str:
    """What to write at the place, as far as that is known, and what the function takes since the change."""
    if broken.renamed is not None:
        old, new = broken.renamed
        return f"write `{new}=` for `{old}=`: it is `{now}` now"
    if broken.kind in ("adapted", "handed"):
        return f"compare with the other calls of `{now}`"
    return f"give it what `{now}` takes now"


def _severity(broken: Broken) -> Severity:
    """A call that still runs may be meant as it is."""
    if broken.kind in ("adapted", "handed"):
        return "note"
    return "error" if broken.kind == "refused" and broken.site.sure and len(broken.site.reached) == 1 else "warning"


fix = renamed_keyword


_BACKENDS = """\
from rl.registry import Registry


@Registry.register("fsdp")
class FSDP:
    def parameters(self, layered=False):
        return layered


@Registry.register("ddp")
class DDP:
    def parameters(self, layered=False):
        return layered


@Registry.register("megatron")
class Megatron:
    def parameters(self{params}):
        return {given}
"""
_ENGINES = (
    "# before: rl/fsdp.py\n"
    + _BACKENDS.format(params=", **kwargs", given="kwargs")
    + "# file: rl/fsdp.py\n"
    + _BACKENDS.format(params="", given="None")
    + """# file: rl/registry.py
class Registry:
    engines = {{}}

    @classmethod
    def register(cls, name):
        def keep(engine):
            cls.engines[name] = engine
            return engine

        return keep

    @classmethod
    def new(cls, name):
        return cls.engines[name]()
# file: rl/worker.py
from rl.registry import Registry


class Worker:
    def __init__(self, backend):
        self.engine = Registry.new(backend)

    def send(self, backend, rank):
        if {asked}:
            return self.engine.parameters(layered=True){mark}
"""
)

_SCRIPT = """# before: node.sh
rank=$1
torchrun --node_rank $rank train.py
# file: node.sh
{read}
torchrun --node_rank $rank {more}train.py
"""

# `models.py` before and after, and a program that chooses a model by its name
_CHOSEN = """# before: models.py
class Plain:
    def __init__(self, width, **kwargs):
        self.width = width


def plain_small(**kwargs):
    return Plain(width=64, **kwargs)
# file: models.py
class Plain:
    def __init__(self, width{more}):
        self.width = width


def plain_small(**kwargs):
    return Plain(width=64, **kwargs)
# file: main.py
import argparse

import models

parser = argparse.ArgumentParser()
parser.add_argument("--model", default="plain_small")
args = parser.parse_args()
model = getattr(models, args.model)(depth=3){mark}
"""

_HANDED = """# before: launch.sh
python mason.py --gpus 8 -- source setup.sh \\&\\& python train.py --lr {lr}
# file: launch.sh
python mason.py --gpus 8 -- source setup.sh {joined} python train.py --lr {new}{mark}
"""

_REPLACED = """# before: optim.py
from base import load_state


class Outer:
    def __init__(self, optimizer):
        optimizer.load_state = lambda state, map_location=None: load_state(optimizer, state, map_location)
        self.optimizer = optimizer

    def load_state(self, state, map_location=None):
        return self.optimizer.load_state(state, {given}=map_location)
# file: optim.py
from base import load_state


class Outer:
    def __init__(self, optimizer):
        optimizer.load_state = lambda state, device=None: load_state(optimizer, state, device)
        self.optimizer = optimizer

    def load_state(self, state, map_location=None):
        return self.optimizer.load_state(state, {given}=map_location){mark}
# file: base.py
def load_state(optimizer, state, place):
    return optimizer, state, place
"""

_WORKERS = """from dispatch import register


class ActorWorker:
    @register()
    def save_checkpoint(self, path, remote=None, step=0, keep=False):
        return path, remote, step, keep


class CriticWorker:
    @register()
    def save_checkpoint(self, path, {more}step=0, keep=False):
        return path, step, keep
"""

_GROUPS = (
    "# before: workers.py\n"
    + _WORKERS.format(more="remote=None, ")
    + "# file: workers.py\n"
    + _WORKERS.format(more="")
    + """# file: trainer.py
class Trainer:
    def __init__(self, groups):
        self.{call} = groups[0]

    def save(self, path, remote, step):
        self.{call}.save_checkpoint(path, remote, step, keep=True){mark}
"""
)

_DECODED = """# before: text.py
class Generation:
    def generate(self, rows, **options):
        return self.decode(rows, **options)


class Beam(Generation):
    def decode(self, rows, width=3, max_length=100, **options):
        return rows[:max_length], width


class Sampling(Generation):
    def decode(self, rows, max_length=100, **options):
        return rows[:max_length]
# file: text.py
class Generation:
    def generate(self, rows, **options):
        return self.decode(rows, **options)


class Beam(Generation):
    def decode(self, rows, width=3, longest=100, **options):
        return rows[:longest], width


class Sampling(Generation):
    def decode(self, rows, max_length=100, **options):
        return rows[:max_length]
# file: main.py
from text import Beam, Sampling


def main(rows):
    text = {made}()
    return text.generate(rows, max_length=8){mark}
"""

INCORRECT = (
    # a function that is chosen by its name hands on what is not taken any more
    _CHOSEN.format(more="", mark="  # error: MP902"),
    # a keyword that is read out of `**`, by the object that keeps it, and passed through another function
    """# before: rl/rows.py
class Rows:
    def __init__(self, path, **options):
        self.path = path
        self.options = options

    def __getitem__(self, index):
        return self.path, index, self.options.get("head", "first"), self.options.get("limit")


def all_rows(paths, **options):
    return [Rows(path, **options) for path in paths]
# file: rl/rows.py
class Rows:
    def __init__(self, path, **options):
        self.path = path
        self.options = options

    def __getitem__(self, index):
        return self.path, index, self.options.get("head_name", "first"), self.options.get("limit")


def all_rows(paths, **options):
    return [Rows(path, **options) for path in paths]
# file: rl/evaluate.py
from rl.rows import Rows, all_rows


def evaluate(paths, head):
    one = Rows(paths[0], head=head, limit=3)  # error: MP902
    return one, all_rows(paths, head=head)  # error: MP902
""",
    # through a call that names no method
    """# before: model.py
from torch import nn
from torch.utils.checkpoint import checkpoint


class Block(nn.Module):
    def forward(self, x, use_cache=False, mask=None):
        return x, use_cache, mask


class Model(nn.Module):
    def __init__(self, depth):
        super().__init__()
        self.layers = nn.ModuleList([Block() for _ in range(depth)])

    def forward(self, x, use_cache, mask):
        for layer in self.layers:
            x = checkpoint(layer, x, use_cache, mask)
        return x
# file: model.py
from torch import nn
from torch.utils.checkpoint import checkpoint


class Block(nn.Module):
    def forward(self, x, mask=None, use_cache=False):
        return x, use_cache, mask


class Model(nn.Module):
    def __init__(self, depth):
        super().__init__()
        self.layers = nn.ModuleList([Block() for _ in range(depth)])

    def forward(self, x, use_cache, mask):
        for layer in self.layers:
            x = checkpoint(layer, x, use_cache, mask)  # error: MP902
        return x
""",
    # the base hands its own method on, with the arguments; only one class of the family refuses them
    """# file: rl/__init__.py
# file: rl/base.py
class Model:
    def apply(self, tensor, fn, *args, **kwargs):
        return fn(tensor.cpu(), *args, **kwargs)

    def all_reduce(self, tensor, op="SUM", group=None):
        return self.apply(tensor, self.reduce, op, group=group)  # error: MP902

    def reduce(self, tensor, op="SUM", group=None):
        raise NotImplementedError
# file: rl/native.py
from rl.base import Model


class Native(Model):
    def reduce(self, tensor, op="SUM", group=None):
        return tensor, op, group
# before: rl/horovod.py
from rl.base import Model


class Horovod(Model):
    def reduce(self, tensor, op="SUM", group=None):
        if group is not None:
            raise NotImplementedError("groups")
        return tensor, op
# file: rl/horovod.py
from rl.base import Model


class Horovod(Model):
    def reduce(self, tensor, op="SUM"):
        return tensor, op
""",
    """# file: rl/__init__.py
# before: rl/records.py
from dataclasses import dataclass


@dataclass
class Record:
    name: str
    version: str
    results: list
# file: rl/records.py
from dataclasses import dataclass


@dataclass
class Record:
    name: str
    version: str
    commit: str
    results: list
# file: rl/train.py
from rl.records import Record


def record(name, results):
    return Record(name, "1.0", results)  # error: MP902
""",
    """# before: rl/watch.py
import multiprocessing


def watch(folder, seconds):
    return folder, seconds


def start(folder):
    return multiprocessing.Process(target=watch, args=(folder, 600))
# file: rl/watch.py
import multiprocessing


def watch(folder, first, seconds):
    return folder, first, seconds


def start(folder):
    return multiprocessing.Process(target=watch, args=(folder, 600))  # error: MP902
""",
    """# before: rl/loss.py
def preference_loss(chosen, rejected, beta, reference_free=False):
    return beta * (chosen - rejected) if reference_free else chosen


def metrics(config, chosen, rejected):
    options = {"beta": config.beta, "reference_free": config.reference_free}
    return preference_loss(chosen, rejected, **options)
# file: rl/loss.py
def preference_loss(chosen, rejected, beta, uniform_reference=False):
    return beta * (chosen - rejected) if uniform_reference else chosen


def metrics(config, chosen, rejected):
    options = {"beta": config.beta, "reference_free": config.reference_free}
    return preference_loss(chosen, rejected, **options)  # error: MP902
""",
    """# file: rl/__init__.py
# before: rl/loss.py
def get_loss(logits, labels):
    shifted = labels[1:]
    return logits - shifted.cuda()
# file: rl/loss.py
def get_loss(logits, labels):
    shifted = labels[1:]
    return logits - shifted
# before: rl/trainer.py
from rl.loss import get_loss


def step(model, batch):
    return get_loss(model(batch), batch["labels"])
# file: rl/trainer.py
from rl.loss import get_loss


def step(model, batch):
    return get_loss(model(batch), batch["labels"].cuda())
# file: rl/lora.py
from rl.loss import get_loss


def step(model, batch):
    return get_loss(model(batch), batch["labels"])  # error: MP902
""",
    """# file: rl/__init__.py
# before: rl/saving.py
def save_checkpoint(model, path, metric_value=None):
    return model, path, metric_value
# file: rl/saving.py
def save_checkpoint(model, path, best_metric=None):
    return model, path, best_metric
# file: rl/train.py
from rl.saving import save_checkpoint


def fit(model):
    save_checkpoint(model, "out", metric_value=1.0)  # error: MP902
""",
    """# file: rl/__init__.py
# before: rl/tracking.py
class Tracker:
    def log(self, values, step=None, **kwargs):
        self.run.add(values, step, **kwargs)
# file: rl/tracking.py
class Tracker:
    def log(self, values, global_step=None, **kwargs):
        self.run.add(values, global_step, **kwargs)
# file: rl/train.py
from rl.tracking import Tracker


def fit(loss):
    tracker = Tracker()
    tracker.log({"loss": loss}, step=3)  # error: MP902
""",
    """# file: rl/__init__.py
# before: rl/batches.py
def get_batch(data, keys, pad_to, packed=False):
    return data, keys, pad_to, packed
# file: rl/batches.py
def get_batch(data, keys, packed=False, pad_to=128):
    return data, keys, pad_to, packed
# file: rl/train.py
from rl.batches import get_batch


def step(data):
    return get_batch(data, ["tokens"], 64)  # error: MP902
""",
    """# before: rl/actor.py
class Actor:
    def save(self, path, metric_value):
        return path, metric_value
# file: rl/actor.py
class Actor:
    def save(self, path, best_metric):
        return path, best_metric
# file: rl/controller.py
def finish(group):
    group.run_method(name="save", path="out", metric_value=1.0)


def finish_all(group):
    group.run_async("save_all")
""".replace('name="save"', 'name="save_now"')
    .replace("def save(", "def save_now(")
    .replace("metric_value=1.0)", "metric_value=1.0)  # error: MP902"),
    """# file: rl/__init__.py
# before: rl/sizes.py
def model_of(checkpoint):
    return SIZES[checkpoint["wte"].shape[1]]


SIZES = {4096: "7B"}
# file: rl/sizes.py
def model_of(width):
    return SIZES[width]


SIZES = {4096: "7B"}
# before: rl/generate.py
from rl.sizes import model_of


def main(checkpoint):
    return model_of(checkpoint)
# file: rl/generate.py
from rl.sizes import model_of


def main(checkpoint):
    return model_of(checkpoint["wte"].shape[1])
# file: rl/evaluate.py
from rl.sizes import model_of


def main(checkpoint):
    return model_of(checkpoint)  # error: MP902
""",
    """# file: rl/__init__.py
# before: rl/gpu.py
def prepare(x, mask):
    return x, mask
# file: rl/gpu.py
def prepare(x, mask, size):
    return x, mask, size
# file: rl/npu.py
def prepare(x, mask):
    return x, mask
# file: rl/train.py
try:
    import torch_npu
    from rl.npu import prepare
except ImportError:
    from rl.gpu import prepare


def step(x, mask):
    return prepare(x, mask)  # error: MP902
""",
    # one of several classes of a registry, of which most still take the keyword
    _ENGINES.format(mark="  # error: MP902", asked="rank"),
    # a position in front of the one that callers pass, in a text for another host and in a list
    _SCRIPT.format(read="config=${1:-small.yaml}\nrank=${2:-0}", more="")
    + """# file: all.sh
for rank in 0 1; do
    ssh "host$rank" "cd work; apptainer exec image.sif bash -c 'source env.sh; bash node.sh $rank'"  # error: MP902
done
# file: start.py
import subprocess


def start(rank):
    subprocess.run(["bash", "node.sh", str(rank)], check=True)  # error: MP902
""",
    # a command that ran within another one
    _HANDED.format(lr=1, joined="&&", new=1, mark="  # error: MP902"),
    # a function without a name
    _REPLACED.format(given="map_location", mark="  # error: MP902"),
    # a name that libraries have, too; the object is called as its class is
    _GROUPS.format(call="critic_group", mark="  # error: MP902"),
    # through a method that hands all keywords on
    _DECODED.format(made="Beam", mark="  # error: MP902"),
)
CORRECT = (
    _CHOSEN.format(more=", depth=2", mark=""),
    # a condition leaves the call to the other kind
    _ENGINES.format(mark="", asked='backend == "fsdp"'),
    # what is read no longer by itself is handed on, or is a parameter now
    """# before: rl/rows.py
class Rows:
    def __init__(self, path, **options):
        self.first = options.get("head", "first")
        self.limit = options.pop("limit", 3)
        self.path = path


def opened(path, read, **options):
    options.setdefault("mode", "r")
    return read(path, **options)
# file: rl/rows.py
class Rows:
    def __init__(self, path, head="first", **options):
        self.first = head
        self.limit = options.pop("limit", 3)
        self.path = path


def opened(path, read, **options):
    return read(path, **options)
# file: rl/evaluate.py
from rl.rows import Rows, opened


def evaluate(paths, head, read):
    return Rows(paths[0], head=head, limit=3), opened(paths[0], read, mode="w")
""",
    """# before: rl/checkpoints.py
class Whole:
    def load_weights(self):
        return 1


class Torch:
    def load_weights(self):
        return 2


class Sharded:
    def load_weights(self, state=None):
        return state
# file: rl/checkpoints.py
class Whole:
    def load_weights(self):
        return 1


class Torch:
    def load_weights(self):
        return 2


class Sharded:
    def load_weights(self, state):
        return state
# file: rl/train.py
def restore(checkpointer):
    return checkpointer.load_weights()
""",
    """# before: rl/texts.py
def tokenize(tokenizer, text, template=None, **more):
    return tokenizer.apply(text, template=template, **more)


def prompt(tokenizer, text, template):
    return tokenize(tokenizer, text, template=template)
# file: rl/texts.py
def tokenize(tokenizer, text, **more):
    return tokenizer.apply(text, **more)


def prompt(tokenizer, text, template):
    return tokenize(tokenizer, text, template=template)
""",
    """# file: rl/__init__.py
# before: rl/saving.py
def save_checkpoint(model, path, metric_value=None):
    return model, path, metric_value
# file: rl/saving.py
def save_checkpoint(model, path, best_metric=None):
    return model, path, best_metric
# before: rl/train.py
from rl.saving import save_checkpoint


def fit(model):
    save_checkpoint(model, "out", metric_value=1.0)
# file: rl/train.py
from rl.saving import save_checkpoint


def fit(model):
    save_checkpoint(model, "out", best_metric=1.0)
""",
    """# before: rl/saving.py
class Saver:
    def save(self, path):
        return path
# file: rl/saving.py
class Saver:
    def save(self, path, tag):
        return path, tag
# file: rl/other.py
class Writer:
    def save(self, path):
        return path


def both(writer: Writer):
    writer.save("out")
""",
    """# file: rl/__init__.py
# before: rl/updates.py
def update(params, rate):
    return [each * rate for each in params]
# file: rl/updates.py
def update(params, rate, cautious=False):
    return [each * rate if cautious else each for each in params]
# before: rl/muon.py
from rl.updates import update


class Muon:
    def step(self, groups):
        for group in groups:
            update(params=group["params"], rate=group["lr"])
# file: rl/muon.py
from rl.updates import update


class Muon:
    def step(self, groups):
        for group in groups:
            update(params=group["params"], rate=group["lr"], cautious=group["cautious"])
# file: rl/lion.py
from rl.updates import update


class Lion:
    def step(self, groups):
        for group in groups:
            update(params=group["params"], rate=group["lr"])
""",
    """# before: rl/groups.py
class Group:
    def wait_for_weights(self, hooked=False):
        self.ready = True
        if hooked:
            self.register_weight_hook()

    def register_weight_hook(self):
        self.hooked = True

    def before_forward(self):
        self.wait_for_weights(hooked=True)


class Handle:
    def wait(self, group: Group):
        group.wait_for_weights()
# file: rl/groups.py
class Group:
    def wait_for_weights(self):
        self.ready = True

    def register_weight_hook(self):
        self.hooked = True

    def before_forward(self):
        self.wait_for_weights()
        self.register_weight_hook()


class Handle:
    def wait(self, group: Group):
        group.wait_for_weights()
""",
    # another name, one position more behind it, no argument at all, a caller that changed with the script
    _SCRIPT.format(read="number=$1", more="") + "# file: all.sh\nbash node.sh $RANK\n",
    _SCRIPT.format(read="rank=$1\nconfig=$2", more="--config $config ") + "# file: all.sh\nbash node.sh 0 small\n",
    _SCRIPT.format(read="config=${1:-small.yaml}\nrank=${2:-0}", more="")
    + """# file: one.sh
bash node.sh
# file: configured.sh
bash node.sh $CONFIG
# before: all.sh
bash node.sh $i
# file: all.sh
bash node.sh small.yaml $i
""",
    # still handed on
    _HANDED.format(lr=1, joined="\\&\\&", new=2, mark=""),
    _REPLACED.format(given="device", mark=""),
    _GROUPS.format(call="actor_group", mark=""),
    _GROUPS.format(call="engine", mark=""),
    _DECODED.format(made="Sampling", mark=""),
)
