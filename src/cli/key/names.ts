// The known names for `ackbox key secret`: those in the local handlers.
import { fileURLToPath } from 'node:url'
import { isMainThread, parentPort, Worker } from 'node:worker_threads'
import { environment, readConfig } from '../../service/config.ts'
import { nearest } from '../../runtime/nearest.ts'
import { readHandlers } from '../read-handlers.ts'
import { alarmWebhook } from '../../domain/tokens.ts'

interface Names {
  downstreams: string[]
  codes: string[]
  /** The downstreams that sign with `secrets` of their handler. */
  ownSecrets: string[]
}

const longestMs = 15_000
const mostNamed = 20

/** The warning for a name whose secret signs nothing. Undefined: it signs, or the handlers do not load. */
export async function unusedName(name: string): Promise<string | undefined> {
  if (name === alarmWebhook) return undefined
  const here = await namesHere()
  if (!here) return undefined
  if (here.ownSecrets.includes(name))
    return `This secret is not in use: the handlers here set \`secrets\` for ${name}, and sign with those.`
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
  const loaded = [...handlers.values()].flatMap(handler => handler.downstreams)
  parentPort?.postMessage({
    downstreams: [...downstreams.keys()].toSorted(),
    codes: [...handlers.keys()].toSorted(),
    ownSecrets: loaded.filter(({ secrets }) => secrets).map(({ name }) => name)
  } satisfies Names)
}
