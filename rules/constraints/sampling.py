"""Reinforcement learning: settings with which trainer and generation engine give one token two probabilities.

A loss that weighs tokens by the ratio of the two takes that difference for a change of the policy. `bench compare
--logprobs` measures it; these are the pairs of settings that cause it.
"""

from __future__ import annotations

from rules.constraints.core import Condition, Constraint

_RATIO = Condition("ratio_to_engine", "==", True)
_PROCESSED = "vLLM vllm/config/model.py logprobs_mode: processed values are taken after temperature, top-k and top-p"
_TRUNCATED = "https://github.com/huggingface/trl/issues/6789"


def _cut(identifier: str, quantity: str, rule: str, off: tuple[float, ...], words: str) -> Constraint:
    """A setting of sampling that leaves tokens out: the engine's probabilities are of what is left."""
    return Constraint(
        id=identifier,
        rule=f"{rule} when the loss takes the ratio to the engine's probabilities",
        given=(quantity,),
        needs=(quantity,),
        when=(_RATIO,),
        holds=lambda q: getattr(q, quantity) in off,
        message=f"the engine samples with {words} {{{quantity}}} and gives probabilities among the tokens left, "
        "the trainer among all: their ratio is biased",
        adjust=(quantity,),
        candidates={quantity: off[:1]},
        severity="warning",
        sources=(_TRUNCATED, _PROCESSED),
    )


TABLE: tuple[Constraint, ...] = (
    _cut("ratio-top-p", "top_p", "top_p == 1", (1, 1.0), "top-p"),
    _cut("ratio-top-k", "top_k", "no top_k", (-1, 0), "top-k"),
    _cut("ratio-min-p", "min_p", "min_p == 0", (0, 0.0), "min-p"),
    Constraint(
        id="ratio-temperature",
        rule="temperature == 1 when the engine gives raw log-probabilities and the loss takes the ratio to them",
        given=("temperature",),
        needs=("temperature",),
        when=(_RATIO, Condition("engine_logprobs", "==", "raw")),
        holds=lambda q: q.temperature == 1,
        message="the trainer divides logits by the temperature {temperature}, the engine's log-probabilities are from "
        "before it: their ratio is wrong from the first step on",
        adjust=("engine_logprobs", "temperature"),
        candidates={"temperature": (1.0,)},
        sources=("https://github.com/huggingface/trl/issues/4159", _PROCESSED),
    ),
    Constraint(
        id="ratio-needs-logprobs",
        rule="the engine returns log-probabilities when the loss takes the ratio to them",
        given=("engine_returns_logprobs",),
        needs=("engine_returns_logprobs",),
        when=(_RATIO,),
        holds=lambda q: bool(q.engine_returns_logprobs),
        message="the ratio to the engine's probabilities is asked for, but the engine does not return them",
        adjust=("engine_returns_logprobs",),
        sources=(
            "verl b178a3cd verl/trainer/ppo/rollout_corr_helper.py:1061",
            "https://github.com/verl-project/verl/pull/2953",
        ),
    ),
    Constraint(
        id="engine-dtype",
        rule="engine_dtype == dtype",
        given=("engine_dtype", "dtype"),
        needs=("engine_dtype", "dtype"),
        holds=lambda q: q.engine_dtype == q.dtype,
        message="the engine generates in {engine_dtype}, the trainer computes in {dtype}: their log-probabilities "
        "of the same tokens differ by more than rounding",
        adjust=("engine_dtype", "dtype"),
        severity="warning",
        sources=(
            "verl b178a3cd verl/trainer/config/rollout/rollout.yaml:28 dtype: align with the actor's",
            "https://github.com/vllm-project/vllm/issues/48305",
        ),
    ),
)
