"""What all tests share: no test touches the user's cache, and no test is failed by a busy machine."""

from __future__ import annotations

import os

import pytest
from hypothesis import HealthCheck, settings

collect_ignore_glob = ["data/*"]

# Under CI each run tries the same examples, so that a change is judged by what it changed.
settings.register_profile(
    "shared",
    deadline=None,
    derandomize=bool(os.environ.get("CI")),
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("shared")


@pytest.fixture(scope="session", autouse=True)
def _own_environment(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Keep the validator's cache, in this process and in those it starts, inside the test run's folder, and nobody's
    width of a terminal."""
    os.environ["MESHPROOF_CACHE_DIR"] = str(tmp_path_factory.mktemp("cache"))
    os.environ.pop("COLUMNS", None)  # tables are whole in files and pipes
    os.unsetenv("COLUMNS")  # readline sets it past `os.environ`, for the processes started here
