// Metrics that were sent to a real database are those that `/metrics` tells: counters and histograms add up to it, gauges
// are at its values, labels and tags are read back as they are, whatever characters they have.

import assert from "node:assert/strict";
import { randomUUID } from "node:crypto";
import { describe, test } from "node:test";

import { Server, configurationHead, freePort, until } from "../server.mjs";
import { InfluxDb, VictoriaMetrics, seriesKey } from "./databases.mjs";

const options = { timeout: 90_000 };
const PUBLISHED = 200;
/** Of each server; told as they are but for the backslash. */
const TAGS = { host: "web 1", region: 'a, b=c "d" é,', path: "C:/" };

const configuration = (udpPort) => (port, folder) => `${configurationHead(port, folder)}
[channel.namespaces.match]
durable = true
history_size = 100
history_ttl = "10m"

[topics.goal]
title = "Goal"
body = "By %{scorer}."

[influx]
address = "127.0.0.1:${udpPort}"
interval = "1s"
tags = ['host=${TAGS.host}', 'region=${TAGS.region}', 'path=C:\\']
`;

/** Requests of several kinds; when it resolves, all are answered. */
async function work(server, count) {
  const ok = async (method, route, body, ...statuses) => {
    const answer = await server.request(method, route, body);
    const text = await answer.text();
    assert.ok(statuses.includes(answer.status), `${method} ${route}: ${answer.status} ${text}`);
  };
  const device = { platform: "ios", token: "ab".repeat(32), app: "com.example.app", locale: "en" };
  await ok("PUT", "/v1/devices/phone", device, 200, 201);
  const event = () => ({ id: randomUUID(), topic: "goal", subjects: ["match:1"], params: { scorer: "Ada" } });
  for (let step = 0; step < count; step++) {
    await ok("POST", "/api/publish", { channel: "match:1", data: { minute: 5 } }, 200);
    if (step % 10 === 0) {
      await ok("GET", "/v1/devices/nobody", undefined, 404);
      await ok("POST", "/v1/events", event(), 202);
    }
  }
}

/** What `/metrics` tells: `[name, labels, kind, value]` of each sample. */
async function told(server) {
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

/** In what the database differs from `samples`; nothing when it has all of it. */
async function differences(database, samples) {
  const series = await database.series();
  const found = [];
  let [counters, gauges, histograms] = [0, 0, 0];
  for (const [name, labels, kind, value] of samples) {
    if (/^(process|tidings_influx|tidings_disk)_|age_seconds$/.test(name) || labels.route === "GET /metrics" || "le" in labels) {
      continue; // These go on while we look; the lines have quantiles in place of buckets.
    }
    const of = (field) => series.get(seriesKey(field, { ...TAGS, ...labels }));
    const expect = (same, what) => same || found.push(`${name} ${JSON.stringify(labels)}: ${value}, got ${JSON.stringify(what)}`);
    if (kind === "counter") {
      const row = of(name.replace(/_total$/, ""));
      expect((row?.sum ?? 0) === value, row);
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

/** Waits until the server has come to rest and the database has what it tells. */
async function agree(database, server) {
  let found;
  const all = async () => (found = await differences(database, await told(server))).length === 0;
  await until("the database has it", all).catch((error) => {
    throw new Error(`${error.message}\n${found.join("\n")}\n${server.log}\n${database.log}`);
  });
}

const count = (text, part) => text.split(part).length - 1;

for (const Judge of [InfluxDb, VictoriaMetrics]) {
  describe(Judge.name, options, () => {
    test("has what was counted, also what came last before an orderly stop", async (t) => {
      const udpPort = await freePort();
      const database = await Judge.start(t, udpPort);
      const server = await Server.start(configuration(udpPort));
      t.after(() => server.stop());
      await work(server, PUBLISHED);
      await agree(database, server);
      await work(server, PUBLISHED);
      await agree(database, server);

      await work(server, 10);
      await server.kill("SIGTERM");
      const labels = { ...TAGS, route: "POST /api/publish", status: "200" };
      const published = async () => (await database.series()).get(seriesKey("tidings_api_requests", labels))?.sum;
      await until("the last flush", async () => (await published()) === 2 * PUBLISHED + 10);
      assert.ok(!server.log.includes("Metrics do not arrive"), server.log);
    });
  });
}

test("an agent that is not there costs nothing but its points, and is found when it comes", options, async (t) => {
  const udpPort = await freePort();
  const server = await Server.start(configuration(udpPort));
  t.after(() => server.stop());
  await until("it is told", () => server.log.includes("Metrics do not arrive"));
  await work(server, PUBLISHED);
  const refusals = async () => (await told(server)).find(([name]) => name === "tidings_influx_refusals_total")[3];
  const before = await refusals();
  await until("it is refused again", async () => (await refusals()) > before);
  assert.equal(count(server.log, "Metrics do not arrive"), 1, server.log);

  const database = await InfluxDb.start(t, udpPort);
  const gauge = seriesKey("tidings_store_devices", TAGS);
  await until("gauges arrive", async () => (await database.series()).get(gauge)?.last === 1);
  await until("it is told", () => server.log.includes("Metrics arrive again"));
  assert.equal(count(server.log, "Metrics do not arrive"), 1, server.log);
});
