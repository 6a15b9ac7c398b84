// Services that are broken on purpose. They show that the checker can fail.
import { keyMutants } from './keys-mutants.ts'
import type { Mutant } from './mutant.ts'
import type { Profile } from './options.ts'
import { producerMutants } from './producers/mutants.ts'

export const mutants: Record<string, Mutant> = {
  'answer-before-commit': {
    description: 'the POST is answered while its commit is still under way',
    file: 'src/delivery/write-tasks.js',
    from: 'return orUnavailable(deps.cluster, inserting);',
    to: `inserting.catch(() => {});
    return tasks.map(() => ({ kind: 'created', at: new Date(), inFlight: [] }));`,
    expects: 'vanished',
    only: ['postgres.stop', 'postgres.backends']
  },
  'failed-at-once': {
    description: 'a delivery is FAILED at its first failed try, whatever its limit',
    file: 'src/domain/retry-policy.js',
    from: 'if (tried.triesLeft <= 0)',
    to: 'if (tried.triesLeft < Infinity)',
    expects: 'failedEarly',
    only: ['sink.fail', 'kill.worker']
  },
  'record-before-send': {
    description: 'a delivery is HANDLED before its request is sent',
    file: 'src/delivery/execute.js',
    from: 'ended = own && (await attempt(deps, own, downstream, rate));',
    to: `if (own)
            await deps.complete({ move: { ...keyOf(own.delivery), name: 'handled', handledBy: 'send' } });
        ended = own && (await attempt(deps, own, downstream, rate));`,
    expects: 'falseHandled',
    only: ['sink.fail', 'kill.worker']
  },
  'dispatcher-off': {
    description: 'no dispatcher looks for due deliveries',
    file: 'src/delivery/dispatcher.js',
    from: 'await waiting.take(await turn(), signal);',
    to: 'await waiting.take(1_000, signal);',
    expects: 'lost',
    only: ['redis.flush', 'kill.worker']
  },
  'forgotten-row': {
    description: 'an outcome is written without the row of its attempt',
    file: 'src/db/successful-sends.js',
    from: 'from m\n      on conflict do nothing',
    to: 'from m where false\n      on conflict do nothing',
    expects: 'unaccounted',
    // A kill excuses only the rows that its process had not written yet.
    only: ['kill.worker', 'stop.worker']
  },
  'unguarded-outcome': {
    description: 'an outcome is written although the delivery has changed meanwhile',
    file: 'src/db/successful-sends.js',
    from: "and d.downstream = m.downstream and d.attempt = m.attempt and d.phase = 'IN_FLIGHT'",
    to: 'and d.downstream = m.downstream',
    expects: 'afterTerminal',
    only: ['stop.worker', 'sink.late']
  },
  'thawed-owner': {
    // Its requests have timed out, or their answers have waited for it. It reads both when it continues.
    description:
      'a process that was frozen writes its outcomes by id, although another one owns the deliveries by then',
    file: 'src/db/transitions.js',
    from: "${plainArray(moves.map(move => move.name === 'receive'))}::boolean[],",
    to: "${plainArray(moving.map(one => one.move.name === 'receive' || one.attempt !== undefined))}::boolean[],",
    also: [
      {
        file: 'src/db/transitions.js',
        from: '${plainArray(moves.map(fromBits))}::int[],',
        to: '${plainArray(moving.map(one => one.attempt ? 127 : fromBits(one.move)))}::int[],'
      },
      {
        file: 'src/db/successful-sends.js',
        from: "and d.downstream = m.downstream and d.attempt = m.attempt and d.phase = 'IN_FLIGHT'",
        to: 'and d.downstream = m.downstream'
      }
    ],
    expects: 'afterTerminal',
    only: ['thaw.worker', 'sink.late']
  },
  'forgotten-release': {
    // A delivery that is merely not released is found by its lease, within the promised time.
    description: 'a delivery that could not be queued is put off instead of being due at once',
    file: 'src/delivery/enqueue.js',
    from: "name: 'release', owner: guard",
    to: "name: 'release', afterMs: 3_600_000, owner: guard",
    expects: 'stuck',
    only: ['redis.blackhole', 'redis.kill']
  },
  'unsent-alarm': {
    description: 'an alarm counts as sent, and its channel gets no message',
    file: 'src/alarm/send-alarms.js',
    from: 'const result = await channel.send(message, signal);',
    to: 'const result = true;',
    expects: 'silentFailure',
    only: ['sink.fail']
  },
  'unchecked-token': {
    description: 'a receipt is accepted with any token',
    file: 'src/domain/tokens.js',
    from: '!timingSafeEqual(right, Buffer.from(token.slice(cut + 1)))',
    to: 'timingSafeEqual(right, right) === false',
    expects: 'forged',
    only: ['redis.flush']
  },
  'reserialised-body': {
    description: 'the body is parsed and printed again before it is sent',
    file: 'src/delivery/hooks.js',
    from: 'this.raw = task.messageBody;',
    to: 'this.raw = JSON.stringify(JSON.parse(task.messageBody));',
    expects: 'corrupted',
    only: ['redis.flush']
  },
  'host-clock': {
    description: "the dispatcher's clock, which is an hour ahead, decides which deliveries are due",
    file: 'src/db/deliveries.js',
    from: "w.next_action_at <= now() and w.phase = 'WAITING'",
    to: "w.next_action_at <= ${new Date().toISOString()}::text::timestamptz and w.phase = 'WAITING'",
    expects: 'early',
    only: ['redis.flush'],
    aheadSeconds: 3_600
  },
  ...keyMutants,
  ...producerMutants,
  'receivers-without-table': {
    description: 'receivers do not check whether they have handled a delivery',
    file: 'src/consumer/receiver.js',
    from: 'result = begun.result;',
    to: 'result = await work(task);',
    expects: 'inexact',
    only: [],
    isOfReceivers: true
  },
  'received-after-work': {
    description: 'receivers record that they have handled a delivery after the transaction of its work',
    file: 'src/consumer/receiver.js',
    from: `transact: (task, work, wantsReceipt) => db.begin(native => handle(db.within(native), task, () => work(native, task), wantsReceipt)),`,
    to: `transact: async (task, work, wantsReceipt) => {
            const done = await db.begin(native => handle(db.within(native), task, () => work(native, task), wantsReceipt));
            await received.begin(db, consumer, task);
            return done;
        },`,
    also: [
      {
        file: 'src/consumer/receiver.js',
        from: 'const begun = await received.begin(tx, consumer, task);',
        to: `const begun = await received.begin(tx, consumer, task);
        if ('mark' in begun) await received.takeBack(begun);`
      },
      {
        file: 'src/consumer/receiver.js',
        from: 'await received.keep(begun, text);',
        to: 'await undefined;'
      }
    ],
    expects: 'inexact',
    only: [],
    isOfReceivers: true
  }
}

/** Short and busy. A mutant that never comes to rest must not take long. */
export const mutantProfile: Omit<Profile, 'only'> = {
  seconds: 18,
  rate: 20,
  stopMs: 1_500,
  drainMs: 12_000,
  fewest: 100
}

/** The same for mutants of producers. */
export const producerMutantProfile: Profile = {
  seconds: 20,
  rate: 14,
  stopMs: 1_500,
  drainMs: 0,
  fewest: 60,
  isOfProducers: true
}
