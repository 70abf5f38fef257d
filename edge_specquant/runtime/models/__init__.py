"""The siblings of a family as they are loaded: plan, measurements, room in memory."""
