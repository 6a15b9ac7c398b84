// A downstream that answers 500 with a reason until it is mended, and 200 after that.
import { createServer } from 'node:http'
import type { AddressInfo } from 'node:net'
import type { Test } from 'tap'

export interface Failing {
  url: string
  /** From now on it answers 200. */
  mend: () => void
  break: (answer?: (taskNo: string) => string) => void
  /** The taskNo of each request that was answered 200, with repeats. */
  taken: string[]
  /** The callback token of the last attempt of a task. */
  tokens: Map<string, string>
}

export async function failing(t: Test, first: (taskNo: string) => string): Promise<Failing> {
  let answer: ((taskNo: string) => string) | null = first
  const taken: string[] = []
  const tokens = new Map<string, string>()
  const server = createServer((request, response) => {
    request.resume().on('end', () => {
      const taskNo = String(request.headers['ackbox-task-no'])
      const token = request.headers['ackbox-callback-token']
      if (typeof token === 'string') tokens.set(taskNo, token)
      if (answer) response.writeHead(500, { 'content-type': 'application/json' }).end(answer(taskNo))
      else {
        taken.push(taskNo)
        response.writeHead(200).end()
      }
    })
  })
  await new Promise<void>(resolve => server.listen(0, '127.0.0.1', resolve))
  t.teardown(() => {
    server.closeAllConnections()
    return new Promise(resolve => server.close(resolve))
  })
  return {
    url: `http://127.0.0.1:${(server.address() as AddressInfo).port}`,
    mend: () => {
      answer = null
    },
    break: (again = first) => {
      answer = again
    },
    taken,
    tokens
  }
}
