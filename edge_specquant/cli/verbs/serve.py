"""`edge-specquant serve`: the OpenAI-compatible server."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from ...config import Loaded
    from ...server.options import ServerOptions

DEFAULT_POLICY = "fast"

_FLAGS = {
    "host": "server.host",
    "port": "server.port",
    "api_key": "server.api_key",
    "parallel": "server.parallel",
    "queue": "server.queue",
    "timeout": "server.timeout_s",
    "cors_origin": "server.cors_origins",
    "policy": "chat.policy",
    "target": "chat.target",
    "draft": "chat.draft",
    "n_ctx": "engine.n_ctx",
    "n_batch": "engine.n_batch",
    "n_threads": "engine.n_threads",
    "n_gpu_layers": "engine.n_gpu_layers",
    "objective": "engine.objective",
}


@click.command()
@click.argument("family", required=False)
@click.option("--host", metavar="ADDRESS", help="Where to listen [127.0.0.1]; elsewhere than loopback needs a key.")
@click.option("--port", type=click.IntRange(0, 65535), help="Port [8080]; 0 is any free one.")
@click.option("--api-key", metavar="KEY", help="Clients must send it. EDGE_SPECQUANT_SERVER_API_KEY keeps it private.")
@click.option(
    "--parallel", type=click.IntRange(1, 64), help="Replies written at the same time [4; 1 for large models]."
)
@click.option("--queue", type=click.IntRange(1), help="Requests that may wait [32]; more get 429.")
@click.option("--timeout", type=float, metavar="SECONDS", help="Longest time of a request [600].")
@click.option("--cors-origin", multiple=True, metavar="ORIGIN", help="A browser origin that may call; '*' is any.")
@click.option("--policy", metavar="NAME", help="What FAMILY:auto routes by [fast].")
@click.option("--target", metavar="VARIANT", help="The sibling of FAMILY:auto; nothing is routed then.")
@click.option("--draft", metavar="WHO", help="A sibling, FAMILY:SIBLING, PATH.gguf, 'lookup', or 'none'.")
@click.option(
    "--guest", "guests", multiple=True, metavar="DRAFT", help="A draft from elsewhere that requests may name, too."
)
@click.option("--ctx", "n_ctx", type=click.IntRange(1), help="Context length in tokens.")
@click.option("--batch", "n_batch", type=click.IntRange(1), help="Prefill chunk.")
@click.option("--threads", "n_threads", type=click.IntRange(0), help="0: the engine's choice.")
@click.option("--gpu-layers", "n_gpu_layers", type=int, help="Layers on the GPU; -1 is all.")
@click.option("--objective", type=click.Choice(["speed", "energy"]), help="What drafts save: time [speed], or joules.")
@click.option("--in-process", is_flag=True, help="Keep the engine in this process: its crashes end the server.")
def command(family: str | None, in_process: bool, guests: tuple[str, ...], **flags: object) -> None:
    """Serve FAMILY (the demo, when none is named) to OpenAI's clients.

    SIGHUP reads the settings again; SIGTERM ends when running answers have ended.
    """
    from ...errors import SetupError
    from ...extras import pip_install

    try:
        from ...server import serve, setup
        from ...server.http import logs
    except ImportError as error:
        raise SetupError(f"the server needs '{error.name}'; run: {pip_install('server')}") from error
    from ...gguf.convert.convert import ensure_family
    from ...gguf.family.guests import guest
    from ...runtime import EngineOptions, Runtime
    from ..shared.progress import step_progress

    flags["cors_origin"] = ",".join(flags["cors_origin"]) or None  # type: ignore[arg-type]

    loaded = _load(flags)
    settings = loaded.settings
    address = serve.Address(settings.server.host, settings.server.port)
    options = _with_key(setup.options_from(settings.server), is_loopback=address.is_loopback)

    def reload() -> ServerOptions:
        fresh = setup.options_from(_load(flags).settings.server)
        return fresh if fresh.api_key or address.is_loopback else replace(fresh, api_key=options.api_key)

    logs.to_stream(level=settings.log.level)
    listener = serve.listen(address)
    name = family or settings.chat.family or "demo"
    policy = None if settings.chat.target else settings.chat.policy or DEFAULT_POLICY
    opening = Runtime.local if in_process else Runtime.process
    with listener:
        with step_progress() as progress:
            opened = ensure_family(name, progress)
        engine = EngineOptions(
            n_ctx=settings.engine.n_ctx,
            n_batch=settings.engine.n_batch,
            n_threads=settings.engine.n_threads or 0,
            n_gpu_layers=settings.engine.n_gpu_layers,
            objective=settings.engine.objective,
            use_kernel=settings.engine.use_kernel,
            kv_type=settings.engine.kv_type,
            use_mmap=None if settings.engine.use_mmap else False,
            log_prompts=settings.log.prompts,
            target=settings.chat.target,
            draft=settings.chat.draft,
            n_parallel=settings.server.parallel or setup.default_parallel(opened),
        )
        named = tuple(guest(one).name for one in dict.fromkeys((*guests, *_guests_in(settings.chat.draft))))
        with opening(name, engine) as runtime:
            setup.warm_up(runtime)
            serve.run(setup.services_for(runtime, options, policy=policy, guests=named), listener, reload, _announce)


def _guests_in(draft: str | None) -> list[str]:
    from ...gguf.family.guests import is_guest

    return [part for part in (draft or "").split("+") if is_guest(part)]


def _load(flags: dict[str, object]) -> Loaded:
    from ...config import load_settings

    return load_settings({dotted: flags[name] for name, dotted in _FLAGS.items()})


def _with_key(options: ServerOptions, *, is_loopback: bool) -> ServerOptions:
    """Where other machines can come, a key is needed: one is made and shown this once."""
    if options.api_key is not None or is_loopback:
        return options
    from ...server.http.auth import new_key

    key = new_key()
    click.echo(f"API key (made for this run, shown only now): {key}", err=True)
    return replace(options, api_key=key)


def _announce(url: str) -> None:
    click.echo(f"serving on {url}/v1 (Ctrl-C ends)", err=True)
