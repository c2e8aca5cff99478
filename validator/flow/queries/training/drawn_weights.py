"""Models whose weights each rank draws for itself, and of which ranks share nothing but gradients."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from validator.domains.axes import WHOLE
from validator.domains.spmd import only
from validator.flow.calls.groups import axes_in
from validator.flow.program.unit import Unit
from validator.flow.queries.base import Place
from validator.flow.queries.outside_program import is_aside
from validator.flow.queries.ranks.random_draws import Seed, Seeds
from validator.flow.queries.training.unreduced_models import (
    TRAINED,
    Program,
    UnreducedModels,
    is_below,
    is_handed_on,
)
from validator.project import Project

_GRADIENT = "grad"
_LIBRARY = "torch"
# What may give a model other weights than those that its constructor has drawn.
_WRITING = frozenset({
    "load_state_dict", "apply", "reset_parameters", "init_weights", "vector_to_parameters", "copy_", "set_",
    "swap_tensors", "load", "load_model", "load_checkpoint", "from_pretrained",
})  # fmt: skip


class Drawn(NamedTuple):
    """A model that is `made` after a `seed` that is another one on each rank, and the call that reduces gradients."""

    made: Place
    seed: Seed
    reduced: Place


def drawn_apart(project: Project) -> Iterator[Drawn]:
    """The models that optimizers train in programs which reduce gradients by hand, with weights of each rank's own."""
    models = project.analysis(UnreducedModels)
    told: set[Place] = set()
    for optimizer, given in models.optimizers():
        makers = [] if is_aside(optimizer.unit.path) else models.behind(given).makers
        for made in (each for each in makers if each not in told):
            told.add(made)
            seed = _seed(made)
            reduced = _reduced_alone(models, made, optimizer) if seed is not None else None
            if seed is not None and reduced is not None:
                yield Drawn(made, seed, reduced)


def _seed(made: Place) -> Seed | None:
    """The seed from which a model draws its weights, where all that may be in force surely are others on each rank."""
    seeds = Seeds.of(made.flow, _LIBRARY)
    found = seeds.before(made) if not seeds.is_seeding(made) else []
    surely = all(any(cause.sure for cause in only(seed.causes, "data")) for seed in found)
    on_host = not any("cuda" in seed.own.operand(0).text for seed in found)  # which leaves the host's state alone
    return found[0] if found and surely and on_host else None


def _reduced_alone(models: UnreducedModels, made: Place, optimizer: Place) -> Place | None:
    """The call that reduces gradients over all ranks, in all programs that make a model; None where one of them may do
    something else to its weights, or share them."""
    found: Place | None = None
    for program in models.programs_of(made.unit):
        reducing = [call for call in program.calls if _reduces(models, call)]
        if not reducing or any(_replaces_tensors(models, unit) for unit in program.units):
            return None
        if any(_may_share(program, call, made, optimizer, reducing) for call in program.calls):
            return None
        found = found or reducing[0]
    return found if made not in models.wrapped_somewhere else None


def _replaces_tensors(models: UnreducedModels, unit: Unit) -> bool:
    """Whether a function gives a tensor other data: `parameter.data = …`; not its own object, as `self.data = …`."""
    stores = (each for each in models.queries.values(unit, "store_attr") if each.value.data == "data")
    return any(not unit.is_receiver(store.operand(0).root.number) for store in stores)


def _reduces(models: UnreducedModels, call: Place) -> bool:
    """Whether a call is a reduction over all ranks of what is made of gradients, and of nothing else of a model."""
    whole = [o for o in call.operations if o.row.equal is not None and "reduce" in o.name and o.sure]
    if not whole or len(whole) < len(call.operations) or len(call.value.args) < 2:
        return False
    name, position = whole[0].row.equal
    given = call.argument(name, position)
    behind = models.behind(given, but=_GRADIENT) if given is not None else None
    return (
        behind is not None
        and _GRADIENT in behind.words
        and behind.known
        and not behind.makers
        and not any("param" in word or "state_dict" in word for word in behind.words)
        and all(axes_in(o.group) == WHOLE for o in whole)
    )


def _may_share(program: Program, call: Place, made: Place, optimizer: Place, reducing: list[Place]) -> bool:
    """Whether a call may give a model weights that others have, or hand it to who may."""
    models = program.models
    if call in reducing:
        return False
    if call.method in _WRITING and not models.makes_model(call):
        owner = models.behind(call.receiver, but=_GRADIENT) if call.receiver is not None else None
        return owner is None or not owner.known or made in owner.seen
    if any(is_below(name, models.gradients["reducing"]) for name in program.names(call)):
        return True
    if call.operations and not any(o.row.waits or o.row.result in ("group", "mesh") for o in call.operations):
        given = models.behind(*(call.value_at(number) for number in call.value.args[1:]))
        handed = any(p.value.op == "param" and is_handed_on(p.unit) for p in given.seen)
        return handed or any(word in name for name in program.words_of(given) for word in TRAINED)
    return program.takes(call, made, optimizer)
