// The gateway against Pushy's validating mock of APNs (Java): its view of our token, headers, payload and stream count,
// and what the server makes of every reason the mock can reject with.

import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { after, before, describe, test } from "node:test";

import { SUITE, until } from "../server.mjs";
import { APP, Credentials, Gateway, KEY_ID, TEAM_ID, freshToken } from "./harness.mjs";
import { Tool, java } from "../tool.mjs";

const options = { timeout: 60_000 };

/** The mock with what it saw, and a way to tell it about tokens. */
class Mock {
  static async start(t, credentials, streams = 100, app = APP) {
    const mock = new Mock();
    const { certFile, keyFile } = credentials.server();
    const words = [certFile, keyFile, credentials.publicKeyFile, KEY_ID, TEAM_ID, app, String(streams), credentials.caFile];
    mock.tool = await Tool.start(t, java("Mock", words));
    return mock;
  }

  get port() {
    return this.tool.hello.port;
  }

  /** The mock's spelling of the reasons: `BAD_DEVICE_TOKEN`. */
  get reasons() {
    return this.tool.hello.reasons;
  }

  /** A token of the app, which is rejected like this at first, or no longer valid since `gone`. */
  async token({ rejections = [], gone } = {}) {
    const token = freshToken();
    await this.know(token, { rejections, gone });
    return token;
  }

  async know(token, script = {}) {
    const { error } = await this.tool.ask({ token, rejections: [], ...script });
    assert.equal(error, undefined);
  }

  /**
   * The requests for a token, in the order they came, once there are so many. The mock tells of a request when it has
   * answered it, so the server may be the first to tell.
   */
  async saw(token, count) {
    await until(`${count} requests`, () => this.seen(token).length >= count);
    return this.seen(token);
  }

  /** All requests of tokens, each of which has one at least. */
  async sawAll(tokens) {
    return (await Promise.all(tokens.map((token) => this.saw(token, 1)))).flat();
  }

  /** Those that it has told of so far. */
  seen(token) {
    return this.tool.lines.filter((line) => line.token === token).sort((one, other) => one.order - other.order);
  }
}

/** The mock and a server that pushes to it. */
async function stage(t, { streams, ...apns } = {}) {
  const credentials = Credentials.make(t);
  const mock = await Mock.start(t, credentials, streams);
  const gateway = await Gateway.start(t, credentials, mock.port, apns);
  return { credentials, mock, gateway };
}

/** Apple's spelling of the mock's: `BadDeviceToken`. */
const apples = (reason) => reason.toLowerCase().replace(/(^|_)(.)/g, (_, gap, letter) => letter.toUpperCase());

/** What the mock answered, request by request. */
const answers = (seen) => seen.map(({ answer }) => answer);

/** The claims of a JWT, checked to be of base64url without padding. */
function parts(token) {
  const [header, claims, signature, ...rest] = token.split(".");
  assert.ok([header, claims, signature].every((part) => /^[\w-]+$/.test(part)) && rest.length === 0, token);
  const json = (part) => JSON.parse(Buffer.from(part, "base64url").toString());
  return { header: json(header), claims: json(claims), signature: Buffer.from(signature, "base64url") };
}

/** What must become of a notification rejected so; from Apple's table. Each list in the mock's spelling. */
const FATES = {
  // Refused for good; the device keeps its token.
  refused: `BAD_COLLAPSE_ID BAD_EXPIRATION_DATE BAD_MESSAGE_ID BAD_PRIORITY BAD_TOPIC DEVICE_TOKEN_NOT_FOR_TOPIC
    DUPLICATE_HEADERS INVALID_PUSH_TYPE MISSING_DEVICE_TOKEN MISSING_TOPIC PAYLOAD_EMPTY TOPIC_DISALLOWED BAD_PATH
    METHOD_NOT_ALLOWED PAYLOAD_TOO_LARGE`,
  // Refused for good; the token is forgotten.
  gone: `BAD_DEVICE_TOKEN UNREGISTERED`,
  // Sent again on the same connection.
  repeated: `INTERNAL_SERVER_ERROR SERVICE_UNAVAILABLE TOO_MANY_REQUESTS`,
  // Sent again on another connection.
  moved: `IDLE_TIMEOUT SHUTDOWN TOO_MANY_PROVIDER_TOKEN_UPDATES`,
  // The credential is not taken: sent again on another connection, slowly, and the operator is told.
  credential: `BAD_CERTIFICATE BAD_CERTIFICATE_ENVIRONMENT EXPIRED_PROVIDER_TOKEN FORBIDDEN INVALID_PROVIDER_TOKEN
    MISSING_PROVIDER_TOKEN`,
};
const reasonsOf = (fate) => FATES[fate].split(/\s+/);

