"""A change that leaves the meaning of code as it is: rules about changes are silent about it.

Each example of the rules about distributed programs is taken as it was, and rewritten as it is.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from itertools import islice
from pathlib import PurePosixPath
from typing import NamedTuple

import pytest

from tests.validator.plain_rewritings import PLAIN, plain
from tests.validator.rewritings import REWRITINGS, examples, rewritten
from validator.drift.change import Change, Side
from validator.examples import files
from validator.finding import Finding
from validator.registry import load_rules
from validator.run.config import Config
from validator.source import SourceFile

CODES = ("MP1", "MP4", "MP5", "MP6")
ASKED = 0.995
NAMES = (*REWRITINGS, *PLAIN)
CHECKS = [rule for rule in load_rules() if rule.check_change is not None]
ROOT = "/example"


class Silence(NamedTuple):
    """What the rules say of an example and what became of it."""

    rewriting: str
    example: str
    findings: list[Finding]


def compared(before: dict[str, str], after: dict[str, str]) -> list[Finding]:
    """What the rules about changes say of files as they were and as they are."""
    config = Config(root=ROOT)
    sides = [
        {path: SourceFile(path, f"{ROOT}/{path}", text.encode()) for path, text in texts.items()}
        for texts in (before, after)
    ]
    changed = {path for path in before.keys() | after.keys() if before.get(path) != after.get(path)}
    for path in set(before) - changed:
        sides[1][path] = sides[0][path]
    change = Change(*(Side(side.values(), config) for side in sides), [f"{ROOT}/{path}" for path in changed])
    return [finding for rule in CHECKS if rule.check_change is not None for finding in rule.check_change(change)]


def pair(example: str, name: str) -> tuple[dict[str, str], dict[str, str]] | None:
    """The files of an example as they are written, and rewritten; None where that is the same."""
    parts = files(example)
    if any(part.size or part.link or part.before or PurePosixPath(part.path).suffix != ".py" for part in parts):
        return None
    try:
        before = {part.path: ast.unparse(ast.parse(part.text)) for part in parts}
        if name in PLAIN:
            if name == "import under another name" and len(parts) > 1:
                return None  # another file may import it from here
            after = {path: plain(text, name) for path, text in before.items()}
        else:
            text = rewritten(example, name)
            after = {part.path: part.text for part in files(text)} if text is not None else before
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None
    after = {path: text.rstrip("\n") for path, text in after.items()}
    return (before, after) if after != before else None


def rows(names: tuple[str, ...], every: int = 1) -> Iterator[Silence]:
    """Each example before and after it is rewritten, and the other way round."""
    for name in names:
        for rule, wrong, index, example in islice(examples(*CODES), 0, None, every):
            made = pair(example, name)
            if made is not None:
                kind = "incorrect" if wrong else "correct"
                yield Silence(name, f"{rule.rule.code} {kind} {index}", compared(*made))
                yield Silence(f"{name}, undone", f"{rule.rule.code} {kind} {index}", compared(*reversed(made)))


def _judged(found: list[Silence]) -> None:
    silent = sum(not row.findings for row in found)
    print(f"silent {silent}/{len(found)} ({silent / len(found):.2%})")
    said = [f"{row.rewriting}, {row.example}: {each.code} {each.message}" for row in found for each in row.findings]
    print("\n".join(said))
    assert silent / len(found) >= ASKED, "\n".join(said)


def test_changes_that_mean_the_same_are_not_reported() -> None:
    found = list(rows(NAMES, every=30))
    assert len(found) > 240
    _judged(found)


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_no_change_that_means_the_same_is_reported(name: str) -> None:
    _judged(list(rows((name,))))


MEANT = {
    "an argument goes by name": (
        """
def f(t, ranks):
    g(t)
    return new_group(ranks)
""",
        """
def f(t, ranks):
    g(t)
    return new_group(ranks=ranks)
""",
    ),
    "a part of a formula gets a name": (
        """
