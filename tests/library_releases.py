"""Reads the signatures of libraries off their releases, and prints the table that MP150 and MP154 ask.

    python -m tests.library_releases transformers WHEELS > validator/models/signatures/transformers.toml

WHEELS is a folder of wheels or source archives of one library, one of each minor release (`pip download --no-deps`).
Nothing of them is imported or run.
"""

from __future__ import annotations

import argparse
import ast
import io
import itertools
import re
import sys
import tarfile
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

Version = tuple[int, int]

# By library: the modules whose public classes and functions are listed (`*` stands for a part of a path), and of
# functions only these; and the classes that users inherit from, whose own calls of their methods are listed.
SUBJECTS: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "transformers": (
        (
            "training_args", "training_args_seq2seq", "trainer", "trainer_seq2seq", "trainer_callback", "optimization",
            "data/data_collator", "hf_argparser", "utils/quantization_config",
        ),
        ("Trainer", "Seq2SeqTrainer", "TrainerCallback"),
    ),
    "trl": (("trainer/*", "scripts/utils", "models/modeling_value_head"), ("*Trainer",)),
    "accelerate": (("accelerator", "utils/dataclasses", "big_modeling", "state"), ()),
    "peft": (("tuners/*/config", "mapping", "mapping_func", "peft_model", "utils/other", "utils/save_and_load"), ()),
    "deepspeed": (("__init__", "runtime/zero/partition_parameters", "ops/adam/*"), ()),
    "pytorch_lightning": (("trainer/trainer", "callbacks/*", "strategies/*", "loggers/*"), ()),
}  # fmt: skip


_LISTED = {"TrainingArguments": "&transformers.TrainingArguments"}  # bases that another table lists
_DISPATCHED = {"TrainerCallback": ("CallbackHandler", "call_event")}  # who calls all methods `on_…`
# Bases, of whatever library, that have no `__init__` and no fields.
_WITHOUT_PARAMETERS = frozenset({"object", "ABC", "Generic", "str", "Enum", "PushToHubMixin", "nn.Module"})


class Parameter(NamedTuple):
    """One parameter: its name as written (`*args`), whether it may be left out, whether only a keyword gives it."""

    name: str
    optional: bool
    keyword: bool


