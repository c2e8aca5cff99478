"""A result that a change gave another shape, and a place that takes it apart as before.

What it does
    Compares what functions give back before and after a change: a number, a text, a list, how many values, which keys,
    whether it is a coroutine, a property or a method. Reports places that unpack, index, await or call it as it was, or
    ask it for what it has no longer, or whether it is true where it is nothing always now; overrides and functions
    handed in that still give what was given before, where the caller takes it apart as it is now; callers that stand as
    they were while the change adapted another one; a call of a library (`load(path)`) whose result is used as before,
    while the change takes a key out of what the same call gives elsewhere in the file; and calls in changed code that
    no longer await a coroutine. Where nothing tells whose method a call runs, a key does that the project put into
    nothing but its result, and puts into nothing now: one of several words, or one that the change took out of another
    call of the same name.

Why is this bad
    ValueError, KeyError or TypeError when the line runs; a coroutine that nobody awaits does nothing at all.
"""

from __future__ import annotations

from collections.abc import Iterator

from validator.drift.change import Change
from validator.drift.interfaces.result_defaults import ResultDefaults
from validator.drift.interfaces.results import Results
from validator.drift.interfaces.taken_apart import TakenApart
from validator.finding import Finding, Related
from validator.rule import Rule

RULE = Rule("MP903", "result-left-behind", "error", stable_since="0.2.0")


def check_change(change: Change) -> Iterator[Finding]:
    for row in change.analysis(Results).reckoned:
        new = row.new
        shown = f"{new.cls.name}.{new.name}" if new.cls is not None else new.name
        yield RULE.finding(
            row.unit.path,
            row.at,
            f"`{row.unit.qualname}` {row.text}" + ("" if row.unit.qualname == new.qualname else f": `{shown}`"),
            help="take the result as it is now, or give back what was given before",
            related=[Related(new.path, new.facts.name_at[0], f"`{shown}` as it is now")],
            context=f"{row.unit.qualname}:{shown}",
            severity="error" if row.sure else "warning",
        )
    for each in change.analysis(ResultDefaults).left:
        yield RULE.finding(
            each.site.unit.path,
            each.site.call.at,
            f"`{each.site.unit.qualname}` {each.text}: `{each.new.qualname}`",
            help=f"say `{each.flag}=` here, or take the result as it is now",
            related=[Related(each.new.path, each.new.facts.name_at[0], f"`{each.new.qualname}` as it is now")],
            context=f"{each.site.unit.qualname}:{each.new.qualname}:{each.flag}",
            severity="warning",
        )
    for place in change.analysis(TakenApart).left:
        did = f"takes `{place.key}` out of" if place.taken else f"takes `{place.key}` no longer out of"
        yield RULE.finding(
            place.pair.new.path,
            place.at,
            f"the change {did} what the same call gives in line {place.line}; here it is used as before",
            help="take the result as it is now in both places",
            related=[Related(place.pair.new.path, place.line, "the same call, as the change uses it")],
            context=f"{place.pair.new.qualname}:{place.key}",
            severity="warning",
        )


_MATCHER = """# before: zoo/matcher.py
from torch import nn
from zoo.core import register


@register()
class Matcher(nn.Module):
    def forward(self, outputs, targets):
        indices = [(output.argmax(), target) for output, target in zip(outputs, targets)]
        return {before}
# file: zoo/matcher.py
from torch import nn
from zoo.core import register


@register()
class Matcher(nn.Module):
    def forward(self, outputs, targets):
        indices = [(output.argmax(), target) for output, target in zip(outputs, targets)]
        return {after}
# file: zoo/core.py
REGISTERED = {{}}


def register():
    def kept(cls):
        REGISTERED[cls.__name__] = cls
        return cls

    return kept


def create(name, settings):
    cls = REGISTERED[name]
    return cls(**{{each: create(settings[each], settings) for each in cls.__inject__}})
# file: zoo/criterion.py
from torch import nn
from zoo.core import register


@register()
class Criterion(nn.Module):
    __inject__ = ["matcher"]

    def __init__(self, matcher):
        super().__init__()
        self.matcher = matcher

    def forward(self, outputs, targets):
        indices = {use}{mark}
        return sum(each for each, _ in indices)
{others}"""

