"""The OpenAPI document's own parts: shapes of answers, and the statuses that FastAPI would state wrongly."""

from __future__ import annotations

from typing import Any, Literal

from fastapi import FastAPI
from pydantic import BaseModel


class ErrorDetail(BaseModel):
    """What went wrong."""

    message: str
    type: str
    param: str | None
    code: str | None


class ErrorBody(BaseModel):
    """OpenAI's error object."""

    error: ErrorDetail


class ModelObject(BaseModel):
    """One model."""

    id: str
    object: Literal["model"]
    created: int
    owned_by: str


class ModelList(BaseModel):
    """All models."""

    object: Literal["list"]
    data: list[ModelObject]


def describe(app: FastAPI) -> None:
    """Takes FastAPI's 422 out of the document: a bad body is a 400 here, as with OpenAI."""
    document = app.openapi()
    for path in document["paths"].values():
        for operation in path.values():
            operation["responses"].pop("422", None)
    _drop_unused(document["components"]["schemas"])


def _drop_unused(schemas: dict[str, Any]) -> None:
    for name in ("HTTPValidationError", "ValidationError"):
        schemas.pop(name, None)
