"""Finds the modules that declare a rule, and turns selectors into the set of enabled rules."""

from __future__ import annotations

import importlib
import importlib.util
import os
import sys
from collections.abc import Iterable, Iterator
from types import ModuleType
from typing import Any

from validator.errors import UsageError, nearest, told
from validator.rule import FAMILIES, Later, LoadedRule, Rule
from validator.run.cache import Cache

ALL = "ALL"
_CHECKS = ("check_file", "check_project", "check_change", "check_suppressions")
_HOOKS = (*_CHECKS, "fix", "about_line")
_FIELDS = ("code", "name", "severity", "stable_since", "tokens", "languages", "fix", "solves")

_LOOK_ALIKE = str.maketrans("OQILSBZ", "0011582")  # letters that are read, and typed, as digits

Row = tuple[str, str, tuple[str, ...], tuple[Any, ...]]  # family, module, its functions, the fields of its `Rule`


def load_rules(folders: Iterable[str] = (), errors: list[str] | None = None) -> list[LoadedRule]:
    """Every rule of the distribution and of the given folders, by code. Raises UsageError.

    A module of ours that cannot be imported is told in `errors` and left out; without `errors` it raises.
    """
    return _with_folders(_builtin(errors), folders)


def indexed_rules(folders: Iterable[str], errors: list[str], cache: Cache) -> list[LoadedRule]:
    """The same rules; the modules of ours are imported when they are first asked, if the cache has their index."""
    rows = cache.rules()
    try:
        known = [_of_row(row) for row in rows] if rows else []
    except Exception:  # of any other shape
        known = []
    if not known:
        known = _builtin(errors)
        if not errors:
            cache.save_rules([_row(each) for each in known])
    return _with_folders(known, folders)


def _builtin(errors: list[str] | None) -> list[LoadedRule]:
    return [_loaded(module, family) for family, module in _builtin_modules(errors)]


def _with_folders(loaded: list[LoadedRule], folders: Iterable[str]) -> list[LoadedRule]:
    for folder in folders:
        loaded += [_loaded(module, os.path.basename(folder)) for module in _modules_of_folder(folder)]
    seen: dict[str, LoadedRule] = {}
    for rule in loaded:
        for key in (rule.rule.code, rule.rule.name):
            if key in seen:
                raise UsageError(f"two rules call themselves {key}: {_place(seen[key])} and {_place(rule)}")
            seen[key] = rule
    return sorted(loaded, key=lambda each: each.rule.code)


def _place(rule: LoadedRule) -> str:
    if rule.module is None:
        return f"one of the family {rule.family} that comes with this program"
    return rule.module.__file__ or rule.module.__name__


def _row(each: LoadedRule) -> Row:
    """A rule of ours as the index holds it."""
    assert each.module is not None
    hooks = tuple(name for name in _HOOKS if getattr(each, name) is not None)
    return each.family, each.module.__name__, hooks, tuple(getattr(each.rule, name) for name in _FIELDS)


def _of_row(row: Row) -> LoadedRule:
    """Raises for what is no row."""
    family, module, hooks, fields = row
    if family not in FAMILIES.values() or not module.startswith(f"rules.{family}.") or not set(hooks) <= set(_HOOKS):
        raise ValueError(row)
    rule = Rule(**dict(zip(_FIELDS, fields, strict=True)))
    if not all(isinstance(text, str) for text in (*fields[:4], *rule.tokens, *rule.languages, rule.fix or "")):
        raise ValueError(row)
    later: dict[str, Any] = {name: Later(module, name) for name in hooks}
    return LoadedRule(rule, None, family, "", **later)


def _builtin_modules(errors: list[str] | None) -> Iterator[tuple[str, ModuleType]]:
    import rules

    home = os.path.dirname(os.path.abspath(rules.__file__ or ""))
    for family in sorted(set(FAMILIES.values())):
        for name in _dotted_names(os.path.join(home, family)):
            try:
                module = importlib.import_module(f"rules.{family}.{name}")
            except Exception as error:
                if errors is None:
                    raise
                path = name.replace(".", "/")
                errors.append(f"internal error: rules/{family}/{path}.py cannot be loaded: {told(error)}")
                continue
            yield family, module


def _dotted_names(folder: str) -> list[str]:
    """The modules of a folder of ours and of the folders in it, but for those whose names begin with `_`."""
    names = _module_names(folder)
    for below in sorted(entry.name for entry in os.scandir(folder) if entry.is_dir() and entry.name[0] not in "._"):
        names += [f"{below}.{name}" for name in _dotted_names(os.path.join(folder, below))]
    return names


