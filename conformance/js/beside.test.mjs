// Centrifugo 5.4.9, the reference server, beside ours: both get the same commands in both formats, and what they answer
// is compared frame by frame. What differs for a reason stands in `UNLIKE`; such a difference must be there.
//
// Before the comparison, values that each server makes up (client ids, epochs, its version) become plain names, and pushes
// are compared per channel: the protocol does not order a reply against publications, nor channels among each other.

import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { writeFileSync } from "node:fs";
import path from "node:path";
import { after, before, test } from "node:test";
import { fileURLToPath } from "node:url";

import protobuf from "protobufjs";
import WebSocket from "ws";

import { API_KEY, DEADLINE_MS, Server, configurationHead, freePort, temporaryFolder, until } from "../server.mjs";
import { TOKEN_SECRET, seconds, token } from "./harness.mjs";
import { FORMATS } from "./sdk.mjs";
import { generated, listening, scripts } from "./beside.scripts.mjs";
import { LISTENING, Listener } from "./listener.mjs";

const here = (relative) => fileURLToPath(new URL(relative, import.meta.url));
const CENTRIFUGO = process.env.CENTRIFUGO_BIN ?? here("../../target/conformance/go/bin/centrifugo");
const SCHEMA = new protobuf.Root().loadSync(here("../../crates/protocol/tests/it/client.proto"), { keepCase: true });
const [Command, Reply] = ["Command", "Reply"].map((name) => SCHEMA.lookupType(`centrifugal.centrifuge.protocol.${name}`));

/** How many generated conversations, each of its own seed. */
const SEED_COUNT = Number(process.env.BESIDE_SEEDS ?? 40);

/** Rules of channels, in Centrifugo's words, which are ours. */
const OPEN = Object.fromEntries(
  ["subscribe", "publish", "history", "presence"].flatMap((what) =>
    ["client", "anonymous"].map((whom) => [`allow_${what}_for_${whom}`, true])),
);
const HISTORY = { history_size: 5, history_ttl: "10m" };
const NAMESPACES = {
  chat: { presence: true, ...HISTORY, force_recovery: true, ...OPEN },
  asked: { ...HISTORY, allow_recovery: true, ...OPEN },
  plain: OPEN,
  closed: { presence: true, ...HISTORY },
  users: { allow_subscribe_for_client: true },
  told: { join_leave: true, force_push_join_leave: true, ...OPEN },
  members: { allow_subscribe_for_client: true, allow_subscribe_for_anonymous: true, allow_publish_for_subscriber: true },
};

/** Differences with a reason: the script, the way to the value, and why. */
const UNLIKE = {
  "recoverable where there is no history": {
    "a.replies.1.subscribe": "without a history there is nothing to recover, so we do not promise it",
  },
  "publish without data": { "a": "Centrifugo 6 answers with error 107, as we do; 5 disconnects" },
  "refresh of a connection without a token": { "a": "there is no token that could be refreshed" },
  "recovery of another epoch, as an error": { "a.replies.1": "the flag is of Centrifugo 6.8" },
  "the server API": {
    "api.13.body": "a route that does not exist: ours is a problem in JSON",
    "api.15.body.replies.2": "a command without a method: Centrifugo 6 says 107, as we do; 5 says 104",
  },
  "a program with an expired subscription": {
    "a": "we refuse at once what Centrifugo subscribes, and ends when it next looks",
  },
  "recovery where one may ask": {
    "a.replies.1.subscribe": "a client that names a position wants recovery, although it does not set `recoverable`",
  },
};

const toml = (value) => (typeof value === "string" ? JSON.stringify(value) : String(value));

const ourConfiguration = (port, folder) => `${configurationHead(port, folder)}
[client]
allow_anonymous = true
${LISTENING.map((transport) => `${transport} = true`).join("\n")}
token.hmac_secret = "${TOKEN_SECRET}"
channel_creations_per_minute = 100000
${Object.entries(NAMESPACES).map(([name, options]) => `[channel.namespaces.${name}]
${Object.entries(options).map(([option, value]) => `${option} = ${toml(value)}`).join("\n")}`).join("\n")}
`;

