// Every-day life with the unmodified SDK: connect, subscribe, publish, history, presence, refusals.

import assert from "node:assert/strict";
import { after, before } from "node:test";

import WebSocket from "ws";

import { Server, fresh, next, numbers, seconds, subscribed, test, token, until } from "./harness.mjs";
import { STREAMS, WEBSOCKETS, isPing } from "./sdk.mjs";

let server;
before(async () => (server = await Server.start()));
after(() => server?.stop());

const options = { timeout: 60_000 };

const data = (sub) => sub.seen.map((publication) => publication.data);

test("an anonymous client connects", options, async (t) => {
  const client = server.client(t);
  const connected = next(client, "connected");
  client.connect();
  const context = await connected;
  assert.match(context.client, /^[0-9a-f-]{36}$/);
  assert.equal(context.transport, t.way.transport);
});

test("a client with a token has its user", options, async (t) => {
  const client = await server.connected(t, { token: token({ sub: "42", exp: seconds(3600) }) });
  const sub = await subscribed(client, fresh("chat"));
  const { clients } = await sub.presence();
  assert.deepEqual(Object.values(clients).map((info) => info.user), ["42"]);
});

test("a forged token ends the connection for good", options, async (t) => {
  const client = server.client(t, { token: token({ sub: "42" }, "another secret of thirty-two bytes") });
  const disconnected = next(client, "disconnected");
  client.connect();
  assert.equal((await disconnected).code, 3500);
});

test("an expired token is refused with 109", options, async (t) => {
  const client = server.client(t, { token: token({ sub: "42", exp: seconds(-60) }) });
  const refused = next(client, "error", (context) => context.type === "connect");
  const disconnected = next(client, "disconnected");
  client.connect();
  assert.equal((await refused).error.code, 109);
  assert.equal((await disconnected).code, 1, "unauthorized: the SDK has no other token to try");
});

test("an expired token is replaced by a new one, once", options, async (t) => {
  let asked = 0;
  const getToken = async () => token({ sub: "42", exp: seconds(3600 + asked++) });
  const client = await server.connected(t, { token: token({ sub: "42", exp: seconds(-60) }), getToken });
  assert.equal(asked, 1);
  await subscribed(client, fresh("chat"));
});

test("a token that expires is refreshed on the living connection", options, async (t) => {
  let asked = 0;
  const getToken = async () => token({ sub: "42", exp: seconds(++asked === 1 ? 3 : 3600) });
  const client = server.client(t, { getToken });
  let connects = 0;
  client.on("connected", () => connects++);
  client.connect();
  await until("the token was refreshed", () => asked === 2);
  const sub = await subscribed(client, fresh("chat"));
  await server.publish(sub.channel, "after the refresh");
  await until("the publication is there", () => sub.seen.length === 1);
  assert.equal(connects, 1);
});

test("a publication of the server API arrives with data, offset and tags", options, async (t) => {
  const sub = await subscribed(await server.connected(t), fresh("chat"));
  assert.equal(sub.joined[0].recoverable, true);
  assert.equal(sub.joined[0].streamPosition.offset, 0);
  const { offset, epoch } = await server.publish(sub.channel, { goal: "1:0" }, { tags: { event: "e1" } });
  assert.deepEqual({ offset, epoch }, { offset: 1, epoch: sub.joined[0].streamPosition.epoch });
  await until("the publication is there", () => sub.seen.length === 1);
  const [publication] = sub.seen;
  assert.deepEqual(publication.data, { goal: "1:0" });
  assert.equal(publication.offset, 1);
  assert.deepEqual(publication.tags, { event: "e1" });
  assert.equal(publication.info, undefined);
});

test("a client's publication reaches all, itself included, and says who it was", options, async (t) => {
  const channel = fresh("chat");
  const publisher = await server.connected(t, { token: token({ sub: "ada" }) });
  const subs = [await subscribed(publisher, channel), await subscribed(await server.connected(t), channel)];
  const { clients } = await subs[0].presence();
  const [own] = Object.entries(clients).find(([, info]) => info.user === "ada");
  await subs[0].publish({ text: "hello" });
  for (const sub of subs) {
    await until("the publication is there", () => sub.seen.length === 1);
    assert.deepEqual(sub.seen[0].data, { text: "hello" });
    assert.deepEqual([sub.seen[0].info.user, sub.seen[0].info.client], ["ada", own]);
  }
});

