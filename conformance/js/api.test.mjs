// Centrifugo's server API with Centrifugo's own libraries, unmodified: cent for Python, which names the method in the path,
// and gocent for Go, which uses the older endpoint. Clients are the JavaScript SDK.

import assert from "node:assert/strict";
import { after, before, describe, test } from "node:test";

import { API_KEY, SUITE } from "../server.mjs";
import { Tool, go, python } from "../tool.mjs";
import { Server, fresh, next, seconds, subscribed, token, until } from "./harness.mjs";

let server;
before(async () => (server = await Server.start()));
after(() => server?.stop());

const options = { timeout: 60_000 };
const LIBRARIES = [
  { name: "cent", start: (port, key) => python("cent_calls", [`http://127.0.0.1:${port}/api`, key]) },
  { name: "gocent", start: (port, key) => go("gocent", [`http://127.0.0.1:${port}/api`, key]) },
];

for (const { name, start } of LIBRARIES) {
  const is = (other) => name === other;

  describe(name, { ...SUITE, concurrency: 4 }, () => {
    let tool, stop;
    before(async () => (tool = await Tool.start({ after: (over) => (stop = over) }, start(server.port, API_KEY))));
    after(() => stop?.());

    const call = (method, params = {}) => tool.ask({ method, params });
    /** A call that must succeed: its result. */
    const result = async (method, params) => {
      const answer = await call(method, params);
      assert.equal(answer.error, undefined, `${method}: ${JSON.stringify(answer)}`);
      return answer.result;
    };
    /** A call that must be refused: the code. */
    const refused = async (method, params) => (await call(method, params)).error?.code;

    /** A client with a user of its own, which follows `channel`. */
    async function follower(t, channel = fresh("chat")) {
      const user = fresh("user");
      const client = await server.connected(t, { token: token({ sub: user, exp: seconds(3600) }) });
      const sub = await subscribed(client, channel);
      const ids = Object.entries((await sub.presence()).clients).filter(([, info]) => info.user === user);
      return { user, client, sub, channel, id: ids[0][0] };
    }

    test("publish reaches the subscriber and says where it is", options, async (t) => {
      const { sub, channel } = await follower(t);
      const { epoch } = sub.joined[0].streamPosition;
      assert.deepEqual(await result("publish", { channel, data: { goal: "1:0" } }), { offset: 1, epoch });
      await result("publish", { channel, data: { goal: "1:1" }, skip_history: true });
      assert.equal((await result("publish", { channel, data: { goal: "2:1" } })).offset, 2);
      await until("all are there", () => sub.seen.length === 3);
      assert.deepEqual(sub.seen.map(({ data }) => data.goal), ["1:0", "1:1", "2:1"]);
      assert.ok(!sub.seen[1].offset, "what is not kept has no offset");
    });

    test("broadcast reaches every channel, and says of each what became of it", options, async (t) => {
      const [ada, bob] = [await follower(t), await follower(t)];
      const channels = [ada.channel, fresh("nowhere"), bob.channel];
      const { responses } = await result("broadcast", { channels, data: { half: 2 } });
      assert.deepEqual(responses.map(({ result }) => result?.offset), [1, undefined, 1]);
      assert.deepEqual(responses.map(({ error }) => error?.code), [undefined, 102, undefined]);
      await until("both have it", () => ada.sub.seen.length === 1 && bob.sub.seen.length === 1);
    });

    test("history goes forward, backward and from a position, and is removed", options, async (t) => {
      const { channel, sub } = await follower(t);
      const { epoch } = sub.joined[0].streamPosition;
      for (const number of [1, 2, 3]) {
        await result("publish", { channel, data: { number } });
      }
      const read = async (how) => {
        const found = await result("history", { channel, ...how });
        assert.deepEqual([found.offset, found.epoch], [3, epoch]);
        return (found.publications ?? []).map(({ offset, data }) => [offset, data.number]);
      };
      assert.deepEqual(await read({ limit: -1 }), [[1, 1], [2, 2], [3, 3]]);
      assert.deepEqual(await read({ limit: 2, reverse: true }), [[3, 3], [2, 2]]);
      assert.deepEqual(await read({ limit: 5, since: { offset: 1, epoch } }), [[2, 2], [3, 3]]);
      assert.deepEqual(await read({}), []);
      assert.equal(await refused("history", { channel, limit: 1, since: { offset: 1, epoch: "gone" } }), 112);
      assert.deepEqual(await result("history_remove", { channel }), {});
      assert.deepEqual(await read({ limit: -1 }), []);
    });

    test("presence, presence_stats and channels tell who is where", options, async (t) => {
      const { channel, id, user } = await follower(t);
      await follower(t, channel);
      const { presence } = await result("presence", { channel });
      assert.deepEqual([Object.keys(presence).length, presence[id].user, presence[id].client], [2, user, id]);
      const { num_clients, num_users } = await result("presence_stats", { channel });
      assert.deepEqual([num_clients, num_users], [2, 2]);
      const found = (await result("channels", { pattern: `${channel.slice(0, -1)}?` })).channels;
      assert.deepEqual(Object.keys(found), [channel]);
      // gocent has only the field of an earlier Centrifugo, `num_users`.
      assert.equal(found[channel].num_clients, is("cent") ? 2 : undefined);
    });

    test("info describes the node", options, async (t) => {
      await follower(t);
      const { nodes } = await result("info");
      assert.equal(nodes.length, 1);
      const [{ uid, name, version, num_clients, num_users, num_channels }] = nodes;
      assert.ok(uid && name && version, "it has a name");
      assert.ok(num_clients >= 1 && num_users >= 1 && num_channels >= 1, "it has clients");
    });

    test("subscribe and unsubscribe change a live connection", options, async (t) => {
      const { client, user, id } = await follower(t);
      const channel = fresh("closed");
      const [told, publication, left] = ["subscribed", "publication", "unsubscribed"].map((event) =>
        next(client, event, (context) => context.channel === channel),
      );
      assert.deepEqual(await result("subscribe", { user, channel, client: id, data: { from: "us" } }), {});
      assert.deepEqual((await told).data, { from: "us" });
      await result("publish", { channel, data: { number: 1 } });
      assert.deepEqual((await publication).data, { number: 1 });
      assert.deepEqual(await result("unsubscribe", { user, channel }), {});
      await left;
    });

    test("disconnect closes the user's connections, for good by default", options, async (t) => {
      const [gone, stays] = [await follower(t), await follower(t)];
      const closed = next(gone.client, "disconnected");
      assert.deepEqual(await result("disconnect", { user: gone.user }), {});
      assert.equal((await closed).code, 3503);
      assert.equal(stays.client.state, "connected");
    });

    test("disconnect takes a code, and spares who is on the list", options, async (t) => {
      const { client, user, id } = await follower(t);
      const closed = next(client, "disconnected");
      if (!is("gocent")) { // It writes the list as `ClientWhitelist`, which Centrifugo does not know either.
        await result("disconnect", { user, whitelist: [id], disconnect: { code: 4500, reason: "not you" } });
        assert.equal(client.state, "connected");
      }
      await result("disconnect", { user, disconnect: { code: 4501, reason: "bye" } });
      const { code, reason } = await closed;
      assert.deepEqual([code, reason], [4501, "bye"]);
    });

    test("refusals have their codes", options, async () => {
      const data = {};
      assert.equal(await refused("publish", { channel: fresh("nowhere"), data }), 102);
      assert.equal(await refused("publish", { channel: "", data }), 107);
      assert.equal(await refused("history", { channel: fresh("plain"), limit: 1 }), 108);
      assert.equal(await refused("presence", { channel: fresh("plain") }), 108);
      assert.equal(await refused("presence_stats", { channel: fresh("nowhere") }), 102);
    });

    test("a wrong key is refused with 401", options, async (t) => {
      const stranger = await Tool.start(t, start(server.port, "not-the-key"));
      assert.deepEqual(await stranger.ask({ method: "info", params: {} }), { status: 401 });
    });

    test("several commands go in one request", options, async (t) => {
      const { channel, sub } = await follower(t);
      const publish = (number) => ({ channel, data: { number } });
      if (is("cent")) {
        const commands = [{ publish: publish(1) }, { presence_stats: { channel } }, { publish: publish(2) }];
        const { replies } = await result("batch", { commands });
        assert.deepEqual(replies.map(({ offset, num_clients }) => offset ?? num_clients), [1, 1, 2]);
        await result("batch", { commands: [{ publish: publish(3) }], parallel: true });
      } else {
        const replies = await result("pipe", { commands: [1, 2, 3].map(publish) });
        assert.deepEqual(replies.map(({ result }) => result.offset), [1, 2, 3]);
      }
      await until("all are there", () => sub.seen.length === 3);
    });

    if (is("cent")) {
      test("refresh changes when a connection ends, and ends it", options, async (t) => {
        const { client, user } = await follower(t);
        const closed = next(client, "connecting");
        assert.deepEqual(await result("refresh", { user, expire_at: seconds(3600) }), {});
        assert.equal(client.state, "connected");
        assert.deepEqual(await result("refresh", { user, expired: true }), {});
        assert.equal((await closed).code, 3005, "closed, and it may come back");
      });

      test("connections tells of a user's connections", options, async (t) => {
        const { user, id, channel } = await follower(t);
        const { connections } = await result("connections", { user, expression: "" });
        assert.deepEqual(Object.keys(connections), [id]);
        const { transport, protocol, state } = connections[id];
        assert.deepEqual([transport, protocol, Object.keys(state.channels)], ["websocket", "json", [channel]]);
      });

      test("a publication with tags and a key is published once", options, async (t) => {
        const { channel, sub } = await follower(t);
        const once = { channel, data: { number: 1 }, tags: { kind: "goal" }, idempotency_key: "1" };
        assert.equal((await result("publish", once)).offset, 1);
        assert.equal((await result("publish", once)).offset, 1);
        await result("publish", { channel, data: { number: 2 } });
        await until("both are there", () => sub.seen.length === 2);
        assert.deepEqual(sub.seen[0].tags, { kind: "goal" });
        assert.deepEqual((await result("history", { channel, limit: 1 })).publications[0].tags, { kind: "goal" });
      });
    }
  });
}
