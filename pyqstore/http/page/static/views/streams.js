// Streams, and how far the groups that read them are.

import { html } from "../dom.js";
import { brief, bytes, count, moment, plural } from "../format.js";
import { pager, table } from "../table.js";
import { declareQueue } from "./actions.js";
import { queueLink, rateCell } from "./queues.js";

function groupsCell() {
  const list = html("ul", { class: "plain" });
  function update(row) {
    const items = row.groups.map(({ name, offset, lag }) =>
      html(
        "li",
        {},
        html("span", { class: "name" }, name),
        ` at ${count(offset)}, `,
        html("strong", {}, lag === 0 ? "no lag" : `${brief(lag)} behind`),
      ),
    );
    list.replaceChildren(...(items.length ? items : [html("li", { class: "faint" }, "none")]));
  }
  return { node: list, update };
}

export function streams({ place, go, act }) {
  const list = table({
    caption: "Streams",
    empty: "There are no streams.",
    key: (row) => row.name,
    columns: [
      {
        title: "Name",
        heading: true,
        name: "name",
        make: (row) => queueLink(place, row.name),
      },
      { title: "First", number: true, value: (row) => count(row.first) },
      { title: "Next", number: true, value: (row) => count(row.next) },
      { title: "Messages", number: true, value: (row) => brief(row.next - row.first) },
      {
        title: "In",
        number: true,
        make: (row) => rateCell(`Published to ${row.name}`, (each) => each.publish_rate),
      },
      { title: "Segments", number: true, value: (row) => count(row.segments) },
      { title: "On the disk", number: true, value: (row) => bytes(row.disk_bytes) },
      { title: "Last message", value: (row) => (row.last_s ? moment(row.last_s) : "–") },
      { title: "Groups", make: groupsCell },
    ],
  });
  const pages = pager((page) => go({ page: page > 1 ? String(page) : "" }));
  function update(data) {
    list.update(data.rows);
    pages.update(
      data.page,
      data.pages,
      `${plural(data.total, "stream")}, page ${data.page} of ${data.pages}`,
    );
  }
  const node = html(
    "div",
    {},
    html(
      "div",
      { class: "bar" },
      html("button", { type: "button", onclick: () => declareQueue({ act }) }, "Declare a stream…"),
    ),
    html("section", { class: "card" }, list.node, pages.node),
  );
  return { title: streams.title, node, update };
}
streams.title = "Streams";