_ADAPTED = """# before: zoo/criterion_v2.py
from torch import nn
from zoo.core import register


@register()
class CriterionV2(nn.Module):
    __inject__ = ["matcher"]

    def __init__(self, matcher):
        super().__init__()
        self.matcher = matcher

    def forward(self, outputs, targets):
        matched = self.matcher(outputs, targets)
        indices = matched["indices"]
        return sum(each for each, _ in indices)
# file: zoo/criterion_v2.py
from torch import nn
from zoo.core import register


@register()
class CriterionV2(nn.Module):
    __inject__ = ["matcher"]

    def __init__(self, matcher):
        super().__init__()
        self.matcher = matcher

    def forward(self, outputs, targets):
        indices = self.matcher(outputs, targets)
        return sum(each for each, _ in indices)
"""

_CLASS_PASSED = """# file: rl/__init__.py
# before: rl/core.py
class ActorCritic:
    def step(self, seen):
        action, value = self.pi(seen), self.v(seen)
        chance = self.pi.chance(action)
        return action.numpy(), value.numpy(), chance.numpy()
# file: rl/core.py
class ActorCritic:
    def step(self, seen):
        action, value = self.pi(seen), self.v(seen)
        chance = self.pi.chance(action)
        return action.numpy(), chance.numpy(), value.numpy()
# file: rl/train.py
from rl.core import ActorCritic


def train(env, seen, made_by=ActorCritic, **settings):
    actor_critic = made_by(**settings)
    action, chance, value = actor_critic.step(seen)
    env.step(action)
    {names} = actor_critic.step(seen){mark}
    return chance, value


def main(env, seen):
    train(env, seen, made_by=ActorCritic, width=64)
"""

_BACKENDS = """# before: backends.py
class Backend:
    async def may_validate_now(self, state):
        return True


class Remote(Backend):
    async def may_validate_now(self, state):
        state.training = False
        return True
# file: backends.py
class Backend:
    async def may_validate_now(self, state):
        return True


class Remote(Backend):
    async def may_validate_now(self, state):
        state.training = False
        {given}
# file: trainer.py
class Trainer:
    def __init__(self, backend):
        self.backend = backend

    async def validate(self, state):
        if not await self.backend.may_validate_now(state):{mark}
            return {{}}
        return state.run()
"""

_ASKED_BACKEND = """# file: rl/__init__.py
# before: rl/backend.py
class LocalBackend:
    def on_validation_start(self, state):
        state.is_training = False
        return True
# file: rl/backend.py
class LocalBackend:
    def on_validation_start(self, state):
        state.is_training = False{end}
# file: rl/train.py
from rl.backend import LocalBackend


class Trainer:
    def __init__(self, backend_cls):
        self.backend = backend_cls()

    def validate(self, state):
        if not self.backend.on_validation_start(state):{mark}
            return 0
        return state.score()


def main(state):
    return Trainer(LocalBackend).validate(state)
"""

