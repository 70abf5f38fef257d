"""The native room: the only importer of llama_cpp. Handles, return codes and C memory stay in here."""
