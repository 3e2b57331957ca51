"""Strangers' opinion of the API and of what it says about itself.

Starts the server (TIDINGS_BIN) in a folder of its own on a free port, and holds against it

1. an independent validator of OpenAPI 3.1: the document is one;
2. an independent MessagePack codec: what it writes is read, what is answered it reads, and the same came in as in JSON;
3. schemathesis: thousands of requests made from the document, good and bad; the answers are as described, bad requests are
   refused, good ones accepted, keys are asked for, and nothing breaks the server. What it needs to know beforehand is in
   hooks.py.

    judge.py [--seed N] [--examples N]     the last line is "N passed, N failed"

Everything waits with a deadline; schemathesis has SECONDS_MAX for all its requests. The server's log is printed when something fails.
"""

import argparse
import json
import os
import re
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from pathlib import Path

import msgpack
from openapi_spec_validator import OpenAPIV31SpecValidator

HERE = Path(__file__).parent
KEY = "conformance-api-key-0123456789"
START_SECONDS_MAX = 20
SECONDS_MAX = 75
PACKED = "application/msgpack"

CONFIGURATION = """
data_dir = "data"

[http]
listen = "127.0.0.1:{port}"

[[api.keys]]
name = "conformance"
key = "{key}"
scopes = ["publish", "read", "devices", "metrics", "operate", "backup"]

[channel.namespaces.match]
durable = true
history_size = 10
history_ttl = "1h"

[topics.goal]
title = "Goal for %{{team}}!"
body = "%{{goals}} goals in minute %{{minute}}."
"""


class Server:
    """The binary, until the end of the block."""

    def __init__(self, folder):
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        self.folder = folder
        self.origin = f"http://127.0.0.1:{port}"
        self.log = folder / "server.log"
        (folder / "tidings.toml").write_text(CONFIGURATION.format(port=port, key=KEY))
        environment = {name: value for name, value in os.environ.items() if not name.startswith("TIDINGS_")}
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(
                [os.environ["TIDINGS_BIN"], "serve", "--config", "tidings.toml"],
                cwd=folder, env=environment, stdin=subprocess.DEVNULL, stdout=log, stderr=log,
            )

    def __enter__(self):
        deadline = time.monotonic() + START_SECONDS_MAX
        while True:
            try:
                return self if self.request("GET", "/health")[0] == 200 else None
            except urllib.error.URLError:
                if self.process.poll() is not None or time.monotonic() > deadline:
                    sys.exit(f"the server did not start\n{self.log_end()}")
                time.sleep(0.02)

    def __exit__(self, *_):
        self.process.kill()
        self.process.wait()

    def log_end(self):
        return self.log.read_text(errors="replace")[-8000:]

    def request(self, method, path, body=None, **headers):
        """Status, media type and body."""
        headers = {name.replace("_", "-"): value for name, value in headers.items()}
        request = urllib.request.Request(self.origin + path, body, {"X-API-Key": KEY, **headers}, method=method)
        try:
            with urllib.request.urlopen(request, timeout=10) as answer:
                return answer.status, answer.headers.get_content_type(), answer.read()
        except urllib.error.HTTPError as answer:
            return answer.code, answer.headers.get_content_type(), answer.read()


def the_document_is_openapi(server, _):
    status, media, body = server.request("GET", "/openapi.json")
    assert (status, media) == (200, "application/json"), (status, media)
    errors = [f"{'/'.join(map(str, error.path))}: {error.message}" for error in OpenAPIV31SpecValidator(json.loads(body)).iter_errors()]
    assert not errors, "\n".join(errors)


