// What the tests of the SDK stand on: a server with channels of every kind, and the unmodified SDK.

import assert from "node:assert/strict";
import { createHmac, randomUUID } from "node:crypto";
import * as runner from "node:test";

import * as base from "../server.mjs";
import { STREAMS, WEBSOCKETS, connector, plain } from "./sdk.mjs";

export { Wire, until } from "../server.mjs";

const { DEADLINE_MS } = base;
export const TOKEN_SECRET = "conformance-token-secret-0123456789abcdef";

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

const configuration = (port, folder) => `${base.configurationHead(port, folder)}
[client]
allow_anonymous = true
sse = true
http_stream = true
uni_websocket = true
uni_sse = true
uni_http_stream = true
token.hmac_secret = "${TOKEN_SECRET}"
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
# Events carry their texts.
[channel.namespaces.told]
durable = true
event_texts = true
allowed_delta_types = ["fossil"]
history_size = 100
${RECOVERABLE}
# A history so short that one falls out of it.
[channel.namespaces.short]
history_size = 10
${RECOVERABLE}
# Neither history nor presence.
[channel.namespaces.plain]
${OPEN}
# Joins and leaves are told, and clients may choose by tags.
[channel.namespaces.lively]
presence = true
join_leave = true
allow_tags_filter = true
history_size = 100
${RECOVERABLE}
# Publications may be deltas, with a number instead of the channel's name.
[channel.namespaces.small]
allowed_delta_types = ["fossil"]
allow_channel_compaction = true
history_size = 1000
${RECOVERABLE}
# Each publication is the whole state.
[channel.namespaces.state]
history_size = 10
force_recovery_mode = "cache"
auto_cache_recover = true
${RECOVERABLE}
# Nobody is let in without a token.
[channel.namespaces.closed]

[translations]
live_locales = ["pl", "sv"]
`;

/** A test in each way to connect: the clients of its server use it. */
export function test(name, options, body, ways = [...WEBSOCKETS, ...STREAMS]) {
  for (const way of ways) {
    runner.test(`${name} (${way.name})`, options, (t) => body(Object.assign(t, { way })));
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

/** The server, its older API and its clients. */
export class Server extends base.Server {
  static start(configure = configuration) {
    return super.start(configure);
  }

  /** One call of the server API: its answer as it is, `{result}` or `{error}`. `body` may be text. */
  async call(method, body) {
    const answer = await this.request("POST", `/api/${method}`, body);
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

  /** The SDK in the test's way, not yet connected; through a wire if given. Disconnected when the test ends. */
  client(t, options = {}, wire = this) {
    const delays = { minReconnectDelay: 10, maxReconnectDelay: 100 };
    const client = connector(t.way ?? WEBSOCKETS[0], wire.port, { ...delays, ...options });
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
  sub.on("publication", (publication) => sub.seen.push(plain(client, publication)));
  sub.on("subscribed", (context) => sub.joined.push(context));
  sub.subscribe();
  await sub.ready(DEADLINE_MS);
  return sub;
}

/** A channel nobody else uses. */
export const fresh = (namespace) => `${namespace}:${randomUUID().slice(0, 8)}`;

/** The numbers from 1 to `count`. */
export const numbers = (count) => Array.from({ length: count }, (_, index) => index + 1);
