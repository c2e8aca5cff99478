"""What is above the classes of libraries, by which tests of a class tell objects apart."""

from __future__ import annotations

import pytest

from validator.models.members.classes import may_descend


@pytest.mark.parametrize(
    ("cls", "other", "may"),
    [
        ("torch.utils.data.Dataset", "datasets.Dataset", False),
        ("datasets.Dataset", "torch.utils.data.Dataset", False),
        ("transformers.Seq2SeqTrainer", "transformers.Trainer", True),
        ("transformers.Trainer", "transformers.Seq2SeqTrainer", False),
        ("lightning.pytorch.LightningModule", "torch.nn.Module", True),
        ("unheard.of.Thing", "torch.nn.Module", True),
    ],
)
def test_what_a_class_may_be_below(cls: str, other: str, may: bool) -> None:
    assert may_descend(cls, other) is may
