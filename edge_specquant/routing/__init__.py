"""Prompt to route: which siblings should work on it. Knows nothing of the engine."""
