"""The OpenAI-compatible server: parses requests, asks the runtime, renders answers. Knows no arithmetic on tokens.

From the ground up: errors, options, bodies, forms; catalog, conversation, tools, translate; engine (who answers when);
choice, chat, completions (answers as JSON and as events); guards (host, key, body, log), metrics; app; serve.
"""
