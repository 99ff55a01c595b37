// How fast the store works, what its disk does, and what is in its memory.

import { histogram, meter, sparkline } from "../charts.js";
import { ask } from "../dialogs.js";
import { html, write } from "../dom.js";
import { brief, bytes, count, micros, rate } from "../format.js";
import { figures, table } from "../table.js";
import { queueLink } from "./queues.js";

const POINTS = 300;
const RATES = [
  ["publish", "Published", "messages that publishers sent"],
  ["confirm", "Confirmed", "messages that are durable, as publishers were told"],
  ["deliver", "Delivered", "messages that consumers got"],
  ["ack", "Acknowledged", "messages that consumers are done with"],
];

function tile(title, help) {
  const figure = html("p", { class: "big" }, "–");
  const chart = sparkline(title);
  const node = html(
    "section",
    { class: "card tile" },
    html("h2", { title: help }, title),
    figure,
    chart.node,
  );
  function update(values, format) {
    write(figure, values.length ? format(values.at(-1)) : "–");
    chart.update(values, format);
  }
  return { node, update };
}

function card(title, ...children) {
  return html("section", { class: "card" }, html("h2", {}, title), children);
}

export function overview({ place, act }) {
  const tiles = RATES.map(([, title, help]) => tile(title, help));
  const syncs = tile("Syncs", "calls of fdatasync");
  const group = tile("Messages a sync", "messages that were made durable together");
  const written = tile("Journal", "bytes written to the journal");
  const latency = histogram("How long a commit's write and fdatasync take");
  const latencies = figures();
  const journal = figures();
  const sinceCheckpoint = meter("Journal since the last checkpoint");
  const memory = meter("Memory budget");
  const disk = meter("File system");
  const bodies = meter("Live bytes of message files");
  const storage = figures();
  const failed = html("p", { class: "problem", role: "alert", hidden: true });
  const users = table({
    caption: "Queues with the most bytes in memory",
    empty: "No queue has anything in memory.",
    key: (row) => row.name,
    columns: [
      {
        title: "Queue",
        heading: true,
        name: "name",
        make: (row) => queueLink(place, row.name),
      },
      { title: "In memory", number: true, value: (row) => bytes(row.ram_bytes) },
      { title: "Ready", number: true, value: (row) => brief(row.ready) },
    ],
  });
  const checkpoint = html(
    "button",
    {
      type: "button",
      onclick: () =>
        ask({
          title: "Make a checkpoint?",
          text:
            "What the journal holds is written to the store's files, and its space is free" +
            " again. The store goes on meanwhile.",
          action: "Make a checkpoint",
          run: () => act("checkpoint", {}),
        }),
    },
    "Checkpoint…",
  );

  let points = [];

  function update({ points: fresh, begins, store, memory: used }) {
    points = (begins ? fresh : [...points, ...fresh]).slice(-POINTS);
    const values = (name) => points.map((point) => point[name]);
    RATES.forEach(([name], at) => tiles[at].update(values(name), rate));
    syncs.update(values("syncs"), rate);
    group.update(values("grouped"), (value) => brief(Math.round(value * 10) / 10));
    written.update(values("journal_bytes"), (value) => `${bytes(value)}/s`);

    const { commit, confirm } = store;
    latency.update(
      store.commit_histogram.map(([, number]) => number),
      store.commit_histogram.map(([most]) => `up to ${micros(most)}`),
    );
    latencies.update([
      ["Commit, median", micros(commit.p50)],
      ["Commit, 99 %", micros(commit.p99)],
      ["Commit, longest", micros(commit.max)],
      ["Confirm, median", micros(confirm.p50)],
      ["Confirm, 99 %", micros(confirm.p99)],
      ["Confirm, longest", micros(confirm.max)],
    ]);

    sinceCheckpoint.update(
      store.since_checkpoint,
      store.checkpoint_bytes,
      `${bytes(store.since_checkpoint)} of ${bytes(store.checkpoint_bytes)}`,
    );
    journal.update([
      ["Checkpoints", count(store.checkpoints)],
      ["Written by them", bytes(store.bytes_checkpointed)],
      ["Not durable yet", bytes(store.not_durable)],
      ["Commits", count(store.commits)],
      ["Commit under way for", micros(store.commit_running_ms * 1000)],
      ["Recovered at open", brief(store.recovered_messages)],
      ["Recovery took", micros(store.recovery_ms * 1000)],
    ]);

    memory.update(
      used.bytes,
      used.budget,
      `${bytes(used.bytes)} of ${bytes(used.budget)}, ${bytes(used.beside_queues)} not in queues`,
    );
    users.update(used.queues);

    disk.update(
      store.disk_total - store.disk_free,
      store.disk_total,
      store.disk_total ? `${bytes(store.disk_free)} free` : "in memory",
    );
    bodies.update(
      store.message_bytes_live,
      store.message_bytes_total,
      `${bytes(store.message_bytes_live)} of ${bytes(store.message_bytes_total)}`,
    );
    storage.update([
      ["Store", store.path],
      ["File system", `${store.filesystem} (${store.filesystem_kind})`],
      ["Syncs with", store.sync],
      ["Queues", count(store.queues)],
      ["Paged out", brief(store.messages_paged_out)],
      ["Paged in", brief(store.messages_paged_in)],
      ["Dead-lettered", brief(store.messages_dead_lettered)],
      ["Expired", brief(store.messages_expired)],
    ]);
    failed.hidden = !store.failed;
    write(
      failed,
      store.failed ? "The store stopped after an input/output error: see its log, reopen it." : "",
    );
  }

  const node = html(
    "div",
    {},
    failed,
    html(
      "div",
      { class: "tiles" },
      tiles.map((each) => each.node),
    ),
    html("div", { class: "tiles three" }, syncs.node, group.node, written.node),
    html(
      "div",
      { class: "cards" },
      html(
        "div",
        { class: "column" },
        card("Latency of commits", latency.node, latencies.node),
        card("Journal and checkpoint", sinceCheckpoint.node, journal.node, checkpoint),
      ),
      html(
        "div",
        { class: "column" },
        card("Memory", memory.node, users.node),
        card("Disk", disk.node, bodies.node, storage.node),
      ),
    ),
  );
  return { title: overview.title, node, update };
}
overview.title = "Overview";
