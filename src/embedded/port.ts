// Ports for servers that we start, and start again.
import { once } from 'node:events'
import { createServer } from 'node:net'

/**
 * Below those that systems give to outgoing connections (from 32768 on Linux, 49152 elsewhere), any of which may have the
 * port at the moment when its server comes back.
 */
const [lowest, highest] = [20_000, 32_000]
const mostTries = 1_000
const given = new Set<number>()

/** The wanted port if nobody listens there on 127.0.0.1; else any, which this process is given once. */
export async function freePort(wanted?: number): Promise<number> {
  if (wanted !== undefined && (await isFree(wanted))) return wanted
  for (let tries = 0; tries < mostTries; tries++) {
    const port = lowest + Math.floor(Math.random() * (highest - lowest))
    if (given.has(port)) continue
    given.add(port)
    if (await isFree(port)) return port
  }
  throw new Error(`found no free port between ${lowest} and ${highest}`)
}

async function isFree(port: number): Promise<boolean> {
  const server = createServer()
  try {
    server.listen(port, '127.0.0.1')
    await once(server, 'listening')
  } catch (err) {
    // EACCES: some systems keep ranges to themselves.
    if (['EADDRINUSE', 'EACCES'].includes((err as { code?: string }).code ?? '')) return false
    throw err
  }
  server.close()
  await once(server, 'close')
  return true
}
