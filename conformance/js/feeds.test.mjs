// RSS and Atom as our feeds read them, beside Python's feedparser.

import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { readFileSync, writeFileSync } from "node:fs";
import path from "node:path";
import { test } from "node:test";

import { BINARY, temporaryFolder } from "../server.mjs";
import { Tool, python } from "../tool.mjs";

const DOCUMENTS = new URL("../../crates/feed/tests/documents/", import.meta.url);
const MAPPING = `
kind = "rss"
id = "{id}"
topic = "news"
subjects = ["news:all"]
[data]
id = "{id}"
title = "{title}"
link = "{link}"
published = { from = "{published}", as = "datetime" }
[text.und]
title = "News"
body = "News"
`;

/** Texts that are difficult in XML, as they are written. */
const TEXTS = ["Goal!", "Mål &amp; mer", "<![CDATA[2 < 3 & more]]>", "&#8222;Tor&#8220; &#x1F389;", "a<![CDATA[b]]>c", "żółć"];
const DATES = ["Tue, 24 Nov 2026 20:45:00 GMT", "Tue, 24 Nov 2026 20:45:00 +0100", "24 Nov 2026 09:05:07 -0330"];

const rss = (items) => `<rss version="2.0"><channel><title>News</title>${items.join("")}</channel></rss>`;
const atom = (items) => `<feed xmlns="http://www.w3.org/2005/Atom"><title>News</title>${items.join("")}</feed>`;
const rssItem = (number) => `
<item><guid isPermaLink="false">news-${number}</guid><title>${TEXTS[number % TEXTS.length]}</title>
<link>https://example.com/${number}?a=1&amp;b=2</link><pubDate>${DATES[number % DATES.length]}</pubDate></item>`;
const atomItem = (number) => `
<entry><id>urn:news:${number}</id><title>${TEXTS[number % TEXTS.length]}</title>
<link href="https://example.com/${number}"/><published>2026-11-24T20:45:0${number % 10}+01:00</published></entry>`;

/** A document in an encoding, with a declaration that names it. */
const encoded = (text, name, encoding) => {
  const whole = `<?xml version="1.0" encoding="${name}"?>${text}`;
  return encoding === "utf16le" ? Buffer.concat([Buffer.from([0xff, 0xfe]), Buffer.from(whole, encoding)]) : Buffer.from(whole, encoding);
};

const numbers = Array.from({ length: 12 }, (_, index) => index);
const plain = numbers.filter((number) => TEXTS[number % TEXTS.length] !== "żółć"); // Not in Latin-1.
const generated = [
  encoded(rss(numbers.map(rssItem)), "utf-8", "utf8"),
  encoded(atom(numbers.map(atomItem)), "utf-8", "utf8"),
  encoded(rss(numbers.map(rssItem)), "utf-16", "utf16le"),
  encoded(rss(plain.map(rssItem)), "iso-8859-1", "latin1"),
  encoded(atom([]), "utf-8", "utf8"),
];
const ours = ["news-rss2.xml", "news-atom.xml", "news-rss1.xml"].map((name) => readFileSync(new URL(name, DOCUMENTS)));

/** The entries of a document as our program reads them. */
async function read(folder, document) {
  const [mapping, file] = ["mapping.toml", "document.xml"].map((name) => path.join(folder, name));
  writeFileSync(mapping, MAPPING);
  writeFileSync(file, document);
  const words = ["feeds", "test", file, "--mapping", mapping, "--json"];
  const output = await new Promise((resolve) => execFile(BINARY, words, (error, stdout) => resolve(stdout)));
  const entries = output.split("\n").filter(Boolean).map((line) => JSON.parse(line)).filter((line) => line.outcome);
  return entries.map(({ event }) => {
    const { id = null, title = null, link = null, published } = event.data;
    return [id, title, link, published === undefined ? null : Date.parse(published) / 1000];
  });
}

test("feedparser finds the same entries", { timeout: 60_000 }, async (t) => {
  const { folder, stop } = temporaryFolder();
  t.after(stop);
  const judge = await Tool.start(t, python("feed_reader", []));
  let count = 0;
  for (const document of [...generated, ...ours]) {
    const { entries } = await judge.ask({ document: document.toString("base64") });
    // Ours takes the link of an entry that has no id.
    const expected = entries.map(([id, title, link, seconds]) => [id ?? link, title, link, seconds]);
    assert.deepEqual(await read(folder, document), expected, document.toString());
    count += entries.length;
  }
  assert.ok(count >= 50, `only ${count} entries`);
});
