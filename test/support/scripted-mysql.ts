import { createServer, type AddressInfo, type Socket } from 'node:net'
import { once } from 'node:events'
import type { Test } from 'tap'

export type Answer = 'nothing' | 'ok' | { columns: string[]; rows: string[][]; isWhole: boolean }

/** Speaks as much of MySQL's protocol as an import needs. `answer` decides what a statement gets. Resolves to its URL. */
export async function scriptedMysql(
  t: Test,
  answer: (statement: string, socket: Socket) => Answer
): Promise<string> {
  const open = new Set<Socket>()
  const server = createServer(socket => {
    open.add(socket)
    socket.on('error', () => {})
    socket.on('close', () => open.delete(socket))
    socket.write(packet(0, greeting))
    let isIn = false
    let bytes = Buffer.alloc(0)
    socket.on('data', data => {
      bytes = Buffer.concat([bytes, data])
      while (bytes.length >= 4 && bytes.length >= 4 + bytes.readUIntLE(0, 3)) {
        const end = 4 + bytes.readUIntLE(0, 3)
        const statement = bytes.toString('utf8', 5, end)
        bytes = bytes.subarray(end)
        if (isIn) socket.write(written(answer(statement, socket)))
        else socket.write(packet(2, ok))
        isIn = true
      }
    })
  })
  server.listen(0, '127.0.0.1')
  await once(server, 'listening')
  t.teardown(() => {
    for (const socket of open) socket.destroy()
    server.close()
  })
  return `mysql://root@127.0.0.1:${(server.address() as AddressInfo).port}/test`
}

function written(answer: Answer): Buffer {
  if (answer === 'nothing') return Buffer.alloc(0)
  if (answer === 'ok') return packet(1, ok)
  const { columns, rows, isWhole } = answer
  const parts = [
    Buffer.from([columns.length]),
    ...columns.map(column),
    eof,
    ...rows.map(row => Buffer.concat(row.map(text))),
    ...(isWhole ? [eof] : [])
  ]
  return Buffer.concat(parts.map((part, index) => packet(index + 1, part)))
}

function packet(number: number, body: Buffer): Buffer {
  const head = Buffer.alloc(4)
  head.writeUIntLE(body.length, 0, 3)
  head[3] = number
  return Buffer.concat([head, body])
}

/** At most 250 bytes. */
const text = (value: string): Buffer => Buffer.concat([Buffer.from([value.length]), Buffer.from(value)])
const ok = Buffer.from([0, 0, 0, 2, 0, 0, 0])
const eof = Buffer.from([0xfe, 0, 0, 2, 0])
/** A text in UTF-8. */
const column = (name: string): Buffer =>
  Buffer.concat([
    ...['def', '', 't', 't', name, name].map(text),
    Buffer.from([0x0c, 33, 0, 44, 1, 0, 0, 253, 0, 0, 0, 0, 0])
  ])
/** Protocol 4.1, transactions, passwords of mysql_native_password; no TLS. */
const greeting = Buffer.concat([
  Buffer.from('\n8.0.36\0'),
  Buffer.from([1, 0, 0, 0]),
  Buffer.from('12345678\0'),
  Buffer.from([0x0d, 0xa2, 33, 2, 0, 0x08, 0, 21]),
  Buffer.alloc(10),
  Buffer.from('123456789012\0mysql_native_password\0')
])
