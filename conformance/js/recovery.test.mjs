// What happens on the way must not show: a cut wire, a killed server, an orderly stop.

import assert from "node:assert/strict";

import { Server, Wire, fresh, next, numbers, subscribed, test, until } from "./harness.mjs";

const options = { timeout: 120_000 };

async function started(t) {
  const server = await Server.start();
  t.after(() => server.stop());
  return server;
}

const data = (sub) => sub.seen.map((publication) => publication.data);
const offsets = (sub) => sub.seen.map((publication) => publication.offset);

for (const namespace of ["chat", "match"]) {
  test(`${namespace}: cut off while 500 publications flow, none is missed or repeated`, options, async (t) => {
    const server = await started(t);
    const wire = await Wire.to(t, server);
    const sub = await subscribed(await server.connected(t, {}, wire), fresh(namespace));
    const cuts = [1, 57, 100, 101, 250, 400, 499];
    sub.on("publication", ({ offset }) => cuts.includes(offset) && wire.cut());
    for (const number of numbers(500)) {
      await server.publish(sub.channel, number);
    }
    await until("all are there", () => sub.seen.length >= 500);
    assert.deepEqual(data(sub), numbers(500));
    assert.deepEqual(offsets(sub), numbers(500));
    const resumed = sub.joined.slice(1);
    assert.ok(resumed.length > 0, "it was cut off at least once");
    assert.deepEqual(resumed.filter((context) => !context.wasRecovering || !context.recovered), []);
  });
}

test("what was published during an absence comes at once on return", options, async (t) => {
  const server = await started(t);
  const wire = await Wire.to(t, server);
  const sub = await subscribed(await server.connected(t, {}, wire), fresh("chat"));
  await server.publish(sub.channel, 1);
  await until("the first is there", () => sub.seen.length === 1);
  wire.close();
  for (const number of numbers(499)) {
    await server.publish(sub.channel, number + 1);
  }
  wire.open();
  await until("it is back", () => sub.joined.length === 2);
  assert.deepEqual([sub.joined[1].wasRecovering, sub.joined[1].recovered], [true, true]);
  await until("all are there", () => sub.seen.length >= 500);
  await server.publish(sub.channel, 501);
  await until("life goes on", () => sub.seen.length >= 501);
  assert.deepEqual(data(sub), numbers(501));
});

test("who missed more than the history keeps is told so, and goes on from the top", options, async (t) => {
  const server = await started(t);
  const wire = await Wire.to(t, server);
  const sub = await subscribed(await server.connected(t, {}, wire), fresh("short"));
  await server.publish(sub.channel, 1);
  await until("the first is there", () => sub.seen.length === 1);
  wire.close();
  for (const number of numbers(11)) {
    await server.publish(sub.channel, number + 1);
  }
  wire.open();
  await until("it is back", () => sub.joined.length === 2);
  const { wasRecovering, recovered, streamPosition } = sub.joined[1];
  assert.deepEqual([wasRecovering, recovered, streamPosition.offset], [true, false, 12]);
  await server.publish(sub.channel, 13);
  await until("the next is there", () => sub.seen.length === 2);
  assert.deepEqual(offsets(sub), [1, 13]);
});

test("killed while publishing: a durable channel keeps all acknowledged, in order, once", options, async (t) => {
  const server = await started(t);
  const sub = await subscribed(await server.connected(t), fresh("match"));
  const { epoch } = sub.joined[0].streamPosition;
  const acknowledged = [];
  let number = 0;
  let publishing = true;
  const publisher = (async () => {
    while (publishing) {
      const own = ++number;
      try {
        await server.publish(sub.channel, own);
        acknowledged.push(own);
      } catch {
        // Refused or cut off: it may or may not have been kept, and is not tried again.
        await new Promise((resolve) => setTimeout(resolve, 5));
      }
    }
  })();
  for (const round of numbers(3)) {
    const before = acknowledged.length;
    await until("publications flow", () => acknowledged.length >= before + 100);
    await server.kill("SIGKILL");
    await server.run();
    await until("it is back", () => sub.joined.length === round + 1);
  }
  publishing = false;
  await publisher;
  const last = acknowledged.at(-1);
  await until("the last is there", () => data(sub).includes(last));

  const received = data(sub);
  assert.deepEqual(received, [...new Set(received)].sort((a, b) => a - b), "in order, once");
  assert.deepEqual(offsets(sub), numbers(received.length), "positions without gap");
  assert.deepEqual(acknowledged.filter((own) => !received.includes(own)), [], "acknowledged but lost");
  for (const context of sub.joined.slice(1)) {
    assert.deepEqual([context.wasRecovering, context.recovered, context.streamPosition.epoch], [true, true, epoch]);
  }
});