test("history goes forward, backward and from a position", options, async (t) => {
  const sub = await subscribed(await server.connected(t), fresh("chat"));
  for (const number of numbers(5)) {
    await server.publish(sub.channel, number);
  }
  await until("all are there", () => sub.seen.length === 5); // A server that does not lead may be a moment behind.
  const read = async (how) => {
    const { publications, offset } = await sub.history(how);
    assert.equal(offset, 5);
    return publications.map((publication) => publication.data);
  };
  assert.deepEqual(await read({ limit: -1 }), [1, 2, 3, 4, 5]);
  assert.deepEqual(await read({ limit: 2 }), [1, 2]);
  assert.deepEqual(await read({ limit: 2, reverse: true }), [5, 4]);
  assert.deepEqual(await read({ limit: 0 }), []);
  const { epoch } = sub.joined[0].streamPosition;
  assert.deepEqual(await read({ limit: 2, since: { offset: 2, epoch } }), [3, 4]);
  assert.deepEqual(await read({ limit: 9, since: { offset: 3, epoch }, reverse: true }), [2, 1]);
  await assert.rejects(sub.history({ limit: 1, since: { offset: 2, epoch: "of-another-life" } }), { code: 112 });
});

test("presence tells who is there, and that they left", options, async (t) => {
  const channel = fresh("chat");
  const clients = [];
  for (const sub of ["ada", "ada", "bob"]) {
    clients.push(await server.connected(t, { token: token({ sub }) }));
  }
  const subs = await Promise.all(clients.map((client) => subscribed(client, channel)));
  const { numClients, numUsers } = await subs[0].presenceStats();
  assert.deepEqual({ numClients, numUsers }, { numClients: 3, numUsers: 2 });
  const presence = await subs[0].presence();
  assert.deepEqual(Object.values(presence.clients).map((info) => info.user).sort(), ["ada", "ada", "bob"]);
  assert.deepEqual(await server.api("presence_stats", { channel }), { num_clients: 3, num_users: 2 });

  clients[2].disconnect();
  subs[1].unsubscribe();
  await until("one is left", async () => (await subs[0].presenceStats()).numClients === 1);
});

test("what is not allowed, unknown or switched off is refused with its code", options, async (t) => {
  const client = await server.connected(t);
  for (const [channel, code] of [[fresh("closed"), 103], [fresh("nowhere"), 102]]) {
    const sub = client.newSubscription(channel);
    const refused = next(sub, "unsubscribed");
    sub.subscribe();
    assert.equal((await refused).code, code, channel);
  }
  const plain = await subscribed(client, fresh("plain"));
  assert.equal(plain.joined[0].recoverable, false);
  await assert.rejects(plain.history({ limit: 1 }), { code: 108 });
  await assert.rejects(plain.presence(), { code: 108 });
  await assert.rejects(client.publish(fresh("closed"), 1), { code: 103 });
});

test("a subscription token opens a closed channel, for its user and channel only", options, async (t) => {
  const client = await server.connected(t, { token: token({ sub: "ada" }) });
  const channel = fresh("closed");
  const sub = await subscribed(client, channel, { token: token({ sub: "ada", channel }) });
  await server.publish(channel, 1);
  await until("the publication is there", () => sub.seen.length === 1);

  const other = await server.connected(t, { token: token({ sub: "bob" }) });
  const disconnected = next(other, "disconnected");
  other.newSubscription(channel, { token: token({ sub: "ada", channel }) }).subscribe();
  assert.equal((await disconnected).code, 3500, "somebody else's token");
});

test("a channel that was left sends nothing more", options, async (t) => {
  const client = await server.connected(t);
  const left = await subscribed(client, fresh("chat"));
  const kept = await subscribed(client, fresh("chat"));
  left.unsubscribe();
  // The reply to a later command: by then the server has handled the unsubscribe.
  await kept.presenceStats();
  await server.publish(left.channel, "to nobody");
  await server.publish(kept.channel, "to somebody");
  await until("the publication is there", () => kept.seen.length === 1);
  assert.deepEqual(left.seen, []);
  assert.deepEqual(await server.api("presence_stats", { channel: left.channel }), { num_clients: 0, num_users: 0 });
});

test("without history a publication has no position and still arrives", options, async (t) => {
  const sub = await subscribed(await server.connected(t), fresh("plain"));
  assert.deepEqual(await server.publish(sub.channel, 1), {});
  await until("the publication is there", () => sub.seen.length === 1);
  assert.ok(!sub.seen[0].offset);
});

