import { hostUrls } from '../db/hosts.ts'
import type { Config } from './config.ts'
import { redisAddress } from '../queue/redis-address.ts'
import { guard, type Guard } from '../transport/egress/guard.ts'

export interface EgressOptions {
  config: Config
  /** Undefined: not known yet, since the embedded PostgreSQL does not run. */
  databaseUrl: string | undefined
  /** `host:port` of the demo receiver, which is allowed even if EGRESS_ALLOW does not list it. */
  demoTarget?: string
}

/** The targets that EGRESS_ALLOW allows, but never our own PostgreSQL, Redis or address. */
export function egress({ config, databaseUrl, demoTarget }: EgressOptions): Guard {
  const demo = demoTarget === undefined ? [] : [demoTarget]
  const allow =
    config.egressAllow === undefined && config.embedded ? undefined : [...(config.egressAllow ?? []), ...demo]
  const databases = databaseUrl === undefined ? [] : hostUrls(databaseUrl).map(url => new URL(url))
  const redis = config.redisUrl === undefined ? undefined : redisAddress(config.redisUrl)
  const deny = [
    ...databases.map(({ hostname, port }) => `${hostname || 'localhost'}:${port || 5432}`),
    ...(redis?.nodes.map(({ host, port }) => `${host}:${port}`) ?? [])
  ]
  return guard({
    allow,
    embedded: config.embedded,
    deny: [...deny, ...(config.port ? [`${config.host}:${config.port}`] : [])]
  })
}

/** Why requests to a URL are denied. Undefined: allowed. */
export const refusedBy =
  ({ check }: Pick<Guard, 'check'>) =>
  (url: string): string | undefined => {
    const target = check(url)
    return target instanceof URL ? undefined : target.reason
  }
