"""Answers under way and what is kept of them."""
