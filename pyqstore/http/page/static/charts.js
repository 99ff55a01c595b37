// Small charts as SVG.  Each is an image with a text alternative that says what it shows now.
// What they show is set by attributes alone, as the page's policy allows no inline style.

import { html, mark, svg, write } from "./dom.js";

const WIDTH = 120;
const HEIGHT = 32;

function line(values, most) {
  const step = WIDTH / Math.max(values.length - 1, 1);
  const points = values.map((value, at) => {
    const y = HEIGHT - 1.5 - (value / most) * (HEIGHT - 4);
    return `${(at * step).toFixed(1)} ${y.toFixed(1)}`;
  });
  return `M${points.join("L")}`;
}

/** A line of the last values: `update(values, format)`. */
export function sparkline(label, kind = "") {
  const area = svg("path", { class: "area" });
  const stroke = svg("path", { class: "line", "vector-effect": "non-scaling-stroke" });
  const node = svg(
    "svg",
    {
      class: `sparkline ${kind}`,
      viewBox: `0 0 ${WIDTH} ${HEIGHT}`,
      preserveAspectRatio: "none",
      role: "img",
    },
    area,
    stroke,
  );

  function update(values, format) {
    const most = Math.max(...values, 1e-9);
    const now = values.length ? values.at(-1) : 0;
    const path = values.length > 1 ? line(values, most) : `M0 ${HEIGHT - 1.5}H${WIDTH}`;
    mark(stroke, "d", path);
    mark(area, "d", values.length > 1 ? `${path}L${WIDTH} ${HEIGHT}L0 ${HEIGHT}Z` : "");
    const highest = values.length ? format(Math.max(...values)) : format(0);
    mark(node, "aria-label", `${label}: ${format(now)} now, ${highest} at most`);
  }
  return { node, update };
}

/** One bar of several parts, each with a class of its own: `update(counts, format)`. */
export function stackedBar(label, parts) {
  const rects = parts.map((part) => svg("rect", { class: part, y: 0, height: 10 }));
  const node = svg(
    "svg",
    { class: "stack", viewBox: "0 0 100 10", preserveAspectRatio: "none", role: "img" },
    svg("rect", { class: "empty", x: 0, y: 0, width: 100, height: 10 }),
    rects,
  );

  function update(counts, format) {
    const sum = counts.reduce((left, right) => left + right, 0);
    let x = 0;
    rects.forEach((rect, at) => {
      const width = sum === 0 ? 0 : (counts[at] / sum) * 100;
      mark(rect, "x", x.toFixed(2));
      mark(rect, "width", Math.max(width - 0.6, width > 0 ? 0.8 : 0).toFixed(2));
      x += width;
    });
    const told = parts.map((part, at) => `${part} ${format(counts[at])}`).join(", ");
    mark(node, "aria-label", `${label}: ${told}`);
  }
  return { node, update };
}

/** A legend of the parts of stacked bars. */
export function legend(parts) {
  const items = parts.map(([part, text]) =>
    html(
      "li",
      {},
      svg(
        "svg",
        { class: "swatch", viewBox: "0 0 10 10", "aria-hidden": "true" },
        svg("rect", { class: part, width: 10, height: 10, rx: 2 }),
      ),
      text,
    ),
  );
  return html("ul", { class: "legend" }, items);
}

/** How much of a whole is used: `update(used, whole, text)`. */
export function meter(label) {
  const bar = svg("rect", { class: "used", x: 0, y: 0, height: 10 });
  const picture = svg(
    "svg",
    { class: "meter", viewBox: "0 0 100 10", preserveAspectRatio: "none", role: "img" },
    svg("rect", { class: "empty", x: 0, y: 0, width: 100, height: 10 }),
    bar,
  );
  const text = html("span", { class: "figure" });
  const node = html(
    "div",
    { class: "metered" },
    html("div", { class: "between" }, html("span", {}, label), text),
    picture,
  );

  function update(used, whole, told) {
    const share = whole > 0 ? Math.min(used / whole, 1) : 0;
    mark(bar, "width", (share * 100).toFixed(1));
    mark(bar, "class", share > 0.9 ? "used high" : "used");
    mark(picture, "aria-label", `${label}: ${Math.round(share * 100)} %, ${told}`);
    write(text, told);
  }
  return { node, update };
}

/** Counts by bucket, as columns: `update(counts, names)`. */
export function histogram(label) {
  const picture = svg("svg", {
    class: "histogram",
    viewBox: `0 0 ${WIDTH} 48`,
    preserveAspectRatio: "none",
    role: "img",
  });
  const ends = [html("span"), html("span")];
  const node = html("div", {}, picture, html("div", { class: "between faint ends" }, ends));

  function update(counts, names) {
    const most = Math.max(...counts, 1);
    const step = WIDTH / counts.length;
    while (picture.childElementCount < counts.length) {
      picture.append(svg("rect", {}, svg("title")));
    }
    counts.forEach((value, at) => {
      const column = picture.children[at];
      const height = value === 0 ? 0 : Math.max((value / most) * 46, 1);
      mark(column, "x", (at * step + step * 0.1).toFixed(2));
      mark(column, "width", (step * 0.8).toFixed(2));
      mark(column, "y", (48 - height).toFixed(2));
      mark(column, "height", height.toFixed(2));
      write(column.firstChild, `${names[at]}: ${value}`);
    });
    const told = counts
      .map((value, at) => [value, names[at]])
      .filter(([value]) => value > 0)
      .map(([value, name]) => `${name} ${value}`);
    mark(picture, "aria-label", `${label}: ${told.join(", ") || "none yet"}`);
    write(ends[0], names[0] ?? "");
    write(ends[1], names.length > 1 ? names.at(-1) : "");
  }
  return { node, update };
}
