"""The five configurations that OpenRLHF's backend tests train, as scripts, and what a person would do then."""

from __future__ import annotations

import re
from pathlib import Path

from validator.finding import Finding
from validator.registry import load_rules
from validator.run.checker import Check, check_sources
from validator.run.config import Config
from validator.source import SourceFile

RULES = {each.rule.code: each for each in load_rules()}

_HEAD = """#!/bin/bash
set -x

NUM_GPUS=${NUM_GPUS:-8}
TP_SIZE=${TP_SIZE:-2}
RING_SIZE=${RING_SIZE:-2}
MAX_SAMPLES=${MAX_SAMPLES:-1000}
MODEL=${MODEL:-"meta-llama/Meta-Llama-3-8B"}
OUTPUT_DIR=${OUTPUT_DIR:-"./checkpoint/test_tp${TP_SIZE}"}
LOG_DIR=${LOG_DIR:-"./logs"}
DP_SIZE=$((NUM_GPUS / TP_SIZE / RING_SIZE))
mkdir -p "${LOG_DIR}"

read -r -d '' training_commands <<EOF
openrlhf.cli.train_sft \\
   --max_len 2048 \\
   --dataset Open-Orca/OpenOrca \\
   --train_batch_size 128 \\
   --micro_train_batch_size 2 \\
   --max_samples ${MAX_SAMPLES} \\
   --pretrain ${MODEL} \\
   --save_path ${OUTPUT_DIR} \\
   --param_dtype bf16 \\
   --attn_implementation flash_attention_2 \\
   --learning_rate 5e-6 \\
"""
_TORCHRUN = """   --gradient_checkpointing
EOF

if [[ ${1} != "slurm" ]]; then
    torchrun --nproc_per_node=${NUM_GPUS} -m $training_commands 2>&1 | tee "${LOG_DIR}/test.log"
fi
"""
_TP = "   --fsdp_tensor_parallel_size ${TP_SIZE} \\\n   --use_hf_tp_plan \\\n"
_RING = "   --ring_attn_size ${RING_SIZE} \\\n   --packing_samples \\\n"

SCRIPTS = {
    "deepspeed": _HEAD
    + "   --backend deepspeed \\\n   --zero_stage 2 \\\n"
    + _TORCHRUN.replace("torchrun --nproc_per_node=${NUM_GPUS} -m", "deepspeed --num_gpus=${NUM_GPUS} --module"),
    "fsdp2": _HEAD + "   --backend fsdp2 \\\n" + _TORCHRUN,
    "fsdp2-tp": _HEAD + "   --backend fsdp2 \\\n" + _TP + _TORCHRUN,
    "fsdp2-ring": _HEAD + "   --backend fsdp2 \\\n" + _RING + _TORCHRUN,
    "fsdp2-tp-ring": _HEAD + "   --backend fsdp2 \\\n" + _TP + _RING + _TORCHRUN,
}


def checked(files: dict[str, str], codes: tuple[str, ...], folder: Path) -> list[Finding]:
    """The findings of some rules on a tree of the given files."""
    sources = []
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
        sources.append(SourceFile(name, str(path)))
    rules = [RULES[code] for code in codes]
    result = check_sources(sources, Check(Config(root=str(folder)), rules, rules))
    assert result.errors == []
    return result.findings


def identifier(finding: Finding) -> str:
    """The constraint that a finding is about."""
    return finding.message.rpartition("(")[2].rstrip(")")


def violations(script: str, folder: Path) -> dict[str, Finding]:
    """By constraint, what is wrong with a script."""
    return {identifier(finding): finding for finding in checked({"run.sh": script}, ("MP705",), folder)}


def edited(script: str, *edits: tuple[str, str]) -> str:
    """The script with texts replaced, each of which must be there once."""
    for old, new in edits:
        assert script.count(old) == 1, old
        script = script.replace(old, new)
    return script


def mended(script: str, finding: Finding) -> list[str]:
    """The scripts that result when each change that a finding proposes is made, one at a time."""
    found = []
    for flag, values in re.findall(r"set `([^`×]+)` to ([^;]+)", finding.help):
        for value in values.split(" or "):
            found.append(re.sub(rf"({re.escape(flag)}[ =])(\S+)", rf"\g<1>{value.strip()}", script))
    for flag in re.findall(r"pass `([^`]+)`", finding.help):
        found.append(script.replace("train_sft \\\n", f"train_sft {flag} \\\n"))
    for flag in re.findall(r"drop `([^`]+)`", finding.help):
        found.append(re.sub(rf"\s*{re.escape(flag)}\b( \\)?", "", script))
    return found
