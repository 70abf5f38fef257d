"""Lines on disk: measurements, routed replies, prompt sets."""
