"""Sizes that no machine here could have: more ranks than could run, or far more memory than there is."""

from __future__ import annotations

import os
from functools import cache

from bench import backends
from bench.configuration import Configuration
from bench.predict.memory import estimate
from bench.predict.sizes import layout
from bench.results import environment
from rules.models import ModelFacts

MOST_RANKS = 2**17
"""More than any cluster of GPUs has."""
RANKS_PER_CORE = 64
LARGEST_GPU = 288e9
"""Bytes of the largest GPU there is, for hosts whose GPUs are not seen from here."""
MARGIN = 2.0
"""Predictions are good to a tenth, and rows that only just run out of memory are worth a run: what is refused needs so
many times what there is."""


def impossible(configuration: Configuration, facts: ModelFacts, on_gpu: bool, here: bool) -> str:
    """Why there can be no such row, "" where there can; `here`: its ranks run on this host."""
    ranks, cores = configuration.num_gpus, os.cpu_count() or 1
    if ranks > MOST_RANKS:
        return f"{ranks:,} ranks: no cluster has as many"
    if here and not on_gpu and ranks > RANKS_PER_CORE * cores:
        return f"{ranks:,} processes on {cores} cores: at most {RANKS_PER_CORE} a core are started"
    if not backends.find(configuration.backend).predicted or not facts.countable:
        return ""
    predicted = estimate(facts, layout(configuration)).allocated
    if on_gpu:
        there = (environment.gpu_bytes() if here else 0.0) or LARGEST_GPU
        words = f"about {predicted / 1e9:,.0f} GB per GPU, which has {there / 1e9:.0f}"
    else:
        there, predicted = host_bytes() if here else 0.0, predicted * ranks
        words = f"about {predicted / 1e9:,.0f} GB of memory, this host has {there / 1e9:.0f}"
    return f"it would need {words}" if there and predicted > MARGIN * there else ""


@cache
def host_bytes() -> float:
    """Memory of this host; 0 where it does not say."""
    try:
        return float(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"))
    except (ValueError, OSError, AttributeError):
        return 0.0