describe("Pushy's mock", SUITE, () => {
  let credentials, mock, gateway, cleanUp;
  before(async () => {
    const stops = [];
    cleanUp = () => stops.reverse().reduce((done, stop) => done.then(stop), Promise.resolve());
    ({ credentials, mock, gateway } = await stage({ after: (stop) => stops.push(stop) }));
  });
  after(() => cleanUp());

  /** One device with this token, and one event for it; what became of that. */
  async function push(token, more) {
    const subject = `match:${token}`;
    await gateway.follow(subject, [token]);
    const [id] = await gateway.push(subject, 1, more);
    return gateway.outcomes(id);
  }

  test("takes token, headers and payload as they are", async () => {
    const token = await mock.token();
    const data = { score: [1, 0], text: "Jäätelö 🎉" };
    const from = Math.floor(Date.now() / 1000);
    assert.deepEqual(await push(token, { ttl: "600s", collapse_key: "match-7", data }), { accepted: 1 });
    const [request, ...rest] = await mock.saw(token, 1);
    assert.deepEqual([request.answer, rest.length], ["accepted", 0]);
    const { headers } = request;
    assert.equal(headers[":method"], "POST");
    assert.equal(headers[":path"], `/3/device/${token}`);
    assert.equal(headers["apns-topic"], APP);
    assert.equal(headers["apns-push-type"], "alert");
    assert.equal(headers["apns-priority"], "10");
    assert.equal(headers["apns-collapse-id"], "match-7");
    assert.match(headers["apns-id"], /^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$/);
    const life = Number(headers["apns-expiration"]) - from;
    assert.ok(life >= 599 && life <= 615, `expires ${life} s after its acceptance`);
    const payload = JSON.parse(request.payload);
    assert.deepEqual(payload.aps.alert, { title: "Goal for Sweden!", body: "1 : 0" });
    assert.deepEqual(payload.data, data);
    const [scheme, jwt] = headers.authorization.split(" ");
    assert.equal(scheme, "bearer");
    const { header, claims, signature } = parts(jwt);
    assert.deepEqual(header, { alg: "ES256", kid: KEY_ID });
    assert.deepEqual(Object.keys(claims).sort(), ["iat", "iss"]);
    assert.equal(claims.iss, TEAM_ID);
    assert.equal(signature.length, 64, "R and S as they are, not DER");
  });

  // Not `very_low`: the mock takes Apple's priority 1 for a bad one. The simulator judges it (crates/gateway, push_types).
  for (const [urgency, priority] of Object.entries({ high: "10", normal: "5", low: "5" })) {
    test(`takes urgency ${urgency} as priority ${priority}`, async () => {
      const token = await mock.token();
      assert.deepEqual(await push(token, { urgency }), { accepted: 1 });
      assert.equal((await mock.saw(token, 1))[0].headers["apns-priority"], priority);
    });
  }

  test("takes the largest payload the server lets through", async () => {
    const token = await mock.token();
    const subject = `match:${token}`;
    await gateway.follow(subject, [token]);
    const refusal = async (length) => {
      const refused = gateway.push(subject, 1, { data: { filling: "x".repeat(length) } });
      return refused.then(() => "", (error) => error.message);
    };
    const [, bytes] = /would have (\d+) bytes, limit 4096/.exec(await refusal(4096));
    const largest = 4096 - (bytes - 4096);
    assert.match(await refusal(largest + 1), /would have 4097 bytes, limit 4096/);
    assert.equal(await refusal(largest), "");
    await until("it was taken", () => mock.seen(token).length === 1);
    const [request] = mock.seen(token);
    const taken = Buffer.byteLength(request.payload);
    assert.equal(request.answer, "accepted");
    // The server counts with the longest offset a channel may come to, of 20 digits.
    assert.ok(taken > 4096 - 20 && taken <= 4096, `${taken} bytes`);
  });

  test("rejects with reasons that all have a fate", () => {
    const known = Object.keys(FATES).flatMap(reasonsOf);
    assert.deepEqual([...mock.reasons].sort(), known.sort());
  });

  for (const reason of reasonsOf("refused")) {
    test(`${apples(reason)} is final, and the token stays`, async () => {
      const token = await mock.token({ rejections: [reason] });
      assert.deepEqual(await push(token), { rejected: { [apples(reason)]: 1 } });
      assert.deepEqual(answers(await mock.saw(token, 1)), [reason]);
      assert.ok(await gateway.hasToken(token));
    });
  }

  for (const reason of reasonsOf("gone")) {
    test(`${apples(reason)} is final, and the token is forgotten`, async () => {
      const token = await mock.token({ rejections: [reason] });
      assert.deepEqual(await push(token), { rejected: { [apples(reason)]: 1 } });
      await until("the token is forgotten", async () => !(await gateway.hasToken(token)));
      assert.deepEqual(answers(await mock.saw(token, 1)), [reason]);
    });
  }

  test("410 with a moment after the registration: the token is forgotten", async () => {
    const token = freshToken();
    await gateway.follow(`match:${token}`, [token]);
    await mock.know(token, { gone: Date.now() });
    const [id] = await gateway.push(`match:${token}`);
    assert.deepEqual(await gateway.outcomes(id), { rejected: { Unregistered: 1 } });
    await until("the token is forgotten", async () => !(await gateway.hasToken(token)));
  });

  test("410 with a moment before the registration: the app was installed again, the token stays", async () => {
    const token = await mock.token({ gone: Date.now() - 3_600_000 });
    assert.deepEqual(await push(token), { rejected: { Unregistered: 1 } });
    // Another one that is forgotten shows that the time for it has come.
    const other = await mock.token({ rejections: ["BAD_DEVICE_TOKEN"] });
    await push(other);
    await until("the other is forgotten", async () => !(await gateway.hasToken(other)));
    assert.ok(await gateway.hasToken(token));
  });

  test("a token of other length is BadDeviceToken by the mock's own check, and forgotten", async () => {
    const token = freshToken(20);
    assert.deepEqual(await push(token), { rejected: { BadDeviceToken: 1 } });
    await until("the token is forgotten", async () => !(await gateway.hasToken(token)));
  });

  test("a token of another app is DeviceTokenNotForTopic by the mock's own check, and stays", async () => {
    const token = freshToken();
    assert.deepEqual(await push(token), { rejected: { DeviceTokenNotForTopic: 1 } });
    assert.ok(await gateway.hasToken(token));
  });

  for (const reason of [...reasonsOf("repeated"), ...reasonsOf("moved")]) {
    test(`${apples(reason)} is repeated with the same id`, async () => {
      const token = await mock.token({ rejections: [reason, reason] });
      const opened = await gateway.count("connections_opened_total");
      assert.deepEqual(await push(token), { accepted: 1 });
      const seen = await mock.saw(token, 3);
      assert.deepEqual(answers(seen), [reason, reason, "accepted"]);
      for (const name of ["apns-id", "apns-collapse-id", "apns-expiration", ":path"]) {
        assert.equal(new Set(seen.map(({ headers }) => headers[name])).size, 1, `${name} stays`);
      }
      assert.equal(new Set(seen.map(({ payload }) => payload)).size, 1, "the payload stays");
      const moves = (await gateway.count("connections_opened_total")) - opened;
      assert.equal(moves, reasonsOf("moved").includes(reason) ? 2 : 0, "connections made");
    });
  }

  test("what would be repeated after its expiry is not", async () => {
    const token = await mock.token({ rejections: Array(20).fill("INTERNAL_SERVER_ERROR") });
    assert.deepEqual(await push(token, { ttl: "1s" }), { expired: 1 });
    assert.ok(mock.seen(token).length < 20);
    assert.ok(answers(mock.seen(token)).every((answer) => answer === "INTERNAL_SERVER_ERROR"));
  });

  // Each with a server of its own: a refused credential makes it slow.
  for (const reason of reasonsOf("credential")) {
    test(`${apples(reason)}: another connection is tried, nothing is lost, the operator is told`, async (t) => {
      const server = await Gateway.start(t, credentials, mock.port);
      const token = await mock.token({ rejections: [reason] });
      await server.follow("match:1", [token]);
      const [id] = await server.push("match:1");
      assert.deepEqual(await server.outcomes(id), { accepted: 1 });
      const seen = await mock.saw(token, 2);
      assert.deepEqual(answers(seen), [reason, "accepted"]);
      assert.equal(seen[0].headers["apns-id"], seen[1].headers["apns-id"]);
      assert.equal(await server.count("connections_opened_total"), 2);
      assert.match(server.log, new RegExp(`refuses the credential.*${apples(reason)}`));
    });
  }

  test("a key the mock does not know: nothing is taken, and all is once the key is right", async (t) => {
    const server = await Gateway.start(t, credentials, mock.port, { keyFile: Credentials.make(t).keyFile });
    const tokens = await Promise.all(Array.from({ length: 20 }, () => mock.token()));
    await server.follow("match:1", tokens);
    const [id] = await server.push("match:1");
    await until("the operator is told", () => /refuses the credential.*InvalidProviderToken/.test(server.log));
    const refused = tokens.flatMap((token) => answers(mock.seen(token)));
    assert.ok(refused.length < tokens.length, `${refused.length} requests with a refused credential`);
    assert.ok(refused.every((answer) => answer === "INVALID_PROVIDER_TOKEN"));
    await server.kill("SIGKILL");
    server.configure(credentials, mock.port);
    await server.run();
    assert.deepEqual(await server.outcomes(id), { accepted: tokens.length });
    const isTaken = (token) => answers(mock.seen(token)).at(-1) === "accepted";
    await until("all are taken", () => tokens.every(isTaken));
  });
});

