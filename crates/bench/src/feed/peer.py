"""Python's readers of XML, doing what `tidings bench feed` asks for; started with the path of a document.

First line: {"python", "expat", "lxml"}; `lxml` is null if it is not installed. Then for each line {"do": NAME} of the
input a line {"seconds", "count", "first", "last"}. The document is in memory before the clock starts, and goes to the reader
in pieces, as from a file.

expat:   all elements, with their attributes, and all texts go to functions of Python, which count the elements.
lxml:    iterparse makes each `event` a tree, which is cleared; counts them.
events:  as lxml, and each becomes the event that Tidings makes of it, as JSON. "first" and "last" are events.
"""

import io
import json
import platform
import sys
import time
import xml.parsers.expat

try:
    from lxml import etree
except ImportError:
    etree = None

PIECE_BYTES = 64 * 1024


def expat(document):
    count = 0

    def start(name, attributes):
        nonlocal count
        count += 1

    parser = xml.parsers.expat.ParserCreate()
    parser.StartElementHandler = start
    parser.EndElementHandler = lambda name: None
    parser.CharacterDataHandler = lambda text: None
    parser.buffer_text = True
    for at in range(0, len(document), PIECE_BYTES):
        parser.Parse(document[at : at + PIECE_BYTES])
    parser.Parse(b"", True)
    return count, None, None


def entries(document):
    for _, entry in etree.iterparse(io.BytesIO(document), tag="event"):
        yield entry
        entry.clear()
        while entry.getprevious() is not None:
            del entry.getparent()[0]


def lxml(document):
    return sum(1 for _ in entries(document)), None, None


def as_event(entry):
    match = entry.getparent()
    foot = next(q.get("value") for q in entry.iterfind("qualifiers/q") if q.get("id") == "9")
    return json.dumps(
        {
            "id": "bench:" + entry.get("id"),
            "topic": entry.get("type"),
            "subjects": ["match:" + match.get("id"), "team:" + entry.get("team")],
            "params": {
                "home": match.get("home"),
                "away": match.get("away"),
                "player": entry.findtext("player"),
                "minute": int(entry.get("minute")) + 1,
            },
            "data": {
                "at": entry.get("at"),
                "x": float(entry.get("x")),
                "foot": foot,
                "comment": "".join(entry.find("comment").itertext()),
            },
            "ttl": "30m",
        },
        ensure_ascii=False,
    )


def events(document):
    count, first, last = 0, None, None
    for entry in entries(document):
        last = as_event(entry)
        count += 1
        first = first or last
    return count, first, last


def main():
    with open(sys.argv[1], "rb") as file:
        document = file.read()
    version = etree and ".".join(map(str, etree.LXML_VERSION[:3]))
    libraries = {"python": platform.python_version(), "expat": xml.parsers.expat.EXPAT_VERSION, "lxml": version}
    print(json.dumps(libraries), flush=True)
    for line in sys.stdin:
        read = {"expat": expat, "lxml": lxml, "events": events}[json.loads(line)["do"]]
        begin = time.perf_counter()
        count, first, last = read(document)
        seconds = time.perf_counter() - begin
        print(json.dumps({"seconds": seconds, "count": count, "first": first, "last": last}), flush=True)


main()
