// Constants that a run shares with its receivers.
export type Place = 'after-commit' | 'before-commit' | 'after-receipt'

/** Per transaction or receipt. Each receiver dies every few seconds, and is up most of the time. */
export const deathChance: Record<Place, number> = {
  'after-commit': 0.02,
  'before-commit': 0.01,
  'after-receipt': 0.03
}
/** Late work takes longer than its deadline, by far. */
export const promptDeadlineMs = 50
export const lateMs = 250

/** Receivers die while this file exists in the folder of the run. */
export const faultsFile = 'faults'

/** Valid in PostgreSQL and in MariaDB. */
export const tables = `
create table points (kind varchar(16) not null, shard int not null, granted bigint not null, primary key (kind, shard));
${['prompt', 'late']
  .map(
    kind =>
      `insert into points values ${Array.from({ length: 16 }, (_, shard) => `('${kind}', ${shard}, 0)`).join(', ')};`
  )
  .join('\n')}
`
