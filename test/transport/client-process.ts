// Starts broker-client.ts, and returns its messages.
import { fork } from 'node:child_process'
import { once } from 'node:events'
import { fileURLToPath } from 'node:url'
import type { Test } from 'tap'

const program = fileURLToPath(new URL('broker-client.js', import.meta.url))

export interface Client {
  printed: string[]
  next(about: string): Promise<Record<string, unknown>>
  tell(message: object): void
}

/** Starts the process, and returns its messages. When the process ends, each pending `next` rejects. */
export async function client(t: Test, what: string, url: string): Promise<Client> {
  const child = fork(program, [what, url], {
    stdio: ['ignore', 'pipe', 'pipe', 'ipc']
  })
  t.teardown(() => child.kill('SIGKILL'))
  const printed: string[] = []
  child.stdout!.on('data', data => printed.push(String(data)))
  child.stderr!.on('data', data => printed.push(String(data)))
  const heard: Record<string, unknown>[] = []
  let wake = (): void => {}
  child.on('message', message => {
    heard.push(message as Record<string, unknown>)
    wake()
  })
  const over = once(child, 'close').then(([code]) => {
    throw new Error(`the process ended with ${code}: ${printed.join('').slice(0, 300)}`)
  })
  over.catch(() => {})
  const made: Client = {
    printed,
    tell: message => child.send(message),
    async next(about) {
      for (;;) {
        const index = heard.findIndex(each => about in each)
        if (index >= 0) return heard.splice(index, 1)[0]!
        const news = new Promise<void>(resolve => {
          wake = resolve
        })
        await Promise.race([news, over])
      }
    }
  }
  await made.next('ready')
  return made
}
