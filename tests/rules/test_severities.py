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


@pytest.mark.parametrize(
    ("code", "text", "severity"),
    [
        ("MP537", _WRITING.format(what="settings", then="dist.barrier()"), "note"),
        ("MP537", _WRITING.format(what='{"right": right}', then="dist.barrier()"), "warning"),
        ("MP537", _WRITING.format(what="settings", then='print(open("written.json").read())'), "warning"),
        ("MP501", _MEETING.format(test="rank != 0"), "error"),
        ("MP501", _MEETING.format(test="i % world != rank"), "warning"),
    ],
)
def test_severity(code: str, text: str, severity: str, tmp_path: Path) -> None:
    found = run(_RULES[code], text, str(tmp_path)).findings
    assert [each.severity for each in found] == [severity]
