"""Is the engine sound on this processor? Asked in a child process."""
