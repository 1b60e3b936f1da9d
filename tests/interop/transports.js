// One scenario of test_transports.py with MQTT.js: argument 1 is a JSON object {url, ca, version, prefix, wait}. Prints a
// line for each step, ends with 0 when all of it came true.
'use strict';
const assert = require('assert');
const fs = require('fs');
const path = require('path');
const mqtt = require(path.join(process.env.MQTT_JS, 'node_modules', 'mqtt'));

const task = JSON.parse(process.argv[2]);
setTimeout(() => { console.error('not finished in time'); process.exit(1); }, task.wait * 1000).unref();

function connect(name, more = {}) {
  const options = {
    clientId: `${task.prefix}/${name}`, protocolVersion: task.version, reconnectPeriod: 0, connectTimeout: task.wait * 1000,
    ca: task.ca ? fs.readFileSync(task.ca) : undefined, clean: true, ...more,
  };
  if (task.version === 5 && options.clean === false) options.properties = { sessionExpiryInterval: 300 };
  const client = mqtt.connect(task.url, options);
  client.seen = [];
  client.on('message', (topic, payload, packet) => client.seen.push({ topic, payload: payload.toString(), qos: packet.qos, retain: packet.retain }));
  return new Promise((resolve, reject) => {
    client.on('connect', (connack) => { client.connack = connack; resolve(client); });
    client.on('error', reject);
  });
}

async function until(condition, what) {
  for (;;) {
    if (condition()) return;
    await new Promise((resolve) => setTimeout(resolve, 10));
    until.waitsFor = what;
  }
}

const topic = (name) => `${task.prefix}/${name}`;

async function main() {
  const a = await connect('a');
  const b = await connect('b');
  for (const qos of [0, 1, 2]) {
    await a.subscribeAsync(topic(`q${qos}`), { qos });
    for (let i = 0; i < 20; ++i) await b.publishAsync(topic(`q${qos}`), `${qos}:${i}`, { qos });
    await until(() => a.seen.length === 20, `20 messages of QoS ${qos}`);
    assert.deepStrictEqual(a.seen.map((m) => m.payload), [...Array(20).keys()].map((i) => `${qos}:${i}`));
    assert(a.seen.every((m) => m.qos === qos));
    a.seen.length = 0;
  }
  console.log('qos');

  const large = 'x'.repeat(700000);
  await a.subscribeAsync(topic('large'), { qos: 1 });
  await b.publishAsync(topic('large'), large, { qos: 1 });
  await until(() => a.seen.length === 1, 'the large one');
  assert.strictEqual(a.seen[0].payload, large);
  a.seen.length = 0;
  console.log('large');

  await b.publishAsync(topic('kept'), 'kept', { qos: 1, retain: true });
  await a.subscribeAsync(topic('kept'), { qos: 1 });
  await until(() => a.seen.length === 1, 'the retained one');
  assert.deepStrictEqual([a.seen[0].payload, a.seen[0].retain], ['kept', true]);
  await b.publishAsync(topic('kept'), '', { qos: 1, retain: true });
  a.seen.length = 0;
  console.log('retained');

  await a.subscribeAsync(topic('will'), { qos: 1 });
  const victim = await connect('victim', { will: { topic: topic('will'), payload: 'dead', qos: 1 } });
  victim.stream.destroy();
  await until(() => a.seen.some((m) => m.topic === topic('will')), 'the will');
  console.log('will');

  let away = await connect('away', { clean: false });
  await away.subscribeAsync(topic('queued'), { qos: 2 });
  await away.endAsync();
  for (let i = 0; i < 10; ++i) await b.publishAsync(topic('queued'), `${i}`, { qos: i % 2 + 1 });
  away = await connect('away', { clean: false });
  assert.strictEqual(away.connack.sessionPresent, true);
  await until(() => away.seen.length === 10, 'what was queued');
  // A client hands out a message of QoS 2 later: the order is that of each QoS.
  for (const qos of [1, 2])
    assert.deepStrictEqual(away.seen.filter((m) => m.qos === qos).map((m) => Number(m.payload)), [0, 2, 4, 6, 8].map((i) => i + qos - 1));
  console.log('session');
  for (const client of [a, b, away]) await client.endAsync();
}

main().then(() => process.exit(0), (error) => {
  console.error(error, 'last waited for:', until.waitsFor);
  process.exit(1);
});
