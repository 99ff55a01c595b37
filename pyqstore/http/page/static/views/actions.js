// What can be done to queues and exchanges: each asks first.

import { ask } from "../dialogs.js";

const TYPES = ["direct", "fanout", "topic", "headers", "x-consistent-hash"];
const options = (words) => words.map((word) => [word, word]);
const ARGUMENTS = {
  name: "arguments",
  label: "Arguments",
  type: "textarea",
  help: 'As JSON, such as {"x-max-length": 1000}. Empty: none.',
};
const LIMIT = {
  name: "limit",
  label: "At most",
  type: "number",
  min: 1,
  help: "Empty: all that are ready now.",
};

export function declareQueue({ act }) {
  return ask({
    title: "Declare a queue",
    text: "A queue of this name that is there already must be like it.",
    action: "Declare",
    form: [
      { name: "queue", label: "Name", required: true },
      {
        name: "kind",
        label: "Kind",
        type: "select",
        value: "classic",
        options: [
          ["classic", "Queue"],
          ["stream", "Stream: messages stay for any number of readers"],
        ],
      },
      { name: "durable", label: "Durable: survives a restart", type: "checkbox", value: true },
      {
        name: "auto_delete",
        label: "Auto-delete: goes with its last consumer",
        type: "checkbox",
      },
      ARGUMENTS,
    ],
    run: (values) => act("declare_queue", values),
  });
}

export function declareExchange({ act }) {
  return ask({
    title: "Declare an exchange",
    text: "An exchange of this name that is there already must be like it.",
    action: "Declare",
    form: [
      { name: "exchange", label: "Name", required: true },
      { name: "type", label: "Type", type: "select", value: "direct", options: options(TYPES) },
      { name: "durable", label: "Durable: survives a restart", type: "checkbox", value: true },
      { name: "auto_delete", label: "Auto-delete: goes with its last binding", type: "checkbox" },
      { name: "internal", label: "Internal: takes messages of exchanges alone", type: "checkbox" },
      ARGUMENTS,
    ],
    run: (values) => act("declare_exchange", values),
  });
}

export function bind({ act }, known = {}) {
  return ask({
    title: "Bind",
    text: "Messages of the exchange that match go to the queue or exchange, too.",
    action: "Bind",
    form: [
      { name: "source", label: "From the exchange", required: true, value: known.source },
      {
        name: "kind",
        label: "To",
        type: "select",
        value: "queue",
        options: [
          ["queue", "Queue"],
          ["exchange", "Exchange"],
        ],
      },
      { name: "destination", label: "Its name", required: true, value: known.destination },
      { name: "routing_key", label: "Routing key" },
      ARGUMENTS,
    ],
    run: (values) => act("bind", values),
  });
}

export function unbind({ act }, binding) {
  return ask({
    title: "Unbind?",
    text:
      `Messages of ${binding.source} with the key "${binding.routing_key}"` +
      ` do not go to ${binding.destination} any more.`,
    action: "Unbind",
    danger: true,
    run: () =>
      act("unbind", {
        source: binding.source,
        kind: binding.to_exchange ? "exchange" : "queue",
        destination: binding.destination,
        routing_key: binding.routing_key,
        arguments_raw: binding.arguments_raw,
      }),
  });
}

export function publish({ act }, known = {}) {
  return ask({
    title: "Publish a message",
    text: "It is published when this dialog closes, and durable if its queue is.",
    action: "Publish",
    form: [
      {
        name: "exchange",
        label: "Exchange",
        value: known.exchange ?? "",
        help: "Empty: the queue of the routing key.",
      },
      { name: "routing_key", label: "Routing key", value: known.queue ?? "" },
      { name: "body", label: "Body", type: "textarea" },
      {
        name: "properties",
        label: "Properties",
        type: "textarea",
        help: 'As JSON, such as {"priority": 5, "headers": {"n": 1}}. Empty: none.',
      },
      { name: "persistent", label: "Persistent", type: "checkbox", value: true },
    ],
    run: (values) => act("publish", values),
  });
}

export function purge({ act }, queue, ready) {
  return ask({
    title: "Purge the queue?",
    text: `The ${ready} ready messages of ${queue} are removed. This cannot be taken back.`,
    action: "Purge",
    danger: true,
    run: () => act("purge", { queue }),
  });
}

export function deleteQueue({ act }, queue) {
  return ask({
    title: "Delete the queue?",
    text: `${queue}, its messages and its bindings are removed. This cannot be taken back.`,
    action: "Delete",
    danger: true,
    form: [
      { name: "if_empty", label: "Only if it is empty", type: "checkbox", value: true },
      { name: "if_unused", label: "Only if it has no consumers", type: "checkbox", value: true },
    ],
    run: (values) => act("delete_queue", { queue, ...values }),
  });
}

export function deleteExchange({ act }, exchange) {
  return ask({
    title: "Delete the exchange?",
    text: `${exchange} and its bindings are removed. This cannot be taken back.`,
    action: "Delete",
    danger: true,
    form: [
      {
        name: "if_unused",
        label: "Only if nothing is bound to it",
        type: "checkbox",
        value: true,
      },
    ],
    run: (values) => act("delete_exchange", { exchange, ...values }),
  });
}

export function move({ act }, queue) {
  return ask({
    title: "Move messages",
    text:
      `Ready messages of ${queue} go to another queue, in transactions: none is in no queue, and` +
      " none in both. A queue with a limit or an expiry may drop what comes.",
    action: "Move",
    form: [
      { name: "destination", label: "To the queue", required: true },
      LIMIT,
    ],
    run: (values) => act("move", { queue, ...values }),
  });
}

export function requeueDeadLetters({ act }, queue) {
  return ask({
    title: "Requeue dead letters?",
    text:
      `Ready messages of ${queue} that died in another queue go back to it, in transactions.` +
      " Others stay. A queue with a limit or an expiry may drop what comes.",
    action: "Requeue",
    form: [LIMIT],
    run: (values) => act("requeue_dead_letters", { queue, ...values }),
  });
}
