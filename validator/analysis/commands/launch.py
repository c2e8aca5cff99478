"""Which training programs the scripts of a project start, through which launcher, on how many processes.

Known launchers: torchrun (`python -m torch.distributed.run`), deepspeed, accelerate, colossalai, and plain Python;
before them may stand what runs a command elsewhere or otherwise (`srun`, `ray job submit --`, `uv run`, containers).
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from validator.analysis.commands.fields import Bit, Field, Place
from validator.analysis.commands.process_lists import ProcessLists
from validator.analysis.commands.program_parsers import ProgramParsers
from validator.analysis.commands.scripts import Run, Scripts
from validator.analysis.commands.wrappers import RUNS_OTHERS
from validator.analysis.options.parsers import Parser
from validator.facts.config_files import settings_of
from validator.facts.model import At
from validator.files.naming import paths_around
from validator.project import Module, Project
from validator.source import SourceFile

_PYTHON = re.compile(r"python(3(\.\d+)?)?$|pypy3?$")
_LAUNCHERS = frozenset({"torchrun", "deepspeed", "accelerate", "colossalai", "accelerate-launch"})
_MODULES = {  # launchers that are started as modules
    "torch.distributed.run": "torchrun", "torch.distributed.launch": "torchrun",
    "torch.distributed.elastic.multiprocessing": "torchrun",
    "accelerate.commands.launch": "accelerate", "accelerate.commands.accelerate_cli": "accelerate",
    "deepspeed.launcher.runner": "deepspeed", "colossalai.cli": "colossalai",
}  # fmt: skip
# options of the launchers that take no value: torch 2.13, deepspeed 0.19, accelerate 1.13, colossalai 0.5
_FLAGS = {
    "torchrun": {
        "standalone", "m", "module", "no_python", "run_path", "use_env", "virtual_local_rank", "h", "help",
    },
    "deepspeed": {
        "module", "no_python", "no_local_rank", "force_multi", "save_pid", "no_ssh", "no_ssh_check", "elastic_training",
        "bind_cores_to_rank", "h", "help",
    },
    "accelerate": {
        "cpu", "multi_gpu", "tpu", "ipex", "quiet", "q", "use_deepspeed", "use_fsdp", "use_megatron_lm", "use_xpu", "m",
        "use_mps_device", "module", "no_python", "debug", "tpu_cluster", "no_tpu_cluster", "tpu_use_sudo", "h", "help",
        "use_parallelism_config", "same_network", "downcast_bf16", "enable_cpu_affinity",
    },
    "colossalai": {"m", "help"},
    "python": {"u", "b", "B", "d", "E", "i", "I", "O", "OO", "P", "s", "S", "v", "V", "x", "q", "h"},
}  # fmt: skip
_PROCESSES = {
    "torchrun": ("nproc_per_node",), "deepspeed": ("num_gpus",), "colossalai": ("nproc_per_node", "nproc"),
    "accelerate": ("num_processes",),  # of all nodes together
}  # fmt: skip
_NODES = {
    "torchrun": ("nnodes",), "deepspeed": ("num_nodes",), "accelerate": ("num_machines",), "colossalai": ("num_nodes",),
}  # fmt: skip


_OF_FILE = ("num_processes", "num_machines", "use_cpu", "gpu_ids")  # what a file of Accelerate tells
_SEPARATORS = frozenset({"&&", "||", ";", "|"})


@dataclass(eq=False)
class Launch:
    """One start of a program. `options` are those of the launcher, by name with underscores (`*`: in a variable that is
    not known); `steps` those of srun.

    `program` is the field that names it: a dotted module where `is_module`, else a path.
    """

    path: str
    at: At
    engine: str
    options: dict[str, Field]
    program: Field
    is_module: bool
    arguments: tuple[Field, ...]
    steps: dict[str, Field] = field(default_factory=dict)
    directives: tuple[tuple[str, str, At], ...] = ()
    folder: Field | None = None
    certain: bool = True
    broken: bool = False
    under_ray: bool = False
    steps_given: bool = False  # whether srun starts it
    devices: Field | None = None  # the devices that the script lets it see (`CUDA_VISIBLE_DEVICES`)
    tells_local_rank: bool = False  # whether the launcher, in some release, passes `--local_rank` by itself
    module: Module | None = None
    parser: Parser | None = None
    in_file: dict[str, Field] = field(default_factory=dict)  # sizes that a file says which an option names

    @property
    def home(self) -> str:
        """The folder (absolute) from which the path of the program leads to its file; empty where that is not known."""
        place = self.module.source.absolute if self.module is not None and not self.is_module else ""
        tail = self.program.text if self.program.known else ""
        return place.removesuffix(f"/{tail}") if tail and place.endswith(f"/{tail}") else ""

    @property
    def name(self) -> str:
        """How people call the program."""
        return self.module.name if self.module is not None else self.program.text

    def launcher_option(self, *names: str) -> Field | None:
        return next((self.options[name] for name in names if name in self.options), None)

    @property
    def processes(self) -> Field | None:
        """The field that says how many processes are started per node; to Accelerate on all nodes together."""
        return self._size(_PROCESSES.get(self.engine, ()))

    @property
    def nodes(self) -> Field | None:
        """The field that says how many nodes take part."""
        return self._size(_NODES.get(self.engine, ()))

    def _size(self, names: Sequence[str]) -> Field | None:
        given = self.launcher_option(*names)
        return given or next((self.in_file[name] for name in names if name in self.in_file), None)

    @property
    def on_cpu(self) -> bool:
        """Whether Accelerate is told to compute without GPUs."""
        said = self.in_file.get("use_cpu")
        told = said is not None and said.text.lower() in ("true", "yes", "1")
        return told or self.launcher_option("cpu", "use_cpu") is not None

    def processes_per_node(self) -> int | None:
        """Processes per node, where the launcher says so."""
        if (given := self.processes) is not None:
            return given.integer() if self.engine != "accelerate" else self._share_of_node(given.integer())
        if self.engine == "torchrun":
            return 1
        if self.engine == "deepspeed" and (include := self.launcher_option("include", "i")) is not None:
            return _included(include)[1]
        return None

    def _share_of_node(self, processes: int | None) -> int | None:
        """How many of the processes of all nodes each node starts."""
        nodes = self.node_count() if self.nodes is not None or self.directive("--nodes", "-N") is None else None
        return processes // nodes if processes and nodes and processes % nodes == 0 else None

    def node_count(self) -> int | None:
        """Nodes, where the launcher says so."""
        if (given := self.nodes) is not None:
            return given.integer()
        if self.engine == "deepspeed":
            if (include := self.launcher_option("include", "i")) is not None:
                return _included(include)[0]
            return None if self.launcher_option("hostfile", "H") is not None else 1
        return 1 if self.engine in ("torchrun", "accelerate", "colossalai") else None

    def directive(self, *names: str) -> tuple[str, At] | None:
        """The value of an `#SBATCH` line."""
        return next(((value, at) for option, value, at in self.directives if option in names and value), None)

    def visible_devices(self) -> int | None:
        """How many devices the script lets its processes see; None where it does not say, or hides all."""
        given = self.devices
        devices = given.text.split(",") if given is not None and given.known else []
        return len(devices) if devices and all(each.strip().isdigit() for each in devices) else None

    def gpus_per_node(self) -> tuple[int, At] | None:
        """GPUs of a node by the header: `--gpus-per-node=8`, `--gres=gpu:h100:8`."""
        whole = self.directive("--gpus-per-node")
        by_kind = self.directive("--gres")
        if whole is None and by_kind is not None and by_kind[0].startswith("gpu"):
            whole = by_kind
        if whole is not None and (match := re.fullmatch(r"(?:gpu:)?(?:[A-Za-z]\w*:)?([0-9]{1,18})", whole[0])):
            return int(match[1]), whole[1]
        return None


def _included(include: Field) -> tuple[int | None, int | None]:
    """Nodes and processes per node of `--include host1:0,1@host2:0,1`."""
    if not include.known:
        return None, None
    hosts = include.text.split("@")
    counts = {len(slots.split(",")) if slots else None for _, _, slots in (host.partition(":") for host in hosts)}
    return len(hosts), counts.pop() if len(counts) == 1 else None


class Launches:
    """Every launch of the project's scripts and of the command lists in its Python code."""

    def __init__(self, project: Project) -> None:
        self.project = project
        self.scripts = project.analysis(Scripts)
        self._files = {module.source.absolute: module for module in project.modules.values()}

    @cached_property
    def all(self) -> tuple[Launch, ...]:
        return self._found([*self.scripts.runs, *self.project.analysis(ProcessLists).runs])

    @cached_property
    def shown(self) -> tuple[Launch, ...]:
        """Those that pages show (`README.md`): nothing is wrong in them, they say what is started with what."""
        return self._found(self.scripts.shown)

    def _found(self, runs: Iterable[Run]) -> tuple[Launch, ...]:
        found: list[Launch] = []
        parsers = self.project.analysis(ProgramParsers)
        for launch in _launches(runs):
            if not found or launch.program is not found[-1].program:  # else a launcher that knows what `--` is
                launch.module = self._module(launch)
                launch.parser = parsers.of(launch.module) if launch.module is not None else None
                if launch.engine == "accelerate":
                    self._read_file_of(launch)
                found.append(launch)
        return tuple(found)

    def _read_file_of(self, launch: Launch) -> None:
        """Give a launch by Accelerate the sizes of the file that it names (`--config_file`), where no option says
        otherwise."""
        given = launch.launcher_option("config_file")
        source = self.file_named(given, launch) if given is not None else None
        if source is None:
            return
        for name in _OF_FILE:
            setting = settings_of(source).get(name)
            if name not in launch.options and setting is not None and setting.kind == "scalar":
                line, column, _, end = setting.value_at
                place = Place(source.path, line, column)
                bit = Bit(str(setting.value), place, max(end - column, 1), place)
                launch.in_file[name] = Field([bit])

    def file_named(self, given: Field, launch: Launch) -> SourceFile | None:
        """The file of settings that a word of a launch names, from the folders around its script."""
        script = self.scripts.file(launch.path) if given.known else None
        around = paths_around(given.text, script.absolute) if script is not None else ()
        return next((self._by_path[path] for path in around if path in self._by_path), None)

    @cached_property
    def _by_path(self) -> dict[str, SourceFile]:
        return {source.absolute: source for source in self.project.files.values()}

    def _module(self, launch: Launch) -> Module | None:
        program = launch.program
        if launch.is_module:
            if not program.known or program.text in self._named:
                return self._named.get(program.text)
            tail = program.text.replace(".", "/") + ".py"  # below no package
            return self.scripts.find(tail, launch.path, self._files)
        tail = program.text if program.known else program.tail.lstrip("/")
        if not tail.endswith(".py") or (not program.known and "/" not in program.tail):
            return None
        return self._at(tail, launch) or self._on_another_machine(tail, launch.path)

    def _on_another_machine(self, tail: str, script: str) -> Module | None:
        """The file that an absolute path means which begins with folders of another machine: `/data/repo/tools/run.py`
        is `tools/run.py` below a folder around the script."""
        parts = tail.split("/") if tail.startswith("/") else []
        ends = ("/".join(parts[start:]) for start in range(2, len(parts) - 1))  # a folder and a file at least
        found = (self.scripts.find(end, script, self._files) for end in ends)
        return next((module for module in found if module is not None), None)

    def _at(self, tail: str, launch: Launch) -> Module | None:
        folder = launch.folder.tail.strip("/") if launch.folder is not None else ""
        below = self.scripts.find(posixpath.join(folder, tail), launch.path, self._files) if folder else None
        return below or self.scripts.find(tail, launch.path, self._files) or self._elsewhere(tail, launch.path)

    def _elsewhere(self, tail: str, script: str) -> Module | None:
        """The file that a path with a folder in it means from a folder in which the script does not lie: the only one,
        or the only one in the nearest folder around the script that has any."""
        plain = posixpath.normpath(tail)
        source = self.scripts.file(script)
        if source is None or "/" not in plain or plain.startswith(("/", "..")):
            return None
        ends = self._by_name.get(posixpath.basename(plain), ())
        found = [module for module in ends if module.source.absolute.endswith(f"/{plain}")]
        folder = posixpath.dirname(source.absolute)
        while found and folder != posixpath.dirname(folder):
            inside = [module for module in found if module.source.absolute.startswith(f"{folder}/")]
            if inside:
                return inside[0] if len(inside) == 1 else None
            folder = posixpath.dirname(folder)
        return None

    def likely(self, launch: Launch) -> Module | None:
        """The file that a launch starts; of a path that begins with a folder of another machine the only file of the
        project with that name."""
        if launch.module is not None or launch.is_module or not launch.program.tail.startswith("/"):
            return launch.module
        found = self._by_name.get(posixpath.basename(launch.program.tail), ())
        return found[0] if len(found) == 1 else None

    @cached_property
    def _by_name(self) -> dict[str, list[Module]]:
        found: dict[str, list[Module]] = {}
        for path, module in self._files.items():
            found.setdefault(posixpath.basename(path), []).append(module)
        return found

    @cached_property
    def _named(self) -> dict[str, Module]:
        """Modules by name, where a name means one; a package is started by its `__main__`."""
        found: dict[str, Module | None] = {}
        for module in self.project.modules.values():
            name = module.name.removesuffix(".__main__")
            if name in found and module.name == name:
                known = found[name]
                if known is not None and known.name != name:
                    continue  # the package beside its `__main__`
                found[name] = None
            elif name not in found or module.name != name:
                found[name] = module
        return {name: module for name, module in found.items() if module is not None}


