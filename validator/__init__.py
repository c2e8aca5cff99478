"""The validator: reads training code, proves or refutes what it can from the source, and runs none of it.

Importing this package as `python -m validator` first takes the working directory off `sys.path`. `python -m`
puts it there, and the working directory is usually the tree that is read: without this a `json.py` or a
`libcst/` lying in it would be imported and run. Nothing but `sys` and `os` (which every interpreter has
loaded before) is imported until that is done.

What this cannot help: a tree that holds its own `validator/` package is found by `python -m validator`
before this file is, and Python 3.10 looks for `runpy` itself there. Where that matters use the console
script `meshproof`, or `python -P -m validator` (3.11) or `python -I -m validator`: none of these ever looks
into the working directory.
"""

import sys

__version__ = "0.1.0"

_PACKAGES = ("rules", "bench")


class _Siblings:
    """Finds the packages of this distribution beside this one, and nothing else that lies there.

    They have plain names: without this, some other `rules` on the path could stand in for ours, and a
    checkout used as working directory could not be found at all once it has left `sys.path`.
    """

    def __init__(self, home: str) -> None:
        self.home = home

    def find_spec(self, name, path=None, target=None):  # type: ignore[no-untyped-def]
        if path is not None or name not in _PACKAGES:
            return None
        from importlib.machinery import PathFinder

        return PathFinder.find_spec(name, [self.home], target)


def _leave_working_directory() -> None:
    """Take the working directory off the import path; keep our own packages importable."""
    import os

    here = os.path.realpath(os.getcwd())
    libraries = ("site-packages", "dist-packages", os.path.basename(os.path.dirname(os.__file__)))

    def stays(index: int, entry: str) -> bool:
        if os.path.realpath(entry or ".") != here:
            return True
        # Standing inside an installation is the one way in which a proper entry names the working directory.
        return index > 0 and os.path.basename(here) in libraries

    sys.path[:] = [entry for index, entry in enumerate(sys.path) if stays(index, entry)]
    pin_packages()


def pin_packages() -> None:
    """Make `rules` and `bench` the ones of this distribution, whatever else is on the path (once)."""
    import os

    if not any(isinstance(finder, _Siblings) for finder in sys.meta_path):
        home = os.path.dirname(os.path.dirname(os.path.realpath(__file__)))
        sys.meta_path.insert(0, _Siblings(home))


if sys.argv[:1] == ["-m"]:  # what `sys.argv` holds while `python -m` looks for the module
    try:
        _leave_working_directory()
    except OSError:  # the working directory is gone: then nothing can be imported from it either
        sys.path[:] = [entry for entry in sys.path if entry not in ("", ".")]
