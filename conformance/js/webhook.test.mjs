// Reports of `[webhook]`, verified by the reference library of the Standard Webhooks specification (npm
// `standardwebhooks`), by the lines that docs/webhook.md gives to receivers in Python and in JavaScript, and read as JSON. The
// receiver is Node's own server, over TLS as well.

import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { createHmac, timingSafeEqual } from "node:crypto";
import { readFileSync } from "node:fs";
import http from "node:http";
import https from "node:https";
import { test } from "node:test";

import { Webhook } from "standardwebhooks";

import { Credentials } from "../apns/harness.mjs";
import { Server, configurationHead, until } from "../server.mjs";

const SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";
const SECRET_BEFORE = "whsec_Y2hhbmdlLW1lLWNoYW5nZS1tZS1jaGFu";
const DOCUMENT = readFileSync(new URL("../../docs/webhook.md", import.meta.url), "utf8");

/** The lines of the document in a language. */
const lines = (language) => DOCUMENT.match(new RegExp(`^\`\`\`${language}\n(.*?)^\`\`\`$`, "ms"))[1];

/** A receiver that answers 204 and keeps what it was sent, with its address. */
async function receiver(t, create) {
  const reports = [];
  const server = create((request, response) => {
    const body = [];
    request.on("data", (bytes) => body.push(bytes));
    request.on("end", () => {
      reports.push({ method: request.method, url: request.url, headers: request.headers, body: Buffer.concat(body) });
      response.writeHead(204).end();
    });
  });
  server.listen(0, "127.0.0.1");
  await new Promise((resolve) => server.once("listening", resolve));
  t.after(() => {
    server.closeAllConnections();
    server.close();
  });
  return { reports, port: server.address().port };
}

/** The server with these lines in `[webhook]`, which has accepted an event for nobody. */
async function telling(t, webhook) {
  const server = await Server.start((port, folder) => `${configurationHead(port, folder)}
[client]
allow_anonymous = true
[channel.namespaces.match]
durable = true
history_size = 10
history_ttl = "1h"
[topics.goal]
title = "Goal"
body = "Goal"
[webhook]
secret = "${SECRET}"
previous_secret = "${SECRET_BEFORE}"
backoff_min = "10ms"
${webhook}
`);
  t.after(() => server.stop());
  const event = { id: "goal-1", topic: "goal", subjects: ["match:1"], push: "never" };
  const answer = await server.request("POST", "/v1/events", event);
  assert.equal(answer.status, 202, await answer.text());
  return server;
}

test("a report is what the specification and the document say", async (t) => {
  const { reports, port } = await receiver(t, http.createServer);
  const server = await telling(t, `url = "http://127.0.0.1:${port}/hook?of=tidings"\nallow_http = true`);
  await until("the report has come", () => reports.length > 0);
  const [{ method, url, headers, body }] = reports;
  assert.deepEqual([method, url, headers["content-type"]], ["POST", "/hook?of=tidings", "application/json"]);

  await t.test("the reference library takes it, by either secret and by no other", () => {
    for (const secret of [SECRET, SECRET_BEFORE]) {
      const report = new Webhook(secret).verify(body.toString(), headers);
      assert.equal(report.type, "event.done");
      assert.equal(report.data.id, "goal-1");
    }
    const other = new Webhook(`whsec_${Buffer.alloc(24, 7).toString("base64")}`);
    assert.throws(() => other.verify(body.toString(), headers), /No matching signature/);
    assert.throws(() => new Webhook(SECRET).verify(`${body} `, headers), /No matching signature/);
  });

  const { "webhook-id": id, "webhook-timestamp": timestamp, "webhook-signature": signature } = headers;
  const cases = [
    [{ secret: SECRET, id, timestamp, signature, body }, true],
    [{ secret: SECRET_BEFORE, id, timestamp, signature, body }, true],
    [{ secret: SECRET, id, timestamp, signature, body: Buffer.from("{}") }, false],
    [{ secret: SECRET, id: `${id}0`, timestamp, signature, body }, false],
    [{ secret: SECRET, id, timestamp: `${timestamp - 1}`, signature, body }, false],
    [{ secret: SECRET, id, timestamp, signature: signature.slice(0, 20), body }, false],
  ];

  await t.test("the lines for JavaScript agree", () => {
    const names = ["createHmac", "timingSafeEqual", "secret", "id", "timestamp", "signature", "body"];
    const verify = new Function(...names, `${lines("js")}\nreturn ok;`);
    for (const [{ secret, id, timestamp, signature, body }, expected] of cases) {
      assert.equal(verify(createHmac, timingSafeEqual, secret, id, timestamp, signature, body), expected);
    }
  });

  await t.test("the lines for Python agree", () => {
    const program = `import base64, hmac, json, sys, time
for case in json.load(sys.stdin):
    secret, id, timestamp, signature = (case[name] for name in ("secret", "id", "timestamp", "signature"))
    body = case["body"].encode()
${lines("python").replace(/^/gm, "    ")}
    print(json.dumps(ok))`;
    const input = JSON.stringify(cases.map(([report]) => ({ ...report, body: report.body.toString() })));
    const { error, status, stdout, stderr } = spawnSync("python3", ["-c", program], { input, encoding: "utf8" });
    assert.equal(error, undefined, "there is a program python3");
    assert.equal(status, 0, stderr);
    assert.deepEqual(stdout.trim().split("\n").map((line) => JSON.parse(line)), cases.map(([, expected]) => expected));
  });

  await t.test("its data is the job as the API shows it", async () => {
    const { jobs } = await (await server.request("GET", "/v1/jobs")).json();
    assert.deepEqual(jobs, [JSON.parse(body).data]);
  });
});

test("a receiver over TLS must prove who it is", async (t) => {
  const authority = Credentials.make(t);
  const { cert, key } = authority.server();
  const { reports, port } = await receiver(t, (take) => https.createServer({ cert, key }, take));
  const url = `url = "https://127.0.0.1:${port}/hook"`;

  const strict = await telling(t, url);
  await until("it is not believed", () => strict.log.includes("Receiver does not take reports"));
  assert.equal(reports.length, 0, "nothing was sent to somebody who could be anybody");

  await telling(t, `${url}\nca_file = ${JSON.stringify(authority.caFile)}`);
  await until("the report has come", () => reports.length > 0);
  new Webhook(SECRET).verify(reports[0].body.toString(), reports[0].headers);
});
