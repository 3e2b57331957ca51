// Our deltas, undone by `fossil-delta`, the implementation that Centrifugo's JavaScript SDK contains.

import assert from "node:assert/strict";
import { test } from "node:test";

import { applyDelta } from "fossil-delta";

import { Tool, example } from "../tool.mjs";

const ROUNDS = 2000;
/** Pieces that payloads have in common: of one byte per character, and of more. */
const PIECES = [
  '{"home":"Sweden","away":"Germany","score":[1,0]}',
  "Łódź żółć, größer, 東京都, 🏆🏆🏆🏆🏆🏆",
  "a".repeat(100),
  "é".repeat(40),
  "\u0000\n\t\"\\",
];

/** Random numbers below a limit, the same for a seed (xorshift). */
const random = (seed) => (limit) => {
  seed ^= seed << 13;
  seed ^= seed >>> 17;
  seed ^= seed << 5;
  return (seed >>> 0) % limit;
};

const payload = (draw) =>
  Array.from({ length: draw(12) }, () => PIECES[draw(PIECES.length + 2)] ?? String(draw(1_000_000))).join("");

test("fossil-delta makes the new payload of the old one and our delta", { timeout: 60_000 }, async (t) => {
  const seed = Number(process.env.TIDINGS_SEED ?? 1);
  t.diagnostic(`seed ${seed}`);
  const [draw, tool] = [random(seed), await Tool.start(t, example("tidings-protocol", "delta"))];
  let count = 0;
  for (let round = 0; round < ROUNDS; round += 1) {
    const [old, next] = [payload(draw), payload(draw)];
    const { delta } = await tool.ask({ old, new: next });
    if (delta !== null) {
      const made = applyDelta(Buffer.from(old), Buffer.from(delta));
      assert.equal(Buffer.from(made).toString(), next);
      count += 1;
    }
  }
  assert.ok(count > ROUNDS / 4, `only ${count} deltas were made`);
});
