// The service, broken on purpose: the checker must be able to fail. A mutant is one text in one compiled file, replaced in a
// copy; src holds nothing of it. Each says which charge it must bring, and which faults bring it to light soonest.
import { cpSync, mkdirSync, readFileSync, symlinkSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import type { Charge } from './judge/finding.ts'
import type { Action } from './nemesis-plan.ts'
import type { Profile } from './options.ts'

export interface Mutant {
  what: string
  /** Below dist/. */
  file: string
  from: string
  to: string
  /** Red is not enough: it must be red for this. */
  expects: Charge
  only: Action[]
  /** It shows only where workers and dispatchers have another clock than the database. */
  aheadSeconds?: number
}

export const mutants: Record<string, Mutant> = {
  'answer-before-commit': {
    what: 'the POST is answered while its commit is still under way',
    file: 'src/delivery/accept.js',
    from: 'return orUnavailable(deps.cluster, inserting);',
    to: `inserting.catch(() => {});
    return tasks.map(() => ({ kind: 'created', at: new Date(), inFlight: [] }));`,
    expects: 'vanished',
    only: ['postgres.stop', 'postgres.backends']
  },
  'record-before-send': {
    what: 'a delivery is HANDLED before its request leaves',
    file: 'src/delivery/execute.js',
    from: 'sent = owned && (await send(deps, owned));',
    to: `if (owned)
            await deps.complete({ move: { ...keyOf(owned.delivery), name: 'handled', handledBy: 'send' } });
        sent = owned && (await send(deps, owned));`,
    expects: 'falseHandled',
    only: ['sink.fail', 'kill.worker']
  },
  'dispatcher-off': {
    what: 'nobody looks for what is due',
    file: 'src/delivery/dispatcher.js',
    from: 'await waiting.take(await turn(), signal);',
    to: 'await waiting.take(1_000, signal);',
    expects: 'lost',
    only: ['redis.flush', 'kill.worker']
  },
  'forgotten-row': {
    what: 'an outcome is written without the row of its attempt',
    file: 'src/db/sends.js',
    from: 'from m\n      on conflict do nothing',
    to: 'from m where false\n      on conflict do nothing',
    expects: 'unaccounted',
    // A kill excuses what its process had not written yet, and nothing else.
    only: ['kill.worker', 'stop.worker']
  },
  'unguarded-outcome': {
    what: 'an outcome is written whatever became of the delivery meanwhile',
    file: 'src/db/sends.js',
    from: "and d.downstream = m.downstream and d.attempt = m.attempt and d.phase = 'IN_FLIGHT'",
    to: 'and d.downstream = m.downstream',
    expects: 'afterTerminal',
    only: ['stop.worker', 'sink.late']
  },
  'forgotten-release': {
    // One that is merely not released is found by its lease within the promised time: that is what leases are for.
    what: 'what could not be hinted is put off instead of being due at once',
    file: 'src/delivery/enqueue.js',
    from: "move: { taskId, downstream, attempt, name: 'release' }",
    to: "move: { taskId, downstream, attempt, name: 'release', afterMs: 3_600_000 }",
    expects: 'stuck',
    only: ['redis.blackhole', 'redis.kill']
  },
  'unchecked-token': {
    what: 'a receipt is believed whatever its token',
    file: 'src/domain/tokens.js',
    from: '!timingSafeEqual(right, Buffer.from(token.slice(cut + 1)))',
    to: 'timingSafeEqual(right, right) === false',
    expects: 'forged',
    only: ['redis.flush']
  },
  'reserialised-body': {
    what: 'the body is parsed and printed again before it is sent',
    file: 'src/delivery/hooks.js',
    from: 'this.raw = task.messageBody;',
    to: 'this.raw = JSON.stringify(JSON.parse(task.messageBody));',
    expects: 'corrupted',
    only: ['redis.flush']
  },
  'host-clock': {
    what: "what is due is decided by the dispatcher's clock, which is an hour ahead",
    file: 'src/db/deliveries.js',
    from: "w.next_action_at <= now() and w.phase = 'WAITING'",
    to: "w.next_action_at <= ${new Date().toISOString()}::text::timestamptz and w.phase = 'WAITING'",
    expects: 'early',
    only: ['redis.flush'],
    aheadSeconds: 3_600
  }
}

/** Short and busy; what never comes to rest must not make one wait. */
export const mutantProfile: Omit<Profile, 'only'> = {
  seconds: 18,
  rate: 20,
  stopMs: 1_500,
  drainMs: 12_000,
  fewest: 100
}

/** The mutated text; a place that is not there exactly once means that the mutant no longer breaks what it says. */
export function mutated({ file, from, to }: Mutant, dist: string): string {
  const parts = readFileSync(join(dist, file), 'utf8').split(from)
  const [before, after] = parts
  if (before === undefined || after === undefined || parts.length > 2)
    throw new Error(
      `${file} holds the text of its mutant ${parts.length - 1} times instead of once:\n${from}`
    )
  return before + to + after
}

/**
 * Copies what a process of the service needs into `folder`, so that nothing that is built meanwhile mixes with it, and
 * breaks it if told to. Returns the copy of dist/.
 */
export function copyService(root: string, folder: string, mutant?: Mutant): string {
  const copy = join(folder, 'service')
  mkdirSync(copy)
  for (const part of [
    'package.json',
    'src/db/migrations',
    'dist/src',
    'dist/chaos/handlers',
    'dist/chaos/stamp.js',
    'dist/chaos/terms.js'
  ])
    cpSync(join(root, part), join(copy, part), { recursive: true })
  symlinkSync(join(root, 'node_modules'), join(copy, 'node_modules'))
  const dist = join(copy, 'dist')
  if (mutant) writeFileSync(join(dist, mutant.file), mutated(mutant, dist))
  return dist
}
