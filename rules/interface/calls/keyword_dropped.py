"""A keyword that what is called drops: no field of a model of pydantic, or none that a function reads of its `**`.

What it does
    Finds calls of the project's models of pydantic with a keyword that is no field of the model. Silent where the model
    keeps or refuses more than its fields (`extra`), fields go by other names (aliases), a validator or an `__init__` of
    its own looks at what is given before the fields are, or a base is not known. Likewise calls of a function that asks
    its `**kwargs` for certain keys and does nothing else with it, with a keyword that is none of them; with one that
    has the words of a parameter in another order, whatever becomes of the `**`; of a function that never looks at its
    `**kwargs` only with a keyword like a parameter of it that gets nothing. Silent where another function of its name
    takes the keyword: it ignores on purpose what is meant for others; not on an object that is known to be of the
    class, with a keyword whose words are words of a key that is not passed. Of several classes or functions between
    which a call chooses (by a registry, a table, a branch) also those that ignore their `**` count, where none has the
    keyword and one has a parameter of a name like it that gets nothing. So behind functions that hand their `**` on, as
    it came or put together anew under the same keys, where all are known who may get it.

Why is this bad
    The value is lost without a word, and the default is taken in its place.

References
    https://docs.pydantic.dev/latest/api/config/#pydantic.config.ConfigDict.extra
    https://docs.python.org/3/reference/compound_stmts.html#function-definitions
"""

from __future__ import annotations

from collections.abc import Collection, Iterator

from validator.analysis.commands.same_names import words
from validator.analysis.interfaces.binding import bind, parameters
from validator.analysis.interfaces.handed_on import Ends, HandedOn
from validator.analysis.interfaces.swallowed import keys_read
from validator.errors import nearest
from validator.facts.model import Argument, Call, Guard
from validator.finding import Finding, Related
from validator.flow.constructors import PYDANTIC, Constructors
from validator.flow.objects import Objects
from validator.flow.program.flow import Flow
from validator.flow.queries.base import Place, Queries
from validator.flow.queries.outside_program import is_test
from validator.flow.values import NONE_OBJ
from validator.project import Method, Project
from validator.rule import Rule

RULE = Rule("MP140", "keyword-dropped", "warning", stable_since="0.3.0", solves=True)


_UNPACKED = (None, "*", "**")


def check_project(project: Project) -> Iterator[Finding]:
    yield from _of_models(project)
    flow = project.analysis(Flow)
    taking = [each for each in project.functions() if any(param.kind == "**" for param in each.facts.params)]
    read = {each: keys for each in taking if (keys := keys_read(flow, each)) is not None}
    yield from _of_functions(project, read)
    yield from _turned_round(project, [each for each in taking if each not in read])
    yield from _of_choices(project, read)
    yield from _handed_on(project, read)


def _of_models(project: Project) -> Iterator[Finding]:
    constructors = project.analysis(Constructors)
    for cls in project.classes():
        params = constructors.of(cls) if not PYDANTIC.isdisjoint(cls.external_bases) else None
        if not params or params[-1].kind != "**" or cls.find("__init__") is not None:
            continue
        fields = [param.name for param in params[:-1]]
        for function, call in project.calls(cls.name):
            if is_test(function.path) or project.lookup(function, call.target) is not cls:
                continue
            for argument in call.args:
                if argument.keyword not in (*_UNPACKED, *fields) and not _is_tried(call.guards):
                    yield RULE.finding(
                        function.path,
                        argument.at,
                        f"`{cls.name}` has no field `{argument.keyword}` and drops it",
                        help=f"set a field that it has{nearest(str(argument.keyword), fields)}, or leave it out",
                        related=[Related(cls.path, cls.facts.name_at[0], f"`{cls.name}` is defined here")],
                        context=f"{function.qualname}:{cls.name}:{argument.keyword}",
                    )