test("all see the same order, each publication once, whoever publishes", options, async (t) => {
  const channel = fresh("chat");
  const subs = await Promise.all(
    numbers(10).map(async () => subscribed(await server.connected(t), channel)),
  );
  const publishers = numbers(5).map(async (publisher) => {
    for (const number of numbers(60)) {
      await server.publish(channel, { publisher, number });
    }
  });
  await Promise.all(publishers);
  for (const sub of subs) {
    await until("all are there", () => sub.seen.length >= 300);
    assert.deepEqual(sub.seen.map((publication) => publication.offset), numbers(300));
    assert.deepEqual(data(sub), data(subs[0]));
  }
  for (const publisher of numbers(5)) {
    const own = subs[0].seen.filter((publication) => publication.data.publisher === publisher);
    assert.deepEqual(own.map((publication) => publication.data.number), numbers(60));
  }
});

test("text of every kind comes through unchanged, also from indented JSON", options, async (t) => {
  const sub = await subscribed(await server.connected(t), fresh("chat"));
  const values = ["é あ 🎉 \u2028", "\\ \" \n \t \u0000", 0, -1.5e-7, 9007199254740991, [], {}, { "": [[{}]] }];
  for (const data of values) {
    await server.api("publish", JSON.stringify({ channel: sub.channel, data }, null, 2));
  }
  await until("all are there", () => sub.seen.length === values.length);
  assert.deepEqual(data(sub), values);
});

test("every frame length around the borders of the header's forms arrives whole", options, async (t) => {
  const sub = await subscribed(await server.connected(t), fresh("chat"));
  const lengths = [...numbers(140), ...numbers(160).map((number) => 65_535 - number), 300_000];
  for (const [index, length] of lengths.entries()) {
    await server.publish(sub.channel, "x".repeat(length));
    await until(`${length} characters are there`, () => sub.seen.length === index + 1);
    assert.equal(sub.seen[index].data.length, length);
  }
});

test("a frame over the server's limit ends the connection for good", options, async (t) => {
  const client = await server.connected(t);
  const disconnected = next(client, "disconnected");
  client.publish(fresh("plain"), "x".repeat(70_000)).catch(() => {}); // Never answered.
  assert.equal((await disconnected).code, 3, "the SDK's code for a message over the limit");
}, WEBSOCKETS);

test("a request over the server's limit is refused, and the connection goes on", options, async (t) => {
  const client = await server.connected(t, { timeout: 1000 });
  await assert.rejects(client.publish(fresh("plain"), "x".repeat(70_000)), { code: 1 }, "a timeout of the SDK's own");
  await client.publish(fresh("plain"), "small");
}, STREAMS);

test("pings are answered and the connection stays", options, async (t) => {
  let pings = 0;
  class Counting extends WebSocket {
    constructor(...words) {
      super(...words);
      this.on("message", (message) => (pings += isPing(message) ? 1 : 0));
    }
  }
  const client = server.client(t, { websocket: Counting });
  const codes = [];
  client.on("connecting", (context) => codes.push(context.code));
  client.connect();
  await until("two pings", () => pings >= 2);
  const sub = await subscribed(client, fresh("chat"));
  assert.equal(sub.state, "subscribed");
  assert.deepEqual(codes, [0], "connected once");
}, WEBSOCKETS);

test("pings are answered in requests of their own and the connection stays", options, async (t) => {
  let pongs = 0;
  const counting = async (url, request) => {
    const answer = await fetch(url, request);
    pongs += url.endsWith("/emulation") && answer.status === 204 ? 1 : 0;
    return answer;
  };
  const client = server.client(t, { fetch: counting });
  const codes = [];
  client.on("connecting", (context) => codes.push(context.code));
  client.connect();
  await until("two pongs", () => pongs >= 2);
  const sub = await subscribed(client, fresh("chat"));
  assert.equal(sub.state, "subscribed");
  assert.deepEqual(codes, [0], "connected once");
}, STREAMS);

test("text beyond ASCII arrives whole, wherever the stream is cut in two", options, async (t) => {
  const sub = await subscribed(await server.connected(t), fresh("chat"));
  const texts = numbers(60).map((count) => "Größe 🎉 مرحبا ".repeat(count * 20));
  for (const text of texts) {
    await server.publish(sub.channel, text);
  }
  await until("all are there", () => sub.seen.length === texts.length);
  assert.deepEqual(data(sub), texts);
});
