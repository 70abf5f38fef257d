"""`edge-specquant rpc-worker`: lends this machine's devices to another one through llama.cpp's RPC."""

from __future__ import annotations

import click


@click.command(name="rpc-worker")
@click.option(
    "--listen", default="127.0.0.1:50052", show_default=True, metavar="HOST:PORT", help="Address to serve at."
)
@click.option("--threads", "n_threads", type=click.IntRange(0), default=0, help="0: what suits this machine.")
def command(listen: str, n_threads: int) -> None:
    """Serve until Ctrl-C. Anyone who can reach the address can use it: there is no authentication."""
    from ...native.library.devices import check_endpoint, list_devices, require_rpc, serve_rpc
    from ...placement.machine.this_machine import probe_here

    host, port = check_endpoint(listen)
    require_rpc()
    threads = n_threads or probe_here().cpu.n_threads
    names = ", ".join(device.name for device in list_devices())
    click.echo(f"serving {names} at {host}:{port} with {threads} threads; stop with Ctrl-C", err=True)
    click.echo("warning: llama.cpp RPC has no authentication; serve trusted networks only", err=True)
    serve_rpc(listen, threads)
