"""Policies fitted to measurements, and what routing did."""
