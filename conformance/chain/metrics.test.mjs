// What our server counts arrives in InfluxDB through Telegraf as `/metrics` tells it, also over the end of a server.

import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { test } from "node:test";

import { agree } from "../influx/agreement.mjs";
import { seriesKey } from "../influx/databases.mjs";
import { Chain, HOST, SKIP } from "./chain.mjs";

const TAGS = { host: HOST };
const EVENTS = 10;
const METRICS_MIN = 40;

/** The metrics of `docs/metrics.md`: their names at `/metrics`. */
const documented = () => {
  const text = readFileSync(new URL("../../docs/metrics.md", import.meta.url), "utf8");
  return [...text.matchAll(/^\| `(\w+)` \| (counter|gauge|histogram) \|/gm)].map(([, name, kind]) => ({ name, kind }));
};

/** Each documented metric that has a value is there, and nothing else is told. Returns how many are there. */
function complete(samples, series) {
  const values = new Map();
  for (const [name, labels, kind, value] of samples.filter(([, labels]) => !("le" in labels))) {
    const family = kind === "histogram" ? name.replace(/_(sum|count)$/, "") : name;
    values.set(family, (values.get(family) ?? 0) + Math.abs(value));
  }
  const arrived = new Set([...series.keys()].map((key) => JSON.parse(key)[0]));
  const field = { counter: (name) => name.replace(/_total$/, ""), gauge: (name) => name, histogram: (name) => `${name}_count` };
  const metrics = documented();
  const unknown = [...values.keys()].filter((family) => metrics.every(({ name }) => name !== family));
  assert.deepEqual(unknown, [], "docs/metrics.md does not say what these are");
  const valued = metrics.filter(({ name }) => values.get(name) > 0);
  const missing = valued.filter(({ name, kind }) => !arrived.has(field[kind](name)));
  assert.deepEqual(missing, [], "these have values, and are not in InfluxDB");
  return valued.length;
}

/** The one sample of a counter that has the labels `wanted`. */
const sampleOf = (samples, counter, wanted) => {
  const has = (labels) => Object.entries(wanted).every(([key, value]) => labels[key] === value);
  const found = samples.filter(([name, labels]) => name === counter && has(labels));
  assert.equal(found.length, 1, `${counter} ${JSON.stringify(wanted)}`);
  return found[0];
};

test("InfluxDB has what the server counted, over kill -9 too", { timeout: 180_000, skip: SKIP }, async (t) => {
  const chain = await Chain.start(t);
  await chain.tellLive(EVENTS);
  const first = await agree(chain.database, chain, TAGS);
  const count = complete(first, await chain.database.series());
  t.diagnostic(`${count} metrics have values`);
  assert.ok(count >= METRICS_MIN, `only ${count} metrics have values`);

  await chain.kill("SIGKILL");
  const since = Date.now();
  await chain.run();
  await chain.tellLive(2 * EVENTS);
  const second = await agree(chain.database, chain, TAGS, since);
  // `/metrics` began at zero again. The lines tell only what was added, so InfluxDB has the sum of both lives.
  const series = await chain.database.series();
  for (const [counter, wanted] of [
    ["tidings_gateway_settled_total", { outcome: "accepted" }],
    ["tidings_api_requests_total", { route: "POST /v1/events" }],
    ["tidings_edge_connected_total", {}],
  ]) {
    const [, labels, , before] = sampleOf(first, counter, wanted);
    const [, , , after] = sampleOf(second, counter, wanted);
    const { sum } = series.get(seriesKey(counter.replace(/_total$/, ""), { ...TAGS, ...labels }));
    assert.ok(before > 0 && after > 0, counter);
    assert.equal(sum, before + after, counter);
  }
});
