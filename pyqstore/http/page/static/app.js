// The page: who is logged in, which view is shown, and the figures that it follows.

import * as api from "./api.js";
import { complain } from "./dialogs.js";
import { html, mark, write } from "./dom.js";
import { connections } from "./views/connections.js";
import { exchanges } from "./views/exchanges.js";
import { overview } from "./views/overview.js";
import { queue } from "./views/queue.js";
import { queues } from "./views/queues.js";
import { streams } from "./views/streams.js";

const VIEWS = { overview, queues, streams, exchanges, connections, queue };
const LISTED = ["overview", "queues", "streams", "exchanges", "connections"];
const STATES = { live: "Live", waiting: "Reconnecting…", refused: "Stopped", trouble: "Trouble" };
const THEMES = ["auto", "light", "dark"];

const header = document.getElementById("header");
const main = document.getElementById("main");
const state = document.getElementById("state");

let session = null;
let vhost = "/";
let leave = () => {};

// ---- theme ----

function setTheme(theme) {
  mark(document.documentElement, "data-theme", theme === "auto" ? null : theme);
  write(document.getElementById("theme"), `Theme: ${theme}`);
  localStorage.setItem("theme", theme);
}

function nextTheme() {
  const now = THEMES.indexOf(localStorage.getItem("theme"));
  setTheme(THEMES[(Math.max(now, 0) + 1) % THEMES.length]);
}

// ---- places ----

/** The address of a view, in the page. */
function place(view, what = {}) {
  const query = new URLSearchParams(what).toString();
  return `#${view}${query ? `?${query}` : ""}`;
}

function current() {
  const [view, query] = location.hash.slice(1).split("?", 2);
  const known = Object.hasOwn(VIEWS, view) ? view : "overview";
  return { view: known, what: Object.fromEntries(new URLSearchParams(query ?? "")) };
}

function showState(word, text) {
  write(state, text ? `${STATES[word]}: ${text}` : STATES[word]);
  mark(state, "data-state", word);
}

/** Show the view of the address.  `keepsFocus`: only its figures are others, as of another page. */
function show(keepsFocus = false) {
  leave();
  const { view, what } = current();
  const listed = view === "queue" ? "queues" : view;
  for (const link of document.querySelectorAll("#views a")) {
    mark(link, "aria-current", link.dataset.view === listed ? "page" : null);
  }
  const asked = { ...what, vhost };
  const go = (to) => {
    history.replaceState(null, "", place(view, clean({ ...what, ...to })));
    show(true);
  };
  const made = VIEWS[view]({ asked, vhost, place, go, act: (name, more) => act(name, more) });
  write(document.querySelector("title"), `${made.title} – pyqstore`);
  main.replaceChildren(html("h1", { tabindex: "-1", id: "title" }, made.title), made.node);
  if (keepsFocus && made.focus) {
    made.focus();
  } else if (!keepsFocus) {
    main.querySelector("h1").focus();
  }
  showState("waiting");
  const end = api.follow({ ...asked, view }, made.update, whenChanged);
  leave = () => {
    end();
    made.end?.();
  };
}

/** Without what is empty. */
function clean(what) {
  return Object.fromEntries(Object.entries(what).filter(([, value]) => value !== ""));
}

async function act(name, what) {
  const told = await api.act(name, { vhost, ...what });
  return told.text;
}

async function whenChanged(word, text) {
  showState(word, text);
  if (word === "refused") {
    complain((await api.reason({ ...current().what, view: current().view, vhost })).message);
  }
}

// ---- who ----

function start() {
  vhost = session.vhosts.includes(vhost) ? vhost : session.vhosts[0];
  const links = LISTED.map((view) =>
    html("li", {}, html("a", { href: place(view), "data-view": view }, VIEWS[view].title)),
  );
  document.getElementById("views").replaceChildren(...links);
  document.getElementById("vhosts").replaceChildren(...vhostChoice());
  write(document.getElementById("user"), session.user);
  header.hidden = false;
  show();
}

function vhostChoice() {
  if (session.vhosts.length < 2) {
    return [];
  }
  const select = html(
    "select",
    {
      id: "vhost",
      onchange: () => {
        vhost = select.value;
        location.hash = place("overview");
        show();
      },
    },
    session.vhosts.map((name) => html("option", { value: name, selected: name === vhost }, name)),
  );
  return [html("label", { for: "vhost", class: "unseen" }, "Virtual host"), select];
}

async function begin() {
  try {
    session = await api.session();
    start();
  } catch (error) {
    main.replaceChildren(
      html("h1", {}, "pyqstore"),
      html("p", { class: "problem", role: "alert" }, error.message),
      html("button", { type: "button", onclick: () => location.reload() }, "Reload"),
    );
  }
}

document.getElementById("theme").addEventListener("click", nextTheme);
document.getElementById("skip").addEventListener("click", (event) => {
  event.preventDefault();
  main.focus();
});
addEventListener("hashchange", () => session && show());
setTheme(THEMES.includes(localStorage.getItem("theme")) ? localStorage.getItem("theme") : "auto");
begin();
