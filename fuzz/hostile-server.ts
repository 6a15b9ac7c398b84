// A TCP server that says to each connection what its script says, whatever it is asked.
import { once } from 'node:events'
import { createServer, type AddressInfo, type Socket } from 'node:net'
import { bytes } from './mutate.ts'

/** JSON: it is part of inputs that are kept. Texts are latin1, one character a byte. */
export interface Script {
  /** Written at once, before the client has said anything. */
  greeting?: string
  /** One after each write of the client. */
  answers: string[]
  /**
   * Regular expressions: an answer waits until what the client wrote since the last one matches its own, and may name the
   * groups of it: `{1}`. For protocols in which the client writes as it likes, and the answer says what it answers.
   */
  after?: string[]
  /** Bytes of the client's write that are put into the answer: the ids by which it knows what is answered. */
  echo?: { from: number; to: number; length: number }[]
  /** After the last answer. `hang` reads on and is silent; `again` starts anew with the answers. */
  end: 'close' | 'reset' | 'hang' | 'again' | Flood
}

/** The same bytes until so many MB are taken, or the client is gone. */
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

/** The first connection plays the first script, and so on; the last one serves all that come after it. */
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
  let said = ''
  const ask = (data: Buffer): void => {
    said = (said + data.toString('latin1')).slice(-65_536)
    for (;;) {
      if (next >= script.answers.length && end !== 'again') return
      if (next >= script.answers.length) next = 0
      const match = new RegExp(script.after?.[next] ?? '', 's').exec(said)
      const answer = script.answers[next]
      if (!match || answer === undefined) return
      said = said.slice(match.index + match[0].length)
      next++
      socket.write(bytes(answer.replace(/\{(\d)\}/g, (all, nth: string) => match[Number(nth)] ?? all)))
      if (next === script.answers.length) over()
    }
  }
  socket.on('data', data => {
    keep(data)
    if (script.after) return ask(data)
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
