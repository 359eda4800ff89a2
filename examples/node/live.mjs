// Publishes events to a prombus hub, and prints the events it receives: one per line, as JSON.
//
//   node live.mjs publish demo '{"n": 1}'     publish over the WebSocket
//   node live.mjs ws demo --group node        consume as a member of a group, and ack
//   node live.mjs sse demo                    follow the topic, without a group

import { once } from "node:events";
import { readFileSync } from "node:fs";
import http from "node:http";
import https from "node:https";
import { text } from "node:stream/consumers";
import { setTimeout as pause } from "node:timers/promises";
import { parseArgs } from "node:util";
import WebSocket from "ws";

const usage = "usage: live.mjs publish TOPIC JSON | ws TOPIC [--group G] | sse TOPIC [--after ID]"
  + "   [--hub URL] [--from earliest|latest] [--max N]";
const { PROMBUS_TOKEN: token, PROMBUS_CA_CERT: certificate } = process.env;
const headers = token ? { authorization: `Bearer ${token}` } : {};
const ca = certificate && readFileSync(certificate); // not needed if Node trusts the hub's certificate
// The hub sends at least a comment every 15 s; a stream that is silent for longer than this is dead.
const SILENCE_MS = 45_000;
// Before reconnecting; doubled each time, and randomised, so that clients do not all return at once.
const PAUSE_MS = 500, LONGEST_PAUSE_MS = 10_000;

function fail(message) {
  console.error(message);
  process.exit(1);
}

async function reconnect(tries) {
  console.error("reconnecting");
  await pause(Math.min(PAUSE_MS * 2 ** tries, LONGEST_PAUSE_MS) * (0.5 + Math.random()));
}

function open(hub) {
  const socket = new WebSocket(`${hub.replace(/^http/, "ws")}/ws`, { headers, ca });
  // If the hub refuses the connection, its explanation is in the body.
  socket.on("unexpected-response", async (_, response) => {
    const answer = await text(response).catch((error) => error.message);
    const refusal = `the hub answers ${response.statusCode}: ${answer.trim()}`;
    if (response.statusCode < 500) fail(refusal); // retrying with an invalid token is pointless
    socket.terminate();
    console.error(refusal);
  });
  return socket;
}

async function publish({ hub, topic, payload }) {
  const socket = open(hub);
  await once(socket, "open");
  socket.send(JSON.stringify({ op: "PUBLISH", corr: "1", topic, payload: JSON.parse(payload) }));
  const [data] = await once(socket, "message");
  socket.close();
  const answer = JSON.parse(data);
  if (answer.op === "ERR") fail(answer.msg);
  console.log(JSON.stringify(answer));
}

async function consume({ hub, topic, group, from, max }) {
  const about = { topic, group };
  let seen = 0;
  // Reconnects when the connection is lost. Events that were not acked by then are redelivered.
  for (let tries = 0; ; tries++) {
    const socket = open(hub);
    const send = (frame) => socket.send(JSON.stringify({ ...about, ...frame }));
    socket.on("open", () => send({ op: "SUBSCRIBE", opts: { from } }));
    let refusal;
    socket.on("message", (data) => {
      const { op, corr, code, msg, event } = JSON.parse(data);
      if (corr === "goodbye") return socket.close(); // the hub has taken back what was not acked
      if (refusal || (seen === max && corr !== "last")) return;
      if (op === "ERR" && code !== "lease_expired") refusal = msg;
      // Closing with open leases would count as an attempt for the oldest event.
      if (refusal || corr === "last") send({ op: "UNSUBSCRIBE", corr: "goodbye" });
      if (op !== "EVENT") return;
      tries = 0;
      console.log(JSON.stringify(event));
      send({ op: "ACK", id: event.id, ...(++seen === max && { corr: "last" }) });
    });
    socket.on("error", (error) => console.error(error.message));
    const reason = await new Promise((closed) => socket.on("close", (code, reason) => closed(reason.toString())));
    if (refusal) fail(refusal);
    if (seen === max) return;
    if (reason) console.error(reason);
    await reconnect(tries);
  }
}

// The { id, data } messages of a stream of server-sent events.
async function* messages(body) {
  let rest = "", id, data = [];
  for await (const text of body.setEncoding("utf8")) {
    const lines = (rest + text).split("\n");
    rest = lines.pop();
    for (const line of lines) {
      const [, field, value] = /^([^:]*):? ?(.*?)\r?$/.exec(line);
      if (field === "id") id = value;
      else if (field === "data") data.push(value);
      else if (line.trim() === "" && data.length > 0) {
        yield { id, data: data.join("\n") };
        data = [];
      }
    }
  }
}

// The head of an answer, whose body follows.
async function get(url, headers) {
  const request = (url.startsWith("https:") ? https : http).get(url, { headers, ca, timeout: SILENCE_MS });
  request.on("timeout", () => request.destroy(new Error("the hub is silent")));
  const [response] = await once(request, "response");
  return response;
}

async function follow({ hub, topic, from, max, after }) {
  let last = after, seen = 0;
  for (let tries = 0; ; tries++) {
    try {
      const accept = { accept: "text/event-stream", ...(last && { "last-event-id": last }) };
      const url = `${hub}/v1/topics/${encodeURIComponent(topic)}/events?from=${from}`;
      const response = await get(url, { ...headers, ...accept });
      const status = response.statusCode;
      if (status >= 500) throw new Error(`the hub answers ${status}`); // it is starting, say
      if (status !== 200) fail(`the hub answers ${status}: ${(await text(response)).trim()}`);
      for await (const { id, data } of messages(response)) {
        console.log(data);
        [last, tries] = [id, 0];
        if (++seen === max) {
          console.error(`continue with: --after=${last}`);
          return; // which also closes the connection
        }
      }
    } catch (error) {
      console.error(error.message);
    }
    await reconnect(tries);
  }
}

const { values, positionals: [command, topic, payload] } = parseArgs({
  allowPositionals: true,
  options: {
    hub: { type: "string", default: process.env.PROMBUS_URL ?? "http://127.0.0.1:7070" },
    group: { type: "string", default: "node" },
    from: { type: "string", default: "latest" },
    after: { type: "string" },
    max: { type: "string", default: "Infinity" },
  },
});
const run = { publish, ws: consume, sse: follow }[command];
if (!run || !topic || (run === publish && !payload)) fail(usage);
await run({ ...values, topic, payload, max: Number(values.max) }).catch((error) => fail(error.message));
