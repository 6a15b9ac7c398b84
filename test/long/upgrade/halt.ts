// A way to PostgreSQL on which the statement of one's choice never arrives, or its answer never comes back.
import { once } from 'node:events'
import { connect, createServer, type AddressInfo, type Socket } from 'node:net'
import type { Test } from 'tap'

export interface Halt {
  url: string
  /** Resolves when that statement has been reached. */
  reached: Promise<void>
  /** Statements that went through. */
  passed(): number
  cut(): void
}

/** Halts at the nth statement of one session: held back before it, or let through and its answer swallowed. */
export async function halt(
  t: Test,
  target: string,
  { nth, swallow }: { nth: number; swallow: boolean }
): Promise<Halt> {
  const to = new URL(target)
  const { port, hostname } = to
  const sockets = new Set<Socket>()
  let passed = 0
  let halted = false
  let ring = () => {}
  const reached = new Promise<void>(resolve => (ring = resolve))
  const server = createServer(near => {
    const far = connect(Number(port), hostname)
    let rest = Buffer.alloc(0)
    let started = false
    for (const socket of [near, far]) {
      sockets.add(socket)
      socket.setNoDelay(true)
      socket.on('error', () => {})
      socket.on('close', () => {
        near.destroy()
        far.destroy()
      })
    }
    near.on('data', (chunk: Buffer) => {
      if (halted) return
      rest = Buffer.concat([rest, chunk])
      for (;;) {
        // The first message has no type; the length counts itself.
        const at = started ? 1 : 0
        if (rest.length < at + 4) return
        const end = at + rest.readInt32BE(at)
        if (rest.length < end) return
        const message = rest.subarray(0, end)
        rest = rest.subarray(end)
        const type = started ? String.fromCharCode(message[0] ?? 0) : ''
        started = true
        // Q is a statement as text, S ends one that was prepared.
        const ends = type === 'Q' || type === 'S'
        if (ends && passed + 1 === nth) {
          halted = true
          if (swallow) far.write(message)
          // With the answer swallowed the statement has been done once PostgreSQL speaks.
          else ring()
          return
        }
        if (ends) passed++
        far.write(message)
      }
    })
    far.on('data', (chunk: Buffer) => {
      if (halted) ring()
      else near.write(chunk)
    })
  })
  server.listen(0, '127.0.0.1')
  await once(server, 'listening')
  const cut = () => {
    for (const socket of sockets) socket.destroy()
  }
  t.teardown(async () => {
    cut()
    await new Promise(resolve => server.close(resolve))
  })
  to.port = String((server.address() as AddressInfo).port)
  return { url: to.href, reached, passed: () => passed, cut }
}
