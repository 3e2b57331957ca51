// What a subscriber gets besides plain publications: joins and leaves, a choice by tags, texts in its language.

import assert from "node:assert/strict";
import { after, before } from "node:test";

import { Server, Wire, fresh, numbers, seconds, subscribed, test, token, until } from "./harness.mjs";

let server;
before(async () => (server = await Server.start()));
after(() => server?.stop());

const options = { timeout: 60_000 };

const data = (sub) => sub.seen.map((publication) => publication.data);
const offsets = (sub) => sub.seen.map((publication) => publication.offset);

test("who joins and leaves is told to those who asked", options, async (t) => {
  const channel = fresh("lively");
  const told = [];
  const client = await server.connected(t);
  const sub = client.newSubscription(channel, { joinLeave: true });
  sub.on("join", ({ info }) => told.push(["join", info.client]));
  sub.on("leave", ({ info }) => told.push(["leave", info.client]));
  sub.subscribe();
  await until("it is told of its own join", () => told.length === 1);
  const other = await server.connected(t);
  let otherIsTold = 0;
  const plain = await subscribed(other, channel);
  plain.on("join", () => otherIsTold++);
  plain.on("leave", () => otherIsTold++);
  await until("the other has joined", () => told.length === 2);
  const third = await server.connected(t);
  await subscribed(third, channel);
  await until("the third has joined", () => told.length === 3);
  const clients = (await sub.presence()).clients;
  const joined = told.map(([, id]) => id);
  assert.deepEqual(new Set(joined), new Set(Object.keys(clients)));
  third.disconnect();
  plain.unsubscribe();
  await until("both have left", () => told.length === 5);
  assert.deepEqual(told.map(([kind]) => kind), ["join", "join", "join", "leave", "leave"]);
  assert.deepEqual(new Set(told.slice(3).map(([, id]) => id)), new Set(joined.slice(1)));
  assert.equal(otherIsTold, 0);
});

test("a filter chooses by tags, live and what was missed", options, async (t) => {
  const wire = await Wire.to(t, server);
  const channel = fresh("lively");
  const tagsFilter = {
    op: "and",
    nodes: [
      { key: "kind", cmp: "in", vals: ["goal", "card"] },
      { op: "not", nodes: [{ key: "minute", cmp: "lt", val: "45" }] },
    ],
  };
  const sub = await subscribed(await server.connected(t, {}, wire), channel, { tagsFilter });
  const all = await subscribed(await server.connected(t), channel);
  const publish = async (minute, kind) => server.publish(channel, minute, { tags: { kind, minute: `${minute}` } });
  const kinds = ["goal", "corner", "card"];
  for (const minute of numbers(60)) {
    await publish(minute, kinds[minute % 3]);
  }
  const wanted = numbers(60).filter((minute) => minute >= 45 && minute % 3 !== 1);
  await until("all are there", () => all.seen.length === 60 && sub.seen.length >= wanted.length);
  assert.deepEqual(data(sub), wanted);
  assert.deepEqual(offsets(sub), wanted);

  wire.close();
  for (const minute of [61, 62, 63, 64]) {
    await publish(minute, kinds[minute % 3]);
  }
  wire.open();
  await until("it is back", () => sub.joined.length === 2);
  assert.equal(sub.joined[1].recovered, true);
  await publish(66, "goal");
  await until("life goes on", () => data(sub).at(-1) === 66);
  assert.deepEqual(data(sub).slice(wanted.length), [62, 63, 66]);
});

test("a token filters what a client gets, also when it comes back, and the client only narrows that", options, async (t) => {
  const wire = await Wire.to(t, server);
  const channel = fresh("lively");
  const tags_filter = { key: "team", cmp: "eq", val: "SWE" };
  const filtering = token({ sub: "ada", channel, tags_filter, exp: seconds(3600) });
  const tagsFilter = { key: "kind", cmp: "neq", val: "corner" };
  const client = await server.connected(t, { token: token({ sub: "ada" }) }, wire);
  const sub = await subscribed(client, channel, { token: filtering, tagsFilter });
  const publish = async (from) => {
    await server.publish(channel, from, { tags: { team: "SWE", kind: "goal" } });
    await server.publish(channel, from + 1, { tags: { team: "DEN", kind: "goal" } });
    await server.publish(channel, from + 2, { tags: { team: "SWE", kind: "corner" } });
    await server.publish(channel, from + 3, { tags: { team: "SWE" } });
  };
  await publish(1);
  await until("they are there", () => sub.seen.length === 2);
  wire.close();
  await publish(5);
  wire.open();
  await until("it is back", () => sub.joined.length === 2);
  await publish(9);
  await until("life goes on", () => data(sub).at(-1) === 12);
  assert.deepEqual(data(sub), [1, 4, 5, 8, 9, 12]);
});

