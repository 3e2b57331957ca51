// The server under test: the real binary (TIDINGS_BIN) with a temporary folder and a configuration, on a free port.
//
// With CONFORMANCE_NODES=2 it is a server of a cluster that does not lead, and the one that leads is beside it: the same judges
// must find the same. NATS_SERVER is then the program nats-server.
//
// Nothing here waits for a fixed time: it waits for a condition, with a deadline after which the test fails and says what
// it waited for.

import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import dgram from "node:dgram";
import { existsSync, mkdirSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import net from "node:net";
import { tmpdir } from "node:os";
import path from "node:path";
import { fileURLToPath } from "node:url";

export const BINARY = process.env.TIDINGS_BIN ?? fileURLToPath(new URL("../target/release/tidings", import.meta.url));
export const API_KEY = "conformance-api-key-0123456789";
export const DEADLINE_MS = 60_000;
/** Of a suite, whose tests have deadlines of their own. On a busy machine their sum is minutes. */
export const SUITE = { timeout: 1_500_000 };
/** Whether this is the long proof (`cargo xtask conformance-long`), which tries all ways where the short one tries each once. */
export const LONG = process.env.JUDGE_LONG === "1";
const LOG_CHARACTERS_MAX = 64 * 1024;

/** What every configuration begins with. */
export const configurationHead = (port, folder) => `
data_dir = ${JSON.stringify(path.join(folder, "data"))}

[http]
listen = "127.0.0.1:${port}"

[sender]
doubt_window = "1s"

[[api.keys]]
name = "conformance"
key = "${API_KEY}"
`;

/** Resolves when `condition()` is true; fails after the deadline, naming `what`. */
export async function until(what, condition, deadlineMs = DEADLINE_MS) {
  const start = Date.now();
  while (!(await condition())) {
    assert.ok(Date.now() - start < deadlineMs, `not within ${deadlineMs} ms: ${what}`);
    await new Promise((resolve) => setTimeout(resolve, 5));
  }
}

/** Whether a TCP server or a UDP socket takes a port. */
function takes(socket, take) {
  return new Promise((resolve) => {
    socket.once("listening", () => socket.close(() => resolve(true)));
    socket.once("error", () => resolve(false));
    take(socket);
  });
}

/**
 * A port of TCP and UDP, below those that the kernel gives to whoever asks for any: nobody else gets it before its server
 * takes it, and while the server is away from it.
 */
export async function freePort() {
  for (;;) {
    const port = 10_000 + Math.floor(Math.random() * 20_000);
    const tcp = takes(net.createServer(), (server) => server.listen(port, "127.0.0.1"));
    const udp = takes(dgram.createSocket("udp4"), (socket) => socket.bind(port, "127.0.0.1"));
    if ((await tcp) && (await udp)) {
      return port;
    }
  }
}

/** A folder of its own, gone when `stop` is called. */
export function temporaryFolder() {
  const folder = mkdtempSync(path.join(tmpdir(), "tidings-conformance-"));
  return { folder, stop: () => rmSync(folder, { recursive: true, force: true }) };
}

/** The binary, started with `words`; `log` keeps the end of what it writes. */
export class Program {
  constructor(words, cwd) {
    assert.ok(existsSync(BINARY), `no server at ${BINARY}: cargo build --release -p tidings, or set TIDINGS_BIN`);
    const environment = { ...process.env };
    delete environment.TIDINGS_BIN; // Not a setting of the server.
    this.child = spawn(BINARY, words, { cwd, env: environment, stdio: ["ignore", "pipe", "pipe"] });
    this.log = "";
    const keep = (text) => (this.log = (this.log + text).slice(-LOG_CHARACTERS_MAX));
    this.child.stdout.on("data", keep);
    this.child.stderr.on("data", keep);
    this.exited = new Promise((resolve, reject) => {
      this.child.once("exit", (code, signal) => resolve({ code, signal }));
      this.child.once("error", reject);
    });
    this.exited.catch(() => {}); // Told by whoever awaits it.
    this.logged = new Promise((resolve) => this.child.once("close", resolve));
  }

  /** Waits until `condition()` is true; fails at once when the process has ended. */
  async ready(what, condition) {
    const alive = async () => {
      assert.equal(this.child.exitCode, null, "the process stopped at once");
      return condition();
    };
    await until(what, alive).catch(async (error) => {
      if (this.child.exitCode !== null) {
        await this.logged; // Its last words may come after its end.
      }
      throw new Error(`${error.message}\n${this.log}`);
    });
  }

  /** Sends a signal and waits for the end of the process. */
  async kill(signal) {
    this.child.kill(signal);
    return this.exited;
  }
}

/** The other half of a cluster: a NATS server, and a server of Tidings that leads. */
class Leader {
  static async start(configuration, place) {
    const leader = new this();
    Object.assign(leader, { port: await freePort(), natsPort: await freePort(), place });
    const folder = path.join(place.folder, "leader");
    mkdirSync(folder);
    leader.configurationFile = path.join(folder, "tidings.toml");
    writeFileSync(leader.configurationFile, configuration(leader.port, folder) + leader.section("leader", leader.port));
    const nats = `listen: "127.0.0.1:${leader.natsPort}"\njetstream { store_dir: ${JSON.stringify(path.join(folder, "nats"))} }\n`;
    writeFileSync(path.join(folder, "nats.conf"), nats);
    assert.ok(process.env.NATS_SERVER, "NATS_SERVER names the program nats-server");
    leader.nats = spawn(process.env.NATS_SERVER, ["--config", path.join(folder, "nats.conf")], { stdio: "ignore" });
    return leader;
  }

  /** What a server of this cluster has at the end of its configuration. */
  section(node, port) {
    return `
[cluster]
servers = ["nats://127.0.0.1:${this.natsPort}"]
replicas = 1
node = "${node}"
address = "http://127.0.0.1:${port}"
log_bytes_max = "64MiB"
`;
  }

  async run(cwd) {
    this.program = new Program(["serve", "--config", this.configurationFile], cwd);
    await this.program.ready("the leader leads", () => isReady(this.port, ["ready", "degraded"]));
  }

  async stop() {
    this.nats.kill("SIGKILL");
    await this.program?.kill("SIGKILL");
  }
}

/** Whether a server says one of these of itself. */
async function isReady(port, statuses) {
  const answer = await fetch(`http://127.0.0.1:${port}/ready`).catch(() => null);
  return answer !== null && answer.ok && statuses.includes((await answer.json()).status);
}

const IN_CLUSTER = process.env.CONFORMANCE_NODES === "2";

/** A server process with its folder; may be killed and started again on the same port and data. */
export class Server {
  /** Starts one whose configuration is what `configuration(port, folder)` returns. */
  static async start(configuration) {
    const server = new this();
    Object.assign(server, { port: await freePort(), place: temporaryFolder(), earlierLog: "" });
    server.leader = IN_CLUSTER ? await Leader.start(configuration, server.place) : null;
    const section = server.leader?.section("standby", server.port) ?? "";
    writeFileSync(server.configurationFile, configuration(server.port, server.folder) + section);
    await server.run();
    return server;
  }

  get folder() {
    return this.place.folder;
  }

  get configurationFile() {
    return path.join(this.folder, "tidings.toml");
  }

  get origin() {
    return `http://127.0.0.1:${this.port}`;
  }

  get child() {
    return this.program.child;
  }

  /** What it has logged in all its lives; the end of it. */
  get log() {
    return (this.earlierLog + this.program.log).slice(-LOG_CHARACTERS_MAX);
  }

  /** Starts the process and waits until it says it is healthy. */
  async run() {
    this.earlierLog = this.program ? this.log : "";
    await this.leader?.run(this.folder);
    this.program = new Program(["serve", "--config", this.configurationFile], this.folder);
    const health = () => fetch(`${this.origin}/health`).then((answer) => answer.ok, () => false);
    const follows = () => isReady(this.port, ["standby"]);
    await this.program.ready("the server is healthy", this.leader ? follows : health);
  }

  /** Sends a signal and waits for the end of the process; in a cluster, of both. */
  async kill(signal) {
    const [ended] = await Promise.all([this.program.kill(signal), this.leader?.program.kill(signal)]);
    return ended;
  }

  /** The end: process and folder are gone. */
  async stop() {
    await this.kill("SIGKILL");
    await this.leader?.stop();
    this.place.stop();
  }

  /** One request with the API key; the answer as `fetch` gives it. `body` may be text. */
  request(method, route, body, headers = {}) {
    return fetch(`${this.origin}${route}`, {
      method,
      headers: { "X-API-Key": API_KEY, "Content-Type": "application/json", ...headers },
      body: body === undefined || typeof body === "string" ? body : JSON.stringify(body),
    });
  }
}

/** A TCP way to `port` that can be cut, kept shut, or made to carry nothing. */
export class Wire {
  static async to(t, { port }) {
    const wire = new Wire();
    wire.sockets = new Set();
    wire.shut = false;
    wire.held = () => false;
    wire.listener = net.createServer((near) => wire.join(near, port));
    wire.listener.listen(0, "127.0.0.1");
    await new Promise((resolve) => wire.listener.once("listening", resolve));
    wire.port = wire.listener.address().port;
    t.after(() => {
      wire.close();
      wire.listener.close();
    });
    return wire;
  }

  join(near, port) {
    if (this.shut) {
      near.destroy();
      return;
    }
    const far = net.connect(port, "127.0.0.1");
    near.isNear = true;
    for (const [from, to] of [[near, far], [far, near]]) {
      this.sockets.add(from);
      from.on("data", (bytes) => to.write(bytes));
      from.on("error", () => {}); // A cut is an error to the other end; `close` follows.
      from.on("close", () => {
        this.sockets.delete(from);
        to.destroy();
      });
      if (this.held(from)) {
        from.pause();
      }
    }
  }

  /** Breaks every connection; what was on its way is lost. */
  cut() {
    for (const socket of this.sockets) {
      socket.resetAndDestroy();
    }
  }

  /** The other side says that it will say no more, though it still listens. */
  halve() {
    [...this.sockets].filter(({ isNear }) => isNear).forEach((socket) => socket.end());
  }

  /** Cuts, and lets nobody through until `open`. */
  close() {
    this.shut = true;
    this.cut();
  }

  open() {
    this.shut = false;
  }

  /** Connections stay, and new ones are taken, but nothing goes through any more, until `thaw`. */
  freeze() {
    this.#hold(() => true);
  }

  /** What the server writes still goes through, until `thaw`; what it is told does not. */
  mute() {
    this.#hold(({ isNear }) => isNear);
  }

  thaw() {
    this.held = () => false;
    this.sockets.forEach((socket) => socket.resume());
  }

  #hold(held) {
    this.held = held;
    [...this.sockets].filter(held).forEach((socket) => socket.pause());
  }
}
