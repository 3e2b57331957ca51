// Tokens signed by Node's crypto (OpenSSL), with every algorithm; keys from PEM files and from a JWKS endpoint that fails and
// changes its keys while the unmodified SDK connects.

import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { constants, createHmac, generateKeyPairSync, sign } from "node:crypto";
import { once } from "node:events";
import { writeFileSync } from "node:fs";
import http from "node:http";
import path from "node:path";
import { after, before } from "node:test";

import * as base from "../server.mjs";
import { Server, next, subscribed, test } from "./harness.mjs";

const options = { timeout: 60_000 };
const KINDS = {
  rsa: { make: () => generateKeyPairSync("rsa", { modulusLength: 2048 }), algorithms: ["RS256", "RS384", "RS512", "PS256", "PS384", "PS512"] },
  p256: { make: () => generateKeyPairSync("ec", { namedCurve: "P-256" }), algorithms: ["ES256"] },
  p384: { make: () => generateKeyPairSync("ec", { namedCurve: "P-384" }), algorithms: ["ES384"] },
  ed25519: { make: () => generateKeyPairSync("ed25519"), algorithms: ["EdDSA"] },
};
const HASHES = { 256: "sha256", 384: "sha384", 512: "sha512" };
const part = (value) => Buffer.from(JSON.stringify(value)).toString("base64url");
const pem = ({ publicKey }) => publicKey.export({ type: "spki", format: "pem" });

function token(pair, alg, claims, kid) {
  const signed = `${part({ alg, kid })}.${part(claims)}`;
  const pss = { padding: constants.RSA_PKCS1_PSS_PADDING, saltLength: constants.RSA_PSS_SALTLEN_DIGEST };
  const key = { key: pair.privateKey, dsaEncoding: "ieee-p1363", ...(alg.startsWith("PS") ? pss : {}) };
  return `${signed}.${sign(HASHES[alg.slice(2)] ?? null, Buffer.from(signed), key).toString("base64url")}`;
}

/** An endpoint with the public keys of `pairs`, by `kid`; 500 without them. */
async function endpoint(pairs) {
  const provider = { pairs };
  provider.listener = http.createServer((_, answer) => {
    const jwk = ([kid, { publicKey }]) => ({ ...publicKey.export({ format: "jwk" }), kid, use: "sig" });
    answer.writeHead(provider.pairs ? 200 : 500);
    answer.end(provider.pairs ? JSON.stringify({ keys: Object.entries(provider.pairs).map(jwk) }) : "down");
  });
  provider.listener.listen(0, "127.0.0.1");
  await once(provider.listener, "listening");
  provider.url = `http://127.0.0.1:${provider.listener.address().port}/keys`;
  return provider;
}

const ours = Object.fromEntries(Object.entries(KINDS).map(([kind, { make }]) => [kind, make()]));
let provider;
let server;
before(async () => {
  provider = await endpoint(undefined);
  const configuration = (port, folder) => {
    const files = Object.entries(ours).map(([kind, pair]) => {
      const file = path.join(folder, `${kind}.pem`);
      writeFileSync(file, pem(pair));
      return file;
    });
    return `${base.configurationHead(port, folder)}
[client]
sse = true
http_stream = true
[client.token]
public_key_files = ${JSON.stringify(files)}
jwks_url = "${provider.url}"
jwks_allow_http = true
jwks_fetch_interval_min = "200ms"
[channel.namespaces.closed]
`;
  };
  server = await base.Server.start.call(Server, configuration);
});
after(async () => {
  await server.stop();
  provider.listener.close();
});

test("a token of each algorithm connects, and another key's does not", options, async (t) => {
  provider.pairs = { known: ours.rsa };
  for (const [kind, { make, algorithms }] of Object.entries(KINDS)) {
    for (const alg of algorithms) {
      const client = await server.connected(t, { token: token(ours[kind], alg, { sub: alg }) });
      const channel = `closed:${alg}`;
      await subscribed(client, channel, { token: token(ours[kind], alg, { sub: alg, channel }) });

      const stranger = server.client(t, { token: token(make(), alg, { sub: alg }, "known") });
      const disconnected = next(stranger, "disconnected");
      stranger.connect();
      assert.equal((await disconnected).code, 3500, alg);
    }
  }
});

test("the program signs with each kind of private key", options, async (t) => {
  for (const [kind, { algorithms }] of Object.entries(KINDS)) {
    const file = path.join(server.folder, `${kind}.private.pem`);
    writeFileSync(file, ours[kind].privateKey.export({ type: "pkcs8", format: "pem" }), { mode: 0o600 });
    for (const alg of [undefined, ...algorithms]) {
      const words = ["token", "--user", "42", "--key-file", file, ...(alg ? ["--algorithm", alg] : [])];
      await server.connected(t, { token: execFileSync(base.BINARY, words, { encoding: "utf8" }).trim() });
    }
  }
});

test("a public key is no secret", options, async (t) => {
  for (const secret of [pem(ours.rsa), ours.rsa.publicKey.export({ type: "spki", format: "der" })]) {
    const signed = `${part({ alg: "HS256" })}.${part({ sub: "42" })}`;
    const forged = `${signed}.${createHmac("sha256", secret).update(signed).digest("base64url")}`;
    const client = server.client(t, { token: forged });
    const disconnected = next(client, "disconnected");
    client.connect();
    assert.equal((await disconnected).code, 3500);
  }
});

test("a client whose key is not known yet comes back until it is", options, async (t) => {
  for (const [kind, { make, algorithms }] of Object.entries(KINDS)) {
    const [fresh, kid] = [make(), `${kind}-${t.format}`];
    provider.pairs = undefined;
    const signed = () => token(fresh, algorithms[0], { sub: kid }, kid);
    const client = server.client(t, { token: signed(), getToken: async () => signed() });
    const refused = next(client, "error");
    client.connect();
    assert.ok([100, 109].includes((await refused).error.code), "not now, but later");
    provider.pairs = { ...ours, [kid]: fresh };
    await client.ready(base.DEADLINE_MS);
    client.disconnect();
  }
});
