// A reader's run: plays mutated inputs in batches, and shrinks the input of a finding.
import fc from 'fast-check'
import { Finding, type Done, type Player, type Reader } from './reader.ts'

export interface Campaign<Input> {
  name: string
  /** A seed gives the same inputs again. */
  inputs: fc.Arbitrary<Input>
  /** Starts the subject. It serves until a finding. */
  open(): Promise<Player<Input>>
  /** The number of inputs that are played at once. */
  width?: number
  /** Whether an input is played alone: each flood may take all the memory that is allowed. */
  isAlone?(input: Input): boolean
  /** How often the input of a finding is played again to make it smaller. */
  shrinks?: number
}

export function campaign<Input>({
  name,
  inputs,
  open,
  width = 16,
  isAlone = () => false,
  shrinks = 40
}: Campaign<Input>): Reader {
  type Start = () => Promise<Player<Input>>
  const opener = (done: Done): Start => {
    return async () => {
      done.restarts++
      // A failed open is a finding without an input: the subject has not even read the valid inputs.
      return open().catch((error: unknown) => {
        throw reported(error, name, null)
      })
    }
  }

  return {
    name,

    async run({ seed, cases, isOver, progress, signal }) {
      const done: Done = { cases: 0, restarts: 0, peakRssMb: 0, longestBlockMs: 0 }
      const start = opener(done)
      let player = await start()
      try {
        while (done.cases < cases && !isOver() && !signal.aborted) {
          const ofBatch = seed + done.cases
          const batch = fc.sample(inputs, { seed: ofBatch, numRuns: Math.min(width, cases - done.cases) })
          for (const part of partsOf(batch, isAlone)) {
            try {
              await player.play(part)
            } catch (error) {
              const last = player
              player = closedPlayer
              await last.close()
              await confirm(error, part, ofBatch, start)
              player = await start()
            }
          }
          done.cases += batch.length
          worst(done, player)
          progress(done.cases)
        }
      } finally {
        await player.close()
      }
      return done
    },

    async replay(kept) {
      const done: Done = { cases: 0, restarts: 0, peakRssMb: 0, longestBlockMs: 0 }
      const player = await opener(done)()
      try {
        for (const input of kept as readonly Input[]) {
          // A finding that needs several inputs at once was kept as a list.
          await judged(player, isBatch(input) ? input.batch : [input]).catch((error: unknown) => {
            throw reported(error, name, input)
          })
          done.cases++
          worst(done, player)
        }
      } finally {
        await player.close()
      }
      return done
    }
  }

  /** Plays inputs, and judges what they leave in memory. A run of many inputs judges that before the next ones. */
  async function judged(player: Player<Input>, inputs: Input[]): Promise<void> {
    await player.play(inputs)
    await player.play([])
  }

  /** Throws the Finding of the single input that causes it, shrunk. Returns if only the sum of the batch caused it. */
  async function confirm(error: unknown, batch: Input[], seed: number, start: Start): Promise<void> {
    if (!(error instanceof Finding)) throw error
    const single = oneByOne(start)
    try {
      for (const input of batch) {
        const found = await single.play(input)
        if (found) throw await smaller(input, found, seed, single)
      }
    } finally {
      await single.close()
    }
    const isSum =
      error.kind === 'block' || (error.kind === 'memory' && !error.detail.includes('never let go'))
    if (!isSum) throw reported(error, name, batch.length === 1 ? batch[0] : { batch }, seed)
  }

  /** One input after the other, in the same process until one is a finding. */
  function oneByOne(start: Start) {
    let player: Player<Input> | undefined
    const close = async (): Promise<void> => {
      const last = player
      player = undefined
      await last?.close()
    }
    return {
      close,
      async play(input: Input): Promise<Finding | undefined> {
        const isFresh = player === undefined
        player ??= await start()
        try {
          await judged(player, [input])
          return undefined
        } catch (error) {
          await close()
          if (!(error instanceof Finding)) throw error
          // An earlier input may be the cause, so the input is played again in a fresh process.
          return isFresh ? error : await this.play(input)
        }
      }
    }
  }

  async function smaller(
    first: Input,
    found: Finding,
    seed: number,
    single: { play(input: Input): Promise<Finding | undefined> }
  ): Promise<Finding> {
    let best = reported(found, name, first, seed)
    // An input that never ends takes seconds to fail.
    const most = found.kind === 'unsettled' ? Math.min(5, shrinks) : shrinks
    let tries = 0
    const firstText = JSON.stringify(first)
    await fc.check(
      fc.asyncProperty(inputs, async input => {
        // fast-check repeats the batch up to the input of the finding, and then shrinks this input.
        if ((tries === 0 && JSON.stringify(input) !== firstText) || tries++ > most) return
        const again = tries === 1 ? found : await single.play(input)
        if (again?.kind !== found.kind) return
        best = reported(again, name, input, seed)
        throw best
      }),
      { seed, numRuns: width }
    )
    return best
  }
}

function reported(error: unknown, reader: string, input: unknown, seed?: number): Finding {
  if (!(error instanceof Finding)) throw error
  const { kind, detail } = error
  const finding = new Finding(kind, detail)
  finding.report = { reader, kind, detail, ...(seed !== undefined && { seed }), input }
  return finding
}

function partsOf<Input>(batch: Input[], isAlone: (input: Input) => boolean): Input[][] {
  const together = batch.filter(input => !isAlone(input))
  const single = batch.filter(isAlone).map(input => [input])
  return together.length > 0 ? [together, ...single] : single
}

function worst(
  done: Done,
  { peakRssMb, longestBlockMs }: Pick<Player<unknown>, 'peakRssMb' | 'longestBlockMs'>
) {
  done.peakRssMb = Math.max(done.peakRssMb, Math.round(peakRssMb))
  done.longestBlockMs = Math.max(done.longestBlockMs, Math.round(longestBlockMs))
}

const isBatch = <Input>(input: Input | { batch: Input[] }): input is { batch: Input[] } =>
  typeof input === 'object' && input !== null && 'batch' in input && Array.isArray(input.batch)

const closedPlayer: Player<unknown> = {
  peakRssMb: 0,
  longestBlockMs: 0,
  play: () => Promise.reject(new Error('closed')),
  close: () => Promise.resolve()
}
