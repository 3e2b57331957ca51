// A push provider by script, on Node's `http2` (nghttp2), which shares nothing with the HTTP/2 of the server under test.
//
// It answers every request as the test's script says, may change its stream limit, go away, refuse or fall silent at any
// moment, and keeps the books: what it accepted how often, what it left open, and every moment at which more
// streams were open than the last SETTINGS whose acknowledgement had arrived allow. A stream counts as ended when its
// answer is handed over, so the books never blame wrongly; nghttp2 counts by frames, and ends the connection with
// PROTOCOL_ERROR when a client is over the limit, which is found in `errors`.

import assert from "node:assert/strict";
import http2 from "node:http2";

const { NGHTTP2_REFUSED_STREAM, NGHTTP2_NO_ERROR } = http2.constants;
const TOKEN_PATH = /^\/3\/device\/([0-9a-f]+)$/;

/** One request, to be answered by the script; each method may be called once. */
class Request {
  constructor(connection, stream, headers) {
    const token = TOKEN_PATH.exec(headers[":path"])?.[1];
    Object.assign(this, { connection, stream, headers, token, id: headers["apns-id"] });
    this.open = true;
    this.body = undefined;
  }

  /** The books, whether or not the stream is still there to be answered. */
  #end() {
    if (this.open) {
      this.open = false;
      this.connection.open--;
    }
    return !this.stream.destroyed;
  }

  accept() {
    const { peer } = this.connection;
    peer.accepted.set(this.id, (peer.accepted.get(this.id) ?? 0) + 1);
    peer.acceptedAt.push(performance.now());
    this.connection.proven = true;
    if (this.#end()) {
      this.stream.respond({ ":status": 200, "apns-id": this.id }, { endStream: true });
    }
  }

  reject(status, reason, more = {}) {
    if (this.#end()) {
      this.stream.respond({ ":status": status, "apns-id": this.id, "content-type": "application/json" });
      this.stream.end(JSON.stringify({ reason, ...more }));
    }
  }

  /** "I did nothing with it." */
  refuse() {
    if (this.#end()) {
      this.stream.close(NGHTTP2_REFUSED_STREAM);
    }
  }

  /** The stream is gone without an answer of ours. */
  lost() {
    this.#end();
  }
}

class Connection {
  constructor(peer, session) {
    Object.assign(this, { peer, session, open: 0, openMax: 0, streams: 0, lastStream: 0, lastKept: Infinity });
    this.limit = Infinity; // RFC 9113, 6.5.2: none until SETTINGS are in force.
    this.settings = [];
    session.on("localSettings", ({ maxConcurrentStreams }) => {
      this.limit = maxConcurrentStreams;
      this.settings.push(this.limit);
    });
    session.on("stream", (stream, headers) => this.#take(stream, headers));
    /** The client's certificate, by its serial number; undefined without one. It proves who the client is. */
    this.shown = session.socket.getPeerCertificate()?.serialNumber;
    this.proven = this.shown !== undefined;
    session.on("error", (error) => peer.errors.push(error));
    session.on("goaway", (code) => code !== NGHTTP2_NO_ERROR && peer.errors.push(new Error(`GOAWAY ${code} from the client`)));
    session.on("close", () => peer.open.delete(this));
  }

  #take(stream, headers) {
    const { peer } = this;
    if (stream.id > this.lastKept) {
      // Until the GOAWAY is on its way nghttp2 still hands over what comes; the client is told that nothing is done with it.
      stream.on("error", () => {});
      stream.close(NGHTTP2_REFUSED_STREAM);
      return;
    }
    const request = new Request(this, stream, headers);
    this.open++;
    this.streams++;
    this.lastStream = stream.id;
    this.openMax = Math.max(this.openMax, this.open);
    if (this.open > this.limit) {
      peer.violations.push(`${this.open} streams are open, ${this.limit} are allowed`);
    }
    if (this.open > 1 && !this.proven) {
      peer.violations.push(`${this.open} streams are open before the first accepted request`);
    }
    stream.on("error", () => {}); // Told by `close`.
    stream.on("close", () => request.lost());
    const pieces = [];
    stream.on("data", (piece) => pieces.push(piece));
    stream.on("end", () => {
      request.body = Buffer.concat(pieces).toString();
      peer.bodies.set(request.id, request.body);
      peer.script(request);
    });
    peer.arrived?.(request);
  }

  /** Announces another stream limit; resolves when the one wanted last is acknowledged, or the client is gone. */
  setLimit(limit) {
    this.wanted = limit;
    this.settling ??= this.#settle().finally(() => (this.settling = undefined));
    return this.settling;
  }

  /** One announcement at a time. */
  async #settle() {
    while (this.limit !== this.wanted && !this.session.destroyed) {
      await new Promise((resolve) => this.session.settings({ maxConcurrentStreams: this.wanted }, resolve));
    }
  }

  /**
   * GOAWAY with Apple's JSON as debug data: streams after the last one that came are not processed, the others are. To
   * close the connection is left to the client: with requests unread a socket is reset, which would lose answers.
   */
  goAway(reason) {
    this.lastKept = this.lastStream;
    this.session.goaway(NGHTTP2_NO_ERROR, this.lastStream, Buffer.from(JSON.stringify({ reason })));
  }
}

/** A provider on a free port of loopback. */
export class Peer {
  /**
   * `script` is called with each request when its body is there. Clients must show a certificate that the authority
   * `clientsOf` has signed, if it is given.
   */
  static async start(t, certificate, { limit = 1000, script, arrived, clientsOf } = {}) {
    const peer = new Peer();
    Object.assign(peer, { script, arrived, connections: [], open: new Set(), errors: [], violations: [] });
    Object.assign(peer, { accepted: new Map(), acceptedAt: [], bodies: new Map() });
    const { cert, key } = certificate;
    const settings = { maxConcurrentStreams: limit };
    const clients = clientsOf && { requestCert: true, rejectUnauthorized: true, ca: clientsOf };
    // What comes above a lowered limit before its acknowledgement is refused and counts as invalid; it is not.
    peer.server = http2.createSecureServer({ cert, key, settings, ...clients, maxSessionInvalidFrames: 1_000_000 });
    peer.server.on("session", (session) => {
      const connection = new Connection(peer, session);
      peer.connections.push(connection);
      peer.open.add(connection);
    });
    peer.server.on("sessionError", () => {}); // Kept by the connection.
    peer.server.on("tlsClientError", (error) => (peer.tlsError = error));
    peer.server.listen(0, "127.0.0.1");
    await new Promise((resolve) => peer.server.once("listening", resolve));
    peer.port = peer.server.address().port;
    t.after(() => {
      peer.open.forEach(({ session }) => session.destroy());
      peer.server.close();
    });
    return peer;
  }

  /** The certificate that connections to come are shown. */
  show({ cert, key }) {
    this.server.setSecureContext({ cert, key });
  }

  /** The connection made last. */
  get connection() {
    return this.connections.at(-1);
  }

  /** Milliseconds from `moment` to the next acceptance. */
  recovery(moment) {
    return Math.round(this.acceptedAt.find((at) => at > moment) - moment);
  }

  /** Everything accepted more than once. */
  get repeated() {
    return [...this.accepted].filter(([, count]) => count > 1).map(([id]) => id);
  }

  /** Nobody broke a rule, and each of `count` notifications was accepted exactly once. */
  check(count) {
    assert.deepEqual(this.violations, []);
    assert.deepEqual(this.errors, []);
    assert.equal(this.accepted.size, count, "nothing is lost");
    assert.deepEqual(this.repeated, []);
  }
}
