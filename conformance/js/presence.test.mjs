// Who comes and goes, told to a back end: the unmodified SDK connects and subscribes, and the reference library of the
// Standard Webhooks specification (npm `standardwebhooks`) checks what Node's own HTTP server is sent.

import assert from "node:assert/strict";
import http from "node:http";
import { after, before } from "node:test";

import { Webhook } from "standardwebhooks";

import { configurationHead } from "../server.mjs";
import { Server, TOKEN_SECRET, fresh, subscribed, test, token, until } from "./harness.mjs";

const SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";
const DELAY_MS = 1000; // Far longer than a reconnect takes, also on a busy machine.

/** A back end that answers 503 while it is ill, and keeps the records of each request that it takes. */
const backend = {
  records: [],
  ids: new Set(),
  ill: false,
  refused: [],
  async start() {
    this.server = http.createServer(async (request, response) => {
      const body = Buffer.concat(await request.toArray()).toString();
      const message = new Webhook(SECRET).verify(body, request.headers);
      assert.equal(message.type, "presence");
      const id = request.headers["webhook-id"];
      if (this.ill) {
        this.refused.push(id);
        response.writeHead(503).end();
        return;
      }
      if (!this.ids.has(id)) {
        this.ids.add(id);
        this.records.push(...message.data.records);
      }
      response.writeHead(204).end();
    });
    this.server.listen(0, "127.0.0.1");
    await new Promise((resolve) => this.server.once("listening", resolve));
  },
  /** The types of the records about a user or a channel, in order. */
  about(name) {
    return this.records.filter(({ user, channel }) => user === name || channel === name).map(({ type }) => type);
  },
  stop() {
    this.server.closeAllConnections();
    this.server.close();
  },
};

const configuration = (port, folder) => `${configurationHead(port, folder)}
[client]
sse = true
http_stream = true
allow_anonymous = true
connection_webhook = true
token.hmac_secret = "${TOKEN_SECRET}"
[webhook]
presence_url = "http://127.0.0.1:${backend.server.address().port}/presence"
presence_delay = "${DELAY_MS}ms"
allow_http = true
secret = "${SECRET}"
backoff_min = "10ms"
[channel.namespaces.room]
allow_subscribe_for_client = true
occupancy_webhook = true
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

const told = (name, types) => until(`${name}: ${types}`, () => backend.about(name).join() === types.join());

test("events: who comes and goes is told once, when it has lasted", { timeout: 60_000 }, async (t) => {
  const [user, room] = [fresh("user"), fresh("room")];
  const options = { token: token({ sub: user }) };
  const first = await server.connected(t, options);
  const second = await server.connected(t, options);
  await subscribed(first, room);
  await subscribed(second, room);
  await told(user, ["connected"]);
  await told(room, ["occupied"]);
  assert.deepEqual(backend.records[0].type, "started");

  // All go and come back in time: a marker that comes later is told, and nothing before it.
  first.disconnect();
  second.disconnect();
  const back = await server.connected(t, options);
  await subscribed(back, room);
  const marker = fresh("room");
  await subscribed(back, marker);
  await told(marker, ["occupied"]);
  assert.deepEqual([backend.about(user), backend.about(room)], [["connected"], ["occupied"]]);

  // What happens while the back end is ill is told when it is well, by the same id.
  backend.ill = true;
  t.after(() => (backend.ill = false));
  backend.refused = [];
  back.disconnect();
  await until("it has been refused twice", () => backend.refused.length > 1);
  backend.ill = false;
  await told(user, ["connected", "gone"]);
  await told(room, ["occupied", "vacated"]);
  assert.equal(new Set(backend.refused).size, 1);
  assert.ok(backend.ids.has(backend.refused[0]));
});
