import { defineHandler, env, url, z } from 'ackbox/handler'
import { rejectElsewhere } from '../reject-elsewhere.ts'

/** A promise that nobody awaits. */
async function forgotten(): Promise<never> {
  await Promise.resolve()
  throw new Error('nobody waits for this')
}

export default defineHandler({
  messageCode: 'test.rejecting',
  // zod refuses an async check where none is awaited. The check itself still runs, and rejects.
  body: z.object({ n: z.int() }).refine(({ n }) => (n === 0 ? forgotten() : true)),
  downstreams: {
    plain: {
      transport: 'http',
      request({ raw }) {
        void forgotten()
        // oxlint-disable-next-line typescript/prefer-promise-reject-errors -- without a stack
        void Promise.reject('plain text')
        void rejectElsewhere()
        return { url: url`${env.TEST_SINK}/plain`, body: raw }
      }
    }
  }
})
