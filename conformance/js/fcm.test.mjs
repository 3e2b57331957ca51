// Our side of Firebase Cloud Messaging. The provider is Node's own (nghttp2); it has our assertions verified by `jose`
// and our messages by the types that Google publishes (npm `@googleapis/fcm`), of which TypeScript is the judge: an
// unknown name or a value of another kind is an error there. Google's client, unmodified, judges our simulator.

import assert from "node:assert/strict";
import { randomUUID } from "node:crypto";
import { test } from "node:test";
import { fileURLToPath } from "node:url";

import { auth, fcm } from "@googleapis/fcm";
import typescript from "typescript";

import { until } from "../server.mjs";
import { ERROR, Firebase, PROJECT, SCOPE, freshToken, phone } from "./firebase.mjs";
import { Simulator, follow, start } from "./provider.mjs";

const options = { timeout: 120_000 };
const SUBJECT = "match:1";

/** A name in the other of the two spellings of protocol buffers: `collapse_key` as `collapseKey`. */
const camel = (name) => name.replace(/_([a-z])/g, (_, letter) => letter.toUpperCase());

/** The names of Google's messages in the spelling of its types; what lies in maps is the sender's own. */
function spelt(value, isMap = false) {
  if (value === null || typeof value !== "object" || Array.isArray(value)) {
    return value;
  }
  const maps = new Set(["data", "headers", "payload"]);
  const entry = ([name, inner]) => [isMap ? name : camel(name), spelt(inner, isMap || maps.has(name))];
  return Object.fromEntries(Object.entries(value).map(entry));
}

/** What TypeScript says against these bodies as requests to FCM: `{body, text}`, `body` being the place in the list. */
function complaints(bodies) {
  const file = fileURLToPath(new URL("bodies.virtual.ts", import.meta.url));
  const line = (body) => `check(${JSON.stringify(spelt(body))});`;
  const head = [
    'import { fcm_v1 } from "@googleapis/fcm";',
    "const check = (_: fcm_v1.Schema$SendMessageRequest) => {};",
  ];
  const text = [...head, ...bodies.map(line)].join("\n");
  const { ModuleKind, ModuleResolutionKind, ScriptTarget } = typescript;
  const settings = {
    strict: true, noEmit: true, skipLibCheck: true, esModuleInterop: true, types: [],
    target: ScriptTarget.ES2022, module: ModuleKind.Node16, moduleResolution: ModuleResolutionKind.Node16,
  };
  const host = typescript.createCompilerHost(settings);
  const { getSourceFile, fileExists } = host;
  host.fileExists = (name) => name === file || fileExists(name);
  host.getSourceFile = (name, ...rest) =>
    name === file ? typescript.createSourceFile(name, text, ScriptTarget.ES2022) : getSourceFile(name, ...rest);
  const program = typescript.createProgram([file], settings, host);
  const source = program.getSourceFile(file);
  const found = [...program.getSyntacticDiagnostics(source), ...program.getSemanticDiagnostics(source)];
  return found.map(({ messageText, start }) => {
    const body = source.getLineAndCharacterOfPosition(start).line - head.length;
    return { body, text: typescript.flattenDiagnosticMessageText(messageText, "\n") };
  });
}

/** Nobody did anything that the protocol does not allow, and all messages are of Google's types. */
function check(firebase) {
  firebase.check();
  assert.deepEqual(complaints(firebase.bodies), []);
}

test("the judge of messages would notice", options, () => {
  const android = { ttl: "1s", notification: { channel_id: "x" } };
  const right = { validate_only: true, message: { token: "a", android } };
  const wrong = [
    { tokens: ["a"] },
    { token: 1 },
    { data: { count: 1 } },
    { android: { notification: { chanel_id: "x" } } },
    { android: { notification: { title_loc_args: "x" } } },
    { notification: { title: "a", tag: "b" } },
  ];
  const found = complaints([right, ...wrong.map((message) => ({ message }))]);
  assert.deepEqual(found.map(({ body }) => body), [1, 2, 3, 4, 5, 6], JSON.stringify(found));
});

