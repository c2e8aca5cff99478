"""Somebody's own job under our supervisor: who moves, and, once nobody does, who waits where and why."""