test("published during an absence, then killed: a durable channel still has it", options, async (t) => {
  const server = await started(t);
  const wire = await Wire.to(t, server);
  const sub = await subscribed(await server.connected(t, {}, wire), fresh("match"));
  await server.publish(sub.channel, 1);
  await until("the first is there", () => sub.seen.length === 1);
  wire.close();
  for (const number of numbers(50)) {
    await server.publish(sub.channel, number + 1);
  }
  await server.kill("SIGKILL");
  await server.run();
  wire.open();
  await until("all are there", () => sub.seen.length >= 51);
  assert.deepEqual(data(sub), numbers(51));
  assert.equal(sub.joined.at(-1).recovered, true);
  const { publications } = await sub.history({ limit: -1 });
  assert.deepEqual(publications.map((publication) => publication.data), numbers(51));
});

test("killed: a durable channel still refuses an older version, and takes a newer one", options, async (t) => {
  const server = await started(t);
  const sub = await subscribed(await server.connected(t), fresh("match"));
  const say = (number, version, version_epoch) => server.publish(sub.channel, number, { version, version_epoch });
  await say(1, 7, "a");
  await say(2); // Without a version: the channel keeps the one it knows.
  for (const { offset } of [await say("as old", 7, "a"), await say("older", 6, "a")]) {
    assert.equal(offset, 2, "swallowed: the answer is where the channel is");
  }
  await server.kill("SIGKILL");
  await server.run();
  for (const { offset } of [await say("as old", 7, "a"), await say("older", 6, "a")]) {
    assert.equal(offset, 2, "also after the crash");
  }
  assert.equal((await say(3, 8, "a")).offset, 3);
  await server.kill("SIGKILL");
  await server.run();
  assert.equal((await say("older", 7, "a")).offset, 3);
  assert.equal((await say(4, 1, "b")).offset, 4, "another version epoch begins anew");
  await until("all are there", () => sub.seen.length >= 4);
  assert.deepEqual(data(sub), numbers(4));
});

test("a channel in memory says after a restart that it cannot resume", options, async (t) => {
  const server = await started(t);
  const sub = await subscribed(await server.connected(t), fresh("chat"));
  await server.publish(sub.channel, 1);
  await until("the first is there", () => sub.seen.length === 1);
  await server.kill("SIGKILL");
  await server.run();
  await until("it is back", () => sub.joined.length === 2);
  const [before, now] = sub.joined;
  assert.deepEqual([now.wasRecovering, now.recovered], [true, false]);
  assert.notEqual(now.streamPosition.epoch, before.streamPosition.epoch);
  await server.publish(sub.channel, 2);
  await until("the next is there", () => sub.seen.length === 2);
});

test("an orderly stop says 3001, flushes, ends with 0, and the client comes back", options, async (t) => {
  const server = await started(t);
  const client = await server.connected(t);
  const sub = await subscribed(client, fresh("match"));
  for (const number of numbers(20)) {
    await server.publish(sub.channel, number);
  }
  const told = next(client, "connecting");
  const ended = await server.kill("SIGTERM");
  assert.deepEqual(ended, { code: 0, signal: null });
  assert.equal((await told).code, 3001);
  assert.deepEqual(data(sub), numbers(20), "what was acknowledged is written before the close");

  await server.run();
  await until("it is back", () => sub.joined.length === 2);
  assert.equal(sub.joined[1].recovered, true);
  await server.publish(sub.channel, 21);
  await until("the next is there", () => sub.seen.length >= 21);
  assert.deepEqual(data(sub), numbers(21));
});
