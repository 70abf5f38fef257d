"""The child of peer_process.py: `python -m edge_specquant.bench.peers.peer_child SETTINGS`, SETTINGS being JSON.

Starts llama.cpp's server, prints its URL, and ends when its standard input is closed. The only importer of xllamacpp.
"""

from __future__ import annotations

import json
import os
import sys


def main() -> int:
    """Serves until the parent closes the pipe."""
    import xllamacpp

    settings = json.loads(sys.argv[1])
    params = xllamacpp.CommonParams()
    params.model.path = settings["model"]
    params.n_ctx = settings["n_ctx"] * settings["n_parallel"]
    params.n_parallel = settings["n_parallel"]
    params.n_gpu_layers = settings["n_gpu_layers"]
    params.no_extra_bufts = not settings["use_extra_bufts"]
    params.hostnames = ["127.0.0.1"]
    params.port = 0
    params.ui = False
    if settings["n_threads"]:
        params.cpuparams.n_threads = params.cpuparams_batch.n_threads = settings["n_threads"]
    if settings["draft"]:
        draft = params.speculative.draft
        draft.mparams.path = settings["draft"]
        draft.n_max = settings["n_draft"]
        draft.n_gpu_layers = settings["n_gpu_layers"]
        params.speculative.types = [xllamacpp.common_speculative_type.COMMON_SPECULATIVE_TYPE_DRAFT_SIMPLE]
    server = xllamacpp.Server(params)
    print(server.listening_address, flush=True)
    sys.stdin.read()
    os._exit(0)  # the server's own threads do not end with the interpreter


if __name__ == "__main__":
    sys.exit(main())