def _launches(runs: Iterable[Run]) -> Iterator[Launch]:
    """The launches that commands are, and those that they hand on: `submit.py --gpus 8 -- python train.py`."""
    for run in runs:
        for command in (run, *_handed_on(run)):
            if (launch := peel(command)) is not None:
                yield launch


def _handed_on(run: Run) -> Iterator[Run]:
    """The commands behind `--`, which belong to another program than the one that is started."""
    texts = [each.text if each.known else "" for each in run.fields]
    start = texts.index("--") + 1 if "--" in texts else len(texts)
    for index in range(start, len(texts) + 1):
        if index == len(texts) or texts[index] in _SEPARATORS:
            yield run._replace(fields=run.fields[start:index])
            start = index + 1


def peel(run: Run) -> Launch | None:
    """The launch that a command is, without what stands before the launcher; None if it is none."""
    fields = list(run.fields)
    steps: dict[str, Field] = _step_options(list(run.outer[1:])) if _runs(run, "srun") and run.outer else {}
    under_ray = False
    index = 0
    while index < len(fields):
        name = _program_name(fields[index])
        if "=" in name and not name.startswith("-") and index + 1 < len(fields) and re.match(r"[A-Z_]+=", name):
            index += 1
            continue
        if name in _LAUNCHERS or _PYTHON.match(name) or name.endswith(".py"):
            return _launched(run, fields, index, steps, under_ray)
        if name not in RUNS_OTHERS:
            return None
        if name == "srun":
            steps.update(_step_options(fields[index + 1 :]))
        following = _following(fields, index + 1, name)
        if name == "uv" and (module := _module_of_uv(fields, index + 1, following)) is not None:
            return _started(run, "python", fields[module:], steps, under_ray)
        if following is None:
            return None
        under_ray = under_ray or name == "ray"
        index = following
    return None


