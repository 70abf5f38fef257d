"""Contexts that compute with nested weights."""