def messagepack_is_json(server, _):
    """What goes in comes out: numbers to the last bit, text of any kind, deep lists."""
    data = {
        "whole": [0, 127, 128, -32, -33, 2**63, -(2**63), 2**64 - 1],
        "decimal": [0.1, 1e300, 5e-324, -0.0, 3.0],
        "text": ["", "å" * 40, "\0\"\\\n", "\U0001f3c6" * 300, "x" * 20000],
        "more": [None, True, False, [[[]]], {"": {}}, list(range(100))],
    }
    event = {"id": "goal-1", "topic": "score", "subjects": ["match:7"], "push": "never", "data": data}
    in_both = {"Content_Type": PACKED, "Accept": PACKED}
    status, media, body = server.request("POST", "/v1/events", msgpack.packb(event), **in_both)
    assert (status, media) == (202, PACKED), (status, media, body)
    accepted = msgpack.unpackb(body)
    assert accepted["id"] == "goal-1" and accepted["channels"][0]["channel"] == "match:7", accepted

    history = server.request("POST", "/api/history", json.dumps({"channel": "match:7", "limit": 10}).encode())
    published = json.loads(history[2])["result"]["publications"][0]["data"]
    assert repr(published) == repr(data), published

    status, media, body = server.request("GET", "/v1/events/goal-1", Accept=PACKED)
    assert (status, media) == (200, PACKED), (status, media, body)
    in_json = json.loads(server.request("GET", "/v1/events/goal-1")[2])
    report = msgpack.unpackb(body)
    assert report["topic"] == "score" and report["channels"] == accepted["channels"], report
    assert {**report, "state": 0} == {**in_json, "state": 0}, (report, in_json)

    again = server.request("POST", "/v1/events", msgpack.packb(event), Content_Type=PACKED)
    assert again[0] == 202 and json.loads(again[2])["repeated"] is True, again


def what_json_cannot_say_is_refused(server, _):
    def refusal(value, packer=msgpack.packb):
        body = packer(value) if callable(packer) else value
        status, media, body = server.request("POST", "/v1/events", body, Content_Type=PACKED, Accept=PACKED)
        assert (status, media) == (400, PACKED), (value, status, media, body)
        return msgpack.unpackb(body)

    for value in [
        {"id": b"bytes"}, {"id": float("nan")}, {"id": float("-inf")}, {1: "id"}, {"id": msgpack.ExtType(7, b"x")},
        {"id": msgpack.Timestamp(1)},
    ]:
        problem = refusal(value, lambda value: msgpack.packb(value, strict_types=False))
        assert problem["type"] == "urn:tidings:problem:malformed-messagepack", (value, problem)
        assert problem["detail"].startswith("the body is not MessagePack that can be converted to JSON: at byte "), problem
    good = msgpack.packb({"id": "a"})
    for body in [b"", good[:-1], good + b"\0", b"\xdd\xff\xff\xff\xff", b"\x91" * 100_000, b"\xc1"]:
        assert refusal(body, None)["type"] == "urn:tidings:problem:malformed-messagepack", body[:20]
    assert refusal({"idd": "a"})["type"] == "urn:tidings:problem:invalid"


def requests_made_from_the_document(server, arguments):
    command = [
        Path(sys.executable).with_name("schemathesis"), "--config-file", HERE / "schemathesis.toml", "run",
        f"{server.origin}/openapi.json", "--header", f"X-API-Key: {KEY}", "--seed", str(arguments.seed),
        "--max-examples", str(arguments.examples), "--max-time", str(SECONDS_MAX), "--request-timeout", "10",
        "--continue-on-failure", "--no-color", "--no-shrink",
    ]
    environment = {**os.environ, "PYTHONPATH": str(HERE), "PYTHONDONTWRITEBYTECODE": "1"}
    ended = subprocess.run(command, cwd=server.folder, env=environment, capture_output=True, text=True, timeout=2 * SECONDS_MAX)
    print(ended.stdout, ended.stderr, sep="\n")
    assert ended.returncode == 0, f"schemathesis ended with {ended.returncode}"
    made = re.search(r"(\d+) generated", ended.stdout)
    # A busy machine makes far fewer in this time than a quiet one, which makes thousands.
    assert made and int(made[1]) > 200, "too few requests were made"
    assert server.process.poll() is None, "the server has stopped"


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--seed", type=int, default=1, help="what schemathesis begins with")
    parser.add_argument("--examples", type=int, default=25, help="requests per route and phase")
    arguments = parser.parse_args()
    print(f"seed {arguments.seed}", flush=True)
    passed = failed = 0
    with tempfile.TemporaryDirectory(prefix="tidings-openapi-") as folder, Server(Path(folder)) as server:
        for judge in [the_document_is_openapi, messagepack_is_json, what_json_cannot_say_is_refused, requests_made_from_the_document]:
            began = time.monotonic()
            try:
                judge(server, arguments)
                passed += 1
                verdict = "ok"
            except Exception as error:
                failed += 1
                verdict = f"FAILED: {type(error).__name__}: {error}"
            print(f"{judge.__name__}: {verdict} ({time.monotonic() - began:.1f} s)", flush=True)
        if failed:
            print(server.log_end())
    print(f"{passed} passed, {failed} failed")
    sys.exit(failed > 0)


if __name__ == "__main__":
    main()