class Release:
    """One release of one library. Of its modules only those are parsed that are asked for."""

    def __init__(self, archive: Path, library: str) -> None:
        self.library = library
        self.version = version_of(archive)
        self.texts: dict[str, str] = {}  # by path below the package, without the ending
        for name, text in texts_of(archive):
            _, between, inside = f"/{name}".partition(f"/{library}/")
            if between and "/tests/" not in name:
                self.texts.setdefault(inside.removesuffix(".py"), text)
        self._parsed: dict[str, ast.Module] = {}
        self._homes = {
            found: name for name, text in self.texts.items() for found in re.findall(r"(?m)^class (\w+)", text)
        }

    def module(self, name: str) -> ast.Module:
        if name not in self._parsed:
            self._parsed[name] = ast.parse(self.texts[name])
        return self._parsed[name]

    def cls(self, name: str) -> ast.ClassDef | None:
        """The class of a name, wherever it is in the library."""
        home = self._homes.get(name)
        body = self.module(home).body if home is not None else ()
        return next((each for each in body if isinstance(each, ast.ClassDef) and each.name == name), None)

    def subjects(self) -> Iterator[tuple[str, ast.ClassDef | ast.FunctionDef]]:
        """The public classes and functions that are listed, with their modules."""
        for pattern in SUBJECTS[self.library][0]:
            for name in sorted(self.texts):
                if re.fullmatch(pattern.replace("*", "[^/]*"), name):
                    for node in self.module(name).body:
                        if isinstance(node, ast.ClassDef | ast.FunctionDef) and not node.name.startswith("_"):
                            yield name, node

    def above(self, cls: ast.ClassDef, seen: frozenset[str] = frozenset()) -> list[ast.ClassDef | str]:
        """A class and those above it; those of other libraries by their names."""
        found: list[ast.ClassDef | str] = [cls]
        for base in cls.bases:
            name = ast.unparse(base).partition("[")[0].rpartition(".")[2]
            if name in _WITHOUT_PARAMETERS or name in seen:
                continue
            inside = self.cls(name)
            rest = self.above(inside, seen | {cls.name}) if inside is not None else [name]
            found += [each for each in rest if each not in found]
        return found

    def parameters(self, node: ast.ClassDef | ast.FunctionDef) -> list[Parameter] | None:
        """What calling it takes; None where that cannot be told."""
        if isinstance(node, ast.FunctionDef):
            return None if node.decorator_list else of_arguments(node.args)
        line = self.above(node)
        for each in line:
            if isinstance(each, str):
                return [Parameter(_LISTED[each], True, False)] if each in _LISTED else None
            if _defines(each, "__new__"):
                return None
            if (method := _defines(each, "__init__")) is not None:
                return _also(of_arguments(method.args)[1:], method)
            if is_dataclass(each):
                return self._fields(line)
        return []

    def _fields(self, line: list[ast.ClassDef | str]) -> list[Parameter] | None:
        """The parameters of a data class, those of the classes above it first."""
        found: dict[str, Parameter] = {}
        for cls in reversed(line):
            if isinstance(cls, str):
                if cls not in _LISTED:
                    return None
                found[_LISTED[cls]] = Parameter(_LISTED[cls], True, False)
            elif is_dataclass(cls):
                found.update((each.name, each) for each in fields_of(cls))
        return list(found.values())

    def own_calls(self, node: ast.ClassDef) -> Iterator[tuple[str, str, str]]:
        """How a class calls its own methods: `(name, "2 num_items_in_batch", calling method)`; see `shape`."""
        line = [each for each in self.above(node) if isinstance(each, ast.ClassDef)]
        defined = {each.name for cls in line for each in cls.body if isinstance(each, ast.FunctionDef)}
        if node.name in _DISPATCHED:
            events = [name for name in defined if name.startswith("on_")]
            yield from ((name, call, "") for name in events for call in self.dispatched(node.name, name))
        for cls in line:
            for method in (each for each in cls.body if isinstance(each, ast.FunctionDef)):
                if "signature(" in ast.unparse(method):
                    continue  # it asks first what an override takes
                optional = set(_under_options(method))
                for call in (each for each in ast.walk(method) if isinstance(each, ast.Call)):
                    name = ast.unparse(call.func)
                    if name.startswith("self.") and name[5:] in defined and _is_plain(call):
                        yield name[5:], shape(call), method.name + "?" * (call in optional)

    def dispatched(self, name: str, event: str) -> Iterator[str]:
        """How an event reaches the objects of a class: by the calls of `getattr(callback, event)`."""
        handler, method = _DISPATCHED[name]
        cls = self.cls(handler)
        through, own = (_defines(cls, each) if cls is not None else None for each in (method, event))
        calls = [each for each in ast.walk(own) if isinstance(each, ast.Call)] if own is not None else []
        also = [k.arg for call in calls for k in call.keywords if k.arg is not None]
        for call in ast.walk(through) if through is not None else ():
            if isinstance(call, ast.Call) and isinstance(call.func, ast.Call):
                yield " ".join([shape(call), *also])


def _under_options(method: ast.FunctionDef) -> Iterator[ast.AST]:
    """What is evaluated only where a setting of the object says so: under a test of its attributes."""
    for node in ast.walk(method):
        if isinstance(node, ast.If | ast.IfExp) and _asks_own_settings(node.test):
            for part in [node.body, node.orelse]:
                for each in part if isinstance(part, list) else [part]:
                    yield from ast.walk(each)


def _asks_own_settings(test: ast.expr) -> bool:
    asked = (ast.unparse(node) for node in ast.walk(test) if isinstance(node, ast.Attribute))
    return any(text.startswith("self.") and not text.startswith("self.control") for text in asked)


def shape(call: ast.Call) -> str:
    """How many positional arguments a call has, and the keywords that it surely passes."""
    return " ".join([str(len(call.args)), *(k.arg for k in call.keywords if k.arg is not None)])


def texts_of(archive: Path, endings: tuple[str, ...] = (".py",)) -> Iterator[tuple[str, str]]:
    """The paths and texts of the files in a wheel or a source archive whose names end in one of these ways."""
    if archive.suffix == ".whl":
        with zipfile.ZipFile(archive) as wheel:
            for name in wheel.namelist():
                if name.endswith(endings):
                    yield name, wheel.read(name).decode("utf-8", "replace")
        return
    with tarfile.open(archive) as source:
        for member in source:
            file = source.extractfile(member) if member.name.endswith(endings) else None
            if file is not None:
                yield member.name, io.TextIOWrapper(file, "utf-8", "replace").read()


