"""The reference of the HTTP API, from the server's own description and a table of meanings."""

import tomllib
from collections.abc import Iterable, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

from fastapi import FastAPI

from glm_engine.server.app import ROUTERS, Service
from tools.site import markdown

Schema = Mapping[str, Any]
"""A part of the OpenAPI description: a JSON object."""
Meanings = Mapping[str, Mapping[str, str]]
"""By model and field; those of `all` hold for every model."""
Row = tuple[str, str, str]
MEANINGS = Path(__file__).with_name("fields.toml")
SCHEMAS = "#/components/schemas/"
NULL = {"type": "null"}
BOUNDS = ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum")
WIDE = 2**31 - 1
INTRODUCTION = """# HTTP API

This page is generated from the server's code. A running server describes its API at
`/openapi.json`. [Errors](errors.md) explains its error responses.

A field that is `null` gets its default. The server ignores unknown fields; with
`--strict-fields`, it rejects requests that contain them.
"""


def description() -> Schema:
    """The OpenAPI description, without an engine behind it."""
    stated = SimpleNamespace(model_names=["MODEL"], model_name="MODEL", max_seq=0, defaults={})
    service = cast(Service, stated)
    app = FastAPI()
    for make_router in ROUTERS:
        app.include_router(make_router(service))
    return app.openapi()


def request_model(operation: Schema) -> str | None:
    """The name of the schema of a request's body."""
    content = operation.get("requestBody", {}).get("content", {})
    schema = content.get("application/json", {}).get("schema", {})
    return schema.get("$ref", "").removeprefix(SCHEMAS) or None


def is_ignored(schema: Schema) -> bool:
    return not schema.keys() - {"title", "default"}


def is_refused(schema: Schema) -> bool:
    """Only neutral values are taken; `only` of the server's fields writes this form."""
    return "enum" in schema and None in schema["enum"] and "type" not in schema


def kind_of(schema: Schema) -> str:
    """The type of a field with its bounds, in words."""
    if "$ref" in schema:
        name = schema["$ref"].removeprefix(SCHEMAS)
        return f"[{title_of(name)}](#{name})"
    choices = [one for one in schema.get("anyOf", schema.get("oneOf", ())) if one != NULL]
    if choices:
        return " or ".join(dict.fromkeys(map(kind_of, choices)))
    if "enum" in schema:
        return "one of " + ", ".join(f"`{one}`" for one in schema["enum"])
    if "const" in schema:
        return f"`{schema['const']}`"
    if schema.get("type") == "array":
        return f"list of {kind_of(without_bounds(schema.get('items', {})))}" + length(schema)
    kind: str = schema.get("type", "any")
    return kind + bounds(schema)


def without_bounds(schema: Schema) -> Schema:
    return {name: value for name, value in schema.items() if name not in BOUNDS}


def bounds(schema: Schema) -> str:
    """The range of a number; a bound that only the width of an integer sets says nothing."""
    found = {name: schema[name] for name in BOUNDS if abs(schema.get(name, WIDE)) < WIDE}
    low, high = found.get("minimum"), found.get("maximum", found.get("exclusiveMaximum"))
    if low is not None and high is not None:
        return f", {number(low)} to {number(high)}"
    words = {"above": found.get("exclusiveMinimum"), "at least": low, "at most": high}
    stated = {word: value for word, value in words.items() if value is not None}
    return "".join(f", {word} {number(value)}" for word, value in stated.items())


def length(schema: Schema) -> str:
    return f", at most {number(schema['maxItems'])}" if "maxItems" in schema else ""


def number(value: float) -> str:
    return f"{value:,.0f}" if float(value).is_integer() else f"{value:g}"


def meaning(meanings: Meanings, model: str, field: str) -> str:
    return meanings.get(model, {}).get(field) or meanings["all"].get(field, "")


def model_lines(model: str, schemas: Mapping[str, Schema], meanings: Meanings) -> list[str]:
    """The fields of a body: those with an effect, those that are ignored, those refused."""
    schema = schemas[model]
    required, rows = set(schema.get("required", ())), list[Row]()
    ignored, refused = list[str](), list[str]()
    for name, field in schema["properties"].items():
        if is_ignored(field):
            ignored.append(f"`{name}`")
        elif is_refused(field):
            neutral = [one for one in field["enum"] if one is not None]
            refused.append(f"`{name}`" + (f" (unless {neutral[0]!r})" if neutral else ""))
        else:
            kind = kind_of(field) + (" (required)" if name in required else "")
            said = meaning(meanings, model, name)
            rows.append((f"`{name}`", kind, said))
    rows.sort(key=lambda row: not row[1].endswith("(required)"))
    lines = markdown.table(("field", "type", "meaning"), rows)
    if ignored:
        lines += [f"These fields are accepted but have no effect: {', '.join(ignored)}.", ""]
    if refused:
        lines += [f"The server rejects requests that set: {', '.join(refused)}.", ""]
    return lines


def title_of(name: str) -> str:
    """The name of a schema without that of its module, which tells schemas of one name apart."""
    return name.rpartition("__")[2]


def referenced(value: object) -> list[str]:
    """The names of the schemas to which a part of the description refers, in order."""
    if isinstance(value, dict):
        own = [value["$ref"].removeprefix(SCHEMAS)] if "$ref" in value else []
        return [*own, *(name for one in value.values() for name in referenced(one))]
    return [name for one in value for name in referenced(one)] if isinstance(value, list) else []


def objects_below(models: Iterable[str], schemas: Mapping[str, Schema]) -> list[str]:
    """The schemas that bodies hold, at any depth, in the order in which they are met."""
    found = dict.fromkeys(models)
    for name in found.copy():
        waiting = [name]
        while waiting:
            new = [one for one in referenced(schemas[waiting.pop(0)]) if one not in found]
            found |= dict.fromkeys(new)
            waiting += new
    return [name for name in found if name not in set(models)]


def object_lines(name: str, schemas: Mapping[str, Schema]) -> list[str]:
    schema = schemas[name]
    lines = [f"### {title_of(name)} {{#{name}}}", ""]
    required = set(schema.get("required", ()))
    rows = [
        (f"`{field}`", kind_of(kind) + (" (required)" if field in required else ""))
        for field, kind in schema.get("properties", {}).items()
        if not is_ignored(kind) and not is_refused(kind)
    ]
    return [*lines, *markdown.table(("field", "type"), rows)] if rows else lines


def operations(described: Schema) -> list[tuple[str, Schema]]:
    return [
        (f"{method.upper()} {path}", operation)
        for path, methods in described["paths"].items()
        for method, operation in methods.items()
    ]


def read_meanings() -> Meanings:
    return tomllib.loads(MEANINGS.read_text(encoding="utf-8"))


def page() -> str:
    """The whole page."""
    described, meanings = description(), read_meanings()
    schemas, models = described["components"]["schemas"], list[str]()
    lines = [INTRODUCTION]
    for title, operation in operations(described):
        lines += [f"## `{title}`", "", operation.get("description", ""), ""]
        model = request_model(operation)
        if model is not None:
            models.append(model)
            lines += model_lines(model, schemas, meanings)
    lines += ["## Objects in requests", ""]
    for name in objects_below(models, schemas):
        lines += object_lines(name, schemas)
    return markdown.page(lines)
