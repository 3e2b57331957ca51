// What Google, Apple and the push services of browsers have been seen to do to those who send, or may: nothing is lost,
// each notification has one outcome, the rules are kept meanwhile. How long each takes to recover is printed, not
// judged. The providers are Node's own; what was sent to browsers is opened by `http_ece`. Of Apple there is only what
// becomes of provider tokens; all else is in `../apns/peer.test.mjs`.

import assert from "node:assert/strict";
import { createECDH, randomBytes } from "node:crypto";
import { readFileSync, writeFileSync } from "node:fs";
import https from "node:https";
import path from "node:path";
import { describe, test } from "node:test";

import ece from "http_ece";
import webPush from "web-push";

import { Credentials, Gateway, freshToken as appleToken } from "../apns/harness.mjs";
import { Peer } from "../apns/peer.mjs";
import { Wire, until } from "../server.mjs";
import { Firebase, freshToken, phone, refusal } from "./firebase.mjs";
import { follow, start } from "./provider.mjs";

const options = { timeout: 120_000 };
const SUBJECT = "match:1";
const DEVICES = 40;
/** Scenes at a time: most of them wait most of the time. */
const CONCURRENT_COUNT = 4;
/** An access token that is refused is replaced from this age on. */
const TOKEN_AGE_MIN_MS = 61_000;
const DROP_BYTES = 8;
const DROP_MS = 20;
/** Connections to Google that are open when a server has started: the default of `fcm.*.connection_count`. */
const CONNECTION_COUNT = 8;
/** Of the second that a provider asks to wait: what clocks may differ. */
const SECOND_MS = 990;

/** An answer in drops. */
async function drip(response, status, headers, text) {
  response.writeHead(status, headers);
  for (let at = 0; at < text.length; at += DROP_BYTES) {
    response.write(text.slice(at, at + DROP_BYTES));
    await new Promise((resolve) => setTimeout(resolve, DROP_MS));
  }
  response.end();
}

/** The moments at which each device's notification was tried, and how often it was taken. */
class Book {
  tried = new Map();
  taken = new Map();
  /** When what is wrong had begun and when all is well again; the last is taken after that. */
  began = performance.now();

  try(device) {
    const moments = this.tried.get(device) ?? [];
    this.tried.set(device, [...moments, performance.now()]);
    return moments.length;
  }

  take(device) {
    this.taken.set(device, (this.taken.get(device) ?? 0) + 1);
    this.lastAt = performance.now();
  }

  /** All were taken, and each `times` times at most. */
  check(t, count, times = 1) {
    assert.equal(this.taken.size, count, "nothing is lost");
    const repeated = [...this.taken.values()].filter((taken) => taken > 1).length;
    assert.ok([...this.taken.values()].every((taken) => taken <= times), `${repeated} came oftener than they may`);
    const took = Math.round(this.lastAt - this.began);
    t.diagnostic(`${count} taken ${took} ms after the trouble began, ${repeated} of them twice`);
  }

  /** Every device's second attempt came a second after the first at the earliest. */
  waited(device) {
    const [first, second, ...more] = this.tried.get(device);
    assert.deepEqual(more, []);
    assert.ok(second - first >= SECOND_MS, `repeated after ${second - first} ms`);
  }
}

/**
 * Google by this script, and a server whose phones all want to be told. `reply(token, before, access)`:
 * the phone, how often it was tried before, and the access token.
 */
async function google(t, reply, { grant, wired = false } = {}) {
  const book = new Book();
  const script = ({ token }, access) => {
    const answer = reply(token, book.try(token), access);
    if ((answer.status ?? 200) === 200) {
      book.take(token);
    }
    return answer;
  };
  const firebase = await Firebase.start(t, script, grant);
  const wire = wired ? await Wire.to(t, firebase) : undefined;
  const gateway = await start(t, firebase.sectionOn((wire ?? firebase).port));
  const tokens = Array.from({ length: DEVICES }, freshToken);
  await Promise.all(tokens.map((token, index) => follow(gateway, SUBJECT, `phone-${index}`, phone(token))));
  book.began = performance.now();
  return { book, firebase, wire, gateway, tokens };
}

/** One event, which all get. */
async function allGet({ gateway }, more) {
  const [id] = await gateway.push(SUBJECT, 1, more);
  assert.deepEqual(await gateway.outcomes(id), { accepted: DEVICES });
}

