"""What schemathesis has to be told about this API, loaded by schemathesis.toml."""

import json
from datetime import datetime, timedelta, timezone
from urllib.parse import unquote, urlsplit

import msgpack
import schemathesis
from schemathesis import GenerationMode
from schemathesis.openapi.checks import RejectedPositiveData, UseAfterFree

PACKED = "application/msgpack"


@schemathesis.serializer(PACKED)
def pack(context, value):
    return msgpack.packb(value)


@schemathesis.deserializer(PACKED)
def unpack(context, response):
    return msgpack.unpackb(response.content)


@schemathesis.serializer("application/x-ndjson")
def lines(context, value):
    return value if isinstance(value, (str, bytes)) else json.dumps(value) + "\n"


@schemathesis.hook
def filter_case(context, case):
    """MessagePack has no numbers beyond 64 bits."""
    if case.media_type != PACKED:
        return True
    try:
        msgpack.packb(case.body)
        return True
    except (OverflowError, UnicodeEncodeError, TypeError):
        return False


@schemathesis.hook
def filter_failure(context, failure, case, response):
    """What is none: each is schemathesis taking one thing for another."""
    # A head may be too long before anybody looks at its parts, on every route.
    if response is not None and response.status_code == 431:
        return False
    # Whoever takes some subscriptions from a device has not deleted the list of them.
    if isinstance(failure, UseAfterFree) and failure.free.endswith("/subscriptions"):
        return False
    # Nor has who unmutes one subject, and of a user that is forgotten the list of devices is there, and empty.
    if isinstance(failure, UseAfterFree) and ("/mutes/" in failure.free or "/v1/users/" in failure.free):
        return False
    # An event that is called off is still known: as cancelled.
    if isinstance(failure, UseAfterFree) and failure.free.startswith("DELETE /v1/events/"):
        return False
    # With strict=true a request is refused where it would be accepted with a warning, which no schema can say.
    if isinstance(failure, RejectedPositiveData) and b"urn:tidings:problem:strict" in response.content:
        return False
    # It sends header fields without a value, which their patterns do not allow.
    headers = response.request.headers
    if isinstance(failure, RejectedPositiveData) and "" in (headers.get("If-Match"), headers.get("If-None-Match")):
        return False
    # It decodes ids that it has from answers: %D9 becomes U+FFFD and %15 a control character, which are no ids any more.
    path = unquote(urlsplit(response.request.url).path)
    is_decoded = any(not "!" <= character <= "~" for character in path)
    return not (isinstance(failure, RejectedPositiveData) and is_decoded)


@schemathesis.hook
def before_call(context, case, **kwargs):
    """Whoever sends MessagePack asks for it; events that fit the document become such as this server can accept."""
    if case.media_type == PACKED:
        case.headers = {"Accept": PACKED, **(case.headers or {})}
    is_good = case.meta is not None and case.meta.generation.mode == GenerationMode.POSITIVE
    if is_good and isinstance(case.body, dict) and case.operation.label.startswith("PUT") and case.body.get("until"):
        case.body["until"] = (datetime.now(timezone.utc) + timedelta(days=1)).isoformat()  # Any moment, to a schema.
    if is_good and case.operation.label == "GET /v1/export" and case.query and case.query.get("selector"):
        case.query = {"selector": "all"}  # Any text, to a schema; and where to go on is for an export without one.
    if is_good and case.operation.label == "POST /v1/audience/explain" and isinstance(case.body, dict):
        case.body = {**case.body, "selector": "all"}  # Any text, to a schema.
    if is_good and case.operation.label == "POST /v1/audience/preview" and isinstance(case.body, dict):
        case.body = selecting(case.body)
    if is_good and case.operation.label == "POST /v1/events":
        events = [acceptable(event) for event in (case.body if isinstance(case.body, list) else [case.body])]
        case.body = events if isinstance(case.body, list) else events[0]


def selecting(event):
    """A selector is any text, to a schema."""
    if (event.get("to") or {}).get("selector") is None:
        return event
    return {**event, "to": {**event["to"], "selector": "all"}}


def acceptable(event):
    """What no JSON Schema can say: lengths are in bytes, and the configuration knows few topics and durable channels."""
    event = {name: short(value) for name, value in selecting(event).items()}
    if event.get("at"):  # Any moment, to a schema.
        event["at"] = (datetime.now(timezone.utc) + timedelta(days=1)).isoformat()
    expected = event.get("expect_audience")
    if expected and None not in (expected.get("min"), expected.get("max")):
        expected["min"], expected["max"] = sorted([expected["min"], expected["max"]])
    event["push"] = "never"  # So that it needs no text: a topic, fitting placeholders, few bytes.
    if event.get("channels"):
        event["channels"] = ["match:7"]
    for name, value in (event.get("params") or {}).items():
        if isinstance(value, int) and not -(2**63) <= value < 2**63:
            event["params"][name] = 0.5  # A decimal may be as large, a whole number may not.
        if isinstance(value, dict):
            event["params"][name] = typed(value)
    return event


def typed(value):
    """A zone is any name, to a schema, and a moment may be in any year."""
    if value.get("datetime"):
        value = {**value, "datetime": "2026-11-24T20:45:00+01:00"}
    if value.get("default_zone"):
        value = {**value, "default_zone": "UTC", "zone": "device"}
    return {**value, "zone": "device"} if value.get("zone") else value


def short(value):
    """Long texts as ASCII, so that they have as many bytes as characters."""
    if isinstance(value, dict):
        return {short(name): short(member) for name, member in value.items()}
    if isinstance(value, list):
        return [short(item) for item in value]
    if isinstance(value, str) and len(value) > 16:
        return value.encode("ascii", "replace").decode()
    return value
