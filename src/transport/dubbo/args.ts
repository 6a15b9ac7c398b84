import { randomUUID } from 'node:crypto'

export type Args = { text: string; problem?: undefined } | { problem: string }

/** The arguments of a call as the text of one JSON array, or what is wrong with them. */
export function argsOf(args: unknown, parameters: number | undefined): Args {
  const list = typeof args === 'string' ? arrayIn(args) : args
  if (!Array.isArray(list))
    return { problem: 'args must be an array with one for each parameter, or the text of such an array' }
  if (parameters !== undefined && parameters !== list.length)
    return { problem: `args holds ${list.length}, and the method has ${parameters} parameters` }
  if (typeof args === 'string') return { text: args }
  // The method would get null instead, without any sign of it.
  const unsaid = Array.from(list).indexOf(undefined)
  if (unsaid >= 0) return { problem: `args[${unsaid}] is undefined: write null to send null` }
  try {
    return { text: textOf(list) }
  } catch (error) {
    return {
      problem: `args cannot be written as JSON: ${error instanceof Error ? error.message.slice(0, 100) : ''}`
    }
  }
}

function arrayIn(text: string): unknown {
  try {
    return JSON.parse(text)
  } catch {
    return undefined
  }
}

/** JSON.stringify throws on a bigint: each is written as a random text, which becomes a number again. */
const mark = randomUUID()
const marked = new RegExp(`"${mark}(-?\\d+)"`, 'g')

const textOf = (args: unknown[]): string =>
  JSON.stringify(args, (_, value: unknown) => {
    if (typeof value === 'bigint') return `${mark}${value}`
    // JSON.stringify would write null.
    if (typeof value === 'number' && !Number.isFinite(value)) throw new TypeError(`JSON has no ${value}`)
    return value
  }).replace(marked, '$1')
