// npm run chaos -- --profile receivers: what receivers with ackbox/consumer granted is exact, whoever dies.
import { writeFileSync } from 'node:fs'
import { fileURLToPath } from 'node:url'
import { parseArgs } from 'node:util'
import { hasMariadb } from '../mariadb.ts'
import { UsageError } from '../options.ts'
import { judgeReceivers } from './judge.ts'
import { runReceivers } from './run.ts'

export const mutantName = 'receivers-without-table'

/** Whether these arguments ask for this profile. */
export const isForReceivers = (args: readonly string[]): boolean =>
  args.some(
    (arg, at) =>
      /^(?:--profile=)?receivers$/.test(arg) && (arg.startsWith('--') || args[at - 1] === '--profile')
  ) || args.some(arg => arg.endsWith(mutantName))

/** The exit code: 0 green, 1 red, 2 inconclusive. */
export async function chaosOfReceivers(args: string[], stop: AbortSignal): Promise<number> {
  const { values } = parseArgs({
    args,
    options: {
      profile: { type: 'string' },
      mode: { type: 'string', default: 'redis' },
      seed: { type: 'string', default: `${Math.floor(Math.random() * 1e9)}` },
      seconds: { type: 'string', default: '25' },
      rate: { type: 'string', default: '12' },
      mutant: { type: 'string' },
      json: { type: 'string' },
      keep: { type: 'boolean', default: false }
    }
  })
  const { mode: queue } = values
  if (queue !== 'redis' && queue !== 'postgres') throw new UsageError('--mode must be redis or postgres')
  if (!hasMariadb()) throw new UsageError('no mariadbd on the PATH: install MariaDB 10.6 or newer')
  const seed = Number(values.seed)
  console.error(
    `chaos: receivers, seed ${seed}, mode ${queue}, ${values.seconds} s at ${values.rate} tasks a second`
  )
  const history = await runReceivers({
    seed,
    queue,
    root: fileURLToPath(new URL('../../..', import.meta.url)),
    seconds: Number(values.seconds),
    rate: Number(values.rate),
    isBroken: values.mutant !== undefined,
    keep: values.keep,
    stop,
    say: text => console.error(`chaos: receivers: ${text}`)
  })
  const verdict = judgeReceivers(history)
  const said =
    values.mutant === undefined
      ? verdict
      : { mutant: values.mutant, isCaught: verdict.verdict === 'red', ...verdict }
  console.error(`chaos: ${verdict.verdict}, seed ${seed}`)
  console.log(JSON.stringify(said))
  if (values.json !== undefined) writeFileSync(values.json, JSON.stringify(said, null, 2))
  return { green: 0, red: 1, inconclusive: 2 }[verdict.verdict]
}
