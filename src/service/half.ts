// Half messages: the functions for the API, and the checker for `service/loops`.
import { producerAsker } from '../delivery/ask-producer.ts'
import { checker, mostOfOne, type Checker } from '../delivery/checker.ts'
import { checkNow, commit, rollBack, type HalfDeps } from '../delivery/half.ts'
import type { Metrics } from '../runtime/metrics.ts'
import type { Guard } from '../transport/egress/guard.ts'
import { httpTransport } from '../transport/http/http.ts'
import { writeAudit } from '../db/audit.ts'
import type { ApiDeps } from '../api/deps.ts'
import type { Registry } from '../handler/load.ts'
import type { Config } from './config.ts'
import type { Actor } from '../domain/types.ts'

export interface HalfOptions extends Pick<HalfDeps, 'sql' | 'accept' | 'cluster' | 'log'> {
  config: Pick<Config, 'leaseMarginMs' | 'secretPrevious'>
  registry: Pick<Registry, 'handlers'>
  guard: Guard
  secret: string
  cutOff: AbortSignal
  metrics: Metrics
}

export interface HalfMessages extends Pick<ApiDeps, 'commit' | 'rollBack' | 'check'> {
  checker: Checker
  close(): Promise<void>
}

export function halfMessages(options: HalfOptions): HalfMessages {
  const { config, sql, guard, secret, cutOff } = options
  const { handlers } = options.registry
  // Separate connections: a producer and a downstream may be the same server, and must not delay each other.
  const transport = httpTransport({ guard })
  const ask = producerAsker({
    handlers,
    transport,
    secret,
    secretPrevious: config.secretPrevious,
    concurrency: mostOfOne,
    cutOff,
    now: () => options.cluster.now()
  })
  const deps = { ...options, handlers, ask, leaseMarginMs: config.leaseMarginMs, random: Math.random }
  // Only for other callers: producers end thousands of their own half messages, and the row beside the task records that.
  const auditOf = (who: Actor, what: string, target: string) => async (createdBy: string) => {
    if (who.name !== createdBy) await writeAudit(sql, { who, what, target })
  }
  return {
    commit: (taskNo, who, delayMs) =>
      commit(deps, taskNo, who.name, auditOf(who, 'task.commit', taskNo), delayMs),
    rollBack: (taskNo, who) => rollBack(deps, taskNo, who.name, auditOf(who, 'task.rollback', taskNo)),
    check: (taskNo, who) => checkNow(deps, taskNo, who),
    checker: checker(deps),
    close: () => transport.close()
  }
}
