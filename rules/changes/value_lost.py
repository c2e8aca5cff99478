"""A value that a change lets arrive no longer where it was taken before.

What it does
    Looks at seven ways on which a value is lost though all of its takers stand as before:
    a key that a mapping gave behind another one which it spreads (`{**row, "address": address}`), and gives before it
    now, so that the other one has the last word;
    a keyword that a function read out of its `**kwargs`, and takes out of it now (`kwargs.pop`), where it puts the key
    back on some of its ways, or what it hands `**kwargs` on to takes a parameter of the name;
    an argument that one call no longer gives, while all other calls give it and the function has a default, and an
    option that one script no longer gives, while all others that start the program do;
    a member of an object that was given to what has its name (`mp_pg=context.mp_pg`), in whose place another member of
    the same object stands;
    keywords of a call that are passed in a mapping under one name, for which what is called has but its `**`;
    a key to which a dictionary gave a constant, which nothing gives it any more, and which is read with another default
    (`.get("do_sample", True)`);
    a text that values are filled into (`"-l %s -c %s" % …`), of which two parts changed places without their values.
    Of arguments and members nothing is said where the change speaks of them in other lines, too.

Why is this bad
    Nothing raises: a default, None or the value of a neighbour takes the place. What comes of it is a rank that waits
    for another address, a checkpoint of other weights, a norm of one stage alone.

References
    https://docs.python.org/3/reference/expressions.html#dictionary-displays
    https://docs.python.org/3/library/stdtypes.html#dict.pop
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import Any

from rules.changes.effect_dropped import short
from validator.drift.arriving.bundled import Bundled, BundledKeywords
from validator.drift.arriving.left_flags import LeftFlag, LeftFlags
from validator.drift.arriving.left_to_default import LeftOut, LeftToDefault
from validator.drift.arriving.namesakes import Namesake, Namesakes
from validator.drift.arriving.overridden import Overridden, OverriddenKeys
from validator.drift.arriving.placeholders import Placeholders, Refilled
from validator.drift.arriving.taken_out import TakenOut, TakenOutKeys
from validator.drift.arriving.unwritten_keys import Unwritten, UnwrittenKeys
from validator.drift.change import Change, Pair
from validator.drift.statements.differences import Edit
from validator.finding import Finding, Related
from validator.rule import Rule

RULE = Rule("MP917", "value-lost", "warning", stable_since="1.1", languages=("python", "shell"))


def check_change(change: Change) -> Iterator[Finding]:
    yield from map(_overridden, change.analysis(OverriddenKeys).rows)
    yield from map(_taken, change.analysis(TakenOutKeys).rows)
    yield from map(_left, change.analysis(LeftToDefault).rows)
    yield from map(_namesake, change.analysis(Namesakes).rows)
    yield from map(_refilled, change.analysis(Placeholders).rows)
    yield from map(_left_flag, change.analysis(LeftFlags).rows)
    yield from map(_bundled, change.analysis(BundledKeywords).rows)
    yield from map(_unwritten, change.analysis(UnwrittenKeys).rows)


def _at(pair: Pair, node: Any, message: str, help: str, told: str, **more: Any) -> Finding:
    """A finding at a piece of the changed code of a function; `told`: what tells it from others there."""
    unit = pair.new
    at = unit.module.source_text.at(node)
    return RULE.finding(unit.path, at, message, help=help, context=f"{unit.qualname}:{told}", **more)


def _bundled(row: Bundled) -> Finding:
    called = short(ast.unparse(row.call.func))
    names = ", ".join(f"`{name}`" for name in row.names)
    text = (
        f"{names} no longer reach `{called}` by name: it takes `{row.at.arg}` into its `**`, and nothing asks for that"
    )
    return _at(row.pair, row.at, text, "pass them one by one", f"{called}:{row.at.arg}")


def _unwritten(row: Unwritten) -> Finding:
    unit = row.pair.new
    return RULE.finding(
        row.read.path,
        row.read.at,
        f"nothing gives `{row.key}` since the change, so it is always {row.default!r} here; `{unit.qualname}` gave "
        f"{row.before!r}",
        help=f"give `{row.key}` again, or ask for what is given now",
        related=[Related(unit.path, unit.code.at[0], f"`{row.key}` was {row.before!r} here before the change")],
        context=f"{unit.qualname}:{row.key}",
    )


def _overridden(row: Overridden) -> Finding:
    text = (
        f"`{short(row.by)}` has the last word about `{short(row.key)}` since the change, and what is given here had it "
        "before"
    )
    return _at(row.pair, row.at, text, f"before: `{short(row.before)}`", row.key)


def _left_flag(row: LeftFlag) -> Finding:
    return RULE.finding(
        row.launch.path,
        row.launch.at,
        f"`{row.name}` is left to its default here since the change; all {len(row.others)} other commands that start"
        f" `{row.launch.name}` give it",
        help="give it again, or leave it to its default in all of them",
        related=[Related(each.path, each.at[0], f"`{row.name}` is given here") for each in row.others[:3]],
        context=f"{row.launch.name}:{row.name}",
    )


def _refilled(row: Refilled) -> Finding:
    text = (
        f"what is filled in behind `{row.now}` since the change was filled in behind `{row.before}`: two places of the "
        "text changed, and the values did not"
    )
    return _at(row.pair, row.at, text, _before(row.edit), f"{row.before}>{row.now}")


def _taken(row: TakenOut) -> Finding:
    unit, called = row.pair.new, short(ast.unparse(row.taker.func))
    way = f"puts it back in line {row.back} on some ways alone" if row.back else "which takes a parameter of the name"
    said = f"`{row.key}` is taken out of `{row.kept}` here since the change, and was only read"
    text = f"{said}: `{unit.qualname}` {way}" if row.back else f"{said}: it no longer reaches `{called}`, {way}"
    related = [Related(unit.path, row.taker.lineno, f"`{row.kept}` goes on to `{called}` here")]
    return _at(row.pair, row.at, text, f"before: `{short(row.before)}`", row.key, related=related)


def _left(row: LeftOut) -> Finding:
    call = row.drop.new
    assert isinstance(call, ast.Call)
    called = short(ast.unparse(call.func))
    count = f"all {len(row.others)} other calls give" if len(row.others) > 1 else "the other call gives"
    text = f"`{called}` has `{row.name}={row.default}` by default here since the change; {count} it"
    related = [Related(site.unit.path, site.call.at[0], f"`{row.name}` is given here") for site in row.others[:3]]
    return _at(row.drop.pair, call, text, _before(row.drop.edit), f"{called}:{row.name}", related=related)


def _namesake(row: Namesake) -> Finding:
    text = f"`{row.taker}` gets `{short(ast.unparse(row.new))}` since the change, and got what has its name before"
    return _at(row.pair, row.new, text, _before(row.edit), row.taker, severity=row.severity)


def _before(edit: Edit) -> str:
    assert edit.old is not None
    return f"before: `{short(edit.old.text)}`"


_SOURCE = """# before: rl/envs.py
def written(source, address):
    row = dict(source)
    return {{"serve": {{**row.get("serve", {{}}), "address": address}}}}
