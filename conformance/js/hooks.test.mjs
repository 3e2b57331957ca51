// Hooks: the unmodified SDK talks to a back end that is written for Centrifugo's proxies, in Node's own HTTP server. The
// back end knows nothing of Tidings.

import assert from "node:assert/strict";
import { createHmac, randomBytes, timingSafeEqual } from "node:crypto";
import { writeFileSync } from "node:fs";
import http from "node:http";
import path from "node:path";
import { after, before } from "node:test";

import { configurationHead } from "../server.mjs";
import { Server, TOKEN_SECRET, fresh, next, seconds, subscribed, test, token, until } from "./harness.mjs";
import { WEBSOCKETS, plain } from "./sdk.mjs";

const KEY = "key-of-the-hook-0123456789";

const signing = {
  /** Writes a new secret; the server has read it when it was started or got SIGHUP. */
  renew(folder = this.folder) {
    this.folder = folder;
    this.secret = `whsec_${randomBytes(32).toString("base64")}`;
    this.file = path.join(folder, "hook-secret");
    writeFileSync(this.file, this.secret);
  },
};

/** Whether a request is signed, as docs/webhook.md checks it. */
function isSigned(headers, body) {
  const { "webhook-id": id, "webhook-timestamp": timestamp, "webhook-signature": signature } = headers;
  const key = Buffer.from(signing.secret.replace("whsec_", ""), "base64");
  const mac = createHmac("sha256", key).update(`${id}.${timestamp}.`).update(body).digest();
  return timingSafeEqual(Buffer.from(signature.slice(3), "base64"), mac) && Math.abs(Date.now() / 1000 - timestamp) < 300;
}

/** As Centrifugo's documentation has it: each endpoint reads a question and answers `result`, `error` or `disconnect`. */
const application = {
  "/connect": ({ data }) => {
    const result = { user: data?.user, info: { name: "Ada" }, data: { welcome: true }, meta: { plan: "gold" } };
    switch (data?.user) {
      case "ada":
        return { result: { ...result, subs: { [data.channel]: {} } } };
      case "ada for a second":
        return { result: { ...result, expire_at: seconds(1) } };
      case "banned":
        return { disconnect: { code: 4501, reason: "banned" } };
      case "stranger":
        return { error: { code: 1401, message: "who are you" } };
      default:
        return {};
    }
  },
  "/refresh": () => ({ result: { expire_at: seconds(600) } }),
  "/rpc": ({ method, data, user }) =>
    method === "sum" ? { result: { data: { sum: data.a + data.b, user } } } : { error: { code: 1404, message: "no such method" } },
  "/publish": ({ data }) =>
    data.text === "rude"
      ? { error: { code: 1403, message: "be nice" } }
      : { result: { data: { ...data, checked: true }, tags: { checked: "yes" } } },
  "/subscribe": ({ channel, user, data }) => {
    if (channel.endsWith("-closed")) {
      return { disconnect: { code: 4501, reason: "closed" } };
    }
    return user === "ada" ? { result: { info: { name: "Ada" }, data: { welcome: data } } } : { error: { code: 403, message: "not a member" } };
  },
};

const backend = {
  questions: [],
  failing: false,
  async start() {
    this.server = http.createServer(async (request, response) => {
      const body = Buffer.concat(await request.toArray()).toString();
      const signed = isSigned(request.headers, body);
      this.questions.push({ ...JSON.parse(body), path: request.url, headers: request.headers, signed });
      const answer = JSON.stringify(application[request.url](JSON.parse(body)));
      response.writeHead(this.failing ? 500 : 200, { "content-type": "application/json" }).end(answer);
    });
    this.server.listen(0, "127.0.0.1");
    await new Promise((resolve) => this.server.once("listening", resolve));
  },
  stop() {
    this.server.closeAllConnections();
    this.server.close();
  },
};

const hook = (name) => `
[hooks.${name}]
url = "http://127.0.0.1:${backend.server.address().port}/${name}"
allow_http = true
client_headers = ["Cookie", "X-Emulated"]
static_headers = ["X-Key: ${KEY}"]
signing_secret_file = ${JSON.stringify(signing.file)}
include_meta = true
`;

const configuration = (port, folder) => {
  signing.renew(folder);
  return `${configurationHead(port, folder)}
[client]
sse = true
http_stream = true
allow_anonymous = true
token.hmac_secret = "${TOKEN_SECRET}"
connect_hook = "connect"
refresh_hook = "refresh"
${hook("connect")}${hook("refresh")}${hook("rpc")}${hook("publish")}${hook("subscribe")}
[rpc]
hook = "rpc"
[channel.namespaces.room]
history_size = 10
history_ttl = "1m"
presence = true
allow_presence_for_subscriber = true
subscribe_hook = "subscribe"
publish_hook = "publish"
`;
};

let server;
before(async () => {
  await backend.start();
  server = await Server.start(configuration);
});
after(async () => {
  await server?.stop();
  backend.stop();
});

const options = { timeout: 60_000 };
const ada = () => ({ token: token({ sub: "ada" }) });

