// Hooks: the unmodified SDK talks to a back end that is written for Centrifugo's proxies, in Node's own HTTP server. The
// back end knows nothing of Tidings.

import assert from "node:assert/strict";
import http from "node:http";
import { after, before } from "node:test";

import { configurationHead } from "../server.mjs";
import { Server, TOKEN_SECRET, fresh, next, subscribed, test, token, until } from "./harness.mjs";

const KEY = "key-of-the-hook-0123456789";

/** As Centrifugo's documentation has it: each endpoint reads a question and answers `result`, `error` or `disconnect`. */
const application = {
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
      this.questions.push({ ...JSON.parse(body), path: request.url, headers: request.headers });
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
`;

const configuration = (port, folder) => `${configurationHead(port, folder)}
[client]
sse = true
http_stream = true
allow_anonymous = true
token.hmac_secret = "${TOKEN_SECRET}"
${hook("rpc")}${hook("publish")}${hook("subscribe")}
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

test("an RPC is answered by the back end", options, async (t) => {
  const client = await server.connected(t, { ...ada(), headers: { "X-Emulated": "by the SDK" } });
  assert.deepEqual((await client.rpc("sum", { a: 1, b: 2 })).data, { sum: 3, user: "ada" });
  await assert.rejects(client.rpc("other", {}), { code: 1404, message: "no such method" });
  const { path, headers, method, transport, protocol, encoding } = backend.questions.findLast(({ method }) => method === "sum");
  assert.deepEqual([path, method, transport, protocol, encoding], ["/rpc", "sum", t.way.transport, t.way.format, "json"]);
  assert.deepEqual([headers["x-key"], headers["x-emulated"]], [KEY, "by the SDK"]);
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
