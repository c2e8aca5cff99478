"""A name in `__all__` that the module does not have.

What it does
    Reports a string of a literal `__all__` that the module neither binds nor has as a submodule. Where nothing imports
    `*` from the module it is a warning of a package that can be installed, whose users may do so, and else a note.

Why is this bad
    `from package import *` raises AttributeError, and whoever trusts the list imports a name that is not there:
    usually a class was renamed or moved and the list was not.

References
    https://docs.python.org/3/tutorial/modules.html#importing-from-a-package
"""

from __future__ import annotations

from collections.abc import Iterator

from validator.errors import nearest
from validator.files.naming import is_installed
from validator.finding import Finding, Severity
from validator.project import Missing, Module, Project
from validator.rule import Rule

RULE = Rule("MP203", "exports-nothing", "error", stable_since="0.1.0", tokens=("__all__",))


def check_project(project: Project) -> Iterator[Finding]:
    for module in project.modules.values():
        for name, at in module.facts.exports or ():
            imported = module.facts.names.get(name) == "import"  # an import that fails is reported where it stands
            if not imported and isinstance(module.member(name), Missing):
                choices = [n for n in module.facts.names if n != "__all__"]
                yield RULE.finding(
                    module.path,
                    at,
                    f"`__all__` lists `{name}`, which the module does not define",
                    help=f"take it off the list, or define or import it{nearest(name, choices)}",
                    context=name,
                    severity=_severity(project, module),
                )


def _severity(project: Project, module: Module) -> Severity:
    """How grave it is: whether anybody imports all names."""
    if module.name.rpartition(".")[2] in project.starred:
        return RULE.severity
    return "warning" if module.is_package and is_installed(module.source.absolute) else "note"


INCORRECT = (
    """# file: rl/__init__.py
from .strategy import FSDP2Strategy

__all__ = [
    "FSDP2Strategy",
    "FSDPStrategy",  # error: MP203
]
# file: rl/strategy.py
class FSDP2Strategy:
    pass
""",
)

CORRECT = (
    """# file: rl/__init__.py
__all__ = ["strategy", "lazy"]
__all__ += ["more"]


def __getattr__(name):
    return name
# file: rl/strategy.py
""",
    """# file: rl/__init__.py
from torch.nn import *

__all__ = ["Linear", "__version__"]
""",
    """# file: rl/__init__.py
__all__ = ["actor"]
# file: rl/actor.py
""",
    """# file: rl/__init__.py
from .actor import Actor
from .version import __version__

__all__ = ["Actor", "__version__"]
# file: rl/actor.py
class Actor:
    pass
""",
)
