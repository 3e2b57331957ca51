// Metrics that were sent to a real database are those that `/metrics` tells: counters and histograms add up to it, gauges
// are at its values, labels and tags are read back as they are, whatever characters they have.

import assert from "node:assert/strict";
import { randomUUID } from "node:crypto";
import { describe, test } from "node:test";

import { SUITE, Server, configurationHead, freePort, until } from "../server.mjs";
import { agree, told } from "./agreement.mjs";
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

const count = (text, part) => text.split(part).length - 1;

for (const Judge of [InfluxDb, VictoriaMetrics]) {
  describe(Judge.name, SUITE, () => {
    test("has what was counted, also what came last before an orderly stop", async (t) => {
      const udpPort = await freePort();
      const database = await Judge.start(t, udpPort);
      const server = await Server.start(configuration(udpPort));
      t.after(() => server.stop());
      await work(server, PUBLISHED);
      await agree(database, server, TAGS);
      await work(server, PUBLISHED);
      await agree(database, server, TAGS);

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
