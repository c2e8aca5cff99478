"""Follows shell scripts: which commands they run, with which words.

A script is taken as it runs when nobody sets a variable for it and gives it no arguments: `${GPUS:-8}` is 8,
`$1` is not given. Both branches of a test are followed; what the untaken one assigns is forgotten, and where it
cannot be told which is taken, what differs is not known afterwards. Loops over literal words are unrolled;
functions are followed where they are called; `source` reads the other script, where it is among the files.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from typing import NamedTuple, TypeVar

from validator.analysis.commands import shell_tests
from validator.analysis.commands.environment import Environment, merged
from validator.analysis.commands.fields import Field, Place, split_words
from validator.analysis.commands.pages import Pages
from validator.analysis.commands.wrappers import OPERATORS
from validator.facts.model import At
from validator.facts.script import (
    Assign,
    Branch,
    Chain,
    Command,
    For,
    Function,
    Group,
    Loop,
    Script,
    Statement,
    Word,
)
from validator.files.naming import paths_around
from validator.project import Project
from validator.source import SourceFile

Found = TypeVar("Found")

_STEPS = 4_000  # statements of one script, loops unrolled
_PASSES = 8  # of a loop
_DEPTH = 6  # of functions and sourced scripts
# What is sourced to find programs, and sets no variable of a recipe.
_ENVIRONMENTS = frozenset({
    "activate", ".bashrc", ".bash_profile", ".profile", ".zshrc", "conda.sh", "setvars.sh", "modules.sh",
})  # fmt: skip
_ENDS = ("exit", "return", "break", "continue", "exec")


class Run(NamedTuple):
    """A command that a script runs. `certain`: it stands under no condition. `outer`: the words of the command
    that it is handed to (`srun … bash -c "…"`). `devices`: what the script says of `CUDA_VISIBLE_DEVICES`."""

    path: str
    fields: tuple[Field, ...]
    at: At
    directives: tuple[tuple[str, str, At], ...]
    folder: Field | None
    certain: bool
    broken: bool
    outer: tuple[Field, ...] = ()
    devices: Field | None = None


class Scripts:
    """The shell scripts of a project."""

    def __init__(self, project: Project) -> None:
        self.project = project
        self.files: dict[str, SourceFile] = {
            source.absolute: source for source in project.files.values() if "script" in source.facts.extra
        }

    @cached_property
    def runs(self) -> tuple[Run, ...]:
        """Every command of every script, each once for each set of words."""
        return tuple(run for source in self.files.values() for run in self.of(source))

    @cached_property
    def shown(self) -> tuple[Run, ...]:
        """The commands that pages show, likewise."""
        return tuple(run for page in self.project.analysis(Pages).sources.values() for run in self.of(page))

    def file(self, path: str) -> SourceFile | None:
        """The file in which a command stands, by the path that the command has."""
        return self.project.files.get(path) or self.project.analysis(Pages).sources.get(path)

    def of(self, source: SourceFile) -> list[Run]:
        """The commands of one script."""
        walk = _Walk(self, source.path)
        script = source.facts.extra["script"]
        env = Environment(source.path)
        env.set_slurm(script)
        walk.directives = script.directives
        walk.all(script.statements, env)
        for function in list(env.functions.values()):
            if function.name not in walk.called:
                walk.all(function.body, env.copy())
        return list(walk.found.values())

    def near(self, path: Field, script: str) -> SourceFile | None:
        """The file that a path in a script means: from the folders around it, by what is known of its end."""
        tail = path.text if path.known else path.tail.lstrip("/")
        if not tail or (not path.known and "/" not in path.tail):
            return None
        return self.find(tail, script, self.files)

    def find(self, tail: str, script: str, files: dict[str, Found]) -> Found | None:
        """The file whose path ends so, nearest to a script or page, among files by their path (absolute)."""
        if tail.startswith("/"):
            return files.get(tail)
        source = self.file(script)
        around = paths_around(tail, source.absolute) if source is not None else ()
        return next((found for path in around if (found := files.get(path)) is not None), None)


class _Skip(Exception):
    """A pass of a loop over known values ends here."""

    def __init__(self, name: str) -> None:
        self.name = name


class _Walk:
    """One script on its way."""

    def __init__(self, scripts: Scripts, path: str) -> None:
        self.scripts = scripts
        self.found: dict[tuple[object, ...], Run] = {}
        self.directives: tuple[tuple[str, str, At], ...] = ()
        self.called: set[str] = set()
        self.outer: tuple[Field, ...] = ()
        self.steps = 0
        self.depth = 0
        self.unsure = 0
        self.passes = 0  # loops over known values around this place
        self.path = path

    def all(self, statements: tuple[Statement, ...], env: Environment) -> None:
        for statement in statements:
            self.steps += 1
            if self.steps > _STEPS:
                return
            self.one(statement, env)

    def one(self, statement: Statement, env: Environment) -> None:
        home = Place(env.path, statement.at[0], statement.at[1])
        match statement:
            case Assign():
                self.assign(statement, env, home)
            case Command():
                self.command(statement, env, home)
            case Branch():
                self.branch(statement, env, home)
            case Chain():
                self.chain(statement, env, home)
            case For():
                self.loop(statement, env, home)
            case Loop():
                self.repeat(statement, env, home)
            case Function():
                env.functions[statement.name] = statement
            case Group():
                self.all(statement.body, env.copy() if statement.isolated else env)

    # -- values --------------------------------------------------------------------------------------------

    def assign(self, row: Assign, env: Environment, home: Place) -> None:
        if row.keyword == "unset":
            env.variables.pop(row.name, None)
            return
        old = env.variables.get(row.name)
        if row.key:
            env.forget(row.name, f"`${row.name}` is filled item by item", home)
        elif row.items is not None:
            fields = env.fields(row.items, home)
            env.variables[row.name] = [*old, *fields] if row.append and isinstance(old, list) else fields
        elif row.value is not None:
            # the words of a text are at home where the text is: options in it are written together
            bits = tuple(bit for piece in row.value.pieces for bit in env.bits(piece, home))
            if row.append and isinstance(old, tuple):
                bits = (*old, *bits)
            env.variables[row.name] = bits
        elif not row.keyword and not row.append:  # `NAME=`
            env.variables[row.name] = ()

    # -- commands ------------------------------------------------------------------------------------------

    def command(self, row: Command, env: Environment, home: Place) -> None:
        if not row.words:
            for each in row.assigns:
                self.assign(each, env, home)
            return
        inside = env
        if row.assigns:  # `NAME=value command`: the command's words are expanded without it
            inside = env.copy()
            for each in row.assigns:
                self.assign(each, inside, home)
        fields = env.fields(row.words, home)
        if not fields:
            return
        name = fields[0].text if fields[0].known else ""
        if self._builtin(name, fields, row, env, home):
            return
        if name in env.functions and self.depth < _DEPTH:
            self.called.add(name)
            self._function(env.functions[name], fields[1:], env)
            return
        self.emit(row, fields, inside)
        if row.inner is not None:
            outer, self.outer = self.outer, tuple(fields)
            self._inner(row.inner, inside.copy())
            self.outer = outer

    def _inner(self, script: Script, env: Environment) -> None:
        outer = self.directives
        if script.directives:
            self.directives = script.directives
            env.set_slurm(script)
        self.all(script.statements, env)
        self.directives = outer

    def emit(self, row: Command, fields: list[Field], env: Environment) -> None:
        key = (env.path, row.at, tuple(field.text for field in fields))
        certain = self.unsure == 0
        devices = env.variables.get("CUDA_VISIBLE_DEVICES")
        run = Run(
            env.path, tuple(fields), row.at, self.directives, env.folder, certain, row.broken, self.outer,
            Field(devices) if isinstance(devices, tuple) else None,
        )  # fmt: skip
        self.found.setdefault(key, run)

    def _builtin(self, name: str, fields: list[Field], row: Command, env: Environment, home: Place) -> bool:
        match name:
            case "[" | "[[" | "((" | "test":
                for word in row.words if name == "((" and _changes(row) else ():
                    for variable in shell_tests.names([row._replace(words=(word,))]):
                        env.forget(variable, f"`${variable}` is counted", home)
            case "cd" | "pushd":
                env.folder = fields[1] if len(fields) > 1 else None
            case "read" | "mapfile" | "readarray":
                self._read(fields, row, env, home)
            case "source" | ".":
                self._source(fields[1:], env, home)
            case "shift":
                env.arguments = env.arguments[1:] if env.arguments else env.arguments
            case "set" if len(fields) > 1 and fields[1].text == "--":
                env.arguments = fields[2:]
            case "eval":
                self._eval(row, fields, env)
            case "continue" | "break" if self.passes:
                raise _Skip(name)
            case _:
                return False
        return True

    def _read(self, fields: list[Field], row: Command, env: Environment, home: Place) -> None:
        names = [f.text for f in fields[1:] if f.known and f.text.isidentifier()]
        if row.heredoc is not None and len(names) == 1:
            inside = row.heredoc[0] if row.heredoc else None
            begins = Place(env.path, inside.line, inside.column) if inside else home
            env.variables[names[0]] = env.heredoc(row, begins)
            return
        for name in names:
            env.forget(name, f"`${name}` is read when it runs", home)

    def _source(self, fields: list[Field], env: Environment, home: Place) -> None:
        other = self.scripts.near(fields[0], env.path) if fields else None
        if other is None and fields and fields[0].text.rpartition("/")[2] not in _ENVIRONMENTS:
            for name in [each for each in env.variables if not each.startswith("SLURM_")]:
                env.forget(name, f"`{fields[0].text}`, which is not here, may set it", home)
        if other is None or self.depth >= _DEPTH:
            return
        self.depth += 1
        script: Script = other.facts.extra["script"]
        inside = env.copy()
        inside.path = other.path
        if len(fields) > 1:
            inside.arguments = fields[1:]
        found, self.found = self.found, {}  # what the other script runs is told where it is read itself
        self.all(script.statements, inside)
        self.found = found
        inside.arguments = env.arguments
        env.take(inside)
        self.depth -= 1

    def _eval(self, row: Command, fields: list[Field], env: Environment) -> None:
        words = [word for field in fields[1:] for word in split_words(b._replace(quoted=False) for b in field.bits)]
        current: list[Field] = []
        for word in words:
            if word.text in OPERATORS:
                if current:
                    self.emit(row, current, env)
                current = []
                if word.text not in ("|", "||", "&&", ";", "&"):
                    return
            else:
                current.append(word)
        if current:
            self.emit(row, current, env)

    def _function(self, function: Function, arguments: list[Field], env: Environment) -> None:
        self.depth += 1
        outer, env.arguments = env.arguments, arguments
        self.all(function.body, env)
        env.arguments = outer
        self.depth -= 1

    # -- control -------------------------------------------------------------------------------------------

    def branch(self, row: Branch, env: Environment, home: Place) -> None:
        outcomes: list[Environment] = []
        settled = False
        decisive: set[str] = set()
        subject = env.plain(row.subject) if row.subject is not None else None
        for arm in row.arms:
            self.all(arm.test, env)
            held = self._held(row, arm.test, arm.patterns, subject, env)
            inside = env.copy()
            if held is not True:
                self._suppose(row, arm.test, arm.patterns, inside, home)
            for name in decisive:  # it is taken where the tests before it come out otherwise than they may do here
                inside.forget(name, f"`${name}` decides here", home)
            sure = held is True and not settled
            skipped = self.arm(arm.body, inside)
            if skipped is not None and sure:
                raise skipped
            if held is not False and not settled and not _ends(arm.body):
                outcomes.append(inside)
            settled = settled or held is True
            if held is not False:
                decisive |= shell_tests.names(arm.test)
        if not settled or not outcomes:
            outcomes.append(env)
        if any(each is not env for each in outcomes):
            env.take(merged([each.copy() for each in outcomes], home) if len(outcomes) > 1 else outcomes[0])

    def arm(self, body: tuple[Statement, ...], env: Environment) -> _Skip | None:
        """Follow a branch; what ends the pass of a loop in it is told, and raised where the branch is taken."""
        self.unsure += 1
        try:
            self.all(body, env)
        except _Skip as skip:
            return skip
        finally:
            self.unsure -= 1
        return None

    def _held(
        self, row: Branch, test: tuple[Statement, ...], patterns: tuple[str, ...], subject: str | None, env: Environment
    ) -> bool | None:
        if row.subject is None:
            return shell_tests.decide(test, env.plain) if test else True
        if "*" in patterns:
            return True
        if subject is None:
            return None
        return any(subject == pattern for pattern in patterns) or (
            None if any(set(p) & set("*?[$") for p in patterns) else False
        )

    def _suppose(
        self, row: Branch, test: tuple[Statement, ...], patterns: tuple[str, ...], env: Environment, home: Place
    ) -> None:
        """In a branch that is not taken by default, what the test speaks of is as the test says, or not known."""
        if row.subject is not None:
            test = (Command((row.subject,), (), None, None, row.at),)
        literal = shell_tests.equality(test) if row.subject is None else None
        for name in shell_tests.names(test):
            env.forget(name, f"`${name}` decides here", home)
        if literal is not None:
            env.variables[literal[0]] = tuple(b for p in literal[1].pieces for b in env.bits(p, home))
        if row.subject is not None and len(patterns) == 1 and not set(patterns[0]) & set("*?[$"):
            names = [piece for piece in row.subject.pieces if piece.kind == "variable"]
            if len(names) == 1 and names[0].value.isidentifier():
                word = Word((names[0]._replace(kind="text", value=patterns[0], operator="", operand=()),), row.at)
                env.variables[names[0].value] = tuple(b for p in word.pieces for b in env.bits(p, home))

    def chain(self, row: Chain, env: Environment, home: Place) -> None:
        self.all(row.left, env)
        held = shell_tests.decide(row.left, env.plain)
        if held is None and not _is_test(row.left) and row.operator == "&&":
            self.all(row.right, env)  # `cd x && torchrun …`: what is meant to succeed
            return
        inside = env.copy()
        taken = held if row.operator == "&&" or held is None else not held
        skipped = self.arm(row.right, inside)
        if skipped is not None and taken is True:
            raise skipped
        if taken is True and not _ends(row.right):
            env.take(inside)
        elif taken is None and _is_test(row.left) and not _ends(row.right):
            env.take(merged([env.copy(), inside], home))

    def loop(self, row: For, env: Environment, home: Place) -> None:
        values = env.fields(row.words, home) if row.words is not None else []
        if row.words is None or not values or len(values) > _PASSES or any(v.many for v in values):
            if row.name:
                env.forget(row.name, f"`${row.name}` changes from pass to pass", home)
            outer, self.passes = self.passes, 0
            self.all(row.body, env)
            self.passes = outer
            return
        self.passes += 1
        for value in values:
            env.variables[row.name] = value.bits
            try:
                self.all(row.body, env)
            except _Skip as skip:
                if skip.name == "break":
                    break
        self.passes -= 1

    def repeat(self, row: Loop, env: Environment, home: Place) -> None:
        self.all(row.test, env)
        before = env.copy()
        assigned = {each.name for each in _assigns(row.body)}
        inside = env
        for name in assigned:
            inside.forget(name, f"`${name}` changes from pass to pass", home)
        self.unsure += 1
        outer, self.passes = self.passes, 0
        self.all(row.body, inside)
        self.passes = outer
        self.unsure -= 1
        if shell_tests.names(row.test) & {"#", "1", "@"} or not shell_tests.names(row.test):
            env.take(before)  # it goes through the arguments, and there are none
            for name in sorted(assigned & env.variables.keys()):
                value = env.variables[name]
                if isinstance(value, tuple) and not any(bit.text or bit.why for bit in value):
                    env.forget(name, f"`${name}` is an argument of the script", home)  # it stays empty in no real run


def _changes(row: Command) -> bool:
    """Whether `((expression))` changes variables."""
    return any(piece.kind == "arithmetic" for word in row.words for piece in word.pieces)


def _is_test(statements: tuple[Statement, ...]) -> bool:
    if len(statements) != 1 or not isinstance(statements[0], Command) or not statements[0].words:
        return False
    first = statements[0].words[0].pieces
    return len(first) == 1 and first[0].value in ("[", "[[", "test", "((")


def _ends(body: tuple[Statement, ...]) -> bool:
    """Whether a body leaves the script, the function or the loop."""
    if not body:
        return False
    last = body[-1]
    if isinstance(last, Group):
        return _ends(last.body)
    if not isinstance(last, Command) or not last.words:
        return False
    return last.words[0].text in _ENDS


def _assigns(statements: tuple[Statement, ...]) -> Iterator[Assign]:
    for statement in statements:
        if isinstance(statement, Assign):
            yield statement
        elif isinstance(statement, Branch):
            for arm in statement.arms:
                yield from _assigns(arm.body)
        elif isinstance(statement, For | Loop | Group | Function):
            yield from _assigns(statement.body)
        elif isinstance(statement, Chain):
            yield from _assigns((*statement.left, *statement.right))