test("the back end says who connects", options, async (t) => {
  const channel = fresh("room");
  const client = server.client(t, { data: { user: "ada", channel }, name: "scores", version: "2" });
  const [connected, heard] = [next(client, "connected"), next(client, "publication")];
  client.connect();
  const { data } = await connected;
  assert.deepEqual(t.way.format === "json" ? data : JSON.parse(Buffer.from(data)), { welcome: true });
  await server.publish(channel, { text: "hello" });
  assert.deepEqual(plain(client, await heard).data, { text: "hello" });
  assert.equal((await client.rpc("sum", { a: 1, b: 2 })).data.user, "ada");
  const { name, version, transport, protocol, user } = backend.questions.findLast(({ path }) => path === "/connect");
  assert.deepEqual([name, version, transport, protocol, user], ["scores", "2", t.way.transport, t.way.format, undefined]);
});

test("the back end lets nobody else in", options, async (t) => {
  for (const [user, expected] of [["banned", [4501, "banned"]], ["stranger", [1401, "who are you"]]]) {
    const client = server.client(t, { data: { user } });
    const disconnected = next(client, "disconnected");
    client.connect();
    assert.deepEqual((({ code, reason }) => [code, reason])(await disconnected), expected);
  }
});

test("a client with a token is not asked about", options, async (t) => {
  const count = backend.questions.length;
  await server.connected(t, { ...ada(), data: { user: "banned" } });
  assert.equal(backend.questions.length, count);
});

test("a connection that the back end let in for a second goes on", options, async (t) => {
  const client = await server.connected(t, { data: { user: "ada for a second" } });
  const { client: id } = backend.questions.findLast(({ path }) => path === "/connect");
  await until("it is asked again", () => backend.questions.some(({ path, client }) => path === "/refresh" && client === id));
  const { user, meta } = backend.questions.findLast(({ path }) => path === "/refresh");
  assert.deepEqual([user, meta], ["ada for a second", { plan: "gold" }]);
  assert.equal((await client.rpc("sum", { a: 1, b: 2 })).data.sum, 3);
});

test("a client that could not connect because the back end was ill connects when it is well", options, async (t) => {
  backend.failing = true;
  t.after(() => (backend.failing = false));
  const client = server.client(t, { data: { user: "ada", channel: fresh("room") } });
  const failed = next(client, "error");
  client.connect();
  assert.equal((await failed).error.code, 100);
  backend.failing = false;
  await client.ready(20_000);
});

test("an RPC is answered by the back end", options, async (t) => {
  const client = await server.connected(t, { ...ada(), headers: { "X-Emulated": "by the SDK" } });
  assert.deepEqual((await client.rpc("sum", { a: 1, b: 2 })).data, { sum: 3, user: "ada" });
  await assert.rejects(client.rpc("other", {}), { code: 1404, message: "no such method" });
  const { path, headers, method, transport, protocol, encoding } = backend.questions.findLast(({ method }) => method === "sum");
  assert.deepEqual([path, method, transport, protocol, encoding], ["/rpc", "sum", t.way.transport, t.way.format, "json"]);
  assert.deepEqual([headers["x-key"], headers["x-emulated"]], [KEY, "by the SDK"]);
  assert.ok(backend.questions.every(({ signed }) => signed));
});

test("the back end says who may subscribe", options, async (t) => {
  const client = await server.connected(t, ada());
  const sub = await subscribed(client, fresh("room"));
  const { clients } = await sub.presence();
  const infos = Object.values(clients).map(({ chanInfo }) => chanInfo);
  assert.deepEqual(t.way.format === "json" ? infos : infos.map((info) => JSON.parse(Buffer.from(info))), [{ name: "Ada" }]);

  const stranger = (await server.connected(t)).newSubscription(fresh("room"));
  const refused = next(stranger, "unsubscribed");
  stranger.subscribe();
  assert.deepEqual((({ code, reason }) => [code, reason])(await refused), [403, "not a member"]);

  const disconnected = next(client, "disconnected");
  client.newSubscription(`${fresh("room")}-closed`).subscribe();
  assert.deepEqual((({ code, reason }) => [code, reason])(await disconnected), [4501, "closed"]);
});

test("the back end says what is published", options, async (t) => {
  const sub = await subscribed(await server.connected(t, ada()), fresh("room"));
  await sub.publish({ text: "hello" });
  await until("the publication is there", () => sub.seen.length === 1);
  assert.deepEqual([sub.seen[0].data, sub.seen[0].tags], [{ text: "hello", checked: true }, { checked: "yes" }]);
  await assert.rejects(sub.publish({ text: "rude" }), { code: 1403, message: "be nice" });
});

test("a subscription that failed because the back end was ill is made when it is well", options, async (t) => {
  backend.failing = true;
  t.after(() => (backend.failing = false));
  const client = await server.connected(t, ada());
  const sub = client.newSubscription(fresh("room"), { minResubscribeDelay: 10, maxResubscribeDelay: 100 });
  const failed = next(sub, "error");
  sub.subscribe();
  assert.equal((await failed).error.code, 100);
  backend.failing = false;
  await sub.ready(20_000);
  assert.ok(!server.log.includes(KEY) && !server.log.includes("by the SDK"));
});

const onSighup = async (t) => {
  signing.renew();
  server.child.kill("SIGHUP");
  await until("the secret is read again", () => server.log.split("Hook credentials reloaded").length === 6); // Of five hooks.
  await (await server.connected(t, ada())).rpc("sum", { a: 1, b: 2 });
  assert.ok(backend.questions.at(-1).signed);
};
test("the secret is read again on SIGHUP", options, onSighup, WEBSOCKETS.slice(0, 1));
