"""The rows of MP152's table about torch are what the installed torch does."""

from __future__ import annotations

from typing import Any

import pytest

from rules.interface.library_calls.arguments_exclude import Exclusion, exclusions

torch = pytest.importorskip("torch")

_VALUES: dict[str, Any] = {
    "sampler": range(2), "batch_sampler": [[0], [1]], "shuffle": True, "batch_size": 2, "drop_last": True,
    "persistent_workers": True, "prefetch_factor": 2, "mode": "default", "options": {}, "nesterov": True,
}  # fmt: skip
_FIRST: dict[str, Any] = {
    "torch.utils.data.DataLoader": lambda: [0, 1],
    "torch.optim.SGD": lambda: [torch.nn.Parameter(torch.zeros(1))],
    "torch.compile": lambda: torch.nn.Linear(1, 1),
}
_ROWS = [(name, row) for name, rows in exclusions().items() if name in _FIRST for row in rows]


@pytest.mark.parametrize(("name", "row"), _ROWS, ids=lambda each: getattr(each, "given", (each,))[0])
def test_torch_refuses_both(name: str, row: Exclusion) -> None:
    call: Any = torch
    for link in name.split(".")[1:]:
        call = getattr(call, link)
    given = {row.given[0]: _VALUES[row.given[0]]}
    if row.beside is not None:
        given[row.beside[0]] = _VALUES[row.beside[0]]
    with pytest.raises((ValueError, RuntimeError, AssertionError)) as error:
        call(_FIRST[name](), **given)
    assert error.type.__name__ == row.raises
