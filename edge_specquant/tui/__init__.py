"""The full-screen chat (Textual). Reads TokenEvents and the store, draws, and sends requests; no arithmetic on tokens.

From the ground up: news, reply, engine (the bridge to the runtime), dialogue (one conversation over the store),
small services (clipboard, attachments, presets, preferences, choices), widgets/, screens/, app.
"""
