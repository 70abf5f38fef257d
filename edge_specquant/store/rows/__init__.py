"""The rows in SQL."""