def _of_functions(project: Project, read: dict[Method, frozenset[str]]) -> Iterator[Finding]:
    """Keywords that a function does not read of its `**`. `read`: by function the keys that it reads; who reads none
    takes and ignores on purpose what others are passed, but for what is called like one of its parameters."""
    objects = project.analysis(Objects)
    by_name: dict[str, list[Method]] = {}
    for function in project.functions():
        by_name.setdefault(function.name, []).append(function)
    for function, keys in read.items():
        kin = _kin(function)
        if is_test(function.path) or kin and not keys:  # what one of them takes all are passed
            continue
        taken = {p.name for each in by_name[function.name] for p in each.facts.params} | keys
        taken |= {key for each in by_name[function.name] if each is not function for key in read.get(each, ())}
        own = {p.name for each in (function, *kin) for p in each.facts.params} | keys
        own |= {key for each in kin for key in read.get(each, ())}
        for caller, call in objects.callers(function):
            dropped = [each for each in call.args if each.keyword not in (*_UNPACKED, *own)]
            if not dropped or is_test(caller.path) or _is_tried(call.guards):
                continue
            lost = [each for each in dropped if each.keyword not in taken] if not kin else []
            near = [each for each in dropped if each not in lost and _is_nearly_asked(each, keys, call)]
            if near and _is_made_as(objects, caller, call, function):  # nobody else is meant
                lost += near
            lost = lost if keys else _like_parameters(function, call, lost)
            if lost and objects.reaches_only(caller, call, function):
                yield from (_swallowed(function, caller, each, keys) for each in lost)


def _is_nearly_asked(argument: Argument, keys: Collection[str], call: Call) -> bool:
    """Whether all words of a keyword are words of a key that a function asks for and the call does not pass."""
    said, passed = set(words(str(argument.keyword))), {each.keyword for each in call.args}
    return any(said < set(words(key)) for key in keys if key not in passed)


def _is_made_as(objects: Objects, caller: Method, call: Call, function: Method) -> bool:
    """Whether a method is called on an object that is known to have been made of its class, and of none below it."""
    place = objects.call_at(caller.module, call.at)
    owner = place.receiver if place is not None and function.cls is not None else None
    return owner is not None and {o[:2] for o in owner.closed.objs} == {("inst", function.cls)}


def _turned_round(project: Project, functions: list[Method]) -> Iterator[Finding]:
    """Keywords that a function takes into its `**`, whatever it does with that, with the words of a parameter in
    another order, which gets nothing and goes by its default."""
    objects = project.analysis(Objects)
    for function in functions:
        named = {
            name: p.name
            for p in parameters(function)
            if p.kind in ("any", "kw") and p.default is not None
            for name in [_in_order(p.name)]
            if len(name) > 1
        }
        called = function.cls.name if function.cls is not None and function.name == "__init__" else function.name
        rows = (each for _, call in project.calls(called) for each in call.args)
        if is_test(function.path) or not any(_is_turned(each, named) for each in rows):
            continue
        for caller, call in objects.callers(function):
            given = bind(function, call).keys()
            for each in call.args if not any(a.keyword in ("*", "**") for a in call.args) else ():
                near = named[_in_order(str(each.keyword))] if _is_turned(each, named) else ""
                if near and near not in given and not is_test(caller.path):
                    yield _swallowed(function, caller, each, frozenset(), f"`{near}` keeps its default")


def _is_turned(argument: Argument, named: dict[tuple[str, ...], str]) -> bool:
    name = str(argument.keyword) if argument.keyword not in _UNPACKED else ""
    return named.get(_in_order(name), name) != name


def _in_order(name: str) -> tuple[str, ...]:
    return tuple(sorted(word for word in name.split("_") if word))


def _like_parameters(function: Method, call: Call, lost: list[Argument]) -> list[Argument]:
    """The arguments that are called nearly as a parameter of a function which gets nothing."""
    if any(each.keyword in ("*", "**") for each in call.args):
        return []
    named = [str(each.keyword) for each in lost]
    free = {p.name for p in parameters(function) if p.kind in ("any", "kw")} - bind(function, call).keys()
    near = dict(_without_taker(named, free))
    return [each for each in lost if each.keyword in near]


def _of_choices(project: Project, read: dict[Method, frozenset[str]]) -> Iterator[Finding]:
    """Keywords that none takes of the classes or functions between which a call chooses."""
    queries = project.analysis(Queries)
    for unit in queries.of_program() if len(read) > 1 else ():
        for call in queries.calls_in(unit):
            named = _keywords(call)
            chosen = _chosen(call) if named else []
            if len(chosen) < 2 or any(each not in read for each in chosen):
                continue
            taken = {p.name for each in chosen for p in each.facts.params}.union(*(read[each] for each in chosen))
            for name, near in _without_taker(named, taken):
                said = f"none of those that `{call.operand(0).text}` may be ({_owners(chosen)}) takes"
                yield _dropped_by_all(call, name, near, chosen, f"{said} `{name}`: their `**` drops it")