/** Whatever a producer may want of FCM beside what we write. */
const BLOCKS = {
  notification: { image: "https://example.com/a.png" },
  android: {
    collapse_key: "scores", restricted_package_name: "com.example.app", direct_boot_ok: true,
    data: { of: "android" },
    notification: {
      icon: "ball", color: "#00ff00", click_action: "OPEN", title_loc_key: "goal", title_loc_args: ["Sweden"],
      channel_id: "goals", ticker: "Goal", sticky: true, event_time: "2026-11-22T12:00:00Z", local_only: false,
      notification_priority: "PRIORITY_HIGH", default_vibrate_timings: false, vibrate_timings: ["0.1s", "0.2s"],
      visibility: "PUBLIC", notification_count: 2,
      light_settings: { color: { red: 1, alpha: 1 }, light_on_duration: "1s", light_off_duration: "1s" },
    },
    fcm_options: { analytics_label: "android" },
  },
  apns: {
    headers: { "apns-priority": "5", "apns-collapse-id": "match-1" },
    payload: { aps: { badge: 1, "mutable-content": 1 }, own: { deep: [1] } },
    fcm_options: { analytics_label: "apple", image: "https://example.com/a.png" },
  },
  webpush: {
    headers: { TTL: "60", Urgency: "high" },
    data: { of: "browser" },
    notification: { title: "Goal!", actions: [{ action: "open", title: "Open" }] },
    fcm_options: { link: "https://example.com/1", analytics_label: "browser" },
  },
  fcm_options: { analytics_label: "all" },
};

test("a producer's blocks for Android, Apple and browsers arrive as they are", options, async (t) => {
  const firebase = await Firebase.start(t);
  const gateway = await start(t, firebase.section);
  await follow(gateway, SUBJECT, "phone", phone(freshToken()));
  const [id] = await gateway.push(SUBJECT, 1, { collapse_key: "match-1", payload: { fcm: BLOCKS } });
  assert.deepEqual(await gateway.outcomes(id), { accepted: 1 });
  const [{ message }] = firebase.bodies;
  const { android, apns, webpush, fcm_options } = message;
  assert.deepEqual([apns, webpush, fcm_options], [BLOCKS.apns, BLOCKS.webpush, BLOCKS.fcm_options]);
  assert.deepEqual({ ...android, ...BLOCKS.android, notification: android.notification }, android);
  assert.deepEqual({ ...android.notification, ...BLOCKS.android.notification }, android.notification);
  assert.equal(android.notification.tag, "match-1", "what makes a repeat harmless is still there");
  check(firebase);
});

test("a notification is shown by the system, a data message by the app", options, async (t) => {
  const firebase = await Firebase.start(t);
  const gateway = await start(t, firebase.section);
  await follow(gateway, SUBJECT, "phone", phone(freshToken()));
  const text = { title: "Goal for Sweden!", body: "1 : 0" };
  const ids = [];
  for (const more of [{}, { collapse_key: "match-1" }, { payload: { fcm: { notification: null } } }]) {
    const [id] = await gateway.push(SUBJECT, 1, { data: { score: [1, 0] }, ...more });
    assert.deepEqual(await gateway.outcomes(id), { accepted: 1 });
    ids.push(id);
  }
  const [plain, keyed, data] = firebase.bodies.map(({ message }) => message);
  assert.deepEqual([plain.notification, keyed.notification, data.notification], [text, text, undefined]);
  assert.ok(plain.android.notification.tag.length > 0);
  assert.equal(keyed.android.notification.tag, "match-1");
  assert.equal(data.android.notification, undefined, "with it the system would show something");
  assert.deepEqual([data.data["tidings.title"], data.data["tidings.body"]], [text.title, text.body]);
  assert.deepEqual([plain, keyed, data].map((it) => it.data["tidings.event"]), ids);
  assert.ok([plain, keyed, data].every((it) => it.data.data === '{"score":[1,0]}' && it.android.priority === "HIGH"));
  check(firebase);
});

