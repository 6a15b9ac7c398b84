// A TCP server that sends to each connection the texts of a script, whatever the client requests.
import { once } from 'node:events'
import { createServer, type AddressInfo, type Socket } from 'node:net'
import { bytes } from './mutate.ts'

/** JSON, because it is part of kept inputs. Texts are latin1, one character a byte. */
export interface Script {
  /** Written at once, before the client writes. */
  greeting?: string
  /** One after each write of the client. */
  answers: string[]
  /**
   * Regular expressions, one for each answer: it waits until the client's bytes since the last answer match. The answer may use
   * the groups of the match: `{1}`. For protocols in which the client chooses ids that the answer repeats.
   */
  after?: string[]
  /** Bytes of the client's write that are copied into the answer: the ids of its requests. */
  echo?: { from: number; to: number; length: number }[]
  /** After the last answer. `hang` reads on without an answer; `again` starts again with the first answer. */
  end: 'close' | 'reset' | 'hang' | 'again' | Flood
}

/** The same bytes, until the client has taken `mb` MB or has left. */
export interface Flood {
  flood: string
  mb: number
}

export interface HostileServer {
  port: number
  /** Bytes that its clients sent so far, by connection. */
  received: Buffer[]
  close(): Promise<void>
}

/** The first connection plays the first script, and so on. The last script serves all later connections. */
export async function hostileServer(scripts: readonly Script[]): Promise<HostileServer> {
  const open = new Set<Socket>()
  const received: Buffer[] = []
  const server = createServer({ allowHalfOpen: true, noDelay: true }, socket => {
    const nth = received.push(Buffer.alloc(0)) - 1
    open.add(socket)
    socket
      .on('error', () => {})
      .on('end', () => socket.end())
      .on('close', () => open.delete(socket))
    const script = scripts[Math.min(nth, scripts.length - 1)]
    if (!script) return void socket.end()
    play(socket, script, data => {
      const before = received[nth] ?? data
      if (before.length < 65_536) received[nth] = Buffer.concat([before, data])
    })
  })
  server.listen(0, '127.0.0.1')
  await once(server, 'listening')
  return {
    port: (server.address() as AddressInfo).port,
    received,
    async close() {
      for (const socket of open) socket.destroy()
      server.close()
      await once(server, 'close')
    }
  }
}

function play(socket: Socket, script: Script, keep: (data: Buffer) => void): void {
  let next = 0
  const { end } = script
  const over = (): void => {
    if (end === 'close') socket.end()
    else if (end === 'reset') socket.resetAndDestroy()
    else if (typeof end === 'object') flood(socket, end)
  }
  if (script.greeting !== undefined) socket.write(bytes(script.greeting))
  if (script.answers.length === 0 && end !== 'again') over()
  let unanswered = ''
  const answerMatches = (data: Buffer): void => {
    unanswered = (unanswered + data.toString('latin1')).slice(-65_536)
    for (;;) {
      if (next >= script.answers.length && end !== 'again') return
      if (next >= script.answers.length) next = 0
      const match = new RegExp(script.after?.[next] ?? '', 's').exec(unanswered)
      const answer = script.answers[next]
      if (!match || answer === undefined) return
      unanswered = unanswered.slice(match.index + match[0].length)
      next++
      socket.write(bytes(answer.replace(/\{(\d)\}/g, (all, nth: string) => match[Number(nth)] ?? all)))
      if (next === script.answers.length) over()
    }
  }
  socket.on('data', data => {
    keep(data)
    if (script.after) return answerMatches(data)
    if (next >= script.answers.length) {
      if (end !== 'again') return
      next = 0
    }
    const answer = script.answers[next++]
    if (answer === undefined) return
    socket.write(withEcho(bytes(answer), data, script.echo))
    if (next === script.answers.length) over()
  })
}

function withEcho(answer: Buffer, question: Buffer, echo: Script['echo']): Buffer {
  for (const { from, to, length } of echo ?? [])
    if (to < answer.length) question.copy(answer, to, from, from + length)
  return answer
}

/** As fast as the other side takes it. */
export function flood(socket: Socket, { flood, mb }: Flood): void {
  const block = bytes(flood.repeat(Math.ceil(65_536 / Math.max(1, flood.length))))
  let left = mb << 20
  const more = (): void => {
    while (left > 0 && !socket.destroyed) {
      left -= block.length
      if (!socket.write(block)) return
    }
  }
  if (block.length === 0) return
  socket.on('drain', more)
  more()
}
