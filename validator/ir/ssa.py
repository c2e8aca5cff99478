"""Builds a graph of blocks in SSA form while the source is read (Braun and others, 2013).

Reading a variable looks for its last value in the block, else in the blocks before; where several come together a phi
stands. A block whose predecessors are not all known yet is not *sealed*: its phis are completed when it is. From a
block that may raise, a handler sees the variables as they were when that block began: each statement of a `try` has a
block of its own.
"""

from __future__ import annotations

from typing import Any

from validator.ir.model import Block, Code, RawAt, Value, shared

Variable = str | tuple[str, int]  # a name, or a temporary
_way = dict[tuple[int, bool], tuple[int, bool]]().setdefault  # one object for equal ways into blocks


class Builder:
    """One code unit while it is built."""

    def __init__(self, code: Code) -> None:
        self.code = code
        self.handlers: tuple[int, ...] = ()
        self.loop = -1
        self._last: list[dict[Variable, int]] = []  # by block: the value that a variable has at its end
        self._first: list[dict[Variable, int]] = []  # by block: the value that a variable has at its beginning
        self._fields: list[dict[tuple[int, str, int], int]] = []  # by block: what was last stored in an attribute
        self._sealed: list[bool] = []
        self._incomplete: dict[int, dict[Variable, int]] = {}
        self._replaced: dict[int, int] = {}
        self._definitions: dict[str, list[int]] = {}
        self.inside: list[Code] = []  # the units that are made here
        self._phis: list[int] = []
        self._temporaries = 0
        self._epoch = 0
        self.at: RawAt = code.at
        self.block = self.new_block()
        self.seal(self.block)

    # -- blocks --------------------------------------------------------------------------------------------

    def new_block(self) -> int:
        number = len(self.code.blocks)
        self.code.blocks.append(Block(self.loop, self.handlers))
        self._last.append({})
        self._first.append({})
        self._fields.append({})
        self._sealed.append(False)
        for handler in self.handlers:
            self.code.blocks[handler].preds.append(_way((number, True), (number, True)))
        return number

    def start(self, block: int, seal: bool = True) -> None:
        """Go on in a block. `seal`: all its predecessors are known."""
        self.block = block
        if seal:
            self.seal(block)

    def is_open(self) -> bool:
        """Whether control can reach the place where the next instruction would stand."""
        return bool(self.code.blocks[self.block].end[0] == "open")

    def end(self, *end: Any) -> None:
        """End the block in which we are; what follows it cannot be reached until another one is started."""
        block = self.code.blocks[self.block]
        if block.end[0] != "open":
            return
        block.end = end
        for target in block.successors():
            self.code.blocks[target].preds.append(_way((self.block, False), (self.block, False)))

    def jump(self, target: int) -> None:
        self.end("jump", target)

    def next_block(self) -> None:
        """Go on in a new block right after this one."""
        following = self.new_block()
        self.jump(following)
        self.start(following)

    def seal(self, block: int) -> None:
        if self._sealed[block]:
            return
        self._sealed[block] = True
        for variable, phi in self._incomplete.pop(block, {}).items():
            self._complete(phi, variable, block)

    # -- values --------------------------------------------------------------------------------------------

    def emit(self, op: str, args: tuple[int, ...] = (), data: Any = None, at: RawAt | None = None) -> int:
        number = len(self.code.values)
        self.code.values.append(Value(op, shared(args, args), data, at or self.at, self.block))
        self.code.blocks[self.block].values.append(number)
        return number

    def temporary(self) -> Variable:
        self._temporaries += 1
        return ("tmp", self._temporaries)

    # -- variables -----------------------------------------------------------------------------------------

    def write(self, variable: Variable, value: int) -> None:
        self._last[self.block][variable] = value
        if isinstance(variable, str):
            self._definitions.setdefault(variable, []).append(value)

    def read(self, variable: Variable) -> int:
        return self.resolved(self._at_end(variable, self.block))

    def resolved(self, value: int) -> int:
        """The value that a phi without a choice stands for."""
        while value in self._replaced:
            value = self._replaced[value]
        return value

    def _at_end(self, variable: Variable, block: int) -> int:
        """The value of a variable at the end of a block; walks up while there is one way to come."""
        chain = []
        while (known := self._last[block].get(variable)) is None:
            known = self._first[block].get(variable)
            preds = self.code.blocks[block].preds
            if known is not None or not self._sealed[block] or len(preds) != 1 or preds[0][1]:
                break
            chain.append(block)
            block = preds[0][0]
        value = known if known is not None else self._at_start(variable, block)
        for each in chain:
            self._first[each][variable] = value
        return value

    def _at_start(self, variable: Variable, block: int) -> int:
        known = self._first[block].get(variable)
        if known is not None:
            return known
        preds = self.code.blocks[block].preds
        if not self._sealed[block]:
            phi = self._phi(variable, block)
            self._incomplete.setdefault(block, {})[variable] = phi
            return phi
        if not preds:
            self._first[block][variable] = value = self._insert("undefined", block, variable)
            return value
        phi = self._phi(variable, block)
        return self._complete(phi, variable, block)

    def _phi(self, variable: Variable, block: int) -> int:
        phi = self._insert("phi", block, variable)
        self._phis.append(phi)
        self._first[block][variable] = phi
        return phi

    def _insert(self, op: str, block: int, variable: Variable) -> int:
        number = len(self.code.values)
        at = self.at
        self.code.values.append(Value(op, (), variable if isinstance(variable, str) else "", at, block))
        self.code.blocks[block].values.insert(0, number)
        if isinstance(variable, str):
            self._definitions.setdefault(variable, []).append(number)
        return number

    def _complete(self, phi: int, variable: Variable, block: int) -> int:
        operands = []
        for pred, raised in self.code.blocks[block].preds:
            if self._is_dead(pred):  # nothing comes from there: the phi itself adds nothing
                operands.append(phi)
            else:
                operands.append(self._at_start(variable, pred) if raised else self._at_end(variable, pred))
        self.code.values[phi] = self.code.values[phi]._replace(args=tuple(operands))
        return self._simplified(phi)

    def _is_dead(self, block: int) -> bool:
        """Whether no way leads to a block: it stands behind `while True:` without a `break`."""
        seen: set[int] = set()
        while block not in seen:
            seen.add(block)
            preds = self.code.blocks[block].preds
            if not self._sealed[block] or len(preds) > 1:
                return False
            if not preds:
                return block > 0
            block = preds[0][0]
        return True

    def _simplified(self, phi: int) -> int:
        different = {self.resolved(each) for each in self.code.values[phi].args} - {phi}
        if len(different) == 1:
            self._replaced[phi] = different.pop()
        return self.resolved(phi)

    # -- attributes ----------------------------------------------------------------------------------------

    def store_field(self, owner: int, name: str, value: int) -> None:
        self._fields[self.block][owner, name, self._epoch] = value

    def known_field(self, owner: int, name: str) -> int | None:
        """What was stored last in an attribute of a value, on the only way that leads here."""
        block = self.block
        while True:
            if (known := self._fields[block].get((owner, name, self._epoch))) is not None:
                return known
            preds = self.code.blocks[block].preds
            if not self._sealed[block] or len(preds) != 1 or preds[0][1]:
                return None
            block = preds[0][0]

    def forget_fields(self) -> None:
        """Other code may run here (`await`, `yield`): what was stored may have been replaced."""
        self._epoch += 1

    # -- the end -------------------------------------------------------------------------------------------

    def finish(self) -> Code:
        """Seal what is left, and take out phis that have no choice."""
        code = self.code
        for block in range(len(code.blocks)):
            self.seal(block)
            if code.blocks[block].end[0] == "open":
                code.blocks[block].end = ("raise", -1)  # never reached
        changed = True
        while changed:
            changed = False
            for phi in self._phis:
                if phi not in self._replaced:
                    self._simplified(phi)
                    changed = changed or phi in self._replaced
        resolved = self.resolved
        for number, value in enumerate(code.values):
            if value.args:
                args = tuple([resolved(a) if a >= 0 else a for a in value.args])
                if args != value.args:
                    code.values[number] = value._replace(args=shared(args, args))
        for each in code.blocks:
            each.values = [v for v in each.values if v not in self._replaced]
            if each.end[0] in ("branch", "return", "raise") and each.end[1] >= 0:
                each.end = (each.end[0], resolved(each.end[1]), *each.end[2:])
        for name, values in self._definitions.items():
            numbers = tuple(dict.fromkeys(map(resolved, values)))
            code.definitions[name] = shared(numbers, numbers)
        code.exits = [(b, {name: resolved(v) for name, v in kept.items()}) for b, kept in code.exits]
        for inner in self.inside:
            inner.defaults = {name: resolved(v) for name, v in inner.defaults.items()}
        return code
