// Every-day life with the unmodified SDKs for Go, Java and Python: what sdk.test.mjs, delivery.test.mjs and recovery.test.mjs
// judge with the one for JavaScript, as far as these SDKs have it.

import assert from "node:assert/strict";
import { after, before, describe, test } from "node:test";

import { SUITE, Wire, until } from "../server.mjs";
import { Tool, go, java, python } from "../tool.mjs";
import { Server, fresh, numbers, seconds, token } from "./harness.mjs";
import { FORMATS } from "./sdk.mjs";

const options = { timeout: 60_000 };
/** The Java SDK has no deltas. */
const SDKS = [
  ...FORMATS.flatMap((format) => [
    { name: `go in ${format}`, hasDeltas: true, start: (words) => go("centrifuge", [JSON.stringify({ ...words, format })]) },
    {
      name: `python in ${format}`,
      hasDeltas: true,
      start: (words) => python("centrifuge_client", [JSON.stringify({ ...words, format })]),
    },
  ]),
  { name: "java in protobuf", hasDeltas: false, start: (words) => java("Centrifuge", [JSON.stringify(words)]) },
];

let server;
before(async () => (server = await Server.start()));
after(() => server?.stop());

/** A program with an SDK. */
class App {
  static async start(t, { start }, { wire = server, user = "ada", ...words } = {}) {
    const url = `ws://127.0.0.1:${wire.port}/connection/websocket`;
    const app = new App();
    const known = words.tokens ? {} : { token: token({ sub: user, exp: seconds(3600) }) };
    app.tool = await Tool.start(t, start({ url, ...known, ...words }));
    return app;
  }

  /** What its handlers have heard. */
  heard(on) {
    return this.tool.lines.filter((line) => line.on === on);
  }

  async hears(on, count = 1) {
    const state = () => this.tool.lines.slice(-5).map((line) => JSON.stringify(line)).join("\n");
    await until(`${count} × ${on}`, () => this.heard(on).length >= count).catch((error) => {
      throw new Error(`${error.message}; the last it heard:\n${state()}\n${this.tool.log}`);
    });
    return this.heard(on);
  }

  /** A call about its channel that must succeed: the result. */
  async does(what, more = {}) {
    const { result, error } = await this.tool.ask({ do: what, ...more });
    assert.equal(error, undefined, what);
    return result;
  }

  get numbers() {
    return this.heard("publication").map(({ data }) => data.number);
  }
}

