// The arguments of `ackbox tasks`, and those that each command takes. An argument that a command would ignore is refused:
// `redeliver --all order-1` must not redeliver everything.
import type { parseArgs } from 'node:util'
import { readArguments as read, readVerb, refuseSurplus, type CommandUsage, SlipError } from '../arguments.ts'

const options = {
  status: { type: 'string' },
  code: { type: 'string' },
  scene: { type: 'string' },
  downstream: { type: 'string' },
  biz: { type: 'string' },
  by: { type: 'string' },
  prefix: { type: 'string' },
  reason: { type: 'string' },
  text: { type: 'string' },
  from: { type: 'string' },
  to: { type: 'string' },
  limit: { type: 'string' },
  cursor: { type: 'string' },
  force: { type: 'boolean' },
  all: { type: 'boolean' },
  'dry-run': { type: 'boolean' },
  json: { type: 'boolean' },
  url: { type: 'string' },
  key: { type: 'string' },
  'key-file': { type: 'string' }
} as const

type Option = keyof typeof options
export type Given = ReturnType<
  typeof parseArgs<{ options: typeof options; allowPositionals: true }>
>['values']

const filters: readonly Option[] = [
  'status',
  'code',
  'scene',
  'downstream',
  'biz',
  'by',
  'prefix',
  'reason',
  'text',
  'from',
  'to'
]
const everywhere: readonly Option[] = ['json', 'url', 'key', 'key-file']

const verbs = ['list', 'show', 'push', 'settle', 'redeliver', 'follow', 'stop'] as const
export type Verb = (typeof verbs)[number]

const taken: Record<Verb | 'redeliver --all', CommandUsage & { options: readonly Option[] }> = {
  list: { words: [], options: [...filters, 'limit', 'cursor'] },
  show: { words: ['TASKNO'], options: [] },
  push: { words: ['TASKNO'], options: ['downstream'] },
  settle: { words: ['TASKNO', 'STATUS'], options: ['downstream', 'reason'] },
  redeliver: { words: ['TASKNO'], options: ['downstream', 'force'] },
  'redeliver --all': { words: [], options: [...filters, 'all', 'dry-run'] },
  follow: { words: ['OPERATION'], options: [] },
  stop: { words: ['OPERATION'], options: [] }
}

export function readArguments(args: string[]): { verb: Verb; words: string[]; given: Given } {
  const { values, positionals } = read({ args, allowPositionals: true, options })
  const [first, ...words] = positionals
  return { verb: readVerb(first, verbs), words, given: values }
}

/** Throws a UsageError. */
export function checkArguments(verb: Verb, words: string[], given: Given): void {
  const command = verb === 'redeliver' && given.all ? 'redeliver --all' : verb
  const takes = taken[command]
  const missing = takes.words[words.length]
  if (missing !== undefined) throw new SlipError(`Missing ${missing}`)
  refuseSurplus(
    `tasks ${command}`,
    { words: takes.words, options: [...takes.options, ...everywhere] },
    { words, given: Object.keys(given) }
  )
}

/** The options for members of the API that have another name on the command line. */
const optionOf: Record<string, Option> = {
  messageCode: 'code',
  sceneType: 'scene',
  bizType: 'biz',
  bizKey: 'biz',
  createdBy: 'by',
  taskNoPrefix: 'prefix',
  lastReason: 'text'
}

/** The option or word of the command line that a problem's pointer refers to. */
export function placeOf(pointer: string, verb: Verb): string {
  const member = pointer.split('/').at(-1) ?? ''
  if (verb === 'settle' && member === 'status') return 'STATUS'
  const option = optionOf[member] ?? member
  return Object.hasOwn(options, option) ? `--${option}` : pointer
}
