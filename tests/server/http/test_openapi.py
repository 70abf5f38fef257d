"""Our own OpenAPI document holds for whatever schemathesis makes of it, on a real engine with tiny random weights."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, given, settings
from server_rig import Served, serving

from edge_specquant.runtime import EngineOptions, Runtime
from edge_specquant.server.options import ServerOptions

EXAMPLES = settings(max_examples=20, deadline=None, suppress_health_check=list(HealthCheck))
OPERATIONS = (
    ("/v1/chat/completions", "POST"),
    ("/v1/completions", "POST"),
    ("/v1/models", "GET"),
    ("/v1/models/{model}", "GET"),
    ("/health", "GET"),
    ("/metrics", "GET"),
)


@pytest.fixture(scope="module")
def tiny(tiny_gguf: Path) -> Iterator[Served]:
    runtime = Runtime.local(tiny_gguf, EngineOptions(n_ctx=96, n_batch=32))
    with serving(runtime, ServerOptions(timeout_s=20, drain_s=1)) as served:
        yield served


@pytest.fixture(scope="module")
def document(tiny: Served) -> Any:
    return schemathesis.openapi.from_url(f"{tiny.url}/openapi.json")


@pytest.mark.parametrize(("path", "method"), OPERATIONS)
def test_document_holds(document: Any, path: str, method: str) -> None:
    # A body that is right in form may still name a model there is not, or a token outside the vocabulary.
    excluded = [schemathesis.checks.positive_data_acceptance]

    @given(document[path][method].as_strategy())
    @EXAMPLES
    def holds(case: schemathesis.Case) -> None:
        case.call_and_validate(excluded_checks=excluded, timeout=60)

    holds()


@pytest.mark.parametrize(("path", "method"), OPERATIONS[:2])
def test_known_model_never_fails(document: Any, tiny: Served, path: str, method: str) -> None:
    @given(document[path][method].as_strategy())
    @EXAMPLES
    def never_fails(case: schemathesis.Case) -> None:
        if isinstance(case.body, dict):
            case.body["model"] = tiny.services.catalog.ids[0]
        response = case.call(timeout=60)
        assert response.status_code in (200, 400, 404), response.text

    never_fails()


def test_document_states_our_errors(tiny: Served) -> None:
    _, document, _ = tiny.get("/openapi.json")
    for path in ("/v1/chat/completions", "/v1/completions"):
        responses = document["paths"][path]["post"]["responses"]
        assert "422" not in responses
        assert {"200", "400", "404", "429", "504"} <= responses.keys()
        assert set(responses["200"]["content"]) == {"application/json", "text/event-stream"}
