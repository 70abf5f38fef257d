"""Policies: features to signals, a score, a tier."""