def _module_of_uv(fields: list[Field], start: int, following: int | None) -> int | None:
    """Where `-m` stands in `uv run -m package.module`, unless a command begins before it."""
    texts = [each.text for each in fields[start:following]]
    at = next((texts.index(each) for each in ("-m", "--module") if each in texts), None)
    return start + at if at is not None and "run" in texts[:at] else None


def _following(fields: list[Field], start: int, wrapper: str) -> int | None:
    """Where the command begins that a wrapper runs."""
    if wrapper == "ray":
        words = [f.text for f in fields[start:]]
        if words[:2] != ["job", "submit"] or "--" not in words:
            return None
        return start + words.index("--") + 1
    for index in range(start, len(fields)):
        name = posixpath.basename(fields[index].text) if fields[index].known else posixpath.basename(fields[index].tail)
        if name in _LAUNCHERS or _PYTHON.match(name) or name in RUNS_OTHERS:
            before = fields[index - 1].text
            if before.startswith("--") and "=" not in before and before not in ("--", "--nv", "--overlap"):
                continue  # the value of an option
            return index
        if name.endswith(".py") and not fields[index].text.startswith("-"):
            return index
    return None


def _step_options(fields: list[Field]) -> dict[str, Field]:
    found: dict[str, Field] = {}
    for index, each in enumerate(fields):
        if not each.text.startswith("-"):
            if index and fields[index - 1].text.startswith("-") and "=" not in fields[index - 1].text:
                continue
            break
        if (parts := each.split("=")) is not None:
            found[parts[0].text] = parts[1]
        elif index + 1 < len(fields):
            found[each.text] = fields[index + 1]
    return found


