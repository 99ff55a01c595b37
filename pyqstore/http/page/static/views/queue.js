// One queue.

import { legend, sparkline, stackedBar } from "../charts.js";
import { html, write } from "../dom.js";
import { age, brief, bytes, count, rate } from "../format.js";
import { figures, table } from "../table.js";
import * as actions from "./actions.js";
import { messages } from "./messages.js";
import { consumers, features, PLACES, PLACE_WORDS } from "./queues.js";

const SUBQUEUES = ["q1", "q2", "delta_len", "q3", "q4"];
const SUBQUEUE_WORDS = [
  ["q1", "q1: newest"],
  ["q2", "q2"],
  ["delta_len", "delta"],
  ["q3", "q3"],
  ["q4", "q4: oldest"],
];
const RATES = [
  ["publish_rate", "Published"],
  ["deliver_rate", "Delivered"],
  ["ack_rate", "Acknowledged"],
];
const SHOWN = 300;

function button(text, run) {
  return html("button", { type: "button", onclick: run }, text);
}

function rateTile([name, title]) {
  const figure = html("p", { class: "big" }, "–");
  const chart = sparkline(title);
  let values = [];
  function update(row) {
    values = [...values, row[name]].slice(-SHOWN);
    write(figure, rate(row[name]));
    chart.update(values, rate);
  }
  const node = html("section", { class: "card tile" }, html("h2", {}, title), figure, chart.node);
  return { node, update };
}

export function queue({ asked, vhost, place, act }) {
  const name = asked.name ?? "";
  let ready = 0;
  const tiles = RATES.map(rateTile);
  const where = stackedBar("Where its messages are", PLACES);
  const parts = stackedBar("Its parts", SUBQUEUES);
  const facts = figures();
  const declared = figures();
  const kinds = html("p", { class: "faint" });
  const bindings = table({
    caption: "Bindings to this queue",
    empty: "Nothing is bound to it but the default exchange.",
    key: (row) => JSON.stringify([row.source, row.routing_key, row.arguments]),
    columns: [
      { title: "Exchange", heading: true, name: "name", value: (row) => row.source },
      { title: "Routing key", name: "name", value: (row) => row.routing_key },
      { title: "Arguments", name: "name", value: (row) => row.arguments },
      {
        title: "Do",
        make: (row) => ({ node: button("Unbind…", () => actions.unbind({ act }, row)) }),
      },
    ],
  });

  function update({ row, bindings: bound, arguments: given, gone }) {
    problem.hidden = !gone;
    write(problem, gone ? "There is no such queue." : "");
    if (gone) {
      return;
    }
    ready = row.ready;
    tiles.forEach((each) => each.update(row));
    where.update(PLACES.map((part) => row[part]), brief);
    parts.update(SUBQUEUES.map((part) => row[part]), brief);
    write(kinds, features(row));
    facts.update([
      ["Ready", count(row.ready)],
      ["Unacked", count(row.unacked)],
      ["Delayed", count(row.delayed)],
      ["Consumers", consumers(row)],
      ["Age of its head", age(row.head_age_s)],
      ["In memory", bytes(row.ram_bytes)],
      ["On the disk", bytes(row.disk_bytes)],
      ["May stay in memory", row.target_ram_count === null ? "all" : count(row.target_ram_count)],
      ["Expired", count(row.expired)],
      ["Dead-lettered", count(row.dead_lettered)],
      ["Refused", count(row.refused)],
      ["Redelivered", count(row.redelivered)],
    ]);
    declared.update(Object.entries(given));
    bindings.update(bound);
  }

  const problem = html("p", { class: "problem", role: "alert", hidden: true });
  const node = html(
    "div",
    {},
    problem,
    kinds,
    html(
      "div",
      { class: "bar", role: "group", "aria-label": "Actions" },
      button("Publish…", () => actions.publish({ act }, { queue: name })),
      button("Bind…", () => actions.bind({ act }, { destination: name })),
      button("Move…", () => actions.move({ act }, name)),
      button("Requeue dead letters…", () => actions.requeueDeadLetters({ act }, name)),
      button("Purge…", () => actions.purge({ act }, name, ready)),
      button("Delete…", () => actions.deleteQueue({ act }, name)),
    ),
    html("div", { class: "tiles three" }, tiles.map((each) => each.node)),
    html(
      "div",
      { class: "cards" },
      html(
        "section",
        { class: "card" },
        html("h2", {}, "Where its messages are"),
        where.node,
        legend(PLACE_WORDS),
        html("h2", {}, "Its parts, newest first"),
        parts.node,
        legend(SUBQUEUE_WORDS),
      ),
      html("section", { class: "card" }, html("h2", {}, "Counts"), facts.node),
      html("section", { class: "card" }, html("h2", {}, "Bindings"), bindings.node),
      html("section", { class: "card" }, html("h2", {}, "Arguments"), declared.node),
    ),
    messages(vhost, name),
  );
  return { title: `Queue ${name}`, node, update };
}
