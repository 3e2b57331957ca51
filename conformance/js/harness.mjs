// What every conformance test stands on: a real server on a port of its own, the unmodified SDK, a wire that can be cut.
//
// The server is the release binary (TIDINGS_BIN) with a temporary folder and configuration. Nothing here waits for a
// fixed time: it waits for a condition, with a deadline after which the test fails and says what it waited for.

import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { createHmac, randomUUID } from "node:crypto";
import { existsSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import net from "node:net";
import { tmpdir } from "node:os";
import path from "node:path";
import { fileURLToPath } from "node:url";

import { Centrifuge } from "centrifuge";
import WebSocket from "ws";

const BINARY = process.env.TIDINGS_BIN ?? fileURLToPath(new URL("../../target/release/tidings", import.meta.url));
const API_KEY = "conformance-api-key-0123456789";
const TOKEN_SECRET = "conformance-token-secret-0123456789abcdef";
const DEADLINE_MS = 20_000;
const LOG_CHARACTERS_MAX = 64 * 1024;

const OPEN = `
allow_subscribe_for_client = true
allow_subscribe_for_anonymous = true
allow_publish_for_client = true
allow_publish_for_anonymous = true
allow_history_for_client = true
allow_history_for_anonymous = true
allow_presence_for_client = true
allow_presence_for_anonymous = true
`;
const RECOVERABLE = `history_ttl = "10m"\nforce_recovery = true\n${OPEN}`;

const configuration = (port, folder) => `
data_dir = ${JSON.stringify(path.join(folder, "data"))}

[http]
listen = "127.0.0.1:${port}"

[[api.keys]]
name = "conformance"
key = "${API_KEY}"

[client]
allow_anonymous = true
token_hmac_secret = "${TOKEN_SECRET}"
ping_interval = "2s"
pong_timeout = "1900ms"
recovery_count_max = 1000

# In memory, with history and presence.
[channel.namespaces.chat]
presence = true
history_size = 1000
${RECOVERABLE}
# The same, but it survives a crash.
[channel.namespaces.match]
durable = true
history_size = 1000
${RECOVERABLE}
# A history so short that one falls out of it.
[channel.namespaces.short]
history_size = 10
${RECOVERABLE}
# Neither history nor presence.
[channel.namespaces.plain]
${OPEN}
# Nobody is let in without a token.
[channel.namespaces.closed]
`;

/** Resolves when `condition()` is true; fails after the deadline, naming `what`. */
export async function until(what, condition, deadlineMs = DEADLINE_MS) {
  const start = Date.now();
  while (!(await condition())) {
    assert.ok(Date.now() - start < deadlineMs, `not within ${deadlineMs} ms: ${what}`);
    await new Promise((resolve) => setTimeout(resolve, 5));
  }
}

/** The next `event` of `emitter` that satisfies `wanted`. */
export function next(emitter, event, wanted = () => true) {
  return new Promise((resolve, reject) => {
    const late = () => done(reject, new Error(`no ${event} within ${DEADLINE_MS} ms`));
    const timer = setTimeout(late, DEADLINE_MS);
    const listener = (context) => wanted(context) && done(resolve, context);
    const done = (settle, value) => {
      clearTimeout(timer);
      emitter.off(event, listener);
      settle(value);
    };
    emitter.on(event, listener);
  });
}

/** A connection or subscription token (HS256). */
export function token(claims, secret = TOKEN_SECRET) {
  const part = (value) => Buffer.from(JSON.stringify(value)).toString("base64url");
  const signed = `${part({ alg: "HS256", typ: "JWT" })}.${part(claims)}`;
  return `${signed}.${createHmac("sha256", secret).update(signed).digest("base64url")}`;
}

/** Seconds since the Unix epoch, `from` seconds from now. */
export const seconds = (from) => Math.floor(Date.now() / 1000) + from;

async function freePort() {
  const server = net.createServer().listen(0, "127.0.0.1");
  await new Promise((resolve) => server.once("listening", resolve));
  const { port } = server.address();
  await new Promise((resolve) => server.close(resolve));
  return port;
}

/** A server process with its folder; may be killed and started again on the same port and data. */
export class Server {
  static async start() {
    assert.ok(existsSync(BINARY), `no server at ${BINARY}: cargo build --release -p tidings, or set TIDINGS_BIN`);
    const server = new Server();
    server.folder = mkdtempSync(path.join(tmpdir(), "tidings-conformance-"));
    server.port = await freePort();
    server.log = "";
    writeFileSync(path.join(server.folder, "tidings.toml"), configuration(server.port, server.folder));
    await server.run();
    return server;
  }

  get origin() {
    return `http://127.0.0.1:${this.port}`;
  }

  /** Starts the process and waits until it says it is healthy. */
  async run() {
    const environment = { ...process.env };
    delete environment.TIDINGS_BIN; // Not a setting of the server.
    const words = ["serve", "--config", path.join(this.folder, "tidings.toml")];
    const child = spawn(BINARY, words, { cwd: this.folder, env: environment, stdio: ["ignore", "pipe", "pipe"] });
    const keep = (text) => (this.log = (this.log + text).slice(-LOG_CHARACTERS_MAX));
    child.stdout.on("data", keep);
    child.stderr.on("data", keep);
    this.child = child;
    this.exited = new Promise((resolve, reject) => {
      child.once("exit", (code, signal) => resolve({ code, signal }));
      child.once("error", reject);
    });
    this.exited.catch(() => {}); // Told by whoever awaits it.
    const healthy = async () => {
      assert.equal(child.exitCode, null, `the server stopped at once:\n${this.log}`);
      return fetch(`${this.origin}/health`).then((answer) => answer.ok, () => false);
    };
    await until("the server is healthy", healthy).catch((error) => {
      throw new Error(`${error.message}\n${this.log}`);
    });
  }

  /** Sends a signal and waits for the end of the process. */
  async kill(signal) {
    this.child.kill(signal);
    return this.exited;
  }

  /** The end: process and folder are gone. */
  async stop() {
    await this.kill("SIGKILL");
    rmSync(this.folder, { recursive: true, force: true });
  }

  /** One call of the server API: its answer as it is, `{result}` or `{error}`. `body` may be text. */
  async call(method, body) {
    const answer = await fetch(`${this.origin}/api/${method}`, {
      method: "POST",
      headers: { "X-API-Key": API_KEY, "Content-Type": "application/json" },
      body: typeof body === "string" ? body : JSON.stringify(body),
    });
    assert.equal(answer.status, 200, `${method}: HTTP ${answer.status}`);
    return answer.json();
  }

  /** One call that must succeed: its result. */
  async api(method, body) {
    const { result, error } = await this.call(method, body);
    assert.equal(error, undefined, `${method}: ${JSON.stringify(error)}`);
    return result;
  }

  /** Publishes through the server API; acknowledged when it resolves. */
  publish(channel, data, more = {}) {
    return this.api("publish", { channel, data, ...more });
  }

  /** The SDK, not yet connected; through a wire if given. Disconnected when the test ends. */
  client(t, options = {}, wire = this) {
    const client = new Centrifuge(`ws://127.0.0.1:${wire.port}/connection/websocket`, {
      websocket: WebSocket,
      minReconnectDelay: 10,
      maxReconnectDelay: 100,
      ...options,
    });
    t.after(() => client.disconnect());
    return client;
  }

  /** The SDK, connected. */
  async connected(t, options = {}, wire = this) {
    const client = this.client(t, options, wire);
    client.connect();
    await client.ready(DEADLINE_MS);
    return client;
  }
}

/** A subscription that is live; `sub.seen` collects its publications, `sub.joined` every `subscribed` event. */
export async function subscribed(client, channel, options = {}) {
  const sub = client.newSubscription(channel, { minResubscribeDelay: 10, maxResubscribeDelay: 100, ...options });
  sub.seen = [];
  sub.joined = [];
  sub.on("publication", (publication) => sub.seen.push(publication));
  sub.on("subscribed", (context) => sub.joined.push(context));
  sub.subscribe();
  await sub.ready(DEADLINE_MS);
  return sub;
}

/** A TCP way to the server that can be cut and kept shut. */
export class Wire {
  static async to(t, server) {
    const wire = new Wire();
    wire.sockets = new Set();
    wire.shut = false;
    wire.listener = net.createServer((near) => wire.join(near, server.port));
    wire.listener.listen(0, "127.0.0.1");
    await new Promise((resolve) => wire.listener.once("listening", resolve));
    wire.port = wire.listener.address().port;
    t.after(() => {
      wire.close();
      wire.listener.close();
    });
    return wire;
  }

  join(near, port) {
    if (this.shut) {
      near.destroy();
      return;
    }
    const far = net.connect(port, "127.0.0.1");
    for (const [from, to] of [[near, far], [far, near]]) {
      this.sockets.add(from);
      from.on("data", (bytes) => to.write(bytes));
      from.on("error", () => {}); // A cut is an error to the other end; `close` follows.
      from.on("close", () => {
        this.sockets.delete(from);
        to.destroy();
      });
    }
  }

  /** Breaks every connection; what was on its way is lost. */
  cut() {
    for (const socket of this.sockets) {
      socket.resetAndDestroy();
    }
  }

  /** Cuts, and lets nobody through until `open`. */
  close() {
    this.shut = true;
    this.cut();
  }

  open() {
    this.shut = false;
  }
}

/** A channel nobody else uses. */
export const fresh = (namespace) => `${namespace}:${randomUUID().slice(0, 8)}`;

/** The numbers from 1 to `count`. */
export const numbers = (count) => Array.from({ length: count }, (_, index) => index + 1);
