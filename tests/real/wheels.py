"""Published OpenRLHF trees, as test input: fetched as wheels with pip, unpacked as zip files, never imported.

As a script it prints where the tree lies: `python tests/real/wheels.py 0.11.2`. Standard library only.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

# The wheels hold pure Python, yet each is tagged for one interpreter and platform.
PLATFORM = ("--platform=manylinux1_x86_64", "--implementation=cp", "--python-version=3.11", "--abi=cp311")

# SHA-256 of each wheel: the findings that the tests expect are those of exactly these files.
OPENRLHF = {
    "0.5.0": "bf311d564a53a51ac4bd17d782ddbbf00eb5f3371d15cd610bcaa748756b5274",
    "0.8.5": "e621b8b5aa586559faf45397b6afe01a925fc28d36fb11be0605d8a0cee08182",
    "0.9.10": "73bcf728975c5dc87bd1fabefd8da1128bf612c3c05f407de984f3f2f7ac67d9",
    "0.11.2": "c969d70db03a70724c3d8a5a01186c6e0728bce624fb3dff95e39b5396acefa6",
}


class NotFetched(Exception):
    """A wheel could not be had; the text says which and why."""


def cache_folder() -> Path:
    """Where fetched trees are kept between runs: a folder of the user's cache."""
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "meshproof-test-trees"


def openrlhf(version: str) -> Path:
    """The folder that holds the package `openrlhf` of that version. Raises `NotFetched`."""
    if version not in OPENRLHF:
        raise NotFetched(f"no OpenRLHF {version} is known here; known are {', '.join(OPENRLHF)}")
    tree = cache_folder() / f"openrlhf-{version}-{OPENRLHF[version][:12]}"
    if not tree.is_dir():
        tree.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=tree.parent, prefix=".fetch-") as folder:
            unpacked = _unpack(_download(version, Path(folder)), Path(folder) / "tree")
            _put(unpacked, tree)
    return tree


def _download(version: str, folder: Path) -> Path:
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--only-binary=:all:"]
    command += [*PLATFORM, "--dest", str(folder), f"openrlhf=={version}"]
    done = subprocess.run(command, capture_output=True, text=True, stdin=subprocess.DEVNULL, check=False)
    wheels = list(folder.glob("*.whl"))
    if done.returncode or len(wheels) != 1:
        reason = (done.stderr.strip() or "pip gave no reason").splitlines()[-1]
        raise NotFetched(f"OpenRLHF {version} could not be downloaded: {reason}")
    digest = hashlib.sha256(wheels[0].read_bytes()).hexdigest()
    if digest != OPENRLHF[version]:
        raise NotFetched(f"OpenRLHF {version}: the wheel's SHA-256 is {digest}, not {OPENRLHF[version]}")
    return wheels[0]


def _unpack(wheel: Path, folder: Path) -> Path:
    """Unpack the Python package alone, without the wheel's `*.data/purelib/` above it."""
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(folder)
    packages = [path for path in folder.rglob("openrlhf") if path.is_dir()]
    if len(packages) != 1:
        raise NotFetched(f"{wheel.name} holds {len(packages)} folders called openrlhf, not one")
    return packages[0].parent


def _put(source: Path, target: Path) -> None:
    """Move into place at once: a test run beside this one sees the whole tree or none."""
    try:
        os.replace(source, target)
    except OSError:
        if not target.is_dir():
            raise
        shutil.rmtree(source, ignore_errors=True)


def main() -> int:
    parser = argparse.ArgumentParser(description="Fetch a published OpenRLHF tree and print where it lies.")
    parser.add_argument("version", choices=list(OPENRLHF))
    try:
        print(openrlhf(parser.parse_args().version))
    except (NotFetched, OSError) as problem:
        print(f"error: {problem}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
