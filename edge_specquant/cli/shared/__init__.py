"""Flags, tables and progress bars that verbs share."""