def _program_name(word: Field) -> str:
    """The name of a program; of one in an unknown folder (`$ROOT/train.py`) only where it is a file of Python."""
    tail = word.tail if not word.known and word.tail.endswith(".py") else ""
    return posixpath.basename(word.text if word.known else tail)


def _launched(run: Run, fields: list[Field], index: int, steps: dict[str, Field], under_ray: bool) -> Launch | None:
    name = _program_name(fields[index])
    if name.endswith(".py"):
        return _made(run, "python", {}, fields[index], False, fields[index + 1 :], steps, under_ray)
    engine = "python" if _PYTHON.match(name) else name.removesuffix("-launch")
    rest = fields[index + 1 :]
    if engine == "accelerate" and name == "accelerate":
        if not rest or rest[0].text != "launch":
            return None
        rest = rest[1:]
    if engine == "colossalai":
        if not rest or rest[0].text != "run":
            return None
        rest = rest[1:]
    return _started(run, engine, rest, steps, under_ray)


def _started(
    run: Run, engine: str, rest: list[Field], steps: dict[str, Field], under_ray: bool
) -> Launch | None:  # fmt: skip
    """The launch that the words behind a launcher are."""
    module = ""
    while True:
        options, program, is_module, arguments = _options(engine, rest)
        if program is None:
            return None
        if is_module and program.text in _MODULES:
            module = program.text
            engine, rest = _MODULES[module], arguments
            if engine == "accelerate" and rest and rest[0].text == "launch":
                rest = rest[1:]
            continue
        if not is_module and engine != "python" and posixpath.basename(program.text) in ("python", "python3"):
            engine_options = options
            _, program, is_module, arguments = _options("python", arguments)
            if program is None:
                return None
            options = engine_options
        launch = _made(run, engine, options, program, is_module, arguments, steps, under_ray)
        if launch is not None:
            silent = launch.launcher_option("use_env", "no_local_rank")
            launch.tells_local_rank = silent is None and (engine == "deepspeed" or module == "torch.distributed.launch")
        return launch


