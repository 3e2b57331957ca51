// What is said to both servers by `beside.test.mjs`: scripts by name, and conversations made from a seed. A command is an
// object, or in JSON a text that is sent as it is.

const connect = { id: 1, connect: {} };
let channels = 0;
/** A channel of this script alone. */
const channel = (namespace) => `${namespace}:${process.pid}-${++channels}`;

/** The epoch of the subscribe reply with the id `of` of a connection; of its first one without. */
const epochOf = (who, of) => (run) =>
  run.connections[who].replies.find(({ id, subscribe }) => subscribe && (of === undefined || id === of))?.subscribe.epoch ?? "";

/** Scripts of both formats. */
function common({ token, seconds }) {
  const subscribe = (id, name, more = {}) => ({ id, subscribe: { channel: name, ...more } });
  const user = (claims) => ({ id: 1, connect: { token: token({ sub: "42", ...claims }) } });
  const one = (...commands) => [{ a: commands }];
  /** Behind a connect, each command in a frame of its own. */
  const each = (...commands) => [connect, ...commands].map((command) => ({ a: [command] }));
  const name = { chat: channel("chat"), asked: channel("asked") };
  const published = (to, count) =>
    Array.from({ length: count }, (_, index) => ({ api: ["publish", { channel: to, data: { n: index + 1 } }] }));
  const recovery = (more, kind = "chat", count = 3) => {
    const to = channel(kind);
    return [
      { b: [connect] }, { b: [subscribe(2, to, { recoverable: true })] }, ...published(to, count),
      { a: [connect] }, { a: [subscribe(2, to, { recover: true, ...more })] },
    ];
  };
  return {
    "an anonymous connect": one(connect),
    "a connect with name, version and data": one({ id: 7, connect: { name: "js", version: "1", data: { a: 1 } } }),
    "a token with a user": one(user({})),
    "a token that expires": one(user({ exp: seconds(3600) })),
    "a token with info": [{ a: [user({ info: { name: "Ann" } })] }, { a: [subscribe(2, name.chat)] }, { a: [{ id: 3, presence: { channel: name.chat } }] }],
    "an expired token": one(user({ exp: seconds(-60) })),
    "a token of the future": one(user({ nbf: seconds(600) })),
    "a forged token": one({ id: 1, connect: { token: token({ sub: "42" }, "another secret of thirty-two bytes") } }),
    "a token that is none": one({ id: 1, connect: { token: "rubbish" } }),
    "a refused connect and a command": one(user({ exp: seconds(-60) }), subscribe(2, name.chat)),
    "a command before connect": one(subscribe(1, name.chat)),
    "a second connect": each({ id: 2, connect: {} }),
    "connect and subscribe in one frame": one(connect, subscribe(2, channel("chat"))),
    "an id of zero": each({ id: 0, subscribe: { channel: name.chat } }),
    "a pong that nobody asked for": each({}),
    "a ping command": each({ id: 2, ping: {} }),
    "a message without an answer": each({ send: { data: { a: 1 } } }),
    "rpc without a handler": each({ id: 2, rpc: { method: "m", data: { a: 1 } } }),
    "subscribe without a channel": each(subscribe(2, "")),
    "subscribe in an unknown namespace": each(subscribe(2, "nowhere:1")),
    "subscribe without a namespace": each(subscribe(2, "bare")),
    "subscribe where nobody may": each(subscribe(2, channel("closed"))),
    "subscribe where users may, without a user": each(subscribe(2, channel("users"))),
    "subscribe where users may, with a user": [{ a: [user({})] }, { a: [subscribe(2, channel("users"))] }],
    "subscribe twice": each(subscribe(2, name.chat), subscribe(3, name.chat)),
    "subscribe to a name that is too long": each(subscribe(2, `chat:${"x".repeat(251)}`)),
    "subscribe to the longest name": each(subscribe(2, `chat:${"x".repeat(250)}`)),
    "a private channel without a token": each(subscribe(2, "$chat:1")),
    "a subscription token": [
      { a: [user({})] },
      { a: [subscribe(2, name.asked, { token: token({ sub: "42", channel: name.asked, info: { seat: 7 } }) })] },
    ],
    "a subscription token that expires": [
      { a: [user({})] },
      { a: [subscribe(2, channel("closed"), { token: token({ sub: "42", channel: `closed:${process.pid}-${channels}`, exp: seconds(3600) }) })] },
    ],
    "a subscription token of another channel": [
      { a: [user({})] }, { a: [subscribe(2, channel("closed"), { token: token({ sub: "42", channel: "closed:other" }) })] },
    ],
    "a subscription token of another user": [
      { a: [user({})] }, { a: [subscribe(2, "closed:u", { token: token({ sub: "43", channel: "closed:u" }) })] },
    ],
    "an expired subscription token": [
      { a: [user({})] }, { a: [subscribe(2, "closed:u", { token: token({ sub: "42", channel: "closed:u", exp: seconds(-60) }) })] },
    ],
    "a forged subscription token": [
      { a: [user({})] }, { a: [subscribe(2, "closed:u", { token: token({ sub: "42", channel: "closed:u" }, "another secret of thirty-two bytes") })] },
    ],
    "subscribe with an unknown delta": each(subscribe(2, name.chat, { delta: "zip" })),
    "subscribe with a delta nobody allows": each(subscribe(2, name.chat, { delta: "fossil" })),
    "positioned and recoverable where one may ask": each(subscribe(2, channel("asked"), { positioned: true, recoverable: true })),
    "positioned only": each(subscribe(2, channel("asked"), { positioned: true })),
    "neither asked": each(subscribe(2, channel("asked"))),
    "recoverable where there is no history": each(subscribe(2, channel("plain"), { recoverable: true })),
    "unsubscribe": each(subscribe(2, name.chat), { id: 3, unsubscribe: { channel: name.chat } }),
    "unsubscribe from what was not subscribed": each({ id: 2, unsubscribe: { channel: name.chat } }),
    "unsubscribe without a channel": each({ id: 2, unsubscribe: {} }),
    "publish and get it": (() => {
      const to = channel("chat");
      return each(subscribe(2, to), { id: 3, publish: { channel: to, data: { text: "hi" } } });
    })(),
    "publish with a user": (() => {
      const to = channel("chat");
      return [{ a: [user({ info: { name: "Ann" } })] }, { a: [subscribe(2, to)] }, { a: [{ id: 3, publish: { channel: to, data: 1 } }] }];
    })(),
    "publish without data": each({ id: 2, publish: { channel: name.chat } }),
    "publish null": each(subscribe(2, name.asked), { id: 3, publish: { channel: channel("chat"), data: null } }),
    "publish without a channel": each({ id: 2, publish: { data: 1 } }),
    "publish where nobody may": each({ id: 2, publish: { channel: "closed:x", data: 1 } }),
    "publish in an unknown namespace": each({ id: 2, publish: { channel: "nowhere:x", data: 1 } }),
    "publish where subscribers may, without a subscription": each({ id: 2, publish: { channel: "members:x", data: 1 } }),
    "history of nothing": each({ id: 2, history: { channel: channel("chat"), limit: 10 } }),
    "history without a limit": [...published(name.chat, 3), ...each({ id: 2, history: { channel: name.chat } })],
    "history of all": each({ id: 2, history: { channel: name.chat, limit: -1 } }),
    "history of two": each({ id: 2, history: { channel: name.chat, limit: 2 } }),
    "the latest two": each({ id: 2, history: { channel: name.chat, limit: 2, reverse: true } }),
    "history since": each({ id: 2, history: { channel: name.chat, limit: 5, since: { offset: 1 } } }),
    "history since, backwards": each({ id: 2, history: { channel: name.chat, limit: 5, since: { offset: 3 }, reverse: true } }),
    "history backwards since nothing": each({ id: 2, history: { channel: name.chat, limit: 5, since: { offset: 0 }, reverse: true } }),
    "history since another epoch": each({ id: 2, history: { channel: name.chat, limit: 5, since: { offset: 1, epoch: "other" } } }),
    "history where there is none": each({ id: 2, history: { channel: "plain:x", limit: 5 } }),
    "history without a channel": each({ id: 2, history: {} }),
    "history where nobody may": each({ id: 2, history: { channel: "closed:x" } }),
    "presence without a subscription": each({ id: 2, presence: { channel: channel("chat") } }),
    "presence stats": each(subscribe(2, name.asked), { id: 3, presence_stats: { channel: channel("chat") } }),
    "presence where there is none": each({ id: 2, presence: { channel: "plain:x" } }, { id: 3, presence_stats: { channel: "plain:x" } }),
    "presence where nobody may": each({ id: 2, presence: { channel: "closed:x" } }),
    "presence without a channel": each({ id: 2, presence: {} }),
    "refresh without a token": each({ id: 2, refresh: {} }),
    "refresh of a connection without a token": each({ id: 2, refresh: { token: token({ sub: "", exp: seconds(60) }) } }),
    "refresh": [{ a: [user({ exp: seconds(600) })] }, { a: [{ id: 2, refresh: { token: token({ sub: "42", exp: seconds(3600) }) } }] }],
    "refresh with another user": [{ a: [user({ exp: seconds(600) })] }, { a: [{ id: 2, refresh: { token: token({ sub: "43", exp: seconds(3600) }) } }] }],
    "refresh with an expired token": [{ a: [user({ exp: seconds(600) })] }, { a: [{ id: 2, refresh: { token: token({ sub: "42", exp: seconds(-60) }) } }] }],
    "sub_refresh of what is not subscribed": each({ id: 2, sub_refresh: { channel: "chat:x", token: "t" } }),
    "sub_refresh without a channel": each({ id: 2, sub_refresh: {} }),
    "recovery of what was missed": recovery({ offset: 1, epoch: epochOf("b") }),
    "recovery of nothing": recovery({ offset: 3, epoch: epochOf("b") }),
    "recovery from the beginning": recovery({ offset: 0, epoch: epochOf("b") }),
    "recovery without an epoch": recovery({ offset: 1 }),
    "recovery of another epoch": recovery({ offset: 1, epoch: "other" }),
    "recovery of another epoch, as an error": recovery({ offset: 1, epoch: "other", flag: 2 }),
    "recovery of more than is kept": recovery({ offset: 1, epoch: epochOf("b") }, "chat", 9),
    "recovery from the future": recovery({ offset: 9, epoch: epochOf("b") }),
    "recovery where one may ask": recovery({ offset: 1, epoch: epochOf("b") }, "asked"),
    "a publication of the server": [
      { a: [connect] }, { a: [subscribe(2, channel("chat"))] },
      { api: ["publish", { channel: `chat:${process.pid}-${channels}`, data: { a: [1, "é"] }, tags: { kind: "goal" } }] },
    ],
    "the server API": [
      { api: ["publish", { channel: channel("chat"), data: {} }] },
      { api: ["publish", { channel: "plain:x", data: {} }] },
      { api: ["publish", { channel: "nowhere:x", data: {} }] },
      { api: ["publish", { channel: "", data: {} }] },
      { api: ["publish", { channel: "chat:x" }] },
      { api: ["broadcast", { channels: ["plain:x", "nowhere:x"], data: 1 }] },
      { api: ["broadcast", { channels: [], data: 1 }] },
      { api: ["history", { channel: "plain:x" }] },
      { api: ["history", { channel: name.chat, limit: 2 }] },
      { api: ["history", { channel: name.chat, limit: 2, since: { offset: 1, epoch: "other" } }] },
      { api: ["presence", { channel: "plain:x" }] },
      { api: ["presence", { channel: "chat:nobody" }] },
      { api: ["presence_stats", { channel: "chat:nobody" }] },
      { api: ["nothing", {}] },
      { api: ["publish", "{"] },
      { api: ["batch", { commands: [{ publish: { channel: "plain:x", data: 1 } }, { presence: { channel: "plain:x" } }, {}] }] },
    ],
  };
}

