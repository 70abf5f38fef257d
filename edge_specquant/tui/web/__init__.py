"""The same chat in a browser."""
