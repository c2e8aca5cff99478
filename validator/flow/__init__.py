"""The flow of values through a project: who is called with what, and what each value may be."""

from validator.flow.program.flow import Flow
from validator.flow.program.unit import Unit
from validator.flow.values import Val

__all__ = ["Flow", "Unit", "Val"]
