"""A process group from its start to its end: deadlines, heartbeats, logs, locks, and how it ended."""
