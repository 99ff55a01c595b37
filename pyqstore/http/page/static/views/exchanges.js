// Exchanges and bindings: a picture, and tables that tell the same.

import { html } from "../dom.js";
import { brief, plural, rate } from "../format.js";
import { picture } from "../graph.js";
import { pager, table } from "../table.js";
import * as actions from "./actions.js";

const TYPING_MS = 300;

function button(text, run) {
  return html("button", { type: "button", onclick: run }, text);
}

function exchangeTable(act) {
  return table({
    caption: "Exchanges",
    empty: "There are no such exchanges.",
    key: (row) => row.name,
    columns: [
      { title: "Name", heading: true, name: "name", value: (row) => row.name || "(default)" },
      { title: "Type", value: (row) => row.type },
      { title: "Declared", name: "faint", value: (row) => row.features },
      { title: "In", number: true, value: (row) => rate(row.in_rate) },
      { title: "To queues", number: true, value: (row) => rate(row.out_rate) },
      { title: "Unroutable", number: true, value: (row) => brief(row.unroutable) },
      {
        title: "Do",
        make: (row) => {
          const known = { exchange: row.name };
          const publish = button("Publish…", () => actions.publish({ act }, known));
          if (row.is_own) {
            return { node: html("div", { class: "buttons" }, publish) };
          }
          return {
            node: html(
              "div",
              { class: "buttons" },
              publish,
              button("Bind…", () => actions.bind({ act }, { source: row.name })),
              button("Delete…", () => actions.deleteExchange({ act }, row.name)),
            ),
          };
        },
      },
    ],
  });
}

function bindingTable(act) {
  return table({
    caption: "Bindings",
    empty: "There are no such bindings.",
    key: (row) => JSON.stringify(row),
    columns: [
      { title: "From", heading: true, name: "name", value: (row) => row.source },
      { title: "Routing key", name: "name", value: (row) => row.routing_key },
      { title: "Arguments", name: "name", value: (row) => row.arguments },
      { title: "To", name: "name", value: (row) => row.destination },
      { title: "Kind", value: (row) => (row.to_exchange ? "exchange" : "queue") },
      {
        title: "Do",
        make: (row) => ({ node: button("Unbind…", () => actions.unbind({ act }, row)) }),
      },
    ],
  });
}

export function exchanges({ asked, go, act }) {
  const list = exchangeTable(act);
  const bound = bindingTable(act);
  const pages = pager((page) => go({ page: page > 1 ? String(page) : "" }));
  const place = html("div", {
    class: "scroll",
    tabindex: "0",
    role: "region",
    "aria-label": "Picture of the bindings",
  });
  const filter = html("input", { type: "search", id: "filter", value: asked.filter ?? "" });
  let drawn = "";
  let waiting = null;
  filter.addEventListener("input", () => {
    clearTimeout(waiting);
    waiting = setTimeout(() => go({ filter: filter.value, page: "" }), TYPING_MS);
  });

  function update(data) {
    list.update(data.exchanges);
    bound.update(data.bindings);
    pages.update(
      data.page,
      data.pages,
      `${plural(data.matched, "binding")}, page ${data.page} of ${data.pages}`,
    );
    const told = JSON.stringify(data.bindings);
    if (told !== drawn) {
      drawn = told;
      place.replaceChildren(
        data.bindings.length
          ? picture(data.bindings)
          : html("p", { class: "nothing" }, "Nothing is bound."),
      );
    }
  }

  const node = html(
    "div",
    {},
    html(
      "div",
      { class: "bar" },
      html("div", { class: "field" }, html("label", { for: "filter" }, "Name contains"), filter),
      button("Declare an exchange…", () => actions.declareExchange({ act })),
      button("Bind…", () => actions.bind({ act })),
    ),
    html("section", { class: "card" }, html("h2", {}, "Bindings"), place, bound.node, pages.node),
    html("section", { class: "card" }, html("h2", {}, "Exchanges"), list.node),
  );
  const focus = () => {
    filter.focus();
    filter.setSelectionRange(filter.value.length, filter.value.length);
  };
  return { title: exchanges.title, node, update, focus, end: () => clearTimeout(waiting) };
}
exchanges.title = "Exchanges";
