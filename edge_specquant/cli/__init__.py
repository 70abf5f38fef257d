"""The command line: one verb a file. Parses, calls the package, renders; heavy imports stay inside the verbs."""

from .main import main

__all__ = ["main"]
