"""What the machine draws and how it feels right now: meters, joules, load, temperature."""
