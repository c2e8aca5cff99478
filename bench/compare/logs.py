"""Training logs as series: progress bars with postfixes, JSON lines, `key: value` lines, OpenRLHF replay logs."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import cache
from typing import Any

from bench.compare.series import Metric, Run, Series
from bench.compare.times import Times

LOSSES = (
    "gpt_loss", "loss", "train_loss", "train/loss", "lm loss", "lm_loss", "sft_loss", "policy_loss", "actor_loss",
    "actor/pg_loss", "actor/policy_loss", "reduced_train_loss", "loss_mean",
)  # fmt: skip
"""Names of the loss, best first: a running mean hides what single steps do, so `loss_mean` comes last."""
BAR_LOSSES = ("act_loss", "pg")
"""The policy's loss in progress bars of OpenRLHF's PPO; anywhere else so short a name may mean anything."""
GRAD_NORMS = (
    "grad_norm", "actor_grad_norm", "global_grad_norm", "train/grad_norm", "grad norm", "gradient_norm", "total_norm",
    "actor/grad_norm", "grad_norm_step",
)  # fmt: skip
STEPS = ("global_step", "step", "train_step", "iteration", "iter", "train/global_step")
LONGEST_LINE = 100_000
MOST_STEPS = 10**15
"""Numbers beyond are no steps, and too large to draw."""

_NUMBER = r"[-+]?(?:\d+(?:\.\d*)?(?:[eE][-+]?\d+)?|\.\d+(?:[eE][-+]?\d+)?|nan|inf(?:inity)?)"
_STEP = re.compile(r"(?<![\w/])(?:global[_ ]|train[_ ])?(?:step|iteration|iter)['\"]?\s*[:=]?\s*(\d{1,15})(?!\d)", re.I)
_BAR = re.compile(r"\d{1,3}%\|[^|]*\|\s*(?P<done>\d{1,15})/(?P<total>\d{1,15})\s*\[(?P<inside>.*)\]")
_KEYS = re.compile(r"^.*?([\w /.-]+=)")
_EPOCH = re.compile(r"epoch\D{0,3}(\d{1,15})", re.IGNORECASE)
_ANSI = re.compile(r"\x1b\[[0-?]*[ -/]*[@-~]")
_ACTOR = re.compile(r"^(?:\([\w.]+(?: pid=\d+)?(?:, ip=[\w.:]+)?\)|\[(?:default|rank|Rank )?\d+\]:?)\s*")
_ERROR = re.compile(r"^(?:[A-Za-z_]\w*\.)*[A-Za-z_]\w*(?:Error|Exception|Interrupt)\b.*")
_FORWARD = re.compile(r"^\[\w+ \d\d-\d\d (\d\d:\d\d:\d\d\.\d+) .*\bActor forward (start|end)\b")


@dataclass(slots=True)
class Record:
    """The numbers of one step; `step` is None where the line does not say."""

    step: int | None
    values: dict[str, float]
    digits: int | None = None
    nulls: tuple[str, ...] = ()
    """Losses that are null in JSON, which has no other way to say NaN."""


@dataclass
class _Bar:
    """The renderings of one progress bar: the last postfix at each count."""

    title: str
    total: int
    offset: int
    shown: dict[int, str] = field(default_factory=dict)
    done: int = 0

    def records(self, names: Sequence[str]) -> Iterator[Record]:
        """The values of `names`, step by step.

        A postfix shown at count 0 was set before its step was counted: the bar then shows step n at count n, and the
        last rendering repeats the step before. Otherwise count n shows step n - 1.
        """
        counts = sorted(self.shown)
        before = bool(counts) and counts[0] == 0
        if before and len(counts) > 1:
            last, previous = counts[-1], counts[-2]
            if last >= self.total or self.shown[last] == self.shown[previous]:
                counts.pop()
        for count in counts:
            values, digits = _postfix(self.shown[count], names)
            if values:
                yield Record(self.offset + count - (0 if before else 1), values, digits)


def read_log(lines: Iterable[str], name: str, loss: str | None = None) -> Run:
    """Losses, gradient norms, times and the outcome of one log. Carriage returns count as line ends.

    `loss` names the loss where a log has several; without it the best known name in `LOSSES` is taken.
    """
    losses = (loss,) if loss else (*LOSSES, *BAR_LOSSES)
    in_text, in_bars = (loss, *GRAD_NORMS) if loss else (*LOSSES, *GRAD_NORMS), (*losses, *GRAD_NORMS)
    records: list[Record] = []
    bars: list[_Bar] = []
    outcome, clock, times = _Outcome(), _ForwardClock(), Times()
    for line in _clean(lines):
        if not line.startswith("{"):  # what loggers write a million times over
            outcome.see(line)
            clock.see(line)
        bar = _BAR.search(line) if "%|" in line else None
        if bar:
            times.see_bar(_title(bar), int(bar["done"]), int(bar["total"]), bar["inside"])
        else:
            times.see(line)
        if bar and "=" in bar["inside"]:
            if _postfix(bar["inside"], in_bars)[0]:  # the critic's bars may stand between the actor's
                _render(bars, bar)
        else:
            record = _json_record(line, in_text) or _text_record(line, in_text)
            if record:
                records.append(record)
    records += [record for bar in bars for record in bar.records(in_bars)]
    run = Run(name, status=outcome.status, message=outcome.message)
    run.loss = _series(records, losses)
    run.grad_norm = _series(records, GRAD_NORMS)
    run.metrics |= times.metrics({bar.title for bar in bars})
    if clock.seconds:
        run.metrics["forward"] = Metric("second", [sum(clock.seconds) / len(clock.seconds)])
    return run


def _clean(lines: Iterable[str]) -> Iterator[str]:
    for line in lines:
        for part in line.split("\r"):
            text = part[:LONGEST_LINE]
            text = (_ANSI.sub("", text) if "\x1b" in text else text).strip("\n")
            yield _ACTOR.sub("", text) if text.startswith(("(", "[")) else text


def _render(bars: list[_Bar], match: re.Match[str]) -> None:
    """Note one rendering of a progress bar. A title or a count that starts anew is another bar, whose steps go on
    where the epochs before it end."""
    title, done, total = _title(match), int(match["done"]), int(match["total"])
    last = bars[-1] if bars else None
    if last is None or title != last.title or total != last.total or done < last.done:
        bars.append(last := _Bar(title, total, _offset(bars, title, total)))
    last.done = done
    last.shown[done] = _KEYS.sub(r"\1", match["inside"])  # without the times, which differ between renderings


def _title(match: re.Match[str]) -> str:
    """What stands before a bar's percentage."""
    return re.split("[%|]", match.string[: match.start()])[-1].strip().removesuffix(":").strip()