test("a filter is refused where filters are not allowed", options, async (t) => {
  const client = await server.connected(t);
  const sub = client.newSubscription(fresh("chat"), { tagsFilter: { key: "kind", cmp: "eq", val: "goal" } });
  const code = new Promise((resolve) => sub.on("unsubscribed", (context) => resolve(context.code)));
  sub.subscribe();
  assert.equal(await code, 107);
});

test("a channel of states gives the latest to those who come, and to those who come back", options, async (t) => {
  const channel = fresh("state");
  const wire = await Wire.to(t, server);
  const sub = await subscribed(await server.connected(t, {}, wire), channel);
  await server.publish(channel, 1);
  await until("it is there", () => sub.seen.length === 1);
  wire.close();
  for (const number of numbers(20)) {
    await server.publish(channel, number + 1);
  }
  wire.open();
  await until("it is back", () => sub.seen.length === 2);
  assert.deepEqual(data(sub), [1, 21]);
  assert.deepEqual([sub.joined[1].wasRecovering, sub.joined[1].recovered], [true, true]);

  const late = await subscribed(await server.connected(t), channel);
  await until("it has the state", () => late.seen.length === 1);
  assert.deepEqual([data(late), offsets(late), late.joined[0].recovered], [[21], [21], true]);
  await server.publish(channel, 22);
  await until("life goes on", () => late.seen.length === 2 && sub.seen.length === 3);
});

test("deltas and numbers change nothing for the app, also over a break", options, async (t) => {
  const channel = fresh("small");
  const wire = await Wire.to(t, server);
  const sub = await subscribed(await server.connected(t, {}, wire), channel, { delta: "fossil" });
  const plainSub = await subscribed(await server.connected(t), channel);
  const filler = "Łódź, größer, 東京都 🏆 ".repeat(20);
  const state = (number) => ({ home: "Sweden", away: "Germany", filler, minute: number, last: "é".repeat(number % 7) });
  for (const number of numbers(50)) {
    await server.publish(channel, state(number));
  }
  await until("all are there", () => sub.seen.length === 50);
  wire.close();
  for (const number of numbers(10)) {
    await server.publish(channel, state(50 + number));
  }
  wire.open();
  await until("it is back", () => sub.joined.length === 2);
  assert.equal(sub.joined[1].recovered, true);
  for (const number of numbers(20)) {
    await server.publish(channel, state(60 + number));
  }
  await until("all are there", () => sub.seen.length === 80 && plainSub.seen.length === 80);
  assert.deepEqual(data(sub), numbers(80).map(state));
  assert.deepEqual(data(plainSub), numbers(80).map(state));
  assert.equal(sub._id > 0, t.way.format === "json", "the subscription has a number, in JSON");
  assert.ok(sub._deltaNumDelta > 60, `${sub._deltaNumDelta} of 80 were deltas`);
});

test("each reader gets the texts of events in its language, live, as a difference, and when it comes back", options, async (t) => {
  const wire = await Wire.to(t, server);
  const channel = fresh("told");
  const text = { pl: { title: "Gol!", body: "Tak." }, und: { title: "Goal!", body: "Yes." } };
  const tell = async (number) => {
    const event = { id: fresh("event"), topic: "goal", subjects: [channel], push: "never", text, data: [number, "x".repeat(200)] };
    assert.equal((await server.request("POST", "/v1/events", event)).status, 202);
    return event.id;
  };
  const said = (locale) => ({ data: { tidings: { locale } } });
  const polish = await subscribed(await server.connected(t, said("pl-PL"), wire), channel, { delta: "fossil" });
  const readers = {
    swedish: await subscribed(await server.connected(t, said("sv")), channel),
    unknown: await subscribed(await server.connected(t, said("tlh")), channel),
  };
  const first = [await tell(1), await tell(2)];
  await until("Polish is live", () => polish.seen.length === 2);
  wire.close();
  const missed = await tell(3);
  wire.open();
  await until("it is back", () => polish.seen.length === 3);
  const ids = [...first, missed];
  const tags = (sub) => sub.seen.map((publication) => publication.tags);
  assert.deepEqual(tags(polish), ids.map((event) => ({ event, title: "Gol!", body: "Tak.", lang: "pl" })));
  assert.deepEqual(polish.seen.map(({ data: [number] }) => number), [1, 2, 3]);
  for (const sub of Object.values(readers)) {
    await until("all are there", () => sub.seen.length === 3);
    assert.deepEqual(tags(sub), ids.map((event) => ({ event, title: "Goal!", body: "Yes." })));
  }
  const { publications } = await polish.history({ limit: 10 });
  assert.deepEqual(publications.map((publication) => publication.tags.title), ["Gol!", "Gol!", "Gol!"]);
});
