"""Blocks of ranks that begin one apart, while each has several ranks.

What it does
    Looks for functions that add the own rank of a worker to a parameter (`rank = dist.get_rank() + rank_offset`): a
    group of workers takes a block of ranks that begins there. Reports a loop over such groups that gives each a
    beginning one after the other (`i + 1`), in a call that is also given the number of all ranks as a product of two
    sizes (`engines * tensor_parallel_size + 1`). Methods that hand the parameter on under the same name are followed,
    also through Ray, and on objects of which nothing but the name of the method is known.

Why is this bad
    With more than one worker in a group two workers take the same rank and the last ranks are nobody's: the group is
    never complete, and all wait until the store times out. With one worker in each nothing shows.

References
    https://docs.vllm.ai/en/latest/examples/offline_inference/rlhf.html
    https://docs.pytorch.org/docs/stable/distributed.html#torch.distributed.init_process_group
"""

from __future__ import annotations

from collections.abc import Iterator

from validator.finding import Finding, Related
from validator.flow.queries.base import Place, Queries
from validator.flow.queries.origins import passing
from validator.flow.queries.outside_program import is_test
from validator.flow.queries.values.polynomials import Polynomial, polynomial
from validator.project import Project
from validator.rule import Rule

RULE = Rule("MP443", "blocks-overlap", "warning", "1.1", tokens=("rank",), solves=True)


def check_project(project: Project) -> Iterator[Finding]:
    queries = project.analysis(Queries)
    told: set[Place] = set()
    for adding, parameter in _beginnings(queries):
        for handed in _under_same_name(queries, parameter):
            for call, given in (*passing(handed), *_by_name(queries, handed)):
                total = _total(call, given) if given is not None and call not in told else None
                if given is not None and total is not None and not is_test(call.unit.path):
                    told.add(call)
                    yield _report(call, given, total, adding)


def _beginnings(queries: Queries) -> Iterator[tuple[Place, Place]]:
    """Where a function adds the own rank to a parameter, and that parameter."""
    ranks = queries.flow.models.ranks
    for unit in queries.beside(*ranks["names"], *ranks["methods"], *ranks["attributes"]):
        for place in queries.values(unit, "binary"):
            if place.value.data != "Add":
                continue
            for one, other in ((0, 1), (1, 0)):
                parameter = place.operand(other).root
                if parameter.value.op == "param" and place.operand(one).closed.of("ordinal"):
                    yield place, parameter


def _under_same_name(queries: Queries, parameter: Place) -> Iterator[Place]:
    """A parameter, and those of methods of the same name that have one called so: they hand it on."""
    name, unit = parameter.hint, parameter.unit
    for each in queries.flow.mentions.units(unit.name):
        for place in queries.values(each, "param") if each.name == unit.name else ():
            if place.hint == name:
                yield place


def _by_name(queries: Queries, parameter: Place) -> Iterator[tuple[Place, Place | None]]:
    """The calls by the name of a method on objects of which nothing is known, also through Ray, with what they pass."""
    unit, position = parameter.unit, parameter.value.data[0] - 1
    for each in queries.mentioning(unit.name) if unit.has_receiver else ():
        for call in queries.calls_in(each):
            callee = call.operand(0).root
            asked = callee.operand(0).root if call.method == "remote" and callee.value.op == "attr" else callee
            site = call.result.sites.get(call.number)
            named = asked.value.op == "attr" and asked.value.data == unit.name and (site is None or not site.targets)
            if named and not any(o[0] == "ext" and o[1][0] != "~" for o in asked.operand(0).closed.each):
                yield call, call.argument(parameter.hint, position)


def _total(call: Place, given: Place) -> Place | None:
    """The number of all ranks that a call is given, where the blocks that it counts are longer than the steps by which
    a loop makes them begin."""
    step = polynomial(given).growth(_is_counted)
    if step is None or step.atoms or step.constant != 1:
        return None
    others = (call.value_at(number) for number in call.value.args[1:])
    return next((each for each in others if each.root != given.root and _is_of_blocks(polynomial(each))), None)


def _is_of_blocks(total: Polynomial) -> bool:
    """Whether a number counts groups of workers times workers."""
    products = [monomial for monomial in total.terms if monomial]
    return len(products) == 1 and len(products[0]) == 2 and not any(_is_counted(atom.place) for atom in products[0])


def _is_counted(place: Place) -> bool:
    """Whether a value is the number of the round: the first of `enumerate`, or what goes through a range."""
    position, value = -1, place.value
    if value.op == "unpack":
        position, place = value.data[0], place.operand(0).root
    if place.value.op != "next":
        return False
    iterable = place.operand(0).root.gone_through.root
    if iterable.value.op != "call":
        return False
    return iterable.method == "enumerate" and position == 0 or iterable.method == "range" and position < 0


def _report(call: Place, given: Place, total: Place, adding: Place) -> Finding:
    return RULE.finding(
        call.unit.path,
        given.seen_from(call),
        f"`{given.text}`{call.where} begins each block of ranks one after the block before, and there are"
        f" `{total.text}` ranks: groups of several workers overlap, as `{adding.unit.qualname}` adds the rank in the"
        " group",
        help="multiply the number of the group by the number of its workers",
        related=[
            Related(total.root.unit.path, total.root.at[0], "all ranks are counted here"),
            Related(adding.unit.path, adding.at[0], "the rank in the group is added here"),
        ],
        context=f"{call.unit.qualname}:{given.text}",
    )


_WORKER = """\
# file: worker.py
import torch.distributed as dist


class WorkerExtension:
    def init_group(self, address, port, rank_offset, world_size):
        self.rank = dist.get_rank() + rank_offset
        self.group = connect(address, port, self.rank, world_size)


def connect(address, port, rank, world_size):
    return address, port, rank, world_size
# file: engine.py
import ray
from vllm import LLM


@ray.remote
class Engine:
    def __init__(self, **settings):
        self.llm = LLM(worker_extension_cls="worker.WorkerExtension", **settings)

    def init_group(self, address, port, rank_offset, world_size):
        return self.llm.collective_rpc("init_group", args=(address, port, rank_offset, world_size))
# file: trainer.py
from engine import Engine


class Trainer:
    def __init__(self, args):
        self.args = args
        self.engines = [Engine.remote() for _ in range(args.engines)]

    def connect(self, address, port):
        workers = self.args.tensor_parallel_size
        world_size = self.args.engines * workers + 1
        return [
            engine.init_group.remote(address, port, {begin}, {world_size}){mark}
            for i, engine in enumerate(self.engines)
        ]
"""

_GIVEN = (
    _WORKER.replace("def connect(self, address, port)", "def connect(self, engines, address, port)")
    .replace("enumerate(self.engines)", "enumerate(engines)")
    .replace("        self.engines = [Engine.remote() for _ in range(args.engines)]\n", "")
    .replace("{world_size}", "world_size")
)

INCORRECT = (
    _WORKER.replace("{begin}", "i + 1").replace("{world_size}", "world_size").replace("{mark}", "  # error: MP443"),
    _GIVEN.replace("{begin}", "i + 1").replace("{mark}", "  # error: MP443"),
)

CORRECT = (
    _WORKER.replace("{begin}", "i * workers + 1").replace("{world_size}", "world_size").replace("{mark}", ""),
    _WORKER.replace("{begin}", "i + 1").replace("{world_size}", "self.args.engines + 1").replace("{mark}", ""),
    _GIVEN.replace("{begin}", "workers * i + 1").replace("{mark}", ""),
)
