// The known names for `ackbox key secret`: those in the local handlers.
import { fileURLToPath } from 'node:url'
import { isMainThread, parentPort, Worker } from 'node:worker_threads'
import { environment, readConfig } from '../../service/config.ts'
import { nearest } from '../../runtime/nearest.ts'
import { readHandlers } from '../read-handlers.ts'

interface Names {
  downstreams: string[]
  codes: string[]
}

const longestMs = 15_000
const mostNamed = 20

/** The warning for a name that no handler has. Undefined: a handler has it, or the handlers do not load. */
export async function unknownName(name: string): Promise<string | undefined> {
  const here = await namesHere()
  if (!here) return undefined
  const code = name.startsWith('check:') ? name.slice('check:'.length) : undefined
  const [wanted, known] = code === undefined ? [name, here.downstreams] : [code, here.codes]
  if (known.includes(wanted)) return undefined
  const meant = nearest(wanted, known)
  const all = [...(meant === undefined ? [] : [meant]), ...known.filter(each => each !== meant)]
  const more = all.length > mostNamed ? `, and ${all.length - mostNamed} more` : ''
  return [
    `No handler here has the ${code === undefined ? 'downstream' : 'messageCode'} ${wanted}.`,
    meant === undefined ? '' : `Did you mean ${meant}?`,
    `The known names are ${all.slice(0, mostNamed).join(', ')}${more}.`
  ]
    .filter(Boolean)
    .join(' ')
}

/** Loads the handlers in a thread: their output must stay out of the pipe of the secret, and their open handles must not block the exit. */
async function namesHere(): Promise<Names | undefined> {
  const worker = new Worker(fileURLToPath(import.meta.url), { stdout: true, stderr: true })
  let late: NodeJS.Timeout | undefined
  try {
    return await new Promise(resolve => {
      late = setTimeout(resolve, longestMs, undefined)
      worker.once('message', resolve)
      worker.once('error', () => resolve(undefined))
      worker.once('exit', () => resolve(undefined))
    })
  } finally {
    clearTimeout(late)
    await worker.terminate()
  }
}

if (!isMainThread) {
  const { handlers, downstreams } = await readHandlers(readConfig(environment()))
  parentPort?.postMessage({
    downstreams: [...downstreams.keys()].toSorted(),
    codes: [...handlers.keys()].toSorted()
  } satisfies Names)
}