test("messages of every kind are of Google's types, and the assertion is right", options, async (t) => {
  const firebase = await Firebase.start(t);
  const gateway = await start(t, firebase.section);
  const tokens = Array.from({ length: 3 }, freshToken);
  await Promise.all(tokens.map((token, index) => follow(gateway, SUBJECT, `phone-${index}`, phone(token))));
  const kinds = [
    {},
    { channels: ["match:1"], data: { score: [1, 0], text: "Jäätelö 🎉 \" \\ \u2028" } },
    { urgency: "low", collapse_key: "match-1", ttl: "90s" },
    { present: { link: "https://example.com/1", image: "https://example.com/a.png", sound: "goal.wav", badge: 3 } },
    { present: { android_channel: "goals", thread: "match-1", category: "goal", sound: "none" } },
    ...["passive", "active", "time-sensitive", "critical"].map((interruption) => ({ present: { interruption } })),
    { payload: { fcm: { android: { direct_boot_ok: true, ttl: "3.5s" }, fcm_options: { analytics_label: "x" } } } },
    { payload: { fcm: { notification: null, data: { own: "1" } } } },
    { payload: { fcm: BLOCKS } },
    { params: { team: "\"Curaçao\"", text: "‏🏴󠁧󠁢󠁷󠁬󠁳󠁿".repeat(12) } },
  ];
  for (const kind of kinds) {
    const [id] = await gateway.push(SUBJECT, 1, kind);
    assert.deepEqual(await gateway.outcomes(id), { accepted: tokens.length }, JSON.stringify(kind));
  }
  assert.equal(firebase.bodies.length, kinds.length * tokens.length);
  assert.deepEqual(new Set(firebase.bodies.map(({ message }) => message.token)), new Set(tokens));
  assert.equal(firebase.assertions.length, 1, "one access token serves all");
  check(firebase);
});

test("a dry run is validated by Google and shown to nobody", options, async (t) => {
  const firebase = await Firebase.start(t);
  const gateway = await start(t, firebase.section);
  await follow(gateway, SUBJECT, "phone", phone(freshToken()));
  const [id] = await gateway.push(SUBJECT, 1, { dry_run: true });
  assert.deepEqual(await gateway.outcomes(id), { accepted: 1 });
  assert.deepEqual(firebase.bodies.map(({ validate_only }) => validate_only), [true]);
  check(firebase);
});

test("what FCM refuses is understood", options, async (t) => {
  const own = (errorCode) => ({ "@type": ERROR, errorCode });
  const violation = {
    "@type": "type.googleapis.com/google.rpc.BadRequest",
    fieldViolations: [{ field: "message.data", description: "x" }],
  };
  const refusals = {
    gone: { status: 404, error: { status: "NOT_FOUND", details: [own("UNREGISTERED")] } },
    foreign: { status: 403, error: { status: "PERMISSION_DENIED", details: [own("SENDER_ID_MISMATCH")] } },
    wrong: { status: 400, error: { status: "INVALID_ARGUMENT", details: [own("INVALID_ARGUMENT"), violation] } },
  };
  const firebase = await Firebase.start(t, ({ token }) => refusals[token.split(":")[0]] ?? {});
  const gateway = await start(t, firebase.section);
  for (const name of [...Object.keys(refusals), "good"]) {
    await follow(gateway, SUBJECT, name, phone(`${name}:${randomUUID()}`));
  }
  const [id] = await gateway.push(SUBJECT);
  const outcomes = await gateway.outcomes(id);
  assert.equal(outcomes.accepted, 1);
  await until("the token that is gone is forgotten", async () => !(await gateway.hasToken("gone")));
  assert.ok(await gateway.hasToken("good"));
  assert.ok(await gateway.hasToken("wrong"), "a mistake of ours is no reason to forget a device");
  check(firebase);
});

test("a fresh access token that is refused is no reason for a storm", options, async (t) => {
  const firebase = await Firebase.start(t, () => ({ status: 401, error: { status: "UNAUTHENTICATED" } }));
  const gateway = await start(t, firebase.section);
  const ids = Array.from({ length: 20 }, (_, index) => `phone-${index}`);
  await Promise.all(ids.map((id) => follow(gateway, SUBJECT, id, phone(freshToken()))));
  const [id] = await gateway.push(SUBJECT, 1, { ttl: "3s" });
  const outcomes = await gateway.outcomes(id);
  assert.equal(outcomes.accepted, undefined, JSON.stringify(outcomes));
  assert.ok(firebase.assertions.length <= 2, `${firebase.assertions.length} access tokens`);
  assert.ok(await gateway.hasToken("phone-0"), "the device is not to blame");
  check(firebase);
});

