"""The instructions, blocks and functions of the intermediate representation.

A *code unit* is a function, a method, a lambda, the body of a class or the top level of a module. It is a graph of
blocks; each block is a list of values, each value has one instruction and is assigned once (SSA). Values are numbered
within their unit, operands are such numbers.

| op | operands | data |
| --- | --- | --- |
| `param` | – | (index, name) |
| `const` | – | the constant |
| `name` | – | a global or builtin name |
| `free` | – | a variable of an enclosing function: (how many functions out, name) |
| `import` | – | (module, name or None, level) |
| `closure` | default values | the key of the unit that is made: a function, lambda or class |
| `attr` | object | the attribute's name |
| `item` | object, key | – |
| `call` | callee, arguments | `CallShape` |
| `part` | callee, arguments | `CallShape`: by the names of parameters; the body of the function follows |
| `mut` | a variable as it was, the call that was given it | the argument's position, -1 for the receiver |
| `binary`, `unary`, `compare` | operands | the operator as `ast` names it |
| `tuple`, `list`, `set` | elements | the positions of starred elements |
| `dict` | keys and values in turn; `**x` has the key -1 | – |
| `join` | the parts of a formatted text | – |
| `slice` | lower, upper, step | – |
| `iter` | an iterable | True in `async for` |
| `more`, `next` | an iterator | – (whether another round follows; the element of this round) |
| `collect` | what a comprehension gathers, its iterators, its conditions | (kind, number of elements, of iterators) |
| `unpack` | a tuple | (position, how many targets, position of a starred target or -1) |
| `enter`, `leave` | a context manager; `leave`: the manager | `enter`: `async` in `async with` |
| `await`, `yield`, `yield from` | a value | – |
| `caught` | the class or tuple of classes that the handler catches; none for all | their source, `*` for all |
| `phi` | one operand for each predecessor | the variable's name |
| `undefined` | – | the variable's name |
| `match` | subject | – (whether a pattern fits) |
| `store_attr` | object, value | the attribute's name |
| `store_item` | object, key, value | – |
| `store_global`, `store_free`, `store_class` | value | the name (of an attribute of the class whose body this is) |
| `delete` | object | the attribute's name, or None |

A block ends in one of `("jump", block)`, `("branch", value, if true, if false)`, `("return", value)`,
`("raise", value or -1)` (with a third, "process", where that ends the process); `("open",)` stands only while a unit is
being lowered.
"""

from __future__ import annotations

from typing import Any, NamedTuple

RawAt = tuple[int, int, int, int]  # as `ast` counts: lines from 1, columns in bytes from 0


def repeated(qualname: str, line: int) -> str:
    """The key of a unit whose qualified name another one before it in the file has."""
    return f"{qualname}@{line}"


# One object for equal rows of numbers (operands, values of a variable): most units are small, and so are these numbers.
shared = dict[tuple[int, ...], tuple[int, ...]]().setdefault


class Unsupported(Exception):
    """A function that cannot be lowered; it is unknown to every query."""


class Value(NamedTuple):
    op: str
    args: tuple[int, ...]
    data: Any
    at: RawAt
    block: int


class CallShape(NamedTuple):
    """How a call passes its arguments: for each operand after the callee a keyword, None (by position), `*` or `**`."""

    names: tuple[str | None, ...]


class Block:
    """A straight run of instructions. `handlers`: the blocks where an exception raised in it may be caught."""

    __slots__ = ("end", "handlers", "loop", "preds", "values")

    def __init__(self, loop: int, handlers: tuple[int, ...]) -> None:
        self.values: list[int] = []
        self.end: tuple[Any, ...] = ("open",)
        self.preds: list[tuple[int, bool]] = []  # (block, whether by an exception)
        self.loop = loop  # the header of the innermost loop around, or -1
        self.handlers = handlers

    def successors(self) -> tuple[int, ...]:
        """The blocks that follow where nothing is raised."""
        end = self.end
        if end[0] == "jump":
            return (end[1],)
        return (end[2], end[3]) if end[0] == "branch" else ()


