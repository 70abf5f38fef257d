"""The models on offer: each sibling of the family, and `auto`, which routes. A name is looked up, never opened."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ...params import NOT_SIBLINGS
from ...routing.policy.policy import policy_names
from ..errors import ApiError, bad_request

AUTO = "auto"
MOST_BYTES_PER_TOKEN = 32  # on average over a whole prompt; text has about four


@dataclass(frozen=True, slots=True)
class Catalog:
    """family: the name in front of the colon; variants: its siblings; created: Unix seconds; n_ctx: None is unknown.

    policy: what `auto` routes by; None leaves it to the runtime. guests: drafts from elsewhere, named at start.
    """

    family: str
    variants: Sequence[str]
    created: int
    n_ctx: int | None = None
    policy: str | None = None
    guests: Sequence[str] = ()

    @property
    def ids(self) -> list[str]:
        """demo:q4, demo:q8, demo:f16, demo:auto."""
        return [f"{self.family}:{name}" for name in (*self.variants, AUTO)]

    def model(self, name: str) -> dict[str, Any]:
        """OpenAI's model object. Raises ApiError 404."""
        if name not in self.ids:
            raise ApiError(404, f"the model does not exist; there are {', '.join(self.ids)}", code="model_not_found")
        return {"id": name, "object": "model", "created": self.created, "owned_by": "edge_specquant"}

    def target(self, model: str, wanted: str | None) -> str | None:
        """The sibling that a request names, None for the router's choice. `wanted` is the request's own `target`."""
        named = self.model(model)["id"].rpartition(":")[2]
        if wanted is not None and wanted not in self.variants:
            raise bad_request(f"there is no such target; there are {', '.join(self.variants)}", "target")
        if named == AUTO:
            return wanted
        if wanted not in (None, named):
            raise bad_request(f"the model is {model} and the target another; ask {self.family}:{AUTO}", "target")
        return str(named)

    def policy_for(self, model: str, target: str | None, wanted: str | None) -> str | None:
        """The policy of a request: its own, else that of `auto` where no target is named. Raises ApiError 400."""
        if wanted is not None and wanted not in policy_names():
            raise bad_request(f"there is no such policy; there are {', '.join(policy_names())}", "policy")
        is_auto = model == f"{self.family}:{AUTO}" and target is None
        return wanted or (self.policy if is_auto else None)

    def check_length(self, prompt: str) -> None:
        """Raises ApiError 400 for a text that cannot fit into the context: to tokenize it would take seconds."""
        n_bytes = len(prompt.encode())
        if self.n_ctx is not None and n_bytes > self.n_ctx * MOST_BYTES_PER_TOKEN:
            message = f"the prompt has {n_bytes} bytes, which a context of {self.n_ctx} tokens cannot hold"
            raise bad_request(message, code="context_length_exceeded")

    def check_draft(self, draft: str | None) -> None:
        """Raises ApiError 400 for a drafter there is not: "q4", "lookup", "none", or a chain such as "lookup+q4"."""
        known = (*self.variants, *self.guests, *NOT_SIBLINGS)
        if draft is not None and any(part not in known for part in draft.split("+")):
            raise bad_request(f"there is no such draft; there are {', '.join(known)}", "draft")
