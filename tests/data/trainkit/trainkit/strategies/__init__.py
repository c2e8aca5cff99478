"""The strategies and their factory."""

from trainkit.strategies.factory import get_strategy

__all__ = ["get_strategy"]
