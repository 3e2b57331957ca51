// Strangers' APNs clients send to our simulator and must find nothing wrong with it: `apns2` (Go) and Pushy (Java). What
// each of them makes of an answer is compared with what APNs would have meant, and with the simulator's own ledger.

import assert from "node:assert/strict";
import { randomUUID } from "node:crypto";
import { readFileSync } from "node:fs";
import http2 from "node:http2";
import path from "node:path";
import { after, before, describe, test } from "node:test";

import { Program, SUITE, temporaryFolder } from "../server.mjs";
import { APP, freshToken } from "./harness.mjs";
import { Tool, go, java } from "../tool.mjs";

const PAYLOAD = JSON.stringify({ aps: { alert: { title: "Goal!", body: "1 : 0" } }, text: "Jäätelö 🎉" });
const CLIENTS = { apns2: (words) => go("apns2", words), Pushy: (words) => java("Client", words) };

/** Apple's table: what each status is answered with. */
const REASONS = {
  400: `BadCollapseId BadDeviceToken BadExpirationDate BadMessageId BadPriority BadTopic DeviceTokenNotForTopic
    DuplicateHeaders IdleTimeout InvalidPushType MissingDeviceToken MissingTopic PayloadEmpty TopicDisallowed`,
  403: `BadCertificate BadCertificateEnvironment BadEnvironmentKeyIdInToken ExpiredProviderToken Forbidden
    InvalidProviderToken MissingProviderToken UnrelatedKeyIdInToken`,
  404: `BadPath`,
  405: `MethodNotAllowed`,
  410: `ExpiredToken Unregistered`,
  413: `PayloadTooLarge`,
  429: `TooManyProviderTokenUpdates TooManyRequests`,
  500: `InternalServerError`,
  503: `ServiceUnavailable Shutdown`,
};

/** `tidings simulate apns`, with its control requests. */
class Simulator {
  static async start(t) {
    const simulator = new Simulator();
    const { folder, stop } = temporaryFolder();
    t.after(stop);
    const words = ["simulate", "apns", "--listen", "127.0.0.1:0", "--dir", folder, "--app", APP];
    simulator.program = new Program(words, folder);
    t.after(() => simulator.program.kill("SIGKILL"));
    await simulator.program.ready("the simulator listens", () => /^port = \d+$/m.test(simulator.program.log));
    const setting = (name) => new RegExp(`^${name} = "?([^"\\n]+)"?$`, "m").exec(simulator.program.log)[1];
    Object.assign(simulator, { port: setting("port"), keyId: setting("key_id"), teamId: setting("team_id") });
    simulator.caFile = path.join(folder, "ca.pem");
    simulator.keyFile = path.join(folder, "key.p8");
    return simulator;
  }

  /** A client's arguments. */
  words({ keyId = this.keyId, keyFile = this.keyFile } = {}) {
    return ["localhost", this.port, this.caFile, keyFile, keyId, this.teamId];
  }

  async control(method, route, body) {
    const session = http2.connect(`https://localhost:${this.port}`, { ca: readFileSync(this.caFile) });
    try {
      const stream = session.request({ ":method": method, ":path": `/simulator/${route}` });
      stream.end(body === undefined ? undefined : JSON.stringify(body));
      let text = "";
      for await (const piece of stream.setEncoding("utf8")) {
        text += piece;
      }
      return JSON.parse(text);
    } finally {
      session.close();
    }
  }

  /** Misbehaves like this from now on, and else not. */
  async faults(faults) {
    const inForce = await this.control("PUT", "faults", faults);
    assert.equal(inForce.error, undefined);
  }

  /** What a device got: `[{apns_id, count}]`. */
  ledger(token) {
    return this.control("GET", `ledger/${token}`);
  }
}

const inAnHour = () => Math.floor(Date.now() / 1000) + 3600;
const notification = (more = {}) => ({ token: freshToken(), topic: APP, payload: PAYLOAD, expiration: inAnHour(), ...more });

