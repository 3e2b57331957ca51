// A judge that is a program of another language, or what it judges: a JSON object per line, both ways. Their sources
// are in java, go, python and js, and in the examples of our crates; `cargo xtask conformance` builds them.

import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { existsSync } from "node:fs";
import path from "node:path";
import { createInterface } from "node:readline";
import { fileURLToPath } from "node:url";

import { BINARY, DEADLINE_MS, until } from "./server.mjs";

const BUILT = path.join(path.dirname(BINARY), "../conformance");
const LOG_CHARACTERS_MAX = 16 * 1024;

/** A class of java with its arguments. */
export const java = (name, words) => {
  const classPath = ["java/classes", "java/lib/*"].map((part) => path.join(BUILT, part)).join(path.delimiter);
  assert.ok(existsSync(path.join(BUILT, "java/classes", `${name}.class`)), `${name} is not built: cargo xtask conformance`);
  return ["java", ["-XX:TieredStopAtLevel=1", "-cp", classPath, name, ...words]];
};

/** A program of go with its arguments. */
export const go = (name, words) => {
  const program = path.join(BUILT, "go/bin", name);
  assert.ok(existsSync(program), `${name} is not built: cargo xtask conformance`);
  return [program, words];
};

/** A program of python with its arguments. */
export const python = (name, words) => {
  const interpreter = path.join(BUILT, "python-clients/bin/python");
  assert.ok(existsSync(interpreter), "Python's packages are not installed: cargo xtask conformance");
  return [interpreter, ["-B", fileURLToPath(new URL(`python/${name}.py`, import.meta.url)), ...words]];
};

/** A program of js with its arguments. */
export const node = (name, words) => {
  return [process.execPath, [fileURLToPath(new URL(`js/${name}.mjs`, import.meta.url)), ...words]];
};

/** An example of one of our crates, as the tests build it. */
export const example = (crate, name) => {
  const program = path.join(path.dirname(BINARY), "../debug/examples", name);
  assert.ok(existsSync(program), `${name} is not built: cargo build -p ${crate} --example ${name}`);
  return [program, []];
};

export class Tool {
  /** Starts it and waits for its first line, `hello`; ended when the test ends. */
  static async start(t, [program, words]) {
    const tool = new Tool();
    Object.assign(tool, { lines: [], seq: 0, waiting: new Map(), log: "", ended: false });
    tool.child = spawn(program, words, { stdio: ["pipe", "pipe", "pipe"] });
    tool.child.on("error", (error) => tool.#over(error.message));
    tool.child.on("exit", (code, signal) => tool.#over(`ended with ${code ?? signal}`));
    tool.child.stdin.on("error", () => {}); // Told by `exit`.
    tool.child.stderr.on("data", (text) => (tool.log = (tool.log + text).slice(-LOG_CHARACTERS_MAX)));
    createInterface({ input: tool.child.stdout }).on("line", (line) => tool.#take(JSON.parse(line)));
    t.after(() => tool.child.kill("SIGKILL"));
    await until(`${program} ${words.at(0)} says hello`, () => tool.hello ?? tool.ended);
    assert.ok(!tool.ended, `${program}: ${tool.ended}\n${tool.log}`);
    return tool;
  }

  #take(line) {
    if (!this.hello) {
      this.hello = line;
    } else if (line.seq === undefined) {
      this.lines.push(line);
    } else {
      this.waiting.get(line.seq)?.(line);
      this.waiting.delete(line.seq);
    }
  }

  #over(why) {
    this.ended = why;
    this.waiting.forEach((resolve) => resolve({ error: `${why}\n${this.log}` }));
    this.waiting.clear();
  }

  /** Says `line` to it; what it answers. */
  ask(line) {
    const seq = ++this.seq;
    return new Promise((resolve, reject) => {
      const late = setTimeout(() => reject(new Error(`no answer within ${DEADLINE_MS} ms\n${this.log}`)), DEADLINE_MS);
      this.waiting.set(seq, (answer) => {
        clearTimeout(late);
        delete answer.seq;
        resolve(answer);
      });
      this.child.stdin.write(`${JSON.stringify({ seq, ...line })}\n`);
    });
  }
}
