"""Measurements as summaries, tables, plots and documents."""
