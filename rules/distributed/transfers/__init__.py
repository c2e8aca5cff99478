"""Transfers that go on while the program does: handles, streams, devices, partners."""
