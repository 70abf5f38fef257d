"""From a bare clone to a working program: checks the machine, builds the engine, fills `.venv`.

Standard library only, because it runs before anything is installed.
"""
