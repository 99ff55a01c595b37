// What programs do with amqplib under node: confirms, returns, consumers with a limit, requests
// and replies, exchanges of each kind, and errors.
//
//     node amqplib.js PORT

const amqp = require('amqplib');

const [port] = process.argv.slice(2);
const say = (...what) => console.log(what.map((each) => JSON.stringify(each)).join(' '));
const once = (emitter, name) => new Promise((resolve) => emitter.once(name, resolve));

// Deliveries of a queue, so many; ``answer`` settles each.
function deliveries(channel, queue, count, answer, options) {
  return new Promise((resolve, reject) => {
    const seen = [];
    channel.consume(queue, (message) => {
      seen.push([message.content.toString(), message.fields.redelivered]);
      answer(message);
      if (seen.length === count) {
        channel.cancel(message.fields.consumerTag).then(() => resolve(seen), reject);
      }
    }, options).catch(reject);
  });
}

async function confirms(connection) {
  const channel = await connection.createConfirmChannel();
  const returned = once(channel, 'return');
  await channel.assertQueue('confirmed', { durable: true });
  for (let i = 0; i < 50; i += 1) {
    channel.sendToQueue('confirmed', Buffer.from(`message ${i}`), { persistent: true });
  }
  await channel.waitForConfirms();
  say('confirmed', await channel.checkQueue('confirmed'));
  channel.publish('', 'nowhere', Buffer.from('lost'), { mandatory: true, type: 'a type' });
  await channel.waitForConfirms();
  const { fields, properties, content } = await returned;
  say('returned', fields, properties.type, content.toString());
  const small = { arguments: { 'x-max-length': 1, 'x-overflow': 'reject-publish' } };
  await channel.assertQueue('small', small);
  const results = [];
  for (const body of ['kept', 'refused']) {
    results.push(await new Promise((resolve) => {
      channel.sendToQueue('small', Buffer.from(body), {}, (error) => resolve(error?.message));
    }));
  }
  say('full', results);
  say('purged', await channel.purgeQueue('confirmed'), await channel.deleteQueue('small'));
  await channel.deleteQueue('confirmed');
  await channel.close();
}

async function consumers(connection) {
  const channel = await connection.createChannel();
  await channel.assertQueue('work', { durable: true, deadLetterExchange: 'amq.fanout' });
  const { queue: dead } = await channel.assertQueue('', { exclusive: true });
  await channel.bindQueue(dead, 'amq.fanout', '');
  for (const body of ['a', 'b', 'c', '']) channel.sendToQueue('work', Buffer.from(body));
  await channel.prefetch(1);
  say('requeued', await deliveries(channel, 'work', 5, (message) => {
    const again = message.fields.redelivered || message.content.toString() !== 'a';
    if (again) channel.ack(message);
    else channel.nack(message);
  }));
  channel.sendToQueue('work', Buffer.alloc(300000, 'x'), { headers: { n: 1, deep: { list: [1, 'two', null] } } });
  const rejected = once(channel, 'rejected');
  await channel.consume('work', (message) => {
    channel.reject(message, false);
    channel.emit('rejected', message);
  }, { consumerTag: 'rejecting', priority: 5 });
  await rejected;
  await channel.cancel('rejecting');
  const [body] = await deliveries(channel, dead, 1, () => {}, { noAck: true });
  say('dead letter', body[0].length);
  const cancelled = new Promise((resolve) => channel.consume('work', resolve));
  await channel.deleteQueue('work');
  say('cancelled', await cancelled);
  await channel.close();
}

async function requests(connection) {
  const channel = await connection.createChannel();
  await channel.assertQueue('rpc', { durable: false, autoDelete: true });
  await channel.consume('rpc', (message) => {
    const { replyTo, correlationId } = message.properties;
    say('request', message.content.toString(), replyTo.startsWith('amq.rabbitmq.reply-to.'));
    channel.sendToQueue(replyTo, Buffer.from('pong'), { correlationId });
  }, { noAck: true });
  const client = await connection.createChannel();
  const reply = new Promise((resolve) => {
    client.consume('amq.rabbitmq.reply-to', resolve, { noAck: true });
  });
  const replyTo = 'amq.rabbitmq.reply-to';
  client.sendToQueue('rpc', Buffer.from('ping'), { replyTo, correlationId: '7' });
  const { content, properties } = await reply;
  say('reply', content.toString(), properties.correlationId);
  await client.close();
  await channel.close();
}

// How many messages of each exchange come to a queue that is bound to it.
async function exchanges(connection) {
  const channel = await connection.createChannel();
  const matches = { 'x-match': 'any', foo: 'bar', baz: 'boo' };
  for (const [kind, pattern, options] of [
    ['direct', 'a.b', {}], ['fanout', '', {}], ['topic', 'a.*', {}], ['headers', '', matches],
  ]) {
    const { exchange } = await channel.assertExchange(`of ${kind}`, kind, { autoDelete: true });
    await channel.assertExchange(`before ${kind}`, 'fanout', { durable: false });
    await channel.bindExchange(exchange, `before ${kind}`, '');
    const { queue } = await channel.assertQueue('', { exclusive: true });
    await channel.bindQueue(queue, exchange, pattern, options);
    channel.publish(exchange, 'a.b', Buffer.from('1'), { headers: { baz: 'boo' } });
    channel.publish(exchange, 'b', Buffer.from('2'), { headers: { foo: 'other' } });
    channel.publish(`before ${kind}`, 'a.b', Buffer.from('3'), { headers: { foo: 'bar' } });
    await channel.unbindQueue(queue, exchange, pattern, options);
    say(kind, await channel.deleteQueue(queue));
    await channel.deleteExchange(`before ${kind}`);
  }
  await channel.close();
}

async function errors(connection) {
  const failures = {
    'no such queue': (channel) => channel.checkQueue('nowhere'),
    'other arguments': async (channel) => {
      await channel.assertQueue('taken', { durable: false, autoDelete: true });
      await channel.assertQueue('taken', { durable: true, autoDelete: true });
    },
    'no such type': (channel) => channel.assertExchange('e', 'nonsense'),
    'reserved name': (channel) => channel.assertExchange('amq.own', 'direct'),
    'unknown tag': async (channel) => {
      channel.ack({ fields: { deliveryTag: 9 } });
      await channel.checkQueue('nowhere');
    },
  };
  for (const [name, act] of Object.entries(failures)) {
    const own = await amqp.connect(`amqp://127.0.0.1:${port}`);
    own.on('error', (error) => say('connection', error.message));
    const channel = await own.createChannel();
    const failed = once(channel, 'error');
    const ended = once(own, 'close');
    await act(channel).catch((error) => say(name, error.message));
    const error = await Promise.race([failed, ended]);
    say(name, error.code);
    await own.close().catch((problem) => say('closing', problem.message));
  }
  const refused = await amqp.connect(`amqp://guest:wrong@127.0.0.1:${port}`).catch((error) => error);
  say('wrong password', refused.message);
  const channel = await connection.createChannel();
  await channel.deleteQueue('taken');
  await channel.close();
}

(async () => {
  const connection = await amqp.connect({ hostname: '127.0.0.1', port: Number(port), heartbeat: 30 });
  for (const part of [confirms, consumers, requests, exchanges, errors]) await part(connection);
  await connection.close();
})().catch((error) => {
  console.log(error);
  process.exit(1);
});