describe("Pushy's mock, to which we show a certificate", SUITE, () => {
  /** A mock, and a server whose certificate is what `certify` makes. */
  async function certified(t, certify = (credentials) => credentials.client()) {
    const credentials = Credentials.make(t);
    const mock = await Mock.start(t, credentials);
    const certificate = certify(credentials);
    const gateway = await Gateway.start(t, credentials, mock.port, { certificate });
    const tokens = await Promise.all(Array.from({ length: 20 }, () => mock.token()));
    await gateway.follow("match:1", tokens);
    return { credentials, certificate, mock, gateway, tokens };
  }

  test("it is taken for its topic, and nothing else is said of who we are", async (t) => {
    const { mock, gateway, tokens } = await certified(t);
    const [id] = await gateway.push("match:1");
    assert.deepEqual(await gateway.outcomes(id), { accepted: tokens.length });
    for (const { headers, answer, payload } of await mock.sawAll(tokens)) {
      assert.equal(answer, "accepted");
      assert.equal(headers.authorization, undefined);
      assert.equal(headers["apns-topic"], APP);
      assert.equal(headers["apns-push-type"], "alert");
      assert.equal(JSON.parse(payload).aps.alert.title, "Goal for Sweden!");
    }
  });

  for (const reason of ["BAD_CERTIFICATE", "BAD_CERTIFICATE_ENVIRONMENT"]) {
    test(`${apples(reason)}: another connection is tried, nothing is lost, the operator is told`, async (t) => {
      const { mock, gateway } = await certified(t);
      const token = await mock.token({ rejections: [reason] });
      await gateway.follow("match:2", [token]);
      const [id] = await gateway.push("match:2");
      assert.deepEqual(await gateway.outcomes(id), { accepted: 1 });
      assert.deepEqual(answers(await mock.saw(token, 2)), [reason, "accepted"]);
      assert.match(gateway.log, new RegExp(`refuses the credential.*${apples(reason)}`));
    });
  }

  test("another app's is refused by us already, with both names", async (t) => {
    const wrong = certified(t, (credentials) => credentials.client("com.example.other"));
    await assert.rejects(wrong, (error) => /com\.example\.other/.test(error.message) && error.message.includes(APP));
  });

  test("one of a strange authority: nothing is taken, and all is after SIGHUP with the right one", async (t) => {
    const strange = () => Credentials.make(t, "stranger").client();
    const { credentials, certificate, mock, gateway, tokens } = await certified(t, strange);
    const [id] = await gateway.push("match:1");
    await until("the operator is told", () => /refuses the credential.*CertificateUnknown/.test(gateway.log));
    assert.deepEqual(tokens.flatMap((token) => mock.seen(token)), []);
    const { cert, key } = credentials.client();
    gateway.replace([certificate.certFile, cert], [certificate.keyFile, key]);
    assert.deepEqual(await gateway.outcomes(id), { accepted: tokens.length });
    assert.equal((await mock.sawAll(tokens)).length, tokens.length, "each once");
  });
});

