import { once } from 'node:events'
import { connect, createServer, type AddressInfo, type Socket } from 'node:net'
import type { Test } from 'tap'

/** A proxy that changes some answers of the server, to simulate a server that is not available here. Returns its port. */
export async function lyingProxy(t: Test, target: URL, lie: (answer: string) => string): Promise<number> {
  return await proxy(t, target, (near, far) => {
    near.pipe(far)
    // latin1 keeps every byte as it is.
    far.on('data', chunk => near.write(Buffer.from(lie(chunk.toString('latin1')), 'latin1')))
  })
}

export interface Cutter {
  port: number
  /** Cuts the connection at the next COMMIT: before the server receives it, or when its answer arrives. */
  cutAt(what: 'request' | 'answer'): void
  /** Resolves when a client sends text that matches, from now on. */
  said(pattern: RegExp): Promise<void>
}

/** A proxy to a database. It can cut the connection exactly when a client commits. */
export async function cutter(t: Test, target: URL): Promise<Cutter> {
  let next: 'request' | 'answer' | undefined
  const waiting = new Map<RegExp, () => void>()
  const port = await proxy(t, target, (near, far) => {
    let isMute = false
    near.on('data', chunk => {
      const text = chunk.toString('latin1')
      for (const [pattern, resolve] of waiting) if (pattern.test(text)) resolve()
      const cut = /\bCOMMIT\b/i.test(text) ? next : undefined
      if (cut) next = undefined
      if (cut === 'request') return void near.destroy()
      isMute ||= cut === 'answer'
      far.write(chunk)
    })
    far.on('data', chunk => void (isMute ? near.destroy() : near.write(chunk)))
  })
  return {
    port,
    cutAt: what => void (next = what),
    async said(pattern) {
      await new Promise<void>(resolve => waiting.set(pattern, resolve))
      waiting.delete(pattern)
    }
  }
}

async function proxy(t: Test, target: URL, join: (near: Socket, far: Socket) => void): Promise<number> {
  const sockets = new Set<Socket>()
  const server = createServer(near => {
    const far = connect(Number(target.port), target.hostname)
    for (const socket of [near, far]) {
      sockets.add(socket)
      socket.on('error', () => {})
      socket.on('close', () => {
        sockets.delete(socket)
        near.destroy()
        far.destroy()
      })
    }
    join(near, far)
  })
  server.listen(0, '127.0.0.1')
  await once(server, 'listening')
  t.teardown(async () => {
    for (const socket of sockets) socket.destroy()
    await new Promise(resolve => server.close(resolve))
  })
  return (server.address() as AddressInfo).port
}
