// The gateway against a provider that changes its mind, by script. In each scenario nothing is lost, nothing is accepted
// twice but what may have been lost on the way, and the stream limit of the last acknowledged SETTINGS is never passed.

import assert from "node:assert/strict";
import { X509Certificate, createPublicKey, verify } from "node:crypto";
import { readFileSync, writeFileSync } from "node:fs";
import http2 from "node:http2";
import path from "node:path";
import { test } from "node:test";

import { Wire, until } from "../server.mjs";
import { Credentials, Gateway, freshToken } from "./harness.mjs";
import { Peer } from "./peer.mjs";

const options = { timeout: 60_000 };
const SUBJECT = "match:1";
const DEVICES = 100;
const EVENTS = 20;
const COUNT = DEVICES * EVENTS;
/** A provider's round trip. */
const DELAY_MS = 15;

const tokens = (count = DEVICES) => Array.from({ length: count }, () => freshToken());

/** What `answer` does, a round trip later. */
const later = (answer = (request) => request.accept()) => (request) => setTimeout(() => answer(request), DELAY_MS);

/** A provider with this script and a server that pushes to it, with devices. */
async function stage(t, { devices = tokens(), wired = false, credentials = Credentials.make(t), ...more } = {}) {
  const { script = later(), limit, arrived, clientsOf, ...apns } = more;
  const peer = await Peer.start(t, credentials.server(), { script, limit, arrived, clientsOf });
  const wire = wired ? await Wire.to(t, peer) : undefined;
  const gateway = await Gateway.start(t, credentials, (wire ?? peer).port, apns);
  await gateway.follow(SUBJECT, devices);
  return { credentials, peer, wire, gateway, devices };
}

/** Everything is accepted, exactly once, and the server knows. */
async function allAccepted({ gateway, peer }, count = COUNT) {
  await gateway.settled(count);
  assert.equal(await gateway.outcome("accepted"), count);
  peer.check(count);
}

const accepted = (peer, count) => until(`${count} are accepted`, () => peer.accepted.size >= count);

test("the stream limit is followed from 1000 to 1 and up again, on one connection", options, async (t) => {
  const scene = await stage(t);
  const { gateway, peer } = scene;
  await gateway.push(SUBJECT, EVENTS);
  await gateway.push(SUBJECT, EVENTS);
  await accepted(peer, 300);
  assert.ok(peer.connection.openMax > 100, `before, the connection is used: ${peer.connection.openMax} streams`);
  await peer.connection.setLimit(1);
  const lowered = peer.accepted.size;
  await until("the streams above the limit have ended", () => peer.connection.open <= 1);
  peer.connection.openMax = 0;
  await accepted(peer, lowered + 10);
  await peer.connection.setLimit(1000);
  const raised = performance.now();
  await until("the connection is used again", () => peer.connection.openMax > 100);
  t.diagnostic(`100 streams open again after ${Math.round(performance.now() - raised)} ms`);
  await allAccepted(scene, 2 * COUNT);
  assert.equal(peer.connections.length, 1);
});

test("one stream until the first accepted token, then as many as are announced", options, async (t) => {
  let opened;
  const script = later(async (request) => {
    const isFirst = !request.connection.proven;
    request.accept();
    if (isFirst) {
      await request.connection.setLimit(1000);
      opened = performance.now();
    }
  });
  const scene = await stage(t, { limit: 1, script });
  await scene.gateway.push(SUBJECT, EVENTS);
  await allAccepted(scene);
  const { connection } = scene.peer;
  assert.ok(connection.openMax > 100, `${connection.openMax} streams`);
  t.diagnostic(`next acceptance ${scene.peer.recovery(opened)} ms after the limit rose`);
});

test("one stream after a rejection, more after the next acceptance", options, async (t) => {
  const bad = new Set(tokens(5));
  let rejected = 0;
  let fall;
  const script = later(async (request) => {
    const { connection } = request;
    if (bad.has(request.token)) {
      request.reject(400, "BadDeviceToken");
      fall = connection.setLimit(1);
      rejected++;
    } else {
      request.accept();
      await fall; // Else this rise would take the place of a fall that is not announced yet.
      connection.setLimit(1000);
    }
  });
  const scene = await stage(t, { script, devices: [...tokens(), ...bad] });
  const { gateway, peer } = scene;
  await gateway.push(SUBJECT, EVENTS);
  await accepted(peer, COUNT);
  for (const device of bad) {
    await until("the bad token is forgotten", async () => !(await gateway.hasToken(device)));
  }
  await until("the server knows", async () => (await gateway.outcome("accepted")) === COUNT);
  peer.check(COUNT);
  assert.equal(peer.connections.length, 1);
  const { settings } = peer.connection;
  assert.ok(settings.includes(1), "the limit did fall");
  t.diagnostic(`${rejected} rejections; acknowledged limits: ${settings.join(", ")}`);
});