/** Frames that only JSON can have. */
const json = {
  "a command that nobody knows": [{ a: [connect] }, { a: ['{"id":2,"dance":{}}'] }],
  "an unknown field": [{ a: ['{"id":1,"connect":{},"more":1}'] }],
  "no JSON": [{ a: ["{"] }],
  "an empty line": [{ a: ['{"id":1,"connect":{}}\n\n{"id":2,"presence":{"channel":"chat:x"}}'] }],
  "an empty frame": [{ a: [""] }],
  "a number for a channel": [{ a: [connect] }, { a: ['{"id":2,"subscribe":{"channel":7}}'] }],
  "an id that is negative": [{ a: [connect] }, { a: ['{"id":-2,"subscribe":{"channel":"chat:x"}}'] }],
};

export const scripts = (tools) => ({ ...common(tools), ...(tools.format === "json" ? json : {}) });

/** Scripts of programs that only listen: what each says is one request to connect. */
export function listening({ token, seconds }) {
  const user = (name, claims, more) => ({ token: token({ sub: name, ...claims }), ...more });
  const published = (to, count) =>
    Array.from({ length: count }, (_, index) => ({ api: ["publish", { channel: to, data: { n: index + 1, text: "é" } }] }));
  const fresh = () => `${process.pid}-${++channels}`;
  const [chat, plain, told, named, ordered] = ["chat", "plain", "told", "chat", "chat"].map(channel);
  const [ann, ben, eve] = [fresh(), fresh(), fresh()];
  const position = (run) => ({ recover: true, offset: 1, epoch: run.connections.b.pushes[0].connect.subs[named].epoch });
  const has = (who, count) => ({ until: [who, ({ pushes }) => pushes.length >= count] });
  const isOver = (who) => ({ until: [who, (it) => it.isOver] });
  return {
    "a program that says nothing": [{ a: {} }],
    "a program with a token": [
      { a: user("42", { channels: [chat, plain] }) }, ...published(chat, 3), ...published(plain, 2), has("a", 6),
    ],
    "a program with terms in its token": [
      { a: user("42", { info: { name: "Ann" }, subs: { [channel("chat")]: { data: { seat: 7 }, override: { force_recovery: { value: false } } } } }) },
    ],
    "a program whose token expires": [{ a: user("42", { exp: seconds(3600) }) }],
    "a program that names its channels": [
      { a: { subs: { [plain]: {}, [channel("closed")]: {} } } }, ...published(plain, 2), has("a", 3),
    ],
    "a program that comes back": [
      { b: user("42", { channels: [named] }) }, ...published(named, 3), has("b", 4),
      { a: user("42", { channels: [named] }, { subs: { [named]: position } }) }, ...published(named, 1), has("a", 2),
    ],
    "a program that is told of others": [
      { a: user("42", { channels: [told] }) }, has("a", 2), { b: user(ben, { channels: [told] }) }, has("a", 3),
      { api: ["disconnect", { user: ben }] }, has("a", 4), isOver("b"),
    ],
    "a program and the server API": [
      { a: user(ann) }, { api: ["subscribe", { user: ann, channel: ordered, data: { a: 1 } }] }, ...published(ordered, 2),
      { api: ["refresh", { user: ann, expire_at: seconds(7200) }] },
      { api: ["unsubscribe", { user: ann, channel: ordered }] }, ...published(ordered, 1),
      { api: ["disconnect", { user: ann, disconnect: { code: 4100, reason: "go" } }] }, isOver("a"),
    ],
    "a program that is disconnected": [{ a: user(eve) }, { api: ["disconnect", { user: eve }] }, isOver("a")],
    "a program with an expired token": [{ a: user("42", { exp: seconds(-60) }) }, isOver("a")],
    "a program with a forged token": [
      { a: { token: token({ sub: "42" }, "another secret of thirty-two bytes") } }, isOver("a"),
    ],
    "a program with an unknown namespace": [{ a: user("42", { channels: ["nowhere:1"] }) }, isOver("a")],
    "a program with an expired subscription": [{ a: user("42", { subs: { [chat]: { expire_at: seconds(-60) } } }) }],
  };
}

