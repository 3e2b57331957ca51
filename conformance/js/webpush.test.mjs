// Our side of Web Push, judged by the libraries of others: `http_ece` (encryption), `web-push` (a sender) and
// `web-push-testing` (a push service with its browsers).

import assert from "node:assert/strict";
import { createECDH, randomBytes, randomInt } from "node:crypto";
import { writeFileSync } from "node:fs";
import https from "node:https";
import { createRequire } from "node:module";
import path from "node:path";
import { test } from "node:test";

import ece from "http_ece";
import webPush from "web-push";

import { Credentials } from "../apns/harness.mjs";
import { until } from "../server.mjs";
import { Tool, example } from "../tool.mjs";
import { Simulator, follow, start } from "./provider.mjs";

const require = createRequire(import.meta.url);
const { PushApiModel } = require("web-push-testing/src/PushApiModel.js");
const TestingServer = require("web-push-testing/src/server.js");

const options = { timeout: 120_000 };
const APP = "www.example.com";
const SUBJECT = "match:1";
/** 4096 less salt, record size, key, delimiter and tag. */
const TEXT_BYTES_MAX = 3993;
const ROUNDS = 300;

const base64url = (bytes) => Buffer.from(bytes).toString("base64url");

/** A browser's keys. */
function browser() {
  const keys = createECDH("prime256v1");
  keys.generateKeys();
  return { keys, auth: randomBytes(16) };
}

test("http_ece opens what we encrypt, of any length", options, async (t) => {
  const tool = await Tool.start(t, example("tidings-push", "encrypt"));
  const sizes = [0, 1, 15, 16, 17, TEXT_BYTES_MAX - 1, TEXT_BYTES_MAX];
  const senders = new Set();
  for (let round = 0; round < ROUNDS; round += 1) {
    const { keys, auth } = browser();
    const text = randomBytes(sizes[round] ?? randomInt(TEXT_BYTES_MAX + 1));
    const line = { p256dh: base64url(keys.getPublicKey()), auth: base64url(auth), text: base64url(text) };
    const { body, error } = await tool.ask(line);
    assert.equal(error, undefined);
    const bytes = Buffer.from(body, "base64url");
    assert.equal(bytes.length, text.length + 103);
    assert.deepEqual(ece.decrypt(bytes, { version: "aes128gcm", privateKey: keys, authSecret: base64url(auth) }), text);
    senders.add(bytes.subarray(0, 86).toString("hex"));
  }
  assert.equal(senders.size, ROUNDS, "a key pair and a salt for each");
});

test("with the same keys and salt, http_ece encrypts to the same bytes", options, async (t) => {
  const tool = await Tool.start(t, example("tidings-push", "encrypt"));
  for (let round = 0; round < 50; round += 1) {
    const { keys, auth } = browser();
    const sender = browser().keys;
    const secret = Buffer.alloc(32);
    sender.getPrivateKey().copy(secret, 32 - sender.getPrivateKey().length); // Node leaves leading zeros out.
    const [salt, text] = [randomBytes(16), randomBytes(randomInt(TEXT_BYTES_MAX + 1))];
    const { body } = await tool.ask({
      p256dh: base64url(keys.getPublicKey()), auth: base64url(auth), text: base64url(text),
      private: base64url(secret),
      salt: base64url(salt),
    });
    const theirs = ece.encrypt(text, {
      version: "aes128gcm", rs: 4096, salt: base64url(salt), privateKey: sender, dh: base64url(keys.getPublicKey()),
      authSecret: base64url(auth),
    });
    assert.equal(body, base64url(theirs));
  }
});

test("the example of RFC 8291 comes out byte for byte", options, async (t) => {
  const tool = await Tool.start(t, example("tidings-push", "encrypt"));
  const { body } = await tool.ask({
    text: "V2hlbiBJIGdyb3cgdXAsIEkgd2FudCB0byBiZSBhIHdhdGVybWVsb24",
    private: "yfWPiYE-n46HLnH0KqZOF1fJJU3MYrct3AELtAQ-oRw",
    p256dh: "BCVxsr7N_eNgVRqvHtD0zTZsEc6-VV-JvLexhqUzORcxaOzi6-AYWXvTBHm4bjyPjs7Vd8pZGH6SRpkNtoIAiw4",
    salt: "DGv6ra1nlYgDCS1FRnbzlw",
    auth: "BTBZMqHH6r4Tts7J_aSIgg",
  });
  const expected =
    "DGv6ra1nlYgDCS1FRnbzlwAAEABBBP4z9KsN6nGRTbVYI_c7VJSPQTBtkgcy27mlmlMoZIIgDll6e3vCYLocInmYWAmS6TlzAC8wEqKK6PBru3" +
    "jl7A_yl95bQpu6cVPTpK4Mqgkf1CXztLVBSt2Ks3oZwbuwXPXLWyouBWLVWGNWQexSgSxsj_Qulcy4a-fN";
  assert.equal(body, expected);
});

