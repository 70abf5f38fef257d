"""Answers right or wrong, and how siblings agree with the reference."""
