// Figures as texts.

const UNITS = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];
const whole = new Intl.NumberFormat("en");
const short = new Intl.NumberFormat("en", { notation: "compact", maximumFractionDigits: 1 });

/** A count in full: 12,345. */
export function count(value) {
  return whole.format(value);
}

/** A count in few letters: 12.3K. */
export function brief(value) {
  return value < 10_000 ? whole.format(value) : short.format(value);
}

/** Of something a second. */
export function rate(value) {
  if (value >= 10_000) {
    return `${short.format(value)}/s`;
  }
  return `${value >= 10 || value === 0 ? Math.round(value) : value.toFixed(1)}/s`;
}

export function bytes(value) {
  let unit = 0;
  let left = value;
  while (left >= 1024 && unit < UNITS.length - 1) {
    left /= 1024;
    unit += 1;
  }
  return `${unit === 0 || left >= 100 ? Math.round(left) : left.toFixed(1)} ${UNITS[unit]}`;
}

export function micros(value) {
  if (value < 1000) {
    return `${Math.round(value)} µs`;
  }
  if (value < 1_000_000) {
    return `${(value / 1000).toFixed(value < 10_000 ? 1 : 0)} ms`;
  }
  return `${(value / 1_000_000).toFixed(1)} s`;
}

/** An age in seconds: the two largest units at most. */
export function age(seconds) {
  if (seconds === null) {
    return "–";
  }
  if (seconds < 60) {
    return `${Math.round(seconds)} s`;
  }
  const minutes = Math.floor(seconds / 60);
  if (minutes < 60) {
    return `${minutes} min ${Math.round(seconds % 60)} s`;
  }
  const hours = Math.floor(minutes / 60);
  return hours < 48 ? `${hours} h ${minutes % 60} min` : `${Math.floor(hours / 24)} days`;
}

/** A moment, as seconds since 1970. */
export function moment(seconds) {
  return new Date(seconds * 1000).toISOString().replace("T", " ").replace(/\.\d+Z/, " UTC");
}

/** "1 queue", "2 queues". */
export function plural(number, word) {
  return `${count(number)} ${word}${number === 1 ? "" : "s"}`;
}
