// Messages of a queue, looked at and left where they are.

import { peek } from "../api.js";
import { complain } from "../dialogs.js";
import { html } from "../dom.js";
import { bytes, count } from "../format.js";

const MOST = 50;

function message(each) {
  const properties = Object.entries(each.properties).map(([name, value]) =>
    html("div", {}, html("dt", {}, name), html("dd", {}, value)),
  );
  const facts = [
    each.state,
    each.redelivered ? "redelivered" : null,
    `exchange "${each.exchange}"`,
    `key "${each.routing_key}"`,
    bytes(each.body_bytes),
  ].filter(Boolean);
  const notes = [
    each.encoding === "base64" ? "It is no text: shown as base64." : null,
    each.truncated ? "Only the beginning is shown." : null,
  ].filter(Boolean);
  return html(
    "li",
    { class: "peeked" },
    html("p", { class: "facts" }, html("strong", {}, `#${each.position}`), " ", facts.join(" · ")),
    html("pre", { tabindex: "0", "aria-label": "Body" }, each.body),
    notes.map((text) => html("p", { class: "help" }, text)),
    properties.length ? html("dl", { class: "figures" }, properties) : null,
  );
}

/** Messages of `queue` with a button that looks at them, from `start` on. */
export function messages(vhost, queue) {
  const list = html("ol", { class: "messages-list" });
  const told = html("p", { role: "status", class: "help" });
  const number = html("input", { type: "number", id: "peek-count", min: 1, max: MOST, value: 10 });
  const start = html("input", { type: "number", id: "peek-start", min: 0, value: 0 });
  const form = html(
    "form",
    { class: "bar", onsubmit: (event) => look(event) },
    html("div", { class: "field" }, html("label", { for: "peek-count" }, "How many"), number),
    html("div", { class: "field" }, html("label", { for: "peek-start" }, "From position"), start),
    html("button", { type: "submit" }, "Peek"),
  );

  async function look(event) {
    event.preventDefault();
    try {
      const from = start.value || "0";
      const found = await peek({ vhost, queue, start: from, limit: number.value || "10" });
      list.replaceChildren(...found.messages.map(message));
      told.textContent = found.messages.length
        ? `${count(found.messages.length)} shown; none was delivered.`
        : "There is no message there.";
    } catch (error) {
      complain(error.message);
    }
  }
  return html("section", { class: "card" }, html("h2", {}, "Messages"), form, told, list);
}