def _module_names(folder: str) -> list[str]:
    """The modules of a folder; a name that begins with `_` is a helper, not a rule."""
    if not os.path.isdir(folder):
        return []
    return sorted(name[:-3] for name in os.listdir(folder) if name.endswith(".py") and not name.startswith("_"))


def _modules_of_folder(folder: str) -> Iterator[ModuleType]:
    if not os.path.isdir(folder):
        raise UsageError(f"{folder}: the folder of rules does not exist")
    for name in _module_names(folder):
        path = os.path.join(folder, name + ".py")
        if not os.path.isfile(path):  # importing would wait for the writer of a pipe
            raise UsageError(f"{path}: not a regular file; a folder of rules holds modules")
        # A name of its own: the folder need not be a package, and must not hide one of ours.
        spec = importlib.util.spec_from_file_location(f"_meshproof_rules_{name}_{abs(hash(path)):x}", path)
        if spec is None or spec.loader is None:
            raise UsageError(f"{path}: cannot be loaded as a rule")
        module = importlib.util.module_from_spec(spec)
        sys.modules[spec.name] = module
        try:
            spec.loader.exec_module(module)
        except KeyboardInterrupt:
            raise
        except BaseException as error:  # `sys.exit` at its end, where it was once a script
            raise UsageError(f"{path}: the rule cannot be loaded: {told(error)}") from error
        yield module


def _loaded(module: ModuleType, family: str) -> LoadedRule:
    rule = getattr(module, "RULE", None)
    if not isinstance(rule, Rule):
        raise UsageError(f"{module.__file__}: a rule module declares RULE = Rule(…); name a helper with a leading '_'")
    hooks = {name: getattr(module, name, None) for name in _CHECKS}
    if not any(hooks.values()):
        raise UsageError(f"{module.__file__}: a rule module defines check_file, check_project or check_change")
    return LoadedRule(
        rule=rule,
        module=module,
        family=family,
        doc=(module.__doc__ or "").strip(),
        fix=getattr(module, "fix", None),
        about_line=getattr(module, "about_line", None),
        incorrect=tuple(getattr(module, "INCORRECT", ())),
        correct=tuple(getattr(module, "CORRECT", ())),
        **hooks,
    )


def matches(selector: str, rule: Rule) -> bool:
    """Whether a selector (code, prefix of codes, name, or ALL) covers a rule."""
    if selector.upper() == ALL or selector == rule.name:
        return True
    return is_prefix(selector) and rule.code.startswith(selector.upper())


def is_prefix(selector: str) -> bool:
    """A code or the beginning of one: letters, then digits."""
    return selector.isalnum() and selector[:1].isalpha() and selector.rstrip("0123456789").isalpha()


def check_selectors(selectors: Iterable[str], rules: list[LoadedRule], where: str) -> None:
    """Raise UsageError for a selector that covers no rule."""
    for selector in selectors:
        if not any(matches(selector, each.rule) for each in rules):
            raise UsageError(f"{where}: unknown rule {selector!r}{meant(selector, rules)}")


def meant(selector: str, rules: list[LoadedRule]) -> str:
    """A hint at the code or name that a selector which covers no rule was meant to be; empty where none is close."""
    looks = selector.upper().translate(_LOOK_ALIKE)
    for each in rules:
        if each.rule.code.translate(_LOOK_ALIKE).startswith(looks):
            return f" (did you mean {each.rule.code[: len(selector)]!r}?)"
    return nearest(selector, [each.rule.code for each in rules] + [each.rule.name for each in rules])


def _strength(selectors: Iterable[str], rule: Rule) -> int:
    """How closely the best of the selectors names the rule; -1 if none does."""
    best = -1
    for selector in selectors:
        if matches(selector, rule):
            exact = selector == rule.name or selector.upper() == rule.code
            best = max(best, 100 if exact else 0 if selector.upper() == ALL else len(selector))
    return best


def enabled(
    rules: list[LoadedRule], select: Iterable[str], ignore: Iterable[str], extend_select: Iterable[str] = ()
) -> list[LoadedRule]:
    """The rules that are on: the closer of two selectors wins, and `ignore` wins a draw.

    `--select MP1 --ignore MP101` leaves one out; `--ignore MP1 --extend-select MP101` puts one back in.
    """
    select, ignore, extend_select = list(select) or [ALL], list(ignore), list(extend_select)
    chosen = []
    for each in rules:
        wanted = max(_strength(select, each.rule), _strength(extend_select, each.rule))
        if wanted > _strength(ignore, each.rule):
            chosen.append(each)
    return chosen
