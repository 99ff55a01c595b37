// Who is connected, and what its channels have under way.

import { html } from "../dom.js";
import { brief, count, moment, plural, rate } from "../format.js";
import { pager, table } from "../table.js";

function limit(number) {
  return number === 0 ? "–" : count(number);
}

export function connections({ go }) {
  const list = table({
    caption: "Connections",
    empty: "Nobody is connected.",
    key: (row) => row.key,
    columns: [
      { title: "Name", heading: true, name: "name", value: (row) => row.name },
      { title: "User", name: "name", value: (row) => row.user },
      { title: "Client", name: "name", value: (row) => row.client },
      { title: "Opened", value: (row) => moment(row.opened_s) },
      { title: "Channels", number: true, value: (row) => count(row.channels) },
    ],
  });
  const channels = table({
    caption: "Channels",
    empty: "No channel is open.",
    key: (row) => row.key,
    columns: [
      { title: "Channel", heading: true, value: (row) => count(row.number) },
      { title: "Connection", name: "name", value: (row) => row.connection },
      { title: "Mode", value: (row) => row.mode },
      { title: "Prefetch", number: true, value: (row) => limit(row.prefetch) },
      { title: "Prefetch of all", number: true, value: (row) => limit(row.prefetch_channel) },
      { title: "Unacked", number: true, value: (row) => brief(row.unacked) },
      { title: "Unconfirmed", number: true, value: (row) => brief(row.unconfirmed) },
      { title: "Consumers", number: true, value: (row) => count(row.consumers) },
      { title: "Published", number: true, value: (row) => rate(row.publish_rate) },
      { title: "Delivered", number: true, value: (row) => rate(row.deliver_rate) },
      { title: "Acked", number: true, value: (row) => rate(row.ack_rate) },
    ],
  });
  const pages = pager((page) => go({ page: page > 1 ? String(page) : "" }));
  function update(data) {
    list.update(data.connections);
    channels.update(data.channels);
    pages.update(
      data.page,
      data.pages,
      `${plural(data.total, "connection")}, page ${data.page} of ${data.pages}`,
    );
  }
  const node = html(
    "div",
    {},
    html("section", { class: "card" }, html("h2", {}, "Connections"), list.node, pages.node),
    html("section", { class: "card" }, html("h2", {}, "Channels"), channels.node),
  );
  return { title: connections.title, node, update };
}
connections.title = "Connections";
