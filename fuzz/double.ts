// Readers of the answers of a broker's double, which speaks the protocol and changes the answers that the input names.
import { once } from 'node:events'
import { createServer, type AddressInfo, type Socket } from 'node:net'
import type fc from 'fast-check'
import { campaign } from './campaign.ts'
import type { Played } from './conversation.ts'
import { playerOf, subjectProcess } from './process.ts'
import type { Player, Reader } from './reader.ts'

export interface DoubleReader<Input> {
  name: string
  /** The compiled module of the subject, and its options; its inputs are Played. */
  module: URL
  options: unknown
  inputs: fc.Arbitrary<Input>
  serve(input: Input): Promise<Double>
  /** The input that changes nothing, and the check that the client succeeds with it: else nothing would be fuzzed. */
  sound: Input
  isSound(result: unknown): boolean
  /** Throws a Finding for a result that no answer may have. */
  judge?(result: unknown): void
  isAlone(input: Input): boolean
}

/** On a busy machine the usual time can pass without an answer: a sound conversation is played again with more. */
const patiences = [1, 4, 16, 64, 256]

export function doubleReader<Input>(options: DoubleReader<Input>): Reader {
  const { name, inputs, isAlone } = options
  return campaign<Input>({ name, inputs, isAlone, open: () => player(options) })
}

async function player<Input>(reader: DoubleReader<Input>): Promise<Player<Input>> {
  const { module, options, serve, sound, isSound, judge } = reader
  const subject = await subjectProcess(module, options)
  async function served<Result>(
    inputs: readonly Input[],
    use: (played: Played[]) => Promise<Result>,
    patience = 1
  ): Promise<Result> {
    const doubles = await Promise.all(inputs.map(serve))
    try {
      return await use(doubles.map(({ port }) => ({ port, patience })))
    } finally {
      for (const double of doubles) double.close()
    }
  }
  return await playerOf<Input>(subject, {
    async warmUp() {
      const first = Array<Input>(4).fill(sound)
      await served(first, played => subject.warmUp(played))
      let results: unknown[] = []
      for (const patience of patiences) {
        results = await served(first, played => subject.play(played), patience)
        if (results.some(isSound)) return
      }
      throw new Error(`a sound conversation failed: ${JSON.stringify(results)}`)
    },
    async play(inputs) {
      const results = await served(inputs, played => subject.play(played))
      for (const result of results) judge?.(result)
    }
  })
}

export interface Double {
  port: number
  close(): void
}

/** A server on its own port, for one input. `close` drops all its connections. */
export async function doubleServer(serve: (socket: Socket, port: number) => void): Promise<Double> {
  const sockets = new Set<Socket>()
  const server = createServer(socket => {
    sockets.add(socket.on('error', () => {}).on('close', () => sockets.delete(socket)))
    serve(socket, port)
  })
  server.listen(0, '127.0.0.1')
  await once(server, 'listening')
  const { port } = server.address() as AddressInfo
  return {
    port,
    close() {
      for (const socket of sockets) socket.destroy()
      server.close()
    }
  }
}
