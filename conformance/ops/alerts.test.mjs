// Alerts fire for real and end again: a server with a push provider by script, Prometheus, Alertmanager, and a receiver of
// Slack's webhooks. Only times and thresholds of the rules are shorter than shipped.

import assert from "node:assert/strict";
import { once } from "node:events";
import { test } from "node:test";

import { Credentials, Gateway, freshToken } from "../apns/harness.mjs";
import { Peer } from "../apns/peer.mjs";
import { API_KEY } from "../server.mjs";
import { Prometheus, Slack, alertmanager, shipped, swapped } from "./watch.mjs";

const DEADLINE_MS = 60_000;
const SHORTER = [
  [/for: \d+m/g, "for: 0s"],
  [/\[5m\]/g, "[5s]"],
  [/\[10m\]/g, "[5s]"],
  ["oldest_waiting_job_seconds > 60", "oldest_waiting_job_seconds > 2"],
  ["brake_seconds > 3600", "brake_seconds > 1"],
];
const LAKE_CAPACITY = 20;
const DEVICES = 100;
/** More than may run at a time, with one slot and nothing that moves. */
const EVENTS = 20;

process.env.TIDINGS_SENDER__JOB_COUNT_MAX = "1";

test("alerts reach people, and end", { timeout: 240_000 }, async (t) => {
  const credentials = Credentials.make(t);
  const certificate = credentials.client(); // Ends in two days.
  const peer = await Peer.start(t, credentials.server(), { script: (request) => request.accept(), clientsOf: credentials.authority });
  const gateway = await Gateway.start(t, credentials, peer.port, { certificate, lakeCapacity: LAKE_CAPACITY });
  await gateway.follow("match:1", Array.from({ length: DEVICES }, () => freshToken()));
  const slack = await Slack.start(t);
  const rules = swapped(shipped("prometheus/alerts.yml"), ...SHORTER);
  const target = `127.0.0.1:${gateway.port}`;
  // The message says which server, and which page to read.
  const told = async (status, alert) => {
    const { text } = await slack.told(status, alert, target, DEADLINE_MS);
    assert.match(text, /Runbook: docs\/runbooks\/[a-z-]+\.md/);
    assert.doesNotMatch(text, /\{\{|<no value>/);
  };
  await Prometheus.start(t, { target, key: API_KEY, interval: "500ms", rules, alertmanager: await alertmanager(t, slack) });

  await t.test("a certificate that ends soon", () => told("firing", "TidingsCertificateEnds"));

  await t.test("a pause that somebody forgot", async () => {
    await gateway.ok("PUT", "/v1/brakes/everything", {});
    await told("firing", "TidingsPauseOn");
    await gateway.ok("DELETE", "/v1/brakes/everything");
    await told("resolved", "TidingsPauseOn");
  });

  await t.test("a provider that refuses", async () => {
    peer.script = (request) => request.reject(400, "BadTopic");
    await gateway.push("match:1");
    await told("firing", "TidingsProviderRefuses");
    peer.script = (request) => request.accept();
    await told("resolved", "TidingsProviderRefuses");
  });

  await t.test("a provider that is not reached, and the event that waits for it", async () => {
    peer.server.close();
    peer.open.forEach(({ session }) => session.destroy());
    await gateway.push("match:1", EVENTS);
    await told("firing", "TidingsBreakerOpen");
    await told("firing", "TidingsOldestJobWaits");
    peer.server.listen(peer.port, "127.0.0.1");
    await once(peer.server, "listening");
    await told("resolved", "TidingsBreakerOpen");
    await told("resolved", "TidingsOldestJobWaits");
  });

  await t.test("a server that is gone", async () => {
    await gateway.kill("SIGKILL");
    await told("firing", "TidingsServerDown");
    await gateway.run();
    await told("resolved", "TidingsServerDown");
  });
});