test("after GOAWAY with debug data the rest goes to another connection", options, async (t) => {
  const scene = await stage(t);
  const { gateway, peer } = scene;
  await gateway.push(SUBJECT, EVENTS);
  await accepted(peer, 300);
  const first = peer.connection;
  first.goAway("Shutdown");
  const left = performance.now();
  await allAccepted(scene);
  assert.equal(peer.connections.length, 2);
  assert.ok(peer.connections[1].streams > 0);
  t.diagnostic(`next acceptance on the new connection within ${peer.recovery(left)} ms`);
});

test("refused streams are sent again with the same id", options, async (t) => {
  const refused = new Set();
  let turn = 0;
  const script = later((request) => {
    if (turn++ % 10 === 9 && !refused.has(request.id)) {
      refused.add(request.id);
      request.refuse();
    } else {
      request.accept();
    }
  });
  const scene = await stage(t, { script });
  await scene.gateway.push(SUBJECT, EVENTS);
  await allAccepted(scene);
  assert.ok(refused.size > COUNT / 20, `${refused.size} were refused`);
  assert.equal(await scene.gateway.count("repeats_total", `cause="not_processed"`), refused.size);
  assert.ok([...refused].every((id) => scene.peer.accepted.has(id)), "the id stays");
});

test("a window of 64 KiB that opens late holds payloads back and loses nothing", options, async (t) => {
  const held = [];
  let opened = false;
  const arrived = ({ stream }) => {
    if (!opened) {
      stream.pause();
      held.push(stream);
    }
  };
  const scene = await stage(t, { arrived });
  const { gateway, peer } = scene;
  const text = "x".repeat(480);
  // The first request proves the connection; what follows meets a window nobody empties.
  opened = true;
  await gateway.push(SUBJECT, 1);
  await gateway.settled(DEVICES);
  opened = false;
  await gateway.push(SUBJECT, 10, { params: { team: "Sweden", text }, data: { filling: "y".repeat(2500) } });
  await until("the window is full", () => held.length >= 20);
  assert.equal(peer.accepted.size, DEVICES, "nothing is accepted that is not there");
  opened = true;
  const moment = performance.now();
  held.forEach((stream) => stream.resume());
  await allAccepted(scene, 11 * DEVICES);
  const large = [...peer.bodies.values()].filter((body) => body.length > 3000);
  assert.equal(large.length, 10 * DEVICES);
  assert.ok(large.every((body) => JSON.parse(body).aps.alert.body === text), "payloads are whole");
  t.diagnostic(`next acceptance ${peer.recovery(moment)} ms after the window opened`);
});

test("what a reset leaves open is sent again with the same id, and nothing else is", options, async (t) => {
  const scene = await stage(t, { wired: true });
  const { gateway, peer, wire } = scene;
  await gateway.push(SUBJECT, EVENTS);
  await accepted(peer, 300);
  const known = await gateway.outcome("accepted");
  wire.cut();
  const cut = performance.now();
  await gateway.settled(COUNT);
  assert.equal(await gateway.outcome("accepted"), COUNT);
  const unknown = await gateway.count("repeats_total", `cause="unknown"`);
  assert.equal(peer.accepted.size, COUNT, "nothing is lost");
  assert.deepEqual(peer.violations, []);
  assert.ok(peer.repeated.length <= unknown, `${peer.repeated.length} accepted twice, ${unknown} were unknown`);
  assert.ok(known + unknown <= COUNT, "what was answered is not sent again");
  const recovery = peer.recovery(cut + 1);
  t.diagnostic(`${unknown} unknown, ${peer.repeated.length} of them accepted twice; next acceptance after ${recovery} ms`);
});

test("a connection that falls silent is replaced, and what was open is sent again", options, async (t) => {
  const scene = await stage(t, { wired: true, stallTimeout: "600ms" });
  const { gateway, peer, wire } = scene;
  await gateway.push(SUBJECT, EVENTS);
  await accepted(peer, 300);
  wire.freeze();
  const frozen = performance.now();
  await until("the stall is noticed", async () => (await gateway.count("connections_stalled_total")) > 0);
  t.diagnostic(`noticed after ${Math.round(performance.now() - frozen)} ms`);
  wire.close();
  wire.thaw();
  wire.open();
  const moment = performance.now();
  await gateway.settled(COUNT);
  assert.equal(await gateway.outcome("accepted"), COUNT);
  assert.equal(peer.accepted.size, COUNT, "nothing is lost");
  assert.deepEqual(peer.violations, []);
  const unknown = await gateway.count("repeats_total", `cause="unknown"`);
  assert.ok(peer.repeated.length <= unknown, `${peer.repeated.length} accepted twice, ${unknown} were unknown`);
  t.diagnostic(`next acceptance ${peer.recovery(moment)} ms after the way was free`);
});