INCORRECT = (
    # the class comes as a parameter, and `step` is a method of many libraries
    _CLASS_PASSED.format(names="_, value, _", mark="  # error: MP903"),
    # a registry hands the object in: the key tells it, and another caller that the change adapted
    _MATCHER.format(
        before='{"indices": indices}',
        after="indices",
        use='self.matcher(outputs, targets)["indices"]',
        mark="  # error: MP903",
        others=_ADAPTED,
    ),
    # what is given now is a tensor
    _MATCHER.format(
        before='{"indices": indices}',
        after="torch.stack([index for index, _ in indices])",
        use='self.matcher(outputs, targets)["indices"]',
        mark="  # error: MP903",
        others=_ADAPTED,
    ),
    # a key of several words tells it alone
    _MATCHER.format(
        before='{"indices": indices, "matched_queries": indices}',
        after='{"indices": indices}',
        use='self.matcher(outputs, targets)["matched_queries"]',
        mark="  # error: MP903",
        others="",
    ),
    # a file that is read in two places, and that has another shape now
    """# before: rl/evaluate.py
import torch


def evaluate(model, args):
    model.load_state_dict(torch.load(args.path, map_location="cpu"))
    score = model.score()
    reference = torch.load(args.path, map_location="cpu")
    return score, all(torch.equal(value, reference[name]) for name, value in model.state_dict().items())
# file: rl/evaluate.py
import torch


def evaluate(model, args):
    model.load_state_dict(torch.load(args.path, map_location="cpu")["model"])
    score = model.score()
    reference = torch.load(args.path, map_location="cpu")  # error: MP903
    return score, all(torch.equal(value, reference[name]) for name, value in model.state_dict().items())
""",
    # what runs by calling an object, and where its result is handed on
    """# file: rl/__init__.py
# before: rl/model.py
from torch import nn


class Model(nn.Module):
    def forward(self, tokens):
        hidden = self.layers(tokens)
        return self.head(hidden), hidden
# file: rl/model.py
from torch import nn


class Model(nn.Module):
    def forward(self, tokens):
        hidden = self.layers(tokens)
        return self.head(hidden), hidden, hidden.norm()
# file: rl/train.py
from rl.log import Log
from rl.model import Model


class Trainer:
    def __init__(self):
        self.model = Model()

    def step(self, tokens):
        logits, _ = self.model(tokens)  # error: MP903
        return logits


def evaluate(tokens):
    model, log = Model(), Log()
    out = model(tokens)
    log.write(out)
    return out
# file: rl/log.py
class Log:
    def write(self, out):
        logits, hidden = out  # error: MP903
        print(logits, hidden)
""",
    # the default of a flag decides how many values there are
    """# file: rl/__init__.py
# before: rl/texts.py
def encoded(texts, model, with_mask=False):
    ids, mask = model(texts)
    if with_mask:
        return ids, mask
    return ids
# file: rl/texts.py
def encoded(texts, model, with_mask=True):
    ids, mask = model(texts)
    if with_mask:
        return ids, mask
    return ids
# file: rl/collate.py
from rl.texts import encoded


def collate(rows, model):
    texts = encoded(rows, model)  # error: MP903
    return texts.squeeze(0)


def collate_both(rows, model):
    texts, mask = encoded(rows, model, with_mask=True)
    return texts, mask
""",
    """# file: rl/__init__.py
# before: rl/resume.py
def resumed(path, steps):
    global_step = int(path)
    first_epoch = global_step // steps
    return path, global_step, first_epoch
# file: rl/resume.py
def resumed(path, steps):
    global_step = int(path)
    first_epoch = global_step // steps
    return path, first_epoch, global_step
# file: rl/train.py
from rl.resume import resumed


def train(options):
    path, global_step, first_epoch = resumed(options.path, options.steps)  # error: MP903
    return path, global_step, first_epoch
""",
    """# file: rl/__init__.py
# before: rl/comm.py
import torch.distributed as dist


def gathered(data):
    if dist.get_rank() == 0:
        return [data, data]
    return []
# file: rl/comm.py
import torch.distributed as dist


def gathered(data):
    if dist.get_rank() == 0:
        return [data, data]
    return None
# file: rl/evaluate.py
from rl.comm import gathered


def evaluate(data):
    return [part for part in gathered(data)]  # error: MP903
""",
    """# file: rl/__init__.py
# before: rl/backends.py
class Backend:
    async def trained_step(self):
        return 1


class Local(Backend):
    async def trained_step(self):
        return 2
# file: rl/backends.py
class Backend:
    async def trained_step(self):
        return 1


class Local(Backend):
    def trained_step(self):  # error: MP903
        return 2
# file: rl/model.py
async def step(backend):
    return await backend.trained_step()
""",
    """# file: rl/__init__.py
# before: rl/actor.py
class Actor:
    def log_prob(self, data, entropy=False):
        log_probs = data * 2
        entropys = data * 3
        return log_probs, entropys
# file: rl/actor.py
class Actor:
    def log_prob(self, data, entropy=False):
        log_probs = data * 2
        entropys = data * 3
        if not entropy:
            return log_probs
        return log_probs, entropys
# file: rl/worker.py
from rl.actor import Actor


def reference(data):
    found, _ = Actor().log_prob(data)  # error: MP903
    return found


def actor(data):
    found, entropys = Actor().log_prob(data, entropy=True)
    return found, entropys
""",
    """# file: rl/__init__.py
# before: rl/engines.py
def engines_and_lock(pool):
    return pool.engines, pool.lock, pool.size
# file: rl/engines.py
def engines_and_lock(pool):
    return pool.engines, pool.lock
# file: rl/train.py
from rl.engines import engines_and_lock


def update(pool):
    engines, lock, size = engines_and_lock(pool)  # error: MP903
    return engines, lock, size
""",
    """# before: rl/loop.py
class Loop:
    async def encode(self, text):
        return [text]

    async def turn(self, text):
        ids = await self.encode(text)
        return ids + [0]
# file: rl/loop.py
class Loop:
    async def encode(self, text):
        return [text]

    async def turn(self, text):
        ids = self.encode(text)  # error: MP903
        return ids + [0]
""",
    """# file: rl/__init__.py
# before: rl/metrics.py
def metrics(loss):
    return {"policy_loss": loss, "entropy": 0.0}
# file: rl/metrics.py
def metrics(loss):
    return {"actor_loss": loss, "entropy": 0.0}
# file: rl/train.py
from rl.metrics import metrics


def report(loss):
    found = metrics(loss)
    return found["policy_loss"]  # error: MP903
""",
    """# file: rl/__init__.py
# before: rl/engine.py
class Engine:
    def clip(self, norm):
        return norm
# file: rl/engine.py
class Engine:
    def clip(self, norm):
        return norm.item()
# file: rl/train.py
from rl.engine import Engine


def report(norm):
    return Engine().clip(norm).detach()  # error: MP903
""",
    """# before: rl/ppo.py
class PPO:
    def step(self, batch):
        batch["mask"] = 1
        return batch

    def rollout(self, batch):
        return self.step(batch)


class Pictures(PPO):
    def step(self, batch):
        batch["mask"] = 2
        return batch
# file: rl/ppo.py
class PPO:
    def step(self, batch):
        batch["mask"] = 1
        return batch, len(batch)

    def rollout(self, batch):
        found, length = self.step(batch)
        return found, length


class Pictures(PPO):
    def step(self, batch):  # error: MP903
        batch["mask"] = 2
        return batch
""",
    """# file: rl/__init__.py
# before: rl/saving.py
import json


def load(path):
    states = json.loads(path)
    return states["epoch"], states["step"]
# file: rl/saving.py
import json


def load(path):
    states = json.loads(path)
    return states
# before: rl/train.py
from rl.saving import load


def resume(path):
    found = load(path)
    return found[0]
# file: rl/train.py
from rl.saving import load


def resume(path):
    found = load(path)
    return found["epoch"]
# file: rl/vision.py
from rl.saving import load


def resume(path):
    found = load(path)  # error: MP903
    return found[0]
""",
    """# file: rl/__init__.py
# before: rl/state.py
class State:
    @property
    def world(self):
        return 8
# file: rl/state.py
class State:
    def world(self):
        return 8
# file: rl/train.py
from rl.state import State


def share(batch):
    state = State()
    return batch // state.world  # error: MP903
""",
    """# file: rl/__init__.py
# before: rl/generator.py
class Generator:
    def infer(self, mel):
        wave, source = self.decode(mel)
        return wave, source


class CausalGenerator(Generator):
    def infer(self, mel, final=True):
        wave, source = self.decode(mel, final)
        return wave, source
# file: rl/generator.py
class Generator:
    def infer(self, mel):
        wave, source = self.decode(mel)
        return wave, source


class CausalGenerator(Generator):
    def infer(self, mel, final=True):
        wave, source = self.decode(mel, final)
        return wave  # error: MP903
# file: rl/speech.py
from rl.generator import Generator


def speak(generator: Generator, mel):
    wave, _ = generator.infer(mel)
    return wave
""",
    """# file: rl/__init__.py
# before: rl/noise.py
class Flow:
    def sample_noise(self, batch):
        return self.sigmas[batch], self.timesteps[batch]


class ShiftedFlow(Flow):
    def sample_noise(self, batch):
        noise_sigmas = self.shift(self.sigmas[batch])
        model_timesteps = 1000 * noise_sigmas
        return noise_sigmas, model_timesteps
# file: rl/noise.py
class Flow:
    def sample_noise(self, batch):
        return self.sigmas[batch], self.timesteps[batch]


class ShiftedFlow(Flow):
    def sample_noise(self, batch):
        noise_sigmas = self.shift(self.sigmas[batch])
        model_timesteps = 1000 * noise_sigmas
        return model_timesteps, noise_sigmas  # error: MP903
# file: rl/train.py
def prepare(flow, batch):
    batch["sigmas"], batch["timesteps"] = flow.sample_noise(batch["index"])
    return batch
""",
    # an override that gives nothing now, where the caller asks whether to go on
    _BACKENDS.format(given="state.begun = True", mark="  # error: MP903"),
    # through an object that is called as its class is, by a name that libraries have too
    _ASKED_BACKEND.format(end="", mark="  # error: MP903"),
)
CORRECT = (
    _CLASS_PASSED.format(names="_, _, value", mark=""),
    _CLASS_PASSED.format(names="_, *_", mark=""),
    # an object that is handed in: all callers are adapted
    _MATCHER.format(
        before='{"indices": indices}',
        after="indices",
        use="self.matcher(outputs, targets)",
        mark="",
        others=_ADAPTED,
    ),
    # another class still gives the key
    _MATCHER.format(
        before='{"indices": indices}',
        after="indices",
        use='self.matcher(outputs, targets)["indices"]',
        mark="",
        others=_ADAPTED
        + """# file: zoo/greedy.py
from torch import nn
from zoo.core import register


@register()
class GreedyMatcher(nn.Module):
    def forward(self, outputs, targets):
        return {"indices": [(output.argmin(), target) for output, target in zip(outputs, targets)]}
""",
    ),
    # what is given now is what a library makes, which may have the key
    _MATCHER.format(
        before='{"matched_queries": indices}',
        after="matching.solve(indices)",
        use='self.matcher(outputs, targets)["matched_queries"]',
        mark="",
        others="",
    ),
    # a word that results of libraries may have, too, and no caller that was adapted
    _MATCHER.format(
        before='{"indices": indices}',
        after="indices",
        use='self.matcher(outputs, targets)["indices"]',
        mark="",
        others="",
    ),
    # the object is one of a library
    _MATCHER.format(
        before='{"matched_queries": indices}',
        after="indices",
        use="self.matcher(outputs, targets)",
        mark="",
        others="""# file: probe.py
import somewhere


def probe(outputs, targets):
    matcher = somewhere.load("matcher")
    return matcher(outputs, targets)["matched_queries"]
""",
    ),
    # the other place takes the key later, or reads another file
    """# before: rl/evaluate.py
import torch


def evaluate(model, args):
    model.load_state_dict(torch.load(args.path, map_location="cpu"))
    return model.score(), torch.load(args.old, map_location="cpu")


def resume(model, args):
    state = torch.load(args.path, map_location="cpu")
    model.load_state_dict(state.get("model", state))
# file: rl/evaluate.py
import torch


def evaluate(model, args):
    model.load_state_dict(torch.load(args.path, map_location="cpu")["model"])
    return model.score(), torch.load(args.old, map_location="cpu")


def resume(model, args):
    state = torch.load(args.path, map_location="cpu")
    model.load_state_dict(state.get("model", state))
""",
    # all callers say what they want
    """# file: rl/__init__.py
# before: rl/texts.py
def encoded(texts, model, with_mask=False):
    ids, mask = model(texts)
    return (ids, mask) if with_mask else ids


def counted(texts, strict=False):
    if strict:
        return len(texts)
    return sum(map(len, texts))
# file: rl/texts.py
def encoded(texts, model, with_mask=True):
    ids, mask = model(texts)
    return (ids, mask) if with_mask else ids


def counted(texts, strict=True):
    if strict:
        return len(texts)
    return sum(map(len, texts))
# file: rl/collate.py
from rl.texts import counted, encoded


def collate(rows, model):
    texts = encoded(rows, model, with_mask=False)
    return texts.squeeze(0) * counted(rows)
""",
    # the caller asks what the function asks, and takes it either way
    """# before: rl/train.py
class Trainer:
    def parse(self, batch):
        inputs, targets = batch
        return inputs, targets

    def train_step(self, batch):
        x, y = self.parse(batch)
        return self.model(x) - y

    def eval_step(self, batch):
        x, y = self.parse(batch)
        return self.model(x), y
# file: rl/train.py
class Trainer:
    def parse(self, batch):
        if self.timed:
            inputs, targets, durations = batch
            return inputs, targets, durations
        inputs, targets = batch
        return inputs, targets

    def train_step(self, batch):
        if self.timed:
            x, y, durations = self.parse(batch)
        else:
            x, y = self.parse(batch)
        return self.model(x) - y

    def eval_step(self, batch):
        if self.timed:
            x, y, _ = self.parse(batch)
        else:
            x, y = self.parse(batch)
        return self.model(x), y
""",
    """# before: rl/actor.py
class Actor:
    def from_pretrained(self, path):
        return self.made(path)
# file: rl/actor.py
class Actor:
    def from_pretrained(self, path):
        return {"model": self.made(path)}
# file: rl/reference.py
import transformers


def reference(path):
    return transformers.AutoConfig.from_pretrained(path).vocab_size
""",
    """# file: rl/__init__.py
# before: rl/engine.py
class Engine:
    def clip(self, norm):
        return norm
# file: rl/engine.py
class Engine:
    def clip(self, norm):
        return norm.item()
# file: rl/train.py
from rl.engine import Engine


def report(norm):
    found = Engine().clip(norm)
    return found.item() if hasattr(found, "item") else found
""",
    """# file: rl/__init__.py
# before: rl/engines.py
def engines_and_lock(pool):
    return pool.engines, pool.lock, pool.size
# file: rl/engines.py
def engines_and_lock(pool):
    return pool.engines, pool.lock
# before: rl/train.py
from rl.engines import engines_and_lock


def update(pool):
    engines, lock, size = engines_and_lock(pool)
    return engines, lock, size
# file: rl/train.py
from rl.engines import engines_and_lock


def update(pool):
    engines, lock = engines_and_lock(pool)
    return engines, lock
""",
    """# before: rl/loop.py
class Loop:
    async def encode(self, text):
        return [text]

    async def turn(self, text):
        return await self.encode(text)
# file: rl/loop.py
import asyncio


class Loop:
    async def encode(self, text):
        return [text]

    async def turn(self, text):
        waiting = [self.encode(text), self.encode(text)]
        return await asyncio.gather(*waiting)
""",
    """# before: rl/groups.py
class Group:
    def wait_for_weights(self):
        self.ready = True

    def before_forward(self, args, kwargs):
        self.wait_for_weights()
        return args, kwargs


class Several(Group):
    def wait_for_weights(self):
        for group in self.groups:
            group.wait_for_weights()

    def before_forward(self, args, kwargs):
        for group in self.groups:
            args, kwargs = group.before_forward(args, kwargs)
        return args, kwargs
# file: rl/groups.py
class Group:
    def wait_for_weights(self, args=(), kwargs=None):
        self.ready = True
        return args, kwargs

    def before_forward(self, args, kwargs):
        args, kwargs = self.wait_for_weights(args=args, kwargs=kwargs)
        return args, kwargs


class Several(Group):
    def wait_for_weights(self):
        for group in self.groups:
            group.wait_for_weights()

    def before_forward(self, args, kwargs):
        for group in self.groups:
            args, kwargs = group.before_forward(args, kwargs)
        return args, kwargs
""",
    _BACKENDS.format(given="return state.is_ready()", mark=""),
    # nobody asks
    _BACKENDS.format(given="state.begun = True", mark="")
    .replace("if not await", "await")
    .replace("(state):", "(state)")
    .replace("            return {}\n", ""),
    # the error is taken, the key is put there first, a decorator makes it a coroutine
    """# before: load.py
def load(path):
    return {"a": path, "b": 2}
async def run(x):
    return x
def in_thread(function):
    return function
# file: load.py
import asyncio
from functools import wraps
def load(path):
    return {"a": path}
def in_thread(function):
    @wraps(function)
    async def inner(*args):
        return await asyncio.to_thread(function, *args)
    return inner
@in_thread
def run(x):
    return x
# file: use.py
from load import load, run
def safe(path):
    try:
        return load(path)["b"]
    except KeyError:
        return 0
def filled(path):
    row = load(path)
    row["b"] = 3
    return row["b"]
async def main():
    return await run(1)
""",
    _ASKED_BACKEND.format(end="\n        return True", mark=""),
)
