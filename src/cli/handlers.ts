// ackbox handlers: lists and checks the handlers, and shows the requests of a dry run.

import { environment, readConfig } from '../service/config.ts'
import { aligned } from './demo/show.ts'
import { effectiveRetryTimes } from '../domain/retry-policy.ts'
import { durationText } from '../handler/define.ts'
import type { LoadedDownstream } from '../handler/loaded.ts'
import type { Registry } from '../handler/load.ts'
import { commandLine } from '../runtime/package.ts'
import { egress, refusedBy } from '../service/egress.ts'
import { counted, readArguments, SlipError } from './arguments.ts'
import { backoffText, dryRun } from './handlers/dry-run.ts'
import { typeErrors } from './handlers/type-errors.ts'
import { builtInHandlers } from '../handler/files.ts'
import { resolve } from 'node:path'
import { demoUrl, missingFor, readHandlers } from './read-handlers.ts'

const dryRunLine = commandLine("handlers --dry-run <messageCode> '<messageBody>'")
export const help = `${commandLine('handlers').padEnd(dryRunLine.length)}  lists and checks the handlers, and their types if the project has TypeScript
${dryRunLine}  shows the request to each downstream, without sending it or calling beforeSend

  --scene TEXT   the sceneType of the dry run (default empty)
  --help

It reads the settings of the service: HANDLERS_DIR, DEMO, the brokers, and the variables that the handlers take from env.
Exit: 0 no errors · 1 errors, which are printed`

export const runsHandlers = true

export async function run(args: string[]): Promise<void> {
  const { values, positionals } = readArguments({
    args,
    allowPositionals: true,
    options: { 'dry-run': { type: 'boolean', default: false }, scene: { type: 'string', default: '' } }
  })
  if (!values['dry-run'] && (positionals.length > 0 || values.scene !== ''))
    throw new SlipError(`Only --dry-run takes a messageCode, a messageBody and --scene`)
  const [messageCode = '', messageBody = '', ...surplus] = positionals
  const missing = ['messageCode', 'messageBody'][positionals.length]
  if (values['dry-run'] && missing !== undefined) throw new SlipError(`Missing ${missing}`)
  if (surplus.length > 0) throw new SlipError(`handlers --dry-run does not take ${surplus.join(' ')}`)
  const config = readConfig(environment())
  const registry = await readHandlers(config)
  if (!values['dry-run']) {
    const missing = await missingFor(registry, config)
    const types = await typeErrors(resolve(config.handlersDir ?? builtInHandlers))
    const errors = missing.length + types.errors
    list(registry, errors)
    for (const one of [...missing, ...types.lines]) console.error(one)
    if (errors > 0) process.exitCode = 1
    return
  }
  const refusal = refusedBy(egress({ config, databaseUrl: config.databaseUrl }))
  const refused = (url: string): string | undefined =>
    config.demo && url.startsWith(`${demoUrl}/`) ? undefined : refusal(url)
  await dryRun({ registry, refused }, messageCode, messageBody, values.scene)
}

function list({ handlers, downstreams }: Registry, errors: number): void {
  const rows = [...handlers.values()].flatMap(handler =>
    handler.downstreams.map((downstream, at) => [
      at === 0 ? handler.messageCode : '',
      at === 0 ? handler.file : '',
      downstream.name,
      ...facts(downstream)
    ])
  )
  const head = [
    'messageCode',
    'file',
    'downstream',
    'transport',
    'receipt',
    'tries',
    'backoff',
    'parallel',
    'per second',
    'timeout'
  ]
  console.log(aligned([head, ...rows], 5))
  const half = [...handlers.values()].filter(one => one.checkBack).map(one => one.messageCode)
  if (half.length > 0) console.log(`\nhalf messages: ${half.join(', ')}`)
  console.log(
    `\n${counted(handlers.size, 'handler')}, ${counted(downstreams.size, 'downstream')}, ${counted(errors === 0 ? 'no' : errors, 'error')}`
  )
}

function facts({ transport, needCallback, policy, limit }: LoadedDownstream): string[] {
  return [
    transport,
    needCallback ? `in ${durationText(policy.receiptTimeoutMs)}` : 'no',
    String(effectiveRetryTimes(null, policy)),
    backoffText(policy.backoff),
    limit.pipelining === undefined
      ? `${limit.concurrency}`
      : `${limit.concurrency} (${limit.pipelining} per connection)`,
    String(limit.perSecond ?? '–'),
    durationText(limit.timeoutMs)
  ]
}
