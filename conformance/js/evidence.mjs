// What the judges of receipts stand on: the server between a provider that accepts everything and apps, which are
// unmodified SDKs in a process of their own.

import assert from "node:assert/strict";
import { readFileSync, readdirSync } from "node:fs";

import { Credentials, Gateway, freshToken } from "../apns/harness.mjs";
import { Peer } from "../apns/peer.mjs";
import { until } from "../server.mjs";
import { Tool } from "../tool.mjs";
import { TOKEN_SECRET, seconds, token } from "./harness.mjs";

/** Pings so rare that what a test sees of them was for receipts, or as rare as told. */
const clients = ({ interval, timeout } = { interval: "25s", timeout: "8s" }) => `
[client]
allow_anonymous = true
sse = true
http_stream = true
token.hmac_secret = "${TOKEN_SECRET}"
ping_interval = "${interval}"
pong_timeout = "${timeout}"
`;
const CHANNEL = `
force_recovery = true
presence = true
allow_subscribe_for_client = true
allow_subscribe_for_anonymous = true
`;

/** The server, which pushes to a provider of its own. */
export class Scene extends Gateway {
  static async start(t, { pings } = {}) {
    const credentials = Credentials.make(t);
    const pushedAt = new Map();
    const script = (request) => {
      pushedAt.set(request.token, Date.now());
      request.accept();
    };
    const peer = await Peer.start(t, credentials.server(), { script });
    const scene = await super.start(t, credentials, peer.port, { channel: CHANNEL, more: clients(pings) });
    return Object.assign(scene, { peer, pushedAt });
  }

  /** A phone that is told of goals about a subject nobody else follows, with its proof of who it is. */
  async phone({ subject = `match:${freshToken(8)}` } = {}) {
    const device = freshToken();
    const body = { platform: "ios", token: device, app: "com.example.app", locale: "en" };
    const { credential } = await this.ok("PUT", `/v1/devices/${device}`, body);
    await this.ok("PUT", `/v1/devices/${device}/subscriptions`, { subscriptions: [{ subject, topics: ["goal"] }] });
    return { device, credential, subject };
  }

  /** Publishes an event with the default rules for pushes; its id. */
  async tell({ subject }, more = {}) {
    const [id] = await this.push(subject, 1, { push: undefined, ...more });
    return id;
  }

  /** Waits until the server waits for so many devices to give the event's receipt. */
  holds(id, count = 1) {
    return until(`${count} are waited for`, async () => (await this.report(id)).held === count);
  }

  /** Waits until nobody reads the channel. */
  async left({ subject }) {
    const body = { channel: subject };
    const stats = async () => (await (await this.request("POST", "/api/presence_stats", body)).json()).result;
    await until("nobody is there", async () => (await stats()).num_clients === 0);
  }

  /** The event is in the app and was not pushed. */
  async received(phone, id) {
    assert.deepEqual(await this.outcomes(id), { received: 1 });
    assert.ok(!this.pushedAt.has(phone.device), "it was not pushed");
  }

  /** The event was pushed; at which moment. */
  async pushed(phone, id) {
    assert.deepEqual(await this.outcomes(id), { accepted: 1 });
    return this.pushedAt.get(phone.device);
  }
}

/** An app: the SDK, started by `command`, which follows a phone's subject. */
export class App {
  /** Waits until it is in or out. `claim` is what it says of itself; without a token it is anonymous. */
  static async start(t, command, scene, { subject }, { claim, token, pingDelayMs, wire = scene } = {}) {
    const url = `ws://127.0.0.1:${wire.port}/connection/websocket`;
    const data = claim && { tidings: claim };
    const app = new App();
    const words = { url, channel: subject, data, token, ping_delay_ms: pingDelayMs };
    app.tool = await Tool.start(t, command(words));
    await until("the app is in or out", () => app.heard("subscribed").length + app.heard("disconnected").length > 0);
    return app;
  }

  /** What its handlers have heard. */
  heard(on) {
    return this.tool.lines.filter((line) => line.on === on);
  }

  /** Waits until it has so many publications; then it has exactly these, each once and in order. */
  async has(count) {
    await until(`the app has ${count}`, () => this.heard("publication").length >= count);
    const offsets = this.heard("publication").map(({ offset }) => offset);
    assert.deepEqual(offsets, Array.from({ length: count }, (_, index) => index + 1));
  }

  /** Waits until it follows its channel again; nothing is missing then. */
  async isBack() {
    await until("it follows its channel again", () => this.heard("subscribed").length === 2);
    assert.equal(this.heard("subscribed")[1].recovered, true);
  }

  /** Says whether it is on the screen; what the server answers. */
  async isVisible(visible, more = {}) {
    const { data, error } = await this.tool.ask({ method: "tidings.visible", data: { visible, ...more } });
    assert.equal(error, undefined);
    return data;
  }

  /**
   * Stops its process as it is. On a busy machine, threads go on until the one that got the signal has had its turn: so
   * this waits until all have stopped.
   */
  async sleep() {
    const { child } = this.tool;
    child.kill("SIGSTOP");
    const tasks = `/proc/${child.pid}/task`;
    const isStopped = (task) => {
      try {
        return readFileSync(`${tasks}/${task}/stat`, "utf8").split(") ").at(-1)[0] === "T";
      } catch {
        return false; // It has ended since the folder was read.
      }
    };
    await until("all of its threads have stopped", () => readdirSync(tasks).every(isStopped));
  }

  /** It goes on. */
  wake() {
    this.tool.child.kill("SIGCONT");
  }

  disconnect() {
    return this.tool.ask({});
  }

  /** It was never disconnected. */
  stayed() {
    assert.deepEqual([this.heard("connecting").length, this.heard("disconnected")], [1, []]);
  }
}

/** A connection token for a user on a device. */
export const deviceToken = (user, device) => token({ sub: user, device, exp: seconds(3600) });
