"""Python's library for RSS and Atom (feedparser), reading what the test asks for.

From standard input it takes {"seq", "document"}, the document in base64. It answers {"seq", "entries"}: id, title, link and
the second of publication of each entry, as feedparser reads them; what an entry lacks is null.
"""

import base64
import calendar
import json
import sys

import feedparser


def entry(read):
    published = read.get("published_parsed") or read.get("updated_parsed")  # dc:date counts as an update
    seconds = calendar.timegm(published) if published else None
    return [read.get("id"), read.get("title"), read.get("link"), seconds]


def main():
    print(json.dumps({"library": "feedparser"}), flush=True)
    for line in sys.stdin:
        wanted = json.loads(line)
        told = feedparser.parse(base64.b64decode(wanted["document"]), sanitize_html=False)
        print(json.dumps({"seq": wanted["seq"], "entries": [entry(read) for read in told.entries]}), flush=True)


main()
