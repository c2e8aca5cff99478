"""What the programs make of their options before the constraints hold: each framework's own rules."""

from __future__ import annotations

from collections.abc import Iterator

from rules.launch._reading.configuration import Configuration, Said
from rules.launch._reading.frameworks import Framework
from validator.analysis.commands.command_line import CommandLine
from validator.analysis.commands.launch import Launch


def refined(given: Configuration, framework: Framework, launch: Launch, line: CommandLine) -> Iterator[Configuration]:
    """The configurations that a launch is checked as."""
    if framework.name == "openrlhf":
        yield _openrlhf(given, framework, launch)
    elif framework.name == "verl":
        yield from _verl(given, line)
    elif framework.backend == "megatron":
        yield _megatron(given, line)
    elif framework.backend == "torchtitan":
        yield _torchtitan(given)
    else:
        if given.framework == "trl" or given.implied.get("backend") == "deepspeed":
            _units(given)
        if given.framework == "trl":
            _trl(given, line)
        yield given


def refined_file(given: Configuration, framework: Framework) -> Iterator[Configuration]:
    """The configurations that a file by itself is checked as."""
    if framework.backend == "torchtitan":
        yield _torchtitan(given)
    elif framework.name == "accelerate.yaml":
        sizes = ("tp", "ring", "ulysses", "dp_shard", "dp_replicate")
        if any((given.value(size) or 1) > 1 for size in sizes):
            given.framework = "accelerate"
            _accelerate_backend(given)
            unsaid = {size: 1 for size in sizes if size not in given.said}
            given.implied.update({"pp": 1, "ring_impl": "torch", "ep": 1, **unsaid})
            yield given
        elif given.value("backend") == "FSDP":
            given.said = {name: said for name, said in given.said.items() if name in _OF_FSDP}
            yield given
    else:
        yield given


_OF_FSDP = ("loads_on_one_rank", "syncs_module_states")
_ACCELERATE = {"DEEPSPEED": "deepspeed", "MULTI_GPU": "ddp", "MEGATRON_LM": "megatron"}


def _accelerate_backend(given: Configuration) -> None:
    """The backend behind accelerate's `distributed_type`; the older FSDP is none of the table's."""
    said = given.said.pop("backend", None)
    version = given.value("fsdp_version")
    given.drop("fsdp_version")
    if said is None:
        return
    backend = "fsdp2" if said.value == "FSDP" and version == 2 else _ACCELERATE.get(str(said.value))
    if backend is not None:
        given.said["backend"] = said._replace(value=backend)


def _units(given: Configuration) -> None:
    """Programs that offer no model parallelism have all sizes 1."""
    for size in ("tp", "ring", "ulysses", "pp", "ep"):
        if size not in given.said:
            given.implied.setdefault(size, 1)


def _openrlhf(given: Configuration, framework: Framework, launch: Launch) -> Configuration:
    stages = framework.flags["zero_stage"]
    if launch.parser is not None and not any(flag in launch.parser.flags for flag in stages):
        given.drop("backend")
        given.implied["backend"] = "fsdp2"  # a version without DeepSpeed
    backend = given.value("backend")
    if backend in ("deepspeed", "fsdp2"):
        given.move(f"tp_{backend}", "tp")
    if backend == "fsdp2":
        given.drop("zero_stage", "hpz", "offload_optimizer")
    given.drop("tp_deepspeed", "tp_fsdp2")
    if "actor_gpus" in given.said and (launch.parser is not None or launch.name.endswith(("ppo_ray", "ppo"))):
        _openrlhf_ppo(given)
    else:
        given.drop(
            "rollout_batch_size", "micro_rollout_batch_size", "samples_per_prompt", "generation_batch_size", "engines",
            "engine_tp", "engine_share", "advantage", "actor_gpus", "ref_gpus", "critic_gpus", "reward_gpus",
            "asynchronous", "top_p", "ratio_to_engine",
        )  # fmt: skip
    given.drop("kl_coefficient", "critic_model")
    return given


def _openrlhf_ppo(given: Configuration) -> None:
    given.said["world_size"] = given.said["actor_gpus"]
    given.drop("seq_len", "procs_per_node", "num_nodes")
    if (packing := given.said.get("packing")) is not None and packing.span is None:
        given.drop("packing")  # the program turns it on where ring attention or dynamic batches need it
    if given.value("colocate_all"):
        given.implied["colocate_actor_ref"] = True
        given.said.pop("colocate_actor_ref", None)
    if given.value("kl_coefficient") in (0, None):
        given.drop("ref_gpus")  # without the penalty there is no reference model
    if given.value("advantage") not in ("gae",):
        given.drop("critic_gpus", "reward_gpus")
    if given.value("dynamic_batch"):
        given.drop("micro_batch_size")
    if given.value("engines") and given.value("dtype") is not None:
        given.implied["engine_dtype"] = "bf16"  # vLLM is started with it whatever the trainer computes in


