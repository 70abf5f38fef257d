"""Five replies with a form: a flat record, an array of records, a record of enums, a tool call, prose with a tail.

Plain values; knows nothing of who writes them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

RECORDS = ("flat record", "nested array", "enums")


@dataclass(frozen=True, slots=True)
class StructuredCase:
    """fields: what a Request takes besides the prompt."""

    name: str
    prompt: str
    fields: Mapping[str, Any] = field(default_factory=dict)


def _record(**properties: Any) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": properties,
        "required": list(properties),
        "additionalProperties": False,
    }


def _words(most: int) -> dict[str, Any]:
    return {"type": "string", "minLength": 2, "maxLength": most}


_PERSON = _record(
    full_name=_words(40),
    age_in_years={"type": "integer", "minimum": 1, "maximum": 120},
    home_town=_words(30),
    occupation=_words(40),
    is_retired={"type": "boolean"},
    favourite_books={"type": "array", "items": _words(40), "minItems": 2, "maxItems": 2},
)
_STOCK = _record(
    warehouse=_words(30),
    articles={
        "type": "array",
        "minItems": 5,
        "maxItems": 5,
        "items": _record(
            article_name=_words(30),
            unit_price={"type": "number", "minimum": 0, "maximum": 1000},
            quantity_in_stock={"type": "integer", "minimum": 0, "maximum": 500},
        ),
    },
)
_TICKET = _record(
    severity={"enum": ["negligible", "moderate", "serious", "critical"]},
    affected_component={"enum": ["authentication", "database", "network", "user interface"]},
    operating_system={"enum": ["Linux", "macOS", "Windows", "unknown"]},
    reproducibility={"enum": ["always", "sometimes", "never"]},
    requires_restart={"type": "boolean"},
    assigned_department={"enum": ["infrastructure", "engineering", "customer support"]},
)
_TOOLS = {
    "get_weather_forecast": _record(
        city_name=_words(30), number_of_days={"type": "integer", "minimum": 1, "maximum": 9}
    ),
    "create_calendar_event": _record(event_title=_words(60), starts_at={"type": "string", "format": "date-time"}),
    "send_text_message": _record(recipient_name=_words(30), message_body=_words(120)),
}
_CALL = "start: " + " | ".join(
    f'"{{\\"name\\": \\"{name}\\", \\"arguments\\": " @s{i} "}}"' for i, name in enumerate(_TOOLS)
)
_TAIL = "start: prose @s0\nprose[lazy]: /(?s:.{1,400})\\nSummary: /"

CASES = (
    StructuredCase("flat record", "Invent a retired sailor and describe her as a JSON record.", {"schema": _PERSON}),
    StructuredCase("nested array", "List five articles in a hardware store's warehouse as JSON.", {"schema": _STOCK}),
    StructuredCase(
        "enums", "Classify this ticket as JSON: 'Since the update nobody can log in on Linux.'", {"schema": _TICKET}
    ),
    StructuredCase(
        "tool call",
        "Answer with one JSON function call: how will the weather be in Lisbon in the next three days?",
        {"lark": _CALL, "lark_schemas": _TOOLS},
    ),
    StructuredCase(
        "text with a tail",
        "Explain in two sentences why the sky is blue, then write a line 'Summary: ' and a JSON record.",
        {
            "lark": _TAIL,
            "lark_schemas": {"summary": _record(topic=_words(30), number_of_sentences={"enum": [1, 2, 3]})},
        },
    ),
)