def _defines(cls: ast.ClassDef, name: str) -> ast.FunctionDef | None:
    found = [each for each in cls.body if isinstance(each, ast.FunctionDef) and each.name == name]
    return found[-1] if found else None  # before it stand its overloads


def is_dataclass(cls: ast.ClassDef) -> bool:
    """Whether a class gets its constructor from its fields."""
    return any("init=False" not in text for text in _as_dataclass(cls))


def _as_dataclass(cls: ast.ClassDef) -> list[str]:
    texts = [ast.unparse(each) for each in cls.decorator_list]
    return [text for text in texts if text.partition("(")[0].rpartition(".")[2] == "dataclass"]


def _is_plain(call: ast.Call) -> bool:
    return not any(isinstance(a, ast.Starred) for a in call.args) and all(k.arg for k in call.keywords)


def of_arguments(args: ast.arguments) -> list[Parameter]:
    plain = [*args.posonlyargs, *args.args]
    first = len(plain) - len(args.defaults)
    found = [Parameter(a.arg, i >= first, False) for i, a in enumerate(plain)]
    found += [Parameter(f"*{args.vararg.arg}", True, False)] if args.vararg else []
    found += [
        Parameter(a.arg, default is not None, True)
        for a, default in zip(args.kwonlyargs, args.kw_defaults, strict=True)
    ]
    return found + ([Parameter(f"**{args.kwarg.arg}", True, False)] if args.kwarg else [])


def _also(found: list[Parameter], method: ast.FunctionDef) -> list[Parameter]:
    """With the names that decorators speak of: `@deprecate_kwarg("tokenizer", …)` still takes them."""
    known = {each.name for each in found}
    texts = [n.value for d in method.decorator_list for n in ast.walk(d) if isinstance(n, ast.Constant)]
    names = [t for t in dict.fromkeys(texts) if isinstance(t, str) and t.isidentifier() and t not in known]
    return found + [Parameter(name, True, True) for name in names]


def _renamed(method: ast.FunctionDef) -> Iterator[tuple[str, str]]:
    """The parameters that decorators give other names: `@deprecate_kwarg("tokenizer", new_name="processing_class")`."""
    for each in method.decorator_list:
        if isinstance(each, ast.Call) and each.args and isinstance(each.args[0], ast.Constant):
            new = next((k.value for k in each.keywords if k.arg == "new_name"), None)
            if isinstance(new, ast.Constant):
                yield str(each.args[0].value), str(new.value)


def fields_of(cls: ast.ClassDef) -> Iterator[Parameter]:
    """The parameters that the fields of a data class, or of a named tuple, are."""
    keyword = any("kw_only=True" in text for text in _as_dataclass(cls))
    for row in cls.body:
        if not isinstance(row, ast.AnnAssign) or not isinstance(row.target, ast.Name):
            continue
        kind, value = ast.unparse(row.annotation), row.value
        given = {k.arg: ast.unparse(k.value) for k in value.keywords} if isinstance(value, ast.Call) else {}
        is_field = isinstance(value, ast.Call) and ast.unparse(value.func).rpartition(".")[2] == "field"
        keyword |= kind.rpartition(".")[2] == "KW_ONLY"
        if "ClassVar" in kind or given.get("init") == "False" or kind.rpartition(".")[2] == "KW_ONLY":
            continue
        optional = bool(given.keys() & {"default", "default_factory"}) if is_field else value is not None
        yield Parameter(row.target.id, optional, keyword or given.get("kw_only") == "True")


# -- all releases ------------------------------------------------------------------------------------------


def ranges(held: set[Version], there: list[Version]) -> str:
    """The releases, from the first to the last, that hold something: ` 4.41-`, ` -4.45`, ` 4.37-4.45`; empty: all."""
    first, last = min(held), max(held)
    low = "" if first == there[0] else ".".join(map(str, first))
    high = "" if last == there[-1] else ".".join(map(str, last))
    return f" {low}-{high}" if low or high else ""


