// The process of the sink, as the run controls it.
import { once } from 'node:events'
import { fileURLToPath } from 'node:url'
import type { Mode } from './behaviour.ts'
import type { Order, Testimony } from './sink.ts'
import { secretVariable } from './terms.ts'
import { forkUrgent, kill } from './urgent.ts'

export interface Counts {
  arrivals: number
  tasks: number
  open: number
}

export interface Witness {
  url: string
  setMode(mode: Mode): Promise<void>
  /** From now on this task is answered well. */
  mend(taskNo: string): Promise<void>
  counts(): Promise<Counts>
  testimony(): Promise<Testimony>
  close(): Promise<void>
}

export async function callWitness(
  seed: number,
  secret: string,
  more: Record<string, string> = {}
): Promise<Witness> {
  const child = forkUrgent(fileURLToPath(new URL('./sink.js', import.meta.url)), [], {
    env: { ...process.env, ...more, CHAOS_SEED: String(seed), [secretVariable]: secret },
    serialization: 'advanced'
  })
  const waiting = new Map<number, (reply: unknown) => void>()
  const [hello] = (await once(child, 'message')) as [{ port: number }]
  child.on('message', ({ id, reply }: { id: number; reply: unknown }) => {
    waiting.get(id)?.(reply)
    waiting.delete(id)
  })
  let next = 0
  const tell = <T>(order: Order extends infer One ? (One extends Order ? Omit<One, 'id'> : never) : never) =>
    new Promise<T>((resolve, reject) => {
      const id = next++
      waiting.set(id, reply => resolve(reply as T))
      child.send({ ...order, id }, err => {
        if (err) reject(err)
      })
    })
  return {
    url: `http://127.0.0.1:${hello.port}`,
    setMode: mode => tell({ kind: 'mode', mode }),
    mend: taskNo => tell({ kind: 'mend', taskNo }),
    counts: () => tell({ kind: 'counts' }),
    testimony: () => tell({ kind: 'testimony' }),
    close: () => kill(child)
  }
}