def _made(
    run: Run, engine: str, options: dict[str, Field], program: Field, is_module: bool, arguments: list[Field],
    steps: dict[str, Field], under_ray: bool,
) -> Launch:  # fmt: skip
    return Launch(
        run.path, run.at, engine, options, program, is_module, tuple(arguments), steps, run.directives, run.folder,
        run.certain, run.broken, under_ray or _runs(run, "ray"), _runs(run, "srun"), run.devices,
    )  # fmt: skip


def _runs(run: Run, wrapper: str) -> bool:
    """Whether a command is started by a wrapper, directly or in the script that it is handed."""
    return any(posixpath.basename(words[0].text) == wrapper for words in (run.fields, run.outer) if words)


def _options(engine: str, fields: list[Field]) -> tuple[dict[str, Field], Field | None, bool, list[Field]]:
    """The launcher's options, the program, whether it is a module, and its arguments."""
    options: dict[str, Field] = {}
    is_module = False
    index = 0
    while index < len(fields):
        each = fields[index]
        if each.text == "--":
            index += 1
            continue
        if each.many:
            options["*"] = each
            index += 1
            continue
        if not each.text.startswith("-"):
            return options, each, is_module, fields[index + 1 :]
        name, given = _option(each)
        if engine == "python" and name == "c":
            return options, None, False, []
        if name in ("m", "module"):
            is_module = True
            if given is not None:
                return options, given, True, fields[index + 1 :]
        elif given is not None:
            options[name] = given
        elif name in _FLAGS[engine]:
            options[name] = each
        elif index + 1 < len(fields):
            options[name] = fields[index + 1]
            index += 1
        index += 1
    return options, None, False, []


def _option(each: Field) -> tuple[str, Field | None]:
    parts = each.split("=")
    name, given = (parts[0].text, parts[1]) if parts is not None else (each.text, None)
    return name.lstrip("-").replace("-", "_"), given


def arguments_of(launch: Launch) -> Iterator[Field]:
    """The words given to the program, up to what redirects its output."""
    for each in launch.arguments:
        if each.known and each.text in ("|", ">", "2>&1", "&", "&&", ";"):
            return
        yield each
