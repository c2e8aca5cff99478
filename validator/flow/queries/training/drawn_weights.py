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
from validator.flow.queries.ranks.random_draws import Seed, Seeds, draws
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


_INIT = "torch.nn.init."
_MODULES = "torch.nn."
_MEMBERS = frozenset({"parameters", "named_parameters", "modules", "named_modules", "children", "named_children"})
_EACH = "*"


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
            seed = _seed(made) if _draws(models, made) else None
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


def _draws(models: UnreducedModels, made: Place) -> bool:
    """Whether the constructor of a model may leave weights that it has drawn: neither does it write constants over each
    layer that draws some, nor does it draw them from a generator of its own."""
    units = _constructing(models, made)
    calls = [call for unit in units for call in models.queries.calls_in(unit)]
    if not units or any(_may_draw(models, call) for call in calls):
        return True
    written = {name for call in calls for name in _written(models, call)}
    layers = {name for call in calls if (name := _drawn_layer(models, call)) is not None}
    return bool(layers) and _EACH not in written and not layers <= written


def _constructing(models: UnreducedModels, made: Place) -> list[Unit]:
    """What runs where a model is made; nothing where that is not of the project alone."""
    methods = [o[1].find("__init__") if o[0] == "class" else None for o in made.operand(0).closed.each]
    known = [method for method in methods if method is not None]
    return models.queries.reached(models.flow.units(iter(known))) if len(known) == len(methods) else []


def _may_draw(models: UnreducedModels, call: Place) -> bool:
    """Whether anything but a layer of torch may draw weights: tensors that are drawn, and models of other libraries."""
    words = models.flow.models.tensors
    names = _names(models, call)
    if any(name.startswith(_INIT) for name in names):
        return call.method not in words["constant"] and "generator" not in call.value.data.names
    if "generator" in call.value.data.names or any(name.startswith(_MODULES) for name in names):
        return False
    return draws(call) or call.method in words["drawing"] or bool(names) and models.makes_model(call)


def _drawn_layer(models: UnreducedModels, call: Place) -> str | None:
    """The attribute in which a layer is kept that draws its weights where it is made; empty of one that is not kept."""
    undrawn = models.flow.models.tensors["undrawn"]
    layers = [name.removeprefix(_MODULES) for name in _names(models, call) if name.startswith(_MODULES)]
    if not any(name.isidentifier() and name[:1].isupper() and name not in undrawn for name in layers):
        return None
    kept = (user.value.data for user in call.users if user.value.op == "store_attr")
    return str(next(kept, ""))


def _written(models: UnreducedModels, call: Place) -> Iterator[str]:
    """The attributes whose weights a call sets to what all ranks have; `*` of all parameters, one after the other."""
    given, words = _filled(models, call), models.flow.models.tensors
    alike = call.method in words["overwriting"] or call.method in words["constant"]
    if given is None or not (alike or "generator" in call.value.data.names):
        return
    decided = any(test.value.op != "more" for test in call.tests_inside)
    path = [part.value.data for part in given.parts if part.value.op == "attr"]
    if not decided and not _MEMBERS.isdisjoint(path):
        yield _EACH
    elif not decided and "bias" not in path:
        yield from (str(name) for name in path)
        yield from filter(None, (_drawn_layer(models, part) for part in given.parts if part.value.op == "call"))


def _filled(models: UnreducedModels, call: Place) -> Place | None:
    """The tensor whose numbers a call replaces: by a function of `torch.nn.init`, or in place."""
    if any(name.startswith(_INIT) for name in _names(models, call)):
        return call.argument("tensor", 0)
    words = models.flow.models.tensors
    return call.receiver if call.method in words["overwriting"] or call.method in words["drawing"] else None


def _names(models: UnreducedModels, call: Place) -> list[str]:
    return [models.flow.models.named(o[1]) for o in call.operand(0).val.of("ext")]


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
    filled = _filled(models, call)
    if filled is not None and call.unit not in _constructing(models, made):
        return made in models.behind(filled, but=_GRADIENT).seen
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