def f(t, block_size):
    g(t)
    total = (t // block_size) * block_size
    return total
""",
        """
def f(t, block_size):
    g(t)
    part = t // block_size
    total = part * block_size
    return total
""",
    ),
    "a test in a variable": (
        """
def f(t, a, rank):
    if a.group is not None or rank == 0:
        dist.barrier()
    return t
""",
        """
def f(t, a, rank):
    waits = a.group is not None or rank == 0
    if waits:
        dist.barrier()
    return t
""",
    ),
    "two branches in the other order": (
        """
def f(t):
    a = g(t)
    b = h(t)
    if t:
        dist.barrier()
    else:
        a.wait()
    return a, b
""",
        """
def f(t):
    a = g(t)
    b = h(t)
    if not t:
        a.wait()
    else:
        dist.barrier()
    return a, b
""",
    ),
    "an option of two groups": (
        """
def options(parser):
    parser.add_argument("--rollout.best_of_size", type=int, default=3)
    parser.add_argument("--eval.best_of_size", type=int, default=4)

def size(args):
    return getattr(args, "best_of_size", 4)
""",
        """
def options(parser):
    \"\"\"Options of the command line.\"\"\"
    parser.add_argument("--rollout.best_of_size", type=int, default=3)
    parser.add_argument("--eval.best_of_size", type=int, default=4)

def size(args):
    return getattr(args, "best_of_size", 4)
""",
    ),
    "a test without its negation": (
        """
def f(t, rank):
    a = g(t)
    if not rank == 0:
        return None
    save(a)
    return a
""",
        """
def f(t, rank):
    a = g(t)
    if rank == 0:
        save(a)
        return a
    return None
""",
    ),
    "a list that was only filled": (
        """
def f(t, n):
    kept = []
    for x in t:
        kept.append(g(x))
    return n
""",
        """
def f(t, n):
    kept = [g(x) for x in t]
    return n
""",
    ),
    "a method that needs its object no longer": (
        """
class A:
    def f(self, model):
        a = g(model)
        b = g(a)
        return self._f(b)

    def _f(self, model):
        return model.sum()
""",
        """
class A:
    def f(self, model):
        a = g(model)
        b = g(a)
        return b.sum()
""",
    ),
    "a decorator under another name": (
        """
from functools import cached_property

class A:
    @cached_property
    def mesh_size(self):
        return 1

    def f(self):
        return self.mesh_size + 1
""",
        """
from functools import cached_property as once

class A:
    @once
    def mesh_size(self):
        return 1

    def f(self):
        return self.mesh_size + 1
""",
    ),
    "two contexts in one statement": (
        """
import torch

def f(m, x):
    a = g(x)
    with torch.no_grad():
        with m.no_sync():
            y = m(a)
    return y
""",
        """
import torch

def f(m, x):
    a = g(x)
    with torch.no_grad(), m.no_sync():
        y = m(a)
    return y
""",
    ),
    "two contexts in statements of their own": (
        """
import torch

def f(m, x):
    a = g(x)
    with torch.no_grad(), m.no_sync():
        y = m(a)
    return y
""",
        """
import torch

def f(m, x):
    a = g(x)
    with torch.no_grad():
        with m.no_sync():
            y = m(a)
    return y
""",
    ),
    "a decorator for a context": (
        """
import torch

def f(m, x):
    with torch.no_grad():
        a = g(x)
        y = m(a)
        return y
""",
        """
import torch

@torch.no_grad()
def f(m, x):
    a = g(x)
    y = m(a)
    return y
""",
    ),
    "a context for a decorator": (
        """
import torch

@torch.no_grad()
def f(m, x):
    a = g(x)
    y = m(a)
    return y
""",
        """
import torch

def f(m, x):
    with torch.no_grad():
        a = g(x)
        y = m(a)
        return y
""",
    ),
    "a barrier goes to the caller": (
        """
import torch.distributed as dist

def f(m, x):
    a = g(x)
    save(m)
    dist.barrier()

def run(m, x):
    y = m(x)
    f(m, y)
    return y
""",
        """
import torch.distributed as dist

def f(m, x):
    a = g(x)
    save(m)

def run(m, x):
    y = m(x)
    f(m, y)
    dist.barrier()
    return y
""",
    ),
    "a barrier by a function that meets": (
        """
import torch.distributed as dist

def meet():
    if dist.is_initialized():
        dist.barrier()

def run(m, x):
    y = m(x)
    dist.barrier()
    return y

def other():
    meet()
""",
        """
import torch.distributed as dist

def meet():
    if dist.is_initialized():
        dist.barrier()

def run(m, x):
    y = m(x)
    meet()
    return y

def other():
    meet()
""",
    ),
    "a guard goes to the callee": (
        """
def save(m, path):
    a = g(m)
    write(a, path)
    return a

def run(m, rank):
    y = m(1)
    if rank == 0:
        save(m, 'x')
    return y
""",
        """
def save(m, path, rank):
    if rank != 0:
        return None
    a = g(m)
    write(a, path)
    return a

def run(m, rank):
    y = m(1)
    save(m, 'x', rank)
    return y
""",
    ),
    "a guard goes to the caller": (
        """
def save(m, path, rank):
    if rank != 0:
        return None
    a = g(m)
    write(a, path)
    return a

def run(m, rank):
    y = m(1)
    save(m, 'x', rank)
    return y
""",
        """
def save(m, path):
    a = g(m)
    write(a, path)
    return a

def run(m, rank):
    y = m(1)
    if rank == 0:
        save(m, 'x')
    return y
""",
    ),
    "factors in a property": (
        """
class S:

    def __init__(self, dp_size, tp_size):
        self.dp_size = dp_size
        self.tp_size = tp_size

    def n(self, b):
        k = 1
        j = 2
        return b // (self.dp_size * self.tp_size)
""",
        """
class S:

    def __init__(self, dp_size, tp_size):
        self.dp_size = dp_size
        self.tp_size = tp_size

    @property
    def model_size(self):
        return self.dp_size * self.tp_size

    def n(self, b):
        k = 1
        j = 2
        return b // self.model_size
""",
    ),
    "a factor goes to an earlier statement": (
        """
def n(b, dp_size, accum):
    per = b // dp_size
    k = g(per)
    j = 2
    return per // accum * k
""",
        """
def n(b, dp_size, accum):
    per = b // dp_size // accum
    k = g(per * accum)
    j = 2
    return per * k
""",
    ),
    "a collective goes to a method": (
        """
import torch.distributed as dist

class S:

    def __init__(self, group):
        self.group = group

    def red(self, t):
        k = 1
        dist.all_reduce(t, group=self.group)
        return t
""",
        """
import torch.distributed as dist

class S:

    def __init__(self, group):
        self.group = group

    def _sum(self, t):
        dist.all_reduce(t, group=self.group)

    def red(self, t):
        k = 1
        self._sum(t)
        return t
""",
    ),
    "a group goes to a partial": (
        """
import torch.distributed as dist

def f(t, group):
    k = 1
    dist.all_reduce(t, group=group)
    dist.broadcast(t, 0, group=group)
    return t
""",
        """
import torch.distributed as dist
from functools import partial

def f(t, group):
    k = 1
    reduce = partial(dist.all_reduce, group=group)
    reduce(t)
    dist.broadcast(t, 0, group=group)
    return t
""",
    ),
    "a collective of an object that knows its group": (
        """
import torch.distributed as dist

def f(t, s):
    k = 1
    dist.all_reduce(t, group=s.group)
    return t
""",
        """
import torch.distributed as dist

def f(t, s):
    k = 1
    s.all_reduce(t)
    return t
""",
    ),
    "an assertion goes to a function": (
        """
def f(b, n):
    assert b % n == 0
    k = g(b)
    return k // n
""",
        """
def check(b, n):
    if b % n != 0:
        raise ValueError(b)

def f(b, n):
    check(b, n)
    k = g(b)
    return k // n
""",
    ),
    "an exception for an assertion": (
        """
def f(b, n):
    assert b % n == 0
    k = g(b)
    return k // n
""",
        """
def f(b, n):
    if b % n != 0:
        raise ValueError(b)
    k = g(b)
    return k // n
""",
    ),
    "parameters go into one": (
        """
def f(b, dp_size, tp_size):
    k = g(b)
    return k // (dp_size * tp_size)

def r(b, c):
    return f(b, c.dp_size, c.tp_size)
""",
        """
def f(b, c):
    k = g(b)
    return k // (c.dp_size * c.tp_size)

def r(b, c):
    return f(b, c)
""",
    ),
    "gradients are zeroed later": (
        """
def f(o, l):
    o.zero_grad()
    y = g(l)
    l.backward()
    o.step()
    return y
""",
        """
def f(o, l):
    y = g(l)
    o.zero_grad()
    l.backward()
    o.step()
    return y
""",
    ),
    "gradients are zeroed at the end of the loop": (
        """
def f(o, l):
    for x in l:
        o.zero_grad()
        y = g(l)
        y.backward()
        o.step()
""",
        """
def f(o, l):
    for x in l:
        y = g(l)
        y.backward()
        o.step()
        o.zero_grad()
""",
    ),
    "a method for a function": (
        """
def load_state(s, path):
    s.x = read(path)
    return s

class S:

    def go(self):
        return load_state(self, 'a')
""",
        """
class S:

    def load_state(self, path):
        self.x = read(path)
        return self

    def go(self):
        return self.load_state('a')
""",
    ),
    "a data class for a dictionary": (
        """
def f(x):
    a = g(x)
    return {'loss_sum': a, 'token_count': 2}

def h(x):
    r = f(x)
    return r['loss_sum'] / r['token_count']
""",
        """
from dataclasses import dataclass

@dataclass
class R:
    loss_sum: float
    token_count: int

def f(x):
    a = g(x)
    return R(a, 2)

def h(x):
    r = f(x)
    return r.loss_sum / r.token_count
""",
    ),
    "parameters are handed on as they come": (
        """
def f(x, group_size, n_rep=1):
    return go(x, group_size, n_rep)

def h():
    return f(1, group_size=2)
""",
        """
def f(x, **kw):
    return go(x, **kw)

def h():
    return f(1, group_size=2)
""",
    ),
    "an attribute is stored by its name as a text": (
        """
class A:

    def __init__(self, g):
        self.data_group = g

    def f(self):
        return self.data_group
""",
        """
class A:
    __slots__ = ('data_group',)

    def __init__(self, g):
        object.__setattr__(self, 'data_group', g)

    def f(self):
        return self.data_group
""",
    ),
    "attributes are stored in a loop": (
        """
class A:

    def __init__(self, g, h):
        self.data_group = g
        self.model_group = h

    def f(self):
        return (self.data_group, self.model_group)
""",
        """
class A:

    def __init__(self, g, h):
        for name, value in (('data_group', g), ('model_group', h)):
            setattr(self, name, value)

    def f(self):
        return (self.data_group, self.model_group)
""",
    ),
    "attributes are stored all at once": (
        """
class A:

    def __init__(self, g, h):
        self.data_group = g

    def f(self):
        return self.data_group
""",
        """
class A:

    def __init__(self, **kwargs):
        self.__dict__.update(kwargs)

    def f(self):
        return self.data_group

def make(g):
    return A(data_group=g)
""",
    ),
}


@pytest.mark.parametrize(("before", "after"), MEANT.values(), ids=MEANT)
def test_another_way_to_say_it(before: str, after: str) -> None:
    assert compared({"a.py": before}, {"a.py": after}) == []
