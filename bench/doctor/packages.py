"""Installed packages against what each backend needs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from importlib import metadata

from bench import backends
from bench.doctor.check import Check, failure, ok, warning
from bench.results import environment
from bench.sweep.availability import BENCH, install

PLAIN = ", ".join(name for name, one in backends.every().items() if not one.needs)
NEEDS = {
    PLAIN: ("torch", "transformers", "safetensors", "numpy"),
    **{name: ("torch", "transformers", *one.needs) for name, one in backends.every().items() if one.needs},
    "results": ("pyperf", "tabulate", "psutil", "tqdm"),
    "reports and comparisons": ("jinja2", "matplotlib", "scipy"),
    "recorded inputs": ("pyarrow",),
    "flash_attention_2": ("flash-attn",),
    "ring attention on GPUs": ("ring-flash-attn",),
}
"""Packages by what they are needed for."""

ON_GPU = ("flash_attention_2", "ring attention on GPUs")
ESSENTIAL = (PLAIN, "results")


def specifiers(distribution: str = "meshproof") -> dict[str, str]:
    """Version ranges by package, as this distribution declares them; empty where it runs from its source folder."""
    try:
        from packaging.requirements import InvalidRequirement, Requirement
    except ImportError:
        return {}  # it comes with transformers, whose absence has a line of its own
    try:
        lines = metadata.requires(distribution) or []
    except metadata.PackageNotFoundError:
        return {}
    found: dict[str, str] = {}
    for line in lines:
        try:
            requirement = Requirement(line)
        except InvalidRequirement:
            continue
        found.setdefault(requirement.name.lower().replace("_", "-"), str(requirement.specifier))
    return found


def checks(on_gpu: bool) -> Iterator[Check]:
    """One line for each thing that packages are needed for."""
    ranges = specifiers()
    for what, packages in NEEDS.items():
        if on_gpu or what not in ON_GPU:
            yield check(what, packages, ranges)


def check(what: str, packages: Sequence[str], ranges: dict[str, str]) -> Check:
    """Whether all of `packages` are there in versions that fit `ranges`."""
    versions = {package: environment.version(package) for package in packages}
    text = ", ".join(f"{package} {version or 'is not installed'}" for package, version in versions.items())
    name = f"for {what}"
    missing = [package for package, version in versions.items() if version is None]
    if missing:
        advice = install(missing[0], otherwise=BENCH)
        return failure(name, text, advice) if what in ESSENTIAL else warning(name, text, advice)
    for package, version in versions.items():
        wanted = ranges.get(package, "")
        if version is not None and wanted and not _fits(version, wanted):
            return warning(name, text, f"pip install '{package}{wanted}': bench is tested with that range")
    return ok(name, text)


def _fits(version: str, wanted: str) -> bool:
    from packaging.specifiers import SpecifierSet

    return SpecifierSet(wanted).contains(version, prereleases=True)
