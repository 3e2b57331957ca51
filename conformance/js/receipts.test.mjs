// Who got an event in the app is not pushed as well, and only who proved to have got it: by the unmodified SDKs for
// JavaScript, Go, Java and Python, which know nothing of receipts but answer the server's pings.

import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { after, before, describe, test } from "node:test";

import WebSocket from "ws";

import { BINARY, SUITE, Wire, until } from "../server.mjs";
import { go, java, node, python } from "../tool.mjs";
import { App, Scene, deviceToken } from "./evidence.mjs";
import { FORMATS, STREAMS, connector, isPing } from "./sdk.mjs";

const options = { timeout: 90_000 };
/** The programs of the SDKs, in the formats that they speak. */
const PROGRAMS = [
  ...FORMATS.flatMap((format) => [
    [`centrifuge in ${format}`, (words) => node("client", [JSON.stringify({ ...words, format })])],
    [`centrifuge-go in ${format}`, (words) => go("centrifuge", [JSON.stringify({ ...words, format })])],
    [`centrifuge-python in ${format}`, (words) => python("centrifuge_client", [JSON.stringify({ ...words, format })])],
  ]),
  ["centrifuge-java in protobuf", (words) => java("Centrifuge", [JSON.stringify(words)])],
];
/** As long as the API allows: what comes earlier did not wait for it. */
const LONG = { receipt_wait: "30s" };
const BUSY_MS = 4500;
/** Often enough for a test to wait for some; a busy machine still answers them in time. */
const PINGS_OFTEN = { interval: "2s", timeout: "1900ms" };

/** What an app says of itself that is the phone's and on the screen. */
const visible = ({ device, credential }) => ({ device, credential, visible: true });

const aWhile = () => {
  const end = performance.now() + BUSY_MS;
  return () => performance.now() >= end;
};

/**
 * Three parts: a stream of events that want receipts, one of publications that do not, nothing. `part` is called when one
 * begins, and says whether it is over. Begins when the app has given a first receipt; returns how much was published.
 */
async function busy(scene, phone, part = aWhile) {
  let [count, id] = [1, await scene.tell(phone, LONG)];
  await scene.received(phone, id);
  const tell = async () => (id = await scene.tell(phone, LONG));
  const publish = async () => {
    const body = { channel: phone.subject, data: {} };
    assert.equal((await (await scene.request("POST", "/api/publish", body)).json()).error, undefined);
  };
  for (const step of [tell, publish]) {
    for (const isOver = part(); !isOver(); count++) {
      await step();
    }
  }
  await until("the quiet part is over", part());
  await scene.received(phone, id);
  return count;
}

/** The `ws` of an SDK whose pongs take a while, with the number of pings and how many were open at a time. */
const measured = (pongMs) => {
  const seen = { count: 0, open: 0, openMax: 0 };
  class Measured extends WebSocket {
    constructor(...words) {
      super(...words);
      this.on("message", (message) => {
        if (isPing(message)) {
          seen.count++;
          seen.openMax = Math.max(seen.openMax, ++seen.open);
        }
      });
    }

    send(message, ...more) {
      if (!isPing(message)) {
        super.send(message, ...more);
        return;
      }
      const answer = () => {
        seen.open--;
        super.send(message, ...more);
      };
      setTimeout(answer, pongMs);
    }
  }
  return { seen, websocket: Measured };
};

/** The SDK in this process, in this format and over this transport, following a phone's subject; `codes` tells how often it (re)connected or lost it. */
async function connected(t, scene, { subject }, { transport = "websocket", format, ...more }) {
  const client = connector({ transport, format }, scene.port, more);
  t.after(() => client.disconnect());
  const codes = [];
  client.on("connecting", ({ code }) => codes.push(code));
  client.on("disconnected", ({ code }) => codes.push(code));
  const sub = client.newSubscription(subject);
  const offsets = [];
  sub.on("publication", ({ offset }) => offsets.push(offset));
  sub.subscribe();
  client.connect();
  await sub.ready(20_000);
  return { codes, offsets };
}

