// Our PO files, read, written and merged by Python's polib.

import assert from "node:assert/strict";
import { readFileSync, readdirSync } from "node:fs";
import { test } from "node:test";

import { Tool, example, python } from "../tool.mjs";

const ROUNDS = 300;
const LOCALES = new URL("../../crates/demo/locales/", import.meta.url);
/** Texts that are difficult in PO files. polib does not read codes (`\001`), so none has a control character. */
const TEXTS = ["Goal for %{team}!", "żółć 👩‍👩‍👧 東京", "a \"b\" \\ c", "\ttab", "two\nlines", "x".repeat(90), "ends \\"];
const HEADER =
  'msgid ""\nmsgstr ""\n"Language: de\\n"\n"Content-Type: text/plain; charset=UTF-8\\n"\n' +
  '"Plural-Forms: nplurals=2; plural=n != 1;\\n"\n';

/** Random numbers below a limit, the same for a seed (xorshift). */
const random = (seed) => (limit) => {
  seed ^= seed << 13;
  seed ^= seed >>> 17;
  seed ^= seed << 5;
  return (seed >>> 0) % limit;
};

const quoted = (text) => `"${text.replace(/["\\]/g, "\\$&").replace(/\n/g, "\\n").replace(/\t/g, "\\t")}"`;

/** An entry with the number in its source text, as PO; `state` is its translation's. */
const entry = (draw, number, state) => {
  const [text, mark] = [`${number} ${TEXTS[draw(TEXTS.length)]}`, state === "obsolete" ? "#~ " : ""];
  const lines = [];
  if (draw(3) === 0) lines.push("# said by a translator");
  if (state !== "obsolete") lines.push("#. said by the author", `#: topic${number}.title topic${number}.body`);
  const flags = [...(state === "fuzzy" ? ["fuzzy"] : []), ...(text.includes("%{") ? ["ruby-format"] : [])];
  if (flags.length) lines.push(`#, ${flags.join(", ")}`);
  if (state === "fuzzy") lines.push(`#| msgid ${quoted(`old ${text}`)}`);
  if (draw(4) === 0) lines.push(`${mark}msgctxt "context"`);
  lines.push(`${mark}msgid ${quoted(text)}`);
  const translation = quoted(state === "untranslated" ? "" : `T ${text}`);
  if (draw(3) === 0) {
    lines.push(`${mark}msgid_plural ${quoted(`${text}s`)}`);
    lines.push(`${mark}msgstr[0] ${translation}`, `${mark}msgstr[1] ${translation}`);
  } else {
    lines.push(`${mark}msgstr ${translation}`);
  }
  return `${lines.join("\n")}\n`;
};

/** Some entries, and the POT file of some of them and of others. */
const files = (draw) => {
  const [known, wanted, count] = [[], [], draw(12)];
  for (let number = 0; number < count; number += 1) {
    const seed = 1 + draw(1_000_000);
    const state = ["translated", "fuzzy", "untranslated", "obsolete", "new"][draw(5)];
    if (state !== "new") known.push(entry(random(seed), number, state));
    if (state !== "obsolete" && draw(3) > 0) wanted.push(entry(random(seed), number, "untranslated"));
  }
  return [known, wanted].map((entries) => [HEADER, ...entries].join("\n"));
};

const sorted = (entries, part) => entries.map((each) => JSON.stringify(part(each))).sort();

const start = async (t) => {
  const seed = Number(process.env.TIDINGS_SEED ?? 1);
  t.diagnostic(`seed ${seed}`);
  const ours = await Tool.start(t, example("tidings-gettext", "catalogues"));
  const polib = await Tool.start(t, python("po_files", []));
  const ask = async (tool, line) => {
    const answer = await tool.ask(line);
    assert.equal(answer.error, undefined, `${answer.error}\n${line.po}\n---\n${line.pot ?? line.old ?? ""}`);
    return answer;
  };
  return { draw: random(seed), ours: (line) => ask(ours, line), polib: (line) => ask(polib, line) };
};

test("polib reads what we write as what we read, and counts as we do", { timeout: 120_000 }, async (t) => {
  const { draw, ours, polib } = await start(t);
  const demo = readdirSync(LOCALES).map((name) => readFileSync(new URL(`${name}/LC_MESSAGES/match.po`, LOCALES), "utf8"));
  for (const po of [...demo, ...Array.from({ length: ROUNDS }, () => files(draw)[0])]) {
    const [normal, before] = [await ours({ po }), await polib({ po })];
    const after = await polib({ po: normal.po });
    const all = (each) => each;
    assert.deepEqual(sorted(after.entries, all), sorted(before.entries, all), po);
    assert.deepEqual(normal.counts, after.counts, normal.po);
    const back = await ours({ po: after.po, old: normal.po });
    assert.equal(back.po, normal.po, "what polib has written is as before");
  }
});

test("polib merges as we do", { timeout: 120_000 }, async (t) => {
  const { draw, ours, polib } = await start(t);
  let obsolete = 0;
  for (let round = 0; round < ROUNDS; round += 1) {
    const [po, pot] = files(draw);
    const theirs = await polib({ po, pot });
    const merged = await polib({ po: (await ours({ po, pot })).po });
    // polib keeps untranslated obsolete entries, and gives a new entry the number of forms of the POT file.
    const part = ({ msgctxt, msgid, msgid_plural, msgstr, obsolete }) => ({ msgctxt, msgid, msgid_plural, msgstr, obsolete });
    const kept = theirs.entries.filter((each) => !each.obsolete || each.msgstr.some((text) => text !== ""));
    assert.deepEqual(sorted(merged.entries, part), sorted(kept, part), `${po}\n---\n${pot}`);
    obsolete += merged.counts[3];
  }
  assert.ok(obsolete > ROUNDS / 4, `only ${obsolete} obsolete entries`);
});
