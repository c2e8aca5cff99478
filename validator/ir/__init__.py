"""Python functions as control-flow graphs in SSA form: the one form of code that domains and rules read."""

from validator.ir.lower import lower
from validator.ir.model import Block, CallShape, Code, Loop, Unsupported, Value

__all__ = ["Block", "CallShape", "Code", "Loop", "Unsupported", "Value", "lower"]
