/** A row of `ackbox_outbox`, as its database wrote it. Times are RFC 3339 in UTC. */
export interface RelayRow {
  /** The number of the row: the order of insertion. */
  id: string
  taskNo: string
  messageCode: string
  /** The text of a JSON value; not checked yet. */
  messageBody: string
  sceneType: string | null
  deliverStartTime: string | null
  /**
   * Only beside a deliverStartTime, or beyond every calendar, which Ackbox refuses. Any other is one: a row that is posted again must be
   * the same task.
   */
  delayMs: number | null
  deliverBefore: string | null
  orderingKey: string | null
  needCallback: boolean | null
  retryTimes: number | null
  bizType: string | null
  bizKey: string | null
  uniqueBiz: boolean | null
  /** The text of a JSON array of taskNos. */
  after: string | null
  /** The text of a JSON object. */
  extend: string | null
  traceparent: string | null
  /** Why it can be no task, where that was found out while it was read (JSON). */
  problem?: string
}

/** About a hundred years. Databases cannot represent every time beyond it. */
export const farMs = 3_155_760_000_000

/** What becomes of a row: Ackbox has the task, or refused it for good with this problem (JSON), or it stays. */
export type RowVerdict =
  | { kind: 'accepted'; isNew: boolean }
  | { kind: 'rejected'; problem: string }
  | { kind: 'kept' }

/** Rows without an ordering key, or those of one shard of keys. */
export type Share = 'unkeyed' | number

export interface Waiting {
  rows: number
  /** Seconds since the oldest row was inserted; 0 without rows. */
  oldestS: number
  rejected: number
}

/** The producer's database. Each method throws what its driver throws. */
export interface Source {
  /** Throws a RelayError that says what to do where the tables are missing. */
  check(): Promise<void>
  /** Shards with a row; keys keep their order within one. */
  shards(): Promise<number[]>
  /**
   * In one transaction: locks up to `limit` of the oldest rows that no other relay holds, asks `post`, removes what was accepted
   * and moves what was rejected. A shard that another relay holds gives no rows. Returns how many rows it saw and removed.
   */
  drain(
    share: Share,
    limit: number,
    post: (rows: RelayRow[]) => Promise<RowVerdict[]>
  ): Promise<{ seen: number; removed: number }>
  waiting(): Promise<Waiting>
  /** Moves every rejected row back; their number. */
  retryRejected(): Promise<number>
  close(): Promise<void>
}

/** The relay cannot go on; the message says what to do. */
export class RelayError extends Error {
  override name = 'RelayError'
}

/** Ids of the rows that leave the outbox, and those of them that were refused with their problems. */
export function byVerdict(
  rows: readonly RelayRow[],
  verdicts: readonly RowVerdict[]
): { accepted: string[]; rejected: { id: string; problem: string }[] } {
  const accepted: string[] = []
  const rejected: { id: string; problem: string }[] = []
  rows.forEach(({ id }, index) => {
    const verdict = verdicts[index]
    if (verdict?.kind === 'accepted') accepted.push(id)
    if (verdict?.kind === 'rejected') rejected.push({ id, problem: verdict.problem })
  })
  return { accepted, rejected }
}