def _offset(bars: list[_Bar], title: str, total: int) -> int:
    if not bars:
        return 0
    epoch, first = _EPOCH.search(title), _EPOCH.search(bars[0].title)
    if epoch and first and title not in {bar.title for bar in bars}:
        return max(int(epoch[1]) - int(first[1]), 0) * total
    return max(bar.offset + bar.total for bar in bars)


def _postfix(inside: str, names: Sequence[str]) -> tuple[dict[str, float], int | None]:
    """The numbers called `names` in `00:02<00:40, 2.1it/s, gpt_loss=2.04, lr=0`, and the fewest digits among them."""
    values, digits = {}, []
    for part in inside.split(", "):
        key, _, text = part.partition("=")
        found = re.fullmatch(rf"(?:\w+\()?({_NUMBER})\)?", text.strip(), re.IGNORECASE)
        if found and key.strip() in names:
            values[key.strip()] = float(found[1])
            digits.append(_significant(found[1]))
    return values, min(digits, default=None)


def _significant(text: str) -> int:
    """Significant digits of a printed number. A bar prints three and drops zeros at the end, so never fewer."""
    mantissa = re.sub(r"[eE].*$", "", text).lstrip("+-").replace(".", "").lstrip("0")
    return max(len(mantissa), 3)


def _json_record(line: str, names: Sequence[str]) -> Record | None:
    """One JSON object of scalars, as loggers write them; NaN and Infinity are read."""
    text = line.strip()
    if not text.startswith("{") or not text.endswith("}"):
        return None
    try:
        found: Any = json.loads(text)
    except (ValueError, RecursionError):
        return None
    values = {name: value for name in names if name in found and (value := _number(found[name])) is not None}
    evaluated = any(name.startswith("eval") for name in found)  # a row of an evaluation may leave the loss open
    nulls = tuple(n for n in names if n in found and found[n] is None and n not in GRAD_NORMS and not evaluated)
    if not values and not nulls:
        return None
    step = next((_number(found[name]) for name in STEPS if name in found), None)
    return Record(int(step) if step is not None and abs(step) < MOST_STEPS else None, values, nulls=nulls)


