"""Replies in turn: the waiting line, slots, routes, token ids kept."""
