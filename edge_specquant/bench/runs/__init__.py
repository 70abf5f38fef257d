"""Contestants over this package's runtime, and the race between them."""
