"""The variables of a shell script while it is followed, and what words amount to with them."""

from __future__ import annotations

import fnmatch
import posixpath
from collections.abc import Iterable, Iterator

from validator.analysis.commands import shell_tests
from validator.analysis.commands.fields import Bit, Field, Place, split_words
from validator.facts.script import Command, Function, Piece, Script, Word
from validator.files.integers import is_whole, whole

_LONGEST = 10_000  # pieces of a value; variables that double each other soon outgrow every memory

Scalar = tuple[Bit, ...]
Value = Scalar | list[Field]  # a list is an array

# what Slurm tells a job of its own header, by the directive
_SLURM = {
    "SLURM_NNODES": ("--nodes", "-N"), "SLURM_JOB_NUM_NODES": ("--nodes", "-N"),
    "SLURM_NTASKS": ("--ntasks", "-n"), "SLURM_NPROCS": ("--ntasks", "-n"),
    "SLURM_NTASKS_PER_NODE": ("--ntasks-per-node",), "SLURM_GPUS_PER_NODE": ("--gpus-per-node",),
    "SLURM_GPUS_ON_NODE": ("--gpus-per-node",), "SLURM_CPUS_PER_TASK": ("--cpus-per-task", "-c"),
}  # fmt: skip


class Environment:
    """Variables, arguments and functions. `arguments` is None at the top of a script: nobody has called it."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.variables: dict[str, Value] = {}
        self.arguments: list[Field] | None = None
        self.functions: dict[str, Function] = {}
        self.folder: Field | None = None  # where `cd` went

    def copy(self) -> Environment:
        other = Environment(self.path)
        other.variables = dict(self.variables)
        other.arguments = self.arguments
        other.functions = dict(self.functions)
        other.folder = self.folder
        return other

    def take(self, other: Environment) -> None:
        """Become as `other` is."""
        self.variables, self.arguments = other.variables, other.arguments
        self.functions, self.folder = other.functions, other.folder

    def set_slurm(self, script: Script) -> None:
        """The variables that Slurm sets from the header."""
        for name, options in _SLURM.items():
            for option, value, at in script.directives:
                if option in options and value:
                    place = Place(self.path, at[0], at[1])
                    self.variables[name] = (Bit(value, place, at[3] - at[1], place),)

    def forget(self, name: str, why: str, home: Place) -> None:
        """A variable whose value is no longer known."""
        if name:
            self.variables[name] = (Bit(f"${name}", home, 0, home, why=why),)

    # -- words ---------------------------------------------------------------------------------------------

    def fields(self, words: Iterable[Word], home: Place) -> list[Field]:
        return [field for word in words for field in self.expand(word, home)]

    def expand(self, word: Word, home: Place) -> list[Field]:
        """The fields that a word becomes: none, one, or several."""
        found: list[Field] = []
        current: list[Bit] = []
        nothing = False

        def close() -> None:
            if current:
                found.append(Field(current))
                current.clear()

        for piece in word.pieces:
            if (array := self._array(piece)) is not None:
                nothing = nothing or not array
                for index, field in enumerate(array):
                    if index:
                        close()
                    current.extend(field.bits)
                continue
            bits = self.bits(piece, home)
            if piece.quoted or piece.kind == "text":
                current.extend(bits)
                continue
            pieces = list(split_words(bits))
            spaced_before = bool(bits) and not bits[0].why and bits[0].text[:1].isspace()
            spaced_after = bool(bits) and not bits[-1].why and bits[-1].text[-1:].isspace()
            for index, field in enumerate(pieces):
                if index or spaced_before:
                    close()
                current.extend(field.bits)
            if pieces and spaced_after:
                close()
        if nothing and not any(bit.text or bit.why for bit in current):
            return found  # quoted or not, `"${EMPTY[@]}"` is no word at all
        close()
        return found

    def _array(self, piece: Piece) -> list[Field] | None:
        """The fields of `"${NAME[@]}"` and `"$@"`, or of a part of them: `"${@:2}"`."""
        if piece.kind != "variable" or piece.operator not in ("", ":-", "-", ":+", "+", ":"):
            return None
        value: list[Field] | None = None
        if piece.value in ("@", "*") and not piece.key:
            value = self.arguments
        elif piece.key in ("@", "*"):
            held = self.variables.get(piece.value)
            value = held if isinstance(held, list) else None
        if value is None or (piece.operator and not value) or len(value) > _LONGEST:
            return None
        if piece.operator == ":":
            return self._part(value, piece)
        return list(value)

    @staticmethod
    def _part(value: list[Field], piece: Piece) -> list[Field] | None:
        """`${@:2}` and `${NAME[@]:1:3}`: arguments count from 1, items of an array from 0."""
        bounds = [whole(each.value.strip()) if each.kind == "text" else None for each in piece.operand]
        first = 0 if piece.key else 1
        start, count = bounds[0] if bounds else None, bounds[1] if len(bounds) == 2 else len(value)
        if start is None or count is None or start < first or len(bounds) > 2:
            return None
        return value[start - first :][:count]

    def bits(self, piece: Piece, home: Place) -> Scalar:
        """What one piece amounts to, as one run of text."""
        place = Place(self.path, piece.line, piece.column)
        if piece.kind == "text":
            return (Bit(piece.value, place, len(piece.value), home, piece.quoted),)
        if piece.kind == "variable":
            return self._variable(piece, place, home)
        if piece.kind == "arithmetic":
            number = shell_tests.arithmetic(piece.value, self._number)
            if number is not None:
                return (Bit(str(number), place, piece.width, home, piece.quoted),)
            return (self._unknown(f"$(({piece.value}))", place, piece, home, "is computed"),)
        said = self._said(piece.script, home) if piece.script is not None else None
        if said is not None:
            return tuple(bit._replace(quoted=piece.quoted) for bit in said)
        shown = " ".join(piece.value.split())
        shown = shown if len(shown) < 40 else f"{shown[:36]}…)"
        many = not piece.quoted and piece.kind == "command"
        return (self._unknown(shown, place, piece, home, "is known when it runs", many=many),)

    @staticmethod
    def _unknown(text: str, place: Place, piece: Piece, home: Place, why: str, many: bool = False) -> Bit:
        return Bit(text, place, piece.width, home, piece.quoted, why=f"`{text}` {why}", many=many)

    def _variable(self, piece: Piece, place: Place, home: Place) -> Scalar:
        """What a variable amounts to, with its name; an argument of a function keeps the name that the caller has."""
        bits = self._expanded(piece, place, home)
        if not piece.value.isidentifier() or piece.key or piece.operator == "#" and not piece.operand:
            return bits
        return tuple(bit._replace(name=piece.value) for bit in bits)

    def _expanded(self, piece: Piece, place: Place, home: Place) -> Scalar:
        shown = f"${piece.value}"
        value = self.value(piece)
        many = not piece.quoted or piece.value in ("@", "*") or piece.key in ("@", "*")
        if piece.operator in (":-", "-", ":=", "=") and self._lacking(value, piece.operator):
            bits = tuple(bit for each in piece.operand for bit in self.bits(each, home))
            if piece.operator in (":=", "="):
                self.variables[piece.value] = bits
            return self._moved(bits or (Bit("", place, 0, home),), piece, place, home)
        if piece.operator in (":+", "+"):
            if self._lacking(value, piece.operator):
                bit = Bit("", place, piece.width, home, piece.quoted, why=f"`{shown}` is not set", many=True)
                return (bit,)
            return tuple(bit._replace(quoted=piece.quoted) for each in piece.operand for bit in self.bits(each, home))
        if value is None:
            why = "is not given" if is_whole(piece.value) or piece.value in ("@", "*") else "is not set"
            return (self._unknown(shown, place, piece, home, why, many)._replace(unset=True),)
        if piece.operator == "#" and not piece.operand:
            return self._length(value, piece, place, home)
        bits = tuple(bit for field in value for bit in field.bits) if isinstance(value, list) else value
        if len(bits) > _LONGEST:
            return (self._unknown(shown, place, piece, home, "is too long to follow", many),)
        if piece.operator in ("#", "##", "%", "%%"):
            return self._trimmed(bits, piece, place, home)
        if piece.operator not in ("", ":-", "-", ":=", "=", ":?", "?"):
            return (self._unknown(shown, place, piece, home, "is changed before it is used", many),)
        return self._moved(bits, piece, place, home)

    def value(self, piece: Piece) -> Value | None:
        """What a variable holds (an element of it, where the piece has an index); None if nothing sets it."""
        if number := whole(piece.value):
            index = number - 1
            known = self.arguments is not None and index < len(self.arguments)
            return self.arguments[index].bits if known and self.arguments is not None else None
        if piece.value in ("@", "*"):
            return self.arguments
        value = self.variables.get(piece.value)
        if isinstance(value, list) and piece.key not in ("@", "*"):
            place = whole(piece.key or "0")
            return value[place].bits if place is not None and place < len(value) else None
        return value

    @staticmethod
    def _lacking(value: Value | None, operator: str) -> bool:
        if value is None:
            return True
        return (
            operator.startswith(":")
            and not any(bit.text or bit.why for bit in (value if isinstance(value, tuple) else ()))
            and not (isinstance(value, list) and value)
        )

    @staticmethod
    def _moved(bits: Scalar, piece: Piece, place: Place, home: Place) -> Scalar:
        """Text without white space is seen where the variable is used; other text where it is written."""
        if not any(c.isspace() for bit in bits if not bit.why for c in bit.text):
            origin = next((bit.origin or bit.place for bit in bits if bit.text), None)
            shown = [bit for bit in bits if bit.text or bit.why] or [*bits[:1]]
            moved = [bit._replace(place=place, width=0, home=home, quoted=True, origin=origin) for bit in shown]
            if moved:
                moved[0] = moved[0]._replace(width=piece.width)
            return tuple(moved)
        return tuple(bit._replace(quoted=piece.quoted) for bit in bits)

    def _length(self, value: Value, piece: Piece, place: Place, home: Place) -> Scalar:
        size = len(value) if isinstance(value, list) else sum(len(bit.text) for bit in value)
        if any(bit.why for bit in ((b for f in value for b in f.bits) if isinstance(value, list) else value)):
            return (self._unknown(f"${{#{piece.value}}}", place, piece, home, "is known when it runs"),)
        return (Bit(str(size), place, piece.width, home, piece.quoted),)

    def _trimmed(self, bits: Scalar, piece: Piece, place: Place, home: Place) -> Scalar:
        """`${NAME%pattern}` and its kin."""
        text = "".join(bit.text for bit in bits)
        pattern = "".join(each.value for each in piece.operand)
        if any(bit.why for bit in bits) or any(each.kind != "text" for each in piece.operand):
            return (self._unknown(f"${piece.value}", place, piece, home, "is changed before it is used"),)
        sizes = range(len(text) + 1)
        for size in sizes if len(piece.operator) == 1 else reversed(sizes):
            part = text[:size] if piece.operator[0] == "#" else text[len(text) - size :]
            if fnmatch.fnmatchcase(part, pattern):
                text = text[size:] if piece.operator[0] == "#" else text[: len(text) - size]
                break
        return (Bit(text, place, piece.width, home, True, origin=bits[0].origin or bits[0].place if bits else None),)

    def _number(self, name: str) -> int | None:
        value = self.variables.get(name)
        if is_whole(name):
            value = self.value(Piece("variable", name, 0, 0))
        if not isinstance(value, tuple):
            return None
        return Field(value).integer() if value else None

    def _said(self, script: Script, home: Place) -> Scalar | None:
        """What `$(cat <<EOF …)` and `$(echo …)` give."""
        if len(script.statements) != 1 or not isinstance(command := script.statements[0], Command):
            return None
        words = self.fields(command.words, home)
        if [word.text for word in words] == ["cat"] and command.heredoc is not None:
            return self.heredoc(command, home)
        if len(words) == 2 and words[0].text == "echo":
            return words[1].bits
        if len(words) == 2 and words[0].text == "basename" and words[1].known:
            bit = words[1].bits[-1]
            return (bit._replace(text=posixpath.basename(words[1].text.rstrip("/"))),)
        return None

    def heredoc(self, command: Command, home: Place) -> Scalar:
        """The text of a here-document; its words are at home where it begins."""
        return tuple(bit for piece in command.heredoc or () for bit in self.bits(piece, home))

    def plain(self, word: Word) -> str | None:
        """The text of a word in a test: an unset variable is empty, an unknown one None."""
        fields = self.expand(word, Place(self.path, word.at[0], word.at[1]))
        if len(fields) > 1:
            return None
        bits = fields[0].bits if fields else ()
        if any(bit.why and not bit.unset for bit in bits):
            return None
        return "".join("" if bit.unset else bit.text for bit in bits)


def merged(environments: list[Environment], home: Place) -> Environment:
    """What is known after branches of which one was taken."""
    first, *others = environments
    result = first.copy()
    for name in dict.fromkeys(name for each in environments for name in each.variables):
        values = [each.variables.get(name) for each in environments]
        if any(not _same(values[0], value) for value in values[1:]):
            result.variables[name] = _common(name, values, home)
    for other in others:
        result.functions = {**other.functions, **result.functions}
    return result


def _text(value: Value | None) -> object:
    if value is None:
        return None
    if isinstance(value, list):
        return [field.text for field in value]
    return "".join(bit.text for bit in value)


def _same(one: Value | None, other: Value | None) -> bool:
    return one is other or (type(one) is type(other) and _text(one) == _text(other))


def _common(name: str, values: list[Value | None], home: Place) -> Value:
    """What all the values begin with, and behind it something that depends."""
    rest = Bit(f"${name}", home, 0, home, why=f"`${name}` depends on a condition", many=True)
    if all(isinstance(value, list) for value in values):
        return [*_prefix([v for v in values if isinstance(v, list)], lambda f: f.text), Field((rest,))]
    scalars = [value for value in values if isinstance(value, tuple)]
    if len(scalars) == len(values):
        return (*_prefix([list(value) for value in scalars], lambda bit: (bit.text, bit.place)), rest)
    return (rest,)


def _prefix(rows: list[list], key) -> Iterator:  # type: ignore[no-untyped-def,type-arg]
    for items in zip(*rows, strict=False):
        if any(key(item) != key(items[0]) for item in items):
            return
        yield items[0]