describe("Google", { concurrency: CONCURRENT_COUNT }, () => {
  // First, as it takes as long as all others together.
  test("an access token that is taken back is replaced by one", { timeout: 180_000 }, async (t) => {
    const scene = await google(t, () => ({}));
    await allGet(scene);
    const { issued, assertions } = scene.firebase;
    // One that is younger is not replaced: another would be refused as well.
    const isOld = () => performance.now() - [...issued.values()][0] >= TOKEN_AGE_MIN_MS;
    await until("the token is old enough to be replaced", isOld, 2 * TOKEN_AGE_MIN_MS);
    assert.equal(assertions.length, 1);
    issued.clear();
    scene.book.began = performance.now();
    await allGet(scene);
    assert.equal(assertions.length, 2, "one other for all");
    scene.book.check(t, DEVICES, 2);
    scene.firebase.check();
  });

  for (const [status, code] of [[503, "UNAVAILABLE"], [500, "INTERNAL"]]) {
    test(`${status} with Retry-After is waited for`, options, async (t) => {
      const refused = refusal(status, code, { "retry-after": "1" });
      const scene = await google(t, (_token, before) => (before === 0 ? refused : {}));
      await allGet(scene);
      scene.tokens.forEach((token) => scene.book.waited(token));
      scene.book.check(t, DEVICES);
      scene.firebase.check();
    });
  }

  test("429 with Retry-After stops the whole project", options, async (t) => {
    let paused;
    const refused = refusal(429, "QUOTA_EXCEEDED", { "retry-after": "1" });
    const scene = await google(t, () => {
      if (paused === undefined) {
        paused = performance.now();
        return refused;
      }
      return {};
    });
    // One that finds out; what comes behind it waits with it.
    const [first] = await scene.gateway.push(SUBJECT, 1, { to: { devices: ["phone-0"] } });
    await until("the project is stopped", () => paused !== undefined);
    await until("the server knows", async () => (await scene.gateway.count("pauses_total")) > 0);
    const since = performance.now();
    await allGet(scene);
    assert.deepEqual(await scene.gateway.outcomes(first), { accepted: 1 });
    const others = [...scene.book.tried.values()].flat().filter((at) => at > since);
    assert.ok(Math.min(...others) - paused >= SECOND_MS, `asked again after ${Math.min(...others) - paused} ms`);
    scene.book.check(t, DEVICES, 2); // The first phone was told twice, of two events.
    scene.firebase.check();
  });

  test("answers that come in drops are read to their end", options, async (t) => {
    const slow = { write: drip };
    const slowly = { ...refusal(503, "UNAVAILABLE", { "retry-after": "1" }), ...slow };
    const scene = await google(t, (token, before) => (token < "8" || before > 0 ? slow : slowly));
    await allGet(scene);
    scene.tokens.filter((token) => token >= "8").forEach((token) => scene.book.waited(token));
    scene.book.check(t, DEVICES);
    scene.firebase.check();
  });

  test("an answer of another length than it says costs nothing", options, async (t) => {
    const wrong = { headers: { "content-length": "7" } };
    const scene = await google(t, (_token, before) => (before === 0 ? wrong : {}));
    await allGet(scene);
    // It was taken, and the status alone may be believed or not.
    scene.book.check(t, DEVICES, 2);
    scene.firebase.check();
  });

  for (const [what, trouble] of [
    ["half of a connection is closed", (wire) => wire.halve()],
    ["a connection is cut", (wire) => wire.cut()],
  ]) {
    test(`${what} while answers are owed`, options, async (t) => {
      const owed = [];
      let isOwing = true;
      const owing = { write: (response) => owed.push(response) };
      const scene = await google(t, () => (isOwing ? owing : {}), { wired: true });
      const [id] = await scene.gateway.push(SUBJECT);
      await until("some answers are owed", () => owed.length >= DEVICES / 2);
      isOwing = false;
      scene.book.began = performance.now();
      trouble(scene.wire);
      assert.deepEqual(await scene.gateway.outcomes(id), { accepted: DEVICES });
      // A repeat may go out on another connection whose end the gateway has not read yet: then its answer is lost as well.
      scene.book.check(t, DEVICES, 1 + CONNECTION_COUNT);
      assert.ok((await scene.gateway.count("connections_opened_total")) >= 2);
      scene.firebase.check();
    });
  }

  test("an access token is replaced before its end and never used after it", options, async (t) => {
    const LIFE_S = 2;
    let late = 0;
    const scene = await google(t, (_token, _before, access) => {
      const age = performance.now() - scene.firebase.issued.get(access);
      late += age > (LIFE_S + 1) * 1000 ? 1 : 0;
      return {};
    }, { grant: () => ({ life: LIFE_S }) });
    let rounds = 0;
    while (scene.firebase.issued.size < 3) {
      await allGet(scene);
      rounds += 1;
    }
    assert.equal(late, 0, "a token is used after its end");
    scene.book.check(t, DEVICES, rounds);
    t.diagnostic(`${rounds} events with ${scene.firebase.issued.size} access tokens`);
    scene.firebase.check();
  });

  test("without its token endpoint all waits, and goes out when that is back", options, async (t) => {
    let isDown = true;
    const grant = () => (isDown ? { status: 503, error: { status: "UNAVAILABLE" } } : {});
    const scene = await google(t, () => ({}), { grant });
    const [id] = await scene.gateway.push(SUBJECT);
    await until("it is asked twice", () => scene.firebase.assertions.length >= 2);
    assert.equal(scene.book.tried.size, 0, "nothing is sent without a token");
    isDown = false;
    scene.book.began = performance.now();
    assert.deepEqual(await scene.gateway.outcomes(id), { accepted: DEVICES });
    scene.book.check(t, DEVICES);
    scene.firebase.check();
  });
});