describe("receipts", { ...SUITE, concurrency: 3 }, () => {
  for (const format of FORMATS) {
    test(`one ping is in flight at a time, and they go on whatever is published (${format})`, options, async (t) => {
      const scene = await Scene.start(t, { pings: PINGS_OFTEN });
      const phone = await scene.phone();
      const { seen, websocket } = measured(20);
      const app = await connected(t, scene, phone, { format, websocket, data: { tidings: visible(phone) } });
      const threePings = () => {
        const enough = seen.count + 3;
        return () => seen.count >= enough;
      };
      const count = await busy(scene, phone, threePings);
      t.diagnostic(`${seen.count} pings, ${count} publications`);
      assert.equal(seen.openMax, 1);
      assert.equal(app.offsets.length, count);
      assert.deepEqual(app.codes, [0], "connected once");
    });
  }

  for (const { name, transport, format } of STREAMS) {
    test(`${name}: on the screen: not pushed; hidden: pushed at once`, options, async (t) => {
      const scene = await Scene.start(t);
      for (const isVisible of [true, false]) {
        const phone = await scene.phone();
        const data = { tidings: { ...visible(phone), visible: isVisible } };
        const app = await connected(t, scene, phone, { transport, format, data });
        const id = await scene.tell(phone, LONG);
        await (isVisible ? scene.received(phone, id) : scene.pushed(phone, id));
        await until("the app has it", () => app.offsets.length === 1);
        assert.deepEqual(app.codes, [0], "connected once");
      }
    });
  }

  for (const [name, command] of PROGRAMS) {
    describe(`${name} gives receipts`, { ...SUITE, concurrency: 4 }, () => {
      let scene, cleanUp;
      before(async () => {
        const stops = [];
        cleanUp = () => stops.reverse().reduce((done, stop) => done.then(stop), Promise.resolve());
        scene = await Scene.start({ after: (stop) => stops.push(stop) });
      });
      after(() => cleanUp());

      /** A phone and its app, which is on the screen. */
      async function stage(t, { claim = visible, where = scene, ...more } = {}) {
        const phone = await where.phone();
        return { phone, app: await App.start(t, command, where, phone, { claim: claim(phone), ...more }) };
      }

      // The longest comes first: the others run beside it.
      test("regular pings come in time, however many receipts are asked for, or none", async (t) => {
        const where = await Scene.start(t, { pings: PINGS_OFTEN });
        // It hangs up when it has seen no ping for 1500 ms more than the interval.
        const { phone, app } = await stage(t, { where, pingDelayMs: 1500 });
        const count = await busy(where, phone);
        await app.has(count);
        app.stayed();
      });

      test("on the screen: not pushed, also in the first second, by the default wait", async (t) => {
        const { phone, app } = await stage(t);
        const id = await scene.tell(phone);
        await scene.received(phone, id);
        await app.has(1);
      });

      test("hidden from the beginning: pushed at once, and not hidden from then on: not pushed", async (t) => {
        const { phone, app } = await stage(t, { claim: (phone) => ({ ...visible(phone), visible: false }) });
        await scene.pushed(phone, await scene.tell(phone, LONG));
        await app.has(1);
        assert.deepEqual(await app.isVisible(true, { ttl: 30 }), { device: phone.device, ttl: 30 });
        scene.pushedAt.delete(phone.device);
        await scene.received(phone, await scene.tell(phone, LONG));
      });

      test("hidden later: pushed at once", async (t) => {
        const { phone, app } = await stage(t);
        assert.deepEqual(await app.isVisible(false), { device: phone.device, ttl: 0 });
        await scene.pushed(phone, await scene.tell(phone, LONG));
        await app.has(1);
      });

      test("without a word about the screen: pushed at once, and not if the event does not ask", async (t) => {
        const { phone, app } = await stage(t, { claim: ({ device, credential }) => ({ device, credential }) });
        await scene.pushed(phone, await scene.tell(phone, LONG));
        scene.pushedAt.delete(phone.device);
        await scene.received(phone, await scene.tell(phone, { ...LONG, receipt_policy: "any" }));
        await app.has(2);
      });

      test("a wrong credential, another's, or none: pushed at once, and the app can know", async (t) => {
        const other = await scene.phone();
        for (const credential of ["x".repeat(43), other.credential, undefined]) {
          const { phone, app } = await stage(t, { claim: (phone) => ({ ...visible(phone), credential }) });
          assert.equal((await app.isVisible(true)).device, null);
          await scene.pushed(phone, await scene.tell(phone, LONG));
          await app.has(1);
          app.stayed();
        }
      });

      test("a token of the backend's proves the device", async (t) => {
        const phone = await scene.phone();
        const words = ["token", "--user", "ada", "--device", phone.device, "--config", scene.configurationFile];
        const token = execFileSync(BINARY, words, { encoding: "utf8" }).trim();
        const app = await App.start(t, command, scene, phone, { claim: { visible: true }, token });
        await scene.received(phone, await scene.tell(phone, LONG));
        await app.has(1);
      });

      test("a forged token ends the connection, and the phone is pushed at once", async (t) => {
        const phone = await scene.phone();
        const [header, claims] = deviceToken("ada", phone.device).split(".");
        const forged = `${header}.${claims}.${"A".repeat(43)}`;
        const app = await App.start(t, command, scene, phone, { claim: { visible: true }, token: forged });
        assert.deepEqual(app.heard("disconnected").map(({ code }) => code), [3500]);
        await scene.pushed(phone, await scene.tell(phone, LONG));
      });

      test("stopped: pushed after the wait and not before", async (t) => {
        const { phone, app } = await stage(t);
        await app.sleep();
        const id = await scene.tell(phone, { receipt_wait: "3s" });
        await scene.holds(id);
        const at = await scene.pushed(phone, id);
        const waited = at - Date.parse((await scene.report(id)).accepted_at);
        assert.ok(waited >= 2999 && waited < 6000, `pushed ${waited} ms after it was accepted`);
        app.wake();
        await app.has(1);
      });

      test("stopped and awake again in time: not pushed", async (t) => {
        const { phone, app } = await stage(t);
        await app.sleep();
        const id = await scene.tell(phone, LONG);
        await scene.holds(id);
        app.wake();
        await scene.received(phone, id);
        await app.has(1);
        app.stayed();
      });

      test("cut off before it arrived, back in time: not pushed", async (t) => {
        const wire = await Wire.to(t, scene);
        const { phone, app } = await stage(t, { wire });
        wire.freeze();
        const id = await scene.tell(phone, LONG);
        await scene.holds(id);
        wire.cut();
        wire.thaw();
        await scene.received(phone, id);
        await app.isBack();
        await app.has(1);
      });

      test("cut off before it could answer: where it resumes is the answer", async (t) => {
        const wire = await Wire.to(t, scene);
        const { phone, app } = await stage(t, { wire });
        wire.mute();
        const id = await scene.tell(phone, LONG);
        await app.has(1);
        assert.equal((await scene.report(id)).state, "running", "no answer has come through");
        wire.cut();
        wire.thaw();
        await scene.received(phone, id);
        await app.isBack();
        await app.has(1);
      });

      test("gone: pushed at once", async (t) => {
        const { phone, app } = await stage(t);
        await app.disconnect();
        await scene.left(phone);
        await scene.pushed(phone, await scene.tell(phone, LONG));
      });

      test("the backend learns how many were written to and how many got it", async (t) => {
        const phone = await scene.phone();
        const tokens = [deviceToken("ada", phone.device), deviceToken("bob", undefined), undefined];
        const apps = await Promise.all(tokens.map((token) => App.start(t, command, scene, phone, { token })));
        const asked = { push: "never", receipt: true };
        const receipts = (id, wait) => scene.ok("GET", `/v1/events/${id}/receipts?wait=${wait}`);
        const users = { users: ["ada", "bob"], users_complete: true };
        assert.deepEqual(await receipts(await scene.tell(phone, asked), "20s"), { written: 3, received: 3, ...users });
        await apps[1].sleep();
        users.users.pop();
        assert.deepEqual(await receipts(await scene.tell(phone, asked), "2s"), { written: 3, received: 2, ...users });
        assert.ok(!scene.pushedAt.has(phone.device), "push: never");
        apps[1].wake();
      });

      test("its connection is closed while it sleeps, it is back in time: not pushed", async (t) => {
        const where = await Scene.start(t, { pings: PINGS_OFTEN });
        const { phone, app } = await stage(t, { where });
        await app.sleep();
        const id = await where.tell(phone, LONG);
        await where.left(phone);
        assert.equal((await where.report(id)).state, "running", "it is still waited for");
        app.wake();
        await where.received(phone, id);
        await app.isBack();
        await app.has(1);
      });
    });
  }
});

