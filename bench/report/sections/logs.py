"""Each row's message, settings and log."""

from __future__ import annotations

PLACE, TITLE, TEMPLATE = 80, "Messages and logs", "logs.html.jinja"
