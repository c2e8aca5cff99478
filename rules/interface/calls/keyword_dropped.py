"""A keyword that a model of pydantic has no field for, and drops.

What it does
    Finds calls of the project's models of pydantic with a keyword that is no field of the model. Silent where the model
    keeps or refuses more than its fields (`extra`), fields go by other names (aliases), a validator or an `__init__` of
    its own looks at what is given before the fields are, or a base is not known.

Why is this bad
    pydantic ignores what it has no field for, unless it is told otherwise: the value is lost without a word, and the
    default is taken in its place.

References
    https://docs.pydantic.dev/latest/api/config/#pydantic.config.ConfigDict.extra
"""

from __future__ import annotations

from collections.abc import Iterator

from validator.errors import nearest
from validator.facts.model import Guard
from validator.finding import Finding, Related
from validator.flow.constructors import PYDANTIC, Constructors
from validator.flow.queries.outside_program import is_test
from validator.project import Project
from validator.rule import Rule

RULE = Rule("MP140", "keyword-dropped", "warning", stable_since="0.3.0", solves=True)


def check_project(project: Project) -> Iterator[Finding]:
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
                if argument.keyword not in (None, "*", "**", *fields) and not _is_tried(call.guards):
                    yield RULE.finding(
                        function.path,
                        argument.at,
                        f"`{cls.name}` has no field `{argument.keyword}` and drops it",
                        help=f"set a field that it has{nearest(str(argument.keyword), fields)}, or leave it out",
                        related=[Related(cls.path, cls.facts.name_at[0], f"`{cls.name}` is defined here")],
                        context=f"{function.qualname}:{cls.name}:{argument.keyword}",
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

INCORRECT = (_CONFIG.format(more="", body="", mark="  # error: MP140"),)

CORRECT = (
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
