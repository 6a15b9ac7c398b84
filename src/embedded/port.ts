// Ports for servers that we start, and start again.
import { once } from 'node:events'
import { createServer, type ListenOptions, type Server } from 'node:net'

/**
 * The range of random ports. It is below the ports of outgoing connections (from 32768 on Linux, 49152 elsewhere): such a connection may
 * hold the port at the moment when its server starts again. It is also below 27017 to 27019: no send goes to a port of MongoDB.
 */
export const randomPorts = { from: 20_000, to: 26_999 }
const mostTries = 1_000
const given = new Set<number>()

/** The wanted port if it is free on 127.0.0.1; else a random port, which no other process gets while this process lives. */
export async function freePort(wanted?: number): Promise<number> {
  if (wanted !== undefined && (await isFree(wanted))) return wanted
  const { from, to } = randomPorts
  for (let tries = 0; tries < mostTries; tries++) {
    const port = from + Math.floor(Math.random() * (to - from + 1))
    if (await takePort(port)) return port
  }
  throw new Error(`found no free port from ${from} to ${to}`)
}

/** Takes exactly this port. False if it is in use. */
export async function takePort(port: number): Promise<boolean> {
  if (given.has(port)) return false
  given.add(port)
  return (await isReserved(port)) && (await isFree(port))
}

/**
 * Reserves the port against other processes of ours until this process ends, even while its server is down. Linux frees an
 * abstract socket when its process ends; other systems reserve nothing.
 */
async function isReserved(port: number): Promise<boolean> {
  if (process.platform !== 'linux') return true
  const holder = await listening({ path: `\0ackbox-port-${port}` })
  holder?.unref()
  return holder !== undefined
}

async function isFree(port: number): Promise<boolean> {
  const server = await listening({ port, host: '127.0.0.1' })
  if (!server) return false
  server.close()
  await once(server, 'close')
  return true
}

/** Undefined if the address is in use. */
async function listening(at: ListenOptions): Promise<Server | undefined> {
  const server = createServer()
  try {
    server.listen(at)
    await once(server, 'listening')
    return server
  } catch (err) {
    // EACCES: some systems reserve ranges of ports.
    if (['EADDRINUSE', 'EACCES'].includes((err as { code?: string }).code ?? '')) return undefined
    throw err
  }
}
