// DATABASE_URL with several hosts: all connections go to the one that takes writes, and move when another one does.
// postgres.js knows such URLs too, but tries unavailable hosts again without a pause, and `pg` refuses them.

/** What a client of postgres.js reads at each connect. */
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
  // Each of them is asked whether it takes writes, so the parameter says nothing new.
  const after = rest.replace(/([?&])target_session_attrs=[^&]*(&|$)/, (_, start: string, end: string) =>
    end ? start : ''
  )
  return hosts.split(',').map(host => `${before}${host}${after}`)
}

/** The URL of the host that took writes when it was last asked; before that, of the first. */
export function primaryUrl(url: string): string {
  const group = groupOf(url)
  return group?.urls[group.current] ?? url
}

/** From now on `target` follows the primary: its next connection goes there. */
export function follow(url: string, target: Target): void {
  groupOf(url)?.targets.add(new WeakRef(target))
}

/** For clients that are not ours: `url` is that of the primary, and `onMove` calls its listener when that has changed, until undone. */
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
 * Asks all hosts of the URL at the same time which of them takes writes, and sends all new connections there. `isWritable` rejects
 * or says false for a host that does not. Resolves to the former and the new host if they differ, and to the hosts that answered
 * and take no writes, while another one does. With one host it asks nobody.
 */
export async function findPrimary(
  url: string,
  isWritable: (url: string) => Promise<boolean>
): Promise<{ moved?: { from: string; to: string }; readOnly: string[] }> {
  const group = groupOf(url)
  if (!group) return { readOnly: [] }
  const answers = await Promise.all(group.urls.map(one => isWritable(one).catch(() => undefined)))
  // Where two of them say so, the connections that exist are no reason to change.
  const found = answers[group.current] ? group.current : answers.indexOf(true)
  if (found < 0) return { readOnly: [] }
  const readOnly = group.urls.filter((_, at) => answers[at] === false)
  if (found === group.current) return { readOnly }
  const from = group.urls[group.current] ?? ''
  const to = group.urls[found] ?? ''
  group.current = found
  const { hostname, port } = new URL(to)
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
  return { moved: { from, to }, readOnly }
}

function groupOf(url: string): Group | undefined {
  const urls = hostUrls(url)
  if (urls.length < 2) return undefined
  const group = groups.get(url) ?? { urls, current: 0, targets: new Set(), listeners: new Set() }
  groups.set(url, group)
  return group
}
