"""What a row depends on besides its settings: package versions, the processor, the source of classes it was given."""

from __future__ import annotations

import hashlib
import importlib.util
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

from bench import backends
from bench.configuration import Configuration

ALWAYS = ("meshproof", "torch", "transformers")
"""Packages whose version every row depends on."""
BY_ATTENTION = {
    "flash_attention_2": "flash-attn", "flash_attention_3": "flash-attn-3", "flash_attention_4": "flash-attn-4",
}  # fmt: skip
RING, LIGER = "ring-flash-attn", "liger-kernel"


def all_packages() -> list[str]:
    """All that any row may depend on."""
    return [*ALWAYS, *backends.packages(), *BY_ATTENTION.values(), RING, LIGER]


def packages(configuration: Configuration) -> list[str]:
    """The distributions whose version the row depends on; a class of somebody's own may use any backend, `auto` take
    any kernel, and so may a ring whose kernel is left to the machine."""
    backend = backends.find(configuration.backend)
    found = [*ALWAYS, *backend.needs, *backend.versioned]
    left_open = configuration.attn == "auto" or configuration.ring > 1 and configuration.attn == "sdpa"
    found += [package for kernel, package in BY_ATTENTION.items() if left_open or configuration.attn == kernel]
    if configuration.ring > 1:
        found.append(RING)
    return found + [LIGER] * (configuration.head == "liger")


def sources(configuration: Configuration) -> dict[str, str]:
    """Twelve digits over the source of each backend and loss that is named as `package.module:name`, by its name."""
    named = [name for name in (configuration.backend, configuration.loss) if ":" in name]
    return {name: digest for name in named if (digest := _hash(name.partition(":")[0].partition(".")[0]))}


@cache
def _hash(package: str) -> str:
    """Over every Python file of an importable package or module, whose own imports may lie anywhere in it; "" for one
    that is not found. Nothing of it is imported."""
    try:
        spec = importlib.util.find_spec(package)
    except (ImportError, ValueError):
        spec = None
    if spec is None:
        return ""
    digest = hashlib.sha256()
    for root in map(Path, spec.submodule_search_locations or [str(spec.origin)]):
        for file in sorted(root.rglob("*.py")) if root.is_dir() else [root]:
            digest.update(file.relative_to(root).as_posix().encode())
            digest.update(_content(file))
    return digest.hexdigest()[:12]


def _content(file: Path) -> bytes:
    try:
        return hashlib.sha256(file.read_bytes()).digest()
    except OSError:
        return b""


def differences(configuration: Configuration, then: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    """What has changed for the row between two environments (`environment.describe`), in words; what either does not
    say counts as unchanged."""
    found = []
    for package in packages(configuration):
        one, two = (dict(side.get("versions") or {}).get(package, "none") for side in (then, now))
        if one != two and then.get("versions") and now.get("versions"):
            found.append(f"{package} {one} → {two}")
    one, two = processor(then), processor(now)
    # Without a GPU here, what was measured on one is not measured again on a CPU.
    if one and two and one != two and not (gpu(then) and not gpu(now)):
        found.append(f"{one} → {two}")
    before, after = (dict(side.get("sources") or {}) for side in (then, now))
    return found + [f"the source of {name} has changed" for name in before if after.get(name, "") != before[name]]


def gpu(environment: Mapping[str, Any]) -> str:
    """The name of the GPUs of a host, which are alike; "" without any."""
    gpus = environment.get("gpus") or []
    return str(gpus[0].get("name", "")) if gpus else ""


def processor(environment: Mapping[str, Any]) -> str:
    """What a row was computed on: the kind of GPU, else of CPU; "" where that is not known."""
    return gpu(environment) or str(environment.get("cpu") or "")