for (const sdk of SDKS) {
  describe(sdk.name, { ...SUITE, concurrency: 4 }, () => {
    /** It follows a channel. */
    async function follower(t, channel, more = {}) {
      const app = await App.start(t, sdk, { channel, ...more });
      await app.hears("subscribed");
      return app;
    }

    test("it publishes, and is told of what others publish", options, async (t) => {
      const channel = fresh("chat");
      const app = await follower(t, channel);
      await server.publish(channel, { number: 1, text: "é あ 🎉" });
      await app.does("publish", { data: { number: 2 } });
      const [first, second] = await app.hears("publication", 2);
      assert.deepEqual([first.offset, first.data], [1, { number: 1, text: "é あ 🎉" }]);
      assert.deepEqual([second.offset, second.data], [2, { number: 2 }]);
    });

    test("it reads the history, and who is there", options, async (t) => {
      const channel = fresh("chat");
      const app = await follower(t, channel);
      await follower(t, channel, { user: "bob" });
      for (const number of numbers(3)) {
        await server.publish(channel, { number });
      }
      const read = async (how) => {
        const { publications, offset } = await app.does("history", how);
        assert.equal(offset, 3);
        return publications.map(({ data }) => data.number);
      };
      assert.deepEqual(await read({ limit: -1 }), [1, 2, 3]);
      assert.deepEqual(await read({ limit: 2, reverse: true }), [3, 2]);
      assert.deepEqual((await app.does("presence")).users.sort(), ["ada", "bob"]);
      assert.deepEqual(await app.does("presence_stats"), { clients: 2, users: 2 });
    });

    test("cut off while publications flow, none is missed or repeated", options, async (t) => {
      const [channel, wire] = [fresh("match"), await Wire.to(t, server)];
      const app = await follower(t, channel, { wire });
      for (const number of numbers(100)) {
        await server.publish(channel, { number });
        if (number % 30 === 0) {
          wire.cut();
          await app.hears("subscribed", number / 30 + 1);
        }
      }
      await app.hears("publication", 100);
      assert.deepEqual(app.numbers, numbers(100));
      assert.deepEqual(app.heard("subscribed").slice(1).map(({ recovered }) => recovered), [true, true, true]);
    });

    test("what was published during an absence comes on return", options, async (t) => {
      const [channel, wire] = [fresh("chat"), await Wire.to(t, server)];
      const app = await follower(t, channel, { wire });
      wire.close();
      for (const number of numbers(50)) {
        await server.publish(channel, { number });
      }
      wire.open();
      await app.hears("publication", 50);
      assert.deepEqual(app.numbers, numbers(50));
    });

    test("a token that expires is refreshed on the living connection", options, async (t) => {
      const tokens = [3, 3600].map((from) => token({ sub: "ada", exp: seconds(from) }));
      const channel = fresh("chat");
      const app = await follower(t, channel, { tokens });
      await app.hears("token", 2);
      await server.publish(channel, { number: 1 });
      await app.hears("publication");
      assert.deepEqual([app.heard("connected").length, app.heard("disconnected")], [1, []]);
    });

    test("a forged token ends the connection for good", options, async (t) => {
      const forged = token({ sub: "ada" }, "another secret of thirty-two bytes");
      const app = await App.start(t, sdk, { token: forged });
      assert.deepEqual((await app.hears("disconnected")).map(({ code }) => code), [3500]);
    });

    test("a closed channel is refused, and opened by a token", options, async (t) => {
      const channel = fresh("closed");
      const refused = await App.start(t, sdk, { channel });
      assert.deepEqual((await refused.hears("unsubscribed")).map(({ code }) => code), [103]);
      const app = await follower(t, channel, { channel_token: token({ sub: "ada", channel, exp: seconds(3600) }) });
      await server.publish(channel, { number: 1 });
      await app.hears("publication");
    });

    test("the server subscribes it, and takes it out again", options, async (t) => {
      const [user, channel] = [fresh("user"), fresh("chat")];
      const wire = await Wire.to(t, server);
      const app = await App.start(t, sdk, { user, wire });
      await app.hears("connected");
      await server.api("subscribe", { user, channel });
      await app.hears("server_subscribed");
      await server.publish(channel, { number: 1 });
      const [{ offset, data, ...told }] = await app.hears("server_publication");
      assert.deepEqual([told.channel, offset, data], [channel, 1, { number: 1 }]);

      await server.api("unsubscribe", { user, channel });
      assert.equal((await app.hears("server_unsubscribed"))[0].channel, channel);
    });

    test("a token's channels are followed, also over a break", options, async (t) => {
      const [channel, wire] = [fresh("match"), await Wire.to(t, server)];
      const tokens = [token({ sub: "ada", exp: seconds(3600), channels: [channel] })];
      const app = await App.start(t, sdk, { tokens, wire });
      await app.hears("server_subscribed");
      await server.publish(channel, { number: 1 });
      await app.hears("server_publication");
      wire.close();
      await server.publish(channel, { number: 2 });
      wire.open();
      const heard = await app.hears("server_publication", 2);
      assert.deepEqual(heard.map(({ data }) => data.number), [1, 2]);
      assert.equal(app.heard("server_subscribed").at(-1).recovered, true);
    });

    test("it is told who joins and leaves", options, async (t) => {
      const channel = fresh("lively");
      const app = await follower(t, channel, { join_leave: true });
      const other = await follower(t, channel, { user: "bob" });
      const joined = await app.hears("join", 2);
      assert.deepEqual(joined.map(({ user }) => user), ["ada", "bob"]);
      await other.tool.ask({});
      assert.deepEqual((await app.hears("leave")).map(({ user }) => user), ["bob"]);
    });

    if (sdk.hasDeltas) {
      test("deltas change nothing for the app, also over a break", options, async (t) => {
        const [channel, wire] = [fresh("small"), await Wire.to(t, server)];
        const app = await follower(t, channel, { delta: "fossil", wire });
        const state = (number) => ({ number, filler: "größer, 東京都 🏆 ".repeat(20), last: "é".repeat(number % 7) });
        for (const number of numbers(60)) {
          if (number === 30) {
            wire.close();
          }
          await server.publish(channel, state(number));
          if (number === 40) {
            wire.open();
            await app.hears("subscribed", 2);
          }
        }
        const heard = await app.hears("publication", 60);
        assert.deepEqual(heard.map(({ data }) => data), numbers(60).map(state));
        assert.deepEqual(app.heard("subscribed").map(({ recovered }) => recovered), [false, true]);
      });
    }
  });
}
