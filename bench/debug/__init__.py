"""Looking into a model that is spread over processes.

    from bench import debug

    debug.breakpoint()             all ranks stop here; rank 0 has a prompt, and `c` lets all go on together
    with debug.log_shapes(model):  what goes into and comes out of a forward pass, on every rank
    DEBUG_DISABLE_FSDP=1           `fsdp2` holds the whole model on every rank (environment variable)

`python -m bench run --break before-forward --log-shapes` does the first two without a change to any code.
"""

from __future__ import annotations

from bench.debug.pause import breakpoint
from bench.debug.shapes import log_shapes
from bench.debug.sharding import sharding_disabled

__all__ = ["breakpoint", "log_shapes", "sharding_disabled"]
