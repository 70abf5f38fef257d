"""The engine's libraries: loaded, logged, asked for devices."""