test("requests without an answer on a living connection are sent again", options, async (t) => {
  const silenced = new Set();
  const script = later((request) => {
    if (silenced.size < 50 && !silenced.has(request.id) && request.connection.proven) {
      silenced.add(request.id);
    } else {
      request.accept();
    }
  });
  // So long that on a busy machine no other request is taken for unanswered.
  const scene = await stage(t, { script, answerTimeout: "4s", stallTimeout: "20s" });
  await scene.gateway.push(SUBJECT, EVENTS);
  await allAccepted(scene);
  assert.equal(await scene.gateway.count("repeats_total", `cause="unknown"`), silenced.size);
  assert.equal(scene.peer.connections.length, 1, "the connection is alive and stays");
});

test("a new certificate of the same authority is taken, one of another is not", options, async (t) => {
  const scene = await stage(t);
  const { credentials, gateway, peer } = scene;
  const next = async (certificate) => {
    peer.show(certificate);
    peer.connection.goAway("Shutdown");
  };
  await gateway.push(SUBJECT, EVENTS);
  await gateway.settled(COUNT);
  await next(credentials.server());
  await gateway.push(SUBJECT, EVENTS);
  await allAccepted(scene, 2 * COUNT);
  assert.equal(peer.connections.length, 2);
  assert.equal(await gateway.count("connections_closed_total"), 1, "the old one is closed");

  await next(Credentials.make(t, "stranger").server());
  const failures = () => gateway.count("connect_failures_total");
  await gateway.push(SUBJECT, EVENTS);
  await until("the stranger was met", async () => (await failures()) >= 2);
  assert.equal(peer.accepted.size, 2 * COUNT, "nothing is told to a stranger");
  peer.show(credentials.server());
  const moment = performance.now();
  await allAccepted(scene, 3 * COUNT);
  t.diagnostic(`next acceptance ${peer.recovery(moment)} ms after the right certificate was back`);
});

/** Tells whose signature a request's provider token has, of these public keys; -1 for nobody's. */
function signers(keys) {
  const known = new Map();
  const signer = (token) => {
    const [header, claims, signature] = token.replace("bearer ", "").split(".");
    const [signed, bytes] = [Buffer.from(`${header}.${claims}`), Buffer.from(signature, "base64url")];
    return keys.findIndex((key) => verify("sha256", signed, { key, dsaEncoding: "ieee-p1363" }, bytes));
  };
  return ({ headers: { authorization } }) => {
    if (!known.has(authorization)) {
      known.set(authorization, signer(authorization));
    }
    return known.get(authorization);
  };
}

/** Pushes without a pause while the credential is replaced `times` times; each time the new one must come to be used. */
async function replacedUnderLoad(scene, times, replace, used) {
  const { gateway, peer } = scene;
  let count = 0;
  const more = async () => {
    await gateway.push(SUBJECT, EVENTS);
    count += COUNT;
  };
  await more();
  for (let turn = 1; turn <= times; turn++) {
    await more();
    await accepted(peer, count - 2 * COUNT + 300);
    replace(turn);
    await until("the new one is used", async () => {
      if (peer.accepted.size > count - COUNT) {
        await more();
      }
      return used(turn);
    });
  }
  await allAccepted(scene, count);
  assert.equal(await gateway.count("repeats_total"), 0, "nothing was cut off");
}

test("another signing key on SIGHUP under load: nothing is lost or told twice, a connection has one key", options, async (t) => {
  const authorities = [1, 2, 3].map(() => Credentials.make(t));
  const signer = signers(authorities.map(({ publicKeyFile }) => createPublicKey(readFileSync(publicKeyFile))));
  const keyFile = path.join(authorities[0].folder, "used.p8");
  const files = authorities.map((authority) => readFileSync(authority.keyFile));
  writeFileSync(keyFile, files[0]);
  const used = new Map();
  const script = later((request) => {
    const number = signer(request);
    used.set(request.connection, (used.get(request.connection) ?? new Set()).add(number));
    request.accept();
  });
  const scene = await stage(t, { script, keyFile, connections: 2 });
  const isUsed = (turn) => [...used.values()].some((numbers) => numbers.has(turn));
  await replacedUnderLoad(scene, 2, (turn) => scene.gateway.replace([keyFile, files[turn]]), isUsed);
  assert.deepEqual(new Set([...used.values()].flatMap((numbers) => [...numbers])), new Set([0, 1, 2]));
  assert.ok([...used.values()].every((numbers) => numbers.size === 1), "Apple: UnrelatedKeyIdInToken");
});