test("web-push, a sender of others, and our simulator", options, async (t) => {
  const simulator = await Simulator.start(t, "web-push");
  const agent = simulator.agent();
  t.after(() => agent.destroy());
  const { publicKey, privateKey } = webPush.generateVAPIDKeys();
  const vapidDetails = { subject: "mailto:judge@example.com", publicKey, privateKey };
  const subscribe = (sender) => simulator.control("POST", "subscriptions", { applicationServerKey: sender });
  const subscription = await subscribe(publicKey);
  const send = (text, more = {}) => {
    const all = { vapidDetails, agent, TTL: 60, ...more };
    return webPush.sendNotification(subscription, text, all).catch((error) => error);
  };
  const name = () => subscription.endpoint.split("/").at(-1);

  for (let round = 0; round < 30; round += 1) {
    const title = "é".repeat(randomInt(1500));
    const text = JSON.stringify({ title, tag: "a" });
    const { statusCode, headers } = await send(text, { topic: "match-1", urgency: "high" });
    assert.deepEqual([statusCode, headers.ttl], [201, "60"]);
    const shown = await simulator.control("GET", `shown/${name()}`);
    assert.deepEqual(shown.map((entry) => entry.title), [title.slice(0, 256)]);
  }
  const tooLong = await send("x".repeat(TEXT_BYTES_MAX + 1));
  assert.deepEqual([tooLong.statusCode, JSON.parse(tooLong.body).reason], [413, "PayloadTooLarge"]);
  const old = await send("x", { contentEncoding: "aesgcm" });
  assert.ok([400, 403].includes(old.statusCode), `${old.statusCode}`);
  const stranger = webPush.generateVAPIDKeys();
  const foreign = await send("x", { vapidDetails: { ...vapidDetails, ...stranger } });
  assert.deepEqual([foreign.statusCode, JSON.parse(foreign.body).reason], [403, "KeyMismatch"]);
  const nobody = await send("x", { vapidDetails: null });
  assert.deepEqual([nobody.statusCode, JSON.parse(nobody.body).reason], [401, "MissingAuthorization"]);
  const other = await subscribe(publicKey);
  const mixed = await webPush
    .sendNotification({ ...subscription, keys: other.keys }, "x", { vapidDetails, agent })
    .catch((error) => error);
  assert.deepEqual([mixed.statusCode, JSON.parse(mixed.body).reason], [400, "Undecryptable"]);
  await simulator.faults({ unavailable_probability: 1, retry_after_secs: 7 });
  const busy = await send("x");
  assert.deepEqual([busy.statusCode, busy.headers["retry-after"]], [503, "7"]);
  await simulator.faults({});
  await simulator.control("POST", "gone", { endpoint: subscription.endpoint });
  assert.equal((await send("x")).statusCode, 410);
});

/** `web-push-testing` behind TLS, on loopback only, which it does not offer itself. */
class PushService {
  static async start(t) {
    const service = new PushService();
    const credentials = Credentials.make(t);
    const { cert, key } = credentials.server();
    const model = new PushApiModel();
    const testing = new TestingServer(model, 0);
    testing.setRequestHandlers();
    service.requests = [];
    const server = https.createServer({ cert, key }, (request, response) => {
      service.requests.push({ headers: { ...request.headers }, url: request.url });
      testing._app(request, response);
    });
    server.listen(0, "127.0.0.1");
    await new Promise((resolve) => server.once("listening", resolve));
    t.after(() => {
      server.closeAllConnections();
      server.close();
    });
    const { port } = server.address();
    model.notifyUrl = `https://localhost:${port}/notify/`;
    return Object.assign(service, { credentials, model, port });
  }

  /** A browser subscribes to the pushes of `applicationServerKey`. */
  subscribe(applicationServerKey) {
    return this.model.subscribe({ userVisibleOnly: "true", applicationServerKey });
  }

