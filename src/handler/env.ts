type Values = Readonly<Record<string, string | undefined>>

let values: Values = process.env
let missing: Set<string> | undefined

/**
 * The settings of handlers. Reading a name that is not set throws, and fails only that attempt. The loader searches for
 * such names earlier, so that the start reports them.
 */
export const env: { readonly [name: string]: string } = new Proxy(
  {},
  {
    get(_target, name) {
      if (typeof name === 'symbol') return undefined
      const value = values[name]
      if (value) return value
      if (!missing)
        throw new Error(`the handler needs ${name}, which is not set in the environment or in .env`)
      missing.add(name)
      return ''
    },
    has: (_target, name) => typeof name === 'string' && Boolean(values[name])
  }
)

/** Sets the source of `env`: the process environment, with the demo's defaults as a fallback. */
export function useEnv(source: Values): void {
  values = source
}

/** Runs `load`, and returns the missing names that it read from `env` instead of throwing. */
export async function namesMissing(load: () => Promise<void>): Promise<Set<string>> {
  const found = new Set<string>()
  missing = found
  try {
    await load()
  } finally {
    missing = undefined
  }
  return found
}