/** Centrifugo with the same rules, in memory. */
class Centrifugo {
  static async start() {
    const server = Object.assign(new this(), { port: await freePort(), place: temporaryFolder(), log: "" });
    const file = path.join(server.place.folder, "config.json");
    writeFileSync(file, JSON.stringify({
      address: "127.0.0.1",
      port: String(server.port),
      api_key: API_KEY,
      token_hmac_secret_key: TOKEN_SECRET,
      allow_anonymous_connect_without_token: true,
      ...Object.fromEntries(LISTENING.map((transport) => [transport, true])),
      health: true,
      namespaces: Object.entries(NAMESPACES).map(([name, options]) => ({ name, ...options })),
    }));
    server.child = spawn(CENTRIFUGO, ["--config", file], { stdio: ["ignore", "pipe", "pipe"] });
    for (const stream of [server.child.stdout, server.child.stderr]) {
      stream.on("data", (text) => (server.log = (server.log + text).slice(-65536)));
    }
    const health = () => fetch(`http://127.0.0.1:${server.port}/health`).then((answer) => answer.ok, () => false);
    await until("Centrifugo is healthy", health).catch((error) => assert.fail(`${error.message}\n${server.log}`));
    return server;
  }

  request(method, route, body) {
    return Server.prototype.request.call(this, method, route, body);
  }

  get origin() {
    return `http://127.0.0.1:${this.port}`;
  }

  stop() {
    this.child.kill("SIGKILL");
    this.place.stop();
  }
}

let servers;
before(async () => (servers = [await Server.start(ourConfiguration), await Centrifugo.start()]));
after(() => Promise.all((servers ?? []).map((server) => server.stop())));

/** Payloads are JSON in both formats; Protobuf has them as bytes. */
const PAYLOADS = new Set(["data", "conn_info", "chan_info"]);
const mapped = (value, change) =>
  Array.isArray(value)
    ? value.map((item) => mapped(item, change))
    : value !== null && typeof value === "object" && !Buffer.isBuffer(value)
      ? Object.fromEntries(Object.entries(value).map(([key, item]) => [key, change(key, item) ?? mapped(item, change)]))
      : value;

const codecs = {
  json: {
    encode: (commands) => commands.map((command) => (typeof command === "string" ? command : JSON.stringify(command))).join("\n"),
    decode: (message) => message.toString().trimEnd().split("\n").map((line) => JSON.parse(line)),
  },
  protobuf: {
    encode: (commands) => Buffer.concat(commands.map((command) => {
      const bytes = mapped(command, (key, item) => (PAYLOADS.has(key) ? Buffer.from(JSON.stringify(item)) : undefined));
      return Command.encodeDelimited(Command.fromObject(bytes)).finish();
    })),
    decode: (message) => {
      const replies = [];
      for (const reader = protobuf.Reader.create(message); reader.pos < reader.len;) {
        const start = reader.pos;
        const reply = Reply.decodeDelimited(reader);
        const again = Buffer.from(Reply.encodeDelimited(reply).finish());
        assert.deepEqual(again, message.subarray(start, reader.pos), "fields in the order of their numbers, none unknown");
        const plain = Reply.toObject(reply, { longs: Number, bytes: Buffer });
        replies.push(mapped(plain, (key, item) => (PAYLOADS.has(key) ? JSON.parse(item.toString()) : undefined)));
      }
      return replies;
    },
  },
};

/** Names clients by the order in which they come; an epoch is only there or not, and so are texts for people. */
class Names {
  constructor() {
    this.names = new Map();
  }

  of(client) {
    if (!this.names.has(client)) {
      this.names.set(client, `client ${this.names.size + 1}`);
    }
    return this.names.get(client);
  }

  plain(reply) {
    return mapped(reply, (key, item) => {
      if (key === "client") {
        return this.of(item);
      }
      if (key === "presence" && !item.presence) {
        return Object.entries(item).map(([client, info]) => [this.of(client), this.plain(info)]);
      }
      return ["epoch", "version", "ttl", "message", "session"].includes(key) && typeof item !== "object" ? key : undefined;
    });
  }
}

/** One connection to one server, and what came over it. */
class Connection {
  constructor(server, format) {
    const subprotocol = format === "protobuf" ? ["centrifuge-protobuf"] : [];
    Object.assign(this, { codec: codecs[format], replies: [], pushes: {}, close: undefined });
    this.socket = new WebSocket(`ws://127.0.0.1:${server.port}/connection/websocket`, subprotocol);
    this.socket.on("message", (message) => this.codec.decode(message).forEach((reply) => this.take(reply)));
    this.socket.on("close", (code, reason) => (this.close = { code, reason: reason.toString() }));
    this.socket.on("error", () => {}); // `close` follows.
  }

  take(reply) {
    if (reply.push) {
      (this.pushes[reply.push.channel] ??= []).push(reply.push);
    } else if (Object.keys(reply).length > 0) {
      this.replies.push(reply); // Pings are left out: they come when they come.
    }
  }

  stop() {
    this.socket.terminate();
  }

