/** The methods of each path, for 405 and its Allow. */
export function paths() {
  const known: { pattern: RegExp; url: string; methods: Set<string> }[] = []
  return {
    add(methods: string | string[], url: string) {
      const entry = known.find(one => one.url === url) ?? {
        url,
        pattern: patternOf(url),
        methods: new Set<string>()
      }
      if (entry.methods.size === 0) known.push(entry)
      for (const method of [methods].flat()) entry.methods.add(method)
    },
    /** Null: no method exists at this path. */
    allowed(target: string): string | null {
      const path = target.split(/[?#]/, 1)[0] ?? ''
      const methods = known.filter(one => one.pattern.test(path)).flatMap(one => [...one.methods])
      return methods.length === 0 ? null : [...new Set(methods)].toSorted().join(', ')
    }
  }
}

export type Paths = ReturnType<typeof paths>

function patternOf(url: string): RegExp {
  const parts = url
    .split('/')
    .map(part => (part === '*' ? '.*' : part.startsWith(':') ? '[^/]+' : part.replaceAll('.', '\\.')))
  return new RegExp(`^${parts.join('/')}$`)
}
