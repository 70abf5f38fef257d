"""The engine in a child process."""
