"""A call that leaves out the process group which its siblings pass on.

What it does
    Several classes call a model the same way and pass it a process group or mesh of their strategy
    (`ring_attn_group=self.strategy.ring_attn_group`). Reported is a class that calls it without that keyword, where
    it has the same object at hand, the `forward` that fits the call takes the group and defaults it to None, and the
    program that builds the class offers an option of that name (`--ring_attn_size`).

Why is this bad
    With the default nobody splits the sequence: with more than one ring rank positions and attention are wrong, and
    nothing fails.

References
    https://arxiv.org/abs/2310.01889
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

from validator.analysis.interfaces.members import method_of
from validator.facts.model import Call
from validator.finding import Finding, Related
from validator.flow.queries.outside_program import is_test
from validator.project import ClassDef, Method, Project
from validator.rule import Rule

RULE = Rule("MP125", "group-not-forwarded", "error", stable_since="0.1.0", tokens=("group", "mesh"))

_GROUP = re.compile(r"\w+_(?:process_)?(?:group|mesh)$")
_SIBLINGS = 2  # so many other classes must pass it


class Site(NamedTuple):
    """A call of an object by its name inside a class."""

    function: Method
    call: Call
    cls: ClassDef


def check_project(project: Project) -> Iterator[Finding]:
    forwards = _forwards(project)
    if not forwards:
        return
    sites = list(_sites(project))
    for name, source, passing in _forwarded(sites):
        stem = name.rpartition("_")[0].removesuffix("_process")
        callees = {_callee(site.call) for site in passing}
        seen = {site.cls for site in passing}
        for site in sites:
            if site.cls in seen or _callee(site.call) not in callees or not _has(site.cls, source):
                continue
            if not _fits(site.call, name, forwards):
                continue
            seen.add(site.cls)
            if not _mentions(project, site.cls, name) and _offers(project, site.cls, stem):
                yield _report(site, name, source, passing[0])


def _sites(project: Project) -> Iterator[Site]:
    """Calls of `model(…)` or `self.model(…)` by keyword, in methods, tests left out."""
    for function in project.functions():
        cls = method_of(function).cls
        if cls is None or is_test(function.path):
            continue
        for call in function.facts.calls:
            plain = call.target.removeprefix("self.")
            if (
                "." not in plain
                and plain
                and any(a.keyword for a in call.args)
                and not plain.startswith(("super", "?"))
            ):
                yield Site(function, call, cls)


def _forwarded(sites: list[Site]) -> Iterator[tuple[str, str, list[Site]]]:
    """Keyword, path and sites of the groups that several classes pass on from the same attribute."""
    found: dict[tuple[str, str], list[Site]] = {}
    for site in sites:
        for argument in site.call.args:
            name = argument.keyword or ""
            if _GROUP.fullmatch(name) and argument.kind == "path" and argument.value.endswith(f".{name}"):
                found.setdefault((name, argument.value), []).append(site)
    for (name, source), passing in sorted(found.items(), key=lambda item: item[0]):
        if len({site.cls for site in passing}) >= _SIBLINGS:
            yield name, source, passing


def _forwards(project: Project) -> list[Method]:
    """Functions called `forward` or `__call__` that may be given a group."""
    return [
        function
        for function in project.functions()
        if function.name in ("forward", "__call__")
        and any(p.default == "None" and _GROUP.fullmatch(p.name) for p in function.facts.params)
    ]


def _callee(call: Call) -> str:
    return call.target.removeprefix("self.")


def _fits(call: Call, name: str, forwards: list[Method]) -> bool:
    keywords = {a.keyword for a in call.args if a.keyword}
    if "**" in keywords or "*" in keywords or len(keywords) < 2:
        return False
    return any({name, *keywords} <= {p.name for p in forward.facts.params} for forward in forwards)


def _has(cls: ClassDef, source: str) -> bool:
    links = source.split(".")
    return len(links) > 2 and links[0] == "self" and links[1] in cls.attributes


def _mentions(project: Project, cls: ClassDef, name: str) -> bool:
    """Whether a class deals with the group in any way of its own."""
    for method in cls.every_method():
        for function in [method, *project.nested(method)]:
            if any(f".{name}" in ref.path for ref in function.facts.refs):
                return True
            if any(
                name in (a.keyword, a.value) or f".{name}" in a.value
                for call in function.facts.calls
                for a in call.args
            ):
                return True
    return False


def _offers(project: Project, cls: ClassDef, stem: str) -> bool:
    """Whether a file that builds the class adds a command-line option that begins with the stem."""
    for module in project.modules.values():
        if cls.name not in module.facts.names and not any(row.bound_as == cls.name for row in module.facts.imports):
            continue
        for function in module.functions.values():
            for call in function.facts.calls:
                if (
                    call.method == "add_argument"
                    and call.args
                    and stem in call.args[0].value.replace("-", "_").replace(".", "_")
                ):
                    return True
    return False


def _report(site: Site, name: str, source: str, passing: Site) -> Finding:
    return RULE.finding(
        site.function.path,
        site.call.at,
        f"`{site.function.qualname}` calls `{site.call.target}(…)` without `{name}`, "
        f"which `{passing.function.qualname}` and others pass on: it stays None",
        help=f"pass `{name}={source}`",
        related=[Related(passing.function.path, passing.call.at[0], f"`{name}` is passed on here")],
        context=f"{site.function.qualname}:{site.call.target}:{name}",
    )


_MODEL = """\
# file: model.py
class Actor:
    def forward(self, tokens, attention_mask=None, return_output=False, ring_attn_group=None):
        return tokens, attention_mask, return_output, ring_attn_group
# file: trainers.py
class SFTTrainer:
    def __init__(self, strategy, model):
        self.strategy = strategy
        self.model = model

    def step(self, batch):
        return self.model(
            batch.tokens, attention_mask=batch.mask, return_output=True, ring_attn_group=self.strategy.ring_attn_group
        )


class DPOTrainer:
    def __init__(self, strategy, model):
        self.strategy = strategy
        self.model = model

    def step(self, model, batch):
        return model(batch.tokens, attention_mask=batch.mask, ring_attn_group=self.strategy.ring_attn_group)
# file: rewards.py
class RewardTrainer:
    def __init__(self, strategy, model):
        self.strategy = strategy
        self.model = model

    def step(self, model, batch):
        return model(batch.tokens, attention_mask=batch.mask, return_output=True){mark}
# file: main.py
import argparse

from rewards import RewardTrainer


def main(strategy, model):
    parser = argparse.ArgumentParser()
    parser.add_argument("--{option}", type=int, default=1)
    return RewardTrainer(strategy, model), parser.parse_args()
"""

INCORRECT = (_MODEL.format(mark="  # error: MP125", option="ring_attn_size"),)

CORRECT = (
    # a program without rings
    _MODEL.format(mark="", option="batch_size"),
    # two classes are needed for a custom; one passes the group, the other does not
    """\
class Model:
    def forward(self, tokens, mask=None, causal=True, ring_attn_group=None):
        return tokens, mask, causal, ring_attn_group


class SFTTrainer:
    def __init__(self, strategy):
        self.strategy = strategy

    def step(self, model, tokens):
        return model(tokens, mask=None, ring_attn_group=self.strategy.ring_attn_group)


class KTOTrainer:
    def __init__(self, strategy):
        self.strategy = strategy

    def step(self, model, tokens):
        return model(tokens, mask=None, causal=False)
""",
)
