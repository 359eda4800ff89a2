// Publishes events to a prombus hub, and prints those that come: one line each, as JSON.
//
//   node live.mjs publish demo '{"n": 1}'     publish over the WebSocket
//   node live.mjs ws demo --group node        consume as a member of a group, and ack
//   node live.mjs sse demo                    follow the topic, without a group

import { once } from "node:events";
import { setTimeout as pause } from "node:timers/promises";
import { parseArgs } from "node:util";
import WebSocket from "ws";

const usage = "usage: live.mjs publish TOPIC JSON | ws TOPIC [--group G] | sse TOPIC [--after ID]"
  + "   [--hub URL] [--from earliest|latest] [--max N]";
const token = process.env.PROMBUS_TOKEN;
const headers = token ? { authorization: `Bearer ${token}` } : {};
// Before it connects again; doubled each time, and random, so that not all clients come back at once.
const PAUSE_MS = 500, LONGEST_PAUSE_MS = 10_000;

function fail(message) {
  console.error(message);
  process.exit(1);
}

async function reconnect(tries) {
  console.error("connecting again");
  await pause(Math.min(PAUSE_MS * 2 ** tries, LONGEST_PAUSE_MS) * (0.5 + Math.random()));
}

const open = (hub) => new WebSocket(`${hub.replace(/^http/, "ws")}/ws`, { headers });

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
  // Connects again when the connection is lost. What was not acked by then comes again.
  for (let tries = 0; seen < max; tries++) {
    const socket = open(hub);
    const send = (frame) => socket.send(JSON.stringify({ ...about, ...frame }));
    socket.on("open", () => send({ op: "SUBSCRIBE", opts: { from } }));
    socket.on("message", (data) => {
      const frame = JSON.parse(data);
      if (frame.op === "ERR" && frame.code !== "lease_expired") fail(frame.msg);
      if (frame.op !== "EVENT" || seen === max) return;
      tries = 0;
      console.log(JSON.stringify(frame.event));
      send({ op: "ACK", id: frame.event.id });
      // What was sent before a close still happens.
      if (++seen === max) socket.close();
    });
    socket.on("error", (error) => {
      if (/response: 4\d\d/.test(error.message)) fail(error.message); // a bad token, say
      console.error(error.message);
    });
    await new Promise((closed) => socket.on("close", closed));
    if (seen < max) await reconnect(tries);
  }
}

// The { id, data } messages of a stream of server-sent events.
async function* messages(body) {
  let rest = "", id, data = [];
  for await (const text of body.pipeThrough(new TextDecoderStream())) {
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

async function follow({ hub, topic, from, max, after }) {
  let last = after, seen = 0;
  for (let tries = 0; ; tries++) {
    try {
      const accept = { accept: "text/event-stream", ...(last && { "last-event-id": last }) };
      const url = `${hub}/v1/topics/${encodeURIComponent(topic)}/events?from=${from}`;
      const response = await fetch(url, { headers: { ...headers, ...accept } });
      if (response.status >= 500) throw new Error(`the hub answers ${response.status}`); // it is starting, say
      if (!response.ok) fail(`the hub answers ${response.status}: ${(await response.text()).trim()}`);
      for await (const { id, data } of messages(response.body)) {
        console.log(data);
        [last, tries] = [id, 0];
        if (++seen === max) {
          console.error(`go on with: --after=${last}`);
          return;
        }
      }
    } catch (error) {
      console.error(error.cause?.message ?? error.message);
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
