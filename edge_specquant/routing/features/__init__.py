"""A prompt to its features."""
