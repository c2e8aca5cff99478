"""Backends as commands, predictions and reports know them, without torch: one module each, found by itself.

A module here has `BACKEND`, a `Backend`. Its strategy, which needs torch, is imported where ranks run.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import TYPE_CHECKING, Any, ClassVar

from bench import registry
from bench.predict.layout import Layout
from bench.predict.moments import Constants, Elements, Moments
from rules.models import ModelFacts

if TYPE_CHECKING:
    from bench.configuration import Configuration
    from bench.strategies.base import Strategy


class Backend:
    """What is to be known of a backend. Subclasses say what is otherwise than here, which holds for one that keeps
    whole parameters on every rank and has no stages."""

    name = ""
    first = False
    """Whether it runs where no backend is named."""
    needs: ClassVar[Mapping[str, str]] = {}
    """Packages without which it cannot run, besides torch and transformers, each with what installs it."""
    planned_for: ClassVar[Mapping[str, str]] = {}
    """Versions of packages that plans are made for."""
    versioned: tuple[str, ...] = ()
    """Further packages on whose version its rows may depend."""
    preload: tuple[str, ...] = ()
    """Modules that a server of ranks imports before it forks them."""
    stages: tuple[int, ...] = ()
    """Values of `zero_stage`, which other backends do not have."""
    own: tuple[str, ...] = ()
    """Settings that no other backend reads."""
    tried: tuple[str, ...] = ()
    """Variants that `bench tune` tries unless it is told which."""
    debugged_whole = False
    """Whether DEBUG_DISABLE_FSDP=1 takes a backend in its place that has the whole model on every rank."""
    runs = True
    """Whether `bench` can run it; else plans of whole jobs alone know it."""
    predicted = True
    """Whether its memory can be predicted."""
    splits_head = True
    """Whether tensor parallelism splits the weight of the head."""
    splits_embedding = False
    """Whether tensor parallelism splits the embedding, too, tied or not."""
    keeps_gradients = False
    """Whether gradients have a buffer that is always there, and goes to the host with the parameters."""
    splits_vocabulary = False
    """Whether tensor-parallel ranks hold logits of their part of the vocabulary only."""
    overlaps_tp = False
    """Whether --async-tp has something to overlap."""
    offloads_parameters = False
    """Whether --cpu-offload keeps parameters on the host, too."""

    def strategy(self, config: Configuration) -> Strategy:
        """What runs on every rank. Imports torch and the backend."""
        raise NotImplementedError

    def variants(self) -> Mapping[str, Mapping[str, Any]]:
        """By name: the settings of each way to run it."""
        return {self.short(stage): {"backend": self.name, "zero_stage": stage} for stage in self.stages} or {
            self.name: {"backend": self.name}
        }

    def short(self, stage: int) -> str:
        """What rows call it."""
        return self.name

    def shards_parameters(self, stage: int) -> bool:
        """Whether each rank keeps a part of the parameters."""
        return False

    def graph_mode(self, stage: int, compile: str) -> str:
        """The compile mode in the words of the table of constraints."""
        return compile

    def smaller(self, configuration: Configuration) -> str:
        """What of the backend can be changed so that a rank needs less memory, as flags; "" where nothing can."""
        return ""

    def keeps_whole_gradients(self, configuration: Configuration) -> bool:
        """Whether gradients stay as the backward pass makes them until the step, with no buffer beside them."""
        return False

    def gathers_head_whole(self, layout: Layout) -> bool:
        """Whether the chunked head is called once, with all positions."""
        return False

    def moments(self, facts: ModelFacts, layout: Layout, n: Elements, constants: Constants) -> Moments:
        """The memory model. Raises `NotImplementedError` where `predicted` is false."""
        raise NotImplementedError

    def times_sent(self, layout: Layout) -> float:
        """How often a rank sends its share of all parameters in a step, to reduce gradients and gather parameters."""
        return 2.0

    def quantities(self, stage: int) -> dict[str, Any]:
        """The backend in the words of the table of constraints."""
        return {"backend": self.name, "zero_stage": stage if self.stages else None}


def _named(runs: bool) -> Mapping[str, Backend]:
    found = [module.BACKEND for module in registry.modules(__name__, __path__).values()]
    return {backend.name: backend for backend in found if backend.name and backend.runs == runs}


@cache
def every() -> Mapping[str, Backend]:
    """All backends with a name that can be run, by it."""
    return _named(runs=True)


@cache
def planned() -> Mapping[str, Backend]:
    """Those that plans of whole jobs alone know."""
    return _named(runs=False)


def names() -> tuple[str, ...]:
    return tuple(every())


def first() -> str:
    """What runs where no backend is named."""
    return next((name for name, backend in every().items() if backend.first), names()[0])


def packages() -> tuple[str, ...]:
    """Of all backends: what their rows may depend on the version of."""
    return tuple(dict.fromkeys(each for one in (*every().values(), find("")) for each in (*one.needs, *one.versioned)))


def find(name: str) -> Backend:
    """The backend of a name; any other name is a class of somebody's own."""
    from bench.backends.external import External

    return every().get(name) or planned().get(name) or External(name)


def variants() -> dict[str, Mapping[str, Any]]:
    """Every way to run every backend: settings by name, such as `zero2`."""
    return {name: changes for backend in every().values() for name, changes in backend.variants().items()}


def without_foreign(configuration: Configuration) -> dict[str, Any]:
    """The defaults of the settings that only other backends read."""
    kept = find(configuration.backend).own
    foreign = {name for backend in every().values() for name in backend.own if name not in kept}
    return {name: getattr(type(configuration), name) for name in foreign}


__all__ = ["Backend", "every", "find", "first", "names", "packages", "planned", "variants", "without_foreign"]