def _handed_on(project: Project, read: dict[Method, frozenset[str]]) -> Iterator[Finding]:
    """Keywords that a call passes to a function which hands them on, and that none takes of those who may get them."""
    queries, handed_on = project.analysis(Queries), project.analysis(HandedOn)
    for function in project.functions():
        passing = not is_test(function.path) and any(handed_on.calls(function, rebuilt=True))
        unit = queries.flow.unit_of(function) if passing else None
        for call in queries.calls_of(unit) if unit is not None else ():
            named = _keywords(call) if not is_test(call.unit.path) else []
            ends = handed_on.ends(call.operand(0)) if named else None
            if ends is None:
                continue
            if any(each not in read for each in ends.takers):
                yield from _handed_turned(call, named, ends)
                continue
            taken = {p.name for each in ends.takers for p in each.facts.params} | ends.on_the_way
            taken = taken.union(*(read[each] for each in ends.takers))
            for name, near in _without_taker(named, taken, ends.passed):
                said = f"`{call.operand(0).text}` hands `{name}` on to {_owners(ends.takers)}, whose `**` drops it"
                yield _dropped_by_all(call, name, near, ends.takers, said)


def _handed_turned(call: Place, named: list[str], ends: Ends) -> Iterator[Finding]:
    """The keywords with the words, in another order, of a parameter that gets nothing of those to whom they are
    handed."""
    filled = call.value.data.names.count(None)  # by position, those in front
    taken = [p for each in ends.takers for p in parameters(each, bound=True) if p.kind in ("any", "kw")]
    params = {p.name for p in taken}
    left = {_in_order(p.name): p.name for p in taken[filled:] if p.default is not None and "_" in p.name.strip("_")}
    for name in named:
        near = left.get(_in_order(name), "")
        if near and name not in (*params, *ends.on_the_way) and near not in (*named, *ends.passed):
            said = f"`{call.operand(0).text}` hands `{name}` on to {_owners(ends.takers)}, which takes it into its `**`"
            yield _dropped_by_all(call, name, near, ends.takers, f"{said}, and `{near}` keeps its default")


def _without_taker(named: list[str], taken: set[str], passed: Collection[str] = ()) -> Iterator[tuple[str, str]]:
    """The keywords that are not among those that are taken, each with one like it that is, and gets nothing."""
    free = [name for name in taken if name not in named and name not in passed]
    for name in (each for each in named if each not in taken):
        near = sorted(each for each in free if len(set(words(each)) & set(words(name))) > 1)
        if near:
            yield name, near[0]


def _owners(functions: list[Method]) -> str:
    names = sorted({each.cls.name if each.cls is not None else each.name for each in functions})
    return ", ".join(f"`{name}`" for name in names[:3])


def _keywords(call: Place) -> list[str]:
    """The keywords of a call; none where it may pass others, too."""
    names = call.value.data.names
    return [name for name in names if name is not None] if not {"*", "**"} & set(names) else []


def _chosen(call: Place) -> list[Method]:
    """What a call may run of the project: all of it, or nothing."""
    found: list[Method] = []
    callee = call.operand(0)
    if len(callee.val.each) < 2 and not callee.val.holes:
        return []
    for o in callee.closed.each:
        method = o[1].find("__init__") if o[0] == "class" else o[1].method if o[0] == "unit" else None
        if method is None and o != NONE_OBJ:
            return []
        found += [method] if method is not None else []
    return list(dict.fromkeys(found))


def _dropped_by_all(call: Place, name: str, near: str, chosen: list[Method], said: str) -> Finding:
    return RULE.finding(
        call.unit.path,
        call.at,
        said,
        help=f"pass what they take (did you mean '{near}'?), or leave it out",
        related=[Related(each.path, each.facts.name_at[0], f"`{near}` is a parameter here") for each in chosen[:1]],
        context=f"{call.unit.qualname}:{_owners(chosen)}:{name}",
    )


def _kin(function: Method) -> list[Method]:
    """The methods of its name in classes below, or above: callers pass what one of them takes."""
    if function.cls is None or function.name == "__init__":
        return []
    return [
        cls.methods[function.name]
        for cls in function.cls.relatives
        if cls is not function.cls and function.name in cls.methods
    ]


