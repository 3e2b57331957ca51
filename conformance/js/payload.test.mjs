// docs/payload.schema.json, read by a validator that is not ours (ajv, draft 2020-12), against the examples of
// docs/payload.md. That these examples are what the server makes, a test of crates/sender shows; it reads the same blocks.

import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { test } from "node:test";

import Ajv from "ajv/dist/2020.js";

const document = (name) => readFileSync(new URL(`../../docs/${name}`, import.meta.url), "utf8");

const schema = JSON.parse(document("payload.schema.json"));
const validate = new Ajv({ strict: true, strictRequired: false, allErrors: true }).compile(schema);
const payloads = [...document("payload.md").matchAll(/^```json payload\n(.*?)^```$/gms)].map(([, text]) => text);

test("the schema is one, of the draft it names", () => {
  assert.equal(schema.$schema, "https://json-schema.org/draft/2020-12/schema");
  assert.ok(new Ajv().validateSchema(schema), "no word of it is misspelt");
});

test("every payload of the document is accepted", () => {
  assert.equal(payloads.length, 5);
  for (const text of payloads) {
    const payload = JSON.parse(text);
    assert.ok(validate(payload), `${text}${JSON.stringify(validate.errors, null, 2)}`);
    assert.ok(Buffer.byteLength(JSON.stringify(payload)) <= 4096);
  }
});

// A schema that accepts everything would pass the test above.
const broken = {
  "no aps": (payload) => delete payload.aps,
  "no tidings": (payload) => delete payload.tidings,
  "nothing to notice": (payload) => (payload.aps = { "thread-id": "a", "content-available": 0 }),
  "an alert that is a number": (payload) => (payload.aps.alert = 1),
  "a title that is a number": (payload) => (payload.aps.alert = { title: 1 }),
  "an empty sound": (payload) => (payload.aps.sound = ""),
  "a critical sound without name": (payload) => (payload.aps.sound = { critical: 1, volume: 1 }),
  "too loud": (payload) => (payload.aps.sound = { critical: 1, name: "a", volume: 2 }),
  "a badge below 0": (payload) => (payload.aps.badge = -1),
  "half a badge": (payload) => (payload.aps.badge = 0.5),
  "a level that does not exist": (payload) => (payload.aps["interruption-level"] = "time_sensitive"),
  "mutable-content true": (payload) => (payload.aps["mutable-content"] = true),
  "no event": (payload) => delete payload.tidings.event,
  "an offset without epoch": (payload) => delete payload.tidings.epoch,
  "a channel without offset": (payload) => delete payload.tidings.offset,
  "an offset of 0": (payload) => (payload.tidings.offset = 0),
  "an offset that is text": (payload) => (payload.tidings.offset = "1"),
  "a member of tidings that we do not send": (payload) => (payload.tidings.position = 1),
  "a link that is no text": (payload) => (payload.tidings.link = {}),
};
for (const [what, change] of Object.entries(broken)) {
  test(`refused: ${what}`, () => {
    const payload = JSON.parse(payloads[0]);
    change(payload);
    assert.ok(!validate(payload));
  });
}
