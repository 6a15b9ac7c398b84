// Readers of a server's answers: the real client in its own process, against a server that sends the texts of an input.
import fc from 'fast-check'
import { campaign } from './campaign.ts'
import { hostileServer, type Flood, type Script } from './hostile-server.ts'
import { mutated, mutatedList, rubbish } from './mutate.ts'
import { playerOf, subjectProcess } from './process.ts'
import type { Player, Reader } from './reader.ts'

/** One case: the script of the server for each connection. The last script serves all later connections. */
export interface Conversation {
  connections: Script[]
}

/** The input of the subject for each case. */
export interface Played {
  port: number
  /** The conversation may take so many times the usual time. */
  patience?: number
}

export interface Conversations<Result> {
  name: string
  /** The compiled module of the subject, and its options. */
  module: URL
  options: unknown
  /** Recorded connections with which the client succeeds. They also warm it up. */
  valid: Script[]
  /** Texts that are repeated without end after a valid beginning, in addition to the common ones. */
  floods?: string[]
  /** Throws a Finding for a result that no conversation may have. */
  judge?(result: Result, input: Conversation): void
  /** See Campaign. */
  width?: number
  shrinks?: number
}

/** More than the subject may keep of a flood. */
const floodMb = 160

export function conversationReader<Result>(options: Conversations<Result>): Reader {
  const { name, valid, floods = [], width, shrinks } = options
  return campaign<Conversation>({
    name,
    inputs: conversations(valid, floods),
    open: () => player(options),
    isAlone: ({ connections }) => connections.some(({ end }) => typeof end === 'object'),
    ...(width !== undefined && { width }),
    ...(shrinks !== undefined && { shrinks })
  })
}

function conversations(valid: Script[], more: string[]): fc.Arbitrary<Conversation> {
  const end: fc.Arbitrary<Script['end']> = fc.oneof(
    { weight: 6, arbitrary: fc.constant<Script['end']>('close') },
    { weight: 1, arbitrary: fc.constant<Script['end']>('reset') },
    { weight: 1, arbitrary: fc.constant<Script['end']>('hang') },
    { weight: 1, arbitrary: fc.constant<Script['end']>('again') }
  )
  const flood: fc.Arbitrary<Flood> = fc.record({
    flood: fc.oneof(
      fc.constantFrom('\0', '\xff', 'x', '\r\n', ...more),
      rubbish(64).filter(one => one.length > 0)
    ),
    mb: fc.constant(floodMb)
  })
  const changed = fc.constantFrom(...valid).chain(script =>
    fc
      .tuple(
        script.greeting === undefined
          ? fc.constant(undefined)
          : fc.oneof(
              { weight: 3, arbitrary: fc.constant(script.greeting) },
              { weight: 1, arbitrary: mutated(script.greeting) }
            ),
        mutatedList(script.answers),
        end
      )
      .map(([greeting, answers, end]): Script => {
        const { greeting: _, ...rest } = script
        return { ...rest, answers, end, ...(greeting !== undefined && { greeting }) }
      })
  )
  /** A valid beginning of any length, and then a flood. */
  const flooding = fc
    .constantFrom(...valid)
    .chain(script =>
      fc
        .tuple(fc.nat(script.answers.length), flood)
        .map(([kept, end]): Script => ({ ...script, answers: script.answers.slice(0, kept), end }))
    )
  const raw = fc
    .tuple(rubbish(), fc.array(rubbish(), { maxLength: 3 }), end)
    .map(([greeting, answers, end]): Script => ({ greeting, answers, end }))
  const script = fc.oneof(
    { weight: 60, arbitrary: changed },
    { weight: 3, arbitrary: raw },
    { weight: 1, arbitrary: flooding }
  )
  return fc.array(script, { minLength: 1, maxLength: 2 }).map(connections => ({ connections }))
}

async function player<Result>({
  module,
  options,
  valid,
  judge
}: Conversations<Result>): Promise<Player<Conversation>> {
  const subject = await subjectProcess(module, options)
  const served = async (
    inputs: readonly Conversation[],
    use: (played: Played[]) => Promise<unknown>
  ): Promise<void> => {
    const servers = await Promise.all(inputs.map(({ connections }) => hostileServer(connections)))
    try {
      await use(servers.map(({ port }) => ({ port })))
    } finally {
      await Promise.all(servers.map(server => server.close()))
    }
  }
  return await playerOf<Conversation>(subject, {
    warmUp() {
      const first = valid.map(script => ({ connections: [script] }))
      return served([...first, ...first], played => subject.warmUp(played))
    },
    play: inputs =>
      served(inputs, async played => {
        const results = await subject.play(played)
        for (const [i, input] of inputs.entries()) judge?.(results[i] as Result, input)
      })
  })
}
