import type { TransportName } from './define.ts'
import type { LoadedDownstream, Limit, LoadedHandler } from './loaded.ts'
import type { HandlerError } from './validate.ts'

/** A downstream, shared by all handlers that name it: one queue, one set of limits, one pause, one set of secrets. */
export interface SharedDownstream extends Limit {
  name: string
  transport: TransportName
  onFailed?: LoadedDownstream['onFailed']
  /** The file of the first handler that names it. */
  file: string
}

type Shared = Limit & { transport: TransportName; onFailed?: LoadedDownstream['onFailed'] }

/** The downstreams of all handlers, by name. What differs between two handlers goes to `problems`. */
export function sharedDownstreams(
  loaded: LoadedHandler[],
  problems: (HandlerError & { file: string })[]
): Map<string, SharedDownstream> {
  const shared = new Map<string, SharedDownstream>()
  const secretsOf = new Map<string, string[] | undefined>()
  for (const { file, downstreams } of loaded) {
    for (const { name, transport, limit, onFailed = 'hold', secrets } of downstreams) {
      const first = shared.get(name)
      if (!first) {
        shared.set(name, {
          name,
          transport,
          ...limit,
          onFailed,
          file
        })
        secretsOf.set(name, secrets)
        continue
      }
      const differs =
        difference(first, { transport, ...limit, onFailed }) ??
        differenceOfSecrets(secretsOf.get(name), secrets)
      if (!differs) continue
      problems.push({
        file,
        what: `downstream '${name}' has ${differs[1]} here and ${differs[0]} in ${first.file}`,
        fix: 'a downstream has one set of limits and secrets: make them equal, or rename one of them'
      })
    }
  }
  return shared
}

/** The first difference between two definitions of one downstream, with both values. */
function difference(one: Shared, two: Shared): [string, string] | undefined {
  const names = ['transport', 'concurrency', 'perSecond', 'timeoutMs', 'pipelining', 'onFailed'] as const
  const name = names.find(each => one[each] !== two[each])
  return name && [`${name} ${one[name] ?? 'not set'}`, `${name} ${two[name] ?? 'not set'}`]
}

/** Without the values. */
function differenceOfSecrets(
  one: string[] | undefined,
  two: string[] | undefined
): [string, string] | undefined {
  if (JSON.stringify(one) === JSON.stringify(two)) return undefined
  if (one && two) return ['others', 'secrets']
  return one ? ['secrets', 'no secrets'] : ['no secrets', 'secrets']
}
