"""What a rule module declares, and how the engine finds the modules that declare it.

A rule is one module below `rules/` (or below a folder named in the configuration). It holds

- its docstring: a first sentence, then the sections `What it does`, `Why is this bad`, `References`
  (each a line of that text followed by indented or plain prose);
- `RULE = Rule(code=…, name=…, …)`;
- one of the functions `check_file(source)`, `check_project(project)` or `check_change(change)` (asked where
  two revisions are compared, see `validator.drift`), each yielding `RULE.finding(…)` values; `check_file` must
  depend on nothing but the `SourceFile` it is given, because its findings are cached under the content of that
  file (a rule about suppressions has `check_suppressions(path, comments)`, which is asked last: see
  `validator.run.suppressions`);
- optionally `fix(node, finding)`, which gets the LibCST node at the finding's place and returns its
  replacement (see `validator.run.fixes`);
- optionally `about_line(project, path, line)`, which yields what `--why` tells of a line: what the rule considered
  there, and why it is silent;
- `INCORRECT` and `CORRECT`: examples, which are its tests. In an incorrect example each line that must be
  reported ends in `# error: CODE`; nothing else may be reported by this rule. An example may hold several
  files, each begun by a line `# file: package/module.py` (see `validator.examples`).
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterable, Iterator
from types import ModuleType
from typing import Any, NamedTuple

from validator.finding import SEVERITIES, Finding, Fix, Related, Safety, Severity, Span

FAMILIES = {
    "MP0": "source",
    "MP1": "interface",
    "MP2": "names",
    "MP3": "options",
    "MP4": "parallelism",
    "MP5": "distributed",
    "MP6": "compilation",
    "MP7": "launch",
    "MP8": "loading",
    "MP9": "changes",
}


class Rule(NamedTuple):
    """The identity of a rule. `severity`: the gravest that a finding of it may have, earned by what was true on trees
    that nobody had looked at. `tokens`: a file that contains none of them cannot violate it. `languages`: of the files
    that it reads (`validator.files.languages`); a project rule is asked if there is one of them. `solves`: it asks the
    solver (`validator.flow`), as most rules of the families `distributed` and `compilation` do."""

    code: str
    name: str
    severity: Severity
    stable_since: str
    tokens: tuple[str, ...] = ()
    languages: tuple[str, ...] = ("python",)
    fix: Safety | None = None
    solves: bool = False

    def finding(
        self,
        path: str,
        span: tuple[int, int, int, int],
        message: str,
        *,
        help: str = "",
        related: Iterable[Related] = (),
        fix: Fix | None = None,
        context: str = "",
        severity: Severity | None = None,
    ) -> Finding:
        told = max(severity or self.severity, self.severity, key=SEVERITIES.index)
        return Finding(self.code, self.name, told, path, Span(*span), message, help, tuple(related), fix, context)


class Later(NamedTuple):
    """A function of a module that is imported when the function is first called."""

    module: str
    name: str

    def __call__(self, *arguments: Any) -> Any:
        return getattr(importlib.import_module(self.module), self.name)(*arguments)


class LoadedRule(NamedTuple):
    """A rule with the functions and texts of the module that declares it.

    Where only the index of the rules was read, there is no module, no text, and the functions are `Later` ones.
    """

    rule: Rule
    module: ModuleType | None
    family: str
    doc: str
    check_file: Callable[..., Iterator[Finding]] | None = None
    check_project: Callable[..., Iterator[Finding]] | None = None
    check_change: Callable[..., Iterator[Finding]] | None = None
    check_suppressions: Callable[..., Iterator[Finding]] | None = None
    fix: Callable[..., Any] | None = None
    about_line: Callable[..., Iterator[str]] | None = None
    incorrect: tuple[str, ...] = ()
    correct: tuple[str, ...] = ()
