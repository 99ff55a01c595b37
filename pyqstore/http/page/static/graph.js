// Exchanges and bindings as a picture: exchanges in columns by how far they are from where
// messages come in, queues in the last one, an arrow for each binding.

import { svg } from "./dom.js";

const BOX = { width: 170, height: 30 };
const GAP = { x: 130, y: 14 };
const LETTERS = 22;

function shortened(name) {
  return name.length > LETTERS ? `${name.slice(0, LETTERS - 1)}…` : name;
}

const keyOf = (kind, name) => `${kind} ${name}`;

/** Exchanges get columns along the bindings between them; circles end where they meet. */
function columnsOf(exchanges, edges) {
  const columns = new Map(exchanges.map((name) => [keyOf("exchange", name), 0]));
  for (let round = 0; round < exchanges.length; round++) {
    let isMoved = false;
    for (const { from, to } of edges) {
      const after = columns.get(from) + 1;
      if (columns.has(to) && columns.get(to) < after && after < exchanges.length) {
        columns.set(to, after);
        isMoved = true;
      }
    }
    if (!isMoved) {
      break;
    }
  }
  return columns;
}

/** Nodes of a column in the order of those that lead to them, so that few arrows cross. */
function order(column, edges, rows) {
  const middle = (key) => {
    const before = edges.filter(({ to }) => to === key).map(({ from }) => rows.get(from) ?? 0);
    return before.length ? before.reduce((left, right) => left + right) / before.length : 1e9;
  };
  const weighed = column.map((key) => [key, middle(key)]);
  weighed.sort((left, right) => left[1] - right[1] || (left[0] < right[0] ? -1 : 1));
  weighed.forEach(([key], row) => rows.set(key, row));
  return weighed.map(([key]) => key);
}

/** Where each node is: a map from its key to `{ x, y }`, and the size of all. */
export function layout(bindings) {
  const edges = bindings.map((each) => ({
    from: keyOf("exchange", each.source),
    to: keyOf(each.to_exchange ? "exchange" : "queue", each.destination),
    text: each.routing_key,
  }));
  const named = bindings.flatMap((each) =>
    each.to_exchange ? [each.source, each.destination] : [each.source],
  );
  const columns = columnsOf([...new Set(named)], edges);
  const last = Math.max(...columns.values(), 0) + 1;
  const queues = new Set(edges.map(({ to }) => to).filter((key) => !columns.has(key)));
  queues.forEach((key) => columns.set(key, last));
  const places = new Map();
  const rows = new Map();
  let height = 0;
  for (let at = 0; at <= last; at++) {
    const column = [...columns].filter(([, where]) => where === at).map(([key]) => key);
    order(column, edges, rows).forEach((key, row) => {
      const y = row * (BOX.height + GAP.y) + 4;
      places.set(key, { x: at * (BOX.width + GAP.x) + 4, y });
      height = Math.max(height, y + BOX.height + 4);
    });
  }
  return { edges, places, width: last * (BOX.width + GAP.x) + BOX.width + 8, height };
}

function box(key, { x, y }) {
  const [kind] = key.split(" ", 1);
  const name = key.slice(kind.length + 1);
  const corner = kind === "exchange" ? BOX.height / 2 : 4;
  return svg(
    "g",
    { class: kind },
    svg("rect", { x, y, width: BOX.width, height: BOX.height, rx: corner }),
    svg(
      "text",
      { x: x + BOX.width / 2, y: y + BOX.height / 2, "dominant-baseline": "central" },
      shortened(name === "" ? "(default)" : name),
    ),
    svg("title", {}, `${kind} ${name}`),
  );
}

function arrow({ from, to, text }, places) {
  const start = places.get(from);
  const end = places.get(to);
  const [x1, y1] = [start.x + BOX.width, start.y + BOX.height / 2];
  const isBack = end.x <= start.x;
  const [x2, y2] = [isBack ? end.x + BOX.width : end.x, end.y + BOX.height / 2];
  const bend = GAP.x / 2;
  const path = `M${x1} ${y1}C${x1 + bend} ${y1} ${x2 + (isBack ? bend : -bend)} ${y2} ${x2} ${y2}`;
  const parts = [svg("path", { d: path, "marker-end": "url(#arrow)" })];
  if (text) {
    const where = { x: x1 + (x2 - x1) * 0.5, y: y1 + (y2 - y1) * 0.5 - 4 };
    parts.push(svg("text", where, text.length > 16 ? `${text.slice(0, 15)}…` : text));
  }
  return svg("g", { class: "binding" }, parts, svg("title", {}, text || "no routing key"));
}

/** The picture of bindings: `{ source, destination, to_exchange, routing_key }`. */
export function picture(bindings) {
  const { edges, places, width, height } = layout(bindings);
  return svg(
    "svg",
    {
      class: "graph",
      viewBox: `0 0 ${width} ${height}`,
      width,
      height,
      role: "img",
      "aria-label": "Exchanges, queues and the bindings between them; the table tells the same",
    },
    svg(
      "defs",
      {},
      svg(
        "marker",
        {
          id: "arrow",
          viewBox: "0 0 8 8",
          refX: 7,
          refY: 4,
          markerWidth: 7,
          markerHeight: 7,
          orient: "auto",
        },
        svg("path", { d: "M0 0L8 4L0 8Z" }),
      ),
    ),
    edges.map((edge) => arrow(edge, places)),
    [...places].map(([key, where]) => box(key, where)),
  );
}