for (const [name, command] of Object.entries(CLIENTS)) {
  describe(`${name} and the simulator`, SUITE, () => {
    let simulator, client, stops;
    before(async () => {
      stops = [];
      const context = { after: (stop) => stops.push(stop) };
      simulator = await Simulator.start(context);
      client = await Tool.start(context, command(simulator.words()));
    });
    after(async () => {
      for (const stop of stops.reverse()) {
        await stop();
      }
    });

    /** Sends it; the client must say `expected` of the answer, whose id is that of the notification. */
    async function expect(expected, sent = notification()) {
      const { id, ...answer } = await client.ask(sent);
      assert.deepEqual(answer, expected);
      return id;
    }

    test("a notification is accepted under its id, and is in the ledger", async () => {
      const sent = notification({ id: randomUUID(), collapse_id: "match-7" });
      assert.equal(await expect({ status: 200 }, sent), sent.id);
      const [entry, ...rest] = await simulator.ledger(sent.token);
      assert.deepEqual([entry.apns_id, entry.count, rest.length], [sent.id, 1, 0]);
    });

    test("a notification without an id gets one", async () => {
      const sent = notification();
      const id = await expect({ status: 200 }, sent);
      assert.match(id, /^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$/);
      assert.equal((await simulator.ledger(sent.token))[0].apns_id, id);
    });

    test("4096 bytes are taken, one more is PayloadTooLarge", async () => {
      const payload = (bytes) => `{"x":"${"y".repeat(bytes - 8)}"}`;
      await expect({ status: 200 }, notification({ payload: payload(4096) }));
      await expect({ status: 413, reason: "PayloadTooLarge" }, notification({ payload: payload(4097) }));
    });

    test("a token that is none is BadDeviceToken", async () => {
      await expect({ status: 400, reason: "BadDeviceToken" }, notification({ token: "no-token" }));
    });

    test("an app that is not ours is TopicDisallowed, none at all is MissingTopic", async () => {
      await expect({ status: 400, reason: "TopicDisallowed" }, notification({ topic: "com.example.other" }));
      if (name === "apns2") {
        await expect({ status: 400, reason: "MissingTopic" }, notification({ topic: "" }));
      }
    });

    test("a collapse id of 64 bytes is taken, one more is BadCollapseId", async () => {
      await expect({ status: 200 }, notification({ collapse_id: "x".repeat(64) }));
      await expect({ status: 400, reason: "BadCollapseId" }, notification({ collapse_id: "x".repeat(65) }));
    });

    test("a key of another name is InvalidProviderToken", async (t) => {
      const stranger = await Tool.start(t, command(simulator.words({ keyId: "STRANGER12" })));
      const { status, reason } = await stranger.ask(notification());
      assert.deepEqual({ status, reason }, { status: 403, reason: "InvalidProviderToken" });
    });

    if (name === "apns2") {
      test("a provider token of more than an hour is ExpiredProviderToken, one of less is taken", async () => {
        await expect({ status: 403, reason: "ExpiredProviderToken" }, notification({ token_age: 3700 }));
        await expect({ status: 200 }, notification({ token_age: 3000 }));
      });
    }

    test("a token that is gone is 410 Unregistered, with the moment", async () => {
      const gone = 1_700_000_000_000; // Whole seconds: apns2 forgets the rest.
      await simulator.faults({ gone_share: 1, gone_since: gone });
      await expect({ status: 410, reason: "Unregistered", gone });
      await simulator.faults({});
      await expect({ status: 200 });
    });

    for (const [status, reasons] of Object.entries(REASONS)) {
      test(`${status} is understood with each of its reasons`, async () => {
        for (const reason of reasons.split(/\s+/)) {
          await simulator.faults({ rejection_probability: 1, rejection_reasons: [reason] });
          const sent = notification({ id: randomUUID() });
          const { id, gone, ...answer } = await client.ask(sent);
          assert.deepEqual(answer, { status: Number(status), reason });
          assert.equal(id, sent.id, "the id is echoed");
          assert.equal(gone !== undefined, status === "410", "a moment comes with 410 only");
        }
        await simulator.faults({});
      });
    }

    test("a thousand at once are all accepted, and the stream limit is kept", async () => {
      const earlier = await simulator.control("GET", "ledger");
      await simulator.faults({ stream_limit: 20, stream_limit_before_token: 1, delay_ms: 2 });
      const answers = await Promise.all(Array.from({ length: 1000 }, () => client.ask(notification())));
      assert.ok(answers.every(({ status }) => status === 200));
      const ledger = await simulator.control("GET", "ledger");
      assert.equal(ledger.accepted - earlier.accepted, 1000);
      assert.equal(ledger.repeated, 0);
      // Go's http2 counts a stream before it writes it: one that SETTINGS overtake there is one too many, each time.
      const excused = name === "apns2" ? 2 * ledger.connections : 0;
      assert.ok(ledger.stream_limit_violations <= excused, `${ledger.stream_limit_violations} streams too many`);
      await simulator.faults({});
    });

    test("GOAWAY now and then: what the client calls accepted is in the ledger, once", async () => {
      const earlier = await simulator.control("GET", "ledger");
      await simulator.faults({ goaway_every: 250, delay_ms: 2 });
      const sent = Array.from({ length: 1000 }, () => notification());
      const answers = await Promise.all(sent.map((one) => client.ask(one)));
      const ledger = await simulator.control("GET", "ledger");
      assert.ok(ledger.goaways > earlier.goaways);
      assert.equal(ledger.repeated, 0);
      const accepted = answers.filter(({ status }) => status === 200).length;
      const unheard = answers.filter(({ error }) => error?.includes("Stream closed before a reply")).length;
      assert.equal(accepted + unheard, 1000);
      // Pushy hangs up as soon as it reads GOAWAY and never hears what became of its open streams; apns2 waits.
      assert.ok(name === "Pushy" || unheard === 0, `${unheard} unheard`);
      const found = ledger.accepted - earlier.accepted;
      assert.ok(found >= accepted && found <= accepted + unheard, `${accepted} accepted, ${found} in the ledger`);
      await simulator.faults({});
      await expect({ status: 200 });
    });
  });
}
