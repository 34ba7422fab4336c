// kafkajs behind the contract's vocabulary: one JSON object a line in, one out.
// See testing/contract/vocabulary.py.
"use strict";

const fs = require("node:fs");
const readline = require("node:readline");
const { Kafka, CompressionTypes, logLevel } = require("kafkajs");

const bytes = (text) => (text === null || text === undefined ? null : Buffer.from(text, "base64"));
const text = (buffer) => (buffer === null || buffer === undefined ? null : Buffer.from(buffer).toString("base64"));
const ACKS = { all: -1, 1: 1, 0: 0 };
const RESOURCES = { topic: 2, broker: 4 };

class Stopped extends Error {}

let kafka;

/** Runs a task with a new admin client: an old one asks for every topic it has ever seen, deleted ones too. */
async function administer(task) {
  const admin = kafka.admin();
  await admin.connect();
  try {
    return await task(admin);
  } finally {
    await admin.disconnect();
  }
}

function headersOf(pairs) {
  const headers = {};
  for (const [name, value] of pairs || []) headers[name] = value === null ? null : bytes(value);
  return headers;
}

function messageOf(record) {
  const message = { key: bytes(record.key), value: bytes(record.value), headers: headersOf(record.headers) };
  if (record.partition !== null && record.partition !== undefined) message.partition = record.partition;
  if (record.timestamp_ms !== null && record.timestamp_ms !== undefined) {
    message.timestamp = String(record.timestamp_ms);
  }
  return message;
}

function recordOf(partition, message) {
  const headers = [];
  for (const [name, value] of Object.entries(message.headers || {})) {
    for (const each of Array.isArray(value) ? value : [value]) headers.push([name, text(each)]);
  }
  return {
    partition,
    offset: Number(message.offset),
    timestamp_ms: Number(message.timestamp),
    key: text(message.key),
    value: text(message.value),
    headers,
  };
}

/** Runs a consumer until it has seen `count` records, or the time is up. */
async function read({ group, topics, count, timeout_ms: timeoutMs, isolation, begin, keep, commit }) {
  const consumer = kafka.consumer({
    groupId: group,
    readUncommitted: isolation !== "read_committed",
    maxWaitTimeInMs: 100,
    allowAutoTopicCreation: false,
    retry: { retries: 5, initialRetryTime: 50 },
  });
  const records = [];
  let crashed;
  await consumer.connect();
  try {
    await consumer.subscribe({ topics, fromBeginning: true });
    await new Promise((resolve, reject) => {
      const timer = setTimeout(resolve, timeoutMs);
      const done = (error) => {
        clearTimeout(timer);
        error ? reject(error) : resolve();
      };
      consumer.on(consumer.events.CRASH, ({ payload }) => done((crashed = payload.error)));
      consumer
        .run({
          autoCommit: false,
          eachMessage: async ({ partition, message }) => {
            if (records.length >= count || !keep(partition, message)) return;
            records.push(recordOf(partition, message));
            if (records.length === count) done();
          },
        })
        .then(() => begin && begin(consumer))
        .catch(done);
    });
    if (commit && records.length) {
      const next = new Map();
      for (const { partition, offset } of records) {
        next.set(partition, Math.max(offset + 1, next.get(partition) || 0));
      }
      await consumer.commitOffsets(
        [...next].map(([partition, offset]) => ({ topic: topics[0], partition, offset: String(offset) })),
      );
    }
  } finally {
    await consumer.disconnect();
  }
  if (crashed) throw crashed;
  return records;
}

function securityOf({ security_protocol: protocol, ssl_cafile: cafile, ssl_check_hostname: checked, ...login }) {
  const options = {};
  if (protocol && protocol.endsWith("SSL")) {
    options.ssl = {};
    if (cafile) options.ssl.ca = [cafile.includes("-----BEGIN") ? cafile : fs.readFileSync(cafile, "utf8")];
    if (checked === false) options.ssl.checkServerIdentity = () => undefined;
  }
  if (protocol && protocol.startsWith("SASL")) {
    options.sasl = {
      mechanism: login.sasl_mechanism.toLowerCase(),
      username: login.sasl_plain_username,
      password: login.sasl_plain_password,
    };
  }
  return options;
}