test("a key the mock does not know: all is taken after SIGHUP with the right one", options, async (t) => {
  const { keyFile } = Credentials.make(t);
  const { credentials, mock, gateway } = await stage(t, { keyFile });
  const tokens = await Promise.all(Array.from({ length: 20 }, () => mock.token()));
  await gateway.follow("match:1", tokens);
  const [id] = await gateway.push("match:1");
  await until("the operator is told", () => /refuses the credential.*InvalidProviderToken/.test(gateway.log));
  gateway.replace([keyFile, readFileSync(credentials.keyFile)]);
  assert.deepEqual(await gateway.outcomes(id), { accepted: tokens.length });
  const isTaken = (token) => answers(mock.seen(token)).at(-1) === "accepted";
  await until("all are taken", () => tokens.every(isTaken));
});

test("a token for calls is taken under its own topic only", options, async (t) => {
  const credentials = Credentials.make(t);
  const app = `${APP}.voip`;
  const mock = await Mock.start(t, credentials, 100, app);
  const gateway = await Gateway.start(t, credentials, mock.port, { app });
  const tokens = [await mock.token(), await mock.token()];
  await gateway.follow("match:1", tokens, { app });
  const [id] = await gateway.push("match:1", 1, { urgency: "low" });
  assert.deepEqual(await gateway.outcomes(id), { accepted: tokens.length });
  for (const { headers } of await mock.sawAll(tokens)) {
    assert.equal(headers["apns-topic"], app);
    assert.equal(headers["apns-push-type"], "voip");
    assert.equal(headers["apns-priority"], "10");
  }
});

test("a stream limit of 7 is kept under load", options, async (t) => {
  const { mock, gateway } = await stage(t, { streams: 7, connections: 2 });
  const tokens = await Promise.all(Array.from({ length: 100 }, () => mock.token()));
  await gateway.follow("match:1", tokens);
  await gateway.push("match:1", 10);
  await gateway.settled(1000);
  assert.equal(await gateway.outcome("accepted"), 1000);
  assert.equal(await gateway.count("repeats_total"), 0, "the mock has refused no stream");
  const saw = await Promise.all(tokens.map((token) => mock.saw(token, 10)));
  assert.ok(saw.every((seen) => seen.length === 10));
});
