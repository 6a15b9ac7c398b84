// The service, broken on purpose: the checker must be able to fail. A mutant is one text in one compiled file, replaced in a
// copy; src holds nothing of it. Each says which charge it must bring, and which faults bring it to light soonest.
import { cpSync, mkdirSync, readFileSync, symlinkSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { keyMutants } from './keys-mutants.ts'
import type { Charge } from './judge/finding.ts'
import type { Action } from './nemesis-plan.ts'
import type { Profile } from './options.ts'

/** One text in one file below dist/. */
export interface Change {
  file: string
  from: string
  to: string
}

export interface Mutant extends Change {
  what: string
  /** What would keep it from showing, taken away. */
  also?: readonly Change[]
  /** Red is not enough: it must be red for this. */
  expects: Charge
  only: Action[]
  /** It is of the producers' end, and shows in that profile. */
  isOfProducers?: true
  /** It is of the receivers' end. */
  isOfReceivers?: true
  /** It shows by itself: nothing is killed. */
  isCalm?: true
  /** Instead of mutantProfile's. */
  profile?: Partial<Profile>
  /** It shows only where workers and dispatchers have another clock than the database. */
  aheadSeconds?: number
}

export const mutants: Record<string, Mutant> = {
  ...keyMutants,
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
    what: 'what could not be queued is put off instead of being due at once',
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
  },
  'relay-removes-first': {
    what: 'the relay removes rows, and commits that, before it posts them',
    file: 'src/relay/postgres.js',
    from: 'const { accepted, rejected } = byVerdict(rows, await post(rows));',
    to: `await tx\`delete from ackbox_outbox where id = any(\${rows.map(row => row.id)}::bigint[])\`;
            await tx.unsafe('commit');
            const { accepted, rejected } = byVerdict(rows, await post(rows));`,
    expects: 'lost',
    only: [],
    isOfProducers: true
  },
  'unknown-commits': {
    what: 'a half message is committed where its producer does not know yet',
    file: 'src/delivery/half.js',
    from: "if (answer === 'COMMITTED') {",
    to: "if (answer === 'COMMITTED' || answer === 'UNKNOWN') {",
    expects: 'unexpected',
    only: [],
    isOfProducers: true,
    isCalm: true
  },
  'barrier-without-row': {
    what: 'the transaction of a half message leaves no row for its check',
    file: 'src/producer/half-message.js',
    from: `await prepared(tx, taskNo);
            const result = await work(native);
            await stillPrepared(tx, taskNo);`,
    to: 'const result = await work(native);',
    expects: 'lost',
    only: [],
    isOfProducers: true,
    isCalm: true
  },
  'rejected-dropped': {
    what: 'a row that is no task goes, and is kept nowhere',
    file: 'src/delivery/drain.js',
    from: 'await rejectFromOutbox(sql, rejections);',
    to: 'await removeFromOutbox(sql, rejections.map(one => one.rowId));',
    expects: 'dropped',
    only: [],
    isOfProducers: true,
    isCalm: true
  },
  'released-early': {
    what: 'a task waits for those that FAILED, and not for those on their way',
    file: 'src/domain/dependencies.js',
    from: "return sending > 0 ? 'wait' : 'unblock';",
    to: "return sending < 0 ? 'wait' : 'unblock';",
    expects: 'released',
    only: [],
    isOfProducers: true,
    isCalm: true
  },
  'receivers-without-table': {
    what: 'receivers do not look whether they have handled a delivery',
    file: 'src/consumer/receiver.js',
    from: 'const repeat = await received.begin(tx, consumer, task);',
    to: 'const repeat = undefined;',
    expects: 'inexact',
    only: [],
    isOfReceivers: true
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

/** The same for those of producers. */
export const producerMutantProfile: Profile = {
  seconds: 20,
  rate: 14,
  stopMs: 1_500,
  drainMs: 0,
  fewest: 60,
  isOfProducers: true
}

/** The mutated text; a place that is not there exactly once means that the mutant no longer breaks what it says. */
export function mutated({ file, from, to }: Change, dist: string): string {
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
  for (const part of ['package.json', 'src/db/migrations', 'dist/src', 'dist/chaos'])
    cpSync(join(root, part), join(copy, part), { recursive: true })
  symlinkSync(join(root, 'node_modules'), join(copy, 'node_modules'))
  const dist = join(copy, 'dist')
  for (const one of mutant ? [mutant, ...(mutant.also ?? [])] : [])
    writeFileSync(join(dist, one.file), mutated(one, dist))
  return dist
}