def _number(value: Any) -> float | None:
    """Numbers, and texts such as "nan" or "0.25", as some loggers write them; nothing else."""
    if isinstance(value, bool) or not isinstance(value, (int, float, str)):
        return None
    try:
        return float(value)
    except (ValueError, OverflowError):
        return None


@cache
def _value(names: tuple[str, ...]) -> re.Pattern[str]:
    """`name: 1.5`, `'name': '1.5'`, `name = tensor(1.5)` for any of `names`."""
    keys = "|".join(re.escape(name) for name in sorted(names, key=len, reverse=True))
    key = rf"(?<![\w/])(?<!eval )(?P<key>{keys})['\"]?\s*[:=]\s*['\"]?"
    return re.compile(rf"{key}(?:[\w.]*\()?(?P<number>{_NUMBER})(?![\w.])", re.IGNORECASE)


@cache
def _lowered(names: tuple[str, ...]) -> dict[str, str]:
    return {name.lower(): name for name in names}


def _text_record(line: str, names: tuple[str, ...]) -> Record | None:
    known = _lowered(names)
    values: dict[str, float] = {}
    for found in _value(names).finditer(line):
        values.setdefault(known[found["key"].lower()], float(found["number"]))
    if not values:
        return None
    step = _STEP.search(line)
    return Record(int(step[1]) if step else None, values)


def _series(records: list[Record], names: tuple[str, ...]) -> Series | None:
    """The series of the first name that the records have. Steps come from the records; where none says its step,
    they are counted."""
    for name in names:
        if not any(name in record.values for record in records):
            continue
        having = [record for record in records if name in record.values or name in record.nulls]
        series = Series(name, digits=min((r.digits for r in having if r.digits), default=None))
        numbered = any(record.step is not None for record in having)
        for count, record in enumerate(having):
            step = record.step if numbered else count
            if step is not None and (name in record.values or step not in series.values):
                series.put(step, record.values.get(name, math.nan))
        return series
    return None


class _Outcome:
    """Whether the log tells of an end with an error: `ok` or `crash` with the first line of the error."""

    def __init__(self) -> None:
        self.status, self.message = "ok", ""

    def see(self, line: str) -> None:
        if line.startswith("Replay successful"):
            self.status, self.message = "ok", ""
        elif line.startswith("Replay failed") or _ERROR.match(line):
            if self.status == "ok":
                self.message = line.strip()[:300]
            self.status = "crash"


class _ForwardClock:
    """Seconds between the lines that an OpenRLHF actor writes before and after a forward pass."""

    def __init__(self) -> None:
        self.seconds: list[float] = []
        self.start: datetime | None = None

    def see(self, line: str) -> None:
        found = _FORWARD.match(line) if "Actor forward" in line else None
        if not found:
            return
        try:
            now = datetime.strptime(found[1], "%H:%M:%S.%f")
        except ValueError:  # 25:61:61 is no time
            return
        if found[2] == "start":
            self.start = now
        elif self.start is not None:
            self.seconds.append((now - self.start).total_seconds() % 86_400)  # past midnight
            self.start = None
