"""The facts of one file: plain, immutable, picklable records that every rule reads.

A *path* is a dotted chain as written, with calls and subscripts reduced to their shape:
`self.strategy.backward`, `get_strategy().prepare`, `self.models[].step`. A chain that begins with
anything else than a name begins with `?`. An `at` is (line, column, end line, end column), from 1.
"""

from __future__ import annotations

from typing import Any, NamedTuple

At = tuple[int, int, int, int]


class Guard(NamedTuple):
    """A condition that holds where a fact stands. `text` is its source, white space folded.

    `kind`: `if` (a test, an earlier `if …: return`, an assert, the left of `and`/`or`), `try` (text: the
    exception names that a handler around the place catches, or `*` for a bare one), `loop` (text: the
    header), `with` (text: the context managers).
    """

    kind: str
    text: str
    negated: bool
    line: int


class Param(NamedTuple):
    """A parameter. `kind`: `pos` (positional only), `any`, `kw` (keyword only), `*` or `**`."""

    name: str
    kind: str
    default: str | None
    annotation: str
    at: At


class Argument(NamedTuple):
    """One argument of a call. `keyword` is a name, None (positional), `*` or `**`.

    `value` is the source text (folded, at most 160 characters); `kind` is `path`, `call` (then `value` is
    the path called), `const`, `tuple`, `lambda` or `other`.
    """

    keyword: str | None
    kind: str
    value: str
    at: At


class Call(NamedTuple):
    """A call. `use` says what becomes of the result: `discard`, `value`, `return`, `await`,
    `unpack:N` (N targets), `unpack:*` (a starred target), `attribute`, `subscript` or `iterate`.
    `name_at` is the place of the called name itself (the last link of the path).
    """

    target: str
    args: tuple[Argument, ...]
    use: str
    guards: tuple[Guard, ...]
    at: At
    name_at: At

    @property
    def receiver(self) -> str:
        return self.target.rpartition(".")[0]

    @property
    def method(self) -> str:
        return self.target.rpartition(".")[2]

    def keyword(self, name: str) -> Argument | None:
        return next((a for a in self.args if a.keyword == name), None)

    @property
    def positional(self) -> tuple[Argument, ...]:
        return tuple(a for a in self.args if a.keyword is None)


class Ref(NamedTuple):
    """An attribute chain that is read, written or deleted (calls have their own record)."""

    path: str
    context: str  # load, store, del
    guards: tuple[Guard, ...]
    at: At
    name_at: At


class Assign(NamedTuple):
    """A binding. `target` is a path; `kind` is that of `Argument`, or `unpack:I/N`, `for`, `with`, `aug`, `none`.

    `value` is the path or text bound (for `call`: the path called; for `for`: the iterable).
    """

    target: str
    kind: str
    value: str
    annotation: str
    guards: tuple[Guard, ...]
    at: At


class Return(NamedTuple):
    """A return. `kind`: `none`, `const`, `tuple` (then `arity`), `call`, `path` or `other`; `value` its text."""

    kind: str
    arity: int
    value: str
    guards: tuple[Guard, ...]
    at: At


class Function(NamedTuple):
    """A function, a method, or the top level of a module (`<module>`) or of a class body (`<class>`).

    `owner` is the qualified name of the class whose body holds it, or empty. `stub` is empty, or `pass`,
    `ellipsis`, `raise` (a lone NotImplementedError), `constant`, `docstring`. `bound` are its local names.
    `falls` says that control can reach the end of the body without a return.
    """

    name: str
    qualname: str
    owner: str
    at: At
    name_at: At
    params: tuple[Param, ...]
    returns_annotation: str
    decorators: tuple[str, ...]
    is_async: bool
    is_generator: bool
    stub: str
    falls: bool
    bound: frozenset[str]
    calls: tuple[Call, ...]
    refs: tuple[Ref, ...]
    assigns: tuple[Assign, ...]
    returns: tuple[Return, ...]
    guards: tuple[Guard, ...]

    @property
    def is_static(self) -> bool:
        return "staticmethod" in self.decorators

    @property
    def is_classmethod(self) -> bool:
        return "classmethod" in self.decorators or self.name in ("__new__", "__init_subclass__")

    @property
    def is_property(self) -> bool:
        return any(d in PROPERTY_DECORATORS or d.endswith((".setter", ".getter", ".deleter")) for d in self.decorators)

    @property
    def is_abstract(self) -> bool:
        return any(d.rpartition(".")[2].startswith("abstract") for d in self.decorators)

    @property
    def is_overload(self) -> bool:
        return any(d.rpartition(".")[2] == "overload" for d in self.decorators)


PROPERTY_DECORATORS = frozenset({
    "property", "cached_property", "functools.cached_property", "abc.abstractproperty", "abstractproperty",
})  # fmt: skip


class Class(NamedTuple):
    """A class. `bases` are paths; `attributes` are the names bound in its body with their annotations."""

    name: str
    qualname: str
    at: At
    name_at: At
    bases: tuple[str, ...]
    keywords: tuple[tuple[str, str], ...]
    decorators: tuple[str, ...]
    attributes: tuple[tuple[str, str], ...]
    guards: tuple[Guard, ...]


class Import(NamedTuple):
    """One imported name. `import a.b as c` has module `a.b`, name None; `from .x import y` has level 1."""

    module: str
    name: str | None
    asname: str | None
    level: int
    scope: str
    guards: tuple[Guard, ...]
    at: At

    @property
    def bound_as(self) -> str:
        return self.asname or self.name or self.module.partition(".")[0]


class Unresolved(NamedTuple):
    """A name that is read and that nothing in the file binds where it is read."""

    name: str
    scope: str
    at: At


class Problem(NamedTuple):
    """Why a file could not be read as Python: `syntax`, `encoding`, `nul`, `conflict`, `nesting`, or `newer`
    (right, but by a grammar newer than that of the interpreter that runs us)."""

    kind: str
    line: int
    column: int
    message: str


class FileFacts(NamedTuple):
    """Everything that rules may ask about one file without reading it again.

    Files of other languages than Python say their `language`, and keep what they hold under `extra`:
    `script` (`facts.script.Script`) or `settings` (`facts.config_files.Settings`).
    """

    problem: Problem | None = None
    imports: tuple[Import, ...] = ()
    functions: tuple[Function, ...] = ()
    classes: tuple[Class, ...] = ()
    # module-level name -> import, class, def, assign
    names: dict[str, str] = {}  # noqa: RUF012
    exports: tuple[tuple[str, At], ...] | None = None  # literal __all__
    star_imports: tuple[tuple[str, int], ...] = ()  # (module, level)
    unresolved: tuple[Unresolved, ...] = ()
    dynamic: bool = False  # module-level __getattr__, globals() writes, exec: any name may exist
    lines: int = 0
    texts: tuple[str, ...] = ()  # the texts in the code that have no white space, each once
    # facts of the specialised extractors, by their name
    extra: dict[str, Any] = {}  # noqa: RUF012
    language: str = "python"
