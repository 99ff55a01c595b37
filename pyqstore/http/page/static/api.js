// What the page asks of the server: its own addresses, relative to the page, and no others.

/** An answer that is an error: its text says what to do. */
export class Refused extends Error {
  constructor(status, text) {
    super(text);
    this.status = status;
  }
}

// Without a name and password that the page's address may have in it: browsers refuse to ask there.
const BASE = `${location.origin}${location.pathname}page/`;

let token = ""; // sent with each action: another site cannot know it

async function ask(path, options = {}) {
  let answer;
  try {
    answer = await fetch(`${BASE}${path}`, {
      credentials: "same-origin",
      cache: "no-store",
      redirect: "error",
      ...options,
    });
  } catch {
    throw new Refused(0, "The server does not answer. Is it still running?");
  }
  const told = await answer.json().catch(() => ({}));
  if (!answer.ok) {
    throw new Refused(answer.status, told.error ?? `The server answered ${answer.status}.`);
  }
  return told;
}

function post(path, what) {
  return ask(path, {
    method: "POST",
    headers: { "content-type": "application/json", "x-page-token": token },
    body: JSON.stringify(what),
  });
}

/** Who is logged in: `{ user, token, vhosts, version }`. */
export async function session() {
  const told = await ask("session");
  token = told.token;
  return told;
}

/** Do something to a store: see the names in actions.py. */
export function act(name, what) {
  return post(`action/${name}`, what);
}

/** Look at messages of a queue; nothing is delivered. */
export function peek(what) {
  return ask(`peek?${new URLSearchParams(what)}`);
}

/**
 * Follow a view: `onData(figures)` about once a second, `onState(word)` with "live", "waiting" or
 * "refused".  Returns what ends it.
 */
export function follow(what, onData, onState) {
  const source = new EventSource(`${BASE}live?${new URLSearchParams(what)}`);
  source.addEventListener("figures", (event) => {
    onState("live");
    onData(JSON.parse(event.data));
  });
  source.addEventListener("trouble", (event) => onState("trouble", JSON.parse(event.data).error));
  source.addEventListener("error", () => {
    onState(source.readyState === EventSource.CLOSED ? "refused" : "waiting");
  });
  return () => source.close();
}

/** Why a view cannot be followed: an event source does not tell. */
export async function reason(what) {
  const stop = new AbortController();
  try {
    const answer = await fetch(`${BASE}live?${new URLSearchParams(what)}`, { signal: stop.signal });
    const told = answer.ok ? {} : await answer.json();
    return new Refused(answer.status, told.error ?? "The figures have stopped. Reload the page.");
  } catch {
    return new Refused(0, "The server does not answer. Is it still running?");
  } finally {
    stop.abort();
  }
}
