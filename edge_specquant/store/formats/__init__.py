"""Conversations as Markdown and JSON, and back."""
