"""The engine's build: facts of the machine, flags, the wheel."""