def merged(rows: dict[Version, list[Parameter]], there: list[Version]) -> list[str]:
    """The parameters of all releases in one list, in the order of the newest, each with the releases that have it."""
    order: list[str] = []
    for version in sorted(rows, reverse=True):
        before = -1
        for each in rows[version]:
            if each.name in order:
                before = max(before, order.index(each.name))
            else:
                before += 1
                order.insert(before, each.name)
    seen = {name: {v: each for v, row in rows.items() for each in row if each.name == name} for name in order}
    last_plain = max((i for i, n in enumerate(order) if not all(p.keyword for p in seen[n].values())
                      and not n.startswith("**")), default=-1)  # fmt: skip
    words: list[str] = []
    for index, name in enumerate(order):
        starred = name.startswith(("*", "&"))
        separated = any(w.startswith("*") and " " not in w for w in words)
        if index == last_plain + 1 and not name.startswith("**") and not separated:
            words.append("*")
        held = [v in seen[name] for v in there]
        torn = sum(one != other for one, other in itertools.pairwise([False, *held, False])) > 2
        optional = "=" if not starred and (torn or any(p.optional for p in seen[name].values())) else ""
        words.append(f"{name}{optional}{ranges(set(seen[name]), there)}")
    return words


def version_of(archive: Path) -> Version:
    found = re.search(r"-(\d+)\.(\d+)", archive.name)
    assert found is not None, archive
    return int(found[1]), int(found[2])


def table(library: str, archives: list[Path]) -> Iterator[str]:
    """The lines of the table."""
    there = [version_of(each) for each in archives]
    calls: dict[str, dict[Version, list[Parameter]]] = {}
    hooks: dict[str, dict[tuple[str, str], set[Version]]] = {}  # by method, call and caller
    spoiled: set[str] = set()
    instead: dict[str, str] = {}
    for release in (Release(each, library) for each in archives):
        for home, node in release.subjects():
            params = release.parameters(node)
            name = (
                node.name
                if isinstance(node, ast.ClassDef) or home == "__init__"
                else f"{home.replace('/', '.')}.{node.name}"
            )
            if params is None or release.version in calls.get(name, {}):
                spoiled.add(name)
            else:
                calls.setdefault(name, {})[release.version] = params
            method = _defines(node, "__init__") if isinstance(node, ast.ClassDef) else None
            instead.update((f"{name}.{old}", new) for old, new in (_renamed(method) if method is not None else ()))
            if isinstance(node, ast.ClassDef) and any(
                re.fullmatch(p.replace("*", ".*"), node.name) for p in SUBJECTS[library][1]
            ):
                for method, called, caller in release.own_calls(node):
                    made = hooks.setdefault(f"{node.name}.{method}", {})
                    made.setdefault((called, caller), set()).add(release.version)
    newest = ".".join(map(str, there[-1]))
    yield f"# Signatures of {library}, read off its releases {'.'.join(map(str, there[0]))} to {newest} by"
    yield "# `tests/library_releases.py`: `=` marks a parameter with a default, `*` begins the keyword-only ones, `&`"
    yield "# the parameters of a class of another table; behind a name stand the releases that take it, if not all do."
    yield "# `hooks`: how the library calls methods that users override: positional arguments, keywords, callers"
    yield "# (`?`: only where a setting asks for it)."
    yield f'library = "{library}"'
    yield f'releases = "{" ".join(".".join(map(str, v)) for v in there)}"'
    yield "\n[calls]"
    for name in sorted(calls.keys() - spoiled):
        words = merged(calls[name], sorted(calls[name]))
        if any(w.startswith("**") and " " not in w for w in words) or not words:
            continue  # it takes any keyword
        since = ranges(set(calls[name]), there)
        key = f'"{name}"' if "." in name else name
        yield f"{key} = {_list([f'({since.strip()})'] * bool(since) + words)}"
    yield "\n[instead]"
    yield from (f'"{name}" = "{new}"' for name, new in sorted(instead.items()))
    yield "\n[hooks]"
    for name in sorted(hooks):
        callers: dict[tuple[Version, str, str], list[str]] = {}
        for (called, caller), held in hooks[name].items():
            callers.setdefault((min(held), called, ranges(held, there)), []).append(f" @{caller}" if caller else "")
        shapes = [f"{called}{''.join(sorted(by))}{there_in}" for (_, called, there_in), by in sorted(callers.items())]
        yield f'"{name}" = {_list(shapes)}'


def _list(words: list[str]) -> str:
    """A list of texts as TOML, on lines of their own where it is long."""
    lines = ["   "]
    for word in words:
        if len(lines[-1]) + len(word) > 115:
            lines.append("   ")
        lines[-1] += f' "{word}",'
    return f"[{lines[0].strip().rstrip(',')}]" if len(lines) == 1 else "\n".join(["[", *lines, "]"])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("library", choices=sorted(SUBJECTS))
    parser.add_argument("wheels", type=Path)
    given = parser.parse_args()
    lines = table(given.library, sorted(given.wheels.iterdir(), key=version_of))
    sys.stdout.write("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