  /** What a browser has been told, as JSON. */
  told({ clientHash }) {
    return this.model.getNotifications({ clientHash }).messages.map((text) => JSON.parse(text));
  }

  section(keyFile, more = "") {
    return `[web_push.judge]
vapid_key_file = ${JSON.stringify(keyFile)}
contact = "mailto:judge@example.com"
apps = ["${APP}"]
allowed_hosts = ["localhost"]
allowed_ports = [${this.port}]
ca_file = ${JSON.stringify(this.credentials.caFile)}
${more}`;
  }
}

/** The service, and the server with a key of ours. */
async function stage(t, more = "allow_private = true") {
  const service = await PushService.start(t);
  const { publicKey, privateKey } = webPush.generateVAPIDKeys();
  const keyFile = path.join(service.credentials.folder, "vapid.key");
  writeFileSync(keyFile, privateKey);
  const gateway = await start(t, service.section(keyFile, more));
  return { service, gateway, publicKey };
}

const page = ({ endpoint, keys }) => ({ platform: "web", app: APP, web_push: { endpoint, keys } });

test("the whole way: browsers of others are told by our server", options, async (t) => {
  const { service, gateway, publicKey } = await stage(t);
  const browsers = await Promise.all(Array.from({ length: 5 }, () => service.subscribe(publicKey)));
  await Promise.all(browsers.map((browser, index) => follow(gateway, SUBJECT, `page-${index}`, page(browser))));
  const data = { score: [1, 0], text: "Jäätelö 🎉" };
  const [id] = await gateway.push(SUBJECT, 1, { data, urgency: "high", collapse_key: "match-1", ttl: "90s" });
  assert.deepEqual(await gateway.outcomes(id), { accepted: browsers.length });
  for (const browser of browsers) {
    const [told, ...more] = service.told(browser);
    assert.deepEqual([told.title, told.body, told.tag, told.data], ["Goal for Sweden!", "1 : 0", "match-1", data]);
    assert.deepEqual(more, []);
  }
  for (const { headers } of service.requests) {
    assert.ok(headers.ttl <= 90 && headers.ttl > 60, headers.ttl);
    assert.equal(headers.urgency, "high");
    assert.match(headers.topic, /^[\w-]{1,32}$/);
    assert.equal(headers["content-encoding"], "aes128gcm");
    const [, claims] = /^vapid t=([^,]+), ?k=/.exec(headers.authorization)[1].split(".");
    const { aud, sub, exp } = JSON.parse(Buffer.from(claims, "base64url"));
    assert.deepEqual([aud, sub], [`https://localhost:${service.port}`, "mailto:judge@example.com"]);
    assert.ok(exp - Date.now() / 1000 <= 24 * 3600);
  }
  const tokens = new Set(service.requests.map(({ headers }) => headers.authorization));
  assert.equal(tokens.size, 1, "one token for the origin");
});

test("a subscription that has expired is forgotten, one of another key is not pushed to", options, async (t) => {
  const { service, gateway, publicKey } = await stage(t);
  const expired = await service.subscribe(publicKey);
  const foreign = await service.subscribe(webPush.generateVAPIDKeys().publicKey);
  const good = await service.subscribe(publicKey);
  service.model.expireSubscription(expired.clientHash);
  for (const [name, browser] of Object.entries({ expired, foreign, good })) {
    await follow(gateway, SUBJECT, name, page(browser));
  }
  const [id] = await gateway.push(SUBJECT);
  assert.equal((await gateway.outcomes(id)).accepted, 1);
  assert.deepEqual([service.told(foreign).length, service.told(good).length], [0, 1]);
  await until("the expired one is forgotten", async () => {
    return (await gateway.ok("GET", "/v1/devices/expired")).web_push === undefined;
  });
});

test("without the switch for development nothing inside the network is asked", options, async (t) => {
  const { service, gateway, publicKey } = await stage(t, "");
  await follow(gateway, SUBJECT, "page", page(await service.subscribe(publicKey)));
  // The name of this machine is looked up as one of the public internet's, where there is none: tried until the time is over.
  const [id] = await gateway.push(SUBJECT, 1, { ttl: 2 });
  const outcomes = await gateway.outcomes(id);
  assert.equal(outcomes.accepted ?? 0, 0, JSON.stringify(outcomes));
  assert.deepEqual(service.requests, []);
});
