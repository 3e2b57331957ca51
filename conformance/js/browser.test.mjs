// Centrifugo's SDK for browsers, unmodified, in Chromium, in a page from another origin than the server's: every transport
// and format, which origins may connect, the way around a broken WebSocket, and what a cut costs.

import assert from "node:assert/strict";
import { after, before, describe, test } from "node:test";

import { SUITE, Wire, configurationHead, until } from "../server.mjs";
import { Browser, site } from "./browser.mjs";
import { Server, fresh, numbers } from "./harness.mjs";

const options = { timeout: 60_000 };
const WAYS = [
  { transport: "websocket", format: "json" },
  { transport: "websocket", format: "protobuf" },
  { transport: "sse", format: "json" },
  { transport: "http_stream", format: "json" },
  { transport: "http_stream", format: "protobuf" },
];

const configuration = (sitePort) => (port, folder) => `${configurationHead(port, folder)}
[client]
allow_anonymous = true
allowed_origins = ["http://127.0.0.1:${sitePort}"]
sse = true
http_stream = true

[channel.namespaces.chat]
history_size = 100
history_ttl = "10m"
force_recovery = true
allow_subscribe_for_client = true
allow_subscribe_for_anonymous = true
allow_publish_for_client = true
allow_publish_for_anonymous = true
allow_history_for_client = true
allow_history_for_anonymous = true
`;

/** In the page: connects by the transports, in this order, and follows the channel. `app` tells what was heard. */
function follow({ endpoints, emulationEndpoint, channel, isBinary }) {
  const decode = (data) => (isBinary ? JSON.parse(new TextDecoder().decode(data)) : data);
  const encode = (value) => (isBinary ? new TextEncoder().encode(JSON.stringify(value)) : value);
  const delays = { minReconnectDelay: 10, maxReconnectDelay: 100 };
  const client = new Centrifuge(endpoints, { emulationEndpoint, ...delays });
  const sub = client.newSubscription(channel, { minResubscribeDelay: 10, maxResubscribeDelay: 100 });
  window.app = { client, sub, encode, seen: [], joined: [], transports: [], errors: 0 };
  client.on("connected", ({ transport }) => app.transports.push(transport));
  client.on("error", () => app.errors++);
  sub.on("publication", ({ offset, data }) => app.seen.push([offset, decode(data)]));
  sub.on("subscribed", ({ recovered }) => app.joined.push(recovered));
  sub.subscribe();
  client.connect();
}

/** In the page: what the app has heard. */
const heard = () => ({ seen: app.seen, joined: app.joined, transports: app.transports, errors: app.errors });

const endpoint = (transport, port) => {
  const scheme = transport === "websocket" ? "ws" : "http";
  return { transport, endpoint: `${scheme}://127.0.0.1:${port}/connection/${transport}` };
};

describe("in Chromium", { ...SUITE, concurrency: 4 }, () => {
  let server, browser, sitePort;
  const stops = [];
  before(async () => {
    const t = { after: (stop) => stops.push(stop) };
    sitePort = await site(t);
    server = await Server.start(configuration(sitePort));
    stops.push(() => server.stop());
    browser = await Browser.start(t);
  });
  after(() => stops.reverse().reduce((done, stop) => done.then(stop), Promise.resolve()));

  /** A page from `host`, which follows the channel by the transports; `wire` is the way to the server. */
  async function app(t, { transports, format, channel, host = "127.0.0.1", wire = server }) {
    const page = await browser.page(t, `http://${host}:${sitePort}/${format}`);
    const endpoints = transports.map((one) => (typeof one === "string" ? endpoint(one, wire.port) : one));
    const emulationEndpoint = `http://127.0.0.1:${wire.port}/emulation`;
    await page.run(follow, { endpoints, emulationEndpoint, channel, isBinary: format === "protobuf" });
    return page;
  }

  for (const { transport, format } of WAYS) {
    test(`${format} over ${transport}: it follows, publishes, reads and resumes after a cut`, options, async (t) => {
      const [channel, wire] = [fresh("chat"), await Wire.to(t, server)];
      const page = await app(t, { transports: [transport], format, channel, wire });
      await until("it follows", async () => (await page.run(heard)).joined.length === 1);
      await server.publish(channel, { number: 1, text: "é あ 🎉" });
      await page.run(() => app.sub.publish(app.encode({ number: 2 })));
      const read = () => app.sub.history({ limit: -1 }).then(({ publications }) => publications.map(({ offset }) => offset));
      assert.deepEqual(await page.run(read), [1, 2]);

      wire.close();
      for (const number of numbers(10)) {
        await server.publish(channel, { number: number + 2 });
      }
      wire.open();
      await until("it has all", async () => (await page.run(heard)).seen.length >= 12);
      const { seen, joined, transports } = await page.run(heard);
      assert.deepEqual(seen.map(([offset, { number }]) => [offset, number]), numbers(12).map((number) => [number, number]));
      assert.equal(seen[0][1].text, "é あ 🎉");
      assert.deepEqual(joined, [false, true], "the second time it resumed");
      assert.deepEqual(transports, [transport, transport]);
    });
  }

  for (const transport of ["websocket", "sse", "http_stream"]) {
    test(`a page of another origin than the allowed ones does not connect (${transport})`, options, async (t) => {
      const channel = fresh("chat");
      const page = await app(t, { transports: [transport], format: "json", channel, host: "localhost" });
      await until("it has failed three times", async () => (await page.run(heard)).errors >= 3);
      assert.deepEqual((await page.run(heard)).transports, []);
    });
  }

  test("only an allowed page may send commands to /emulation, and read the answer", options, async (t) => {
    const post = (url) => fetch(url, { method: "POST", body: "{}" }).then(({ status }) => status, ({ name }) => name);
    const url = `${server.origin}/emulation`;
    const pages = ["127.0.0.1", "localhost"].map((host) => browser.page(t, `http://${host}:${sitePort}/json`));
    const [allowed, other] = await Promise.all(pages);
    assert.equal(await allowed.run(post, url), 404, "an answer: it names no node that is there");
    assert.equal(await other.run(post, url), "TypeError", "no answer that the page may read");
  });

  for (const transport of ["sse", "http_stream"]) {
    test(`behind a proxy that breaks WebSockets it connects by ${transport}`, options, async (t) => {
      const channel = fresh("chat");
      const broken = endpoint("websocket", sitePort);
      const page = await app(t, { transports: [broken, transport], format: "json", channel });
      await until("it follows", async () => (await page.run(heard)).joined.length === 1);
      await server.publish(channel, { number: 1 });
      await until("it has it", async () => (await page.run(heard)).seen.length === 1);
      assert.deepEqual((await page.run(heard)).transports, [transport]);
    });
  }
});