def _swallowed(
    function: Method, caller: Method, argument: Argument, keys: frozenset[str], instead: str = ""
) -> Finding:
    shown = function.name if function.cls is None else f"{function.cls.name}.{function.name}"
    named = sorted(keys | {p.name for p in function.facts.params if p.kind in ("any", "kw")})
    return RULE.finding(
        caller.path,
        argument.at,
        f"`{shown}` takes `{argument.keyword}` into its `**`, and {instead}"
        if instead
        else f"`{shown}` reads no `{argument.keyword}` of its `**` and drops it",
        help=f"pass what it reads{nearest(str(argument.keyword), named)}, or leave it out",
        related=[Related(function.path, function.facts.name_at[0], f"`{shown}` is defined here")],
        context=f"{caller.qualname}:{shown}:{argument.keyword}",
    )


def _is_tried(guards: tuple[Guard, ...]) -> bool:
    return any(guard.kind in ("try", "with") for guard in guards)


_SCHEDULERS = """\
class Registry:
    schedulers = {{}}

    @classmethod
    def keep(cls, name):
        def wrap(scheduler):
            cls.schedulers[name] = scheduler
            return scheduler

        return wrap

    @classmethod
    def find(cls, name):
        return cls.schedulers.get(name, None)


@Registry.keep("linear")
class Linear:
    def __init__(self, optimizer, steps, warmup_lr=-1, **kwargs):
        self.optimizer, self.steps, self.warmup_lr = optimizer, steps, warmup_lr


@Registry.keep("cosine")
class Cosine:
    def __init__(self, optimizer, steps, decay=0.1, warmup_lr=-1, **kwargs):
        self.optimizer, self.steps, self.warmup_lr, self.decay = optimizer, steps, warmup_lr, decay


def scheduler(config, optimizer):
    return Registry.find(config.schedule)(optimizer=optimizer, steps=9, decay=0.2, {name}=config.warmup_lr){mark}
"""

_CONFIG = """\
from pydantic import BaseModel{more}


class EnvConfig(BaseModel):
{body}    group_size: int = 4
    worker_timeout_seconds: float = 600.0


class CodeConfig(EnvConfig):
    language: str = "python"


def config(strategy):
    return CodeConfig(group_size=strategy.size, worker_timeout=7200){mark}
"""

_LOADER = """\
from torch.utils.data import DataLoader


def build_loader(dataset, batch_size, **options):
    workers = options.get("num_workers", 0)
    if "collate_fn" in options:
        return DataLoader(dataset, batch_size, num_workers=workers, collate_fn=options["collate_fn"])
    return DataLoader(dataset, batch_size, num_workers=workers, drop_last=options.pop("drop_last", False))


def train(args, dataset):
    train = build_loader(dataset, args.batch_size, {passed}=args.workers, drop_last=True){mark}
    test = build_loader(dataset, args.batch_size, num_workers=args.workers)
    return train, test
"""

_MODELS = """\
MODELS = {{}}


def register(function):
    MODELS[function.__name__] = function
    return function


class Network:
    def __init__(self, dim, drop_path_rate=0.0, **kwargs):
        self.dim, self.rate = dim, drop_path_rate{more}


@register
def small(**kwargs):
    return Network(dim=384, **kwargs)


@register
def base(**kwargs):
    return Network(dim=768, **kwargs)


def create(name, **kwargs):
    kwargs = {{key: value for key, value in kwargs.items() if {test}}}
    return MODELS[name](**kwargs)


def main(args):
    return create(args.model, {name}=args.drop_path, depth=args.depth){mark}
"""

_SAMPLER = """\
class Sampler:
    def __init__(self, model):
        self.model = model

    def sample(self, steps, condition, unconditional_guidance_scale=1.0, verbose=False, **kwargs):
        return self.model(condition, steps) * unconditional_guidance_scale{more}


def main(model, condition):
    sampler = Sampler(model)
    return sampler.sample(50, condition{passed}){mark}
"""

