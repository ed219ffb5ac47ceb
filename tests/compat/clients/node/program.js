'use strict';

// The Node client program: reads commands from standard input, see README.md of the folder above.

const readline = require('readline');
const { Consumer, Message, Producer } = require('ali-ons');

const logger = { debug() {}, info() {}, warn: console.error, error: console.error };
const httpclient = { request: () => Promise.reject(new Error('no address server here')) };
const senders = new Map();
const consumers = new Map();

function write(words, type, members = {}) {
  process.stdout.write(JSON.stringify({ id: words.id, type, ...members }) + '\n');
}

function parse(line) {
  const [verb, ...parts] = line.trim().split(/ +/);
  const words = {};
  for (const part of parts) {
    const equals = part.indexOf('=');
    words[part.slice(0, equals)] = part.slice(equals + 1);
  }
  return [verb, words];
}

function options(words, instanceName) {
  // Every producer and consumer gets a client of its own: closing one closes its client.
  return { httpclient, logger, nameSrv: words.namesrv, instanceName, rebalanceInterval: 1000 };
}

function messageOf(words, number) {
  const body = `${words.body || ''}${number}${'x'.repeat(Number(words.filler || 0))}`;
  const message = new Message(words.topic, words.tag || '', body);
  if (words.key) message.keys = [ words.key ];
  return message;
}

async function sendOne(words, producer, number) {
  const message = messageOf(words, number);
  const body = message.body.toString();
  try {
    const result = await producer.send(message);
    write(words, 'sent', {
      body, message_id: result.msgId, status: result.sendStatus, broker: result.messageQueue.brokerName,
      queue: result.messageQueue.queueId, offset: Number(result.queueOffset),
    });
  } catch (err) {
    write(words, 'failed', { body, why: String(err) });
  }
}

async function send(words) {
  if (![ 'sync', 'async', undefined ].includes(words.mode)) throw new Error(`ali-ons cannot send ${words.mode}`);
  const state = { stopped: false };
  senders.set(words.id, state);
  const producer = new Producer({ ...options(words, `send${words.id}-${process.pid}`), producerGroup: words.group || 'senders' });
  producer.on('error', err => console.error(err));
  await producer.ready();
  const pending = [];
  for (let i = 0; i < Number(words.count) && !state.stopped; i++) {
    const sent = sendOne(words, producer, i);
    if (words.mode === 'async') pending.push(sent);
    else await sent;
  }
  await Promise.all(pending);
  await producer.close();
  write(words, 'done');
}

async function subscribe(words) {
  const consumer = new Consumer({
    ...options(words, words.instance || `receive${words.id}-${process.pid}`),
    consumerGroup: words.group || 'receivers',
    consumeFromWhere: 'CONSUME_FROM_FIRST_OFFSET',
    persistConsumerOffsetInterval: 1000,
  });
  consumers.set(words.id, consumer);
  consumer.on('error', err => console.error(err));
  await consumer.ready();
  consumer.subscribe(words.topic, (words.tags || '*').replace('||', ' || '), async (message, queue) => {
    write(words, 'got', {
      body: message.body.toString(), message_id: message.msgId, topic: message.topic, tag: message.tags,
      key: message.keys, broker: queue && queue.brokerName, queue: message.queueId, offset: Number(message.queueOffset),
      times: message.reconsumeTimes,
    });
    if (message.reconsumeTimes < Number(words.fail || 0)) return Consumer.ACTION_RETRY;
  });
  write(words, 'ready');
}

async function leave(words) {
  const consumer = consumers.get(words.id);
  consumers.delete(words.id);
  await consumer.close();
  write(words, 'done');
}

function handle(verb, words) {
  switch (verb) {
    case 'send': return send(words);
    case 'stop': senders.get(words.id).stopped = true; return Promise.resolve();
    case 'subscribe': return subscribe(words);
    case 'leave': return leave(words);
    default: return Promise.reject(new Error(`unknown command ${verb}`));
  }
}

async function closeAll() {
  for (const state of senders.values()) state.stopped = true;
  await Promise.all([...consumers.keys()].map(id => leave({ id })));
  process.exit(0);
}

const input = readline.createInterface({ input: process.stdin });
input.on('line', line => {
  const [verb, words] = parse(line);
  handle(verb, words).catch(err => write(words, 'error', { why: String(err) }));
});
input.on('close', closeAll);