const page = ({ endpoint, keys }) => ({
  platform: "web",
  app: "www.example.com",
  web_push: { endpoint, keys: { p256dh: keys.getPublicKey("base64url"), auth: AUTH } },
});
const AUTH = randomBytes(16).toString("base64url");

/**
 * A push service by this script, and a server whose browsers all want to be told. `reply(request, response, before)`
 * answers, and says whether it has taken the message.
 */
async function browsers(t, reply) {
  const book = new Book();
  const credentials = Credentials.make(t);
  const all = Array.from({ length: DEVICES }, () => {
    const keys = createECDH("prime256v1");
    keys.generateKeys();
    return { keys };
  });
  const sockets = new Set();
  const server = https.createServer(credentials.server(), (request, response) => {
    const pieces = [];
    request.on("data", (piece) => pieces.push(piece));
    request.on("end", () => {
      const { keys } = all[Number(request.url.split("/").at(-1))];
      const text = ece.decrypt(Buffer.concat(pieces), { version: "aes128gcm", privateKey: keys, authSecret: AUTH });
      assert.equal(JSON.parse(text).title, "Goal for Sweden!");
      if (reply(request, response, book.try(request.url))) {
        book.take(request.url);
      }
    });
    request.on("error", () => {}); // The client may be gone, and so may its answer's way.
    response.on("error", () => {});
  });
  server.on("secureConnection", (socket) => {
    sockets.add(socket);
    socket.on("error", () => {});
    socket.on("close", () => sockets.delete(socket));
  });
  server.listen(0, "127.0.0.1");
  await new Promise((resolve) => server.once("listening", resolve));
  t.after(() => {
    sockets.forEach((socket) => socket.destroy());
    server.close();
  });
  const { port } = server.address();
  const keyFile = path.join(credentials.folder, "vapid.key");
  writeFileSync(keyFile, webPush.generateVAPIDKeys().privateKey);
  const gateway = await start(t, `[web_push.judge]
vapid_key_file = ${JSON.stringify(keyFile)}
contact = "mailto:judge@example.com"
apps = ["www.example.com"]
allowed_hosts = ["localhost"]
allowed_ports = [${port}]
allow_private = true
ca_file = ${JSON.stringify(credentials.caFile)}
`);
  await Promise.all(all.map((browser, index) => {
    browser.endpoint = `https://localhost:${port}/push/${index}`;
    return follow(gateway, SUBJECT, `page-${index}`, page(browser));
  }));
  book.began = performance.now();
  return { book, gateway };
}

const CREATED = "HTTP/1.1 201 Created\r\n";

const taken = (response) => {
  response.writeHead(201, { location: "/m/1" }).end();
  return true;
};
const refused = (response, status, headers) => {
  response.writeHead(status, headers).end();
  return false;
};

