"""Why a plan is as it is: one Decision a topic, with the runner-up where there was one.

Takes the plan and the ranked choices it came from; gives Decisions. Pure; decides nothing itself.
"""

from __future__ import annotations

from collections.abc import Sequence

from ...units import format_bytes, format_rate
from ..cost.footprint import repacked_types
from ..cost.sibling import Sibling
from .choice import Choice
from .layout import Site
from .plan_types import Decision, PlacementPlan, Wish

_AIMS = {
    "quality": "best quality at a readable speed",
    "speed": "fastest at sound quality",
    "memory": "fewest bytes",
    "energy": "fewest joules at sound quality",
}


def reasons(
    plan: PlacementPlan, ranked: Sequence[Choice], site: Site, wish: Wish, usual_n_ctx: int
) -> tuple[Decision, ...]:
    """In the order a person would ask."""
    best = ranked[0]
    cpu = site.hardware.cpu
    return (
        Decision("memory", _pools(site), f"{site.budget.note}, less a reserve"),
        _target(ranked, wish),
        _draft(best, wish, is_smallest=all(other.n_bytes >= plan.target.n_bytes for other in plan.others)),
        _layers(best, site),
        _context(plan, wish, usual_n_ctx, best.layout.sibling.card.n_ctx_train),
        Decision("threads", str(plan.n_threads), cpu.threads_reason),
        _loading(best, plan, site),
        _speed(plan, site),
    )


def _pools(site: Site) -> str:
    cards = [
        f"{gpu.name} {format_bytes(n)}"
        for gpu, n, shared in zip(site.hardware.gpus, site.budget.devices, site.budget.unified, strict=True)
        if not shared
    ]
    return " + ".join([format_bytes(site.budget.host), *cards])


def _target(ranked: Sequence[Choice], wish: Wish) -> Decision:
    best = ranked[0].layout
    if wish.target:
        return Decision("target", best.target.variant, "asked for")
    second = ranked[1].layout if len(ranked) > 1 else None
    return Decision(
        "target",
        best.target.variant,
        f"{_AIMS[wish.objective]}: {format_rate(best.tokens_per_s)}, "
        f"{fidelity(best.sibling)} of tokens as the reference",
        f"{second.target.variant} at {format_rate(second.tokens_per_s)}" if second else None,
    )


def fidelity(sibling: Sibling) -> str:
    """A figure that was measured looks like one; what the table by bits says is called an estimate."""
    if sibling.measured_agreement is not None:
        return f"{sibling.measured_agreement:.1%}"
    return f"about {sibling.agreement:.0%} (by bits, not measured)"


def _draft(best: Choice, wish: Wish, *, is_smallest: bool) -> Decision:
    layout = best.layout
    alone = best.best_alone
    alone_rate = format_rate(alone.tokens_per_s if alone else None)
    if layout.draft is not None:
        asked = "asked for; " if wish.draft else ""
        asked += "" if layout.draft.footprint.host.n_weights or layout.draft.n_gpu_layers else "a part of the target; "
        gain = layout.tokens_per_s / (alone.tokens_per_s if alone else layout.alone_tokens_per_s)
        in_joules = wish.objective == "energy" and alone is not None
        saved = f", {layout.merit / alone.merit:.2f}x its tokens a joule" if in_joules and alone else ""
        reason = f"{asked}{gain:.2f}x the target alone{saved}, {layout.n_draft} tokens a round"
        return Decision("draft", layout.draft.variant, reason, f"no draft at {alone_rate}")
    if wish.draft == "none":
        return Decision("draft", "none", "asked for")
    if best.refused is None or best.refused.draft is None:
        smallest = f"{layout.target.variant} is the smallest sibling, so none is left to draft for it"
        return Decision("draft", "none", smallest if is_smallest else "no smaller sibling fits beside the target")
    name, refused = best.refused.draft.variant, format_rate(best.refused.tokens_per_s)
    if wish.objective == "memory":
        return Decision("draft", "none", "fewest bytes were asked for", f"{name} at {refused}")
    is_worse = alone is not None and best.refused.merit < alone.merit
    worse = "would take more joules than" if wish.objective == "energy" else "would be slower than"
    verdict = worse if is_worse else "would hardly beat"
    reason = f"{layout.target.variant} with the draft {name} {verdict} {layout.target.variant} alone here"
    return Decision("draft", "none", reason, f"{name} at {refused} against {alone_rate}")


def _layers(best: Choice, site: Site) -> Decision:
    layout, gpus = best.layout, site.hardware.gpus
    if not gpus:
        return Decision("layers", "CPU", "the engine lists no GPU")
    used = [gpu.name for gpu, n in zip(gpus, layout.target.footprint.n_layers_on, strict=False) if n]
    n_all = layout.sibling.card.n_layer + 1
    if layout.target.n_gpu_layers == 0:
        choice, reason = "CPU", "no layer fits on, or none pays on, " + ", ".join(gpu.name for gpu in gpus)
    elif layout.target.n_gpu_layers < 0:
        choice = f"all {n_all} on {' + '.join(used)}"
        reason = "one pool of memory, so nothing is gained by a split" if site.has_one_pool else "the target fits there"
    else:
        choice, reason = (
            f"{layout.target.n_gpu_layers} of {n_all} on {' + '.join(used)}",
            "as many as fit; the rest in RAM",
        )
    if layout.draft is not None:
        choice += ", draft " + ("in RAM" if layout.draft.n_gpu_layers == 0 else "on the GPU")
    return Decision("layers", choice, reason, best.second.place if best.second else None)


def _context(plan: PlacementPlan, wish: Wish, usual_n_ctx: int, n_ctx_train: int) -> Decision:
    choice = f"{plan.n_ctx} tokens, {plan.type_k} KV cache"
    if wish.n_ctx is not None:
        beyond = f", beyond the {n_ctx_train} tokens it was trained on" if 0 < n_ctx_train < wish.n_ctx else ""
        return Decision("context", choice, f"asked for{beyond}")
    if wish.objective == "memory":
        return Decision("context", choice, "fewest bytes were asked for")
    if plan.n_ctx == usual_n_ctx:
        return Decision("context", choice, "the usual size fits")
    return Decision("context", choice, f"{usual_n_ctx} tokens would not fit, or push layers off the GPU")


def _loading(best: Choice, plan: PlacementPlan, site: Site) -> Decision:
    if not plan.use_mmap:
        return Decision("loading", "read", "in unified memory a mapping would hold the weights a second time")
    is_arm = "asimd" in site.hardware.cpu.features
    if plan.target.n_gpu_layers == 0 and best.layout.sibling.main_type in repacked_types(is_arm):
        reason = "the CPU backend copies these weights into its own order: a warm reload saves the disk, not the copy"
    else:
        reason = "weights are mapped: a warm reload finds them in the page cache"
    return Decision("loading", "mmap", reason)


def _speed(plan: PlacementPlan, site: Site) -> Decision:
    source = "measured curves" if plan.is_calibrated else f"roofline, memory {site.hardware.host_bandwidth.source}"
    gpus = [site.hardware.gpu_bandwidth(gpu).source for gpu in site.hardware.gpus]
    if gpus and not plan.is_calibrated:
        source += ", GPU " + " / ".join(gpus)
    joules = plan.predicted_joules_per_token
    energy = "" if joules is None else f", {joules:.3g} J a token"
    return Decision("speed", f"{format_rate(plan.predicted_tokens_per_s)}{energy}", source)
