// Runs kafkajs: reads one request per line as JSON from standard input.
import { randomUUID } from 'node:crypto'
import { createInterface } from 'node:readline'
import kafkajs from 'kafkajs'
import snappy from 'kafkajs-snappy'

const { Kafka, CompressionCodecs, CompressionTypes, PartitionAssigners, logLevel } = kafkajs
CompressionCodecs[CompressionTypes.Snappy] = snappy

const codecs = { none: CompressionTypes.None, gzip: CompressionTypes.GZIP, snappy: CompressionTypes.Snappy }
const retry = { initialRetryTime: 20, maxRetryTime: 200, retries: 50 }
const consumers = new Map()

const connect = bootstrap => new Kafka({ brokers: bootstrap.split(','), logLevel: logLevel.NOTHING, retry })
const kafka = connect(process.argv[2])
const bytes = text => (text === null ? null : Buffer.from(text, 'base64'))
const text = buffer => (buffer === null || buffer === undefined ? null : Buffer.from(buffer).toString('base64'))

function headersIn (pairs) {
  const headers = {}
  for (const [name, value] of pairs) {
    headers[name] = name in headers ? [].concat(headers[name], bytes(value)) : bytes(value)
  }
  return headers
}

const headersOut = headers => Object.entries(headers ?? {}).flatMap(
  ([name, value]) => [].concat(value).map(one => [name, text(one)])
)

async function produce (request) {
  const producer = connect(request.bootstrap).producer({
    allowAutoTopicCreation: true,
    createPartitioner: () => ({ message }) => message.partition,
    idempotent: request.idempotent,
    retry: { ...retry, retries: request.acks === 0 ? 0 : retry.retries }
  })
  await producer.connect()
  try {
    const messages = request.messages.map(m => ({
      key: bytes(m.key),
      value: bytes(m.value),
      headers: headersIn(m.headers),
      partition: m.partition,
      ...(m.timestamp_ms === null ? {} : { timestamp: String(m.timestamp_ms) })
    }))
    const offsets = new Array(messages.length).fill(-1)
    // One request for all messages, or many small ones if the test asks for batches.
    const size = request.batch_bytes === null ? messages.length : 20
    for (let from = 0; from < messages.length; from += size) {
      const part = messages.slice(from, from + size)
      const answers = await producer.send({
        topic: request.topic, acks: request.acks, compression: codecs[request.codec], messages: part
      })
      const next = new Map((answers ?? []).map(one => [one.partition, Number(one.baseOffset)]))
      part.forEach((message, index) => {
        if (request.acks === 0) return
        const offset = next.get(message.partition)
        offsets[from + index] = offset
        next.set(message.partition, offset + 1)
      })
    }
    return offsets
  } finally {
    await producer.disconnect()
  }
}

async function open (request) {
  const { group, session_timeout_ms: sessionTimeout, ...fetching } = request.settings
  const consumer = kafka.consumer({
    groupId: group ?? `assigned-${randomUUID()}`,
    sessionTimeout,
    heartbeatInterval: Math.min(500, sessionTimeout / 4),
    rebalanceTimeout: 10000,
    metadataMaxAge: 1000,
    allowAutoTopicCreation: true,
    partitionAssigners: [PartitionAssigners.roundRobin],
    retry,
    ...fetching
  })
  const state = { consumer, records: [], wake: () => {}, running: false, seeks: [], positions: new Map(), assigned: [] }
  state.wanted = request.partitions && new Set(request.partitions.map(([topic, partition]) => `${topic}/${partition}`))
  consumer.on(consumer.events.GROUP_JOIN, ({ payload }) => {
    state.assigned = Object.entries(payload.memberAssignment).flatMap(
      ([topic, partitions]) => partitions.map(partition => [topic, partition])
    )
    // Do not commit positions of partitions that another member owns now.
    const ours = new Set(state.assigned.map(([topic, partition]) => `${topic}/${partition}`))
    for (const key of state.positions.keys()) if (!ours.has(key)) state.positions.delete(key)
  })
  await consumer.connect()
  const topics = request.topics ?? [...new Set(request.partitions.map(([topic]) => topic))]
  await consumer.subscribe({ topics, fromBeginning: request.reset === 'earliest' })
  consumers.set(request.name, state)
  return null
}

async function run (state) {
  state.running = true
  await state.consumer.run({
    autoCommit: false,
    eachMessage: async ({ topic, partition, message }) => {
      if (state.wanted && !state.wanted.has(`${topic}/${partition}`)) return
      state.records.push({
        topic,
        partition,
        offset: Number(message.offset),
        key: text(message.key),
        value: text(message.value),
        headers: headersOut(message.headers),
        timestamp_ms: Number(message.timestamp)
      })
      state.wake()
    }
  })
  for (const { topic, partition, offset } of state.seeks) {
    state.consumer.seek({ topic, partition, offset: String(offset) })
  }
}

async function poll (state, timeoutMs) {
  if (!state.running) await run(state)
  if (state.records.length === 0) {
    await new Promise(resolve => {
      const timer = setTimeout(resolve, timeoutMs)
      state.wake = () => { clearTimeout(timer); resolve() }
    })
  }
  const handed = state.records.splice(0)
  for (const { topic, partition, offset } of handed) {
    state.positions.set(`${topic}/${partition}`, { topic, partition, offset: String(offset + 1) })
  }
  return handed
}

async function withAdmin (work) {
  const admin = kafka.admin({ retry })
  await admin.connect()
  try {
    return await work(admin)
  } finally {
    await admin.disconnect()
  }
}

const operations = {
  produce,
  open,
  poll: request => poll(consumers.get(request.handle), request.timeout_ms),
  assignment: request => consumers.get(request.handle).assigned,
  commit: async request => {
    const state = consumers.get(request.handle)
    await state.consumer.commitOffsets([...state.positions.values()])
    return null
  },
  seek: request => {
    consumers.get(request.handle).seeks.push(request)
    return null
  },
  position: request => Number(
    consumers.get(request.handle).positions.get(`${request.topic}/${request.partition}`)?.offset ?? -1
  ),
  close: async request => {
    await consumers.get(request.handle).consumer.disconnect()
    consumers.delete(request.handle)
    return null
  },
  offset_for_time: request => withAdmin(async admin => {
    const [found, end] = await Promise.all([
      admin.fetchTopicOffsetsByTimestamp(request.topic, request.timestamp_ms),
      admin.fetchTopicOffsets(request.topic)
    ])
    const of = rows => Number(rows.find(row => row.partition === request.partition).offset)
    // If there is no such record, kafkajs returns the end offset.
    return of(found) === of(end) ? null : of(found)
  }),
  watermarks: request => withAdmin(async admin => {
    const row = (await admin.fetchTopicOffsets(request.topic)).find(one => one.partition === request.partition)
    return [Number(row.low), Number(row.high)]
  })
}

function failure (error) {
  for (let cause = error; cause; cause = cause.cause) {
    if (typeof cause.code === 'number') return { code: cause.code, error: String(error) }
  }
  return { error: String(error?.stack ?? error) }
}

createInterface({ input: process.stdin }).on('line', async line => {
  const request = JSON.parse(line)
  let answer
  try {
    answer = { id: request.id, ok: (await operations[request.op](request)) ?? null }
  } catch (error) {
    answer = { id: request.id, ...failure(error) }
  }
  process.stdout.write(JSON.stringify(answer) + '\n')
}).on('close', () => process.exit(0))
