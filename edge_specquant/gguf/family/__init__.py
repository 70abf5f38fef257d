"""A family on disk: its files and the manifest that proves them."""
