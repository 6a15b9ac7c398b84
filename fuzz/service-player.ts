// Plays inputs to a whole service, which runs on a PostgreSQL of its own.
import { chmodSync, mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { playerOf, subjectProcess } from './process.ts'
import type { Player } from './reader.ts'
import { migrate } from '../src/db/migrate.ts'
import { runPostmaster, stopPostmaster, urlOf } from '../src/embedded/postmaster.ts'

interface ServicePlayer<Input> {
  /** The compiled module of the subject, whose options are ServiceOptions. */
  module: URL
  secret: string
  /** Valid inputs, which warm up the code before any measurement. */
  valid: readonly Input[]
}

export async function servicePlayer<Input>({
  module,
  secret,
  valid
}: ServicePlayer<Input>): Promise<Player<Input>> {
  const folder = mkdtempSync(join(tmpdir(), 'ackbox-fuzz-'))
  chmodSync(folder, 0o755) // as root, PostgreSQL runs as another user
  const closers: (() => Promise<unknown>)[] = [async () => rmSync(folder, { recursive: true, force: true })]
  const closeAll = async (): Promise<void> => {
    for (const closer of closers.splice(0).reverse()) await closer()
  }
  try {
    const dataDir = join(folder, 'data')
    const postmaster = await runPostmaster({ dataDir, settings: { fsync: 'off' } })
    closers.push(() => stopPostmaster({ pid: postmaster.pid, dataDir }))
    const options = { databaseUrl: urlOf(postmaster), secret }
    await migrate(options.databaseUrl)
    const subject = await subjectProcess(module, options, { greets: true })
    closers.push(() => subject.stop())
    return await playerOf<Input>(subject, {
      warmUp: () => subject.warmUp(valid),
      async play(inputs) {
        await subject.play(inputs)
      },
      close: closeAll
    })
  } catch (error) {
    await closeAll()
    throw error
  }
}
