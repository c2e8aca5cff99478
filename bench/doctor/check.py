"""The result of one check: a line and what to do."""

from __future__ import annotations

from dataclasses import dataclass

OK, WARNING, FAILURE = "ok", "warning", "failure"


@dataclass(frozen=True)
class Check:
    """`status` is ok, warning (slower, or a backend less) or failure (runs will not work). `advice` is what to do."""

    name: str
    status: str
    text: str
    advice: str = ""

    def line(self) -> str:
        advice = f" → {self.advice}" if self.advice else ""
        return f"{self.status:<8} {self.name}: {self.text}{advice}"


def ok(name: str, text: str) -> Check:
    return Check(name, OK, text)


def warning(name: str, text: str, advice: str) -> Check:
    return Check(name, WARNING, text, advice)


def failure(name: str, text: str, advice: str) -> Check:
    return Check(name, FAILURE, text, advice)
