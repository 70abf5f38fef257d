"""What stands before every route: guards, keys, connections, logs."""