const ops = {
  async open({ bootstrap, security }) {
    kafka = new Kafka({
      clientId: "contract-kafkajs",
      brokers: bootstrap.split(","),
      logLevel: logLevel.NOTHING,
      ...securityOf(security || {}),
      retry: { retries: 3, initialRetryTime: 50 },
    });
    return { name: "kafkajs", version: require("kafkajs/package.json").version, ops: Object.keys(ops) };
  },

  async produce(args) {
    const transactional = Boolean(args.transactional_id);
    const producer = kafka.producer({
      idempotent: Boolean(args.idempotent) || transactional,
      allowAutoTopicCreation: Boolean(args.create),
      ...(transactional ? { transactionalId: args.transactional_id, maxInFlightRequests: 1 } : {}),
    });
    await producer.connect();
    try {
      const sender = transactional ? await producer.transaction() : producer;
      const compression = args.compression === "gzip" ? CompressionTypes.GZIP : CompressionTypes.None;
      let answers;
      try {
        answers = await sender.send({
          topic: args.topic,
          acks: ACKS[args.acks || "all"],
          compression,
          messages: args.records.map(messageOf),
        });
      } catch (error) {
        if (transactional) throw error;
        return args.records.map(() => ({ error: nameOf(error), text: String(error.message) }));
      }
      if (transactional) await (args.commit === false ? sender.abort() : sender.commit());
      const base = new Map((answers || []).map((each) => [each.partition, Number(each.baseOffset)]));
      return args.records.map((record) => {
        if (!base.has(record.partition)) return { partition: record.partition ?? -1, offset: -1 };
        const offset = base.get(record.partition);
        base.set(record.partition, offset + 1);
        return { partition: record.partition, offset };
      });
    } finally {
      await producer.disconnect();
    }
  },

  async fetch({ topic, partition, offset, count, isolation, timeout_ms }) {
    return read({
      group: `contract-${process.pid}-${Math.random()}`,
      topics: [topic],
      count,
      timeout_ms,
      isolation,
      begin: (consumer) => consumer.seek({ topic, partition, offset: String(offset) }),
      keep: (from, message) => from === partition && Number(message.offset) >= offset,
    });
  },

  async send_offsets({ group, topic, offset, transactional_id, commit }) {
    const producer = kafka.producer({ transactionalId: transactional_id, idempotent: true, maxInFlightRequests: 1 });
    await producer.connect();
    try {
      const transaction = await producer.transaction();
      const topics = [{ topic, partitions: [{ partition: 0, offset: String(offset) }] }];
      await transaction.sendOffsets({ consumerGroupId: group, topics });
      await (commit ? transaction.commit() : transaction.abort());
    } finally {
      await producer.disconnect();
    }
  },

  async consume({ topic, group, count, isolation, timeout_ms }) {
    return read({ group, topics: [topic], count, isolation, timeout_ms, keep: () => true, commit: true });
  },

  async committed({ group, topic }) {
    const [found] = await administer((admin) => admin.fetchOffsets({ groupId: group, topics: [topic] }));
    const offsets = {};
    for (const each of found ? found.partitions : []) {
      if (Number(each.offset) >= 0) offsets[each.partition] = [Number(each.offset), each.metadata || ""];
    }
    return offsets;
  },

  async commit({ group, topic, offsets }) {
    const partitions = Object.entries(offsets).map(([partition, [offset, metadata]]) => ({
      partition: Number(partition),
      offset: String(offset),
      metadata,
    }));
    await administer((admin) => admin.setOffsets({ groupId: group, topic, partitions }));
    return null;
  },

  async offsets({ topic, partition, at }) {
    if (at === "max_timestamp") {
      const text = "the client cannot look for the largest timestamp";
      throw Object.assign(new Error(text), { type: "NOT_IN_CLIENT" });
    }
    if (at === "earliest" || at === "latest") {
      const found = (await administer((admin) => admin.fetchTopicOffsets(topic))).find((each) => each.partition === partition);
      return Number(at === "earliest" ? found.low : found.high);
    }
    const found = await administer((admin) => admin.fetchTopicOffsetsByTimestamp(topic, at));
    return Number(found.find((each) => each.partition === partition).offset);
  },

  async create_topic({ topic, partitions, replication_factor, configs, validate_only }) {
    const created = await administer((admin) => admin.createTopics({
      validateOnly: Boolean(validate_only),
      waitForLeaders: !validate_only,
      topics: [
        {
          topic,
          numPartitions: partitions,
          replicationFactor: replication_factor || 1,
          configEntries: Object.entries(configs || {}).map(([name, value]) => ({ name, value })),
        },
      ],
    }));
    if (!created) throw Object.assign(new Error(topic), { type: "TOPIC_ALREADY_EXISTS" });
    return null;
  },

  async delete_topic({ topic }) {
    await administer((admin) => admin.deleteTopics({ topics: [topic] }));
    return null;
  },

  async list_topics() {
    return administer((admin) => admin.listTopics());
  },

  async describe_topic({ topic }) {
    const { topics } = await administer((admin) => admin.fetchTopicMetadata({ topics: [topic] }));
    return topics[0].partitions
      .map((each) => ({
        partition: each.partitionId,
        leader: each.leader,
        replicas: each.replicas,
        isr: each.isr,
      }))
      .sort((one, other) => one.partition - other.partition);
  },

  async create_partitions({ topic, count }) {
    await administer((admin) => admin.createPartitions({ topicPartitions: [{ topic, count }] }));
    return null;
  },

  async describe_configs({ kind, name }) {
    const { resources } = await administer((admin) => admin.describeConfigs({
      includeSynonyms: false,
      resources: [{ type: RESOURCES[kind], name }],
    }));
    return Object.fromEntries(resources[0].configEntries.map((each) => [each.configName, each.configValue]));
  },

  async delete_records({ topic, partition, before_offset }) {
    const partitions = [{ partition, offset: String(before_offset) }];
    await administer(async (admin) => {
      await admin.fetchTopicMetadata({ topics: [topic] }); // deleteTopicRecords needs it, and does not fetch it
      await admin.deleteTopicRecords({ topic, partitions });
    });
    return null;
  },

  async list_groups() {
    return (await administer((admin) => admin.listGroups())).groups.map((each) => each.groupId);
  },

  async describe_group({ group }) {
    const { groups } = await administer((admin) => admin.describeGroups([group]));
    return { state: groups[0].state, members: groups[0].members.length };
  },

  async delete_group({ group }) {
    await administer((admin) => admin.deleteGroups([group]));
    return null;
  },

  async describe_cluster() {
    const found = await administer((admin) => admin.describeCluster());
    return {
      cluster_id: found.clusterId,
      controller: found.controller,
      brokers: found.brokers.map((each) => each.nodeId).sort(),
    };
  },

  async close() {
    throw new Stopped();
  },
};

/** Returns Kafka's name of an error; kafkajs wraps errors in each other, and lists them if there are several. */
function nameOf(error) {
  for (let each = error; each; each = each.cause || each.originalError || each.error || (each.errors || each.groups || each.partitions || [])[0]) {
    if (each.type) return each.type;
    if (each.errorType) return each.errorType;
    if (each.name === "KafkaJSSASLAuthenticationError") return "SASL_AUTHENTICATION_FAILED";
  }
  return error.name || "Error";
}

async function main() {
  for await (const line of readline.createInterface({ input: process.stdin })) {
    const { op, args } = JSON.parse(line);
    let answer;
    try {
      if (!(op in ops)) throw Object.assign(new Error(op), { type: "NOT_IN_CLIENT" });
      answer = { ok: await ops[op](args) };
    } catch (error) {
      if (error instanceof Stopped) break;
      answer = { error: nameOf(error), text: String(error.message || error) };
    }
    process.stdout.write(JSON.stringify(answer) + "\n");
  }
  process.exit(0);
}

main();
