type Values = Readonly<Record<string, string | undefined>>

let values: Values = process.env
let missing: Set<string> | undefined

/**
 * What handlers read their settings from. A name that is not set throws when it is read, and so fails that attempt only;
 * the loader looks for such names before, so that they are said at start.
 */
export const env: { readonly [name: string]: string } = new Proxy(
  {},
  {
    get(_target, name) {
      if (typeof name === 'symbol') return undefined
      const value = values[name]
      if (value) return value
      if (!missing) throw new Error(`the handler needs ${name} in the environment, and it is not set`)
      missing.add(name)
      return ''
    },
    has: (_target, name) => typeof name === 'string' && Boolean(values[name])
  }
)

/** From where `env` reads: the process's own environment, or that and the demo's defaults under it. */
export function useEnv(source: Values): void {
  values = source
}

/** Runs `load` and names what it read from `env` and was not set, instead of throwing in the middle of it. */
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
