// All queues, a page at a time.

import { legend, sparkline, stackedBar } from "../charts.js";
import { html, write } from "../dom.js";
import { age, brief, bytes, plural, rate } from "../format.js";
import { pager, table } from "../table.js";
import { declareQueue } from "./actions.js";

export const PLACES = ["alpha", "beta", "gamma", "delta"];
export const PLACE_WORDS = [
  ["alpha", "alpha: in memory"],
  ["beta", "beta: body on the disk"],
  ["gamma", "gamma: position on the disk, too"],
  ["delta", "delta: on the disk"],
];
const SHOWN = 60; // points of a sparkline
const TYPING_MS = 300;

/** How many consumers a queue has, and how many of them are slow. */
export function consumers(row) {
  const slow = row.slow_consumers > 0 ? `, ${brief(row.slow_consumers)} slow` : "";
  return brief(row.consumers) + slow;
}

/** A cell with a rate and the line of the last minute. */
export function rateCell(label, of) {
  const chart = sparkline(label, "small");
  const text = html("span", { class: "figure" });
  let values = [];
  function update(row) {
    values = [...values, of(row)].slice(-SHOWN);
    write(text, rate(of(row)));
    chart.update(values, rate);
  }
  return { node: html("div", { class: "rated" }, text, chart.node), update };
}

function stateCell(row) {
  const bar = stackedBar(`Where the messages of ${row.name} are`, PLACES);
  const update = (fresh) => bar.update(PLACES.map((part) => fresh[part]), brief);
  return { node: bar.node, update };
}

/** A cell that leads to a queue. */
export function queueLink(place, name) {
  return { node: html("a", { href: place("queue", { name }) }, name) };
}

/** What a queue was declared as, in few letters, each with its word. */
export function features(row) {
  const words = [
    [row.stream, "stream"],
    [row.durable, "durable"],
    [row.exclusive, "exclusive"],
    [row.auto_delete, "auto-delete"],
    [row.lazy, "lazy"],
  ];
  return words
    .filter(([is]) => is)
    .map(([, word]) => word)
    .join(", ");
}

export function queues({ asked, place, go, act }) {
  const sorted = {
    by: asked.sort ?? "name",
    descending: asked.descending === "yes",
    choose: (by) => {
      const again = by === sorted.by;
      const down = again ? !sorted.descending : by !== "name";
      go({ sort: by, descending: down ? "yes" : "", page: "" });
    },
  };
  const list = table({
    caption: "Queues",
    empty: "There are no such queues.",
    sorted,
    key: (row) => row.name,
    columns: [
      {
        title: "Name",
        sort: "name",
        heading: true,
        name: "name",
        make: (row) => queueLink(place, row.name),
      },
      { title: "Declared", name: "faint", value: features },
      { title: "Ready", sort: "ready", number: true, value: (row) => brief(row.ready) },
      { title: "Unacked", sort: "unacked", number: true, value: (row) => brief(row.unacked) },
      { title: "Where", make: stateCell },
      {
        title: "In",
        sort: "publish",
        number: true,
        make: (row) => rateCell(`Published to ${row.name}`, (each) => each.publish_rate),
      },
      {
        title: "Out",
        sort: "deliver",
        number: true,
        make: (row) => rateCell(`Delivered from ${row.name}`, (each) => each.deliver_rate),
      },
      { title: "Consumers", sort: "consumers", number: true, value: consumers },
      { title: "Head", number: true, value: (row) => age(row.head_age_s) },
      { title: "Memory", sort: "memory", number: true, value: (row) => bytes(row.ram_bytes) },
      { title: "Dead", number: true, value: (row) => brief(row.dead_lettered) },
    ],
  });
  const pages = pager((page) => go({ page: page > 1 ? String(page) : "" }));
  const filter = html("input", { type: "search", id: "filter", value: asked.filter ?? "" });
  let waiting = null;
  filter.addEventListener("input", () => {
    clearTimeout(waiting);
    waiting = setTimeout(() => go({ filter: filter.value, page: "" }), TYPING_MS);
  });

  function update(data) {
    list.update(data.rows);
    const told =
      data.matched === data.total
        ? plural(data.total, "queue")
        : `${brief(data.matched)} of ${plural(data.total, "queue")}`;
    pages.update(data.page, data.pages, `${told}, page ${data.page} of ${data.pages}`);
  }

  const node = html(
    "div",
    {},
    html(
      "div",
      { class: "bar" },
      html("div", { class: "field" }, html("label", { for: "filter" }, "Name contains"), filter),
      html("button", { type: "button", onclick: () => declareQueue({ act }) }, "Declare a queue…"),
    ),
    html("section", { class: "card" }, legend(PLACE_WORDS), list.node, pages.node),
  );
  const focus = () => {
    if (asked.filter !== undefined || document.activeElement === document.body) {
      filter.focus();
      filter.setSelectionRange(filter.value.length, filter.value.length);
    }
  };
  return { title: queues.title, node, update, focus, end: () => clearTimeout(waiting) };
}
queues.title = "Queues";
