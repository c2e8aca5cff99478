"""A keyword that what is called drops: no field of a model of pydantic, or none that a function reads of its `**`.

What it does
    Finds calls of the project's models of pydantic with a keyword that is no field of the model. Silent where the model
    keeps or refuses more than its fields (`extra`), fields go by other names (aliases), a validator or an `__init__` of
    its own looks at what is given before the fields are, or a base is not known. Likewise calls of a function that asks
    its `**kwargs` for certain keys and does nothing else with it, with a keyword that is none of them. Silent where the
    function never looks at its `**kwargs`, or another one of its name takes the keyword: it ignores on purpose what is
    meant for others.

Why is this bad
    The value is lost without a word, and the default is taken in its place.

References
    https://docs.pydantic.dev/latest/api/config/#pydantic.config.ConfigDict.extra
    https://docs.python.org/3/reference/compound_stmts.html#function-definitions
"""

from __future__ import annotations

from collections.abc import Iterator

from validator.analysis.interfaces.swallowed import keys_read
from validator.errors import nearest
from validator.facts.model import Argument, Guard
from validator.finding import Finding, Related
from validator.flow.constructors import PYDANTIC, Constructors
from validator.flow.objects import Objects
from validator.flow.program.flow import Flow
from validator.flow.queries.outside_program import is_test
from validator.project import Method, Project
from validator.rule import Rule

RULE = Rule("MP140", "keyword-dropped", "warning", stable_since="0.3.0", solves=True)


_UNPACKED = (None, "*", "**")


def check_project(project: Project) -> Iterator[Finding]:
    yield from _of_models(project)
    yield from _of_functions(project)


def _of_models(project: Project) -> Iterator[Finding]:
    constructors = project.analysis(Constructors)
    for cls in project.classes():
        params = constructors.of(cls) if not PYDANTIC.isdisjoint(cls.external_bases) else None
        if not params or params[-1].kind != "**" or cls.find("__init__") is not None:
            continue
        fields = [param.name for param in params[:-1]]
        for function, call in project.calls(cls.name):
            if is_test(function.path) or project.lookup(function, call.target) is not cls:
                continue
            for argument in call.args:
                if argument.keyword not in (*_UNPACKED, *fields) and not _is_tried(call.guards):
                    yield RULE.finding(
                        function.path,
                        argument.at,
                        f"`{cls.name}` has no field `{argument.keyword}` and drops it",
                        help=f"set a field that it has{nearest(str(argument.keyword), fields)}, or leave it out",
                        related=[Related(cls.path, cls.facts.name_at[0], f"`{cls.name}` is defined here")],
                        context=f"{function.qualname}:{cls.name}:{argument.keyword}",
                    )


def _of_functions(project: Project) -> Iterator[Finding]:
    flow, objects = project.analysis(Flow), project.analysis(Objects)
    by_name: dict[str, list[Method]] = {}
    for function in project.functions():
        by_name.setdefault(function.name, []).append(function)
    for function in project.functions():
        keys = keys_read(flow, function) if any(p.kind == "**" for p in function.facts.params) else frozenset()
        if not keys or is_test(function.path) or _is_overridden(function):
            continue
        taken = {p.name for each in by_name[function.name] for p in each.facts.params} | keys
        taken |= {key for each in by_name[function.name] if each is not function for key in keys_read(flow, each)}
        for caller, call in objects.callers(function):
            lost = [each for each in call.args if each.keyword not in (*_UNPACKED, *taken)]
            if not lost or is_test(caller.path) or _is_tried(call.guards):
                continue
            if objects.reaches_only(caller, call, function):
                yield from (_swallowed(function, caller, each, keys) for each in lost)


def _is_overridden(function: Method) -> bool:
    """Whether a class below, or above, has the method too: callers pass what one of them takes."""
    return (
        function.cls is not None
        and function.name != "__init__"
        and any(function.name in each.methods for each in function.cls.relatives if each is not function.cls)
    )


def _swallowed(function: Method, caller: Method, argument: Argument, keys: frozenset[str]) -> Finding:
    shown = function.name if function.cls is None else f"{function.cls.name}.{function.name}"
    named = sorted(keys | {p.name for p in function.facts.params if p.kind in ("any", "kw")})
    return RULE.finding(
        caller.path,
        argument.at,
        f"`{shown}` reads no `{argument.keyword}` of its `**` and drops it",
        help=f"pass what it reads{nearest(str(argument.keyword), named)}, or leave it out",
        related=[Related(function.path, function.facts.name_at[0], f"`{shown}` is defined here")],
        context=f"{caller.qualname}:{shown}:{argument.keyword}",
    )


def _is_tried(guards: tuple[Guard, ...]) -> bool:
    return any(guard.kind in ("try", "with") for guard in guards)


_CONFIG = """\
from pydantic import BaseModel{more}


class EnvConfig(BaseModel):
{body}    group_size: int = 4
    worker_timeout_seconds: float = 600.0


class CodeConfig(EnvConfig):
    language: str = "python"


def config(strategy):
    return CodeConfig(group_size=strategy.size, worker_timeout=7200){mark}
"""

_LOADER = """\
from torch.utils.data import DataLoader


def build_loader(dataset, batch_size, **options):
    workers = options.get("num_workers", 0)
    if "collate_fn" in options:
        return DataLoader(dataset, batch_size, num_workers=workers, collate_fn=options["collate_fn"])
    return DataLoader(dataset, batch_size, num_workers=workers, drop_last=options.pop("drop_last", False))


def train(args, dataset):
    train = build_loader(dataset, args.batch_size, {passed}=args.workers, drop_last=True){mark}
    test = build_loader(dataset, args.batch_size, num_workers=args.workers)
    return train, test
"""

INCORRECT = (
    _CONFIG.format(more="", body="", mark="  # error: MP140"),
    _LOADER.format(passed="n_workers", mark="  # error: MP140"),
)

CORRECT = (
    _LOADER.format(passed="num_workers", mark=""),
    # what is not read is looked at all the same: handed on, or refused
    _LOADER.replace("    if ", "    if options:\n        raise TypeError(options)\n    if ", 1).format(
        passed="n_workers", mark=""
    ),
    _LOADER.replace("False))", "False), **options)").format(passed="n_workers", mark=""),
    # it takes, and ignores, what another of its kind takes
    """
class Plain:
    def loss(self, logits, **options):
        return logits * options.get("scale", 1.0)


class Masked:
    def loss(self, logits, mask=None, **options):
        return (logits * mask).sum() * options.get("scale", 1.0)


def step(logits, mask):
    return Plain().loss(logits, mask=mask, scale=2.0)
""",
    _CONFIG.format(more=", ConfigDict", body='    model_config = ConfigDict(extra="allow")\n\n', mark=""),
    _CONFIG.replace("worker_timeout=", "worker_timeout_seconds=").format(more="", body="", mark=""),
    # an `__init__` that hands all of it on: the fields are what they are
    _CONFIG.replace("class CodeConfig(EnvConfig):", "{init}class CodeConfig(EnvConfig):").format(
        more="",
        body="    worker_timeout: int = 1\n",
        init="    def __init__(self, **data):\n        super().__init__(**data)\n\n\n",
        mark="",
    ),
    _CONFIG.format(more=", Field", body='    other: int = Field(1, alias="worker_timeout")\n', mark=""),
)
