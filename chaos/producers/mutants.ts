// Mutants on the producers' side.
import type { Mutant } from '../mutant.ts'

const mutants: Record<string, Omit<Mutant, 'only' | 'isOfProducers'>> = {
  'relay-removes-first': {
    description: 'the relay removes rows, and commits that, before it posts them',
    file: 'src/relay/postgres.js',
    from: 'const { accepted, rejected } = byVerdict(rows, await post(rows));',
    to: `await tx\`delete from ackbox_outbox where id = any(\${rows.map(row => row.id)}::bigint[])\`;
            await tx.unsafe('commit');
            const { accepted, rejected } = byVerdict(rows, await post(rows));`,
    expects: 'lost'
  },
  'unknown-commits': {
    description: 'a half message is committed although its producer does not know the result yet',
    file: 'src/delivery/half.js',
    from: "if (answer === 'COMMITTED') {",
    to: "if (answer === 'COMMITTED' || answer === 'UNKNOWN') {",
    expects: 'unexpected',
    isCalm: true
  },
  'barrier-without-row': {
    description: 'the transaction of a half message leaves no row for its check',
    file: 'src/producer/half-message.js',
    from: `await prepared(tx, taskNo);
            const result = await work(native);
            await stillPrepared(tx, taskNo);`,
    to: 'const result = await work(native);',
    expects: 'lost',
    isCalm: true
  },
  'barrier-outside': {
    description: 'the row in the barrier is written in a transaction of its own, before that of the work',
    file: 'src/producer/half-message.js',
    from: 'await prepared(tx, taskNo);',
    to: 'await at.begin(own => prepared(at.within(own), taskNo));',
    expects: 'unexpected',
    isCalm: true
  },
  'rejected-dropped': {
    description: 'a row that is no task is removed, and not kept as rejected',
    file: 'src/delivery/accept-rows.js',
    from: 'await rejectFromOutbox(sql, rejections);',
    to: 'await removeFromOutbox(sql, rejections.map(one => one.rowId));',
    expects: 'dropped',
    isCalm: true
  },
  'released-early': {
    description: 'a task waits for prerequisites that FAILED, and not for those that are SENDING',
    file: 'src/delivery/dependents.js',
    from: "return sending > 0 ? 'wait' : 'unblock';",
    to: "return sending < 0 ? 'wait' : 'unblock';",
    expects: 'released',
    isCalm: true
  },
  'only-the-first': {
    description: 'a task waits for the first of its prerequisites, and not for the others',
    file: 'src/db/dependents.js',
    from: 'where x.task_id = w.task_id and x.done_at is null',
    to: `where x.task_id = w.task_id and x.done_at is null and x.after_id = (
        select f.after_id from dependency f where f.task_id = w.task_id order by f.after_id limit 1
      )`,
    expects: 'released',
    isCalm: true
  }
}

export const producerMutants: Record<string, Mutant> = Object.fromEntries(
  Object.entries(mutants).map(([name, mutant]) => [name, { ...mutant, only: [], isOfProducers: true }])
)
