"""The keywords of JSON Schema, drafts 4 to 2020-12: which are enforced, which are refused, where schemas stand.

Any other keyword only describes, as the standard has it. Tables only.
"""

from __future__ import annotations

SCHEMAS = ("items", "additionalItems", "additionalProperties")
LISTS = ("allOf", "anyOf", "oneOf", "prefixItems")
MAPS = ("properties", "patternProperties")
COUNTS = ("minItems", "maxItems", "minLength", "maxLength", "minProperties", "maxProperties")
BOUNDS = ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum")

ENFORCED = frozenset(
    {*SCHEMAS, *LISTS, *MAPS, *COUNTS, *BOUNDS, "type", "enum", "const", "$ref", "required", "pattern", "format"}
    | {"multipleOf"}
)
REFUSED = frozenset(
    {"not", "if", "then", "else", "dependentSchemas", "dependentRequired", "dependencies", "contains", "minContains"}
    | {"maxContains", "uniqueItems", "propertyNames", "unevaluatedItems", "unevaluatedProperties"}
    | {"$dynamicRef", "$recursiveRef"}
)
TYPES = frozenset({"null", "boolean", "object", "array", "number", "string", "integer"})
FORMATS = frozenset({"date-time", "time", "date", "duration", "email", "hostname", "ipv4", "ipv6", "uuid", "uri"})
OLD_DRAFTS = ("draft-03", "draft-04", "draft-06", "draft-07")
LISTS_OF_ITEMS = (*OLD_DRAFTS, "2019-09")