_KNOWN_CLASS = """
class Inferencer:
    def inference(self, model, rows, **kwargs):
        return model(rows, kwargs.get("inference_batch_size", 4))

class SafeInferencer(Inferencer):
    def inference(self):
        return None

class Scorer:
    def inference(self, rows, batch_size=1):
        return rows[:batch_size]

def main(model, rows, args):
    inferencer = Inferencer()
    return inferencer.inference(model, rows, {name}=args.size){mark}
"""

INCORRECT = (
    # one that never looks at its `**`
    _SAMPLER.format(more="", passed=", guidance_scale=3.0", mark="  # error: MP140"),
    _MODELS.format(more="", test="value is not None", name="drop_path", mark="  # error: MP140"),
    _CONFIG.format(more="", body="", mark="  # error: MP140"),
    _LOADER.format(passed="n_workers", mark="  # error: MP140"),
    _SCHEDULERS.format(name="warmup_start_lr", mark="  # error: MP140"),
    # the others are kept for later
    """class Trainer:
    def __init__(self, strategy, micro_train_batch_size=8, **generate_kwargs):
        self.strategy = strategy
        self.size = micro_train_batch_size
        self.generate_kwargs = generate_kwargs

    def sample(self, model, prompts):
        return model.generate(prompts, **self.generate_kwargs)


def main(strategy, args):
    return Trainer(strategy, train_micro_batch_size=args.size, max_length=64)  # error: MP140
""",
    # an object that is known to be of this class, and not of the one below, which has the method as well
    _KNOWN_CLASS.format(name="batch_size", mark="  # error: MP140"),
)

CORRECT = (
    _MODELS.format(more="", test="value is not None", name="drop_path_rate", mark=""),
    _MODELS.format(more="", test="value is not None", name="window", mark=""),
    # who chooses among the keys knows of others; and who hands them on to what is not known
    _MODELS.format(more="", test="key in KNOWN", name="drop_path", mark=""),
    _MODELS.format(more="\n        build_layers(self, **kwargs)", test="value is not None", name="drop_path", mark=""),
    _SAMPLER.format(more="", passed=", unconditional_guidance_scale=3.0", mark=""),
    _SAMPLER.format(more="", passed=", 2.0, guidance_scale=3.0", mark=""),
    _SAMPLER.format(more="", passed=", shape=(3, 64, 64)", mark=""),  # it ignores on purpose what others take
    _SAMPLER.format(more=" + sum(kwargs.values())", passed=", guidance_scale=3.0", mark=""),
    _SCHEDULERS.format(name="warmup_lr", mark=""),
    # for a class that others may register
    _SCHEDULERS.format(name="momentum", mark=""),
    _LOADER.format(passed="num_workers", mark=""),
    # what is not read is looked at all the same: handed on, or refused
    _LOADER.replace("    if ", "    if options:\n        raise TypeError(options)\n    if ", 1).format(
        passed="n_workers", mark=""
    ),
    _LOADER.replace("False))", "False), **options)").format(passed="n_workers", mark=""),
    # it takes, and ignores, what another of its kind takes
    """
class Plain:
    def loss(self, logits, **options):
        return logits * options.get("scale", 1.0)


class Masked:
    def loss(self, logits, mask=None, **options):
        return (logits * mask).sum() * options.get("scale", 1.0)


def step(logits, mask):
    return Plain().loss(logits, mask=mask, scale=2.0)
""",
    _CONFIG.format(more=", ConfigDict", body='    model_config = ConfigDict(extra="allow")\n\n', mark=""),
    _CONFIG.replace("worker_timeout=", "worker_timeout_seconds=").format(more="", body="", mark=""),
    # an `__init__` that hands all of it on: the fields are what they are
    _CONFIG.replace("class CodeConfig(EnvConfig):", "{init}class CodeConfig(EnvConfig):").format(
        more="",
        body="    worker_timeout: int = 1\n",
        init="    def __init__(self, **data):\n        super().__init__(**data)\n\n\n",
        mark="",
    ),
    _CONFIG.format(more=", Field", body='    other: int = Field(1, alias="worker_timeout")\n', mark=""),
    # both are meant
    """class Trainer:
    def __init__(self, strategy, max_new=8, **generate_kwargs):
        self.strategy = strategy
        self.size = max_new
        self.generate_kwargs = generate_kwargs


def main(strategy, args):
    return Trainer(strategy, max_new=4, new_max=args.size)
""",
    _KNOWN_CLASS.format(name="inference_batch_size", mark=""),
)
