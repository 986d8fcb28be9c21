// node-redlock as a process that does what it is told, a line each. `worker.rs` has the orders and the answers.
'use strict';

const fs = require('fs');
const path = require('path');
const readline = require('readline');
const Redis = require('ioredis');
const Redlock = require('redlock');

const [addresses, key, folder] = process.argv.slice(2);
const clients = addresses.split(',').map((address) => {
  const [host, port] = address.split(':');
  return new Redis(Number(port), host);
});
const once = new Redlock(clients, { retryCount: 0 });
const patient = new Redlock(clients, { retryCount: -1, retryDelay: 5, retryJitter: 5 });

const place = (name) => path.join(folder, name);
const pause = (ms) => new Promise((resolve) => setTimeout(resolve, ms));

// As `Ground::pass`: says whether it was alone in there.
async function passage() {
  let alone = true;
  try {
    fs.closeSync(fs.openSync(place('inside'), 'wx'));
  } catch (error) {
    if (error.code !== 'EEXIST') throw error;
    alone = false;
  }
  const seen = Number(fs.readFileSync(place('counter'), 'utf8'));
  await pause(1);
  fs.writeFileSync(place('counter'), `${seen + 1}\n`);
  fs.appendFileSync(place('passages'), 'node-redlock\n');
  try {
    fs.unlinkSync(place('inside'));
  } catch (error) {
    if (error.code !== 'ENOENT') throw error;
    alone = false;
  }
  return alone;
}

async function count(times, ttl) {
  let disturbed = 0;
  for (let n = 0; n < times; n += 1) {
    const lock = await patient.lock(key, ttl);
    disturbed += (await passage()) ? 0 : 1;
    await lock.unlock();
    await pause(4);
  }
  return verdict(disturbed);
}

async function trespass(times) {
  let disturbed = 0;
  for (let n = 0; n < times; n += 1) disturbed += (await passage()) ? 0 : 1;
  return verdict(disturbed);
}

const verdict = (disturbed) => (disturbed ? `violated ${disturbed}` : 'done');

async function attempt(what, answer, refusal) {
  try {
    await what();
    return answer;
  } catch (error) {
    if (!(error instanceof Redlock.LockError)) throw error;
    return refusal ?? `refused ${error.name}`;
  }
}

let lock;
const obey = {
  try: (ttl) => attempt(async () => { lock = await once.lock(key, ttl); }, 'granted', 'busy'),
  acquire: async (ttl) => { lock = await patient.lock(key, ttl); return 'granted'; },
  release: () => attempt(() => lock.unlock(), 'released'),
  extend: (ttl) => {
    // By its own clock it would not even ask; the server has to refuse.
    lock.expiration = Infinity;
    return attempt(() => once.extend(lock, ttl), 'extended');
  },
  count,
  trespass,
};

async function main() {
  await Promise.all(clients.map((client) => client.ping()));
  console.log('ready');
  const lines = readline.createInterface({ input: process.stdin });
  // Whoever gave the orders is gone.
  lines.on('close', () => process.exit());
  let before = Promise.resolve();
  lines.on('line', (line) => {
    const [order, ...words] = line.split(' ');
    before = before.then(() => obey[order](...words.map(Number))).then((answer) => {
      if (answer.startsWith('violated')) process.exitCode = 1;
      // Not through the console, which may still be writing when the process ends.
      fs.writeSync(1, `${answer}\n`);
    });
    before.catch((error) => { console.error(error); process.exit(1); });
  });
}

main();
