// Tables whose rows stay while their figures change, so that focus and selection stay, too.

import { html, mark, write } from "./dom.js";

/**
 * A table of rows that `update(rows)` shows.
 *
 * Columns: `{ title, name, value(row) }`, where the value is a text; or in place of it
 * `make(row)`, which returns `{ node, update(row) }`.  `number`: aligned to the right; `sort`: by
 * which word it is sorted; `heading`: the cell names its row.
 */
export function table({ caption, columns, key, sorted = null, empty }) {
  const body = html("tbody");
  const shown = new Map();
  const nothing = html("p", { class: "nothing" }, empty);
  const heads = columns.map((column) => head(column, sorted));
  const node = html(
    "div",
    { class: "table", role: "region", "aria-label": caption, tabindex: "0" },
    html(
      "table",
      {},
      html("caption", { class: "unseen" }, caption),
      html("thead", {}, html("tr", {}, heads)),
      body,
    ),
    nothing,
  );

  function update(rows) {
    nothing.hidden = rows.length > 0;
    const seen = new Set(rows.map(key));
    for (const [name, entry] of shown) {
      if (!seen.has(name)) {
        entry.node.remove();
        shown.delete(name);
      }
    }
    rows.forEach((row, at) => {
      const name = key(row);
      if (!shown.has(name)) {
        shown.set(name, line(columns, row));
      }
      const entry = shown.get(name);
      if (body.children[at] !== entry.node) {
        body.insertBefore(entry.node, body.children[at] ?? null);
      }
      entry.update(row);
    });
  }
  return { node, update };
}

function head(column, sorted) {
  const cell = html("th", { scope: "col", class: column.number ? "number" : null });
  if (column.sort && sorted) {
    const isThis = sorted.by === column.sort;
    const order = sorted.descending ? "descending" : "ascending";
    mark(cell, "aria-sort", isThis ? order : null);
    const arrow = isThis ? (sorted.descending ? " ↓" : " ↑") : "";
    cell.append(
      html(
        "button",
        { type: "button", class: "sort", onclick: () => sorted.choose(column.sort) },
        column.title,
        html("span", { "aria-hidden": "true" }, arrow),
      ),
    );
  } else {
    cell.append(column.title);
  }
  return cell;
}

function line(columns, first) {
  const cells = columns.map((column) => {
    const made = column.make ? column.make(first) : null;
    const tag = column.heading ? "th" : "td";
    const cell = html(tag, {
      class: [column.number ? "number" : "", column.name ?? ""].join(" ").trim() || null,
      scope: column.heading ? "row" : null,
    });
    if (made) {
      cell.append(made.node);
    }
    return {
      cell,
      update: made ? (row) => made.update?.(row) : (row) => write(cell, column.value(row)),
    };
  });
  const node = html(
    "tr",
    {},
    cells.map(({ cell }) => cell),
  );
  return { node, update: (row) => cells.forEach((each) => each.update(row)) };
}

/** A list of names and figures: `update([[name, figure], ...])`. */
export function figures() {
  const node = html("dl", { class: "figures" });

  function update(pairs) {
    while (node.childElementCount > pairs.length) {
      node.lastChild.remove();
    }
    while (node.childElementCount < pairs.length) {
      node.append(html("div", {}, html("dt"), html("dd")));
    }
    pairs.forEach(([name, figure], at) => {
      write(node.children[at].children[0], name);
      write(node.children[at].children[1], figure);
    });
  }
  return { node, update };
}

/** Pages of a long list: `update(page, pages, text)`; `choose(page)` is called. */
export function pager(choose) {
  const state = { page: 1, pages: 1 };
  const to = (page) => () => choose(Math.min(Math.max(page(), 1), state.pages));
  const back = html(
    "button",
    { type: "button", class: "quiet", onclick: to(() => state.page - 1) },
    "Previous",
  );
  const next = html(
    "button",
    { type: "button", class: "quiet", onclick: to(() => state.page + 1) },
    "Next",
  );
  const text = html("span", { role: "status" });
  const node = html("nav", { class: "pager", "aria-label": "Pages" }, back, text, next);

  function update(page, pages, told) {
    Object.assign(state, { page, pages });
    back.disabled = page <= 1;
    next.disabled = page >= pages;
    write(text, told);
  }
  return { node, update };
}
