// What a benchmark is asked for. Whoever mistypes reads what is wrong, not where we noticed it.
import { parseArgs, type ParseArgsConfig } from 'node:util'

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

export function whole(option: string, text: string): number {
  const value = Number(text)
  if (Number.isInteger(value) && value > 0) return value
  return wrong(`${option} takes a positive whole number, not ${JSON.stringify(text)}`)
}

/** Those that were named, in our order; all without a word. */
export function chosen<One extends { name: string }>(all: One[], names: string | undefined): One[] {
  if (names === undefined) return all
  const known = all.map(({ name }) => name)
  const unknown = names.split(',').find(name => !known.includes(name))
  if (unknown !== undefined) wrong(`--only knows ${known.join(', ')}, not ${JSON.stringify(unknown)}`)
  return all.filter(({ name }) => names.split(',').includes(name))
}

export function wrong(what: string): never {
  console.error(`${what}; see --help`)
  process.exit(2)
}
