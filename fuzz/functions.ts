// Readers that are functions of a text. They too run in their own process, with many inputs at once.
import type fc from 'fast-check'
import { campaign } from './campaign.ts'
import { playerOf, subjectProcess } from './process.ts'
import type { Player, Reader } from './reader.ts'

export interface Functions<Input> {
  name: string
  /** The compiled module of the subject, which judges by itself and throws a Finding; and its options. */
  module: URL
  options?: unknown
  inputs: fc.Arbitrary<Input>
  /** Valid inputs, which warm up the code before any measurement. */
  valid: Input[]
  width?: number
}

export function functionReader<Input>(options: Functions<Input>): Reader {
  const { name, inputs, width = 100 } = options
  return campaign({ name, inputs, width, open: () => player(options) })
}

async function player<Input>({ module, options = null, valid }: Functions<Input>): Promise<Player<Input>> {
  const subject = await subjectProcess(module, options)
  return await playerOf<Input>(subject, {
    warmUp: () => subject.warmUp(valid),
    async play(inputs) {
      await subject.play(inputs)
    }
  })
}