test("200 apps in two formats and 100 events: each gets each once and in order, nobody is pushed", options, async (t) => {
  const scene = await Scene.start(t, { pings: PINGS_OFTEN });
  const subject = "match:1";
  const phones = await Promise.all(Array.from({ length: 200 }, () => scene.phone({ subject })));
  const start = (phone, index) => {
    const data = { tidings: visible(phone) };
    return connected(t, scene, phone, { format: FORMATS[index % FORMATS.length], data, timeout: 20_000 });
  };
  const apps = await Promise.all(phones.map(start));
  // Nobody is asked in the first second, and 64 events are remembered meanwhile: the first one waits for its end.
  const ids = [await scene.tell({ subject }, { ...LONG, receipt: true })];
  await scene.outcomes(ids[0]);
  while (ids.length < 100) {
    ids.push(await scene.tell({ subject }, { ...LONG, receipt: true }));
  }
  for (const id of ids) {
    assert.deepEqual(await scene.outcomes(id), { received: 200 });
  }
  const { written, received } = await scene.ok("GET", `/v1/events/${ids.at(-1)}/receipts`);
  assert.deepEqual({ written, received }, { written: 200, received: 200 });
  const wanted = Array.from({ length: 100 }, (_, index) => index + 1);
  for (const { codes, offsets } of apps) {
    assert.deepEqual(offsets, wanted);
    assert.deepEqual(codes, [0], "connected once");
  }
  assert.equal(scene.pushedAt.size, 0);
});
