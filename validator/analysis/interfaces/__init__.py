"""Interfaces: families of classes, their members, overrides, and the calls that must fit."""
