"""Published OpenRLHF trees: read whole, known defects found, and nothing reported that no person has judged."""

from __future__ import annotations

import pytest

from tests.real import trees, wheels

PER_THOUSAND_LINES = 1.1  # errors and warnings; above that nobody reads them

# (version, rule, file, a word of the message): defects whose reasons stand in reports/openrlhf.md
KNOWN = [
    ("0.5.0", "MP303", "openrlhf/cli/train_ppo_ray.py", "--actor_init_on_gpu"),
    ("0.8.5", "MP301", "openrlhf/utils/deepspeed/deepspeed.py", "ds_tensor_parallel_size"),
    ("0.8.5", "MP120", "openrlhf/trainer/kto_trainer.py", "disable_ds_ckpt"),
    ("0.8.5", "MP120", "openrlhf/cli/interactive_chat.py", "generate"),
    ("0.8.5", "MP130", "openrlhf/cli/batch_inference.py", "3 parts"),
    ("0.8.5", "MP303", "openrlhf/cli/train_sft.py", "--train_split"),
    ("0.9.10", "MP303", "openrlhf/cli/train_ppo_ray.py", "--ptx_coef"),
    ("0.9.10", "MP303", "openrlhf/cli/train_ppo_ray.py", "--perf"),
]


@pytest.mark.parametrize("version", wheels.OPENRLHF)
def test_a_published_tree_is_read_whole_and_reported_on_sparingly(version):
    tree = wheels.openrlhf(version)

    document = trees.report(tree)

    assert document["summary"]["files"] == len(trees.files(tree)) >= 50
    assert len(document["findings"]) <= PER_THOUSAND_LINES * trees.thousand_lines(tree)


@pytest.mark.parametrize(("version", "rule", "file", "word"), KNOWN)
def test_a_known_defect_is_found(version, rule, file, word):
    found = trees.found(wheels.openrlhf(version))

    assert any((rule, file) == (code, path) and word in message for code, path, message in found)


@pytest.mark.parametrize("version", wheels.OPENRLHF)
def test_every_finding_has_a_verdict(version):
    assert trees.not_judged(wheels.openrlhf(version)) == []
