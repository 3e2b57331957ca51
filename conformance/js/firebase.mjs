// Google by script, on Node's own HTTP/2 (nghttp2): a Firebase project and its token endpoint, which has assertions
// verified by `jose`.

import assert from "node:assert/strict";
import { generateKeyPairSync, randomUUID } from "node:crypto";
import { writeFileSync } from "node:fs";
import http2 from "node:http2";
import path from "node:path";

import { jwtVerify } from "jose";

import { Credentials } from "../apns/harness.mjs";

export const APP = "com.example.app";
export const PROJECT = "judge-1";
export const SCOPE = "https://www.googleapis.com/auth/firebase.messaging";
export const ERROR = "type.googleapis.com/google.firebase.fcm.v1.FcmError";

export const phone = (token) => ({ platform: "android", token, app: APP });
/** A token in the form of Google's. */
export const freshToken = () => `${randomUUID().slice(0, 22)}:APA91b${randomUUID().replaceAll("-", "")}`;

/** An error in FCM's own words. */
export const refusal = (status, errorCode, headers) => {
  return { status, headers, error: { status: errorCode, details: [{ "@type": ERROR, errorCode }] } };
};

const write = (response, status, headers, text) => {
  response.writeHead(status, headers);
  response.end(text);
};

/**
 * A Firebase project with its token endpoint. `script(message, access)` says what comes of a message sent with this
 * access token: `{status, headers, error, write}`, else all is well; `write` may answer in a way of its own. `grant()`
 * says the same of a request for an access token, with the seconds of its `life`.
 */
export class Firebase {
  static async start(t, script = () => ({}), grant = () => ({})) {
    const firebase = new Firebase();
    const credentials = Credentials.make(t);
    const { publicKey, privateKey } = generateKeyPairSync("rsa", { modulusLength: 2048 });
    const { cert, key } = credentials.server();
    const server = http2.createSecureServer({ cert, key, allowHTTP1: true });
    Object.assign(firebase, { script, grant, publicKey, credentials });
    Object.assign(firebase, { assertions: [], bodies: [], faults: [], issued: new Map() });
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
    return this.sectionOn(this.port);
  }

  /** The server's section, with messages sent to another port: that of a wire. */
  sectionOn(port) {
    return `[fcm.judge]
host = "localhost"
port = ${port}
service_account_file = ${JSON.stringify(this.accountFile)}
ca_file = ${JSON.stringify(this.credentials.caFile)}
apps = ["${APP}"]
`;
  }

  async #on(request, response) {
    response.stream?.on("error", () => {}); // The client may be gone.
    let text = "";
    for await (const piece of request.setEncoding("utf8")) {
      text += piece;
    }
    const answer = ({ status = 200, headers, error, write: own = write }, body) => {
      const all = { "content-type": "application/json", ...headers };
      own(response, status, all, JSON.stringify(status === 200 ? body : { error: { code: status, ...error } }));
    };
    try {
      assert.equal(request.method, "POST");
      const isToken = request.url === "/token";
      const [reply, body] = isToken ? await this.#token(request, text) : this.#message(request, text);
      answer(reply, body);
    } catch (error) {
      this.faults.push(error);
      answer({ status: 400, error: { message: error.message, status: "INVALID_ARGUMENT" } });
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
    const { life = 3600, ...reply } = this.grant();
    if ((reply.status ?? 200) !== 200) {
      return [reply];
    }
    const token = `ya29.${randomUUID()}`;
    this.issued.set(token, performance.now());
    return [reply, { access_token: token, expires_in: life, token_type: "Bearer" }];
  }

  #message(request, text) {
    assert.equal(request.url, `/v1/projects/${PROJECT}/messages:send`);
    assert.match(request.headers["content-type"], /^application\/json\b/);
    const token = /^Bearer (\S+)$/.exec(request.headers.authorization)?.[1];
    if (!this.issued.has(token)) {
      return [{ status: 401, error: { message: "no token of ours", status: "UNAUTHENTICATED" } }];
    }
    const body = JSON.parse(text);
    this.bodies.push(body);
    return [this.script(body.message, token), { name: `projects/${PROJECT}/messages/${this.bodies.length}` }];
  }

  /** Nobody did anything that the protocol does not allow. */
  check() {
    assert.deepEqual(this.faults, []);
  }
}
