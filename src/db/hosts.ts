// DATABASE_URL with several hosts: all connections use the host that accepts writes, and move when another host does.
// postgres.js supports such URLs too, but retries unavailable hosts without a pause, and `pg` refuses them.

/** The options that a client of postgres.js reads at each connect. */
interface Target {
  host: string[]
  port: number[]
}

interface Group {
  urls: string[]
  current: number
  targets: Set<WeakRef<Target>>
  listeners: Set<() => void>
}

const groups = new Map<string, Group>()
const parts = /^(postgres(?:ql)?:\/\/(?:[^@/?]*@)?)([^/?]*)(.*)$/s

/** `postgres://u:p@a:5432,b:5432/db` as one URL for each host. Their order is that of the setting. */
export function hostUrls(url: string): string[] {
  const [, before, hosts, rest = ''] = parts.exec(url) ?? []
  if (before === undefined || hosts === undefined || !hosts.includes(',')) return [url]
  // Each host is checked for writes anyway, so the parameter is not needed.
  const after = rest.replace(/([?&])target_session_attrs=[^&]*(&|$)/, (_, start: string, end: string) =>
    end ? start : ''
  )
  return hosts.split(',').map(host => `${before}${host}${after}`)
}

/** The URL of the host that accepted writes at the last check; before the first check, of the first host. */
export function primaryUrl(url: string): string {
  const group = groupOf(url)
  return group?.urls[group.current] ?? url
}

/** From now on `target` follows the primary: its next connection goes there. */
export function follow(url: string, target: Target): void {
  groupOf(url)?.targets.add(new WeakRef(target))
}

/** For clients of other libraries: `url` returns the URL of the primary; `onMove` calls its listener when it has changed, until undone. */
export function primaryOf(url: string) {
  return {
    url: () => primaryUrl(url),
    onMove(listener: () => void): () => void {
      const group = groupOf(url)
      group?.listeners.add(listener)
      return () => group?.listeners.delete(listener)
    }
  }
}

/**
 * Checks all hosts of the URL at the same time, and directs all new connections to the host that accepts writes. `isWritable`
 * rejects or returns false for a host that does not. Resolves to the hosts that answered and accept no writes, while another
 * host does. With one host it checks nothing.
 */
export async function findPrimary(
  url: string,
  isWritable: (url: string) => Promise<boolean>
): Promise<string[]> {
  const group = groupOf(url)
  if (!group) return []
  const answers = await Promise.all(group.urls.map(host => isWritable(host).catch(() => undefined)))
  // If two hosts accept writes, the current one stays, and so do its connections.
  const found = answers[group.current] ? group.current : answers.indexOf(true)
  if (found < 0) return []
  const readOnly = group.urls.filter((_, at) => answers[at] === false)
  if (found === group.current) return readOnly
  group.current = found
  const { hostname, port } = new URL(group.urls[found] ?? '')
  for (const ref of group.targets) {
    const target = ref.deref()
    if (!target) {
      group.targets.delete(ref)
      continue
    }
    target.host[0] = hostname
    target.port[0] = Number(port || 5432)
  }
  for (const listener of group.listeners) listener()
  return readOnly
}

function groupOf(url: string): Group | undefined {
  const urls = hostUrls(url)
  if (urls.length < 2) return undefined
  const group = groups.get(url) ?? { urls, current: 0, targets: new Set(), listeners: new Set() }
  groups.set(url, group)
  return group
}
