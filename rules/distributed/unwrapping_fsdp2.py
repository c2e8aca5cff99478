"""`.module` of a model that `fully_shard` has sharded.

What it does
    Reports `self.model.module` in a class whose `self.model` is sharded by `fully_shard` and by nothing that wraps
    (DDP, FSDP1, DeepSpeed), where nothing asks whether there is such an attribute.

Why is this bad
    `fully_shard` changes the model in place: there is no wrapper, and `.module` raises AttributeError, often at the
    first checkpoint.

References
    https://docs.pytorch.org/docs/stable/distributed.fsdp.fully_shard.html
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from validator.analysis.places import every_guard, is_aside
from validator.analysis.sharding import Sharding
from validator.finding import Finding, Related
from validator.project import ClassDef, Project
from validator.rule import Rule

RULE = Rule("MP522", "unwrapping-fsdp2", "error", "0.1.0", tokens=("fully_shard",))

_WRAPPING = frozenset(
    {"FSDP", "FullyShardedDataParallel", "DDP", "DistributedDataParallel", "initialize", "prepare", "compile"}
)
_ASKING = re.compile(r"hasattr|isinstance|getattr|fsdp|AttributeError|\*", re.IGNORECASE)


def check_project(project: Project) -> Iterator[Finding]:
    sharding = project.analysis(Sharding)
    for cls in sharding.classes:
        if is_aside(cls.path) or _wraps(sharding, cls):
            continue
        for attribute, (where, shard) in sharding.models(cls).items():
            path = f"self.{attribute}.module"
            for method in cls.every_method():
                refs = [(r.at, r.guards) for r in method.facts.refs if r.path == path or r.path.startswith(f"{path}.")]
                refs += [(c.at, c.guards) for c in method.facts.calls if c.target.startswith(f"{path}.")]
                asked = [g for _, guards in refs for g in every_guard(method, guards) if g.kind in ("if", "try")]
                if refs and not any(_ASKING.search(g.text) for g in asked):
                    yield RULE.finding(
                        cls.path,
                        refs[0][0],
                        f"`{method.qualname}` reads `{path}`, but `{shard.method}` shards in place: there is no"
                        " wrapper to take off",
                        help=f"use `self.{attribute}` itself",
                        related=[Related(where.path, shard.at[0], "the model is sharded here")],
                        context=f"{method.qualname}:{path}",
                    )


def _wraps(sharding: Sharding, cls: ClassDef) -> bool:
    calls = (c for method in cls.every_method() for c in method.facts.calls if c not in sharding.calls.get(method, ()))
    return any(c.method in _WRAPPING for c in calls)


INCORRECT = [
    """
from torch.distributed.fsdp import fully_shard

class Trainer:
    def build(self, model):
        self.model = model
        fully_shard(self.model)

    def save(self, path):
        self.model.module.save_pretrained(path)  # error: MP522
""",
]

CORRECT = [
    """
from torch.distributed.fsdp import fully_shard

class Trainer:
    def build(self, model):
        self.model = model
        fully_shard(self.model)

    def save(self, path):
        model = self.model.module if hasattr(self.model, "module") else self.model
        if hasattr(self.model, "module"):
            self.model.module.save_pretrained(path)
""",
    """
from torch.nn.parallel import DistributedDataParallel

class Trainer:
    def build(self, model):
        self.model = DistributedDataParallel(model)

    def save(self, path):
        self.model.module.save_pretrained(path)
""",
]
