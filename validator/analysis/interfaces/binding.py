"""Whether a call fits a signature, by Python's rules for binding arguments to parameters."""

from __future__ import annotations

from typing import NamedTuple

from validator.analysis.interfaces.decorators import Decorators
from validator.facts.model import Argument, At, Call, Param
from validator.project import Method


class Misfit(NamedTuple):
    """Why a call does not bind. `kind`: `too-many`, `unknown-keyword`, `missing`, `twice`; `name` the parameter."""

    kind: str
    name: str
    message: str
    at: At


def parameters(function: Method, *, bound: bool | None = None) -> tuple[Param, ...]:
    """The parameters that a caller fills: without `self` or `cls` where the call goes through an object."""
    params = function.facts.params
    skip = function.is_method if bound is None else bound
    return params[1:] if skip and params and params[0].kind in ("any", "pos") else params


def signature(function: Method) -> str:
    """The signature as a reader would write it, without annotations: `save_ckpt(model, save_dir, tag=None)`."""
    return written(function.name, parameters(function))


def written(name: str, params: tuple[Param, ...]) -> str:
    """A name and its parameters as a reader would write them."""
    parts, seen_star = [], False
    for param in params:
        if param.kind == "kw" and not seen_star:
            parts.append("*")
            seen_star = True
        seen_star |= param.kind == "*"
        star = {"*": "*", "**": "**"}.get(param.kind, "")
        parts.append(f"{star}{param.name}" + (f"={param.default}" if param.default is not None else ""))
    return f"{name}({', '.join(parts)})"


def bind(function: Method, call: Call, *, bound: bool | None = None) -> dict[str, Argument]:
    """Parameter name to argument, as far as the call shows it (unpacked arguments are left out)."""
    params = parameters(function, bound=bound)
    plain = [p for p in params if p.kind in ("any", "pos")]
    names = {p.name for p in params if p.kind in ("any", "kw")}
    found: dict[str, Argument] = {}
    index = 0
    for argument in call.args:
        if argument.keyword is None:
            if index < len(plain):
                found[plain[index].name] = argument
            index += 1
        elif argument.keyword == "*":
            index = len(plain)
        elif argument.keyword in names:
            found[argument.keyword] = argument
    return found


def misfit(function: Method, call: Call, *, bound: bool | None = None) -> Misfit | None:
    """The first reason for which calling `function` so raises TypeError; None where it binds or cannot be told."""
    return misfit_of(parameters(function, bound=bound), call)


def misfit_of(params: tuple[Param, ...], call: Call, *, partial: bool = False) -> Misfit | None:
    """The same for parameters alone; of a `partial` call arguments may be missing."""
    plain = [p for p in params if p.kind in ("any", "pos")]
    takes_star = any(p.kind == "*" for p in params)
    takes_keywords = any(p.kind == "**" for p in params)
    star = any(a.keyword == "*" for a in call.args)
    double_star = any(a.keyword == "**" for a in call.args)
    positional = call.positional
    if not takes_star and len(positional) > len(plain):
        extra = positional[len(plain)]
        counted = f"{len(plain)} positional argument{'s' * (len(plain) != 1)}"
        return Misfit("too-many", "", f"takes {counted}, {len(positional)} given", extra.at)
    filled = {p.name for p in plain[: len(positional)]}
    by_keyword = {p.name for p in params if p.kind in ("any", "kw")}
    for argument in call.args:
        if argument.keyword in (None, "*", "**"):
            continue
        assert argument.keyword is not None
        if argument.keyword in filled and argument.keyword in by_keyword:
            return Misfit(
                "twice",
                argument.keyword,
                f"gets {argument.keyword!r} by position and by keyword",
                argument.at,
            )
        if argument.keyword not in by_keyword and not takes_keywords:
            return Misfit("unknown-keyword", argument.keyword, f"has no parameter {argument.keyword!r}", argument.at)
        filled.add(argument.keyword)
    if not star and not double_star and not partial:
        required = [p.name for p in params if p.default is None and p.kind in ("any", "pos", "kw")]
        missing = [name for name in required if name not in filled]
        if missing:
            return Misfit("missing", missing[0], f"needs {', '.join(map(repr, missing))}", call.at)
    return None


def advice(misfit: Misfit) -> str:
    """What to do about a call that does not bind."""
    return {
        "unknown-keyword": f"drop `{misfit.name}`, or add the parameter",
        "missing": f"pass `{misfit.name}`, or give it a default",
        "too-many": "drop what is no longer taken, or name the arguments",
        "twice": f"pass `{misfit.name}` once",
    }[misfit.kind]


_KEEPING = frozenset({
    "staticmethod", "classmethod", "abstractmethod", "abc.abstractmethod", "torch.no_grad", "torch.inference_mode",
    "torch.enable_grad", "no_grad", "inference_mode", "contextmanager", "contextlib.contextmanager", "override",
    "typing.override", "functools.cache", "functools.lru_cache", "cache", "lru_cache", "torch.compile", "ray.method",
})  # fmt: skip


def keeps_signature(function: Method) -> bool:
    """Whether the decorators of a function are known to leave its parameters as they are written."""
    others = [each for each in function.facts.decorators if each.removesuffix("()") not in _KEEPING]
    if not others:
        return True
    decorators = function.module.project.analysis(Decorators)
    return all(decorators.hands_on(function, each) for each in others)