class Test(NamedTuple):
    """What a branch stands for in the source: its statement or expression, and what is tested.

    `kind`: if, while, for, assert, match, and, or, ifexp. `leaves`: an `if` without `else` whose body always leaves.
    """

    kind: str
    at: RawAt
    test: RawAt
    leaves: bool


class Loop(NamedTuple):
    """A loop: the block of its test, the first of its body, where it goes on when it is done (its `else`), and after a
    `break`; `at` is the place of the statement or comprehension."""

    header: int
    body: int
    done: int
    after: int
    at: RawAt
    iterator: int  # the value of `iter`, or -1 in `while`


class Code:
    """One lowered unit."""

    __slots__ = (
        "annotated", "at", "blocks", "defaults", "definitions", "exits", "is_async", "is_generator",
        "key", "kind", "loops", "name", "outer", "params", "part_of", "parts", "qualname", "tests", "values",
    )  # fmt: skip

    def __init__(self, kind: str, name: str, qualname: str, outer: str | None, at: RawAt) -> None:
        self.kind = kind  # function, lambda, class, module
        self.name = name
        self.qualname = qualname
        self.key = qualname  # its own in the file: of several definitions under one name all but the first say the line
        self.outer = outer  # the key of the unit around
        self.at = at
        self.values: list[Value] = []
        self.blocks: list[Block] = []
        self.params: tuple[tuple[str, str], ...] = ()  # (name, kind): pos, any, kw, * or **
        self.defaults: dict[str, int] = {}  # parameter -> value in the unit around
        self.definitions: dict[str, tuple[int, ...]] = {}  # variable -> its values, for units inside that read it
        self.loops: dict[int, Loop] = {}  # by header
        self.tests: dict[int, Test] = {}  # by the block that ends in the branch
        self.exits: list[tuple[int, dict[str, int]]] = []  # (block of a return, parameters as they are there)
        self.annotated: list[str] = []  # of the body of a class: annotated names in their order
        self.parts: list[str] = []  # the keys of the units whose code stands here as well
        self.part_of = ""  # the key of the unit in which this code stands as well
        self.is_async = False
        self.is_generator = False

    def __repr__(self) -> str:
        return f"<Code {self.qualname}>"

    @property
    def returned(self) -> list[int]:
        """The values that the unit returns, one for each `return`."""
        return [block.end[1] for block in self.blocks if block.end[0] == "return"]

    def in_order(self, bodies_first: bool = False) -> list[int]:
        """The reachable blocks, each after a predecessor (reverse postorder; exceptional edges count).

        `bodies_first`: of the two ways of a branch the one where it holds comes first; so what follows a loop comes
        after its body.
        """
        seen: set[int] = set()
        order: list[int] = []
        stack: list[tuple[int, int]] = [(0, 0)]
        seen.add(0)
        following = [(*block.successors(), *block.handlers) for block in self.blocks]
        if bodies_first:
            following = [each[::-1] for each in following]
        while stack:
            block, index = stack.pop()
            if index < len(following[block]):
                stack.append((block, index + 1))
                target = following[block][index]
                if target not in seen:
                    seen.add(target)
                    stack.append((target, 0))
            else:
                order.append(block)
        order.reverse()
        return order

    def dump(self) -> str:
        """The unit as text, for people who look for a defect in it."""
        lines = [f"{self.kind} {self.qualname}({', '.join(name for name, _ in self.params)})"]
        for number in self.in_order():
            block = self.blocks[number]
            preds = ", ".join(f"b{p}{'!' if e else ''}" for p, e in block.preds)
            lines.append(f"b{number}: <- {preds}" + (f" loop b{block.loop}" if block.loop >= 0 else ""))
            for each in block.values:
                v = self.values[each]
                data = "" if v.data is None else f" {v.data!r}"
                lines.append(f"  %{each} = {v.op}{data} {' '.join(f'%{a}' for a in v.args)}  @{v.at[0]}")
            lines.append(f"  {' '.join(map(str, block.end))}")
        return "\n".join(lines)
