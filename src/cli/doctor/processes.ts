// Checks that the running processes, and this setup, have what all processes must have in common.
import type { NodeFacts } from '../../db/cluster.ts'
import { disagreements, type Disagreement, type SetupFacts } from '../../service/presence.ts'

interface Judged {
  level: 'ok' | 'warn' | 'fix'
  found: string
  remedy?: string
}

/** `facts`: of this setup. Undefined: the processes are compared with each other. */
export function judgeProcesses(nodes: readonly NodeFacts[], facts: SetupFacts | undefined): Judged {
  if (nodes.length === 0) return { level: 'ok', found: 'no process runs now' }
  const among = (pick: (one: NodeFacts) => Partial<SetupFacts>) =>
    nodes.flatMap(one => disagreements(pick(one), nodes))
  const [found] = facts
    ? // A setup without the role dispatcher has no channels of its own.
      [
        ...disagreements(facts, nodes),
        ...(facts.channels ? [] : among(({ channels }) => (channels ? { channels } : {})))
      ]
    : among(one => one)
  if (found) return complaints[found.what](found, found.nodes.join(', '))
  return {
    level: 'ok',
    found: `${nodes.length} run, with one SECRET, queue, set of handlers and set of alarm channels`
  }
}

const complaints: Record<Disagreement['what'], (found: Disagreement, who: string) => Judged> = {
  SECRET: (_, who) => ({
    level: 'fix',
    found: `SECRET differs from that of ${who}: each refuses the receipts for the other`,
    remedy: 'set the same SECRET; to change it, follow "Rotate SECRET" in docs/operations.md'
  }),
  queue: ({ ours, theirs }, who) => ({
    level: 'warn',
    found: `the queue is ${ours} here and ${theirs} at ${who}: neither sees the jobs of the other`,
    remedy: 'set the same REDIS_URL and REDIS_PREFIX'
  }),
  handlers: ({ ours, theirs }, who) => ({
    level: 'warn',
    found: `the handlers differ from those of ${who} (${ours}; ${theirs})`,
    remedy: 'deploy the same handlers; during a deployment this passes'
  }),
  'alarm channels': ({ ours, theirs }, who) => ({
    level: 'warn',
    found: `the alarm channels are ${ours} here and ${theirs} at ${who}: only a process that has a channel sends to it`,
    remedy: 'set the same ALARM_CHANNELS and ALARM_CHANNEL_…; during a deployment this passes'
  })
}
