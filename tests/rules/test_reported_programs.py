"""Programs after errors that others have named or reported: the wrong ones are found, the right ones are silent."""

from __future__ import annotations

import pytest

from tests.rules import corrbench, silent_gradients

# What cannot be told from the source alone, with the reason.
NOT_SEEN = {
    "vocab-parallel-mean-of-the-own-shard": "that the last dimension of a parameter is sharded, its name alone says",
    "local-tokens-in-a-loss-per-token": "which of two counts a loss is divided by later",
    "recomputed-over-another-group": "whether two tensor-parallel groups are one",
    "gradient-summed-in-one-mode-alone": "that a gradient is partial in the other mode, too",
    "dropout-in-evaluation": "told as a note: on unseen trees no such finding was true",
    "layers-of-a-stage-saved-under-local-names": "that names in a checkpoint count over all stages",
}


@pytest.mark.parametrize("case", silent_gradients.cases(), ids=lambda case: case.name)
def test_silent_error_is_found(case: silent_gradients.Case) -> None:
    assert bool(silent_gradients.found(case.wrong)) is (case.name not in NOT_SEEN)
    assert not silent_gradients.found(case.right)


@pytest.mark.parametrize("case", corrbench.cases(), ids=lambda case: case.name)
def test_class_of_mpi_corrbench_is_found(case: corrbench.Case) -> None:
    for where, text in corrbench.texts(case, wrong=True):
        assert corrbench.found(text), where
    for where, text in corrbench.texts(case, wrong=False):
        assert not corrbench.found(text), where
