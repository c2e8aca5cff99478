"""The harness: measures training strategies, and says beforehand what a configuration should take.

`python -m` puts the working directory first on the import path, where a `json.py` or `rules/` lying in it would stand
in for another. Importing this package moves it to the end: classes and losses of one's own are still found there.
A directory with its own `bench/` is found by `python -m bench` before this file is; there, use the console script
`meshproof-bench`. Ranks are started with PYTHONSAFEPATH, so that they find this package wherever they are started.
"""

import sys


def ours_first() -> None:
    """Move the working directory to the end of the import path; make `validator` and `rules` those beside this."""
    import os

    here, home = os.getcwd(), os.path.dirname(os.path.dirname(os.path.realpath(__file__)))
    sys.path.insert(0, home)
    import validator

    if home in sys.path:  # which the guard of `validator` removes where it is the working directory
        sys.path.remove(home)
    validator.pin_packages()
    places = [os.path.realpath(entry or ".") for entry in sys.path]
    if sys.argv[:1] == ["-m"] and not getattr(sys.flags, "safe_path", False) and places[:1] == [os.path.realpath(here)]:
        del sys.path[0]
    if here not in sys.path:
        sys.path.append(here)


if sys.argv[:1] == ["-m"]:  # what `sys.argv` holds while `python -m` looks for the module
    try:
        ours_first()
    except OSError:  # the working directory is gone: nothing can be imported from it
        sys.path[:] = [entry for entry in sys.path if entry not in ("", ".")]