# file: rl/envs.py
def written(source, address):
    row = dict(source)
    return {{"serve": {serve}}}{mark}
"""

_SAVED = """# before: rl/model.py
class Wrapped:
    def save_pretrained(self, *args, **kwargs):
        state_dict = kwargs.get("state_dict", None)
        if state_dict is None:
            state_dict = self.state_dict()
            kwargs["state_dict"] = state_dict
        return self.base.save_pretrained(*args, **kwargs)
# file: rl/model.py
class Wrapped:
    def save_pretrained(self, *args, **kwargs):
        state_dict = kwargs.pop("state_dict", None){mark}
        if state_dict is None:
            state_dict = self.state_dict()
            {back}
        return self.base.save_pretrained(*args, **kwargs{more})
"""

_LOADED = """# before: rl/train.py
def loader(rows, non_dp_size=1, max_epochs=None):
    return rows[::non_dp_size], max_epochs


def train(config, rows, test):
    first = loader(rows, config.cp)
    second = loader(test, config.cp, max_epochs=1)
    return first, second
# file: rl/train.py
def loader(rows, non_dp_size=1, max_epochs=None):
    return rows[::non_dp_size], max_epochs


def train(config, rows, test):
    first = loader(rows{first})
    second = loader(test, max_epochs=1){mark}
    return first, second
"""

_CLIPPED = """# before: rl/clip.py
def clip(parameters, mp_pg, max_norm):
    return parameters, mp_pg, max_norm