/** Numbers from a seed (mulberry32). */
function numbers(seed) {
  let state = seed;
  return (below) => {
    state = (state + 0x6d2b79f5) | 0;
    let mixed = Math.imul(state ^ (state >>> 15), 1 | state);
    mixed = (mixed + Math.imul(mixed ^ (mixed >>> 7), 61 | mixed)) ^ mixed;
    return ((mixed ^ (mixed >>> 14)) >>> 0) % below;
  };
}

/** A conversation of one client, with channels of its own (`place`). */
export function generated(place, seed) {
  const below = numbers(seed);
  const one = (list) => list[below(list.length)];
  const names = ["chat", "asked", "plain", "closed", "users", "members", "nowhere"].map((kind) => `${kind}:${place}-${process.pid}`);
  const name = () => one([...names, ...names.slice(0, 3), ...names.slice(0, 3)]);
  // Without a history, and for `recover` without `recoverable`, the servers differ: see UNLIKE.
  const position = () => ({ recoverable: true, recover: true, offset: below(8), epoch: one(["", "other"]) });
  const makers = [
    () => ({ subscribe: { channel: name() } }),
    () => ({ subscribe: { channel: one(names.slice(0, 2)), ...one([{ recoverable: true }, { positioned: true }, position()]) } }),
    () => ({ subscribe: { channel: names[0], ...position(), epoch: epochOf("a", 2) } }),
    () => ({ unsubscribe: { channel: name() } }),
    () => ({ publish: { channel: name(), data: one([1, "text", { a: [null, 1.5] }, []]) } }),
    () => ({ publish: { channel: name(), data: below(1000) } }),
    () => ({ history: { channel: name(), limit: one([0, 1, 3, -1, 100]), reverse: below(2) === 0 } }),
    () => ({ history: { channel: name(), limit: 3, since: { offset: 1 + below(6) } } }),
    () => ({ presence: { channel: name() } }),
    () => ({ presence_stats: { channel: name() } }),
    () => ({ rpc: { method: "m", data: 1 } }),
    () => ({ sub_refresh: { channel: name(), token: "t" } }),
  ];
  const commands = Array.from({ length: 25 }, (_, index) => ({ a: [{ id: index + 4, ...one(makers)() }] }));
  // The first subscription tells the epoch of its channel.
  const first = [{ id: 2, subscribe: { channel: names[0] } }, { id: 3, unsubscribe: { channel: names[0] } }];
  return [connect, ...first].map((command) => ({ a: [command] })).concat(commands);
}
