// The scripts for Kapacitor fire for real and end again. Only their times and thresholds are shorter than shipped.

import assert from "node:assert/strict";
import { once } from "node:events";
import { test } from "node:test";

import { InfluxDb } from "../influx/databases.mjs";
import { Chain, HOST, Kapacitor, SKIP } from "./chain.mjs";

const DEADLINE_MS = 60_000;
/** More than may run at a time, with one slot and nothing that moves. */
const EVENTS = 20;

process.env.TIDINGS_SENDER__JOB_COUNT_MAX = "1";

test("alerts reach people, and end", { timeout: 240_000, skip: SKIP }, async (t) => {
  const chain = await Chain.start(t);
  const kapacitor = await Kapacitor.start(t, chain.database);
  kapacitor.load("server-down", ["deadman(0.0, 1m)", "deadman(0.0, 5s)"]);
  kapacitor.load("oldest-job-waits", ["> 60.0", "> 2.0"]);
  kapacitor.load("provider-refuses", [".period(5m)", ".period(5s)"], [".every(1m)", ".every(1s)"]);
  const tasks = ["server-down", "oldest-job-waits", "provider-refuses"];
  // The message says which server, and which page to read.
  const told = async (level, id) => {
    const message = await kapacitor.told(level, id, DEADLINE_MS).catch((error) => {
      throw new Error([error.message, ...tasks.map((name) => kapacitor.show(name)), chain.log].join("\n"));
    });
    assert.ok(message.includes(HOST), message);
    assert.match(message, /See docs\/runbooks\/[a-z-]+\.md/);
    assert.doesNotMatch(message, /\{\{|<no value>/);
    assert.equal(message.startsWith("Over: "), level === "OK", message);
  };

  await t.test("a provider that refuses", async () => {
    chain.peer.script = (request) => request.reject(400, "BadTopic");
    await chain.tell(1);
    await told("CRITICAL", `TidingsProviderRefuses/${HOST}/apns`);
    chain.peer.script = (request) => request.accept();
    await told("OK", `TidingsProviderRefuses/${HOST}/apns`);
  });

  await t.test("an event that waits, because the provider is not reached", async () => {
    chain.peer.server.close();
    chain.peer.open.forEach(({ session }) => session.destroy());
    await chain.push("match:1", EVENTS);
    await told("CRITICAL", `TidingsOldestJobWaits/${HOST}`);
    chain.peer.server.listen(chain.peer.port, "127.0.0.1");
    await once(chain.peer.server, "listening");
    await told("OK", `TidingsOldestJobWaits/${HOST}`);
  });

  await t.test("a server that is gone", async () => {
    await chain.kill("SIGKILL");
    await told("CRITICAL", `TidingsServerDown/${HOST}`);
    await kapacitor.looksAgain("server-down", DEADLINE_MS); // And says nothing new.
    await chain.run();
    await told("OK", `TidingsServerDown/${HOST}`);
  });

  assert.deepEqual(kapacitor.messages, [], "each alert was told once, and no other");
});

test("a server that was gone before Kapacitor came", { timeout: 90_000, skip: SKIP }, async (t) => {
  const kapacitor = await Kapacitor.start(t, await InfluxDb.start(t));
  kapacitor.load("server-down", ["deadman(0.0, 1m)", "deadman(0.0, 1s)"]);
  const message = await kapacitor.told("CRITICAL", "TidingsServerDown/", DEADLINE_MS);
  assert.match(message, /^A server that Kapacitor has not seen yet does not tell its metrics/);
});
