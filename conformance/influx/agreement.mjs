// What `/metrics` tells, and whether a database has it: counters and histograms add up to it, gauges are at its values.

import assert from "node:assert/strict";

import { until } from "../server.mjs";
import { seriesKey } from "./databases.mjs";

/** What `/metrics` tells: `[name, labels, kind, value]` of each sample. */
export async function told(server) {
  const kinds = new Map();
  const samples = [];
  for (const line of (await (await server.request("GET", "/metrics")).text()).trimEnd().split("\n")) {
    if (line.startsWith("# TYPE ")) {
      const [name, kind] = line.slice("# TYPE ".length).split(" ");
      kinds.set(name, kind);
    } else if (!line.startsWith("#")) {
      const [, name, text = "", value] = /^([^{ ]+)(?:\{(.*)\})? (.*)$/.exec(line);
      const labels = Object.fromEntries([...text.matchAll(/(\w+)="((?:[^"\\]|\\.)*)"/g)].map(([, key, of]) => [key, of]));
      samples.push([name, labels, kinds.get(name) ?? kinds.get(name.replace(/_(sum|count)$/, "")), Number(value)]);
    }
  }
  return samples;
}

const near = (one, other, share) => Math.abs(one - other) <= share * Math.abs(other) + 1e-6;

/** In what a database's `series` differ from `samples`; nothing when they have all of it. The series have `tags`, too. */
function differences(series, samples, tags) {
  const found = [];
  let [counters, gauges, histograms] = [0, 0, 0];
  for (const [name, labels, kind, value] of samples) {
    if (/^(process|tidings_influx|tidings_disk)_|age_seconds$/.test(name) || labels.route === "GET /metrics" || "le" in labels) {
      continue; // These go on while we look; the lines have quantiles in place of buckets.
    }
    const of = (field) => series.get(seriesKey(field, { ...tags, ...labels }));
    const expect = (same, what) => same || found.push(`${name} ${JSON.stringify(labels)}: ${value}, got ${JSON.stringify(what)}`);
    if (kind === "counter") {
      const row = of(name.replace(/_total$/, ""));
      expect(near(row?.sum ?? 0, value, 1e-9), row); // Seconds are added up in another order.
      counters += value > 0;
    } else if (kind === "histogram") {
      const row = of(name);
      expect(near(row?.sum ?? 0, value, 1e-9), row);
      histograms += value > 0;
    } else {
      const row = of(name);
      expect(row?.last === value, row);
      gauges += value > 0;
    }
  }
  assert.ok(counters >= 8 && gauges >= 2 && histograms >= 2, `compared ${counters}, ${gauges}, ${histograms}`);
  return found;
}

/** Waits until the server has come to rest and the database has what it tells, in points not older than `since`. */
export async function agree(database, server, tags, since) {
  let [samples, found] = [];
  const all = async () => {
    samples = await told(server);
    found = differences(await database.series(since), samples, tags);
    return found.length === 0;
  };
  await until("the database has it", all).catch((error) => {
    throw new Error(`${error.message}\n${found.join("\n")}\n${server.log}\n${database.log}`);
  });
  return samples;
}