describe("browsers", { concurrency: CONCURRENT_COUNT }, () => {
  test("503 with Retry-After is waited for", options, async (t) => {
    const scene = await browsers(t, (_, response, before) => {
      return before === 0 ? refused(response, 503, { "retry-after": "1" }) : taken(response);
    });
    await allGet(scene);
    [...scene.book.tried.keys()].forEach((url) => scene.book.waited(url));
    scene.book.check(t, DEVICES);
  });

  test("429 with Retry-After stops the whole origin", options, async (t) => {
    let paused;
    const scene = await browsers(t, (_, response) => {
      if (paused !== undefined) {
        return taken(response);
      }
      paused = performance.now();
      return refused(response, 429, { "retry-after": "1" });
    });
    const [first] = await scene.gateway.push(SUBJECT, 1, { to: { devices: ["page-0"] } });
    await until("the origin is stopped", () => paused !== undefined);
    await until("the server knows", async () => (await scene.gateway.count("pauses_total")) > 0);
    const since = performance.now();
    await allGet(scene);
    assert.deepEqual(await scene.gateway.outcomes(first), { accepted: 1 });
    const others = [...scene.book.tried.values()].flat().filter((at) => at > since);
    assert.ok(Math.min(...others) - paused >= SECOND_MS, `asked again after ${Math.min(...others) - paused} ms`);
    scene.book.check(t, DEVICES, 2);
  });

  test("answers that come in drops are read to their end", options, async (t) => {
    const scene = await browsers(t, (_, response) => {
      drip(response, 201, { "content-length": "20" }, "0123456789".repeat(2));
      return true;
    });
    await allGet(scene);
    scene.book.check(t, DEVICES);
  });

  for (const [what, answer] of [
    ["half of a connection is closed instead of an answer", ({ socket }) => socket.end()],
    ["a connection is closed in the middle of an answer's head", ({ socket }) => socket.end(`${CREATED}Loc`)],
    ["an answer is shorter than it says", ({ socket }) => socket.end(`${CREATED}content-length: 100\r\n\r\nshort`)],
    ["an answer is longer than it says", ({ socket }) => socket.write(`${CREATED}content-length: 2\r\n\r\nlonger`)],
  ]) {
    test(`${what}`, options, async (t) => {
      const scene = await browsers(t, (_, response, before) => {
        if (before > 0) {
          return taken(response);
        }
        answer(response);
        return true; // As far as the service knows.
      });
      await allGet(scene);
      scene.book.check(t, DEVICES, 2);
    });
  }

  test("where a fresh signature is refused no subscription is forgotten", options, async (t) => {
    const scene = await browsers(t, (_, response) => refused(response, 403));
    const [id] = await scene.gateway.push(SUBJECT);
    assert.deepEqual(await scene.gateway.outcomes(id), { rejected: { vapid_refused: DEVICES } });
    const tries = [...scene.book.tried.values()].map((moments) => moments.length);
    assert.ok(Math.max(...tries) <= 2, `${Math.max(...tries)} times`);
    const devices = tries.map((_, index) => scene.gateway.ok("GET", `/v1/devices/page-${index}`));
    assert.ok((await Promise.all(devices)).every(({ token }) => token !== undefined));
  });
});

describe("Apple", { concurrency: CONCURRENT_COUNT }, () => {
  /** Apple, which takes a provider token if `isTaken` and refuses it for this reason else, and a server. */
  async function apple(t, reason, isTaken) {
    const credentials = Credentials.make(t);
    let refusals = 0;
    const script = (request) => {
      if (isTaken(request.headers.authorization)) {
        return request.accept();
      }
      refusals += 1;
      return request.reject(403, reason);
    };
    const peer = await Peer.start(t, credentials.server(), { script });
    const keyFile = path.join(credentials.folder, "used.p8");
    writeFileSync(keyFile, readFileSync(credentials.keyFile));
    const gateway = await Gateway.start(t, credentials, peer.port, { keyFile });
    await gateway.follow(SUBJECT, Array.from({ length: DEVICES }, () => appleToken()));
    return { peer, gateway, keyFile, refusals: () => refusals };
  }

  const told = (t, { peer, refusals }, moment) => {
    peer.check(2 * DEVICES);
    t.diagnostic(`next acceptance ${peer.recovery(moment)} ms after all was well, ${refusals()} refusals before`);
  };

  test("a token that it calls expired, and takes again", options, async (t) => {
    let isSkewed = false;
    const scene = await apple(t, "ExpiredProviderToken", () => !isSkewed);
    await allGet(scene);
    isSkewed = true; // A clock at Apple: to sign another one within twenty minutes is forbidden.
    const [id] = await scene.gateway.push(SUBJECT);
    await until("it has refused", () => scene.refusals() > 0);
    await until("the operator is told", () => /refuses the credential.*ExpiredProviderToken/.test(scene.gateway.log));
    isSkewed = false;
    const moment = performance.now();
    assert.deepEqual(await scene.gateway.outcomes(id), { accepted: DEVICES });
    assert.ok(scene.refusals() <= DEVICES, `${scene.refusals()} refusals: it is not hammered`);
    told(t, scene, moment);
  });

  test("a key that it has revoked, until there is another one", options, async (t) => {
    const revoked = new Set();
    const seen = new Set();
    const scene = await apple(t, "InvalidProviderToken", (token) => {
      seen.add(token);
      return !revoked.has(token);
    });
    await allGet(scene);
    seen.forEach((token) => revoked.add(token));
    const [id] = await scene.gateway.push(SUBJECT);
    await until("the operator is told", () => /refuses the credential.*InvalidProviderToken/.test(scene.gateway.log));
    scene.gateway.replace([scene.keyFile, readFileSync(Credentials.make(t).keyFile)]);
    const moment = performance.now();
    assert.deepEqual(await scene.gateway.outcomes(id), { accepted: DEVICES });
    assert.equal(seen.size, 2, "one token for each key");
    told(t, scene, moment);
  });
});
