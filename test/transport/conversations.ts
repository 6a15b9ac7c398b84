// Servers that follow a protocol until a send has arrived, and then run the script.
import type { Socket } from 'node:net'

export type Script = (socket: Socket, said: Buffer) => void

const info = (most: number): string =>
  `INFO ${JSON.stringify({ server_id: 'x', version: '2.10.0', proto: 1, headers: true, max_payload: most })}\r\n`

/** Speaks NATS until the client publishes: a send, or receipts that request their stream from JetStream. */
export const nats =
  (then: Script, most = 1_048_576) =>
  (socket: Socket): void => {
    let over = false
    socket.write(info(most))
    socket.on('data', (said: Buffer) => {
      if (over) return
      const text = said.toString('latin1')
      if (text.includes('PING\r\n')) socket.write('PONG\r\n')
      over = /\bH?PUB /.test(text)
      if (over) then(socket, said)
    })
  }

const redisInfo = 'redis_version:7.2.0\r\nloading:0\r\nmaxmemory_policy:noeviction\r\n'

/** Speaks Redis until a command matches `at`. */
export const redis =
  (at: RegExp, then: Script) =>
  (socket: Socket): void => {
    let over = false
    socket.on('data', (said: Buffer) => {
      if (over) return
      for (const command of said.toString('latin1').split(/(?=(?<=^|\r\n)\*\d+\r\n\$)/)) {
        if (at.test(command)) {
          over = true
          then(socket, said)
          return
        }
        if (/hello/i.test(command)) socket.write('%1\r\n$5\r\nproto\r\n:3\r\n')
        else if (/\r\ninfo\r\n/i.test(command)) socket.write(`$${redisInfo.length}\r\n${redisInfo}\r\n`)
        else socket.write('+OK\r\n')
      }
    })
  }

const short = (text: string): Buffer => Buffer.concat([Buffer.from([text.length]), Buffer.from(text)])
const long = (text: string): Buffer => {
  const length = Buffer.alloc(4)
  length.writeUInt32BE(text.length)
  return Buffer.concat([length, Buffer.from(text)])
}

export function frame(type: number, channel: number, payload: Buffer): Buffer {
  const head = Buffer.alloc(7)
  head.writeUInt8(type, 0)
  head.writeUInt16BE(channel, 1)
  head.writeUInt32BE(payload.length, 3)
  return Buffer.concat([head, payload, Buffer.from([206])])
}

export function method(channel: number, group: number, id: number, ...fields: Buffer[]): Buffer {
  const ids = Buffer.alloc(4)
  ids.writeUInt16BE(group, 0)
  ids.writeUInt16BE(id, 2)
  return frame(1, channel, Buffer.concat([ids, ...fields]))
}

/** The header frame of a message with this many bytes. */
export function header(channel: number, bytes: bigint): Buffer {
  const payload = Buffer.alloc(14)
  payload.writeUInt16BE(60, 0)
  payload.writeBigUInt64BE(bytes, 4)
  return frame(2, channel, payload)
}

export const returned = (channel: number): Buffer =>
  method(channel, 60, 50, Buffer.from([1, 56]), short('NO_ROUTE'), short(''), short('orders'))
export const delivered = (channel: number, tag: number): Buffer =>
  method(
    channel,
    60,
    60,
    short('tag'),
    Buffer.from([0, 0, 0, 0, 0, 0, 0, tag, 0]),
    short(''),
    short('orders')
  )

const start = method(0, 10, 10, Buffer.from([0, 9]), long(''), long('PLAIN'), long('en_US'))
const answers: Record<string, (channel: number) => Buffer[]> = {
  '10.11': () => [method(0, 10, 30, Buffer.from([7, 255, 0, 2, 0, 0, 0, 60]))],
  '10.40': () => [method(0, 10, 41, short(''))],
  '20.10': channel => [method(channel, 20, 11, long(''))],
  '20.40': channel => [method(channel, 20, 41)],
  '50.10': channel => [method(channel, 50, 11, short('orders'), Buffer.alloc(8))],
  '60.10': channel => [method(channel, 60, 11)],
  '85.10': channel => [method(channel, 85, 11)]
}

type Heard = (socket: Socket, channel: number, name: string, fields: Buffer) => boolean

/** Speaks RabbitMQ. `heard` gets each method, such as `60.40`, and returns whether it is answered. */
export const rabbitmqMethods =
  (heard: Heard) =>
  (socket: Socket): void => {
    let held = Buffer.alloc(0)
    let greeted = false
    socket.on('data', (said: Buffer) => {
      held = Buffer.concat([held, said])
      if (!greeted && held.length >= 8) {
        greeted = true
        held = held.subarray(8)
        socket.write(start)
      }
      while (greeted && held.length >= 7) {
        const end = 8 + held.readUInt32BE(3)
        if (held.length < end) return
        const channel = held.readUInt16BE(1)
        const name = held[0] === 1 ? `${held.readUInt16BE(7)}.${held.readUInt16BE(9)}` : ''
        const fields = held.subarray(11, end - 1)
        held = held.subarray(end)
        if (name === '' || !heard(socket, channel, name, fields)) continue
        for (const answer of answers[name]?.(channel) ?? []) socket.write(answer)
      }
    })
  }

/** Speaks RabbitMQ until the method `at`: `60.40` is basic.publish, `60.20` is basic.consume. */
export const rabbitmq =
  (at: string, then: (socket: Socket, channel: number) => void) =>
  (socket: Socket): void => {
    let over = false
    const heard: Heard = (_, channel, name) => {
      if (over) return false
      over = name === at
      if (name === '60.20') socket.write(method(channel, 60, 21, short('tag')))
      if (over) then(socket, channel)
      return !over
    }
    rabbitmqMethods(heard)(socket)
  }

/** Classic Dubbo: `then` receives the head of the call, with its id. */
export const dubbo2 =
  (then: Script) =>
  (socket: Socket): void =>
    void socket.once('data', (said: Buffer) => then(socket, said))

/** A response to the call with this head. */
export function answer(call: Buffer, body: Buffer, length = body.length): Buffer {
  const head = Buffer.alloc(16)
  head.writeUInt16BE(0xdabb)
  head.writeUInt8(2, 2)
  head.writeUInt8(20, 3)
  call.copy(head, 4, 4, 12)
  head.writeUInt32BE(length, 12)
  return Buffer.concat([head, body])
}

/** Writes the same bytes for as long as the other side takes them. */
export function pour(socket: Socket, bytes: Buffer | string): void {
  const block = Buffer.from(bytes as string)
  const many = Buffer.concat(
    Array.from({ length: Math.max(1, Math.floor(65_536 / block.length)) }, () => block)
  )
  const more = (): void => {
    while (!socket.destroyed && socket.write(many));
  }
  socket.on('drain', more).resume()
  more()
}
