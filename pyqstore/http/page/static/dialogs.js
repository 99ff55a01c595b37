// Questions before anything is done, and what went wrong.

import { Refused } from "./api.js";
import { html, write } from "./dom.js";

let counted = 0;

function control(field, name) {
  const shared = { id: name, name: field.name, required: field.required ?? false };
  if (field.type === "select") {
    return html(
      "select",
      shared,
      field.options.map(([value, text]) =>
        html("option", { value, selected: value === field.value }, text),
      ),
    );
  }
  if (field.type === "textarea") {
    const area = html("textarea", { ...shared, rows: 5, spellcheck: "false" });
    area.value = field.value ?? "";
    return area;
  }
  const type = field.type ?? "text";
  const input = html("input", {
    ...shared,
    type,
    autocomplete: field.autocomplete ?? "off",
    min: field.min,
    max: field.max,
    list: field.list ? `${name}-list` : null,
  });
  if (type === "checkbox") {
    input.checked = field.value ?? false;
  } else {
    input.value = field.value ?? "";
  }
  return input;
}

function row(field) {
  counted += 1;
  const name = `field-${counted}`;
  const input = control(field, name);
  const help = field.help ? html("p", { class: "help", id: `${name}-help` }, field.help) : null;
  if (help) {
    input.setAttribute("aria-describedby", help.id);
  }
  const label = html("label", { for: name }, field.label);
  const known = field.list
    ? html("datalist", { id: `${name}-list` }, field.list.map((value) => html("option", { value })))
    : null;
  const isBox = field.type === "checkbox";
  const parts = isBox ? [html("div", { class: "box" }, input, label)] : [label, input];
  return { input, field, node: html("div", { class: "field" }, parts, known, help) };
}

function valueOf({ input, field }) {
  if (field.type === "checkbox") {
    return input.checked;
  }
  if (field.type === "number") {
    return input.value === "" ? null : Number(input.value);
  }
  return input.value;
}

/** Rows of a form, and what they hold by name. */
export function fields(list) {
  const rows = list.map(row);
  return {
    nodes: rows.map(({ node }) => node),
    values: () => Object.fromEntries(rows.map((each) => [each.field.name, valueOf(each)])),
  };
}

/**
 * Ask, and do it: the dialog stays, with the reason, when `run(values)` is refused.
 *
 * Of an answer that is a text, it tells that.  Returns a promise of whether it was done.
 */
export function ask({ title, text, form = [], action, danger = false, run }) {
  const opener = document.activeElement;
  const { nodes, values } = fields(form);
  const problem = html("p", { class: "problem", role: "alert" });
  const go = html("button", { type: "submit", class: danger ? "danger" : "primary" }, action);
  const cancel = html("button", { type: "button", onclick: () => dialog.close() }, "Cancel");
  const heading = html("h2", { id: "dialog-title" }, title);
  const words = html("p", { id: "dialog-text" }, text);
  const dialog = html(
    "dialog",
    { "aria-labelledby": "dialog-title", "aria-describedby": "dialog-text" },
    html(
      "form",
      { onsubmit: (event) => submit(event) },
      heading,
      words,
      nodes,
      problem,
      html("div", { class: "buttons" }, cancel, go),
    ),
  );
  let isDone = false;

  async function submit(event) {
    event.preventDefault();
    write(problem, "");
    go.disabled = true;
    try {
      const told = await run(values());
      isDone = true;
      dialog.close();
      if (typeof told === "string") {
        tell(told);
      }
    } catch (error) {
      if (!(error instanceof Refused)) {
        throw error;
      }
      write(problem, error.message);
    } finally {
      go.disabled = false;
    }
  }

  document.body.append(dialog);
  dialog.showModal();
  // Nothing dangerous has the focus: a key that was meant for the page does nothing.
  (dialog.querySelector("input, select, textarea") ?? cancel).focus();
  return new Promise((resolve) => {
    dialog.addEventListener("close", () => {
      dialog.remove();
      if (opener instanceof HTMLElement && opener.isConnected) {
        opener.focus();
      }
      resolve(isDone);
    });
  });
}

const SHOWN_MS = 8000;

function message(kind, text) {
  const close = html(
    "button",
    { type: "button", class: "quiet", "aria-label": "Dismiss", onclick: () => node.remove() },
    "×",
  );
  const node = html("div", { class: `message ${kind}` }, html("span", {}, text), close);
  const place = document.getElementById("messages");
  while (place.childElementCount > 2) {
    place.firstChild.remove();
  }
  place.append(node);
  return node;
}

/** Say what was done. */
export function tell(text) {
  const node = message("done", text);
  setTimeout(() => node.remove(), SHOWN_MS);
}

/** Say what went wrong; it stays until it is dismissed. */
export function complain(text) {
  message("wrong", text);
}
