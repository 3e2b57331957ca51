// A program that only listens, without an SDK: by a WebSocket, by a browser's `EventSource`, or by reading lines with `fetch`.

import { EventSource } from "eventsource";
import WebSocket from "ws";

export const LISTENING = ["uni_websocket", "uni_sse", "uni_http_stream"];

/** Whether a message is a ping: an empty object. */
const isPing = (message) => Object.keys(message).length === 0;

/** One connection, and all its messages. */
export class Listener {
  /** Connects with `request`, which an SDK would send as `connect`, and with these HTTP headers. */
  constructor(transport, port, request = {}, headers = {}) {
    Object.assign(this, { messages: [], isOver: false, close: undefined, headers });
    this[transport](`127.0.0.1:${port}/connection/${transport}`, JSON.stringify(request));
  }

  get pushes() {
    return this.messages.filter((message) => !isPing(message));
  }

  get pings() {
    return this.messages.filter(isPing);
  }

  take(text) {
    this.messages.push(JSON.parse(text));
  }

  uni_websocket(address, request) {
    const socket = new WebSocket(`ws://${address}`, { headers: this.headers });
    socket.on("open", () => socket.send(request));
    socket.on("message", (message) => this.take(message));
    socket.on("close", (code, reason) => Object.assign(this, { isOver: true, close: { code, reason: reason.toString() } }));
    socket.on("error", () => {}); // `close` follows.
    this.stop = () => socket.terminate();
  }

  uni_sse(address, request) {
    const withHeaders = (url, init) => fetch(url, { ...init, headers: { ...init.headers, ...this.headers } });
    const url = `http://${address}?cf_connect=${encodeURIComponent(request)}`;
    const source = new EventSource(url, { fetch: withHeaders });
    source.onmessage = ({ data }) => this.take(data);
    source.onerror = () => this.stop(); // Otherwise it would connect again.
    this.stop = () => {
      this.isOver = true;
      source.close();
    };
  }

  async uni_http_stream(address, body) {
    const abort = new AbortController();
    this.stop = () => abort.abort();
    try {
      const response = await fetch(`http://${address}`, { method: "POST", headers: this.headers, body, signal: abort.signal });
      let rest = "";
      for await (const text of response.body.pipeThrough(new TextDecoderStream())) {
        const lines = (rest + text).split("\n");
        rest = lines.pop();
        lines.forEach((line) => this.take(line));
      }
    } catch (error) {
      if (!abort.signal.aborted) {
        throw error;
      }
    }
    this.isOver = true;
  }
}
