"""A parameter or variable that nothing reads since the change.

What it does
    Compares each function before and after a change. Reports a parameter that callers still pass, and a variable that
    is still computed, whose only readers the change took away while the rest of the function stayed as it was: a
    warning for ranks and groups, for parameters that the function still describes to its callers, and where a call that
    was passed the value leaves it out, though what it calls still takes it; else a note, as it is mostly left over.
    Silent about functions that are handed on, whose parameters are their caller's.

Why is this bad
    A factor, a mask, a group or a length that is computed and not used is mostly one that somebody dropped by mistake:
    the function goes on without it, and no test of types or names notices.
"""

from __future__ import annotations

from collections.abc import Iterator

from validator.drift.change import Change
from validator.drift.names.unused import Unread, Unused
from validator.finding import Finding, Related
from validator.rule import Rule

RULE = Rule("MP904", "value-left-unread", "warning", stable_since="0.2.0")


def check_change(change: Change) -> Iterator[Finding]:
    for row in change.analysis(Unused).names:
        yield _report(row)


def _report(row: Unread) -> Finding:
    what = "is still passed to" if row.kind == "parameter" else "is still computed in"
    return RULE.finding(
        row.unit.path,
        row.at,
        f"`{row.name}` {what} `{row.unit.qualname}`, and nothing there reads it since the change",
        help=f"use it again, or take it out; before, `{_short(row.last.text)}` read it",
        related=[Related(row.unit.path, row.unit.code.at[0], f"`{row.unit.qualname}`")],
        context=f"{row.unit.qualname}:{row.name}",
        severity=row.severity,
    )


def _short(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= 100 else line[:97] + "…"


INCORRECT = (
    """# before: rl/batches.py
def micro_batches(global_batch, micro_batch, dp_size):
    count = global_batch // (micro_batch * dp_size)
    assert count
    return count
# file: rl/batches.py
def micro_batches(global_batch, micro_batch, dp_size):  # error: MP904
    count = global_batch // micro_batch
    assert count
    return count
""",
    """# before: rl/data.py
def data_rank(mesh, rank):
    tp = mesh["tp"].size()
    cp = mesh["cp"].size()
    return rank // (tp * cp)
# file: rl/data.py
def data_rank(mesh, rank):
    tp = mesh["tp"].size()
    cp = mesh["cp"].size()  # error: MP904
    return rank // tp
""",
    # what is called still takes it
    """# before: rl/transports.py
class ByFile:
    def __init__(self, folder, config, lora_config=None):
        self.folder, self.config, self.only_adapter = folder, config, lora_config is not None


def transport_of(folder, config, lora_config=None):
    if config.kind == "file":
        return ByFile(folder, config, lora_config)
    raise ValueError(config.kind)
# file: rl/transports.py
class ByFile:
    def __init__(self, folder, config, lora_config=None):
        self.folder, self.config, self.only_adapter = folder, config, lora_config is not None


def transport_of(folder, config, lora_config=None):  # error: MP904
    if config.kind == "file":
        return ByFile(folder, config)
    raise ValueError(config.kind)
# file: rl/train.py
from rl.transports import transport_of


def setup(config, lora):
    return transport_of("out", config, lora)
""",
)
CORRECT = (
    """# before: rl/models.py
class First:
    def forward(self, ids, attention_mask, scale):
        hidden = ids * scale
        masked = hidden * attention_mask
        total = masked + hidden
        return total + scale


class Second:
    def forward(self, ids, attention_mask, scale):
        hidden = ids * scale
        masked = hidden * attention_mask
        total = masked + hidden
        return total - scale
# file: rl/models.py
class First:
    def forward(self, ids, attention_mask, scale):
        hidden = ids * scale
        masked = hidden
        total = masked + hidden
        return total + scale


class Second:
    def forward(self, ids, attention_mask, scale):
        hidden = ids * scale
        masked = hidden
        total = masked + hidden
        return total - scale
""",
    """# before: rl/batches.py
def micro_batches(global_batch, micro_batch, dp_size):
    count = global_batch // (micro_batch * dp_size)
    assert count
    return count
# file: rl/batches.py
def micro_batches(global_batch, micro_batch):
    count = global_batch // micro_batch
    assert count
    return count
""",
    """# before: rl/data.py
def lengths(batch, mask):
    total = mask.sum()
    return batch, total
# file: rl/data.py
def lengths(batch, mask):
    raise NotImplementedError
""",
    """# before: rl/walker.py
def step(env, actions):
    seen, reward, done, info = env.step(actions)
    seen = seen[::2]
    reward = reward * 2
    print(reward)
    print(seen)
    return seen, reward, done, info
# file: rl/walker.py
def step(env, actions):
    seen, reward, done, late, info = env.step(actions)
    seen = seen[::2]
    reward = reward * 2
    print(reward)
    print(seen)
    return seen, reward, done, {"late": late}
""",
    """# before: rl/sampling.py
def sample(model, rows, scale):
    earlier = None
    cache = {}
    for row in rows:
        if scale != 1:
            earlier = cache.copy()
        logits = model(row, cache, earlier)
        rows = rows + logits
    print(rows)
    return rows
# file: rl/sampling.py
def sample(model, rows, scale):
    earlier = None
    cache = {}
    for row in rows:
        logits = model.scaled(row, cache, scale)
        rows = rows + logits
    print(rows)
    return rows
""",
    """# before: rl/hooks.py
class Shards:
    def register(self, modules):
        def before_loading(module, state, prefix, metadata):
            if self.full:
                raise ValueError("not for full states")
            if state.pop("version", None) != "2":
                raise ValueError("another version")
            self.shard()

        for module in modules:
            module.register_load_state_dict_pre_hook(before_loading)
# file: rl/hooks.py
class Shards:
    def register(self, modules):
        def before_loading(module, state, prefix, metadata):
            if self.full:
                raise ValueError("not for full states")
            if metadata.get("version") != 2:
                raise ValueError("another version")
            self.shard()

        for module in modules:
            module.register_load_state_dict_pre_hook(before_loading)
""",
    """# before: rl/logging.py
def logged(optimizer, loss, tokens, layer):
    rate = optimizer.param_groups[0]["lr"]
    mean = loss.mean()
    name = f"loss/{layer}"
    print(name)
    return {name: mean.item(), "rate": rate, "tokens": tokens}
# file: rl/logging.py
def logged(optimizer, loss, tokens, layer):
    rate = optimizer.param_groups[0]["lr"]
    mean = loss.mean()
    name = f"loss/{layer}"
    print(name)
    return {name: mean.item()}
""",
)
