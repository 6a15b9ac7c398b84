// The options of a benchmark. After a wrong option the user sees the mistake, not a stack trace.
import { parseArgs, type ParseArgsConfig } from 'node:util'

export const text = { type: 'string' } as const
export const flag = { type: 'boolean', default: false } as const

/** Ends the process after `--help`, and with exit code 2 after an option that is wrong. */
export function asked<const Options extends NonNullable<ParseArgsConfig['options']>>(
  args: string[],
  options: Options,
  help: string
): ReturnType<typeof parseArgs<{ args: string[]; options: Options }>>['values'] {
  if (args.includes('--help') || args.includes('-h')) {
    console.log(help)
    process.exit(0)
  }
  try {
    return parseArgs({ args, options }).values
  } catch (err) {
    return wrong((err as Error).message)
  }
}

export function whole(option: string, given: string): number {
  const value = Number(given)
  if (Number.isInteger(value) && value > 0) return value
  return wrong(`${option} takes a positive whole number, not ${JSON.stringify(given)}`)
}

/** Fractions are allowed: half a minute is a valid time. */
export function positive(option: string, given: string): number {
  const value = Number(given)
  if (Number.isFinite(value) && value > 0) return value
  return wrong(`${option} takes a positive number, not ${JSON.stringify(given)}`)
}

export function choice<const One extends string>(option: string, given: string, all: readonly One[]): One {
  return (
    all.find(one => one === given) ??
    wrong(`${option} takes one of ${all.join(', ')}, not ${JSON.stringify(given)}`)
  )
}

/** The named ones, in the order of `all`; without names all of them. */
export function chosen<One extends { name: string }>(all: One[], names: string | undefined): One[] {
  const known = all.map(({ name }) => name)
  const these = names?.split(',').map(name => choice('--only', name, known)) ?? known
  return all.filter(({ name }) => these.includes(name))
}

function wrong(message: string): never {
  console.error(`${message}; see --help`)
  process.exit(2)
}
