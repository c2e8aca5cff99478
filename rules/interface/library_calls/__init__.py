"""Calls of libraries, as their documentation asks for them."""
