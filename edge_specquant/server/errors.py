"""Failures as HTTP: a status and OpenAI's error object. The one place where the package's errors become statuses.

What went wrong on the caller's side is told in full; what went wrong on ours is logged and told in a general sentence,
since our messages may name files of this machine.
"""

from __future__ import annotations

import logging
import sys
import traceback
from collections.abc import Mapping, Sequence
from typing import Any

from ..errors import EdgeSpecQuantError, GrammarError, PromptTooLongError, TemplateError, UsageError

log = logging.getLogger("edge_specquant.server")

_CALLERS_FAULT = (UsageError, TemplateError, GrammarError)


class ApiError(Exception):
    """An answer other than 200. `type` and `code` are OpenAI's words, `param` the field that is to blame."""

    def __init__(
        self,
        status: int,
        message: str,
        *,
        kind: str = "invalid_request_error",
        code: str | None = None,
        param: str | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(message)
        self.status = status
        self.message = message
        self.kind = kind
        self.code = code
        self.param = param
        self.headers = dict(headers or {})

    def as_dict(self) -> dict[str, Any]:
        """{"error": {...}} as OpenAI writes it."""
        return {"error": {"message": self.message, "type": self.kind, "param": self.param, "code": self.code}}


def bad_request(message: str, param: str | None = None, code: str | None = None) -> ApiError:
    """400: the request cannot be answered as it is."""
    return ApiError(400, message, param=param, code=code)


def server_error(message: str, status: int = 500, code: str | None = None) -> ApiError:
    """A failure on our side."""
    return ApiError(status, message, kind="server_error", code=code)


def as_api_error(error: BaseException) -> ApiError:
    """The HTTP face of any error; ours are logged here, with the place and without values."""
    if isinstance(error, ApiError):
        return error
    if isinstance(error, PromptTooLongError):
        return bad_request(str(error), code="context_length_exceeded")
    if isinstance(error, _CALLERS_FAULT):
        return bad_request(str(error))
    if isinstance(error, EdgeSpecQuantError):
        log.error("%s: %s", type(error).__name__, error)
        return server_error("the engine failed to answer; the server's log says why", code=type(error).__name__)
    # Messages of unexpected errors may quote a prompt, so only the kind and the places are logged.
    places = "".join(traceback.format_list(traceback.extract_tb(error.__traceback__)))
    log.error("unexpected %s at\n%s", type(error).__name__, places)
    return server_error("an unexpected error; the server's log says where")


def from_validation(problems: Sequence[Any]) -> ApiError:
    """400 from pydantic's list of problems: the first one, in OpenAI's words, without the caller's values."""
    first = min(problems, key=_rank)
    path = [str(part) for part in first["loc"] if part != "body"]
    # A union's branch stands in the location ("list[...]", "str", "ToolChoice"); callers know the names of fields only.
    param = ".".join(part for part in path if _is_field(part)) or None
    if first["type"] == "json_invalid":
        return bad_request("the body is not valid JSON", code="invalid_json")
    if first["type"] == "extra_forbidden":
        return bad_request(f"Unrecognized request argument supplied: {path[-1][:100]}", param=param)
    if first["type"] == "missing" and not path:
        return bad_request("the body is missing; send a JSON object with Content-Type: application/json")
    if first["type"] == "missing":
        return bad_request(f"you must provide the parameter '{param}'", param=param, code="missing_required_parameter")
    return bad_request(f"invalid value of '{param}': {first['msg']}" if param else str(first["msg"]), param=param)


def _rank(problem: Any) -> tuple[bool, bool, int]:
    """What to tell first: of a field that may have several types, the problem of the type that it has."""
    kind = problem["type"]
    return kind == "extra_forbidden", kind.endswith("_type"), -len(problem["loc"])


def unreadable_body(cause: BaseException | None) -> ApiError:
    """400 for a body that is no JSON text at all, by what its parser raised."""
    message = "the body cannot be read as JSON"
    if isinstance(cause, UnicodeDecodeError):
        message = f"the body is not UTF-8 (byte {cause.start}); send JSON as UTF-8"
    elif isinstance(cause, RecursionError):
        message = "the body is nested too deep; send flatter JSON"
    elif isinstance(cause, ValueError):
        message = f"the body holds a number of more than {sys.get_int_max_str_digits()} digits; send a smaller one"
    return bad_request(message, code="invalid_json")


def _is_field(part: str) -> bool:
    return part.replace("_", "").isalnum() and not part[:1].isupper() and part not in ("str", "int", "float", "bool")