test("another certificate on SIGHUP under load: nothing is lost or told twice", options, async (t) => {
  const credentials = Credentials.make(t);
  const certificate = credentials.client();
  const serials = [new X509Certificate(certificate.cert).serialNumber];
  const scene = await stage(t, { credentials, certificate, clientsOf: credentials.authority, connections: 2 });
  const replace = () => {
    // The files that the server reads are overwritten by this.
    const { cert } = credentials.client();
    serials.push(new X509Certificate(cert).serialNumber);
    scene.gateway.replace();
  };
  await replacedUnderLoad(scene, 2, replace, (turn) => scene.peer.connection.shown === serials[turn]);
  const shown = scene.peer.connections.map(({ shown }) => serials.indexOf(shown));
  assert.deepEqual([...new Set(shown)], [0, 1, 2]);
});

test("files that are wrong on SIGHUP change nothing, and the operator is told", options, async (t) => {
  const credentials = Credentials.make(t);
  const certificate = credentials.client();
  const scene = await stage(t, { credentials, certificate, clientsOf: credentials.authority });
  const { gateway, peer } = scene;
  const { certFile, keyFile } = certificate;
  const [strange, others] = [credentials.server(), Credentials.make(t).client("com.example.other")];
  const wrong = [
    [/holds no PEM .*CERTIFICATE/, [certFile, "nothing"]],
    [/does not belong to the certificate/, [certFile, strange.cert]],
    [/does not belong to the certificate/, [keyFile, strange.key]],
    [/com\.example\.app is not among the topics of .*com\.example\.other/, [certFile, others.cert], [keyFile, others.key]],
  ];
  for (const [index, [reason, ...files]] of wrong.entries()) {
    await gateway.push(SUBJECT);
    gateway.replace(...files);
    const told = () => gateway.log.split("\n").filter((line) => /ERROR.*(Credential not replaced|nothing is reloaded)/.test(line));
    await until("the operator is told", () => told().length > index);
    assert.match(told().at(-1), reason);
    assert.ok(told().at(-1).includes(credentials.folder), "it names the file");
    writeFileSync(certFile, certificate.cert);
    writeFileSync(keyFile, certificate.key);
  }
  await gateway.push(SUBJECT);
  await allAccepted(scene, (wrong.length + 1) * DEVICES);
  assert.equal(peer.connections.length, 1, "the connection is never left");
});

test("410 ExpiredToken is final, and the token is forgotten", options, async (t) => {
  const script = (request) => request.reject(410, "ExpiredToken", { timestamp: Date.now() });
  const { gateway, devices } = await stage(t, { script, devices: tokens(1) });
  const [id] = await gateway.push(SUBJECT);
  assert.deepEqual(await gateway.outcomes(id), { rejected: { ExpiredToken: 1 } });
  await until("the token is forgotten", async () => !(await gateway.hasToken(devices[0])));
});

for (const reason of ["UnrelatedKeyIdInToken", "BadEnvironmentKeyIdInToken", "BadEnvironmentKeyInToken"]) {
  test(`403 ${reason}: another connection is tried, and the operator is told`, options, async (t) => {
    const script = (request) => (peer.connections.length === 1 ? request.reject(403, reason) : request.accept());
    const { gateway, peer } = await stage(t, { script, devices: tokens(1) });
    const [id] = await gateway.push(SUBJECT);
    assert.deepEqual(await gateway.outcomes(id), { accepted: 1 });
    assert.match(gateway.log, new RegExp(`refuses the credential.*${reason.replace("KeyIn", "KeyIdIn")}`));
    peer.check(1);
  });
}

test("the judge would notice: two streams at first, too many later, one notification twice", options, async (t) => {
  const credentials = Credentials.make(t);
  const requests = [];
  const peer = await Peer.start(t, credentials.server(), { script: (request) => requests.push(request) });
  const client = http2.connect(`https://localhost:${peer.port}`, { ca: credentials.authority });
  t.after(() => client.destroy());
  const send = () => {
    const stream = client.request({ ":method": "POST", ":path": `/3/device/${freshToken()}`, "apns-id": "the same" });
    stream.on("response", () => {}).end("{}");
  };
  const answered = async (count) => {
    await until(`${count} requests are there`, () => requests.length === count);
    requests.splice(0).forEach((request) => request.accept());
  };
  send();
  send();
  await answered(2);
  assert.deepEqual(peer.violations, ["2 streams are open before the first accepted request"]);
  assert.deepEqual(peer.repeated, ["the same"]);
  await until("the first SETTINGS are acknowledged", () => peer.connection.settings.length === 1);
  peer.connection.limit = 2; // In the books only.
  send();
  send();
  send();
  await answered(3);
  assert.deepEqual(peer.violations.slice(1), ["3 streams are open, 2 are allowed"]);
});
