"""Rings and pipelines: ranks that hand tensors to their neighbours."""