def _trl(given: Configuration, line: CommandLine) -> None:
    """With vLLM the ratio to its probabilities is taken unless that is switched off."""
    if _switch(line, "--use_vllm", False) and _switch(line, "--vllm_importance_sampling_correction", True):
        given.implied["ratio_to_engine"] = True


def _switch(line: CommandLine, flag: str, default: bool) -> bool | None:
    """A switch of transformers' parser: alone it means true, and it may have a value; None for one not known."""
    found = line.last(flag)
    if found is None:
        return None if line.open else default
    if not found.values:
        return True
    return found.values[0].text.lower() in ("true", "1", "yes") if found.values[0].known else None


def _verl_ratio(given: Configuration, line: CommandLine) -> None:
    """Whether verl's loss takes the ratio to the engine's probabilities, and the defaults beside that."""
    for name in ("ratio_weights", "ratio_rejects", "ratio_bypass", "ratio_cap"):
        said = given.said.pop(name, None)
        if said is not None and said.value and (name != "ratio_cap" or said.value > 0):
            given.said.setdefault("ratio_to_engine", said._replace(value=True))
    if given.open or line.last("--config-name", "--config-path", "--config-dir", "-cn", "-cp", "-cd") is not None:
        return  # what is not said may be no default
    if given.value("ratio_to_engine"):
        given.said.setdefault("engine_returns_logprobs", Said(False, "actor_rollout_ref.rollout.calculate_log_probs"))
    for one, other in (("engine_dtype", "dtype"), ("dtype", "engine_dtype")):
        if one in given.said and other not in given.said:
            given.implied[other] = "bf16"


def _verl(given: Configuration, line: CommandLine) -> Iterator[Configuration]:
    _verl_ratio(given, line)
    strategy = given.value("backend")
    given.drop("backend")
    if strategy == "megatron":
        given.implied["backend"] = "megatron"
        for size in ("tp", "pp", "ring", "ep"):
            given.move(f"{size}_megatron", size)
        given.drop("ulysses")
        given.implied.update({"ulysses": 1, "ring_impl": "megatron"})
    elif strategy in ("fsdp", "fsdp2"):
        given.drop("tp_megatron", "pp_megatron", "ring_megatron", "ep_megatron")
        given.implied.update({"tp": 1, "pp": 1, "ep": 1})
    else:
        given.drop("tp_megatron", "pp_megatron", "ring_megatron", "ep_megatron")
    gpus, nodes = given.said.get("gpus_per_node"), given.said.get("num_nodes")
    if gpus is not None and nodes is not None and gpus.value is not None and nodes.value is not None:
        flag = gpus.flag if nodes.value == 1 else f"{gpus.flag} × {nodes.flag}"
        given.said["world_size"] = gpus._replace(value=gpus.value * nodes.value, flag=flag)
    given.drop("num_nodes", "procs_per_node", "advantage")  # with one sample verl takes the reward as it is
    if given.value("rollout_batch_size") == 0:
        given.drop("rollout_batch_size")  # asynchronous training has no batches of rollouts
    if given.name.rpartition(".")[2] != "main_ppo" or "experimental" in given.name:
        given.drop("engine_tp", "engine_share", "gpus_per_node")  # generation has GPUs of its own
    yield given


def _megatron(given: Configuration, line: CommandLine) -> Configuration:
    if given.value("uneven_pipeline"):
        given.drop("layers")
    if given.value("latent_attention"):
        given.drop("heads", "kv_heads")
    elif "kv_heads" not in given.said and line.last("--group-query-attention") is None and not given.open:
        heads = given.said.get("heads")
        if heads is not None:
            given.said["kv_heads"] = heads._replace(span=None)
    if "actor_gpus" in given.said:  # training that a Ray driver starts
        given.said["world_size"] = given.said.pop("actor_gpus")
        given.implied["pads_sequence"] = True
    if given.value("dynamic_batch"):
        given.drop("micro_batch_size")
    if given.value("tp") == 1:
        given.drop("sequence_parallel")  # switched off with a warning
    given.drop("uneven_pipeline", "latent_attention", "rollout_batch_size", "samples_per_prompt")
    given.implied.update({"ulysses": 1, "ring_impl": "megatron", "backend": "megatron"})
    return given


def _torchtitan(given: Configuration) -> Configuration:
    for quantity in ("dp_shard", "train_batch_size"):
        if (given.value(quantity) or 0) < 0:
            given.drop(quantity)
    given.implied.update({"ulysses": 1, "ring_impl": "torchtitan"})
    for size in ("tp", "pp", "ring", "ep", "dp_replicate"):
        if size not in given.said:
            given.implied.setdefault(size, 1)
    return given