class Trainer:
    def step(self):
        norm = clip(self.parameters, mp_pg=self.context.mp_pg, max_norm=1.0)
        self.sum = self.context.tp_pg, norm
        return norm
# file: rl/clip.py
def clip(parameters, mp_pg, max_norm):
    return parameters, mp_pg, max_norm


class Trainer:
    def step(self):
        norm = clip(self.parameters, mp_pg=self.context.{given}, max_norm=1.0){mark}
        self.sum = self.context.tp_pg, norm
        return norm
"""

_STARTED = """# before: rl/start.py
def command(latest, cache):
    return "python train.py -l %s -c %s" % (latest, cache)
# file: rl/start.py
def command(latest, cache):
    return "python train.py {text}" % ({values}){mark}
"""

_RATIO = """# before: small.sh
python train.py --kd-ratio 0.5 --lr 1
# file: small.sh
python train.py {small}--lr 1{mark}
# file: base.sh
python train.py --kd-ratio 0.5 --lr 2
# file: large.sh
python train.py {large}--lr 3
# file: train.py
import argparse


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--kd-ratio", type=float, default=None)
    parser.add_argument("--lr", type=float)
    args = parser.parse_args()
    return args.kd_ratio, args.lr


if __name__ == "__main__":
    main()
"""

_PIXELS = """# before: rl/vision.py
class Trainer:
    def __init__(self, model, **kwargs):
        for name in ("max_pixels", "min_pixels"):
            if name in kwargs:
                setattr(model, name, kwargs[name])


def train(model, args):
    trainer = Trainer(model, max_pixels=args.max_pixels, min_pixels=args.min_pixels)
    return trainer
# file: rl/vision.py
class Trainer:
    def __init__(self, model, **kwargs):
        for name in ("max_pixels", "min_pixels"):
            if name in kwargs:
                setattr(model, name, kwargs[name])


def train(model, args):
    trainer = Trainer(model, {given}{{"max_pixels": args.max_pixels, "min_pixels": args.min_pixels}}){mark}
    return trainer
"""

_MARK = "  # error: MP917"

_DRAWN = """# before: rl/trainer.py
def validate(engine, batch):
    batch.meta = {{"eos": 2, "do_sample": False, "validate": True}}
    return engine.generate(batch)
# file: rl/trainer.py
def validate(engine, batch):
    batch.meta = {{"eos": 2, "validate": True}}
    return engine.generate(batch)
# file: rl/engine.py
def generate(batch, settings):
    eos = batch.meta["eos"]
    sampling = batch.meta.get("do_sample", {default}){mark}
    return eos, sampling, {other}
"""

INCORRECT = (
    _SOURCE.format(serve='{"address": address, **row.get("serve", {})}', mark=_MARK),
    _SAVED.format(mark=_MARK, back='kwargs["state_dict"] = state_dict', more=""),
    _LOADED.format(first=", config.cp", mark=_MARK),
    _CLIPPED.format(given="tp_pg", mark=_MARK),
    _STARTED.format(text="-c %s -l %s", values="latest, cache", mark=_MARK),
    _RATIO.format(small="", large="--kd-ratio 1.0 ", mark=_MARK),
    _PIXELS.format(given="processing=", mark=_MARK),
    _DRAWN.format(default="True", other='settings["top_p"]', mark=_MARK),
)

CORRECT = (
    # the mapping that is spread is another one; the key is handed on by its name
    _SOURCE.format(serve='{"address": address, "port": 1}', mark=""),
    _SAVED.format(mark="", back="self.saved = True", more=", state_dict=state_dict"),
    # both calls leave it out
    _LOADED.format(first="", mark=""),
    # one of the kind that the name says
    _CLIPPED.format(given="actor_mp_pg", mark=""),
    # the values as well
    _STARTED.format(text="-c %s -l %s", values="cache, latest", mark=""),
    # another script does without it
    _RATIO.format(small="", large="", mark=""),
    _PIXELS.format(given="**", mark=""),
    # the default is what was given; another dictionary has the key
    _DRAWN.format(default="False", other='settings["top_p"]', mark=""),
    _DRAWN.format(default="True", other='{**settings, "do_sample": True}', mark="").replace(
        "def g", "def draw(s):\n    return {**s, 'do_sample': True}\n\n\ndef g"
    ),
)
