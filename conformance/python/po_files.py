"""Python's library for PO files (polib), doing what the test asks for.

From standard input it takes {"seq", "po"}: a PO file; with "pot", that is merged into it. It answers {"seq", "entries",
"counts", "po"}: what polib reads, how many messages are translated, fuzzy, untranslated and obsolete, and the file as polib
writes it, with lines of at most 40 characters. {"seq", "error"} if polib refuses.
"""

import json
import sys

import polib


def entry(read):
    forms = read.msgstr_plural
    return {
        "msgctxt": read.msgctxt,
        "msgid": read.msgid,
        "msgid_plural": read.msgid_plural,
        "msgstr": [forms[form] for form in sorted(forms)] if forms else [read.msgstr],
        "comment": read.comment,
        "tcomment": read.tcomment,
        "occurrences": [name for name, _ in read.occurrences],
        "flags": sorted(read.flags),
        "obsolete": bool(read.obsolete),
        "previous": [read.previous_msgctxt, read.previous_msgid, read.previous_msgid_plural],
    }


def answer(wanted):
    file = polib.pofile(wanted["po"], wrapwidth=40)
    if "pot" in wanted:
        file.merge(polib.pofile(wanted["pot"]))
    states = [file.translated_entries(), file.fuzzy_entries(), file.untranslated_entries(), file.obsolete_entries()]
    return {"entries": [entry(read) for read in file], "counts": [len(state) for state in states], "po": str(file)}


def main():
    print(json.dumps({"library": "polib"}), flush=True)
    for line in sys.stdin:
        wanted = json.loads(line)
        try:
            told = answer(wanted)
        except (OSError, ValueError) as refusal:
            told = {"error": str(refusal)}
        print(json.dumps({"seq": wanted["seq"], **told}), flush=True)


main()
