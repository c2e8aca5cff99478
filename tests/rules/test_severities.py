"""How grave a finding is: an error is certain, a warning likely, a note harmless as far as is known."""

from __future__ import annotations

from pathlib import Path

import pytest

from validator.examples import run
from validator.registry import load_rules

_RULES = {rule.rule.code: rule for rule in load_rules()}

_WRITING = """
import json
import torch
import torch.distributed as dist

def main(model, batches, settings):
    rank, world = dist.get_rank(), dist.get_world_size()
    right = 0
    for i, batch in enumerate(batches):
        if i % world == rank:
            right += model(batch).sum().item()
    dist.barrier()
    with open("written.json", "w") as file:
        json.dump({what}, file)
    {then}
"""

_MEETING = """
import torch.distributed as dist

def main(batches, step):
    rank, world = dist.get_rank(), dist.get_world_size()
    for i, batch in enumerate(batches):
        if {test}:
            continue
        step(batch)
        dist.barrier()
"""

_SAVED = """\
# file: example.py
import torch
from transformers import AutoModelForCausalLM, HfArgumentParser, Trainer, TrainingArguments

def main(data):
    (args,) = HfArgumentParser(TrainingArguments).parse_args_into_dataclasses()
    model = AutoModelForCausalLM.from_pretrained("base")
    trainer = Trainer(model=model, args=args, train_dataset=data)
    trainer.train()
    if trainer.is_world_process_zero():
        trainer.save_model("out")

if __name__ == "__main__":
    main([])
# file: run.sh
torchrun --nproc_per_node 8 example.py --output_dir out --deepspeed zero.json
# file: zero.json
{"zero_optimization": {"stage": STAGE, "stage3_gather_16bit_weights_on_model_save": true}}
"""

_TRANSPORT = """\
# before: transports.py
def by_file({taken}):
    print(folder, config)

def transport_of(folder, config, lora=None):
    print(config)
    print(folder)
    return by_file({given})
# file: transports.py
def by_file({taken}):
    print(folder, config)

def transport_of(folder, config, lora=None):
    print(config)
    print(folder)
    return by_file(folder, config)
# file: train.py
from transports import transport_of

def setup(config, lora):
    return transport_of("out", config, lora)
"""


@pytest.mark.parametrize(
    ("code", "text", "severity"),
    [
        ("MP537", _WRITING.format(what="settings", then="dist.barrier()"), "note"),
        ("MP501", _SAVED.replace("STAGE", "2"), "note"),
        ("MP501", _SAVED.replace("STAGE", "3"), "warning"),
        ("MP537", _WRITING.format(what='{"right": right}', then="dist.barrier()"), "warning"),
        ("MP537", _WRITING.format(what="settings", then='print(open("written.json").read())'), "warning"),
        ("MP501", _MEETING.format(test="rank != 0"), "error"),
        ("MP501", _MEETING.format(test="i % world != rank"), "warning"),
        ("MP904", _TRANSPORT.format(taken="folder, config, lora=None", given="folder, config, lora"), "warning"),
        ("MP904", _TRANSPORT.format(taken="folder, config", given="folder, lora or config"), "note"),
    ],
)
def test_severity(code: str, text: str, severity: str, tmp_path: Path) -> None:
    found = run(_RULES[code], text, str(tmp_path)).findings
    assert [each.severity for each in found] == [severity]