test("a message that must wait comes once the wait is over", options, async (t) => {
  const tried = new Map();
  const firebase = await Firebase.start(t, ({ token }) => {
    tried.set(token, [...(tried.get(token) ?? []), Date.now()]);
    const error = { status: "UNAVAILABLE", details: [{ "@type": ERROR, errorCode: "UNAVAILABLE" }] };
    return tried.get(token).length > 1 ? {} : { status: 503, headers: { "retry-after": "1" }, error };
  });
  const gateway = await start(t, firebase.section);
  await follow(gateway, SUBJECT, "phone", phone(freshToken()));
  const [id] = await gateway.push(SUBJECT);
  assert.deepEqual(await gateway.outcomes(id), { accepted: 1 });
  const [[refused, repeated, ...more]] = tried.values();
  assert.deepEqual(more, []);
  assert.ok(repeated - refused >= 990, `repeated after ${repeated - refused} ms`);
  check(firebase);
});

/** What Google's client wants to be fetched, from the simulator; as its own transport would answer. */
async function viaSimulator(simulator, { method = "GET", url, headers = {}, data }) {
  const isForm = url.endsWith("/token");
  const pathname = isForm ? "/token" : new URL(url).pathname;
  const body = isForm ? new URLSearchParams(data).toString() : typeof data === "string" ? data : JSON.stringify(data);
  const type = isForm ? "application/x-www-form-urlencoded" : "application/json";
  const authorization = headers.Authorization ?? headers.authorization;
  const sent = { "content-type": type, ...(authorization ? { authorization } : {}) };
  const answer = await simulator.request(method, pathname, { headers: sent, body });
  const response = { status: answer.status, headers: answer.headers, data: JSON.parse(answer.text), config: {} };
  if (answer.status >= 300) {
    throw Object.assign(new Error(`HTTP ${answer.status}`), { response });
  }
  return response;
}

test("Google's client and our simulator", options, async (t) => {
  const simulator = await Simulator.start(t, "fcm", "--project", PROJECT);
  const account = JSON.parse(simulator.file("service-account.json"));
  const client = new auth.JWT({
    email: account.client_email, key: account.private_key, keyId: account.private_key_id, scopes: [SCOPE],
  });
  // Google's addresses are those of the simulator here; nothing else is changed.
  client.transporter = { request: (wanted) => viaSimulator(simulator, wanted) };
  const messages = fcm({ version: "v1", auth: client, rootUrl: `${simulator.origin}/` }).projects.messages;
  const parent = `projects/${PROJECT}`;
  const send = (message, more = {}) => messages.send({ parent, requestBody: { message, ...more } });

  const token = freshToken();
  const android = { notification: { tag: "match-1" } };
  const message = { token, notification: { title: "Goal!", body: "1 : 0" }, android };
  const { data } = await send(message);
  assert.match(data.name, new RegExp(`^projects/${PROJECT}/messages/`));
  const route = (kind) => `${kind}/${encodeURIComponent(token).replaceAll("%3A", ":")}`;
  const entries = await simulator.control("GET", route("ledger"));
  assert.deepEqual(entries.map(({ title, count }) => [title, count]), [["Goal!", 1]]);
  await send({ ...message, notification: { title: "No goal", body: "0 : 0" } });
  const shown = await simulator.control("GET", route("shown"));
  assert.deepEqual(shown.map(({ title }) => title), ["No goal"]);
  await send(message, { validateOnly: true });
  assert.equal((await simulator.control("GET", "ledger")).accepted, 2);

  const refused = async (expected, sent, more) => {
    const error = await send(sent, more).then(() => undefined, ({ response }) => response);
    assert.deepEqual([error?.status, error?.data.error.status], expected, JSON.stringify(error?.data));
  };
  await refused([400, "INVALID_ARGUMENT"], { ...message, unknown: 1 });
  await refused([400, "INVALID_ARGUMENT"], { ...message, topic: "news" });
  await refused([400, "INVALID_ARGUMENT"], { ...message, data: { count: 1 } });
  await refused([400, "INVALID_ARGUMENT"], { ...message, token: "no token" });
  await simulator.faults({ gone_share: 1 });
  await refused([404, "NOT_FOUND"], message);
  await simulator.faults({ rejection_probability: 1, rejection_reasons: ["QUOTA_EXCEEDED"] });
  await refused([429, "RESOURCE_EXHAUSTED"], message);
});
