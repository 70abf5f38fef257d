"""What fits and is chosen, and why."""
