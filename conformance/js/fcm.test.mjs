// Our side of Firebase Cloud Messaging. The provider is Node's own (nghttp2); it has our assertions verified by `jose`
// and our messages by the types that Google publishes (npm `@googleapis/fcm`), of which TypeScript is the judge: an
// unknown name or a value of another kind is an error there. Google's client, unmodified, judges our simulator.

import assert from "node:assert/strict";
import { generateKeyPairSync, randomUUID } from "node:crypto";
import { writeFileSync } from "node:fs";
import http2 from "node:http2";
import path from "node:path";
import { test } from "node:test";
import { fileURLToPath } from "node:url";

import { auth, fcm } from "@googleapis/fcm";
import { jwtVerify } from "jose";
import typescript from "typescript";

import { Credentials } from "../apns/harness.mjs";
import { until } from "../server.mjs";
import { Simulator, follow, start } from "./provider.mjs";

const options = { timeout: 120_000 };
const APP = "com.example.app";
const PROJECT = "judge-1";
const SUBJECT = "match:1";
const SCOPE = "https://www.googleapis.com/auth/firebase.messaging";
const ERROR = "type.googleapis.com/google.firebase.fcm.v1.FcmError";

/** A Firebase project with its token endpoint. `script(message)`: `{status, headers, error}`, else all is well. */
class Firebase {
  static async start(t, script = () => ({})) {
    const firebase = new Firebase();
    const credentials = Credentials.make(t);
    const { publicKey, privateKey } = generateKeyPairSync("rsa", { modulusLength: 2048 });
    const { cert, key } = credentials.server();
    const server = http2.createSecureServer({ cert, key, allowHTTP1: true });
    Object.assign(firebase, { script, publicKey, credentials });
    Object.assign(firebase, { assertions: [], bodies: [], faults: [], issued: new Set() });
    server.on("request", (request, response) => firebase.#on(request, response));
    server.listen(0, "127.0.0.1");
    await new Promise((resolve) => server.once("listening", resolve));
    t.after(() => server.close());
    firebase.port = server.address().port;
    firebase.account = {
      type: "service_account",
      project_id: PROJECT,
      private_key_id: "k".repeat(40),
      private_key: privateKey.export({ type: "pkcs8", format: "pem" }),
      client_email: `judge@${PROJECT}.iam.gserviceaccount.com`,
      token_uri: `https://localhost:${firebase.port}/token`,
    };
    firebase.accountFile = path.join(credentials.folder, "account.json");
    writeFileSync(firebase.accountFile, JSON.stringify(firebase.account));
    return firebase;
  }

  get section() {
    return `[fcm.judge]
host = "localhost"
port = ${this.port}
service_account_file = ${JSON.stringify(this.accountFile)}
ca_file = ${JSON.stringify(this.credentials.caFile)}
apps = ["${APP}"]
`;
  }

  async #on(request, response) {
    let text = "";
    for await (const piece of request.setEncoding("utf8")) {
      text += piece;
    }
    const answer = (status, body, headers = {}) => {
      response.writeHead(status, { "content-type": "application/json", ...headers });
      response.end(JSON.stringify(body));
    };
    try {
      assert.equal(request.method, "POST");
      if (request.url === "/token") {
        answer(200, await this.#token(request, text));
      } else {
        const { status = 200, headers, error, name } = this.#message(request, text);
        answer(status, status === 200 ? { name } : { error: { code: status, ...error } }, headers);
      }
    } catch (error) {
      this.faults.push(error);
      answer(400, { error: { code: 400, message: error.message, status: "INVALID_ARGUMENT" } });
    }
  }

  async #token(request, text) {
    assert.equal(request.headers["content-type"], "application/x-www-form-urlencoded");
    const form = new URLSearchParams(text);
    assert.equal(form.get("grant_type"), "urn:ietf:params:oauth:grant-type:jwt-bearer");
    const { payload, protectedHeader } = await jwtVerify(form.get("assertion"), this.publicKey, {
      algorithms: ["RS256"],
      typ: "JWT",
      issuer: this.account.client_email,
      audience: this.account.token_uri,
      requiredClaims: ["iat", "exp", "scope"],
      maxTokenAge: "1m",
    });
    assert.equal(protectedHeader.kid, this.account.private_key_id);
    assert.ok(payload.scope.split(" ").includes(SCOPE), payload.scope);
    assert.ok(payload.exp - payload.iat <= 3600, `${payload.exp - payload.iat} s`);
    this.assertions.push(payload);
    const token = `ya29.${randomUUID()}`;
    this.issued.add(token);
    return { access_token: token, expires_in: 3600, token_type: "Bearer" };
  }

  #message(request, text) {
    assert.equal(request.url, `/v1/projects/${PROJECT}/messages:send`);
    assert.match(request.headers["content-type"], /^application\/json\b/);
    const token = /^Bearer (\S+)$/.exec(request.headers.authorization)?.[1];
    if (!this.issued.has(token)) {
      return { status: 401, error: { message: "no token of ours", status: "UNAUTHENTICATED" } };
    }
    const body = JSON.parse(text);
    this.bodies.push(body);
    return { name: `projects/${PROJECT}/messages/${this.bodies.length}`, ...this.script(body.message) };
  }

  /** Nobody did anything that the protocol does not allow. */
  check() {
    assert.deepEqual(this.faults, []);
    assert.deepEqual(complaints(this.bodies), []);
  }
}

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

const phone = (token) => ({ platform: "android", token, app: APP });
/** A token in the form of Google's. */
const freshToken = () => `${randomUUID().slice(0, 22)}:APA91b${randomUUID().replaceAll("-", "")}`;

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
    { params: { team: "\"Curaçao\"", text: "‏🏴󠁧󠁢󠁷󠁬󠁳󠁿".repeat(12) } },
  ];
  for (const kind of kinds) {
    const [id] = await gateway.push(SUBJECT, 1, kind);
    assert.deepEqual(await gateway.outcomes(id), { accepted: tokens.length }, JSON.stringify(kind));
  }
  assert.equal(firebase.bodies.length, kinds.length * tokens.length);
  assert.deepEqual(new Set(firebase.bodies.map(({ message }) => message.token)), new Set(tokens));
  assert.equal(firebase.assertions.length, 1, "one access token serves all");
  firebase.check();
});

test("a dry run is validated by Google and shown to nobody", options, async (t) => {
  const firebase = await Firebase.start(t);
  const gateway = await start(t, firebase.section);
  await follow(gateway, SUBJECT, "phone", phone(freshToken()));
  const [id] = await gateway.push(SUBJECT, 1, { dry_run: true });
  assert.deepEqual(await gateway.outcomes(id), { accepted: 1 });
  assert.deepEqual(firebase.bodies.map(({ validate_only }) => validate_only), [true]);
  firebase.check();
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
  firebase.check();
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
  firebase.check();
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
  firebase.check();
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