  async send(commands) {
    await until("the connection is open", () => this.socket.readyState !== WebSocket.CONNECTING);
    const answered = this.replies.length;
    const asked = commands.filter((command) => command.id > 0 && typeof command === "object");
    this.socket.send(this.codec.encode(commands));
    // A refused connect leaves the rest of its frame unanswered.
    const isRefused = () => this.replies.slice(answered).some(({ error }) => error) && asked.some(({ connect }) => connect);
    const isDone = () => this.close || isRefused() || this.replies.length >= answered + asked.length;
    await until(`an answer to ${JSON.stringify(commands)}`, isDone);
  }
}

/** What a program that only listens was told of itself and of each channel. */
function heard({ pushes, isOver }) {
  const channels = {};
  pushes.filter(({ channel }) => channel).forEach((push) => (channels[push.channel] ??= []).push(push));
  return { replies: pushes.filter(({ channel }) => !channel), pushes: channels, isOver };
}

/** A script on one server. */
class Run {
  constructor(server, format) {
    Object.assign(this, { server, format, connections: {}, answers: [] });
  }

  /** A step: `{ NAME: [commands] }` of that connection, `{ NAME: request }` of one that only listens, `{ api: [method, body] }`, or `{ until: [NAME, condition] }`. */
  async step(step) {
    const [[who, words]] = Object.entries(step);
    if (who === "api") {
      const answer = await this.server.request("POST", `/api/${words[0]}`, words[1]);
      const text = await answer.text();
      this.answers.push({ status: answer.status, body: text.startsWith("{") ? JSON.parse(text) : "text" });
      return;
    }
    if (who === "until") {
      await until(`${words[0]}: ${words[1]}`, () => words[1](this.connections[words[0]]));
      return;
    }
    const epochs = (key, item) => (typeof item === "function" ? item(this) : undefined);
    if (LISTENING.includes(this.format)) {
      const listener = new Listener(this.format, this.server.port, mapped(words, epochs));
      this.connections[who] = listener;
      await until(`an answer to ${JSON.stringify(words)}`, () => listener.pushes.length > 0);
    } else {
      this.connections[who] ??= new Connection(this.server, this.format);
      await this.connections[who].send(words.map((word) => (typeof word === "string" ? word : mapped(word, epochs))));
    }
  }

  transcript() {
    const names = new Names();
    const of = (said) => (said instanceof Listener ? heard(said) : (({ replies, pushes, close }) => ({ replies, pushes, close }))(said));
    const said = Object.entries(this.connections).map(([who, connection]) => [who, of(connection)]);
    return names.plain({ api: this.answers, ...Object.fromEntries(said) });
  }

  stop() {
    Object.values(this.connections).forEach((connection) => connection.stop());
  }
}

/** Takes out of both transcripts what may differ, after a look whether it does. */
function without(differences, [ours, theirs]) {
  for (const way of Object.keys(differences)) {
    const keys = way.split(".");
    const last = keys.pop();
    const parents = [ours, theirs].map((transcript) => keys.reduce((value, key) => value?.[key], transcript));
    const values = parents.map((parent) => parent?.[last]);
    assert.notDeepEqual(...values, `${way} is alike now: take it out of UNLIKE`);
    parents.filter((parent) => parent !== undefined).forEach((parent) => delete parent[last]);
  }
  return [ours, theirs];
}

const isAlike = (transcripts) => {
  try {
    assert.deepEqual(...transcripts);
    return true;
  } catch {
    return false;
  }
};

async function compare(name, script, format) {
  const runs = servers.map((server) => new Run(server, format));
  const unlike = UNLIKE[name] ?? {};
  try {
    for (const step of script) {
      await Promise.all(runs.map((run) => run.step(step)));
    }
    const transcripts = () => without(unlike, runs.map((run) => run.transcript()));
    await until("both say the same", () => isAlike(transcripts()), 3_000).catch(() => assert.deepEqual(...transcripts()));
  } finally {
    runs.forEach((run) => run.stop());
  }
}

const options = { timeout: 4 * DEADLINE_MS };

for (const format of FORMATS) {
  for (const [name, script] of Object.entries(scripts({ token, seconds, format }))) {
    test(`${name} (${format})`, options, () => compare(name, script, format));
  }
  test(`generated conversations (${format})`, { timeout: 10 * DEADLINE_MS }, async (t) => {
    for (let seed = 1; seed <= SEED_COUNT; seed++) {
      await t.test(`seed ${seed}`, () => compare(`seed ${seed}`, generated(`${format}${seed}`, seed), format));
    }
  });
}

for (const transport of LISTENING) {
  for (const [name, script] of Object.entries(listening({ token, seconds }))) {
    test(`${name} (${transport})`, options, () => compare(name, script, transport));
  }
}
